r"""Training rows of kernel machines: libsvm at a tolerance that is tightened until enough is proven, or a factor.

A fold holds one machine (`suffice.kernels.machines`), or with K classes one for each of the K (K - 1)/2 pairs of
them. Strengths are in units of the final fit: its weights sum to N and those of a fold to n, so that a fold is solved
with C N/n (alpha n/N), as the same share of the mean loss. gamma = "scale" or "auto" is that of the fold's own rows.

libsvm stops where no pair of rows violates its conditions by more than `tol`. What it gives back is made feasible to
the last bit, polished on its free support vectors, and certified; `tol` shrinks until that is enough. It cannot be
continued, it begins anew. One step is as many of its iterations as there are rows; of kernel ridge regression it is one
factorisation, and there is only one.

The weights x of a fold's `Solution` are (beta, b) of every machine, one after the other, then gamma and tol.

What is searched is  F(C, gamma) = (1/K) sum_k loss_k(f_k, b_k),  f_k and b_k exact machines of the training rows of
fold k, proven to lie in an interval by `suffice.kernels.machines`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from suffice.arrays import Array, frozen, positive, whole_number
from suffice.evaluation import Evaluation
from suffice.kernels.machines import Kernel, KernelMatrix, Machine, SupportVectors, ridge_machine
from suffice.lazy import cached_property
from suffice.options import Policy
from suffice.protocols import Closing
from suffice.prove.held_out import error_of_moved
from suffice.rows.gram import as_array, fits_array
from suffice.rows.rounding import gamma as gamma_n
from suffice.sklearn.penalties import ends, without_step
from suffice.sklearn.scores import SCORES
from suffice.solvers.certificate import Certificate
from suffice.solvers.solution import Outcome, Solution
from suffice.space import Space

Kind = Literal["classes", "epsilon", "ridge"]

TOLERANCE, TIGHTER, FINEST = 1e-2, 1e-2, 1e-13  # of libsvm, for margins of size 1: the first, how it shrinks, the last
MOST_UPDATES = 1_000_000  # of libsvm, or a thousand for every row: where C times the kernel is huge it has no end
LARGEST = 1 << 28  # bytes of a sparse matrix as a dense one
USUAL = {"C": (1e-2, 1e3), "alpha": (1e-6, 1e2), "epsilon": (1e-3, 1e0)}
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
    """The machines of a fold's training rows; `y` are targets, -1 and 1, or numbers of several classes."""

    given: Any
    y: Array
    s: Array
    kernel: Kernel
    kind: Kind
    gamma: Any
    classes: int = 2
    epsilon: float = 0.0

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
        if self.kind != "classes" or self.classes == 2:
            return [MachineRows(known, self.y[known], self.s[known])]
        made = []
        for one, other in combinations(range(self.classes), 2):
            rows = known[np.isin(self.y[known], (one, other))]
            if len(np.unique(self.y[rows])) < 2:
                raise ValueError(f"the training samples of a fold lack class number {one} or {other}")
            made.append(MachineRows(rows, np.where(self.y[rows] == one, 1.0, -1.0), self.s[rows], (one, other)))
        return made

    def gamma_at(self, params: Mapping[str, float]) -> float:
        """gamma at these parameters, which it may be one of."""
        return float(params["gamma"]) if "gamma" in params else self.own_gamma

    @property
    def own_gamma(self) -> float:
        """What gamma="scale", "auto", None or a number is for these rows."""
        if self.gamma == "scale":
            return gamma_by_scale(self.X)
        return 1.0 / self.X.shape[1] if self.gamma in ("auto", None) else float(self.gamma)

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        names = ("kernel", "kind", "gamma", "classes", "epsilon", "X", "y", "s")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def _latest(self) -> dict[float, list[KernelMatrix]]:
        return {}

    def grams(self, gamma: float) -> list[KernelMatrix]:
        """The kernel's matrices of all machines; the latest ones are kept."""
        known = self._latest.get(gamma)
        if known is None:
            whole = self.kernel.matrix(self.X, self.X, gamma)
            known = [whole.part(one.rows) for one in self.machines]
            self._latest.clear()
            self._latest[gamma] = known
        return known

    def solve(
        self,
        params: Mapping[str, float],
        total: float,
        enough: Callable[[Sequence[Machine], Solution], bool],
        start: Solution | None = None,
        max_steps: float = math.inf,
    ) -> Solution:
        """Machines at parameters of a final fit with weights that sum to `total`, until they are `enough`, which is
        asked last about those that are returned; `start` is a solution of these very parameters, if there is one."""
        gamma = self.gamma_at(params)
        grams = self.grams(gamma)
        scale = 1.0 if self.kind == "classes" else float(np.std(self.y[self.s > 0.0])) or 1.0  # the size of margins
        if self.kind == "ridge":
            alpha = params["alpha"] * self.total / total
            machines = [ridge_machine(grams[0], self.machines[0].y, self.machines[0].s, alpha)]
            solution = self._solution(machines, gamma, 0.0, 1)
            outcome = Outcome.REACHED if enough(machines, solution) else Outcome.PRECISION
            return replace(solution, outcome=outcome)
        problems = [self._problem(one, params, total, gamma) for one in self.machines]
        tol = TOLERANCE if start is None else max(float(start.x[-1]) * TIGHTER, FINEST)
        best = [Machine(np.zeros(len(one.rows)), 0.0, math.inf) for one in self.machines]
        taken = 0
        while True:
            made, steps = self._trained(problems, grams, tol * scale, max_steps - taken)
            taken, before = taken + steps, _worst(best)
            best = [min(two, key=lambda machine: machine.radius) for two in zip(best, made, strict=True)]
            solution = self._solution(best, gamma, tol, taken)
            done = enough(best, solution)
            if not done:
                known = zip(problems, grams, best, strict=True)
                best = [problem.polished(gram, machine) for problem, gram, machine in known]
                solution = self._solution(best, gamma, tol, taken)
                done = enough(best, solution)
            given_up = steps * max(len(problem.y) for problem in problems) >= MOST_UPDATES
            stands = _worst(best) >= 0.7 * before
            if done:
                return replace(solution, outcome=Outcome.REACHED)
            if taken >= max_steps:
                return replace(solution, outcome=Outcome.MAX_STEPS)
            if tol <= FINEST or (stands and (given_up or all(m.radius <= 4.0 * m.rounding for m in best))):
                return replace(solution, outcome=Outcome.PRECISION)
            tol = max(tol * TIGHTER, FINEST)

    def _problem(self, one: MachineRows, params: Mapping[str, float], total: float, gamma: float) -> SupportVectors:
        C = params["C"] * total / self.total * one.s
        epsilon = None if self.kind == "classes" else float(params.get("epsilon", self.epsilon))
        reach = math.sqrt(float(self.kernel.diagonal(self.X[one.rows], gamma).max())) * (1.0 + gamma_n(4))
        return SupportVectors(one.y, C, epsilon, reach)

    def _trained(
        self, problems: Sequence[SupportVectors], grams: Sequence[KernelMatrix], tol: float, left: float
    ) -> tuple[list[Machine], int]:
        made, steps = [], 0
        for problem, gram in zip(problems, grams, strict=True):
            n = len(problem.y)
            most = int(min(max(left, 1.0) * n, max(MOST_UPDATES, 1000 * n), 2**31 - 1))
            settings = {"kernel": "precomputed", "C": 1.0, "tol": tol, "max_iter": most}
            model = SVC(**settings) if problem.epsilon is None else SVR(epsilon=problem.epsilon, **settings)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # what it has left open is seen from the gap
                model.fit(gram.K, problem.y, sample_weight=problem.C)
            beta = np.zeros(n)
            beta[model.support_] = model.dual_coef_[0]
            made.append(problem.certified(gram, problem.feasible(beta)))
            steps += max(1, math.ceil(float(np.max(model.n_iter_)) / n))
        return made, steps

    def _solution(self, machines: Sequence[Machine], gamma: float, tol: float, steps: int) -> Solution:
        x = np.concatenate([*(np.append(machine.beta, machine.b) for machine in machines), [gamma, tol]])
        radius, rounding = (math.hypot(*(getattr(m, name) for m in machines)) for name in ("radius", "rounding"))
        rule = "residual" if self.kind == "ridge" else "gap"
        return Solution(frozen(x), Certificate(radius, rule, rounding), steps, Outcome.STEPS, self.solver)

    def taken_apart(self, x: Array) -> tuple[list[tuple[Array, float]], float]:
        """(beta, b) of every machine, and gamma."""
        found, at = [], 0
        for one in self.machines:
            n = len(one.rows)
            found.append((x[at : at + n], float(x[at + n])))
            at += n + 1
        return found, float(x[-2])

    def coefficients(self, x: Array) -> tuple[Any, float]:
        """The fold and its weights, and gamma: all that an estimator is made of."""
        found, gamma = self.taken_apart(x)
        return (self, found), gamma

    def norm(self, x: Array) -> float:
        """||f||_H, of several machines the root of the sum of squares."""
        found, gamma = self.taken_apart(x)
        pairs = zip(found, self.grams(gamma), strict=True)
        return math.sqrt(sum(max(float(beta @ (gram.K @ beta)), 0.0) for (beta, _), gram in pairs))

    def held_out(self, X: Any, y: Array, sample_weight: Array, scoring: str, folds: int) -> HeldOutMachines:
        """This fold's part of minus the mean score (r2: of 1 - r2) over `folds` folds."""
        v = sample_weight / sample_weight.sum()
        share = 1.0 / folds / SCORES[scoring].unit(y, v)
        return HeldOutMachines(self, dense_rows(X), y, v, scoring, share)


