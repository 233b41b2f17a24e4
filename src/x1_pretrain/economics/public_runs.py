"""Public training runs: what the planner's formula says about them, and what was published.

A row takes parameters, tokens, shape and MFU from the run's own report (or says whose they are) and the
GPU-hours from where they were published. Where the two disagree by more than a tenth the row says why; the
MFU is not bent to fit. Figures and pages as read on 2026-11-30.
"""

from dataclasses import dataclass

from x1_pretrain.economics.planner import gpu_hours
from x1_pretrain.economics.splits import Transformer

TOLERANCE = 0.10
READ = "2026-11-30"


@dataclass(frozen=True)
class Chip:
    """Peak dense 16-bit FLOP/s, and where it is from."""

    name: str
    peak_flops: float
    source: str


V100 = Chip("V100", 125e12, "NVIDIA V100 data sheet, tensor performance")
A100 = Chip("A100", 312e12, "NVIDIA A100 data sheet")
H100 = Chip("H100 SXM", 989e12, "NVIDIA H100 data sheet, 1,979 with sparsity")
TPU_V4 = Chip("TPU v4", 275e12, "PaLM, arXiv 2204.02311, appendix B")


@dataclass(frozen=True)
class PublicRun:
    """One run. `mfu` is None where none was published; `disagrees` says why a row is off."""

    name: str
    model: Transformer
    tokens: float
    chip: Chip
    mfu: float | None
    mfu_source: str
    published_hours: float
    hours_source: str
    sizes_source: str
    disagrees: str | None = None

    @property
    def flops(self) -> float:
        return self.tokens * self.model.flops_per_token

    @property
    def predicted_hours(self) -> float | None:
        return None if self.mfu is None else gpu_hours(self.flops, self.chip.peak_flops, self.mfu)

    @property
    def error(self) -> float | None:
        """Predicted over published, minus one."""
        return None if self.predicted_hours is None else self.predicted_hours / self.published_hours - 1

    @property
    def implied_mfu(self) -> float:
        """The MFU over the whole run at which the published hours would be right."""
        return gpu_hours(self.flops, self.chip.peak_flops, 1.0) / self.published_hours


def _mfu_at(tokens_per_s: float, model: Transformer, chip: Chip) -> float:
    """MFU of a published speed, tokens per second and chip."""
    return tokens_per_s * model.flops_per_token / chip.peak_flops


GPT3 = Transformer(174.6e9, 96, 12288, 50257, 2048)
LLAMA_65B = Transformer(65.2e9, 80, 8192, 32000, 2048)
LLAMA_65B_MFU = _mfu_at(380, LLAMA_65B, A100)
# Megatron counts the forward pass that is computed again: four passes for three.
RECOMPUTED = 3 / 4

