"""Norms of rows in the metric of a Hessian, bounded with as little work as they are needed for."""

import numpy as np
import pytest

from suffice.prove.factor import ProvenFactor, Variables
from suffice.prove.verified_rows import Pieces, weighted_gram
from suffice.rows.design import Design


def factored(rows, columns, intercept, seed, spread=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-spread, spread, columns)
    C = 10.0 ** rng.uniform(-9, 0, rows) / rows * (rng.random(rows) < 0.9)
    l2 = np.full(columns, 1e-8) * np.mean(X**2, axis=0)
    design, variables = Design.of(X), Variables((np.arange(columns),), intercept)
    factor = ProvenFactor.of(
        *weighted_gram(X, variables, C), rows, variables, variables.gathered(l2[None, :], np.zeros(1))
    )
    assert factor is not None
    A = np.hstack([X, np.ones((rows, int(intercept)))])
    H = A.T @ (C[:, None] * A) + np.diag(np.append(l2, np.zeros(int(intercept))))
    known = factor.rough_norms(design.row_norms, Pieces(C[:, None]).own_norms(np.ones(rows)))
    return X, factor, known, C, np.sqrt(np.einsum("ij,ij->i", A, np.linalg.solve(H, A.T).T))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_no_bound_is_less_than_the_norm_of_its_row(intercept, seed):
    X, factor, rough, C, true = factored(40, 5, intercept, seed, spread=3.0)
    bounds = factor.norms(X)[:, 0]
    assert np.all(bounds >= true * (1.0 - 1e-6)) and np.all(bounds <= 1.01 * true)
    assert np.all(rough[:, 0] >= true * (1.0 - 1e-6))
    assert np.all(rough[:, 0] <= 1.01 / np.sqrt(C))  # x^T H^-1 x <= 1 / C for a row that is in H with the weight C
