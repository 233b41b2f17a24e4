"""The benchmarks are scripts: as `python benchmarks/<name>.py` has it, their folder comes onto the path."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from contest.terms import Terms

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def small_terms(synthetic_tokens: Path) -> "Terms":
    """A model of 16 dimensions on batches of 4 x 32 tokens, uncompiled."""
    from contest.terms import Terms

    return Terms(
        tokens=synthetic_tokens,
        n_layer=1,
        d_model=16,
        n_head=2,
        seq_len=32,
        batch_sequences=4,
        val_tokens=256,
        seed=3,
        threads=1,
        precision="fp32",
        compile=False,
    )
