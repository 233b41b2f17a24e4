"""The trainer's spike guard: alarms, what confirms them, and which updates a confirmed spike costs.

An alarm is not an action. Most steps that stand out are hard batches that do no harm; a spike is confirmed
only if the loss on a fixed held-out batch has risen some steps later.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor

Policy = Literal["observe", "skip", "rewind"]

PROBE_EVERY = 50  # steps between looks at the held-out batch, while all is calm
CONFIRM_AFTER, CONFIRM_PROBE_NATS = 8, 0.1  # steps from the first alarm; rise of the held-out loss
REWIND_STEPS = 100  # PaLM went back about as far
MARGIN_STEPS = 1  # of data skipped on each side of the flagged steps


@dataclass(frozen=True)
class Spike:
    """A confirmed spike: the flagged steps, and the held-out loss before them and at its confirmation."""

    first_step: int
    last_step: int
    probe_before_nats: float
    probe_nats: float

    def as_record(self, branch: int, action: str) -> dict[str, Any]:
        """With what was done, as plain JSON values."""
        probe = self.probe_nats if math.isfinite(self.probe_nats) else None
        return {"branch": branch, **asdict(self), "probe_nats": probe, "action": action}

    def __str__(self) -> str:
        steps = f"a spike at steps {self.first_step} to {self.last_step}"
        return f"{steps}, held-out loss {self.probe_before_nats:.3f} -> {self.probe_nats:.3f} nats"


class SpikeGuard:
    """Watches one run. Its answers are a pure function of what it is shown; its state is JSON.

    `dismissed` counts the alarms' cases that were not confirmed.
    """

    def __init__(self, policy: Policy = "observe") -> None:
        self.policy, self.monitor = policy, SpikeMonitor()
        self.probe_nats: float | None = None  # while all was calm
        self.dismissed = 0
        self._case: list[int] | None = None  # first and last flagged step of what is not yet decided
        self._calm_steps: int | None = None  # unflagged in a row since a confirmed spike; None: it is over

    def probe_is_due(self, step: int) -> bool:
        """Whether a step ends with a look at the held-out batch; so early that all still is calm."""
        return step % PROBE_EVERY == 0 and self._case is None and self._calm_steps is None

    def vetoes(self, loss: float, grad_norm: float) -> bool:
        """Whether an update is left out: under policy `skip`, that of a flagged step of a confirmed spike."""
        lasting = self.policy == "skip" and self._calm_steps is not None
        return lasting and self.monitor.flags(loss, grad_norm)

    def observe(
        self,
        step: int,
        loss: float,
        grad_norm: float,
        probe: Callable[[], float],
        update_rms: float | None = None,
    ) -> tuple[Alarm | None, Spike | None]:
        """Judge a step; `probe` measures the held-out loss, and is called only when it is needed."""
        alarm = self.monitor.observe(step, loss, grad_norm, update_rms)
        if self._calm_steps is not None:
            self._calm_steps = 0 if alarm is not None else self._calm_steps + 1
            if self._calm_steps >= CONFIRM_AFTER:
                self._calm_steps = None
            return alarm, None
        if alarm is not None:
            self._case = [step, step] if self._case is None else [self._case[0], step]
        if self._case is None:
            if self.probe_is_due(step):
                self.probe_nats = probe()
            return alarm, None
        if step < self._case[0] + CONFIRM_AFTER:
            return alarm, None
        (first, last), self._case, now = self._case, None, probe()
        if self.probe_nats is None or now - self.probe_nats <= CONFIRM_PROBE_NATS:  # a NaN is a rise
            self.dismissed += 1
            return alarm, None
        self._calm_steps = 0
        return alarm, Spike(first, last, self.probe_nats, now)

    def state_dict(self) -> dict[str, Any]:
        """All of the state as JSON values."""
        return {
            "monitor": self.monitor.state_dict(),
            "probe_nats": self.probe_nats,
            "dismissed": self.dismissed,
            "case": self._case,
            "calm_steps": self._calm_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self.monitor.load_state_dict(state["monitor"])
        self.probe_nats, self.dismissed = state["probe_nats"], state["dismissed"]
        self._case, self._calm_steps = state["case"], state["calm_steps"]
