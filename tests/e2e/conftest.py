"""A copy of the project with the `smoke` profile, repro'd once for all the tests that look at it."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from x1_pretrain.typed_yaml import read_yaml

REPO = Path(__file__).parents[2]


@dataclass(frozen=True)
class Project:
    """A working copy under test. Commands run with the environment of the tests."""

    root: Path

    def environment(self) -> dict[str, str]:
        wheels = os.environ.get("X1_WHEELS") or str(REPO / "data/raw")
        return os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "X1_WHEELS": wheels,
            "DVC_NO_ANALYTICS": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            # the copy's code, not the one that is installed
            "PYTHONPATH": str(self.root / "src"),
            "GIT_AUTHOR_NAME": "test",
            "GIT_AUTHOR_EMAIL": "test@example.org",
            "GIT_COMMITTER_NAME": "test",
            "GIT_COMMITTER_EMAIL": "test@example.org",
        }

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run to the end; with `check`, a failure shows what was printed."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment(), capture_output=True, text=True, timeout=600
        )
        if check and done.returncode:
            pytest.fail(f"{' '.join(command)} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start in a process group of its own."""
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text, f"{path} has no {old!r}"
        (self.root / path).write_text(text.replace(old, new))

    def commit(self) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", "a state")

    def copy(self, root: Path) -> "Project":
        """Another working copy, as a fresh clone would be: no cache, no data, no scratch."""
        subprocess.run(["git", "clone", "-q", str(self.root), str(root)], check=True)
        return Project(root)


def fresh_project(root: Path) -> Project:
    """What Git would hand over of the working tree, as a repository of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=REPO, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPO / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, root / name)
    project = Project(root)
    project.run("git", "init", "-q", "-b", "main")
    project.replace("params.yaml", "profile: tiny", "profile: smoke")
    project.commit()
    return project


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The smoke study after `dvc repro`, committed."""
    project = fresh_project(tmp_path_factory.mktemp("e2e") / "project")
    project.run("dvc", "repro")
    project.commit()
    return project


@pytest.fixture
def smoke_copy(smoke: Project, tmp_path: Path) -> Project:
    """A clone of the smoke study with its cache, so that only what a test changes runs again."""
    project = smoke.copy(tmp_path / "copy")
    shutil.copytree(smoke.root / ".dvc/cache", project.root / ".dvc/cache")
    project.run("dvc", "checkout", "-q")
    return project


def stages_of(project: Project) -> list[str]:
    return list(read_yaml(project.root / "dvc.lock")["stages"])
