r"""Upper-level losses loss(w) = r(w)^2 = sum of squared residuals, and how the lower level's error reaches them.

The minimiser w_hat lies within `radius` of the w at hand. Each loss bounds |r(w) - r(w_hat)| by its own, tight,
argument:

- `SquaredDistance(target)`: r = ||w - target||, error = radius.
- losses of margins m = X w on held-out data, loss = sum_i phi(m_i), by `prove.held_out`, with |phi''| <= c and the
  root of phi slope-Lipschitz:
    `Brier`         phi = (sigm(m) - p)^2, p in {0, 1}:   c = 0.1541,  slope 1/4
    `LogLoss`       phi = log(1 + exp(-y m)):             c = 1/4
    `SquaredError`  phi = (m - y)^2:                      c = 2,       slope 1
    `Deviance`      phi = the unit deviance of any family of `suffice.models.families`, with weights and offsets
    `SquaredErrors`, `MultinomialLogLoss`, `MultinomialBrier`    the same with several targets, or classes
- `PartialLikelihood`: minus Cox's mean partial log-likelihood, by a bound of its own.
- `Lipschitz(loss, constant)`: any non-negative function of w that is Lipschitz with that constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from suffice.arrays import Array, frozen, host, norm, positive, vector
from suffice.models.cox import CoxModel
from suffice.models.linear import offsets
from suffice.models.margin_losses import Real, signs
from suffice.prove.held_out import HeldOut
from suffice.prove.loss_at import Linear, LossAt, root_error
from suffice.prove.scores import (
    BrierScore,
    DevianceScore,
    LogScore,
    Phi,
    SoftmaxBrier,
    SoftmaxLog,
    SquaredScore,
    SquaredScores,
)
from suffice.rows.design import Design
from suffice.rows.rounding import norm_rounding
from suffice.rows.sums import Chosen

__all__ = ["Brier", "Deviance", "Lipschitz", "LogLoss", "Loss", "LossAt", "MultinomialBrier", "MultinomialLogLoss"]
__all__ += ["PartialLikelihood", "SquaredDistance", "SquaredError", "SquaredErrors"]


class Loss(Protocol):
    """A non-negative loss r(w)^2 of the weights that knows how errors of the weights reach r.

    Where r is the norm of several residuals, such as one per sample, `at` returns them all: the upper level's models
    use them.
    """

    def at(self, w: Array) -> LossAt:
        """The residuals at w, and how far their norm can be from that at weights within any radius of w."""


class SquaredDistance:
    """loss = ||w - target||^2; the target may be an image of any shape, complex if the pixels of w are."""

    def __init__(self, target: Any) -> None:
        if isinstance(target, np.ndarray) and target.dtype.kind == "c":
            target = np.ascontiguousarray(target, dtype=np.complex128).view(np.float64)
        self.target = frozen(vector(target.reshape(-1) if isinstance(target, np.ndarray) else target, "target"))

    def at(self, w: Array) -> LossAt:
        residuals = _weights(w, len(self.target)) - self.target
        rounding = norm_rounding(residuals)

        linear = Linear(lambda V: V, lambda u: u)
        return LossAt(residuals, lambda radius: radius + rounding, linear=linear)


class Lipschitz:
    """Any loss(w) >= 0 with |loss(v) - loss(w)| <= constant ||v - w||. With its `gradient(w)` a search can make use of
    derivatives."""

    def __init__(
        self, loss: Callable[[Array], float], constant: float, *, gradient: Callable[[Array], Array] | None = None
    ) -> None:
        for name, function in (("loss", loss), ("gradient", gradient)):
            if not callable(function) and (function is not None or name == "loss"):
                raise TypeError(f"{name} must be callable, got {function!r}")
        self.loss, self.gradient = loss, gradient
        self.constant = positive(constant, "constant", zero=True)

    def at(self, w: Array) -> LossAt:
        value = float(self.loss(_weights(w)))
        if not value >= 0.0:
            raise ValueError(f"loss must be non-negative, got {value!r}")

        def error(radius: float) -> float:
            change = self.constant * radius if self.constant > 0.0 else 0.0
            return root_error(value, value - change, value + change) + rounding

        residuals = np.array([math.sqrt(value)])
        rounding = norm_rounding(residuals)
        return LossAt(residuals, error, linear=self._linear(w, float(residuals[0])))

    def _linear(self, w: Array, residual: float) -> Linear | None:
        if self.gradient is None or residual == 0.0:
            return None
        slope = np.asarray(self.gradient(w), dtype=np.float64) / (2.0 * residual)
        return Linear(lambda V: (slope @ V)[None, :], lambda u: slope * float(u[0]))


class _HeldOutLoss:
    """A loss that is a sum over held-out rows.

    `X` may also be the `design` of another loss, to share one matrix and its norms between losses.
    """

    held_out: HeldOut

    @property
    def design(self) -> Design:
        """The held-out rows."""
        return self.held_out.design

    def fingerprint(self) -> dict[str, Any]:
        return self.held_out.fingerprint()

    def at(self, w: Array) -> LossAt:
        outputs = getattr(self.held_out.train, "classes", len(np.atleast_1d(self.held_out.score.units)))
        return self.held_out.at(_weights(w, self.design.shape[1] * outputs))


class _Counted(_HeldOutLoss):
    """Every row counts 1."""

    score: Phi

    def __init__(self, X: Any, y: Any, targets: Callable[[Any], Array]) -> None:
        design = Design.of(X)
        _counted(design)
        self.held_out = HeldOut(design, design.rows.targets(y, targets), self.score, counted=True)


class _LabelLoss(_Counted):
    def __init__(self, X: Any, y: Any, *, positive: Any = None) -> None:
        super().__init__(X, y, partial(_signs, positive=positive))


class Brier(_LabelLoss):
    """loss = sum_i (sigm(x_i . w) - p_i)^2 on held-out data: the Brier score, times the number of samples.

    `y` holds two distinct labels of any kind; p is 1 for the larger one (or for `positive`, if given) and 0 for the
    other.
    """

    score = BrierScore()


class LogLoss(_LabelLoss):
    """loss = sum_i log(1 + exp(-y_i x_i . w)) on held-out data; labels as for `Brier`."""

    score = LogScore()


class SquaredError(_Counted):
    """loss = ||X w - y||^2 on held-out data."""

    score = SquaredScore()

    def __init__(self, X: Any, y: Any) -> None:
        super().__init__(X, y, Real().targets)


class SquaredErrors(_HeldOutLoss):
    """loss = sum_k c_k sum_i s_i (x_i . w_k - y_ik)^2 on held-out data, of t targets: w holds w_1, ..., w_t, `Y` is N x
    t. s_i are the `sample_weight`, or 1, and c_k the `scales`, or 1.

    The root of the loss is the norm of residuals that are linear in w. It moves by at most max_k c_k^(1/2)
    ||diag(s)^(1/2) X|| R for weights within R, and the loss itself by at most ||gradient|| R plus the square of that.
    """

    def __init__(self, X: Any, Y: Any, *, sample_weight: Any = None, scales: Any = None) -> None:
        design = Design.of(X, sample_weight)
        Y, count = design.matrix_of(Y)
        total = float(_counted(design)) if sample_weight is None else _summed(sample_weight)
        self.scales = np.ones(count) if scales is None else frozen(np.array(scales, dtype=np.float64))
        if self.scales.shape != (count,) or not (self.scales >= 0.0).all():
            raise ValueError(f"scales must be {count} numbers that are not negative, got {scales!r}")
        score = SquaredScores(np.sqrt(self.scales))
        self.held_out = HeldOut(design, Y, score, total, blur=0.0)


class Deviance(_HeldOutLoss):
    """loss = sum_i s_i d(y_i, m_i) on held-out data, d the unit deviance of a family: `family` is its psi, such as
    `suffice.terms.POISSON`, `GAMMA`, `BINOMIAL`, `Tweedie(1.5)` or `NegativeBinomial(theta)`.

    `offset` is a known part of every margin, s_i are the `sample_weight`, or 1. For binomial counts y are shares of
    trials, and the weights their numbers.
    """

    def __init__(self, X: Any, y: Any, family: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        if not callable(getattr(family, "excess", None)):
            raise TypeError(f"family must have a deviance, such as suffice.terms.GAMMA, got {family!r}")
        design = Design.of(X, sample_weight)
        total = float(design.shape[0]) if sample_weight is None else _summed(sample_weight)
        total = float(getattr(design.weights, "count", total))
        offset = None if offset is None else design.rows.rows_of(offsets(offset, design.shape[0]))
        y = design.rows.targets(y, family.targets)
        self.held_out = HeldOut(design, y, DevianceScore(family), total, offset=offset)


class _Multinomial(_HeldOutLoss):
    """loss = sum_i phi(m_i, y_i) on held-out data, of the classes and intercepts of `problem`, an
    `ElasticNetMultinomial`; `y` holds its labels."""

    score: Phi

    def __init__(self, X: Any, y: Any, problem: Any) -> None:
        design, train = Design.of(X), problem.model()
        if design.rows.dear != train.design.rows.dear:
            raise TypeError("X and the problem's X must both be in blocks of rows, or neither")
        y = design.rows.targets(y, partial(_numbers, problem.classes))
        self.held_out = HeldOut(design, y, self.score, float(_counted(design)), train)


def _numbers(classes: Any, y: Any) -> Array:
    """Those of the labels' classes."""
    strange = y[~np.isin(y, classes)]
    if len(strange):
        raise ValueError(f"y holds the label {strange[0]!r}, which the problem's y does not")
    return np.asarray(np.searchsorted(classes, y).astype(np.float64))


