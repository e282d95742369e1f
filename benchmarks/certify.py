"""Does `suffice.certify` ever say anything false about a fitted model of scikit-learn? 10,000 of them.

Every estimator of scikit-learn that is known, with every argument of its constructor at several values, two or three
others drawn at random, on small random data: well fitted, fitted as by default, left after a few iterations, or with
coefficients that were moved afterwards. The truth comes from outside: the objective as scikit-learn documents it, in
its own units, is written down here once more and minimised here, by Newton's method with l1 inside, in float64 and then
with gradients in extended precision on the support; the optimality conditions at the end bound what is left (`slack`).

Held against it are all numbers of a report and its sentence: `at_least` <= distance <= `radius`, `relative`, the errors
of intercept and predictions, the score of the exact model in `score_interval`, "x % off, at the least", "within r of
exact". A report that tells anything about a model whose objective is not written down here (Crammer and Singer's, rows
held back for early stopping, ...) is false as well: it is about another model. A model with default arguments on
ordinary data must not be refused; SGDClassifier counts with loss="log_loss", as its default is not smooth.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
from common import parser, provenance, table, target, write_json, write_text  # noqa: E402
from sklearn import linear_model, svm  # noqa: E402

import suffice  # noqa: E402

Array = Any
LONG = np.longdouble
LISTED = 100


class UnknownError(Exception):
    """The objective of this model is not written down here, or has no single minimiser."""


# What is varied: (task, values of arguments); those of `COMMON` mean the same for all.
COMMON: dict[str, tuple[Any, ...]] = {
    "fit_intercept": (True, False),
    "copy_X": (True, False),
    "random_state": (0, 1, None),
    "verbose": (0, False),
    "warm_start": (False, True),
    "n_jobs": (None, 1),
    "tol": (1e-12, 1e-6, 1e-3, 1e-1),
    "max_iter": (1, 3, 10, 1000),
    "alpha": (1e-3, 0.03, 0.3, 3.0, 0.0),
    "alphas": ([0.01, 0.1, 1.0], [0.3]),
    "l1_ratio": (0.5, 0.05, 0.9, 1.0),
    "positive": (False, True),
    "class_weight": (None, "balanced", {"no": 3.0}, {"yes": 0.5, "no": 2.0}),
    "cv": (3, 4),
    "eps": (1e-3, 1e-2),
    "precompute": (False, True),
    "selection": ("cyclic", "random"),
    "store_cv_results": (False, True),
    "n_alphas": ("deprecated",),  # up to scikit-learn 1.8
    "solver": ("lbfgs", "newton-cholesky"),
    "intercept_scaling": (1.0, 0.3, 4.0),
    "C": (1.0, 0.02, 0.3, 20.0),
}
RIDGE_SOLVERS = ("auto", "svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga", "lbfgs")
LOGISTIC_SOLVERS = ("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga")
RIDGE_CHOICE = {"alphas": ((0.1, 1.0, 10.0), (0.3,)), "cv": (None, 3)}
LARS = {"precompute": ("auto", True, False), "eps": (np.finfo(float).eps, 1e-12), "fit_path": (True, False)}
LARS |= {"jitter": (None, 1e-2), "max_iter": (500, 1, 2)}
SGD: dict[str, tuple[Any, ...]] = {
    "penalty": ("l2", "l1", "elasticnet", None),
    "shuffle": (True, False),
    "epsilon": (0.1, 1.0),
    "learning_rate": ("constant", "optimal", "invscaling", "adaptive"),
    "eta0": (0.01, 0.001),
    "power_t": (0.25, 0.5),
    "early_stopping": (False, True),
    "validation_fraction": (0.1, 0.3),
    "n_iter_no_change": (5, 2),
    "average": (False, True, 10),
    "max_iter": (1, 20, 300),
}
LOGISTIC: dict[str, tuple[Any, ...]] = {
    "C": (1.0, 0.02, 0.3, 20.0, np.inf),
    "l1_ratio": (0.0, 1.0, 0.5),
    "penalty": ("deprecated", "l2", "l1", "elasticnet", None),
    "dual": (False, True),
    "solver": LOGISTIC_SOLVERS,
}
ESTIMATORS: dict[str, tuple[str, dict[str, tuple[Any, ...]]]] = {
    "LinearRegression": ("real", {}),
    "Ridge": ("real", {"solver": RIDGE_SOLVERS, "max_iter": (None, 1, 3, 1000)}),
    "RidgeCV": ("real", RIDGE_CHOICE | {
        "scoring": (None, "neg_mean_squared_error"), "gcv_mode": (None, "auto", "svd", "eigen"),
        "alpha_per_target": (False,),
    }),
    "Lasso": ("real", {}),
    "LassoCV": ("real", {"precompute": ("auto", False, True), "alphas": (5, [0.01, 0.1], 20)}),
    "LassoLars": ("real", LARS),
    "LassoLarsCV": ("real", {**LARS, "max_n_alphas": (1000, 10)}),
    "ElasticNet": ("real", {}),
    "ElasticNetCV": ("real", {
        "precompute": ("auto", False, True), "alphas": (5, [0.01, 0.1], 20), "l1_ratio": (0.5, [0.2, 0.9]),
    }),
    "PoissonRegressor": ("counts", {}),
    "GammaRegressor": ("amounts", {}),
    "TweedieRegressor": ("amounts", {"power": (0, 1, 2, 1.5, 3), "link": ("auto", "identity", "log")}),
    "SGDRegressor": ("real", SGD | {"loss": ("squared_error", "huber", "epsilon_insensitive")}),
    "SGDClassifier": ("two", SGD | {"loss": ("log_loss", "squared_hinge", "hinge", "modified_huber", "squared_error")}),
    "LogisticRegression": ("two", LOGISTIC),
    "LogisticRegressionCV": ("two", {
        "Cs": ([0.1, 1.0], 3, [np.inf]), "l1_ratios": ((0.0,), (1.0,), (0.3, 0.8)), "scoring": ("neg_log_loss",),
        "refit": (True, False), "use_legacy_attributes": (False, True), "penalty": LOGISTIC["penalty"],
        "dual": (False, True), "solver": LOGISTIC_SOLVERS,
    }),
    "LinearSVC": ("two", {
        "penalty": ("l2", "l1"), "loss": ("squared_hinge", "hinge"), "dual": ("auto", False, True),
        "multi_class": ("ovr", "crammer_singer"),
    }),
    "RidgeClassifier": ("two", {"solver": RIDGE_SOLVERS, "max_iter": (None, 1, 3, 1000)}),
    "RidgeClassifierCV": ("two", RIDGE_CHOICE | {"scoring": (None, "accuracy")}),
}  # fmt: skip
PLAIN = {"SGDClassifier": {"loss": "log_loss"}}
ALWAYS = {"LogisticRegressionCV": {"l1_ratios": (0.0,), "scoring": "neg_log_loss", "use_legacy_attributes": False}}
THREE_CLASSES = ("LogisticRegression", "LogisticRegressionCV", "LinearSVC", "RidgeClassifier", "SGDClassifier")
WAYS = ("well", "default", "badly", "moved")


def class_of(name: str) -> Any:
    return getattr(svm if name == "LinearSVC" else linear_model, name)


def values_of(name: str, argument: str) -> tuple[Any, ...]:
    own = ESTIMATORS[name][1]
    if argument not in own and argument not in COMMON:
        raise KeyError(f"{name} has an argument that nobody has thought of here: {argument}")
    return own.get(argument, COMMON.get(argument, ()))


# The documented objectives: sum_i c_i psi(x_i . w + b, y_i) + l1 ||w||_1 + l2 ||w||^2 / 2.


@dataclass(frozen=True)
class Documented:
    psi: str
    c: Array  # of rows
    l1: float
    l2: float
    y: Array
    intercept: float | None  # the value of its column; None: no intercept
    penalised: bool = False  # whether the intercept is
    epsilon: float = 0.0
    classes: int = 0


def documented(model: Any, y: Array, s: Array) -> Documented:
    """What scikit-learn's documentation says that this model minimises."""
    name, n = type(model).__name__, len(y)
    if getattr(model, "positive", False) or getattr(model, "early_stopping", False) or np.ndim(y) > 1:
        raise UnknownError
    free = 1.0 if model.fit_intercept else None
    if name in ("RidgeClassifier", "RidgeClassifierCV", "SGDClassifier", "LinearSVC") or name.startswith("Logistic"):
        s = s * class_weights(model, y, s, weighted=name.startswith("L"))
        many = len(model.classes_) > 2
        if many and not name.startswith("Logistic"):
            raise UnknownError
        y = np.searchsorted(model.classes_, y) if many else np.where(y == model.classes_[1], 1.0, -1.0)
    N = s.sum()
    alpha = getattr(model, "alpha_", getattr(model, "alpha", 0.0))
    if name == "LinearRegression":
        return Documented("squares", 2.0 * s, 0.0, 0.0, y, free)
    if name.startswith("Ridge"):
        return Documented("squares", 2.0 * s, 0.0, 2.0 * alpha, y, free)
    if name.startswith(("Lasso", "ElasticNet")):
        if getattr(model, "jitter", None) is not None:
            raise UnknownError
        ratio = 1.0 if name.startswith("Lasso") else getattr(model, "l1_ratio_", model.l1_ratio)
        return Documented("squares", s / N, alpha * ratio, alpha * (1.0 - ratio), y, free)
    if name in ("PoissonRegressor", "GammaRegressor", "TweedieRegressor"):
        power = {"PoissonRegressor": 1, "GammaRegressor": 2}.get(name) or getattr(model, "power", 0)
        link = getattr(model, "link", "log")
        link = ("log" if power > 0 else "identity") if link == "auto" else link
        kinds = {(0, "identity"): "squares", (1, "log"): "poisson", (2, "log"): "gamma"}
        if (power, link) not in kinds:
            raise UnknownError
        return Documented(kinds[power, link], s / N, 0.0, alpha, y, free)
    if name.startswith("SGD"):
        kinds = {"squared_error": "squares", "log_loss": "logistic", "squared_hinge": "squared hinge"}
        if model.loss not in kinds:
            raise UnknownError
        ratio = {"l1": 1.0, "l2": 0.0, "elasticnet": model.l1_ratio, None: 0.0}[model.penalty]
        alpha = 0.0 if model.penalty is None else alpha
        return Documented(kinds[model.loss], s / n, alpha * ratio, alpha * (1.0 - ratio), y, free)
    if name == "LinearSVC":
        if model.loss != "squared_hinge" or model.multi_class != "ovr":
            raise UnknownError
        column = model.intercept_scaling if model.fit_intercept else None
        one = float(model.penalty == "l1")
        return Documented("squared hinge", model.C * s, one, 1.0 - one, y, column, True)
    C = float(np.ravel(getattr(model, "C_", getattr(model, "C", 0.0)))[0])
    chosen = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 0.0))
    ratio = {"l1": 1.0, "l2": 0.0}.get(model.penalty)
    ratio = float(np.ravel(chosen)[0] or 0.0) if ratio is None else ratio
    liblinear = model.solver == "liblinear"
    column = liblinear and model.fit_intercept
    if not getattr(model, "refit", True) or (name.endswith("CV") and column and model.intercept_scaling != 1.0):
        raise UnknownError
    if column:
        free = model.intercept_scaling
    if not math.isfinite(C) or model.penalty is None:
        C, strength = 1.0, 0.0
    else:
        strength = 1.0
    classes = len(model.classes_) if len(model.classes_) > 2 else 0
    psi = "softmax" if classes else "logistic"
    return Documented(psi, C * s, strength * ratio, strength * (1.0 - ratio), y, free, liblinear, classes=classes)


