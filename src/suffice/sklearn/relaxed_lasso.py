r"""The relaxed lasso on the folds of a search (Meinshausen 2007; Hastie, Tibshirani and Tibshirani 2020, glmnet's
`relax=TRUE`): the l1 penalty chooses columns, and its shrinkage of those that it has chosen is undone in part,

    beta = gamma beta_lasso + (1 - gamma) beta_refit,        0 <= gamma <= 1,        intercepts alike,

beta_refit being the minimiser on the support of beta_lasso without an l1; an l2 of the search stays, and without one it
is glmnet's. A model that is shrunken less wants fewer columns: l1 and gamma are chosen together, over multiples of the
search's l1 up to the one that leaves none, by the mean score of the search's folds. Refits are problems of all columns
with an l1 of 0 on the support and one that nothing overcomes elsewhere: the same solver fits and proves them. Refits
that are not proven (separable classes, as many columns as rows, and no l2) are left out.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from suffice.arrays import EPS, Array, norm, outside_stacklevel
from suffice.rows.given import numbered
from suffice.sklearn._coefficient_proofs import OPEN, CoefficientProofs
from suffice.sklearn._final_fit import FINAL, put_into, solved
from suffice.sklearn._report_data import ACCURACY, ROUGH, FittedSearch
from suffice.sklearn.folds import LinearFold
from suffice.sklearn.penalties import step_to
from suffice.sklearn.scores import score_of
from suffice.sklearn.splits import Split
from suffice.solvers.solution import Solution

GAMMAS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of several that are as good the first
MULTIPLES = 25  # of the search's l1
WALL = 1e6  # times the l1 that makes all weights zero
MOST_STEPS = 200  # of a refit

Penalties = dict[str, float]


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The relaxed lasso that a search's folds find best."""

    estimator: Any  #: fitted to all rows; its parameters are those of the penalised fit
    gamma: float  #: 1 is the penalised fit, 0 the refit
    penalties: Penalties  #: of the penalised fit, in our units
    support: npt.NDArray[np.bool_]  #: of the columns that the linear estimator sees
    support_proven: bool  #: whether it is proven to be that of the exact penalised fit
    coef_radius: float  #: a proven bound on the distance of the coefficients from exact ones with this support
    score: float  #: the mean over folds of the optimised score, as trained
    penalised_score: float  #: the best of gamma = 1: what relaxing is held against
    table: dict[str, Array]  #: what was tried: multiple (of l1), gamma, score; NaN where a refit is not proven

    def __repr__(self) -> str:
        gain = f"score {self.score:.4g}, without relaxing {self.penalised_score:.4g}"
        return f"<Relaxed: gamma {self.gamma:g}, {self.support.sum():,} of {self.support.size:,} columns, {gain}>"


@dataclass(frozen=True)
class _Ends:
    """Coefficients and intercepts of the penalised fit and of its refit, which may be missing."""

    split: Split
    penalised: Solution
    refit: Solution | None

    def mixed(self, gamma: float) -> Any:
        """The estimator with gamma of the one and 1 - gamma of the other; None where the other is missing."""
        coefficients = self.split.model.coefficients
        coef, intercept = coefficients(self.penalised.x)
        if gamma < 1.0:
            if self.refit is None:
                return None
            other, b = coefficients(self.refit.x)
            coef, intercept = gamma * coef + (1.0 - gamma) * other, gamma * intercept + (1.0 - gamma) * b
        return self.split.adapter.fitted(clone(self.split.estimator), coef, intercept, self.split.classes)


