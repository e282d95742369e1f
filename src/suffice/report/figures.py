"""Every figure of a search and of its model, as data (`report.chart`); a `Trace` is what those of a run show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.arrays import Array
from suffice.globally.certificate import Landscape
from suffice.report.chart import BLUE, GREEN, GREY, INK, LINES, ORANGE, PALE, SKY, Boxes, Line, Mark, Panel, Scale, cut

if TYPE_CHECKING:
    from suffice.result import Result

MOST_BARS = 40
HIGHEST = 2.0  # times the best known F: what is drawn of a band at most
SHADES = ("#dbe9f6", "#bad6eb", "#89bedc", "#539ecd", "#2b7bba", "#0b559f")  # of ranks, the last for the least F
DARK_IS_GOOD = ((0.0, "#2171b5"), (0.35, "#6baed6"), (0.7, "#c6dbef"), (1.0, "#f7fbff"))
DARK_IS_BAD = ((0.0, "#f7fbff"), (0.3, "#c6dbef"), (0.65, "#6baed6"), (1.0, "#2171b5"))

# --- a run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """The evaluations of a run, in the order in which they were made; parameters are in the user's units."""

    names: tuple[str, ...]
    logarithmic: tuple[bool, ...]
    points: Array  # evaluations x parameters
    cost: Array
    low: Array
    high: Array
    asked: Array  # infinite where anything would have done
    achieved: Array
    work: Array
    paths: tuple[Array, ...]  # incumbents, one path per start
    best: Array
    label: str = "F"
    accuracy: str = "error of the loss's root"

    @property
    def numbers(self) -> Array:
        return np.arange(1.0, len(self.cost) + 1.0)

    def places(self, points: Array, k: int) -> Array:
        """Where parameter k of points is drawn: on a logarithmic axis none of it is a decade below the least."""
        seen, values = self.points[:, k], points[:, k]
        if not self.logarithmic[k] or (seen > 0.0).all():
            return values
        return np.where(values > 0.0, values, 0.1 * np.min(seen, where=seen > 0.0, initial=math.inf))

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Trace:
        """One that was written down by `asdict`, with None for what is not finite."""
        lists = ("points", "cost", "low", "high", "asked", "achieved", "work", "best")
        made: dict[str, Any] = {name: np.array(plain[name], dtype=np.float64) for name in lists}
        for name, absent in (("low", -math.inf), ("high", math.inf), ("asked", math.inf)):
            made[name] = np.where(np.isnan(made[name]), absent, made[name])
        return cls(**plain | made | {"paths": tuple(np.array(way, dtype=np.float64) for way in plain["paths"])})


def trace(result: Result) -> Trace:
    """What figures show of a result; a run from many starts shows the evaluations of all of them."""
    runs = result.starts or (result,)
    records = [record for run in runs for record in run.history if math.isfinite(record.cost)]
    if not records:
        raise ValueError(f"there is nothing to draw, no evaluation was made: {result.message}")
    space = result.space

    def params(thetas: Any) -> Array:
        if space is None or not len(thetas[0]):  # of too many parameters records have none
            return np.array(thetas, dtype=np.float64)
        return np.array([list(space.params(np.array(theta)).values()) for theta in thetas])

    names = tuple(f"theta[{k}]" for k in range(len(result.theta))) if space is None else tuple(space.names)
    weights = result.policy == "weights"
    achieved = [(record.distance if weights else record.error) or 0.0 for record in records]
    return Trace(
        names,
        tuple(space is not None and space.logarithmic(name) for name in names),
        params([record.theta for record in records]),
        np.array([record.cost for record in records]),
        np.array([record.interval[0] for record in records]),
        np.array([record.interval[1] for record in records]),
        np.array([record.within for record in records]),
        np.array(achieved),
        np.array([record.work for record in records], dtype=np.float64),
        tuple(changes(params([record.incumbent for record in run.history])) for run in runs if run.history),
        params([result.theta])[0],
        accuracy="distance of the weights" if weights else "error of the loss's root",
    )