def class_weights(model: Any, y: Array, s: Array, *, weighted: bool) -> Array:
    if model.class_weight is None:
        return np.ones(len(y))
    if model.class_weight == "balanced":
        count = s if weighted else np.ones(len(y))
        each = {label: count.sum() / (len(model.classes_) * count[y == label].sum()) for label in model.classes_}
    else:
        each = model.class_weight
    return np.array([each.get(label, 1.0) for label in y])


# Their minimisers


@dataclass(frozen=True)
class Exact:
    w: Array  # classes x columns, or columns
    b: Array
    margins: Array
    slack: float  # what may be missing to the true minimiser, in z


class Smooth:
    """The objective without its l1 in z (coefficients, and that of the intercept): value, gradient,
    Hessian. A constant added to the intercepts of all classes is free: their sum is asked to be 0."""

    def __init__(self, problem: Documented, X: Array, dtype: Any) -> None:
        self.of = problem
        column = [] if problem.intercept is None else [np.full((len(X), 1), problem.intercept)]
        self.A = np.hstack([X, *column]).astype(dtype)
        self.y, self.c = np.asarray(problem.y).astype(dtype), problem.c.astype(dtype)
        penalised = np.ones(self.A.shape[1])
        if column and not problem.penalised:
            penalised[-1] = 0.0
        count = max(problem.classes, 1)
        self.l1, self.l2 = np.tile(problem.l1 * penalised, count), np.tile(problem.l2 * penalised, count).astype(dtype)

    def __call__(self, z: Array) -> tuple[Any, Array, Array]:
        value, g, H = getattr(self, "_" + self.of.psi.replace(" ", "_"))(z)
        return value + np.sum(self.l2 * z * z) / 2, g + self.l2 * z, H + np.diag(self.l2)

    def _of_margins(self, psi: Array, slope: Array, bend: Array) -> tuple[Any, Array, Array]:
        A, c = self.A, self.c
        return np.sum(c * psi), A.T @ (c * slope), A.T @ ((c * bend)[:, None] * A)

    def _squares(self, z: Array) -> tuple[Any, Array, Array]:
        r = self.A @ z - self.y
        return self._of_margins(r * r / 2, r, np.ones_like(r))

    def _logistic(self, z: Array) -> tuple[Any, Array, Array]:
        m, y = self.A @ z, self.y
        e = np.exp(-np.abs(m))
        p = np.where(y * m > 0, e, 1) / (1 + e)
        return self._of_margins(np.logaddexp(m.dtype.type(0), -y * m), -y * p, e / (1 + e) ** 2)

    def _squared_hinge(self, z: Array) -> tuple[Any, Array, Array]:
        short = np.maximum(1 - self.y * (self.A @ z), 0)
        return self._of_margins(short**2, -2 * self.y * short, 2 * (short > 0).astype(short.dtype))

    def _poisson(self, z: Array) -> tuple[Any, Array, Array]:
        m = self.A @ z
        return self._of_margins(np.exp(m) - self.y * m, np.exp(m) - self.y, np.exp(m))

    def _gamma(self, z: Array) -> tuple[Any, Array, Array]:
        m = self.A @ z
        q = self.y * np.exp(-m)
        return self._of_margins(q + m, 1 - q, q)

    def _softmax(self, z: Array) -> tuple[Any, Array, Array]:
        A, K = self.A, self.of.classes
        M = A @ z.reshape(K, -1).T
        onehot = (self.y[:, None] == np.arange(K)).astype(M.dtype)
        top = M.max(axis=1, keepdims=True)
        E = np.exp(M - top)
        P = E / E.sum(axis=1, keepdims=True)
        losses = np.log(E.sum(axis=1)) + top[:, 0] - np.sum(onehot * M, axis=1)
        G = ((P - onehot) * self.c[:, None]).T @ A
        p = A.shape[1]
        H = np.empty((K * p, K * p), dtype=M.dtype)
        for i in range(K):
            for j in range(K):
                bend = P[:, i] * ((i == j) - P[:, j]) * self.c
                H[i * p : (i + 1) * p, j * p : (j + 1) * p] = A.T @ (bend[:, None] * A)
        g = G.ravel()
        if self.of.intercept is not None:
            places = np.arange(p - 1, K * p, p)
            g[places] += z[places].sum()
            H[np.ix_(places, places)] += 1
            return np.sum(self.c * losses) + z[places].sum() ** 2 / 2, g, H
        return np.sum(self.c * losses), g, H


