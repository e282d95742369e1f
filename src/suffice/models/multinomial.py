r"""Multinomial logistic regression with K classes, intercepts minimised out:

    f(W) = min_b sum_i a_i ( log sum_k exp(m_ik) - m_{i, y_i} ) + (l2/2) ||W||^2,     m_i = W x_i + b,  sum_k b_k = 0,

b = 0 without an intercept; W and m are K x d and N x K, norms are Frobenius'. With p_i the probabilities,
H_i = diag(p_i) - p_i p_i^T <= 1/2, so that L = ||diag(a)^(1/2) X||^2 / 2 + l2, with b minimised out as well as without.
What is proven about b:

- It moves with m by ||b(m) - b(m')|| <= (K - 1) (K/2)^(1/2) max_i ||m_i - m'_i||. Proof: along a path from m to m',
  sum_i a_i H_i (db + dm_i) = 0, which reads  sum_l C_kl (db_k - db_l + E_kl) = 0  for all k, with C_kl = sum_i a_i p_ik
  p_il > 0 and E_kl the C-weighted mean of dm_ik - dm_il, |E_kl| <= delta = max_i range(dm_i). Sum over all k whose db_k
  lies above a gap wider than delta: every term is positive, a contradiction. So there is no such gap, and range(db) <=
  (K - 1) delta; range(dm_i) <= 2^(1/2) ||dm_i||, and ||db|| <= range(db) K^(1/2) / 2 since sum db = 0.
- Close to W it moves by no more than B = (2/h)^(1/2) ||diag(a)^(1/2) X|| rho for ||W - W'|| <= rho, h the least
  eigenvalue of sum_i a_i H_i across sum b = 0, if  2^(1/2) (max_i ||x_i|| rho + B) <= 2 log 2. Proof: in the norm of
  sum_i a_i H_i, db is no longer than dm in that of a_i H_i, which is at most (1/2)^(1/2) ||diag(a)^(1/2) X|| rho as
  H_i <= 1/2; and no H_i has become less than a quarter of what it was where no row's range has moved by 2 log 2
  (`suffice.prove.verified`).
- A computed b with s = sum_i a_i (p_i - onehot_i) errs by at most -log(1 - R ||s|| / h) / R, R = 2^(1/2), if that is
  a number. Proof: in a direction u of length 1 the third
  derivative is a sum of third central moments of u, each at most range(u) <= R times the variance: the second
  derivative falls no faster than exp(-R t), and the slope h (1 - exp(-R t)) / R that it adds up to makes up for ||s||.

Margins that err by delta_i do not move the gradient by more than (1/2)^(1/2) ||diag(a)^(1/2) X|| (sum_i a_i c_i
||delta_i||^2)^(1/2), c_i no less than the norm of H_i on the way: b, which follows, only takes away from it. Proof: the
Hessian of  min_b sum_i a_i log sum_k exp(m_ik + b_k)  in all m is S = H - H E (E^T H E)^-1 E^T H, H that of fixed b and
E the map that adds b to all rows; 0 <= S <= H, and H_i <= 1/2; so X^T S delta = (S^(1/2) X)^T S^(1/2) delta is no
longer than that. H_i is at most its trace, sum_k p_ik (1 - p_ik), times e^r where a row's range has moved by r.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.linear import CARRIED, MarginModel, majoriser_along
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.rounding import TINY, block_length, dense_product, gamma, roundings

R = math.sqrt(2.0)
MOST_STEPS = 100
HESSIAN_ROWS = 1024  # at a time
CLOSE = 1e-8  # a step this short is the last: what it leaves is of the size of its square
KEPT = 3  # of a step's ends, and of its middle


@dataclass(frozen=True, eq=False)
class Intercepts:
    """b with what is proven of it, and the loss there."""

    b: Array
    error: float
    least: float  # eigenvalue of its curvature, at least
    loss: float


@dataclass(frozen=True, eq=False)
class Shifted(Intercepts):
    """Margins with their b, and the probabilities there. No array is ever written to."""

    onehot: Array  # whose model it is
    image: Array
    p: Array


@dataclass(frozen=True, eq=False)
class Balance:
    """Sums over rows at some b: s, its Jacobian, and sums that bound the rounding of both. They are added over blocks
    of rows as they stand."""

    s: Array
    H: Array
    gaps: Array  # sum a |p - onehot|
    shares: Array  # sum a p
    shaken: Array  # sum a p (1 - p) (largest margin of the row + largest of b)
    furthest: float  # the largest of these

    @classmethod
    def of(cls, m: Array, b: Array, a: Array, p: Array, gap: Array) -> Balance:
        """That of rows with margins m + b, whose probabilities are p, and p - onehot."""
        aP = a[:, None] * p
        spread = aP * (1.0 - p)
        H = -(p.T @ aP)
        np.fill_diagonal(H, spread.sum(axis=0))
        sizes = np.abs(m).max(axis=1) + float(np.abs(b).max())
        s = dense_product(gap, a, block_length(len(a)))
        return cls(s, H, a @ np.abs(gap), aP.sum(axis=0), sizes @ spread, float(sizes.max(initial=0.0)))

    def proven(self, rows: int, terms: int) -> tuple[float, float]:
        """The error of b, and h, at most and at least; a term of s passes so many roundings.

        A row's p are those of margins that are off by less than 2 EPS times their size, times 1 + c, |c| <= (K + 8)
        EPS / 2: the former changes p_k by that times 4 p_k (1 - p_k) and H_i by a factor, the latter p_k by a share of
        itself, however close to 1 it is. So p (1 - p) is off by (K + 10) EPS p; all else in H by shares of itself,
        which off the diagonal add up to its trace."""
        K, trace = len(self.s), float(np.trace(self.H))
        if not self.furthest < 0.01 / EPS:
            return math.inf, 0.0
        sizes = gamma(terms + OF_FACTORS) * self.gaps + EPS * (K + 8.0) * self.shares + 4.0 * EPS * self.shaken
        noise = norm(sizes) * (1.0 + 2.0 * gamma(rows + 16)) + 1e-300
        values = np.linalg.eigvalsh(self.H + trace / K * np.ones((K, K)) / K)
        of_H = (2.0 * gamma(rows + 2 * K + 32) + 64.0 * EPS * K) * trace + EPS * (K + 10.0) * norm(self.shares)
        least = (float(values[0]) - of_H) * math.exp(-8.0 * EPS * self.furthest)
        share = R * (norm(self.s) + noise) / least if least > 0.0 else math.inf
        error = -math.log1p(-share) / R * (1.0 + 8.0 * EPS) if share < 1.0 else math.inf
        return error, max(least, 0.0)


class _Memory(threading.local):
    """The latest intercepts of this thread for each design: a step asks for those of a few margins again and again."""

    def __init__(self) -> None:
        self.latest: WeakKeyDictionary[Design, list[Shifted]] = WeakKeyDictionary()

    def keep(self, design: Design, found: Shifted) -> Shifted:
        found.p.setflags(write=False)
        self.latest[design] = [found, *self.latest.get(design, [])[: KEPT - 1]]
        return found

    def known(self, design: Design, onehot: Array, image: Array) -> Shifted | None:
        for one in self.latest.get(design, []):
            if one.onehot is onehot and (one.image is image or np.array_equal(one.image, image)):
                return one
        return None


_memory = _Memory()


def forget() -> None:
    """Forget all intercepts: those of a point then do not depend on where, and after what, it is asked for."""
    _memory.latest.clear()


@dataclass(frozen=True, eq=False)
class Multinomial(MarginModel):
    """The multinomial loss with a ridge; `onehot` is N x K, x is W row by row, images are N x K."""

    design: Design
    onehot: Array
    intercept: bool
    l2: float = 0.0

    @property
    def curvature(self) -> float:
        return 0.5

    @property
    def classes(self) -> int:
        return int(self.onehot.shape[1])

    @cached_property
    def reach(self) -> float:
        """A Lipschitz constant of b(W)."""
        return self._follow * self._largest_row

    @property
    def _follow(self) -> float:
        return (self.classes - 1) * math.sqrt(0.5 * self.classes) if self.intercept else 0.0

    def shift(self, image: Array) -> tuple[Array, float]:
        """b at these margins and a proven bound on its error."""
        if not self.intercept:
            return np.zeros(self.classes), 0.0
        found = self._found(image)
        return found.b, found.error

    def drift(self, x: Array, image: Array, rho: float) -> float:
        """A bound on how far b moves for weights within rho of x, whose image this is."""
        if not self.intercept:
            return 0.0
        found, design = self._found(image), self.design
        blur = R * (design.margin_rounding(x) * self._largest_row * norm(x) + found.error + self.classes * 64.0 * EPS)
        if not blur < 0.01:
            return self.reach * rho
        h = found.least * (1.0 - 2.0 * blur)
        B = math.sqrt(2.0 * design.squared_norm / h) * rho * (1.0 + 16.0 * EPS) if h > 0.0 else math.inf
        near = R * (self._largest_row * rho + B) <= 1.38  # < 2 log 2
        return min(B, self.reach * rho) if near else self.reach * rho

    @cached_property
    def _largest_row(self) -> float:
        return float(self.design.row_norms[self.design.weights > 0.0].max())

    def find(self, image: Array, near: Array | None = None) -> Array:
        """b, sought anew: from `near` on, or from what the margins' means suggest."""
        return self._sought(image, near).b if self.intercept else np.zeros(self.classes)

    def recall(self, image: Array, b: Array) -> None:
        """Take it from here that this b was found for these margins; its error is bounded all the same."""
        known = _memory.known(self.design, self.onehot, image) if self.intercept else None
        if self.intercept and (known is None or not np.array_equal(known.b, b)):
            self._kept(image, b, *self._rows(image, b))

    def _found(self, image: Array) -> Intercepts:
        return _memory.known(self.design, self.onehot, image) or self._sought(image, None)

    def _sought(self, image: Array, near: Array | None) -> Shifted:
        a = self.design.weights
        if near is None:
            b = np.log(np.maximum(self._seen, 1e-300))
            mean = a @ image
            b = b - b.mean() - (mean - mean.mean())
        else:
            b = near
        p, rows = self._rows(image, b)
        value, (s, H) = float(a @ rows), self._slope(p)
        for _ in range(MOST_STEPS):
            if norm(s) <= EPS:
                break
            step = solve_across(H, -s)
            t, slope, close = 2.0, float(s @ step), norm(step) <= CLOSE
            while True:
                t *= 0.5
                moved = b + t * step
                moved -= moved.mean()
                there, losses = self._rows(image, moved)
                trial = float(a @ losses)
                if close or trial <= value + 1e-4 * t * slope + 8.0 * EPS * (1.0 + abs(value)) or not t > 1e-10:
                    break
            if not (close or t > 1e-10):  # rounding, or margins beyond the range of floats, hide what is left
                break
            pull = self._slope(there)
            if norm(pull[0]) >= norm(s) and abs(slope) <= 64.0 * EPS * (1.0 + abs(value)):
                break
            b, p, rows, value, (s, H) = moved, there, losses, trial, pull
            if close:
                break
        return self._kept(image, b, p, rows)

    def _kept(self, image: Array, b: Array, p: Array, losses: Array) -> Shifted:
        """b with what is known there."""
        a = self.design.weights
        proven = Balance.of(image, b, a, p, p - self.onehot).proven(len(a), roundings(len(a)))
        return _memory.keep(self.design, Shifted(b, *proven, float(a @ losses), self.onehot, image, p))

    def _slope(self, p: Array) -> tuple[Array, Array]:
        """s and its Jacobian, roughly."""
        aP = self.design.weights[:, None] * p
        total = aP.sum(axis=0)
        return total - self._seen, np.diag(total) - p.T @ aP

    @cached_property
    def _seen(self) -> Array:
        """The weight of every class."""
        seen: Array = self.design.weights @ self.onehot
        return seen

    def _rows(self, image: Array, b: Array) -> tuple[Array, Array]:
        """Probabilities and losses of all rows; one pass for both, without the overhead of scipy's."""
        z = np.add(image, b, order="F")  # sums over classes run along columns
        z -= z.max(axis=1, keepdims=True)
        seen = z[self._every, self._labels]
        e = np.exp(z, out=z)
        total = e.sum(axis=1, keepdims=True)
        e /= total
        return e, np.log(total[:, 0]) - seen

    @cached_property
    def _labels(self) -> npt.NDArray[np.intp]:
        labels: npt.NDArray[np.intp] = np.argmax(self.onehot, axis=1)
        return labels

    @cached_property
    def _every(self) -> npt.NDArray[np.intp]:
        return np.arange(len(self.onehot))

    def probabilities(self, image: Array) -> Array:
        """Those of all rows at these margins."""
        if not self.intercept:
            return self._rows(image, np.zeros(self.classes))[0]
        found = self._found(image)
        assert isinstance(found, Shifted)
        return found.p

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x.reshape(self.classes, -1).T)
        return image

    def value_at(self, x: Array, image: Array) -> float:
        if not self.intercept:
            return super().value_at(x, image)
        return self._found(image).loss + 0.5 * self.l2 * float(x @ x)

    def losses(self, image: Array) -> Array:
        return self._rows(image, self.shift(image)[0])[1]

    def slopes(self, image: Array) -> Array:
        return self.probabilities(image) - self.onehot

    def gradient_at(self, x: Array, image: Array) -> Array:
        product: Array = self.design.pull(self.design.weights[:, None] * self.slopes(image)).T
        return np.ascontiguousarray(product).ravel() + self.l2 * x

    def hessian(self, image: Array, working: npt.NDArray[np.intp]) -> Array:
        """The Hessian at these margins on these variables: that in (W, b) without what b takes up."""
        X, a, K, d = self.design.X, self.design.weights, self.classes, self.design.shape[1]
        p = self.probabilities(image)
        parts = [working[(working >= k * d) & (working < (k + 1) * d)] - k * d for k in range(K)]
        if sp.issparse(X):
            used = np.unique(working % d)
            X, parts = X[:, used].tocsr(), [np.searchsorted(used, part) for part in parts]
        H, across = softmax_hessian(X, a, p, parts)
        if self.intercept:
            H -= across @ solve_across(np.diag(a @ p) - p.T @ (a[:, None] * p), across.T)
        H[np.diag_indices(len(H))] += self.l2
        return H

    def hessian_at(self, image: Array) -> Callable[[Array], Array]:
        """V -> the Hessian at these margins times the columns of V, by products with X."""
        a, K, p = self.design.weights, self.classes, self.probabilities(image)[:, :, None]

        def product(V: Array) -> Array:
            k = V.shape[1]
            by_columns = V.reshape(K, -1, k).transpose(1, 0, 2).reshape(-1, K * k)
            M = self.design.margins(by_columns).reshape(-1, K, k)
            M = M + self.intercept_product(image, M)
            M = a[:, None, None] * p * (M - np.sum(p * M, axis=1, keepdims=True))
            pulled = self.design.adjoint(M.reshape(len(a), -1)).reshape(-1, K, k).transpose(1, 0, 2)
            bent: Array = np.ascontiguousarray(pulled).reshape(V.shape) + self.l2 * V
            return bent

        return product

    def intercept_product(self, image: Array, M: Array) -> Array:
        """How the intercepts move with margins that move by M, N x K x k: K x k."""
        if not self.intercept:
            return np.zeros(M.shape[1:])
        a, p = self.design.weights, self.probabilities(image)
        pull = np.einsum("i,ijk->jk", a, p[:, :, None] * (M - np.einsum("ij,ijk->ik", p, M)[:, None, :]))
        return -solve_across(self._bend_of_b(p), pull)

    def intercept_adjoint(self, image: Array, u: Array) -> Array:
        """u^T d b / d W, K x d."""
        if not self.intercept:
            return np.zeros((self.classes, self.design.shape[1]))
        p = self.probabilities(image)
        q = solve_across(self._bend_of_b(p), u - u.mean())
        pulls = self.design.weights[:, None] * p * (q - (p @ q)[:, None])
        product: Array = -self.design.adjoint(pulls).T
        return product

    def _bend_of_b(self, p: Array) -> Array:
        aP = self.design.weights[:, None] * p
        H: Array = np.diag(aP.sum(axis=0)) - p.T @ aP
        return H

    def gradient_rounding(self, x: Array, image: Array) -> float:
        return self._rounding(x, image, CARRIED)

    def rounding_at(self, x: Array, image: Array) -> float:
        """A sharper `gradient_rounding`, for an image that is a product."""
        return self._rounding(x, image, 1.0)

    def _rounding(self, x: Array, image: Array, products: float) -> float:
        """By the module's text, for margins that err by no more than so many products."""
        design, size, K = self.design, norm(x), self.classes
        counts = design.weights > 0.0
        b, error_of_b = self.shift(image)
        root, m, p = np.sqrt(design.weights[counts]), image[counts] + b, self.probabilities(image)[counts]
        error = products * design.margin_rounding(x) * design.row_norms[counts] * size + TINY * len(x)
        furthest = (1.0 + self._follow) * float(error.max()) + error_of_b
        bend = ((p - p * p).sum(axis=1) + 16.0 * K * EPS) * math.exp(min(R * furthest, 700.0))
        bend = root * np.sqrt(np.minimum(bend, 0.5))
        through_margins = math.sqrt(0.5) * (norm(bend * error) + norm(bend) * error_of_b)
        of_exponents = EPS * math.sqrt(K) * (K + 8.0 + 2.0 * np.abs(m).max(axis=1) + 2.0 * float(np.abs(b).max()))
        through_margins += 0.5 * norm(root * of_exponents)
        gap = np.sqrt(np.sum((p - self.onehot[counts]) ** 2, axis=1))
        through_sum = design.pull_rounding * norm(root * (gap + K * EPS))
        spectral = math.sqrt(design.squared_norm) * (1.0 + gamma(len(m) + K + 16))
        return spectral * through_margins + through_sum + 2.0 * EPS * self.l2 * size + design.underflow

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        change = x_image - z_image
        spread = change.max(axis=1) - change.min(axis=1)  # a variance is at most range^2 / 4, wherever p is
        return min(majoriser_along(self.design, 0.5, z, x, spread, np.full(len(spread), 0.25)) + self.l2, self.L)


