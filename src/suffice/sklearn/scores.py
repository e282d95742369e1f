"""Smooth scores by their scikit-learn names: what each is to a search, in one place.

A score is  offset - F,  F the mean over folds of  L_k = sum_i v_i phi(m_i, y_i) / unit(y, v),  with phi and the proof
of its error from `prove.held_out`. The offset is 1 and the unit the variance of the held-out targets for r2; 0 and 1
else.

The root mean squared error is optimised as the squares that it is the root of: its F is theirs, and the score is minus
the mean over folds of r_k = sqrt(L_k). An evaluation has r_k / sqrt(K) for each of K folds, with proven errors e_k: the
score is proven as F is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names, mean_pinball_loss
from sklearn.pipeline import Pipeline

from suffice.arrays import EPS, Array
from suffice.evaluation import Evaluation
from suffice.models.families import GAMMA, POISSON
from suffice.prove.scores import BrierScore, DevianceScore, HingeScore, LogScore, Phi, SquaredScore

Scorer = Callable[..., float]

LEAST_VARIANCE = 1e-290  # below, squares of what is left of targets have lost digits


@dataclass(frozen=True)
class Score:
    """A score that a search can optimise; `loss` says what it is minus (or 1 minus), `own` is a scorer where
    scikit-learn has none, or none for labels that are text and folds that lack a class; `root`: whether it is the root
    of L_k in every fold."""

    name: str
    loss: str
    phi: Phi | None = None  # None: a fold of the adapter's own knows
    own: Scorer | None = None
    offset: float = 0.0
    unit: Callable[[Array, Array], float] = lambda y, v: 1.0
    root: bool = False

    @property
    def scorer(self) -> Any:
        """scorer(estimator, X, y, sample_weight=None)."""
        return self.own or get_scorer(self.name)

    def of_losses(self, losses: Any) -> Any:
        """The scores of folds with these L_k."""
        return self.offset - (np.sqrt(losses) if self.root else losses)

    def loss_of(self, score: float) -> float:
        """L_k of a fold with this score."""
        return (self.offset - score) ** 2 if self.root else self.offset - score

    def interval(self, of_loss: tuple[float, float]) -> tuple[float, float]:
        """(low, high) of the score of one fold, from that of L_k."""
        low, high = of_loss
        return float(self.of_losses(high)), float(self.of_losses(low))

    def proven(self, made: Evaluation) -> tuple[float, float]:
        """(low, high), between which the mean score over folds is proven to lie."""
        if not self.root:
            return self.interval(made.interval)
        size, K, slack = np.abs(made.coarse), len(made.coarse), (len(made.r) + 8) * EPS
        low, high = np.sum(np.maximum(size - made.e, 0.0)) * (1.0 - slack), np.sum(size + made.e) * (1.0 + slack)
        return self.offset - float(high) / math.sqrt(K), self.offset - float(low) / math.sqrt(K)


def scoring_name(scoring: Any) -> str:
    """What to call a score that is given by name or as a scorer."""
    return scoring if isinstance(scoring, str) else getattr(scoring, "__name__", type(scoring).__name__)


def scorer_of(scoring: Any) -> Any:
    """The scorer of this name, or the scorer itself."""
    if isinstance(scoring, str):
        own = scoring in SCORES or scoring not in get_scorer_names()
        return score_of(scoring).scorer if own else get_scorer(scoring)
    if not callable(scoring):
        raise TypeError(f"scoring must be the name of a scorer, a scorer, a list of them or None, got {scoring!r}")
    return scoring


def score_of(name: str) -> Score:
    """The score of this name. One that only an adapter knows is minus its loss."""
    return SCORES.get(name) or Score(name, f"minus {name}")


def _variance(y: Array, v: Array) -> float:
    if len(y) < 2:
        raise ValueError(
            "scoring='r2' is not defined on a fold that holds out one row, as LeaveOneOut's do: use "
            "'neg_mean_squared_error', of which R^2 on all rows is a multiple"
        )
    if np.ptp(y[v > 0.0]) == 0.0:
        raise ValueError("scoring='r2' is not defined on a fold whose held-out targets are all equal")
    variance = float(v @ (y - float(v @ y)) ** 2)
    if variance < LEAST_VARIANCE:
        raise ValueError(
            f"scoring='r2' divides by the variance of held-out targets, which is next to nothing, got {variance!r}: "
            "multiply y by a constant"
        )
    return variance


def _mean(loss: Array, sample_weight: Any) -> float:
    return -float(np.average(loss, weights=sample_weight))


def _classes(estimator: Any, y: Any) -> Any:
    """The number of the class of every label; ValueError for one that the estimator has not been fitted to."""
    classes, y = estimator.classes_, np.asarray(y)
    if len(unseen := np.setdiff1d(y, classes)):
        known = ", ".join(map(str, classes))
        raise ValueError(f"y contains previously unseen labels: {unseen.tolist()}; the model was fitted to {known}")
    return np.searchsorted(classes, y)


def _signs(estimator: Any, y: Any) -> Array:
    return np.asarray(2.0 * _classes(estimator, y) - 1.0)


def _neg_brier_score(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    K = len(estimator.classes_)
    missed = estimator.predict_proba(X) - np.eye(K)[_classes(estimator, y)]
    return _mean((missed**2).sum(axis=1) * (0.5 if K == 2 else 1.0), sample_weight)


def _neg_log_loss(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    if not hasattr(estimator, "predict_log_proba"):  # skglm's, of two classes
        return _mean(np.logaddexp(0.0, -_signs(estimator, y) * estimator.decision_function(X)), sample_weight)
    log_p = estimator.predict_log_proba(X)
    return _mean(-log_p[np.arange(len(log_p)), _classes(estimator, y)], sample_weight)


def _neg_squared_hinge(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    return _mean(np.maximum(0.0, 1.0 - _signs(estimator, y) * estimator.decision_function(X)) ** 2, sample_weight)


def _neg_deviance(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    from suffice.sklearn.adapters import find_adapter

    final = estimator
    if isinstance(estimator, Pipeline):
        final, X = estimator[-1], estimator[:-1].transform(X)
    if hasattr(final, "deviance"):
        return -float(final.deviance(X, y, sample_weight))
    margins = np.asarray(X @ final.coef_, dtype=np.float64) + final.intercept_
    return _mean(2.0 * find_adapter(final).loss(final).excess(margins, np.asarray(y, dtype=np.float64)), sample_weight)


def _neg_mean_pinball_loss(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    q = (estimator[-1] if isinstance(estimator, Pipeline) else estimator).quantile
    return -float(mean_pinball_loss(y, estimator.predict(X), alpha=q, sample_weight=sample_weight))


def _neg_squared_margin_error(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    return _mean((estimator.decision_function(X) - _signs(estimator, y)) ** 2, sample_weight)


SCORES = {
    score.name: score
    for score in (
        Score("neg_brier_score", "Brier score", BrierScore(), _neg_brier_score),
        Score("neg_log_loss", "log loss", LogScore(), _neg_log_loss),
        Score("neg_mean_squared_error", "mean squared error", SquaredScore()),
        Score("neg_root_mean_squared_error", "root mean squared error", SquaredScore(), root=True),
        Score("r2", "1 - R²", SquaredScore(), offset=1.0, unit=_variance),
        Score("neg_mean_poisson_deviance", "mean Poisson deviance", DevianceScore(POISSON)),
        Score("neg_mean_gamma_deviance", "mean Gamma deviance", DevianceScore(GAMMA)),
        Score("neg_mean_deviance", "mean deviance", None, _neg_deviance),
        Score("neg_partial_likelihood", "minus the partial likelihood", None, _neg_deviance),
        Score("neg_mean_pinball_loss", "mean pinball loss", None, _neg_mean_pinball_loss),
        Score("neg_squared_margin_error", "mean squared error of margins", SquaredScore(), _neg_squared_margin_error),
        Score("neg_squared_hinge", "mean squared hinge", HingeScore(), _neg_squared_hinge),
    )
}
