r"""Prox-Newton for the multinomial model (`suffice.models.multinomial`) with K classes, an l1 penalty or none.

A step minimises  q(v) = <grad f(w), v - w> + 1/2 (v - w)^T H (v - w) + l1 ||v||_1  over a working set of variables
(`solvers.quadratic`) and searches along v - w (`suffice.solvers.line_search`). The working set holds the support
of w, always, and the zeros that violate optimality most. H is never formed where products with it cost less:

    (H V)_k = X^T t_k + l2_k V_k,      t = a P * (U - rowsum(P * U)),      U = X V + 1 db^T,

P being the probabilities and db the change of the intercepts, unpenalised variables that are minimised out:  sum_i t_i
= 0, a system of K equations. A product is one with X and one with X^T for all classes at once, dense or sparse. Systems
are solved by conjugate gradients, preconditioned by

- the diagonal of H;
- where all classes have the same columns, few enough for a d x d matrix to cost a few products:  S_k M^-1 S_k,  M = X^T
  diag(w) X + l2 with the classes' mean of a p (1 - p) as w, and S_k such that the diagonal is that of H.

In both cases a vector in all classes alike, which softmax does not see, is multiplied by 1/l2, which is exact.

They are solved no more accurately than steps deserve (Eisenstat and Walker, SIAM J. Sci. Comput. 17, 1996): up to
FORCING times the square of the factor by which the step before has shortened the least subgradient.

The matrix itself, N s^2 + s^3/3 operations that run fast for s variables, is preferred while it costs less than
CG_STEPS products (ADMM_STEPS with an l1, whose signs take longer to be found by products).

Certificates come from the gradient, by the duality gap: they need mu, but no L. A verification
(`suffice.prove.verified_softmax`) costs as much as many steps: it is made once they have cost as much, and where
rounding is all that is left of the gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotrs

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.multinomial import Multinomial, solve_across
from suffice.rows.blocks import Blocked
from suffice.rows.design import largest_matrix
from suffice.rows.gram import centred, gram
from suffice.solvers.certificate import Evidence
from suffice.solvers.fields import RECOMPUTED
from suffice.solvers.line_search import search
from suffice.solvers.newton import looks_settled
from suffice.solvers.parts import Parts
from suffice.solvers.problem import Canonical
from suffice.solvers.quadratic import Indices, Quadratic, Solve, fista_on, minimise_model, on_these, with_ridge

FIRST_WORKING_SET, GROWTH = 128, 1.5
LOOSEST, TIGHTEST, FORCING = 0.25, 0.02, 0.9
MOST_PRODUCTS = 500
CG_STEPS, ADMM_STEPS = 30.0, 120.0
SLOW, SLOW_SPARSE = 2.0, 20.0  # times: operations of a product against those of a matrix, for the time they take
VERIFICATION = 5.0  # times the operations of H
SHARED = 40  # d up to so many times K
BLURRED = 100.0  # times the rounding of a gradient: about as long, and the gap will prove no more
STUCK = 1e-3  # of the way: no step gets on from here


@dataclass(frozen=True)
class SoftmaxState:
    """Image and evidence are None in a state that comes from a file: the next step has to compute them."""

    x: Array
    b: Array  # intercepts: another b is as good, but not the same to the last bit
    k: int = 0
    tolerance: float = LOOSEST  # of the next system
    spent: float = 0.0  # operations since the last verification
    ended: bool = False  # rounding is all that is left
    image: Any = field(default=None, metadata=RECOMPUTED)
    evidence: Evidence | None = field(default=None, metadata=RECOMPUTED)
    settled: bool = False  # whether a verification is due


@dataclass(frozen=True)
class NewtonSoftmax:
    """Prox-Newton for the multinomial model; one step minimises one quadratic model."""

    name: str = "newton_softmax"

    def takes(self, problem: Canonical) -> str | None:
        parts = Parts.of(problem)
        if isinstance(parts.term, Multinomial) and parts.l1 is not None and _has_room(parts.term):
            return None
        return (
            "needs a multinomial model in main memory, or in blocks of few columns, with an l1 penalty or none, "
            f"got {type(parts.term).__name__} and {type(problem.g).__name__}: try 'auto'"
        )

    def start(self, problem: Canonical, x: Array) -> SoftmaxState:
        image, model = problem.f.image(x), Parts.of(problem).term
        assert isinstance(model, Multinomial)
        return SoftmaxState(x, model.find(image), image=image)

    def step(self, problem: Canonical, state: SoftmaxState) -> SoftmaxState:
        if state.ended:
            return state
        parts, g = Parts.of(problem), problem.g
        model = parts.term
        assert isinstance(model, Multinomial) and parts.l1 is not None
        image = problem.f.image(state.x) if state.image is None else state.image
        model.recall(image, state.b)
        here = state.evidence or _evidence(problem, state.x, image)[0]
        least = g.least_subgradient(here.z, here.z_gradient)
        if not least.any():
            return replace(state, ended=True, image=image, evidence=replace(here), settled=True)
        working = _working_set(here.z, least, bool(np.any(parts.l1)))
        local = None if isinstance(model.design.X, Blocked) else Local.of(model, image)
        H = _hessian(model, local, parts.ridge, parts.l1, image, working, state.tolerance)
        l1, target = on_these(parts.l1, working), here.z.copy()
        target[working] = minimise_model(H, here.z_gradient[working], here.z[working], l1)
        ahead = problem.f.image(target)
        if local is not None:
            model.find(ahead, state.b + local.follow(ahead - image))
        found = search(problem, here, target, ahead)
        there, rounding = _evidence(problem, found.x, found.image, found.gradient)
        before, after = norm(least), norm(g.least_subgradient(found.x, there.z_gradient))
        if found.blurred and not after < before:
            return replace(state, ended=True, image=image, evidence=replace(here), settled=True)
        spent = state.spent + (H.spent if isinstance(H, SoftmaxProduct) else price(model, len(working)))
        stuck = norm(found.x - here.z) <= STUCK * norm(target - here.z)
        ended = bool(stuck or (found.blurred and after > 0.9 * before))
        due = spent >= VERIFICATION * price(model, int(np.count_nonzero(found.x))) or after <= BLURRED * rounding
        settled = ended or bool(due and looks_settled(here.z, found.x, before, after))
        tolerance, spent = min(max(FORCING * (after / before) ** 2, TIGHTEST), LOOSEST), 0.0 if settled else spent
        b = model.shift(found.image)[0]
        return SoftmaxState(found.x, b, state.k + 1, tolerance, spent, ended, found.image, there, settled)


def _has_room(model: Multinomial) -> bool:
    """Whether X is in main memory or, in blocks of rows, the whole Hessian can be a matrix."""
    design = model.design
    if isinstance(design.X, Blocked):
        return model.classes * design.shape[1] <= largest_matrix(design, model.classes)
    return isinstance(design.X, np.ndarray) or sp.issparse(design.X)


def _evidence(problem: Canonical, x: Array, image: Array, gradient: Array | None = None) -> tuple[Evidence, float]:
    """With a bound on the gradient's rounding; the image is a product."""
    parts = Parts.of(problem)
    assert isinstance(parts.term, Multinomial)
    gradient = problem.f.gradient_at(x, image) if gradient is None else gradient
    rounding = parts.term.rounding_at(x, image) + 2.0 * EPS * float(np.max(parts.ridge)) * norm(x)
    return Evidence(x, image, gradient, rounding=rounding), rounding


