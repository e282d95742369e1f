"""SufficeSearchCV of kernel machines: C (alpha) and gamma together, with intervals that hold for scikit-learn's own."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, NuSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import suffice
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.scores import SCORES
from suffice.sklearn.splits import SearchData
from suffice.testing import check_objective

FEW = suffice.Options(max_evaluations=6, final_radius=1e-2)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3)) * [1.0, 3.0, 0.3]
REAL = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * RNG.standard_normal(90)
TWO = np.where(REAL + 0.3 * RNG.standard_normal(90) > 0.0, "yes", "no")
THREE = np.digitize(REAL, [-0.5, 0.5])
SPACE = {"C": (1e-1, 1e2), "gamma": (1e-2, 1e1)}

ESTIMATORS = {
    "svc": (SVC(), SPACE, TWO),
    "svc, classes of their own weight": (SVC(class_weight="balanced"), SPACE, TWO),
    "svc, three classes": (SVC(), SPACE, THREE),
    "svc, linear": (SVC(kernel="linear"), {"C": (1e-2, 1e1)}, TWO),
    "svc, poly": (SVC(kernel="poly", degree=2, coef0=1.0), {"C": (1e-2, 1e1), "gamma": (1e-2, 1e0)}, TWO),
    "svr": (SVR(epsilon=0.05), SPACE, REAL),
    "svr, with epsilon": (SVR(), {**SPACE, "epsilon": (1e-2, 1e0)}, REAL),
    "svr, C alone": (SVR(), {"C": (1e-1, 1e2)}, REAL),
    "ridge": (KernelRidge(kernel="rbf"), {"alpha": (1e-4, 1e1), "gamma": (1e-2, 1e1)}, REAL),
    "ridge, laplacian": (KernelRidge(kernel="laplacian"), {"alpha": (1e-4, 1e1)}, REAL),
}


def found(name, weight=None, pipeline=True, **kwargs):
    estimator, space, y = ESTIMATORS[name]
    if pipeline:
        estimator = make_pipeline(StandardScaler(), estimator)
        prefix = f"{type(estimator[-1]).__name__.lower()}__"
        space = {f"{prefix}{key}": value for key, value in space.items()}
    kwargs = {"cv": 3, "options": FEW} | kwargs
    given = {} if weight is None else {"sample_weight": weight}
    return SufficeSearchCV(estimator, space, **kwargs).fit(X, y, **given)


def theirs(search, y, weight=None):
    """The mean score of scikit-learn's own machines, trained to twelve digits, in units of the mean over samples."""
    weight = np.ones(len(y)) if weight is None else weight
    labels = y.dtype.kind in "iU" and not np.issubdtype(y.dtype, np.floating)
    splits = (StratifiedKFold(3) if labels else KFold(3)).split(X, y)
    step, scorer = search.estimator.steps[-1][0], SCORES[search.optimised_scoring_].scorer
    scores = []
    for train, test in splits:
        s, whole = weight[train], weight
        balanced = getattr(search.estimator[-1], "class_weight", None) == "balanced"
        share = 1.0 if balanced else s.sum() / whole.sum()  # balanced weights sum to the number of rows
        share = len(train) / len(y) if balanced else share
        params = dict(search.best_params_)
        for key in params:
            params[key] *= {"C": 1.0 / share, "alpha": share}.get(key.rpartition("__")[2], 1.0)
        model = clone(search.estimator).set_params(**params)
        if hasattr(model[-1], "tol"):
            model.set_params(**{f"{step}__tol": 1e-12})
        model.fit(X[train], y[train], **{f"{step}__sample_weight": s})
        scores.append(scorer(model, X[test], y[test], sample_weight=weight[test]))
    return float(np.mean(scores))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_score_of_scikit_learns_machines_lies_in_the_proven_interval(name):
    search = found(name)
    low, high = search.score_interval_
    assert low - 1e-9 <= theirs(search, ESTIMATORS[name][2]) <= high + 1e-9
    assert high - low <= 2e-3 * abs(low)
    assert set(search.best_params_) == set(search.space)
    results = search.cv_results_
    assert np.all(results["test_score_low"] <= results["mean_test_score"])
    assert np.all(results["mean_test_score"] <= results["test_score_high"])


@pytest.mark.parametrize("name", ["svc", "svc, three classes", "svr", "ridge"])
def test_weights_count_in_training_and_in_scores(name):
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    search = found(name, weight)
    low, high = search.score_interval_
    assert low - 1e-9 <= theirs(search, ESTIMATORS[name][2], weight) <= high + 1e-9


@pytest.mark.parametrize("name", ["svc", "svc, three classes", "svc, poly", "svr, C alone", "ridge, laplacian"])
def test_the_final_model_is_scikit_learns_to_what_is_proven(name):
    search = found(name, pipeline=False, refit=True)
    y, best = ESTIMATORS[name][2], search.best_estimator_
    other = clone(best)
    if hasattr(other, "tol"):
        other.set_params(tol=1e-12)
    other.fit(X, y)
    ask = "predict" if y is REAL else "decision_function"
    ours, exact = (np.asarray(getattr(model, ask)(X)) for model in (best, other))
    reach = np.sqrt(np.max(np.sum(X**2, axis=1))) ** 2 if "linear" in name or "poly" in name else 1.0
    assert np.max(np.abs(ours - exact)) <= 4.0 * reach * (search.coef_radius_ + 1e-6)
    assert search.coef_radius_ <= 1e-3 * reach
    assert np.array_equal(best.predict(X), other.predict(X)) or y is REAL
    if hasattr(best, "n_support_"):
        assert best.n_support_.sum() == len(best.support_) == best.dual_coef_.shape[1]
        assert best.get_params()["gamma"] == search.best_params_.get("gamma", "scale")


