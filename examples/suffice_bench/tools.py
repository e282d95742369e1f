"""SufficeSearchCV beside scikit-learn's own classes that tune by cross-validation, on one table.

Every tool gets the same numbers, with its own defaults (RATIOS of l1 where it takes a list), and the same five folds,
but for RidgeCV, which leaves out one row at a time, as people run it. Tools are held against those that tune the same
penalties, l2 alone or l1 and l2. What counts is the exact cross-validated loss, log loss or squared error, at the
penalties that it returns: the folds' models are solved anew, to proven errors, since a tool's own figure is that of
models as it has trained them. A search that goes on from good to better, ours, has come near when it has first proven
that of penalties; the others tell when they are done. Times are those of the processor, of the call that tunes and
refits and nothing else.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNet, ElasticNetCV, LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold

from suffice.options import Options
from suffice.result import Record
from suffice.sklearn import SufficeSearchCV

RATIOS = [0.1, 0.5, 0.9, 1.0]
NEAR = 1.001  # times the least loss
LEAST, LARGEST = 1e-13, 1e6  # penalties of which a loss is told
ITERATIONS = 1000
OURS = "suffice"

Found = tuple[float, float]  # l1, l2 in units of the mean loss
Note = Callable[[float], object]  # told of every loss that is proven on the way, at most


@dataclass(frozen=True)
class Tabled:
    """Rows, targets, and whether these are labels; `l2_alone`: whether that is the only penalty to tune."""

    X: Any
    y: Any
    labels: bool
    l2_alone: bool = False

    @property
    def splits(self) -> list[Any]:
        """Five folds, the same for all."""
        kind = StratifiedKFold if self.labels else KFold
        return list(kind(5, shuffle=True, random_state=0).split(self.X, self.y))

    @property
    def penalties(self) -> str:
        return "l2" if self.l2_alone else "l1 and l2"

    @property
    def scoring(self) -> str:
        return "neg_log_loss" if self.labels else "neg_mean_squared_error"

    @property
    def estimator(self) -> Any:
        if not self.labels:
            return Ridge() if self.l2_alone else ElasticNet()
        return LogisticRegression() if self.l2_alone else LogisticRegression(l1_ratio=0.5, solver="saga")


def exact_loss(data: Tabled, found: Found) -> float:
    """The cross-validated loss of exactly trained models at these penalties, to six digits."""
    names = ("l2",) if data.l2_alone else ("l1", "l2")
    l1, l2 = (min(max(value, LEAST), LARGEST) for value in found)
    search = SufficeSearchCV(
        data.estimator, dict.fromkeys(names, (LEAST, LARGEST)), cv=data.splits, scoring=data.scoring, refit=False,
        tolerance=1e-6, initial={"l1": l1, "l2": l2} if len(names) == 2 else {"l2": l2},
        options=Options(max_evaluations=1),
    )  # fmt: skip
    return -float(search.fit(data.X, data.y).best_score_)


def ours(data: Tabled, note: Note, **arguments: Any) -> Found:
    """SufficeSearchCV with its own defaults."""

    def tell(record: Record) -> None:
        note(record.interval[1])

    search = SufficeSearchCV(data.estimator, cv=data.splits, scoring=data.scoring, callback=tell, **arguments)
    penalties = search.fit(data.X, data.y).best_penalties_
    return penalties["l1"], penalties["l2"]


def _logistic(data: Tabled, **arguments: Any) -> Found:
    model = LogisticRegressionCV(
        cv=data.splits, scoring="neg_log_loss", use_legacy_attributes=False, max_iter=ITERATIONS, **arguments
    ).fit(data.X, data.y)
    ratio, penalty = float(model.l1_ratio_ or 0.0), 1.0 / (float(model.C_) * 0.8 * data.X.shape[0])
    return ratio * penalty, (1.0 - ratio) * penalty


def lbfgs(data: Tabled, note: Note, grid: int = 10) -> Found:
    """LogisticRegressionCV with l2 alone, as it comes."""
    return _logistic(data, l1_ratios=(0.0,), Cs=grid)


def saga(data: Tabled, note: Note) -> Found:
    """LogisticRegressionCV with elastic nets."""
    return _logistic(data, l1_ratios=RATIOS, solver="saga")


def ridge_cv(data: Tabled, note: Note, grid: int = 100) -> Found:
    """RidgeCV, which leaves out one row at a time: its alpha is for all rows but one."""
    model = RidgeCV(np.logspace(-6, 6, grid)).fit(data.X, data.y)
    return 0.0, float(model.alpha_) / data.X.shape[0]


def elastic_net_cv(data: Tabled, note: Note, grid: int = 100) -> Found:
    """ElasticNetCV with its own grid."""
    model = ElasticNetCV(l1_ratio=RATIOS, alphas=grid, cv=data.splits).fit(data.X, data.y)
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


Tool = Callable[..., Found]
CLASSIFIERS: dict[str, Tool] = {"lbfgs, l2": lbfgs, "saga": saga}
REGRESSORS: dict[str, Tool] = {"RidgeCV": ridge_cv, "ElasticNetCV": elastic_net_cv}


@dataclass
class Run:
    """One tool on one table: its seconds, what it has found, and when it was known to be how good."""

    tool: str
    seconds: float
    found: Found
    notes: list[tuple[float, float]] = field(default_factory=list)
    loss: float = np.nan
    penalties: str = ""  # that it tunes

    def until(self, best: float) -> float | None:
        """When penalties were first at hand whose loss is near the best; None for never."""
        near = (seconds for seconds, upper in self.notes if upper <= NEAR * best)
        return next(near, self.seconds if self.loss <= NEAR * best else None)


def timed(data: Tabled, name: str, tool: Tool) -> Run:
    """One run, with the exact loss of what it has found."""
    notes: list[tuple[float, float]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not every tool converges within its number of iterations
        began = time.process_time()
        found = tool(data, lambda upper: notes.append((time.process_time() - began, upper)))
        run = Run(name, time.process_time() - began, found, notes, penalties=data.penalties)
        run.loss = exact_loss(data, found)
    return run


def compared(data: Tabled, grid: int | None = None) -> list[list[Run]]:
    """Our search and scikit-learn's on a table, those of the same penalties together, the best loss first, without
    saga, which may take hours. `grid`: how many values a penalty has in the grids, if not as many as they come with."""
    size = {} if grid is None else {"grid": grid}
    rivals: dict[bool, dict[str, Tool]] = {
        True: {"LogisticRegressionCV": lbfgs} if data.labels else {"RidgeCV": ridge_cv},
        False: {} if data.labels else {"ElasticNetCV": elastic_net_cv},
    }
    found = []
    for l2_alone, tools in rivals.items():
        there = replace(data, l2_alone=l2_alone)
        runs = [timed(there, name, partial(tool, **size)) for name, tool in tools.items()]
        found.append(sorted([timed(there, OURS, ours), *runs], key=lambda run: run.loss))
    return found
