"""The checks that every public entrance shares, and the norm that neither overflows nor underflows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.arrays import frozen, norm, positive, vector, whole_number


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5), st.integers(-1050, 1000))
def test_the_norm_scales_with_its_vector_far_beyond_where_squares_are_finite(x, exponent):
    scaled = np.ldexp(np.array(x), exponent)
    coarse = 1e-13 if exponent > -1000 else 2.0**-20  # numbers below 2^-1022 have fewer digits
    assert norm(scaled) == pytest.approx(math.ldexp(math.hypot(*x), exponent), rel=coarse)


@pytest.mark.parametrize("x, expected", [([], 0.0), ([0.0], 0.0), ([math.inf, 1.0], math.inf)])
def test_the_norm_of_nothing_and_of_too_much(x, expected):
    assert norm(np.array(x)) == expected


def test_what_is_no_positive_number_is_refused_by_name():
    assert positive(np.float64(2), "delta") == 2.0 and positive(0, "delta", zero=True) == 0.0
    assert positive(math.inf, "delta", infinite=True) == math.inf
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="delta must be positive and finite"):
            positive(wrong, "delta")
    for wrong in (True, "1", None):
        with pytest.raises(TypeError, match="delta must be a real number"):
            positive(wrong, "delta")


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, "2"])
def test_what_is_no_whole_number_is_refused_by_name(wrong):
    assert whole_number(np.int64(3), "workers", least=1) == 3
    with pytest.raises(ValueError, match="workers must be a positive integer"):
        whole_number(wrong, "workers", least=1)


def test_a_vector_is_a_fresh_copy_of_finite_numbers():
    given_ = np.ones(3)
    x = vector(given_, "theta0")
    x[0] = 5.0
    assert given_[0] == 1.0
    for wrong in ([[1.0]], [math.nan]):
        with pytest.raises(ValueError, match="theta0"):
            vector(wrong, "theta0")
    with pytest.raises(TypeError, match="theta0"):
        vector("abc", "theta0")


def test_what_is_frozen_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        frozen(np.ones(2))[0] = 2.0
