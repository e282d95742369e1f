r"""A search whose folds are single rows, or many groups of rows: one model of all rows in place of one for each.

F(theta) = (1/G) sum_g L_g(w_g(theta)), L_g the loss of the rows of g by the model without them. All w_g come from that
of all rows, each proven (`suffice.prove.left_out`), and so do their derivatives. Margins m_i of left-out rows are
proven to lie within h_i of exact ones: L_g lies between the least and the largest that it has there, and

    | ||r_g|| - ||r^_g|| |  <=  e_g,        r_i = (v_i / (V_g G))^(1/2) phi_i^(1/2).

Where e_g is more than is wanted, w_g takes further steps; a group whose model is not proven so is a fold like any
other, trained on the other rows from the weights of all.

A search begins where a sketch of F by FEW folds, or rough looks at it, are best.
"""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, LeaveOneOut, StratifiedKFold

from suffice.arrays import EPS, Array
from suffice.evaluation import Evaluation
from suffice.journal.codec import light
from suffice.lazy import cached_property
from suffice.models.margin_losses import Squared
from suffice.prove.downdated import joined
from suffice.prove.left_out import LeftOut, leave_out, sharpened
from suffice.prove.left_out_dual import WideRidge
from suffice.prove.left_out_slopes import margin_slopes
from suffice.rows.given import numbered
from suffice.rows.gram import fits_array
from suffice.rows.rounding import norm_rounding
from suffice.search.bilevel import BilevelProblem
from suffice.search.solves import On
from suffice.signals import TimeOver
from suffice.sklearn._final_fit import solved
from suffice.sklearn._penalty_search import PenaltySearch
from suffice.sklearn._recorded import RecordedProblem
from suffice.sklearn._starting_points import LOOK, starting_point
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.folds import FLOOR
from suffice.sklearn.left_out import ACCURACY, LeftOutTask, shifted, whole_model
from suffice.sklearn.measures import Predicted
from suffice.sklearn.penalties import PenaltySpace, kind_of, split_pipeline
from suffice.sklearn.splits import SearchData, Split
from suffice.sklearn.target import transforms_target
from suffice.solvers.solution import Outcome, Solution

FEW = 5  # folds of a sketch
FEWEST = 20  # groups: fewer are folds
KEPT = 1 << 26  # bytes of rows of folds that are kept
SHARPER = 0.5  # of what margins may be off, by the slope of their losses
TRIED, APART = (1e-3, 1e-2), 0.5  # of the largest penalties that matter; decades
CLOSE = 0.5  # of the search's first radius: F by few folds is least near by
LATTICE = 33  # penalties of a ridge at once
FINEST = 1e-9  # of the root of F: no fold is trained for an error that is less


def folds_of_rows(search: Any, data: SearchData, scoring: str, given: dict[str, Any]) -> LeftOutTask | None:
    """The models without a row or group, where `cv` leaves these out and all come from one; None where each is
    trained."""
    single = isinstance(search.cv, LeaveOneOut) or (isinstance(search.cv, str) and search.cv == "loo")
    if not single and not isinstance(search.cv, LeaveOneGroupOut):
        return None
    options, final = search.options, split_pipeline(search.estimator)[0]
    other = data.place is not None or data.grouped is not None or transforms_target(search.estimator)
    if other or search.certify_global is not None or getattr(options, "policy", "residual") != "residual":
        return None
    if not numbered(data.X) or np.ndim(data.y) != 1 or scoring == "r2" or getattr(final, "family", "") == "cox":
        return None
    groups = None if single else given.get("groups")
    if not single and groups is None:
        return None
    which = np.arange(len(data.y)) if single else np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(which, kind="stable")
    parts = list(order[:, None]) if single else np.split(order, np.cumsum(np.bincount(which))[:-1])
    if len(which) != len(data.y) or len(parts) < FEWEST:
        return None
    task = LeftOutTask(data, find_adapter(final), lambda weights: (1.0, 1.0), tuple[Any, ...](parts))
    return None if task.downdates is None else _checked(task)


def _checked(task: LeftOutTask) -> LeftOutTask:
    """What makes no fold is refused as one of folds: rows without weight, and all but one class."""
    data, counts = task.data, task.data.weight > 0.0
    weights = task.sums(data.weight)
    wrong = set(np.flatnonzero((weights == 0.0) | (weights == data.weight.sum())).tolist())
    for these in [data.y > 0.0] if data.classes is None else [data.y == label for label in data.classes]:
        alone = np.unique(task.which[counts & these])
        wrong |= set(alone.tolist()) if len(alone) == 1 else set()
    for g in sorted(wrong):
        one_fold(task, g)
    return task


