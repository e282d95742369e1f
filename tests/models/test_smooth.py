"""Smooth terms of the user's own."""

import math

import numpy as np

from suffice.models.smooth import Plain, imaged
from tests.reference import OwnSmooth


def test_a_users_term_is_its_own_image():
    own = OwnSmooth(np.diag([1.0, 2.0]), np.ones(2))
    term = imaged(own, 2.0)
    x = np.array([3.0, -1.0])
    assert isinstance(term, Plain)
    assert np.array_equal(term.image(x), x)
    assert term.value_at(x, x) == own.value(x)
    assert np.array_equal(term.gradient_at(x, x), own.gradient(x))
    assert term.majoriser(x, x, 2 * x, 2 * x) == math.inf
