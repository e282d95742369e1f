"""An evaluation proves an interval for F, cannot be changed afterwards, and says what makes it unusable."""

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice import Evaluation
from tests.conftest import examples

quantities = st.floats(-1e6, 1e6, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-6)


@st.composite
def observed(draw, least=3):
    """(r~, e, r): residuals, their proven errors, and true residuals within them, as exact fractions."""
    n = draw(st.integers(least, 6))
    r = draw(st.lists(quantities, min_size=n, max_size=n))
    e = draw(st.lists(quantities.map(abs), min_size=n, max_size=n))
    t = draw(st.lists(st.fractions(-1, 1, max_denominator=8), min_size=n, max_size=n))
    return r, e, [Fraction(a) + b * Fraction(c) for a, b, c in zip(r, t, e, strict=True)]


@pytest.mark.parametrize(
    ("residuals", "errors", "cost", "interval"),
    [
        ([3.0, -4.0], [0.0, 0.0], 25.0, (25.0, 25.0)),
        ([3.0, -4.0], [1.0, 0.0], 25.0, (20.0, 32.0)),
        ([3.0, -4.0], [1.0, 2.0], 25.0, (8.0, 52.0)),
        ([3.0, -4.0], [5.0, 4.5], 25.0, (0.0, 136.25)),
        ([0.0], [0.5], 0.0, (0.0, 0.25)),
        ([1.0, 2.0], [math.inf, 0.0], 5.0, (4.0, math.inf)),
    ],
)
def test_cost_and_interval_follow_from_residuals_and_errors(residuals, errors, cost, interval):
    evaluation = Evaluation([0.0], residuals, errors)
    assert evaluation.cost == cost
    assert evaluation.interval == pytest.approx(interval, rel=1e-15)
    assert evaluation.error == pytest.approx(max(cost - interval[0], interval[1] - cost), rel=1e-14)


@examples(200)
@given(observed())
def test_every_true_cost_lies_in_the_interval_in_exact_arithmetic(case):
    r, e, truth = case
    evaluation = Evaluation([0.0], r, e)
    F = sum(t * t for t in truth)
    if any(e):
        low, high = evaluation.interval
        assert Fraction(low) <= F <= Fraction(high)
        assert abs(F - Fraction(evaluation.cost)) <= Fraction(evaluation.error) * (1 + Fraction(1, 2**50))
    else:
        assert evaluation.interval == (evaluation.cost, evaluation.cost)


def test_the_ends_of_a_single_residual_s_interval_are_rounded_outwards():
    r, e = np.random.default_rng(0).uniform(0, 1, (2, 200))
    for a, b in zip(r, 1e-3 * e, strict=True):
        low, high = Evaluation([0.0], [a], [b]).interval
        assert Fraction(low) <= (Fraction(a) - Fraction(b)) ** 2
        assert (Fraction(a) + Fraction(b)) ** 2 <= Fraction(high)


@given(observed(), st.floats(0.0, 1.0))
def test_smaller_errors_give_a_smaller_interval(case, share):
    r, e, _ = case
    wide, narrow = Evaluation([0.0], r, e), Evaluation([0.0], r, share * np.array(e))
    assert wide.interval[0] <= narrow.interval[0] <= narrow.cost <= narrow.interval[1] <= wide.interval[1]


def test_arrays_are_copies_that_nobody_can_change():
    theta, residuals, errors = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([0.5, 0.0])
    evaluation = Evaluation(theta, residuals, errors)
    theta[:], residuals[:], errors[:] = 0.0, 0.0, 0.0
    assert evaluation.point.tolist() == [1.0, 2.0]
    assert evaluation.r.tolist() == [3.0, 4.0]
    assert evaluation.e.tolist() == [0.5, 0.0]
    for array in (evaluation.point, evaluation.r, evaluation.e):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
    with pytest.raises(FrozenInstanceError):
        evaluation.work = 3


def test_numbers_stand_for_vectors_of_length_one():
    evaluation = Evaluation(1.0, 2.0, 0.5)
    assert (evaluation.point.shape, evaluation.r.shape, evaluation.e.shape) == ((1,), (1,), (1,))
    assert evaluation.cost == 4.0


