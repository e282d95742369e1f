r"""Kernel machines: SVC, SVR and KernelRidge, whose kernel is tuned along with their strength.

SVC(C, gamma)            1/2 ||f||^2 + C sum_i s_i max(0, 1 - y_i (f(x_i) + b)),  several classes by pairs
SVR(C, gamma, epsilon)   the same with max(0, |y_i - f(x_i) - b| - epsilon)
KernelRidge(alpha, gamma)   sum_i s_i (y_i - f(x_i))^2 + alpha ||f||^2

The score of SVC is the squared hinge of decision values on held-out rows: it is smooth, which accuracy is not, and it
needs no calibration, which the logarithmic loss would. What is searched is  F(C, gamma) = (1/K) sum_k loss_k(f_k, b_k),
f_k and b_k exact machines of the training rows of fold k, proven to lie in an interval by `suffice.kernels.machines`.

A fold holds one machine, with K classes one for each of the K (K - 1)/2 pairs of them. Strengths are in units of the
final fit: its weights sum to N and those of a fold to n, so that a fold is solved with C N/n (alpha n/N), as the same
share of the mean loss. gamma = "scale" or "auto" is that of the fold's own rows.

libsvm stops where no pair of rows violates its conditions by more than `tol`. What it gives back is made feasible to
the last bit, polished on its free support vectors, and certified; `tol` shrinks until that is enough. It cannot be
continued, it begins anew. One step is as many of its iterations as there are rows; of kernel ridge regression it is one
factorisation, and there is only one. The weights x of a fold's `Solution` are (beta, b) of every machine, one after the
other, then gamma and tol.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR

from suffice.arrays import EPS, Array, frozen, whole_number
from suffice.evaluation import Evaluation
from suffice.kernels.machines import Kernel, KernelMatrix, Machine, SupportVectors, ridge_machine
from suffice.lazy import cached_property
from suffice.options import Policy
from suffice.protocols import Closing
from suffice.prove.held_out import error_of_moved
from suffice.rows.gram import all_entries, as_array, fits_array
from suffice.rows.rounding import gamma as gamma_n
from suffice.sklearn.adapters import READ, SQUARES, Adapter, register_adapter
from suffice.sklearn.estimators import class_weighted
from suffice.sklearn.penalties import PenaltySpace, ends, without_step
from suffice.sklearn.scores import SCORES
from suffice.solvers.certificate import Certificate
from suffice.solvers.solution import Outcome, Solution
from suffice.space import Space

Kind = Literal["classes", "epsilon", "ridge"]
Enough = Callable[[Sequence[Machine], Solution], bool]

TOLERANCE, TIGHTER, FINEST = 1e-2, 1e-2, 1e-13  # of libsvm, for margins of size 1: the first, how it shrinks, the last
LARGEST = 1 << 28  # bytes of a sparse matrix as a dense one
USUAL = {"C": (1e-2, 1e3), "alpha": (1e-6, 1e2)}
AROUND = 100.0  # the usual range of gamma: so many times what "scale" says, up and down


@dataclass(frozen=True, eq=False)
class MachineRows:
    """The rows of one machine: which of the fold's, and their targets."""

    rows: Any
    y: Array
    s: Array
    classes: tuple[int, int] | None = None  # the pair, the first of which is 1 and the other -1


