r"""FISTA for many linear models that share X: one iteration on matrices, one product with X and one with X^T.

Column j has its own targets y_j, penalties (l1_j, l2_j), step length tau_j, momentum t_j and requested accuracy: the
classes of a data set, folds, the first points of a search, many starts. The method is `fista` or `fista_adaptive`,
column by column as in `suffice.lower.fista`; only the rounding of the products differs.

A column leaves the batch when it is proven. Proofs are made in one place, `certify_step`; it is asked about a column
as soon as an estimate of its radius, without rounding and for all columns at once, says that it may succeed:

    c_j (D/2 + sqrt(B/mu + D^2/4)),   D = ||z - w_bar||,   the gap at z, times the step's contraction,
    c_j/(1 - c_j) ||x - z||,                               the fixed-point bound,
    rate(k) ||x^0 - x_hat||                                a priori, for `fista`.

X may live on any device; then all columns do, and the host only sees the estimates (on CUDA every few iterations) and
the columns that leave. `fista` on a CUDA device is made of a few kernels of its own (`suffice.lower.fused`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice._array import EPS, Array, host, like, namespace, norm
from suffice.lower import fused, together_tv
from suffice.lower.certificate import Certificate, Evidence, certify_step
from suffice.lower.cuda import Stepper
from suffice.lower.fista import AdaptiveFista, FistaState, carried_size, contraction, majorised_contraction, rate
from suffice.lower.solver import Outcome, Solution, Solver, continues, initial_radius, out_of_reach, solve, start_point
from suffice.problem import Composite
from suffice.terms.design import Design
from suffice.terms.prox import L1
from suffice.terms.rounding import gamma
from suffice.terms.smooth import CARRIED, LinearModel

METHODS = ("fista", "fista_adaptive")
LOOK_EVERY = 20  # iterations between two looks at a batch whose steps are recorded


def share_a_design(problems: Sequence[Composite]) -> bool:
    """Whether the problems can be columns of one batch: linear models of one X and one psi, with an l1 penalty."""
    first = problems[0].smooth
    return isinstance(first, LinearModel) and all(
        isinstance(problem.smooth, LinearModel)
        and isinstance(problem.prox, L1)
        and problem.smooth.design is first.design
        and problem.smooth.loss == first.loss
        for problem in problems
    )


@dataclass(frozen=True)
class Ask:
    """A solve that is wanted: the arguments of `solve`."""

    problem: Composite
    warm: Solution | Array | None = None
    within: float | None = None
    steps: int | None = None
    max_steps: int | None = None
    enough: Callable[[Solution], bool] | None = None


def solve_each(asks: Sequence[Ask], solver: str | Solver) -> list[Solution]:
    """`solve` for every ask; linear models that share a design go together where the solver can."""
    solutions: dict[int, Solution] = {}
    for numbers in _groups(asks, solver):
        group = [asks[j] for j in numbers]
        first = group[0]
        if len(group) == 1:
            found = [
                solve(
                    first.problem,
                    within=first.within,
                    steps=first.steps,
                    solver=solver,
                    warm=first.warm,
                    max_steps=first.max_steps if first.steps is None else None,
                    enough=first.enough,
                )
            ]
        elif not share_a_design([first.problem]) and first.steps is not None:
            found = together_tv.steps_together([ask.problem for ask in group], first.steps, str(solver))
        elif not share_a_design([first.problem]):
            found = together_tv.solve_images(
                [ask.problem for ask in group],
                within=[float(ask.within or 0.0) for ask in group],
                solver=str(solver),
                warm=[ask.warm for ask in group],
                max_steps=[_limit(ask) for ask in group],
            )
        else:
            found = solve_together(
                [ask.problem for ask in group],
                within=None if first.within is None else [float(ask.within or 0.0) for ask in group],
                steps=first.steps,
                solver=str(solver),
                warm=[ask.warm for ask in group],
                max_steps=None if first.steps is not None else [_limit(ask) for ask in group],
            )
        solutions |= dict(zip(numbers, found, strict=True))
    return [solutions[j] for j in range(len(asks))]


def _groups(asks: Sequence[Ask], solver: str | Solver) -> list[list[int]]:
    """Numbers of asks that go together: columns of one design, or images of one format (as many steps from 0, or small
    ones to any accuracy)."""
    groups: list[list[int]] = []
    for j, ask in enumerate(asks):
        for group in groups:
            if _go_together(asks[group[0]], ask, solver):
                group.append(j)
                break
        else:
            groups.append([j])
    return groups


def _go_together(one: Ask, other: Ask, solver: str | Solver) -> bool:
    pair = [one.problem, other.problem]
    if one.steps != other.steps or not isinstance(solver, str):
        return False
    if solver in METHODS and share_a_design(pair):
        return True
    cold = one.warm is None and other.warm is None
    small = (one.problem.size or math.inf) <= together_tv.SMALL
    stacked = small if one.steps is None else cold and one.steps > 0
    return stacked and solver in together_tv.METHODS and together_tv.share_a_format(pair)


def _limit(ask: Ask) -> float:
    return math.inf if ask.max_steps is None else ask.max_steps


@dataclass(frozen=True)
class Batch:
    """What stays the same: X with its weights, psi, and the columns' targets, penalties and constants.

    `iteration` is one step of `fista` made elsewhere (`suffice.lower.fused`), where there is one."""

    problems: tuple[Composite, ...]
    adaptive: bool
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
    def of(cls, problems: Sequence[Composite], solver: str) -> Batch:
        first = problems[0].smooth
        assert isinstance(first, LinearModel)
        adaptive, xp = solver == "fista_adaptive", namespace(first.design.weights)
        quick = not adaptive and fused.available(first.design.X, first.loss)

        def per_column(values: list[float]) -> Any:
            return like(np.array(values), first.design.weights)

        made = cls(
            tuple(problems),
            adaptive,
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

    def only(self, kept: list[int]) -> Batch:
        columns = {name: _chosen(getattr(self, name), kept) for name in ("Y", "l1", "l2", "mu", "L")}
        made = replace(self, problems=tuple(self.problems[j] for j in kept), **columns)
        return made if self.iteration is None else made._with_iteration()

    def _with_iteration(self) -> Batch:
        made = fused.iteration(self.design, self.loss, self.Y, self.l1, self.l2, self.mu, self.L)
        return replace(self, iteration=made)


@dataclass(frozen=True)
class Columns:
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

    def only(self, kept: list[int]) -> Columns:
        return Columns(*(_chosen(value, kept) for value in vars(self).values()))


def solve_together(
    problems: Sequence[Composite],
    *,
    within: Sequence[float] | None = None,
    steps: int | None = None,
    solver: str = "fista",
    warm: Sequence[Solution | Array | None] | None = None,
    max_steps: float | Sequence[float] | None = None,
) -> list[Solution]:
    """`solve` for every problem, for problems that `share_a_design`: `within` and `warm` hold one entry per problem."""
    if (within is None) == (steps is None):
        raise ValueError(f"give exactly one of within and steps, got within={within!r}, steps={steps!r}")
    if solver not in METHODS:
        raise ValueError(f"solver must be one of {', '.join(METHODS)}, got {solver!r}")
    if not share_a_design(problems):
        raise ValueError("problems must be linear models that share one design and one loss, with an l1 penalty")
    warm = [None] * len(problems) if warm is None else warm
    starts = [_start(problem, one, solver) for problem, one in zip(problems, warm, strict=True)]
    limits = np.broadcast_to(np.asarray(np.inf if max_steps is None else max_steps, dtype=np.float64), len(problems))
    with np.errstate(over="ignore", invalid="ignore"):  # of columns that leave the range of floats: they end
        if within is None:
            return _fixed(problems, steps or 0, solver, starts)
        return _proven(problems, [float(one) for one in within], solver, starts, limits)


def _fixed(problems: Sequence[Composite], steps: int, solver: str, starts: list[Solution]) -> list[Solution]:
    if steps == 0:
        return starts
    batch = Batch.of(problems, solver)
    radii = [start.initial_radius for start in starts]
    columns, stepper, taken = _columns(batch, starts), _stepper(batch), 0
    if any(start.steps == 0 for start in starts):
        columns, taken = stepper.advance(columns, 1), 1
        radii = _initial_radii(batch, columns, starts)
    columns = stepper.advance(columns, steps - taken)
    return [
        _solution(batch, columns, j, replace(start, initial_radius=radii[j], steps=start.steps + steps))
        for j, start in enumerate(starts)
    ]


def _proven(
    problems: Sequence[Composite], within: list[float], solver: str, starts: list[Solution], limits: Array
) -> list[Solution]:
    solutions: list[Solution] = list(starts)
    left = []  # the numbers of the columns still in the batch
    for j, start in enumerate(starts):
        if start.certificate.radius <= within[j]:
            solutions[j] = replace(start, outcome=Outcome.REACHED)
        elif out_of_reach(start.certificate, within[j]):
            solutions[j] = replace(start, outcome=Outcome.PRECISION)
        elif limits[j] == 0:
            solutions[j] = replace(start, outcome=Outcome.MAX_STEPS)
        else:
            left.append(j)
    if not left:
        return solutions
    batch = Batch.of([problems[j] for j in left], solver)
    columns, stepper = _columns(batch, [starts[j] for j in left]), _stepper(batch)
    look = LOOK_EVERY if stepper.on_cuda else 1
    asked = np.array([within[j] for j in left])
    goal, best, best_at = asked.copy(), np.full(len(left), np.inf), np.zeros(len(left))
    patience = np.array([100.0 + 20.0 * math.sqrt(problems[j].kappa) for j in left])
    taken, proven = 0, set[int]()
    while left:
        count = 1 if taken == 0 else int(min(look, min(limits[j] for j in left if j not in proven) - taken))
        columns = stepper.advance(columns, count)
        taken += count
        if taken == 1:
            radii = _initial_radii(batch, columns, [starts[j] for j in left])
            for j, radius in zip(left, radii, strict=True):
                starts[j] = replace(starts[j], initial_radius=radius)
        estimate = _estimate(batch, columns, [starts[j] for j in left])
        better = estimate < 0.999 * best
        best, best_at = np.where(better, estimate, best), np.where(better, taken, best_at)
        stuck = taken - best_at > patience
        if not np.isfinite(estimate).all():
            stuck |= ~(np.isfinite(host(columns.W)).all(axis=0) & np.isfinite(host(columns.tau)))
        spent = np.array([taken >= limits[j] for j in left])
        kept = []
        for i in range(len(left)):
            if left[i] in proven:
                continue
            if not (estimate[i] <= goal[i] or stuck[i] or spent[i]):
                kept.append(i)
                continue
            start = starts[left[i]]
            solution = _solution(batch, columns, i, replace(start, steps=start.steps + taken))
            proof = solution.certificate
            if proof.radius <= asked[i]:
                outcome = Outcome.REACHED
            elif out_of_reach(proof, asked[i]) or stuck[i]:
                outcome = Outcome.PRECISION
            elif spent[i]:
                outcome = Outcome.MAX_STEPS
            else:
                # Rounding, which the estimate leaves out, spoils the proof: ask again when it would not.
                least = asked[i] - proof.rounding if asked[i] > proof.rounding else proof.rounding
                goal[i] = min(least, 0.9 * estimate[i])
                kept.append(i)
                continue
            solutions[left[i]] = replace(solution, outcome=outcome)
            proven.add(left[i])
        # Another width means another recording: on CUDA columns that are proven stay until they are the half.
        if not kept or len(kept) < (0.5 * len(left) if stepper.on_cuda else len(left)):
            left = [left[i] for i in kept]
            goal, best, best_at, patience, asked = (a[kept] for a in (goal, best, best_at, patience, asked))
            if left:
                batch, columns = batch.only(kept), columns.only(kept)
                stepper = _stepper(batch)
    return solutions


def _start(problem: Composite, warm: Solution | Array | None, solver: str) -> Solution:
    """The solution that is to be continued, or a new one of no steps."""
    if isinstance(warm, Solution) and continues(warm, problem, solver) and warm.state is not None:
        return warm
    x = start_point(problem, warm)
    state = FistaState(x, x, t=0.0, k=0, tau=1.0 / problem.canonical.L if solver == "fista_adaptive" else 0.0)
    return Solution(x, Certificate(math.inf, "tightest"), 0, Outcome.STEPS, solver, state, problem=problem)


def _columns(batch: Batch, starts: Sequence[Solution]) -> Columns:
    """The starts as columns; images that a state does not hold cost one product for all."""
    xp, states = namespace(batch.mu), [start.state for start in starts]

    def matrix(name: str) -> Any:
        return like(np.stack([getattr(state, name) for state in states], axis=1), batch.mu)

    def numbers(name: str) -> Any:
        return like(np.array([float(getattr(state, name)) for state in states]), batch.mu)

    def images(name: str, of: Any) -> Any:
        known = [getattr(state, name) for state in states]
        if any(image is None for image in known):
            return batch.design.margins(of)
        return xp.stack([like(image, batch.mu) for image in known], axis=1)

    W, W_before = matrix("x"), matrix("previous")
    if not batch.adaptive:
        M = M_before = batch.Y[:0, :]
    elif not any(state.x.any() or state.previous.any() for state in states):
        M = M_before = 0.0 * batch.Y
    else:
        M, M_before = images("image", W), images("previous_image", W_before)
    tau = numbers("tau") if batch.adaptive else 1.0 / batch.L
    failed = numbers("failed") > 0.5
    return Columns(
        *(W, W_before, M, M_before, W, M, 0.0 * W, numbers("t"), numbers("k"), tau, numbers("taken"), failed)
    )


def _stepper(batch: Batch) -> Stepper:
    return Stepper(lambda columns: _step(batch, columns), on_cuda=getattr(batch.design.X, "is_cuda", False))


def _step(batch: Batch, s: Columns) -> Columns:
    """One iteration of every column; a column whose step was too long stays where it is."""
    if not batch.adaptive:
        return _plain_step(batch, s)
    xp = namespace(s.t)
    method = AdaptiveFista()
    longer = xp.where((s.k > 0.0) & ~s.failed, method.grow * s.tau, s.tau)
    tau = xp.minimum(longer, 1.0 / batch.mu)
    q = tau * batch.mu
    t, beta = _momentum(s.t, xp.where(s.taken > 0.0, s.taken * batch.mu, q), q)
    Z, M_z = s.W + beta * (s.W - s.W_before), s.M + beta * (s.M - s.M_before)
    W, G = _descended(batch, Z, M_z, tau)
    M = batch.design.margins(W)
    majoriser = _majoriser(batch, s.W, Z, M_z, W, M)
    made = tau * majoriser <= 1.0 + 4.0 * EPS
    shorter = xp.maximum(xp.minimum(method.shrink * tau, 0.95 / majoriser), 1.0 / batch.L)
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


def _plain_step(batch: Batch, s: Columns) -> Columns:
    if batch.iteration is not None:
        W, Z, G, t = batch.iteration(s.W, s.W_before, s.t)
    else:
        q = s.tau * batch.mu
        t, beta = _momentum(s.t, q, q)
        Z = s.W + beta * (s.W - s.W_before)
        W, G = _descended(batch, Z, batch.design.margins(Z), s.tau)
    return Columns(W, s.W, s.M, s.M_before, Z, s.M_z, G, t, s.k + 1.0, s.tau, s.tau, s.failed)


def _descended(batch: Batch, Z: Any, M_z: Any, tau: Any) -> tuple[Any, Any]:
    """The next W, and the gradients at Z."""
    xp = namespace(Z)
    derivative = batch.loss.derivative(M_z, batch.Y)
    derivative *= batch.weights[:, None]
    G = batch.design.pull(derivative) + batch.l2 * Z
    V, threshold = Z - tau * G, tau * batch.l1
    return V - xp.minimum(xp.maximum(V, -threshold), threshold), G


def _momentum(t: Any, q: Any, q_next: Any) -> tuple[Any, Any]:
    """`suffice.lower.fista.momentum`, column by column."""
    xp = namespace(t)
    a = 1.0 - q * t * t
    t_next = 0.5 * (a + xp.sqrt(a * a + 4.0 * (q / q_next) * t * t))
    void = 1.0 - q_next < 1e-12
    beta = (t - 1.0) * (1.0 - q_next * t_next) / (t_next * xp.where(void, 1.0, 1.0 - q_next))
    return t_next, xp.where(void, 0.0, beta)


def _majoriser(batch: Batch, W_before: Any, Z: Any, M_z: Any, W: Any, M: Any) -> Any:
    """`suffice.terms.smooth.majoriser_along`, column by column, and no larger than L."""
    xp = namespace(M)
    change, moved = M - M_z, _norms(W - Z)
    curvature = batch.loss.curvature_between(M_z, M, batch.Y)
    along = xp.sqrt(xp.sum(batch.weights[:, None] * curvature * change * change, axis=0))
    sizes = _norms(W) + 3.0 * _norms(W_before) + _norms(Z - W_before)  # see `carried_size`
    spread = gamma(batch.design.row_length + 8) * batch.design.frobenius_norm * math.sqrt(batch.loss.curvature) * sizes
    bound = along * (1.0 + gamma(batch.design.shape[0] + 8)) + spread
    known = moved > 1e-150
    return xp.where(known, xp.minimum((bound / xp.where(known, moved, 1.0)) ** 2 + batch.l2, batch.L), batch.L)


def _norms(columns: Any) -> Any:
    xp = namespace(columns)
    return xp.sqrt(xp.sum(columns * columns, axis=0))


def _estimate(batch: Batch, s: Columns, starts: Sequence[Solution]) -> Array:
    """The radii that `certify_step` would prove, but for rounding."""
    xp = namespace(s.t)
    q = s.taken * batch.mu
    c = xp.sqrt((xp.maximum(1.0 - q, 0.0 * q) + 8.0 * EPS) / (1.0 + q)) if batch.adaptive else 1.0 - q
    V = batch.mu * s.Z - s.G
    p = xp.minimum(xp.maximum(V, -batch.l1), batch.l1)
    B = xp.sum(batch.l1 * xp.abs(s.Z) - s.Z * p, axis=0)
    D_squared = xp.sum((s.Z - (V - p) / batch.mu) ** 2, axis=0)
    gap = 0.5 * xp.sqrt(D_squared) + xp.sqrt(B / batch.mu + 0.25 * D_squared)
    moved = xp.sqrt(xp.sum((s.W - s.Z) ** 2, axis=0))
    estimate = host(c * xp.minimum(gap, moved / (1.0 - c)))
    if batch.adaptive:
        return np.where(host(s.k) > 0.0, estimate, np.inf)
    a_priori = [
        rate(problem.canonical.L / problem.canonical.mu, int(k)) * start.initial_radius
        for problem, k, start in zip(batch.problems, host(s.k), starts, strict=True)
    ]
    return np.minimum(estimate, a_priori)


def _initial_radii(batch: Batch, s: Columns, starts: Sequence[Solution]) -> list[float]:
    """What the first gradient of a new column proves about its start."""
    return [
        start.initial_radius
        if start.steps > 0
        else initial_radius(batch.problems[j].canonical, _column(s.W, j), _evidence(batch, s, j))
        for j, start in enumerate(starts)
    ]


def _evidence(batch: Batch, s: Columns, j: int) -> Evidence:
    canonical = batch.problems[j].canonical
    tau = float(s.tau[j])
    q = tau * canonical.mu
    if batch.adaptive:
        c, majoriser, a_priori = majorised_contraction(q), 1.0 / tau, math.inf
    else:
        c, majoriser = contraction(q), canonical.L
        a_priori = rate(canonical.L / canonical.mu, int(s.k[j]))
    z, image, rounding = _column(s.Z, j), _image(batch, s.M_z, j), None
    if batch.adaptive:
        before = _column(s.W_before, j)
        size = carried_size(before, z)
        if size > CARRIED * norm(z):  # z's image is blurred like that of a longer vector, and so is the gradient
            rounding = canonical.f.gradient_rounding(np.full(len(z), size / math.sqrt(len(z))), image)
    return Evidence(z, image, _column(s.G, j), tau, c, majoriser, a_priori, rounding)


def _solution(batch: Batch, s: Columns, j: int, start: Solution) -> Solution:
    """Column j with its proof; a column none of whose steps was made keeps the proof it had."""
    problem, k = batch.problems[j], int(s.k[j])
    x, image = _column(s.W, j), _image(batch, s.M, j)
    if not np.isfinite(x).all():  # beyond the range of floats nothing is known but the start
        return start
    tau, taken = (float(s.tau[j]), float(s.taken[j])) if batch.adaptive else (0.0, 0.0)
    made = k > start.state.k
    evidence = _evidence(batch, s, j) if made else start.state.evidence
    if made and batch.adaptive and bool(s.failed[j]):  # the length to try next is not that of the last step
        evidence = _evidence(batch, replace(s, tau=s.taken), j)
    state = FistaState(
        *(x, _column(s.W_before, j), float(s.t[j]), k, image, _image(batch, s.M_before, j), evidence),
        *(tau, taken, batch.adaptive and bool(s.failed[j])),
    )
    proof = start.certificate
    if made:
        proof = certify_step(problem.canonical, x, image, evidence, "tightest", start.initial_radius)
    return replace(start, x=x, certificate=proof, outcome=Outcome.STEPS, state=state, problem=problem)


def _column(matrix: Any, j: int) -> Array:
    column = np.ascontiguousarray(host(matrix[:, j]))
    column = column.copy() if column.base is not None else column
    column.setflags(write=False)
    return column


def _image(batch: Batch, margins: Any, j: int) -> Any:
    """Column j of margins as it is kept: a copy, where it lives; None for `fista`."""
    if not batch.adaptive:
        return None
    return _column(margins, j) if isinstance(margins, np.ndarray) else margins[:, j] + 0.0


def _chosen(value: Any, kept: list[int]) -> Any:
    xp = namespace(value)
    index = np.array(kept) if xp is np else xp.asarray(np.array(kept), device=value.device)
    return xp.take(value, index, axis=-1)
