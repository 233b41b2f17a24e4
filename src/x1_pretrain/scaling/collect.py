"""The sweep's runs as runs.csv: one row for each (model, seed, branch), with 6ND and counted FLOPs."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from x1_pretrain.deliverables.files import read_json, write_text
from x1_pretrain.errors import UserError

COLUMNS = (
    "run_id", "model", "seed", "branch", "N", "N_total", "D", "C", "C_counted",
    "val_loss", "val_bits_per_byte", "usd_spent",
)  # fmt: skip


def collect(sweep_runs: Sequence[Path], output: Path) -> None:
    """Write `output` from the JSON files of the sweep, in the given order of models.

    Raises `UserError` naming file and key where a sweep file lacks one, or if a run occurs twice.
    """
    rows = [row for path in sweep_runs for row in _rows_of(path)]
    seen: set[str] = set()
    for row in rows:
        if row["run_id"] in seen:
            raise UserError(f"{output}: run {row['run_id']!r} comes from two sweep files; ids are unique")
        seen.add(row["run_id"])
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(output, text.getvalue())


def _rows_of(path: Path) -> list[dict[str, Any]]:
    """Rows of the study's own seed, then those of the further seeds, if any."""
    run = read_json(path)
    try:
        return [
            {
                "run_id": f"{run['model']}-seed{seeded['seed']}-b{point['branch']}",
                "model": run["model"],
                "seed": seeded["seed"],
                "branch": point["branch"],
                "N": run["N"],
                "N_total": run["N_total"],
                "D": point["D"],
                "C": point["C_6nd"],
                "C_counted": point["C_counted"],
                "val_loss": point["val_loss_nats"],
                "val_bits_per_byte": point["val_bits_per_byte"],
                "usd_spent": point["usd_spent"],
            }
            for seeded in (run, *run.get("replicates", ()))
            for point in seeded["points"]
        ]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path}: not a sweep run, {error} is missing; run the sweep stage of this model again"
        ) from error
