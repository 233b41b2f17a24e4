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

    def sequence(self, begin: int) -> int:
        """Where in the loader's order the run's sequence number `begin` stands, past what was skipped."""
        for first, count in self.skipped_data:  # in increasing order
            begin += count if begin >= first else 0
        return begin
