r"""Reference minimisers of small problems f + g in extended precision, and random problems to compare with.

Nothing of the package is used to find a minimiser. From any x, a prox-gradient step finds a better point and a guess
of the manifold on which g is smooth (the support, the non-zero groups, the variables off their bounds); a Newton step
with a line search moves along it. Gradients are exact to long double precision, Newton systems are solved in double:
that is iterative refinement. The result comes with its own error bound ||u||/mu, u the shortest subgradient there.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

import suffice
from suffice import terms
from suffice.rows.design import Design
from suffice.solvers.solver import SOLVERS, refusal

LONG = np.longdouble
EPS = np.finfo(LONG).eps


def norm(x):
    """The Euclidean norm, in extended precision."""
    return np.sqrt(np.sum(np.asarray(x, dtype=LONG) ** 2))


class Margins:
    """sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 for psi "squared", "logistic", "huber" (delta = 1) or "poisson"."""

    def __init__(self, X, y, a, psi, l2):
        self.X, self.y, self.a = (np.asarray(part, dtype=LONG) for part in (X, y, a))
        self.psi, self.l2 = psi, LONG(l2)
        self.gradient_at_zero = self.gradient(np.zeros(self.X.shape[1], dtype=LONG))

    def value(self, w):
        m, y = self.X @ w, self.y
        if self.psi == "logistic":
            psi = np.logaddexp(LONG(0), -y * m)
        elif self.psi == "huber":
            psi = np.where(abs(m - y) <= 1, (m - y) ** 2 / 2, abs(m - y) - LONG(0.5))
        elif self.psi == "poisson":
            psi = np.exp(m) - y * m
        else:
            psi = (m - y) ** 2 / 2
        return self.a @ psi + self.l2 / 2 * (w @ w)

    def gradient(self, w):
        m, y = self.X @ w, self.y
        if self.psi == "logistic":
            slope = -y / (1 + np.exp(np.minimum(y * m, 1e4)))
        elif self.psi == "poisson":
            slope = np.exp(m) - y
        else:
            slope = np.clip(m - y, -1, 1) if self.psi == "huber" else m - y
        return self.X.T @ (self.a * slope) + self.l2 * w

    def hessian(self, w):
        m, y = self.X @ w, self.y
        if self.psi == "logistic":
            curvature = 1 / (2 + np.exp(np.minimum(m, 1e4)) + np.exp(np.minimum(-m, 1e4)))
        elif self.psi == "poisson":
            curvature = np.exp(m)
        else:
            curvature = abs(m - y) <= 1 if self.psi == "huber" else np.ones(len(m))
        X = self.X.astype(float)
        return X.T @ ((self.a * curvature).astype(float)[:, None] * X) + float(self.l2) * np.eye(X.shape[1])


class Quadratic:
    """x . A x / 2 - b . x."""

    def __init__(self, A, b):
        self.A, self.b = np.asarray(A, dtype=LONG), np.asarray(b, dtype=LONG)
        self.gradient_at_zero = -self.b

    def value(self, x):
        return x @ (self.A @ x) / 2 - self.b @ x

    def gradient(self, x):
        return self.A @ x - self.b

    def hessian(self, x):
        return self.A.astype(float)


class GroupNorms:
    """sum_G weight_G ||x_G||; singletons make it an l1 norm, no groups make it zero."""

    def __init__(self, groups, weights):
        self.groups, self.weights = [np.asarray(group) for group in groups], [LONG(weight) for weight in weights]

    def value(self, x):
        return sum((weight * norm(x[G]) for G, weight in zip(self.groups, self.weights, strict=True)), LONG(0))

    def prox(self, v, step):
        x = v.copy()
        for G, weight in zip(self.groups, self.weights, strict=True):
            size = norm(v[G])
            x[G] = v[G] * (1 - step * weight / size) if size > step * weight else 0
        return x

    def shortest(self, x, gradient):
        """The shortest element of gradient + dg(x)."""
        u = gradient.copy()
        for G, weight in zip(self.groups, self.weights, strict=True):
            size, pull = norm(x[G]), norm(gradient[G])
            if size > 0:
                u[G] += weight * x[G] / size
            else:
                u[G] *= 1 - weight / pull if pull > weight else 0
        return u

    def manifold(self, x):
        """Which variables may move smoothly, and the Hessian of g for those."""
        free, curvature = np.ones(len(x), dtype=bool), np.zeros((len(x), len(x)))
        for G, weight in zip(self.groups, self.weights, strict=True):
            size = norm(x[G])
            free[G] = size > 0
            if size > 0:
                direction = (x[G] / size).astype(float)
                curvature[np.ix_(G, G)] = float(weight / size) * (np.eye(len(G)) - np.outer(direction, direction))
        return free, curvature

    def retract(self, x, y):
        """y, with the groups that turned around set to zero."""
        y = y.copy()
        for G in self.groups:
            if x[G] @ y[G] < 0:
                y[G] = 0
        return y


class Interval:
    """0 for lower <= x <= upper, infinite elsewhere."""

    def __init__(self, lower, upper):
        self.lower, self.upper = LONG(lower), LONG(upper)

    def value(self, x):
        return LONG(0) if ((self.lower <= x) & (x <= self.upper)).all() else LONG(np.inf)

    def prox(self, v, step):
        return np.clip(v, self.lower, self.upper)

    def shortest(self, x, gradient):
        u = np.where((x == self.lower) & (gradient > 0), 0, gradient)
        return np.where((x == self.upper) & (gradient < 0), 0, u)

    def manifold(self, x):
        return (self.lower < x) & (x < self.upper), np.zeros((len(x), len(x)))

    def retract(self, x, y):
        return np.clip(y, self.lower, self.upper)


def minimise(f, g, mu, L, size):
    """(x_hat, a bound on its error) for f + g, f mu-strongly convex with an L-Lipschitz gradient."""
    x = g.prox(np.zeros(size, dtype=LONG), LONG(1))
    best, error, stalled = x, LONG(np.inf), 0
    for _ in range(5000):
        x = g.prox(x - f.gradient(x) / LONG(L), 1 / LONG(L))
        gradient = f.gradient(x)
        u = g.shortest(x, gradient)
        stalled = 0 if norm(u) / mu < error / 2 else stalled + 1
        if norm(u) / mu < error:
            best, error = x, norm(u) / mu
        if error == 0 or (stalled >= 3 and error <= 1e-12 * max(1, norm(x))):
            break
        x = _newton_step(f, g, x, u)
    return best, error


def _newton_step(f, g, x, u):
    free, curvature = g.manifold(x)
    if not free.any():
        return x
    H = (f.hessian(x) + curvature)[np.ix_(free, free)]
    direction = np.zeros_like(x)
    direction[free] = np.linalg.solve(H, -u[free].astype(float))
    value, noise = f.value(x) + g.value(x), 100 * EPS * (abs(f.value(x)) + abs(g.value(x)))
    for halvings in range(40):
        y = g.retract(x, x + direction / LONG(2) ** halvings)
        change = f.value(y) + g.value(y) - value
        # Where values can no longer tell, gradients still can.
        if change < -noise or (change <= noise and norm(g.shortest(y, f.gradient(y))) < norm(u)):
            return y
    return x


class OwnSmooth:
    """What a user may bring as f: `value` and `gradient`, nothing else."""

    def __init__(self, A, b):
        self.A, self.b = A, b

    def value(self, x):
        return 0.5 * float(x @ (self.A @ x)) - float(self.b @ x)

    def gradient(self, x):
        return self.A @ x - self.b


class OwnProx:
    """What a user may bring as g: `value` and `prox`, nothing else."""

    def __init__(self, term):
        self._term = term

    def value(self, x):
        return self._term.value(x)

    def prox(self, v, step):
        return self._term.prox(v, step)


@dataclass(frozen=True)
class Case:
    """One problem stated twice: for the package, and as (f, g) here; with its minimiser and that one's error."""

    problem: suffice.Composite
    f: Any
    g: Any
    x_hat: Any
    error: float

    @classmethod
    def of(cls, problem, f, g, size):
        mu, L = problem.canonical.mu, problem.canonical.L
        x_hat, error = minimise(f, g, mu, L, size)
        assert error <= 1e-12 * max(1.0, float(norm(x_hat)))
        return cls(problem, f, g, x_hat, float(error))

    @property
    def size(self):
        return len(self.x_hat)

    def distance(self, x):
        """A lower bound on ||x - x_hat||, tight to the reference's own error."""
        return float(norm(x - self.x_hat)) - self.error

    def random_start(self, rng):
        """A start of the solution's size, outside the domain of the indicator terms."""
        return 3.0 * (1.0 + float(norm(self.x_hat))) * rng.standard_normal(self.size)

    def near_start(self, rng):
        """A start so close to the solution that rounding is all that is left after a few steps."""
        x_hat = self.x_hat.astype(float)
        return x_hat + 10.0 ** rng.uniform(-12, -5) * (1.0 + np.abs(x_hat)) * rng.standard_normal(self.size)


