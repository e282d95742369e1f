r"""How far a computed vector may be from the exact one, and what that does to K^T q, the gradient of a minimiser's loss
(`suffice.solvers.sensitivity`; what it is good for is said in `suffice.prove.stationarity`).

For x and q as computed and any x^, q^ that are no farther from them than their `Doubt`s say, entry by entry,

    |K(x^)^T q^ - K(x)^T q|  <=  |K(x^) - K(x)|^T |q|  +  (|K(x)| + |K(x^) - K(x)|)^T |q^ - q|.

The columns of penalties are  K = A diag(sign(x)) + B diag(x),  A and B not negative and known exactly: they change by
B |x^ - x|, as long as no sign does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from suffice.arrays import Array, norm
from suffice.rows.rounding import gamma


@dataclass(frozen=True, eq=False)
class Doubt:
    """The exact vector is no farther than this, entry by entry and in norm. That of weights also says how far the
    intercept that was minimised out, or that of every class, may be from `b`."""

    each: Array
    size: float
    intercept: Any = 0.0
    b: Any = None

    @classmethod
    def of(cls, each: Array, intercept: Any = 0.0, b: Any = None) -> Doubt:
        return cls(each, norm(each) * (1.0 + gamma(len(each) + 8)), intercept, b)


@dataclass(frozen=True, eq=False)
class Steep:
    """The gradient of a loss at w, in the weights and in an intercept, with bounds on how far that at the exact w may
    be from it, entry by entry, and in norm for the weights."""

    weights: Array
    of_weights: Array
    size: float
    intercept: Any = 0.0  # one, or one for every class
    of_intercept: Any = 0.0


@runtime_checkable
class Enclosed(Protocol):
    """A lower-level problem that can bound what inexact solutions do to its cross derivatives."""

    def cross_doubt(self, x: Array, q: Array, of_x: Doubt, of_q: Doubt, **params: Any) -> Array | None:
        """A bound on |K(x^)^T q^ - cross(x)^T q| for every parameter, rounding included; None where there is none."""
        ...


def product_doubt(K: Any, of_K: Any, q: Array, of_q: Doubt) -> Array:
    """The bound of the module's text for matrices, NumPy's or sparse, with the rounding of K^T q."""
    sizes, rounding = abs(K), gamma(len(q) + 8)
    through = of_K.T @ np.abs(q) + (sizes + of_K).T @ of_q.each + rounding * (sizes.T @ np.abs(q))
    bound: Array = np.asarray(through) * (1.0 + 4.0 * rounding)
    return bound


def penalties_doubt(columns: Callable[[Array, Array], Any], x: Array, q: Array, of_x: Doubt, of_q: Doubt) -> Array:
    """That of penalties: `columns(s, x)` is A diag(s) + B diag(x). Infinite where a sign may change that matters."""
    unsure = (np.abs(x) <= of_x.each) & ((q != 0.0) | (of_q.each > 0.0))
    signs = np.where(unsure, np.inf, 0.0)
    with np.errstate(invalid="ignore"):
        of_K = columns(signs, of_x.each * (1.0 + gamma(8)))
        return product_doubt(columns(np.sign(x), x), of_K, q, of_q)
