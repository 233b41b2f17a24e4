"""The ablations: rows that follow the defaults, verdicts that hold, experiments read from real Git refs."""

import copy
import dataclasses
import importlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.config import Profile
from x1_pretrain.errors import UserError
from x1_pretrain.run_spec import planned_steps
from x1_pretrain.study import Choice
from x1_pretrain.typed_yaml import build

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as `python benchmarks/ablations.py` has it
ablations = importlib.import_module("ablations")
comparison, document, paired, planning, queue, reading = (
    importlib.import_module(f"ablation.{name}")
    for name in ("comparison", "document", "paired_statistics", "plan", "queue", "runs")
)

HOST = "a machine"


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch):
    """The project's own plan: 250 steps of model B with two heads."""
    monkeypatch.chdir(ROOT)
    return two_headed_plan()


def two_headed_plan():
    return planning.load_plan("B", 250, {"models.B.n_head": 2, "models.B.n_kv_head": 2})


def with_overrides(plan, overrides) -> tuple[Choice, Profile]:
    """What the stages would read after `dvc exp run -S ...`."""
    params, profile = dict(plan.params), dict(plan.profile)
    for override in overrides:
        key, _, value = override.partition("=")
        file, _, key = key.rpartition(":")
        target = profile if file else params
        assert key in target and file in ("", f"experiments/profiles/{params['profile']}.yaml")
        target[key] = value[1:-1].split(",") if value.startswith("[") else reading.yaml(f"v: {value}")["v"]
    if isinstance(profile["sweep.branches"][0], str):
        profile["sweep.branches"] = [float(branch) for branch in profile["sweep.branches"]]
    return build(Choice, planning.nested(params), "params"), build(
        Profile, planning.nested(profile), "profile"
    )


# ---------------------------------------------------------------- the rows


def test_every_switch_of_the_recipe_has_a_row_and_the_optimizer_is_first(plan):
    rows = planning.rows(plan.values, "B")
    assert next(iter(rows)).startswith("optimizer-")
    keys = {key for settings in rows.values() for key in settings}
    recipe = {key for key in plan.values if key.startswith("recipe.")}
    assert keys == recipe | {"train.grad_clip", "models.B.n_kv_head"}


def test_a_row_turns_its_switch_over_whatever_the_default_is(plan):
    one_way = planning.rows(plan.values, "B")
    for row, settings in one_way.items():
        turned = plan.values | settings
        assert turned != plan.values, row
        back = planning.rows(turned, "B")
        assert any(plan.values == turned | undo for undo in back.values()), row


def test_a_choice_has_a_row_for_each_other_value(plan):
    names = {name for name in planning.rows(plan.values, "B") if name.startswith("activation-")}
    assert len(names) == 2
    assert f"activation-{plan.values['recipe.activation']}" not in names


def test_a_model_with_one_head_has_no_row_for_shared_heads(plan):
    one = plan.values | {"models.B.n_head": 1, "models.B.n_kv_head": 1}
    assert not any(name.startswith("n_kv_head") for name in planning.rows(one, "B"))


def test_overrides_give_each_row_its_setting_and_all_rows_the_same_tokens(plan):
    table = planning.rows(plan.values, "B")
    experiments = {e.name: e for e in plan.paired(table, 2)}
    tokens = set()
    for row, settings in table.items():
        choice, profile = with_overrides(plan, experiments[f"ablation-{row}-seed1"].overrides)
        seen = planning.flat(dataclasses.asdict(choice)) | planning.flat(dataclasses.asdict(profile))
        assert {key: seen[key] for key in settings} == settings
        assert (choice.model, choice.seed, choice.sweep.models) == ("B", 1, ("B",))
        shape = profile.models["B"]
        tokens.add(round(shape.flops / (6 * shape.N)))
        if not choice.recipe.batch_ramp:  # a ramp takes more steps for the same tokens
            assert planned_steps(shape, profile.train, choice.recipe) == 250
    assert len(tokens) == 1


def test_seeds_come_one_after_the_other_each_with_all_rows(plan):
    names = [experiment.name for experiment in plan.paired({"qk_norm-off": {"recipe.qk_norm": False}}, 2)]
    assert names == [f"ablation-{row}-seed{seed}" for seed in (0, 1) for row in ("baseline", "qk_norm-off")]


