"""The model of F interpolates the residuals it is given, and is exact as soon as they are known well enough."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.search.model import fit, linear_basis, minimise, quadratic_basis


def model_of(points, residuals, k, old=None, old_residuals=None):
    """The model around points[k]: linear, or quadratic with old points."""
    basis = linear_basis(points, k)
    if old is None or not len(old):
        return fit(basis, k, residuals, np.empty((0, 0)))
    return fit(quadratic_basis(basis, k, points, old), k, residuals, old_residuals)


class Quadratics:
    """n residuals r_i(u) = c_i + g_i.u + u.H_i u / 2; linear without curvature."""

    def __init__(self, rng, m, n, curvature=1.0):
        self.c, self.g = rng.standard_normal(n), rng.standard_normal((n, m))
        H = rng.standard_normal((n, m, m))
        self.H = curvature * (H + H.transpose(0, 2, 1))

    def __call__(self, u):
        return self.c + self.g @ u + 0.5 * np.einsum("i,nij,j->n", u, self.H, u)

    def at(self, points):
        return np.array([self(u) for u in points])

    def cost(self, u):
        return float(self(u) @ self(u))


def spread(rng, m, delta=0.1):
    """m + 1 points in general position around 0.5."""
    Q, _ = np.linalg.qr(rng.standard_normal((m, m)))
    steps = delta * Q * rng.uniform(0.5, 1.0, m)[:, None]
    return 0.5 + np.vstack([np.zeros(m), steps])


def differences(f, s, h):
    """Gradient and second derivatives of f at s by central differences."""
    E = h * np.eye(len(s))
    g = np.array([(f(s + e) - f(s - e)) / (2 * h) for e in E])
    H = np.array([[(f(s + a + b) - f(s + a - b) - f(s - a + b) + f(s - a - b)) / (4 * h * h) for a in E] for b in E])
    return g, H


small = given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 6), st.data())


@small
def test_the_linear_model_interpolates_its_points(seed, m, n, data):
    rng = np.random.default_rng(seed)
    points, r = spread(rng, m), Quadratics(rng, m, n)
    k = data.draw(st.integers(0, m))
    model = model_of(points, r.at(points), k)
    for u in points:
        assert model.value(u - points[k]) == pytest.approx(r.cost(u), rel=1e-9, abs=1e-11)


@small
def test_the_linear_model_is_the_gauss_newton_model_of_linear_residuals(seed, m, n, data):
    rng = np.random.default_rng(seed)
    points, r = spread(rng, m), Quadratics(rng, m, n, curvature=0.0)
    k = data.draw(st.integers(0, m))
    model, s = model_of(points, r.at(points), k), rng.standard_normal(m)
    u = points[k] + s
    g, H = model.derivatives(s)
    assert model.value(s) == pytest.approx(r.cost(u), rel=1e-8, abs=1e-9)
    np.testing.assert_allclose(g, 2.0 * r.g.T @ r(u), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(H, 2.0 * r.g.T @ r.g, rtol=1e-7, atol=1e-7)


@small
def test_with_old_points_the_model_interpolates_all_the_points_it_uses(seed, m, n, data):
    rng = np.random.default_rng(seed)
    points, r = spread(rng, m), Quadratics(rng, m, n)
    old = 0.5 + 0.2 * rng.uniform(-1, 1, (data.draw(st.integers(1, m * (m + 1) // 2)), m))
    k = data.draw(st.integers(0, m))
    model = model_of(points, r.at(points), k, old, r.at(old))
    used = points[k] + model.basis.unit * model.basis.z
    assert len(used) <= len(points) + len(old)
    for u in points:
        assert np.min(np.linalg.norm(used - u, axis=1)) <= 1e-12
    for u in used:
        assert model.value(u - points[k]) == pytest.approx(r.cost(u), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_enough_points_in_general_position_reproduce_quadratic_residuals(m, k):
    """The points of the principal lattice: (m+1)(m+2)/2 of them determine every quadratic."""
    rng = np.random.default_rng(m)
    r, delta, axes = Quadratics(rng, m, 4), 0.1, np.eye(m)
    points = 0.5 + delta * np.vstack([np.zeros(m), axes])
    old = 0.5 + delta * np.array([axes[i] + axes[j] for i in range(m) for j in range(i + 1)])
    model = model_of(points, r.at(points), k, old, r.at(old))
    assert len(model.basis.z) == (m + 1) * (m + 2) // 2
    for s in delta * rng.uniform(-2, 2, (5, m)):
        g, H = model.derivatives(s)
        assert model.value(s) == pytest.approx(r.cost(points[k] + s), rel=1e-9)
        g_true, H_true = differences(lambda s: r.cost(points[k] + s), s, 1e-3)
        np.testing.assert_allclose(g, g_true, atol=1e-4 * np.abs(g_true).max())
        np.testing.assert_allclose(H, H_true, atol=1e-3 * np.abs(H_true).max())


@small
def test_random_points_reproduce_quadratic_residuals_once_they_suffice(seed, m, n, data):
    rng = np.random.default_rng(seed)
    points, r = spread(rng, m), Quadratics(rng, m, n)
    old = 0.5 + 0.2 * rng.uniform(-1, 1, (12 * m * m, m))
    model = model_of(points, r.at(points), 0, old, r.at(old))
    assert len(model.basis.z) == (m + 1) * (m + 2) // 2
    for s in 0.1 * rng.uniform(-1, 1, (5, m)):
        assert model.value(s) == pytest.approx(r.cost(points[0] + s), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("old_count", [0, 2, 6])
def test_derivatives_agree_with_finite_differences_of_the_value(old_count):
    rng = np.random.default_rng(old_count)
    points, r = spread(rng, 3), Quadratics(rng, 3, 5)
    old = 0.5 + 0.2 * rng.uniform(-1, 1, (old_count, 3))
    model = model_of(points, r.at(points), 2, old, r.at(old))
    s = 0.1 * rng.uniform(-1, 1, 3)
    g, H = model.derivatives(s)
    g_near, H_near = differences(model.value, s, 1e-4)
    np.testing.assert_allclose(g, g_near, atol=1e-5 * np.abs(g).max())
    np.testing.assert_allclose(H, H_near, atol=1e-4 * np.abs(H).max())


def assert_same(model, other, m, rtol=1e-10):
    for s in 0.1 * np.random.default_rng(9).uniform(-1, 1, (5, m)):
        (g, H), (other_g, other_H) = model.derivatives(s), other.derivatives(s)
        assert other.value(s) == pytest.approx(model.value(s), rel=rtol)
        np.testing.assert_allclose(other_g, g, rtol=rtol, atol=rtol * np.abs(g).max())
        np.testing.assert_allclose(other_H, H, rtol=rtol, atol=rtol * np.abs(H).max())


@pytest.mark.parametrize("redundant", ["points of the model", "nearly those", "old points twice", "the incumbent"])
def test_old_points_that_say_nothing_new_are_ignored(redundant):
    rng = np.random.default_rng(0)
    points, r = spread(rng, 3), Quadratics(rng, 3, 4)
    old = 0.5 + 0.1 * np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    more = {
        "points of the model": points[1:3],
        "nearly those": points[1:3] + 1e-9,
        "old points twice": old,
        "the incumbent": points[:1],
    }[redundant]
    model = model_of(points, r.at(points), 0, old, r.at(old))
    assert len(model.basis.z) == len(points) + len(old)
    for all_old in (np.vstack([old, more]), np.vstack([more, old])):
        other = model_of(points, r.at(points), 0, all_old, r.at(all_old))
        assert len(other.basis.z) == len(model.basis.z)
        assert_same(model, other, 3)


def test_an_old_point_between_two_of_the_model_tells_of_the_curvature_along_their_line():
    points, old = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([[0.5, 0.0]])
    model = model_of(points, points[:, :1] ** 2, 0, old, old[:, :1] ** 2)
    for x in (-1.0, 0.25, 2.0):
        assert model.value(np.array([x, 0.0])) == pytest.approx(x**4, rel=1e-10)


def test_with_redundant_points_only_the_model_is_the_linear_one():
    rng = np.random.default_rng(1)
    points, r = spread(rng, 3), Quadratics(rng, 3, 4)
    old = np.vstack([points, points])
    assert_same(model_of(points, r.at(points), 1), model_of(points, r.at(points), 1, old, r.at(old)), 3)


def test_old_points_on_the_same_line_do_not_stand_for_curvature_elsewhere():
    """What is not determined by the points is assumed to be linear."""
    points = np.array([[0.5, 0.5], [0.6, 0.5], [0.5, 0.6]])
    old = np.array([[0.7, 0.5], [0.4, 0.5]])

    def r(u):
        return np.array([1.0 + (u[0] - 0.5) ** 2 + 3.0 * (u[1] - 0.5) ** 2])

    model = model_of(points, np.array([r(u) for u in points]), 0, old, np.array([r(u) for u in old]))
    for x in (-0.1, 0.05, 0.2):
        assert model.value(np.array([x, 0.0])) == pytest.approx(r([0.5 + x, 0.5])[0] ** 2, rel=1e-10)
    J = (r([0.5, 0.6])[0] - r([0.5, 0.5])[0]) / 0.1
    assert model.value(np.array([0.0, -0.1])) == pytest.approx((1.0 - 0.1 * J) ** 2, rel=1e-10)


@pytest.mark.parametrize("with_old", [False, True])
def test_how_the_residuals_are_cut_does_not_matter(with_old):
    """F is the same for residuals r and Q r with orthonormal columns, and so is its model, whatever their number."""
    rng = np.random.default_rng(2)
    points, r = spread(rng, 2), Quadratics(rng, 2, 3)
    old = 0.5 + 0.2 * rng.uniform(-1, 1, (3, 2))
    Q, _ = np.linalg.qr(rng.standard_normal((40, 3)))
    extra = (old, r.at(old)) if with_old else ()
    long = (old, r.at(old) @ Q.T) if with_old else ()
    assert_same(model_of(points, r.at(points), 0, *extra), model_of(points, r.at(points) @ Q.T, 0, *long), 2, rtol=1e-9)


def test_the_model_moves_with_its_points():
    """Shifting and rescaling the coordinates shifts and rescales the model."""
    rng = np.random.default_rng(3)
    points, r = spread(rng, 2), Quadratics(rng, 2, 3)
    old = 0.5 + 0.2 * rng.uniform(-1, 1, (3, 2))
    model = model_of(points, r.at(points), 0, old, r.at(old))
    moved = model_of(1e-3 * points - 7.0, r.at(points), 0, 1e-3 * old - 7.0, r.at(old))
    for s in 0.1 * rng.uniform(-1, 1, (5, 2)):
        assert moved.value(1e-3 * s) == pytest.approx(model.value(s), rel=1e-9)


@small
def test_the_minimiser_is_feasible_and_its_promise_is_the_model_s_decrease(seed, m, n, data):
    rng = np.random.default_rng(seed)
    points, r = spread(rng, m), Quadratics(rng, m, n, curvature=3.0)
    old = 0.5 + 0.2 * rng.uniform(-1, 1, (data.draw(st.integers(0, 2 * m)), m))
    model = model_of(points, r.at(points), 0, old, r.at(old))
    delta, (lower, upper) = 0.1, 0.1 * rng.choice([0.0, 0.3, 2.0], (2, m))
    s, promised = minimise(model, delta, -lower, upper)
    assert (-lower <= s).all() and (s <= upper).all()
    assert np.linalg.norm(s) <= delta * (1 + 1e-12)
    start = model.value(np.zeros(m))
    assert promised >= 0.0
    assert promised == pytest.approx(start - model.value(s), abs=1e-10 * start)
    for other in np.clip(delta / np.sqrt(m) * rng.uniform(-1, 1, (200, m)), -lower, upper):
        if not model.basis.Lam.size:  # the paper's model is convex
            assert start - promised <= model.value(other) + 1e-12 * start


@pytest.mark.parametrize(
    "constant",
    [
        1.0,
        1e5,
    ],
)
def test_small_decreases_of_a_large_cost_keep_their_digits(constant):
    """A residual that never changes adds to F, but nothing to any decrease."""
    rng = np.random.default_rng(4)
    A, b = rng.standard_normal((4, 3)), rng.standard_normal(4)
    points = np.vstack([np.zeros(3), 0.1 * np.eye(3)])
    model = model_of(points, np.column_stack([np.full(4, constant), points @ A.T - b]), 0)
    s, promised = minimise(model, 1e-3, np.full(3, -np.inf), np.full(3, np.inf))
    before, after = -b, A @ s - b
    assert promised == pytest.approx(float((before - after) @ (before + after)), rel=1e-8)