def minimise(problem: Documented, X: Array) -> Exact:
    """The minimiser; `UnknownError` if there is no single one, or its signs cannot be told."""
    f = Smooth(problem, X, np.float64)
    z = np.zeros(len(f.l1))
    damping = 1e-13
    for _ in range(400):
        value, g, H = f(z)
        step = quadratic_step(g, H + damping * np.trace(H) * np.eye(len(z)), f.l1, z)
        slope = g @ step + f.l1 @ (np.abs(z + step) - np.abs(z))
        t, here = 1.0, value + f.l1 @ np.abs(z)
        if -slope <= 1e-15 * (1.0 + abs(here)):  # what is left is for extended precision
            break
        while t > 1e-12 and not f(z + t * step)[0] + f.l1 @ np.abs(z + t * step) <= here + 0.1 * t * slope:
            t *= 0.5
        if t <= 1e-12 and damping < 1.0:
            damping *= 100.0
            continue
        damping = max(1e-13, 0.1 * damping)
        z = z + t * step
        if np.linalg.norm(step) <= 1e-13 * (1.0 + np.linalg.norm(z)):
            break
    return polished(problem, X, z, f.l1)


def quadratic_step(g: Array, H: Array, l1: Array, z: Array) -> Array:
    """argmin_s  g . s + s . H s / 2 + l1 . |z + s|."""
    if not l1.any():
        return -np.linalg.solve(H, g)
    s, Hs = np.zeros(len(z)), np.zeros(len(z))
    for _ in range(500):
        most = 0.0
        for j in range(len(z)):
            curvature = max(H[j, j], 1e-300)
            goal = z[j] + s[j] - (g[j] + Hs[j]) / curvature
            new = math.copysign(max(abs(goal) - l1[j] / curvature, 0.0), goal) - z[j]
            if new != s[j]:
                most = max(most, abs(new - s[j]))
                Hs = Hs + H[j] * (new - s[j])
                s[j] = new
        if most <= 1e-15 * (1.0 + np.abs(z).max()):
            break
    return s


