"""What a run hands over: the right rows, units and points, and nothing with a clock in a hashed file."""

import csv
import json
import math

import pytest
from jsonschema import Draft202012Validator

from x1_pretrain import identity, record, train
from x1_pretrain.checkpoint import load_model
from x1_pretrain.deliverables.files import sha256_of

HASHED = ("checkpoint/model.safetensors", "checkpoint/model.json", "checkpoint/run.json", "metrics.json")


@pytest.fixture
def finished(synthetic_tokens, small_spec, tmp_path, monkeypatch):
    monkeypatch.setenv("X1_SCRATCH", str(tmp_path / "scratch"))
    return train.train(small_spec, synthetic_tokens, "off", "test", lambda finished: None)


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
        Draft202012Validator(rules).validate(content | ({"stage": "train"} if "stage" in content else {}))
    run = json.loads((folder / "checkpoint/run.json").read_text())
    assert run["checkpoint"]["sha256"] == sha256_of(folder / "checkpoint/model.safetensors")
    assert run["results"] == json.loads((folder / "metrics.json").read_text())
    model, _ = load_model(folder / "checkpoint")
    assert model.shape == finished.spec.shape


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
    ]
    prints = [identity.fingerprint(spec, finished.used, "data") for spec in changes]
    assert len({base, identity.fingerprint(small_spec, finished.used, "other"), *prints}) == 7
    assert identity.fingerprint(change(small_spec, "money", cap_usd=9.0), finished.used, "data") == base
