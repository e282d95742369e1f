"""X^T r for every layout: the same product, without a copy of X, within the rounding that is claimed for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.rows.blocks import RowBlocks
from suffice.rows.design import Design
from suffice.rows.memory import DenseAdjoint, SparseAdjoint
from suffice.rows.rounding import gamma

LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csr": sp.csr_array,
    "csc": sp.csc_array,
    "csr_matrix": sp.csr_matrix,
    "csc_matrix": sp.csc_matrix,
    "blocks": lambda X: RowBlocks.of(X, block=700),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_column_of_ones_is_summed_within_the_rounding_that_is_claimed(layout):
    N = 200_000
    X = np.zeros((N, 3))
    X[:, 0], X[::1000, 1], X[0, 2] = 1.0, 1.0, 1.0
    product = Design.of(LAYOUTS[layout](X)).pull
    r = np.full(N, 0.1)
    truth = 0.1 * X.sum(axis=0)
    assert (np.abs(product(r) - truth) <= (np.array([gamma(k) for k in product.roundings]) + 2e-16) * truth).all()
    assert product.roundings[0] < 0.02 * N
    if layout.startswith("cs"):
        assert product.roundings[1:].tolist() == [200.0, 1.0]


def test_entries_are_shared_and_not_copied():
    X = sp.csr_array(np.ones((5000, 3)))
    parts = [part for _, part in SparseAdjoint(X).parts]
    assert len(parts) > 1
    assert all(np.shares_memory(part.data, X.data) for part in parts)


def test_wide_sparse_rows_are_not_cut_where_every_block_costs_a_sum_over_all_columns():
    rng = np.random.default_rng(0)
    X = sp.random_array((4000, 20_000), density=5e-4, rng=rng, format="csr")
    assert len(SparseAdjoint(X).parts) == 1


@pytest.mark.parametrize("rows", [1, 4096, 4097, 60_000, 65_537, 10**6])
def test_a_device_sums_over_few_blocks_that_cover_all_rows(rows):
    strict = pytest.importorskip("array_api_strict")
    product = DenseAdjoint(strict.ones((rows, 1), dtype=strict.float64))
    blocks = math.ceil(rows / product.block)
    assert blocks <= 16 and product.roundings[0] == min(rows, product.block + blocks + 1)


def test_blocks_on_a_device_give_the_product():
    strict = pytest.importorskip("array_api_strict")
    rng = np.random.default_rng(0)
    X, r = rng.standard_normal((9000, 3)), rng.standard_normal(9000)
    product = DenseAdjoint(strict.asarray(X))
    assert product.block == 3000
    np.testing.assert_allclose(np.asarray(product(strict.asarray(r))), X.T @ r, rtol=1e-11, atol=1e-11)
