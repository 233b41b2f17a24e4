"""The three stages as the pipeline runs them, on a user's own files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from x1_pretrain.corpus.loader import Tokens

REPO = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, gpt2_raw_dir):
    """A folder with params.yaml and a profile whose text is texts/*.txt."""
    yaml = YAML(typ="safe", pure=True)
    profile = yaml.load(REPO / "experiments/profiles/tiny.yaml")
    profile["corpus"]["sources"] = [
        {"domain": "mine", "licence": "CC0-1.0", "kind": "files", "pattern": "texts/*.txt"}
    ]
    profile["curation"]["val_fraction"] = 0.3
    (tmp_path / "experiments/profiles").mkdir(parents=True)
    yaml.dump(profile, tmp_path / "experiments/profiles/tiny.yaml")
    (tmp_path / "params.yaml").write_bytes((REPO / "params.yaml").read_bytes())
    (tmp_path / "texts").mkdir()
    for n in range(30):
        (tmp_path / f"texts/{n}.txt").write_text(f"This is the text number {n}. " * 9)
    return tmp_path


def run(stage, project, raw_dir):
    return subprocess.run(
        [sys.executable, REPO / f"stages/{stage}.py"],
        cwd=project,
        env=os.environ | {"X1_WHEELS": str(raw_dir), "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_stages_in_a_row(project, gpt2_raw_dir):
    for stage in ("fetch", "curate", "tokenize_text"):
        done = run(stage, project, gpt2_raw_dir)
        assert done.returncode == 0, done.stderr
    tokens = Tokens(project / "data/tokens")
    tokens.verify()
    summary = json.loads((project / "data/tokens.json").read_text())
    curation = json.loads((project / "data/curation.json").read_text())
    assert summary["train_documents"] == curation["train_documents"]
    assert summary["n_vocab"] == 1024 and tokens.n_vocab == 1024


def test_mistakes_are_one_line_and_status_2(project, gpt2_raw_dir):
    done = run("curate", project, gpt2_raw_dir)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "mine.files.json" in done.stderr
    path = project / "experiments/profiles/tiny.yaml"
    path.write_text(path.read_text().replace("domain: mine", "domain: My own"))
    done = run("fetch", project, gpt2_raw_dir)
    assert done.returncode == 2
    assert "tiny.yaml.corpus.sources.domain: 'My own'" in done.stderr
