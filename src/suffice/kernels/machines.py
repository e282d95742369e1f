r"""Kernels, and machines with proofs: support vector machines by their duality gap, kernel ridge regression by its
residual.

H is the space of the kernel k, f = sum_i beta_i k(x_i, .) in H, f_i = f(x_i), and m_i = f_i + b.

**Support vector machines**   minimise over f in H and b

    P(f, b) = 1/2 ||f||^2 + sum_i C_i psi_i(m_i),        psi = max(0, 1 - y m)  or  max(0, |y - m| - epsilon).

For beta with sum_i beta_i = 0 and 0 <= y_i beta_i <= C_i (or |beta_i| <= C_i) let G be the sum of

    C_i psi_i(m_i) - beta_i (y_i - m_i) + epsilon |beta_i|  >=  0,

P(f, b) minus the dual value of beta. No part of it cancels: with t = 1 - y m and alpha = y beta it is (C - alpha) t for
t > 0 and -alpha t else; with rho = y - m it is |beta| (epsilon - rho sign beta) for |rho| <= epsilon, beyond that (C -
|beta|)(|rho| - epsilon) or, where rho beta < 0, (C + |beta|)(|rho| - epsilon) + 2 epsilon |beta|. Minimised over b, P
is 1-strongly convex in f, and so is minus the dual function in the norm of H. Each gives ||f - f_hat||^2 / 2, so that

    ||f - f_hat||_H  <=  sqrt(G)        and hence        |f(x) - f_hat(x)|  <=  sqrt(k(x, x) G).

The sum of the beta_i is 0 exactly, not only up to rounding: they are multiples of a power of 2 so large that their sums
are exact (`feasible`). What rounding does to the m_i is accounted for by the largest value of every part over all m_i
that are possible; parts are convex in m_i, so that is at one of two ends.

**The intercept** minimises a sum of hinges of b with kinks at points p_i that are y_i - f_i, or y_i - f_i - epsilon and
y_i - f_i + epsilon: the slope begins at -V, V the sum of the C_i with y_i > 0 (of all), and every kink adds its C_i. So
minimisers form the interval of quantiles of the p_i at level V, weighted by C. b is its middle, as libsvm has it, and
the only one if there is a free support vector. Both ends are quantiles, and so neither moves by more than the largest
|f_i - f_hat_i|:    |b - b_hat| <= max_i sqrt(k(x_i, x_i)) ||f - f_hat||_H + what rounding adds.

**Kernel ridge regression**   minimises sum_i s_i (y_i - f_i)^2 + alpha ||f||^2, that is (K + alpha S^-1) beta = y. With
the residual rho of this system, z = S^(1/2) rho, and eigenvalues l of S^(1/2) K S^(1/2),

    ||f - f_hat||_H  <=  max_l sqrt(l)/(l + alpha) ||z||  <=  ||z|| / (2 sqrt(alpha)).

**Kernels**

    rbf          exp(-gamma ||x - z||_2^2)
    laplacian    exp(-gamma ||x - z||_1)
    linear       x . z
    poly         (gamma x . z + coef0)^degree,        coef0 >= 0, so that it is positive semidefinite

A matrix K = fl(k(x_i, z_j)) comes with E >= |K - k|, entry by entry; "linear" is the polynomial with gamma = degree = 1
and coef0 = 0. With u = 2^-53 and d columns:

- distances are sums of d non-negative terms, made from differences, and err by gamma_{d+2} relative to themselves, so
  that t = gamma distance errs by gamma_{d+3} t, and  |fl(exp(-t)) - exp(-t)| <= exp(-t) (t gamma_{d+4} + 8 u);
- an inner product errs by gamma_d ||x|| ||z||, hence  s = gamma x . z + coef0  by  e = gamma_{d+4} (gamma ||x|| ||z|| +
  coef0), and its power p by  p (|s| + e)^(p-1) e + 8 p u |s|^p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.spatial.distance import cdist

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.rows.rounding import TINY, U, block_length, dense_product, gamma, roundings

FREE = 1e-9  # of C: nearer to a bound than that is on it
POLISHING, REFINING = 8, 3  # systems that a polish solves at most, and how often each is refined
JITTERS = (1e-13, 1e-11, 1e-9)  # of the diagonal of a kernel's matrix, to make it one that has a factor

Kind = Literal["rbf", "laplacian", "linear", "poly"]
KINDS: tuple[str, ...] = get_args(Kind)
_METRICS = {"rbf": "sqeuclidean", "laplacian": "cityblock"}


@dataclass(frozen=True)
class Kernel:
    """k of the module's text; `degree` and `coef0` are those of a polynomial."""

    kind: Kind = "rbf"
    degree: int = 3
    coef0: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        whole = isinstance(self.degree, int | np.integer) or float(self.degree).is_integer()
        if self.kind == "poly" and not (whole and self.degree >= 1):
            raise ValueError(f"degree must be a positive whole number, got {self.degree!r}")
        if self.kind == "poly" and not self.coef0 >= 0.0:
            raise ValueError(f"coef0 must not be negative: the kernel would not be positive, got {self.coef0!r}")

    @property
    def has_gamma(self) -> bool:
        return self.kind != "linear"

    def matrix(self, X: Array, Z: Array, gamma_: float) -> KernelMatrix:
        """All rows of X with all rows of Z."""
        left, right = (np.sqrt(np.einsum("ij,ij->i", part, part)) for part in (X, Z))
        base = cdist(X, Z, _METRICS[self.kind]) if self.kind in _METRICS else X @ Z.T
        g, shift, p = self._powers(gamma_)
        K = np.exp(-gamma_ * base) if self.kind in _METRICS else (g * base + shift) ** p
        return KernelMatrix(self, gamma_, X.shape[1], base, left, right, K)

    def diagonal(self, X: Array, gamma_: float) -> Array:
        """Upper bounds of k(x_i, x_i)."""
        if self.kind in _METRICS:
            return np.ones(len(X))
        g, shift, p = self._powers(gamma_)
        squares = np.einsum("ij,ij->i", X, X)
        bound: Array = (1.0 + gamma((X.shape[1] + 8) * p)) * (g * squares + shift) ** p
        return bound

    def _powers(self, gamma_: float) -> tuple[float, float, int]:
        """gamma, coef0 and degree of a polynomial."""
        return (1.0, 0.0, 1) if self.kind == "linear" else (gamma_, self.coef0, int(self.degree))

    def errors(self, matrix: KernelMatrix) -> Array:
        """Bounds on |K - k|."""
        d = matrix.columns
        if self.kind in _METRICS:
            bound: Array = matrix.base * (matrix.gamma * gamma(d + 4))
            bound += 8.0 * U
            bound *= matrix.K
            bound += TINY  # of an underflow
            return bound
        g, shift, p = self._powers(matrix.gamma)
        sizes = np.outer(matrix.left, matrix.right) * (1.0 + gamma(d + 8))
        s = np.abs(g * matrix.base + shift)
        e = gamma(d + 4) * (g * sizes + shift) + d * TINY
        return p * (s + e) ** (p - 1) * e + 8.0 * p * U * s**p + TINY


