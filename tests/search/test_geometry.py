"""Where points are put: first ones inside the box and independent, one given up for a new one, a far one moved."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from suffice.search.geometry import (
    ball_minimiser,
    eigenvalues,
    farthest,
    first_points,
    improving_point,
    lagrange_gradients,
    lagrange_values,
    point_to_replace,
    trust_region_step,
)
from tests.conftest import examples

INF = np.inf


@pytest.mark.parametrize(
    ("u", "delta", "lower", "upper", "expected"),
    [
        ([0.5, 0.5], 0.1, [0, 0], [1, 1], [[0.6, 0.5], [0.5, 0.6]]),
        ([1.0, 0.0], 0.1, [0, 0], [1, 1], [[0.9, 0.0], [1.0, 0.1]]),  # a corner
        ([0.95, 0.05], 0.1, [0, 0], [1, 1], [[0.85, 0.05], [0.95, 0.15]]),  # turned inward
        ([0.4, 0.5], 3.0, [0, 0], [1, 1], [[1.0, 0.5], [0.4, 1.0]]),  # the longer way, up to the bound
        ([0.0, 0.0], 0.1, [-INF, -INF], [INF, 0], [[0.1, 0.0], [0.0, -0.1]]),
    ],
)
def test_first_points_go_along_the_axes_and_turn_inward_at_bounds(u, delta, lower, upper, expected):
    points = first_points(np.array(u), delta, np.array(lower, float), np.array(upper, float), None)
    np.testing.assert_allclose(points, [u, *expected], rtol=1e-14, atol=1e-16)


@examples(200)
@given(
    st.lists(st.sampled_from([0.0, 1e-12, 0.03, 0.5, 0.97, 1.0]), min_size=1, max_size=6),
    st.sampled_from([1e-6, 0.1, 0.4, 5.0]),
    st.one_of(st.none(), st.integers(0, 1000)),
)
def test_first_points_lie_in_the_box_and_determine_a_linear_model(u, delta, seed):
    u, m = np.array(u), len(u)
    points = np.array(first_points(u, delta, np.zeros(m), np.ones(m), seed))
    assert points.shape == (m + 1, m)
    assert (points[0] == u).all()
    assert (points >= 0).all() and (points <= 1).all()
    D = points[1:] - u
    assert np.linalg.cond(D) <= 1.1e3
    lengths = np.linalg.norm(D, axis=1)
    assert (lengths <= delta + 1e-15).all()
    assert (lengths >= min(delta, 0.5) * 1e-3).all()


def test_a_seed_turns_the_first_points_and_repeats_them():
    u, lower, upper = np.full(4, 0.5), np.zeros(4), np.ones(4)
    first, again, other = (np.array(first_points(u, 0.1, lower, upper, seed)) for seed in (1, 1, 2))
    assert (first == again).all()
    assert not (first == other).all()
    D = (first[1:] - u) / 0.1
    np.testing.assert_allclose(D @ D.T, np.eye(4), atol=1e-12)


def test_a_random_basis_flattened_by_bounds_gives_way_to_the_axes():
    """In a corner, bounds may cut random directions to nearly parallel ones."""
    u, m = np.zeros(6), 6
    for seed in range(50):
        points = np.array(first_points(u, 0.1, np.zeros(m), np.ones(m), seed))
        assert np.linalg.cond(points[1:]) <= 1e3 * (1 + 1e-9)


TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("points", "k", "u", "delta", "accepted", "expected"),
    [
        (TRIANGLE, 0, [0.9, 0.1], 1.0, False, 1),  # the one whose polynomial is largest there
        (TRIANGLE, 0, [0.1, 0.9], 1.0, False, 2),
        (TRIANGLE, 0, [1.0, 0.0], 1.0, False, 1),  # the very point
        (TRIANGLE, 0, [0.01, 0.01], 1.0, False, 1),  # the incumbent's would be largest, but the step was rejected
        (TRIANGLE, 0, [0.01, 0.01], 1.0, True, 0),
        (np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 1.0]]), 0, [0.5, 0.9], 1.0, False, 1),  # far points go first
    ],
)
def test_the_new_point_replaces_the_one_the_model_misses_least(points, k, u, delta, accepted, expected):
    assert point_to_replace(points, k, np.array(u), delta, accepted) == expected


@examples(100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_rejected_step_never_replaces_the_incumbent_and_the_model_stays_determined(seed, m):
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 1, (m + 1, m))
    k = int(rng.integers(m + 1))
    gradients = lagrange_gradients(points, k)
    u = points[k] + 0.3 * rng.standard_normal(m)
    t = point_to_replace(points, k, u, 0.3, accepted=False)
    assert t != k
    assert abs(lagrange_values(gradients, points, k, u)[t]) > 0.0  # or the new points would lie in a plane


def test_the_farthest_point_and_its_distance():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    assert farthest(points, 0) == (1, 5.0)
    assert farthest(points, 1) == (0, 5.0)


@examples(100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([0.01, 0.2, 2.0]))
def test_a_far_point_moves_to_where_its_polynomial_is_largest(seed, m, delta):
    rng = np.random.default_rng(seed)
    points = np.clip(rng.uniform(-0.2, 1.2, (m + 1, m)), 0.0, 1.0)
    k, t = (int(i) for i in rng.permutation(m + 1)[:2])
    if np.linalg.cond(np.delete(points, k, axis=0) - points[k]) > 1e4:
        return
    gradients = lagrange_gradients(points, k)
    moved = improving_point(points, k, t, delta, np.zeros(m), np.ones(m))
    assert (moved >= 0).all() and (moved <= 1).all()
    assert np.linalg.norm(moved - points[k]) <= delta * (1 + 1e-12)
    directions = rng.standard_normal((300, m))
    tries = np.clip(points[k] + delta * directions / np.linalg.norm(directions, axis=1, keepdims=True), 0.0, 1.0)
    best = np.abs(lagrange_values(gradients, points, k, tries)[:, t]).max()
    assert abs(lagrange_values(gradients, points, k, moved)[t]) >= best * (1 - 1e-9)


# Linear Lagrange polynomials: 1 at their own point, 0 at the others, exact for linear functions.


def simplex(seed, m):
    """m + 1 points in general position, at any scale and anywhere."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((m, m)))
    steps = Q * rng.uniform(0.3, 1.0, m)[:, None]
    return rng.standard_normal(m) + 10 ** rng.uniform(-4, 1) * np.vstack([np.zeros(m), steps])


