r"""How accurate is enough: the only place where accuracy is decided.

Two demands are made on evaluations.

- A model of the residuals on a trust region of radius delta is worth no more than O(delta^2) of error: points are
  accurate to  c delta^2  (times the size of a residual, so that units do not matter).
- A step with predicted decrease `pred` may be judged once |F~ - F| <= eta1' pred at both of its ends, or once
  the proven intervals of F decide anyway (`suffice.upper.judge`).

For a demand T on F, errors e of all residuals satisfy it if  sum_t (2 |r_t| e + e^2) <= T. Under the policy `residual`
that e is requested. Under `weights`, the paper's, requests are on the distance of the weights, where the two demands
read c delta^2, and the distance at which the last known relation between distance and error of F meets T.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from suffice.options import Options
from suffice.upper.evaluation import Evaluation

# A request aims at a third of what the decision needs: the next one, at a smaller radius, needs more, and the steps
# from T to T/3 of a linearly convergent solver cost less than coming back.
HEADROOM = 1.0 / 3.0


class Accuracy(Protocol):
    """Turns the two demands into requests `within`."""

    def for_model(self, delta: float, known: Evaluation | None) -> float: ...

    def for_decision(self, T: float, known: Evaluation) -> float: ...


class ResidualAccuracy:
    """Requests on the error of each residual."""

    def __init__(self, options: Options) -> None:
        self.c = options.accuracy_factor

    def for_model(self, delta: float, known: Evaluation | None) -> float:
        size = 1.0 if known is None else math.sqrt(known.cost / len(known.r))
        return self.c * delta**2 * (size if size > 0 else 1.0)

    def for_decision(self, T: float, known: Evaluation) -> float:
        inexact = known.e > 0
        sizes = np.abs(known.r[inexact] if inexact.any() else known.r)
        A, n = float(np.sum(sizes)), len(sizes)
        return T / (A + math.sqrt(A * A + n * T)) if T > 0 else 0.0


class WeightsAccuracy:
    """Requests on the distance of the weights (Ehrhardt and Roberts)."""

    def __init__(self, options: Options) -> None:
        self.c = options.accuracy_factor

    def for_model(self, delta: float, known: Evaluation | None) -> float:
        return self.c * delta**2

    def for_decision(self, T: float, known: Evaluation) -> float:
        if known.distance is None or known.error == 0.0:
            return math.inf
        # Where nothing is proven about F yet, a tenth of the distance is a start.
        return known.distance * (T / known.error if known.error < math.inf else 0.1)


def accuracy(options: Options) -> Accuracy:
    """The policy that `options` name."""
    return WeightsAccuracy(options) if options.policy == "weights" else ResidualAccuracy(options)


def stale(evaluation: Evaluation, limit: float, options: Options) -> bool:
    """Whether an evaluation's error exceeds what a model on this radius needs."""
    if options.policy == "weights":
        return evaluation.distance is not None and evaluation.distance > limit
    return bool((evaluation.e > limit).any())
