"""Named parameters: logarithmic where they are positive, and the same parameter there and back."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice import Space
from tests.conftest import examples


def test_parameters_with_a_positive_lower_end_are_logarithmic():
    space = Space(l1=(1e-8, 1e8), shift=(-1.0, 3.0), share=(0.0, 1.0), scale=(1.0, math.inf), any=(-math.inf, math.inf))
    assert len(space) == 5
    assert space.names == ("l1", "shift", "share", "scale", "any")
    assert [name for name in space.names if space.logarithmic(name)] == ["l1", "scale"]
    lower, upper = space.bounds
    assert lower.tolist() == [-8.0, -1.0, 0.0, 0.0, -math.inf]
    assert upper.tolist() == [8.0, 3.0, 1.0, math.inf, math.inf]
    assert space.theta({"any": 7, "scale": 1000, "share": 0.5, "shift": 2, "l1": 0.01}).tolist() == [-2, 2, 0.5, 3, 7]
    assert space.params(np.array([-2.0, 2.0, 0.5, 3.0, 7.0])) == pytest.approx(
        {"l1": 0.01, "shift": 2.0, "share": 0.5, "scale": 1000.0, "any": 7.0}
    )


@examples(200)
@given(st.floats(1e-12, 1e12), st.floats(-1e6, 1e6))
def test_there_and_back_is_the_same_parameter(positive, real):
    space = Space(weight=(1e-12, 1e12), shift=(-1e6, 1e6))
    back = space.params(space.theta({"weight": positive, "shift": real}))
    assert back["weight"] == pytest.approx(positive, rel=1e-13)
    assert back["shift"] == real


@pytest.mark.parametrize("end", [1.0, 10.0, 1e-8, 1e8, 0.5])
def test_the_ends_of_a_range_are_the_ends_of_the_box(end):
    space = Space(a=(end / 2, end), b=(end, 2 * end))
    lower, upper = space.bounds
    assert upper[0] == lower[1] == math.log10(end)


def test_a_theta_inside_the_box_is_inside_the_range():
    for numerator in range(1, 200):
        end = numerator / 7
        space = Space(a=(end / 10, end), b=(end, 10 * end))
        lower, upper = space.bounds
        assert space.params(np.array([upper[0], lower[1]]))["a"] <= end
        assert space.params(np.array([upper[0], lower[1]]))["b"] >= end


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({}, "at least one parameter"),
        ({"l1": (1.0, 1.0)}, r"l1 must satisfy lower < upper, got \(1\.0, 1\.0\)"),
        ({"l1": (2.0, 1.0)}, r"l1 must satisfy lower < upper, got \(2\.0, 1\.0\)"),
        ({"ok": (0, 1), "l1": (math.nan, 1.0)}, r"l1 must satisfy lower < upper, got \(nan, 1\.0\)"),
        ({"l1": 3.0}, r"l1 must be a pair \(lower, upper\) of numbers, got 3\.0"),
        ({"l1": (1.0, 2.0, 3.0)}, r"l1 must be a pair"),
        ({"l1": (1.0, 2.0, "cubic")}, r"l1 must be a pair .* scale out of log, linear, sqrt, got"),
        ({"l1": (-1.0, 2.0, "log")}, r"l1 has a log scale, its lower end cannot be -1\.0"),
        ({"l1": (0.0, math.inf, "log")}, r"l1 has a log scale, its lower end cannot be 0\.0"),
        ({"l1": (-1.0, 2.0, "sqrt")}, r"l1 has a sqrt scale, its lower end cannot be -1\.0"),
        ({"l1": ("low", "high")}, r"l1 must be a pair \(lower, upper\) of numbers, got \('low', 'high'\)"),
    ],
)
def test_bad_ranges_are_named(ranges, message):
    with pytest.raises(ValueError, match=message):
        Space(**ranges)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"l1": 1.0}, "parameters must be l1, shift, got l1"),
        ({"l1": 1.0, "shift": 0.0, "l2": 1.0}, "parameters must be l1, shift, got l1, shift, l2"),
        ({}, "got none"),
        ({"l1": 0.0, "shift": 0.0}, r"l1 must be positive and finite, got 0\.0"),
        ({"l1": -1.0, "shift": 0.0}, r"l1 must be positive and finite, got -1\.0"),
        ({"l1": math.inf, "shift": 0.0}, "l1 must be positive and finite, got inf"),
        ({"l1": 1.0, "shift": math.nan}, "shift must be finite, got nan"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        Space(l1=(1e-8, 1e8), shift=(-1.0, 1.0)).theta(params)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_theta_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match=rf"theta must have length 2 \(l1, l2\), got {length}"):
        Space(l1=(1e-8, 1e8), l2=(1e-8, 1e8)).params(np.zeros(length))


def test_a_space_shows_its_ranges():
    assert repr(Space(l1=(0.1, 2), shift=(-1, 1))) == "Space(l1=(0.1, 2.0), shift=(-1.0, 1.0))"


def test_a_scale_may_be_chosen():
    space = Space(a=(0.25, 4.0, "linear"), b=(0.25, 4.0, "sqrt"), c=(0.25, 4.0, "log"), d=(0.0, 1e9))
    lower, upper = space.bounds
    assert lower.tolist() == [0.25, 0.5, math.log10(0.25), 0.0]
    assert upper.tolist() == [4.0, 2.0, math.log10(4.0), 1e9]
    assert repr(space) == "Space(a=(0.25, 4.0, 'linear'), b=(0.25, 4.0, 'sqrt'), c=(0.25, 4.0), d=(0.0, 1000000000.0))"
    params = {"a": 1.0, "b": 2.25, "c": 1.0, "d": 5e8}
    theta = space.theta(params)
    assert theta.tolist() == [1.0, 1.5, 0.0, 5e8]
    assert space.params(theta) == params


def test_a_root_stays_inside_its_range():
    for end in np.random.default_rng(0).uniform(0.1, 1.0, 200):
        space = Space(a=(end / 3.0, end, "sqrt"))
        for theta in space.bounds:
            assert end / 3.0 <= space.params(theta)["a"] <= end
    with pytest.raises(ValueError, match="a must be non-negative and finite, got -1"):
        space.theta({"a": -1.0})


def test_a_logarithmic_scale_that_begins_at_zero_has_a_linear_end():
    space = Space(l2=(0.0, 100.0, "log"))
    lower, upper = space.bounds
    assert space.params(lower) == {"l2": 0.0} and space.params(upper)["l2"] == pytest.approx(100.0)
    assert space.theta({"l2": 0.0}) == lower and not space.logarithmic("l2")
    for value in (1e-9, 1e-6, 1e-3, 1.0):
        assert space.params(space.theta({"l2": value}))["l2"] == pytest.approx(value, rel=1e-6)
    assert space.theta({"l2": 1.0})[0] == pytest.approx(0.0, abs=1e-5)  # as on a plain logarithmic scale