def test_tuning_tries_every_combination_on_a_seed_of_its_own(plan):
    trials = plan.tuning("optimizer-adamw", {"recipe.optimizer": "adamw"})
    grid = planning.TUNED["optimizer-adamw"]
    assert len({tuple(t[key] for key in grid) for _, t in trials.values()}) == np.prod(
        [*map(len, grid.values())]
    )
    for name, (experiment, _) in trials.items():
        assert reading.NAME.fullmatch(name)["row"] == "optimizer-adamw"
        assert f"seed={planning.TUNING_SEED}" in experiment.overrides
    assert plan.tuning("qk_norm-off", {"recipe.qk_norm": False}) == {}


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"recipe.qk_nrom": False}, "recipe.qk_nrom"), ({"train.adamw_lr": -1.0}, "train.adamw_lr")],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_queued(plan, settings, named):
    with pytest.raises(UserError, match=named):
        plan.planned("ablation-x-seed0", settings)


def test_a_horizon_too_short_for_the_schedule_is_refused_before_anything_is_queued(plan):
    with pytest.raises(UserError, match="too short"):
        dataclasses.replace(plan, steps=2).paired({}, 1)


def test_an_unknown_model_is_refused_with_the_valid_ones(plan):
    with pytest.raises(UserError, match=r"'Z'.*A, B, C"):
        planning.load_plan("Z", 250, {})


# ---------------------------------------------------------------- statistics

losses = st.lists(st.integers(-(10**6), 10**6).map(lambda n: n / 10**6), min_size=2, max_size=12)


def test_a_paired_comparison_worked_by_hand():
    found = paired.compare([0.1, 0.2, 0.3])  # mean 0.2, sd 0.1, t(0.975; 2) = 4.3027
    assert (found.mean, found.sd) == pytest.approx((0.2, 0.1))
    assert found.high - found.mean == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)
    assert found.p == pytest.approx(0.0742, abs=1e-4)


@given(losses)
def test_swapping_switch_and_baseline_mirrors_the_interval(differences):
    one, other = paired.compare(differences), paired.compare([-d for d in differences])
    assert (one.mean, one.low, one.high) == pytest.approx((-other.mean, -other.high, -other.low), abs=1e-12)
    assert one.p == pytest.approx(other.p)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1500):
        found = paired.compare(rng.normal(0.3, 0.1, size=5))
        inside += found.low <= 0.3 <= found.high
    assert 0.93 < inside / 1500 < 0.97


def test_no_difference_at_all_is_not_a_discovery_and_a_constant_one_is():
    assert paired.compare([0.0] * 5).p == 1.0
    assert paired.compare([0.01] * 5).p == 0.0
    with pytest.raises(ValueError, match="at least 2"):
        paired.compare([0.1])


def test_holm_worked_by_hand():
    assert paired.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_lies_between_the_raw_and_bonferroni_s_p(p_values):
    adjusted = paired.holm(p_values)
    for p, a in zip(p_values, adjusted, strict=True):
        assert p <= a <= 1 and a <= max(1, len(p_values)) * max(p_values)
    order = np.argsort(p_values, kind="stable")
    assert all(np.diff(np.array(adjusted)[order]) >= 0)
    assert min(adjusted) == pytest.approx(min(1.0, len(p_values) * min(p_values)))


def test_of_many_switches_that_do_nothing_seldom_one_is_called_good_or_bad():
    rng = np.random.default_rng(1)
    false_alarms = 0
    for _ in range(200):
        found = [paired.compare(rng.normal(0, 0.1, size=5)) for _ in range(15)]
        verdicts = map(paired.verdict, found, paired.holm([c.p for c in found]))
        false_alarms += any(v != "not distinguishable" for v in verdicts)
    assert false_alarms / 200 < 0.1  # 0.54 without the correction


def test_a_lower_loss_is_the_better_one():
    better, worse = paired.compare([-0.2, -0.21, -0.19]), paired.compare([0.2, 0.21, 0.19])
    assert paired.verdict(better, 0.01) == "better"
    assert paired.verdict(worse, 0.01) == "worse"
    assert paired.verdict(worse, 0.05) == "not distinguishable"


def test_the_pairs_needed_have_the_power_they_promise():
    seen = paired.Comparison(n=5, mean=0.05, low=-0.07, high=0.17, sd=0.1, p=0.3)
    n = paired.seeds_needed(seen, family=10)
    rng = np.random.default_rng(2)
    power = np.mean([paired.compare(rng.normal(0.05, 0.1, size=n)).p < 0.005 for _ in range(800)])
    assert 0.75 < power < 0.87
    assert paired.seeds_needed(dataclasses.replace(seen, mean=1e-5), family=10) is None
    assert paired.seeds_needed(dataclasses.replace(seen, mean=0.0, sd=0.0), family=10) is None


