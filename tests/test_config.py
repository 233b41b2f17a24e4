import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DEVICE, RECIPE, SHAPE, TRAIN
from x1_pretrain import paths
from x1_pretrain.config import as_dict, digest
from x1_pretrain.errors import UserError
from x1_pretrain.shape import ModelShape
from x1_pretrain.study import load_profile, load_study, refuse_lost_experiment
from x1_pretrain.typed_yaml import build

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
    """Replace text once; `new` may end with a `#` that hides a value of the profile, whatever it is."""
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
        (paths.PARAMS, "schedule: wsd", "schedule: step", "choose one of wsd, cosine"),
        (paths.PARAMS, "activation: relu2", "activation: silu", "choose one of relu2, swiglu, gelu"),
        (paths.PARAMS, "position: rope", "position: alibi", "choose one of rope, learned"),
        (paths.PARAMS, "logit_softcap: null", "logit_softcap: 0", "softcap: 0 is not a finite number above"),
        (paths.PARAMS, "z_loss: null", "z_loss: -1.0e-04", "z_loss: -0.0001 is not a finite number above 0"),
        (paths.PARAMS, "z_loss: null", "z_loss: false", "z_loss: expected a number, found False"),
        (paths.PARAMS, "  mup: true", "  mup: null", "recipe.mup: expected true or false, found None"),
        (TINY, "non_finite: ", "non_finite: ignore  # ", "choose one of stop, skip, rewind"),
        (TINY, "attention: ", "attention: triton  # ", "choose one of auto, sdpa, flash, flex"),
        (
            TINY,
            "muon_lr: ",
            'muon_lr: "3e-5"  # ',
            "train.muon_lr: expected a number, found '3e-5'",
        ),
        (TINY, "muon_lr", "muonlr", "train: unknown key 'muonlr'"),
        (TINY, "  grad_clip: ", "  # ", "train: missing key 'grad_clip'"),
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
        (TINY, "cap_usd: 50.0", "cap_usd: 0", "a finite number above 0"),
        (TINY, "cooldown_fraction: ", "cooldown_fraction: 0  # ", r"is not in \(0, 1\]"),
        (paths.PARAMS, "seed: 0", "seed: -1", r"params\.yaml\.seed: -1 is not from 0 to"),
        (paths.PARAMS, "seeds: 1 ", "seeds: 0 ", r"params\.yaml\.sweep\.seeds: 0 is not from 1 to 100"),
        (paths.PARAMS, "    - B", "    - A", r"sweep\.models: \['A', 'A', 'C'\] .* each once"),
        (
            paths.PARAMS,
            "    - A\n    - B\n    - C",
            "    []",
            r"sweep\.models: \[\] is not a list of one or more",
        ),
        (TINY, "    - 0.25", "    - 0.125", r"sweep: branches \[0\.125, 0\.125, .* increase .* none twice"),
        (TINY, "    - 0.125", "    - 0.0", "must increase and end with 1.0, each above 0"),
        (TINY, "    - 0.25", "    - 0.75", "must increase and end with 1.0"),
        (TINY, "    - fp32\n    - bf16", "    - bf16\n    - bf16", r"inference\.formats: .* each once"),
        (
            TINY,
            "min_characters: 80",
            "min_characters: 400001",
            "400001 is above curation.max_characters 400000",
        ),
        (TINY, "prompt_tokens: 64", "prompt_tokens: 257", "prompt_tokens 257 is above train.seq_len 256"),
        (TINY, "new_tokens: 64", "new_tokens: 193", "new_tokens 193 together are above train.seq_len 256"),
        (TINY, "    - 8\n", "    - 0\n", r"inference\.batch_sizes\[1\]: 0 is not at least 1"),
        (TINY, "val_tokens: 131072", "val_tokens: 255", "seq_len 256 is above train.val_tokens 255"),
        (TINY, "  C:", "  3:", r"tiny\.yaml\.models: the key 3 is not a string"),
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


@pytest.mark.parametrize(
    ("keys", "values", "right"),
    [
        (
            "threads shard_tokens seq_len batch_sequences micro_batch val_tokens evaluations "
            "checkpoint_every base_width n_layer d_model n_head n_kv_head walkers draws steps at_step "
            "batches prompt_tokens new_tokens",
            ("0", "-1"),
            "at least 1",
        ),
        (
            "warmup_steps min_characters max_characters bootstrap batch_ramp_steps",
            ("-1",),
            "at least 0",
        ),
        ("noise_batches", ("-1", "1"), "0 or at least 2"),
        (
            "muon_lr adamw_lr embedding_lr eps grad_clip flops target_params",
            ("0", "-1.0"),
            "a finite number above 0",
        ),
        ("weight_decay price_usd_per_hour", ("-0.1",), "at least 0"),
        ("cooldown_fraction assumed_mfu", ("0.0", "1.5"), r"in \(0, 1\]"),
        ("momentum beta1 beta2", ("1.0", "-0.1"), r"in \[0, 1\)"),
        ("val_fraction", ("0.0", "1.0"), "between 0 and 1"),
    ],
)
def test_a_number_outside_its_limit_is_refused_with_what_would_be_right(study: Path, keys, values, right):
    original = TINY.read_text(encoding="utf-8")
    for key in keys.split():
        for value in values:
            TINY.write_text(re.sub(rf"\b{key}: \S+", f"{key}: {value}", original, count=1), encoding="utf-8")
            with pytest.raises(UserError, match=rf"^\S+tiny\.yaml\.\S+\.{key}: {value}\S* is not {right}$"):
                load_study()


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1e400", "1" + "0" * 400])
def test_a_number_must_be_finite(study: Path, value: str):
    edit(TINY, "flops: 6.0e+12", f"flops: {value}")
    with pytest.raises(UserError, match=r"models\.A\.flops: expected a number, found -?(inf|nan)"):
        load_study()