def one_fold(task: LeftOutTask, g: int) -> Split:
    """The rows of all groups but one, with that one held out."""
    test = task.groups[g]
    try:
        return task.data.split(np.setdiff1d(np.arange(len(task.data.y)), test), test, f"split {g} of cv")
    except ValueError as error:
        rows = ", ".join(map(str, test[:5].tolist())) + (", ..." if len(test) > 5 else "")
        raise ValueError(f"there is no model without row {rows}: {error}") from error


def few_folds(task: LeftOutTask) -> list[tuple[Any, Any]]:
    """FEW folds of the same rows."""
    data, rows = task.data, np.zeros((len(task.data.y), 1))
    if len(task.groups) < len(rows):
        return list(GroupKFold(FEW).split(rows, groups=task.which))
    with warnings.catch_warnings():  # a class may have fewer rows: none of its folds is without it in training
        warnings.simplefilter("ignore")
        labels = data.y > 0.0 if data.classes is None else data.y
        return list(StratifiedKFold(FEW, shuffle=True, random_state=0).split(rows, labels))


@dataclass(frozen=True, eq=False)
class LeftOutLosses:
    """Losses of left-out rows by their margins: one block of residuals for every group."""

    phi: Any
    y: Array  # of the rows, in the groups' order
    c: Array  # v_i / (V_g G)
    which: Any

    @classmethod
    def of(cls, task: LeftOutTask, whole: Split, scoring: str) -> LeftOutLosses:
        fold: Any = whole.model
        phi, _, _ = fold.learner.score(fold, scoring, whole.y, whole.weight / whole.weight.sum())
        (rows, which), G = joined(task.groups), len(task.groups)
        v = task.data.weight[rows]
        return cls(phi, np.asarray(whole.y)[rows], v / (np.bincount(which, v, G)[which] * G), which)

    def __len__(self) -> int:
        return int(self.which[-1]) + 1

    def sums(self, values: Any) -> Array:
        return np.asarray(np.bincount(self.which, values, len(self)), dtype=np.float64)

    def residuals(self, m: Array) -> Array:
        return np.asarray(np.sqrt(self.c) * self.phi.residuals(m, self.y))

    def errors(self, m: Array, h: Array) -> Array:
        """e_g of margins that are within h of exact ones."""
        phi, y, known = self.phi, self.y, np.isfinite(h) & np.isfinite(m)
        m, h = np.where(known, m, 0.0), np.where(known, h, 0.0)
        low, high = phi.range(m, h + phi.blur(m, y), y)
        r = np.sqrt(self.sums(self.residuals(m) ** 2))
        ends = np.sqrt(self.sums(self.c * low)), np.sqrt(self.sums(self.c * high))
        size = np.maximum(r, ends[1])
        rounding = 16.0 * (np.bincount(self.which) + 16.0) * EPS * size + norm_rounding(np.zeros(len(y)))
        found = np.maximum(np.maximum(r - ends[0], ends[1] - r), 0.0) + rounding
        return np.where((self.sums(~known) > 0.0) | ~np.isfinite(found), math.inf, found)

    def steepness(self, m: Array) -> Array:
        """How far ||r_g|| moves at most with margins, about."""
        return np.sqrt(self.sums(self.c * self.phi.residual_slopes(m, self.y) ** 2))


