"""spike.png: the spike in the log, the recovery against the control, and the batch's tokens.

Every line has its own dash or marker, so that the figure reads in black and white.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from x1_pretrain.deliverables.files import write_bytes
from x1_pretrain.report.figures import png_bytes

STEPS_BEFORE, STEPS_AFTER = 40, 40
RANK_BINS = 24
POLICIES = {
    "control": ("control: never spoiled", {"color": "black", "linestyle": "-", "marker": ""}),
    "done": (
        "done: {}",
        {"color": "#1f5a99", "linestyle": "--", "marker": "o", "markerfacecolor": "white"},
    ),
    "no_action": ("no action", {"color": "0.5", "linestyle": ":", "marker": "x"}),
}


def spike_figure(
    spike: dict[str, Any], series: dict[str, Any], batch: np.ndarray, corpus: np.ndarray
) -> Figure:
    """The figure from spike.json, its series, and token counts [V] of batch and corpus."""
    figure = Figure(figsize=(10.0, 7.0), layout="constrained")
    grid = figure.subplot_mosaic([["loss", "probe"], ["norm", "tokens"]])
    alarm = spike["detection"]["step"]
    log = np.array(series["log"], dtype=float)  # null becomes NaN, which is not drawn
    near = log[(log[:, 0] >= alarm - STEPS_BEFORE) & (log[:, 0] <= alarm + STEPS_AFTER)]
    _draw_log(grid["loss"], near, 1, spike, "training loss (nats per token)")
    _draw_log(grid["norm"], near, 2, spike, "gradient norm before clipping")
    grid["norm"].set_yscale("log")
    for axis_formatter in (grid["norm"].yaxis.set_major_formatter, grid["norm"].yaxis.set_minor_formatter):
        axis_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    grid["norm"].set_xlabel("step")
    for name in ("loss", "norm"):
        grid[name].legend(frameon=False, fontsize=8, loc="upper left")
    _draw_probes(grid["probe"], spike, series["probes"])
    _draw_tokens(grid["tokens"], batch, corpus)
    verdict = spike["verdict"]
    name = verdict["cause"].replace("_", " ")
    if verdict["subtype"] is not None:
        name += f" ({verdict['subtype'].replace('_', ' ')})"
    figure.suptitle(f"Spike at step {alarm}: {name}", fontsize=12)
    for axes in grid.values():
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure


def _draw_log(axes: Axes, log: np.ndarray, column: int, spike: dict[str, Any], name: str) -> None:
    first, last = spike["offending_batches"]
    what = "batches" if spike["offending_stand_out"] else "steps"
    axes.axvspan(first - 0.5, last + 0.5, color="0.88", label=f"{what} {first} to {last}")
    axes.plot(log[:, 0], log[:, column], color="black", linewidth=1.1)
    seen_here = ("loss", "loss_low", "nonfinite") if column == 1 else ("grad_norm",)
    flagged = {a["step"] for a in spike["detection"]["alarms"] if a["reason"] in seen_here}
    hit = np.isin(log[:, 0], list(flagged))
    axes.plot(
        log[hit, 0],
        log[hit, column],
        linestyle="none",
        marker="v",
        markersize=7,
        markerfacecolor="white",
        markeredgecolor="#b03020",
        markeredgewidth=1.4,
        label="alarm",
    )
    axes.set_ylabel(name)


def _draw_probes(axes: Axes, spike: dict[str, Any], probes: dict[str, Any]) -> None:
    action = spike["recovery"]["action"]
    for policy, (label, look) in POLICIES.items():
        name = action if policy == "done" else policy
        if policy == "done" and action == "no_action":
            continue
        points = np.array(probes[name], dtype=float)
        label = label.format(action.replace("_", " "))
        axes.plot(points[:, 0], points[:, 1], label=label, linewidth=1.3, markersize=4, **look)
    axes.axvline(spike["detection"]["step"], color="0.6", linewidth=0.8)
    axes.set_ylabel("probe loss, held out (nats per token)")
    axes.set_xlabel("step")
    axes.legend(frameon=False, fontsize=8)


def _draw_tokens(axes: Axes, batch: np.ndarray, corpus: np.ndarray) -> None:
    """Share of all tokens in bins of ids, from the corpus's most frequent to its rarest."""
    order = np.argsort(-corpus, kind="stable")
    edges = np.unique(np.geomspace(1, len(order), RANK_BINS + 1).round().astype(int)) - 1
    places = np.arange(len(edges) - 1)
    for counts, label, look in (
        (corpus, "corpus", {"color": "0.8"}),
        (batch, "offending batches", {"color": "none", "edgecolor": "black", "hatch": "////"}),
    ):
        shares = np.add.reduceat(counts[order], edges[:-1]) / counts.sum()
        axes.bar(places, shares, width=0.9, label=label, linewidth=0.8, **look)
    shown = places[:: max(1, len(places) // 6)]
    axes.set_xticks(shown, [str(edges[place] + 1) for place in shown])
    axes.set_xlabel("token, by its rank in the corpus")
    axes.set_ylabel("share of tokens")
    axes.legend(frameon=False, fontsize=8)


def write_figure(
    path: Path,
    spike: dict[str, Any],
    series: dict[str, Any],
    batch: np.ndarray,
    corpus: np.ndarray,
) -> None:
    """Draw spike.png, the same bytes from the same numbers."""
    with style.context("default"):  # not the user's matplotlibrc
        content = png_bytes(spike_figure(spike, series, batch, corpus))
    write_bytes(path, content)
