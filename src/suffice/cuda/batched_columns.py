r"""FISTA for many linear models that share X: one iteration on matrices, one product with X and one with X^T.

Column j has its own targets y_j, penalties (l1_j, l2_j), step length tau_j, momentum t_j and requested accuracy: the
classes of a data set, folds, the first points of a search, many starts. The method is `fista` or `fista_adaptive`,
column by column as in `suffice.solvers.fista`; only the rounding of the products differs. Radii are estimated, for all
columns at once, by the least of

    c_j (D/2 + sqrt(B/mu + D^2/4)),   D = ||z - w_bar||,   the gap at z, times the step's contraction,
    c_j/(1 - c_j) ||x - z||,                               the fixed-point bound,
    rate(k) ||x^0 - x_hat||                                a priori, for `fista`.

X may live on any device; then all columns do, and the host only sees the estimates (on CUDA every few iterations) and
the columns that leave. On a CUDA device both are made of a few kernels of their own (`suffice.cuda.fused`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, host, like, namespace, norm
from suffice.cuda import fused
from suffice.cuda.memory import Stepper
from suffice.models.linear import CARRIED, LinearModel
from suffice.penalties.prox import L1
from suffice.rows.blocks import Blocked
from suffice.rows.design import Design
from suffice.rows.rounding import gamma
from suffice.solvers.certificate import Evidence, certify_step
from suffice.solvers.momentum import FistaState, carried_size, contraction, majorised_contraction, rate
from suffice.solvers.problem import Canonical, Composite
from suffice.solvers.solution import Ask, Outcome, Solution, initial_radius

LOOK_EVERY = 20  # iterations between two looks at a batch whose steps are recorded


def share_a_design(problems: Sequence[Composite]) -> bool:
    """Whether the problems can be columns of one batch: linear models of one X and one psi, with an l1 penalty. Blocks
    of rows are gone through one problem at a time."""
    first = problems[0].smooth
    return (
        isinstance(first, LinearModel)
        and not isinstance(first.design.X, Blocked)
        and all(
            isinstance(problem.smooth, LinearModel)
            and isinstance(problem.prox, L1)
            and problem.smooth.design is first.design
            and problem.smooth.loss == first.loss
            for problem in problems
        )
    )


@dataclass(frozen=True)
class Shared:
    """What stays the same: X with its weights, psi, and the columns' targets, penalties and constants.

    `iteration` is one step made elsewhere (`suffice.cuda.fused`), where there is one."""

    problems: tuple[Composite, ...]
    solver: Any
    design: Design
    weights: Any
    loss: Any
    Y: Any
    l1: Any
    l2: Any
    mu: Any
    L: Any
    iteration: Any = None

    @classmethod
    def of(cls, problems: Sequence[Composite], solver: Any) -> Shared:
        first = problems[0].smooth
        assert isinstance(first, LinearModel)
        xp = namespace(first.design.weights)
        quick = fused.available(first.design.X, first.loss)

        def per_column(values: list[float]) -> Any:
            return like(np.array(values), first.design.weights)

        made = cls(
            tuple(problems),
            solver,
            first.design,
            first.design.weights,
            first.loss,
            xp.stack([problem.smooth.y for problem in problems], axis=1),  # type: ignore[attr-defined]
            per_column([problem.prox.l1 for problem in problems]),  # type: ignore[attr-defined]
            per_column([problem.smooth.l2 for problem in problems]),  # type: ignore[attr-defined]
            per_column([problem.canonical.mu for problem in problems]),
            per_column([problem.canonical.L for problem in problems]),
        )
        return made._with_iteration() if quick else made

    @property
    def adaptive(self) -> bool:
        return bool(self.solver.adaptive)

    def only(self, kept: list[int]) -> Shared:
        columns = {name: _chosen(getattr(self, name), kept) for name in ("Y", "l1", "l2", "mu", "L")}
        made = replace(self, problems=tuple(self.problems[j] for j in kept), **columns)
        return made if self.iteration is None else made._with_iteration()

    def _with_iteration(self) -> Shared:
        given = (self.design, self.loss, self.Y, self.l1, self.l2, self.mu, self.L)
        if not self.adaptive:
            return replace(self, iteration=fused.iteration(*given))
        made = fused.adaptive_iteration(*given, self.solver.grow, self.solver.shrink)
        return replace(self, iteration=made)


@dataclass(frozen=True)
class Columns:
    """What moves: matrices with one column per problem, and one number each.

    Z and G are the points and gradients of the last step that was made, `tau` its length or the next one to try. The
    margins M of W, those before and those of Z have no rows for `fista`, which needs none between steps, and those of Z
    have none where steps are made elsewhere.
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

    def only(self, kept: list[int]) -> Columns:
        return Columns(*(_chosen(value, kept) for value in vars(self).values()))