def polished(problem: Documented, X: Array, z: Array, l1: Array) -> Exact:
    f, z, signs = Smooth(problem, X, LONG), z.astype(LONG), np.sign(z)
    S = np.flatnonzero((signs != 0) | (l1 == 0))
    for _ in range(12):
        _, g, H = f(z)
        u = (g + l1 * signs)[S]
        part = H[np.ix_(S, S)].astype(np.float64)
        if len(S):
            eigenvalues = np.linalg.eigvalsh(part)
            if not eigenvalues[0] > 1e-9 * eigenvalues[-1]:
                raise UnknownError
            z[S] -= np.linalg.solve(part, u.astype(np.float64))
    _, g, _ = f(z)
    u = np.linalg.norm((g + l1 * signs)[S].astype(np.float64))
    outside = np.setdiff1d(np.arange(len(z)), S)
    slack = 4.0 * u / eigenvalues[0] if len(S) else 0.0
    if np.any(np.sign(z)[l1 > 0] != signs[l1 > 0]) or np.any(np.abs(g[outside]) >= l1[outside]) or not slack < 1e-12:
        raise UnknownError
    return exact(problem, X, z, slack)


def exact(problem: Documented, X: Array, z: Array, slack: float) -> Exact:
    d, X = X.shape[1], X.astype(LONG)
    if problem.classes:
        Z = z.reshape(problem.classes, -1)
        b = Z[:, d] if problem.intercept is not None else np.zeros(problem.classes, dtype=LONG)
        return Exact(Z[:, :d], b, X @ Z[:, :d].T + b, slack)
    b = z[d] * LONG(problem.intercept) if problem.intercept is not None else LONG(0)
    return Exact(z[:d], b, X @ z[:d] + b, slack)


