"""WSD with branches: the pieces fit together, and cost what they should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.schedule import wsd


@given(st.integers(200, 20_000), st.integers(0, 10), st.floats(0.05, 0.5))
def test_every_branch_leaves_the_trunk_where_the_next_one_starts(total, warmup, cooldown):
    schedule = wsd(total, warmup, cooldown, (0.125, 0.25, 0.5, 1.0))
    assert schedule.total_steps == total
    for before, after in zip(schedule.branches, schedule.branches[1:], strict=False):
        assert after.start == before.fork < before.end
    for branch in schedule.branches:
        scales = [branch.lr_scale(step, warmup) for step in range(branch.start, branch.end)]
        assert all(0 < scale <= 1 for scale in scales)
        cooled = scales[branch.fork - branch.start :]
        assert cooled == sorted(cooled, reverse=True) and cooled[0] < 1


def test_four_branches_cost_about_18_percent_more():
    plain, branched = wsd(4415, 20, 0.2), wsd(4415, 20, 0.2, (0.125, 0.25, 0.5, 1.0))
    assert branched.work_steps / plain.work_steps == pytest.approx(1.175, abs=0.01)


def test_warm_up_rises_to_the_peak():
    (branch,) = wsd(100, 4, 0.2).branches
    assert [branch.lr_scale(step, 4) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


def test_a_run_too_short_for_its_parts_is_refused():
    with pytest.raises(UserError, match=r"8 steps.*too short for 10 warm-up steps"):
        wsd(8, 10, 0.2)
