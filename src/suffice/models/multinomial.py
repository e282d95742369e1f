r"""Multinomial logistic regression with K classes, intercepts minimised out:

    f(W) = min_b sum_i a_i ( log sum_k exp(m_ik) - m_{i, y_i} ) + (l2/2) ||W||^2,     m_i = W x_i + b,  sum_k b_k = 0,

b = 0 without an intercept; W and m are K x d and N x K, norms are Frobenius'. With p_i the probabilities,
H_i = diag(p_i) - p_i p_i^T <= 1/2, so that L = ||diag(a)^(1/2) X||^2 / 2 + l2, with b minimised out as well as without.
What is proven about b:

- ||b(m) - b(m')|| <= (K - 1) (K/2)^(1/2) max_i ||m_i - m'_i||. Proof: along a path from m to m', sum_i a_i H_i (db +
  dm_i) = 0, or  sum_l C_kl (db_k - db_l + E_kl) = 0  for all k, with C_kl = sum_i a_i p_ik p_il > 0 and E_kl the
  C-weighted mean of dm_ik - dm_il, |E_kl| <= delta = max_i range(dm_i). Summed over all k whose db_k lies above a gap
  wider than delta every term is positive, a contradiction: range(db) <= (K - 1) delta. And range(dm_i) <= 2^(1/2)
  ||dm_i||, ||db|| <= range(db) K^(1/2) / 2 since sum db = 0.
- For ||W - W'|| <= rho it moves by no more than B = (2/h)^(1/2) ||diag(a)^(1/2) X|| rho, h the least eigenvalue of
  sum_i a_i H_i across sum b = 0, if  2^(1/2) (max_i ||x_i|| rho + B) <= 2 log 2 (docs/mathematics.md has the proof).
- A computed b with s = sum_i a_i (p_i - onehot_i) errs by at most -log(1 - R ||s|| / h) / R, R = 2^(1/2), if that is
  a number: third derivatives in a direction u of length 1 are at most range(u) <= R times second ones, so that the
  slope grows by h (1 - exp(-R t)) / R at least, which makes up for ||s||.

Margins that err by delta_i do not move the gradient by more than (1/2)^(1/2) ||diag(a)^(1/2) X|| (sum_i a_i c_i
||delta_i||^2)^(1/2), c_i no less than the norm of H_i on the way: b, which follows, only takes away from it. Proof: the
Hessian of  min_b sum_i a_i log sum_k exp(m_ik + b_k)  in all m is S = H - H E (E^T H E)^-1 E^T H, H that of fixed b and
E the map that adds b to all rows; 0 <= S <= H, and H_i <= 1/2; so X^T S delta = (S^(1/2) X)^T S^(1/2) delta is no
longer than that. H_i is at most its trace, sum_k p_ik (1 - p_ik), times e^r where a row's range has moved by r. So
margins that err by no more than delta_i = sigma ||x_i|| + epsilon, and a b that errs by beta, move the gradient by at
most (1/2)^(1/2) ||diag(a)^(1/2) X|| times  (sum_i a_i c_i delta_i^2)^(1/2) + beta (sum_i a_i c_i)^(1/2),  c_i = e^r
times the trace of H_i or 1/2, whichever gives less in all, r = 2^(1/2) times what any row's margins are off, b
included; and a sum over rows errs by `Design.pull_rounding` times its terms' length.

b is found by Newton's method from that of W = 0 less the margins' means on; it depends on nothing but the margins: a
solution continued is the same to the last bit. A point of rows that are read from elsewhere takes one pass over X
without intercepts, and two with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.jobs import Sizes, Slack
from suffice.models.linear import Point, RowModel, by_columns, by_outputs
from suffice.models.softmax_jobs import (
    SOFTMAX,
    Indices,
    R,
    SoftmaxAlong,
    SoftmaxBalance,
    SoftmaxBend,
    SoftmaxHessian,
    SoftmaxLoss,
    SoftmaxSeen,
    SoftmaxSums,
    softmax_rows,
    solve_across,
)
from suffice.rows.design import Design
from suffice.rows.rounding import gamma
from suffice.rows.sums import tree_roundings

MOST_STEPS = 100
CLOSE = 1e-8  # a step this short is the last: what it leaves is of the size of its square


@dataclass(frozen=True, eq=False)
class Intercepts:
    """b with what is proven of it, its curvature and the loss there; and p and p - onehot of rows at hand."""

    b: Array
    error: float
    least: float  # eigenvalue of its curvature, at least
    loss: float
    H: Array
    kept: Any = None


@dataclass(frozen=True, eq=False)
class Multinomial(RowModel):
    """The multinomial loss with a ridge; y holds the numbers of the rows' classes, x is W row by row."""

    design: Design
    y: Any
    classes: int
    intercept: bool
    l2: float = 0.0
    loss: SoftmaxLoss = field(default=SOFTMAX, init=False)

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def owners(self) -> tuple[Any, ...]:
        return self.design.weights, self.y, self.intercept

    @cached_property
    def reach(self) -> float:
        """A Lipschitz constant of b(W)."""
        return self._follow * self.design.reach

    @property
    def _follow(self) -> float:
        return (self.classes - 1) * math.sqrt(0.5 * self.classes) if self.intercept else 0.0

    @property
    def seen(self) -> Array:
        """The weight of every class: the same for all penalties, and found once."""
        seen = SoftmaxSeen(self.classes)
        return self.design.known.once("classes", self.owners, lambda: self.rows.run(seen, **self.given))

    # Intercepts

    def shift(self, image: Any) -> tuple[Array, float]:
        """b at these margins and a proven bound on its error."""
        if not self.intercept:
            return np.zeros(self.classes), 0.0
        found = self._found(image)
        return found.b, found.error

    def drift(self, x: Array, image: Any, rho: float) -> float:
        """A bound on how far b moves for weights within rho of x, whose image this is."""
        if not self.intercept:
            return 0.0
        found, design = self._found(image), self.design
        blur = R * (design.margin_rounding(x) * design.reach * norm(x) + found.error + self.classes * 64.0 * EPS)
        if not blur < 0.01:
            return self.reach * rho
        h = found.least * (1.0 - 2.0 * blur)
        B = math.sqrt(2.0 * design.squared_norm / h) * rho * (1.0 + 16.0 * EPS) if h > 0.0 else math.inf
        far = self.reach * rho
        near = R * (design.reach * rho + B) <= 1.38  # < 2 log 2
        return float(min(B, far)) if near else far

    def shift_within(self, x: Array, image: Any, radius: float) -> float:
        """A bound on how far b of exact weights is from ours, if these weights are no farther from x than `radius`."""
        return self.drift(x, image, radius) + self.shift(image)[1]

    def _found(self, image: Any) -> Intercepts:
        def find() -> Intercepts:
            b, N = self._sought(image), self.design.shape[0]
            found = self.rows.run(SoftmaxBalance(b, keeps=not self.rows.dear), [image], **self.given)
            kept, (loss, *parts) = (None, found) if self.rows.dear else found
            sums = SoftmaxSums(*parts)
            error, least = sums.proven(N, tree_roundings(N, self.rows.block))
            return Intercepts(b, error, least, float(loss), sums.H, kept)

        return self.rows.known(image).once("intercepts", self.owners, find)

    def _step(self, image: Any, b: Array) -> tuple[float, Array, Array]:
        """The loss at this b, s and its Jacobian."""
        loss, s, H, *_ = self.rows.run(SoftmaxBalance(b), [image], **self.given)
        return float(loss), s, H

    def _sought(self, image: Any) -> Array:
        """But for rounding the right b."""
        mean = self.rows.run(Sizes(), [image], **self.given)[2]
        b = _centred(np.log(np.maximum(self.seen, 1e-300)) - mean)
        value, s, H = self._step(image, b)
        for _ in range(MOST_STEPS):
            if norm(s) <= EPS:
                break
            step = solve_across(H, -s)
            if norm(step) <= CLOSE:
                return _centred(b + step)
            t, slope = 2.0, float(s @ step)
            while True:
                t *= 0.5
                moved = _centred(b + t * step)
                trial, pull, bend = self._step(image, moved)
                if trial <= value + 1e-4 * t * slope + 8.0 * EPS * (1.0 + abs(value)) or not t > 1e-10:
                    break
            # Rounding, or margins beyond the range of floats, hide what is left.
            if not t > 1e-10 or (norm(pull) >= norm(s) and abs(slope) <= 64.0 * EPS * (1.0 + abs(value))):
                break
            b, value, s, H = moved, trial, pull, bend
        return b

    def intercept_along(self, image: Any, V: Array) -> Array:
        """How the intercepts move with weights that move by the columns of V, k of them: K x k."""
        if not self.intercept:
            return np.zeros((self.classes, V.shape[1]))
        return self._drawn(image, self.rows.directions(by_columns(V, self.classes)), V.shape[1])

    def _drawn(self, image: Any, M: Any, k: int) -> Array:
        """How the intercepts move with margins that move by M, N x (K k)."""
        job = SoftmaxBend(np.zeros((self.classes, k)), self.b(image), reads=False)
        return -solve_across(self._found(image).H, self.rows.run(job, [image, M], **self.given, **self.given_at(image)))

    def intercept_adjoint(self, image: Any, u: Array) -> Array:
        """u^T d b / d W."""
        if not self.intercept:
            return np.zeros(self.classes * self.design.shape[1])
        found = self._found(image)
        job = SoftmaxBend(solve_across(found.H, u - u.mean())[:, None], found.b)
        return -by_outputs(self.rows.run(job, [image], **self.given, **self.given_at(image)))

    # What a point is asked for

    def b(self, image: Any) -> Any:
        return self._found(image).b if self.intercept else 0.0

    def given_at(self, image: Any) -> dict[str, Any]:
        kept = self._found(image).kept if self.intercept else None
        return {} if kept is None else {"p": kept[0], "slopes": kept[1]}

    def probabilities(self, image: Array) -> Array:
        """Those of all rows at hand, at these margins."""
        p: Array | None = self.given_at(image).get("p")
        return softmax_rows(image)[0] if p is None else p

    def loss_at(self, image: Any) -> float:
        return self._found(image).loss if self.intercept else super().loss_at(image)

    def slack(self, x: Array, image: Any, products: float) -> Slack:
        return replace(super().slack(x, image, products), even=self.shift(image)[1])

    def rounding(self, found: Point, off: Slack) -> float:
        """By the module's text."""
        bent_rows, rows, bent, exponents, whole = found.bounds
        design, off_b = self.design, off.even
        furthest = (1.0 + self._follow) * (off.slack * design.reach + off.least) + off_b
        up = 1.0 + gamma(design.shape[0] + self.classes + 16)
        stretch = math.exp(min(0.5 * R * furthest * (1.0 + 8.0 * EPS), 350.0)) * (1.0 + 8.0 * EPS)
        half = math.sqrt(0.5) * up
        bent_rows, bent = min(stretch * bent_rows, half * rows), min(stretch * bent, half)
        through = math.sqrt(0.5) * (off.slack * bent_rows + (off.least + off_b) * bent) + 0.5 * exponents
        through *= math.sqrt(design.squared_norm) * up
        return float(through + design.pull_rounding * whole * up + design.underflow)

    def along(self, image: Any) -> SoftmaxAlong:
        return SoftmaxAlong()

    # Hessians

    def hessian(self, image: Any, working: Indices) -> Array:
        """The Hessian at these margins on these variables: that in (W, b) without what b takes up."""
        of_class, column = np.divmod(working, self.design.shape[1])
        parts = tuple(column[of_class == k] for k in range(self.classes))
        H: Array
        H, across = self.rows.run(SoftmaxHessian(parts, self.b(image)), [image], **self.given, **self.given_at(image))
        H = H - across @ solve_across(self._found(image).H, across.T) if self.intercept else H.copy()
        H[np.diag_indices(len(H))] += self.l2
        return H

    def hessian_at(self, image: Any) -> Callable[[Array], Array]:
        """V -> the Hessian at these margins times the columns of V, by products with X."""
        K, b, given = self.classes, self.b(image), {**self.given, **self.given_at(image)}

        def product(V: Array) -> Array:
            k = V.shape[1]
            M = self.rows.directions(by_columns(V, K))
            moved = self._drawn(image, M, k) if self.intercept else np.zeros((K, k))
            pulled = self.rows.run(SoftmaxBend(moved, b), [image, M], **given).reshape(-1, K, k).transpose(1, 0, 2)
            return np.ascontiguousarray(pulled).reshape(V.shape) + self.l2 * V

        return product


def _centred(b: Array) -> Array:
    return b - b.mean()
