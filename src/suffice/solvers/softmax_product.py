r"""The Hessian of the multinomial model (`suffice.models.multinomial`) with K classes, by products with X:

    (H V)_k = X^T t_k + l2_k V_k,      t = a P * (U - rowsum(P * U)),      U = X V + 1 db^T,

P being the probabilities and db the change of the intercepts, unpenalised variables that are minimised out:  sum_i t_i
= 0, a system of K equations. A product is one with X and one with X^T for all classes at once, dense or sparse. Systems
are solved by conjugate gradients, preconditioned by

- the diagonal of H;
- where all classes have the same columns, few enough for a d x d matrix to cost a few products:  S_k M^-1 S_k,  M = X^T
  diag(w) X + l2 with the classes' mean of a p (1 - p) as w, and S_k such that the diagonal is that of H.

In both cases a vector in all classes alike, which softmax does not see, is multiplied by 1/l2, which is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from suffice.arrays import Array
from suffice.lazy import cached_property
from suffice.models.multinomial import Multinomial
from suffice.models.softmax_jobs import solve_across
from suffice.penalties.prox import Indices
from suffice.rows.gram import centred, gram
from suffice.solvers.quadratic import ByProducts, Solve, on_these

SLOW, SLOW_SPARSE = 2.0, 20.0  # times: operations of a product against those of a matrix, for the time they take
SHARED = 40  # d up to so many times K


@dataclass(frozen=True, eq=False)
class Local:
    """The rows' curvature at some margins: p, shares = a p, and the inverse of that of b, if there are intercepts."""

    p: Array
    shares: Array
    of_b: Array | None

    @classmethod
    def of(cls, model: Multinomial, image: Array) -> Local:
        p = model.probabilities(image)
        aP = model.design.weights[:, None] * p
        if not model.intercept:
            return cls(p, aP, None)
        return cls(p, aP, solve_across(np.diag(aP.sum(axis=0)) - p.T @ aP, np.eye(model.classes)))

    def pull(self, U: Array) -> Array:
        """t of the module's text for a change X V of the margins."""
        t = self._pull(U)
        if self.of_b is not None:
            db = self.of_b @ -t.sum(axis=0)
            t += self.shares * (db - (self.p @ db)[:, None])
        return t

    def follow(self, U: Array) -> Array | float:
        """db."""
        return 0.0 if self.of_b is None else self.of_b @ -self._pull(U).sum(axis=0)

    def _pull(self, U: Array) -> Array:
        U = np.asfortranarray(U)  # sums over classes run along columns
        t: Array = self.shares * (U - (self.p * U).sum(axis=1, keepdims=True))
        return t

    @cached_property
    def curvature(self) -> Array:
        """a p (1 - p)."""
        curvature: Array = self.shares - self.shares * self.p
        return curvature


@dataclass(frozen=True, eq=False)
class SoftmaxProduct(ByProducts):
    """`columns` of X and classes `k` of the variables; `whole` if these are all, class by class."""

    X: Any
    local: Local
    columns: Indices
    k: Indices
    ridge: Array
    tolerance: float
    whole: bool
    made: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(
        cls, model: Multinomial, local: Local, ridge: float | Array, working: Indices, tolerance: float
    ) -> SoftmaxProduct:
        X, d = model.design.X, model.design.shape[1]
        whole, k, columns = len(working) == d * model.classes, working // d, working % d
        used = columns[:d] if whole else np.unique(columns)
        if 2 * len(used) <= d:
            X, columns = X[:, used], np.searchsorted(used, columns)
        l2 = np.broadcast_to(np.asarray(on_these(ridge, working) + model.l2, dtype=np.float64), len(working))
        return cls(X, local, columns, k, l2, tolerance, whole)

    @property
    def K(self) -> int:  # noqa: N802 (the symbol)
        return int(self.local.p.shape[1])

    @property
    def price(self) -> float:
        """Operations of a product, in the time of fast ones."""
        entries, size = getattr(self.X, "nnz", None), math.prod(self.X.shape)
        slow = SLOW * size if entries is None else SLOW_SPARSE * entries
        return 4.0 * float(slow) * self.K

    @property
    def spent(self) -> float:
        """What products have cost so far."""
        return self.made[0] * self.price

    @cached_property
    def diagonal(self) -> Array:
        self.made[0] += 1
        squares = self.X.multiply(self.X) if hasattr(self.X, "multiply") else self.X**2
        diagonal: Array = (squares.T @ self.local.curvature)[self.columns, self.k] + self.ridge
        return diagonal

    def product(self, v: Array) -> Array:
        self.made[0] += 1
        return self._vector(self.X.T @ self.local.pull(self.X @ self._matrix(v))) + self.ridge * v

    def _matrix(self, v: Array) -> Array:
        """The variables as a matrix with a column for each class."""
        if self.whole:
            return np.ascontiguousarray(v.reshape(self.K, -1).T)
        V = np.zeros((self.X.shape[1], self.K))
        V[self.columns, self.k] = v
        return V

    def _vector(self, V: Array) -> Array:
        vector: Array = V.T.ravel() if self.whole else V[self.columns, self.k]
        return vector

    def on(self, free: Indices) -> SoftmaxProduct:
        whole = self.whole and len(free) == len(self.k)
        return replace(self, columns=self.columns[free], k=self.k[free], ridge=self.ridge[free], whole=whole)

    def preconditioner(self, added: Array | float = 0.0) -> Solve:
        D, K = self.diagonal + added, self.K
        ridge = np.broadcast_to(self.ridge + added, len(D)).reshape(K, -1) if self.whole else None
        if ridge is None or not (ridge == ridge[0]).all() or not ridge[0].all():
            return lambda r: r / D
        l2 = ridge[0]
        inverse = self._shared(l2, D.reshape(K, -1)) or (lambda R: R / D.reshape(K, -1))

        def precondition(r: Array) -> Array:
            R = r.reshape(K, -1)
            mean = R.mean(axis=0)
            Z = inverse(R - mean)
            result: Array = (Z - Z.mean(axis=0) + mean / l2).ravel()
            return result

        return precondition

    def _shared(self, l2: Array, D: Array) -> Solve | None:
        """R -> S_k M^-1 S_k r_k of the module's text, where M is worth it."""
        (N, d), K = self.X.shape, self.K
        if hasattr(self.X, "nnz") or d > min(SHARED * K, N):
            return None
        w = self.local.curvature.mean(axis=1)
        intercept = self.local.of_b is not None
        M, _ = gram(self.X, scale=np.sqrt(w), intercept=intercept)
        M = centred(M) if intercept else M
        M[np.diag_indices(d)] += l2
        own = np.diag(M).copy()
        factor, failed = dpotrf(M, overwrite_a=True, clean=False)
        if failed:
            return None
        S = np.sqrt(own / D)

        def inverse(R: Array) -> Array:
            result: Array = S * dpotrs(factor, (S * R).T)[0].T
            return result

        return inverse
