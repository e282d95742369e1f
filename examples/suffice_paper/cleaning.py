r"""Data hypercleaning: one hyperparameter for every training sample, its weight.

    minimise   F(s) = (1/M) sum_j ce(W_s; z_j, t_j)          over  low <= s_i <= high,       held-out samples (z_j, t_j)
    where      W_s  = argmin_W  (1/N) sum_i s_i ce(W; x_i, y_i) + (mu/2) ||W||^2,            training samples (x_i, y_i)

ce being the cross-entropy of K classes, P the probabilities of W's margins X W. With a_i = s_i / N and labels Y as rows
of the identity,

    grad = X^T a (P - Y) + mu W,       H V = X^T a (P o (X V - rowsum(P o X V))) + mu V,

and the adjoint gradient of F takes one system:  H q = grad F(W),   dF/ds_i = -(P - Y)_i . (X q)_i / N.

*Newton's method by conjugate gradients.* Systems are solved to a share FORCING of their right-hand side, those of
Newton steps near the end to what is asked for. With G = X^T X / N = Q diag(g) Q^T, made once, and the K x K matrix
S = sum_i a_i (diag(P_i) - P_i P_i^T), the matrix  S x G + mu  takes its place as a preconditioner: it is inverted in
the eigenvectors of both. `work` counts products with X or X^T and a matrix of K columns, those with held-out rows by
their share.

*What is proven.* ||W - W_s|| <= R = (||grad|| + e) / mu, and with |ce''| <= 1/2 in the margins,

    |F(W_s) - F(W)| <= ||grad F(W)|| R + ||Z||^2 R^2 / (4 M) + e_F.

e and e_F bound what rounding does, for sums in any order: with gamma_n = n eps / (1 - n eps), margins of row i err by
d_i = gamma_d ||x_i|| ||W||, probabilities by d_i / 2 + c, c = eps sqrt(K) (K + 8 + 2 max |margins|), and

    e   = sum_i a_i ||x_i|| (d_i / 2 + c + gamma_(N+8) ||P_i - Y_i||) + 2 eps mu ||W||,
    e_F = mean_j (2^(1/2) d_j) + c + gamma_(M+8) F.

X may live elsewhere (torch on a GPU); everything of its size stays there. A solution is W and q, as NumPy arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, like, namespace, norm, positive, vector
from suffice.evaluation import Evaluation
from suffice.lazy import cached_property
from suffice.prove.loss_at import root_error
from suffice.rows.design import Design
from suffice.rows.gram import gram
from suffice.rows.rounding import gamma

FORCING = 0.1  # of the gradient: what is left of a Newton system
FINEST, COARSEST = 1e-8, 1e-2  # of its right-hand side: what is left of the adjoint system
AHEAD = 0.3  # of what is asked for: what a last Newton step aims at
MOST_STEPS, MOST_PRODUCTS, HALVINGS = 100, 2000, 30


@dataclass(frozen=True, eq=False)
class At:
    """The lower level at W: probabilities, f and its gradient (where X lives), and the proven radius."""

    W: Any
    P: Any
    value: float
    gradient: Any
    size: float
    radius: float
    rounding: float  # the share of the radius that no further step removes


@dataclass(frozen=True, eq=False)
class HeldOutAt:
    """F at W, its gradient and what bounds the error of its root."""

    value: float
    gradient: Any
    slope: float
    bend: float
    rounding: float

    def error(self, radius: float) -> float:
        """The proven error of F^(1/2) for a W within this radius of the minimiser."""
        change = self.slope * radius + self.bend * radius * radius + self.rounding
        if not change < math.inf:
            return math.inf
        return root_error(self.value, self.value - change, self.value + change) * (1.0 + 8.0 * EPS)


class SampleCleaning:
    """Weights of training samples as hyperparameters: an objective for `suffice.tune`, with gradients.

    theta has the weight s_i of every training sample. The model is multinomial logistic regression without an
    intercept (append a column of ones for one): it minimises (1/N) sum_i s_i ce_i(W) + (l2/2) ||W||^2, and F is the
    mean cross-entropy of `X_held_out`. `classes` is the number of classes, labels being 0 to classes - 1.
    `newton_steps` and `products` count what was done so far; `work` of an evaluation is in products with X.
    """

    def __init__(self, X: Any, y: Any, X_held_out: Any, y_held_out: Any, *, l2: float, classes: int) -> None:
        self.train, self.held_out = Design.of(X), Design.of(X_held_out)
        self.mu, self.classes = positive(l2, "l2"), classes
        self.labels = [
            _onehot(*pair, classes) for pair in ((self.train, y, "y"), (self.held_out, y_held_out, "y_held_out"))
        ]
        self.newton_steps, self.products = 0, 0.0

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        labels = [host(part) for part in self.labels]
        return {"train": self.train, "held out": self.held_out, "labels": labels, "l2": self.mu}

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """The root of F, proven to err by at most `within`."""
        return self._evaluate(theta, warm, lambda radius, at: at.error(radius) <= within)

    def evaluate_weights(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """The root of F at weights W within this distance of the minimiser."""
        return self._evaluate(theta, warm, lambda radius, at: radius <= within)

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with the gradient of F, from a system solved to the accuracy that W has."""
        W, q0 = self._start(evaluation)
        s, before = like(evaluation.point, self.train.X), self.products
        now, F = self._at(W, s), self._held_out(W)
        relative = now.radius / max(norm(host(W).ravel()), 1e-300)
        q = self._solve(now, s, F.gradient, min(max(relative, FINEST), COARSEST) * F.slope, q0)
        pulls = self._times(q)
        slopes = -((now.P - self.labels[0]) * pulls).sum(1) / self.train.shape[0]
        work = float(evaluation.work) + self.products - before
        return replace(evaluation, gradient=host(slopes), solutions=(host(W), host(q)), work=work)

    def _evaluate(self, theta: Array, warm: Evaluation | None, enough: Any) -> Evaluation:
        theta = vector(theta, "theta")
        if theta.shape != (self.train.shape[0],) or not (np.isfinite(theta).all() and (theta >= 0.0).all()):
            raise ValueError(f"theta must hold {self.train.shape[0]} non-negative weights of samples")
        W, q = self._start(warm)
        s, before = like(theta, self.train.X), self.products
        now, F = self._at(W, s), self._held_out(W)
        for _ in range(MOST_STEPS):
            if enough(now.radius, F) or now.radius <= 2.0 * now.rounding:
                break
            goal = AHEAD * now.size * self._share(now, F, enough)
            after = self._newton(now, s, goal)
            if after is None:
                break
            now, F = after, self._held_out(after.W)
        solutions = (host(now.W),) if q is None else (host(now.W), host(q))
        root = math.sqrt(F.value)
        return Evaluation(theta, [root], [F.error(now.radius)], self.products - before, solutions, distance=now.radius)

    def _share(self, now: At, F: HeldOutAt, enough: Any) -> float:
        """Of the radius: what would be enough if F stayed what it is, to a factor of 2."""
        share = 1.0
        while share > 1e-12 and not enough(share * now.radius, F):
            share *= 0.5
        return share

    def _newton(self, now: At, s: Any, goal: float) -> At | None:
        """One Newton step, its system solved as far as `goal` needs; None where rounding is all that is left."""
        forcing = min(FORCING, math.sqrt(now.size)) * now.size
        D = self._solve(now, s, -now.gradient, max(forcing, goal), None)
        self.newton_steps += 1
        slope, t = float((now.gradient * D).sum()), 1.0
        for _ in range(HALVINGS):
            after = self._at(now.W + t * D, s)
            if after.value <= now.value + 1e-4 * t * slope or after.size <= 0.5 * now.size:
                return after
            t *= 0.5
        return None

    def _solve(self, now: At, s: Any, B: Any, tolerance: float, start: Any) -> Any:
        """x with ||H x - B|| <= tolerance, by conjugate gradients."""
        a = (s / self.train.shape[0])[:, None]
        g, Q = self._spectrum
        weighted = a * now.P
        S = host(-(weighted.T @ now.P))
        S[np.diag_indices(self.classes)] += host(weighted.sum(0))
        sigma, U = np.linalg.eigh(S)
        scale, U = like(1.0 / (np.outer(g, np.maximum(sigma, 0.0)) + self.mu), self.train.X), like(U, self.train.X)

        def product(V: Any) -> Any:
            M = self._times(V)
            M = now.P * (M - (now.P * M).sum(1)[:, None])
            return self._pull(a * M) + self.mu * V

        def preconditioned(R: Any) -> Any:
            return Q @ ((Q.T @ R @ U) * scale) @ U.T

        x = 0.0 * B if start is None else start
        r = B if start is None else B - product(x)
        z = preconditioned(r)
        p, rz = z, float((r * z).sum())
        for _ in range(MOST_PRODUCTS):
            if float((r * r).sum()) <= tolerance * tolerance or rz <= 0.0:
                break
            Hp = product(p)
            t = rz / float((p * Hp).sum())
            x, r = x + t * p, r - t * Hp
            z = preconditioned(r)
            rz, before = float((r * z).sum()), rz
            p = z + (rz / before) * p
        return x

    def _start(self, warm: Evaluation | None) -> tuple[Any, Any]:
        X = self.train.X
        known = () if warm is None else warm.solutions
        W = np.zeros((self.train.shape[1], self.classes)) if not known else np.asarray(known[0], dtype=np.float64)
        return like(W, X), like(known[1], X) if len(known) > 1 else None

    def _times(self, V: Any) -> Any:
        self.products += 1
        return self.train.X @ V

    def _pull(self, R: Any) -> Any:
        self.products += 1
        return self.train.X.T @ R

    def _at(self, W: Any, s: Any) -> At:
        N, d = self.train.shape
        a, Y, size = s / N, self.labels[0], norm(host(W).ravel())
        P, losses, largest = _softmax(self._times(W), Y)
        gap = P - Y
        gradient = self._pull(a[:, None] * gap) + self.mu * W
        c = _rounding(self.classes, largest)
        row_norms = self._row_norms[0]
        of_rows = 0.5 * gamma(d) * row_norms * size + c + gamma(N + 8) * (gap * gap).sum(1) ** 0.5
        e = float((a * row_norms * of_rows).sum()) * (1.0 + gamma(N + 8)) + 2.0 * EPS * self.mu * size
        length = norm(host(gradient).ravel())
        value = float((a * losses).sum()) + 0.5 * self.mu * size * size
        slack = 1.0 + gamma(d * self.classes + 8)
        return At(W, P, value, gradient, length, (length + e) / self.mu * slack, e / self.mu)

    def _held_out(self, W: Any) -> HeldOutAt:
        (M, d), size = self.held_out.shape, norm(host(W).ravel())
        self.products += 2.0 * M / self.train.shape[0]
        P, losses, largest = _softmax(self.held_out.X @ W, self.labels[1])
        gradient = self.held_out.X.T @ ((P - self.labels[1]) / M)
        c, row_norms = _rounding(self.classes, largest), self._row_norms[1]
        mean = float(row_norms.sum()) / M
        value = float(losses.sum()) / M
        slope = norm(host(gradient).ravel())
        blur = mean * (0.5 * gamma(d) * self.held_out.largest_row * size + c + gamma(M + 8) * math.sqrt(2.0))
        rounding = math.sqrt(2.0) * gamma(d) * mean * size + c + gamma(M + 8) * value
        return HeldOutAt(value, gradient, slope + blur, 0.25 * self.held_out.squared_norm, rounding)

    @cached_property
    def _row_norms(self) -> tuple[Any, Any]:
        return like(self.train.row_norms, self.train.X), like(self.held_out.row_norms, self.held_out.X)

    @cached_property
    def _spectrum(self) -> tuple[Array, Any]:
        g, Q = np.linalg.eigh(gram(self.train.X)[0] / self.train.shape[0])
        return np.maximum(g, 0.0), like(Q, self.train.X)


def _softmax(m: Any, onehot: Any) -> tuple[Any, Any, float]:
    """Probabilities, cross-entropies and the largest margin."""
    xp = namespace(m)
    largest = float(xp.max(abs(m)))
    m = m - xp.max(m, axis=1)[:, None]
    e = xp.exp(m)
    total = e.sum(1)
    return e / total[:, None], xp.log(total) - (onehot * m).sum(1), largest


def _rounding(classes: int, largest: float) -> float:
    return EPS * math.sqrt(classes) * (classes + 8.0 + 2.0 * largest)


def _onehot(design: Design, y: Any, name: str, classes: int) -> Any:
    labels = np.asarray(y)
    rows = design.shape[0]
    if labels.shape != (rows,) or labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < classes)).all():
        raise ValueError(f"{name} must hold {rows} labels from 0 to {classes - 1}")
    return like(np.eye(classes)[labels], design.X)