cases = given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.data())


@cases
def test_each_polynomial_is_one_at_its_point_and_zero_at_the_others(seed, m, data):
    points = simplex(seed, m)
    k = data.draw(st.integers(0, m))
    values = lagrange_values(lagrange_gradients(points, k), points, k, points)
    np.testing.assert_allclose(values, np.eye(m + 1), atol=1e-9)


@cases
def test_linear_functions_are_reproduced(seed, m, data):
    points = simplex(seed, m)
    k = data.draw(st.integers(0, m))
    rng = np.random.default_rng(seed + 1)
    slope, u = rng.standard_normal(m), points[k] + rng.standard_normal(m)
    gradients = lagrange_gradients(points, k)
    np.testing.assert_allclose((points @ slope) @ gradients, slope, rtol=1e-7, atol=1e-7)
    values = lagrange_values(gradients, points, k, u)
    scale = np.abs(values).sum()
    assert values @ (points @ slope + 3.0) == pytest.approx(u @ slope + 3.0, abs=1e-9 * scale * 10)
    assert values.sum() == pytest.approx(1.0, abs=1e-9 * scale)
    assert np.linalg.norm(gradients.sum(axis=0)) <= 1e-9 * np.abs(gradients).sum()


def test_the_polynomials_do_not_depend_on_which_point_is_the_incumbent():
    points = simplex(5, 4)
    u = points.mean(axis=0) + 0.1
    values = [lagrange_values(lagrange_gradients(points, k), points, k, u) for k in range(5)]
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], rtol=1e-9, atol=1e-12)


