r"""Linear models with more hyperparameters: penalties of groups of features or of each, and weights of samples.

    sum_i (s_i / N) psi(x_i . w, y_i) + sum_j (l2_j/2) w_j^2 + sum_j l1_j |w_j|.

`Grouped` has s = 1 and penalties of its own for every group of columns; a group may be a single column. `SampleWeights`
has one s_i >= 0 for every row, which is not normalised: for the solvers it is divided by sigma = sum_i s_i / N, which
makes it a model with weights that sum to 1 and penalties l1/sigma and l2/sigma. Derivatives at a minimiser w are

    l1_j:  sign(w_j) e_j,      l2_j:  w_j e_j,      s_i:  psi'(x_i . w) x_i / sum(s).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import Array, host, like, positive
from suffice.models.linear import LinearModel
from suffice.penalties.prox import L1
from suffice.problems.linear import PENALTIES, ElasticNetModel, GroupedPenalties, LinearProblem
from suffice.rows.design import Design
from suffice.solvers.problem import Composite
from suffice.solvers.sensitivity import matrix_of


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


class SampleWeights(LinearProblem):
    """A linear model in which the weight of every sample is a parameter: s0, s1, ..., which are `names`.

    It minimises (1/N) sum_i s_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1; penalties that are not tuned are given
    here, tuned ones to `at`. The model's own sample weights do not count.
    """

    def __init__(self, model: ElasticNetModel, *, l1: float | None = None, l2: float | None = None) -> None:
        if model.design.rows.dear:
            raise TypeError("model's X is in blocks of rows: weights that are parameters, one for each row, need it in "
                            "main memory")  # fmt: skip
        self.model, self.design = model, model.design
        self._fixed = {name: value for name, value in (("l1", l1), ("l2", l2)) if value is not None}
        self.names = tuple(f"s{i}" for i in range(model.design.shape[0]))

    def at(self, **params: float) -> Composite:
        """The problem at fixed parameters."""
        s, l1, l2 = self._taken(params)
        sigma = float(s.sum()) / len(s)
        design = Design.of(self.model.design.X, s)
        smooth = LinearModel(design, self.model.y, self.model.loss, l2 / sigma, self.model.offset)
        return Composite(smooth, L1(l1 / sigma), mu=l2 / sigma, L=smooth.L, size=self.size)

    def cross(self, x: Array, **params: float) -> Any:
        """d/dp [grad f(x) + l1 sign(x)], a column for every parameter p (`suffice.solvers.sensitivity`)."""
        s = self._taken(params)[0]
        design, total = self.model.design, float(s.sum())
        margins: Any = design.rows.margins(x, self.model.offset)
        slopes = host(self.model.loss.derivative(margins, self.model.y)) / total
        place = {name: k for k, name in enumerate(params)}
        rows = np.array([place[name] for name in self.names])
        penalties = [
            (place[kind], part * len(s) / total) for kind, part in (("l1", np.sign(x)), ("l2", x)) if kind in place
        ]

        def product(V: Array) -> Array:
            result: Array = design.adjoint(like(slopes[:, None] * V[rows], design.X))
            return result + sum((np.outer(part, V[k]) for k, part in penalties), np.zeros_like(result))

        def adjoint(Q: Array) -> Array:
            result = np.empty((len(params), Q.shape[1]))
            result[rows] = slopes[:, None] * host(design.margins(Q))
            for k, part in penalties:
                result[k] = part @ Q
            return result

        return matrix_of(product, adjoint, (len(x), len(params)))

    def _taken(self, params: Mapping[str, float]) -> tuple[Array, float, float]:
        both = {**params, **self._fixed}
        twice = sorted(set(params) & set(self._fixed))
        missing = [name for name in (*PENALTIES, *self.names) if name not in both]
        if twice or missing or len(both) > len(self.names) + len(PENALTIES):
            wrong = f"{twice[0]} is fixed by this problem" if twice else f"got {len(params)} parameters"
            wrong = f"{missing[0]} is missing" if missing else wrong
            raise ValueError(
                f"parameters must be s0 to {self.names[-1]}, and l1 and l2 where they are not fixed: {wrong}"
            )
        s = np.array([positive(both[name], name, zero=True) for name in self.names])
        return s, positive(both["l1"], "l1", zero=True), positive(both["l2"], "l2", zero=True)