LOSSES = ("squared", "logistic", "huber", "own")
TERMS = ("l1", "elastic_net", "group", "nonnegative", "box", "zero", "own_l1", "own_box")


@cache
def random_case(loss, term, seed):
    """A random problem with kappa log-uniform in [1, 1e6]; X dense or sparse, weighted or not, with odd columns."""
    rng = np.random.default_rng([LOSSES.index(loss), TERMS.index(term), seed])
    kappa = 10.0 ** rng.uniform(0.0, 6.0)
    share = 0.5 if term == "elastic_net" else 0.0  # of the strong convexity that sits in g
    smooth, f, mu, L, ridge = (_quadratic if loss == "own" else _linear_model)(rng, loss, kappa, share)
    size = len(f.gradient_at_zero)
    prox, g = _term(rng, term, f, mu + ridge, L + ridge, ridge)
    return Case.of(suffice.Composite(smooth, prox, mu=mu, L=L, size=size), f, g, size)


def _linear_model(rng, loss, kappa, share):
    N, d = int(rng.integers(10, 40)), int(rng.integers(3, 16))
    X = 10.0 ** rng.uniform(-2.0, 2.0) * rng.standard_normal((N, d))
    if rng.random() < 0.3:
        X[:, 0] = 0.0
    if rng.random() < 0.3:
        X[:, -1] = np.abs(X).max()
    sparse = rng.random() < 0.3
    if sparse:
        X[rng.random(X.shape) < 0.6] = 0.0
    y = X @ rng.standard_normal(d) / np.linalg.norm(X, 2) + 10.0 ** rng.uniform(-2, 1) * rng.standard_normal(N)
    if loss == "logistic":
        y = np.where(y > 0, 1.0, -1.0)
    weight = rng.integers(0, 4, N) + (np.arange(N) == 0) if rng.random() < 0.3 else None
    design = Design.of((sp.csr_array if rng.random() < 0.5 else sp.csc_array)(X) if sparse else X, weight)
    psi = {"squared": terms.SQUARED, "logistic": terms.LOGISTIC, "huber": terms.HUBER}[loss]
    l2 = psi.curvature * design.squared_norm / (kappa - 1.0)
    smooth, ridge = terms.LinearModel(design, y, psi, (1.0 - share) * l2), share * l2
    f = Margins(X, y, design.weights, loss, LONG(smooth.l2) + LONG(ridge))
    return smooth, f, smooth.l2, smooth.L, ridge