@dataclass(frozen=True, eq=False)
class KernelFold:
    """The machines of a fold's training rows; `y` are targets, or numbers of classes."""

    given: Any
    y: Array
    s: Array
    kernel: Kernel
    kind: Kind
    gamma: Any
    own: Mapping[str, float]  # other parameters of the estimator, where they are not tuned
    classes: int = 0

    solver = "libsvm"
    l1_max = l2_floor = l2_in_place_of_none = 0.0

    def __post_init__(self) -> None:
        _ = self.X, self.machines  # what cannot be done is told at once

    @cached_property
    def X(self) -> Array:  # noqa: N802 (the symbol)
        return dense_rows(self.given)

    @property
    def total(self) -> float:
        return float(self.s.sum())

    @cached_property
    def machines(self) -> list[MachineRows]:
        known = np.flatnonzero(self.s > 0.0)
        if self.kind != "classes":
            return [MachineRows(known, self.y[known], self.s[known])]
        made = []
        for one, other in combinations(range(self.classes), 2):
            rows = known[np.isin(self.y[known], (one, other))]
            if len(np.unique(self.y[rows])) < 2:
                raise ValueError(f"the training samples of a fold lack class number {one} or {other}")
            made.append(MachineRows(rows, np.where(self.y[rows] == one, 1.0, -1.0), self.s[rows], (one, other)))
        return made

    def gamma_at(self, params: Mapping[str, float]) -> float:
        """gamma at these parameters, which it may be one of; else what "scale", "auto", None or a number is here."""
        if "gamma" in params:
            return float(params["gamma"])
        if self.gamma == "scale":
            return gamma_by_scale(self.X)
        return 1.0 / self.X.shape[1] if self.gamma in ("auto", None) else float(self.gamma)

    @cached_property
    def _latest(self) -> dict[float, list[KernelMatrix]]:
        return {}

    def grams(self, gamma: float) -> list[KernelMatrix]:
        """The kernel's matrices of all machines; the latest ones are kept."""
        if gamma not in self._latest:
            whole = self.kernel.matrix(self.X, self.X, gamma)
            self._latest.clear()
            self._latest[gamma] = [whole.part(one.rows) for one in self.machines]
        return self._latest[gamma]

    def solve(
        self,
        params: Mapping[str, float],
        total: float,
        enough: Enough,
        start: Solution | None = None,
        max_steps: float = math.inf,
    ) -> Solution:
        """Machines at parameters of a final fit with weights that sum to `total`, until they are `enough`, which is
        asked last about those that are returned; `start` is a solution of these very parameters, if there is one."""
        gamma, share, params = self.gamma_at(params), total / self.total, {**self.own, **params}
        grams = self.grams(gamma)
        if self.kind == "ridge":
            best = [ridge_machine(grams[0], self.machines[0].y, self.machines[0].s, params["alpha"] / share)]
            solution = self._solution(best, gamma, 0.0, 1)
            return replace(solution, outcome=Outcome.REACHED if enough(best, solution) else Outcome.PRECISION)
        epsilon = None if self.kind == "classes" else params["epsilon"]
        each = zip(grams, self.machines, strict=True)
        problems = [SupportVectors(gram, one.y, params["C"] * share * one.s, epsilon) for gram, one in each]
        tol = TOLERANCE if start is None else max(float(start.x[-1]) * TIGHTER, FINEST)
        best = [Machine(np.zeros(len(one.rows)), 0.0, math.inf) for one in self.machines]
        worst, taken, stood = math.inf, 0, 0
        while True:
            made, steps = zip(*(problem.trained(tol, max_steps - taken) for problem in problems), strict=True)
            taken += sum(steps)
            best = [min(two, key=lambda machine: machine.radius) for two in zip(best, made, strict=True)]
            solution = self._solution(best, gamma, tol, taken)
            if not (done := enough(best, solution)):
                best = [problem.polished(machine) for problem, machine in zip(problems, best, strict=True)]
                solution = self._solution(best, gamma, tol, taken)
                done = enough(best, solution)
            if done:
                return replace(solution, outcome=Outcome.REACHED)
            if taken >= max_steps:
                return replace(solution, outcome=Outcome.MAX_STEPS)
            before, worst = worst, max(machine.radius for machine in best)
            stood = stood + 1 if worst >= 0.7 * before else 0
            if tol <= FINEST or stood == 2:  # libsvm has come to its end, or rounding is all that is left
                return replace(solution, outcome=Outcome.PRECISION)
            tol = max(tol * TIGHTER, FINEST)

    def _solution(self, machines: Sequence[Machine], gamma: float, tol: float, steps: int) -> Solution:
        x = np.concatenate([*(np.append(machine.beta, machine.b) for machine in machines), [gamma, tol]])
        rule = "residual" if self.kind == "ridge" else "gap"
        radius = math.hypot(*(machine.radius for machine in machines))
        return Solution(frozen(x), Certificate(radius, rule), steps, Outcome.STEPS, self.solver)

    def coefficients(self, x: Array) -> tuple[Any, float]:
        """The fold with (beta, b) of every machine, and gamma: all that an estimator is made of."""
        found, at = [], 0
        for one in self.machines:
            n = len(one.rows)
            found.append((x[at : at + n], float(x[at + n])))
            at += n + 1
        return (self, found), float(x[-2])

    def norm(self, x: Array) -> float:
        """||f||_H, of several machines the root of the sum of squares."""
        (_, found), gamma = self.coefficients(x)
        pairs = zip(found, self.grams(gamma), strict=True)
        return math.sqrt(sum(max(float(beta @ (gram.K @ beta)), 0.0) for (beta, _), gram in pairs))

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> HeldOutMachines:
        """This fold's part of minus the mean score (r2: of 1 - r2) over `folds` folds."""
        v = sample_weight / sample_weight.sum()
        return HeldOutMachines(self, dense_rows(X), y, v, scoring, 1.0 / folds / SCORES[scoring].unit(y, v))


