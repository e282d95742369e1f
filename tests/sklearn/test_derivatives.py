"""Derivatives of a search's folds: intercepts, scales and several classes move along with the weights."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet

import suffice
from suffice.models.families import POISSON
from suffice.models.margin_losses import LOGISTIC, SQUARED, SQUARED_HINGE
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn._structure import Structure
from suffice.sklearn.folds import LinearFold, Softmax
from suffice.sklearn.penalties import Penalised
from tests.search.test_derivatives import check

rng = np.random.default_rng(8)
X, X_val = 1.0 + rng.standard_normal((50, 6)), 1.0 + rng.standard_normal((20, 6))
w_true = np.array([1.5, 0.0, -1.0, 0.0, 0.7, 0.0])
y, y_val = X @ w_true + 1.0, X_val @ w_true + 1.0
y, y_val = y + rng.standard_normal(50), y_val + rng.standard_normal(20)
s, v = rng.random(50) + 0.2, rng.random(20) + 0.2
signs, signs_val = np.sign(y - 2.0), np.sign(y_val - 2.0)
counts, counts_val = np.round(np.exp(0.3 * y)), np.round(np.exp(0.3 * y_val))
PENALTIES = suffice.Space(l1=(1e-6, 1e2), l2=(1e-6, 1e2))
AT = {"l1": 0.03, "l2": 0.02}

FOLDS = {
    "squares": (LinearFold(X, y, SQUARED, s, "free"), y_val, "r2"),
    "squares, no intercept": (LinearFold(X, y, SQUARED, s, "none"), y_val, "neg_mean_squared_error"),
    "logistic": (LinearFold(X, signs, LOGISTIC, s, "free"), signs_val, "neg_log_loss"),
    "logistic, sparse": (LinearFold(sp.csr_array(X), signs, LOGISTIC, s, "free"), signs_val, "neg_brier_score"),
    "Poisson": (LinearFold(X, counts, POISSON, s, "free"), counts_val, "neg_mean_poisson_deviance"),
    "penalty factors": (
        LinearFold(X, counts, POISSON, s, "free", structure=Structure(np.array([0.0, 1.0, 2.0, 1.0, 0.5, 1.0]))),
        counts_val,
        "neg_mean_poisson_deviance",
    ),
    "squared hinge": (LinearFold(X, signs, SQUARED_HINGE, s, "column", 2.0), signs_val, "neg_squared_hinge"),
}


def problem_of(fold, X_held, y_held, scoring, space=PENALTIES, groups=(), group=None):
    return suffice.BilevelProblem(
        [Penalised(fold, 0.5, groups, group)],
        [fold.held_out(X_held, y_held, v, scoring, 5)],
        space=space,
        solver=fold.solver,
    )


@pytest.mark.parametrize("name", FOLDS)
def test_the_jacobian_of_a_fold_is_that_of_its_exact_solutions(name, monkeypatch):
    fold, y_held, scoring = FOLDS[name]
    X_held = sp.csr_array(X_val) if "sparse" in name else X_val
    check(problem_of(fold, X_held, y_held, scoring), AT, monkeypatch)


@pytest.mark.parametrize("factor", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score"])
def test_the_jacobian_of_several_classes(intercept, scoring, factor, monkeypatch):
    if not factor:
        monkeypatch.setattr("suffice.solvers.hessian.largest_matrix", lambda design, outputs=1: 0)
    classes, held = (np.digitize(target, [1.0, 3.0]) for target in (y, y_val))
    fold = LinearFold(X, classes, Softmax(3), s, "free" if intercept else "none")
    check(problem_of(fold, X_val, held, scoring), AT, monkeypatch)


def test_one_penalty_moves_the_other_by_their_ratio_and_groups_have_their_own(monkeypatch):
    fold, y_held, scoring = FOLDS["logistic"]
    check(problem_of(fold, X_val, y_held, scoring, suffice.Space(l1=(1e-6, 1e2))), {"l1": 0.03}, monkeypatch)
    monkeypatch.undo()
    names = suffice.Space(l1_a=(1e-6, 1e2), l2=(1e-6, 1e2), l1_b=(1e-6, 1e2))
    problem = problem_of(fold, X_val, y_held, scoring, names, ("a", "b"), np.array([0, 1, 0, 1, 1, 1]))
    check(problem, {"l1_a": 0.02, "l1_b": 0.04, "l2": 0.03}, monkeypatch)


def test_a_search_with_derivatives_takes_fewer_evaluations_to_the_same_score():
    X, y = load_diabetes(return_X_y=True)
    groups = {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7, 8, 9]}
    space = dict.fromkeys(("l1_a", "l1_b", "l1_c"), (1e-4, 1e1))  # below, steps without derivatives end on a plateau
    found = {}
    for derivatives in ("never", "auto"):
        options = suffice.Options(max_evaluations=80, final_radius=1e-3, derivatives=derivatives)
        found[derivatives] = SufficeSearchCV(
            ElasticNet(), space, cv=3, scoring="r2", options=options, groups_of_features=groups, tolerance=1e-5
        ).fit(X, y)
    assert found["auto"].best_score_ == pytest.approx(found["never"].best_score_, abs=1e-4)
    assert len(found["auto"].cv_results_["params"]) < len(found["never"].cv_results_["params"])
