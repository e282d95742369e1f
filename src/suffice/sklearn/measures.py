r"""Measures that people know, of predictions for rows that a model has not seen.

With y the truth, p the prediction, s sample weights and m = sum s y / sum s:

    regression       RMSE = sqrt(sum s (y - p)^2 / sum s),  MAE = sum s |y - p| / sum s  (units of y),
                     R^2 = 1 - sum s (y - p)^2 / sum s (y - m)^2;
    classification   the share of rows whose class is right, the area under the ROC curve (several classes: the mean
                     over classes of that of one against the rest), minus the mean logarithm of the true class's
                     probability;
    survival         Harrell's concordance of times and risks, over pairs of one fold and stratum: risks of different
                     models, or with different baseline hazards, have no common zero.

Of n rows that count by s the share p that is right has the 95 % interval of Clopper and Pearson, which holds for any n:
the p for which a binomial count of n p or more, or of n p or fewer, has a probability of 2.5 %. Rows count as
n = (sum s)^2 / sum s^2 (Kish), and once however many folds hold them out.

What is gained on a model that knows the target only is the share of its error that is gone, 1 - e / e0, with e the mean
squared error, the Brier score, or the share of wrong classes where there are no probabilities; less than LITTLE is
nothing.

Nothing is proven about them: they are as accurate as the models are, and an interval is about other rows of the kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import betaincinv
from sklearn.metrics import confusion_matrix, log_loss, mean_absolute_error, r2_score, roc_auc_score

from suffice.arrays import Array

MEASURES = {  # names for people
    "accuracy": "accuracy",
    "rmse": "root mean squared error",
    "concordance": "concordance",
    "auc": "AUC",
    "log_loss": "log loss",
    "r2": "R²",
    "mae": "mean absolute error",
}
LITTLE = 0.01
MOST_CLASSES = 30  # of a confusion matrix that is shown


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a model says of rows, beside the truth. `decided`: probabilities (rows x classes) or, of a classifier that
    has none, decision values; None for regression. `classes` is None for regression."""

    y: Any
    predicted: Any
    weight: Array | None = None
    classes: Any = None
    decided: Array | None = None
    alone: bool = False  # of a model that knows the target only: it ranks nothing
    survival: bool = False  # whether y are times, negative where censored, and predictions risks
    fold: Any = None  # the number of the model that has predicted every row, where there are several
    strata: Any = None  # of survival, and times from which on rows are at risk, or None
    entry: Any = None
    times: float = 1.0  # how often a row is among them: by folds that are drawn several times

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, weight: Array | None = None) -> Predicted:
        """The predictions of a fitted estimator."""
        classes = getattr(model, "classes_", None)
        decided = None
        if classes is not None:
            ask = getattr(model, "predict_proba", None) or getattr(model, "decision_function", None)
            decided = None if ask is None else np.asarray(ask(X), dtype=np.float64)
        survival = getattr(model, "family", None) == "cox"
        strata, entry = model._at_risk(X) if survival else (None, None)
        predicted = np.asarray(model.predict(X))
        return cls(np.asarray(y), predicted, weight, classes, decided, False, survival, None, strata, entry)

    @classmethod
    def joined(cls, parts: Sequence[Predicted]) -> Predicted:
        """Of several models with the same classes, one after the other."""

        def all_of(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if any(value is None for value in values) else np.concatenate(values)

        fold = np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
        names = ("y", "predicted", "weight", "decided", "strata", "entry")
        return replace(parts[0], fold=fold, **{name: all_of(name) for name in names})

    def by_fold(self) -> list[dict[str, float]]:
        """What each of the models is measured by, on the rows that it has predicted."""
        if self.fold is None:
            return [self.measured()]
        names = ("y", "predicted", "weight", "decided", "fold", "strata", "entry")
        known = {name: value for name in names if (value := getattr(self, name)) is not None}
        parts = [{name: value[self.fold == k] for name, value in known.items()} for k in np.unique(self.fold)]
        return [replace(self, **part).measured() for part in parts]

    def in_units(self, inverse: Any) -> Predicted:
        """Truth and predictions of a regression after this function of them, if it is not None."""
        return self if inverse is None else replace(self, y=inverse(self.y), predicted=inverse(self.predicted))

    def __repr__(self) -> str:
        return f"<Predicted: {len(self.y):,} rows, {shown(self.measured()) or 'nothing to be measured'}>"

    @property
    def main(self) -> str:
        """The measure that is told first."""
        return "concordance" if self.survival else "rmse" if self.classes is None else "accuracy"

    def measured(self) -> dict[str, float]:
        """The measures that can be taken."""
        found = self._of_numbers() if self.classes is None else self._of_classes()
        return {name: float(value) for name, value in found.items() if math.isfinite(value)}

    def _of_numbers(self) -> dict[str, float]:
        y, predicted, weight = self.y, self.predicted, self.weight
        if not np.isfinite(predicted).all():
            return {}
        if self.survival:
            found = 0.5 if self.alone else concordance(y, predicted, weight, self._apart, self.entry)
            return {"concordance": found}
        return {
            "r2": r2_score(y, predicted, sample_weight=weight) if len(y) > 1 else math.nan,
            "rmse": math.sqrt(_mean_square(y - predicted, weight)),
            "mae": mean_absolute_error(y, predicted, sample_weight=weight),
        }

    @property
    def _apart(self) -> Any:
        """One number for each fold and stratum."""
        known = [one for one in (self.fold, self.strata) if one is not None]
        return np.unique(np.stack(known), axis=1, return_inverse=True)[1].ravel() if known else None

    def _of_classes(self) -> dict[str, float]:
        classes, decided, weight = self.classes, self.decided, self.weight
        found = {"accuracy": float(np.average(self.predicted == self.y, weights=weight))}
        if self.alone:
            found["auc"] = 0.5
        else:
            n = (len(self.y) if weight is None else float(weight.sum() ** 2 / np.sum(weight**2))) / self.times
            found["accuracy_low"], found["accuracy_high"] = share_interval(found["accuracy"] * n, n, 0.95)
        if decided is None:
            return found
        index, proper = self._index, self._proper
        if len(np.unique(index)) == len(classes) and not self.alone and (proper or len(classes) == 2):
            ranked = decided[:, 1] if len(classes) == 2 and decided.ndim == 2 else decided
            found["auc"] = roc_auc_score(index, ranked, sample_weight=weight, multi_class="ovr")
        if proper:
            found["log_loss"] = log_loss(index, decided, sample_weight=weight, labels=np.arange(len(classes)))
        return found

    @property
    def _index(self) -> Any:
        places = {label: k for k, label in enumerate(self.classes.tolist())}
        return np.array([places[label] for label in self.y.tolist()])

    @property
    def _proper(self) -> bool:
        """Whether there are probabilities."""
        decided = self.decided
        return decided is not None and decided.ndim == 2 and bool(np.allclose(decided.sum(axis=1), 1.0))

    def error(self, probabilities: bool = True) -> float:
        """e of the module's text."""
        if self.survival:
            return 1.0 - self._of_numbers().get("concordance", 0.5)
        if self.classes is None:
            return _mean_square(self.y - self.predicted, self.weight)
        if not (probabilities and self._proper):
            return float(np.average(self.predicted != self.y, weights=self.weight))
        assert self.decided is not None
        off = np.sum((self.decided - np.eye(len(self.classes))[self._index]) ** 2, axis=1)
        return float(np.average(off, weights=self.weight))

    def gain(self, baseline: Predicted) -> float:
        """The share of the baseline's error that is gone; 0 if there was none."""
        before = baseline.error(self._proper)
        return 1.0 - self.error() / before if before > 0.0 else 0.0

    def confusion(self) -> dict[str, Any] | None:
        """Rows by true class (a list for each) and predicted class; None for regression and for very many classes."""
        if self.classes is None or len(self.classes) > MOST_CLASSES:
            return None
        counts = confusion_matrix(self.y, self.predicted, labels=self.classes)
        return {"classes": [str(label) for label in self.classes], "counts": counts.tolist()}


def share_interval(hits: Any, n: Any, coverage: float) -> tuple[Any, Any]:
    """Between which a share lies that `hits` of n rows have, by Clopper and Pearson: never too narrow."""
    hits, tail = np.minimum(hits, n), 0.5 * (1.0 - coverage)
    low = np.where(hits > 0.0, betaincinv(np.maximum(hits, 1e-9), n - hits + 1.0, tail), 0.0)
    high = np.where(hits < n, betaincinv(hits + 1.0, np.maximum(n - hits, 1e-9), 1.0 - tail), 1.0)
    return low, high


def _mean_square(missed: Array, weight: Array | None) -> float:
    """Over rows, and over targets where there are several."""
    return float(np.mean(np.average(missed**2, axis=0, weights=weight)))


def concordance(y: Any, risk: Any, sample_weight: Any = None, strata: Any = None, entry: Any = None) -> float:
    """Harrell's concordance of times y, negative where censored, and risks: the share of pairs whose earlier event has
    the larger risk, ties of risks counting half; weighted by the product of weights. Pairs are of one stratum, and at
    risk together: the other row has entered before the event."""
    y, risk = np.asarray(y, dtype=np.float64), np.asarray(risk, dtype=np.float64)
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    entry = np.full(len(y), -math.inf) if entry is None else np.asarray(entry, dtype=np.float64)
    labels = np.zeros(len(y)) if strata is None else np.asarray(strata)
    right = pairs = 0.0
    for label in np.unique(labels):
        signed, m, a, since = (one[labels == label] for one in (y, risk, weight, entry))
        time, event = np.abs(signed), signed > 0.0
        for i in np.flatnonzero(event & (a > 0.0)):
            later = ((time > time[i]) | ((time == time[i]) & ~event)) & (since < time[i])
            w = a[later] * a[i]
            pairs += float(w.sum())
            right += float(w @ ((m[later] < m[i]) + 0.5 * (m[later] == m[i])))
    return right / pairs if pairs > 0.0 else 0.5


def of_the_target_alone(parts: Sequence[tuple[Predicted, Any, Array | None]]) -> Predicted:
    """What a model that knows the target only says of the same rows: the most frequent class, or the mean. A part is
    (predictions of the rows of a fold, the targets that its model was trained with, their weights)."""
    made = []
    for part, y, weight in parts:
        if part.classes is None:
            guess, shares = np.broadcast_to(np.average(y, axis=0, weights=weight), part.y.shape), None
        else:
            counts = np.array([np.average(y == label, weights=weight) for label in part.classes])
            guess = np.full(len(part.y), part.classes[int(np.argmax(counts))])
            shares = np.tile(counts, (len(part.y), 1))
        made.append(replace(part, predicted=guess, decided=shares, alone=True))
    return Predicted.joined(made)


def shown(found: Mapping[str, float]) -> str:
    """Measures in one line."""
    told = []
    for name, value in found.items():
        if name in MEASURES:
            told.append(f"{MEASURES[name]} {as_text(name, value)}")
        if name == "accuracy" and (range_ := accuracy_range(found)):
            told[-1] += f" (95 % interval {range_})"
    return ", ".join(told)


def accuracy_range(found: Mapping[str, float]) -> str:
    """The interval of the accuracy, rounded outwards; nothing where there is none."""
    if "accuracy_low" not in found:
        return ""
    low, high = math.floor(1000.0 * found["accuracy_low"]) / 10.0, math.ceil(1000.0 * found["accuracy_high"]) / 10.0
    return f"{low:.1f} to {high:.1f} %"


def as_text(name: str, value: float, digits: int = 4) -> str:
    """A measure for people: a share in percent, what has units of the target with thousands apart."""
    if name == "accuracy":
        return f"{100.0 * value:.{digits - 2}f} %"
    if name in ("rmse", "mae") and 10.0 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:,.0f}"
    if name in ("r2", "auc", "concordance"):
        return f"{round(value, digits - 1) + 0.0:.{digits - 1}f}"
    return f"{value:.{digits}g}"


def compared_measures(
    tuned: Predicted, baseline: Predicted, default: Predicted | None = None, inverse: Any = None, labels: Any = None
) -> dict[str, Any]:
    """Measures as plain data: of the tuned models, of a model that knows the target only, and with scikit-learn's
    defaults, if there are such. `inverse` takes targets to their own units; `labels` are names for the classes."""
    tuned, baseline = tuned.in_units(inverse), baseline.in_units(inverse)
    confusion = tuned.confusion()
    if confusion is not None and labels is not None:
        confusion["classes"] = [str(label) for label in labels]
    with np.errstate(over="ignore", invalid="ignore"):
        gain = tuned.gain(baseline)
    return {
        "rows": len(tuned.y),
        "tuned": tuned.measured(),
        "baseline": baseline.measured(),
        "default": {} if default is None else default.in_units(inverse).measured(),
        "gain": gain if math.isfinite(gain) else None,
        "better_than_baseline": gain >= LITTLE,
        "confusion": confusion,
    }
