"""The contest end to end with stand-ins for both sides: one JSON line, ratios that follow from its parts."""

import json
import math
from typing import Any

import pytest
import time_to_loss
from contest.our_side import OurRun, Point
from contest.peer_side import PeerRun
from contest.plan import Plan
from contest.terms import Terms

PLAN = Plan(steps=100, lrs=(1.0, 3.0, 9.0), horizons=(20, 40), timed_steps=5)


class PeerStandIn:
    """Losses by lr; the last one diverges."""

    def __init__(self) -> None:
        self.losses = {1.0: 3.6, 3.0: 3.5, 9.0: math.nan}
        self.timed: list[tuple[float, int]] = []

    def call(self, method: str, *given: Any) -> Any:
        if method == "run":
            return PeerRun(given[0], self.losses[given[0]], 0.5, 20.0, 2.0)
        if method == "time_steps":
            self.timed.append(given)
            return 0.4
        return {"source_sha256": "0", "n_params": 1}


class OurStandIn:
    def __init__(self, last_nats: float) -> None:
        self.losses = {20: 3.9, 40: last_nats}

    def call(self, method: str, *given: Any) -> Any:
        if method == "train":
            return OurRun(tuple(Point(s, s * 128, self.losses[s]) for s in given[0]), 0.2, 30.0, 3.0)
        return 0.1 if method == "time_steps" else {"recipe": {}, "train": {}}


def test_the_record_is_json_and_its_ratios_follow_from_its_parts(small_terms: Terms) -> None:
    peer = PeerStandIn()
    found = time_to_loss.contest(peer, OurStandIn(3.4), PLAN, small_terms)
    found = json.loads(json.dumps(found, allow_nan=False))
    ours, theirs = found["ours"], found["peer"]
    assert (theirs["lr"], theirs["loss_nats"], ours["steps"], ours["loss_nats"]) == (3.0, 3.5, 40, 3.4)
    assert found["seconds_ratio"] == pytest.approx(ours["seconds"] / theirs["seconds"]) == pytest.approx(0.1)
    assert found["tokens_ratio"] == pytest.approx(ours["tokens"] / theirs["tokens"]) == pytest.approx(0.4)
    assert (theirs["compile_s"], ours["compile_s"]) == (20.0, 30.0)
    assert [run["loss_nats"] for run in theirs["runs"]] == [3.6, 3.5, None]
    assert peer.timed == [(3.0, 5)] * time_to_loss.ROUNDS


def test_a_target_out_of_reach_leaves_the_ratios_null(small_terms: Terms) -> None:
    found = time_to_loss.contest(PeerStandIn(), OurStandIn(3.6), PLAN, small_terms)
    assert found["seconds_ratio"] is None and found["tokens_ratio"] is None
    assert "3.5000" in found["reason"]
    assert [point["loss_nats"] for point in found["ours"]["horizons"]] == [3.9, 3.6]


def test_an_impossible_horizon_is_refused_before_the_peer_runs(
    small_terms: Terms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_side(*_: Any) -> None:
        raise AssertionError("a side was started")

    monkeypatch.setattr(time_to_loss, "Side", no_side)
    tokens = ["--tokens", str(small_terms.tokens), "--horizons", "3"]
    with pytest.raises(SystemExit) as left:
        time_to_loss.main(["--peer", "peer", "--peer-kind", "nanogpt", *tokens])
    assert left.value.code == 2
    assert "too short" in capsys.readouterr().err
