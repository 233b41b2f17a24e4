"""What a run hands over: the right rows, units and points, and nothing with a clock in a hashed file."""

import csv
import dataclasses
import json
import math

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import MONEY
from x1_pretrain import identity, record, train
from x1_pretrain.checkpoint import load_model
from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.deliverables.manifest import build_manifest
from x1_pretrain.deliverables.schemas import check_file
from x1_pretrain.schedule import schedule_of

HASHED = ("checkpoint/model.safetensors", "checkpoint/model.json", "checkpoint/run.json", "metrics.json")


@pytest.fixture(scope="module")
def trained() -> list[record.Finished]:
    """The run of `finished`, once there is one: all tests look at the same."""
    return []


@pytest.fixture
def finished(trained, synthetic_tokens, small_spec, tmp_path, monkeypatch):
    monkeypatch.setenv("X1_SCRATCH", str(tmp_path / "scratch"))
    if not trained:
        trained.append(train.train(small_spec, synthetic_tokens, "off", "test", lambda finished: None))
    return trained[0]


def written(finished, folder):
    record.write_run(finished, folder / "checkpoint", folder / "metrics.json", folder / "curve.csv")
    record.write_measured(finished, folder / "measured.json")
    return folder


def test_outputs_fit_their_schemas_and_name_the_checkpoint(finished, tmp_path, request):
    folder = written(finished, tmp_path / "out")
    schemas = request.config.rootpath / "schemas"
    for name, schema in (("metrics.json", "metrics"), ("measured.json", "measured-run")):
        content = json.loads((folder / name).read_text())
        rules = json.loads((schemas / f"{schema}.schema.json").read_text())
        Draft202012Validator(rules).validate(content)
    run = json.loads((folder / "checkpoint/run.json").read_text())
    assert run["checkpoint"]["sha256"] == sha256_of(folder / "checkpoint/model.safetensors")
    assert run["results"] == json.loads((folder / "metrics.json").read_text())
    model, _ = load_model(folder / "checkpoint")
    assert model.shape == finished.spec.shape
    assert json.loads((folder / "measured.json").read_text())["fingerprint"] == run["fingerprint"]


def test_a_run_fits_the_schema_of_the_manifest(finished, tmp_path, monkeypatch, request):
    run = json.loads((written(finished, tmp_path / "out") / "checkpoint/run.json").read_text())
    monkeypatch.chdir(request.config.rootpath)
    assert build_manifest(run, MONEY)["fingerprint"] == finished.fingerprint


def test_the_noise_scale_is_the_ratio_of_what_was_measured_along_the_run(finished):
    assert record.metrics(finished)["noise_scale_tokens"] is None
    first, last = ({"signal": 1.0, "noise": 300.0}, {"signal": 3.0, "noise": 100.0})
    noisy = [{**e, "noise": noise} for e, noise in zip(finished.evaluations[-2:], (first, last), strict=True)]
    measured = dataclasses.replace(finished, evaluations=[*finished.evaluations[:-2], *noisy])
    assert record.metrics(measured)["noise_scale_tokens"] == 100.0


def test_what_was_left_out_is_counted(finished):
    def counted(run):
        return record.metrics(run)["skipped_steps"], record.metrics(run)["skipped_sequences"]

    assert counted(finished) == (0, 0)
    spoiled = dataclasses.replace(finished, skipped_steps=2, skipped_data=[[8, 8], [40, 4]])
    assert counted(spoiled) == (2, 12)


def test_tokens_of_a_batch_ramp_are_those_of_its_batches(finished, change, tmp_path):
    """Steps of 2, 2, 4, 4 and then 8 sequences: 20 of 24 batches are whole, and D is not 24 of them."""
    ramped = dataclasses.replace(finished, spec=change(finished.spec, "schedule", ramp_steps=2))
    end = (2 + 2 + 4 + 4 + 20 * 8) * 32
    results = record.metrics(ramped)
    assert (results["D"], results["C_6nd"]) == (end, 6 * results["N"] * end)
    assert record.sweep_run(ramped)["points"][-1]["D"] == end
    with (written(ramped, tmp_path / "out") / "curve.csv").open() as stream:
        tokens = [int(row["tokens"]) for row in csv.DictReader(stream)]
    assert tokens[:5] == [64, 128, 256, 384, 640] and tokens[-1] == end