def gamma_by_scale(X: Array) -> float:
    """gamma="scale"."""
    variance = float(X.var())
    return 1.0 / (X.shape[1] * variance) if variance != 0.0 else 1.0


def dense_rows(X: Any) -> Array:
    """Rows as kernels take them."""
    if not fits_array(X, LARGEST):
        raise ValueError(f"kernel machines take dense rows, and {X.shape[0]} x {X.shape[1]} is too large for them")
    return np.ascontiguousarray(as_array(X), dtype=np.float64)


def _worst(machines: Sequence[Machine]) -> float:
    return max(machine.radius for machine in machines)


@dataclass(frozen=True, eq=False)
class HeldOutMachines:
    """share sum_i v_i phi(m_i, y_i) of held-out rows; with K classes the mean of the K - 1 pairs of a row's class."""

    train: KernelFold
    X: Array
    y: Array
    v: Array
    scoring: str
    share: float

    def fingerprint(self) -> dict[str, Any]:
        return {"X": self.X, "y": self.y, "v": self.v, "scoring": self.scoring, "share": self.share}

    def at(self, gamma: float) -> Callable[[Sequence[Machine]], tuple[Array, float]]:
        """Machines -> residuals, and a proven bound on the error of their norm."""
        each = [self._of(one, gamma) for one in self.train.machines]

        def residuals(machines: Sequence[Machine]) -> tuple[Array, float]:
            known = [of(machine) for of, machine in zip(each, machines, strict=True)]
            return np.concatenate([one for one, _ in known]), math.hypot(*(error for _, error in known))

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
        lengths = np.sqrt(kernel.diagonal(X, gamma)) * (1.0 + gamma_n(4))

        def at(machine: Machine) -> tuple[Array, float]:
            f, doubt = across.product(machine.beta)
            m = f + machine.b
            doubt = doubt + np.finfo(np.float64).eps * np.abs(m)
            residuals = math.sqrt(self.share) * np.sqrt(v) * phi.residuals(m, y)
            pulls = v * phi.derivative(m, y)
            total = abs(float(pulls.sum())) + gamma_n(len(m)) * float(np.abs(pulls).sum())
            R, up = min(machine.radius, 1e150), 1.0 + gamma_n(len(m) + 8)
            shift = machine.reach * R + machine.slack
            h = lengths * R + shift + doubt
            first = among.norm(pulls) * R + total * shift + float(np.abs(pulls) @ doubt) * up
            far = math.sqrt(float(v @ (h * h))) * up
            return residuals, error_of_moved(phi, m, y, v, self.share, residuals, pulls)(first, h, far)

        return at


