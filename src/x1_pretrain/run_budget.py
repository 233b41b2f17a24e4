"""What a training run asks about money: may it start, must it cool down now, what would more money buy.

It reads a run's state and changes nothing of it.
"""

import dataclasses
import math
import sys
from typing import NoReturn

from x1_pretrain.economics.cost import SECONDS_PER_HOUR
from x1_pretrain.economics.estimate import STARTUP_S, work_left
from x1_pretrain.economics.preflight import MARGIN, Peak, Preflight, age_text
from x1_pretrain.errors import UserError
from x1_pretrain.meters import Peak as MeasuredPeak
from x1_pretrain.run_spec import RunSpec
from x1_pretrain.run_state import State
from x1_pretrain.spending import BUDGET_EXHAUSTED, Spending


def estimate(
    spending: Spending, spec: RunSpec, state: State, n_vocab: int, machine: MeasuredPeak
) -> Preflight:
    """The sum of what a run has left to do, at its own measured speed where it has one."""
    money = spec.money
    peak, mfu = Peak(machine.flops_per_s, machine.reason), money.assumed_mfu
    if state.training_s and state.timed_flops:
        speed = state.timed_flops / state.training_s
        peak, mfu = Peak(speed, f"{speed:.4g} FLOP/s, as measured in this run's steps"), 1.0
    work = work_left(spec, spec.run_id, n_vocab, state.branch, state.step, len(state.evaluations))
    return Preflight(
        runs=(dataclasses.replace(work, startup_s=state.compile_s or STARTUP_S),),
        peak=peak,
        mfu=mfu,
        price_usd_per_hour=money.price_usd_per_hour,
        price_source=f"{money.price_source}, {age_text(money.price_date)}",
        storage=money.storage,
        spent_usd=spending.ledger.total_usd(),
        committed_usd=math.fsum(attempt.expected_usd for attempt in spending.others_alive()),
        cap_usd=money.cap_usd,
    )


def fits(spending: Spending, spec: RunSpec, state: State, n_vocab: int, machine: MeasuredPeak) -> bool:
    """Whether the rest of a run fits under the cap."""
    return estimate(spending, spec, state, n_vocab, machine).fits


def check_start(spending: Spending, spec: RunSpec, state: State, n_vocab: int, machine: MeasuredPeak) -> None:
    """Raise `UserError` if what a run has left to do would end above the cap; the sum goes to stderr.

    What the run expects to take is in the ledger first, so that no other plans with the same dollars. A run
    that cools down early has been promised its end: only the hard limit holds for it.
    """
    hours = estimate(spending, spec, state, n_vocab, machine).hours
    expected_s = spending.elapsed_s() + (hours or 0.0) * SECONDS_PER_HOUR
    spending.expect(expected_s)
    asked = estimate(spending, spec, state, n_vocab, machine)
    if asked.fits or state.anneal_from is not None:
        return
    spending.expect(spending.elapsed_s())
    spending.status = "refused"
    print("\n".join(asked.lines()), file=sys.stderr)
    raise UserError(
        f"money.cap_usd: this run would take {asked.hours:.2f} h at {asked.price_usd_per_hour} $/h; with "
        f"what is already spent or committed, storage, egress and a margin that is {asked.total_usd:.2f} $, "
        f"above the cap of {asked.cap_usd:.2f} $; raise it, lower the model's flops or take a cheaper machine"
    )


def must_anneal(spending: Spending, spec: RunSpec, state: State) -> bool:
    """The soft limit: what is left under the cap is just enough to cool down from here and to finish."""
    cooldown = spec.schedule.cooldown_from(state.step)
    if not spending.price or state.anneal_from is not None or not cooldown or not state.timed_tokens:
        return False
    s_per_token = state.training_s / state.timed_tokens
    if state.evaluations:
        evaluation_s = state.evaluation_s / len(state.evaluations)
    else:
        evaluation_s = spec.train.val_tokens * s_per_token
    # Evaluations that are due during the cool-down, and the last one.
    evaluation_s *= 1 + cooldown // spec.eval_every
    training_s = cooldown * spec.train.batch_tokens * s_per_token
    need_s = (training_s + evaluation_s) * (1 + MARGIN) + 2 * spending.longest_s
    if spending.left_s() > need_s:
        return False
    print(
        f"{spec.run_id}: {spending.left_s():.0f} s are left under the cap of {spec.money.cap_usd} $, so step "
        f"{state.step} of {spec.schedule.total_steps} begins a cool-down of {cooldown} steps",
        file=sys.stderr,
    )
    return True


def stop_at_cap(
    spending: Spending, spec: RunSpec, state: State, n_vocab: int, machine: MeasuredPeak
) -> NoReturn:
    """The hard limit, after the checkpoint: say what more money would buy, and leave."""
    rest = estimate(spending, spec, state, n_vocab, machine)
    print(
        f"{spec.run_id}: the cap of {spec.money.cap_usd} $ is reached at step {state.step}; the checkpoint "
        f"is kept. The rest would take {rest.hours or 0:.2f} h and {rest.new_usd:.2f} $: raise money.cap_usd "
        f"to {rest.total_usd:.2f} and run the same command to go on",
        file=sys.stderr,
    )
    spending.status = "budget_exhausted"
    spending.stop_machine()
    sys.exit(BUDGET_EXHAUSTED)
