"""Panels as inline SVG, for pages: texts escaped, the colours of the page around it (`--ink`, `--grey`, `--rule`), and
in a `<title>` what stands behind each point.

A panel has two drawings, a wide one and one for a narrow screen, which has no tooltips; the page's style shows either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.report.chart import GREY, INK, PALE, Boxes, Mark, Panel, Scale, cut

WIDE, NARROW = 1060, 350
LETTER = 7.0  # the width of one, in pixels
SHADES = 40  # of a colour bar
PAINTS = {INK: "var(--ink)", "#000000": "var(--ink)", GREY: "var(--grey)", PALE: "var(--pale)"}
DASHES = {"solid": "", "filled": "", "dashed": ' stroke-dasharray="6 4"', "dotted": ' stroke-dasharray="2 3"'}
POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SHAPES: dict[str, Any] = {  # corners around a point, in units of the size; others are circles
    "^": [(0, -1.1), (1, 0.8), (-1, 0.8)],
    "v": [(0, 1.1), (1, -0.8), (-1, -0.8)],
    "s": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "D": [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
    "*": [(r * math.sin(k * math.pi / 5), -r * math.cos(k * math.pi / 5)) for k, r in enumerate([1.2, 0.48] * 5)],
}


def figure(panel: Panel, name: str, width: int = WIDE) -> str:
    """Both drawings of a panel."""
    return (
        f'<div class="wide" data-figure="{escape(name)}">{draw(panel, width)}</div>'
        f'<div class="narrow">{draw(panel, NARROW, hover=False)}</div>'
    )


# --- axes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """From values between `low` and `high`, or log10 of values, to pixels between `start` and `end`."""

    low: float
    high: float
    log: bool
    start: float
    end: float
    least: float = 0.0  # step between ticks

    def __call__(self, values: Any) -> Array:
        u = np.asarray(values, dtype=np.float64)
        if self.log:
            u = np.log10(np.where(u > 0.0, u, math.nan))
        made = self.start + (u - self.low) / (self.high - self.low) * (self.end - self.start)
        return np.asarray(np.clip(made, -2e4, 2e4))

    def ticks(self) -> dict[float, str]:
        most = max(5, round(abs(self.end - self.start) / 70))
        if not self.log:
            return _steps(self.low, self.high, most, self.least)
        if self.high - self.low > 1.5:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1, math.ceil((self.high - self.low) / most))
            return {10.0**k: f"{10.0**k:g}" if -4 < k < 5 else f"10{str(k).translate(POWERS)}" for k in powers}
        round_ones = [d * 10.0**k for k in range(math.floor(self.low), math.ceil(self.high) + 1) for d in (1, 2, 5)]
        found = {value: f"{value:g}" for value in round_ones if self.low <= math.log10(value) <= self.high}
        return found if len(found) > 2 else _steps(10.0**self.low, 10.0**self.high, most)


def _steps(low: float, high: float, most: int, least: float = 0.0) -> dict[float, str]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    power = math.floor(math.log10((high - low) / most))
    step = max(least, next(k * 10.0**power for k in (1, 2, 5, 10) if (high - low) / (k * 10.0**power) <= most))
    places, size = -math.floor(math.log10(step) + 1e-9), max(abs(low), abs(high))
    values = [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    if size < 1e6 and places < 7:
        return {value: f"{value:,.{max(0, places)}f}" for value in values}
    return {value: f"{value:.{max(1, math.ceil(math.log10(size)) + places)}g}" for value in values}


def extent(panels: Sequence[Panel], which: str) -> tuple[float, float]:
    """The ends of the x or the y axis of panels, values or their log10, with a margin."""
    is_log, given = (getattr(panels[0], name) for name in (f"log_{which}", f"{which}_ends"))
    parts = [given] if given else [part for panel in panels for mark in panel.marks for part in _along(mark, which)]
    if which == "y" and not given:
        parts += [panel.level for panel in panels if panel.level is not None]
    u = np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])
    u = np.log10(u[u > 0.0]) if is_log else u
    u = u[np.isfinite(u)]
    if not len(u):
        return (0.0, 1.0)
    low, high = float(u.min()), float(u.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = 0.5 if is_log or low == 0.0 else 0.5 * abs(low)
        return low - room, high + room
    pad = 0.0 if given else 0.04 * (high - low)
    stand = low == 0.0 and any(isinstance(mark, Boxes) for panel in panels for mark in panel.marks)
    return low if stand else low - pad, high + pad


def _along(mark: Mark, which: str) -> list[Any]:
    if isinstance(mark, Boxes):
        return [np.reshape(mark.ends, (-1, 4))[:, which == "y" :: 2]]
    return [getattr(mark, which), *((which == "y" and mark.bars) or ())]


# --- a panel -------------------------------------------------------------------------------------------------------


def draw(panel: Panel, width: int = WIDE, *, hover: bool = True) -> str:
    """One drawing of `panel`, so many pixels wide; `hover` says whether points have tooltips."""
    rows = legend([panel], width - 50) if panel.legend else []
    height = panel.height + 18 * max(0, len(rows) - 1)
    scale = panel.scale
    top, bottom = 16.0 + 18 * len(rows) + 18 * bool(panel.title), height - (46.0 if panel.x else 28.0)
    y = Axis(*extent([panel], "y"), panel.log_y, bottom, top)
    ticks = {value: cut(text, min(40, width // 20)) for value, text in (panel.y_ticks or y.ticks()).items()}
    left = 14.0 + 20 * bool(panel.y) + LETTER * max(map(len, ticks.values()), default=1)
    aside = 14.0 if scale is None else 48.0 + LETTER * max(map(len, scale.ticks.values()))
    seen = [u for mark in panel.marks for u in _along(mark, "x") if np.ndim(u)]
    counts = all(np.array_equal(u, np.round(u), equal_nan=True) for u in seen)
    x = Axis(*extent([panel], "x"), panel.log_x, left, width - aside, float(counts))
    inside = "".join(_mark(mark, x, y, hover) for mark in panel.marks)
    if panel.level is not None:
        inside += f'<path class="level" d="M0 {_n(y(panel.level))}H{width}"/>'
    box = f"{_n(left)} {_n(top)} {_n(x.end - left)} {_n(bottom - top)}"
    parts = [
        _axes(panel, x, y, ticks),
        f'<svg viewBox="{box}" {_place(left, top, x.end - left, bottom - top)}>{inside}</svg>',
        "" if scale is None else _colour_bar(scale, x.end + 12.0, width - 5.0, top, bottom),
        *(f'<g transform="translate({_n(min(left, 40.0))} {14 + 18 * k})">{row}</g>' for k, row in enumerate(rows)),
        _text(panel.title, 0.5 * (left + x.end), top - 8, "middle"),
    ]
    about = escape(panel.title or panel.y or panel.x)
    return f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{about}">{"".join(parts)}</svg>'


def _axes(panel: Panel, x: Axis, y: Axis, y_ticks: Mapping[float, str]) -> str:
    """The grid, with numbers and labels outside."""
    middle, height, lines = 0.5 * (x.start + x.end), y.start - y.end, ""
    parts = [f'<rect class="frame" {_place(x.start, y.end, x.end - x.start, height)}/>']
    for ends in panel.shaded:
        a, b = np.clip(x(ends), x.start, x.end)
        parts.append(f'<rect class="shade" {_place(a, y.end, b - a, height)}/>')
    named = panel.ticks or x.ticks()
    room = max(4, int((x.end - x.start) / max(1, len(named)) / LETTER)) if panel.ticks else 20
    for value, text in named.items():
        if x.start - 0.1 <= x(value) <= x.end + 0.1:
            lines += f"M{_n(x(value))} {_n(y.end)}V{_n(y.start + 4)}"
            parts.append(_text(cut(text, room), float(x(value)), y.start + 17, "middle"))
    for value, text in y_ticks.items():
        if y.end - 0.1 <= y(value) <= y.start + 0.1:
            lines += f"M{_n(x.start - 4)} {_n(y(value))}H{_n(x.end)}"
            parts.append(_text(text, x.start - 7, float(y(value)) + 4, "end"))
    parts.append(f'<path class="grid" d="{lines}"/>')
    parts += [_text(panel.x, middle, y.start + 38, "middle"), _upwards(panel.y, 14.0, 0.5 * (y.start + y.end))]
    return "".join(parts)


def _colour_bar(scale: Scale, x: float, end: float, top: float, bottom: float) -> str:
    along, step = Axis(scale.low, scale.high, False, bottom, top), (bottom - top) / SHADES
    parts = [
        f'<rect {_place(x, bottom - (k + 1) * step, 11, step + 0.6)} fill="{shade}"/>'
        for k, shade in enumerate(scale.shades(np.linspace(scale.low, scale.high, SHADES)))
    ]
    parts += [_text(text, x + 15, float(along(value)) + 4) for value, text in scale.ticks.items()]
    return "".join(parts) + _upwards(scale.label.replace("\n", " "), end, 0.5 * (top + bottom))


def legend(panels: Sequence[Panel], width: float) -> list[str]:
    """The names of marks, once each, with samples, in rows of this width."""
    samples: dict[str, str] = {}
    for mark in (mark for panel in panels for mark in panel.marks if mark.name):
        fill = f'fill="{_paint(mark.colour)}"'
        if isinstance(mark, Boxes):
            samples.setdefault(mark.name, f'<rect {_place(5, -10, 11, 11)} {fill} opacity="{mark.opacity:g}"/>')
        elif mark.listed:
            stroke = f'{fill.replace("fill", "stroke")} stroke-width="{mark.width:g}"{DASHES[mark.dash]}'
            point = f'<path d="M10 -4{_shape(mark.symbol, 0.72 * min(mark.size, 9.0))}" {fill}/>'
            line = f'<path class="line" d="M0 -4H20" {stroke}/>' * mark.joined
            samples.setdefault(mark.name, line + point * bool(mark.symbol))
    rows, at = [""], 0.0
    for name, sample in samples.items():
        long = 40.0 + LETTER * len(cut(name, 44))
        if at and at + long > width:
            rows, at = [*rows, ""], 0.0
        rows[-1] += f'<g transform="translate({_n(at)} 0)">{sample}{_text(cut(name, 44), 26, 0)}</g>'
        at += long
    return rows if samples else []


# --- marks ---------------------------------------------------------------------------------------------------------


def _mark(mark: Mark, x: Axis, y: Axis, hover: bool) -> str:
    texts = [f"<title>{escape(text)}</title>" for text in mark.hover or ()] if hover else []
    colour = _paint(mark.colour)
    looks = [] if isinstance(mark.colour, str) else [f' fill="{shade}"' for shade in mark.colour]
    if isinstance(mark, Boxes):
        made, ends = "", np.reshape(mark.ends, (-1, 4))
        corners = np.stack([x(ends[:, 0]), y(ends[:, 1]), x(ends[:, 2]), y(ends[:, 3])], axis=1)
        for k, (a, b, c, d) in enumerate(corners.tolist()):
            if math.isfinite(a + b + c + d):
                place = _place(min(a, c), min(b, d), abs(c - a), abs(d - b))
                made += f"<rect {place}{looks[k] if looks else ''}>{texts[k] if texts else ''}</rect>"
        return f'<g class="{"cells" if looks else "bars"}" fill="{colour}" opacity="{mark.opacity:g}">{made}</g>'
    px, py, made = x(mark.x), y(mark.y), ""
    if mark.dash == "filled":
        return f'<path d="{_way(px, py)}" fill="{colour}" fill-opacity="{mark.opacity:g}"/>'
    if mark.joined:
        look = f'stroke="{colour}" stroke-width="{mark.width:g}"{DASHES[mark.dash]}'
        made += f'<path class="line" d="{_way(px, py, mark.steps)}" {look}/>'
    if mark.bars is not None:
        low, high = (np.nan_to_num(y(end), nan=y.start) for end in mark.bars)
        bars = [f"M{_n(a)} {_n(b)}V{_n(c)}" for a, b, c in zip(px, low, high, strict=True) if math.isfinite(a)]
        made += f'<path class="line" d="{"".join(bars)}" stroke="{colour}" stroke-width="1.2"/>'
    if mark.symbol or texts:
        shape = _shape(mark.symbol, 0.72 * mark.size if mark.symbol else 5.0)
        look = f'fill="{colour if mark.symbol else "transparent"}"'
        look += ' stroke="#fff"' if mark.symbol == "*" else f' stroke="{GREY}" stroke-width="0.6"' if looks else ""
        points = ""
        for k, (a, b) in enumerate(zip(px, py, strict=True)):
            if math.isfinite(a + b):
                way = f'd="M{_n(a)} {_n(b)}{shape}"{looks[k] if looks else ""}'
                points += f"<path {way}>{texts[k] if texts else ''}</path>"
        made += f"<g {look}>{points}</g>"
    return made if mark.opacity == 1.0 else f'<g opacity="{mark.opacity:g}">{made}</g>'


def _way(px: Sequence[float] | Array, py: Sequence[float] | Array, steps: str = "") -> str:
    """A path through points, broken where one is absent."""
    made, before = "", math.nan
    for a, b in zip(px, py, strict=True):
        if not math.isfinite(a + b):
            before = math.nan
            continue
        turn = {"": "L", "post": f"H{_n(a)}L", "mid": f"H{_n(0.5 * (before + a))}V{_n(b)}L"}[steps]
        made += f"{'M' if math.isnan(before) else turn}{_n(a)} {_n(b)}"
        before = a
    return made


def _shape(symbol: str, size: float) -> str:
    """A closed path relative to its middle."""
    if symbol not in SHAPES:
        arc = f"a{_n(size)} {_n(size)} 0 1 0"
        return f"m{_n(-size)} 0{arc} {_n(2 * size)} 0{arc} {_n(-2 * size)} 0z"
    corners: list[tuple[float, float]] = SHAPES[symbol]
    moves = np.diff(size * np.array([(0.0, 0.0), *corners]), axis=0)
    return f"m{'l'.join(f'{_n(a)} {_n(b)}' for a, b in moves)}z"


# --- words, colours, numbers ---------------------------------------------------------------------------------------


def _text(text: str, x: float, y: float, anchor: str = "start") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""


def _upwards(text: str, x: float, y: float) -> str:
    return f'<g transform="translate({_n(x)} {_n(y)}) rotate(-90)">{_text(text, 0, 0, "middle")}</g>'


def _paint(colour: str | Sequence[str]) -> str:
    return PAINTS.get(colour, colour) if isinstance(colour, str) else "none"


def _place(x: float, y: float, width: float, height: float) -> str:
    return f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'


def _n(value: Any) -> str:
    """Pixels, to a tenth."""
    return f"{float(value):.1f}".removesuffix(".0")