def test_a_curve_reaches_its_own_end_at_its_last_step_and_a_lower_one_sooner():
    falling = [5 - 0.01 * step for step in range(100)]
    assert paired.first_reach([falling], [falling]) == 99
    assert paired.first_reach([[loss - 0.1 for loss in falling]], [falling]) == 89
    assert paired.first_reach([[loss + 0.1 for loss in falling]], [falling]) is None
    assert paired.gap_at_end([[loss + 0.1 for loss in falling]], [falling]) == pytest.approx(0.1)


def test_one_lucky_batch_does_not_count_as_reaching():
    falling = [5 - 0.01 * step for step in range(100)]
    lucky = [*falling[:50], 0.0, *falling[51:]]
    assert paired.first_reach([lucky], [[loss - 1 for loss in falling]]) is None


# ---------------------------------------------------------------- DVC's queue and its experiments


STATUS = """\
Task     Name                            Created    Status
{0}  ablation-muon-seed0             02:54 PM   Running
{0}  ablation-baseline-seed0         02:55 PM   Queued
{0}  ablation-baseline-seed0         02:52 PM   Failed
{1}  ablation-optimizer-adamw-seed0  02:52 PM   Failed

Worker status: 1 active, 0 idle
"""  # as `dvc queue status` of DVC 3.67 prints it


def test_the_state_of_the_queue_is_that_of_the_commit_s_own_experiments(repository, monkeypatch):
    repository.git("checkout", "-q", "--detach")
    task = repository.commit()[:7]  # as DVC's stash commits: its parent is what it was queued on
    other = repository.commit()[:7]
    real = queue.command

    def command(*arguments, **options):
        return STATUS.format(task, other) if arguments[0] == "dvc" else real(*arguments, **options)

    monkeypatch.setattr(queue, "command", command)
    states = {"ablation-muon-seed0": "Running", "ablation-baseline-seed0": "Queued"}
    assert queue.states(repository.base) == states


def test_an_empty_queue_is_understood():
    text = "No experiment tasks in the queue.\n\nWorker status: 0 active, 0 idle"
    assert queue.tasks_of(text) == []


@pytest.mark.parametrize(
    ("state", "worker_alive", "lost"),
    [("Queued", False, False), ("Running", True, False), ("Running", False, True), ("Success", True, True)],
)
def test_an_experiment_that_would_never_end_is_named(state, worker_alive, lost):
    found = queue.lost({"ablation-a-seed0": state}, worker_alive)
    assert list(found) == ["ablation-a-seed0"] * lost
    assert all("ablation-a-seed0" in sentence for sentence in found.values())


class Looks:
    """DVC and Git as `drain` sees them: what the queue says at each look, and what is finished after it."""

    def __init__(self, monkeypatch, states, finished):
        self.states, self.ended, self.count, self.started = states, finished, 0, 0
        for name in ("states", "finished", "worker_is_alive", "start_workers"):
            monkeypatch.setattr(queue, name, getattr(self, f"say_{name}"))
        monkeypatch.setattr(queue, "LOOK_S", 0.0)
        monkeypatch.setattr(queue, "POLL_S", 0.0)

    def say_states(self, commit):
        self.count += 1
        return self.states[min(self.count, len(self.states)) - 1]

    def say_finished(self, commit):
        return {"a"} if self.count > self.ended else set()

    def say_worker_is_alive(self):
        return True

    def say_start_workers(self, jobs):
        self.started += 1


def test_an_experiment_between_two_of_dvc_s_lists_is_not_lost(monkeypatch):
    Looks(monkeypatch, [{"a": "Queued"}, {}, {"a": "Running"}, {}, {"a": "Success"}], finished=4)
    assert queue.drain(["a"], "0" * 40) == {}


def test_an_experiment_that_is_in_no_list_twice_is_lost(monkeypatch):
    looks = Looks(monkeypatch, [{"a": "Queued"}, {}, {}, {"a": "Running"}], finished=9)
    with pytest.raises(UserError, match=r"^a: neither in DVC's queue nor finished"):
        queue.drain(["a"], "0" * 40)
    assert looks.count == 3