def softmax_hessian(X: Any, a: Array, p: Array, parts: Sequence[npt.NDArray[np.intp]]) -> tuple[Array, Array]:
    """sum_i a_i (diag(p_i) - p_i p_i^T) (x) x_i x_i^T on the variables whose columns are `parts`, class by class, and
    the part of it that has these variables' rows and the intercepts' columns."""
    ends = np.cumsum([0, *(len(part) for part in parts)])
    H, across = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], len(parts)))
    # diag(p) - p p^T, class by class and for all at once, a few rows at a time
    for first in range(0, len(a), HESSIAN_ROWS):
        rows = slice(first, first + HESSIAN_ROWS)
        block = X[rows].toarray() if sp.issparse(X) else X[rows]
        every = np.empty((len(block), ends[-1]))
        for k, part in enumerate(parts):
            place, root = slice(ends[k], ends[k + 1]), np.sqrt(a[rows] * p[rows, k])
            columns = block[:, part] * root[:, None]
            H[place, place] += columns.T @ columns
            across[place, k] += columns.T @ root
            every[:, place] = columns * np.sqrt(p[rows, k])[:, None]
        H -= every.T @ every
        across -= every.T @ (np.sqrt(a[rows])[:, None] * p[rows])
    return H, across


def solve_across(H: Array, b: Array) -> Array:
    """The solution of H s = b with sum s = 0, for sums of diag(p) - p p^T, which vanish where all p are 0 or 1: then a
    little is added to them, as much as rounding may have left out."""
    K = len(H)
    shifted = H + 1.0 / K + np.diag(np.full(K, 4.0 * K * EPS * (1.0 + float(np.trace(H)))))
    return np.asarray(np.linalg.solve(shifted, b), dtype=np.float64)