def changes(points: Array) -> Array:
    """Consecutive points that differ."""
    keep = [k for k in range(len(points)) if k == 0 or not np.array_equal(points[k], points[k - 1])]
    return points[keep]


def path(shown: Trace, parameters: str | Sequence[str] | None = None) -> Panel:
    """F over one parameter with proven error bars, the way through all evaluations for two, parallel axes for more."""
    if not shown.points.size:
        raise ValueError(f"records of a search over {len(shown.names)} parameters have no theta, and no path is drawn")
    names = [parameters] if isinstance(parameters, str) else list(shown.names if parameters is None else parameters)
    if not names or len({*names} & {*shown.names}) < len(names):
        raise ValueError(f"parameters must be different ones out of {', '.join(shown.names)}, got {parameters!r}")
    chosen = [shown.names.index(name) for name in names]
    return {1: _line, 2: _plane}.get(len(chosen), _parallel)(shown, chosen)


def _line(shown: Trace, chosen: list[int]) -> Panel:
    (k,) = chosen
    x, at = shown.places(shown.points, k), int(np.argmin(shown.high))
    marks = [_evaluations(shown, x), _best(x[at], shown.cost[at])]
    log_x, name = shown.logarithmic[k], cut(shown.names[k])
    return Panel("", name, shown.label, marks, log_x, _spread(shown.cost), x_ends=_padded(x, log_x))


def _plane(shown: Trace, chosen: list[int]) -> Panel:
    log_x, log_y = (shown.logarithmic[k] for k in chosen)
    x, y = (shown.places(shown.points, k) for k in chosen)
    excess = shown.cost - shown.cost.min()
    eps = 0.01 * float(np.median(excess)) or 0.01 * float(excess.max()) or 1.0
    shades = np.log10(excess + eps)
    ends = float(shades.min()), float(shades.max())
    ends = ends if ends[0] < ends[1] else (ends[0], ends[0] + 1.0)
    ticks = {float(tick): f"{float(f'{10.0**tick:.2g}'):,g}" for tick in np.linspace(*ends, 5)}
    scale = Scale(f"excess of {shown.label} over the best", *ends, DARK_IS_GOOD, ticks)
    marks = [Line("", scale.shades(shades), x, y, _hover_texts(shown), "o", joined=False, size=6.2)]
    for k, way in enumerate(shown.paths):
        x_way, y_way = (shown.places(way, one) for one in chosen)
        marks.append(Line("best so far", ORANGE, x_way, y_way, symbol="o", size=3.2, listed=k == 0))
    marks.append(_best(*(shown.places(shown.best[None], k)[0] for k in chosen)))
    ends_x, ends_y = _padded(x, log_x), _padded(y, log_y)
    first, second = (cut(shown.names[k]) for k in chosen)
    return Panel("", first, second, marks, log_x, log_y, scale=scale, x_ends=ends_x, y_ends=ends_y, height=520)


def _parallel(shown: Trace, chosen: list[int]) -> Panel:
    """One line per evaluation on parallel axes of [0, 1], in shades by rank, the best one last."""
    drawn = [(shown.places(shown.points, k), shown.logarithmic[k]) for k in chosen]
    u = np.stack([np.log10(values) if log else values for values, log in drawn], axis=1)
    low, span = u.min(axis=0), np.ptp(u, axis=0)
    u = np.where(span > 0.0, (u - low) / np.where(span > 0.0, span, 1.0), 0.5)
    order, places, texts = np.argsort(-shown.high, kind="stable"), np.arange(len(chosen)), _hover_texts(shown)
    marks = []
    for shade, part in zip(SHADES, np.array_split(order, len(SHADES)), strict=True):
        x = np.tile(np.append(places, math.nan), len(part))
        y = np.hstack([u[part], np.full((len(part), 1), math.nan)]).ravel()
        hover = [text for k in part for text in [texts[k]] * (len(chosen) + 1)]
        marks.append(Line(f"less {shown.label}", shade, x, y, hover, listed=shade == SHADES[-1], width=0.9))
    marks.append(Line("best", ORANGE, places, u[order[-1]], symbol="o", width=2.4))
    step = max(1, math.ceil(len(chosen) / 16))
    ticks = {float(k): cut(shown.names[chosen[k]]) for k in places[::step]}
    return Panel("", "", "from the least to the largest value tried", marks, ticks=ticks, height=460)


