"""What an incident needs of its run, checked before anything is trained (and so without torch)."""

from x1_pretrain.config import Profile
from x1_pretrain.errors import UserError
from x1_pretrain.spikes.monitor import SpikeMonitor


def check_spike(profile: Profile) -> None:
    """Refuse, before any compute, an incident that the monitor could not see or the run not hold."""
    spike, monitor = profile.spike, SpikeMonitor()
    if spike.batches < 1:
        raise UserError(f"profile key spike.batches: {spike.batches} is not at least 1")
    earliest = 2 * monitor.min_values
    if spike.at_step < earliest:
        raise UserError(
            f"profile key spike.at_step: {spike.at_step} is too early, the monitor needs "
            f"{monitor.min_values} steps and the replays two snapshots; use at least {earliest}"
        )
    if spike.at_step + spike.batches + 20 > spike.steps:
        raise UserError(
            f"profile key spike.steps: {spike.steps} leaves no room to recover; use at least "
            f"{spike.at_step + spike.batches + 20}"
        )
