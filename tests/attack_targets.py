"""Problems made to break certificates: any number of each kind from a seed, and those made by hand.

`KINDS` makes random ones, `CRAFTED` holds one for each way in which a certificate has been false. See `tests.attacks`.
"""

from __future__ import annotations

import importlib
import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp
from flint import arb

import suffice
from suffice import problems, terms
from suffice.arrays import like
from suffice.models.intercept import Intercepted
from suffice.models.multinomial import Multinomial
from suffice.problems.linear import penalised
from suffice.rows.design import Design
from suffice.solvers.newton import Newton
from tests.attacks import LINEAR, Target
from tests.reference import OwnProx, _quadratic
from tests.reference_balls import Linear, Quadratic, Softmax, precision, times, total
from tests.reference_exact import Kinked, enclose, psi_of, stated_term, truth

# Random data, as nasty as they come.

LOSSES = ("squared", "logistic", "huber", "poisson", "squared hinge")
PSI: dict[str, Any] = dict(
    zip(LOSSES, (terms.SQUARED, terms.LOGISTIC, terms.HUBER, terms.POISSON, terms.SQUARED_HINGE), strict=True)
)
MODELS: dict[str, Any] = {
    "squared": problems.ElasticNet,
    "logistic": problems.ElasticNetLogistic,
    "huber": problems.ElasticNetHuber,
    "poisson": problems.ElasticNetPoisson,
}


def matrix(rng: np.random.Generator) -> Any:
    """A matrix with up to three oddities."""
    d = int(rng.integers(1, 9))
    N = int(rng.integers(1, 31)) if rng.random() < 0.8 else int(rng.integers(1, d + 1))
    X = rng.standard_normal((N, d))
    for oddity in rng.choice(10, int(rng.integers(0, 4)), replace=False):
        j, k = rng.integers(0, d, 2)
        match oddity:
            case 0:
                X[:, j] = X[:, k]
            case 1:
                X[:, j] = X[:, k] * (1.0 + 2.0**-50 * rng.integers(0, 9, N))
            case 2:
                X = X * 10.0 ** rng.uniform(-8, 8, d)
            case 3:
                X = X * 10.0 ** rng.uniform(-8, 8, (N, 1))
            case 4:
                X[:, j] = X.max() or 1.0
            case 5:
                X[:, j] = 0.0
            case 6:
                X = X + 10.0 ** rng.uniform(0, 8)
            case 7:
                X = X * (rng.random(X.shape) < 0.4)
            case 8:
                X = X * 10.0 ** rng.uniform(-3, 3)
            case 9:
                X[:, j] = -X[:, k] + 1e-9 * X[:, j]
    return X


def targets(rng: np.random.Generator, loss: str, X: Any) -> Any:
    N, d = X.shape
    scaled = X / (np.abs(X).max() or 1.0)
    signal = scaled @ rng.standard_normal(d)
    if loss in ("logistic", "squared hinge"):
        y = np.where(signal + rng.standard_normal(N) > 0.0, 1.0, -1.0)
        y[0] = -y[-1] if N > 1 else 1.0
        return y
    if loss == "poisson":
        return rng.poisson(np.exp(np.clip(signal, -5, 5))).astype(float) * 10.0 ** rng.integers(0, 3)
    y = (signal + rng.standard_normal(N)) * 10.0 ** rng.uniform(-3, 3)
    if rng.random() < 0.2:
        y = y + 10.0 ** rng.uniform(0, 9)
    if rng.random() < 0.1:
        y[0] *= 1e9
    return y


def sample_weights(rng: np.random.Generator, N: int) -> Any:
    choice = rng.random()
    if choice < 0.5:
        return None
    weights = rng.integers(0, 4, N).astype(float) if choice < 0.75 else 10.0 ** rng.uniform(-12, 12, N)
    weights[0] = weights[-1] = 1.0
    return weights


def typed(rng: np.random.Generator, X: Any) -> tuple[Any, str]:
    """X as some type would hold it."""
    choice = rng.random()
    if choice < 0.6:
        return X, "float64"
    with np.errstate(over="ignore"):
        single = X.astype(np.float32)
    if choice < 0.8 and np.isfinite(single).all():
        return single, "float32"
    scaled = X / (np.abs(X).max() or 1.0)
    return np.round(scaled * (100.0 if choice < 0.9 else 2.0**40)).astype(np.int64), "int64"