def relaxed(search: Any, X: Any, y: Any, *, sample_weight: Any = None, groups: Any = None) -> Relaxed:
    """The relaxed lasso (`Relaxed`) over the folds of a fitted `SufficeSearchCV`, of one output and with an l1.

    X, y, `sample_weight` and `groups` are what it was fitted to. No interval is proven for its scores; what is proven
    of the model are its support and the distance of its coefficients.
    """
    task = FittedSearch(search, X, y, sample_weight, groups)
    best, folds = dict(search.best_penalties_), _checked(task)
    ends = max(fold.model.l1_max for fold in folds), max(_l1(best).values())
    multiples = np.geomspace(1.0, max(ends[0] / ends[1], 1.0), MULTIPLES)
    shape = (len(multiples), len(GAMMAS), len(folds))
    scores, scorer = np.full(shape, math.nan), score_of(search.optimised_scoring_).scorer
    for k, split in enumerate(folds):
        more = {"sample_weight": split.weight} if task.weighted else {}
        held = split.X
        warm = None if task.known is None else task.known.solutions[min(k, len(task.known.solutions) - 1)].x
        for i, multiple in enumerate(multiples):
            found, _ = _fitted(split, _scaled(best, multiple), ACCURACY, warm)
            warm = found.penalised.x
            for j, gamma in enumerate(GAMMAS):
                made = found.mixed(gamma)
                scores[i, j, k] = math.nan if made is None else scorer(made, held, split.labels, **more)
    mean = scores.mean(axis=2)
    i, j = divmod(int(np.nanargmax(mean)), len(GAMMAS))
    tried = np.repeat(multiples, len(GAMMAS)), np.tile(GAMMAS, len(multiples)), mean.ravel()
    table = dict(zip(("multiple", "gamma", "score"), tried, strict=True))
    made = _final(task, _scaled(best, multiples[i]), GAMMAS[j])
    return Relaxed(*made, float(mean[i, j]), float(np.nanmax(mean[:, 0])), table)


def _checked(task: FittedSearch) -> list[Split]:
    """The folds, if there is something to relax."""
    if not numbered(task.X):
        raise ValueError("relaxed takes X in main memory, got rows that stay where they are")
    folds, best = task.folds, task.search.best_penalties_
    fold = folds[0].model
    plain = isinstance(fold, LinearFold) and fold.learner.outputs == 1 and fold.kind != "column"
    if not plain:
        name = type(task.final).__name__
        raise ValueError(f"relaxed takes models of one output whose intercept is not penalised, got {name}")
    if not any(_l1(best).values()):
        raise ValueError(f"relaxed needs an l1 penalty, the best penalties are {best}")
    return folds


def _l1(penalties: Penalties) -> Penalties:
    return {name: value for name, value in penalties.items() if name.startswith("l1")}


def _scaled(penalties: Penalties, multiple: float) -> Penalties:
    return {**penalties, **{name: float(multiple * value) for name, value in _l1(penalties).items()}}


def _fitted(split: Split, penalties: Penalties, accuracy: float, warm: Any) -> tuple[_Ends, Any]:
    """Both ends, and the problem of the penalised one."""
    penalised = split.penalised()
    problem = penalised.at(**penalties)
    first = solved(problem, split.solver, accuracy, warm)
    fold, (_, l2) = split.model, penalised.both(penalties)
    support = np.ravel(fold.coefficients(first.x)[0]) != 0.0
    again = fold.at(l1=np.where(support, 0.0, WALL * fold.l1_max), l2=l2)
    second = solved(again, split.solver, accuracy, first.x, most=MOST_STEPS)
    elsewhere = np.ravel(fold.coefficients(second.x)[0])[~support].any()
    proven = second.certificate.radius <= ROUGH * norm(second.x) and not elsewhere
    return _Ends(split, first, second if proven else None), problem


def _final(task: FittedSearch, penalties: Penalties, gamma: float) -> tuple[Any, float, Penalties, Any, bool, float]:
    """The model of all rows, and what is proven of it."""
    estimator = clone(task.search.estimator)
    if task.search.groups_of_features is None:
        split = task.data.whole()
        names, step = tuple(name for name in ("l1", "l2") if penalties[name]), step_to(estimator)
        words = split.adapter.params(task.final, penalties["l1"], penalties["l2"], task.data.total, names)
        estimator.set_params(**{f"{step}{name}": float(value) for name, value in words.items()})
    data = replace(task.data, estimator=estimator)
    split = data.whole()
    ends, problem = _fitted(split, penalties, FINAL, None)
    if ends.refit is None and gamma < 1.0:
        text = (
            "the refit to all rows is not proven, though those to the folds were: this is the penalised fit (gamma = 1)"
        )
        warnings.warn(text, ConvergenceWarning, stacklevel=outside_stacklevel())
        gamma = 1.0
    final = ends.mixed(gamma)
    proofs = CoefficientProofs.of(split, problem, ends.penalised, math.inf)
    radius = gamma * ends.penalised.certificate.radius
    if ends.refit is not None:
        radius += (1.0 - gamma) * ends.refit.certificate.radius
    radius = radius * (1.0 + 4.0 * EPS) + 4.0 * EPS * norm(np.ravel(final.coef_))
    support = np.ravel(split.model.coefficients(ends.penalised.x)[0]) != 0.0
    proven = not np.any(proofs.proven == OPEN)
    return put_into(data, split, final), gamma, penalties, support, proven, float(radius)
