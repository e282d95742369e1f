"""Norms of rows in the metric of a Hessian, bounded with as little work as they are needed for."""

import numpy as np
import pytest

from suffice.prove.factor import ProvenFactor, Variables
from suffice.prove.outputs import Pieces, weighted_gram
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
def test_no_bound_is_less_than_the_norm_of_its_row_however_little_is_asked_for(intercept, seed):
    X, factor, known, _, true = factored(40, 5, intercept, seed, spread=3.0)
    for useful in (0.0, 1.0, 100.0, 1e6):
        bounds = factor.norms(X, known, useful)[:, 0]
        assert np.all(bounds >= true * (1.0 - 1e-6))
        assert np.all(bounds <= np.maximum(1.01 * true, useful))  # as sharp as asked for


def test_rows_that_the_hessian_holds_itself_are_not_solved_for(monkeypatch):
    """x^T H^-1 x <= 1 / C for a row that is in H with the weight C."""
    X, factor, known, C, _ = factored(40, 5, True, 0)
    rest = np.flatnonzero(C < 1e-4)
    seen = []
    lengths = ProvenFactor._lengths
    monkeypatch.setattr(ProvenFactor, "_lengths", lambda self, rows: seen.append(len(rows[0])) or lengths(self, rows))
    factor.norms(X, known, 101.0)
    assert sum(seen) <= len(rest) < 40
