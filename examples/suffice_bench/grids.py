"""SufficeSearchCV beside scikit-learn's own grids, LogisticRegressionCV and ElasticNetCV, in one process.

The rivals are used as they come: a grid of C from 1e-4 to 1e4 (or of alpha, down to a thousandth of the largest useful
one) and of l1_ratio, saga or coordinate descent to their default tolerance, 5 folds. SufficeSearchCV searches l1 and l2
from 1e-6 to 1e2 with its own defaults. Features are standardised; the data ship with scikit-learn.

The loss of a grid is that of exactly trained models at the penalties it chooses; what it reports is that of models as
it has trained them, and may be lower where training stops early.

Work is counted in passes over a training matrix, N d K multiplications each, K the number of linear functions that
are fitted at once (classes, if there are more than two). An epoch of saga or coordinate descent is counted as one pass
(it is nearly two). For SufficeSearchCV every product with X or its transpose is counted, and every Hessian of s columns
and n rows with n s (s + 1)/2 multiplications. The final fit to all data counts on neither side.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import ElasticNet, LogisticRegression, LogisticRegressionCV, enet_path
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from suffice.arrays import Array
from suffice.models.multinomial import Multinomial
from suffice.options import Options
from suffice.rows.design import Design
from suffice.rows.gram import Gram
from suffice.rows.memory import InMemory
from suffice.rows.sums import Block
from suffice.sklearn import SufficeSearchCV

SPACE = {"l1": (1e-6, 1e2), "l2": (1e-6, 1e2)}
DATA: dict[str, tuple[Callable[..., Any], bool]] = {  # and whether targets are labels
    "diabetes": (load_diabetes, False),
    "wine": (load_wine, True),
    "breast cancer": (load_breast_cancer, True),
}
FOLDS = 5


def compare(name: str, grid: int) -> dict[str, Any]:
    """Our search and a grid of `grid` x `grid` on one of DATA."""
    load, labels = DATA[name]
    X, y = load(return_X_y=True)
    return {"data": name, **beside(StandardScaler().fit_transform(X), y, labels, grid)}


def beside(X: Array, y: Array, labels: bool, grid: int) -> dict[str, Any]:
    """Our search and a grid of `grid` x `grid`: losses, the proven interval, fits, passes and seconds."""
    splitter = StratifiedKFold if labels else KFold
    cv = splitter(FOLDS, shuffle=True, random_state=0)
    classes = len(np.unique(y)) if labels else 1
    each = (1.0 - 1.0 / FOLDS) * X.size * (classes if classes > 2 else 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the rivals do not converge within their default number of epochs everywhere
        search, work, seconds = _ours(X, y, labels, cv)
        rival = (_logistic_grid if labels else _elastic_net_grid)(X, y, cv, grid)
    loss, reported, epochs, rival_seconds = rival
    low, high = search.score_interval_
    return {
        "rows": X.shape[0],
        "columns": X.shape[1],
        "grid": f"{grid} x {grid}",
        "loss": -float(search.best_score_),
        "interval": [-high, -low],
        "fits": FOLDS * len(search.cv_results_["work"]),
        "passes": round(work / each),
        "seconds": seconds,
        "grid loss": loss,
        "grid loss reported": reported,
        "grid fits": FOLDS * grid**2,
        "grid passes": epochs,
        "grid seconds": rival_seconds,
        "work ratio": epochs * each / work,
        "time ratio": rival_seconds / seconds,
    }


def _ours(X: Array, y: Array, labels: bool, cv: Any) -> tuple[SufficeSearchCV, float, float]:
    """The search, its multiplications, and its seconds."""
    estimator = LogisticRegression(l1_ratio=0.5, solver="saga") if labels else ElasticNet()
    began = time.perf_counter()
    with counted() as work:
        search = SufficeSearchCV(estimator, SPACE, cv=cv, refit=False).fit(X, y)
    return search, sum(work), time.perf_counter() - began


def _logistic_grid(X: Array, y: Array, cv: Any, grid: int) -> tuple[float, float, int, float]:
    """(the loss of exactly trained models, the loss as reported, epochs, seconds) of LogisticRegressionCV."""
    began = time.perf_counter()
    rival = LogisticRegressionCV(
        Cs=np.geomspace(1e-4, 1e4, grid), l1_ratios=np.linspace(0.0, 1.0, grid), cv=cv, solver="saga",
        scoring="neg_log_loss", use_legacy_attributes=False, refit=True,
    ).fit(X, y)  # fmt: skip
    seconds = time.perf_counter() - began
    total, ratio = 1.0 / (rival.C_ * len(y) * (1.0 - 1.0 / FOLDS)), rival.l1_ratio_  # as in a fold
    exact = _exact(LogisticRegression(l1_ratio=0.5, solver="saga"), X, y, cv, ratio * total, (1.0 - ratio) * total)
    return exact, -float(np.mean(rival.scores_, axis=0).max()), int(np.sum(rival.n_iter_)), seconds


def _elastic_net_grid(X: Array, y: Array, cv: Any, grid: int) -> tuple[float, float, int, float]:
    """The same of ElasticNetCV, whose epochs are not to be had from it: what it does, step by step."""
    began = time.perf_counter()
    ratios = np.linspace(0.05, 1.0, grid)
    losses, epochs = np.zeros((grid, grid)), 0
    tops = [float(np.max(np.abs(X.T @ (y - y.mean()))) / len(y) / ratio) for ratio in ratios]
    for train, test in cv.split(X, y):
        mean, shift = X[train].mean(axis=0), y[train].mean()
        A, b = X[train] - mean, y[train] - shift
        for j, (ratio, top) in enumerate(zip(ratios, tops, strict=True)):
            alphas = np.geomspace(top, 1e-3 * top, grid)
            _, coefs, _, n_iter = enet_path(A, b, l1_ratio=ratio, alphas=alphas, return_n_iter=True)
            losses[j] += np.mean(((X[test] - mean) @ coefs + shift - y[test][:, None]) ** 2, axis=0) / FOLDS
            epochs += int(np.sum(n_iter))
    seconds = time.perf_counter() - began
    best, k = divmod(int(np.argmin(losses)), grid)
    alpha, ratio = float(np.geomspace(tops[best], 1e-3 * tops[best], grid)[k]), float(ratios[best])
    exact = _exact(ElasticNet(), X, y, cv, alpha * ratio, alpha * (1.0 - ratio))
    return exact, float(losses.min()), epochs, seconds


def _exact(estimator: Any, X: Array, y: Array, cv: Any, l1: float, l2: float) -> float:
    """The cross-validation loss at these penalties, proven to six digits."""
    l1, l2 = max(l1, 1e-12), max(l2, 1e-9)
    ranges = {"l1": (0.999 * l1, l1), "l2": (0.999 * l2, l2)}
    there = SufficeSearchCV(
        estimator, ranges, cv=cv, refit=False, tolerance=1e-6, initial={"l1": l1, "l2": l2},
        options=Options(max_evaluations=1),
    )  # fmt: skip
    return -float(there.fit(X, y).best_score_)


@contextmanager
def counted() -> Iterator[list[float]]:
    """A list that every product with a design matrix and every Hessian adds its multiplications to."""
    work: list[float] = []
    restore: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, cost: Callable[..., float]) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def counting(*args: Any, **kwargs: Any) -> Any:
            work.append(cost(*args))
            return original(*args, **kwargs)

        setattr(owner, name, counting)
        restore.append((owner, name, original))

    def of_gram(job: Gram, block: Block) -> float:
        return float(np.count_nonzero(block["C"]) * len(job.W) * (len(job.W) + 1) / 2)

    def of_hessian(model: Any, image: Any, working: Any) -> float:
        size = len(working) + model.classes
        return float(model.design.shape[0] * size * (size + 1) / 2)

    try:
        patch(Design, "margins", lambda design, w: math.prod(design.shape))
        patch(Design, "adjoint", lambda design, r: math.prod(design.shape))
        patch(Gram, "__call__", of_gram)
        patch(InMemory, "directions", lambda rows, W: math.prod(rows.shape) * math.prod(W.shape[1:]))
        patch(InMemory, "pull", lambda rows, r: math.prod(rows.shape) * math.prod(r.shape[1:]))
        patch(Multinomial, "hessian", of_hessian)
        yield work
    finally:
        for owner, name, original in restore:
            setattr(owner, name, original)
