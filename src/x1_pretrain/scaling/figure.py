"""iso-flop.png: the IsoFLOP points with parabola and law, and the loss against D for every size.

Markers and line styles carry the meaning, so it reads in black and white; the bytes depend on the
runs only.
"""

import io
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from x1_pretrain.deliverables.files import write_bytes
from x1_pretrain.scaling.fit import Study
from x1_pretrain.scaling.law import FLOPS_PER_PARAMETER_TOKEN, Law
from x1_pretrain.scaling.prediction_text import count, ratio

DPI = 130
BAND_DRAWS = 2000
GRID_POINTS = 120
MAX_SIZES = 6  # more distinct sizes are drawn as one cloud
STYLES = (  # colour-blind safe, and told apart by marker and dashes alone
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#7A4B94", "D", ":"),
    ("#8C6D1F", "v", (0, (5, 1, 1, 1, 1, 1))),
    ("#333333", "P", (0, (8, 2))),
)
RC = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
}


def draw(study: Study, path: Path) -> None:
    """Write the PNG. Losses in nats per token; N and D on logarithmic axes."""
    with rc_context(RC):
        figure = Figure(figsize=(11, 4.7), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        law = _thinned(study.posterior.law)
        _isoflop_panel(left, study, law)
        _tokens_panel(right, study, law)
        content = io.BytesIO()
        figure.savefig(content, format="png", metadata={"Software": None})
    write_bytes(path, content.getvalue())


def _thinned(law: Law) -> Law:
    """About BAND_DRAWS posterior draws, as a column that broadcasts against a grid."""
    every = max(1, law.E.size // BAND_DRAWS)
    fields = (law.E, law.A, law.alpha, law.B, law.beta)
    return Law(*(field.ravel()[::every, None] for field in fields))


def _isoflop_panel(axes: Axes, study: Study, law: Law) -> None:
    parabola = study.isoflop
    axes.set_ylabel("validation loss (nats per token)")
    axes.set_xlabel("N, non-embedding parameters")
    _count_axis(axes)
    if parabola is None:
        axes.set_title("Loss against size")
        axes.plot(study.runs.N, study.runs.loss_nats, "o", color="black", ms=4, mfc="none")
        axes.text(
            0.98, 0.98, "no FLOPs budget has three sizes:\nno parabola, no optimum",
            transform=axes.transAxes, ha="right", va="top",
        )  # fmt: skip
        return
    N, loss = study.runs.N[parabola.rows], study.runs.loss_nats[parabola.rows]
    grid = np.geomspace(N.min() / 1.6, N.max() * 1.6, GRID_POINTS)
    curves = law.loss(grid, parabola.C / (FLOPS_PER_PARAMETER_TOKEN * grid))
    low, median, high = np.quantile(curves, (0.025, 0.5, 0.975), axis=0)
    axes.set_title(f"IsoFLOP set, C = {parabola.C:.2e} FLOPs")
    axes.fill_between(grid, low, high, color="#bcd3e6", lw=0, label="law, 95% interval")
    axes.plot(grid, median, "-", color="#0072B2", lw=1.6, label="law, posterior median")
    if parabola.coefficients is not None:
        axes.plot(grid, parabola.loss(grid), "--", color="black", lw=1.2, label="parabola in ln N")
    axes.plot(N, loss, "o", color="black", ms=7, mfc="white", mew=1.6, label="runs", zorder=5)
    best = float(np.median(study.posterior.law.n_opt(parabola.C)))
    labelled = zip(N, loss, strict=True) if len(N) <= MAX_SIZES else ()
    for size, value in labelled:  # inside the bowl, clear of the curves
        side, shift = ("left", 2) if size < best else ("right", -2)
        axes.annotate(
            f"{count(size)}\n{value:.3f}", (size, value), (shift, 9), textcoords="offset points",
            ha=side, fontsize=8.5,
        )  # fmt: skip
    spread = max(loss.max() - loss.min(), 0.02 * loss.mean())
    bottom = min(float(low.min()), loss.min()) - 0.35 * spread
    axes.set_ylim(bottom, max(loss.max(), float(median.max())) + 0.65 * spread)
    axes.set_xlim(grid[0], grid[-1])
    _optimum(axes, study, bottom + 0.15 * spread, bottom)
    axes.legend(loc="upper center", ncols=2, columnspacing=1.2, handlelength=2.4)


def _optimum(axes: Axes, study: Study, height: float, bottom: float) -> None:
    """The law's best size with its interval as a bar, and the parabola's vertex as a star."""
    parabola = study.isoflop
    low, median, high = np.quantile(study.posterior.law.n_opt(parabola.C), (0.025, 0.5, 0.975))
    axes.errorbar(
        [median], [height], xerr=[[median - low], [high - median]], fmt="d", color="#0072B2", ms=6,
        capsize=4, lw=1.6, zorder=4,
        label=f"law: N_opt = {count(median)}\n95% {count(low)} to {count(high)}",
    )  # fmt: skip
    if parabola.N_opt is None:
        label = "parabola: no optimum (" + parabola.refused.replace("_", " ") + ")"
        axes.text(0.02, 0.02, label, transform=axes.transAxes, fontsize=8.5)
        return
    D_per_N = parabola.C / (FLOPS_PER_PARAMETER_TOKEN * parabola.N_opt**2)
    axes.vlines(parabola.N_opt, bottom, parabola.loss_opt, color="black", lw=0.8, linestyles=":")
    axes.plot(
        [parabola.N_opt], [parabola.loss_opt], "*", color="black", ms=11, zorder=6,
        label=f"vertex: N = {count(parabola.N_opt)}, D/N = {ratio(D_per_N)}",
    )  # fmt: skip


def _tokens_panel(axes: Axes, study: Study, law: Law) -> None:
    runs = study.runs
    axes.set_title("Loss against tokens, by size")
    axes.set_xlabel("D, training tokens")
    axes.set_ylabel("validation loss (nats per token)")
    _count_axis(axes)
    sizes = np.unique(runs.N)
    cloud = len(sizes) > MAX_SIZES
    if cloud:
        axes.plot(runs.D, runs.loss_nats, "o", color="#777777", ms=3.5, mfc="none", label="runs")
        sizes = sizes[[0, len(sizes) // 2, -1]]
    grid = np.geomspace(runs.D.min() / 1.5, runs.D.max() * 1.5, GRID_POINTS)
    for N, (color, marker, dashes) in zip(sizes, STYLES, strict=False):
        rows = np.flatnonzero(runs.N == N)
        reach = (grid >= runs.D[rows].min() / 1.5) & (grid <= runs.D[rows].max() * 1.5)
        tokens = grid if cloud else grid[reach]
        low, median, high = np.quantile(law.loss(N, tokens), (0.025, 0.5, 0.975), axis=0)
        axes.fill_between(tokens, low, high, color=color, alpha=0.18, lw=0)
        axes.plot(
            tokens, median, ls=dashes, color=color, lw=1.6, marker=None if cloud else marker, ms=6.5,
            mfc="white", mew=1.5, markevery=[], label=f"N = {count(N)}",
        )  # fmt: skip
        if not cloud:
            axes.plot(runs.D[rows], runs.loss_nats[rows], marker, color=color, ms=6.5, mfc="white", mew=1.5)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top + 0.16 * (top - bottom))
    axes.legend(
        title="points: runs; lines: law, posterior median; shade: 95%", loc="upper center",
        ncols=4, handlelength=3.0, columnspacing=1.2,
    )  # fmt: skip


def _count_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