def score(problem: Documented, name: str, m: Array) -> Any:
    """Of the exact model on its training rows."""
    y, a = np.asarray(problem.y), problem.c.astype(LONG) / problem.c.astype(LONG).sum()
    if problem.classes:
        top = m.max(axis=1)
        return a @ (m[np.arange(len(y)), y] - top - np.log(np.sum(np.exp(m - top[:, None]), axis=1)))
    y = y.astype(LONG)
    each = {
        "neg_mean_squared_error": lambda: (m - y) ** 2,
        "neg_log_loss": lambda: np.logaddexp(LONG(0), -y * m),
        "neg_squared_hinge": lambda: np.maximum(0, 1 - y * m) ** 2,
        "neg_mean_poisson_deviance": lambda: 2 * (np.exp(m) - y - y * (m - np.log(np.where(y > 0, y, np.exp(m))))),
        "neg_mean_gamma_deviance": lambda: 2 * (m - np.log(y) + y * np.exp(-m) - 1),
    }[name]()
    return -(a @ each)


# What is claimed


def violations(report: Any, model: Any, problem: Documented, truth: Exact, X: Array) -> list[str]:
    """All that is false about a report."""
    coef = np.asarray(model.coef_, dtype=np.float64).reshape(np.shape(truth.w)).astype(LONG)
    b = np.asarray(model.intercept_, dtype=np.float64).astype(LONG) if problem.intercept is not None else truth.b * 0
    b = b - b.mean() if problem.classes else np.ravel(b)[0]
    distance = np.sqrt(np.sum((coef - truth.w) ** 2))
    size, slack = np.sqrt(np.sum(truth.w**2)), truth.slack
    here = X.astype(LONG) @ coef.T + b
    apart, reach = np.abs(here - truth.margins).max(), slack * (1 + np.abs(X).sum(axis=1).max())
    low, high = report.score_interval
    value = score(problem, report.scoring, truth.margins)
    doubt = 1e-15 * (1 + abs(value)) + 1e3 * reach * (1 + np.abs(truth.margins).max())
    claims = {
        "radius": report.radius >= distance - slack,
        "at_least": report.at_least <= distance + slack,
        "relative": report.relative == math.inf or report.relative * (size + slack) >= distance - slack,
        "intercept_error": report.intercept_error >= np.sqrt(np.sum((b - truth.b) ** 2)) - reach,
        "prediction_error": report.prediction_error >= apart - reach,
        "score_interval": low <= value + doubt and value - doubt <= high,
    }
    for pattern, holds in (
        (r"coefficients are ([\d.e+-]+) % off, at the least", lambda x: x * (size - slack) <= 100 * (distance + slack)),
        (r"are off by ([\d,]+) times their norm", lambda x: x * (size - slack) <= distance + slack),
        (r"within ([\d.e+-]+) of exact", lambda x: x >= distance - slack),
        (r"of exact, ([\d.e+-]+) % of their norm", lambda x: x * (size + slack) >= 100 * (distance - slack)),
    ):
        for found in re.findall(pattern, report.message):
            claims[f"sentence: {pattern}"] = holds(float(found.replace(",", "")))
    return [name for name, true in claims.items() if not true]