def test_a_worker_is_alive_while_its_process_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not queue.worker_is_alive()
    code = "import sys; sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code, "queue-worker"], stdin=subprocess.PIPE)
    queue.WORKERS.mkdir(parents=True)
    (queue.WORKERS / "dvc-exp-worker-1.json").write_text(json.dumps({"pid": process.pid}))
    assert queue.worker_is_alive()
    process.communicate()
    assert not queue.worker_is_alive()


class Repository:
    """A Git repository with experiments where DVC puts them: refs/exps/<commit>/<name>."""

    def __init__(self, folder: Path, params: str, profile: str) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")
        self.write("params.yaml", params)
        self.write("experiments/profiles/tiny.yaml", profile)
        self.write(str(reading.MEASURED), json.dumps({"tokens_per_s": 1.0, "host": "the commit's"}))
        self.base = self.commit()

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *arguments], cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD")

    def experiment(self, plan, name: str, settings: dict, losses: list[float], tokens_per_s: float | None):
        """A finished run whose validation loss is its last training loss; not timed: restored by DVC."""
        params = {key: settings.get(key, value) for key, value in plan.params.items()} | {"model": "B"}
        profile = {key: settings.get(key, value) for key, value in (plan.profile | plan.common).items()}
        self.write("params.yaml", json.dumps(planning.nested(params)))
        self.write("experiments/profiles/tiny.yaml", json.dumps(planning.nested(profile)))
        metrics = {
            "val_loss_nats": losses[-1],
            "N": 1,
            "D": 4096 * len(losses),
            "steps": len(losses),
            "val_tokens": 1,
        }
        self.write("experiments/X1-pretraining/run-cloud/metrics.json", json.dumps(metrics))
        rows = [f"{step},{4096 * step},0.1,{loss},," for step, loss in enumerate(losses, start=1)]
        header = "step,tokens,lr,train_loss_nats,val_loss_nats,grad_norm"
        self.write("experiments/X1-pretraining/run-cloud/curve.csv", "\n".join([header, *rows]) + "\n")
        if tokens_per_s is not None:
            measured = {"tokens_per_s": tokens_per_s, "host": HOST}
            self.write(str(reading.MEASURED), json.dumps(measured))
        self.git("update-ref", f"refs/exps/{self.base[:2]}/{self.base[2:]}/{name}", self.commit())
        self.git("reset", "-q", "--hard", self.base)


def falling(end: float) -> list[float]:
    return [end + 0.01 * left for left in range(49, -1, -1)]


