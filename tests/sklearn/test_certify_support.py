"""Supports of fitted models: what `certify` calls wrong is wrong, by a solver that goes on to the end."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.preprocessing import StandardScaler

import suffice
from suffice.certifying import FitReport

X, LABELS = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
MODELS = [
    (LogisticRegression(solver="saga", l1_ratio=1.0, random_state=0), LABELS, {"tol": 1e-9, "max_iter": 20_000}),
    (LogisticRegression(solver="saga", l1_ratio=0.5, max_iter=20), LABELS, {"tol": 1e-9, "max_iter": 20_000}),
    (Lasso(0.01, max_iter=2), X[:, 0] + LABELS, {"tol": 1e-14, "max_iter": 100_000}),
    (ElasticNet(0.01, max_iter=3, fit_intercept=False), X[:, 3] - LABELS, {"tol": 1e-14, "max_iter": 100_000}),
]


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


@pytest.mark.parametrize(("model", "y", "more"), MODELS, ids=["saga", "both", "lasso", "net"])
def test_wrong_columns_are_those_that_a_solver_to_the_end_decides_otherwise(model, y, more):
    early, late = fitted(clone(model), X, y), fitted(clone(model).set_params(**more), X, y)
    report = suffice.certify(early, X, y)
    own, exact = np.ravel(early.coef_) != 0.0, np.abs(np.ravel(late.coef_)) > 1e-6
    assert report.support_open == 0
    assert report.wrongly_nonzero == tuple(np.flatnonzero(own & ~exact)) and report.wrongly_nonzero
    assert report.wrongly_zero == tuple(np.flatnonzero(~own & exact))
    count = len(report.wrongly_nonzero)
    assert f"{count} of the columns that it has chosen are proven to have a coefficient of zero" in report.message
    assert suffice.certify(late, X, y).wrongly_zero == ()
    assert report.plain()["wrongly_nonzero"] == report.wrongly_nonzero


def test_columns_that_are_left_out_wrongly_are_told():
    model = fitted(Lasso(0.01), X, LABELS)
    model.coef_ = model.coef_.copy()
    left = int(np.argmax(np.abs(model.coef_)))
    model.coef_[left] = 0.0
    report = suffice.certify(model, X, LABELS)
    assert left in report.wrongly_zero and "that it has left out" in report.message


def test_columns_of_several_classes_are_wrong_where_a_class_is():
    Z, y = load_iris(return_X_y=True)
    model = fitted(LogisticRegression(l1_ratio=0.9, C=0.1, solver="saga", max_iter=5_000, tol=1e-10), Z, y)
    assert suffice.certify(model, Z, y).wrongly_nonzero == ()
    model.coef_ = np.where(model.coef_ == 0.0, 1e-3, model.coef_)
    zero = suffice.certify(model, Z, y).wrongly_nonzero
    assert zero and set(zero) <= {0, 1, 2, 3}


def test_nothing_is_said_where_nothing_is_known():
    assert FitReport.nothing("no reason").wrongly_nonzero == ()
