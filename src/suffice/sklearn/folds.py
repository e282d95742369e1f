r"""One fold of a linear model as a lower-level problem: rows, weights of them, and a model, in units of the mean over
its samples:

    Phi(w) = sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1,        a_i = s_i / sum(s).

Rows are copies in main memory, or `Shared`: one copy of all rows for all folds, on a device, or in blocks wherever
these are; then rows that a fold holds out have a weight of 0. The model is a loss psi of one margin, or one of the
`Learner`s: Huber's loss with its scale minimised out, the pinball loss, several classes, several targets, Cox's.

Three kinds of intercept b:

- `none`:   b = 0;
- `free`:   not penalised. For squares it is eliminated by centring X and y, which is exact but for the rounding of the
  centred data; for any other psi, for sparse X, and where X is to be taken as it is, it is minimised out
  (`suffice.models.intercept`). It is never penalised "a little";
- `column`: a column of X like the others, constant and penalised: liblinear's.

l2 = 0 leaves no strong convexity. A solution is proven where the data supply the curvature (`suffice.prove.verified`),
which is so for nearly every pure l1 penalty; elsewhere nothing is. Cox's model, which cannot be verified, and the
multinomial, which has no single minimiser more often, are solved with l2 = FLOOR L in place of 0, L the Lipschitz
constant without penalties: what is tuned and certified is that elastic net. It moves the objective's minimum by at most
(l2/2) ||w||^2, w any minimiser without it.

An offset of squares is taken off the targets; for any other psi it is part of the margins (`suffice.models.linear`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from suffice.arrays import EPS, Array, frozen, positive
from suffice.lazy import cached_property
from suffice.losses import PartialLikelihood
from suffice.models.cox import CoxModel
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel
from suffice.models.margin_losses import Bending, Kinked, MarginLoss, Quantile, Squared
from suffice.models.multinomial import Multinomial
from suffice.models.targets import Targets
from suffice.problems.linear import least_zeroing_l1
from suffice.problems.outputs import with_targets
from suffice.protocols import conforms
from suffice.prove.held_out import HeldOut
from suffice.prove.scores import SOFTMAX_SCORES, DevianceScore, PinballScore, SquaredScores
from suffice.rows.design import Design
from suffice.rows.given import Shared
from suffice.rows.gram import as_array, fits_array, with_constant
from suffice.sklearn._structure import Columns, Structure
from suffice.sklearn.scores import SCORES
from suffice.solvers.newton import NewtonNarrowing
from suffice.solvers.problem import Composite

FLOOR = 1e-7
SMALL = 1 << 24  # bytes: a sparse matrix that takes no more than that as a dense one is solved faster as such
MOST_WHOLE = 2000  # variables of a Hessian of several targets that is one matrix

Intercept = Literal["none", "free", "column"]


class LinearFold:
    """A fold as a lower-level problem, for targets y that psi understands; `scaling` is the constant of the column.
    Dense rows with a free intercept are centred, unless the problem has to be that of X to the last bit; so are sparse
    rows that take no more than SMALL as dense ones. `Shared` rows are taken as they are. `columns` says what the
    columns of X are, `structure` what is asked of their weights."""

    y: Any  # where the rows are, as the model takes it
    hazards: CoxModel  # of Cox's model

    def __init__(
        self,
        X: Any,
        y: Array,
        psi: MarginLoss | Learner,
        sample_weight: Array,
        intercept: Intercept,
        scaling: float = 1.0,
        centre: bool = True,
        columns: Columns | None = None,
        structure: Structure | None = None,
    ) -> None:
        self.psi, self.kind, self.scaling = psi, intercept, scaling
        one = Pinball if isinstance(psi, Quantile) else OneMargin
        self.learner = psi if isinstance(psi, Learner) else one(psi)  # type: ignore[arg-type]
        self.places, self.structure = columns or Columns(X.shape[1]), structure or Structure()
        shared = X if isinstance(X, Shared) else None
        features, y, self.offset = self._split(X, y)
        centre = centre and shared is None
        self.dense = fits_array(features) or (centre and fits_array(features, SMALL))
        self.centred = centre and intercept == "free" and self.dense
        a = sample_weight / float(sample_weight.sum())
        self.shift = self.rest = np.zeros(int(features.shape[1]))
        if shared is not None:
            self.shift = shared.shift
        elif self.centred:
            # A mean far from zero is rounded more coarsely than data vary around it: the rest is taken off next.
            features = as_array(features)
            self.shift = a @ features
            features = np.ascontiguousarray(features - self.shift)
            self.rest = a @ features
            features -= self.rest
        weights = sample_weight if shared is None or shared.weights is None else shared.weights
        rows = features if shared is not None or self.centred else self._rows(features)
        self.design = self.learner.design(rows, weights)
        moved = self.learner.centres_targets and intercept == "free"
        moved = moved and (self.centred or (shared is not None and not self.design.rows.dear))
        self.y_shift = a @ y if moved else np.zeros(y.shape[1:])
        self.y_rest = a @ (y - self.y_shift) if moved else np.zeros(y.shape[1:])
        self.minimised_out = intercept == "free" and not (self.centred and self.learner.centres_targets)
        if self.minimised_out:
            self.design = self.design.with_weights_here()
        self.learner.begin(self, X, y, sample_weight)

    def _split(self, X: Any, y: Array) -> tuple[Any, Array, Array | None]:
        """Features, targets and offsets; that of squares is taken off the targets."""
        features, offset = (X.X, None) if isinstance(X, Shared) else self.places.split(X)
        if offset is not None and isinstance(self.psi, Squared):
            return features, y - offset, None
        return features, y, offset

    def _rows(self, X: Any) -> Any:
        """Features as the design has them: relative to the training mean, or with the intercept's column."""
        X = as_array(X) if self.dense else X
        if self.kind == "column":
            return with_constant(X, self.scaling)
        if self.centred:
            rows = np.ascontiguousarray(X - self.shift)
            rows -= self.rest
            return rows
        return X

    def as_seen(self, X: Any) -> tuple[Any, Array | None]:
        """Other rows as the design has them, and their offsets."""
        features, offset = self.places.split(X)
        return self._rows(features), offset

    def targets(self, y: Array) -> Any:
        """y less what centring takes off it."""
        return y - self.y_shift - self.y_rest

    def model(self, l2: float) -> Any:
        """The loss with this ridge."""
        return self.learner.model(self, l2)

    @property
    def unpenalised(self) -> Any:
        """The loss alone."""
        return self.model(0.0)

    @property
    def solver(self) -> Any:
        return self.learner.solver(self)

    @property
    def plain(self) -> bool:
        """Whether there is nothing but a loss of margins, of rows that can be looked at, and the two penalties."""
        one = isinstance(self.learner, OneMargin) and not self.design.rows.dear
        return one and self.structure.plain and self.offset is None

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.learner.outputs * self.design.shape[1]

    @cached_property
    def l2_floor(self) -> float:
        """FLOOR L; where psi'' has no bound, L is that of w = 0."""
        return max(FLOOR * self.learner.steepness(self), 1e-300)

    @property
    def l2_in_place_of_none(self) -> float:
        """What l2 = 0 is solved with: 0 itself, where that can be verified."""
        return 0.0 if self.learner.verifiable(self) else self.l2_floor

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution, as far as it is penalised."""
        return self.learner.l1_max(self)

    def at(self, *, l1: float | Array, l2: float | Array) -> Composite:
        """The problem at fixed penalties, one for all columns or one each."""
        l1, l2 = (self.places.of_features(one) if isinstance(one, np.ndarray) else one for one in (l1, l2))
        return self.learner.problem(self, l1, l2)

    def of_weights(self, penalty: Any) -> Array:
        """A penalty, one for all columns or one each, as every weight has it."""
        penalty = self.places.of_features(penalty) if isinstance(penalty, np.ndarray) else penalty
        return np.asarray(np.resize(penalty, self.size) * self.structure.factors)

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> Any:
        """This fold's part of minus the mean score (r2: of 1 - r2) over `folds` folds."""
        features, y, offset = self._split(X, y)
        rows = features if isinstance(X, Shared) else self._rows(features)
        weights = X.weights if isinstance(X, Shared) and X.weights is not None else sample_weight
        if isinstance(self.learner, Hazards):  # rows at risk depend on each other
            return self.learner.held_out(self, X, rows, y, sample_weight, offset, folds)
        phi, unit, blur = self.learner.score(self, scoring, y, sample_weight / sample_weight.sum())
        train, design = self.unpenalised if self.minimised_out else None, Design.of(rows, weights)
        targets = self.y if self.design.rows.dear else self.targets(y)
        made = HeldOut(design, targets, phi, 1.0 / folds / unit, train, offset=offset, blur=blur)
        if self.design.rows is design.rows and offset is None and not self.design.riders:
            self.design.riders.append(made.rider)
        return made

    def as_given(self, X: Any, y: Array) -> LinearFold:
        """The problem of these rows and targets to the last bit, which are those that the fold was made of."""
        if not self.centred:
            return self
        more: dict[str, Any] = {"columns": self.places, "structure": self.structure}
        return LinearFold(X, y, self.psi, self.design.weights, self.kind, self.scaling, centre=False, **more)

    def laid_out(self, values: Any, empty: Any) -> Any:
        """What is said of every weight, in rows of outputs and columns of X; `empty` of those that are no features."""
        values = np.reshape(values[:-1] if self.kind == "column" else values, (self.learner.outputs, -1))
        whole = np.full((len(values), self.places.count), empty, dtype=values.dtype)
        whole[:, self.places.features] = values
        return whole

    def coefficients(self, w: Array) -> tuple[Array, Any]:
        """Coefficients and the intercept of the data as they were given, one row and one number for every output."""
        if self.kind == "column":
            return w[:-1], float(w[-1] * self.scaling)
        b = self.y_shift + self.y_rest
        if self.minimised_out:
            b = b + self.learner.intercept(self.unpenalised, w)
        W = w.reshape(self.learner.outputs, -1) if self.learner.outputs > 1 else w
        b = self.learner.free(b - W @ self.shift - W @ self.rest)
        return self.places.placed(W), float(b) if np.ndim(b) == 0 else b


