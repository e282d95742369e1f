"""Figures of a run with matplotlib: where it went, what it asked for and got, what that cost.

`Trace` is what the figures show, as arrays; `trace(result)` takes it from any result of `tune`. All functions draw on
the Axes `ax`, or on those of a new figure that pyplot does not know, and return the Axes; `axes.figure.savefig` keeps
them. matplotlib (the extra `plot`) is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from suffice.globally.certificate import Landscape
from suffice.report import figures
from suffice.report.still import draw_panel
from suffice.report.traces import Trace, trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Trace",
    "draw_accuracy",
    "draw_calibration",
    "draw_coefficients",
    "draw_landscape",
    "draw_path",
    "draw_progress",
    "draw_regularisation_path",
    "draw_work",
    "trace",
]


def draw_path(shown: Trace, ax: Axes | None = None, parameters: Sequence[str] | None = None) -> Axes:
    """F over one parameter with proven error bars, the way through all evaluations for two, parallel axes for more."""
    return draw_panel(figures.path(shown, parameters), ax)


def draw_progress(shown: Trace, ax: Axes | None = None) -> Axes:
    """F of every evaluation with its proven interval, and the least upper bound so far."""
    return draw_panel(figures.progress(shown), ax)


def draw_accuracy(shown: Trace, ax: Axes | None = None) -> Axes:
    """The accuracy asked for and the one proven, per evaluation."""
    return draw_panel(figures.accuracy(shown), ax)


def draw_work(shown: Trace, ax: Axes | None = None) -> Axes:
    """The work of every evaluation, and of all so far."""
    return draw_panel(figures.work(shown), ax)


def draw_landscape(found: Landscape, ax: Axes | None = None) -> Axes:
    """What a global certificate proves of F over one or two parameters."""
    return draw_panel(figures.landscape(found), ax)


def draw_regularisation_path(data: dict[str, Any], ax: Axes | None = None) -> Axes:
    """Coefficients against the multiple of the best penalties."""
    return draw_panel(figures.regularisation_path(data), ax)


def draw_calibration(data: dict[str, Any], ax: Axes | None = None) -> Axes:
    """Reliability curves, margins per class, or predictions against the truth: whichever `data` holds."""
    return draw_panel(figures.calibration(data), ax)


def draw_coefficients(data: dict[str, Any], ax: Axes | None = None, most: int = 25) -> Axes:
    """The largest coefficients of the final model as bars."""
    return draw_panel(figures.coefficients(data, most), ax)
