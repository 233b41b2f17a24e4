"""The plan of a large run: hours, days, dollars and energy from FLOPs and MFU, and the splits that fit.

The headline follows from the MFU alone, as in public_runs.py, where it is tested. The splits are compared
by a model of one step, in which the MFU is what a card reaches without recomputing, waiting or sending; it
ranks them, and is not a forecast.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from x1_pretrain.economics.cost import SECONDS_PER_HOUR, positive
from x1_pretrain.economics.hardware import Figure, Gpu, find_gpu
from x1_pretrain.economics.prices import price_of
from x1_pretrain.economics.splits import (
    Memory,
    Split,
    Transformer,
    bubble,
    communication_of,
    memory_of,
)
from x1_pretrain.errors import UserError

CARDS_PER_MACHINE = 8
USABLE = 0.9  # of a card's memory, assumed: the rest is the CUDA context, buffers and gaps
PUE = Figure(1.1, "power usage effectiveness in the LLaMA report (arXiv 2302.13971), section 6", "2026-11-30")
SLOW_NETWORK = Figure(12.5e9, "assumed: 100 Gb/s, the table has no figure", "2026-11-30")
CHECKPOINTS_KEPT = 10  # assumed
CHECKPOINT_BYTES = 14  # a parameter: bf16 weight, fp32 copy and two moments
HEAD_SIZE = 128

MFU_OF = {
    "A100": Figure(0.36, "BLOOM: 150 of 312 TFLOP/s, 3/4 of it without recomputing", "2026-11-30"),
    "H100": Figure(0.41, "Llama 3 405B on 16,384 H100 (arXiv 2407.21783, table 4)", "2026-11-30"),
}
OTHER_MFU = Figure(
    0.38, "OLMo 2 32B on H100 (allenai.org/blog/olmo2-32B), for want of one here", "2026-11-30"
)


def shape_for(params: float, n_vocab: int, seq_len: int) -> Transformer:
    """A usual shape of so many parameters: heads of 128, d_model = 128 L, P = 12 L d^2 + 2 V d."""
    positive(params, "--params")
    d_model = HEAD_SIZE
    while True:
        wider = d_model + HEAD_SIZE
        n_layer = max(1, round(wider / HEAD_SIZE))
        if 12 * n_layer * wider**2 + 2 * n_vocab * wider > params:
            break
        d_model = wider
    body = max(0.0, params - 2 * n_vocab * d_model)
    return Transformer(params, max(1, round(body / (12 * d_model**2))), d_model, n_vocab, seq_len)


@dataclass(frozen=True)
class Option:
    """A split that divides the batch, with what it needs; `step_s` ranks it."""

    split: Split
    memory: Memory
    fits: bool
    bubble: float
    sent_bytes: float
    step_s: float


@dataclass(frozen=True)
class Plan:
    """What a run would take on `count` cards of one kind."""

    model: Transformer
    tokens: float
    gpu: Gpu
    count: int
    batch_sequences: int
    mfu: float
    mfu_source: str

    def __post_init__(self) -> None:
        positive(self.tokens, "--tokens")
        if self.count < 1:
            raise UserError(f"--count: {self.count} cards cannot train; it must be at least 1")
        if not 0 < self.mfu <= 1:
            raise UserError(f"--mfu: {self.mfu} must be above 0 and at most 1")

    @property
    def flops(self) -> float:
        return self.tokens * self.model.flops_per_token

    @property
    def gpu_hours(self) -> float:
        return gpu_hours(self.flops, _value(self.gpu.peak_bf16_flops, self.gpu, "peak"), self.mfu)

    @property
    def days(self) -> float:
        return self.gpu_hours / self.count / 24

    @property
    def energy_kwh(self) -> float:
        """At the card's full power: what the hosts take is in the PUE's place, not added."""
        return self.gpu_hours * _value(self.gpu.power_w, self.gpu, "power") / 1000 * PUE.value

    def usd(self, spot: bool) -> tuple[float, str] | None:
        """Dollars, and where the price is from; None where no dated price is known."""
        price = price_of(self.gpu.name, spot)
        return (
            None if price is None else (self.gpu_hours * price.usd_per_hour, f"{price.source}, {price.date}")
        )

    @property
    def corpus_bytes(self) -> float:
        """Token shards: 2 bytes a token, 4 where the vocabulary does not fit into them."""
        return self.tokens * (2 if self.model.n_vocab <= 2**16 else 4)

    @property
    def checkpoint_bytes(self) -> float:
        return self.model.params * CHECKPOINT_BYTES

    @property
    def usable_bytes(self) -> float:
        return USABLE * _value(self.gpu.memory_bytes, self.gpu, "memory")

    def options(self) -> list[Option]:
        """Every split of the cards that divides the batch and the layers, the fastest that fits first."""
        found = [self._option(split) for split in self._splits()]
        return sorted(found, key=lambda option: (not option.fits, option.step_s, option.memory.total))

    def _splits(self) -> Iterator[Split]:
        for tensor in _powers_of_two(CARDS_PER_MACHINE):
            for pipeline in _powers_of_two(self.model.n_layer):
                data, rest = divmod(self.count, tensor * pipeline)
                if rest or not data or (self.model.d_model // HEAD_SIZE) % tensor:
                    continue
                # ZeRO-2 and 3 with a pipeline would gather and scatter for every micro-batch: nobody does.
                stages = (0, 1) if pipeline > 1 else (0, 1, 2, 3)
                for zero in stages if data > 1 else (0,):
                    for micro_batch in _powers_of_two(16):
                        if self.batch_sequences % (data * micro_batch) == 0:
                            for recompute in (False, True):
                                yield Split(data, tensor, pipeline, zero, micro_batch, recompute)

    def _option(self, split: Split) -> Option:
        model, gpu = self.model, self.gpu
        memory, waiting = memory_of(model, split), bubble(split, self.batch_sequences)
        sent = communication_of(model, split, self.batch_sequences)
        batch_flops = self.batch_sequences * model.seq_len * model.flops_per_token
        compute_s = batch_flops / (self.count * _value(gpu.peak_bf16_flops, gpu, "peak") * self.mfu)
        compute_s *= 4 / 3 if split.recompute else 1
        link = _value(gpu.link_bytes_per_s, gpu, "link")
        network = (gpu.network_bytes_per_s or SLOW_NETWORK).value
        outside = network if split.gpus > CARDS_PER_MACHINE else link
        # Tensor-parallel sums hold the work up; gradients travel behind the backward pass, two thirds of it.
        data_s = max(0.0, sent.data / outside - compute_s * 2 / 3)
        step_s = (compute_s + sent.tensor / link) / (1 - waiting) + data_s + sent.pipeline / outside
        total = sent.data + sent.tensor + sent.pipeline
        return Option(split, memory, memory.total <= self.usable_bytes, waiting, total, step_s)


def gpu_hours(flops: float, peak_flops: float, mfu: float) -> float:
    """Hours of one card: FLOPs / (peak * MFU)."""
    return flops / (peak_flops * mfu) / SECONDS_PER_HOUR


def plan_of(
    params: float,
    tokens: float,
    gpu: str,
    count: int = 1,
    mfu: float | None = None,
    n_vocab: int = 50257,
    seq_len: int = 4096,
    batch_tokens: float = 4e6,
) -> Plan:
    """A plan from a command line's words. Raises `UserError`, which lists the known cards for another."""
    found = find_gpu(gpu)
    if found.gpu is None:
        raise UserError(f"--gpu: {found.reason}")
    known = next((figure for name, figure in MFU_OF.items() if found.gpu.name.startswith(name)), OTHER_MFU)
    for name, value in (("--vocab", n_vocab), ("--seq-len", seq_len)):
        if value < 1:
            raise UserError(f"{name}: {value} must be at least 1")
    model = shape_for(positive(params, "--params"), n_vocab, seq_len)
    sequences = positive(batch_tokens, "--batch-tokens") / seq_len
    odd = count // (count & -count) if count > 0 else 1  # so that any number of ranks divides the batch
    return Plan(
        model=model,
        tokens=positive(tokens, "--tokens"),
        gpu=found.gpu,
        count=count,
        batch_sequences=odd * 2 ** max(0, round(math.log2(sequences / odd))),
        mfu=known.value if mfu is None else mfu,
        mfu_source=f"{known.source}, {known.date}" if mfu is None else "given",
    )


def _powers_of_two(most: int) -> Iterator[int]:
    number = 1
    while number <= most:
        yield number
        number *= 2


def _value(figure: Figure | None, gpu: Gpu, what: str) -> float:
    if figure is None:
        raise UserError(f"--gpu: the {what} of {gpu.name} is not known; choose another card")
    return figure.value
