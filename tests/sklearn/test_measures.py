"""Measures that people know, against scikit-learn's own; those of held-out rows against its cross-validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn import metrics
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris, make_regression
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, RepeatedStratifiedKFold, cross_val_predict
from sklearn.svm import LinearSVC

import suffice
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.measures import Predicted, as_text, compared_measures, share_interval, shown

FEW = suffice.Options(max_evaluations=4, final_radius=1e-2)
CV = KFold(3, shuffle=True, random_state=0)
ROWS = np.concatenate([test for _, test in CV.split(np.zeros((150, 1)))])
X, Y = load_iris(return_X_y=True)
Z = make_regression(150, 4, noise=20.0, random_state=1)[1]


def search(estimator, y, **more):
    return SufficeSearchCV(estimator, {"l2": (1e-3, 1.0)}, cv=CV, options=FEW, **more).fit(X, y)


def test_of_classes():
    found = search(LogisticRegression(), Y).held_out_
    assert found.y.tolist() == Y[ROWS].tolist()
    measured = found.measured()
    assert measured["accuracy"] == metrics.accuracy_score(found.y, found.predicted)
    assert measured["auc"] == metrics.roc_auc_score(found.y, found.decided, multi_class="ovr")
    assert measured["log_loss"] == pytest.approx(metrics.log_loss(found.y, found.decided))
    assert found.confusion()["counts"] == metrics.confusion_matrix(found.y, found.predicted).tolist()
    assert found.error() == pytest.approx(np.mean(np.sum((found.decided - np.eye(3)[found.y]) ** 2, axis=1)))


def test_held_out_rows_of_a_regression_are_those_of_cross_validation():
    made = search(Ridge(), Z)
    exact = cross_val_predict(Ridge(alpha=100 * made.best_penalties_["l2"]), X, Z, cv=CV)
    np.testing.assert_allclose(made.held_out_.predicted, exact[ROWS], rtol=1e-3, atol=1e-2)
    found = made.held_out_.measured()
    assert found["r2"] == pytest.approx(metrics.r2_score(Z, exact), rel=1e-3, abs=1e-4)
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(Z, exact), rel=1e-4)


@pytest.mark.parametrize(
    "estimator, y, dummy", [(LogisticRegression(), Y, DummyClassifier()), (Ridge(), Z, DummyRegressor())]
)
def test_the_baseline_is_scikit_learns_dummy(estimator, y, dummy):
    np.testing.assert_allclose(search(estimator, y).baseline_.predicted, cross_val_predict(dummy, X, y, cv=CV)[ROWS])


def test_targets_that_are_transformed_are_measured_in_their_own_units():
    made = search(TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp), np.exp(Z / 100.0))
    np.testing.assert_allclose(made.held_out_.y, np.exp(Z / 100.0)[ROWS])
    inside = search(Ridge(), Z / 100.0)
    ours = compared_measures(inside.held_out_, inside.baseline_, inverse=np.exp)["tuned"]
    assert ours == pytest.approx(made.held_out_.measured(), rel=1e-3)


def test_decision_values_rank_and_are_no_probabilities():
    made = search(LinearSVC(), (Y == 1).astype(int))
    found = made.held_out_.measured()
    assert set(found) == {"accuracy", "accuracy_low", "accuracy_high", "auc"}
    assert made.held_out_.gain(made.baseline_) == pytest.approx(1.0 - (1.0 - found["accuracy"]) / (50 / 150), abs=0.05)


def test_weights_count_and_what_is_not_finite_is_not_measured():
    y, p, s = np.array([0.0, 1.0, 5.0]), np.array([0.5, 1.0, 1.0]), np.array([1.0, 2.0, 0.0])
    found = Predicted(y, p, s).measured()
    assert found["rmse"] == pytest.approx(np.sqrt(0.25 / 3)) and found["mae"] == pytest.approx(0.5 / 3)
    assert Predicted(y, np.array([0.0, np.inf, 0.0])).measured() == {}


@given(n=st.integers(1, 400), share=st.floats(0.0, 1.0), coverage=st.sampled_from([0.9, 0.95]))
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(n, share, coverage):
    hits = round(share * n)
    exact = binomtest(hits, n).proportion_ci(coverage, method="exact")
    assert share_interval(hits, n, coverage) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_all_of_few_rows_right_is_no_certainty():
    labels = np.array(["a", "b"] * 31)
    found = Predicted(labels, labels, classes=np.array(["a", "b"])).measured()
    assert found["accuracy"] == 1.0 and found["accuracy_low"] == pytest.approx(0.025 ** (1 / 62))
    assert shown(found) == "accuracy 100.00 % (95 % interval 94.2 to 100.0 %)"


def test_rows_that_count_differently_are_fewer():
    labels, right = np.array([0, 1] * 30), np.array([0, 1] * 27 + [1, 0] * 3)
    classes, weight = np.array([0, 1]), np.tile([1.0, 1.0, 1.0, 1.0, 1.0, 20.0], 10)
    plain, unequal = (Predicted(labels, right, one, classes).measured() for one in (None, weight))
    same = Predicted(labels, right, np.full(60, 7.0), classes).measured()
    assert same == pytest.approx(plain)
    assert unequal["accuracy_high"] - unequal["accuracy_low"] > plain["accuracy_high"] - plain["accuracy_low"]


def test_rows_that_are_held_out_several_times_are_no_more_rows():
    again = RepeatedStratifiedKFold(n_splits=3, n_repeats=4, random_state=0)
    made = SufficeSearchCV(LogisticRegression(), {"l2": (1e-2, 1.0)}, cv=again, options=FEW).fit(X, Y)
    found = made.held_out_.measured()
    exact = binomtest(round(found["accuracy"] * 150), 150).proportion_ci(0.95, method="exact")
    assert found["accuracy_low"] == pytest.approx(exact.low, abs=5e-3)
    assert found["accuracy_high"] == pytest.approx(exact.high, abs=5e-3)


def test_numbers_for_people():
    assert as_text("accuracy", 0.97654) == "97.65 %" and as_text("rmse", 27_233.4) == "27,233"
    assert as_text("rmse", 131.4, 2) == "131" and as_text("rmse", 1.314, 2) == "1.3"
    assert as_text("r2", -0.0002673) == "0.000" and as_text("mae", 0.12345) == "0.1235"