def gamma_by_scale(X: Array) -> float:
    """gamma="scale"."""
    variance = float(X.var())
    return 1.0 / (X.shape[1] * variance) if variance != 0.0 else 1.0


def dense_rows(X: Any) -> Array:
    """Rows as kernels take them."""
    if not fits_array(X, LARGEST):
        raise ValueError(f"kernel machines take dense rows, and {X.shape[0]} x {X.shape[1]} is too large for them")
    return np.ascontiguousarray(as_array(X), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class HeldOutMachines:
    """share sum_i v_i phi(m_i, y_i) of held-out rows; with K classes the mean of the K - 1 pairs of a row's class."""

    train: KernelFold
    X: Array
    y: Array
    v: Array
    scoring: str
    share: float

    def at(self, gamma: float) -> Callable[[Sequence[Machine]], tuple[Array, float]]:
        """Machines -> residuals, and a proven bound on the error of their norm."""
        each = [self._of(one, gamma) for one in self.train.machines]

        def residuals(machines: Sequence[Machine]) -> tuple[Array, float]:
            parts, errors = zip(*(of(machine) for of, machine in zip(each, machines, strict=True)), strict=True)
            return np.concatenate(parts), math.hypot(*errors)

        return residuals

    def _of(self, one: MachineRows, gamma: float) -> Callable[[Machine], tuple[Array, float]]:
        phi, y, v, rows = SCORES[self.scoring].phi, self.y, self.v, np.arange(len(self.y))
        assert phi is not None
        if one.classes is not None:
            rows = np.flatnonzero(np.isin(self.y, one.classes))
            y = np.where(self.y[rows] == one.classes[0], 1.0, -1.0)
            v = self.v[rows] / (self.train.classes - 1)
        if len(rows) == 0:
            return lambda machine: (np.zeros(0), 0.0)
        kernel, X = self.train.kernel, self.X[rows]
        across, among = kernel.matrix(self.train.X[one.rows], X, gamma), kernel.matrix(X, X, gamma)

        def at(machine: Machine) -> tuple[Array, float]:
            f, doubt = across.product(machine.beta)
            m = f + machine.b
            doubt = doubt + EPS * np.abs(m)
            residuals = math.sqrt(self.share) * np.sqrt(v) * phi.residuals(m, y)
            pulls = v * phi.derivative(m, y)
            total = abs(float(pulls.sum())) + gamma_n(len(m)) * float(np.abs(pulls).sum())
            R, up = min(machine.radius, 1e150), 1.0 + gamma_n(len(m) + 8)
            shift = machine.reach * R + machine.slack
            h = among.lengths * R + shift + doubt
            first = among.norm(pulls) * R + total * shift + float(np.abs(pulls) @ doubt) * up
            far = math.sqrt(float(v @ (h * h))) * up
            return residuals, error_of_moved(phi, m, y, v, self.share, residuals, pulls)(first, h, far)

        return at


@dataclass(frozen=True, eq=False)
class KernelProblem(Closing):
    """The objective of a search: folds of kernel machines with their held-out losses; `total` is N of the final fit."""

    folds: tuple[KernelFold, ...]
    losses: tuple[HeldOutMachines, ...]
    space: Space
    total: float
    jobs: int = 1
    max_steps: float = math.inf

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals whose errors are at most `within`, as far as arithmetic allows."""
        return self.evaluate_all([theta], within=within, warm=[warm])[0]

    def evaluate_all(
        self, thetas: Sequence[Array], *, within: float, warm: Sequence[Any] | None = None, policy: Policy = "residual"
    ) -> list[Evaluation]:
        """Several thetas, one after the other."""
        near = [None] * len(thetas) if warm is None else warm
        return [self._evaluated(theta, within, start, policy) for theta, start in zip(thetas, near, strict=True)]

    def _evaluated(self, theta: Array, within: float, warm: Evaluation | None, policy: Policy) -> Evaluation:
        params = self.space.params(theta)

        def one(fold: KernelFold, loss: HeldOutMachines, start: Solution | None) -> tuple[Solution, Array, float]:
            residuals, error, known = np.zeros(0), math.inf, loss.at(fold.gamma_at(params))

            def enough(machines: Sequence[Machine], solution: Solution) -> bool:
                nonlocal residuals, error
                residuals, error = known(machines)
                return error <= within if policy == "residual" else solution.certificate.radius <= within

            return fold.solve(params, self.total, enough, start, self.max_steps), residuals, error

        starts = warm.solutions if warm is not None and np.array_equal(warm.point, theta) else None
        each = zip(self.folds, self.losses, starts or [None] * len(self.folds), strict=True)
        made = Parallel(self.jobs, prefer="threads")(delayed(one)(*given) for given in each)
        solutions, residuals, errors = zip(*made, strict=True)
        return Evaluation(
            theta,
            np.concatenate(residuals),
            errors,
            work=sum(solution.steps for solution in solutions),
            solutions=solutions,
            distance=max(solution.certificate.radius for solution in solutions),
            blocks=[len(part) for part in residuals],
        )

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation as it is: there are no derivatives."""
        return evaluation

    def limited(self, max_steps: int) -> KernelProblem:
        """The same problem, with so many steps for every fold at most."""
        return replace(self, max_steps=whole_number(max_steps, "max_steps", least=1))

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        return {**vars(self), "jobs": None}


def kernel_of(estimator: Any) -> Kernel:
    """The kernel; ValueError for one that there is no proof for."""
    name = "poly" if estimator.kernel == "polynomial" else estimator.kernel
    known = ("rbf", "linear", "poly", "laplacian") if isinstance(estimator, KernelRidge) else ("rbf", "linear", "poly")
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"{type(estimator).__name__}(kernel={estimator.kernel!r}) is not supported: use one of {', '.join(known)}"
        )
    return Kernel(name, estimator.degree, float(estimator.coef0))  # type: ignore[arg-type]


