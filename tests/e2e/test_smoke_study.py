"""The real commands on the smoke profile: repro, no-op, experiments, tampering, another clone."""

import hashlib
import json
import os
import re
import resource

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
X1 = "experiments/X1-pretraining"
DELIVERABLES = [
    "run-cloud/manifest.json",
    "run-cloud/metrics.json",
    "run-cloud/curve.csv",
    "run-cloud/loss-curve.png",
    "run-cloud/checkpoint/model.safetensors",
    "scaling-law/runs.csv",
    "scaling-law/fit.json",
    "scaling-law/iso-flop.png",
    "scaling-law/prediction.md",
    "scaling-law/prediction.json",
    "scaling-law/score.json",
    "spike.json",
    "spike-postmortem.md",
    "inference/inference.json",
    "validation.json",
]


def ran(output: str) -> set[str]:
    """The stages that DVC says it ran."""
    return set(re.findall(r"Running stage '([^']+)'", output))


def test_every_deliverable_is_there_and_valid(smoke):
    for name in DELIVERABLES:
        assert (smoke.root / X1 / name).stat().st_size > 0, name
    assert json.loads(smoke.read(f"{X1}/validation.json"))["valid"] is True
    assert "verified" in smoke.run("python", "-m", "x1_pretrain.deliverables.verify").stdout


def test_the_report_is_one_page_without_outside_links(smoke):
    smoke.run("python", "-m", "x1_pretrain.report.html")
    page = smoke.read(f"{X1}/report.html").decode()
    assert page.count("data:image/png;base64,") >= 3
    assert not re.search(r'(src|href)="https?://[^"]+\.(js|css|png)"', page)


def test_a_second_repro_does_nothing_and_status_is_clean(smoke):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    again = smoke.run("dvc", "repro")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran(again.stdout) == set()
    assert "up to date" in smoke.run("dvc", "status").stdout
    assert smoke.run("git", "status", "--porcelain").stdout == ""
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert cpu_s < 3 * (1 + os.getloadavg()[0] / 4)  # a busy machine is charged for its caches


def test_another_clone_makes_the_same_lock(smoke, tmp_path):
    clone = smoke.copy(tmp_path / "clone")
    clone.run("dvc", "repro", "-f")
    clone.run("git", "diff", "--exit-code", "dvc.lock")


def test_selecting_another_model_runs_training_and_what_depends_on_it(smoke_copy):
    done = smoke_copy.run("dvc", "exp", "run", "-S", "model=C")
    dependants = {"train", "manifest", "loss-curve", "score", "inference", "validate"}
    assert ran(done.stdout) == {"check"} | dependants
    table = smoke_copy.run("dvc", "metrics", "diff", "--md").stdout
    assert re.search(r"metrics\.json\s*\|\s*val_loss_nats", table)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("model=Z", "model 'Z' is not in experiments/profiles/smoke.yaml; valid models are A, B, C, X1"),
        ("profile=huge", "'huge' is unknown; valid profiles are a100, gpt2-124m, smoke, tiny"),
        ("seed=many", "params.yaml.seed: expected a whole number, found 'many'"),
        ("experiments/profiles/smoke.yaml:models.C.n_head=3", "d_model 32 over n_head 3"),
        ("experiments/profiles/smoke.yaml:train.micro_batch=3", "3 does not divide batch_sequences 4"),
        ("experiments/profiles/smoke.yaml:spike.at_step=5", "spike.at_step: 5 is too early"),
    ],
)
def test_a_wrong_setting_fails_at_once_in_one_sentence_and_loses_nothing(smoke_copy, setting, says):
    done = smoke_copy.run("dvc", "exp", "run", "-S", setting, check=False)
    assert done.returncode != 0
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert says in sentence
    changed = smoke_copy.run("git", "status", "--porcelain").stdout.split()
    assert changed[1::2] in (["params.yaml"], ["experiments/profiles/smoke.yaml"])


def test_changing_the_shape_of_C_runs_C_and_its_dependants(smoke_copy):
    smoke_copy.replace("experiments/profiles/smoke.yaml", "d_model: 32", "d_model: 40")
    done = smoke_copy.run("dvc", "repro")
    dependants = {"sweep@C", "collect", "fit", "iso-flop", "predict", "score", "validate"}
    assert ran(done.stdout) == {"check"} | dependants


def test_changing_a_letter_of_the_curation_code_runs_from_curation(smoke_copy):
    smoke_copy.replace("src/x1_pretrain/corpus/curation.py", '"""', '"""A word. ')
    planned = smoke_copy.run("dvc", "repro", "--dry").stdout
    assert "curate" in ran(planned) and "fetch" not in ran(planned)


def test_a_value_edited_together_with_its_hash_in_the_lock_is_found(smoke_copy):
    path = smoke_copy.root / X1 / "run-cloud/metrics.json"
    lock = smoke_copy.root / "dvc.lock"
    before = hashlib.md5(path.read_bytes()).hexdigest()
    path.write_text(path.read_text().replace('"skipped_steps": 0', '"skipped_steps": 1'))
    lock.write_text(lock.read_text().replace(before, hashlib.md5(path.read_bytes()).hexdigest()))
    done = smoke_copy.run("python", "-m", "x1_pretrain.deliverables.verify", check=False)
    assert done.returncode == 1 and "skipped_steps" in done.stdout


@pytest.mark.parametrize("name", [n for n in DELIVERABLES if "checkpoint" not in n])
def test_one_byte_of_tampering_is_named(smoke_copy, name):
    path = smoke_copy.root / X1 / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = smoke_copy.run("python", "-m", "x1_pretrain.deliverables.verify", check=False)
    assert done.returncode == 1
    assert f"{X1}/{name}" in done.stdout
