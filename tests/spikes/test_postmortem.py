"""From findings to files: what is written validates, repeats byte for byte, and cannot break out."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain import paths
from x1_pretrain.deliverables.markdown import parse_markdown
from x1_pretrain.deliverables.schemas import check_value
from x1_pretrain.errors import UserError
from x1_pretrain.spikes.advice import CAUSES, PREVENTION
from x1_pretrain.spikes.agreement import PREDICTIONS
from x1_pretrain.spikes.arrays import log_csv, npz, token_counts
from x1_pretrain.spikes.document import document
from x1_pretrain.spikes.incident import run_incident
from x1_pretrain.spikes.markdown import code, number, table
from x1_pretrain.spikes.monitor import SpikeMonitor
from x1_pretrain.spikes.postmortem import write_postmortem
from x1_pretrain.spikes.record import Facts, Text, as_json, series

SCHEMAS = Path(__file__).parents[2] / paths.SCHEMAS
FACTS = Facts("spike-toy-seed0", "toy", 0, 1024, 240, 512, 5, 12.0)
TEXT = Text(lambda ids: " ".join(f"<b|`{i}`>\n" for i in ids), lambda number: [f"toy/{number}"])


@pytest.fixture(scope="module")
def findings(make_lab, markov_corpus):
    return run_incident(make_lab("garbage"), markov_corpus, SpikeMonitor(), steps=240)


@pytest.fixture
def incident_dir(tmp_path, findings, make_lab, markov_corpus) -> Path:
    stream = make_lab("garbage").stream
    spike = as_json(findings, FACTS, stream, markov_corpus, TEXT)
    incident = {"spike": spike, "series": series(findings)}
    (tmp_path / "incident.json").write_text(json.dumps(incident, allow_nan=False))
    counts = token_counts(stream, findings.found.offending)
    (tmp_path / "histogram.npz").write_bytes(npz(batch=counts, corpus=markov_corpus.unigrams))
    return tmp_path


def written(incident_dir: Path, name: str) -> dict[str, bytes]:
    folder = incident_dir / name
    write_postmortem(incident_dir, folder / "spike.json")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_outputs_validate_and_repeat_byte_for_byte(incident_dir):
    first, second = written(incident_dir, "a"), written(incident_dir, "b")
    assert first == second
    assert set(first) == {"spike.json", "spike.png", "spike-postmortem.md"}
    assert check_value(json.loads(first["spike.json"]), "spike", "spike.json", SCHEMAS) == []
    text = first["spike-postmortem.md"].decode()
    assert check_value(parse_markdown(text), "spike-postmortem", "spike-postmortem.md", SCHEMAS) == []
    assert "injected on purpose" in text and "`garbage`" in text
    assert "measured/spike.json" in text


def test_time_is_printed_only_where_the_incident_has_it(incident_dir):
    time = "2026-11-30T12:00:00+00:00"
    assert time not in written(incident_dir, "without")["spike-postmortem.md"].decode()
    incident = json.loads((incident_dir / "incident.json").read_text())
    incident["spike"]["detection"]["detected_utc"] = time
    (incident_dir / "incident.json").write_text(json.dumps(incident))
    assert time in written(incident_dir, "with")["spike-postmortem.md"].decode()


def test_missing_or_damaged_incident_is_named(tmp_path, incident_dir):
    with pytest.raises(UserError, match=r"incident\.json"):
        write_postmortem(tmp_path / "nothing", tmp_path / "spike.json")
    (incident_dir / "histogram.npz").write_bytes(b"PK not a zip")
    with pytest.raises(UserError, match=r"histogram\.npz"):
        write_postmortem(incident_dir, tmp_path / "spike.json")


def test_every_cause_has_its_words():
    assert set(CAUSES) == set(PREDICTIONS)
    assert set(CAUSES) - {"dataset_corruption"} <= set(PREVENTION)


def spike_of(incident_dir: Path) -> dict:
    return json.loads((incident_dir / "incident.json").read_text())["spike"]


def test_a_wrong_verdict_is_not_hidden(incident_dir):
    spike = spike_of(incident_dir)
    spike["truth"] |= {"cause_right": False, "subtype_right": False, "range_right": False}
    spike["verdict"] |= {"cause": "undetermined", "subtype": None, "confidence": None}
    spike["recovery"] |= {"recovered": False, "final_probe_nats": None, "relative_to_control": None}
    text = document(spike, "measured/spike.json", "spike.png")
    assert "not what was injected" in text and "**not recovered**" in text and "not exactly" in text


def test_the_right_cause_of_the_wrong_kind_is_said_so(incident_dir):
    spike = spike_of(incident_dir)
    assert "This is what was injected." in document(spike, "measured/spike.json", "spike.png")
    spike["truth"] |= {"subtype_right": False, "subtype": "broken_order"}
    text = document(spike, "measured/spike.json", "spike.png")
    assert "This is what was injected." not in text and "dataset corruption (broken order)" in text


def test_a_recovery_that_nobody_needed_is_said_so(incident_dir):
    spike = spike_of(incident_dir)
    spike["recovery"]["needed"] = False
    assert "so had the run without any action" in document(spike, "measured/spike.json", "spike.png")


@pytest.mark.parametrize("injection", ["lr", "bit_flip"])
def test_an_incident_without_bad_batches_is_written_up_too(make_lab, markov_corpus, injection):
    lab = make_lab(injection, lr=40.0)
    findings = run_incident(lab, markov_corpus, SpikeMonitor(), steps=220)
    spike = as_json(findings, FACTS, lab.stream, markov_corpus, TEXT)
    assert check_value(spike, "spike", "spike.json", SCHEMAS) == []
    text = document(spike, "measured/spike.json", "spike.png")
    assert "no batch stands out" in text and "This is what was injected." in text
    assert check_value(parse_markdown(text), "spike-postmortem", "spike-postmortem.md", SCHEMAS) == []


def test_log_has_every_run_and_says_what_was_skipped(findings):
    lines = [line.split(",") for line in log_csv(findings, FACTS.peak_lr).splitlines()]
    assert lines[0] == ["run", "step", "batch", "loss_nats", "grad_norm", "lr", "skipped"]
    incident = [line for line in lines if line[0] == "incident"]
    assert [int(line[1]) for line in incident] == list(range(1, 241))
    skipped = {line[0]: sum(int(cells[6]) for cells in lines if cells[0] == line[0]) for line in lines[1:]}
    assert skipped["rewind_and_skip"] == 6 and skipped["incident"] == skipped["control"] == 0


def test_npz_has_no_clock_in_it():
    assert npz(batch=np.arange(9)) == npz(batch=np.arange(9))


@given(st.text(max_size=40))
def test_no_text_breaks_out_of_its_code_span(text):
    span = code(text)
    fence = span[: len(span) - len(span.lstrip("`"))]
    inner = span[len(fence) : -len(fence)]
    assert "\n" not in span and span.isprintable()
    assert span.endswith(fence)
    assert len(fence) not in [len(run) for run in re.findall("`+", inner)]
    row = table(["a", "b"], [[span, "x"]]).splitlines()[2]
    assert row.replace("\\|", "").count("|") == 3


@pytest.mark.parametrize(("value", "shown"), [(None, "not finite"), (-0.0001, "0.000"), (2.5, "2.500")])
def test_numbers(value, shown):
    assert number(value) == shown