def test_the_same_run_hands_over_the_same_bytes(finished, synthetic_tokens, small_spec, tmp_path):
    again = train.train(small_spec, synthetic_tokens, "off", "test", lambda finished: None)
    one, two = written(finished, tmp_path / "one"), written(again, tmp_path / "two")
    for name in (*HASHED, "curve.csv"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_the_curve_is_the_trunk_and_the_last_cool_down(finished, tmp_path):
    with (written(finished, tmp_path / "out") / "curve.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == list(range(1, 25))
    assert [int(row["tokens"]) for row in rows][-1] == 24 * 8 * 32
    lr = [float(row["lr"]) for row in rows]
    assert lr[0] < lr[3] == 0.02 > lr[-1] > 0
    assert [row["step"] for row in rows if row["val_loss_nats"]] == ["12", "24"]


def test_a_long_curve_is_thinned_to_means(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "CURVE_ROWS", 10)
    with (written(finished, tmp_path / "out") / "curve.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == list(range(3, 25, 3))
    losses = [row.loss_nats for row in record.trunk_rows(finished.log, finished.spec)]
    assert float(rows[0]["train_loss_nats"]) == pytest.approx(sum(losses[:3]) / 3, rel=1e-5)
    assert rows[-1]["val_loss_nats"]


def test_bits_per_byte_is_total_nats_over_the_bytes_predicted(finished):
    targets = finished.val_tokens()
    expected = finished.val_loss_nats * targets / math.log(2) / finished.val_bytes
    assert record.metrics(finished)["val_bits_per_byte"] == pytest.approx(expected)
    # single-byte tokens, with a document end of no bytes now and then
    assert 0.9 * targets < finished.val_bytes < targets


def test_a_sweep_run_has_one_point_per_branch(finished):
    run = record.sweep_run(finished)
    assert [(point["branch"], point["steps"]) for point in run["points"]] == [(0.5, 12), (1.0, 24)]
    for point in run["points"]:
        assert point["C_6nd"] == 6 * run["N"] * point["D"]
        assert point["D"] == point["steps"] * 256


def test_the_fingerprint_changes_with_what_decides_the_bits(finished, small_spec, change):
    base = identity.fingerprint(small_spec, finished.used, "data")
    changes = [
        change(small_spec, seed=1),
        change(small_spec, "train", muon_lr=0.03),
        change(small_spec, "shape", d_model=32),
        change(small_spec, "recipe", qk_norm=False),
        change(small_spec, "device", threads=2),
        change(small_spec, "device", gradient_checkpointing=True),
        change(small_spec, "train", base_width=64),
        change(small_spec, schedule=schedule_of(small_spec.train, small_spec.recipe, 25)),
    ]
    prints = [identity.fingerprint(spec, finished.used, "data") for spec in changes]
    assert len({base, identity.fingerprint(small_spec, finished.used, "other"), *prints}) == 2 + len(changes)
    assert identity.fingerprint(change(small_spec, "money", cap_usd=9.0), finished.used, "data") == base


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 9, 23])
def test_a_step_that_was_left_out_is_an_empty_cell_and_in_no_mean(finished, tmp_path, request, value, at):
    rows = [
        dataclasses.replace(row, loss_nats=value, grad_norm=value) if row.step == at + 1 else row
        for row in finished.log
    ]
    skipped = dataclasses.replace(finished, log=rows, skipped_steps=1)
    folder = written(skipped, tmp_path / "out")
    assert check_file(folder / "curve.csv", "curve", request.config.rootpath / "schemas") == []
    with (folder / "curve.csv").open() as stream:
        cells = [row["train_loss_nats"] for row in csv.DictReader(stream)]
    assert [i for i, cell in enumerate(cells) if cell == ""] == [at]
    assert math.isfinite(record.metrics(skipped)["train_loss_nats"])
    assert math.isfinite(record.metrics(skipped)["grad_norm_max"])
