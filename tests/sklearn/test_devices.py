"""A search with its rows on a device: folds, scores and models of main memory, and errors that name what is wrong."""

import re

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from suffice import Options, terms
from suffice.models.intercept import Intercepted
from suffice.rows.design import Design
from suffice.rows.given import Place, Shared, in_main_memory
from suffice.search import solves
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn._preparation import refused
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.folds import LinearFold
from suffice.sklearn.penalties import split_pipeline
from suffice.sklearn.splits import SearchData
from suffice.solvers.many import solve_each
from tests.test_backends import array

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
X = 3.0 * rng.standard_normal((150, 6)) + 1.0
t = X @ (np.arange(6) % 3 == 0) + 2.0 * rng.standard_normal(150)
labels = np.where(t > t.mean(), "yes", "no")
few = Options(max_evaluations=6)
MODELS = {
    "logistic": (LogisticRegression(l1_ratio=0.5, solver="saga"), labels),
    "no intercept": (LogisticRegression(l1_ratio=0.5, solver="saga", fit_intercept=False), labels),
    "ridge": (Ridge(), t),
    "lasso": (Lasso(), t),
    "elastic net": (ElasticNet(fit_intercept=False), t),
}


def search(estimator, **how):
    how = {"cv": 3, "options": few, **how}
    return SufficeSearchCV(estimator, **how)


def space_of(estimator):
    return {"l2": (1e-3, 1e2)} if isinstance(estimator, Ridge) else {"l1": (1e-3, 1e1)}


def agree(here, there):
    ours, theirs = here.best_estimator_.coef_, there.best_estimator_.coef_
    assert there.best_score_ == pytest.approx(here.best_score_, rel=1e-3)
    assert type(theirs) is np.ndarray and np.linalg.norm(theirs - ours) <= 0.1 * np.linalg.norm(ours)
    assert there.coef_radius_ <= 1e-5 * np.linalg.norm(theirs)


@pytest.mark.filterwarnings("ignore:the best")
@pytest.mark.parametrize("how", ["device='cpu'", "torch", "torch on cuda"])
@pytest.mark.parametrize("model", MODELS)
def test_a_search_finds_what_it_finds_in_main_memory(model, how):
    estimator, y = MODELS[model]
    space = space_of(estimator)
    here = search(estimator, space=space).fit(X, y)
    if how == "device='cpu'":
        there = search(estimator, space=space, device="cpu").fit(X, y)
    else:
        there = search(estimator, space=space).fit(array(how, X), y)
    agree(here, there)


@pytest.mark.filterwarnings("ignore:the best")
@pytest.mark.parametrize("library", ["array_api_strict", "cupy"])
def test_other_libraries_are_taken_by_the_array_api(library):
    estimator, y = MODELS["logistic"]
    rows = array(library, X)
    there = search(estimator, space={"l1": (1e-3, 1e1)}).fit(rows, y)
    agree(search(estimator, space={"l1": (1e-3, 1e1)}).fit(X, y), there)
    assert (there.predict(rows) == there.predict(X)).all()


@pytest.mark.filterwarnings("ignore:the best")
@pytest.mark.parametrize("cv", [3, ShuffleSplit(2, random_state=0)], ids=["partition", "others"])
def test_steps_of_a_pipeline_are_fitted_in_main_memory_and_their_rows_moved(cv):
    estimator = make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=0.5, solver="saga"))
    here, there = (search(estimator, space={"l1": (1e-3, 1e1)}, cv=cv, device=device) for device in (None, "cpu"))
    assert there.fit(X, labels).best_score_ == pytest.approx(here.fit(X, labels).best_score_, rel=1e-3)
    assert (there.predict(X) == here.predict(X)).mean() > 0.97


def test_all_folds_are_views_of_one_copy():
    data = SearchData(
        LogisticRegression(solver="saga", l1_ratio=0.5), X, labels, np.ones(150), place=Place.of("cpu", X)
    )
    splits = [(np.flatnonzero(np.arange(150) % 3 != k), np.flatnonzero(np.arange(150) % 3 == k)) for k in range(3)]
    data = data.sharing(splits)
    folds = [data.split(train, test, "a fold", k) for k, (train, test) in enumerate(splits)]
    assert {fold.model.design.X.data_ptr() for fold in folds} == {data.one.rows.X.data_ptr()}
    np.testing.assert_array_equal(folds[1].X, X[splits[1][1]])