def progress(shown: Trace) -> Panel:
    """F of every evaluation with its proven interval, and the least upper bound so far."""
    reached = np.minimum.accumulate(shown.high)
    marks = [
        _evaluations(shown, shown.numbers),
        Line("proven to be reached", ORANGE, shown.numbers, reached, steps="post", width=1.8),
    ]
    log = _spread(shown.cost)  # intervals may reach far beyond what was seen, from the first one on
    return Panel("", "evaluation", shown.label, marks, log_y=log, y_ends=_padded(shown.cost, log, 0.08))


def accuracy(shown: Trace) -> Panel:
    """The accuracy asked for and the one proven, per evaluation."""
    asked, achieved = _positive(shown.asked), _positive(shown.achieved)
    proven = "proven" if np.isfinite(achieved).any() else "proven: no error"
    marks = [
        Line("asked for", GREY, shown.numbers, asked, steps="mid"),
        Line(proven, ORANGE, shown.numbers, achieved, _hover_texts(shown), "o", joined=False),
    ]
    log = bool(np.isfinite(asked).any() or np.isfinite(achieved).any())
    return Panel("", "evaluation", shown.accuracy, marks, log_y=log)


def work(shown: Trace) -> Panel:
    """The work of every evaluation, and of all so far."""
    total, numbers = np.cumsum(shown.work), shown.numbers
    ends = (0.5 * float(np.nanmin(_positive(shown.work))), 1.6 * float(total[-1])) if total[-1] > 0.0 else None
    base = np.full_like(total, ends[0] if ends else 0.0)
    bars = np.stack([numbers - 0.425, base, numbers + 0.425, np.maximum(shown.work, base)], axis=1)
    marks: list[Mark] = [
        Boxes("this evaluation", SKY, bars, _hover_texts(shown)),
        Line("all so far", BLUE, numbers, _positive(total), steps="mid"),
    ]
    return Panel("", "evaluation", "work", marks, log_y=ends is not None, y_ends=ends)


def _evaluations(shown: Trace, x: Array) -> Line:
    name = "evaluation, with its proven interval"
    return Line(name, BLUE, x, shown.cost, _hover_texts(shown), "o", joined=False, bars=(shown.low, shown.high))


def _best(x: float, y: float) -> Line:
    return Line("best", ORANGE, [x], [y], symbol="*", joined=False, size=13.0)


def _hover_texts(shown: Trace) -> list[str]:
    """What there is to say of every evaluation."""
    texts = []
    for k in range(len(shown.cost)):
        point = ", ".join(f"{name} {value:.4g}" for name, value in zip(shown.names, shown.points[k], strict=False))
        texts.append(
            f"evaluation {k + 1}: {point}\n{shown.label} {shown.cost[k]:.6g}"
            f"\nproven in [{shown.low[k]:.6g}, {shown.high[k]:.6g}]\nwork {shown.work[k]:.6g}"
        )
    return texts


# --- a global certificate ------------------------------------------------------------------------------------------


def landscape(found: Landscape) -> Panel:
    """The band in which F is proven to lie over one parameter, or which cells of two are proven to be worse."""
    return _band(found) if len(found.names) == 1 else _cells(found)


def _band(found: Landscape) -> Panel:
    (x, low, high), top, (name,) = found.line.T, HIGHEST * found.upper, found.names
    texts = [f"{name} {a:.4g}\nF is proven to lie in\n[{b:.6g}, {c:.6g}]" for a, b, c in found.line.tolist()]
    worse = [(x[k], x[k + 1]) for k in np.flatnonzero((low[:-1] > found.upper) & (low[1:] > found.upper))]
    joined: list[tuple[float, float]] = []
    for start, end in worse:
        joined[-1:] = [(joined[-1][0], end)] if joined and joined[-1][1] == start else [*joined[-1:], (start, end)]
    low, high = np.minimum(low, top), np.minimum(high, top)
    marks: list[Mark] = [
        Line("", BLUE, [*x, *x[::-1]], [*low, *high[::-1]], dash="filled", opacity=0.22),
        Line("F is proven to lie in the band", BLUE, x, low, texts, width=1.2),
        Line("best known F", ORANGE, x[[0, -1]], [found.upper] * 2, width=1.2),
        Line("proven to be worse", PALE, [math.nan], [math.nan], width=5.0),
        _best(found.best[0], found.upper),
    ]
    title = f"no {name} is better by more than {found.gap_in_percent} %"
    ends = (max(0.0, 0.97 * found.lower), 1.02 * top)
    return Panel(title, name, "F", marks, log_x=True, shaded=tuple(joined), y_ends=ends)


