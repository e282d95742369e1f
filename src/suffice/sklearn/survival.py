r"""Cox's model as people ask about survival: baseline hazards, curves of rows, and what became of rows.

With m(x) = x . w + o the linear predictor and m_0 its weighted mean over training rows,

    H(t | x) = H_0(t) exp(m(x) - m_0),        S(t | x) = exp(-H(t | x)),
    H_0(t)   = sum over events up to t of  s_t / sum_{j in R_t} c_tj exp(m_j - m_0),

Breslow's estimator, or Efron's where the model has Efron's ties (`suffice.models.cox`, whose symbols these are); every
stratum has an H_0. Beyond the last time that a training row of the stratum was watched nothing is known: NaN.

What became of rows is told by Kaplan and Meier, with d_k events among n_k rows at risk at time t_k:

    S(t) = prod_{t_k <= t} (1 - d_k/n_k),     var log S(t) = sum_{t_k <= t} d_k / (n_k (n_k - d_k))  (Greenwood),

and 90 % intervals on the scale of log(-log S). Rows that folds have held out are sorted by the S that the models which
have not seen them predict at the median time of an event, the horizon: a log hazard alone has no zero that these models
share. In groups of equal size the mean prediction stands beside Kaplan and Meier's. All of this is estimated, and
nothing of it proven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from suffice.arrays import Array
from suffice.models.cox import signed_times

NORMAL = 1.6448536269514722  # quantile of 95 %
RISKS = ("lowest third of risk", "middle third", "highest third")
POINTS, MARKS = 120, 5  # times of curves; numbers at risk, at least, at round times
EVENTS, MOST_GROUPS = 20, 10  # of a group that is held against its prediction


def keep_baseline(estimator: Any, fold: Any, w: Array) -> None:
    """Leave H_0 and m_0 of a fold's training rows on an estimator that has the weights w."""
    model, image = fold.hazards, fold.hazards.image(w)
    level = float(np.average(image, weights=model.sets.weight))
    table = model.cumulative_hazards(image, level)
    estimator.baseline_strata_, estimator.baseline_times_, estimator.baseline_cumulative_hazard_ = table
    estimator.baseline_predictor_ = level + float((fold.shift + fold.rest) @ w)


def cumulative_hazards(estimator: Any, X: Any, times: Any = None) -> Array:
    """H of rows of X (rows x times); without `times` at all times of `baseline_times_`."""
    check_is_fitted(estimator, "baseline_times_")
    at = np.unique(estimator.baseline_times_) if times is None else checked_times(times)
    m = estimator.linear_predictor(X) - estimator.baseline_predictor_
    strata = estimator._at_risk(X)[0]
    labels = np.full(len(m), estimator.baseline_strata_[0]) if strata is None else strata
    H = np.full((len(m), len(at)), math.nan)
    for label in np.unique(labels):
        of = estimator.baseline_strata_ == label
        if not of.any():
            known = ", ".join(f"{one:g}" for one in np.unique(estimator.baseline_strata_))
            raise ValueError(f"strata of X must be among those of the training rows, {known}, got {label:g}")
        known, rows = estimator.baseline_times_[of], np.flatnonzero(labels == label)
        before = np.append(0.0, estimator.baseline_cumulative_hazard_[of])[np.searchsorted(known, at, side="right")]
        with np.errstate(divide="ignore", over="ignore"):
            H[rows] = np.exp(m[rows, None] + np.log(before))
        H[np.ix_(rows, at > known[-1])] = math.nan
    return H


def survival_function(model: Any, X: Any, times: Any = None) -> Array:
    """S(t | x) of rows of X (rows x times) by a fitted `ElasticNetGLM("cox")`, also one at the end of a pipeline, and
    as the `best_estimator_` of a search. Without `times` at the times of its `baseline_times_`, in rising order."""
    final, X = asked(model, X)
    return np.asarray(np.exp(-cumulative_hazards(final, X, times)))


