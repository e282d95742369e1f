"""Grids, random points, and scikit-learn's successive halving with steps of the solver as resource."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np

from benchmarks.tuners.protocol import Run, Vector
from benchmarks.tuners.stepwise import Stepwise

LEVELS = {1: 100, 2: 10, 3: 5}  # values of each of m parameters in a grid; there is none for more


def grid(run: Run) -> None:
    """All points of a grid in random order: what a part of it finds is then no accident of the order."""
    for theta in np.random.default_rng(run.seed).permutation(_grid(run)):
        run.train(theta)


def random(run: Run) -> None:
    """Uniform in the box, which is logarithmic; the first point is the start."""
    rng = np.random.default_rng(run.seed)
    run.train(run.start)
    while True:
        run.train(run.lower + rng.random(run.m) * (run.upper - run.lower))


def _grid(run: Run) -> Vector:
    axes = [np.linspace(low, high, LEVELS[run.m]) for low, high in zip(run.lower, run.upper, strict=True)]
    return np.array(list(itertools.product(*axes)))


def halving_grid(run: Run) -> None:
    """`HalvingGridSearchCV` on the grid: all points for a few steps, a third of them for three times as many, ..."""
    points = _grid(run)
    _halving(run, [{f"theta{k}": [value] for k, value in enumerate(theta)} for theta in points.tolist()])


def halving_random(run: Run) -> None:
    """`HalvingRandomSearchCV`: the same with 81 random points, the start among them."""
    rng = np.random.default_rng(run.seed)
    points = run.lower + rng.random((81, run.m)) * (run.upper - run.lower)
    points[0] = run.start
    _halving(run, [{f"theta{k}": [value] for k, value in enumerate(theta)} for theta in points.tolist()], True)


def _halving(run: Run, points: list[dict[str, list[float]]], at_random: bool = False) -> None:
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingGridSearchCV, HalvingRandomSearchCV

    trainer = Stepwise(run)
    common: dict[str, Any] = {
        "resource": "steps",
        "factor": 3,
        "min_resources": 20,
        "max_resources": 20 * 81,
        "cv": [(np.arange(2), np.arange(2))],
        "scoring": lambda estimator, X, y: -estimator.value_,
        "refit": False,
        "error_score": "raise",
    }
    rows, labels = np.zeros((2, 1)), np.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if at_random:
            search: Any = HalvingRandomSearchCV(
                _estimator(trainer, run.m), points, n_candidates=len(points), random_state=run.seed, **common
            )
        else:
            search = HalvingGridSearchCV(_estimator(trainer, run.m), points, **common)
        search.fit(rows, labels)
    run.returns([search.best_params_[f"theta{k}"] for k in range(run.m)])


class _Shared:
    """A trainer that scikit-learn's clones have in common."""

    def __init__(self, trainer: Stepwise) -> None:
        self.trainer = trainer

    def __deepcopy__(self, memo: Any) -> _Shared:
        return self


def _estimator(trainer: Stepwise, m: int) -> Any:
    """A scikit-learn estimator whose fit trains for `steps` steps, on from where the same theta was left."""
    from sklearn.base import BaseEstimator

    names = [f"theta{k}" for k in range(m)]

    class Trained(BaseEstimator):  # type: ignore[misc]
        def __init__(self, shared: Any = None, steps: int = 20) -> None:
            self.shared, self.steps = shared, steps
            for name in names:
                setattr(self, name, 0.0)

        @classmethod
        def _get_param_names(cls) -> list[str]:
            return ["shared", "steps", *names]

        def set_params(self, **params: Any) -> Any:
            for name, value in params.items():
                setattr(self, name, value)
            return self

        def fit(self, X: Any, y: Any) -> Any:
            theta = np.array([getattr(self, name) for name in names])
            self.value_ = self.shared.trainer.train(theta, int(self.steps))
            return self

    class Sized(Trained):
        """scikit-learn makes clones by the constructor: it takes what `_get_param_names` names."""

        def __init__(self, shared: Any = None, steps: int = 20, **theta: float) -> None:
            super().__init__(shared, steps)
            for name, value in theta.items():
                setattr(self, name, value)

    return Sized(_Shared(trainer))
