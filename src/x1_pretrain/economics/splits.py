"""How a training is split over cards: the memory each needs, what it sends, how long it waits.

A split is data x tensor x pipeline parallel, with a ZeRO stage over the data-parallel ranks. Mixed precision
with Adam: 2 bytes a parameter for weights, 2 for gradients, 12 for the fp32 copy and two moments
(Rajbhandari et al. 2020, section 3.1); ZeRO-1 splits the 12, ZeRO-2 the gradients too, ZeRO-3 all of it.
Activations of a layer are T b d (10 + 24 / t) bytes with attention that does not keep its scores, and 2 T b d
where they are computed again in the backward pass (Korthikanti et al. 2022, table 2).
"""

from dataclasses import dataclass

from x1_pretrain.economics.cost import positive

WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 12
LOGIT_BYTES = 6  # a logit in bf16 and its softmax in fp32


@dataclass(frozen=True)
class Transformer:
    """What a plan needs of a model. `params` counts everything, embeddings too."""

    params: float
    n_layer: int
    d_model: int
    n_vocab: int
    seq_len: int

    @property
    def flops_per_token(self) -> float:
        """6 P + 12 L d T: the PaLM convention (flops.py), with all parameters counted as matmuls."""
        return 6 * self.params + 12 * self.n_layer * self.d_model * self.seq_len


@dataclass(frozen=True)
class Split:
    """Ranks of each kind; `micro_batch` in sequences a pipeline stage works on at a time."""

    data: int
    tensor: int
    pipeline: int
    zero: int
    micro_batch: int
    recompute: bool  # activation checkpointing: only each layer's input is kept

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline

    @property
    def name(self) -> str:
        zero = f", ZeRO-{self.zero}" if self.zero else ""
        return f"data {self.data} x tensor {self.tensor} x pipeline {self.pipeline}{zero}"

    def micro_batches(self, batch_sequences: int) -> int:
        """How many of them each pipeline works through in a step."""
        return batch_sequences // (self.data * self.micro_batch)


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest card."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations


def memory_of(model: Transformer, split: Split) -> Memory:
    """Memory of one card. Raises `UserError` for a model without parameters."""
    own = positive(model.params, "params") / (split.tensor * split.pipeline)
    ranks = split.data
    return Memory(
        weights=WEIGHT_BYTES * own / (ranks if split.zero >= 3 else 1),
        gradients=GRADIENT_BYTES * own / (ranks if split.zero >= 2 else 1),
        optimizer=OPTIMIZER_BYTES * own / (ranks if split.zero >= 1 else 1),
        activations=activation_bytes(model, split),
    )


def activation_bytes(model: Transformer, split: Split) -> float:
    """Bytes of activations on the first pipeline stage, which holds `pipeline` micro-batches at a time."""
    tokens = model.seq_len * split.micro_batch
    layer = tokens * model.d_model * (10 + 24 / split.tensor)
    kept = 2 * tokens * model.d_model if split.recompute else layer
    # L / p layers of p micro-batches each; with recomputing, one layer more is in full while it is at work.
    held = model.n_layer * kept + (layer if split.recompute else 0)
    return held + LOGIT_BYTES * tokens * model.n_vocab / split.tensor


@dataclass(frozen=True)
class Communication:
    """Bytes that one card sends in a step."""

    data: float
    tensor: float
    pipeline: float


def communication_of(model: Transformer, split: Split, batch_sequences: int) -> Communication:
    """Volume of a step: ring all-reduces send 2 (n - 1) / n of a tensor, gathers and scatters half of it.

    Data: gradients once, or reduced and weights gathered again, which is as much (ZeRO-1 and 2); with ZeRO-3
    weights are gathered in each forward and backward pass. Tensor: two all-reduces of [T, b, d] a layer
    forward and two backward (Shoeybi et al. 2019), and two more where the forward is computed again.
    Pipeline: one such tensor forward and one backward.
    """
    micro_batches = split.micro_batches(batch_sequences)
    own = model.params / (split.tensor * split.pipeline)
    scatter = (split.data - 1) / split.data * WEIGHT_BYTES * own
    data = scatter * (1 + 2 * micro_batches) if split.zero >= 3 else 2 * scatter
    block = 2 * model.seq_len * split.micro_batch * model.d_model
    reduces = (6 if split.recompute else 4) * model.n_layer / split.pipeline
    tensor = reduces * 2 * (split.tensor - 1) / split.tensor * block * micro_batches
    pipeline = 2 * block * micro_batches if split.pipeline > 1 else 0.0
    return Communication(data, tensor, pipeline)


def bubble(split: Split, batch_sequences: int) -> float:
    """Part of a step in which a card waits for the pipeline: (p - 1) / (m + p - 1), Narayanan et al. 2021."""
    waiting = split.pipeline - 1
    return waiting / (split.micro_batches(batch_sequences) + waiting)
