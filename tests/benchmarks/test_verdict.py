"""Ratios come from what was measured: the shortest run that really reached, medians, null otherwise."""

import math

import pytest
from contest.our_side import OurRun, Point
from contest.peer_side import PeerRun
from contest.verdict import alternate, best_of, ratios, reaching, shortest

from x1_pretrain.errors import UserError

PEER = PeerRun(lr=3e-3, loss_nats=3.5, step_s=0.5, first_step_s=20.0, evaluation_s=2.0)
POINTS = [Point(60, 6000, 3.9), Point(100, 10000, 3.5), Point(160, 16000, 3.2), Point(235, 23500, 3.1)]


def alone(point: Point, loss_nats: float | None = None) -> OurRun:
    loss_nats = point.loss_nats if loss_nats is None else loss_nats
    return OurRun((Point(point.steps, point.tokens, loss_nats),), 0.25, 30.0, 3.0)


def peer(lr: float, loss_nats: float) -> PeerRun:
    return PeerRun(lr, loss_nats, 0.5, 1.0, 1.0)


def test_the_best_lr_has_the_lowest_loss_and_a_diverged_one_never_wins() -> None:
    assert best_of([peer(1e-3, math.nan), peer(3e-3, 3.6), peer(6e-3, 3.5), peer(9e-3, math.inf)]).lr == 6e-3


def test_a_peer_that_diverged_everywhere_is_an_error_that_names_the_sweep() -> None:
    with pytest.raises(UserError, match=r"--lr.*0\.5"):
        best_of([peer(0.5, math.nan)])


def test_equal_loss_reaches() -> None:
    assert [point.steps for point in reaching(POINTS[::-1], 3.5)] == [100, 160, 235]


def test_a_branch_that_its_own_run_does_not_confirm_is_not_the_answer() -> None:
    tried: list[int] = []

    def train_alone(steps: int) -> OurRun:
        tried.append(steps)
        point = next(p for p in POINTS if p.steps == steps)
        return alone(point, 3.51 if steps == 100 else None)

    found = shortest(POINTS, 3.5, train_alone)
    assert found is not None and found.points[0].steps == 160
    assert tried == [100, 160]


def test_no_horizon_reaches_and_none_is_run() -> None:
    assert shortest(POINTS, 1.0, lambda steps: pytest.fail(f"{steps} was run")) is None


def test_blocks_alternate_between_the_sides() -> None:
    order: list[str] = []

    def block(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    peer_s, our_s = alternate(lambda: block("peer", 0.5), lambda: block("ours", 0.2), 3)
    assert order == ["peer", "ours"] * 3
    assert (peer_s, our_s) == ([0.5] * 3, [0.2] * 3)


def test_ratios_are_ours_over_the_peers_and_one_slow_block_changes_nothing() -> None:
    found = ratios(PEER, 800, 80000, [0.4, 9.0, 0.4], alone(POINTS[1]), [0.2, 0.2, 7.0])
    assert found.seconds_ratio == pytest.approx(100 * 0.2 / (800 * 0.4))
    assert found.tokens_ratio == pytest.approx(10000 / 80000)
    assert found.seconds_ratio_in_runs == pytest.approx(100 * 0.25 / (800 * 0.5))


def test_what_was_not_reached_is_null_with_a_reason() -> None:
    found = ratios(PEER, 800, 80000, [0.4], None, [0.2])
    assert (found.seconds_ratio, found.tokens_ratio, found.seconds_ratio_in_runs) == (None, None, None)
    assert "3.5000" in found.reason
