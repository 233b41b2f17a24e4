"""Shapes, outcomes and actions on made-up logs; the public logs in the reference folder; bad logs."""

import csv
import json
import math
import tracemalloc

import numpy as np
import pytest

from tests.spikes.reference import reference
from x1_pretrain.errors import UserError
from x1_pretrain.spikes.analyse import as_json, as_text, main, reading, report
from x1_pretrain.spikes.logs.episode import lasting_rise
from x1_pretrain.spikes.logs.found import analyse
from x1_pretrain.spikes.logs.monitor import SpikeScore
from x1_pretrain.spikes.logs.points import Point


def log(n: int = 300, changes: dict[int, tuple[float, float]] | None = None, stop: int | None = None):
    """Clean noise around 2.5 nats and a norm of 0.3, with (loss, norm) replaced at some steps."""
    rng = np.random.default_rng(0)
    for step in range(1, n + 1):
        loss, norm = 2.5 + 0.04 * rng.standard_normal(), 0.3 * math.exp(0.1 * rng.standard_normal())
        loss, norm = (changes or {}).get(step, (loss, norm))
        yield Point(step, float(loss), float(norm))


def only(points):
    analysis = analyse(points, "test")
    assert analysis.n_spikes == 1
    return analysis.spikes[0]


LED = {
    200: (2.5, 2.0),
    201: (2.5, 9.0),
    202: (2.5, 30.0),
    203: (5.0, 80.0),
    204: (3.4, 20.0),
    205: (3.0, 5.0),
}


def test_a_norm_that_leads():
    spike = only(log(changes=LED))
    assert (spike.first_step, spike.peak_step, spike.lead_steps) == (200, 203, 3)
    assert (spike.shape, spike.outcome, spike.acts) == ("grad-norm-led", "self-recovering", True)
    assert reading(spike).family == "undetermined"
    assert any("update" in replay for replay in reading(spike).replays)


def test_one_outlier_is_only_logged():
    spike = only(log(changes={200: (5.0, 0.3)}))
    assert (spike.shape, spike.outcome, spike.acts) == ("instantaneous", "transparent", False)
    assert reading(spike).family == "benign outlier"


def test_damage_that_stays_is_acted_on():
    after = {step: (2.75, 0.3) for step in range(201, 301)}
    spike = only(log(changes={200: (5.0, 0.3), **after}))
    assert (spike.outcome, spike.acts) == ("new-level", True) and spike.left_nats > 0.2


def test_up_to_the_end_of_the_log_is_fatal():
    spike = only(log(changes={step: (3.0 + 0.05 * (step - 280), 3.0) for step in range(280, 301)}))
    assert (spike.shape, spike.outcome, spike.acts) == ("gradual", "fatal", True)


def test_downward_and_not_finite():
    assert only(log(changes={200: (0.001, 0.3)})).shape == "downward"
    spike = only(log(changes={200: (math.nan, 0.3)}))
    assert (spike.shape, spike.acts, reading(spike).family) == ("not-finite", True, "numeric")
    last = only(log(changes={200: (math.nan, 0.3), 205: (6.0, 0.3)}))
    assert last.flagged == 2  # a NaN does not blind what follows


def test_a_restart_and_a_risen_lr_are_put_beside_the_spike():
    points = [p._replace(lr=1e-3 if p.step < 190 else 5e-3) for p in log(changes=LED)]
    assert "the lr rose from 0.001 to 0.005" in only(points).events
    again = [*log(180), *(p._replace(step=p.step - 20) for p in log(changes=LED) if p.step > 180)]
    assert "the run was restarted at step 161" in only(again).events
    assert reading(only(again)).family == "restart or schedule"


def test_runs_of_one_file_are_kept_apart():
    other = [p._replace(loss=p.loss + 3, run="b") for p in log(100)]
    assert analyse([*(p._replace(run="a") for p in log(100)), *other], "test").n_spikes == 0


def test_olmo_score_counts_seven_sd_and_nan():
    score = SpikeScore()
    rng = np.random.default_rng(0)
    for value in rng.standard_normal(2000):
        score.add(float(value))
    assert score.share == 0.0
    score.add(9.0)
    score.add(math.nan)
    score.add(0.0)
    assert score.spikes == 2 and score.judged == 2000 - 128 + 3


def run(tmp_path, capsys, text: str, *options: str) -> str:
    path = tmp_path / "log.csv"
    path.write_text(text)
    main([str(path), *options])
    return capsys.readouterr().out


def as_csv(points) -> str:
    return "step,loss,grad_norm\n" + "".join(f"{p.step},{p.loss},{p.grad_norm}\n" for p in points)


def test_command_prints_text_or_json(tmp_path, capsys):
    text = run(tmp_path, capsys, as_csv(log(changes=LED)))
    assert "step 200 to 205: grad-norm-led" in text and "to settle it" in text and "ACT" in text
    content = json.loads(run(tmp_path, capsys, as_csv(log(changes={200: (math.nan, 1.0)})), "--json"))
    assert content["spikes"][0]["family"] == "numeric" and content["n_spikes"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("step,loss\n", "no line has both a step and a training loss"),
        ("step,loss\n1,2.5\n", "one step only"),
        ("step,accuracy\n1,2.5\n", "no column is the loss"),
        ("step,loss\n1,nan\n2,nan\n3,NaN\n", "none of its 3 losses is finite, from step 1 on"),
    ],
)
def test_bad_logs_end_in_one_sentence(tmp_path, text, message):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        report(path, {})


