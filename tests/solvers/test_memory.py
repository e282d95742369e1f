"""The default solver needs at most three times the memory of X besides X, whatever it turns to."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import solve
from suffice.problems import ElasticNetLogistic


def normal(rows, columns):
    return np.random.default_rng(0).standard_normal((rows, columns))


def sparse(rows, columns, nonzeros, form):
    rng = np.random.default_rng(0)
    X = sp.csr_array(
        (
            rng.standard_normal(rows * nonzeros),
            rng.integers(0, columns, rows * nonzeros).astype(np.int32),
            np.arange(rows + 1, dtype=np.int32) * nonzeros,
        ),
        shape=(rows, columns),
    )
    X.sum_duplicates()
    return X.asformat(form)


def size(X):
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes


CASES = {
    "tall": lambda: normal(20_000, 60),
    "square": lambda: normal(2500, 2100),
    "wide": lambda: normal(300, 4000),
    "csr": lambda: sparse(20_000, 5000, 40, "csr"),
    "csc": lambda: sparse(20_000, 5000, 40, "csc"),
    "csr, many nonzeros": lambda: sparse(10_000, 300, 60, "csr"),
}


@pytest.mark.parametrize("share", [0.5, 0.05], ids=["few weights", "many weights"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_at_most_three_times_X(case, share):  # noqa: N802
    X = CASES[case]()
    y = X @ np.where(np.arange(X.shape[1]) < 20, 1.0, 0.0) > 0.0
    l1 = share * float(np.max(np.abs(X.T @ (y - 0.5)))) / len(y)
    tracemalloc.start()
    try:
        solution = solve(ElasticNetLogistic(X, y).at(l1=l1, l2=0.01 * l1), within=1e-6)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert solution.reached and solution.x.any()
    assert peak <= 3.0 * size(X)