@pytest.mark.parametrize(
    "changes", [{"n_head": 0}, {"n_kv_head": 0}, {"d_model": 0}, {"n_layer": 0}, {"flops": float("inf")}]
)
def test_limits_hold_for_a_shape_made_in_code(changes):
    with pytest.raises(ValueError, match="is not"):
        dataclasses.replace(ModelShape(2, 48, 2, 2, 6e12), **changes)


@pytest.mark.parametrize(
    ("section", "may_be_off"),
    [
        (TRAIN, {"grad_clip"}),
        (RECIPE, {"bigram_rows", "logit_softcap", "z_loss"}),
        (DEVICE, set()),
        (SHAPE, set()),
    ],
    ids=["train", "recipe", "device", "shape"],
)
def test_null_turns_off_what_can_be_off_and_nothing_else(section, may_be_off: set[str]):
    values = as_dict(section)
    accepted = set()
    for key in values:
        try:
            built = build(type(section), values | {key: None}, "here")
        except UserError as error:
            assert str(error).startswith(f"here.{key}: ") and "None" in str(error)
        else:
            assert getattr(built, key) is None
            accepted.add(key)
    assert accepted == may_be_off


@pytest.mark.parametrize("value", [1, 15.0, 1e-4])
def test_what_can_be_off_can_be_any_positive_number(value: float):
    for section, keys in ((TRAIN, ["grad_clip"]), (RECIPE, ["logit_softcap", "z_loss"])):
        built = build(type(section), as_dict(section) | dict.fromkeys(keys, value), "here")
        assert [getattr(built, key) for key in keys] == [float(value)] * len(keys)


def test_a_float_as_dvc_writes_it_is_read(study: Path):
    edit(TINY, "muon_lr: ", "muon_lr: 3e-05  # ")
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
    assert shape.N_of("gelu") == shape.N_of("relu2") == shape.N


@given(st.integers(1, 4), st.integers(2, 64).map(lambda half: 16 * half))
def test_swiglu_has_about_as_many_parameters(n_layer: int, d_model: int):
    """Three matrices of a width that is a multiple of 8, at most 4 from the 8/3 d that would be exact."""
    shape = ModelShape(n_layer, d_model, 2, 2, 1.0)
    assert abs(shape.N_of("swiglu") - shape.N) <= n_layer * 3 * d_model * 4
    assert (shape.N_of("swiglu") - n_layer * 4 * d_model**2) % (n_layer * 3 * d_model * 8) == 0


def test_a_digest_changes_with_every_field():
    shape = ModelShape(2, 48, 2, 2, 6e12)
    for field in ("n_layer", "n_head", "flops"):
        other = dataclasses.replace(shape, **{field: getattr(shape, field) * 2, "n_kv_head": 2})
        assert digest(other) != digest(shape)
    assert digest(shape, 1) != digest(shape, 2)
    assert digest(shape) == digest(dataclasses.replace(shape))


@pytest.mark.parametrize("shallow", [True, False])
def test_a_temporary_copy_of_a_shallow_clone_is_refused(tmp_path, monkeypatch, shallow):
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    subprocess.run([*git, "init", "-q", str(origin)], check=True)
    for n in range(2):
        subprocess.run([*git, "-C", str(origin), "commit", "-q", "--allow-empty", "-m", str(n)], check=True)
    depth = ["--depth", "1"] if shallow else []
    subprocess.run([*git, "clone", "-q", *depth, f"file://{origin}", str(clone)], check=True)
    (clone / ".dvc/tmp/exps/copy").mkdir(parents=True)
    monkeypatch.chdir(clone / ".dvc/tmp/exps/copy")
    refuse_lost_experiment()  # not an experiment
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "0" * 40)
    if shallow:
        with pytest.raises(UserError, match=r"shallow.*git fetch --unshallow"):
            refuse_lost_experiment()
    else:
        refuse_lost_experiment()


def test_one_batch_cannot_tell_noise_from_signal():
    with pytest.raises(ValueError, match="noise_batches 1 is not 0 or at least 2"):
        dataclasses.replace(TRAIN, noise_batches=1)


def test_the_limit_of_an_optional_value_holds_in_code_too():
    assert dataclasses.replace(TRAIN, grad_clip=None).grad_clip is None
    with pytest.raises(ValueError, match=r"grad_clip -1\.0 is not a finite number above 0"):
        dataclasses.replace(TRAIN, grad_clip=-1.0)