class Learner:
    """A model of the rows of a fold; what all of them share is that of one output."""

    outputs: int = 1
    centres_targets = False  # whether an intercept goes with the means
    differentiable = True
    own_score: Any = None  # phi of a score that depends on the loss

    def design(self, rows: Any, weights: Any) -> Design:
        return Design.of(rows, weights)

    def begin(self, fold: LinearFold, X: Any, y: Array, sample_weight: Array) -> None:
        """Take the targets, and raise ValueError where there is no minimiser."""
        fold.y = fold.design.of_rows(frozen(fold.targets(y)))

    def model(self, fold: LinearFold, l2: float) -> Any:
        raise NotImplementedError

    def solver(self, fold: LinearFold) -> Any:
        return "auto"

    def steepness(self, fold: LinearFold) -> float:
        """L without penalties."""
        return float(fold.unpenalised.L)

    def verifiable(self, fold: LinearFold) -> bool:
        """Whether solutions without an l2 can be proven."""
        return False

    def l1_max(self, fold: LinearFold) -> float:
        return fold.structure.l1_max(fold.unpenalised.gradient(np.zeros(fold.size)))

    def problem(self, fold: LinearFold, l1: Any, l2: Any) -> Composite:
        l1, l2 = (np.tile(one, self.outputs) if isinstance(one, np.ndarray) else one for one in (l1, l2))
        return fold.structure.problem(fold.model, l1, l2, fold.l2_in_place_of_none, fold.size)

    def score(self, fold: LinearFold, scoring: str, y: Array, v: Array) -> tuple[Any, float, float | None]:
        """phi of a score, its unit for these targets, and what margins are off by besides their own rounding."""
        score = SCORES[scoring]
        return score.phi or self.own_score, score.unit(y, v), None

    def intercept(self, model: Any, w: Array) -> Any:
        """What is minimised out, at w."""
        return model.shift(model.image(w))[0]

    def free(self, b: Any) -> Any:
        """Intercepts, without what is free in them."""
        return b


