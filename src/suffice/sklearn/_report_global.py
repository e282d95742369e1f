"""What a report shows of a global certificate: the proven surfaces of F over the space, and how the gap was closed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from suffice.globally.landscape import Landscape
from suffice.report.live import finite

MOST_POINTS = 2000  # of the gap's history

Data = dict[str, Any]
SHAPE = {
    "epsilon": float,
    "message": str,
    "evaluations": int,
    "ranges": {str: [(float, None)]},
    "names": [str],
    "best": [float],
    "lower": float,
    "upper": float,
    "cells": [[float]],
    "line": [[(float, None)]],
    "history": [[float]],
}


def collected(search: Any) -> Data:
    """Of a fitted search, under "global"; nothing if no certificate was asked for."""
    made = getattr(search, "global_certificate_", None)
    if made is None:
        return {}
    drawn = made.landscape
    history = [[float(one.evaluations), float(one.gap)] for one in made.history if math.isfinite(one.gap)]
    step = math.ceil(len(history) / MOST_POINTS) or 1
    found = {
        "epsilon": float(made.epsilon),
        "message": made.message,
        "evaluations": int(made.evaluations),
        "ranges": {name: finite(ends) for name, ends in made.space.ranges.items()},
        "names": list(drawn.names),
        "best": drawn.best.tolist(),
        "lower": float(drawn.lower),
        "upper": float(drawn.upper),
        "cells": drawn.cells.tolist(),
        "line": [finite(row) for row in drawn.line],
        "history": [*history[:-1:step], *history[-1:]],
    }
    return {"global": found}


def problem_of(found: Data) -> str | None:
    """What is wrong with data whose shape is right, if anything is."""
    names, m = found["names"], len(found["names"])
    if m not in (1, 2) or len(found["best"]) != m or set(found["ranges"]) != set(names):
        return f"one or two penalties with their best values and ranges, got {names!r}"
    rows = [row[:m] + row[m:-1] for row in found["cells"]]
    if not rows or any(len(row) != 2 * m or min(row) <= 0.0 for row in rows) or min(found["best"]) <= 0.0:
        return f"cells with {2 * m} positive ends and a bound"
    if any(a > b for row in rows for a, b in zip(row[:m], row[m:], strict=True)):
        return "cells whose lower ends are no larger than their upper ones"
    if any(len(row) != 3 or row[0] is None or row[1] is None for row in found["line"]) or (m == 1) != bool(
        found["line"]
    ):
        return "a line of a penalty and two bounds, of one penalty"
    if any(len(row) != 2 or row[1] < 0.0 for row in found["history"]) or not 0.0 <= found["lower"] <= found["upper"]:
        return "bounds 0 <= lower <= upper, and gaps that are not negative"
    return None if found["upper"] > 0.0 else "a loss that is positive"


def landscape(found: Data) -> Landscape:
    """What pictures show of it."""
    line = np.array(found["line"], dtype=np.float64).reshape(-1, 3)
    line[:, 2] = np.where(np.isnan(line[:, 2]), math.inf, line[:, 2])
    cells = np.array(found["cells"], dtype=np.float64)
    return Landscape(tuple(found["names"]), np.array(found["best"]), found["lower"], found["upper"], cells, line)
