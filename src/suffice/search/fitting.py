"""Which models a state has: through the m+1 points and the old ones that still say something, or from derivatives:
with curvature, without, and with parameters whose influence fades.

An old point takes part if it is near (REACH trust radii), F there is not of another order (OUTLIER), and it was
evaluated as accurately as a model of its distance needs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice.arrays import Array
from suffice.search.accuracy import achieved, for_model
from suffice.search.hermite import curved, fading, slopes
from suffice.search.model import CostModel, fit, linear_basis, quadratic_basis
from suffice.search.state import Iterate, Sample, Setting

FAR = 1.0 + 1e-9  # halved radii put points at exactly twice the radius: rounding must not decide
REACH = 10.0  # old points further away (in trust radii) say nothing about the model
OUTLIER = 100.0  # nor do points where F is this many times larger


def fitted(state: Iterate, setting: Setting) -> Sequence[CostModel]:
    """The models that compete, one for each of the misses, the one to start with first; the paper's alone if it is
    asked for."""
    if state.models.by_derivatives:
        return _from_derivatives(state, setting)
    if setting.options.model == "linear":
        return 2 * _through(state.points, state.k, (), coarse=True)
    competing = _through(state.points, state.k, useful(state, setting), is_coarse(state))
    return [*competing, competing[-1]][:2]


def _through(points: Sequence[Sample], k: int, old: Sequence[Sample], coarse: bool) -> list[CostModel]:
    """Interpolation through the points around the k-th: with old ones, if there are any, and without."""
    linear = linear_basis(np.array([point.u for point in points]), k)
    bases = [linear]
    if old:
        bases.insert(0, quadratic_basis(linear, k, points[k].u, np.array([point.u for point in old])))
    residuals, old_residuals = stack(points, coarse), stack(old, coarse)
    return [fit(basis, k, residuals, old_residuals) for basis in bases]


def _from_derivatives(state: Iterate, setting: Setting) -> list[CostModel]:
    """Three models; one that cannot be had is stood in for by the first."""
    current, unit, coarse = state.current, setting.scaling.unit, is_coarse(state)
    nearby = useful(state, setting)
    r, *residuals = stack([current, *nearby], coarse)
    J, *known = (slopes(point.evaluation, unit, coarse) for point in (current, *nearby))
    assert J is not None
    old = [(point.u - current.u, *there) for point, *there in zip(nearby, residuals, known, strict=True)]
    first = curved(r, J, old, state.delta)
    return [first, curved(r, J, (), state.delta), fading(r, J, old, state.delta) or first]


def flatness(state: Iterate, setting: Setting) -> Array:
    """J^T J at the incumbent, by derivatives or by the linear model."""
    if state.models.by_derivatives:
        J = slopes(state.current.evaluation, setting.scaling.unit, coarse=False)
        assert J is not None
        return J.T @ J
    (model,) = _through(state.points, state.k, (), coarse=False)
    return 0.5 * model.derivatives(np.zeros(len(state.current.u)))[1]


def is_coarse(state: Iterate) -> bool:
    """Whether there are blocks enough for a model of their norms."""
    current = state.current
    return len(current.evaluation.e) >= 2 * (len(current.u) + 1)


def stack(points: Sequence[Sample], coarse: bool) -> Array:
    return np.array([point.evaluation.coarse if coarse else point.evaluation.r for point in points])


def useful(state: Iterate, setting: Setting) -> list[Sample]:
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