class MultinomialLogLoss(_Multinomial):
    """loss = minus the sum of log p of the true classes on held-out data (`X`, `y`), p the probabilities of the model
    of `problem`, an `ElasticNetMultinomial`."""

    score = SoftmaxLog()


class MultinomialBrier(_Multinomial):
    """loss = sum_i ||p_i - onehot(y_i)||^2 on held-out data (`X`, `y`), p the probabilities of the model of `problem`,
    an `ElasticNetMultinomial`."""

    score = SoftmaxBrier()


class PartialLikelihood:
    """loss = minus Cox's mean partial log-likelihood on held-out data, of which the rows at risk are held out as well.

    `y` holds times, negative where they are censored (or what `suffice.models.cox.signed_times` takes). With ||w -
    w_hat|| <= R the linear predictors of rows move by no more than h = max_j ||x_j - c|| R against each other's centre;
    the loss then moves by at most ||gradient|| R + (h^2/2) times the mean weight of events, since a variance is at most
    the square of half a range.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        ties: str = "efron",
        sample_weight: Any = None,
        strata: Any = None,
        entry: Any = None,
        offset: Any = None,
        share: float = 1.0,
    ) -> None:
        self.design = Design.of(X)
        self.model = CoxModel.of(self.design, y, ties, sample_weight, strata, entry, offset)
        self.share = positive(share, "share")

    def fingerprint(self) -> dict[str, Any]:
        return {"model": self.model, "share": self.share}

    def at(self, w: Array) -> LossAt:
        w, model, share = _weights(w, self.design.shape[1]), self.model, self.share
        image = model.image(w)
        losses = model.time_losses(image)
        loss = share * float(losses.sum())
        events = model.sets.events / model.total
        steep = norm(model.gradient_at(w, image)) + model.gradient_rounding(w, image)
        of_margins = 2.0 * events * (self.design.margin_rounding(w) * self.design.largest_row * norm(w))
        blur = model.loss_rounding(image) + of_margins
        residuals = np.sqrt(share * losses)
        rounding = norm_rounding(residuals, share)

        def error(radius: float) -> float:
            R = min(radius, 1e150)
            h = model.reach * R
            change = share * (min(steep * R + 0.5 * events * h * h, 2.0 * events * h) + blur) * (1.0 + 1e-12)
            return root_error(loss, loss - change, loss + change) + rounding if math.isfinite(loss) else math.inf

        return LossAt(residuals, error)


def _summed(sample_weight: Any) -> float:
    return math.fsum(np.asarray(sample_weight, dtype=np.float64))


def _counted(design: Design) -> int:
    """How many rows count."""
    weights = design.weights
    if isinstance(weights, Chosen):
        return weights.count
    if hasattr(weights, "home") or np.ptp(host(weights)) != 0.0:
        raise ValueError("X must be a matrix or a design without sample weights, which losses do not have")
    return design.shape[0]


def _signs(y: Any, positive: Any) -> Array:
    y = np.asarray(y)
    if positive is None:
        return signs(y)[0]
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("y must hold labels, got NaN")
    kinds = {_KINDS.get(np.asarray(label).dtype.kind) for label in (y, positive)}
    match = y == positive
    # Held-out data may hold one class only, and that may be the other one.
    if len(kinds - {None}) > 1 or (not np.any(match) and len(np.unique(y)) > 1):
        shown = ", ".join(repr(label) for label in np.unique(y)[:5].tolist())
        raise ValueError(f"positive must be one of y's labels, {shown}, got {positive!r}")
    return np.where(match, 1.0, -1.0)


_KINDS = {**dict.fromkeys("biufc", "number"), **dict.fromkeys("US", "text")}


def _weights(w: Array, size: int | None = None) -> Array:
    w = np.asarray(w, dtype=np.float64)
    if w.ndim != 1 or (size is not None and len(w) != size):
        raise ValueError(f"w must have shape ({'d' if size is None else size},), got {w.shape}")
    if not np.isfinite(w).all():
        raise ValueError("w must be finite, got NaN or infinite weights")
    return w