@pytest.mark.parametrize(
    ("residuals", "errors", "message"),
    [
        ([[1.0, 2.0]], [[0.0, 0.0]], r"residuals must be one-dimensional, got shape \(1, 2\)"),
        ([1.0, 2.0], [0.0], r"errors must have shape \(2,\).*, got \(1,\)"),
        ([1.0, 2.0], 0.0, r"errors must have shape \(2,\)"),
        ([1.0], [0.0, 0.0], r"errors must have shape \(1,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(residuals, errors, message):
    with pytest.raises(ValueError, match=message):
        Evaluation([0.0], residuals, errors)


@pytest.mark.parametrize("blocks", [(2, 2), (3,), (4, 1), (5, 0), (6, -1), ()])
def test_blocks_that_do_not_cover_the_residuals_are_refused(blocks):
    if sum(blocks) != 5 or min(blocks) < 1:
        with pytest.raises(ValueError, match=r"blocks must be positive sizes that sum to 5 residuals, got \("):
            Evaluation([0.0], np.ones(5), np.zeros(len(blocks)), blocks=blocks)
    else:
        assert Evaluation([0.0], np.ones(5), np.zeros(len(blocks)), blocks=blocks).blocks == blocks


def test_errors_of_blocks_bound_the_norms_of_their_residuals():
    evaluation = Evaluation([0.0], [3.0, -4.0, -2.0], [1.0, 0.5], blocks=(2, 1))
    assert evaluation.coarse.tolist() == [5.0, -2.0]
    assert evaluation.cost == 29.0
    assert evaluation.interval == pytest.approx((4.0**2 + 1.5**2, 6.0**2 + 2.5**2), rel=1e-14)


@examples(100)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_true_cost_lies_in_the_interval_of_blocks(seed, blocks):
    """Move each block anywhere within its error: no cost leaves the interval."""
    rng = np.random.default_rng(seed)
    r, e = rng.standard_normal(sum(blocks)), np.abs(rng.standard_normal(len(blocks)))
    moves = []
    for size, error in zip(blocks, e, strict=True):
        move = rng.standard_normal(size)
        moves.append(error * rng.uniform(-1, 1) * move / np.linalg.norm(move))
    low, high = Evaluation([0.0], r, e, blocks=blocks).interval
    assert low <= np.sum((r + np.concatenate(moves)) ** 2) * (1 + 1e-14)
    assert high >= np.sum((r + np.concatenate(moves)) ** 2) * (1 - 1e-14)


@pytest.mark.parametrize(
    ("residuals", "errors", "work", "complaint"),
    [
        ([1.0, math.nan], [0.0, 0.0], 0, "residuals are not all finite"),
        ([1.0, -math.inf], [0.0, 0.0], 0, "residuals are not all finite"),
        ([1.0, 2.0], [0.0, -1e-9], 0, "errors must be non-negative numbers"),
        ([1.0, 2.0], [math.nan, 0.0], 0, "errors must be non-negative numbers"),
        ([1.0, 2.0], [0.0, 0.0], -1, "work must be non-negative and finite"),
        ([1.0, 2.0], [0.0, 0.0], math.nan, "work must be non-negative and finite"),
        ([1.0, 2.0], [0.0, 0.0], math.inf, "work must be non-negative and finite"),
    ],
)
def test_complaints_say_what_is_unusable(residuals, errors, work, complaint):
    evaluation = Evaluation([0.0], residuals, errors, work=work)
    assert complaint in (evaluation.failure or evaluation.complaint())


@pytest.mark.parametrize("errors", [[0.0, 0.0], [1e-3, 0.0], [math.inf, math.inf]])
def test_an_evaluation_without_fault_draws_no_complaint(errors):
    assert Evaluation([0.0], [1.0, -2.0], errors, work=3.5).complaint() is None


@pytest.mark.parametrize("size", [1e-154, 1e-158, 1e-161, 3e-162, 1e-162, 1e-200, 5e-324, 1e150])
@pytest.mark.parametrize("blocks", [None, [2, 3, 1]])
def test_the_interval_holds_where_squares_underflow(size, blocks):
    rng = np.random.default_rng(1)
    residuals = size * rng.uniform(0.5, 2.0, 6)
    errors = 1e-3 * size * rng.uniform(0.5, 1.0, 6 if blocks is None else 3) + 5e-324
    low, high = (Fraction(end) for end in Evaluation([0.0], residuals, errors, blocks=blocks).interval)
    assert low <= sum(Fraction(float(r)) ** 2 for r in residuals) <= high
    if blocks is None:  # and for residuals that are as far off as they may be
        pairs = [(Fraction(float(r)), Fraction(float(e))) for r, e in zip(residuals, errors, strict=True)]
        assert low <= sum(max(r - e, Fraction(0)) ** 2 for r, e in pairs)
        assert sum((r + e) ** 2 for r, e in pairs) <= high
    if size > 1e-150:
        assert high < Fraction(101, 100) * low