def test_several_points_at_once_are_rows():
    points = simplex(6, 3)
    gradients = lagrange_gradients(points, 1)
    u = np.random.default_rng(0).standard_normal((7, 3))
    rows = lagrange_values(gradients, points, 1, u)
    assert rows.shape == (7, 4)
    for row, one in zip(rows, u, strict=True):
        np.testing.assert_allclose(row, lagrange_values(gradients, points, 1, one), rtol=1e-13)


def test_points_in_a_plane_have_no_slope_across_it():
    """A direction in which the points do not differ is unknown, not infinitely steep."""
    points = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    gradients = lagrange_gradients(points, 0)
    assert np.isfinite(gradients).all()
    np.testing.assert_allclose(gradients[:, 1], 0.0, atol=1e-15)


def test_a_point_that_coincides_with_another_tells_nothing_and_does_no_harm():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    gradients = lagrange_gradients(points, 0)
    np.testing.assert_array_equal(gradients, [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])


def test_points_in_general_position_need_no_singular_values(monkeypatch):
    """LAPACK's fast driver for them may fail to converge, even at condition 5, which once ended a search."""

    def fails(*args, **kwargs):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr("numpy.linalg._linalg.svd", fails)
    monkeypatch.setattr("suffice.search.geometry.svd", fails, raising=False)
    points = simplex(7, 30)
    values = lagrange_values(lagrange_gradients(points, 3), points, 3, points)
    np.testing.assert_allclose(values, np.eye(31), atol=1e-9)


# The trust-region step is feasible always, optimal for convex models, and never worse than standing still.


BOUNDS = [0.0, 0.1, 0.5, 1.0, 2.0, np.inf]  # distances to a bound, in trust radii


def longest_linear(g, delta, lower, upper):
    """argmax of g.s over ball and box."""
    return trust_region_step(-g, np.zeros((len(g), len(g))), delta, lower, upper)


def q(g, H, s):
    return float(g @ s + 0.5 * s @ H @ s)


def problem(rng, m, convex=True, bounds=True):
    """A model over a ball and a box that touches, cuts or contains it."""
    g = rng.standard_normal(m) * 10 ** rng.uniform(-1, 1)
    A = rng.standard_normal((m + 1 if convex else m, m)) * 10 ** rng.uniform(-1, 1)
    H = 2.0 * A.T @ A if convex else A + A.T
    delta = 10 ** rng.uniform(-2, 1)
    lower, upper = (delta * rng.choice(BOUNDS if bounds else [np.inf], m) for _ in range(2))
    return g, H, delta, -lower, upper


def assert_feasible(s, delta, lower, upper):
    assert (lower <= s).all() and (s <= upper).all()  # exactly
    assert np.linalg.norm(s) <= delta * (1 + 1e-14)


