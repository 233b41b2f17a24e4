"""What a verdict's confidence means: how often verdicts like it were right on injections of known cause.

Counted by `benchmarks/spike_lab.py --calibrate` over every injection and clean runs, on seeds that the
benchmark itself does not use.
"""

# Tests that came out against the verdict's prediction -> (right verdicts, verdicts).
# Of 66 cases: ten injections and clean runs, seeds 100 to 102, two sizes (2026-11-30).
RIGHT_OF: dict[int, tuple[int, int]] = {0: (66, 66), 1: (0, 0), 2: (0, 0)}
MOST_AGAINST = 2  # two or more are one class


def confidence(cause: str, against: int) -> float | None:
    """The share of right verdicts, by the rule of succession (r + 1) / (n + 2).

    None for `undetermined`, and where the calibration has no such verdicts.
    """
    right, verdicts = RIGHT_OF.get(min(against, MOST_AGAINST), (0, 0))
    return (right + 1) / (verdicts + 2) if verdicts and cause != "undetermined" else None