@dataclass(frozen=True, eq=False)
class KernelMatrix:
    """K, and what it is made of: distances or inner products `base`, and the norms of rows on its `left` and `right`.

    Bounds on errors are made on demand: they take as much memory as K."""

    kernel: Kernel
    gamma: float
    columns: int
    base: Array
    left: Array
    right: Array
    K: Array

    @cached_property
    def E(self) -> Array:  # noqa: N802 (a symbol)
        return self.kernel.errors(self)

    def part(self, rows: Any) -> KernelMatrix:
        """That of some rows with themselves."""
        if len(rows) == len(self.K):
            return self
        base, K = (np.ascontiguousarray(one[np.ix_(rows, rows)]) for one in (self.base, self.K))
        return replace(self, base=base, left=self.left[rows], right=self.right[rows], K=K)

    def product(self, beta: Array) -> tuple[Array, Array]:
        """f_j = sum_i beta_i k(x_i, z_j), and bounds on the errors of the f_j."""
        n, size = len(beta), np.abs(beta)
        f = dense_product(self.K, beta, block_length(n))
        doubt = gamma(roundings(n) + 1) * (size @ np.abs(self.K)) + size @ self.E
        return f, doubt * (1.0 + gamma(2 * n + 16))

    def norm(self, p: Array) -> float:
        """An upper bound of || sum_i p_i k(x_i, .) ||, for the matrix of rows with themselves."""
        unit = 2.0 ** (math.frexp(float(np.max(np.abs(p), initial=0.0)))[1] - 1)  # squares of p / unit do not underflow
        p = p / unit
        size = np.abs(p)
        doubt = size @ (self.E @ size) + gamma(2 * len(p) + 4) * (size @ (np.abs(self.K) @ size))
        square = max(float(p @ (self.K @ p)), 0.0) + float(doubt) * (1.0 + gamma(4 * len(p) + 16))
        return float(np.sqrt(square)) * (1.0 + 4.0 * U) * unit


