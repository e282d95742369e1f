"""Small problems without strong convexity, their minimisers to a hundred digits, and points around these."""

import numpy as np
from flint import arb, arb_mat

import suffice
from suffice import terms
from suffice.arrays import like
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel
from suffice.models.smooth import Ridged
from suffice.penalties.prox import WeightedL1
from suffice.rows.blocks import Blocked
from suffice.rows.design import Design
from suffice.solvers.solver import iterate
from tests.reference_balls import ZERO, column, norm, precision
from tests.reference_exact import Enclosure, _minimised, stated, truth

BITS = 448
PSI = {
    "squared": terms.SQUARED,
    "logistic": terms.LOGISTIC,
    "poisson": terms.POISSON,
    "huber": terms.HUBER,
    "squared hinge": terms.SQUARED_HINGE,
}


def data(loss, rows=40, columns=6, seed=0):
    rng = np.random.default_rng([seed, len(loss)])
    X = rng.standard_normal((rows, columns))
    t = X[:, 0] - 0.5 * X[:, 1] + rng.standard_normal(rows)
    if loss == "poisson":
        return X, rng.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    return X, (t if loss in ("squared", "huber") else np.where(t > 0, 1.0, -1.0))


def model(loss, X, y, l1, l2, intercept=False, weights=None):
    design = Design.of(X, weights)
    if isinstance(design.X, Blocked):
        kind, y = (Intercepted if intercept else LinearModel), design.X.rows_of(y)
    else:
        kind, y = (Intercepted if intercept else terms.LinearModel), like(y, design.X)
    smooth = kind(design, y, PSI[loss], 0.0)
    L = smooth.L + float(np.max(l2))
    return suffice.Composite(
        Ridged(smooth, np.broadcast_to(np.asarray(l2, float), X.shape[1])),
        WeightedL1(np.broadcast_to(np.asarray(l1, float), X.shape[1])),
        mu=float(np.min(l2)),
        L=L,
        size=X.shape[1],
    )


def minimiser(problem):
    """The minimiser to a hundred digits, also without any strong convexity."""
    if problem.mu > 0.0:
        return truth(problem)
    F, g = stated(problem)
    with precision(BITS):
        x = _minimised(F, g, list(F.start), BITS)
        gradient, H = F.gradient(x), F.hessian(x)
        u = [*g.shortest(x[: F.width], gradient[: F.width]), *gradient[F.width :]]
        free = [j for j in range(len(x)) if j >= F.width or not g.place(j, x[j])[1]]
        assert all(u[j].contains(0) or j in free for j in range(len(x)))
        system = arb_mat(len(free), len(free), [H[i, j] for i in free for j in free])
        step = (
            norm([part.abs_upper() for part in system.solve(column([u[j] for j in free])).entries()]) if free else ZERO
        )
        error = (2 * step).abs_upper()
        assert error < arb(10) ** -60
        return Enclosure(x[: F.width], error, BITS)


def solutions(problem, rng):
    """Iterates of Newton's method, and points around the minimiser from 1e-16 to 0.3 of its size away."""
    x_hat = minimiser(problem).rounded()
    yield from (one.x for _, one in zip(range(14), iterate(problem, solver="newton"), strict=False))
    for size in 10.0 ** np.linspace(-16, -0.5, 12):
        yield x_hat * (1.0 + size * rng.standard_normal(len(x_hat)))
        yield np.where(rng.random(len(x_hat)) < 0.8, x_hat, 0.0) + size * rng.standard_normal(len(x_hat))