@dataclass(frozen=True)
class ColumnBatch:
    """Linear models of one X and one psi, with an l1 penalty, as columns of matrices."""

    shared: Shared
    columns: Columns
    stepper: Stepper
    again: float = 0.9
    alone: ClassVar[bool] = False

    @classmethod
    def holds(cls, asks: Sequence[Ask]) -> bool:
        return share_a_design([ask.problem for ask in asks])

    @classmethod
    def start(cls, solver: Any, problem: Canonical, x: Array) -> FistaState:
        """Without images, which cost one product for all."""
        return FistaState(x, x, t=0.0, k=0, tau=1.0 / problem.L if solver.adaptive else 0.0)

    @classmethod
    def of(cls, solver: Any, starts: Sequence[Solution]) -> ColumnBatch:
        shared = Shared.of([start.problem for start in starts], solver)  # type: ignore[misc]
        return cls(shared, _columns(shared, starts), _stepper(shared))

    @property
    def look(self) -> int:
        return LOOK_EVERY if self.stepper.on_cuda else 1

    @property
    def crowd(self) -> float:
        # Another width means another recording: on CUDA columns that are proven stay until they are the half.
        return 0.5 if self.stepper.on_cuda else 1.0

    def advanced(self, steps: int) -> ColumnBatch:
        return replace(self, columns=self.stepper.advance(self.columns, steps))

    def estimates(self, start_radii: Array) -> Array:
        return _estimate(self.shared, self.columns, start_radii)

    def finite(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(host(self.columns.W)).all(axis=0) & np.isfinite(host(self.columns.tau))

    def ended(self) -> npt.NDArray[np.bool_]:
        return np.zeros(len(self.shared.problems), dtype=np.bool_)

    def start_radius(self, j: int) -> float:
        x, evidence = column(self.columns.W, j), _evidence(self.shared, self.columns, j)
        return initial_radius(self.shared.problems[j].canonical, x, evidence)

    def solution(self, j: int, start: Solution) -> Solution:
        return _solution(self.shared, self.columns, j, start)

    def only(self, kept: list[int]) -> ColumnBatch:
        shared = self.shared.only(kept)
        return replace(self, shared=shared, columns=self.columns.only(kept), stepper=_stepper(shared))


def _columns(shared: Shared, starts: Sequence[Solution]) -> Columns:
    """The starts as columns; images that a state does not hold cost one product for all."""
    xp, states = namespace(shared.mu), [start.state for start in starts]

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
    if not shared.adaptive:
        M = M_before = shared.Y[:0, :]
    elif not any(state.x.any() or state.previous.any() for state in states):
        M = M_before = 0.0 * shared.Y
    else:
        M, M_before = images("image", W), images("previous_image", W_before)
    tau = numbers("tau") if shared.adaptive else 1.0 / shared.L
    failed = numbers("failed") > 0.5
    M_z = M if shared.iteration is None else shared.Y[:0, :]
    return Columns(
        *(W, W_before, M, M_before, W, M_z, 0.0 * W, numbers("t"), numbers("k"), tau, numbers("taken"), failed)
    )


def _stepper(shared: Shared) -> Stepper:
    return Stepper(lambda columns: _step(shared, columns), on_cuda=getattr(shared.design.X, "is_cuda", False))


def _step(shared: Shared, s: Columns) -> Columns:
    """One iteration of every column; a column whose step was too long stays where it is."""
    if not shared.adaptive:
        return _plain_step(shared, s)
    if shared.iteration is not None:
        return replace(s, **shared.iteration(s))
    xp = namespace(s.t)
    longer = xp.where((s.k > 0.0) & ~s.failed, shared.solver.grow * s.tau, s.tau)
    tau = xp.minimum(longer, 1.0 / shared.mu)
    q = tau * shared.mu
    t, beta = _momentum(s.t, xp.where(s.taken > 0.0, s.taken * shared.mu, q), q)
    Z, M_z = s.W + beta * (s.W - s.W_before), s.M + beta * (s.M - s.M_before)
    W, G = _descended(shared, Z, M_z, tau)
    M = shared.design.margins(W)
    majoriser = _majoriser(shared, s.W, Z, M_z, W, M)
    made = tau * majoriser <= 1.0 + 4.0 * EPS
    shorter = xp.maximum(xp.minimum(shared.solver.shrink * tau, 0.95 / majoriser), 1.0 / shared.L)
    if isinstance(made, np.ndarray) and made.all():
        return Columns(W, s.W, M, s.M, Z, M_z, G, t, s.k + 1.0, tau, tau, ~made)

    def chosen(new: Any, old: Any) -> Any:
        return xp.where(made, new, old)

    return Columns(
        chosen(W, s.W),
        chosen(s.W, s.W_before),
        chosen(M, s.M),
        chosen(s.M, s.M_before),
        chosen(Z, s.Z),
        chosen(M_z, s.M_z),
        chosen(G, s.G),
        chosen(t, s.t),
        chosen(s.k + 1.0, s.k),
        chosen(tau, shorter),
        chosen(tau, s.taken),
        ~made,
    )


def _plain_step(shared: Shared, s: Columns) -> Columns:
    if shared.iteration is not None:
        W, Z, G, t, k = shared.iteration(s.W, s.W_before, s.t, s.k)
    else:
        q = s.tau * shared.mu
        t, beta = _momentum(s.t, q, q)
        Z, k = s.W + beta * (s.W - s.W_before), s.k + 1.0
        W, G = _descended(shared, Z, shared.design.margins(Z), s.tau)
    return Columns(W, s.W, s.M, s.M_before, Z, s.M_z, G, t, k, s.tau, s.tau, s.failed)


def _descended(shared: Shared, Z: Any, M_z: Any, tau: Any) -> tuple[Any, Any]:
    """The next W, and the gradients at Z."""
    xp = namespace(Z)
    derivative = shared.loss.derivative(M_z, shared.Y)
    derivative *= shared.weights[:, None]
    G = shared.design.pull(derivative) + shared.l2 * Z
    V, threshold = Z - tau * G, tau * shared.l1
    return V - xp.minimum(xp.maximum(V, -threshold), threshold), G


def _momentum(t: Any, q: Any, q_next: Any) -> tuple[Any, Any]:
    """`suffice.solvers.fista.momentum`, column by column."""
    xp = namespace(t)
    a = 1.0 - q * t * t
    t_next = 0.5 * (a + xp.sqrt(a * a + 4.0 * (q / q_next) * t * t))
    void = 1.0 - q_next < 1e-12
    beta = (t - 1.0) * (1.0 - q_next * t_next) / (t_next * xp.where(void, 1.0, 1.0 - q_next))
    return t_next, xp.where(void, 0.0, beta)


def _majoriser(shared: Shared, W_before: Any, Z: Any, M_z: Any, W: Any, M: Any) -> Any:
    """`suffice.models.linear.majoriser_along`, column by column, and no larger than L."""
    xp = namespace(M)
    change, moved = M - M_z, _norms(W - Z)
    curvature = shared.loss.curvature_between(M_z, M, shared.Y)
    along = xp.sqrt(xp.sum(shared.weights[:, None] * curvature * change * change, axis=0))
    sizes = _norms(W) + 3.0 * _norms(W_before) + _norms(Z - W_before)  # see `carried_size`
    design = shared.design
    spread = gamma(design.row_length + 8) * design.frobenius_norm * math.sqrt(shared.loss.curvature) * sizes
    bound = along * (1.0 + gamma(design.shape[0] + 8)) + spread
    known = moved > 1e-150
    return xp.where(known, xp.minimum((bound / xp.where(known, moved, 1.0)) ** 2 + shared.l2, shared.L), shared.L)


def _norms(columns: Any) -> Any:
    xp = namespace(columns)
    return xp.sqrt(xp.sum(columns * columns, axis=0))


def _estimate(shared: Shared, s: Columns, start_radii: Array) -> Array:
    """The radii that `certify_step` would prove, but for rounding."""
    xp = namespace(s.t)
    q = s.taken * shared.mu
    c = xp.sqrt((xp.maximum(1.0 - q, 0.0 * q) + 8.0 * EPS) / (1.0 + q)) if shared.adaptive else 1.0 - q
    V = shared.mu * s.Z - s.G
    p = xp.minimum(xp.maximum(V, -shared.l1), shared.l1)
    B = xp.sum(shared.l1 * xp.abs(s.Z) - s.Z * p, axis=0)
    D_squared = xp.sum((s.Z - (V - p) / shared.mu) ** 2, axis=0)
    gap = 0.5 * xp.sqrt(D_squared) + xp.sqrt(B / shared.mu + 0.25 * D_squared)
    moved = xp.sqrt(xp.sum((s.W - s.Z) ** 2, axis=0))
    estimate = host(c * xp.minimum(gap, moved / (1.0 - c)))
    if shared.adaptive:
        return np.where(host(s.k) > 0.0, estimate, np.inf)
    a_priori = [
        rate(problem.canonical.L / problem.canonical.mu, int(k)) * radius
        for problem, k, radius in zip(shared.problems, host(s.k), start_radii, strict=True)
    ]
    return np.minimum(estimate, a_priori)


def _evidence(shared: Shared, s: Columns, j: int) -> Evidence:
    canonical = shared.problems[j].canonical
    tau = float(s.tau[j])
    q = tau * canonical.mu
    if shared.adaptive:
        c, majoriser, a_priori = majorised_contraction(q), 1.0 / tau, math.inf
    else:
        c, majoriser = contraction(q), canonical.L
        a_priori = rate(canonical.L / canonical.mu, int(s.k[j]))
    z, image, rounding = column(s.Z, j), _image(s.M_z, j), None
    if shared.adaptive:
        before = column(s.W_before, j)
        size = carried_size(before, z)
        if size > CARRIED * norm(z):  # z's image is blurred like that of a longer vector, and so is the gradient
            rounding = canonical.f.gradient_rounding(np.full(len(z), size / math.sqrt(len(z))), image)
    return Evidence(z, image, column(s.G, j), tau, c, majoriser, a_priori, rounding)


def _solution(shared: Shared, s: Columns, j: int, start: Solution) -> Solution:
    """Column j with its proof; a column none of whose steps was made keeps the proof it had."""
    problem, k = shared.problems[j], int(s.k[j])
    x, image = column(s.W, j), _image(s.M, j)
    if not np.isfinite(x).all():  # beyond the range of floats nothing is known but the start
        return start
    tau, taken = (float(s.tau[j]), float(s.taken[j])) if shared.adaptive else (0.0, 0.0)
    made = k > start.state.k
    evidence = _evidence(shared, s, j) if made else start.state.evidence
    if made and shared.adaptive and bool(s.failed[j]):  # the length to try next is not that of the last step
        evidence = _evidence(shared, replace(s, tau=s.taken), j)
    state = FistaState(
        *(x, column(s.W_before, j), float(s.t[j]), k, image, _image(s.M_before, j), evidence),
        *(tau, taken, shared.adaptive and bool(s.failed[j])),
    )
    proof = start.certificate
    if made:
        proof = certify_step(problem.canonical, x, image, evidence, "free", start.initial_radius)
    return replace(start, x=x, certificate=proof, outcome=Outcome.STEPS, state=state, problem=problem)


def column(matrix: Any, j: int) -> Array:
    """Column j on the host, a copy that nobody writes to."""
    column = np.ascontiguousarray(host(matrix[:, j]))
    column = column.copy() if column.base is not None else column
    column.setflags(write=False)
    return column


def _image(margins: Any, j: int) -> Any:
    """Column j of margins as it is kept: a copy, where it lives; None where there are none."""
    if margins.shape[0] == 0:
        return None
    return column(margins, j) if isinstance(margins, np.ndarray) else margins[:, j] + 0.0


def _chosen(value: Any, kept: list[int]) -> Any:
    xp = namespace(value)
    index = np.array(kept) if xp is np else xp.asarray(np.array(kept), device=value.device)
    return xp.take(value, index, axis=-1)