@pytest.fixture(scope="module")
def three_pairs(tmp_path_factory):
    """Three pairs of two rows: qk-norm turned over is worse by 0.1, zero-init has the same losses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        plan = two_headed_plan()
    profile = json.dumps(planning.nested(plan.profile))
    made = Repository(tmp_path_factory.mktemp("three"), (ROOT / "params.yaml").read_text(), profile)
    table = planning.rows(plan.values, "B")
    worse, same = (next(r for r in table if r.startswith(name)) for name in ("qk_norm", "zero_init"))
    for seed in range(3):
        own, end = {"seed": seed}, 3 + 0.2 * seed
        made.experiment(plan, f"ablation-baseline-seed{seed}", own, falling(end), 4096.0)
        losses = falling(end + 0.1 + 0.001 * seed)
        made.experiment(plan, f"ablation-{worse}-seed{seed}", own | table[worse], losses, 2048.0)
        made.experiment(plan, f"ablation-{same}-seed{seed}", own | table[same], falling(end), None)
    return made


@pytest.fixture
def repository(three_pairs, tmp_path, monkeypatch):
    """A copy of `three_pairs`, as the working directory."""
    copied = copy.copy(three_pairs)
    copied.folder = shutil.copytree(three_pairs.folder, tmp_path / "project")
    monkeypatch.chdir(copied.folder)
    return copied


def test_pairs_are_compared_and_what_was_not_measured_is_null(plan, repository):
    table = comparison.compare_rows(comparison.pair(reading.read_runs(repository.base)))
    qk_norm, zero_init = table
    assert qk_norm.comparison.mean == pytest.approx(0.101)
    assert qk_norm.verdict == "worse"
    assert qk_norm.time_per_token == pytest.approx((2.0, 2.0, 2.0))
    assert qk_norm.reach == comparison.Reach(None, None, "ends 0.1010 nats above")
    assert set(qk_norm.changed) == {"recipe.qk_norm"}
    assert zero_init.verdict == "not distinguishable"
    # Restored by DVC, not run: the file of the commit lies there, and its seconds are not this run's.
    assert zero_init.reach == comparison.Reach(50, None, "not timed")
    assert zero_init.time_per_token is None


def test_seconds_to_the_loss_are_the_run_s_own(plan, repository):
    baselines = [run for run in reading.read_runs(repository.base) if run.row == "baseline"]
    assert comparison.reach([(run, run) for run in baselines]) == comparison.Reach(50, 50.0, "")


def test_a_run_with_other_settings_than_its_row_s_is_refused_by_name(plan, repository):
    repository.experiment(plan, "ablation-baseline-seed3", {"seed": 3, "train.muon_lr": 0.5}, falling(3), 1.0)
    with pytest.raises(UserError, match=r"ablation-baseline-seed3: its train\.muon_lr is 0\.5"):
        comparison.pair(reading.read_runs(repository.base))


def test_the_report_is_about_the_newest_commit_that_has_experiments(plan, repository):
    repository.write("docs/ablations.md", "an earlier report")
    repository.commit()
    ablations.main(["report"])
    text = (repository.folder / "docs/ablations.md").read_text()
    assert f"commit `{repository.base[:12]}`" in text
    assert "+0.1010 [" in text and "0 in every pair" in text and "null (not timed)" in text
    assert "--model B --steps 50 --seeds 3 --set models.B.n_head=2 --set models.B.n_kv_head=2\n" in text
    missing = text.split("(not run, or failed): ")[1].split(".\n")[0].split(", ")
    assert "optimizer-adamw" in missing and "qk_norm-off" not in missing


def test_without_experiments_the_report_says_what_to_run(tmp_path, monkeypatch, plan, capsys):
    made = Repository(tmp_path, "profile: tiny", "")
    monkeypatch.chdir(made.folder)
    with pytest.raises(SystemExit) as ended:
        ablations.main(["report"])
    assert ended.value.code == 2
    assert "ablations.py run" in capsys.readouterr().err


def test_the_best_trial_is_taken_and_the_edge_of_a_grid_is_said(plan, repository, monkeypatch):
    row, grid = "optimizer-adamw", {"train.adamw_lr": (0.001, 0.002), "train.embedding_lr": (0.01, 0.02)}
    monkeypatch.setitem(planning.TUNED, row, grid)
    trials = plan.tuning(row, {"recipe.optimizer": "adamw"})
    for number, (name, (_, settings)) in enumerate(trials.items()):
        own = settings | {"seed": planning.TUNING_SEED}
        repository.experiment(plan, name, own, falling(4.0 - 0.01 * number), 1.0)
    best = ablations.best_trial(row, trials, repository.base)
    assert {key: best[key] for key in grid} == {key: values[-1] for key, values in grid.items()}
    text = document.tuning([run for run in reading.read_runs(repository.base) if run.trial is not None])
    assert "train.adamw_lr and train.embedding_lr is at the edge" in text


def test_uncommitted_changes_are_refused_because_results_belong_to_a_commit(repository):
    repository.write("docs/ablations.md", "an earlier report")
    commit = repository.commit()
    repository.write("docs/ablations.md", "a later one")
    assert queue.commit_to_run_on() == commit
    repository.write("params.yaml", "profile: smoke")
    with pytest.raises(UserError, match=r"params\.yaml"):
        queue.commit_to_run_on()


def test_starting_workers_does_not_wait_for_them(tmp_path, monkeypatch):
    fake = tmp_path / "dvc"
    fake.write_text("#!/bin/sh\nsleep 20 &\n")
    fake.chmod(0o755)
    monkeypatch.setattr(queue, "environment", lambda: {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    began = time.monotonic()
    queue.start_workers(1)
    assert time.monotonic() - began < 10


def test_stages_run_the_code_of_their_own_commit_not_the_workspace_s():
    assert queue.environment()["PYTHONPATH"] == "src"  # relative: resolved in DVC's copy of the project


def test_a_setting_of_the_command_line_is_read_as_yaml():
    assert ablations.setting("train.grad_clip=null") == ("train.grad_clip", None)
    assert ablations.setting("train.muon_lr=1e-3") == ("train.muon_lr", 0.001)
    with pytest.raises(UserError, match="KEY=VALUE"):
        ablations.setting("train.muon_lr")
