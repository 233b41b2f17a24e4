"""Stage `postmortem`: spike.json, its figure and its document, from what the incident left."""

import io
from pathlib import Path

import numpy as np

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json, write_json, write_text
from x1_pretrain.errors import UserError
from x1_pretrain.spikes.document import document
from x1_pretrain.spikes.figure import write_figure


def write_postmortem(
    incident_dir: Path = paths.SPIKE_INCIDENT,
    spike_json: Path = paths.SPIKE,
) -> None:
    """Write spike.json, and beside it spike.png and spike-postmortem.md.

    The incident has the time of detection where documents may hold times; elsewhere the document names
    `measured/spike.json`, which always has it. Raises `UserError` if a file of the incident is missing or
    damaged.
    """
    incident = read_json(incident_dir / "incident.json")
    folder, spike = spike_json.parent, incident["spike"]
    measured = folder / paths.MEASURED.name / "spike.json"
    batch, corpus = read_histogram(incident_dir / "histogram.npz")
    figure = folder / paths.SPIKE_FIGURE.name
    write_json(spike_json, spike)
    write_figure(figure, spike, incident["series"], batch, corpus)
    text = document(spike, measured.relative_to(folder).as_posix(), figure.name)
    write_text(folder / paths.POSTMORTEM.name, text)


def read_histogram(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Token counts [V] of the offending batches and of the corpus. Raises `UserError`."""
    try:
        with np.load(io.BytesIO(path.read_bytes())) as arrays:
            return arrays["batch"], arrays["corpus"]
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; the stage that makes it has not run") from error
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: not the histogram of an incident ({error})") from error
