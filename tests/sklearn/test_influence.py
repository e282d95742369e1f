"""What rows do to coefficients and predictions, against refits without them; and the coefficient table's ranges."""

import itertools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn.influence import Influence

FEW = suffice.Options(max_evaluations=5, final_radius=1e-2)


def searched(estimator, X, y, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SufficeSearchCV(estimator, cv=4, options=FEW, **more).fit(X, y)


@pytest.fixture(scope="module")
def numbers():
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    return X[:70], y[:70].to_numpy()


def without(search, X, y, rows):
    """The last step fitted without some rows, the steps before it kept, and penalties of the mean over rows."""
    best, keep = search.best_estimator_, np.setdiff1d(np.arange(len(y)), rows)
    Z = best[:-1].transform(X)
    final = clone(best[-1])
    share = len(keep) / len(y)
    if isinstance(final, Ridge):
        final.set_params(alpha=final.alpha * share, tol=1e-12)
    elif isinstance(final, LogisticRegression):
        final.set_params(C=final.C / share, tol=1e-13, max_iter=50_000)
    else:
        final.set_params(tol=1e-14, max_iter=200_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        final.fit(Z[keep], y[keep])
    return np.ravel(final.coef_) / best[0].scale_, np.ravel(Z @ np.ravel(final.coef_) + final.intercept_)


@pytest.mark.parametrize("estimator", [Ridge(), ElasticNet()], ids=str)
def test_coefficients_and_predictions_without_a_row_lie_in_their_intervals(estimator, numbers):
    X, y = numbers
    search = searched(make_pipeline(StandardScaler(), estimator), X, y)
    found = suffice.influence(search)
    change, off = found.predictions()
    whole, of_whole = without(search, X, y, [])
    for i in range(0, 70, 3):
        coef, predicted = without(search, X, y, [i])
        assert (found.low[i] - 1e-6 * np.abs(whole) - 1e-9 <= coef).all()
        assert (coef <= found.high[i] + 1e-6 * np.abs(whole) + 1e-9).all()
        np.testing.assert_allclose(change[:, i], predicted - of_whole, atol=1e-4)
    assert (off < 1e-3).all() and change.shape == (70, 70)
    new, _ = found.predictions(X[:5])
    np.testing.assert_allclose(new, change[:5], atol=1e-6)


def test_signs_that_no_row_changes_and_those_that_one_does(numbers):
    X, y = numbers
    search = searched(make_pipeline(StandardScaler(), ElasticNet()), X, y)
    found = suffice.influence(search)
    truth = np.array([np.sign(without(search, X, y, [i])[0]) for i in range(70)])
    own = np.sign(search.coef_)
    assert found.open == ()
    assert found.kept == tuple(X.columns[(truth == own).all(axis=0)])
    assert found.changed == [(i, X.columns[j]) for i, j in np.argwhere(truth != own)]
    assert "No single row changes the sign of" in str(found) and "signs kept" in repr(found)


def test_rows_that_downdates_leave_open_are_fitted_anew():
    X, y = load_breast_cancer(return_X_y=True)
    search = searched(
        make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=0.5, solver="saga")), X[:150], y[:150]
    )
    found = suffice.influence(search)
    assert np.isfinite(found.low).all() and np.isfinite(found.high).all()
    for i in np.flatnonzero(~found.downdates.models.proven)[:3]:
        coef, _ = without(search, X[:150], y[:150], [i])
        np.testing.assert_allclose(
            0.5 * (found.low[i] + found.high[i]), coef, rtol=1e-3, atol=1e-3 * np.abs(coef).max()
        )


def test_a_planted_row_moves_its_prediction_by_more_than_a_standard_error():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X[:, 0] + 0.3 * rng.standard_normal(60)
    X[17], y[17] = (6.0, 6.0, 6.0), -30.0
    found = suffice.influence(searched(make_pipeline(StandardScaler(), Ridge()), X, y))
    moves = found.moves()
    assert int(np.argmax(moves)) == 17 and moves[17] > 1.0 and np.sort(moves)[-2] < 1.0


def test_sets_of_rows_change_a_sign_and_fewer_than_proven_never_do(numbers):
    X, y = numbers
    X, y = X.iloc[:14, [2, 3, 8]], y[:14]
    for estimator in (Ridge(), ElasticNet()):
        search = searched(make_pipeline(StandardScaler(), estimator), X, y)
        found = suffice.influence(search)
        for j, name in enumerate(X.columns):
            sign = np.sign(search.coef_[j])
            if sign == 0.0:
                continue
            chosen = found.smallest_set(name)
            if chosen.rows:
                assert np.sign(without(search, X, y, chosen.rows)[0][j]) != sign and chosen.at_least <= len(chosen.rows)
            for k in range(1, min(chosen.at_least, 4)):
                for rows in itertools.islice(itertools.combinations(range(14), k), 60):
                    assert np.sign(without(search, X, y, rows)[0][j]) == sign


def test_the_bound_on_rows_says_more_than_nothing_where_a_sign_is_clear():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    found = suffice.influence(
        searched(make_pipeline(StandardScaler(), Ridge()), X, 3.0 * X[:, 0] + rng.standard_normal(300))
    )
    assert 10 < found.smallest_set("x0").at_least <= len(found.smallest_set("x0").rows or range(300))


def test_the_coefficient_table_has_the_range_over_models_without_a_row(numbers):
    X, y = numbers
    search = searched(make_pipeline(StandardScaler(), ElasticNet()), X, y)
    found, rows = search.coefficients(), suffice.influence(search)
    np.testing.assert_array_equal(found["low"], rows.low.min(axis=0))
    assert (found["low"] <= found["coef"]).all() and (found["coef"] <= found["high"]).all()
    assert found.attrs["models"] == 70 and found["selected"].max() == 70
    assert (found["selected"][found["proven"] == "zero"] < 70).all()
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(search)).coefficients(), found)


def test_a_column_without_a_coefficient_has_none_without_a_row():
    rng = np.random.default_rng(1)
    X = np.abs(rng.standard_normal((60, 3)))
    y = rng.poisson(np.exp(0.5 * X[:, 1]) * X[:, 0]).astype(float)
    frame = pd.DataFrame(X, columns=["hours", "a", "b"])
    search = searched(ElasticNetGLM("poisson", exposure="hours"), frame, y)
    found = suffice.influence(search)
    assert (found.low[:, 0] == 0.0).all() and (found.low[:, 1] <= search.coef_[1]).any()
    assert list(search.coefficients()["name"]) == ["a", "b"] and np.isfinite(search.coefficients()["low"]).all()


def test_why_a_coefficient_is_open_is_told():
    X, y = load_iris(return_X_y=True)
    search = searched(LogisticRegression(), X, y)
    search._proofs.proven[0, 0] = "open"
    found = search.coefficients()
    assert found["why"][0] == "it is too near to zero" and (found["why"][1:] == "").all() and found["low"].isna().all()


def test_what_has_no_influence_says_so(numbers):
    X, y = numbers
    with pytest.raises(TypeError, match="influence is of models of one output"):
        suffice.influence(searched(LogisticRegression(), *load_iris(return_X_y=True)))
    found = suffice.influence(
        searched(make_pipeline(PolynomialFeatures(2), StandardScaler(), Ridge()), X.iloc[:, :2], y)
    )
    assert isinstance(found, Influence) and len(found.names) == 6
    with pytest.raises(ValueError, match=r"name must be a column, one of .*, got 'z'"):
        found.smallest_set("z")