@dataclass(frozen=True)
class KernelAdapter(Adapter):
    """Kernel machines of a kind; `tuned` are the parameters that can be, the strength first."""

    kind: Kind
    tuned: tuple[str, ...]
    scorings: tuple[str, ...] = SQUARES
    many: bool = False
    by_penalties = False

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        kernel_of(estimator)
        given = getattr(estimator, self.tuned[0])
        if np.ndim(given) > 0:
            raise ValueError(
                f"{type(estimator).__name__}({self.tuned[0]}={given!r}) must have one number for all targets"
            )
        if getattr(estimator, "probability", None) is True:
            raise ValueError("SVC(probability=True) is not supported: use CalibratedClassifierCV around the tuned SVC")

    def space(self, estimator: Any, given: Any, step: str, data: Any) -> PenaltySpace:
        """What is searched, of what a user gave: parameters in the estimator's own words and units."""
        self.check(estimator, ())
        known = [name for name in self.tuned if name != "gamma" or kernel_of(estimator).kind != "linear"]
        if given is None:
            scale = gamma_by_scale(data.whole().model.X)  # of all rows, as the machine sees them
            usual = USUAL | {"gamma": (scale / AROUND, scale * AROUND)}
            given = {name: usual[name] for name in known if name in usual}
        if isinstance(given, Mapping):
            given = without_step(given, step)
        if not isinstance(given, Mapping) or not given or not set(given) <= set(known):
            raise ValueError(f"space must be a dictionary of {', '.join(known)} to ranges, got {given!r}")
        found = {name: ends(given[name], name) for name in known if name in given}
        for name, (lower, upper, *_) in found.items():
            if not (lower > 0.0 and math.isfinite(upper)):
                raise ValueError(f"space[{name!r}] must be positive and finite, got {given[name]!r}")
        return PenaltySpace(tuple(found), 0.0, Space(**found), total=data.total)

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Any:
        own = {name: float(getattr(estimator, name)) for name in self.tuned if name != "gamma"}
        count = 0 if classes is None else len(classes)
        return KernelFold(X, y, weights, kernel_of(estimator), self.kind, estimator.gamma, own, count)

    def problem(self, folds: Sequence[Any], space: PenaltySpace, scoring: str, jobs: int) -> KernelProblem:
        """The objective of a search."""
        losses = tuple(fold.loss(scoring, len(folds)) for fold in folds)
        assert space.total is not None
        return KernelProblem(tuple(fold.model for fold in folds), losses, space.space, space.total, jobs)

    def final(self, split: Any, params: dict[str, float], accuracy: float) -> tuple[Solution, float]:
        """The machines of all rows, and ||f||."""
        fold: KernelFold = split.model

        def enough(_: Any, made: Solution) -> bool:
            return made.certificate.radius <= accuracy * fold.norm(made.x)

        solution = fold.solve(params, fold.total, enough)
        return solution, fold.norm(solution.x)

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        return np.asarray(y if classes is None else np.searchsorted(classes, y), dtype=np.float64)

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        return class_weighted(estimator, y, sample_weight, by_rows=True)

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        fold, found = coef
        if fold.kernel.kind != "linear" and intercept != fold.gamma_at({}):  # "scale" stays where it was not tuned
            estimator.set_params(gamma=intercept)
        whole = np.zeros((max(len(classes) - 1 if self.many else 1, 1), len(fold.y)))
        for (beta, _), one in zip(found, fold.machines, strict=True):
            first, second = (0, 1) if one.classes is None else one.classes
            mine = one.y == 1.0 if self.many else np.ones(len(one.y), dtype=bool)
            whole[second - 1, one.rows[mine]] = beta[mine]
            whole[first, one.rows[~mine]] = beta[~mine]
        if self.kind == "ridge":
            estimator.dual_coef_, estimator.X_fit_, estimator.n_features_in_ = whole[0], fold.given, fold.X.shape[1]
            return estimator
        return _supported(estimator, fold, whole, np.array([b for _, b in found]), classes)


