"""Search coordinates: a finite box becomes [0, 1]; the way back never leaves the box and meets bounds exactly."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.search.state import Scaling
from tests.conftest import examples

INF = math.inf


@pytest.mark.parametrize(
    ("bounds", "lower", "upper"),
    [
        (None, [-INF, -INF], [INF, INF]),
        ((None, None), [-INF, -INF], [INF, INF]),
        ((0, 1), [0, 0], [1, 1]),
        ((None, 2.0), [-INF, -INF], [2, 2]),
        ((-1, None), [-1, -1], [INF, INF]),
        (([0, -INF], [1, 5]), [0, -INF], [1, 5]),
        ((0.0, [1, 2]), [0, 0], [1, 2]),
        ([np.zeros(2), np.ones(2)], [0, 0], [1, 1]),
        (np.array([[0.0, 0.0], [1.0, 2.0]]), [0, 0], [1, 2]),
    ],
)
def test_bounds_may_be_numbers_vectors_or_absent(bounds, lower, upper):
    scaling = Scaling.of(np.array([0.5, 0.5]), bounds)
    assert scaling.lower.tolist() == lower
    assert scaling.upper.tolist() == upper


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ((1.0, 0.0), ValueError, r"lower < upper, got lower\[0\]=.*1\.0.*upper\[0\]=.*0\.0"),
        (([0.0, 2.0], [1.0, 2.0]), ValueError, r"lower < upper, got lower\[1\]=.*2\.0"),
        ((math.nan, 1.0), ValueError, "lower must not be NaN, got nan"),
        (([0, 0], [1, math.nan]), ValueError, r"upper must not be NaN, got \[1, nan\]"),
        ((INF, None), ValueError, r"lower < upper, got lower\[0\]=.*inf"),
        (([0, 0, 0], 1), ValueError, r"lower must be a number or have shape \(2,\), got shape \(3,\)"),
        ((0, [[1, 1]]), ValueError, r"upper must be a number or have shape \(2,\), got shape \(1, 2\)"),
        (("low", 1), TypeError, "lower must be numeric, got 'low'"),
        (3.0, ValueError, r"bounds must be a pair \(lower, upper\), got 3\.0"),
        (([0, 0], [1, 1], [2, 2]), ValueError, "bounds must be a pair"),
    ],
)
def test_bad_bounds_are_named(bounds, error, message):
    with pytest.raises(error, match=message):
        Scaling.of(np.array([0.5, 0.5]), bounds)


def test_a_finite_box_becomes_the_unit_cube():
    scaling = Scaling.of(np.array([0.0, 0.0]), ([-8.0, 0.1], [8.0, 0.3]))
    assert scaling.low.tolist() == [0.0, 0.0]
    assert scaling.high.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(scaling.to_u(np.array([0.0, 0.2])), [0.5, 0.5])


@pytest.mark.parametrize(("theta0", "unit"), [([0.0], 1.0), ([-0.2], 1.0), ([50.0], 50.0), ([-50.0], 50.0)])
def test_without_a_box_the_start_is_the_origin_and_its_size_the_unit(theta0, unit):
    scaling = Scaling.of(np.array(theta0), None)
    assert scaling.to_u(np.array(theta0)).tolist() == [0.0]
    np.testing.assert_allclose(scaling.to_theta(np.array([0.1])), np.array(theta0) + 0.1 * unit)


finite = st.floats(-1e6, 1e6)


@st.composite
def boxes(draw):
    """(theta0, lower, upper): boxes of all sizes and places, some of them open."""
    lower = draw(finite)
    width = draw(st.sampled_from([1e-9, 1e-3, 1.0, 1e6]))
    upper = max(lower + width, math.nextafter(lower, INF))
    theta0 = draw(st.floats(lower, upper))
    kind = draw(st.sampled_from(["box", "box", "below", "above", "open"]))
    return (
        theta0,
        -INF if kind in ("above", "open") else lower,
        INF if kind in ("below", "open") else upper,
    )


@examples(300)
@given(boxes(), st.floats(0.0, 1.0), st.booleans())
def test_theta_lies_in_the_box_exactly_for_every_u(box, share, negative):
    theta0, lower, upper = box
    scaling = Scaling.of(np.array([theta0]), ([lower], [upper]))
    low, high = (float(np.clip(end.item(), -1e3, 1e3)) for end in (scaling.low, scaling.high))
    u = high - share * (high - low) if negative else low + share * (high - low)
    theta = scaling.to_theta(np.clip(np.array([u]), scaling.low, scaling.high)).item()
    assert lower <= theta <= upper


@examples(200)
@given(boxes())
def test_the_ends_of_u_are_the_bounds_exactly(box):
    theta0, lower, upper = box
    scaling = Scaling.of(np.array([theta0]), ([lower], [upper]))
    for end, bound in ((scaling.low, lower), (scaling.high, upper)):
        if math.isfinite(bound):
            assert scaling.to_theta(end).item() == bound
            assert scaling.to_u(np.array([bound])).item() == end.item()


@examples(200)
@given(boxes())
def test_there_and_back_is_where_it_started(box):
    theta0, lower, upper = box
    scaling = Scaling.of(np.array([theta0]), ([lower], [upper]))
    back = scaling.to_theta(scaling.to_u(np.array([theta0]))).item()
    ends = [abs(x) for x in (theta0, lower, upper) if math.isfinite(x)]
    assert back == pytest.approx(theta0, abs=4e-16 * max(ends))


def test_a_box_as_wide_as_the_numbers_themselves():
    scaling = Scaling.of(np.array([0.0]), (-1.5e308, 1.5e308))
    theta = scaling.to_theta(scaling.to_u(np.array([0.0])))
    assert np.isfinite(theta).all()
