"""Every figure is described once, and drawn by both libraries."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from suffice.globally.certificate import Landscape
from suffice.report import figures
from suffice.report.chart import BLUE, Boxes, Line, Panel, Scale
from suffice.report.figures import Trace
from suffice.report.svg import NARROW, Axis, draw, extent, figure

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
MARGINS = {"kind": "margins", "curves": [{**CURVE, "predicted": [-3.0, 2.0]}]}
GROUP = {"name": HOSTILE, "rows": 5, "events": 2, "observed": [1.0, 0.8, None], "predicted": [1.0, 0.7, None]}
BIN = {"rows": 5, "events": 2, "predicted": 0.7, "observed": 0.8, "low": 0.5, "high": 0.9}
SURVIVAL = {"kind": "survival", "horizon": 1.0, "times": [0.0, 1.0, 2.0], "groups": [GROUP] * 3, "bins": [BIN, BIN]}
COEFFICIENTS = {"names": [HOSTILE, "b"], "outputs": ["one", "two"], "values": [[1.0, 2.0], [3.0, -4.0]]}
FIGURES = {
    **{f"path of {count}": figures.path(trace(count)) for count in (1, 2, 3)},
    "two points": figures.path(trace(2, 2)),
    "one point": figures.path(trace(2, 1)),
    "progress": figures.progress(trace(1)),
    "accuracy": figures.accuracy(trace(1)),
    "work": figures.work(trace(1)),
    "band": figures.landscape(landscape((HOSTILE,))),
    "cells": figures.landscape(landscape((HOSTILE, "l2"))),
    "regularisation": figures.regularisation_path({"multiples": [10.0, 1.0, 0.1], "lines": PATHS}),
    "reliability": figures.calibration({"kind": "reliability", "curves": [CURVE]}),
    "margins": figures.calibration(MARGINS),
    "survival": figures.kaplan_meier(SURVIVAL),
    "horizon": figures.calibration(SURVIVAL),
    "regression": figures.calibration({"kind": "regression", "true": [1.0, 2.0], "predicted": [1.1, 1.9]}),
    "coefficients": figures.coefficients(COEFFICIENTS),
}


def cut_to(text: str, most: int = 44) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


@pytest.mark.parametrize("name", FIGURES)
def test_both_libraries_draw_it_and_name_the_same_things(name):
    pytest.importorskip("matplotlib")
    from suffice.plots import draw_panel

    panel = FIGURES[name]
    made = ET.fromstring(draw(panel))
    assert {node.tag.split("}")[-1] for node in made.iter()} <= {"svg", "g", "path", "rect", "text", "title"}
    words = [node.text for node in made.iter() if node.tag.endswith("text")]
    for text in (panel.x, panel.y, panel.title, *panel.y_ticks.values()):
        assert not text or text in words
    assert "nan" not in draw(panel, NARROW, hover=False) and "<title>" not in draw(panel, NARROW, hover=False)
    assert figure(panel, HOSTILE).count("<svg class") == 2 and HOSTILE not in figure(panel, HOSTILE)
    axes = draw_panel(panel)
    axes.figure.canvas.draw()
    labels = [label.replace("\\$", "$") for label in axes.get_legend_handles_labels()[1]]
    names = [mark.name for mark in panel.marks if getattr(mark, "listed", True) and mark.name]
    listed = {cut_to(name) for name in names} if panel.legend else set()
    assert listed <= {*words}
    assert len(labels) == len(names)


def test_every_mark_is_drawn_where_its_numbers_are():
    pytest.importorskip("matplotlib")
    from suffice.plots import draw_panel

    x, scale = np.array([1.0, 2.0, 3.0]), Scale("z", 0.0, 1.0, ((0.0, "#ffffff"), (1.0, "#000000")), {0.0: "0"})
    marks = [
        Line("a", BLUE, x, [1.0, math.nan, 3.0], bars=(x - 1.0, x + 1.0), symbol="o"),
        Line("", BLUE, [*x, *x[::-1]], [*x, *(x + 1.0)[::-1]], dash="filled"),
        Boxes("b", BLUE, np.stack([x - 0.25, 0.0 * x, x + 0.25, x], axis=1)),
        Line("", scale.shades([0.0, 0.5, 1.0]), x, x, symbol="o", joined=False),
        Boxes("", scale.shades([0.5]), [(1.0, 1.0, 2.0, 2.0)], ["7 at least"]),
    ]
    panel = Panel("", "x", "y", marks, level=2.0, shaded=((1.0, 1.5),), scale=scale)
    axes = draw_panel(panel)
    axes.figure.canvas.draw()
    assert {1.0, 2.0, 3.0} <= {bar.get_height() for bar in axes.containers[1] if bar.get_width() == 0.5}
    (plot,) = [node for node in ET.fromstring(draw(panel, 400)) if node.tag == "svg"]
    left, top, width, height = map(float, plot.get("viewBox").split())
    x_axis = Axis(*extent([panel], "x"), False, left, left + width)
    y_axis = Axis(*extent([panel], "y"), False, top + height, top)
    steps, band, bars, dots, cells = plot[0], plot[3], plot[4], plot[5], plot[6]
    assert steps.get("d").count("M") == 2  # a gap
    boxes = [[float(box.get(key)) for key in ("x", "y", "width", "height")] for box in bars]
    for k, (a, b, c, d) in enumerate(boxes, 1):
        assert a == pytest.approx(x_axis(k - 0.25), abs=0.1) and a + c == pytest.approx(x_axis(k + 0.25), abs=0.2)
        assert b == pytest.approx(y_axis(k), abs=0.1) and b + d == pytest.approx(y_axis(0.0), abs=0.2)
    assert [dot.get("fill") for dot in dots] == ["#ffffff", "#808080", "#000000"]
    assert cells[0].get("fill") == "#808080" and cells[0][0].text == "7 at least" and band.get("fill") == BLUE


@pytest.mark.parametrize(
    ("low", "high", "log", "texts"),
    [
        (0.0, 1.0, False, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-1234.0, 56789.0, False, ["0", "10,000", "20,000", "30,000", "40,000", "50,000"]),
        (1.00001, 1.00003, False, ["1.000010", "1.000015", "1.000020", "1.000025", "1.000030"]),
        (0.0, 3e-9, False, ["0", "5e-10", "1e-09", "1.5e-09", "2e-09", "2.5e-09", "3e-09"]),
        (-6.0, 2.0, True, ["10⁻⁶", "10⁻⁴", "0.01", "1", "100"]),
        (0.1, 0.9, True, ["2", "4", "6"]),
        (-0.05, 0.02, True, ["0.90", "0.95", "1.00"]),
    ],
)
def test_ticks_are_round_and_few(low, high, log, texts):
    assert list(Axis(low, high, log, 0.0, 400.0).ticks().values()) == texts


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("size", [1e-300, 1e-12, 1.0, 1e12, 1e300])
@pytest.mark.parametrize("width", [1e-12, 1e-3, 1.0, 200.0])
def test_ticks_lie_inside_and_differ(log, size, width):
    x = np.array([size, size * (1.0 + width)])
    panel = Panel("", "x", "y", [Line("", BLUE, x, x)], log_x=log, log_y=log)
    axis = Axis(*extent([panel], "x"), log, 0.0, 300.0)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 12 and len({*ticks.values()}) == len(ticks)
    assert all(-1.0 <= axis(value) <= 301.0 for value in ticks)
    ET.fromstring(draw(panel))