@dataclass(frozen=True)
class Machine:
    """f and b of training rows, with ||f - f_hat||_H <= radius and |b - b_hat| <= reach radius + slack."""

    beta: Array
    b: float
    radius: float
    rounding: float = 0.0  # the part of the radius that arithmetic is to blame for
    reach: float = 0.0
    slack: float = 0.0


@dataclass(frozen=True, eq=False)
class SupportVectors:
    """The problem of a support vector machine at fixed C: y, C_i, and epsilon, or None for classes -1 and 1."""

    y: Array
    C: Array
    epsilon: float | None
    reach: float  # max_i sqrt(k(x_i, x_i))

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Of beta."""
        if self.epsilon is None:
            return np.where(self.y > 0.0, 0.0, -self.C), np.where(self.y > 0.0, self.C, 0.0)
        return -self.C, self.C

    def feasible(self, beta: Array) -> Array:
        """The nearest beta or so that satisfies all constraints exactly."""
        size = float(np.abs(beta).sum()) or float(self.C.sum())
        quantum = 2.0 ** (math.ceil(math.log2(size)) - 50)
        lower, upper = (np.trunc(end / quantum) for end in self.bounds)  # whole numbers
        steps = np.clip(np.rint(beta / quantum), lower, upper)
        excess = float(steps.sum())
        room = steps - lower if excess > 0.0 else upper - steps
        inside = np.minimum(steps - lower, upper - steps) > 0.0
        for i in np.lexsort((-room, ~inside)):  # free ones first, those with room first
            if excess == 0.0:
                break
            moved = math.copysign(min(abs(excess), room[i]), excess)
            steps[i] -= moved
            excess -= moved
        return steps * quantum

    def intercept(self, f: Array) -> tuple[float, float]:
        """b, and how far its interval may reach beyond, for weights whose sums err."""
        if self.epsilon is None:
            kinks, weights, level = self.y - f, self.C, float(self.C[self.y > 0.0].sum())
        else:
            rest = self.y - f
            kinks = np.concatenate([rest - self.epsilon, rest + self.epsilon])
            weights, level = np.concatenate([self.C, self.C]), float(self.C.sum())
        order = np.argsort(kinks, kind="stable")
        kinks, sums = kinks[order], np.cumsum(weights[order])
        doubt = gamma(2 * len(kinks)) * float(sums[-1])
        low = int(np.searchsorted(sums, level - doubt, "left"))
        high = int(np.searchsorted(sums, level + doubt, "right"))
        ends = kinks[low], kinks[min(high, len(kinks) - 1)]
        # Where sums meet the level within their rounding they are taken to meet it: so they do if weights are equal.
        b = 0.5 * float(ends[0] + ends[1])
        equal = float(np.ptp(self.C)) == 0.0
        return b, 0.0 if equal or ends[0] == ends[1] else 0.5 * float(ends[1] - ends[0])

    def parts(self, beta: Array, m: Array) -> Array:
        """The parts of G."""
        if self.epsilon is None:
            t, alpha = 1.0 - self.y * m, self.y * beta
            return np.where(t > 0.0, self.C - alpha, -alpha) * t
        rho, size = self.y - m, np.abs(beta)
        beyond = np.abs(rho) - self.epsilon
        within = size * np.maximum(self.epsilon - np.sign(beta) * rho, 0.0)
        outside = np.where(rho * beta >= 0.0, (self.C - size) * beyond,
                           (self.C + size) * beyond + 2.0 * self.epsilon * size)  # fmt: skip
        return np.where(beyond > 0.0, outside, within)

    def certified(self, gram: KernelMatrix, beta: Array) -> Machine:
        """The machine of a beta that is feasible."""
        f, doubt = gram.product(beta)
        b, slack = self.intercept(f)
        m = f + b
        doubt = doubt + EPS * (np.abs(m) + np.abs(f) + np.abs(self.y) + abs(b) + (self.epsilon or 0.0))
        plain = float(self.parts(beta, m).sum())
        G = float(np.maximum(self.parts(beta, m - doubt), self.parts(beta, m + doubt)).sum())
        G = max(G, 0.0) * (1.0 + gamma(len(m) + 32)) + 1e-300
        radius = math.sqrt(G) * (1.0 + 4.0 * EPS)
        rounding = math.sqrt(max(G - plain, 0.0))
        return Machine(beta, b, radius, rounding, self.reach, slack + float(doubt.max()))

    def polished(self, gram: KernelMatrix, machine: Machine) -> Machine:
        """A better machine, if the systems of free support vectors lead to one: on those rows m_i is y_i (y_i -
        epsilon sign beta_i), and bounds that are met or missed on the way become constraints."""
        best, beta, (lower, upper) = machine, machine.beta, self.bounds
        margin = FREE * self.C
        for _ in range(POLISHING):
            free = (beta > lower + margin) & (beta < upper - margin)
            if self.epsilon is not None:
                free &= np.abs(beta) > margin
            if not free.any():
                break
            made = self._on(free, gram, beta)
            if made is None:
                break
            before, beta = beta, np.clip(made, lower, upper)
            if self.epsilon is not None:  # a weight that has changed its sign has met zero
                beta = np.where(beta * before < 0.0, 0.0, beta)
            trial = self.certified(gram, self.feasible(beta))
            if trial.radius < best.radius:
                best = trial
            if np.array_equal(made, beta):
                break
        return best

    def _on(self, free: Any, gram: KernelMatrix, beta: Array) -> Array | None:
        """beta with the free ones as their system has them."""
        fixed = np.where(free, 0.0, beta)
        places = np.flatnonzero(free)
        K = gram.K[np.ix_(places, places)]
        target = self.y[free] - (0.0 if self.epsilon is None else self.epsilon * np.sign(beta[free]))
        target = target - fixed @ gram.K[:, places]
        factor = _factor(K)
        if factor is None:
            return None
        ones, left = np.ones(len(places)), -float(fixed.sum())
        flat = cho_solve(factor, ones, check_finite=False)
        found, b = np.zeros(len(places)), 0.0
        for _ in range(REFINING):  # the factor is that of a matrix near by
            rest = cho_solve(factor, target - K @ found - b, check_finite=False)
            more = (float((found + rest).sum()) - left) / float(flat.sum())
            found, b = found + rest - more * flat, b + more
        made = fixed.copy()
        made[free] = found
        return made if np.isfinite(made).all() else None


def _factor(K: Array) -> Any:
    """A Cholesky factor of K with as little added to its diagonal as it takes; None if there is none."""
    size = float(np.mean(np.diag(K)))
    for jitter in JITTERS:
        A = K.copy()
        A[np.diag_indices_from(A)] += jitter * size
        try:
            return cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
    return None


def ridge_machine(gram: KernelMatrix, y: Array, s: Array, alpha: float) -> Machine:
    """Kernel ridge regression, by a factor and one step of refinement; an infinite radius where there is no factor."""
    root = np.sqrt(s)
    A = gram.K * np.outer(root, root)
    A[np.diag_indices_from(A)] += alpha
    try:
        factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return Machine(np.zeros(len(y)), 0.0, math.inf, math.inf)
    beta = root * cho_solve(factor, root * y, check_finite=False)
    best = certified_ridge(gram, beta, y, s, alpha)
    rest = y - gram.product(beta)[0] - alpha * beta / s
    refined = certified_ridge(gram, beta + root * cho_solve(factor, root * rest, check_finite=False), y, s, alpha)
    return min(best, refined, key=lambda machine: machine.radius)


def certified_ridge(gram: KernelMatrix, beta: Array, y: Array, s: Array, alpha: float) -> Machine:
    """The machine of any beta."""
    f, doubt = gram.product(beta)
    ridge = alpha * beta / s
    rest = y - f - ridge
    doubt = doubt + 2.0 * EPS * (np.abs(y) + np.abs(f) + np.abs(ridge) + np.abs(rest))
    root, up = np.sqrt(s), (1.0 + gamma(len(y) + 32)) / (2.0 * math.sqrt(alpha))
    rounding = norm(root * doubt) * up
    radius = norm(root * rest) * up + rounding
    return Machine(beta, 0.0, radius if radius == radius else math.inf, rounding)
