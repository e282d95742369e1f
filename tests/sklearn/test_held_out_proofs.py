"""What intervals and influence are made of, against refits in extended precision: bounds of new rows' margins by models
with any radius, and ranges of coefficients without a row, of problems made to break proofs."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.prove.downdated import Groups, WholeModel
from suffice.prove.left_out import leave_out
from suffice.rows.design import Design
from suffice.sklearn import ElasticNetGLM
from suffice.sklearn._held_out_models import ProvenModel
from suffice.sklearn.influence import _ranges
from suffice.sklearn.splits import SearchData
from suffice.solvers.solver import solve
from tests.reference_left_out import SLOPES, hostile, refitted, solved_whole

FAMILIES = {"squares": "gaussian", "logistic": "binomial", "poisson": "poisson", "gamma": "gamma"}


@pytest.mark.parametrize("seed", range(4))
def test_margins_of_new_rows_lie_where_models_say_whatever_their_radius(seed):
    """As few steps as come, so that radii are of every size."""
    rng, told, tight = np.random.default_rng(seed), 0, 0
    while told < 60:
        kind, X, y, a, l1, l2, intercept, _ = hostile(rng)
        if kind not in FAMILIES or l2[0] == 0.0:
            continue
        estimator = ElasticNetGLM(FAMILIES[kind], fit_intercept=intercept)
        labels = (y > 0.0).astype(int) if kind == "logistic" else y
        given = sp.csr_array(X) if rng.random() < 0.3 else X
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                split = SearchData(estimator, given, labels, a * len(a)).whole()
                steps = int(rng.integers(1, 30))
                found = solve(split.model.at(l1=float(l1[0]), l2=float(l2[0])), steps=steps, solver=split.solver)
                model = ProvenModel.of(split, found)
            except ValueError:  # there is no finite intercept
                continue
        coef, b = split.model.coefficients(found.x)
        true = refitted(kind, X, y, a, l1, l2, intercept, np.zeros(len(y)), np.append(coef, b))
        new = np.vstack([X[:2], rng.standard_normal((3, X.shape[1]))])
        m, h = model.margins(sp.csr_array(new) if sp.issparse(given) else new)
        if true is None or not np.isfinite(h).all():
            continue
        told += 1
        apart = np.array([abs(float(true.margin(x) - m[i, 0])) for i, x in enumerate(new)])
        assert (apart <= h).all(), (kind, apart, h)
        tight += int((h < 1e-3 * (1.0 + np.abs(m[:, 0]))).all())
    assert tight > 5


@pytest.mark.parametrize("seed", range(3))
def test_coefficients_without_a_row_lie_in_their_ranges(seed):
    rng, told = np.random.default_rng(100 + seed), 0
    while told < 150:
        problem = hostile(rng)
        kind, X, y, a, l1, l2, intercept, offset = problem
        groups = [np.array([i]) for i in range(len(y)) if a[i] < 1.0 - 1e-9]
        share = np.array([1.0 - a[rows].sum() for rows in groups])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            w, b = solved_whole(problem)
        model = WholeModel(Design(X, a), y, SLOPES[kind][0], l1, l2, intercept, offset if offset.any() else None)
        made = leave_out(model, w, b, Groups.of(groups, share))
        low, high = _ranges(SimpleNamespace(models=made))
        W = made.weights
        for g in np.flatnonzero(made.proven)[:: max(len(groups) // 8, 1)]:
            keep = np.setdiff1d(np.arange(len(y)), groups[g])
            near = np.append(W[:, g], made.b[g])
            true = refitted(
                kind, X[keep], y[keep], a[keep], l1 * share[g], l2 * share[g], intercept, offset[keep], near
            )
            if true is None:
                continue
            told += 1
            exact = np.asarray(true.w, dtype=float)
            blur = 1e-15 * np.abs(exact)  # of the rounding to float64
            assert (low[g] - blur <= exact).all() and (exact <= high[g] + blur).all(), (kind, low[g], exact, high[g])
            assert (exact[(low[g] == 0.0) & (high[g] == 0.0)] == 0.0).all()
