"""Where a run is: with the tensors of `checkpoint.snapshot`, all it needs to go on as if never stopped."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class State:
    """Goes into every checkpoint as JSON. The durations are of this run's own work, in seconds."""

    branch: int = 0
    step: int = 0
    log_bytes: int = 0  # the log is cut back to here on resume
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    monitor: dict[str, Any] = field(default_factory=dict)
    anneal_from: int | None = None  # the step at which the soft limit of the cap began the cool-down
    spikes: list[dict[str, Any]] = field(default_factory=list)  # confirmed ones, and what was done
    vitals: list[dict[str, Any]] = field(default_factory=list)
    skipped_steps: int = 0  # steps whose update was left out
    skipped_data: list[list[int]] = field(default_factory=list)  # [first sequence, count], by a rewind
    elapsed_s: float = 0.0
    training_s: float = 0.0
    evaluation_s: float = 0.0
    compile_s: float = 0.0
    timed_tokens: int = 0
    timed_flops: int = 0
    resumes: int = 0
    saves: int = 0
    finished: bool = False

    def continued(self, trunk: dict[str, Any]) -> "State":
        """Back at the saved state `trunk`, from which an early cool-down began: its time stays spent."""
        kept = {name: getattr(self, name) for name in ("elapsed_s", "resumes", "saves")}
        return State(**{**trunk, **kept})

    def evaluated(self) -> bool:
        """Whether this step of this branch has its validation loss."""
        return any(e["branch"] == self.branch and e["step"] == self.step for e in self.evaluations)

    @property
    def rewinds(self) -> int:
        """How often a confirmed spike made the run go back."""
        return sum(spike["action"] == "rewind" for spike in self.spikes)

    def skipping(self, first: int, end: int) -> list[list[int]]:
        """`skipped_data` with sequences [first, end) of the loader's order left out too."""
        ranges = sorted([*([a, a + count] for a, count in self.skipped_data), [first, end]])
        merged = [ranges[0]]
        for a, b in ranges[1:]:
            if a < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], b)
            else:
                merged.append([a, b])
        return [[a, b - a] for a, b in merged]

    def rewound(self, saved: dict[str, Any], spike: dict[str, Any], first: int, end: int) -> "State":
        """The state of a checkpoint to go on from: what was seen since stays, sequences [first, end) go."""
        spike |= {"rewound_to_step": saved["step"], "skipped": [first, end - first]}
        seen = {"alarms": self.alarms, "spikes": [*self.spikes, spike]}
        return State(**saved | seen | {"skipped_data": self.skipping(first, end)})

    def sequence(self, begin: int) -> int:
        """Where in the loader's order the run's sequence number `begin` stands, past what was skipped."""
        for first, count in self.skipped_data:  # in increasing order
            begin += count if begin >= first else 0
        return begin
