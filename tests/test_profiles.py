"""Every profile loads, and all have the same keys, so that `-S profile=...` never lacks one."""

from pathlib import Path
from typing import Any

import pytest

from x1_pretrain import paths
from x1_pretrain.study import load_profile, load_study
from x1_pretrain.typed_yaml import read_yaml

ROOT = Path(__file__).parents[1]
PROFILES = sorted((ROOT / paths.PROFILES).glob("*.yaml"))
BY_ITEM = {"corpus.sources"}  # what a source needs depends on its kind


def keys(content: Any, prefix: str = "") -> set[str]:
    if not isinstance(content, dict) or prefix in BY_ITEM:
        return {prefix}
    return {
        key for name, value in content.items() for key in keys(value, f"{prefix}.{name}" if prefix else name)
    }


def test_the_default_profile_exists():
    assert "tiny" in [path.stem for path in PROFILES]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_profile_loads(path: Path):
    profile = load_profile(path)
    assert profile.corpus.sources
    assert all(shape.N > 0 for shape in profile.models.values())


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_profile_has_the_keys_of_tiny(path: Path):
    tiny = keys(read_yaml(ROOT / paths.PROFILES / "tiny.yaml"))
    assert keys(read_yaml(path)) == tiny


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_params_yaml_fits_every_profile(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    text = paths.PARAMS.read_text(encoding="utf-8")
    params = tmp_path / "params.yaml"
    first, rest = text.split("\n", 1)
    assert first.startswith("profile:")
    params.write_text(f"profile: {path.stem}\n{rest}", encoding="utf-8")
    assert load_study(params).choice.profile == path.stem
