"""The report's sections of intervals and of single rows."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.model_selection import TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import suffice
from suffice import plots
from suffice.sklearn import SufficeSearchCV, report
from suffice.sklearn._page_sections import collect, measured

FEW = suffice.Options(max_evaluations=5, final_radius=1e-2)


def searched(estimator, X, y, cv=4):
    return SufficeSearchCV(make_pipeline(StandardScaler(), estimator), cv=cv, options=FEW).fit(X, y)


@pytest.fixture(scope="module")
def fitted():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return searched(ElasticNet(), X[:120], y[:120]), X[:120], y[:120]


def test_a_page_has_what_intervals_cover_and_what_single_rows_do(fitted):
    search, X, y = fitted
    data = json.loads(json.dumps(report.collect(search, X, y, about={})))
    page = report.page(data)
    assert 'id="intervals"' in page and 'id="influence"' in page and "No single row changes the sign of" in page
    assert data["intervals"]["rows"] == 120 and "CV+ with 4 folds" in page
    without = report.page({**data, "intervals": None, "influence": None})
    assert 'id="intervals"' not in without and 'id="influence"' not in without


def test_coverage_is_counted_with_the_errors_of_other_folds(fitted):
    search, _, y = fitted
    found = search._training.conformal(search, "cv+", "fixed")
    data = measured(found, 0.9)
    R, of = np.abs(found.y - found.models.margin[:, 0]), found.models.of
    hit = [R[i] <= np.sort(R[of != of[i]])[int(np.ceil(0.9 * (np.sum(of != of[i]) + 1))) - 1] for i in range(len(y))]
    assert data["all"] == pytest.approx(np.mean(hit)) and sum(data["count"]) == len(y)
    assert 0.8 < data["all"] < 1.0


def test_sets_of_classes_have_sizes():
    X, y = load_iris(return_X_y=True)
    data = collect(searched(LogisticRegression(), X, y))
    assert data["influence"] is None and data["intervals"]["what"] == "sets"
    assert 1.0 <= np.mean(data["intervals"]["wide"]) < 2.0 and data["intervals"]["all"] > 0.85
    assert min(data["intervals"]["predicted"]) > 1.0 / 3.0


def test_folds_without_intervals_have_no_section(fitted):
    _, X, y = fitted
    assert collect(searched(Ridge(), X, y, cv=TimeSeriesSplit(3)))["intervals"] is None
    assert collect(searched(Ridge(), X[:12], y[:12], cv=2))["intervals"] is None


def test_figures_are_drawn_by_matplotlib_too(fitted):
    pytest.importorskip("matplotlib")
    search, _, _ = fitted
    axes = plots.draw_influence(suffice.influence(search))
    assert len(axes.get_yticklabels()) >= 5 and axes.get_xlabel() == "coefficient per s. d."
    axes = plots.draw_coverage(measured(search._training.conformal(search, "cv+", "fixed"), 0.9))
    assert axes.get_ylabel() == "share of rows in intervals"