# The campaign


@dataclass
class Tally:
    models: Counter[tuple[str, str]] = field(default_factory=Counter)  # by estimator and argument
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)  # told, but there is no truth to hold against it
    off: Counter[str] = field(default_factory=Counter)  # shown to be off
    refusals: Counter[str] = field(default_factory=Counter)
    false: list[dict[str, Any]] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    plain: dict[str, str] = field(default_factory=dict)  # refusals of plain models
    unfit: int = 0


def data(task: str, rng: np.random.Generator, *, ordinary: bool = False) -> tuple[Array, Array]:
    n, d = (40, 4) if ordinary else (int(rng.integers(24, 41)), int(rng.integers(1, 6)))
    X = rng.standard_normal((n, d))
    if not ordinary:
        X = X * 10.0 ** rng.uniform(-1.0, 1.0, d) + rng.choice([0.0, 1.0, 10.0]) * rng.standard_normal(d)
        if rng.random() < 0.2:
            X = np.round(X) * (rng.random(X.shape) < 0.5)
    signal = X @ (rng.standard_normal(d) / (1e-300 + X.std(axis=0).clip(1e-3))) / math.sqrt(d)
    noisy = signal - signal.mean() + rng.standard_normal(n)
    if task == "real":
        return X, noisy * 10.0 ** rng.uniform(-1, 1) + (0.0 if ordinary else rng.choice([0.0, 3.0]))
    if task == "counts":
        return X, rng.poisson(np.exp(np.clip(0.5 * noisy, -3, 3))).astype(float)
    if task == "amounts":
        return X, rng.gamma(2.0, np.exp(np.clip(0.5 * noisy, -3, 3)))
    if task == "three":
        return X, np.array(["no", "perhaps", "yes"])[np.digitize(noisy, np.quantile(noisy, [0.3, 0.7]))]
    return X, np.where(noisy > 0, "yes", "no")


