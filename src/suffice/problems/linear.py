r"""Ready-made lower-level problems: linear models with an elastic-net penalty, as functions of (l1, l2).

    Phi(w) = sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1,        a_i = s_i / sum(s), or 1/N

`ElasticNetLogistic` has psi = log(1 + exp(-y m)), `ElasticNet` psi = (m - y)^2 / 2, `ElasticNetHuber` Huber's,
`ElasticNetPoisson` psi = exp(m) - y m, other families half their unit deviance (`suffice.models.families`);
`ElasticNetModel` takes any psi. With an offset o_i, a known part of its margin such as the logarithm of an exposure,
row i has psi(x_i . w + o_i, y_i). `ElasticNetCox` has minus the mean partial log-likelihood in place of the sum.

In scikit-learn's terms: LogisticRegression(C=1/(N (l1 + l2)), l1_ratio=l1/(l1 + l2), fit_intercept=False),
ElasticNet(alpha=l1 + l2, l1_ratio=l1/(l1 + l2), fit_intercept=False) and, for l1 = 0, PoissonRegressor and the like
with alpha=l2. There is no intercept: append a column of ones to X and it is penalised like the others
(`suffice.sklearn.ElasticNetGLM` has one). For l1 >= `l1_max` the solution is exactly 0.

Second derivatives of Poisson's, Gamma's, Tweedie's and the negative binomial's losses have no bound: Newton's method,
which `solver="auto"` chooses, solves and certifies them, first-order methods refuse them. Where the data supply the
curvature a solution is verified, with or without an l2.

`Grouped` has penalties l1_j and l2_j of its own for every group of columns, which may be single ones. Derivatives of
the optimality conditions at a minimiser w are  sign(w_j) e_j  for l1_j and  w_j e_j  for l2_j.

X is dense, scipy.sparse, a `numpy.memmap` or `suffice.terms.RowBlocks` that is read in blocks of rows, an array of
torch, CuPy or JAX, or a `dask.array`, whose rows stay on the workers of the current `distributed.Client`; y may then be
a `dask.array`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from suffice.arrays import EPS, Array, positive
from suffice.lazy import cached_property
from suffice.models.cox import CoxModel
from suffice.models.families import BINOMIAL, GAMMA, POISSON, NegativeBinomial, Tweedie
from suffice.models.linear import LinearModel, LossModel, exposures, offsets
from suffice.models.margin_losses import LOGISTIC, SQUARED, Huber, Labelled, MarginLoss, Real, signs
from suffice.models.smooth import ImagedSmooth, Ridged
from suffice.penalties.prox import L1, WeightedL1
from suffice.rows.design import Design
from suffice.solvers.problem import Composite

PENALTIES = ("l1", "l2")


class LowerLevel(Protocol):
    """A lower-level problem for every theta: parameters by name give f + g."""

    def at(self, *args: Any, **params: Any) -> Composite:
        """The problem at fixed parameters, given by name."""


class LinearProblem:
    """Rows, and a model of one or several outputs of them."""

    design: Design
    outputs: int = 1

    def _model(self, l2: float) -> Any:
        """The smooth part, with a ridge."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.outputs * self.design.shape[1]


