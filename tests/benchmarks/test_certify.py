"""A part of the campaign of benchmarks/certify.py, and the truth that it has, beside scikit-learn's own solvers."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.svm import LinearSVC

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmark is not at hand", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def campaign():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        found = importlib.util.spec_from_file_location("certify_campaign", BENCHMARKS / "certify.py")
        module = importlib.util.module_from_spec(found)
        sys.modules["certify_campaign"] = module
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


def test_every_argument_of_every_constructor_has_values(campaign):
    for name in campaign.ESTIMATORS:
        for argument in inspect.signature(campaign.class_of(name)).parameters:
            assert campaign.values_of(name, argument)


@pytest.mark.parametrize(
    ("model", "task"),
    [
        (Ridge(0.3), "real"),
        (Lasso(0.1, tol=1e-14), "real"),
        (PoissonRegressor(alpha=0.1, tol=1e-12), "counts"),
        (LogisticRegression(tol=1e-12, max_iter=10_000), "two"),
        (LogisticRegression(tol=1e-12, max_iter=10_000, class_weight="balanced"), "three"),
        (LogisticRegression(solver="liblinear", l1_ratio=1.0, C=0.3, intercept_scaling=2.0, tol=1e-12), "two"),
        (LinearSVC(C=0.3, tol=1e-12, max_iter=100_000), "two"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_the_truth_of_the_campaign_is_where_scikit_learn_ends(campaign, model, task):
    X, y = campaign.data(task, np.random.default_rng(0), ordinary=True)
    s = np.linspace(0.5, 2.0, len(y))
    model.fit(X, y, sample_weight=s)
    truth = campaign.minimise(campaign.documented(model, y, s), X)
    assert np.allclose(model.coef_, truth.w.astype(float), atol=1e-4)


def test_no_report_is_false_and_no_plain_model_is_refused(campaign):
    tally = campaign.Tally()
    campaign.plain(tally, 1)
    for k, name in enumerate(campaign.ESTIMATORS):
        for way in campaign.WAYS:
            campaign.one(tally, name, "fit_intercept", True, way, (11, k))
    assert tally.false == [] and tally.plain == {}
    assert tally.checked.total() >= 60


@pytest.mark.parametrize("size", [1e-6, 1e-2])
def test_a_report_about_another_model_is_found_out(campaign, monkeypatch, size):
    """The campaign's eyes are open: penalties that are a little off make reports false."""
    real = campaign.documented

    def other(model, y, s):
        made = real(model, y, s)
        return campaign.Documented(**{**vars(made), "l2": made.l2 * (1.0 + size)})

    monkeypatch.setattr(campaign, "documented", other)
    tally = campaign.Tally()
    for k in range(5):
        campaign.one(tally, "Ridge", "alpha", 3.0, "well", (12, k))
    assert len(tally.false) == 5
