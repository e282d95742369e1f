"""Dense blocks of rows are the rows, however X is stored and whichever columns are chosen."""

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.rows.gram import DenseBlocks, neighbours

rng = np.random.default_rng(0)
X = np.where(rng.random((50, 40)) < 0.3, rng.standard_normal((50, 40)), 0.0)
STORED = {"dense": X, "by columns": np.asfortranarray(X), "csr_array": sp.csr_array(X), "csr_matrix": sp.csr_matrix(X)}


@pytest.mark.parametrize("columns", [np.arange(40), np.arange(0, 40, 3), np.array([7, 31])], ids=["all", "many", "few"])
@pytest.mark.parametrize("stored", STORED)
def test_a_block_is_these_rows_and_columns(stored, columns):
    blocks = DenseBlocks(STORED[stored], columns, 20)
    for rows in (slice(0, 20), slice(30, 50), slice(49, 50), np.array([3, 8, 40])):
        found = blocks(rows)
        assert found.flags.c_contiguous or stored == "by columns"
        np.testing.assert_array_equal(found, X[rows][:, columns])
    np.testing.assert_array_equal(STORED[stored].toarray() if sp.issparse(STORED[stored]) else STORED[stored], X)


def test_neighbouring_rows_of_a_sparse_matrix_share_its_memory():
    whole = sp.csr_array(X)
    part = neighbours(whole, 10, 25)
    assert np.shares_memory(part.data, whole.data) and np.shares_memory(part.indices, whole.indices)
    np.testing.assert_array_equal(part.toarray(), X[10:25])
