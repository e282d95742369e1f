"""Linear Lagrange polynomials: 1 at their own point, 0 at the others, exact for linear functions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.search.geometry import lagrange_gradients, lagrange_values


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