class OneMargin(Learner):
    """A loss psi of one margin."""

    def __init__(self, psi: MarginLoss) -> None:
        self.psi = psi
        self.centres_targets, self.own_score = isinstance(psi, Squared), DevianceScore(psi)

    def begin(self, fold: LinearFold, X: Any, y: Array, sample_weight: Array) -> None:
        super().begin(fold, X, y, sample_weight)
        if fold.minimised_out:
            _ = fold.unpenalised.at_zero  # raises where there is no finite intercept

    def model(self, fold: LinearFold, l2: float) -> Any:
        kind = Intercepted if fold.minimised_out else LinearModel
        return kind(fold.design, fold.y, self.psi, l2, fold.offset)

    def steepness(self, fold: LinearFold) -> float:
        if math.isfinite(self.psi.curvature):
            return super().steepness(fold)
        y, m = fold.design.here(fold.y), 0.0 if fold.offset is None else fold.offset
        m = np.broadcast_to(m + (fold.unpenalised.at_zero if fold.minimised_out else 0.0), len(y))
        counts = fold.design.here(fold.design.weights) > 0.0
        curvature = float(np.max(self.psi.curvature_between(m[counts], m[counts], y[counts])))
        return float(curvature * fold.design.squared_norm)

    def verifiable(self, fold: LinearFold) -> bool:
        return conforms(self.psi, Bending | Kinked)


class Pinball(OneMargin):
    """A quantile's loss, smoothed; the intercept is a column without a penalty."""

    def __init__(self, psi: Quantile) -> None:
        super().__init__(psi)
        self.q, self.own_score = psi.q, PinballScore(psi.q)

    def solver(self, fold: LinearFold) -> Any:
        return NewtonNarrowing()

    def l1_max(self, fold: LinearFold) -> float:
        x = np.zeros(fold.size)
        x[-1] = np.quantile(fold.y, self.q) if fold.kind == "column" else 0.0
        return fold.structure.l1_max(fold.unpenalised.gradient(x))


