import dataclasses
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain import paths
from x1_pretrain.config import ModelShape, digest, load_profile, load_study
from x1_pretrain.errors import UserError

ROOT = Path(__file__).parents[1]
TINY = paths.PROFILES / "tiny.yaml"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with params.yaml and the tiny profile, to be spoiled."""
    (tmp_path / paths.PROFILES).mkdir(parents=True)
    shutil.copy(ROOT / paths.PARAMS, tmp_path / paths.PARAMS)
    shutil.copy(ROOT / TINY, tmp_path / TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_committed_study_loads(study: Path):
    loaded = load_study()
    assert loaded.choice.model in loaded.profile.models
    assert loaded.shape == loaded.profile.models[loaded.choice.model]


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        (
            paths.PARAMS,
            "profile: tiny",
            "profile: huge",
            "'huge' is unknown; valid profiles are tiny",
        ),
        (
            paths.PARAMS,
            "model: X1",
            "model: Z",
            "model 'Z' is not in .*valid models are A, B, C, X1",
        ),
        (paths.PARAMS, "    - B", "    - Q", "model 'Q' is not in"),
        (paths.PARAMS, "seed: 0", "sede: 0", "unknown key 'sede'; valid keys are profile, model"),
        (paths.PARAMS, "seed: 0", "seed: zero", "seed: expected a whole number, found 'zero'"),
        (paths.PARAMS, "optimizer: muon", "optimizer: lion", "choose one of muon, adamw"),
        (
            TINY,
            "muon_lr: 0.02",
            'muon_lr: "3e-5"',
            "train.muon_lr: expected a number, found '3e-5'",
        ),
        (TINY, "muon_lr", "muonlr", "train: unknown key 'muonlr'"),
        (TINY, "  grad_clip: 1.0\n", "", "train: missing key 'grad_clip'"),
        (TINY, "micro_batch: 16", "micro_batch: 5", "5 does not divide .* 16; the nearest .* is 4"),
        (TINY, "d_model: 48", "d_model: 47", "d_model 47 over n_head 1 .* make d_model even"),
        (TINY, "n_kv_head: 2", "n_kv_head: 3", "n_kv_head 3 does not divide n_head 2; .* 1, 2"),
        (
            TINY,
            "flops: 6.0e+12",
            "flops: 7.0e+12",
            r"IsoFLOP set.*\[6000000000000.0, 7000000000000.0\]",
        ),
        (
            paths.PARAMS,
            "spike:\n  model: A",
            "spike:\n  model: Q",
            r"model 'Q' is not in .*tiny.yaml; valid models are A, B",
        ),
        (TINY, "    - 1.0", "    - 0.9", "must increase and end with 1.0"),
        (TINY, "cap_usd: 50.0", "cap_usd: 0", "cap_usd > 0"),
        (TINY, "cooldown_fraction: 0.2", "cooldown_fraction: 0", r"is not in \(0, 1\]"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_file(
    study: Path, file: Path, old: str, new: str, sentence: str
):
    edit(file, old, new)
    with pytest.raises(UserError, match=sentence) as error:
        load_study()
    assert file.name in str(error.value) or "tiny.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_float_as_dvc_writes_it_is_read(study: Path):
    edit(TINY, "muon_lr: 0.02", "muon_lr: 3e-05")
    assert load_profile(TINY).train.muon_lr == 3e-05


@given(st.integers(1, 12), st.integers(1, 8), st.integers(1, 64), st.data())
def test_parameters_are_the_matrices_of_every_layer(n_layer: int, n_head: int, half: int, data):
    n_kv_head = data.draw(st.sampled_from([h for h in range(1, n_head + 1) if n_head % h == 0]))
    d_model = n_head * 2 * half
    shape = ModelShape(n_layer, d_model, n_head, n_kv_head, 1.0)
    query_and_out, key_and_value = 2 * d_model**2, 2 * d_model * (2 * half) * n_kv_head
    assert n_layer * (query_and_out + key_and_value + 2 * d_model * 4 * d_model) == shape.N
    if n_kv_head == n_head:
        assert 12 * n_layer * d_model**2 == shape.N


def test_a_digest_changes_with_every_field():
    shape = ModelShape(2, 48, 2, 2, 6e12)
    for field in ("n_layer", "n_head", "flops"):
        other = dataclasses.replace(shape, **{field: getattr(shape, field) * 2, "n_kv_head": 2})
        assert digest(other) != digest(shape)
    assert digest(shape, 1) != digest(shape, 2)
    assert digest(shape) == digest(dataclasses.replace(shape))
