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
- A computed b with s = sum_i a_i (p_i - onehot_i) errs by at most -log(1 - R ||s|| / h) / R, R = 2^(1/2), h the least
  eigenvalue of sum_i a_i H_i across sum b = 0, if that is a number. Proof: in a direction u of length 1 the third
  derivative is a sum of third central moments of u, each at most range(u) <= R times the variance: the second
  derivative falls no faster than exp(-R t), and the slope h (1 - exp(-R t)) / R that it adds up to makes up for ||s||.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import softmax

from suffice.arrays import EPS, Array, norm
from suffice.terms.design import OF_FACTORS, Design
from suffice.terms.linear import CARRIED, MarginModel, majoriser_along
from suffice.terms.rounding import TINY, block_length, dense_product, gamma, roundings

R = math.sqrt(2.0)
MOST_STEPS = 100


@dataclass(frozen=True, eq=False)
class Shifted:
    """Margins with their b, a bound on its error, and the probabilities there. No array is ever written to."""

    image: Array
    b: Array
    error: float
    p: Array


@dataclass(frozen=True, eq=False)
class Multinomial(MarginModel):
    """The multinomial loss with a ridge; `onehot` is N x K, x is W row by row, images are N x K."""

    design: Design
    onehot: Array
    intercept: bool
    l2: float = 0.0
    _latest: list[Shifted] = field(default_factory=list, init=False, repr=False)

    @property
    def curvature(self) -> float:
        return 0.5

    @property
    def classes(self) -> int:
        return int(self.onehot.shape[1])

    @cached_property
    def reach(self) -> float:
        """A Lipschitz constant of b(W)."""
        return self._follow * float(self.design.row_norms[self.design.weights > 0.0].max())

    @property
    def _follow(self) -> float:
        return (self.classes - 1) * math.sqrt(0.5 * self.classes) if self.intercept else 0.0

    def shift(self, image: Array) -> tuple[Array, float]:
        """b at these margins and a proven bound on its error."""
        if not self.intercept:
            return np.zeros(self.classes), 0.0
        found = self._found(image)
        return found.b, found.error

    def _found(self, image: Array) -> Shifted:
        for known in self._latest:
            if known.image is image or np.array_equal(known.image, image):
                return known
        a = self.design.weights
        b = np.log(np.maximum(a @ self.onehot, 1e-300))
        mean = a @ image
        b = b - b.mean() - (mean - mean.mean())
        p, losses = self._rows(image, b)
        value = float(a @ losses)
        s, H, noise = self._pull(image, b, p)
        for _ in range(MOST_STEPS):
            if norm(s) <= noise:
                break
            step = _solve_across(H, -s)
            t, slope = 2.0, float(s @ step)
            while True:
                t *= 0.5
                moved = b + t * step
                moved -= moved.mean()
                there, losses = self._rows(image, moved)
                trial = float(a @ losses)
                if trial <= value + 1e-4 * t * slope + 8.0 * EPS * abs(value) or not t > 1e-10:
                    break
            pull = self._pull(image, moved, there)
            if norm(pull[0]) >= norm(s) and abs(slope) <= 64.0 * EPS * (abs(value) + 1e-300):
                break
            b, p, value, (s, H, noise) = moved, there, trial, pull
        p.setflags(write=False)
        self._latest[:] = [Shifted(image, b, self._error(s, H, noise), p)]
        return self._latest[0]

    def _rows(self, image: Array, b: Array) -> tuple[Array, Array]:
        """Probabilities and losses of all rows; one pass for both, without the overhead of scipy's."""
        z = image + b
        z -= z.max(axis=1, keepdims=True)
        e = np.exp(z)
        total = e.sum(axis=1, keepdims=True)
        return e / total, np.log(total[:, 0]) - np.sum(self.onehot * z, axis=1)

    def _probabilities(self, image: Array) -> Array:
        return self._found(image).p if self.intercept else self._rows(image, np.zeros(self.classes))[0]

    def _pull(self, image: Array, b: Array, p: Array) -> tuple[Array, Array, float]:
        """s, its Jacobian, and a bound on the rounding of s."""
        a = self.design.weights
        aP = a[:, None] * p
        H = np.diag(aP.sum(axis=0)) - p.T @ aP
        gap, spread = p - self.onehot, p * (1.0 - p)
        summing = gamma(roundings(len(a)) + OF_FACTORS)
        sizes = summing * (a @ np.abs(gap)) + EPS * (self.classes + 8.0) * (a @ spread)
        shaken = 4.0 * EPS * (np.abs(image).max(axis=1) + float(np.abs(b).max()))  # of exponents
        sizes += (a * shaken) @ spread
        return dense_product(gap, a, block_length(len(a))), H, norm(sizes) * (1.0 + 2.0 * summing) + 1e-300

    def _error(self, s: Array, H: Array, noise: float) -> float:
        K = self.classes
        values = np.linalg.eigvalsh(H + float(np.trace(H)) / K * np.ones((K, K)) / K)
        least = float(values[0]) - 64.0 * EPS * K * float(np.trace(H))
        share = R * (norm(s) + noise) / least if least > 0.0 else math.inf
        return -math.log1p(-share) / R * (1.0 + 8.0 * EPS) if share < 1.0 else math.inf

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x.reshape(self.classes, -1).T)
        return image

    def losses(self, image: Array) -> Array:
        return self._rows(image, self.shift(image)[0])[1]

    def slopes(self, image: Array) -> Array:
        return self._probabilities(image) - self.onehot

    def gradient_at(self, x: Array, image: Array) -> Array:
        product: Array = self.design.pull(self.design.weights[:, None] * self.slopes(image)).T
        return np.ascontiguousarray(product).ravel() + self.l2 * x

    def hessian(self, image: Array, working: npt.NDArray[np.intp]) -> Array:
        """The Hessian at these margins on these variables: that in (W, b) without what b takes up."""
        X = self.design.X.toarray() if sp.issparse(self.design.X) else self.design.X
        a, K, d = self.design.weights, self.classes, X.shape[1]
        p = self._probabilities(image)
        parts = [working[(working >= k * d) & (working < (k + 1) * d)] - k * d for k in range(K)]
        ends = np.cumsum([0, *(len(part) for part in parts)])
        columns = [X[:, part] for part in parts]
        H, across, of_b = np.empty((len(working), len(working))), np.empty((len(working), K)), np.empty((K, K))
        for k in range(K):
            for j in range(k + 1):
                c = a * p[:, k] * ((k == j) - p[:, j])
                here, there = slice(ends[k], ends[k + 1]), slice(ends[j], ends[j + 1])
                block = columns[k].T @ (c[:, None] * columns[j])
                H[here, there], H[there, here] = block, block.T
                across[here, j], across[there, k] = columns[k].T @ c, columns[j].T @ c
                of_b[k, j] = of_b[j, k] = float(c.sum())
        if self.intercept:
            H -= across @ _solve_across(of_b, across.T)
        H[np.diag_indices(len(H))] += self.l2
        return H

    def hessian_at(self, image: Array) -> Callable[[Array], Array]:
        """V -> the Hessian at these margins times the columns of V, by products with X."""
        a, K, p = self.design.weights, self.classes, self._probabilities(image)[:, :, None]

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

    def hessian_diagonal(self, image: Array) -> Array:
        """That of the Hessian, but for what the intercepts take up."""
        p = self._probabilities(image)
        C = self.design.weights[:, None] * p * (1.0 - p)
        squares = self.design.X.multiply(self.design.X) if sp.issparse(self.design.X) else self.design.X**2
        return np.asarray(squares.T @ C).T.ravel() + self.l2

    def intercept_product(self, image: Array, M: Array) -> Array:
        """How the intercepts move with margins that move by M, N x K x k: K x k."""
        if not self.intercept:
            return np.zeros(M.shape[1:])
        a, p = self.design.weights, self._probabilities(image)
        pull = np.einsum("i,ijk->jk", a, p[:, :, None] * (M - np.einsum("ij,ijk->ik", p, M)[:, None, :]))
        return -_solve_across(self._bend_of_b(p), pull)

    def intercept_adjoint(self, image: Array, u: Array) -> Array:
        """u^T d b / d W, K x d."""
        if not self.intercept:
            return np.zeros((self.classes, self.design.shape[1]))
        p = self._probabilities(image)
        q = _solve_across(self._bend_of_b(p), u - u.mean())
        pulls = self.design.weights[:, None] * p * (q - (p @ q)[:, None])
        product: Array = -self.design.adjoint(pulls).T
        return product

    def _bend_of_b(self, p: Array) -> Array:
        aP = self.design.weights[:, None] * p
        H: Array = np.diag(aP.sum(axis=0)) - p.T @ aP
        return H

    def gradient_rounding(self, x: Array, image: Array) -> float:
        design, size, K = self.design, norm(x), self.classes
        counts = design.weights > 0.0
        b, error_of_b = self.shift(image)
        root = np.sqrt(design.weights[counts])
        m = image[counts] + b
        error = CARRIED * design.margin_rounding(x) * design.row_norms[counts] * size + TINY * len(x)
        error = error + self._follow * float(error.max()) + error_of_b
        error = error + EPS * math.sqrt(K) * (K + 8.0 + 2.0 * np.abs(m).max(axis=1) + 2.0 * float(np.abs(b).max()))
        gap = np.sqrt(np.sum((softmax(m, axis=1) - self.onehot[counts]) ** 2, axis=1))
        through_margins = math.sqrt(design.squared_norm) * norm(root * 0.5 * error)
        through_sum = design.pull_rounding * norm(root * (gap + K * EPS))
        return through_margins + through_sum + 2.0 * EPS * self.l2 * size + design.underflow

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        change = x_image - z_image
        spread = change.max(axis=1) - change.min(axis=1)  # a variance is at most range^2 / 4, wherever p is
        return min(majoriser_along(self.design, 0.5, z, x, spread, np.full(len(spread), 0.25)) + self.l2, self.L)


def _solve_across(H: Array, b: Array) -> Array:
    """The solution of H s = b with sum s = 0, for sums of diag(p) - p p^T, which vanish where all p are 0 or 1: then a
    little is added to them, as much as rounding may have left out."""
    K = len(H)
    shifted = H + 1.0 / K + np.diag(np.full(K, 4.0 * K * EPS * (1.0 + float(np.trace(H)))))
    return np.asarray(np.linalg.solve(shifted, b), dtype=np.float64)