def test_steps_that_go_back_are_said_and_read_on(tmp_path, capsys):
    assert "the steps go back" in run(tmp_path, capsys, "step,loss\n1,2\n2,2\n1,2\n2,2\n3,2\n")


def test_a_long_log_is_read_in_bounded_memory(tmp_path):
    """Four times the lines take no more memory; so would ten million."""
    peaks = []
    for lines in (10_000, 40_000):
        path = tmp_path / "long.csv"
        with path.open("w") as stream:
            stream.write("step,loss,grad_norm\n")
            stream.writelines(f"{n},{2.5 + 0.01 * (n % 7)},{0.3 + 0.01 * (n % 5)}\n" for n in range(lines))
        tracemalloc.start()
        analysis, _ = report(path, {})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert analysis.points == lines
    assert peaks[1] < 1.2 * peaks[0] + 200_000


# ---------------------------------------------------------------- public logs


def cases() -> dict[str, dict]:
    lines = reference("cases.jsonl").read_text(encoding="utf-8").splitlines()
    return {case["id"]: case for case in map(json.loads, lines)}


def points_of(case: dict) -> list[Point]:
    scale = case["config"].get("loss_scale") if case["config"] else None
    return [Point(step, loss, norm, loss_scale=scale) for step, loss, norm in case["series"]]


def test_bloom_176b_in_the_lines_as_printed(tmp_path):
    """The chronicle's few lines suffice: the norm is flagged at 31,215, the loss peaks at 31,219."""
    rows = list(csv.DictReader(reference("bigscience_chronicles_lines.csv").open(encoding="utf-8")))
    path = tmp_path / "main_log.txt"
    path.write_text(
        "".join(
            f" iteration {row['iteration']:>8}/ 115311 | consumed samples: {row['consumed_samples']} | "
            f"learning rate: {row['lr']} | lm loss: {row['lm_loss']} | grad norm: {row['grad_norm']} |\n"
            for row in rows
            if row["run"] == "tr11-176B"
        )
    )
    analysis, _ = report(path, {})
    assert (analysis.format, analysis.points, analysis.short) == ("Megatron", 13, True)
    (spike,) = analysis.spikes
    assert spike.first_step <= 31219 - 3 and spike.peak_step == 31219
    assert (spike.shape, spike.outcome) == ("grad-norm-led", "self-recovering")
    assert spike.lead_steps == 4


def test_bigscience_file_as_a_whole_is_read_with_its_traps():
    analysis, _ = report(reference("bigscience_chronicles_lines.csv"), {})
    assert analysis.traps["stale_norm"] >= 4 and analysis.traps["zero_norm"] == 9
    assert analysis.traps["scaled_norm"] > 20
    by_step = {spike.first_step: spike for spike in analysis.spikes}
    assert by_step[31215].lead_steps == 4
    assert 29050 in by_step and by_step[29050].acts


def test_no_action_on_any_outlier_of_modded_nanogpt():
    path = reference("modded_valueembed_10runs_steps600_1200.csv")
    for column in path.open(encoding="utf-8").readline().strip().split(",")[1:]:
        analysis, _ = report(path, {"loss": column})
        assert any(spike.first_step <= 946 <= spike.last_step for spike in analysis.spikes)
        assert [spike for spike in analysis.spikes if spike.acts] == []
    rows = list(csv.DictReader(reference("modded_nanogpt_outliers.csv").open(encoding="utf-8")))
    judged = [row for row in rows if row["mean_next10_minus_median"]]
    assert len(judged) > 1000
    acting = [
        row
        for row in judged
        if lasting_rise(float(row["mean_next10_minus_median"]), float(row["mad_sigma64"]))
    ]
    assert acting == []


# What a label allows besides "undetermined"; a log alone must not claim more.
ALLOWED = {
    "bloom176b-31219": set(),
    "tr8-104b-exp1": set(),
    "tr8-104b-exp2": set(),
    "tr8-104b-exp11": set(),
    "fairseq-4066": {"restart or schedule"},
    "modded-946": {"benign outlier"},
}


@pytest.mark.parametrize("name", ALLOWED)
def test_labelled_cases_get_their_family_or_undetermined(name):
    analysis = analyse(points_of(cases()[name]), "case")
    for spike in analysis.spikes:
        read = reading(spike)
        assert read.family in ALLOWED[name] | {"undetermined"}
        assert read.reason and read.replays


def test_text_and_json_of_a_case_agree(tmp_path):
    analysis = analyse(points_of(cases()["bloom176b-31219"]), "case")
    readings = [reading(spike) for spike in analysis.spikes]
    assert "at step 31219" in as_text(tmp_path, analysis, readings)
    json.dumps(as_json(analysis, readings), allow_nan=False)
