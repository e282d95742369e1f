"""A pipeline's last step is certified on the rows that it has seen, or not at all."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.decomposition import NMF, PCA, DictionaryLearning, KernelPCA, MiniBatchNMF, SparsePCA, TruncatedSVD
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    StandardScaler,
    TargetEncoder,
)

import suffice
from suffice.sklearn import adapters, register_objective

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
POSITIVE, TWICE, FEW_VALUES = np.abs(X), np.hstack([X, X]), np.round(X)
HOLES = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
Y = X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * RNG.standard_normal(60)


class Remembering(Ridge):  # type: ignore[misc]
    """The rows that it was fitted to, kept."""

    def fit(self, X, y, sample_weight=None):
        self.rows_ = np.array(X)
        return super().fit(X, y, sample_weight)


class Noise(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return X + np.random.default_rng().standard_normal(X.shape)


class Shrinking(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Training data are half of what data are later."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def fit_transform(self, X, y=None):
        return 0.5 * self.fit(X).transform(X)

    def transform(self, X):
        return X


class NoMixin(BaseEstimator):  # type: ignore[misc]
    """All that a pipeline needs of a step."""

    def fit(self, X, y=None):
        self.shift_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.shift_


@pytest.fixture
def certified(monkeypatch):
    """The report of a pipeline, and that of its last step with the rows that it was truly fitted to."""
    monkeypatch.setattr(adapters, "_READERS", dict(adapters._READERS))
    register_objective(Remembering, adapters.ROWS["sklearn.Ridge"].objective)

    def reports(steps, rows):
        model = make_pipeline(*steps, Remembering(1e-3)).fit(rows, Y)
        return suffice.certify(model, rows, Y), suffice.certify(model[-1], model[-1].rows_, Y)

    return reports


SCALED = make_pipeline(SimpleImputer(), StandardScaler())


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        ([StandardScaler(), PolynomialFeatures(2)], X),
        ([SCALED], HOLES),
        ([NoMixin()], X),
        ([FunctionTransformer(np.abs), "passthrough"], X),
        ([FrozenEstimator(StandardScaler().fit(X + 1.0))], X),
        ([make_column_transformer((SCALED, [0, 1]), (OneHotEncoder(sparse_output=False), [2]))], FEW_VALUES),
        ([FeatureUnion([("a", StandardScaler()), ("b", "passthrough"), ("c", "drop")])], X),
        ([SparsePCA(2, random_state=0)], X),
        ([PCA()], X),
        ([StandardScaler(), PCA(whiten=True, svd_solver="full")], TWICE),
        ([make_column_transformer((PCA(2), [0, 1, 2]), remainder="passthrough")], X),
        ([KernelPCA(3, kernel="rbf")], X),
        ([TruncatedSVD(3, random_state=0)], X),
        ([PowerTransformer()], X),
        ([NMF(3, random_state=0)], POSITIVE),
        ([MiniBatchNMF(3, random_state=0)], POSITIVE),
        ([DictionaryLearning(4, max_iter=5, random_state=0)], X),
        ([IterativeImputer(random_state=0)], HOLES),
        ([IterativeImputer(sample_posterior=True, random_state=0)], HOLES),
    ],
    ids=lambda one: None if isinstance(one, np.ndarray) else str(one),
)
@pytest.mark.filterwarnings("ignore")
def test_a_report_is_about_the_rows_that_the_model_has_seen(certified, steps, rows):
    report, truth = certified(steps, rows)
    assert truth.told and report == truth


@pytest.mark.parametrize(
    ("steps", "rows", "name"),
    [
        ([IterativeImputer(sample_posterior=True)], HOLES, "IterativeImputer"),
        ([make_column_transformer((TargetEncoder(target_type="continuous"), [0, 1]))], FEW_VALUES, "TargetEncoder"),
        ([make_pipeline(StandardScaler(), Shrinking())], X, "Shrinking"),
        ([NMF(3, init="random")], POSITIVE, "NMF"),
        ([Noise()], X, "a step of the pipeline"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.filterwarnings("ignore")
def test_where_nobody_knows_what_it_has_seen_nothing_is_told(certified, steps, rows, name):
    report, truth = certified(steps, rows)
    assert truth.relative < 1e-6
    assert not report.told and f"cannot tell: {name}" in report.message
    assert "give certify its last step and the rows that this was fitted to" in report.message