class ElasticNetProblem(LinearProblem):
    """A model with l1 and l2 of its weights."""

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution, for every l2."""
        return least_zeroing_l1(self._model(0.0), self.size)

    def at(self, *, l1: Any, l2: Any) -> Composite:
        """The problem at fixed penalties l1 >= 0 and l2 >= 0, one for all weights or one each; without an l2 a solution
        is proven where the data supply the curvature."""
        return penalised(self._model, l1, l2, 0.0, self.size)

    def cross(self, x: Array, **params: float) -> Any:
        """d/dp [grad f(x) + l1 sign(x)], a column for every parameter p (`suffice.solvers.sensitivity`)."""
        return self._columns(np.sign(x), x, params)

    def _columns(self, signs: Array, sizes: Array, names: Iterable[str]) -> Any:
        parts = {"l1": signs, "l2": sizes}
        return np.column_stack([parts[name] for name in names])


class GroupedPenalties(ElasticNetProblem):
    """Weights in groups with penalties of their own, `l1_<group>` and `l2_<group>`; groups that have none have `l1` and
    `l2`."""

    groups: tuple[str, ...]
    group: Any  # the number of every weight's group
    kind: ClassVar[str] = "groups"

    def names(self, kind: str) -> tuple[str, ...]:
        """The parameters of this kind, "l1" or "l2", one for every group: for `suffice.Space`."""
        return tuple(f"{kind}_{group}" for group in self.groups)

    def at(self, **params: Any) -> Composite:
        """The problem at fixed penalties."""
        unknown = set(params) - {*PENALTIES, *self.names("l1"), *self.names("l2")}
        if unknown:
            raise TypeError(f"unknown parameters: {', '.join(sorted(unknown))}")
        l1, l2 = (self._each(kind, params) for kind in PENALTIES)
        return super().at(l1=l1, l2=l2)

    def _each(self, kind: str, params: Mapping[str, float]) -> float | Array:
        """The penalty of every weight, or of all."""
        values = [params.get(name, params.get(kind)) for name in self.names(kind)]
        if None in values:
            raise ValueError(f"{self.names(kind)[values.index(None)]} must be given, or {kind} for all {self.kind}")
        checked = [positive(value, kind, zero=True) for value in values]  # type: ignore[arg-type]
        return checked[0] if len({*checked}) == 1 else np.array(checked)[self.group]

    def _columns(self, signs: Array, sizes: Array, names: Iterable[str]) -> Any:
        number = {name: k for k, name in enumerate(names)}
        parts = []
        for kind, entries in zip(PENALTIES, (signs, sizes), strict=True):
            own = [number.get(name, number.get(kind, -1)) for name in self.names(kind)]
            parts.append((entries, np.array(own)[self.group]))
        values, columns = (np.concatenate(both) for both in zip(*parts, strict=True))
        rows = np.tile(np.arange(len(signs)), 2)
        tuned = columns >= 0
        return sp.csr_array((values[tuned], (rows[tuned], columns[tuned])), shape=(len(signs), len(number)))


class ElasticNetModel(ElasticNetProblem):
    """A linear model with an elastic-net penalty and any loss psi of its margins, such as one of your own.

    It minimises sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1. `loss` is psi (`suffice.terms.MarginLoss`);
    where it has a method `targets`, y is what that makes of it. a_i is 1/N, or `sample_weight` scaled to sum to 1.
    `offset` is a known part of the margin of every row, for an X in main memory: psi(x_i . w + offset_i, y_i).
    `at(l1=..., l2=...)` is the problem at fixed penalties. There is no intercept.
    """

    def __init__(self, X: Any, y: Any, loss: MarginLoss, *, sample_weight: Any = None, offset: Any = None) -> None:
        self.design = Design.of(X, sample_weight)
        self.loss = loss
        self.offset = None if offset is None else self.design.rows.rows_of(offsets(offset, self.design.shape[0]))
        function = self._targets if isinstance(loss, Labelled) else getattr(loss, "targets", Real().targets)
        self.y = self.design.rows.targets(y, function)  # lives with X

    def _targets(self, y: Any) -> Array:
        targets, self.classes = signs(y)
        return targets

    def _model(self, l2: float) -> LossModel:
        return LinearModel(self.design, self.y, self.loss, l2, self.offset)

    def shares(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        """(share of l1, share of l2) of every parameter, for `suffice.certify_global`: they are the penalties."""
        return {"l1": (1.0, 0.0), "l2": (0.0, 1.0)}


class _Named(ElasticNetModel):
    """With a loss of its own."""

    of: MarginLoss

    def __init__(self, X: Any, y: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        super().__init__(X, y, self.of, sample_weight=sample_weight, offset=offset)


class ElasticNetLogistic(_Named):
    """Elastic-net logistic regression; y holds two distinct labels of any kind, the larger one being "positive".

    It minimises sum_i a_i log(1 + exp(-y_i x_i . w)) + (l2/2) ||w||^2 + l1 ||w||_1, the labels being -1 and 1.
    a_i is 1/N, or `sample_weight` scaled to sum to 1. `at(l1=..., l2=...)` is the problem at fixed penalties. There is
    no intercept. `X` may also be a `dask.array`, or the `design` of another problem, to share one matrix between
    problems.
    """

    of = LOGISTIC


class ElasticNet(_Named):
    """Elastic-net least squares: (1/2) sum_i a_i (x_i . w - y_i)^2 + (l2/2) ||w||^2 + l1 ||w||_1."""

    of = SQUARED


class ElasticNetHuber(ElasticNetModel):
    """Elastic-net regression with Huber's loss: sum_i a_i psi(x_i . w - y_i) + (l2/2) ||w||^2 + l1 ||w||_1, psi(t)
    being t^2 / 2 up to |t| = delta and linear beyond."""

    def __init__(self, X: Any, y: Any, *, delta: float = 1.0, sample_weight: Any = None, offset: Any = None) -> None:
        super().__init__(X, y, Huber(delta), sample_weight=sample_weight, offset=offset)


class _LogLink(_Named):
    """A model whose margin is the logarithm of the mean; an `exposure` multiplies the mean of every row, and its
    logarithm adds to `offset`."""

    def __init__(self, X: Any, y: Any, *, sample_weight: Any = None, offset: Any = None, exposure: Any = None) -> None:
        rows = np.shape(y)[0] if np.ndim(y) else 0
        if exposure is not None:
            of_exposure = exposures(exposure, rows)
            offset = of_exposure if offset is None else of_exposure + offsets(offset, rows)
        super().__init__(X, y, sample_weight=sample_weight, offset=offset)


class ElasticNetPoisson(_LogLink):
    """Elastic-net Poisson regression for counts y >= 0: the mean of y_i is exp(x_i . w), up to terms without w.

    `exposure` multiplies the mean of every row; its logarithm adds to `offset`. The gradient has no Lipschitz constant:
    Newton's method, which `solver="auto"` chooses, solves and certifies it, first-order methods refuse it.
    """

    of = POISSON


class ElasticNetGamma(_LogLink):
    """Elastic-net Gamma regression for y > 0 whose standard deviation is proportional to its mean, exp(x_i . w): the
    severity of claims, for one. It minimises sum_i a_i (y_i exp(-m_i) + m_i) + (l2/2) ||w||^2 + l1 ||w||_1, m_i = x_i .
    w + offset_i. `exposure` is as for `ElasticNetPoisson`."""

    of = GAMMA


class ElasticNetTweedie(_LogLink):
    """Elastic-net regression with Tweedie's deviance, 1 < `power` < 2, for y >= 0 of which a
    share is 0, such as the cost of claims: the mean is exp(x_i . w), the variance proportional to mean^power.
    `exposure` is as for `ElasticNetPoisson`."""

    def __init__(self, X: Any, y: Any, *, power: float = 1.5, **rows: Any) -> None:
        self.of = Tweedie(power)
        super().__init__(X, y, **rows)


class ElasticNetNegativeBinomial(_LogLink):
    """Elastic-net negative-binomial regression for counts y >= 0 that vary more than Poisson's: the mean is mu =
    exp(x_i . w), the variance mu + theta mu^2, with `theta` given. `exposure` is as for
    `ElasticNetPoisson`."""

    def __init__(self, X: Any, y: Any, *, theta: float = 1.0, **rows: Any) -> None:
        self.of = NegativeBinomial(theta)
        super().__init__(X, y, **rows)


class ElasticNetBinomial(ElasticNetModel):
    """Elastic-net logistic regression of counts: y_i of `trials_i` trials succeed, each with probability sigm(x_i . w).

    It minimises sum_i a_i (log(1 + exp(m_i)) - (y_i / trials_i) m_i) + (l2/2) ||w||^2 + l1 ||w||_1, m_i = x_i . w +
    offset_i, a_i proportional to `trials_i` times `sample_weight`.
    """

    def __init__(self, X: Any, y: Any, trials: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        y, n = np.asarray(y, dtype=np.float64), np.asarray(trials, dtype=np.float64)
        if n.shape != y.shape or not (np.isfinite(n).all() and (n > 0.0).all()):
            raise ValueError("trials must be positive and finite, one number for each of y")
        if (y < 0.0).any() or (y > n).any():
            raise ValueError("y must lie between 0 and trials")
        weights = n if sample_weight is None else n * np.asarray(sample_weight, dtype=np.float64)
        super().__init__(X, y / n, BINOMIAL, sample_weight=weights, offset=offset)


class ElasticNetCox(ElasticNetProblem):
    """Elastic-net Cox regression: minus the mean partial log-likelihood + (l2/2) ||w||^2 + l1 ||w||_1.

    `y` holds times, negative where they are censored, or two columns (time, event), or an array with a field of bools
    and one of numbers. `ties` is "efron" or "breslow"; `strata` labels rows whose hazards have nothing in common,
    `entry` are times from which on rows are at risk (left truncation), `offset` is a known part of the linear
    predictor. `at(l1=..., l2=...)`, l2 > 0, is the problem at fixed penalties. For l1 >= `l1_max` the solution is
    exactly 0.
    """

    def __init__(self, X: Any, y: Any, *, ties: str = "efron", offset: Any = None, **rows: Any) -> None:
        self.design = Design.of(X)
        self.model = CoxModel.of(self.design, y, ties, offset=offset, **rows)

    def _model(self, l2: float) -> CoxModel:
        return replace(self.model, l2=l2)

    def at(self, *, l1: Any, l2: Any) -> Composite:
        """The problem at fixed penalties l1 >= 0 and l2 > 0."""
        return super().at(l1=l1, l2=l2 if isinstance(l2, np.ndarray) else positive(l2, "l2"))


class Grouped(GroupedPenalties):
    """A linear model whose groups of features have penalties of their own: parameters `l1_<group>` and `l2_<group>`,
    or `l1` and `l2` for all groups that have none of their own.

    `groups` maps names to numbers of columns, every column in one group; or it is an array with a label for every
    column, such as `range(d)` for one group each. `l1` or `l2` that is not tuned is given here.
    """

    def __init__(
        self,
        model: ElasticNetModel,
        groups: Mapping[Any, npt.ArrayLike] | npt.ArrayLike,
        *,
        l1: float | None = None,
        l2: float | None = None,
    ) -> None:
        self.model, self.design = model, model.design
        self._fixed = {name: value for name, value in (("l1", l1), ("l2", l2)) if value is not None}
        if not isinstance(groups, Mapping):
            labels = np.asarray(groups)
            if labels.shape != (model.size,):
                raise ValueError(f"groups must have a label for each of {model.size} columns, got shape {labels.shape}")
            groups = {label: np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())}
        self.groups = tuple(str(name) for name in groups)
        columns = [np.asarray(part, dtype=np.intp).ravel() for part in groups.values()]
        members = np.concatenate(columns) if columns else np.empty(0, dtype=np.intp)
        if not np.array_equal(np.sort(members), np.arange(model.size)):
            raise ValueError(f"groups must hold every column from 0 to {model.size - 1} once")
        self.group = np.empty(model.size, dtype=np.intp)  # of every column
        for number, part in enumerate(columns):
            self.group[part] = number

    def _model(self, l2: float) -> Any:
        return self.model._model(l2)

    def at(self, **params: Any) -> Composite:
        """The problem at fixed penalties."""
        for kind in self._fixed:
            twice = [name for name in (kind, *self.names(kind)) if name in params]
            if twice:
                raise ValueError(f"{kind} is fixed at {self._fixed[kind]!r} by this problem, got {twice[0]}")
        return super().at(**self._fixed, **params)


def least_zeroing_l1(model: ImagedSmooth, size: int, grouped: int = 1) -> float:
    """The least l1 for which the rounding of the gradient lets us prove that w = 0 is the solution: there
    `suffice.solve` gives 0 and a radius of 0. It is that of norms of so many weights, one of every output."""
    origin = np.zeros(size)
    image = model.image(origin)
    gradient = model.gradient_at(origin, image).reshape(grouped, -1)
    sizes = np.abs(gradient) if grouped == 1 else np.linalg.norm(gradient, axis=0)
    return (float(np.max(sizes)) + model.gradient_rounding(origin, image)) * (1.0 + (grouped + 8.0) * EPS)


def penalised(
    model: Callable[[float], Any], l1: float | Array, l2: float | Array, l2_floor: float, size: int
) -> Composite:
    """The problem with these penalties. With one l2 for each variable the model has the least of them, which is mu."""
    if not isinstance(l1, np.ndarray) and not isinstance(l2, np.ndarray):
        l1, l2 = positive(l1, "l1", zero=True), positive(l2, "l2", zero=True) or l2_floor
        smooth = model(l2)
        return Composite(smooth, L1(l1), mu=l2, L=smooth.L, size=size)
    weights = np.where(np.asarray(l2) == 0.0, l2_floor, l2)
    least = positive(float(weights.min()), "l2", zero=True)
    plain = model(least)
    smooth = Ridged(plain, np.broadcast_to(weights - least, size))
    L = float(plain.L) + smooth.largest
    return Composite(smooth, WeightedL1(np.broadcast_to(l1, size)), mu=least, L=L, size=size)
