"""The trust-region step is feasible always, optimal for convex models, and never worse than standing still."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from suffice.search.geometry import ball_minimiser, eigenvalues, trust_region_step
from tests.conftest import examples

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
