"""Whether plain data are what `suffice.sklearn.report.collect` makes: shapes first, then what numbers have to satisfy.

A shape is `str`, `bool`, `int` (non-negative), `float` (finite), `[shape]`, `{str: shape}`, `{"key": shape, ...}`, or a
tuple of alternatives in which None stands for an absent value.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from suffice.sklearn import _report_global

MOST = 100_000  # entries of a list
LONGEST = 2_000  # characters of a text
LARGEST = 1e301  # of any number: figures take differences and logarithms

EVALUATION = {
    "number": int,
    "purpose": str,
    "point": [float],
    "cost": float,
    "interval": [(float, None)],  # None: not bounded
    "asked": (float, None),
    "achieved": (float, None),
    "work": float,
}
SCORES = {"scoring": str, "tuned": [float], "default": [float]}
SHAPE = {
    "format": str,
    "about": {str: object},
    "versions": {str: str},
    "estimator": str,
    "steps": [str],
    "samples": int,
    "features": int,
    "folds": int,
    "scoring": str,
    "asked_scoring": (str, None),
    "policy": str,
    "best": {
        "params": {str: float},
        "penalties": {str: float},
        "l2_floor": float,
        "score": float,
        "interval": [float],
        "message": str,
        "refit": (bool, str),
    },
    "names": [str],
    "evaluations": [EVALUATION],
    "evaluation": int,
    "path": [[float]],
    "comparison": {"params": {str: float}, "converged": bool, "scores": [SCORES], "same_folds": bool},
    "regularisation": {
        "multiples": [float],
        "penalties": {str: float},
        "lines": [{"name": str, "output": str, "values": [float]}],
        "nonzero": [int],
        "coefficients": int,
        "accuracy": (float, None),
    },
    "calibration": {"kind": str, "accuracy": (float, None)},
    "coefficients": {
        "source": str,
        "names": [str],
        "outputs": [str],
        "values": [[float]],
        "intercepts": [float],
        "features": int,
        "nonzero": int,
    },
}
MEASURES = {
    "rows": int,
    "tuned": {str: float},
    "baseline": {str: float},
    "default": {str: float},
    "gain": (float, None),
    "better_than_baseline": bool,
    "folds": {"measure": str, "tuned": [float], "default": [float]},
}
CONFUSION = {"classes": [str], "counts": [[int]]}
CURVE = {"label": str, "predicted": [float], "observed": [float], "low": [float], "high": [float], "count": [int]}
CALIBRATIONS = {
    "reliability": {"curves": [CURVE], "samples": int, "classes": int},
    "margins": {"edges": [float], "counts": [[int]], "labels": [str]},
    "regression": {"true": [float], "predicted": [float], "samples": int},
}


def check(data: Any, *formats: str) -> None:
    """Raise ValueError, with the place, unless `data` are a search of one of these formats, the latest first."""
    _shape(data, {"format": str}, "data")
    _require(data["format"] in formats, "format", f"{formats[0]!r}", data["format"])
    _shape(data, SHAPE, "data")
    names, made, best = data["names"], data["evaluations"], data["best"]
    _require(0 < len(names) == len(set(names)), "names", "one or more different names", names)
    _require(bool(made), "evaluations", "at least one evaluation", made)
    for k, one in enumerate(made):
        where = f"evaluations[{k}]"
        _point(one["point"], len(names), f"{where}.point")
        _interval(one["interval"], one["cost"], f"{where}.interval")
        for key in ("asked", "achieved", "work"):
            _require(one[key] is None or one[key] >= 0.0, f"{where}.{key}", "non-negative", one[key])
    for k, point in enumerate(data["path"]):
        _point(point, len(names), f"path[{k}]")
    _interval(best["interval"], None, "best.interval")
    _require(1 <= data["evaluation"] <= len(made), "evaluation", f"between 1 and {len(made)}", data["evaluation"])
    rows = data["comparison"]["scores"]
    _require(bool(rows) and data["folds"] > 0, "comparison.scores", "at least one score of at least one fold", rows)
    for k, row in enumerate(rows):
        _length(row["tuned"], data["folds"], f"comparison.scores[{k}].tuned")
        if row["default"]:  # or they were left out
            _length(row["default"], data["folds"], f"comparison.scores[{k}].default")
    if "measures" in data:  # not in reports of older versions
        _measures(data["measures"])
    if "global" in data:  # where it was asked for
        _shape(data["global"], _report_global.SHAPE, "global")
        wrong = _report_global.problem_of(data["global"])
        _require(wrong is None, "global", str(wrong), data["global"])
    _regularisation(data["regularisation"])
    _calibration(data["calibration"])
    _coefficients(data["coefficients"])


def _regularisation(path: Any) -> None:
    multiples = path["multiples"]
    right = bool(multiples) and all(multiple > 0.0 for multiple in multiples)
    _require(right, "regularisation.multiples", "positive", multiples)
    for k, line in enumerate(path["lines"]):
        _length(line["values"], len(multiples), f"regularisation.lines[{k}].values")
    _length(path["nonzero"], len(multiples), "regularisation.nonzero")


def _measures(found: Any) -> None:
    _shape(found, MEASURES, "measures")
    known = found.get("confusion")
    if known is not None:
        _shape(known, CONFUSION, "measures.confusion")
        for part in (known["counts"], *known["counts"]):
            _length(part, len(known["classes"]), "measures.confusion.counts")


def _calibration(found: Any) -> None:
    kind = found["kind"]
    _require(kind in CALIBRATIONS, "calibration.kind", f"one of {', '.join(CALIBRATIONS)}", kind)
    _shape(found, CALIBRATIONS[kind], "calibration")
    if kind == "reliability":
        for k, curve in enumerate(found["curves"]):
            for key in ("observed", "low", "high", "count"):
                _length(curve[key], len(curve["predicted"]), f"calibration.curves[{k}].{key}")
    elif kind == "margins":
        edges = found["edges"]
        _require(all(a < b for a, b in pairwise(edges)), "calibration.edges", "increasing", edges)
        _length(found["counts"], len(found["labels"]), "calibration.counts")
        for k, counts in enumerate(found["counts"]):
            _length(counts, len(edges) - 1, f"calibration.counts[{k}]")
    else:
        _require(bool(found["true"]), "calibration.true", "at least one value", found["true"])
        _length(found["predicted"], len(found["true"]), "calibration.predicted")


def _coefficients(found: Any) -> None:
    _require(bool(found["outputs"]), "coefficients.outputs", "at least one", found["outputs"])
    for key in ("values", "intercepts"):
        _length(found[key], len(found["outputs"]), f"coefficients.{key}")
    for k, row in enumerate(found["values"]):
        _length(row, len(found["names"]), f"coefficients.values[{k}]")


def _shape(value: Any, shape: Any, where: str) -> None:
    if isinstance(shape, tuple):
        if not any(_fits(value, each) for each in shape):
            raise ValueError(f"{where} must be {' or '.join(NAMES[each] for each in shape)}, got {_short(value)}")
    elif isinstance(shape, list):
        if not isinstance(value, list) or len(value) > MOST:
            raise ValueError(f"{where} must be a list of at most {MOST} entries, got {_short(value)}")
        for k, entry in enumerate(value):
            _shape(entry, shape[0], f"{where}[{k}]")
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a dictionary, got {_short(value)}")
        each = shape.get(str)
        if each is not None:
            for key, entry in value.items():
                _shape(key, str, f"a key of {where}")
                _shape(entry, each, f"{where}[{key[:60]!r}]")
            return
        for key, inner in shape.items():
            if key not in value:
                raise ValueError(f"{where} lacks {key!r}")
            _shape(value[key], inner, f"{where}.{key}")
    elif not _fits(value, shape):
        raise ValueError(f"{where} must be {NAMES[shape]}, got {_short(value)}")


def _fits(value: Any, shape: Any) -> bool:
    if shape is None:
        return value is None
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    if shape is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    if shape is str:
        return isinstance(value, str) and len(value) <= LONGEST and not any("\ud800" <= c <= "\udfff" for c in value)
    if shape is object:
        return _is_plain(value, 4)
    return isinstance(value, shape)


def _is_plain(value: Any, depth: int) -> bool:
    """Text, numbers, and lists and dictionaries of them."""
    if isinstance(value, list) and depth:
        return len(value) <= MOST and all(_is_plain(entry, depth - 1) for entry in value)
    if isinstance(value, dict) and depth:
        return all(_fits(key, str) and _is_plain(entry, depth - 1) for key, entry in value.items())
    return any(_fits(value, shape) for shape in (None, bool, float, str))


NAMES = {
    float: "a finite number",
    int: "a non-negative integer",
    str: "a text",
    bool: "True or False",
    object: "plain data",
    None: "None",
}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _require(right: bool, where: str, what: str, value: Any) -> None:
    if not right:
        raise ValueError(f"{where} must be {what}, got {_short(value)}")


def _length(values: list[Any], count: int, where: str) -> None:
    _require(len(values) == count, where, f"of length {count}", values)


def _point(point: list[float], count: int, where: str) -> None:
    _length(point, count, where)
    _require(all(value > 0.0 for value in point), where, "positive", point)


def _interval(ends: list[float | None], inside: float | None, where: str) -> None:
    _length(ends, 2, where)
    low, high = (end if given is None else given for given, end in zip(ends, (-math.inf, math.inf), strict=True))
    right = low <= high and (inside is None or low - 1e-9 * abs(low) <= inside <= high + 1e-9 * abs(high))
    _require(right, where, "a pair low <= high" + ("" if inside is None else f" around {inside!r}"), ends)