class LeftOutProblem(BilevelProblem):
    """F by models without a group each, as an objective; its one lower-level problem is that of all rows."""

    def __init__(self, task: LeftOutTask, scoring: str, space: PenaltySpace) -> None:
        whole = task.whole
        super().__init__(
            [whole.penalised(space.ratio)], [whole.loss(scoring, 1)], space=space.space, solver=whole.solver
        )
        assert task.downdates is not None
        (self.groups, self.c), self.task, self.whole, self.scoring = task.downdates, task, whole, scoring
        self.judge = LeftOutLosses.of(task, whole, scoring)
        self._made: OrderedDict[bytes, LeftOut | WideRidge] = OrderedDict()
        self._folds: dict[int, Split] = {}

    def fingerprint(self) -> dict[str, Any]:
        groups = {"rows left out": self.groups.rows, "groups left out": self.groups.which}
        return {**super().fingerprint(), **groups, "weights left out": self.judge.c}

    def _evaluate(
        self, thetas: Sequence[Array], warm: Sequence[Evaluation | None] | None, on: On, within: Sequence[float]
    ) -> list[Evaluation]:
        if on != "residual":
            raise ValueError("rows are left out to an accuracy of residuals only: policy='residual'")
        starts = [None] * len(thetas) if warm is None else warm
        known = zip(thetas, starts, within, strict=True)
        return [self._one(np.asarray(theta, dtype=np.float64), near, accuracy) for theta, near, accuracy in known]

    def _one(self, theta: Array, near: Evaluation | None, within: float) -> Evaluation:
        solution, judge = self._solved(theta, near), self.judge
        made = self._left(theta, solution.x)
        m, h = self._margins(made)
        errors = judge.errors(m, h)
        if (errors > within).any() and isinstance(made, LeftOut):
            steep = judge.steepness(m)
            wanted = np.where(errors > within, SHARPER * within / np.maximum(steep, 1e-300), math.inf)
            m, h = self._margins(sharpened(made, wanted))
            errors = judge.errors(m, h)
        residuals, work = judge.residuals(m), float(solution.steps)
        enough = max(within, FINEST * float(np.linalg.norm(residuals)) / math.sqrt(len(judge)))
        rest = np.flatnonzero(~(errors <= enough)) if math.isfinite(within) else np.zeros(0, dtype=np.intp)
        if len(rest) and solution.outcome is not Outcome.MAX_STEPS:
            again = self._trained(theta, rest, solution, within)
            parts = np.split(again.r, np.cumsum(again.blocks or ())[:-1])
            for k, g in enumerate(rest.tolist()):
                if again.e[k] < errors[g]:
                    residuals[judge.which == g], errors[g] = parts[k], again.e[k]
            work += again.work
        blocks = np.bincount(judge.which).tolist()
        return Evaluation(theta, residuals, errors, work=work, solutions=[light(solution)], blocks=blocks)

    def _solved(self, theta: Array, near: Evaluation | None) -> Solution:
        """The model of all rows; one that has come to its end at this very theta is that."""
        start: Solution | None = near.solutions[0] if near is not None and near.solutions else None
        ended = start is not None and start.outcome is not Outcome.MAX_STEPS and start.certificate.rule != "none"
        if start is not None and ended and near is not None and np.array_equal(near.point, theta):
            return replace(start, steps=0)
        l1, l2 = self.penalties_at(theta)
        problem = self.whole.model.at(l1=l1, l2=l2)
        return solved(problem, self.solver, ACCURACY, None if start is None else start.x, most=self.max_steps)

    def penalties_at(self, theta: Array) -> tuple[float, float]:
        """l1 and l2 of all columns, times c."""
        lower: Any = self.lower[0]
        l1, l2 = lower.both(self.space.params(theta))
        return self.c * l1, self.c * (l2 or lower.ridge * lower.fold.l2_floor / FLOOR)

    def _left(self, theta: Array, x: Array) -> LeftOut | WideRidge:
        """All models, from weights of all rows: the latest few are kept."""
        key = theta.tobytes() + x.tobytes() + repr(self.penalties_at(theta)).encode()
        if key not in self._made:
            model, w, b = whole_model(self.whole, x, *self.penalties_at(theta))
            self._made[key] = WideRidge.of(model, w, self.groups) or leave_out(model, w, b, self.groups)
            while len(self._made) > 2:
                self._made.popitem(last=False)
        return self._made[key]

    def _margins(self, made: LeftOut | WideRidge) -> tuple[Array, Array]:
        """Of left-out rows, and how far they may be off."""
        return shifted(self.whole, *made.left(), self.groups.rows)

    def margins(self, evaluation: Evaluation) -> Array:
        """Of all left-out rows at the penalties of an evaluation, as accurate as its models are."""
        theta, solution = evaluation.point, evaluation.solutions[0]
        m, h = self._margins(self._left(theta, solution.x))
        rest = np.flatnonzero(self.judge.sums(~np.isfinite(h)) > 0.0)
        if len(rest):
            within = float(np.max(evaluation.e))
            trained = self._trained(theta, rest, solution, within if math.isfinite(within) else 0.0)
            for g, one in zip(rest.tolist(), trained.solutions, strict=True):
                held: Any = self.fold(g).loss(self.scoring, 1)
                m[self.judge.which == g], _ = shifted(self.fold(g), *held.margins(one.x, 0.0))
        return m

    def _trained(self, theta: Array, these: Any, near: Solution, within: float) -> Evaluation:
        """Folds of these groups, from weights of all rows."""
        folds, lower = [self.fold(g) for g in these.tolist()], self.lower[0]
        ratio, ridge, G = lower.ratio, lower.ridge, len(self.judge)  # type: ignore[attr-defined]
        problem = BilevelProblem(
            [replace(fold.penalised(ratio), ridge=ridge) for fold in folds],
            [fold.loss(self.scoring, G) for fold in folds],
            space=self.space, solver=folds[0].solver, max_steps=self.max_steps,
        )  # fmt: skip
        made = self._left(theta, near.x)
        starts = [near.start_at(made.weights_of(g)) for g in these.tolist()]
        warm = Evaluation(theta, np.zeros(1), np.zeros(1), solutions=starts)
        return problem.evaluate(theta, within=within, warm=warm)

    def fold(self, g: int) -> Split:
        """The rows of all groups but one, with that one held out."""
        if g not in self._folds:
            made = one_fold(self.task, g)
            if (len(self._folds) + 1) * 8 * math.prod(np.shape(self.task.data.X)) > KEPT:
                return made
            self._folds[g] = made
        return self._folds[g]

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with its Jacobian, from the models before further steps."""
        theta, lower, judge = evaluation.point, self.lower[0], self.judge
        if evaluation.slope is not None or not evaluation.solutions:
            return evaluation
        params, slopes, fold = self.space.params(theta), self.space.slopes(theta), self.whole.model
        made, columns = self._left(theta, evaluation.solutions[0].x), []
        with np.errstate(all="ignore"):
            m, _ = self._margins(made)
            steep = np.sqrt(judge.c) * judge.phi.residual_slopes(m, judge.y)
            try:
                for name, slope in zip(params, slopes, strict=True):
                    rates = lower.both({one: float(one == name) for one in params})  # type: ignore[attr-defined]
                    l1, l2 = (fold.of_weights(self.c * one) for one in rates)  # type: ignore[attr-defined]
                    moved = made.slopes * l2[0] if isinstance(made, WideRidge) else margin_slopes(made, l1, l2)
                    columns.append(slope * steep * moved)
            except (ArithmeticError, np.linalg.LinAlgError):  # H is singular
                return evaluation
        J = np.column_stack(columns)
        return replace(evaluation, jacobian=J) if np.isfinite(J).all() else evaluation


# What a search does and leaves behind


def begin(search: PenaltySearch, few: BilevelProblem) -> None:
    """Let the search find its start by a few folds."""
    search.finds, search.close = lambda search: start(search, few), CLOSE


def start(search: PenaltySearch, few: BilevelProblem) -> Array:
    """Where F by a few folds, roughly, is least, or F itself along one of the penalties from there; of a ridge where
    its closed form is."""
    problem, looks = search.problem, RecordedProblem(few, None, None)
    least = ridge_start(problem.problem)  # type: ignore[arg-type]
    if least is not None:
        problem.look(least, within=math.inf)
        return least
    looks.purpose, looks.until = "overview", problem.until
    try:
        theta = starting_point(looks, search.folds, search.space).theta
    except TimeOver:
        theta = looks.best.point
    within = LOOK * math.sqrt(looks.best.cost / len(problem.problem.judge))  # type: ignore[attr-defined]
    problem.look(theta, within=within)
    largest = {"l1": max(fold.model.l1_max for fold in search.folds)}
    largest["l2"] = max(fold.model.l2_floor / FLOOR for fold in search.folds)
    for k, name in enumerate(search.space.names):
        for level in np.log10(np.multiply(TRIED, max(largest[kind_of(name)], 1e-300))).tolist():
            if theta[k] + APART < level <= problem.space.bounds[1][k]:  # F may be level at less
                there = theta.copy()
                there[k] = level
                problem.look(there, within=within)
    return problem.best.point


def ridge_start(problem: LeftOutProblem) -> Array | None:
    """Where F of a ridge is least, without proof: residuals without a row are those with it over 1 - h_i, h the
    diagonal of  A (A^T A + l2)^-1 A^T  and of the means, A the centred rows. None for other models."""
    fold: Any = problem.whole.model
    groups, judge = problem.groups, problem.judge
    names, dense = problem.space.names, fits_array(fold.design.X)
    if not (isinstance(fold.psi, Squared) and groups.single and dense and [kind_of(one) for one in names] == ["l2"]):
        return None
    a = np.asarray(fold.design.weights)
    root, free = np.sqrt(a)[:, None], fold.kind == "free"
    A = root * (fold.design.X - (a @ fold.design.X if free else 0.0))
    y = np.asarray(fold.y) - (0.0 if fold.offset is None else fold.offset)
    y = root[:, 0] * (y - (a @ y if free else 0.0))
    values, U = np.linalg.eigh(A.T @ A if A.shape[1] < len(A) else A @ A.T)
    values = np.maximum(values, 0.0)
    if A.shape[1] < len(A):
        U = (A @ U) / np.sqrt(np.maximum(values, np.finfo(float).tiny))
    along, squares = U.T @ y, U**2
    (low,), (high,) = problem.space.bounds
    for _ in range(2):
        thetas = np.linspace(low, high, LATTICE)
        l2 = np.array([problem.penalties_at(np.array([theta]))[1] for theta in thetas])
        with np.errstate(divide="ignore", invalid="ignore"):
            shrunk = values[:, None] / (values[:, None] + l2)
            e = (y[:, None] - U @ (shrunk * along[:, None])) / (1.0 - squares @ shrunk - (a[:, None] if free else 0.0))
            F = (judge.c / a[groups.rows]) @ e[groups.rows] ** 2
        best = int(np.argmin(np.where(np.isfinite(F), F, math.inf)))
        low, high = thetas[max(best - 1, 0)], thetas[min(best + 1, LATTICE - 1)]
    return np.array([thetas[best]])


@dataclass(frozen=True, eq=False)
class LeftOutFold:
    """All rows beside their margins by models without them, as one fold that an estimator with a unit weight
    predicts."""

    split: Split
    solution: Solution
    margins: Array
    rows: Any  # in the order of the groups
    which: Any
    weighted: bool

    @cached_property
    def predictor(self) -> tuple[Any, Any]:
        known, plain = self.split.estimator.get_params(), clone(self.split.estimator)
        plain.set_params(**{name: None for name in ("offset", "exposure") if name in known})
        return self.split.adapter.fitted(plain, np.ones(1), 0.0, self.split.classes), self.margins[:, None]

    @cached_property
    def predicted(self) -> Predicted:
        weight = self.split.weight[self.rows] if self.weighted else None
        return replace(Predicted.of(*self.predictor, self.split.given[self.rows], weight), fold=self.which)

    def scored(self, scorer: Any) -> float:
        """Of all rows together."""
        weight = {"sample_weight": self.split.weight[self.rows]} if self.weighted else {}
        return float(scorer(*self.predictor, self.split.labels[self.rows], **weight))

    def scores(self, scorer: Any) -> list[float]:
        """Of every group."""
        model, X = self.predictor
        given, parts = self.split.given[self.rows], np.split(np.arange(len(X)), np.cumsum(np.bincount(self.which))[:-1])
        return [float(scorer(model, X[part], given[part])) for part in parts]

    def of_the_target_alone(self) -> Predicted:
        """What models that know the targets of the other rows only say."""
        found, which, y = self.predicted, self.which, self.split.given[self.rows]
        v = np.ones(len(y)) if found.weight is None else found.weight

        def means(values: Any) -> Any:
            less = [np.bincount(which, one)[which] for one in (v * values, v)]
            return (v @ values - less[0]) / (v.sum() - less[1])

        if found.classes is None:
            return replace(found, predicted=means(y), decided=None, alone=True)
        shares = np.column_stack([means(y == label) for label in found.classes])
        return replace(found, predicted=found.classes[np.argmax(shares, axis=1)], decided=shares, alone=True)


def left_out_fold(problem: LeftOutProblem, made: Evaluation) -> LeftOutFold:
    """What models at these penalties say of the rows that they were made without."""
    weighted = bool(np.any(problem.task.data.weight != 1.0))
    rows, which = problem.groups.rows, problem.groups.which
    return LeftOutFold(problem.whole, made.solutions[0], problem.margins(made), rows, which, weighted)