def drawn(name: str, argument: str, value: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Arguments: the one in question, and each of the others with a chance of 0.15."""
    arguments = dict(ALWAYS.get(name, {}))
    for other in inspect.signature(class_of(name)).parameters:
        values = values_of(name, other)
        if rng.random() < 0.15 and other not in ("tol", "max_iter", "positive", "early_stopping", "multi_class"):
            arguments[other] = values[rng.integers(len(values))]
    for other, usual in PLAIN.get(name, {}).items():
        arguments.setdefault(other, usual)
    arguments[argument] = value
    penalty = arguments.get("penalty", "deprecated")
    mixed = np.max(arguments.get("l1_ratio", 0.0)) > 0.0 or penalty in ("l1", "elasticnet")
    if name == "LogisticRegression" and mixed and argument != "solver":
        arguments["solver"] = "saga"
    if argument == "intercept_scaling" and name != "LinearSVC":
        arguments |= {"solver": "liblinear", "penalty": "deprecated"}
    if arguments.get("dual") is True and name.startswith("Logistic"):
        arguments |= {"solver": "liblinear", "penalty": "deprecated"}
        arguments |= {"l1_ratio": 0.0} if name == "LogisticRegression" else {"l1_ratios": (0.0,)}
    if arguments.get("solver") == "liblinear":  # which never comes back from an infinite C
        for key in ("C", "Cs"):
            if np.any(np.isinf(arguments.get(key, 1.0))):
                arguments[key] = 1.0 if key == "C" else [0.1, 1.0]
    return arguments


def effort(name: str, way: str, rng: np.random.Generator) -> dict[str, Any]:
    known = inspect.signature(class_of(name)).parameters
    many = {"LinearSVC": 20_000, "SGDRegressor": 300, "SGDClassifier": 300, "LassoLars": 500, "LassoLarsCV": 500}
    if way in ("well", "moved"):
        given = {"tol": None if name.startswith("SGD") else 1e-12, "max_iter": many.get(name, 5000)}
    elif way == "badly":
        given = {"tol": float(rng.choice([1e-1, 1e-3])), "max_iter": int(rng.choice([1, 2, 4]))}
    else:
        given = {}
    return {key: value for key, value in given.items() if key in known}


def one(tally: Tally, name: str, argument: str, value: Any, way: str, seed: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    task = ESTIMATORS[name][0]
    task = "three" if name in THREE_CLASSES and rng.random() < 0.2 else task
    X, y = data(task, rng)
    s = None
    takes = "sample_weight" in inspect.signature(class_of(name).fit).parameters
    if takes and rng.random() < 0.4:
        s = rng.uniform(0.0, 3.0, len(y)) * (rng.random(len(y)) < 0.9) if rng.random() < 0.7 else np.full(len(y), 2.0)
    arguments = effort(name, way, rng) | drawn(name, argument, value, rng)
    if isinstance(arguments.get("class_weight"), dict) and task == "three":
        arguments["class_weight"] = {"no": 3.0}
    model = class_of(name)(**arguments)
    rows = sp.csr_array(X) if rng.random() < 0.15 else X
    try:
        for _ in range(2 if arguments.get("warm_start") else 1):
            model.fit(rows.copy(), y.copy(), **({} if s is None else {"sample_weight": s}))
    except (ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError):
        tally.unfit += 1
        return
    if way == "moved":
        size = 10.0 ** rng.uniform(-13.0, 1.0)
        model.coef_ = np.asarray(model.coef_) + size * rng.standard_normal(np.shape(model.coef_))
        if model.fit_intercept:
            model.intercept_ = model.intercept_ + size * rng.standard_normal(np.shape(model.intercept_))
    held(tally, model, X, rows, y, s, (name, argument), {"case": [name, argument, repr(value), way, *seed]})


def held(tally: Tally, model: Any, X: Array, rows: Any, y: Array, s: Any, key: tuple[str, str], place: Any) -> Any:
    """A report held against the truth."""
    report = suffice.certify(model, rows, y, s)
    tally.models[key] += 1
    if not report.told:
        tally.refusals[re.sub(r"[-+]?\d[\d.e+-]*", "#", report.message)[:110]] += 1
        return report
    tally.told[key] += 1
    tally.off[key[0]] += report.at_least > 0.0
    wrong = ["told of another model"]
    try:
        problem = documented(model, y, np.ones(len(y)) if s is None else s)
    except UnknownError:
        pass
    else:
        try:
            wrong = violations(report, model, problem, minimise(problem, X), X)
            tally.checked[key[0]] += 1
        except (UnknownError, np.linalg.LinAlgError):
            wrong = []
            tally.open[key[0]] += 1
    if wrong:
        tally.false.append({**place, "false": wrong, "model": repr(model), "message": report.message})
    return report


def plain(tally: Tally, repeats: int) -> None:
    """Default arguments, ordinary data."""
    for name, (task, _) in ESTIMATORS.items():
        for k in range(repeats):
            rng = np.random.default_rng((7, k))
            X, y = data(task, rng, ordinary=True)
            model = class_of(name)(**PLAIN.get(name, {}), **ALWAYS.get(name, {})).fit(X, y)
            report = held(tally, model, X, X, y, None, (name, "(default)"), {"case": [name, "(default)", k]})
            if not report.told:
                tally.plain[f"{name}, {k}"] = report.message


def campaign(models: int, seed: int) -> Tally:
    tally, k = Tally(), 0
    plain(tally, 10)
    cases = [
        (name, argument, i)
        for name in ESTIMATORS
        for argument in inspect.signature(class_of(name)).parameters
        for i in range(len(values_of(name, argument)))
    ]
    while tally.models.total() < models:
        for number, (name, argument, i) in enumerate(cases):
            one(tally, name, argument, values_of(name, argument)[i], WAYS[(number + k) % len(WAYS)], (seed, k, number))
        k += 1
        print(f"{tally.models.total()} models, {len(tally.false)} false", flush=True)
    return tally


def report_of(tally: Tally, made: dict[str, str]) -> str:
    parts = ["# Fitted models of scikit-learn beside their exact minimisers"]
    parts.append(f"commit {made['commit']}, scikit-learn {made['scikit-learn']}, {made['processor']}, {made['date']}")
    models, told, false = tally.models.total(), tally.told.total(), len(tally.false)
    parts.append(
        f"{models} fitted models, each argument of each constructor at all values of a list. `certify` told something "
        f"of {told}, {tally.off.total()} of them shown to be off, and refused {models - told}; {tally.checked.total()} "
        f"reports were held against an outside minimiser ({tally.open.total()} have no single one, or its signs could "
        f"not be told), {false} are false. {tally.unfit} draws scikit-learn itself refused."
    )
    rows = []
    for name in ESTIMATORS:
        keys = [key for key in tally.models if key[0] == name]
        wrong = sum(found["case"][0] == name for found in tally.false)
        counts = [sum(count[key] for key in keys) for count in (tally.models, tally.told)]
        rows.append([name, len(keys), *counts, tally.off[name], tally.checked[name], wrong])
    parts.append(table(["estimator", "arguments + none", "models", "told", "off", "held against truth", "false"], rows))
    rows = [[message.replace("|", "/"), count] for message, count in tally.refusals.most_common(40)]
    parts.append(table(["refusal", "count"], rows))
    if tally.false:
        names = ("case", "false", "message")
        parts.append(table(names, [[str(found[name]) for name in names] for found in tally.false[:LISTED]]))
    targets = [
        target("false reports", len(tally.false), 0.0, digits=0),
        target("plain models refused", len(tally.plain), 0.0, digits=0),
    ]
    parts.append(table(["target", "measured", "wanted", ""], targets))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--models", type=int, default=10_000, help="at least so many (%(default)s)")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    tally = campaign(options.models, options.seed)
    made = provenance("scikit-learn")
    text = report_of(tally, made)
    print(text)
    write_text(options.out / "certify.md", text)
    counts = [
        {"estimator": key[0], "argument": key[1], "models": count, "told": tally.told[key]}
        for key, count in sorted(tally.models.items())
    ]
    data = {"provenance": made, "seed": options.seed, "models": tally.models.total(), "counts": counts}
    data |= {"false": tally.false[:LISTED], "refusals": dict(tally.refusals), "plain": tally.plain}
    write_json(options.out / "certify.json", data)
    sys.exit(1 if tally.false or tally.plain else 0)


if __name__ == "__main__":
    main()