def laid_out(rng: np.random.Generator, X: Any) -> tuple[Any, str]:
    layouts = ["C", "F", "CSR", "CSC", "RowBlocks", "array API"]
    layout = layouts[rng.choice(len(layouts), p=[0.3, 0.15, 0.2, 0.15, 0.1, 0.1])]
    if layout == "F":
        return np.asfortranarray(X), layout
    if layout in ("CSR", "CSC"):
        return (sp.csr_array if layout == "CSR" else sp.csc_array)(X), layout
    if layout == "RowBlocks":
        return terms.RowBlocks.of(X, block=max(len(X) // 3, 1)), layout
    if layout == "array API":
        try:
            import array_api_strict
        except ImportError:
            return X, "C"
        return array_api_strict.asarray(np.array(X, dtype=np.float64)), layout
    return X, layout


def penalties(rng: np.random.Generator, X: Any, weights: Any, loss: str, l1_max: float) -> tuple[float, float]:
    """l2 from 1e-10 to 1e10 of the largest curvature; l1 from nothing to where all weights vanish, that point too."""
    a = np.full(len(X), 1.0 / len(X)) if weights is None else weights / weights.sum()
    largest = float(np.abs(X).max()) or 1.0
    size = float(np.linalg.norm(np.sqrt(a)[:, None] * (X / largest), 2) ** 2) * largest * largest
    size = size if 0.0 < size < math.inf else 1.0
    spread = 10 if rng.random() < 0.5 else 3
    l2 = size * 10.0 ** rng.uniform(-spread, spread)
    choice = rng.random()
    if choice < 0.15:
        l1 = 0.0
    elif choice < 0.85:
        l1 = l1_max * 10.0 ** rng.uniform(-4, 0.05)
    else:
        l1 = l1_max * (1.0 + 2.0**-52 * float(rng.integers(-3, 4)))
    return l1, min(max(l2, 1e-300), 1e300)


def linear_target(rng: np.random.Generator, loss: str, X: Any, y: Any, weights: Any) -> Target:
    """The model in some type and layout."""
    X, dtype = typed(rng, X)
    given, layout = laid_out(rng, X)
    as_floats = np.asarray(X, dtype=np.float64)
    if loss == "squared hinge":
        design = Design.of(given, weights)
        y = like(y, design.X)
        l1_max = float(np.max(np.abs(terms.LinearModel(design, y, terms.SQUARED_HINGE).gradient(np.zeros(X.shape[1])))))

        def at(l1: float, l2: float) -> suffice.Composite:
            smooth = terms.LinearModel(design, y, terms.SQUARED_HINGE, l2)
            return suffice.Composite(smooth, terms.L1(l1), mu=l2, L=smooth.L, size=X.shape[1])
    else:
        model: problems.ElasticNetModel = MODELS[loss](given, y, sample_weight=weights)
        l1_max = model.l1_max

        def at(l1: float, l2: float) -> suffice.Composite:
            return model.at(l1=l1, l2=l2)

    l1, l2 = penalties(rng, as_floats, weights, loss, l1_max)
    solvers: tuple[str, ...] = LINEAR if loss != "poisson" else ("newton", "auto")
    return Target(f"linear, {loss}", at(l1, l2), dtype, layout, solvers)


def linear(rng: np.random.Generator) -> Target:
    loss = LOSSES[rng.choice(5, p=[0.3, 0.25, 0.2, 0.15, 0.1])]
    X = matrix(rng)
    while loss in ("logistic", "squared hinge") and len(X) < 2:
        X = matrix(rng)
    return linear_target(rng, loss, X, targets(rng, loss, X), sample_weights(rng, len(X)))


def scales(rng: np.random.Generator) -> Target:
    """Data from 1e-160 to 1e150."""
    loss = LOSSES[rng.choice(5)]
    X = rng.standard_normal((int(rng.integers(2, 12)), int(rng.integers(1, 5))))
    y = targets(rng, loss, X)
    size = 10.0 ** rng.uniform(-160, 150)
    X = X * size if rng.random() < 0.7 else X * 10.0 ** rng.uniform(-160, 150, X.shape[1])
    if loss in ("squared", "huber") and rng.random() < 0.7:
        y = y * 10.0 ** rng.uniform(-160, 150)
    return linear_target(rng, loss, X, y, sample_weights(rng, len(X)))


def cancelling(rng: np.random.Generator) -> Target:
    """Least squares in few variables whose gradients cancel nearly everything, against y or against l1."""
    N, d = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    X = np.round(rng.standard_normal((N, d)) * 2.0 ** rng.integers(0, 12)) + 0.0
    y = rng.standard_normal(N) * 10.0 ** rng.uniform(0, 22)
    if N > 1 and rng.random() < 0.5:  # X^T y is nearly nothing
        X[:, 0] = 1.0
        y[-1] = -np.sum(y[:-1]) + 10.0 ** rng.uniform(-5, 5)
    model = problems.ElasticNet(X, y)
    l2 = 10.0 ** rng.uniform(-8, 12)
    against = model.l1_max * (1.0 - 10.0 ** rng.uniform(-16, -3)) if rng.random() < 0.7 else 0.0
    return Target("linear, squared", model.at(l1=against, l2=l2))


def flat(rng: np.random.Generator) -> Target:
    """One flat and one curved direction, or a few, from afar: steps of length 1/l2, and momentum that swings."""
    d = int(rng.integers(2, 4))
    X = np.diag(10.0 ** np.where(np.arange(d) == 0, rng.uniform(-10, -5), rng.uniform(-0.5, 0.7, d)))
    if rng.random() < 0.3:
        X = X @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    loss = ("squared", "huber", "squared hinge", "logistic")[rng.choice(4, p=[0.4, 0.3, 0.2, 0.1])]
    y = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
    smooth = terms.LinearModel(Design.of(X), y, PSI[loss], 1.0)
    problem = suffice.Composite(smooth, terms.L1(float(rng.choice([0.0, 1e-9, 0.1]))), mu=1.0, L=smooth.L, size=d)
    start = 10.0 ** rng.uniform(0, 6) * np.where(np.arange(d) == 0, 1.0, 10.0 ** rng.uniform(-7, 0, d))
    return Target(f"linear, {loss}", problem, start=tuple(start), solvers=LINEAR)


def borderline(rng: np.random.Generator) -> Target:
    """Variables that are zero, or not, by the last digits of their gradients: is one screened that should not be?"""
    H = np.array([[1.0]])
    for _ in range(int(rng.integers(2, 6))):
        H = np.block([[H, H], [H, -H]])
    X = H[:, : int(rng.integers(2, min(len(H), 12) + 1))] * 2.0 ** rng.integers(-3, 4)
    w = rng.standard_normal(X.shape[1]) * 10.0 ** rng.uniform(-3, 3)
    w[1:] = w[0] * (1.0 + rng.choice([0.0, 1e-15, 1e-12, -1e-13, 1e-3], X.shape[1] - 1))
    y = X @ w + rng.choice([0.0, 1.0]) * rng.standard_normal(len(X))
    model = problems.ElasticNet(X, y)
    l1 = model.l1_max * (1.0 - 10.0 ** rng.uniform(-16, -9))
    l2 = float(np.sum(X[:, 0] ** 2)) / len(X) * 10.0 ** rng.uniform(-6, 2)
    return Target("linear, squared", model.at(l1=l1, l2=l2))


def means(rng: np.random.Generator) -> Target:
    """Models held against their text: a_i = s_i / sum(s) or 1/N as rational numbers, where the package rounds them."""
    loss = LOSSES[rng.choice(4)]
    X, weights = matrix(rng), None
    while len(X) < 2:
        X = matrix(rng)
    y = targets(rng, loss, X)
    if rng.random() < 0.5:
        weights = np.maximum(rng.integers(0, 4, len(X)), np.arange(len(X)) < 1).astype(float)
    model = MODELS[loss](X, y, sample_weight=weights)
    l1, l2 = penalties(rng, X, weights, loss, model.l1_max)
    with precision(5000):
        exact = [arb(float(s)) for s in (np.ones(len(X)) if weights is None else weights)]
        F = Linear(X, model.y, [s / total(exact) for s in exact], psi_of(model.loss), l2)
    g = Kinked.l1([l1] * X.shape[1])
    solvers = LINEAR if loss != "poisson" else ("newton", "auto")
    return Target(f"linear, {loss}", model.at(l1=l1, l2=l2), solvers=solvers, exactly=lambda: enclose(F, g))


def penalised_by_column(
    rng: np.random.Generator, model: Callable[[float], Any], l1: float, l2: float, size: int
) -> Any:
    """One penalty for all variables, or one each as `groups_of_features` has them."""
    if rng.random() < 0.6:
        return penalised(model, l1, l2, l2, size)
    return penalised(model, l1 * 10.0 ** rng.uniform(-2, 1, size), l2 * 10.0 ** rng.uniform(-3, 3, size), l2, size)


def intercept(rng: np.random.Generator) -> Target:
    """Linear models whose intercept is minimised out."""
    loss = ("squared", "logistic", "poisson")[rng.choice(3)]
    X = matrix(rng)
    while len(X) < 3:
        X = matrix(rng)
    y, weights = targets(rng, loss, X), sample_weights(rng, len(X))
    if loss == "poisson":
        y[0] += 1.0
        X = X / (np.abs(X).max() or 1.0) * 10.0 ** rng.uniform(-2, 2)
    X, dtype = typed(rng, X)
    given, layout = (sp.csr_array(X), "CSR") if rng.random() < 0.4 else (X, "C")
    design = Design.of(given, weights)
    model = Intercepted(design, y, PSI[loss])
    l1_max = float(np.max(np.abs(model.gradient(np.zeros(X.shape[1])))))
    l1, l2 = penalties(rng, np.asarray(X, dtype=np.float64), weights, loss, l1_max)
    problem = penalised_by_column(rng, lambda l2: Intercepted(design, y, PSI[loss], l2), l1, l2, X.shape[1])
    solvers = LINEAR if loss != "poisson" else ("newton", "auto")
    return Target(f"intercept, {loss}", problem, dtype, layout, solvers)


def batches(rng: np.random.Generator) -> Target:
    """Models that share an X of torch, each with rows and penalties of its own, with intercepts or without."""
    loss, intercepted = LOSSES[rng.choice(5)], bool(rng.random() < 0.5)
    loss = "logistic" if intercepted and loss in ("huber", "squared hinge") else loss
    X = matrix(rng)
    while len(X) < 4:
        X = matrix(rng)
    y = targets(rng, loss, X)
    if loss == "poisson":
        y[0] += 1.0
        X = X / (np.abs(X).max() or 1.0) * 10.0 ** rng.uniform(-2, 2)
    X, dtype = typed(rng, X)
    kind, there = Intercepted if intercepted else terms.LinearModel, None
    models = []
    for _ in range(int(rng.integers(2, 5))):
        weights = sample_weights(rng, len(X)) if rng.random() < 0.5 else rng.integers(0, 2, len(X)).astype(float)
        weights = np.ones(len(X)) if weights is None else weights
        weights[0] = weights[-1] = 1.0  # labels of both kinds
        design = Design.of(importlib.import_module("torch").asarray(X) if there is None else there, weights)
        there, psi = design.X, PSI[loss]
        design = design.with_weights_here() if intercepted else design
        own = like(y, design.weights)
        l1_max = float(np.max(np.abs(kind(design, own, psi).gradient(np.zeros(X.shape[1])))))
        l1, l2 = penalties(rng, np.asarray(X, dtype=np.float64), weights, loss, l1_max)
        smooth = kind(design, own, psi, l2)
        models.append(suffice.Composite(smooth, terms.L1(l1), mu=l2, L=smooth.L, size=X.shape[1]))
    name = f"{'intercept' if intercepted else 'linear'}, {loss}"
    first, *others = (Target(name, one, dtype, "torch", ("auto",), effort=0.2) for one in models)
    return replace(first, beside=tuple(others))


def multinomial(rng: np.random.Generator) -> Target:
    """Softmax regression, with and without intercepts."""
    K, d = int(rng.integers(3, 5)), int(rng.integers(1, 4))
    N = int(rng.integers(2 * K, 16))
    labels = np.concatenate([np.arange(K), rng.integers(0, K, N - K)])
    X = (rng.standard_normal((N, d)) + np.eye(K, d)[labels]) * 10.0 ** rng.uniform(-3, 3, d)
    X = X + rng.choice([0.0, 1.0, 1e5])
    weights = sample_weights(rng, N)
    if weights is not None:
        weights[:K] = np.maximum(weights[:K], 1e-3)
    X, dtype = typed(rng, X)
    given, layout = (sp.csr_array(X), "CSR") if rng.random() < 0.4 else (X, "C")
    design, intercepted = Design.of(given, weights), bool(rng.random() < 0.6)

    def model(l2: float) -> Multinomial:
        return Multinomial(design, labels.astype(float), K, intercepted, l2)

    l1_max = float(np.max(np.abs(model(0.0).gradient(np.zeros(K * d)))))
    l1, l2 = penalties(rng, np.asarray(X, dtype=np.float64), weights, "logistic", l1_max)
    solvers = ("fista", "fista_adaptive", "gradient_descent", "auto", Newton())
    problem = penalised_by_column(rng, model, l1, l2, K * d)
    name = f"softmax{', intercept' if intercepted else ''}"
    return Target(name, problem, dtype, layout, solvers, effort=0.3 if intercepted else 0.6)


def term(rng: np.random.Generator, pull: Any, size: int) -> tuple[Any, str]:
    """Some g; half of those that can be are a user's own, with value and prox only."""
    strength, typical = 10.0 ** rng.uniform(-3, 0.1), float(np.max(np.abs(pull))) or 1.0
    name = ("l1", "weighted l1", "elastic net", "group", "box", "non-negative", "zero")[rng.choice(7)]
    if name == "l1":
        made: Any = terms.L1(strength * typical)
    elif name == "weighted l1":
        made = terms.WeightedL1(strength * typical * rng.integers(0, 3, size) * rng.random(size))
    elif name == "elastic net":
        return terms.ElasticNet(strength * typical, 0.0), name  # its ridge is chosen by the caller
    elif name == "group":
        groups = np.array_split(rng.permutation(size)[: max(size - size // 4, 1)], max(1, size // 3))
        made = terms.Group(groups, [strength * float(np.linalg.norm(pull[group])) for group in groups])
    elif name == "box":
        lower = -(10.0 ** rng.uniform(-6, 1)) * rng.random(size)
        made = terms.Box(lower, lower + 10.0 ** rng.uniform(-6, 1) * rng.integers(0, 3, size))
    elif name == "non-negative":
        made = terms.NonNegative()
    else:
        return terms.Zero(), name
    return (OwnProx(made), f"own {name}") if rng.random() < 0.4 else (made, name)


def exact_term(prox: Any, size: int) -> tuple[Any, float]:
    return stated_term(prox._term if isinstance(prox, OwnProx) else prox, size)


def other_terms(rng: np.random.Generator) -> Target:
    """Linear models with any g."""
    loss = ("squared", "logistic", "huber")[rng.choice(3)]
    X = matrix(rng)
    while len(X) < 2:
        X = matrix(rng)
    y, weights = targets(rng, loss, X), sample_weights(rng, len(X))
    X, dtype = typed(rng, X)
    given, layout = laid_out(rng, X)
    design = Design.of(given, weights)
    model, size = terms.LinearModel(design, like(y, design.X), PSI[loss]), X.shape[1]
    prox, name = term(rng, model.gradient(np.zeros(size)), size)
    _, l2 = penalties(rng, np.asarray(X, dtype=np.float64), weights, loss, 1.0)
    share = float(rng.choice([0.0, 0.5, 1.0])) if name == "elastic net" else 0.0
    if name == "elastic net":
        prox = terms.ElasticNet(prox.l1, share * l2)
    smooth = terms.LinearModel(design, model.y, PSI[loss], (1.0 - share) * l2)
    problem = suffice.Composite(smooth, prox, mu=smooth.l2, L=smooth.L, size=size)
    stated = suffice.Composite(smooth, prox._term, mu=smooth.l2, L=smooth.L, size=size) if "own" in name else problem
    newton = ("newton",) if name in ("l1", "weighted l1", "elastic net", "zero") else ()
    solvers = ("fista", "fista_adaptive", "gradient_descent", "auto", *newton)
    return Target(f"linear with {name}", problem, dtype, layout, solvers, exactly=lambda: truth(stated))


def own(rng: np.random.Generator) -> Target:
    """A user's own quadratic, of which the package knows value and gradient only."""
    kappa = 10.0 ** rng.uniform(0.0, 8.0)
    smooth, _, mu, L, _ = _quadratic(rng, "own", kappa, 0.0)
    size = len(smooth.b)
    prox, name = term(rng, smooth.b, size)
    while "group" in name:
        prox, name = term(rng, smooth.b, size)
    if name == "elastic net":
        prox = terms.ElasticNet(prox.l1, mu * 10.0 ** rng.uniform(-3, 6))
    g, ridge = exact_term(prox, size)
    F = Quadratic(smooth.A, smooth.b, mu, ridge)
    problem = suffice.Composite(smooth, prox, mu=mu, L=L, size=size)
    solvers = ("fista", "fista_adaptive", "gradient_descent", "auto")
    return Target("own quadratic", problem, solvers=solvers, exactly=lambda: enclose(F, g))


# Made by hand, one for each way in which a certificate has been false.


def cancelling_once() -> Target:
    """y and l1 cancel but for one part in 2^40: a first step from 0 has the rounding of y - l1 all over it."""
    return Target("linear, squared", problems.ElasticNet([[1.0]], [1e20 * (1.0 + 2.0**-40)]).at(l1=1e20, l2=1e8))


def exact_at_zero() -> Target:
    """X^T y is 1/3, and 0 in floating-point arithmetic: w = 0 is not the minimiser."""
    return Target("linear, squared", problems.ElasticNet(np.ones((3, 1)), [1e17, 1.0, -1e17]).at(l1=0.0, l2=1.0))


def equal_rows(name: str, N: int, smooth: Callable[[Any, Any], Any], rows: Any, labels: Any, **how: Any) -> Target:
    """N rows, of which few are different: `labels` says how often each of `rows` has which label. l1 = 0, l2 = 1, and
    every addition of a sparse product rounds the same way.

    `smooth` makes the package's term of (design, y).
    """
    cells = [(row, label, share) for row, shares in zip(rows, labels, strict=True) for label, share in shares.items()]
    counts = [round(share * N) for _, _, share in cells]
    counts[-1] += N - sum(counts)
    X = np.repeat(np.array([row for row, _, _ in cells]), counts, axis=0)
    y = np.repeat(np.array([label for _, label, _ in cells]), counts)
    layout = how.get("layout", "CSR")
    design = Design.of(sp.csr_array(X) if layout == "CSR" else X)
    term, a = smooth(design, y), float(design.weights[0])
    size = term.classes * len(rows[0]) if isinstance(term, Multinomial) else len(rows[0])
    problem = suffice.Composite(term, terms.L1(0.0), mu=1.0, L=term.L, size=size)
    different, labels, weights = (
        [row for row, _, _ in cells],
        [one for _, one, _ in cells],
        [times(n, a) for n in counts],
    )
    F: Any
    solvers: tuple[Any, ...]
    if isinstance(term, Multinomial):
        F, solvers = (
            Softmax(np.array(different), np.eye(term.classes)[labels], weights, 1.0, term.intercept),
            (Newton(),),
        )
    else:
        F = Linear(different, labels, weights, psi_of(term.loss), 1.0, isinstance(term, Intercepted))
        solvers = LINEAR if isinstance(term, terms.LinearModel) and N <= 10**5 else ("fista", "newton")
        solvers = solvers if N <= 10**6 else ("fista",)
    g = Kinked.l1([0.0] * size)
    return Target(
        name, problem, "float64", layout, solvers, lambda: enclose(F, g), effort=how.get("effort", min(4e4 / N, 0.5))
    )


def flat_by_default() -> Target:
    """The same for the solver that is taken by default, off by a factor of 1e8."""
    model = problems.ElasticNetHuber([[1e-8, 0.0], [0.0, 0.5]], [1.0, -1.0])
    return Target("linear, huber", model.at(l1=0.0, l2=1.0), start=(1e5, 0.1))


def rare_positives(N: int) -> Target:
    """A sparse column of ones and one label in a hundred."""
    labels = [{1.0: 0.01, -1.0: 0.99}]
    return equal_rows("linear, logistic", N, lambda X, y: terms.LinearModel(X, y, terms.LOGISTIC, 1.0), [[1.0]], labels)


def constant_data(N: int, entry: float = 1.0, layout: str = "CSR") -> Target:
    """The same row N times."""

    def smooth(design: Design, y: Any) -> terms.LinearModel:
        return terms.LinearModel(design, y, terms.SQUARED, 1.0)

    return equal_rows("linear, squared", N, smooth, [[entry]], [{0.1: 1.0}], layout=layout)


ROWS = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.3]]


def rare_with_intercept(N: int) -> Target:
    labels = [{1.0: 0.01, -1.0: 0.4}, {1.0: 0.2, -1.0: 0.1}, {1.0: 0.04, -1.0: 0.25}]
    return equal_rows("intercept, logistic", N, lambda X, y: Intercepted(X, y, terms.LOGISTIC, 1.0), ROWS, labels)


def repeated_counts(N: int) -> Target:
    labels = [{0.0: 0.1, 1.0: 0.3}, {3.0: 0.3}, {7.0: 0.1, 0.0: 0.2}]
    return equal_rows("intercept, poisson", N, lambda X, y: Intercepted(X, y, terms.POISSON, 1.0), ROWS, labels)


def repeated_classes(N: int) -> Target:
    labels = [{0: 0.01, 1: 0.4}, {1: 0.2, 2: 0.1}, {0: 0.04, 1: 0.05, 2: 0.2}]

    def smooth(design: Design, y: Any) -> Multinomial:
        return Multinomial(design, y, 3, True, 1.0)

    return equal_rows("softmax, intercept", N, smooth, ROWS, labels)


def underflowing() -> Target:
    """A gradient of 1e-170, whose square is 0."""
    return Target("linear, squared", problems.ElasticNet([[1e-170]], [1.0]).at(l1=0.0, l2=1.0))


def overflowing() -> Target:
    """Rates beyond the range of floats on rows that point apart: inf - inf."""
    model = problems.ElasticNetPoisson([[1e5, 1e5], [1e5, -1e5]], [1.0, 2.0])
    return Target("linear, poisson", model.at(l1=0.0, l2=1.0), solvers=("newton", "auto"), start=(1.0, 0.0))


def flat_and_curved() -> Target:
    """A step of length 1/l2 along a flat direction, which contracts nothing in the curved one."""
    model = problems.ElasticNet([[1e-8, 0.0], [0.0, 2.2]], [1.0, 1.0])
    return Target("linear, squared", model.at(l1=0.0, l2=1.0), start=(1e5, 1e4))


CRAFTED: dict[str, Callable[[], Target]] = {
    "y against l1": cancelling_once,
    "exact at zero": exact_at_zero,
    "underflow": underflowing,
    "overflow": overflowing,
    "flat and curved": flat_and_curved,
    "flat by default": flat_by_default,
    **{f"rare positives, N = {N:.0e}": partial(rare_positives, N) for N in (10**5, 10**6, 4 * 10**6)},
    **{f"constant data, CSR, N = {N:.0e}": partial(constant_data, N) for N in (10**6, 10**7)},
    "constant data, dense, N = 1e7": partial(constant_data, 10**7, 0.1, "C"),
    **{f"intercept, rare positives, N = {N:.0e}": partial(rare_with_intercept, N) for N in (10**5, 3 * 10**5)},
    "intercept, repeated counts, N = 3e5": partial(repeated_counts, 3 * 10**5),
    "softmax, repeated classes, N = 3e4": partial(repeated_classes, 3 * 10**4),
}

KINDS: dict[str, Callable[[np.random.Generator], Target]] = {
    "linear": linear,
    "scales": scales,
    "cancelling": cancelling,
    "flat": flat,
    "borderline": borderline,
    "means": means,
    "intercept": intercept,
    "multinomial": multinomial,
    "terms": other_terms,
    "own": own,
    **({"batches": batches} if find_spec("torch") else {}),
}
SHARES = {"linear": 6, "scales": 4, "cancelling": 3, "terms": 3, "multinomial": 0.5}  # others: 1


def target_of(kind: str, seed: int, number: int) -> tuple[Target, np.random.Generator]:
    """A target and a generator for what is done with it: the same for the same three."""
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), number])
    return (list(CRAFTED.values())[number]() if kind == "crafted" else KINDS[kind](rng)), rng
