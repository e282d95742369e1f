"""Sums in two stages: within their bound where rounding is systematic, and where one stage is not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from suffice.rows.rounding import U, block_length, dense_product, dot, gamma, roundings

N = 300_000


def exact(a, b):
    return float(sum(Fraction(x) * Fraction(y) * int(n) for (x, y), n in grouped(a, b)))


def grouped(a, b):
    pairs, counts = np.unique(np.stack([a, b], axis=1), axis=0, return_counts=True)
    return zip(pairs.tolist(), counts, strict=True)


@pytest.mark.parametrize("value", [0.1, 1.0 / 3.0, 0.7, 1e-300])
def test_equal_terms_sum_within_the_bound(value):
    a, b = np.full(N, value), np.ones(N)
    truth = exact(a, b)
    assert abs(dot(a, b) - truth) <= gamma(roundings(N)) * abs(truth)
    assert abs(float(dense_product(b[:, None], a, block_length(N))[0]) - truth) <= gamma(roundings(N)) * abs(truth)


def test_one_after_the_other_equal_terms_leave_the_bound():
    """The bound of the two stages is not one of the numbers that a plain loop would meet as well."""
    total = 0.0
    for _ in range(N):
        total += 0.1
    assert abs(total - exact(np.full(N, 0.1), np.ones(N))) > gamma(roundings(N)) * 0.1 * N


def test_two_stages_pass_a_term_through_about_two_roots_of_n_roundings():
    for n in (1, 7, 128, 256):
        assert roundings(n) == n
    for n in (10**5, 10**6, 10**7):
        assert roundings(n) <= 2.01 * math.sqrt(n) + 2
    assert all(roundings(n) <= n for n in range(1, 2000))


def test_gamma_is_infinite_where_nothing_can_be_proven():
    assert gamma(0) == 0.0
    assert gamma(1) == pytest.approx(U)
    assert gamma(1e16) == math.inf


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (256, 2), (257, 2), (1000, 7), (4097, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("columns", [None, 1, 4])
def test_blocks_do_not_change_the_product(shape, order, columns):
    rng = np.random.default_rng(0)
    X = np.asarray(rng.standard_normal(shape), order=order)
    r = rng.standard_normal(shape[0] if columns is None else (shape[0], columns))
    product = dense_product(X, r, block_length(shape[0]))
    assert product.shape == (X.T @ r).shape
    np.testing.assert_allclose(product, X.T @ r, rtol=1e-11, atol=1e-11)
