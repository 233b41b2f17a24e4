"""Stage `postmortem`: spike.json, its figure and its document, from what the incident left."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json, write_json, write_text
from x1_pretrain.errors import UserError
from x1_pretrain.spikes.document import document
from x1_pretrain.spikes.figure import write_figure


def write_postmortem(
    wall_clock_in_documents: bool,
    incident_dir: Path = paths.SPIKE_INCIDENT,
    spike_json: Path = paths.SPIKE,
) -> None:
    """Write spike.json, and beside it spike.png and spike-postmortem.md.

    The time of detection is in `measured/spike.json`; it is copied only if documents may hold
    times. Raises `UserError` if a file of the incident is missing or damaged.
    """
    incident = read_json(incident_dir / "incident.json")
    folder = spike_json.parent
    measured = folder / paths.MEASURED.name / "spike.json"
    spike = with_time(incident["spike"], measured if wall_clock_in_documents else None)
    batch, corpus = read_histogram(incident_dir / "histogram.npz")
    figure = folder / paths.SPIKE_FIGURE.name
    write_json(spike_json, spike)
    write_figure(figure, spike, incident["series"], batch, corpus)
    text = document(spike, measured.relative_to(folder).as_posix(), figure.name)
    write_text(folder / paths.POSTMORTEM.name, text)


def with_time(spike: dict[str, Any], measured: Path | None) -> dict[str, Any]:
    """spike.json's content with `detection.detected_utc`, null unless a measured file is given."""
    time = None if measured is None else read_json(measured)["detected_utc"]
    return {**spike, "detection": {**spike["detection"], "detected_utc": time}}


def read_histogram(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Token counts [V] of the offending batches and of the corpus. Raises `UserError`."""
    try:
        with np.load(io.BytesIO(path.read_bytes())) as arrays:
            return arrays["batch"], arrays["corpus"]
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; the stage that makes it has not run") from error
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: not the histogram of an incident ({error})") from error
