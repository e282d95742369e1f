"""The shortest vector of a convex hull."""

import numpy as np
import pytest

from suffice.search.hull import shortest


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[3.0, 4.0]], [3.0, 4.0]),
        ([[1.0, 1.0], [1.0, -1.0]], [1.0, 0.0]),  # a foot between two
        ([[1.0, 1.0], [3.0, 2.0]], [1.0, 1.0]),  # a corner
        ([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], [0.0, 0.0]),  # 0 is inside
        ([[2.0, 2.0], [2.0, 2.0]], [2.0, 2.0]),
        ([[0.0, 0.0], [1.0, 5.0]], [0.0, 0.0]),
    ],
)
def test_corners_edges_and_the_inside(rows, expected):
    assert shortest(np.array(rows)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_its_negative_falls_along_every_vector(seed):
    """v.g >= ||v||^2 for every g of the hull is what makes v the shortest."""
    G = np.random.default_rng(seed).standard_normal((8, 30)) + 0.3
    v = shortest(G)
    assert (G @ v).min() >= (1.0 - 1e-5) * (v @ v) > 0.0