@dataclass(frozen=True)
class KernelSpace:
    """Which parameters of a kernel machine are searched, in the estimator's own words and units."""

    space: Space
    total: float  # N of the final fit
    groups: tuple[str, ...] = ()
    ratio: float = 0.0
    ours: frozenset[str] = frozenset()  # a usual range may well be too narrow for other data

    @property
    def names(self) -> tuple[str, ...]:
        return self.space.names

    @classmethod
    def of(cls, given: Any, known: Sequence[str], scale: float, step: str, total: float) -> KernelSpace:
        """Of what a user gave; `known` are the estimator's parameters that can be tuned, the strength first, and
        `scale` is what gamma="scale" would be, roughly."""
        if given is None:
            given = {name: USUAL[name] for name in known[:1]}
            given |= {"gamma": (scale / AROUND, scale * AROUND)} if "gamma" in known else {}
        if isinstance(given, Mapping):
            given = without_step(given, step)
        if not isinstance(given, Mapping) or not given or not set(given) <= set(known):
            raise ValueError(f"space must be a dictionary of {', '.join(known)} to ranges, got {given!r}")
        found = {name: ends(given[name], name) for name in known if name in given}
        for name, (lower, upper, *_) in found.items():
            if not (lower > 0.0 and math.isfinite(upper)):
                raise ValueError(f"space[{name!r}] must be positive and finite, got {given[name]!r}")
        return cls(Space(**found), total)

    def penalties(self, evaluation: Evaluation) -> dict[str, float]:
        """The parameters there."""
        return self.space.params(evaluation.point)

    def words(self, adapter: Any, estimator: Any, evaluation: Evaluation, total: float) -> dict[str, float]:
        """The same: they are the estimator's own."""
        return self.penalties(evaluation)


