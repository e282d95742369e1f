r"""FISTA for many linear models that share X: one iteration on matrices, one product with X and one with X^T.

Column j has its own targets y_j, penalties (l1_j, l2_j), step length tau_j, momentum t_j and requested accuracy: the
classes of a data set, folds, the first points of a search, many starts. The method is `fista` or `fista_adaptive`,
column by column as in `suffice.solvers.fista`; only the rounding of the products differs. Radii are estimated, for all
columns at once, by the least of

    c_j (D/2 + sqrt(B/mu + D^2/4)),   D = ||z - w_bar||,   the gap at z, times the step's contraction,
    c_j/(1 - c_j) ||x - z||,                               the fixed-point bound,
    rate(k) ||x^0 - x_hat||                                a priori, for `fista`.

X may live on any device; then all columns do, and the host only sees the estimates (on CUDA every few iterations) and
the columns that leave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, host, like, namespace, norm
from suffice.cuda.columns import ColumnProblems, are_alike, chosen, column
from suffice.cuda.memory import Stepper
from suffice.models.linear import CARRIED, LinearModel
from suffice.penalties.prox import L1, soft
from suffice.rows.rounding import gamma
from suffice.solvers.certificate import Evidence, certify_step
from suffice.solvers.momentum import FistaState, carried_size, contraction, majorised_contraction, momentum, rate
from suffice.solvers.problem import Canonical, Composite
from suffice.solvers.solution import Ask, Batch, Outcome, Solution, initial_radius

LOOK_EVERY = 20  # iterations between two looks at a batch whose steps are recorded


def share_a_design(problems: Sequence[Composite]) -> bool:
    """Whether the problems can be columns of one batch: linear models of one X and one psi, with an l1 penalty. Blocks
    of rows are gone through one problem at a time."""
    models: list[Any] = [problem.smooth for problem in problems]
    design = getattr(models[0], "design", None)
    alike = are_alike(models) and type(models[0]) is LinearModel and all(model.design is design for model in models)
    return alike and not models[0].design.rows.dear and all(isinstance(problem.prox, L1) for problem in problems)


@dataclass(frozen=True)
class FistaColumns:
    """What moves: matrices with one column per problem, and one number each.

    Z and G are the points and gradients of the last step that was made, `tau` its length or the next one to try. The
    margins M of W, those before and those of Z have no rows for `fista`, which needs none between steps.
    """

    W: Any
    W_before: Any
    M: Any
    M_before: Any
    Z: Any
    M_z: Any
    G: Any
    t: Any
    k: Any
    tau: Any
    taken: Any
    failed: Any

    def only(self, kept: list[int]) -> FistaColumns:
        return FistaColumns(*(chosen(value, kept) for value in vars(self).values()))


@dataclass(frozen=True)
class ColumnBatch(Batch):
    """Linear models of one X and one psi, with an l1 penalty, as columns of matrices."""

    solver: Any
    shared: ColumnProblems
    columns: FistaColumns
    stepper: Stepper

    @classmethod
    def holds(cls, asks: Sequence[Ask]) -> bool:
        return share_a_design([ask.problem for ask in asks])

    @classmethod
    def start(cls, solver: Any, problem: Canonical, x: Array) -> FistaState:
        """Without images, which cost one product for all."""
        return FistaState(x, x, t=0.0, k=0, tau=1.0 / problem.L if solver.adaptive else 0.0)

    @classmethod
    def of(cls, solver: Any, starts: Sequence[Solution]) -> ColumnBatch:
        shared = ColumnProblems.of([start.problem for start in starts])  # type: ignore[misc]
        return cls(solver, shared, _columns(shared, starts, solver.adaptive), _stepper(solver, shared))

    @property
    def look(self) -> int:  # type: ignore[override]
        return LOOK_EVERY if self.stepper.on_cuda else 1

    @property
    def crowd(self) -> float:  # type: ignore[override]
        # Another width means another recording: on CUDA columns that are proven stay until they are the half.
        return 0.5 if self.stepper.on_cuda else 1.0

    @property
    def problems(self) -> tuple[Composite, ...]:
        return self.shared.problems

    def advanced(self, steps: int) -> ColumnBatch:
        return replace(self, columns=self.stepper.advance(self.columns, steps))

    def estimates(self, start_radii: Array) -> Array:
        """The radii that `certify_step` would prove, but for rounding."""
        s, xp, shared = self.columns, namespace(self.columns.t), self.shared
        q = s.taken * shared.mu
        adaptive = self.solver.adaptive
        c = xp.sqrt((xp.maximum(1.0 - q, 0.0 * q) + 8.0 * EPS) / (1.0 + q)) if adaptive else 1.0 - q
        moved = xp.sqrt(xp.sum((s.W - s.Z) ** 2, axis=0))
        estimate = host(c * xp.minimum(shared.gaps(s.Z, s.G), moved / (1.0 - c)))
        if adaptive:
            return np.where(host(s.k) > 0.0, estimate, np.inf)
        kappas = (problem.canonical.kappa for problem in self.problems)
        rates = [rate(kappa, int(k)) for kappa, k in zip(kappas, host(s.k), strict=True)]
        return np.minimum(estimate, np.array(rates) * start_radii)

    def finite(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(host(self.columns.W)).all(axis=0) & np.isfinite(host(self.columns.tau))

    def start_radius(self, j: int) -> float:
        return initial_radius(self.problems[j].canonical, column(self.columns.W, j), self._evidence(j))

    def solution(self, j: int, start: Solution) -> Solution:
        """A column none of whose steps was made keeps the proof it had."""
        s, problem, adaptive, k = self.columns, self.problems[j], self.solver.adaptive, int(self.columns.k[j])
        x, image = column(s.W, j), _image(s.M, j)
        if not np.isfinite(x).all():  # beyond the range of floats nothing is known but the start
            return start
        evidence, proof = start.state.evidence, start.certificate
        if k > start.state.k:
            evidence = self._evidence(j)
            proof = certify_step(problem.canonical, x, image, evidence, "free", start.initial_radius)
        lengths = (float(s.tau[j]), float(s.taken[j]), bool(s.failed[j])) if adaptive else (0.0, 0.0, False)
        state = FistaState(x, column(s.W_before, j), float(s.t[j]), k, image, _image(s.M_before, j), evidence, *lengths)
        return replace(start, x=x, certificate=proof, outcome=Outcome.STEPS, state=state, problem=problem)

    def _evidence(self, j: int) -> Evidence:
        s, canonical, adaptive = self.columns, self.problems[j].canonical, self.solver.adaptive
        failed = adaptive and bool(s.failed[j]) and int(s.k[j]) > 0  # the length to try next is not the last step's
        tau = float(s.taken[j] if failed else s.tau[j])
        z, image, gradient, q = column(s.Z, j), _image(s.M_z, j), column(s.G, j), tau * canonical.mu
        if not adaptive:
            a_priori = rate(canonical.kappa, int(s.k[j]))
            return Evidence(z, image, gradient, tau, contraction(q), canonical.L, a_priori)
        size, rounding = carried_size(column(s.W_before, j), z), None
        if size > CARRIED * norm(z):  # z's image is blurred like that of a longer vector, and so is the gradient
            rounding = canonical.f.gradient_rounding(np.full(len(z), size / math.sqrt(len(z))), image)
        return Evidence(z, image, gradient, tau, majorised_contraction(q), 1.0 / tau, math.inf, rounding)

    def only(self, kept: list[int]) -> ColumnBatch:
        shared = self.shared.only(kept)
        return ColumnBatch(self.solver, shared, self.columns.only(kept), _stepper(self.solver, shared))


def _columns(shared: ColumnProblems, starts: Sequence[Solution], adaptive: bool) -> FistaColumns:
    """The starts as columns; images that a state does not hold cost one product for all."""
    xp, states, Y = namespace(shared.mu), [start.state for start in starts], shared.losses.Y

    def matrix(name: str) -> Any:
        return like(np.stack([getattr(state, name) for state in states], axis=1), shared.mu)

    def numbers(name: str) -> Any:
        return like(np.array([float(getattr(state, name)) for state in states]), shared.mu)

    def images(name: str, of: Any) -> Any:
        known = [getattr(state, name) for state in states]
        if any(image is None for image in known):
            return shared.design.margins(of)
        return xp.stack([like(image, shared.mu) for image in known], axis=1)

    W, W_before = matrix("x"), matrix("previous")
    if not adaptive:
        M = M_before = Y[:0, :]
    elif not any(state.x.any() or state.previous.any() for state in states):
        M = M_before = 0.0 * Y
    else:
        M, M_before = images("image", W), images("previous_image", W_before)
    tau = numbers("tau") if adaptive else 1.0 / shared.L
    return FistaColumns(
        *(W, W_before, M, M_before, W, M, 0.0 * W, numbers("t"), numbers("k"), tau, numbers("taken")),
        numbers("failed") > 0.5,
    )


def _stepper(solver: Any, shared: ColumnProblems) -> Stepper:
    make = _adaptive_step if solver.adaptive else _plain_step
    return Stepper(partial(make, solver, shared), on_cuda=getattr(shared.design.X, "is_cuda", False))


def _adaptive_step(solver: Any, shared: ColumnProblems, s: FistaColumns) -> FistaColumns:
    """One iteration of every column; a column whose step was too long stays where it is."""
    xp = namespace(s.t)
    longer = xp.where((s.k > 0.0) & ~s.failed, solver.grow * s.tau, s.tau)
    tau = xp.minimum(longer, 1.0 / shared.mu)
    q = tau * shared.mu
    t, beta = momentum(s.t, xp.where(s.taken > 0.0, s.taken * shared.mu, q), q)
    Z, M_z = s.W + beta * (s.W - s.W_before), s.M + beta * (s.M - s.M_before)
    W, G = _descended(shared, Z, M_z, tau)
    M = shared.design.margins(W)
    majoriser = _majoriser(shared, s.W, Z, M_z, W, M)
    made = tau * majoriser <= 1.0 + 4.0 * EPS
    shorter = xp.maximum(xp.minimum(solver.shrink * tau, 0.95 / majoriser), 1.0 / shared.L)
    new = (W, s.W, M, s.M, Z, M_z, G, t, s.k + 1.0, tau, tau)
    if isinstance(made, np.ndarray) and made.all():
        return FistaColumns(*new, ~made)
    old = (s.W, s.W_before, s.M, s.M_before, s.Z, s.M_z, s.G, s.t, s.k, shorter, s.taken)
    moved = (xp.where(made, one, other) for one, other in zip((*new, ~made), (*old, ~made), strict=True))
    return FistaColumns(*moved)


def _plain_step(solver: Any, shared: ColumnProblems, s: FistaColumns) -> FistaColumns:
    t, beta = momentum(s.t, s.tau * shared.mu)
    Z = s.W + beta * (s.W - s.W_before)
    W, G = _descended(shared, Z, shared.design.margins(Z), s.tau)
    return FistaColumns(W, s.W, s.M, s.M_before, Z, s.M_z, G, t, s.k + 1.0, s.tau, s.tau, s.failed)


def _descended(shared: ColumnProblems, Z: Any, M_z: Any, tau: Any) -> tuple[Any, Any]:
    """The next W, and the gradients at Z."""
    G = shared.gradients(Z, M_z)
    return soft(Z - tau * G, tau * shared.l1), G


def _majoriser(shared: ColumnProblems, W_before: Any, Z: Any, M_z: Any, W: Any, M: Any) -> Any:
    """`suffice.models.linear.majoriser_along`, column by column, and no larger than L."""
    xp, losses, design = namespace(M), shared.losses, shared.design
    change, moved = M - M_z, _norms(W - Z)
    curvature = losses.loss.curvature_between(M_z, M, losses.Y)
    along = xp.sqrt(xp.sum(losses.a * curvature * change * change, axis=0))
    sizes = _norms(W) + 3.0 * _norms(W_before) + _norms(Z - W_before)  # see `carried_size`
    spread = gamma(design.row_length + 8) * design.frobenius_norm * math.sqrt(losses.loss.curvature) * sizes
    bound = along * (1.0 + gamma(design.shape[0] + 8)) + spread
    known = moved > 1e-150
    return xp.where(known, xp.minimum((bound / xp.where(known, moved, 1.0)) ** 2 + shared.l2, shared.L), shared.L)


def _norms(columns: Any) -> Any:
    xp = namespace(columns)
    return xp.sqrt(xp.sum(columns * columns, axis=0))


def _image(margins: Any, j: int) -> Any:
    """Column j of margins as it is kept: a copy, where it lives; None where there are none."""
    if margins.shape[0] == 0:
        return None
    return column(margins, j) if isinstance(margins, np.ndarray) else margins[:, j] + 0.0
