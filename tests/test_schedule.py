"""What a run's steps are: the pieces fit together, cost what they should, and read every token once."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import RECIPE, TRAIN
from x1_pretrain.errors import UserError
from x1_pretrain.schedule import schedule_of

FRACTIONS = (0.125, 0.25, 0.5, 1.0)


def plan(steps, fractions=(1.0,), train=None, **recipe):
    settings = {"warmup_steps": 4, "cooldown_fraction": 0.2} | (train or {})
    return schedule_of(
        dataclasses.replace(TRAIN, **settings), dataclasses.replace(RECIPE, **recipe), steps, fractions
    )


def scales(schedule, branch):
    return [schedule.lr_scale(branch, step) for step in range(branch.start, branch.end)]


@given(st.integers(200, 20_000), st.integers(0, 10), st.floats(0.05, 0.5))
def test_every_branch_leaves_the_trunk_where_the_next_one_starts(total, warmup, cooldown):
    schedule = plan(total, FRACTIONS, {"warmup_steps": warmup, "cooldown_fraction": cooldown})
    assert schedule.total_steps == total
    for before, after in zip(schedule.branches, schedule.branches[1:], strict=False):
        assert after.start == before.fork < before.end
    for branch in schedule.branches:
        assert all(0 < scale <= 1 for scale in scales(schedule, branch))
        cooled = scales(schedule, branch)[branch.fork - branch.start :]
        assert cooled == sorted(cooled, reverse=True) and cooled[0] < 1


def test_four_branches_cost_about_18_percent_more():
    plain, branched = plan(4415), plan(4415, FRACTIONS)
    assert branched.work_steps / plain.work_steps == pytest.approx(1.175, abs=0.01)


def test_warm_up_rises_to_the_peak():
    assert scales(plan(100), plan(100).branches[0])[:6] == [0.25, 0.5, 0.75, 1, 1, 1]


def test_a_run_too_short_for_its_parts_is_refused():
    with pytest.raises(UserError, match=r"8 steps.*too short for 10 warm-up steps"):
        plan(8, train={"warmup_steps": 10})


def test_a_cosine_ends_at_a_tenth_and_each_branch_is_a_run_of_its_own():
    schedule = plan(200, (0.5, 1.0), schedule="cosine")
    assert [(b.start, b.end) for b in schedule.branches] == [(0, 100), (0, 200)]
    assert schedule.work_steps == 300
    for branch in schedule.branches:
        steps = scales(schedule, branch)
        assert steps[:4] == [0.25, 0.5, 0.75, 1.0]
        assert steps[3:] == sorted(steps[3:], reverse=True)
        assert steps[-1] == pytest.approx(0.1)
        assert steps[(branch.end + 4) // 2 - 1] == pytest.approx(0.55, abs=0.01), "half-way down at half-time"


@given(st.integers(300, 2000), st.integers(1, 10))
def test_a_batch_ramp_reads_each_sequence_once_and_the_same_number_of_tokens(total, ramp_steps):
    train = {"batch_ramp_steps": ramp_steps, "batch_sequences": 16, "micro_batch": 4}
    schedule = plan(total, FRACTIONS, train, batch_ramp=True)
    begin = 0
    for step in range(schedule.total_steps):
        assert schedule.begin(step) == begin
        begin += schedule.sequences(step)
    sizes = [schedule.sequences(ramp_steps * stage) for stage in range(3)]
    assert sizes == [4, 8, 16]
    whole = schedule.begin(schedule.total_steps)
    for branch in schedule.branches:
        assert schedule.begin(branch.end) == pytest.approx(whole * branch.fraction, abs=16)


def test_a_smaller_batch_gets_a_lower_lr():
    schedule = plan(400, train={"batch_ramp_steps": 20}, batch_ramp=True)
    (branch,) = schedule.branches
    assert [schedule.lr_scale(branch, step) for step in (10, 30, 50)] == pytest.approx([0.5, 0.5**0.5, 1.0])


def test_a_batch_that_has_no_quarter_cannot_ramp():
    with pytest.raises(UserError, match=r"batch_sequences: 6 has no quarter.*nearest that has is 8"):
        plan(400, train={"batch_sequences": 6, "micro_batch": 2}, batch_ramp=True)


def test_the_window_widens_on_the_trunk_and_is_whole_in_every_cool_down():
    schedule = plan(400, FRACTIONS, window_warmup=True)
    seen = [schedule.window(step, 256) for step in range(schedule.total_steps)]
    first = schedule.branches[0].fork
    assert list(dict.fromkeys(seen)) == [64, 128, 256, None]
    assert seen[first - 1] == 256 and set(seen[first:]) == {None}
    assert {plan(400).window(step, 256) for step in range(400)} == {None}


def test_done_counts_the_steps_behind_a_run():
    schedule = plan(400, FRACTIONS)
    walked = [
        (b, step) for b, branch in enumerate(schedule.branches) for step in range(branch.start, branch.end)
    ]
    assert [schedule.done(*place) for place in walked] == list(range(schedule.work_steps))


def test_a_longer_run_has_a_lower_peak():
    rule = {"base_steps": 100, "horizon_exponent": 0.5}
    short, long = plan(100, train=rule), plan(400, train=rule)
    assert [max(scales(s, s.branches[0])) for s in (short, long)] == [1.0, 0.5]
    assert scales(long, long.branches[0]) == pytest.approx(
        [0.5 * x for x in scales(plan(400), plan(400).branches[0])]
    )
