"""The coefficient table of a search: what it calls proven against minimisers to a hundred digits, standard errors
against the sandwich written down, units against scalers."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    MultiTaskLasso,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV, _coefficient_proofs
from suffice.sklearn._final_fit import fit_final
from suffice.sklearn.splits import SearchData
from tests.reference_verified import data, minimiser, model

FEW = suffice.Options(max_evaluations=5, final_radius=1e-2)
FAMILY = {"squared": "gaussian", "logistic": "binomial", "poisson": "poisson"}
OUTPUT = {1: "+", -1: "-", 0: "zero"}


def fitted(estimator, X, y, penalties, weights=None):
    """The final model at these penalties, and what is proven of it."""
    weights = np.ones(len(y)) if weights is None else weights
    estimator, radius, proofs = fit_final(SearchData(estimator, X, y, weights), penalties)
    return estimator, radius, proofs


def false_claims(proofs, coef, truth):
    """What is claimed and does not hold, in balls."""
    wrong = []
    for j, (claim, radius) in enumerate(zip(proofs.proven.ravel(), proofs.radius.ravel(), strict=True)):
        x = truth.x[j]
        apart = abs(x - float(coef[j])) - truth.error
        if (claim == "+" and not (x > truth.error)) or (claim == "-" and not (x < -truth.error)):
            wrong.append((j, claim, x))
        if claim == "zero" and not (abs(x) <= truth.error):
            wrong.append((j, claim, x))
        if not (apart <= float(radius)):
            wrong.append((j, "radius", radius, x))
    return wrong


# --- proofs ---


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
@pytest.mark.parametrize("seed", range(6))
def test_no_claim_about_a_coefficient_is_false(loss, seed):
    rng = np.random.default_rng(seed)
    X, y = data(loss, seed=seed)
    X = X * 10.0 ** rng.integers(-2, 3, 6) + 10.0 ** rng.integers(-3, 4, 6)  # units, and means that are not zero
    weights = rng.integers(1, 4, len(y)).astype(float)
    factors = rng.choice([0.0, 0.5, 1.0, 2.0], 6)
    l1, l2 = 10.0 ** rng.uniform(-3, 0.5), rng.choice([0.0, 1e-6, 1e-2])
    glm = ElasticNetGLM(FAMILY[loss], penalty_factors=factors)
    found, radius, proofs = fitted(glm, X, y, {"l1": l1, "l2": l2}, weights)
    truth = minimiser(model(loss, X, y, l1 * factors, l2 * factors, intercept=True, weights=weights))
    assert not false_claims(proofs, found.coef_, truth)
    assert np.isfinite(radius) and np.mean(proofs.proven == "open") < 0.5


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_nothing_false_is_claimed_where_a_coefficient_enters(loss):
    X, y = data(loss, seed=11)
    start = ElasticNetGLM(FAMILY[loss], l1=1e6, l2=0.01).fit(X, y)
    r = y - y.mean() if loss == "squared" else np.where(y > 0, 1.0, 0.0) - expit(start.intercept_)
    kink = np.max(np.abs((X - X.mean(axis=0)).T @ r)) / len(y)  # the l1 from which on all are zero
    for l1 in kink * (1.0 + np.array([-1e-3, -1e-9, -1e-13, -1e-15, 0.0, 1e-15, 1e-13, 1e-9, 1e-3])):
        found, _, proofs = fitted(ElasticNetGLM(FAMILY[loss]), X, y, {"l1": float(l1), "l2": 0.01})
        truth = minimiser(model(loss, X, y, l1, 0.01, intercept=True))
        assert not false_claims(proofs, found.coef_, truth)


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_without_a_verification_distances_and_gradients_prove(loss, monkeypatch):
    monkeypatch.setattr(_coefficient_proofs, "MOST_PRODUCTS", 0.0)
    claims = []
    for seed in range(4):
        X, y = data(loss, seed=seed)
        found, radius, proofs = fitted(ElasticNetGLM(FAMILY[loss]), X, y, {"l1": 0.15, "l2": 0.01})
        truth = minimiser(model(loss, X, y, 0.15, 0.01, intercept=True))
        assert not false_claims(proofs, found.coef_, truth)
        assert (proofs.radius[proofs.proven != "zero"] == radius).all()
        claims += proofs.proven.ravel().tolist()
    assert {"+", "-"} <= set(claims)
    if loss != "poisson":  # whose curvature has no bound
        assert "zero" in claims


def test_a_support_is_proven_as_a_whole():
    X, y = data("logistic", seed=3)
    found, _, proofs = fitted(LogisticRegression(), X, y, {"l1": 0.05, "l2": 0.0})
    signs = [OUTPUT[int(sign)] for sign in np.sign(found.coef_[0])]
    assert proofs.proven[0].tolist() == signs and "zero" in signs and {"+", "-"} & set(signs)
    assert (proofs.radius[0][proofs.proven[0] == "zero"] == 0.0).all()


def test_weights_that_must_not_be_negative_are_proven_to_be_zero():
    X, y = data("squared", seed=2)
    found, _, proofs = fitted(ElasticNetGLM(positive=True), X, y, {"l1": 0.0, "l2": 0.01})
    assert set(proofs.proven[0]) == {"+", "zero"}
    assert ((found.coef_ == 0.0) == (proofs.proven[0] == "zero")).all()


def test_several_classes_and_targets():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 5))
    y = np.digitize(X[:, 0] + 0.3 * rng.standard_normal(80), [-0.5, 0.5])
    found, _, proofs = fitted(LogisticRegression(), X, y, {"l1": 0.1, "l2": 0.01})
    assert (np.sign(found.coef_) == [[{"+": 1, "-": -1, "zero": 0}[one] for one in row] for row in proofs.proven]).all()
    Y = np.column_stack([X[:, 0] - X[:, 1], X[:, 0] + X[:, 2]]) + rng.standard_normal((80, 2))
    found, _, proofs = fitted(MultiTaskLasso(), X, Y, {"l1": 0.4, "l2": 0.0})
    assert (proofs.proven == "zero").any() and ((proofs.proven == "zero") == (found.coef_ == 0.0)).all()
    assert (np.sign(found.coef_) == np.select([proofs.proven == "+", proofs.proven == "-"], [1, -1], 0)).all()


def test_sparse_rows_liblinear_and_hinges_are_proven_too():
    X, y = data("logistic", seed=1)
    for estimator in (LogisticRegression(solver="liblinear"), LinearSVC(), LogisticRegression(fit_intercept=False)):
        for rows in (X, sp.csr_matrix(X)):
            found, _, proofs = fitted(estimator, rows, y, {"l1": 0.0, "l2": 0.01})
            assert proofs.proven[0].tolist() == [OUTPUT[int(sign)] for sign in np.sign(found.coef_[0])]


def test_where_nothing_determines_the_coefficients_all_are_open():
    X, y = data("squared", seed=1)
    X[:, 1] = X[:, 0]
    _, radius, proofs = fitted(ElasticNetGLM(max_iter=50), X, y, {"l1": 0.0, "l2": 0.0})
    assert np.isfinite(radius) or (proofs.proven == "open").all()
    assert (proofs.radius <= radius).all()


def test_a_fit_by_scikit_learn_is_as_far_off_as_it_is():
    X, y = data("squared", seed=5)
    search = SufficeSearchCV(Lasso(tol=1e-2), {"l1": (0.01, 0.3)}, cv=3, options=FEW, refit="sklearn").fit(X, y)
    table = search.coefficients()
    truth = minimiser(model("squared", X, y, search.best_penalties_["l1"], 0.0, intercept=True)).rounded()
    assert (np.abs(table["coef"] - truth) <= table["radius"]).all() and (table["radius"] > 1e-8).any()
    assert table["proven"].tolist() == [OUTPUT[int(sign)] for sign in np.sign(truth)]


# --- standard errors ---


def sandwich(X, y, w, b, l2, mean, variance):
    Z = np.column_stack([X, np.ones(len(y))])
    m = X @ w + b
    H = Z.T @ (variance(m)[:, None] * Z) / len(y) + np.diag([l2] * len(w) + [0.0])
    U = Z * (mean(m) - y)[:, None] / len(y)
    V = np.linalg.inv(H) @ U.T @ U @ np.linalg.inv(H)
    return np.sqrt(np.diag(V))[: len(w)]


@pytest.mark.parametrize(
    ("loss", "mean", "variance"),
    [
        ("squared", lambda m: m, np.ones_like),
        ("logistic", expit, lambda m: expit(m) * expit(-m)),
        ("poisson", np.exp, np.exp),
    ],
)
def test_standard_errors_of_a_ridge_are_those_of_the_sandwich(loss, mean, variance):
    X, y = data(loss, rows=80)
    found, _, proofs = fitted(ElasticNetGLM(FAMILY[loss]), X + 3.0, y, {"l1": 0.0, "l2": 0.05})
    targets = np.where(y > 0, 1.0, 0.0) if loss == "logistic" else y
    own = sandwich(X + 3.0, targets, found.coef_, found.intercept_, 0.05, mean, variance)
    np.testing.assert_allclose(proofs.se[0], own, rtol=1e-6)


def test_standard_errors_of_several_classes_are_those_of_the_sandwich():
    rng = np.random.default_rng(4)
    X, K, l2, n = rng.standard_normal((90, 3)), 3, 0.05, 90
    y = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(n), [-0.5, 0.5])
    found, _, proofs = fitted(LogisticRegression(), X, y, {"l1": 0.0, "l2": l2})
    Z = np.column_stack([X, np.ones(n)])
    p = softmax(X @ found.coef_.T + found.intercept_, axis=1)
    U = ((p - np.eye(K)[y])[:, :, None] * Z[:, None, :]).reshape(n, -1) / n
    H = sum(np.kron(np.diag(q) - np.outer(q, q), np.outer(z, z)) for q, z in zip(p, Z, strict=True)) / n
    H += np.diag(np.tile([l2, l2, l2, 0.0], K))
    kept = np.arange(4 * K - 1)  # the last intercept is free
    inverse = np.linalg.inv(H[np.ix_(kept, kept)])
    V = inverse @ U[:, kept].T @ U[:, kept] @ inverse
    own = np.sqrt(np.append(np.diag(V), 0.0)).reshape(K, 4)[:, :3]
    np.testing.assert_allclose(proofs.se, own, rtol=1e-6)


def test_with_an_l1_or_more_columns_than_rows_there_is_no_standard_error():
    X, y = data("squared")
    assert np.isnan(fitted(ElasticNet(), X, y, {"l1": 1e-3, "l2": 0.1})[2].se).all()
    assert np.isnan(fitted(Ridge(), X[:6], y[:6], {"l1": 0.0, "l2": 0.1})[2].se).all()
    assert np.isfinite(fitted(Ridge(), X, y, {"l1": 0.0, "l2": 0.1})[2].se).all()


# --- the table ---


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": 50.0 + 7.0 * rng.standard_normal(90), "colour": rng.choice(list("rgb"), 90)})
    table["age"] = 3.0 * rng.standard_normal(90)
    y = 0.2 * table["size"] + 2.0 * (table["colour"] == "r") + rng.standard_normal(90)
    return table, y.to_numpy()


def test_coefficients_are_per_unit_of_the_column_and_per_standard_deviation(mixed):
    table, y = mixed
    columns = make_column_transformer((StandardScaler(), ["size", "age"]), (OneHotEncoder(), ["colour"]))
    search = SufficeSearchCV(make_pipeline(columns, Ridge()), cv=3, options=FEW).fit(table, y)
    found = search.coefficients().set_index("name")
    assert found.index.tolist()[2:] == ["onehotencoder__colour_b", "onehotencoder__colour_g", "onehotencoder__colour_r"]
    more = table.assign(size=table["size"] + 1.0)  # a unit of size changes predictions by its coefficient
    change = (search.predict(more) - search.predict(table)).mean()
    assert found.loc["standardscaler__size", "coef"] == pytest.approx(change, rel=1e-9)
    seen = columns.fit_transform(table)
    np.testing.assert_allclose(found["coef_standardised"], search.coef_ * seen.std(axis=0), rtol=1e-9)
    se = SufficeSearchCV(make_pipeline(columns, Ridge()), cv=3, options=FEW).fit(table, y).coefficients()["se"]
    np.testing.assert_array_equal(se, found["se"])


def test_units_go_through_selections_and_scalers_one_after_the_other():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 4)) * [1.0, 10.0, 100.0, 1000.0]
    y = X @ [1.0, 0.1, 0.0, 0.001] + rng.standard_normal(60)
    steps = (StandardScaler(), SelectKBest(k=3), MinMaxScaler())
    search = SufficeSearchCV(make_pipeline(*steps, Ridge()), cv=3, options=FEW).fit(X, y)
    kept = search.best_estimator_[1].get_support(indices=True)
    slopes = [search.predict(X + np.eye(4)[j])[0] - search.predict(X)[0] for j in kept]
    np.testing.assert_allclose(search.coefficients()["coef"], slopes, rtol=1e-6)
    other = SufficeSearchCV(make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()), cv=3, options=FEW).fit(
        X, y
    )
    np.testing.assert_array_equal(other.coefficients()["coef"], other.coef_)  # columns of its own


def test_a_table_has_a_row_for_every_class_and_none_for_an_offset():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((90, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * rng.standard_normal(90), [-0.5, 0.5])]
    search = SufficeSearchCV(LogisticRegression(), cv=3, options=FEW).fit(X, y)
    found = search.coefficients()
    assert (
        found["output"].tolist() == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
        and found["name"].tolist() == ["x0", "x1", "x2"] * 3
    )
    np.testing.assert_array_equal(found["coef"].to_numpy().reshape(3, 3), search.coef_)
    counts = rng.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    frame = pd.DataFrame(X, columns=["a", "known", "b"])
    search = SufficeSearchCV(ElasticNetGLM("poisson", offset="known"), cv=3, options=FEW).fit(frame, counts)
    assert search.coefficients()["name"].tolist() == ["a", "b"] and search.coef_[1] == 0.0


def test_groups_of_features_keep_their_own_penalties():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4))
    y = X[:, 0] - X[:, 2] + 0.3 * rng.standard_normal(60)
    space = {"l1_left": (1e-4, 1e-3), "l1_others": (5.0, 10.0), "l2": (1e-4, 1e-2)}
    search = SufficeSearchCV(ElasticNet(), space, cv=3, groups_of_features={"left": [0, 1]}, options=FEW).fit(X, y)
    assert search.coefficients()["proven"].tolist()[2:] == ["zero", "zero"] and search.n_nonzero_ == 2


def test_a_pickled_search_has_its_coefficients():
    X, y = data("squared")
    search = SufficeSearchCV(Ridge(), cv=3, options=FEW).fit(X, y)
    known = search.coefficients()
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(search)).coefficients(), known)
    assert "sandwich" in search.coefficients().attrs["se"]


def test_coefficients_are_those_of_the_delivered_model(mixed):
    table, y = mixed
    numbers = table[["size", "age"]]
    inner = make_pipeline(StandardScaler(), Lasso())
    search = SufficeSearchCV(TransformedTargetRegressor(inner, func=np.log1p, inverse_func=np.expm1), cv=3, options=FEW)
    assert not hasattr(search, "coef_")
    search.fit(numbers, y - y.min())
    np.testing.assert_array_equal(search.coef_, search.best_estimator_.regressor_[-1].coef_)
    assert search.intercept_ == search.best_estimator_.regressor_[-1].intercept_
    assert search.n_nonzero_ == np.count_nonzero(search.coef_)


def test_without_a_model_there_are_no_coefficients():
    X, y = data("squared")
    search = SufficeSearchCV(Ridge(), cv=3, options=FEW, refit=False).fit(X, y)
    for name in ("coef_", "intercept_", "n_nonzero_"):
        assert not hasattr(search, name)
    with pytest.raises(AttributeError, match=r"refit=False.*no coefficients"):
        search.coefficients()


def test_without_pandas_the_error_says_so(monkeypatch):
    X, y = data("squared")
    search = SufficeSearchCV(Ridge(), cv=3, options=FEW).fit(X, y)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        search.coefficients()


def test_levels_of_numeric_categories_are_named_as_people_write_them():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"hour": rng.integers(0, 4, 80).astype(float), "x_1.0": rng.standard_normal(80)})
    encoder = make_column_transformer(
        (OneHotEncoder(), ["hour"]), remainder="passthrough", verbose_feature_names_out=False
    )
    search = SufficeSearchCV(make_pipeline(encoder, Ridge()), cv=3).fit(X, X["hour"] + rng.standard_normal(80))
    assert list(search.coefficients()["name"]) == ["hour_0", "hour_1", "hour_2", "hour_3", "x_1.0"]