def _cells(found: Landscape) -> Panel:
    excess, is_open = found.excess, found.excess <= 0.0
    shades = np.log10(np.maximum(excess, 0.1))
    most = max(2.0, math.ceil(float(shades.max())))
    ticks = {float(tick): f"{10.0**tick:g}" for tick in range(-1, int(most) + 1)}
    scale = Scale("proven to be worse\nby at least, %", -1.0, most, DARK_IS_BAD, ticks)
    name = f"not ruled out: at most {found.gap_in_percent} % better"
    texts = np.array([f"worse by {number:.3g} % at least" for number in excess])
    marks: list[Mark] = [Boxes("", scale.shades(shades[~is_open]), found.cells[~is_open, :4], texts[~is_open].tolist())]
    if is_open.any():
        ends = found.cells[is_open, :4]
        marks.append(Boxes(name, ORANGE, ends, ["not ruled out"] * len(ends), opacity=0.4))
    (x, y), (first, second), best = found.ends, found.names, _best(*found.best)
    return Panel("", first, second, [*marks, best], True, True, scale=scale, x_ends=x, y_ends=y, height=520)


# --- a linear model, from the plain data of a search -----------------------------------------------------------------


def regularisation_path(found: dict[str, Any]) -> Panel:
    """Coefficients against the multiple of the best penalties; the largest in colour."""
    x, marks = found["multiples"], []
    for k, line in enumerate(sorted(found["lines"], key=lambda line: -max(map(abs, line["values"])))):
        name = f"{cut(line['name'])} ({cut(line['output'])})" if line["output"] else cut(line["name"])
        texts = [f"{name}\n{a:.3g} times the best penalties: {b:.4g}" for a, b in zip(x, line["values"], strict=True)]
        named = k < len(LINES)
        look = (LINES[k], True, 1.6) if named else (PALE, False, 0.8)
        marks.append(Line(name, look[0], x, line["values"], texts, listed=look[1], width=look[2]))
    marks = [*marks[len(LINES) :], *marks[: len(LINES)]]  # the grey ones below
    values = np.array([line["values"] for line in found["lines"]], dtype=np.float64)
    ends = [float(values.min(initial=0.0)), float(values.max(initial=0.0))]
    marks.append(Line("best", INK, [1.0, 1.0], ends, dash="dotted", width=1.2))
    words = "multiple of the best penalties", "coefficient"
    return Panel("", *words, marks, log_x=True, legend="outside", height=540)


def calibration(found: dict[str, Any]) -> Panel:
    """The share of rows of a class by probability or decision value, predictions against the truth, or survival."""
    if found["kind"] == "survival":
        return _at_the_horizon(found)
    if found["kind"] == "regression":
        true, predicted = found["true"], found["predicted"]
        texts = [f"true {a:.4g}\npredicted {b:.4g}" for a, b in zip(true, predicted, strict=True)]
        look: Any = {"symbol": "o", "joined": False, "size": 3.2, "opacity": 0.5}
        ends = min(*true, *predicted), max(*true, *predicted)
        rows = Line("row not seen in training", BLUE, true, predicted, texts, **look)
        return Panel("", "true", "predicted", [_diagonal(ends), rows], height=480)
    marks = []
    for k, curve in enumerate(found["curves"]):
        p, share = curve["predicted"], curve["observed"]
        texts = [f"{count} rows\npredicted {a:.3f}\nobserved {b:.3f}"
                 for count, a, b in zip(curve["count"], p, share, strict=True)]  # fmt: skip
        bars = (np.array(curve["low"]), np.array(curve["high"])) if len(found["curves"]) <= 3 else None
        name = f"class {cut(curve['label'])}"
        marks.append(Line(name, LINES[k % len(LINES)], np.array(p), np.array(share), texts, "o", bars=bars))
    words, unit = ("predicted probability", "share of rows of the class"), (-0.02, 1.02)
    if found["kind"] == "margins":
        line = Line("decision", INK, [0.0, 0.0], [0.0, 1.0], dash="dotted", width=1.2)
        return Panel("", "decision function", words[1], [line, *marks], y_ends=unit, height=480)
    return Panel("", *words, [_diagonal((0.0, 1.0)), *marks], x_ends=unit, y_ends=unit, height=480)