def _working_set(x: Array, least: Array, penalised: bool) -> Indices:
    if not penalised:
        return np.arange(len(x))
    support = x != 0.0
    candidates = np.flatnonzero(support | (least != 0.0))
    limit = max(FIRST_WORKING_SET, int(GROWTH * np.count_nonzero(support)))
    if len(candidates) <= limit:
        return candidates
    pull = np.abs(least[candidates])
    pull[support[candidates]] = math.inf
    return np.sort(candidates[np.argpartition(pull, len(pull) - limit)[len(pull) - limit :]])


def price(model: Multinomial, s: int) -> float:
    """Operations of the matrix H on s variables, and of its factor."""
    return float(model.design.shape[0]) * s * s + s**3 / 3.0


def _hessian(
    model: Multinomial,
    local: Local | None,
    ridge: float | Array,
    l1: float | Array,
    image: Array,
    working: Indices,
    tolerance: float,
) -> Quadratic:
    """H on the working set in the form that costs less; without `local`, the matrix."""
    if local is not None:
        product = SoftmaxProduct.of(model, local, ridge, working, tolerance)
        most = (ADMM_STEPS if np.any(l1) else CG_STEPS) * product.price
        if len(working) > largest_matrix(model.design, model.classes) or price(model, len(working)) > most:
            return product
    return with_ridge(model.hessian(image, working), on_these(ridge, working))


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
class SoftmaxProduct:
    """H by products: `columns` of X and classes `k` of the variables; `whole` if these are all, class by class."""

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
        sparse = sp.issparse(self.X)
        entries = self.X.nnz if sparse else math.prod(self.X.shape)
        return (SLOW_SPARSE if sparse else SLOW) * 4.0 * float(entries) * self.K

    @property
    def spent(self) -> float:
        """What products have cost so far."""
        return self.made[0] * self.price

    @cached_property
    def diagonal(self) -> Array:
        self.made[0] += 1
        squares = self.X.multiply(self.X) if sp.issparse(self.X) else self.X**2
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

    def solver(self, added: Array | float = 0.0) -> Solve:
        precondition = self.preconditioner(added)
        return lambda b: preconditioned(lambda v: self.product(v) + added * v, precondition, b, self.tolerance)

    def on(self, free: Indices) -> SoftmaxProduct:
        whole = self.whole and len(free) == len(self.k)
        return replace(self, columns=self.columns[free], k=self.k[free], ridge=self.ridge[free], whole=whole)

    def seek(self, gradient: Array, w: Array, l1: float | Array) -> Any:
        return fista_on(self, gradient, w, l1)

    def preconditioner(self, added: Array | float = 0.0) -> Solve:
        """r -> roughly (H + diag(added))^-1 r."""
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
        if sp.issparse(self.X) or d > min(SHARED * K, N):
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


def preconditioned(product: Solve, precondition: Solve, b: Array, tolerance: float) -> Array:
    """x with ||b - H x|| <= tolerance ||b||, by conjugate gradients, or what MOST_PRODUCTS give."""
    x, r = np.zeros_like(b), b
    p = z = precondition(r)
    rz, enough = float(r @ z), tolerance * norm(b)
    for _ in range(MOST_PRODUCTS):
        Hp = product(p)
        bend = float(p @ Hp)
        if not (rz > 0.0 and bend > 0.0):
            break
        x, r = x + rz / bend * p, r - rz / bend * Hp
        if norm(r) <= enough:
            break
        z = precondition(r)
        rz, before = float(r @ z), rz
        p = z + rz / before * p
    return x
