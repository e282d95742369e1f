"""Delivered models as ONNX files, by skl2onnx: runtimes without Python say what the search says."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import suffice
from suffice.sklearn import SufficeSearchCV

skl2onnx = pytest.importorskip("skl2onnx")
runtime = pytest.importorskip("onnxruntime")

FEW = suffice.Options(max_evaluations=3, final_radius=1e-2)


def by_runtime(model, X, **options):
    written = skl2onnx.to_onnx(model, X[:1], **options).SerializeToString()
    session = runtime.InferenceSession(written, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})


@pytest.mark.parametrize("estimator", [ElasticNet(), Lasso(), Ridge(), PoissonRegressor()], ids=repr)
def test_regressions(estimator):
    X, y = load_diabetes(return_X_y=True)
    search = SufficeSearchCV(make_pipeline(StandardScaler(), estimator), cv=3, options=FEW).fit(X, y)
    (predicted,) = by_runtime(search.best_estimator_, X)
    np.testing.assert_allclose(predicted[:, 0], search.predict(X), rtol=1e-6)


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_classes(load):
    X, y = load(return_X_y=True)
    search = SufficeSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), cv=3, options=FEW).fit(X, y)
    labels, probabilities = by_runtime(search.best_estimator_, X, options={"zipmap": False})
    np.testing.assert_array_equal(labels, search.predict(X))
    np.testing.assert_allclose(probabilities, search.predict_proba(X), atol=1e-6)
