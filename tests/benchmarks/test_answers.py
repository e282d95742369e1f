"""The truth that searches are held against is scikit-learn's, and no search is lost."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import KFold

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmark is not at hand", allow_module_level=True)


def module(name: str) -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


exact_paths, answers = module("exact_paths"), module("answers")


def data(loss: str, rows: int = 60, columns: int = 8, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) + 0.7 * rng.normal(size=(rows, 1))
    score = X[:, :3] @ [1.0, -0.5, 0.7]
    y = {"squares": score + rng.normal(size=rows), "Poisson": rng.poisson(np.exp(0.5 * score + 1.0)).astype(float)}
    y["logistic"] = np.where(score + rng.logistic(size=rows) > 0.0, 1.0, -1.0)
    return X, y[loss], list(KFold(5, shuffle=True, random_state=0).split(X))


def by_scikit_learn(loss: str, X: Any, y: Any, splits: Any, l1: float, l2: float) -> float:
    each = []
    for train, test in splits:
        total, r = l1 + l2, l1 / (l1 + l2)
        model, measure = {
            "squares": (ElasticNet(alpha=total, l1_ratio=r, tol=1e-14, max_iter=10**6), mean_squared_error),
            "logistic": (
                LogisticRegression(
                    C=1.0 / (total * len(train)), l1_ratio=r, solver="saga" if r else "newton-cholesky",
                    tol=1e-10, max_iter=10**6, random_state=0,
                ),
                log_loss,
            ),
            "Poisson": (PoissonRegressor(alpha=l2, solver="newton-cholesky", tol=1e-12), mean_poisson_deviance),
        }[loss]  # fmt: skip
        model.fit(X[train], y[train])
        said = model.predict_proba(X[test])[:, 1] if loss == "logistic" else model.predict(X[test])
        each.append(measure(y[test], said))
    return float(np.mean(each))


@pytest.mark.parametrize("loss", ["squares", "logistic", "Poisson"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.3), (0.0, 1e-3), (0.05, 0.02), (0.01, 1e-4)])
def test_the_loss_is_scikit_learns(loss: str, l1: float, l2: float) -> None:
    if loss == "Poisson":
        l1 = 0.0  # scikit-learn has none there
    X, y, splits = data(loss)
    assert exact_paths.Folds.of(X, y, splits, loss).mean(l1, l2) == pytest.approx(
        by_scikit_learn(loss, X, y, splits, l1, l2), rel=1e-6
    )


@pytest.mark.parametrize("loss", ["squares", "logistic", "Poisson"])
@pytest.mark.parametrize(("columns", "l2"), [(8, 0.0), (150, 1e-3), (150, 1e-6)])
def test_weights_satisfy_the_conditions_of_a_minimiser(loss: str, columns: int, l2: float) -> None:
    X, y, splits = data(loss, columns=columns)
    folds = exact_paths.Folds.of(X, y, splits, loss)
    fold, l1 = folds.folds[0], 0.02 * folds.l1_max
    w, b, well = fold.solve(l1, l2)
    slope = fold.psi.first(fold.X @ w + b, fold.y) / len(fold.y)
    gradient = fold.X.T @ slope + l2 * w
    tiny = 1e-5 * l1
    assert well
    assert abs(slope.sum()) <= tiny
    assert np.abs(gradient + l1 * np.sign(w))[w != 0.0].max() <= tiny
    assert np.abs(gradient)[w == 0.0].max(initial=0.0) <= l1 + tiny


def test_a_path_from_far_above_comes_to_the_same_loss_as_a_cold_start() -> None:
    """Also with exactly dependent columns and without an l2: what is predicted is the same."""
    X, y, splits = data("squares")
    X = np.hstack([X, X[:, :4] + X[:, 4:]])
    folds = [exact_paths.Folds.of(X, y, splits, "squares") for _ in range(2)]
    assert folds[0].descended(1e-3, 0.0).mean() == pytest.approx(folds[1].mean(1e-3, 0.0), rel=1e-7)


def test_the_best_of_a_path_is_no_higher_than_that_of_a_fine_grid_of_scikit_learns() -> None:
    X, y, splits = data("squares", rows=40, columns=60)
    folds = exact_paths.Folds.of(X, y, splits, "squares")
    found = exact_paths.best_of_one(folds, lambda t: (0.0, 10.0**t), (-6.0, 3.0), (0.0, 0.5))
    grid = {}
    for alpha in np.logspace(-6.0, 3.0, 400):
        models = [(Ridge(alpha=alpha * len(a), solver="svd").fit(X[a], y[a]), b) for a, b in splits]
        grid[alpha] = float(np.mean([mean_squared_error(y[b], model.predict(X[b])) for model, b in models]))
    best = min(grid.values())
    assert best * (1.0 - 1e-3) < found["F"] <= best * (1.0 + 1e-8)
    assert found["F inside"] <= min(F for alpha, F in grid.items() if 1.0 <= alpha <= 10.0**0.5) * (1.0 + 1e-8)


def test_the_best_of_a_map_is_no_higher_than_that_of_paths_on_it() -> None:
    X, y, splits = data("logistic")
    folds = exact_paths.Folds.of(X, y, splits, "logistic")
    found = exact_paths.best_of_two(folds, (1e-6, 1e2))
    for ratio in (0.1, 0.5, 0.9, 1.0):

        def pair(t: float, ratio: float = ratio) -> tuple[float, float]:
            return ratio * 10.0**t, (1.0 - ratio) * 10.0**t

        along = exact_paths.best_of_one(folds, pair, (-6.0, 0.0), (-6.0, 0.0))
        assert found["F"] <= along["F"] * (1.0 + 1e-4)


@pytest.mark.parametrize("kind", answers.KINDS)
def test_tables_come_from_their_seed_and_halves_have_all_estimators(kind: str) -> None:
    one, again, other = (answers.Table.of(seed, kind, 3) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.X, again.X)
    np.testing.assert_array_equal(one.y, again.y)
    assert one.X.shape != other.X.shape or (one.X != other.X).any()
    halves = [
        sorted(str(answers.Table.of(5, kind, number).estimator(1)[0]) for number in range(first, 40, 2))
        for first in (0, 1)
    ]
    assert halves[0] == halves[1]
    assert len(set(halves[0])) == 6


def test_a_search_that_raises_or_takes_too_long_is_a_failure_and_one_that_ends_is_judged(monkeypatch: Any) -> None:
    made = answers.Table.of(5, "one-hot", 4)
    found = answers.apart(made, 1)
    row = answers.judged(made, 1, answers.best_known(made, 1, answers.exact_folds(made)), [found])
    assert found["interval"][0] * (1.0 - 1e-6) <= row["search"]["F"] <= found["interval"][1] * (1.0 + 1e-6)
    assert 0.0 <= row["search"]["excess"] < 0.005
    made.y[0] = np.nan
    assert "NaN" in answers.apart(made, 1)["failed"]
    monkeypatch.setattr(answers, "LIMIT", 0.0)
    failed = answers.apart(made, 1)
    assert "not done" in failed["failed"]
    assert "not done" in answers.report(5, None, [row | {"search": failed}])