def reference(g, H, delta, lower, upper):
    """The minimiser by SLSQP, drawn into the ball."""
    found = minimize(
        lambda s: q(g, H, s),
        np.zeros(len(g)),
        jac=lambda s: g + H @ s,
        bounds=list(zip(np.maximum(lower, -delta), np.minimum(upper, delta), strict=True)),
        constraints={"type": "ineq", "fun": lambda s: delta**2 - s @ s, "jac": lambda s: -2.0 * s},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    s = np.clip(found.x, lower, upper)
    return s * min(1.0, delta / max(np.linalg.norm(s), 1e-300))


def stationarity(g, H, delta, lower, upper, s):
    """How far s is from a KKT point, relative to delta: the projected gradient for the best multiplier of the ball."""
    slope = g + H @ s
    multipliers = [0.0]
    free = (lower < s) & (s < upper)
    if np.linalg.norm(s) >= delta * (1 - 1e-9):
        sides = -slope / np.where(s == 0, np.inf, s)
        multipliers += [float(nu) for nu in sides if nu > 0]
        if s[free].any():
            multipliers.append(max(0.0, -float(slope[free] @ s[free]) / float(s[free] @ s[free])))
    size = max(1.0, float(np.abs(H).max()))
    return min(np.linalg.norm(np.clip(s - (slope + nu * s) / size, lower, upper) - s) for nu in multipliers) / delta


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6])
def test_convex_steps_are_the_constrained_minimiser(m):
    rng = np.random.default_rng(m)
    for _ in range(40):
        g, H, delta, lower, upper = problem(rng, m)
        s = trust_region_step(g, H, delta, lower, upper)
        assert_feasible(s, delta, lower, upper)
        scale = np.linalg.norm(g) * delta
        assert stationarity(g, H, delta, lower, upper, s) <= 1e-8
        assert q(g, H, s) <= q(g, H, reference(g, H, delta, lower, upper)) + 1e-12 * scale


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_convex_steps_of_singular_models_are_minimisers_too(rank):
    """As of Gauss-Newton models with fewer residuals than parameters."""
    rng = np.random.default_rng(rank)
    for _ in range(40):
        g, _, delta, lower, upper = problem(rng, 4)
        J = rng.standard_normal((rank, 4))
        H = 2.0 * J.T @ J
        s = trust_region_step(g, H, delta, lower, upper)
        assert_feasible(s, delta, lower, upper)
        scale = np.linalg.norm(g) * delta
        assert q(g, H, s) <= q(g, H, reference(g, H, delta, lower, upper)) + 1e-12 * scale


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("bounds", [True, False])
def test_two_parameters_against_brute_force(convex, bounds):
    """No point of a fine grid over ball and box is better than a convex step, or than any step without bounds."""
    rng = np.random.default_rng(7)
    radius, angle = np.meshgrid(np.linspace(0, 1, 60), np.linspace(0, 2 * np.pi, 240))
    disc = np.column_stack([(radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()])
    for _ in range(30):
        g, H, delta, lower, upper = problem(rng, 2, convex, bounds)
        s = trust_region_step(g, H, delta, lower, upper)
        assert_feasible(s, delta, lower, upper)
        grid = np.clip(delta * disc, lower, upper)  # clipping towards 0 stays in the ball
        best = float(np.min(grid @ g + 0.5 * np.sum((grid @ H) * grid, axis=1)))
        scale = np.linalg.norm(g) * delta
        assert q(g, H, s) <= (best if convex or not bounds else 0.0) + 1e-12 * scale


@pytest.mark.parametrize("curvature", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("lower", [0.0, 0.2, math.inf])
@pytest.mark.parametrize("slope", [-1.0, 0.0, 1.0])
def test_one_parameter_by_hand(slope, curvature, lower):
    delta, upper = 0.5, 0.3
    s = trust_region_step(
        np.array([slope]), np.array([[curvature]]), delta, np.array([-lower]), np.array([upper])
    ).item()
    assert -min(lower, delta) <= s <= upper
    grid = np.linspace(-min(lower, delta), upper, 100_001)
    if curvature >= 0:
        assert slope * s + 0.5 * curvature * s**2 <= np.min(slope * grid + 0.5 * curvature * grid**2) + 1e-15
    else:
        assert slope * s + 0.5 * curvature * s**2 <= 0.0


@examples(200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
def test_non_convex_steps_are_feasible_and_decrease(seed, m, flat):
    rng = np.random.default_rng(seed)
    g, H, delta, lower, upper = problem(rng, m, convex=False)
    g = np.zeros(m) if flat else g
    s = trust_region_step(g, H, delta, lower, upper)
    assert_feasible(s, delta, lower, upper)
    assert q(g, H, s) <= 1e-14 * (np.linalg.norm(g) * delta + np.abs(H).max() * delta**2)


HARD = [
    ([0.0, 1.0], [-1.0, 2.0]),  # the gradient has no part along the lowest curvature
    ([0.0, 1e-3, 1.0], [-5.0, -5.0, 1.0]),
    ([0.0, 0.0], [-1.0, 3.0]),  # a saddle point
    ([0.0, 0.0, 0.0], [-2.0, -2.0, -1.0]),  # a maximum
    ([1.0, 1.0], [-1.0, -1.0]),
]


@pytest.mark.parametrize(("g", "eigenvalues"), HARD)
@pytest.mark.parametrize("delta", [1e-6, 1.0, 1e6])
def test_the_hard_case_reaches_the_global_minimum_of_the_ball(g, eigenvalues, delta):
    g, H, m = np.array(g), np.diag(eigenvalues), len(g)
    s = trust_region_step(g, H, delta, np.full(m, -np.inf), np.full(m, np.inf))
    assert np.linalg.norm(s) == pytest.approx(delta, rel=1e-9)  # lowest curvature is negative
    directions = np.random.default_rng(1).standard_normal((4000, m))
    sphere = delta * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    values = sphere @ g + 0.5 * np.sum((sphere @ H) * sphere, axis=1)
    scale = np.linalg.norm(g) * delta + np.abs(H).max() * delta**2
    assert q(g, H, s) <= values.min() + 1e-9 * scale


@pytest.mark.parametrize(
    "part",
    [
        *(0.0, 1e-17, 1e-15, 1e-6),
    ],
)
def test_the_nearly_hard_case_does_as_well_as_the_hard_one(part):
    """Rounding leaves a tiny part of the gradient along the lowest curvature; the minimum is still -2/3."""
    g, H = np.array([part, 1.0]), np.diag([-1.0, 2.0])
    s, _ = ball_minimiser(g, H, 1.0)
    assert np.linalg.norm(s) == pytest.approx(1.0, rel=1e-9)
    assert q(g, H, s) <= -2.0 / 3.0 + 1e-9


def test_an_interior_newton_point_is_taken_exactly():
    H = np.array([[4.0, 1.0], [1.0, 3.0]])
    s = np.array([0.2, -0.1])
    free = np.full(2, np.inf)
    step, multiplier = ball_minimiser(-H @ s, H, 1.0)
    np.testing.assert_allclose(step, s, rtol=1e-13)
    assert multiplier == 0.0
    np.testing.assert_allclose(trust_region_step(-H @ s, H, 1.0, -free, free), s, rtol=1e-13)


def test_a_bound_met_on_the_way_is_released_again():
    """Walking to the ball's minimiser meets the first bound, but at the minimiser only the second one is active."""
    g, H = np.array([0.28, -1.16, 1.43]), np.array([[18.5, 4.7, 10.0], [4.7, 1.8, 2.1], [10.0, 2.1, 5.6]])
    lower, upper = np.array([0.0, -2.0, -np.inf]), np.array([2.0, 0.0, 0.5])
    s = trust_region_step(g, H, 1.0, lower, upper)
    assert s[0] > 0.0 and s[1] == 0.0
    assert stationarity(g, H, 1.0, lower, upper, s) <= 1e-8


@pytest.mark.parametrize(
    "factor",
    [
        2.0**40,
        2.0**-20,
        2.0**-60,
    ],
)
def test_the_step_does_not_depend_on_the_units_of_the_model(factor):
    rng = np.random.default_rng(3)
    for _ in range(100):
        g, H, delta, lower, upper = problem(rng, 3)
        s = trust_region_step(g, H, delta, lower, upper)
        np.testing.assert_allclose(trust_region_step(factor * g, factor * H, delta, lower, upper), s, atol=1e-8 * delta)


def test_nowhere_to_go():
    g, H = np.array([1.0, -1.0]), np.eye(2)
    cornered = trust_region_step(g, H, 1.0, np.array([0.0, -1.0]), np.array([1.0, 0.0]))
    assert cornered.tolist() == [0.0, 0.0]
    assert trust_region_step(np.zeros(2), np.zeros((2, 2)), 1.0, -np.ones(2), np.ones(2)).tolist() == [0.0, 0.0]
    assert trust_region_step(g, H, 1.0, np.zeros(2), np.zeros(2)).tolist() == [0.0, 0.0]


@examples(200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([0.0, 1e-12, 1.0]))
def test_the_longest_linear_step_is_optimal(seed, m, share):
    """For some lambda, s = clip(lambda g) on the ball's boundary, or s is the box's corner inside the ball."""
    rng = np.random.default_rng(seed)
    g, _, delta, lower, upper = problem(rng, m)
    g[rng.random(m) < 0.2] *= share
    s = longest_linear(g, delta, lower, upper)
    assert_feasible(s, delta, lower, upper)
    # an upper bound of g.s by weak duality, for the best multiplier on a fine grid
    multipliers = np.linalg.norm(g) / delta * np.concatenate([[0.0], np.geomspace(1e-14, 1.0, 4000)])
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.clip(np.where(g == 0, 0.0, g / multipliers[:, None]), lower, upper)
        dual = np.where(g == 0, 0.0, g * at).sum(axis=1) + 0.5 * multipliers * (delta**2 - np.sum(at**2, axis=1))
    bound = np.nanmin(np.where(np.isnan(dual), np.inf, dual))
    assert g @ s >= bound - 1e-3 * abs(bound) - 1e-300
    probes = rng.standard_normal((500, m))
    probes = np.clip(delta * probes / np.linalg.norm(probes, axis=1, keepdims=True), lower, upper)
    assert g @ s >= (probes @ g).max() - 1e-12 * np.linalg.norm(g) * delta


@pytest.mark.parametrize(
    ("g", "lower", "upper", "expected"),
    [
        ([3.0, 4.0], [-9, -9], [9, 9], [0.6, 0.8]),
        ([3.0, 4.0], [-9, -9], [9, 0.1], [math.sqrt(0.99), 0.1]),
        ([3.0, 4.0], [-9, -9], [0.2, 0.1], [0.2, 0.1]),
        ([3.0, -4.0], [0, 0], [9, 9], [1.0, 0.0]),
        ([-1.0, -1.0], [0, 0], [9, 9], [0.0, 0.0]),
        ([0.0, 0.0], [-9, -9], [9, 9], [0.0, 0.0]),
        ([1.0, 1e-20], [-9, -9], [0.6, np.inf], [0.6, 0.8]),
    ],
)
def test_longest_linear_steps_by_hand(g, lower, upper, expected):
    s = longest_linear(np.array(g), 1.0, np.array(lower, dtype=float), np.array(upper, dtype=float))
    np.testing.assert_allclose(s, expected, atol=1e-15, rtol=1e-12)


def test_eigenvalues_are_found_where_the_fast_method_fails(monkeypatch):
    def fails(H):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    H = np.array([[2.0, 1.0], [1.0, -3.0]])
    expected = np.linalg.eigvalsh(H)
    monkeypatch.setattr(np.linalg, "eigh", fails)
    lam, Q = eigenvalues(H)
    np.testing.assert_allclose(lam, expected, rtol=1e-12)
    np.testing.assert_allclose(Q @ np.diag(lam) @ Q.T, H, atol=1e-12)


@pytest.mark.parametrize("scale", [2.0**-1050, 2.0**-1000, 1.0, 2.0**900])
def test_eigenvalues_are_those_of_the_matrix_at_any_scale(scale):
    H = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]])
    lam, Q = eigenvalues(scale * H)
    np.testing.assert_allclose(lam / scale, np.linalg.eigvalsh(H), rtol=1e-5)
    np.testing.assert_allclose(Q @ Q.T, np.eye(3), atol=1e-12)
