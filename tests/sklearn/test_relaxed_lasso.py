"""The relaxed lasso: glmnet's mixture, written out with scikit-learn's own fits, and chosen by the folds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV, relaxed

FEW = suffice.Options(max_evaluations=10, final_radius=1e-2)
L1 = {"l1": (1e-3, 1.0)}


def sparse_signal(rows=100, columns=20, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) + 0.5
    return X, X[:, 0] - X[:, 1] + X[:, 2] + noise * rng.standard_normal(rows)


def mixture(X, y, alpha, gamma):
    """beta and the intercept by scikit-learn."""
    lasso = Lasso(alpha=alpha, tol=1e-12, max_iter=100_000).fit(X, y)
    support = lasso.coef_ != 0.0
    refit = LinearRegression().fit(X[:, support], y)
    coef = gamma * lasso.coef_
    coef[support] += (1.0 - gamma) * refit.coef_
    return coef, gamma * lasso.intercept_ + (1.0 - gamma) * refit.intercept_


@pytest.fixture(scope="module")
def found():
    X, y = sparse_signal()
    search = SufficeSearchCV(Lasso(), L1, cv=KFold(5), options=FEW).fit(X, y)
    return search, X, y, relaxed(search, X, y)


def test_the_model_is_the_mixture_of_the_lasso_and_least_squares_on_its_support(found):
    _, X, y, made = found
    coef, intercept = mixture(X, y, made.penalties["l1"], made.gamma)
    np.testing.assert_allclose(made.estimator.coef_, coef, atol=1e-8)
    assert made.estimator.intercept_ == pytest.approx(intercept, abs=1e-8)
    assert made.estimator.alpha == made.penalties["l1"]
    assert np.linalg.norm(made.estimator.coef_ - coef) <= made.coef_radius + 1e-9


def test_the_choice_is_the_best_mean_over_the_folds_of_the_search(found):
    search, X, y, made = found
    table = pd.DataFrame(made.table)
    best = table.loc[table["score"].idxmax()]
    assert best["score"] == made.score and best["gamma"] == made.gamma
    assert made.penalties["l1"] == pytest.approx(best["multiple"] * search.best_penalties_["l1"])
    for row in table.iloc[[0, 7, 33, 64]].itertuples():
        losses = []
        for train, test in KFold(5).split(X):
            coef, intercept = mixture(X[train], y[train], row.multiple * search.best_penalties_["l1"], row.gamma)
            losses.append(mean_squared_error(y[test], X[test] @ coef + intercept))
        assert row.score == pytest.approx(-np.mean(losses), rel=1e-3)
    assert made.penalised_score == table.loc[table["gamma"] == 1.0, "score"].max()
    assert table["score"][0] == pytest.approx(search.best_score_, rel=1e-3)  # gamma = 1 at the search's own penalties


def test_it_shows_itself_in_a_line(found):
    shown = repr(found[3])
    assert shown.startswith("<Relaxed: gamma ") and " columns, score " in shown and len(shown) < 100


def test_a_clear_sparse_signal_is_found_and_hardly_shrunken(found):
    search, _, _, made = found
    assert made.gamma < 1.0 and made.support.sum() < search.n_nonzero_ and made.support[:3].all()
    assert made.support_proven and made.score > made.penalised_score
    assert np.abs(made.estimator.coef_[:3]).min() > np.abs(search.coef_[:3]).min()


def test_classes_and_pipelines_take_part():
    X, y = sparse_signal(noise=2.0)
    labels = np.where(y > np.median(y), "yes", "no")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=1.0, solver="saga"))
    search = SufficeSearchCV(pipeline, L1, cv=4, options=FEW).fit(X, labels)
    made = relaxed(search, X, labels)
    seen, last = StandardScaler().fit_transform(X), made.estimator[-1]
    C = 1.0 / (made.penalties["l1"] * len(y))
    kept = {"tol": 1e-10, "max_iter": 100_000}
    lasso = LogisticRegression(C=C, l1_ratio=1.0, solver="saga", **kept).fit(seen, labels)
    refit = LogisticRegression(C=np.inf, **kept).fit(seen[:, made.support], labels)
    coef = made.gamma * lasso.coef_[0]
    coef[made.support] += (1.0 - made.gamma) * refit.coef_[0]
    np.testing.assert_allclose(last.coef_[0], coef, atol=1e-4)
    assert pytest.approx(last.C) == C and set(made.estimator.predict(X)) == {"yes", "no"}


def test_weights_count_in_fits_and_scores():
    X, y = sparse_signal(rows=60)
    weight = np.random.default_rng(1).integers(0, 3, 60)
    search = SufficeSearchCV(Lasso(), L1, cv=KFold(3), options=FEW).fit(X, y, sample_weight=weight)
    made = relaxed(search, X, y, sample_weight=weight)
    row, losses = pd.DataFrame(made.table).iloc[12], []
    for train, test in KFold(3).split(X):
        rows = np.repeat(train, weight[train])  # whole weights are copies of rows
        coef, intercept = mixture(X[rows], y[rows], row["multiple"] * search.best_penalties_["l1"], row["gamma"])
        losses.append(mean_squared_error(y[test], X[test] @ coef + intercept, sample_weight=weight[test]))
    assert row["score"] == pytest.approx(-np.mean(losses), rel=1e-3)


def test_an_l2_stays_in_the_refit():
    X, y = sparse_signal()
    search = SufficeSearchCV(ElasticNetGLM(), {"l1": (0.05, 0.5), "l2": (0.5, 0.6)}, cv=3, options=FEW).fit(X, y)
    made = relaxed(search, X, y)
    support, (l1, l2) = made.support, (made.penalties["l1"], made.penalties["l2"])
    both = ElasticNetGLM(l1=l1, l2=l2).fit(X, y).coef_
    refit = Ridge(alpha=l2 * len(y)).fit(X[:, support], y).coef_
    np.testing.assert_allclose(
        made.estimator.coef_[support], made.gamma * both[support] + (1.0 - made.gamma) * refit, atol=1e-6
    )


def test_refits_that_do_not_exist_are_left_out():
    X, y = sparse_signal(rows=40, noise=0.0)
    labels = y > np.median(y)  # separable: without an l1 nothing is finite
    estimator = LogisticRegression(l1_ratio=1.0, solver="saga")
    search = SufficeSearchCV(estimator, {"l1": (1e-4, 1e-2)}, cv=4, options=FEW).fit(X, labels)
    made = relaxed(search, X, labels)
    table = pd.DataFrame(made.table)
    assert table["score"][table["gamma"] == 1.0].notna().all() and table["score"].isna().any()
    assert np.isfinite(made.score) and np.isfinite(made.estimator.coef_).all()


def test_what_cannot_be_relaxed_is_refused_with_the_reason():
    X, y = sparse_signal(rows=40)
    with pytest.raises(ValueError, match="needs an l1 penalty, the best penalties are"):
        relaxed(SufficeSearchCV(Ridge(), cv=3, options=FEW).fit(X, y), X, y)
    X, y = load_iris(return_X_y=True)
    search = SufficeSearchCV(LogisticRegression(l1_ratio=1.0, solver="saga"), L1, cv=3, options=FEW).fit(X, y)
    with pytest.raises(ValueError, match="one output whose intercept is not penalised, got LogisticRegression"):
        relaxed(search, X, y)