PUBLIC_RUNS: tuple[PublicRun, ...] = (
    PublicRun(
        name="GPT-3 175B",
        model=GPT3,
        tokens=300e9,
        chip=V100,
        mfu=0.213,
        mfu_source="PaLM, arXiv 2204.02311, table 3",
        published_hours=10_000 * 14.8 * 24,
        hours_source="Patterson et al., arXiv 2104.10350, table 4: 14.8 days, on 10,000 V100 as they assume",
        sizes_source="Brown et al., arXiv 2005.14165, table 2.1",
    ),
    PublicRun(
        name="OPT-175B",
        model=Transformer(175e9, 96, 12288, 50272, 2048),
        tokens=180e9,
        chip=A100,
        mfu=147 / 312,
        mfu_source="up to 147 TFLOP/s a card, arXiv 2205.01068, section 2.5",
        published_hours=809_472,
        hours_source="LLaMA, arXiv 2302.13971, table 15: 34 days on 992 A100, as its authors read the logs",
        sizes_source="arXiv 2205.01068; 180B tokens are its corpus, the tokens read are not stated",
        disagrees="the speed is a maximum, the hours include restarts, and the tokens read are not stated",
    ),
    PublicRun(
        name="BLOOM 176B",
        model=Transformer(176.247e9, 70, 14336, 250680, 2048),
        tokens=366e9,
        chip=A100,
        mfu=RECOMPUTED * 150 / 312,
        mfu_source="about 150 TFLOP/s, BigScience's page of the model; 3/4 without recomputing",
        published_hours=1_082_990,
        hours_source="arXiv 2211.05100, section 3.4.1",
        sizes_source="arXiv 2211.05100, page 21",
    ),
    PublicRun(
        name="LLaMA 65B",
        model=LLAMA_65B,
        tokens=1.4e12,
        chip=A100,
        mfu=LLAMA_65B_MFU,
        mfu_source="380 tokens/s a card, arXiv 2302.13971, section 2.4",
        published_hours=1_022_362,
        hours_source="arXiv 2302.13971, table 15",
        sizes_source="arXiv 2302.13971, table 2",
    ),
    PublicRun(
        name="Llama 2 70B",
        model=Transformer(68.977e9, 80, 8192, 32000, 4096),
        tokens=2e12,
        chip=A100,
        mfu=LLAMA_65B_MFU,
        mfu_source="none published; LLaMA 65B's, on the same cards",
        published_hours=1_720_320,
        hours_source="arXiv 2307.09288, table 2",
        sizes_source="arXiv 2307.09288, table 1; parameters as counted in the published weights",
    ),
    PublicRun(
        name="Llama 3.1 405B",
        model=Transformer(405.853e9, 126, 16384, 128256, 8192),
        tokens=15.6e12,
        chip=H100,
        mfu=0.41,
        mfu_source="on 16,384 cards, arXiv 2407.21783, table 4 (38 to 43% over its stages)",
        published_hours=30.84e6,
        hours_source="model card of Llama 3.1, which counts the long-context stages too",
        sizes_source="arXiv 2407.21783, table 3; parameters as counted in the published weights",
    ),
    PublicRun(
        name="PaLM 540B",
        model=Transformer(540.35e9, 118, 48 * 256, 256_000, 2048),
        tokens=780e9,
        chip=TPU_V4,
        mfu=0.462,
        mfu_source="with self-attention, arXiv 2204.02311, page 9",
        published_hours=6144 * 1200 + 3072 * 336,
        hours_source="arXiv 2204.02311, appendix B: 1,200 h on 6,144 and 336 h on 3,072 chips",
        sizes_source="arXiv 2204.02311, table 1; L x H x Q = 118 x 48 x 256",
        disagrees="the hours include downtime and repeated steps; the MFU is that of steps that run",
    ),
    PublicRun(
        name="MT-NLG 530B",
        model=Transformer(530e9, 105, 20480, 50257, 2048),
        tokens=270e9,
        chip=A100,
        mfu=0.302,
        mfu_source="with self-attention, PaLM, arXiv 2204.02311, page 9",
        published_hours=270e9 / (1920 * 2048) * 60.1 * 2240 / 3600,
        hours_source="arXiv 2201.11990, section 2.4: 60.1 s a step of 1,920 x 2,048 tokens on 2,240 cards, "
        "for 270B tokens; hours of the run itself are not published",
        sizes_source="arXiv 2201.11990, section 3.2",
    ),
    PublicRun(
        name="Pythia 12B",
        model=Transformer(11_327_027_200 + 2 * 50304 * 5120, 36, 5120, 50304, 2048),
        tokens=299_892_736_000,
        chip=A100,
        mfu=None,
        mfu_source="none published",
        published_hours=72_300,
        hours_source="arXiv 2304.01373, table 5: iteration time x iterations x cards",
        sizes_source="arXiv 2304.01373, table 1, and the input and output embeddings",
    ),
    PublicRun(
        name="OLMo 2 32B",
        model=Transformer(32e9, 64, 5120, 100_352, 4096),
        tokens=6e12,
        chip=H100,
        mfu=0.38,
        mfu_source="about 38%, allenai.org/blog/olmo2-32B",
        published_hours=6e12 / 1800 / 3600,
        hours_source="1,800 tokens/s a card, allenai.org/blog/olmo2-32B, for 6T tokens; hours of the run "
        "itself are not published",
        sizes_source="nominal 32B; shape of the published configuration",
    ),
)
