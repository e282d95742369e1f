r"""What is known of a linear estimator, said once and read in both directions: a row of `suffice.sklearn.table`.

Ours is  sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1  with  a_i = s_i / N,  N = sum of the weights
s_i that a fit sees (sample weights times class weights). An estimator says s = l1 + l2 by one word (`Strength`),

    alpha = s   (its loss is the mean over samples),     alpha = N s,     C = 1/(N s)   (its loss is the sum),

and the share of l1 in it by l1_ratio, by its penalty, or by its name. From penalties to words: a search tunes l1 and
l2, since C and the alpha of a sum depend on the number of samples, of which folds have fewer than all data; `params`
says them with the N of the final fit, and `fold` is the problem of training rows. From words to penalties: `objective`
is what a fitted estimator has minimised, with the penalty that it was given or has chosen; what it does not know for
certain it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from suffice.arrays import Array
from suffice.models.margin_losses import LOGISTIC, SQUARED, Squared
from suffice.rows.gram import as_array
from suffice.sklearn._structure import Columns, Structure
from suffice.sklearn.adapters import ROWS, SCORES_OF, SQUARES, Adapter, Fold, Objective, by_liblinear, refuse
from suffice.sklearn.folds import Intercept, Learner, LinearFold, SeveralTargets
from suffice.solvers.solution import Solution

BOTH = {"Lasso": "ElasticNet", "MultiTaskLasso": "MultiTaskElasticNet"}  # of one penalty, and of two


@dataclass(frozen=True)
class Strength:
    """How an estimator says s = l1 + l2: in a word, relative to the mean over samples, to the mean over rows (`by_row`)
    or to their sum, or to 1/s."""

    word: str
    of_sum: bool = False
    inverse: bool = False
    by_row: bool = False

    def said(self, s: float, total: float) -> float:
        """The word of a fit whose weights sum to `total`."""
        value = s * total if self.of_sum else s
        if not self.inverse:
            return value
        return 1.0 / value if value > 0.0 else math.inf

    def meant(self, value: float, weights: Array) -> float:
        """s."""
        s = 1.0 / value if self.inverse else value
        total = float(weights.sum())
        return s / total if self.of_sum else s * len(weights) / total if self.by_row else s


ALPHA, SUM, C = Strength("alpha"), Strength("alpha", of_sum=True), Strength("C", of_sum=True, inverse=True)

Leaves = Mapping[str, Callable[[Any, Any, Solution], Any]]  # of the estimator, the fold and its solution
Puts = Mapping[str, Callable[[Any, Any], Any]]  # of the estimator and the classes
STEPS: Leaves = {"n_iter_": lambda _, fold, found: found.steps}


@dataclass(frozen=True)
class LinearEstimator(Adapter):
    """An estimator: the arguments on which its minimiser depends, those that decide how it is found (`way`), and of
    which of them some values only are `taken`; `psi` is its loss, or a function of the estimator that gives it or
    raises ValueError; `rows`: whether folds may share one copy of the rows, or have them in blocks where they are.
    Attributes that predictions ask for besides coefficients are `puts`, those that a fit leaves `leaves`."""

    name: str
    read: str
    way: str = ""
    strength: Strength | None = ALPHA
    share: float | None = 0.0  # of l1 in s; None: as the estimator says, by its penalty or its l1_ratio
    psi: Any = SQUARED
    scorings: tuple[str, ...] = SQUARES  # none: those of the loss
    taken: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    weighted: bool = True  # whether fits take weights of samples
    rows: Literal["copied", "in blocks", "shared"] = "copied"
    puts: Puts = field(default_factory=dict)
    leaves: Leaves = field(default_factory=lambda: STEPS)
    use: Literal["tuned", "certified", "both"] = "both"
    factor: str = "weights"  # the argument that has factors of the penalties, if there is one

    @property
    def classifies(self) -> bool:
        return isinstance(self, Classification)

    @property
    def short(self) -> str:
        return self.name.partition(".")[2]

    def of(self, estimator: Any) -> Any:
        if self.scorings:
            return self
        return replace(self, scorings=SCORES_OF.get(type(self.loss(estimator)).__name__, ("neg_mean_deviance",)))

    def loss(self, estimator: Any) -> Any:
        """psi; ValueError where there is no proof for it."""
        return self.psi(estimator) if callable(self.psi) else self.psi

    # From penalties to words

    def fixed_share(self, estimator: Any) -> float | None:
        """The share of l1 where that is not a number of the estimator's own."""
        by_penalty = {"l1": 1.0, "l2": 0.0}.get(getattr(estimator, "penalty", None))  # type: ignore[arg-type]
        return by_penalty if self.share is None else self.share

    def ratio(self, estimator: Any) -> float:
        fixed = self.fixed_share(estimator)
        if fixed is not None:
            return fixed
        if np.ndim(estimator.l1_ratio) > 0:
            raise ValueError("l1_ratio must be one number: name it in space to tune it")
        return float(estimator.l1_ratio or 0.0)

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        self.loss(estimator)
        one = {0.0: "l2", 1.0: "l1"}.get(self.fixed_share(estimator))  # type: ignore[arg-type]
        if one is None or self.strength is None:
            return
        word = self.strength.word
        value = getattr(estimator, word)
        if names != (one,):
            by = f"(penalty={one!r})" if self.share is None else ""
            both = f": {BOTH[self.short]} has both" if self.short in BOTH else ""
            raise ValueError(f"{self.short}{by} has one penalty, {one}, got {', '.join(names)}{both}")
        if np.ndim(value) > 0:
            raise ValueError(f"{self.short}({word}={value!r}) has one {word} for each target: tune one number for all")

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        assert self.strength is not None
        s, words = l1 + l2, {self.strength.word: self.strength.said(l1 + l2, total)}
        if self.fixed_share(estimator) is not None:
            return words
        r = l1 / s if s > 0.0 else 0.0
        return words if len(names) == 1 and math.isclose(r, self.ratio(estimator)) else {**words, "l1_ratio": r}

    def shares_rows(self, estimator: Any) -> bool:
        return self.rows == "shared" and not getattr(estimator, "positive", False)

    def takes_blocks(self, estimator: Any) -> bool:
        return self.rows != "copied" and not getattr(estimator, "positive", False)

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        if self.weighted:
            return sample_weight
        if np.any(sample_weight != sample_weight[0]):
            raise ValueError(f"{self.short} is tuned without sample weights, which its fit does not take")
        return np.ones_like(sample_weight)

    def kind(self, estimator: Any) -> Intercept:
        """liblinear's intercept is a column, which is penalised."""
        return "none" if not estimator.fit_intercept else "column" if by_liblinear(estimator) else "free"

    def scaling(self, estimator: Any) -> float:
        """The constant of an intercept that is a column."""
        return float(getattr(estimator, "intercept_scaling", 1.0))

    def columns(self, estimator: Any, count: int) -> Columns:
        """What the columns of X are."""
        return Columns(count)

    def structure(self, estimator: Any, features: int) -> Structure:
        """What is asked of weights besides one penalty for all."""
        return Structure(positive=bool(getattr(estimator, "positive", False)))

    def learner(self, estimator: Any, y: Array, classes: Any) -> Any:
        """The loss of these targets, or the model."""
        return self.loss(estimator)

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Fold:
        learner, kind = self.learner(estimator, y, classes), self.kind(estimator)
        columns = self.columns(estimator, X.shape[1])
        structure = self.structure(estimator, len(columns.features))
        return LinearFold(X, y, learner, weights, kind, self.scaling(estimator), columns=columns, structure=structure)

    def finish(self, estimator: Any, fold: Any, solution: Solution) -> None:
        for name, attribute in self.leaves.items():
            setattr(estimator, name, attribute(estimator, fold, solution))

    def with_puts(self, estimator: Any, classes: Any) -> Any:
        for name, attribute in self.puts.items():
            setattr(estimator, name, attribute(estimator, classes))
        return estimator

    # From words to penalties

    def penalties(self, estimator: Any, weights: Array) -> tuple[Any, Any]:
        """l1 and l2 of a fitted estimator, one for all weights or one each."""
        if self.strength is None or getattr(estimator, "penalty", "") is None:
            return 0.0, 0.0
        word, r = self.strength.word, self.fixed_share(estimator)
        s = self.strength.meant(_chosen(estimator, word), weights)
        r = _chosen(estimator, "l1_ratio") if r is None else r
        of_l1, of_l2 = self.factors(estimator)
        return s * of_l1 * r, s * of_l2 * (1.0 - r)

    def factors(self, estimator: Any) -> tuple[Any, Any]:
        """Of l1 and of l2, one for each feature or one for all."""
        factors = getattr(estimator, self.factor, None)
        factors = 1.0 if factors is None else np.asarray(factors, dtype=np.float64)
        return factors, factors

    def proven_loss(self, estimator: Any) -> Any:
        """psi of an objective that can be certified."""
        try:
            psi = self.loss(estimator)
        except ValueError as error:
            refuse(True, str(error))
        refuse(type(psi).__name__ not in SCORES_OF, f"there is no proof for the loss {psi}")
        refuse(np.any(getattr(estimator, "positive", False)), "its coefficients are constrained to be positive")
        return psi

    def objective(self, estimator: Any, y: Any, weights: Array) -> Objective:
        """What a fitted estimator has minimised; `CannotTellError` where that is not known."""
        classes: Any = getattr(estimator, "classes_", None)
        kind, y = self.kind(estimator), np.asarray(y)
        several = classes is not None and len(classes) > 2
        refuse(several and (not self.many or by_liblinear(estimator)), "it is one model for each class")
        psi = self.proven_loss(estimator)
        targets = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        refuse(targets.ndim != 1, "it has several targets")
        coef, b = (np.array(as_array(one), dtype=np.float64) for one in (estimator.coef_, estimator.intercept_))
        b = b.ravel()
        if classes is None:
            targets = targets.astype(np.float64)
        else:
            strange = targets[~np.isin(targets, classes)]
            if len(strange):
                known = ", ".join(map(str, classes))
                raise ValueError(f"y holds the label '{strange[0]}', and the model was fitted to {known}")
            weights = class_weighted(estimator, targets, weights, getattr(self, "by_rows", False))
            targets = numbered(targets, classes)
        penalties = self.penalties(estimator, weights)
        if not several:
            b0 = float(b[0]) if kind != "none" else 0.0
            return Objective(psi, *penalties, coef.ravel(), b0, targets, weights, kind, self.scaling(estimator))
        refuse(len(coef) != len(classes), "it has several classes, and a model for each pair of them")
        b = b if kind == "free" else np.zeros(len(classes))
        return Objective(None, *penalties, coef, b, targets, weights, kind)