def asked(model: Any, X: Any) -> tuple[Any, Any]:
    """The Cox model inside pipelines and searches, and the rows as it sees them."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        model, X = model[-1], model[:-1].transform(X) if len(model.steps) > 1 else X
    if getattr(model, "family", None) != "cox":
        raise TypeError(f"model must be a fitted ElasticNetGLM(family='cox'), got {type(model).__name__}")
    return model, X


def checked_times(times: Any) -> Array:
    """Times as an array; ValueError if they are none."""
    try:
        at: Array = np.atleast_1d(np.asarray(times, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"times must be numbers, got {times!r}") from error
    if at.ndim != 1 or not len(at) or not (np.isfinite(at) & (at >= 0.0)).all():
        raise ValueError(f"times must be finite numbers, none of them negative, got {times!r}")
    return at


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """The curve of some rows: S, Greenwood's variance of log S and the weight at risk at every time of an event; rows
    were watched until `last`."""

    times: Array
    survival: Array
    variance: Array
    left: Array  # the rows at risk just after
    last: float

    @classmethod
    def of(cls, y: Any, sample_weight: Any = None, entry: Any = None) -> KaplanMeier:
        """Of times y, negative where censored; a row is at risk from its `entry` on."""
        y = signed_times(y)
        time, weight = np.abs(y), np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        times = np.unique(y[(y > 0.0) & (weight > 0.0)])
        n = at_risk(time, entry, weight, times)
        d: Array = np.array([float(weight[y == t].sum()) for t in times])
        with np.errstate(divide="ignore"):
            spread = np.cumsum(d / (n * np.maximum(n - d, 0.0)))
        return cls(times, np.cumprod(1.0 - d / n, dtype=np.float64), spread, n - d, float(time[weight > 0.0].max()))

    def at(self, times: Any) -> Array:
        """S at these times; NaN beyond the last one watched."""
        times = np.asarray(times, dtype=float)
        S = np.append(1.0, self.survival)[np.searchsorted(self.times, times, side="right")]
        return np.where(times > self.last, math.nan, S)

    def interval(self, time: float) -> tuple[float, float]:
        """At 90 %; from a count alone where nothing has happened yet, and all of [0, 1] where nobody is left."""
        k = int(np.searchsorted(self.times, time, side="right")) - 1
        S = float(self.at(time))
        if not 0.0 < S < 1.0:
            rows = self.left[k] if k >= 0 else (self.left[0] if len(self.left) else 0.0)
            return (0.05 ** (1.0 / rows) if S == 1.0 and rows > 0.0 else 0.0), 1.0
        wide = NORMAL * math.sqrt(self.variance[k]) / -math.log(S)
        return S ** math.exp(wide), S ** math.exp(-wide)


def survived(models: Sequence[Any], found: Any) -> dict[str, Any]:
    """What became of held-out rows, as plain data. `models`: (estimator, its held-out rows, fold, weights w) each, and
    `found` is their `Predicted`."""
    y, entry, even = found.y, found.entry, found.weight is None
    weight = np.ones(len(y)) if even else found.weight
    counted = weight > 0.0
    events, last = y[(y > 0.0) & counted], float(np.abs(y[counted]).max())
    horizon, times = float(np.median(events)), np.linspace(0.0, last, POINTS)
    curves = []
    for estimator, X, fold, w in models:
        keep_baseline(estimator, fold, w)
        curves.append(np.exp(-cumulative_hazards(estimator, X, [horizon, *times])))
    S = np.concatenate(curves)
    order = np.argsort(-S[:, 0], kind="stable")
    order = order[counted[order]]
    unit = 10.0 ** math.floor(math.log10(last / MARKS))
    marks = np.arange(0.0, last, unit * max(k for k in (1, 2, 5) if k * unit <= last / MARKS))

    def of(rows: Any) -> tuple[dict[str, Any], KaplanMeier, Array]:
        told = {"rows": len(rows), "events": int((y[rows] > 0.0).sum())}
        since = None if entry is None else entry[rows]
        return told, KaplanMeier.of(y[rows], weight[rows], since), np.average(S[rows], axis=0, weights=weight[rows])

    groups, bins = [], []
    for name, rows in zip(RISKS, np.array_split(order, len(RISKS)), strict=True):
        told, curve, predicted = of(rows)
        left = at_risk(np.abs(y[rows]), None if entry is None else entry[rows], np.ones(len(rows)), marks)
        told |= {"observed": curve.at(times), "predicted": predicted[1:], "at_risk": left.astype(int)}
        groups.append({"name": name, **told})
    for rows in np.array_split(order, int(np.clip(len(events) // EVENTS, 2, MOST_GROUPS))):
        told, curve, predicted = of(rows)
        low, high = curve.interval(horizon) if even else (None, None)
        bins.append({**told, "predicted": predicted[0], "observed": curve.at(horizon), "low": low, "high": high})
    return {
        "samples": len(y), "events": len(events), "horizon": horizon, "times": times, "marks": marks, "groups": groups,
        "bins": bins,
    }  # fmt: skip


def at_risk(until: Array, entry: Any, weight: Array, times: Array) -> Array:
    """The weight of rows that have entered, if they do, and are watched at least until then, for each of `times`."""
    order = np.argsort(until, kind="stable")
    total = np.append(np.cumsum(weight[order][::-1])[::-1], 0.0)
    left = np.asarray(total[np.searchsorted(until[order], times)])
    return left if entry is None else left - at_risk(np.asarray(entry, dtype=float), None, weight, times)
