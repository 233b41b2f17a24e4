"""A logged step, and under which names other programs log its numbers."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from x1_pretrain.errors import UserError


class Point(NamedTuple):
    """One logged step. None: the log does not say; `run` tells the runs of one file apart."""

    step: int
    loss: float
    grad_norm: float | None = None
    lr: float | None = None
    loss_scale: float | None = None
    skipped: bool = False
    run: str = ""


@dataclass(frozen=True)
class Log:
    """An opened log: `points()` reads it from the start, each time it is called."""

    format: str
    points: Callable[[], Iterator[Point]]


# A column's or key's name, once in lower case, with other characters as underscores and W&B's run in front
# (`run - name`) or MLflow's and W&B's folder (`train/loss`) taken off.
NAMES = {
    "step": ("step", "_step", "global_step", "trainer_global_step", "iteration", "iter", "it", "steps"),
    "loss": ("loss", "train_loss", "lm_loss", "training_loss", "train_loss_nats", "loss_nats", "trl"),
    "grad_norm": ("grad_norm", "gradnorm", "grad_norm_total", "gradient_norm", "gnorm", "norm", "total_norm"),
    "lr": ("lr", "learning_rate"),
    "loss_scale": ("loss_scale", "grad_scale", "scale"),
    "skipped": ("skipped", "number_of_skipped_iterations"),
    "run": ("run", "run_id", "run_name"),
}
EVALUATION = re.compile(r"(^|[^a-z])(val|valid|validation|eval|test)([^a-z]|$)")


def open_text(path: Path) -> TextIO:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    return path.open(encoding="utf-8", errors="replace", newline="")


def plain(name: str) -> str:
    """`MyRun - train/grad-norm` as `grad_norm`."""
    last = name.strip().strip('"').rsplit(" - ", 1)[-1].lower()
    folder, _, leaf = last.rpartition("/")
    if folder == "trainer":
        leaf = f"trainer_{leaf}"
    return re.sub(r"[^a-z0-9_]+", "_", leaf).strip()


def is_field(name: str, field: str) -> bool:
    """Whether a column or key holds this field of the training, not of an evaluation."""
    low = name.lower()
    if field == "loss" and EVALUATION.search(low.replace("_", " ")):
        return False
    return plain(name) in NAMES[field]


def number(text: Any) -> float | None:
    """A cell as a number; None if it is blank or none."""
    if isinstance(text, bool) or text is None:
        return None
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def point_of(cells: dict[str, Any]) -> Point | None:
    """A point from raw cells, or None where there is no step or no loss (a row of another metric)."""
    step, loss = number(cells.get("step")), number(cells.get("loss"))
    if step is None or loss is None or step != step or abs(step) == float("inf"):
        return None
    return Point(
        step=int(step),
        loss=loss,
        grad_norm=number(cells.get("grad_norm")),
        lr=number(cells.get("lr")),
        loss_scale=number(cells.get("loss_scale")),
        skipped=bool(number(cells.get("skipped"))),
        run=str(cells.get("run") or ""),
    )