def _at_the_horizon(found: dict[str, Any]) -> Panel:
    """Predicted survival of groups of rows against Kaplan and Meier's, at one time."""
    predicted, observed, low, high = (
        np.array([one[name] for one in found["bins"]], dtype=np.float64)
        for name in ("predicted", "observed", "low", "high")
    )
    texts = [f"{one['rows']} rows, {one['events']} events" for one in found["bins"]]
    bars = (low, high) if np.isfinite(low).all() else None
    rows = Line("rows not seen in training", BLUE, predicted, observed, texts, "o", size=6.0, bars=bars)
    ends = _shares(predicted, observed, low)
    words, marks = f"predicted survival at {found['horizon']:.4g}", [_diagonal(ends), rows]
    return Panel("", words, "observed (Kaplan-Meier)", marks, x_ends=ends, y_ends=ends, height=480)


def _shares(*parts: Array) -> tuple[float, float]:
    """The part of [0, 1], in tenths, that goes from the least of these numbers to 1."""
    least = float(np.nanmin(np.concatenate(parts)))
    return max(0.0, math.floor(10.0 * least - 0.5) / 10.0) - 0.01, 1.01


def kaplan_meier(found: dict[str, Any]) -> Panel:
    """What became of rows by predicted risk, and dashed what was predicted."""
    curves = [
        np.array([group[name] for group in found["groups"]], dtype=np.float64) for name in ("observed", "predicted")
    ]
    marks = []
    for k, (group, colour) in enumerate(zip(found["groups"], (BLUE, GREEN, ORANGE), strict=True)):
        name = f"{group['name']} ({group['events']:,} events in {group['rows']:,} rows)"
        marks.append(Line(name, colour, found["times"], curves[0][k], steps="post", width=2.0))
        marks.append(Line("mean prediction", colour, found["times"], curves[1][k], dash="dashed", listed=k == 2))
    ends = _shares(*(curve.ravel() for curve in curves))
    marks.append(Line("horizon", GREY, [found["horizon"]] * 2, ends, dash="dotted", width=1.2))
    return Panel("", "time", "share without an event", marks, y_ends=ends, height=440)


def _diagonal(ends: tuple[float, float]) -> Line:
    return Line("perfect", GREY, ends, ends, dash="dotted")


def coefficients(found: dict[str, Any], most: int = MOST_BARS) -> Panel:
    """The largest coefficients of the final model as bars, the largest on top."""
    names, outputs = [cut(name) for name in found["names"][:most]], found["outputs"]
    places, thickness = np.arange(len(names))[::-1], 0.8 / len(outputs)
    marks: list[Mark] = []
    for k, (label, values) in enumerate(zip(outputs, found["values"], strict=True)):
        of = f"\n{label}" if label else ""
        texts = [f"{name}: {value:.5g}{of}" for name, value in zip(names, values, strict=False)]
        high, at = places + 0.4 - k * thickness, np.array(values[:most])
        bars = np.stack([np.zeros(len(at)), high - thickness, at, high], axis=1)
        marks.append(Boxes(cut(label), LINES[k % len(LINES)], bars, texts))
    height = 120 + max(1, len(names)) * (19 if len(outputs) == 1 else 12 + 9 * len(outputs))
    ticks = dict(zip(places.astype(float).tolist(), names, strict=True))
    ends = (-0.6, len(names) - 0.4)
    marks.append(Line("", INK, [0.0, 0.0], ends, dash="dotted", width=1.2))
    legend: Any = "inside" if len(outputs) > 1 else ""
    return Panel("", "coefficient", "", marks, y_ticks=ticks, y_ends=ends, legend=legend, height=height)