@dataclass(frozen=True, eq=False)
class KernelProblem(Closing):
    """The objective of a search: folds of kernel machines with their held-out losses."""

    folds: tuple[KernelFold, ...]
    losses: tuple[HeldOutMachines, ...]
    space: Space
    total: float
    fixed: Mapping[str, float]
    jobs: int = 1
    max_steps: float = math.inf

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals whose errors are at most `within`, as far as arithmetic allows."""
        return self.evaluate_all([theta], within=within, warm=[warm])[0]

    def evaluate_all(
        self,
        thetas: Sequence[Array],
        *,
        within: float,
        warm: Sequence[Evaluation | None] | None = None,
        policy: Policy = "residual",
    ) -> list[Evaluation]:
        """Several thetas, one after the other."""
        positive(within, "within", zero=True, infinite=True)
        near = [None] * len(thetas) if warm is None else warm
        return [self._evaluated(np.asarray(one, dtype=np.float64), within, start, policy)
                for one, start in zip(thetas, near, strict=True)]  # fmt: skip

    def _evaluated(self, theta: Array, within: float, warm: Evaluation | None, policy: Policy) -> Evaluation:
        params = {**self.fixed, **self.space.params(theta)}
        same = warm is not None and np.array_equal(warm.point, theta) and len(warm.solutions) == len(self.folds)

        def one(j: int) -> tuple[Solution, Array, float]:
            residuals, error = np.zeros(0), math.inf
            known = self.losses[j].at(self.folds[j].gamma_at(params))

            def enough(machines: Sequence[Machine], solution: Solution) -> bool:
                nonlocal residuals, error
                residuals, error = known(machines)
                return error <= within if policy == "residual" else solution.certificate.radius <= within

            start = warm.solutions[j] if same and warm is not None else None
            solution = self.folds[j].solve(params, self.total, enough, start, self.max_steps)
            return solution, residuals, error

        if self.jobs > 1:
            with ThreadPoolExecutor(min(self.jobs, len(self.folds))) as pool:
                made = list(pool.map(one, range(len(self.folds))))
        else:
            made = [one(j) for j in range(len(self.folds))]
        return Evaluation(
            theta,
            np.concatenate([residuals for _, residuals, _ in made]),
            [error for _, _, error in made],
            work=sum(solution.steps for solution, _, _ in made),
            solutions=[solution for solution, _, _ in made],
            distance=max(solution.certificate.radius for solution, _, _ in made),
            blocks=[len(residuals) for _, residuals, _ in made],
        )

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation as it is: there are no derivatives."""
        return evaluation

    def limited(self, max_steps: int) -> KernelProblem:
        """The same problem, with so many steps for every fold at most."""
        return replace(self, max_steps=whole_number(max_steps, "max_steps", least=1))

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares before it is continued."""
        given = {name: getattr(self, name) for name in ("folds", "losses", "total", "fixed")}
        return {**given, "space": self.space.ranges}