def _quadratic(rng, loss, kappa, share):
    d = int(rng.integers(3, 16))
    scale = 10.0 ** rng.uniform(-3.0, 3.0)
    spectrum = scale * kappa ** -np.concatenate([[0.0, 1.0], rng.random(d - 2)])
    A, slack = np.diag(spectrum), 0.0
    if rng.random() < 0.7:
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        A, slack = Q @ A @ Q.T, 1e-14  # what rounding does to the spectrum
        A = 0.5 * (A + A.T)
    mu, L = min(spectrum) - slack * scale, scale * (1.0 + slack)
    b = A @ rng.standard_normal(d)
    ridge = share * mu
    return OwnSmooth(A, b), Quadratic(A + LONG(ridge) * np.eye(d), b), mu, L, ridge


def _term(rng, term, f, mu, L, ridge):
    pull = np.abs(f.gradient_at_zero.astype(float))
    size, strength = len(pull), 10.0 ** rng.uniform(-3.0, 0.1)
    if term in ("l1", "elastic_net", "own_l1"):
        l1 = strength * float(pull.max())
        prox = terms.ElasticNet(l1, ridge) if term == "elastic_net" else terms.L1(l1)
        return OwnProx(prox) if term == "own_l1" else prox, GroupNorms([[i] for i in range(size)], [l1] * size)
    if term == "group":
        groups = np.array_split(rng.permutation(size)[: size - size // 4], max(1, size // 3))
        weights = [strength * float(np.linalg.norm(pull[group])) for group in groups]
        return terms.Group(groups, weights), GroupNorms(groups, weights)
    if term == "zero":
        return terms.Zero(), GroupNorms([], [])
    if term == "nonnegative":
        return terms.NonNegative(), Interval(0.0, np.inf)
    free = minimise(f, GroupNorms([], []), mu, L, size)[0].astype(float)
    lower, upper = np.quantile(free, 0.2), np.quantile(free, 0.7) + 1e-3 * float(norm(free))
    prox = terms.Box(lower, upper)
    return OwnProx(prox) if term == "own_box" else prox, Interval(lower, upper)


@cache
def solves(solver, loss, term):
    """Whether a solver takes problems of this kind."""
    return refusal(solver, random_case(loss, term, 0).problem) is None


METHODS = [solver for solver in SOLVERS if solver != "auto"]  # auto is one of them
SOLVABLE = [
    (loss, term, solver) for loss in LOSSES for term in TERMS for solver in METHODS if solves(solver, loss, term)
]
