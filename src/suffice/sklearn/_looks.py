"""Where a search begins: first looks at a few points spread over the box.

F is flat where all weights are zero and need not be convex. Looks are made relative to what the data tell: l1 below
the one that makes all weights zero, l2 below the largest curvature of the loss.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from suffice._array import Array
from suffice.sklearn._folds import FLOOR
from suffice.sklearn._noted import Noted
from suffice.sklearn._tie import PENALTIES, Tie, kind_of
from suffice.upper.evaluation import Evaluation

LOOK = 0.02  # the accuracy of a first look, relative to the root of the loss of the plainest model
# Where first looks are made, in decades below the l1 that makes all weights 0, and below the largest curvature.
BELOW_L1_MAX, BELOW_CURVATURE = (0.5, 1.1, 1.7, 2.4, 3.5), (0.5, 1.5, 2.5, 4.0)
ALONE = np.linspace(0.0, 6.0, 12)  # for one penalty alone
NEARLY = 1.01  # a second start is no worse than so many times the best look
TURNED = 1.1  # a line of looks towards smaller l1 ends where the loss has become so many times its least one


def best_of_a_few(noted: Noted, folds: list[Any], tie: Tie) -> list[Array]:
    """The best of a few points spread over the box, looked at roughly; all groups of features are alike there.

    Lines of looks go from the largest l1 down, and end where the loss goes up again: what lies beyond takes the most
    work, and is worse. A point that is better than its neighbours on both lines through it, and nearly as good as the
    best, is the second start.
    """
    lower, upper = noted.space.bounds
    kinds = [kind for kind in PENALTIES if any(kind_of(name) == kind for name in tie.names)]
    of = np.array([kinds.index(kind_of(name)) for name in tie.names])
    levels = [_levels(kind, len(kinds) == 1, folds, lower[of == i], upper[of == i]) for i, kind in enumerate(kinds)]
    found: dict[tuple[int, int], Evaluation] = {}
    best: Evaluation | None = None
    for j in range(len(levels[1]) if len(levels) > 1 else 1):
        for i, value in enumerate(levels[0]):
            values = (value,) if len(levels) == 1 else (value, levels[1][j])
            theta = np.clip(np.array(values)[of], lower, upper)
            if best is None:
                best = noted.look(theta, within=math.inf)  # whatever one step gives: the size of a loss
            made = found[i, j] = noted.look(theta, within=LOOK * math.sqrt(best.cost / len(best.e)))
            best = min(best, made, key=lambda evaluation: evaluation.interval[1])
            if len(levels) > 1 and made.cost > TURNED * min(found[k, j].cost for k in range(i + 1)):
                break
    assert best is not None
    costs = {place: made.cost for place, made in found.items()}

    def is_valley(i: int, j: int) -> bool:
        around = ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1))
        return all(costs[i, j] < costs.get(place, math.inf) for place in around)

    others = [cost for place, cost in costs.items() if found[place] is not best and is_valley(*place)]
    others = [cost for cost in others if cost <= NEARLY * best.cost]
    second = [made.point for made in found.values() if others and made.cost == min(others)]
    return [best.point, *second[:1]]


def _levels(kind: str, alone: bool, folds: list[Any], lower: Array, upper: Array) -> Array:
    """Where to look, as powers of ten, from large to small."""
    low, high = float(lower.min()), float(upper.max())
    largest = max(fold.model.l1_max if kind == "l1" else fold.model.l2_floor / FLOOR for fold in folds)
    if not largest > 0.0:
        return np.linspace(high, low, len(ALONE) + 2)[1:-1]
    below = ALONE if alone else np.asarray(BELOW_L1_MAX if kind == "l1" else BELOW_CURVATURE)
    return np.unique(np.clip(math.log10(largest) - below, low, high))[::-1]
