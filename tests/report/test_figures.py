"""Every figure is described once, and drawn by both libraries."""

import json
import math

import numpy as np
import pytest

from suffice.globally.certificate import Landscape
from suffice.report import figures
from suffice.report.chart import BLUE, Band, Bars, Cells, Contours, Dots, Line, Panel, Scale
from suffice.report.live import interactive
from suffice.report.traces import Trace

HOSTILE = "</script><b>x</b> $\\frac %{x}"
RNG = np.random.default_rng(0)


def trace(parameters: int, count: int = 12) -> Trace:
    points = 10.0 ** RNG.uniform(-3, 1, (count, parameters))
    cost = 1.0 + np.sum(np.log10(points) ** 2, axis=1)
    names = tuple([HOSTILE, "l2", "l3"][:parameters])
    asked = np.append(math.inf, np.geomspace(1.0, 1e-6, count - 1))
    best = points[np.argmin(cost)]
    work = np.arange(float(count))
    return Trace(
        names, (True,) * parameters, points, cost, cost - 0.1, cost + 0.1, asked, asked / 2, work, (points[:3],), best
    )


def landscape(names: tuple[str, ...]) -> Landscape:
    cells = np.array([[1.0, 10.0, 1.0], [10.0, 100.0, 3.0]])
    if len(names) == 2:
        cells = np.array([[1.0, 1.0, 10.0, 10.0, 1.0], [10.0, 1.0, 100.0, 10.0, 3.0]])
    line = np.array([[1.0, 1.0, 2.0], [10.0, 1.5, math.inf], [100.0, 3.0, math.inf]])
    return Landscape(names, np.array([2.0] * len(names)), 1.0, 1.2, cells, line if len(names) == 1 else line[:0])


CURVE = {
    "label": HOSTILE,
    "predicted": [0.2, 0.8],
    "observed": [0.1, 0.9],
    "low": [0.0, 0.7],
    "high": [0.3, 1.0],
    "count": [5, 5],
}
PATHS = [{"name": HOSTILE, "output": "a", "values": [float(k), 1.0, 2.0]} for k in range(12)]
MARGINS = {"kind": "margins", "edges": [-1.0, 0.0, 1.0], "labels": ["a", HOSTILE], "counts": [[1, 2], [3, 4]]}
COEFFICIENTS = {"names": [HOSTILE, "b"], "outputs": ["one", "two"], "values": [[1.0, 2.0], [3.0, -4.0]]}
FIGURES = {
    **{f"path of {count}": figures.path(trace(count)) for count in (1, 2, 3)},
    "two points": figures.path(trace(2, 2)),
    "one point": figures.path(trace(2, 1)),
    "progress": figures.progress(trace(1)),
    "accuracy": figures.accuracy(trace(1)),
    "work": figures.work(trace(1)),
    "gap": figures.gap([(1.0, 0.5), (2.0, 0.1)]),
    "band": figures.landscape(landscape((HOSTILE,))),
    "cells": figures.landscape(landscape((HOSTILE, "l2"))),
    "regularisation": figures.regularisation_path({"multiples": [10.0, 1.0, 0.1], "lines": PATHS}),
    "reliability": figures.calibration({"kind": "reliability", "curves": [CURVE]}),
    "margins": figures.calibration(MARGINS),
    "regression": figures.calibration({"kind": "regression", "true": [1.0, 2.0], "predicted": [1.1, 1.9]}),
    "coefficients": figures.coefficients(COEFFICIENTS),
}


@pytest.mark.parametrize("name", FIGURES)
def test_both_libraries_draw_it_and_name_the_same_things(name):
    pytest.importorskip("matplotlib")
    from suffice.report.still import draw_panel

    panel = FIGURES[name]
    made = interactive(panel)
    text = json.dumps(made, allow_nan=False)
    assert "<b>" not in text and "</script>" not in text
    assert (
        made["layout"]["height"] == panel.height and made["layout"]["xaxis"]["type"] == ["linear", "log"][panel.log_x]
    )
    axes = draw_panel(panel)
    axes.figure.canvas.draw()
    labels = [label.replace("\\$", "$") for label in axes.get_legend_handles_labels()[1]]
    listed = [one["name"] for one in made["data"] if one.get("showlegend", True) and one.get("name")]
    aside = [] if panel.upright is None else [panel.upright[1]]
    assert len(labels) == len(listed) + len(aside) and {*aside} <= {*labels}


def test_every_mark_is_drawn_where_its_numbers_are():
    pytest.importorskip("matplotlib")
    from suffice.report.still import draw_panel

    x, scale = np.array([1.0, 2.0, 3.0]), Scale("z", 0.0, 1.0, ((0.0, "#ffffff"), (1.0, "#000000")), {0.0: "0"})
    marks = [
        Line("a", BLUE, x, [1.0, math.nan, 3.0], bars=(x - 1.0, x + 1.0), symbol="o"),
        Band(BLUE, x, x, x + 1.0),
        Bars("b", BLUE, x, x, 0.5),
        Dots(x, x, [0.0, 0.5, 1.0], scale),
        Contours(x, x, np.outer(x, x) / 9.0, np.linspace(0.1, 1.0, 4), scale),
        Cells(np.array([[1.0, 1.0, 2.0, 2.0]]), np.array([0.5]), np.array([7.0]), "{} at least", scale),
    ]
    panel = Panel("", "x", "y", marks, level=2.0, upright=(1.5, "here"), shaded=((1.0, 1.5),))
    axes = draw_panel(panel)
    axes.figure.canvas.draw()
    assert {1.0, 2.0, 3.0} <= {patch.get_height() for patch in axes.patches if patch.get_width() == 0.5}
    line, low, high, bars, dots, contours, cells = interactive(panel)["data"]
    assert line["y"] == [1.0, None, 3.0] and line["error_y"]["array"] == [1.0, None, 1.0]
    assert low["y"] == [2.0, 3.0, 4.0] and high["y"] == [1.0, 2.0, 3.0] and high["fill"] == "tonexty"
    assert bars["y"] == [1.0, 2.0, 3.0] and bars["width"] == [0.5] * 3
    assert dots["marker"]["color"] == [0.0, 0.5, 1.0] and contours["contours"]["size"] == pytest.approx(0.3)
    assert cells["z"][0][0] == 0.5 and cells["customdata"][0][0] == 7.0 and "at least" in cells["hovertemplate"]
    assert [shape["type"] for shape in interactive(panel)["layout"]["shapes"]] == ["rect", "line", "line"]
