"""Minimisers without proofs satisfy their conditions nearly, wherever there are any."""

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.models.families import POISSON
from suffice.models.margin_losses import LOGISTIC, SQUARED
from suffice.solvers.unproven import MarginProblem

LOSSES = {"squares": SQUARED, "logistic": LOGISTIC, "poisson": POISSON}


def problem(name, free, rows=50, columns=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) + 1.0
    m = X @ np.where(np.arange(columns) < 3, 0.5, 0.0) + 0.3 * rng.standard_normal(rows)
    y = {"squares": m, "logistic": np.where(m > 1.5, 1.0, -1.0), "poisson": rng.poisson(np.exp(0.3 * m)).astype(float)}
    a = rng.uniform(0.5, 1.5, rows)
    return MarginProblem(X, a / a.sum(), y[name], LOSSES[name], free)


def conditions(known, w, l1, l2):
    """How far the gradient, and that of the intercept, are from what a minimiser has."""
    m = known.X @ w
    slopes = known.a * known.psi.derivative(m + known.level(m), known.y)
    g = known.X.T @ slopes + l2 * w
    off = np.where(w == 0.0, np.maximum(np.abs(g) - l1, 0.0), g + l1 * np.sign(w))
    return np.abs(off).max(), abs(slopes.sum()) if known.free else 0.0


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("penalties", [(0.05, 0.0), (0.0, 0.1), (0.02, 0.01), (1e-4, 1e-6)])
def test_the_conditions_of_a_minimiser_hold(name, free, penalties):
    known, (l1, l2) = problem(name, free), penalties
    w, steps, done = known.minimised(np.zeros(8), l1, l2, optimal=1e-9, least=1e-18, steps=40)
    assert done and steps <= 20
    assert max(conditions(known, w, l1, l2)) <= 1e-8
    again = known.minimised(w, l1, l2, optimal=1e-9, least=1e-18, steps=40)
    assert again[1] <= 1 and np.allclose(again[0], w, rtol=1e-6, atol=1e-9)


def test_sparse_rows_lead_to_the_same_weights():
    dense = problem("logistic", True)
    sparse = MarginProblem(sp.csr_array(dense.X), dense.a, dense.y, dense.psi, True)
    found = [one.minimised(np.zeros(8), 0.02, 0.01, optimal=1e-9, least=1e-18, steps=40)[0] for one in (dense, sparse)]
    np.testing.assert_allclose(*found, rtol=1e-7, atol=1e-12)  # a decrease by 1e-16 of Phi is all that is seen


def test_more_columns_than_rows_have_a_minimiser_as_well():
    known = problem("logistic", True, rows=20, columns=60)
    w, _, done = known.minimised(np.zeros(60), 0.05, 1e-3, optimal=1e-9, least=1e-18, steps=40)
    assert done and max(conditions(known, w, 0.05, 1e-3)) <= 1e-8
    assert 0 < np.count_nonzero(w) < 20


def test_steps_that_run_out_are_told():
    known = problem("poisson", True)
    assert known.minimised(np.zeros(8), 0.01, 0.0, optimal=1e-9, least=1e-18, steps=1)[2] is False
