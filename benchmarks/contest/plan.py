"""The command line of time_to_loss.py into what is equal for both sides and what each side runs."""

import argparse
import math
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from settings import setting
from shards import add_options

from contest.terms import Terms
from x1_pretrain.determinism import cpp_compiler
from x1_pretrain.errors import UserError
from x1_pretrain.study import Study

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Plan:
    """The peer's steps and sweep; our horizons in steps, increasing; the steps of a block that is timed."""

    steps: int
    lrs: tuple[float, ...]
    horizons: tuple[int, ...]
    timed_steps: int


@dataclass(frozen=True)
class Size:
    """The defaults of what both sides share: `n_layer,d_model,n_head`, sequences per step, tokens."""

    shape: str
    batch: int
    val_tokens: int


FULL = Size("4,128,4", 16, 131072)
QUICK = Size("1,32,2", 4, 8192)
PLANS = {
    "nanogpt": Plan(800, (1e-3, 3e-3, 6e-3), (100, 117, 123, 130, 145), timed_steps=10),
    "nanochat": Plan(235, (1.0, 3.0, 6.0, 10.0, 16.0), (145, 155, 165, 180, 235), timed_steps=10),
}
QUICK_PLANS = {
    "nanogpt": Plan(12, (3e-3,), (10, 15), timed_steps=2),
    "nanochat": Plan(12, (6.0,), (10, 15), timed_steps=2),
}


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True, help="a checkout of the peer")
    parser.add_argument("--peer-kind", choices=PLANS, required=True)
    add_options(parser, vocab=4096)
    parser.add_argument("--config", default="tiny", help="our recipe and rule: a profile, or a file of one")
    help_set = "of our recipe, e.g. recipe.bigram_rows=16384; may be given again"
    parser.add_argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help=help_set
    )
    parser.add_argument("--shape", help=f"n_layer,d_model,n_head (default: {FULL.shape})")
    parser.add_argument("--seq-len", type=int, default=256, help="tokens of a sequence (default: 256)")
    parser.add_argument("--batch", type=int, help=f"sequences of a step (default: {FULL.batch})")
    parser.add_argument("--val-tokens", type=int, help=f"(default: {FULL.val_tokens})")
    parser.add_argument("--threads", type=int, help="(default: those of the profile)")
    parser.add_argument("--steps", type=int, help="of each run of the peer (default: 800, 235)")
    parser.add_argument("--lr", help="of the peer, e.g. 1e-3,3e-3: nanogpt's lr, nanochat's multiplier")
    parser.add_argument("--horizons", help="of ours, in steps, e.g. 60,100,160")
    parser.add_argument("--quick", action="store_true", help="a smoke run: all of it smaller, no finding")
    return parser


def plan_of(options: Namespace) -> Plan:
    """What each side runs. Raises `UserError` for numbers that make no plan."""
    plan = (QUICK_PLANS if options.quick else PLANS)[options.peer_kind]
    horizons = _numbers(int, "--horizons", options.horizons, plan.horizons)
    if horizons != tuple(sorted(set(horizons))) or horizons[0] < 1:
        raise UserError(f"--horizons {options.horizons}: steps must increase from at least 1, as in 60,100")
    lrs = _numbers(float, "--lr", options.lr, plan.lrs)
    if min(lrs) <= 0:
        raise UserError(f"--lr {options.lr}: a learning rate must be above 0")
    steps = plan.steps if options.steps is None else options.steps
    if steps < 2:
        raise UserError(f"--steps {steps}: must be at least 2, for the first step is not timed")
    return Plan(steps, lrs, horizons, plan.timed_steps)


def terms_of(options: Namespace, study: Study, tokens: Path) -> Terms:
    """What is equal for both sides; the validation is cut to whole batches, for one compiled graph."""
    size, device = QUICK if options.quick else FULL, study.profile.device
    shape = _numbers(int, "--shape", options.shape or size.shape, ())
    if len(shape) != 3 or min(shape) < 1:
        raise UserError(f"--shape {options.shape}: give n_layer,d_model,n_head, as in {FULL.shape}")
    n_layer, d_model, n_head = shape
    batch = size.batch if options.batch is None else options.batch
    if batch < 1 or options.seq_len < 1:
        raise UserError(f"--batch {batch}, --seq-len {options.seq_len}: both must be at least 1")
    compiles = device.compile and cpp_compiler() is not None
    val_tokens = size.val_tokens if options.val_tokens is None else options.val_tokens
    whole = val_tokens - val_tokens % (batch * options.seq_len)
    if whole < 1:
        raise UserError(f"--val-tokens {val_tokens}: must be at least a batch, {batch * options.seq_len}")
    return Terms(
        tokens=tokens,
        n_layer=n_layer,
        d_model=d_model,
        n_head=n_head,
        seq_len=options.seq_len,
        batch_sequences=batch,
        val_tokens=whole,
        seed=study.choice.seed,
        threads=device.threads if options.threads is None else options.threads,
        precision=device.precision if compiles or not device.compile else "fp32",  # as `setup` falls back
        compile=compiles,
    )


def _numbers(
    kind: Callable[[str], N], option: str, text: str | None, default: tuple[N, ...]
) -> tuple[N, ...]:
    """`kind` is int or float. Raises `UserError` for text that is not such numbers."""
    if text is None:
        return default
    try:
        numbers = tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"{option} {text}: numbers with commas between are wanted, as in 1,2,4") from error
    if not all(math.isfinite(n) for n in numbers):
        raise UserError(f"{option} {text}: finite numbers are wanted, as in 1,2,4")
    return numbers
