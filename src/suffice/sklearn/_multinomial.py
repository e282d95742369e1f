r"""Multinomial logistic regression with K classes as a lower-level problem:

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

Held-out scores: with rho >= ||W - W_hat||, ||dm_i|| <= ||x_i|| rho + beta, beta = (K - 1)(K/2)^(1/2) max_j ||x_j|| rho
+ error of b. The Brier score phi = ||p - onehot||^2 has a residual p - onehot that is 1/2-Lipschitz in m_i, and |phi''|
<= 2/4 + 2 = 5/2; the log loss has phi'' <= 1/2. Losses move by the first-order bound of `suffice.held_out`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax, softmax

from suffice.arrays import EPS, Array, norm
from suffice.held_out import LossAt, root_error
from suffice.lower.newton_whole import NewtonWhole
from suffice.lower.quadratic import Indices
from suffice.problem import Composite
from suffice.sklearn.folds import FLOOR, penalised
from suffice.terms.design import OF_FACTORS, Design
from suffice.terms.rounding import TINY, block_length, dense_product, gamma, norm_rounding, roundings
from suffice.terms.smooth import CARRIED, majoriser_along

R = math.sqrt(2.0)
MOST_STEPS = 100
LARGEST_HESSIAN, LARGEST_DENSE = 2000, 10_000_000


@dataclass(frozen=True, eq=False)
class Multinomial:
    """The multinomial loss with a ridge; `onehot` is N x K, x is W row by row, images are N x K."""

    design: Design
    onehot: Array
    intercept: bool
    l2: float = 0.0
    _latest: list[tuple[Array, Array, float]] = field(default_factory=list, init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Multinomial)
            and self.design is other.design
            and np.array_equal(self.onehot, other.onehot)
            and (self.intercept, self.l2) == (other.intercept, other.l2)
        )

    __hash__ = None  # type: ignore[assignment]

    def fingerprint(self) -> dict[str, object]:
        return {"design": self.design, "onehot": self.onehot, "intercept": self.intercept, "l2": self.l2}

    @property
    def rounding_is_known(self) -> bool:
        return True

    @property
    def L(self) -> float:  # noqa: N802 (the symbol)
        return 0.5 * self.design.squared_norm + self.l2

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
        for known, b, error in self._latest:
            if known is image:
                return b, error
        a = self.design.weights
        shares = a @ self.onehot
        b = np.log(np.maximum(shares, 1e-300))
        b = b - b.mean() - (a @ image - (a @ image).mean())
        value = self._value(image, b)
        for _ in range(MOST_STEPS):
            s, H, noise = self._pull(image, b)
            if norm(s) <= noise:
                break
            step = _solve_across(H, -s)
            t, slope = 1.0, float(s @ step)
            trial = self._value(image, b + step)
            while trial > value + 1e-4 * t * slope + 8.0 * EPS * abs(value) and t > 1e-10:
                t *= 0.5
                trial = self._value(image, b + t * step)
            moved = b + t * step
            moved = moved - moved.mean()
            if norm(self._pull(image, moved)[0]) >= norm(s) and abs(slope) <= 64.0 * EPS * (abs(value) + 1e-300):
                break
            b, value = moved, trial
        error = self._error(image, b)
        self._latest[:] = [(image, b, error)]
        return b, error

    def _value(self, image: Array, b: Array) -> float:
        return float(-self.design.weights @ np.sum(self.onehot * log_softmax(image + b, axis=1), axis=1))

    def _pull(self, image: Array, b: Array) -> tuple[Array, Array, float]:
        """s, its Jacobian, and a bound on the rounding of s."""
        a, p = self.design.weights, softmax(image + b, axis=1)
        aP = a[:, None] * p
        H = np.diag(aP.sum(axis=0)) - p.T @ aP
        gap = p - self.onehot
        summing = gamma(roundings(len(a)) + OF_FACTORS)
        sizes = summing * (a @ np.abs(gap)) + EPS * (self.classes + 8.0) * (a @ (p * (1.0 - p)))
        shaken = 4.0 * EPS * (np.abs(image).max(axis=1) + float(np.abs(b).max()))  # of exponents
        sizes += (a * shaken) @ (p * (1.0 - p))
        return dense_product(gap, a, block_length(len(a))), H, norm(sizes) * (1.0 + 2.0 * summing) + 1e-300

    def _error(self, image: Array, b: Array) -> float:
        s, H, noise = self._pull(image, b)
        K = self.classes
        values = np.linalg.eigvalsh(H + float(np.trace(H)) / K * np.ones((K, K)) / K)
        least = float(values[0]) - 64.0 * EPS * K * float(np.trace(H))
        share = R * (norm(s) + noise) / least if least > 0.0 else math.inf
        return -math.log1p(-share) / R * (1.0 + 8.0 * EPS) if share < 1.0 else math.inf

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x.reshape(self.classes, -1).T)
        return image

    def value(self, x: Array) -> float:
        return self.value_at(x, self.image(x))

    def gradient(self, x: Array) -> Array:
        return self.gradient_at(x, self.image(x))

    def value_at(self, x: Array, image: Array) -> float:
        return self._value(image, self.shift(image)[0]) + 0.5 * self.l2 * float(x @ x)

    def gradient_at(self, x: Array, image: Array) -> Array:
        gap = softmax(image + self.shift(image)[0], axis=1) - self.onehot
        product: Array = self.design.pull(self.design.weights[:, None] * gap).T
        return np.ascontiguousarray(product).ravel() + self.l2 * x

    def hessian(self, image: Array, working: Indices) -> Array:
        """The Hessian at these margins on these variables: that in (W, b) without what b takes up."""
        X = self.design.X.toarray() if sp.issparse(self.design.X) else self.design.X
        a, K, d = self.design.weights, self.classes, X.shape[1]
        p = softmax(image + self.shift(image)[0], axis=1)
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


@dataclass(frozen=True)
class SoftmaxBrier:
    """phi = ||p - onehot||^2, p the probabilities of margins m."""

    curvature: float = 2.5
    slope: float = 0.5

    def residuals(self, m: Array, onehot: Array) -> Array:
        result: Array = softmax(m, axis=1) - onehot
        return result

    def derivative(self, m: Array, onehot: Array) -> Array:
        p = softmax(m, axis=1)
        gap = p - onehot
        result: Array = 2.0 * p * (gap - np.sum(p * gap, axis=1, keepdims=True))
        return result


@dataclass(frozen=True)
class SoftmaxLog:
    """phi = -log p of the class seen."""

    curvature: float = 0.5
    slope: float = math.inf

    def residuals(self, m: Array, onehot: Array) -> Array:
        result: Array = np.sqrt(np.maximum(-np.sum(onehot * log_softmax(m, axis=1), axis=1, keepdims=True), 0.0))
        return result

    def derivative(self, m: Array, onehot: Array) -> Array:
        result: Array = softmax(m, axis=1) - onehot
        return result


SOFTMAX_SCORES: dict[str, SoftmaxBrier | SoftmaxLog] = {
    "neg_brier_score": SoftmaxBrier(),
    "neg_log_loss": SoftmaxLog(),
}


@dataclass(frozen=True, eq=False)
class HeldOutSoftmax:
    """The loss share sum_i v_i phi(m_i, y_i) on held-out rows, phi the Brier score or the log loss."""

    design: Design
    onehot: Array
    scoring: str
    share: float
    train: Multinomial

    def at(self, w: Array) -> LossAt:
        v, train = self.design.weights, self.train
        b, error_of_b = train.shift(train.image(w))
        m = self.design.margins(w.reshape(train.classes, -1).T) + b
        phi = SOFTMAX_SCORES[self.scoring]
        residuals = (np.sqrt(self.share * v)[:, None] * phi.residuals(m, self.onehot)).ravel()
        pulls = phi.derivative(m, self.onehot)
        loss = float(residuals @ residuals)
        blur = self.design.pull_rounding * norm((np.sqrt(v)[:, None] * pulls).ravel())
        pulls = v[:, None] * pulls
        gradient = norm(self.design.adjoint(pulls).ravel()) + blur
        pull, spectral = norm(pulls.sum(axis=0)), math.sqrt(self.design.squared_norm)
        pull += gamma(len(v)) * norm(np.abs(pulls).sum(axis=0))
        spread = self.design.spread(w)  # rounding of the margins
        blurred = (
            self.design.margin_rounding(w) * norm(w) * float(np.sqrt(np.sum(pulls**2, axis=1)) @ self.design.row_norms)
        )
        of_sums = 4.0 * EPS * math.sqrt(train.classes) * (float(np.abs(m).max()) + train.classes + 8.0)
        rounding = norm_rounding(residuals)

        def error(radius: float) -> float:
            reach = min(radius, sys.float_info.max)
            beta = float(train.reach * reach + error_of_b + of_sums)
            far = float(spectral * reach + beta + spread)
            if not far < 1e150:
                return math.inf
            change = self.share * (gradient * reach + pull * beta + blurred + 0.5 * phi.curvature * far * far)
            bound = root_error(loss, loss - change, loss + change)
            return min(bound, math.sqrt(self.share) * phi.slope * far) + rounding

        return LossAt(residuals, error)


class MultinomialFold:
    """One fold of multinomial logistic regression; `y` holds the classes' numbers."""

    def __init__(self, X: Any, y: Array, classes: int, sample_weight: Array, intercept: bool) -> None:
        self.onehot = np.eye(classes)[y.astype(int)]
        self.classes, self.intercept = classes, intercept
        seen = sample_weight @ self.onehot
        if intercept and not (seen > 0.0).all():
            missing = int(np.argmin(seen))
            raise ValueError(f"the training samples of a fold lack class number {missing}: its intercept is not finite")
        centred = intercept and not sp.issparse(X)
        self.mean = sample_weight @ X / sample_weight.sum() if centred else np.zeros(X.shape[1])
        self.design = Design.of(X - self.mean if centred else X, sample_weight)
        self.centred = centred

    @property
    def solver(self) -> str | NewtonWhole:
        """Newton's method as long as its matrices are of moderate size, else FISTA."""
        small = self.size <= LARGEST_HESSIAN and math.prod(self.design.shape) <= LARGEST_DENSE
        return NewtonWhole() if small else "fista_adaptive"

    def _model(self, l2: float) -> Multinomial:
        return Multinomial(self.design, self.onehot, self.intercept, l2)

    @property
    def size(self) -> int:
        return self.classes * self.design.shape[1]

    @cached_property
    def l2_floor(self) -> float:
        """What stands in for l2 = 0."""
        return max(FLOOR * 0.5 * self.design.squared_norm, 1e-300)

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which W = 0 is the solution."""
        return float(np.max(np.abs(self._model(0.0).gradient(np.zeros(self.size)))))

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties, one for all columns or one each; l2 = 0 becomes the floor of
        `suffice.sklearn.folds`."""
        l1, l2 = (np.tile(part, self.classes) if isinstance(part, np.ndarray) else part for part in (l1, l2))
        return penalised(self._model, l1, l2, self.l2_floor, self.size)

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> HeldOutSoftmax:
        """This fold's part of minus the mean score over `folds` folds."""
        rows = X - self.mean if self.centred else X
        onehot = np.eye(self.classes)[y.astype(int)]
        return HeldOutSoftmax(Design.of(rows, sample_weight), onehot, scoring, 1.0 / folds, self._model(0.0))

    def coefficients(self, w: Array) -> tuple[Array, Array]:
        """W and the intercepts of the data as they were given; a constant added to all is free, and they sum to 0."""
        model, W = self._model(0.0), w.reshape(self.classes, -1)
        b = model.shift(model.image(w))[0] - W @ self.mean
        return W, b - b.mean()
