"""Where points are put: first ones inside the box and independent, one given up for a new one, a far one moved."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.search.geometry import (
    farthest,
    first_points,
    improving_point,
    lagrange_gradients,
    lagrange_values,
    point_to_replace,
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
