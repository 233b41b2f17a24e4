"""The loss curve as a picture, the same bytes every time it is drawn from the same numbers.

Matplotlib is used through its object interface: no backend, no global style of the user's machine
can change the file.
"""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullFormatter

from x1_pretrain.deliverables.files import write_bytes
from x1_pretrain.errors import UserError

MAY_BE_EMPTY = ("train_loss_nats", "val_loss_nats", "grad_norm")  # a step left out, or not evaluated
COLUMNS = ("step", "tokens", "lr", "train_loss_nats", "val_loss_nats", "grad_norm")
DPI = 130
SMOOTHING_SHARE = 0.02  # the running mean spans this share of the steps


@dataclass(frozen=True)
class Curve:
    """curve.csv as arrays of one row per step; NaN for a step left out and where not evaluated."""

    step: np.ndarray
    tokens: np.ndarray
    lr: np.ndarray
    train_loss_nats: np.ndarray
    val_loss_nats: np.ndarray
    grad_norm: np.ndarray


def read_curve(path: Path) -> Curve:
    """curve.csv, checked. Raises `UserError` naming the file and the wrong line or column."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; the train stage has not run")
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UserError(f"{path}: columns are {reader.fieldnames}, expected {list(COLUMNS)}")
        rows = list(reader)
    if not rows:
        raise UserError(f"{path}: no rows; at least one step is needed to draw a curve")
    columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for number, row in enumerate(rows, start=2):
        for name in COLUMNS:
            columns[name].append(_number(path, number, name, row[name]))
    return Curve(**{name: np.array(values) for name, values in columns.items()})


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    if text == "" and name in MAY_BE_EMPTY:
        return math.nan
    try:
        return float(text or "missing")
    except ValueError as error:
        raise UserError(f"{path}: line {line}, {name} is {text!r}, expected a number") from error


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Centred mean over `width` values; at the ends over what there is, so nothing is shifted."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    half, index = width // 2, np.arange(len(values))
    low, high = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG without the program's version, which would change the bytes."""
    stream = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(stream, format="png", dpi=DPI, metadata={"Software": None})
    return stream.getvalue()


def loss_curve_figure(curve: Curve, title: str) -> Figure:
    """Loss over tokens (train as measured and smoothed, validation as points), lr beneath."""
    figure = Figure(figsize=(8.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    _draw_loss(above, curve)
    above.set_title(title, loc="left", fontsize=11)
    below.plot(curve.tokens, curve.lr, color="black", linewidth=1.2)
    below.set_ylim(0, 1.15 * float(curve.lr.max()) or 1.0)
    below.set_ylabel("learning rate")
    below.yaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
    below.set_xlabel("tokens trained")
    below.xaxis.set_major_formatter(EngFormatter(sep=" "))
    below.set_xlim(0, float(curve.tokens.max()) * 1.02)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure


def _draw_loss(axes: Axes, curve: Curve) -> None:
    kept = ~np.isnan(curve.train_loss_nats)
    tokens, loss = curve.tokens[kept], curve.train_loss_nats[kept]
    width = max(1, round(len(loss) * SMOOTHING_SHARE))
    axes.plot(tokens, loss, color="0.75", linewidth=0.8, label="train, each step")
    smooth = running_mean(loss, width)
    label = f"train, mean of {2 * (width // 2) + 1} steps"
    axes.plot(tokens, smooth, color="#1f5a99", linewidth=1.6, label=label)
    seen = ~np.isnan(curve.val_loss_nats)
    axes.plot(
        curve.tokens[seen],
        curve.val_loss_nats[seen],
        linestyle="none",
        marker="o",
        markersize=6,
        markerfacecolor="white",
        markeredgecolor="black",
        markeredgewidth=1.4,
        label="validation",
        zorder=3,
    )
    if seen.any():
        x, y = curve.tokens[seen][-1], curve.val_loss_nats[seen][-1]
        offset = {"xytext": (-4, 12), "textcoords": "offset points"}
        axes.annotate(f"{y:.3f}", (x, y), ha="right", fontsize=9, **offset)
    axes.set_yscale("log")  # a power law's slow tail stays visible beside the first steps
    low, high = float(np.nanmin(loss)), float(np.nanmax(loss))
    axes.set_yticks(_ticks(low, high))
    axes.set_ylim(0.97 * low, 1.03 * high)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("cross-entropy (nats per token)")
    axes.legend(frameon=False)


def _ticks(low: float, high: float) -> list[float]:
    """Readable values on a log axis that spans less than a decade."""
    steps = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
    step = next((s for s in steps if (high - low) / s <= 10), (high - low) / 8)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def write_loss_curve(curve_csv: Path, output: Path, title: str) -> None:
    """Draw curve.csv as a PNG. Raises `UserError` if the file is missing or malformed."""
    curve = read_curve(curve_csv)
    with style.context("default"):  # not the user's matplotlibrc
        content = png_bytes(loss_curve_figure(curve, title))
    write_bytes(output, content)
