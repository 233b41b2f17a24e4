"""A small finished study under git and DVC, to be spoiled by the tests of the verifier."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PIPELINE = """
stages:
  check:
    cmd: python make.py data/checked.txt
    deps: [make.py]
    outs: [data/checked.txt]
  prepare:
    cmd: python make.py data/shards 2
    deps: [make.py, src, data/checked.txt]
    params: [seed]
    outs: [data/shards]
  sweep:
    matrix:
      model: ${models}
    cmd: python make.py runs/${item.model}.txt
    deps: [make.py, data/shards]
    params:
      - seed
      - profile.yaml: ["sizes.${item.model}", train]
    metrics:
      - runs/${item.model}.txt: {cache: false}
  collect:
    cmd: python make.py all.txt
    deps: [make.py, runs]
    outs:
      - all.txt: {cache: false}
"""
MAKE = """
import pathlib, sys
out = pathlib.Path(sys.argv[1])
files = [out / f"{i}.bin" for i in range(int(sys.argv[2]))] if len(sys.argv) > 2 else [out]
for file in files:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"made {file.name}\\n")
"""


def run(*command: str, cwd: Path) -> None:
    environment = dict(os.environ, DVC_NO_ANALYTICS="1", DVC_SITE_CACHE_DIR=str(cwd / ".site"))
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    (root / "src/__pycache__").mkdir(parents=True)
    files = {
        "dvc.yaml": PIPELINE,
        "make.py": MAKE,
        "params.yaml": "seed: 0\nmodels: [A, B]\n",
        "profile.yaml": "sizes: {A: {d: 1}, B: {d: 2}}\ntrain: {lr: 3e-05, steps: 1.0e+12}\n",
        "src/a.py": "A = 1\n",
        "src/__pycache__/a.pyc": "bytes\n",
        ".gitignore": "/data/shards\n/data/checked.txt\n/.site\n__pycache__\n",
    }
    run("git", "init", "-q", cwd=root)
    run(sys.executable, "-m", "dvc", "init", "-q", cwd=root)
    (root / ".dvcignore").write_text("__pycache__\n")
    for name, content in files.items():
        (root / name).write_text(content)
    run(sys.executable, "-m", "dvc", "repro", "-q", cwd=root)
    return root


@pytest.fixture
def project(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished study, as the current directory."""
    root = tmp_path / "project"
    shutil.copytree(finished, root, ignore=shutil.ignore_patterns(".site"))
    monkeypatch.chdir(root)
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(root / ".site"))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    return root