def _chosen(estimator: Any, word: str) -> float:
    """The value that it has chosen, or was given."""
    value = getattr(estimator, f"{word}_", None)
    value = getattr(estimator, word) if value is None else value
    values = np.unique([0.0 if one is None else float(one) for one in np.ravel(value)])
    refuse(len(values) != 1, f"it has several values of {word}")
    return float(values[0])


@dataclass(frozen=True)
class Regression(LinearEstimator):
    """An estimator of numbers."""

    several: bool = False  # whether several targets will do

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        psi = self.loss(estimator)
        if isinstance(psi, Squared | Learner):
            return np.asarray(y, dtype=np.float64)
        try:
            targets: Array = psi.targets(np.asarray(y))
        except ValueError as error:
            raise ValueError(f"{error}, for {self.short}") from error
        return targets

    def learner(self, estimator: Any, y: Array, classes: Any) -> Any:
        if y.ndim == 1:
            return self.loss(estimator)
        if getattr(estimator, "positive", False):
            raise ValueError(f"{self.short}(positive=True) is tuned for one target")
        return SeveralTargets(y.shape[1])

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        intercept = np.float64(intercept) if np.ndim(intercept) == 0 else intercept  # as fits have it
        estimator.coef_, estimator.intercept_, estimator.n_features_in_ = coef, intercept, np.shape(coef)[-1]
        return self.with_puts(estimator, classes)


