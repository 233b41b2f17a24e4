"""What the GPU check trains: the profiles' own settings as constants, since a bare machine reads no YAML.

A test compares them with experiments/profiles/{a100,gpt2-124m}.yaml and params.yaml.
"""

from dataclasses import dataclass, replace

from x1_pretrain.config import Device, Train
from x1_pretrain.shape import ModelShape, Recipe

N_VOCAB = 50257  # GPT-2's
MODELS = {
    "X1": ModelShape(n_layer=8, d_model=768, n_head=12, n_kv_head=4, flops=1.51e18),
    "GPT-2 124M": ModelShape(n_layer=12, d_model=768, n_head=12, n_kv_head=12, flops=1.53e18),
}
DEVICE = Device(
    kind="cuda", threads=8, precision="bf16", compile=True, attention="auto", gradient_checkpointing=False
)
TRAIN = Train(
    seq_len=1024,
    batch_sequences=512,
    micro_batch=32,
    warmup_steps=20,
    cooldown_fraction=0.2,
    muon_lr=0.02,
    adamw_lr=0.02,
    embedding_lr=0.004,
    base_width=128,
    base_steps=100,
    horizon_exponent=0.0,
    weight_decay=0.0,
    momentum=0.95,
    beta1=0.9,
    beta2=0.95,
    eps=1e-8,
    grad_clip=1.0,
    non_finite="stop",
    on_spike="observe",
    batch_ramp_steps=20,
    noise_batches=4,
    val_tokens=10485760,
    evaluations=10,
    checkpoint_every=250,
)
DEFAULT = Recipe(
    optimizer="muon",
    schedule="wsd",
    batch_ramp=False,
    activation="relu2",
    position="rope",
    token_shift=True,
    bigram_rows=None,
    qk_norm=True,
    value_residual=True,
    value_embeddings=True,
    embedding_shortcut=False,
    window_warmup=False,
    zero_init=True,
    tied_head=False,
    logit_softcap=None,
    z_loss=None,
    mup=True,
)
# As many of the other switches as go together; the bound is low enough to matter to logits near 1.
EVERYTHING = replace(
    DEFAULT,
    activation="swiglu",
    bigram_rows=512,
    embedding_shortcut=True,
    window_warmup=True,
    zero_init=False,
    logit_softcap=2.0,
    z_loss=1e-4,
    mup=False,
)


@dataclass(frozen=True)
class Case:
    """A small model that is trained on both machines, with attention that reaches back `window` tokens."""

    shape: ModelShape
    recipe: Recipe
    train: Train
    n_vocab: int
    window: int | None = None


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    device: Device
    cases: dict[str, Case]
    steps: int  # of the small models
    attention_sizes: tuple[int, int, int, int]  # B, T, H, S
    loss_sizes: tuple[int, int, int]  # N, D, V
    head_sizes: tuple[int, int, int]  # N, D, V
    peak_size: int  # rows and columns of the matmul that measures the peak
    meter_band: tuple[float, float] | None  # of the peak that the trainer's meter finds, over ours
    models: dict[str, ModelShape]
    train: Train  # a step of the timed models
    n_vocab: int
    timed_steps: int


def _small(shape: ModelShape, seq_len: int, n_vocab: int) -> dict[str, Case]:
    half = shape.d_model // 2  # so that muP has something to scale
    train = replace(TRAIN, seq_len=seq_len, batch_sequences=8, micro_batch=4, base_width=half)
    grouped = replace(shape, n_kv_head=1)
    return {
        "default": Case(shape, DEFAULT, train, n_vocab),
        "everything": Case(grouped, EVERYTHING, train, n_vocab, window=seq_len * 3 // 8),
    }


ON_GPU = Scale(
    device=DEVICE,
    cases=_small(ModelShape(n_layer=3, d_model=128, n_head=2, n_kv_head=2, flops=1.0), 256, 1024),
    steps=20,
    attention_sizes=(2, 512, 6, 64),
    loss_sizes=(4096, 256, N_VOCAB),
    head_sizes=(8192, 768, N_VOCAB),
    peak_size=8192,
    meter_band=(0.8, 1.25),  # it measures for less time, and on other values
    models=MODELS,
    # A quarter of the profile's batch: the optimizer, once a step, weighs four times what it does in a run.
    train=replace(TRAIN, batch_sequences=128),
    n_vocab=N_VOCAB,
    timed_steps=20,
)
# The same code in seconds on a CPU: it tests the script, not the machine.
SELFTEST = Scale(
    device=replace(DEVICE, kind="cpu", threads=1, compile=False),
    cases=_small(ModelShape(n_layer=2, d_model=16, n_head=2, n_kv_head=2, flops=1.0), 32, 64),
    steps=3,
    attention_sizes=(1, 32, 6, 8),
    loss_sizes=(64, 16, 96),
    head_sizes=(64, 16, 97),
    peak_size=256,
    meter_band=None,  # the sizes differ, and others may be using this machine
    models={name: ModelShape(2, 24, 12, shape.n_kv_head, 1.0) for name, shape in MODELS.items()},
    train=replace(TRAIN, seq_len=32, batch_sequences=8, micro_batch=4),
    n_vocab=64,
    timed_steps=2,
)