def influence(found: dict[str, Any], most: int = MOST_BARS) -> Panel:
    """Coefficients per standard deviation, and between which they lie without any one row, the largest on top."""
    coef, low, high = (np.asarray(found[name], dtype=np.float64) for name in ("coef", "low", "high"))
    order = np.argsort(-np.maximum(np.abs(low), np.abs(high)), kind="stable")[:most]
    order = order[np.isfinite(low[order]) & np.isfinite(high[order]) & ((low[order] != 0.0) | (high[order] != 0.0))]
    places = np.arange(len(order), dtype=np.float64)[::-1]
    names = [cut(found["names"][j]) for j in order]
    kept = (low[order] > 0.0) | (high[order] < 0.0)
    texts = [f"{found['names'][j]}: {coef[j]:.4g}\nwithout one row {low[j]:.4g} to {high[j]:.4g}" for j in order]
    boxes = np.stack([low[order], places - 0.3, high[order], places + 0.3], axis=1)
    marks: list[Mark] = [
        Boxes(name, colour, boxes[these], [text for text, one in zip(texts, these, strict=True) if one], 0.55)
        for name, colour, these in (("one sign", BLUE, kept), ("changes sign, or vanishes", ORANGE, ~kept))
        if these.any()
    ]
    marks.append(Line("all rows", INK, coef[order], places, texts, "o", joined=False, size=4.0))
    ends = (-0.6, len(order) - 0.4)
    marks.append(Line("", INK, [0.0, 0.0], ends, dash="dotted", width=1.2))
    ticks = dict(zip(places.tolist(), names, strict=True))
    words = "coefficient per s. d."
    return Panel("", words, "", marks, y_ticks=ticks, y_ends=ends, legend="outside", height=130 + 21 * len(order))


def coverage(found: dict[str, Any]) -> Panel:
    """How many rows lie in their intervals or sets, by prediction."""
    p, share = np.array(found["predicted"]), np.array(found["covered"])
    texts = [f"{n} rows\n{100.0 * one:.1f} % in them" for n, one in zip(found["count"], share, strict=True)]
    bars = np.array(found["low"]), np.array(found["high"])
    line = Line("", BLUE, p, share, texts, "o", bars=bars)
    least = min(0.6, float(bars[0].min()) - 0.02)
    return Panel("", found["of"], f"share of rows in {found['what']}", [line], level=found["coverage"],
                 y_ends=(least, 1.02), legend="", height=320)  # fmt: skip


def widths(found: dict[str, Any]) -> Panel:
    """How wide intervals are, or how many classes sets have, by prediction."""
    p, wide = np.array(found["predicted"]), np.array(found["wide"])
    words = "classes in a set" if found["what"] == "sets" else "width of intervals"
    marks = [Line("", ORANGE, p, wide, [f"{one:.4g}" for one in wide], "o")]
    return Panel("", found["of"], words, marks, y_ends=(0.0, 1.15 * float(wide.max())), legend="", height=320)


# --- ranges, scales, names -----------------------------------------------------------------------------------------


def _spread(values: Array) -> bool:
    """Whether values call for a logarithmic axis."""
    low = float(values.min())
    return low > 0.0 and float(values.max()) > 30.0 * low


def _positive(values: Array) -> Array:
    return np.where(np.isfinite(values) & (values > 0.0), values, math.nan)


def _padded(values: Array, logarithmic: bool, share: float = 0.05) -> tuple[float, float]:
    """The range of values with a margin."""
    u = np.log10(values) if logarithmic else values
    low, high = float(u.min()), float(u.max())
    pad = share * (high - low) or (0.5 if logarithmic else 0.05 * abs(high) or 0.5)
    return (10.0 ** (low - pad), 10.0 ** (high + pad)) if logarithmic else (low - pad, high + pad)