@dataclass(frozen=True)
class Classification(LinearEstimator):
    """An estimator of classes; its labels are -1 and 1, or the numbers of several classes."""

    psi: Any = LOGISTIC
    scorings: tuple[str, ...] = SCORES_OF["Logistic"]
    many: bool = False  # whether more than two classes will do
    by_rows: bool = False  # whether class_weight="balanced" counts rows, whatever their weights are

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        return numbered(y, classes, "" if self.many else f"SufficeSearchCV tunes {self.short} for")

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        sample_weight = super().weights(estimator, y, sample_weight, classes)
        return class_weighted(estimator, y, sample_weight, self.by_rows)

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        estimator.coef_, estimator.intercept_ = np.atleast_2d(coef), np.atleast_1d(intercept)
        estimator.classes_, estimator.n_features_in_ = classes, np.shape(estimator.coef_)[1]
        return self.with_puts(estimator, classes)


def numbered(y: Any, classes: Any, two: str = "") -> Array:
    """-1 and 1 for two classes, else their numbers; `two` says who takes no more than two."""
    if two and len(classes) > 2:
        raise ValueError(f"{two} two classes, y holds {len(classes)}. Only binary classification is supported.")
    if len(classes) == 2:
        return np.where(np.asarray(y) == classes[1], 1.0, -1.0)
    return np.asarray(np.searchsorted(classes, y).astype(np.float64))


def class_weighted(estimator: Any, y: Any, sample_weight: Array, by_rows: bool) -> Array:
    """Sample weights times class weights."""
    given = getattr(estimator, "class_weight", None)
    if given is None:
        return sample_weight
    present = np.unique(y)
    of_class = compute_class_weight(given, classes=present, y=y, sample_weight=None if by_rows else sample_weight)
    return np.asarray(sample_weight * of_class[np.searchsorted(present, y)])


def make_known(*rows: Any) -> None:
    """Put rows into the table: for searches, for `suffice.certify`, and for their arguments."""
    ROWS.update({row.name: row for row in rows})
