r"""Kernels, and machines with proofs: support vector machines by their duality gap, kernel ridge regression by its
residual.

H is the space of the kernel k, f = sum_i beta_i k(x_i, .) in H, f_i = f(x_i), and m_i = f_i + b.

**Support vector machines**   minimise over f in H and b

    P(f, b) = 1/2 ||f||^2 + sum_i C_i psi_i(m_i),        psi = max(0, 1 - y m)  or  max(0, |y - m| - epsilon).

Either is U max(0, rho - epsilon) + V max(0, -rho - epsilon) with rho = y - m, U = V = C for the latter, and epsilon =
0 and (U, V) = (C, 0) or (0, C) for y = 1 or -1 for the former. For beta with sum_i beta_i = 0 and -V <= beta <= U let G
be the sum of

    C_i psi_i(m_i) - beta_i rho_i + epsilon |beta_i|  >=  0,

P(f, b) minus the dual value of beta. No part of it cancels: it is |beta| (epsilon - rho sign beta) for |rho| <=
epsilon, (U - beta)(rho - epsilon) + 2 epsilon max(0, -beta) above, (V + beta)(-rho - epsilon) + 2 epsilon max(0, beta)
below. Minimised over b, P is 1-strongly convex in f, and so is minus the dual function in the norm of H. Each gives
||f - f_hat||^2 / 2, so that

    ||f - f_hat||_H  <=  sqrt(G)        and hence        |f(x) - f_hat(x)|  <=  sqrt(k(x, x) G).

The sum of the beta_i is 0 exactly, not only up to rounding: they are multiples of a power of 2 so large that their sums
are exact (`feasible`). What rounding does to the m_i is accounted for by the largest value of every part over all m_i
that are possible; parts are convex in m_i, so that is at one of two ends.

**The intercept** minimises a sum of hinges of b with kinks at y_i - f_i - epsilon and y_i - f_i + epsilon: the slope
begins at minus the sum of the U_i, and kinks add U_i and V_i. So minimisers form the interval of quantiles of kinks at
that level, so weighted. b is its middle, as libsvm has it, and the only one if there is a free support vector. Both
ends are quantiles, and so neither moves by more than the largest |f_i - f_hat_i|:

    |b - b_hat|  <=  max_i sqrt(k(x_i, x_i)) ||f - f_hat||_H + what rounding adds.

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
import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lu_factor, lu_solve
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from suffice.arrays import EPS, Array, norm
from suffice.rows.rounding import TINY, U, block_length, dense_product, gamma, roundings

FREE = 1e-9  # of C: nearer to a bound than that is on it
MOST_UPDATES = 1_000_000  # of libsvm, or a thousand for every row: where C times the kernel is huge it has no end
POLISHING, REFINING = 8, 3  # systems that a polish solves at most, and how often each is refined
JITTER = 1e-13  # of the diagonal of their matrix, which may be singular

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
        if self.kind == "poly" and not (float(self.degree).is_integer() and self.degree >= 1):
            raise ValueError(f"degree must be a positive whole number, got {self.degree!r}")
        if self.kind == "poly" and not self.coef0 >= 0.0:
            raise ValueError(f"coef0 must not be negative: the kernel would not be positive, got {self.coef0!r}")

    def matrix(self, X: Array, Z: Array, gamma_: float) -> KernelMatrix:
        """All rows of X with all rows of Z."""
        d = X.shape[1]
        if self.kind in _METRICS:
            t = gamma_ * cdist(X, Z, _METRICS[self.kind])
            K = np.exp(-t)
            return KernelMatrix(K, (t * gamma(d + 4) + 8.0 * U) * K + TINY)  # TINY: of an underflow
        g, shift, p = (1.0, 0.0, 1) if self.kind == "linear" else (gamma_, self.coef0, int(self.degree))
        left, right = (np.sqrt(np.einsum("ij,ij->i", part, part)) for part in (X, Z))
        s = g * (X @ Z.T) + shift
        e = gamma(d + 4) * (g * np.outer(left, right) * (1.0 + gamma(d + 8)) + shift) + d * TINY
        return KernelMatrix(s**p, p * (np.abs(s) + e) ** (p - 1) * e + 8.0 * p * U * np.abs(s) ** p + TINY)


@dataclass(frozen=True, eq=False)
class KernelMatrix:
    """K, and bounds E on |K - k|."""

    K: Array
    E: Array

    def part(self, rows: Any) -> KernelMatrix:
        """That of some rows with themselves."""
        if len(rows) == len(self.K):
            return self
        return KernelMatrix(*(np.ascontiguousarray(one[np.ix_(rows, rows)]) for one in (self.K, self.E)))

    @property
    def lengths(self) -> Array:
        """Upper bounds of sqrt(k(x_i, x_i)), for the matrix of rows with themselves."""
        return np.sqrt(np.diag(self.K) + np.diag(self.E)) * (1.0 + 4.0 * EPS)

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
    reach: float = 0.0
    slack: float = 0.0


@dataclass(frozen=True, eq=False)
class SupportVectors:
    """The problem of a support vector machine at fixed C: y, C_i, and epsilon, or None for classes -1 and 1."""

    gram: KernelMatrix
    y: Array
    C: Array
    epsilon: float | None

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Of beta: -V and U."""
        either = self.epsilon is not None
        return np.where(either | (self.y < 0.0), -self.C, 0.0), np.where(either | (self.y > 0.0), self.C, 0.0)

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
        (lower, upper), rest, epsilon = self.bounds, self.y - f, self.epsilon or 0.0
        kinks, weights = np.concatenate([rest - epsilon, rest + epsilon]), np.concatenate([upper, -lower])
        order = np.argsort(kinks, kind="stable")
        order = order[weights[order] > 0.0]
        kinks, sums, level = kinks[order], np.cumsum(weights[order]), float(upper.sum())
        doubt = gamma(2 * len(kinks)) * float(sums[-1])
        low = int(np.searchsorted(sums, level - doubt, "left"))
        high = int(np.searchsorted(sums, level + doubt, "right"))
        ends = kinks[low], kinks[min(high, len(kinks) - 1)]
        # Where sums meet the level within their rounding they are taken to meet it: so they do if weights are equal.
        b = 0.5 * float(ends[0] + ends[1])
        equal = float(np.ptp(self.C)) == 0.0
        return b, 0.0 if equal or ends[0] == ends[1] else 0.5 * float(ends[1] - ends[0])

    def parts(self, beta: Array, rho: Array) -> Array:
        """The parts of G."""
        (lower, upper), epsilon, size = self.bounds, self.epsilon or 0.0, np.abs(beta)
        above, beyond = rho > 0.0, np.abs(rho) - epsilon
        room = np.where(above, upper - beta, beta - lower)
        against = np.where(above, np.maximum(-beta, 0.0), np.maximum(beta, 0.0))
        within = size * np.maximum(epsilon - np.sign(beta) * rho, 0.0)
        return np.where(beyond > 0.0, room * beyond + 2.0 * epsilon * against, within)

    def trained(self, tol: float, most: float) -> tuple[Machine, int]:
        """What libsvm finds with a tolerance for margins of size 1, and its steps, of so many iterations as there are
        rows."""
        n = len(self.y)
        settings = {"kernel": "precomputed", "C": 1.0, "tol": tol * (float(np.std(self.y)) or 1.0)}
        settings["max_iter"] = int(min(max(most, 1.0) * n, max(MOST_UPDATES, 1000 * n), 2**31 - 1))
        model = SVC(**settings) if self.epsilon is None else SVR(epsilon=self.epsilon, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what it has left open is seen from the gap
            model.fit(self.gram.K, self.y, sample_weight=self.C)
        beta = np.zeros(n)
        beta[model.support_] = model.dual_coef_[0]
        return self.certified(self.feasible(beta)), max(1, math.ceil(float(np.max(model.n_iter_)) / n))

    def certified(self, beta: Array) -> Machine:
        """The machine of a beta that is feasible."""
        f, doubt = self.gram.product(beta)
        b, slack = self.intercept(f)
        m = f + b
        doubt = doubt + EPS * (np.abs(m) + np.abs(f) + np.abs(self.y) + abs(b) + (self.epsilon or 0.0))
        rho = self.y - m
        G = float(np.maximum(self.parts(beta, rho - doubt), self.parts(beta, rho + doubt)).sum())
        G = max(G, 0.0) * (1.0 + gamma(len(m) + 32)) + 1e-300
        radius = math.sqrt(G) * (1.0 + 4.0 * EPS)
        return Machine(beta, b, radius, float(self.gram.lengths.max()), slack + float(doubt.max()))

    def polished(self, machine: Machine) -> Machine:
        """A better machine, if the systems of free support vectors lead to one: on those rows rho_i is epsilon sign
        beta_i, and bounds that are met or missed on the way become constraints."""
        best, beta, (lower, upper), margin = machine, machine.beta, self.bounds, FREE * self.C
        for _ in range(POLISHING):
            free = (np.abs(beta) > margin) & (beta > lower + margin) & (beta < upper - margin)
            made = self._on(free, beta) if free.any() else beta
            if not (free.any() and np.isfinite(made).all()):
                break
            before, beta = beta, np.clip(made, lower, upper)
            beta = np.where(beta * before < 0.0, 0.0, beta)  # a weight that has changed its sign has met zero
            best = min(best, self.certified(self.feasible(beta)), key=lambda one: one.radius)
            if np.array_equal(made, beta):
                break
        return best

    def _on(self, free: Any, beta: Array) -> Array:
        """beta with the free ones as their system, of which b is an unknown as well, has them."""
        made, K, n = np.where(free, 0.0, beta), self.gram.K[:, free], int(free.sum())
        A = np.ones((n + 1, n + 1))
        A[:n, :n], A[n, n] = K[free], 0.0
        target = self.y[free] - (self.epsilon or 0.0) * np.sign(beta[free]) - made @ K
        right, found = np.append(target, -made.sum()), np.zeros(n + 1)
        factor = lu_factor(A + np.diag(np.append(np.full(n, JITTER * np.mean(np.diag(A))), 0.0)), check_finite=False)
        for _ in range(REFINING):  # the factor is that of a matrix near by
            found += lu_solve(factor, right - A @ found, check_finite=False)
        made[free] = found[:n]
        return made


def ridge_machine(gram: KernelMatrix, y: Array, s: Array, alpha: float) -> Machine:
    """Kernel ridge regression, by a factor and one step of refinement; an infinite radius where there is no factor."""
    root = np.sqrt(s)
    A = gram.K * np.outer(root, root)
    A[np.diag_indices_from(A)] += alpha
    try:
        factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return Machine(np.zeros(len(y)), 0.0, math.inf)
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
    radius = norm(root * rest) * up + norm(root * doubt) * up
    return Machine(beta, 0.0, radius if radius == radius else math.inf)
