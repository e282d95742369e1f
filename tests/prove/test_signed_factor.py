"""Norms of rows in the metric of a Hessian, bounded with as little work as they are needed for."""

import numpy as np
import pytest

from suffice.prove.signed_factor import SignedFactor
from suffice.rows.design import Design


def factored(rows, columns, intercept, seed, spread=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-spread, spread, columns)
    C = 10.0 ** rng.uniform(-9, 0, rows) / rows * (rng.random(rows) < 0.9)
    l2 = np.full(columns, 1e-8) * np.mean(X**2, axis=0)
    design = Design.of(X)
    factor = SignedFactor.of(design, np.arange(columns), C, l2, intercept)
    assert factor is not None
    A = np.hstack([X, np.ones((rows, int(intercept)))])
    H = A.T @ (C[:, None] * A) + np.diag(np.append(l2, np.zeros(int(intercept))))
    return design, factor, np.sqrt(np.einsum("ij,ij->i", A, np.linalg.solve(H, A.T).T))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_no_bound_is_less_than_the_norm_of_its_row_however_little_is_asked_for(intercept, seed):
    design, factor, true = factored(40, 5, intercept, seed, spread=3.0)
    for useful in (0.0, 1.0, 100.0, 1e6):
        bounds = factor.norms(design, useful)
        assert np.all(bounds >= true * (1.0 - 1e-6))
        assert np.all(bounds <= np.maximum(1.01 * true, useful))  # as sharp as asked for


def test_rows_that_the_hessian_holds_itself_are_not_solved_for(monkeypatch):
    """x^T H^-1 x <= 1 / C for a row that is in H with the weight C."""
    design, factor, _ = factored(40, 5, True, 0)
    rest = np.flatnonzero(factor.curvature < 1e-4)
    seen = []
    blocks = SignedFactor.blocks
    monkeypatch.setattr(SignedFactor, "blocks", lambda self, X: seen.append(len(X)) or blocks(self, X))
    factor.norms(design, 101.0)
    assert sum(seen) <= len(rest) < 40
