"""One incident from end to end: it happens, is noticed, replayed, explained, and recovered from."""

from collections.abc import Callable
from dataclasses import dataclass

from x1_pretrain.spikes.data_tests import Corpus
from x1_pretrain.spikes.investigation import Investigation, investigate, suspicion
from x1_pretrain.spikes.lab import Lab
from x1_pretrain.spikes.monitor import Alarm, SpikeMonitor
from x1_pretrain.spikes.recovery import Recovery, recover
from x1_pretrain.spikes.watch import Incident, no_incident, watch


@dataclass(frozen=True)
class Findings:
    """Everything that was measured, and the verdict."""

    incident: Incident
    found: Investigation
    recovery: Recovery


def run_incident(
    lab: Lab,
    corpus: Corpus,
    monitor: SpikeMonitor,
    steps: int,
    grad_clip: float | None = None,
    notice: Callable[[Alarm], None] = lambda alarm: None,
) -> Findings:
    """Run the incident, the replays, the diagnosis and the recovery; `steps` is the whole run.

    Raises `UserError` if nothing happens.
    """
    incident = watch(lab, monitor, steps, notice)
    if incident is None:
        raise no_incident(lab, steps)
    found = investigate(lab, corpus, suspicion(incident), monitor)
    return Findings(incident, found, recover(lab, incident, found, steps, grad_clip))
