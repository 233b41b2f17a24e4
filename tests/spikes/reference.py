"""Where other people's data lies, for tests that compare with it; they skip where it is not."""

import os
from pathlib import Path

import pytest

REFERENCE = Path(os.environ.get("X1_REFERENCE", Path(__file__).parents[3] / "shared" / "reference"))


def reference(name: str) -> Path:
    path = REFERENCE / "spikes" / name
    if not path.is_file():
        pytest.skip(f"reference data {name} is not here")
    return path
