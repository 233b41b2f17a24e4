"""The command line becomes one plan and one set of terms; impossible numbers are refused at once."""

from pathlib import Path

import pytest
from contest.plan import PLANS, Plan, parser_of, plan_of, terms_of
from contest.terms import Terms

from x1_pretrain.errors import UserError
from x1_pretrain.study import study_from


def options(*more: str, kind: str = "nanochat"):
    return parser_of("").parse_args(["--peer", "peer", "--peer-kind", kind, *more])


def plan(*more: str, kind: str = "nanochat") -> Plan:
    return plan_of(options(*more, kind=kind))


def terms(*more: str) -> Terms:
    return terms_of(options(*more), study_from("tiny"), Path("tokens"))


def test_the_defaults_are_the_sweeps_of_the_comparison() -> None:
    assert (plan(kind="nanogpt").steps, plan(kind="nanogpt").lrs) == (800, (1e-3, 3e-3, 6e-3))
    assert (plan().steps, plan().lrs) == (235, (1, 3, 6, 10, 16))
    found = terms()
    assert (found.n_layer, found.d_model, found.n_head) == (4, 128, 4)
    assert (found.seq_len, found.batch_tokens, found.threads) == (256, 4096, 2)


def test_options_go_before_the_defaults() -> None:
    found = plan("--lr", "2,4.5", "--steps", "50", "--horizons", "20,40")
    assert (found.lrs, found.steps, found.horizons) == ((2.0, 4.5), 50, (20, 40))


@pytest.mark.parametrize("kind", PLANS)
def test_quick_asks_less_of_everything(kind: str) -> None:
    quick, full = plan("--quick", kind=kind), PLANS[kind]
    assert quick.steps < full.steps / 10 and sum(quick.horizons) < sum(full.horizons) / 10
    assert len(quick.lrs) == 1 and quick.timed_steps < full.timed_steps
    small = terms("--quick")
    assert small.n_layer < 4 and small.batch_tokens < 4096 and small.val_tokens < terms().val_tokens


def test_quick_keeps_what_is_given() -> None:
    assert plan("--quick", "--lr", "5").lrs == (5.0,)
    assert terms("--quick", "--shape", "2,64,2").d_model == 64


def test_validation_is_whole_batches_so_that_no_graph_is_compiled_for_a_rest() -> None:
    assert terms("--val-tokens", "10000").val_tokens == 8192


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--horizons", "100,60"), "--horizons"),
        (("--horizons", "60,60"), "--horizons"),
        (("--horizons", "0"), "--horizons"),
        (("--horizons", "60.5"), "--horizons"),
        (("--lr", "nan"), "--lr"),
        (("--lr", "0,1"), "--lr"),
        (("--lr", "fast"), "--lr fast"),
        (("--steps", "1"), "--steps 1"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(given: tuple[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(*given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--shape", "4,128"), "--shape"),
        (("--shape", "4,wide,4"), "--shape"),
        (("--batch", "0"), "--batch"),
        (("--val-tokens", "100"), "4096"),
    ],
)
def test_terms_that_cannot_be_are_refused(given: tuple[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        terms(*given)