def _supported(estimator: Any, fold: KernelFold, whole: Array, shifts: Array, classes: Any) -> Any:
    """The estimator after libsvm's first iteration, which leaves all attributes, with these support vectors."""
    number = np.zeros(len(fold.y), dtype=int) if classes is None else fold.y.astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        given, estimator.max_iter = estimator.max_iter, 1
        estimator.fit(fold.given, fold.y if classes is None else classes[number], sample_weight=fold.s)
        estimator.max_iter = given
    used = np.flatnonzero(np.any(whole != 0.0, axis=0))
    used = used[np.argsort(number[used], kind="stable")]
    estimator.support_, estimator.support_vectors_ = used.astype(np.int32), fold.given[used]
    estimator._n_support = np.bincount(number[used], minlength=len(estimator._n_support)).astype(np.int32)
    estimator._dual_coef_ = all_entries(np.ascontiguousarray(whole[:, used]), estimator.dual_coef_)
    estimator._intercept_, estimator.fit_status_ = shifts, 0
    sign = -1.0 if classes is not None and len(classes) == 2 else 1.0  # libsvm's first class is the positive one
    estimator.dual_coef_, estimator.intercept_ = sign * estimator._dual_coef_, sign * shifts
    return estimator


register_adapter(SVC, KernelAdapter("classes", ("C", "gamma"), ("neg_squared_hinge",), many=True))
register_adapter(SVR, KernelAdapter("epsilon", ("C", "gamma", "epsilon")))
register_adapter(KernelRidge, KernelAdapter("ridge", ("alpha", "gamma")))
READ["sklearn.SVC"] = (
    "C class_weight coef0 degree gamma kernel probability",
    "break_ties cache_size decision_function_shape shrinking",
)
READ["sklearn.SVR"] = "C coef0 degree epsilon gamma kernel", "cache_size shrinking"
READ["sklearn.KernelRidge"] = "alpha coef0 degree gamma kernel", "kernel_params"  # those of a kernel of one's own
