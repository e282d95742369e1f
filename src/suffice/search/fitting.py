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
from suffice.search.interpolation import lagrange_gradients, lagrange_values
from suffice.search.model import CostModel, fit, linear_basis, quadratic_basis
from suffice.search.sparsity import Known, fit_sparse
from suffice.search.state import AnyState, Point, Setting, State

FAR = 1.0 + 1e-9  # halved radii put points at exactly twice the radius: rounding must not decide
REACH = 10.0  # old points further away (in trust radii) say nothing about the model
OUTLIER = 100.0  # nor do points where F is this many times larger
RECENT = 60  # how many of the latest old points a sparse model looks at


def competing_models(state: State, setting: Setting) -> Sequence[CostModel]:
    """The competing models, the one to start with first; the paper's alone if it is asked for."""
    if state.sparsity is not None:
        return fit_sparse(state.sparsity, known_points(state, setting), state.delta)[:2]
    k, points = state.incumbent, np.array([point.u for point in state.points])
    linear = linear_basis(points, k)
    if setting.options.model == "linear":
        return [fit(linear, k, stack(state.points, coarse=True), np.empty((0, 0)))]
    old = useful(state, setting)
    coarse = is_coarse(state)
    residuals, old_residuals = stack(state.points, coarse), stack(old, coarse)
    bases = [linear]
    if old:
        bases.insert(0, quadratic_basis(linear, k, points[k], np.array([point.u for point in old])))
    return [fit(basis, k, residuals, old_residuals) for basis in bases]


def smoothed_model(state: AnyState, setting: Setting) -> tuple[AnyState, noise.Fit]:
    """The model that averages noise out, around the point of the model at which F is least by it."""
    for _ in range(2):
        k = state.incumbent
        u = state.points[k].u
        usable = [p for p in state.pool if p.evaluation.cost <= OUTLIER * state.points[k].evaluation.cost]
        old = [usable[i] for i in noise.nearest(u, [p.u for p in usable], state.delta)]
        used = [*state.points, *old]
        coarse = len(used[k].evaluation.e) >= 2 * len(state.points)
        places, evaluations = np.array([point.u for point in used]), [point.evaluation for point in used]
        fitted = noise.regression(places, evaluations, k, len(old), coarse, setting.options)
        lowest = int(np.argmin(fitted.smoothed))
        if lowest == k:
            break
        state = replace(state, incumbent=lowest)
    return state, fitted


def known_points(state: State, setting: Setting) -> Known:
    known = [*state.points, *state.pool[-RECENT:]]
    moved = np.array([point.evaluation.point for point in known]) != setting.scaling.to_theta(setting.ledger.start)
    residuals = stack(known, is_coarse(state))
    return Known(np.array([point.u for point in known]), residuals, moved, state.incumbent)


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
    points, k = np.array([point.u for point in state.points]), state.incumbent
    shares = lagrange_values(lagrange_gradients(points, k), points, k, u)
    current = state.points[k].evaluation
    return [
        1.0 if t == k else influence(share, point.evaluation, current)
        for t, (share, point) in enumerate(zip(shares.tolist(), state.points, strict=True))
    ]