def test_an_intercept_is_that_of_main_memory():
    """Products with X are made where it lives; whatever has one number for every row is here."""
    y, weights = np.where(labels == "yes", 1.0, -1.0), np.arange(150) % 4 * 1.0
    there = LinearFold(Shared(torch.asarray(X), np.zeros(6)), y, terms.LOGISTIC, weights, "free")
    here = Intercepted(Design.of(X, weights), y, terms.LOGISTIC, 0.0)
    w = np.linspace(-0.2, 0.2, 6)
    model = there.unpenalised
    np.testing.assert_allclose(model.gradient(w), here.gradient(w), rtol=1e-10, atol=1e-13)
    assert model.shift(model.image(w))[0] == pytest.approx(here.shift(here.image(w))[0], rel=1e-12)
    assert isinstance(model.image(w), np.ndarray)


@pytest.mark.filterwarnings("ignore:the best")
@pytest.mark.parametrize("model", ["logistic", "no intercept"])
def test_folds_of_a_search_are_solved_at_a_time_where_the_rows_are(model, monkeypatch):
    monkeypatch.setattr(
        solves, "solve_each", lambda asks, solver: batches.append(len(asks)) or solve_each(asks, solver)
    )
    batches = []
    estimator, y = MODELS[model]
    ranges = {"l1": (1e-3, 1e1), "l2": (1e-3, 1e1)}
    search(estimator, space=ranges, device="cuda" if torch.cuda.is_available() else "cpu").fit(X, y)
    assert max(batches) == 3


@pytest.mark.filterwarnings("ignore:the best")
def test_predictions_are_numpys():
    made = search(LogisticRegression(l1_ratio=0.5, solver="saga"), space={"l1": (1e-3, 1e1)}).fit(
        torch.asarray(X), torch.asarray(t > t.mean())
    )
    rows = torch.asarray(X)
    assert type(made.predict(rows)) is np.ndarray and type(made.predict_proba(rows)) is np.ndarray
    assert made.score(rows, torch.asarray(t > t.mean())) == pytest.approx(made.score(X, t > t.mean()))


@pytest.mark.parametrize(
    "how, X, y, error, message",
    [
        ({"device": "cuda:99"}, X, labels, ValueError, "device must be .* got 'cuda:99'"),
        ({"device": "abacus"}, X, labels, ValueError, "device must be .* got 'abacus'"),
        ({"device": "cpu", "n_jobs": 2}, X, labels, ValueError, r"device='cpu' goes with n_jobs=1.* got n_jobs=2"),
        ({"device": "cpu", "certify_global": 0.1}, X, labels, ValueError, "certify_global takes X in main memory"),
        ({"device": "cpu"}, X, np.arange(150) % 3, ValueError, "device='cpu' is for LogisticRegression"),
        ({}, torch.asarray(X)[:, 0], labels, ValueError, "Expected 2D array"),
        ({}, torch.asarray(X) / 0.0, labels, ValueError, "Input X contains NaN or infinity"),
        ({}, torch.asarray(X), labels[:-1], ValueError, "inconsistent numbers of samples"),
    ],
)
def test_bad_input_is_named(how, X, y, error, message):
    with pytest.raises(error, match=message):
        search(LogisticRegression(l1_ratio=0.5, solver="saga"), **how).fit(X, y)


def test_models_that_need_main_memory_say_so():
    far = torch.asarray(X).to("meta")  # of no place at all, but not of main memory either
    for estimator, y, message in (
        (PoissonRegressor(), np.abs(t), r"X on a device is for .* got PoissonRegressor"),
        (make_pipeline(StandardScaler(), Ridge()), t, "steps of a pipeline take X in main memory"),
    ):
        final, before = split_pipeline(estimator)
        assert re.search(message, refused(search(estimator), far, y, find_adapter(final), final, bool(before)))
    assert not in_main_memory(far) and in_main_memory(torch.asarray(X))


@pytest.mark.filterwarnings("ignore:the best")
@pytest.mark.parametrize("estimator", [PoissonRegressor(), make_pipeline(StandardScaler(), Ridge())])
def test_what_is_in_main_memory_anyway_is_taken_as_numpys_there(estimator):
    here, there = (search(estimator, space={"l2": (1e-3, 1e1)}).fit(rows, np.abs(t)) for rows in (X, torch.asarray(X)))
    assert there.best_score_ == here.best_score_


def test_without_torch_a_device_is_an_import_error(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ImportError, match=r"device='cuda' needs torch: pip install 'suffice\[gpu\]'"):
        Place.of("cuda", X)