def test_intervals_of_one_place_have_a_point_in_common_however_early_libsvm_has_stopped():
    results = found("svc", tolerance=1e-6).cv_results_
    places = np.array([list(params.values()) for params in results["params"]])
    several = 0
    for place in np.unique(places, axis=0):
        here = np.all(places == place, axis=1)
        several += here.sum() > 1
        assert results["test_score_low"][here].max() <= results["test_score_high"][here].min()
    assert several > 0


@pytest.mark.parametrize("name", ["svc, three classes", "svr", "ridge"])
def test_the_objective_delivers_what_it_is_asked_for(name):
    estimator, space, y = ESTIMATORS[name]
    data = SearchData(estimator, X, y, np.ones(len(y)))
    adapter = find_adapter(estimator)
    splits = [(np.arange(0, 90, 2), np.arange(1, 90, 2)), (np.arange(1, 90, 2), np.arange(0, 90, 2))]
    folds = [data.split(train, test, "a fold") for train, test in splits]
    found = adapter.space(estimator, space, "", data)
    problem = adapter.problem(folds, found, adapter.scorings[0], 1)
    check_objective(problem, np.zeros(len(found.names)), accuracies=(1e-1, 1e-2, 1e-3))


def test_accuracy_is_reported_and_a_smooth_score_is_tuned():
    with pytest.warns(UserWarning, match="neg_squared_hinge is optimised in its place"):
        search = found("svc", scoring="accuracy")
    accuracies = [get_scorer("accuracy")(search.best_estimator_, X, TWO), search.best_score_]
    assert all(0.5 < accuracy <= 1.0 for accuracy in accuracies)


def test_a_journal_is_taken_up_at_the_same_bits(tmp_path):
    whole = found("svr", journal=tmp_path / "one")
    again = found("svr", journal=tmp_path / "one", callback=lambda record: pytest.fail("nothing is left to do"))
    assert again.best_params_ == whole.best_params_ and again.score_interval_ == whole.score_interval_
    with pytest.raises(suffice.JournalError, match="folds"):
        found("svr", journal=tmp_path / "one", cv=4)


def test_threads_and_sparse_rows_make_no_difference():
    alone = found("svc")
    assert found("svc", n_jobs=2).score_interval_ == alone.score_interval_
    estimator, space, y = ESTIMATORS["svc"]
    dense, sparse = (SufficeSearchCV(estimator, space, cv=3, options=FEW).fit(rows, y) for rows in (X, sp.csr_array(X)))
    assert dense.score_interval_ == sparse.score_interval_


def test_what_only_linear_models_have_is_refused_by_name():
    search = found("svr", refit=False)
    for ask in (search.plot_coefficients, lambda: search.plot_regularisation_path(X, REAL)):
        with pytest.raises(TypeError, match="SVR has no coefficients"):
            ask()


def test_without_a_space_the_strength_and_gamma_are_tuned():
    search = SufficeSearchCV(SVR(), cv=3, options=FEW).fit(X, REAL)
    assert set(search.best_params_) == {"C", "gamma"}
    assert set(SufficeSearchCV(KernelRidge(), cv=3, options=FEW).fit(X, REAL).best_params_) == {"alpha"}


@pytest.mark.parametrize(
    ("estimator", "kwargs", "match"),
    [
        (SVC(kernel="sigmoid"), {}, "use one of rbf, linear, poly"),
        (SVC(kernel="precomputed"), {}, "use one of rbf"),
        (SVC(kernel="poly", coef0=-1.0), {}, "coef0 must not be negative"),
        (SVC(kernel="linear"), {"space": SPACE}, "dictionary of C to ranges"),
        (SVC(), {"space": {"l2": (1.0, 2.0)}}, "dictionary of C, gamma"),
        (SVC(), {"space": {"C": (0.0, 2.0)}}, "positive"),
        (SVC(), {"refit": "one_se"}, "for linear models"),
        (SVC(), {"certify_global": 0.1}, "for linear models"),
        (SVC(), {"groups_of_features": {"a": [0, 1]}}, "for linear models"),
        (SVR(), {"scoring": "neg_mean_absolute_error", "space": {"nu": (0.1, 1.0)}}, "C, gamma, epsilon"),
        (NuSVC(), {}, "use SVC"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(estimator, kwargs, match):
    with pytest.raises((ValueError, TypeError), match=match):
        SufficeSearchCV(estimator, cv=3, **kwargs).fit(X, TWO if "SVC" in type(estimator).__name__ else REAL)


ONE = suffice.Options(max_evaluations=2)
CHECKED = [SufficeSearchCV(SVR(), {"C": (0.1, 10.0)}, cv=2, initial={"C": 1.0}, options=ONE)]


@parametrize_with_checks(CHECKED)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_a_search_that_ends_at_an_edge_says_so():
    search = SufficeSearchCV(SVC(), {"C": (1e-2, 3e-2), "gamma": (1e-2, 1e1)}, cv=3, options=FEW)
    with pytest.warns(UserWarning, match="the best C lies on the upper edge of its space, 0.03"):
        search.fit(X, TWO)
