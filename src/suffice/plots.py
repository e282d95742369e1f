"""Figures of a run with matplotlib: where it went, what it asked for and got, what that cost.

`Trace` is what the figures show, as arrays; `trace(result)` takes it from any result of `tune`. All functions draw on
the Axes `ax`, or on those of a new figure that pyplot does not know, and return the Axes; `axes.figure.savefig` keeps
them. matplotlib (the extra `plot`) is imported when something is drawn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from suffice.report import figures
from suffice.report.chart import Panel
from suffice.report.figures import Trace, trace
from suffice.report.still import draw_panel

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


def _drawing(figure: Callable[..., Panel]) -> Callable[..., Axes]:
    """What draws this figure: `ax` comes after what it shows."""

    @wraps(figure)
    def draw(shown: Any, ax: Axes | None = None, *more: Any, **named: Any) -> Axes:
        return draw_panel(figure(shown, *more, **named), ax)

    first, *others = inspect.signature(figure).parameters.values()
    ax = inspect.Parameter("ax", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    draw.__signature__ = inspect.Signature([first, ax, *others])  # type: ignore[attr-defined]
    return draw


draw_path = _drawing(figures.path)
draw_progress = _drawing(figures.progress)
draw_accuracy = _drawing(figures.accuracy)
draw_work = _drawing(figures.work)
draw_landscape = _drawing(figures.landscape)
draw_regularisation_path = _drawing(figures.regularisation_path)
draw_calibration = _drawing(figures.calibration)
draw_coefficients = _drawing(figures.coefficients)
