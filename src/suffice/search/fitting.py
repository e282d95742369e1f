"""Which models a state has: those of the m+1 points with the old ones that still say something, or the smoothed one.

An old point takes part if it is near (REACH trust radii), F there is not of another order (OUTLIER), and it was
evaluated as accurately as a model of its distance needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from suffice.arrays import Array
from suffice.options import Options
from suffice.search import noise
from suffice.search.accuracy import achieved, for_model, influence
from suffice.search.geometry import lagrange_gradients, lagrange_values
from suffice.search.hermite import slopes
from suffice.search.model import CostModel, fit, linear_basis, quadratic_basis
from suffice.search.sparsity import Known, fit_sparse, refuted, supports
from suffice.search.state import Point, Setting, State

FAR = 1.0 + 1e-9  # halved radii put points at exactly twice the radius: rounding must not decide
REACH = 10.0  # old points further away (in trust radii) say nothing about the model
OUTLIER = 100.0  # nor do points where F is this many times larger
RECENT = 60  # how many of the latest old points a sparse model looks at


def competing_models(state: State, setting: Setting) -> Sequence[CostModel]:
    """The competing models, the one to start with first; the paper's alone if it is asked for."""
    if state.models.sparsity is not None:
        return fit_sparse(state.models.sparsity, known_points(state, setting), state.delta)[:2]
    linear = linear_basis(state.places, state.k)
    if setting.options.model == "linear":
        return [fit(linear, state.k, stack(state.points, coarse=True))]
    old, coarse = useful(state, setting), is_coarse(state)
    residuals, old_residuals = stack(state.points, coarse), stack(old, coarse)
    bases = [linear]
    if old:
        bases.insert(0, quadratic_basis(linear, state.k, state.current.u, np.array([point.u for point in old])))
    return [fit(basis, state.k, residuals, old_residuals) for basis in bases]


def smoothed_model(state: State, setting: Setting) -> tuple[State, noise.Fit]:
    """The model that averages noise out, around the point of the model at which F is least by it."""
    for _ in range(2):
        current = state.current
        usable = [p for p in state.pool if p.evaluation.cost <= OUTLIER * current.evaluation.cost]
        old = [usable[i] for i in noise.nearest(current.u, [p.u for p in usable], state.delta)]
        used = [*state.points, *old]
        coarse = len(current.evaluation.e) >= 2 * len(state.points)
        places, evaluations = np.array([point.u for point in used]), [point.evaluation for point in used]
        fitted = noise.regression(places, evaluations, state.k, len(old), coarse, setting.options)
        lowest = int(np.argmin(fitted.smoothed))
        if lowest == state.k:
            break
        state = replace(state, k=lowest)
    return state, fitted


def flatness(state: State, setting: Setting) -> Array:
    """J^T J at the incumbent, by derivatives or by the linear model."""
    if state.models.by_derivatives:
        J = slopes(state.current.evaluation, setting.scaling.unit, coarse=False)
        assert J is not None
        return J.T @ J
    model = fit(linear_basis(state.places, state.k), state.k, stack(state.points, coarse=False))
    return 0.5 * model.derivatives(np.zeros(len(state.current.u)))[1]


def known_points(state: State, setting: Setting) -> Known:
    """What a sparse model looks at."""
    known = [*state.points, *state.pool[-RECENT:]]
    start = setting.scaling.to_theta(setting.ledger.start)
    moved = np.array([point.evaluation.point for point in known]) != start
    return Known(np.array([point.u for point in known]), stack(known, is_coarse(state)), moved, state.k)


def is_coarse(state: State) -> bool:
    """Whether there are blocks enough for a model of their norms."""
    current = state.current
    return len(current.evaluation.e) >= 2 * (len(current.u) + 1)


def stack(points: Sequence[Point], coarse: bool) -> Array:
    return np.array([point.evaluation.coarse if coarse else point.evaluation.r for point in points])


def useful(state: State, setting: Setting) -> list[Point]:
    """The old points that say something about the model."""
    current = state.current
    if not state.pool:
        return []
    useful = []
    distances = np.linalg.norm(np.array([point.u for point in state.pool]) - current.u, axis=1)
    for point, distance in zip(state.pool, distances.tolist(), strict=True):
        if distance > FAR * REACH * state.delta or point.evaluation.cost > OUTLIER * current.evaluation.cost:
            continue
        needed = for_model(max(distance, state.delta), current.evaluation, setting.options)
        if achieved(point.evaluation, setting.options) <= needed:
            useful.append(point)
    return useful


def influences(state: State, u: Array, options: Options) -> list[float]:
    """How much of an error of F at each point of the model is one of the decrease that it foresees at u."""
    if len(state.points) == 1 or options.policy == "weights":
        return [1.0] * len(state.points)
    points, k = state.places, state.k
    shares = lagrange_values(lagrange_gradients(points, k), points, k, u)
    current = state.current.evaluation
    return [
        1.0 if t == k else influence(share, point.evaluation, current)
        for t, (share, point) in enumerate(zip(shares.tolist(), state.points, strict=True))
    ]


def look_for_sparsity(state: State, setting: Setting) -> State:
    """With the supports that the first points show, once they are there."""
    if state.first or setting.options.model == "linear" or setting.options.noise is not None:
        return state
    if state.models.failures:  # supports are told by points around the start, and these are not
        return state
    return state.modelled(sparsity=supports(state.places, stack(state.points, is_coarse(state))))


def test_sparsity(state: State, point: Point) -> State:
    """Sparsity that a new evaluation refutes is forgotten."""
    S, current = state.models.sparsity, state.current
    if S is None:
        return state
    old, new = stack([current, point], is_coarse(state))
    blur = current.evaluation.e + point.evaluation.e if len(old) == len(current.evaluation.e) else 0.0
    if refuted(S, current.u, point.u, np.abs(new - old) > blur):
        return state.modelled(sparsity=None, misses=(0.0, 0.0))
    return state
