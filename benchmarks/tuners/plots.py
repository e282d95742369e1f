"""Pictures of the report: curves for every problem, and profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from benchmarks.tuners import profiles
from benchmarks.tuners.problems import PROBLEMS
from benchmarks.tuners.profiles import Cells
from benchmarks.tuners.tuners import OURS, OURS_FREE

# Okabe and Ito's colours; what is ours stands out.
STYLES: dict[str, dict[str, Any]] = {
    OURS_FREE: {"color": "#D55E00", "linewidth": 2.4, "zorder": 6},
    OURS: {"color": "#E69F00", "linewidth": 2.0, "linestyle": "--", "zorder": 5},
    "DFO-LS": {"color": "#0072B2", "linewidth": 1.4},
    "DFO-LS, 1e-2": {"color": "#0072B2", "linewidth": 1.4, "linestyle": ":"},
    "Py-BOBYQA": {"color": "#56B4E9", "linewidth": 1.4},
    "COBYQA": {"color": "#009E73", "linewidth": 1.4},
    "Nelder-Mead": {"color": "#CC79A7", "linewidth": 1.4},
    "TPE": {"color": "#777777", "linewidth": 1.4},
    "TPE, median": {"color": "#777777", "linewidth": 1.4, "linestyle": ":"},
    "GP": {"color": "#332288", "linewidth": 1.4, "linestyle": "-."},
    "CMA-ES": {"color": "#999933", "linewidth": 1.2},
    "random": {"color": "#BBBBBB", "linewidth": 1.4},
    "grid": {"color": "#BBBBBB", "linewidth": 1.4, "linestyle": "--"},
    "halving random": {"color": "#BBBBBB", "linewidth": 1.4, "linestyle": ":"},
    "K = 200": {"color": "#F0A070", "linewidth": 1.2, "linestyle": ":"},
    "HOAG": {"color": "#117733", "linewidth": 1.2, "linestyle": "--"},
}
BANDS = (OURS_FREE, "TPE")


def curves(found: Cells, solver: str, problems: Sequence[str], path: Path) -> None:
    """The median gap F / F* - 1 of what a tuner would return, over its work."""
    across = 4
    down = math.ceil(len(problems) / across)
    figure, axes = plt.subplots(down, across, figsize=(4.2 * across, 3.1 * down), squeeze=False)
    shown: dict[str, Any] = {}
    for problem, ax in zip(problems, axes.flat, strict=False):
        budget = PROBLEMS[problem].products[solver]
        work = np.geomspace(1e-3 * budget, budget, 200)
        for tuner in found.tuners(solver, list(STYLES)):
            gaps = found.gap_at((problem, solver, tuner), work)
            if not len(gaps):
                continue
            gaps = np.where(np.isnan(gaps), np.inf, np.maximum(gaps, 1e-5))
            middle = np.median(gaps, axis=0)
            (shown[tuner],) = ax.plot(work, np.where(np.isfinite(middle), middle, np.nan), **STYLES[tuner])
            if tuner in BANDS and len(gaps) > 3:
                low, high = (np.quantile(gaps, q, axis=0, method="nearest") for q in (0.25, 0.75))
                high = np.where(np.isfinite(high), high, 1e3)
                ax.fill_between(work, low, high, color=STYLES[tuner]["color"], alpha=0.15, linewidth=0)
        ax.axhline(1e-2, color="black", linewidth=0.6)
        ax.set(xscale="log", yscale="log", title=problem, ylim=(8e-6, 3.0))
    for ax in axes.flat[len(problems) :]:
        ax.axis("off")
    for ax in axes[:, 0]:
        ax.set_ylabel("F / F* - 1")
    for ax in axes[-1]:
        ax.set_xlabel("products with X")
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncols=8, frameon=False)
    figure.tight_layout(rect=(0, 0.045 * 3 / max(down, 2), 1, 1))
    figure.savefig(path, dpi=80)
    plt.close(figure)


def profile(found: Cells, solver: str, problems: Sequence[str], tuners: Sequence[str], path: Path) -> None:
    """Performance and data profiles to 1 % and to 0.1 %."""
    chosen = [tuner for tuner in tuners if tuner in STYLES]
    figure, axes = plt.subplots(2, 2, figsize=(11.0, 7.6), sharey=True)
    alphas, kappas = np.geomspace(1.0, 100.0, 200), np.geomspace(1.0, 300.0, 200)
    for row, tau in zip(axes, (1e-2, 1e-3), strict=True):
        names, work = profiles.instances(found, solver, problems, chosen, tau, "products")
        if not len(names):
            continue
        units = np.array([PROBLEMS[problem].training[solver] for problem, _ in names])
        parts = (
            (row[0], alphas, profiles.performance(work, alphas)),
            (row[1], kappas, profiles.data(work, units, kappas)),
        )
        for ax, x, shares in parts:
            for tuner, share in zip(chosen, shares, strict=True):
                ax.plot(x, share, label=tuner, **STYLES[tuner])
            ax.set(xscale="log", ylim=(0.0, 1.02))
            ax.grid(alpha=0.25)
        row[0].set_ylabel(f"share of instances found to {tau:.1%}")
    axes[1, 0].set_xlabel("times the least work of all tuners")
    axes[1, 1].set_xlabel("trainings from scratch at the optimum")
    axes[0, 0].set_title(f"performance profile, no derivatives ({solver})")
    axes[0, 1].set_title(f"data profile, no derivatives ({solver})")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=7, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=90)
    plt.close(figure)
