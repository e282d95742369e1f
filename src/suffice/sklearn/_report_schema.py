"""What `suffice.sklearn.report.collect` makes, and whether plain data are that.

A shape is `str`, `bool`, `int` (non-negative), `float` (finite), `object` (plain data), `[shape]`, `{str: shape}`,
`{"key": shape, "key that may be missing?": shape}`, or a tuple of alternatives in which None stands for an absent
value. `Where` is a shape whose values have to satisfy more.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

FORMAT, OLD = "suffice report 1", "suffice search 1"  # the old one was also the tag of journals
MOST = 100_000  # entries of a list
LONGEST = 2_000  # characters of a text
LARGEST = 1e301  # of any number: figures take differences and logarithms

Scope = ChainMap[str, Any]  # the dictionaries around a value, the nearest one first; keys that were checked already


@dataclass(frozen=True)
class Where:
    """`wrong(value, scope)` says what a value of this shape must be, if it is not that."""

    shape: Any
    wrong: Callable[[Any, Scope], str | bool]


def each(shape: Any, like: str, less: int = 0) -> Where:
    """A list with as many entries as that of this name, or as a number of this name says."""

    def wrong(value: Any, scope: Scope) -> str | bool:
        count = (scope[like] if isinstance(scope[like], int) else len(scope[like])) - less
        return len(value) != count and f"of length {count}"

    return Where([shape], wrong)


def positive(shape: Any) -> Where:
    return Where(shape, lambda value, _: any(one <= 0.0 for one in value) and "positive")


def some(shape: Any, what: str) -> Where:
    """A list that is not empty."""
    return Where(shape, lambda value, _: not value and f"at least one {what}")


def _ends(value: Any, scope: Scope) -> str | bool:
    """Of an interval, around `cost` if there is one; None is no bound."""
    inside, right = scope.get("cost"), len(value) == 2
    if right:
        low, high = (end if given is None else given for given, end in zip(value, (-math.inf, math.inf), strict=True))
        right = low <= high
        right &= inside is None or low - 1e-9 * abs(low) <= inside <= high + 1e-9 * abs(high)
    return not right and "a pair low <= high" + ("" if inside is None else f" around {inside!r}")


def _of_landscape(found: Any, _: Scope) -> str | bool:
    names, m = found["names"], len(found["names"])
    if m not in (1, 2) or len(found["best"]) != m or set(found["ranges"]) != set(names):
        return f"one or two penalties with their best values and ranges, got {names!r}"
    rows = [row[:m] + row[m:-1] for row in found["cells"]]
    if not rows or any(len(row) != 2 * m or min(row) <= 0.0 for row in rows) or min(found["best"]) <= 0.0:
        return f"cells with {2 * m} positive ends and a bound"
    if any(a > b for row in rows for a, b in zip(row[:m], row[m:], strict=True)):
        return "cells whose lower ends are no larger than their upper ones"
    line = found["line"]
    if any(len(row) != 3 or row[0] is None or row[1] is None for row in line) or (m == 1) != bool(line):
        return "a line of a penalty and two bounds, of one penalty"
    if any(len(row) != 2 or row[1] < 0.0 for row in found["history"]) or not 0.0 <= found["lower"] <= found["upper"]:
        return "bounds 0 <= lower <= upper, and gaps that are not negative"
    return found["upper"] <= 0.0 and "a loss that is positive"


NOT_NEGATIVE = Where((float, None), lambda value, _: value is not None and value < 0.0 and "non-negative")
OF_FOLDS = each(float, "folds")
LEFT_OUT_OR_OF_FOLDS = Where([float], lambda value, scope: bool(value) and OF_FOLDS.wrong(value, scope))
CALIBRATIONS = {
    "reliability": {
        "curves": [
            {
                "label": str,
                "predicted": [float],
                **{key: each(float, "predicted") for key in ("observed", "low", "high")},
                "count": each(int, "predicted"),
            }
        ],
        "samples": int,
        "classes": int,
    },
    "margins": {
        "edges": Where([float], lambda value, _: any(a >= b for a, b in pairwise(value)) and "increasing"),
        "labels": [str],
        "counts": each(each(int, "edges", 1), "labels"),
    },
    "regression": {"true": some([float], "value"), "predicted": each(float, "true"), "samples": int},
}
SHAPE = {
    "format": str,
    "about": {str: object},
    "versions": {str: str},
    "estimator": str,
    "steps": [str],
    "samples": int,
    "features": int,
    "folds": Where(int, lambda value, _: value < 1 and "positive"),
    "scoring": str,
    "asked_scoring": (str, None),
    "policy": str,
    "best": {
        "params": {str: float},
        "penalties": {str: float},
        "l2_floor": float,
        "score": float,
        "interval": Where([float], _ends),
        "message": str,
        "refit": (bool, str),
    },
    "names": Where([str], lambda value, _: not 0 < len(value) == len({*value}) and "one or more different names"),
    "evaluations": some(
        [
            {
                "number": int,
                "purpose": str,
                "point": positive(each(float, "names")),
                "cost": float,
                "interval": Where([(float, None)], _ends),
                "asked": NOT_NEGATIVE,
                "achieved": NOT_NEGATIVE,
                "work": Where(float, NOT_NEGATIVE.wrong),
            }
        ],
        "evaluation",
    ),
    "evaluation": Where(
        int,
        lambda value, scope: (
            not 1 <= value <= len(scope["evaluations"]) and f"between 1 and {len(scope['evaluations'])}"
        ),
    ),
    "path": [positive(each(float, "names"))],
    "comparison": {
        "params": {str: float},
        "converged": bool,
        "scores": some([{"scoring": str, "tuned": OF_FOLDS, "default": LEFT_OUT_OR_OF_FOLDS}], "score"),
        "same_folds": bool,
    },
    "regularisation": {
        "multiples": positive(some([float], "multiple")),
        "left_out?": int,
        "penalties": {str: float},
        "lines": [{"name": str, "output": str, "values": each(float, "multiples")}],
        "nonzero": each(int, "multiples"),
        "coefficients": int,
        "accuracy": (float, None),
    },
    "calibration": {
        "kind": Where(str, lambda value, _: value not in CALIBRATIONS and f"one of {', '.join(CALIBRATIONS)}"),
        "accuracy": (float, None),
    },
    "coefficients": {
        "source": str,
        "names": [str],
        "outputs": some([str], "output"),
        "values": each(each(float, "names"), "outputs"),
        "intercepts": each(float, "outputs"),
        "features": int,
        "nonzero": int,
    },
    "measures?": {  # not in reports of older versions
        "rows": int,
        **{key: {str: float} for key in ("tuned", "baseline", "default")},
        "gain": (float, None),
        "better_than_baseline": bool,
        "folds": {"measure": str, "tuned": [float], "default": [float]},
        "confusion?": ({"classes": [str], "counts": each(each(int, "classes"), "classes")}, None),
    },
    "global?": Where(  # where it was asked for
        {
            "epsilon": float,
            "message": str,
            "evaluations": int,
            "ranges": {str: each((float, None), "pair")},
            "names": [str],
            "best": [float],
            "lower": float,
            "upper": float,
            "cells": [[float]],
            "line": [[(float, None)]],
            "history": [[float]],
        },
        _of_landscape,
    ),
}
NAMES = {
    float: "a finite number",
    int: "a non-negative integer",
    str: "a text",
    bool: "True or False",
    object: "plain data",
    None: "None",
}


def check(data: Any, *formats: str) -> None:
    """Raise ValueError, with the place, unless `data` are a search of one of these formats, the latest first."""
    outside: Scope = ChainMap({"pair": 2})
    _check(data, {"format": Where(str, lambda value, _: value not in formats and repr(formats[0]))}, "data", outside)
    _check(data, SHAPE, "data", outside)
    _check(data["calibration"], CALIBRATIONS[data["calibration"]["kind"]], "data.calibration", outside)


def _check(value: Any, shape: Any, where: str, scope: Scope) -> None:
    if isinstance(shape, Where):
        _check(value, shape.shape, where, scope)
        must_be = shape.wrong(value, scope)
        _require(not must_be, where, str(must_be), value)
    elif isinstance(shape, tuple):
        inner = [one for one in shape if isinstance(one, dict)]
        if inner and isinstance(value, dict):
            _check(value, inner[0], where, scope)
            return
        words = " or ".join("a dictionary" if isinstance(one, dict) else NAMES[one] for one in shape)
        _require(any(_fits(value, one) for one in shape if not isinstance(one, dict)), where, words, value)
    elif isinstance(shape, list):
        right = isinstance(value, list) and len(value) <= MOST
        _require(right, where, f"a list of at most {MOST} entries", value)
        for k, entry in enumerate(value):
            _check(entry, shape[0], f"{where}[{k}]", scope)
    elif isinstance(shape, dict):
        _require(isinstance(value, dict), where, "a dictionary", value)
        if str in shape:
            for key, entry in value.items():
                _check(key, str, f"a key of {where}", scope)
                _check(entry, shape[str], f"{where}[{key[:60]!r}]", scope)
            return
        for name, part in shape.items():
            key = name.removesuffix("?")
            if key in value:
                _check(value[key], part, f"{where}.{key}", scope.new_child(value))
            elif key == name:
                raise ValueError(f"{where} lacks {key!r}")
    else:
        _require(_fits(value, shape), where, NAMES[shape], value)


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


def _require(right: bool, where: str, what: str, value: Any) -> None:
    if not right:
        text = repr(value)
        raise ValueError(f"{where} must be {what}, got {text if len(text) <= 80 else f'{text[:77]}...'}")