@dataclass(frozen=True)
class Softmax(Learner):
    """Multinomial logistic regression; targets are the numbers of the classes."""

    outputs: int

    def begin(self, fold: LinearFold, X: Any, y: Array, sample_weight: Array) -> None:
        weights = np.bincount(y.astype(int), sample_weight, self.outputs)
        if fold.kind == "free" and not (weights > 0.0).all():
            missing = int(np.argmin(weights))
            raise ValueError(f"the training samples of a fold lack class number {missing}: its intercept is not finite")
        fold.y = fold.design.of_rows(frozen(y.astype(np.float64)))

    def model(self, fold: LinearFold, l2: float) -> Multinomial:
        return Multinomial(fold.design, fold.y, self.outputs, fold.kind == "free", l2)

    def score(self, fold: LinearFold, scoring: str, y: Array, v: Array) -> tuple[Any, float, float | None]:
        return SOFTMAX_SCORES[scoring], 1.0, None

    def free(self, b: Any) -> Any:
        """A constant added to all is free, and they sum to 0."""
        return b - b.mean()


@dataclass(frozen=True)
class SeveralTargets(Learner):
    """Squares of Y, N x t (`suffice.models.targets`), with penalties of rows of W or of single weights. What is held
    out counts by the mean over targets of squared errors, as scikit-learn's scores do; for r2 each target is in units
    of its own variance."""

    outputs: int
    by_rows: bool = False
    centres_targets = True
    differentiable = False

    def begin(self, fold: LinearFold, X: Any, y: Array, sample_weight: Array) -> None:
        if fold.kind == "free" and not fold.centred:
            raise ValueError("several targets with intercepts take dense rows: set fit_intercept=False, or X.toarray()")
        fold.y = fold.targets(y)

    def model(self, fold: LinearFold, l2: float) -> Targets:
        return Targets(fold.design, fold.y, l2)

    def solver(self, fold: LinearFold) -> Any:
        return "newton" if not self.by_rows and fold.size <= MOST_WHOLE else "auto"

    def verifiable(self, fold: LinearFold) -> bool:
        return fold.design.least_curvature > 0.0

    def l1_max(self, fold: LinearFold) -> float:
        return least_zeroing_l1(fold.unpenalised, fold.size, self.outputs if self.by_rows else 1)

    def problem(self, fold: LinearFold, l1: Any, l2: Any) -> Composite:
        if isinstance(l1, np.ndarray) or isinstance(l2, np.ndarray):
            raise ValueError("groups_of_features are for one target")
        return with_targets(self.model(fold, positive(l2, "l2", zero=True)), l1, self.by_rows, fold.l2_floor)

    def score(self, fold: LinearFold, scoring: str, y: Array, v: Array) -> tuple[Any, float, float | None]:
        units = np.array([SCORES[scoring].unit(one, v) for one in y.T])
        # rows and targets are rounded when they are shifted
        size = float(np.max(np.abs(y), initial=0.0)) + float(np.max(np.abs(fold.y_shift)))
        return SquaredScores(1.0 / np.sqrt(self.outputs * units)), 1.0, 4.0 * EPS * size if fold.centred else 0.0


@dataclass(frozen=True)
class Hazards(Learner):
    """Cox's model: minus the mean partial log-likelihood; y holds times, negative where censored. It depends on
    differences of rows only: centred ones have a smaller L and less rounding, and there is no intercept.

    Held-out rows are at risk among themselves: their loss is a partial likelihood of its own, not the difference of
    two."""

    ties: str = "efron"
    differentiable = False

    def design(self, rows: Any, weights: Any) -> Design:
        return Design.of(rows)  # weights are the model's

    def begin(self, fold: LinearFold, X: Any, y: Array, sample_weight: Array) -> None:
        fold.y = y
        fold.minimised_out = False
        strata, entry = fold.places.survival(X)
        fold.hazards = CoxModel.of(fold.design, y, self.ties, sample_weight, strata, entry, fold.offset)

    def model(self, fold: LinearFold, l2: float) -> CoxModel:
        return replace(fold.hazards, l2=l2)

    def held_out(
        self, fold: LinearFold, X: Any, rows: Any, y: Array, weight: Array, offset: Array | None, folds: int
    ) -> PartialLikelihood:
        strata, entry = fold.places.survival(X)
        return PartialLikelihood(
            rows, y, ties=self.ties, sample_weight=weight, strata=strata, entry=entry, offset=offset,
            share=1.0 / folds,
        )  # fmt: skip

    def free(self, b: Any) -> float:
        return 0.0
