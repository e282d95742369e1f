"""A run in MLflow: metrics of every evaluation, parameters, status and the model at its end."""

import sys

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import suffice
from suffice import Evaluation, Options, Space
from suffice.bridges.mlflow import RunCallback
from suffice.sklearn import SufficeSearchCV

SPACE = Space(l1=(1e-3, 1e1), shift=(-1, 1))


class Rough:
    space = SPACE

    def evaluate(self, theta, *, within, warm=None):
        error = np.full(2, min(within, 0.2))
        return Evaluation(theta, theta - 0.3 + 0.9 * error, error, work=2)


def run(callback=None):
    return suffice.tune(Rough(), {"l1": 1.0, "shift": 0.5}, callback=callback, options=Options(max_evaluations=15))


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    yield mlflow
    mlflow.set_tracking_uri(None)


def test_without_mlflow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"suffice\[mlflow\]"):
        RunCallback(SPACE)


def test_every_evaluation_leaves_its_metrics_and_the_end_its_parameters(mlflow):
    with mlflow.start_run() as active:
        callback = RunCallback(SPACE)
        result = run(callback)
        callback.finish(result)
    client, known = mlflow.MlflowClient(), mlflow.get_run(active.info.run_id).data

    def history(name):
        return [(metric.step, metric.value) for metric in client.get_metric_history(active.info.run_id, name)]

    records = result.history
    assert history("cost") == [(record.number, record.cost) for record in records]
    assert history("cost_high") == [(record.number, record.interval[1]) for record in records]
    assert history("asked") == [(record.number, record.within) for record in records]
    assert history("achieved") == [(record.number, record.error) for record in records]
    assert history("param.l1") == [(record.number, 10.0 ** record.theta[0]) for record in records]
    assert {name: float(value) for name, value in known.params.items()} == result.params
    assert (known.metrics["final_cost"], known.metrics["final_cost_high"]) == (result.cost, result.interval[1])
    assert known.tags["suffice.status"] == result.status.name


def test_infinite_requests_are_left_out_and_theta_needs_no_names(mlflow):
    with mlflow.start_run() as active:
        callback = RunCallback()
        record = run().history[0]
        callback(type(record)(**{**vars(record), "within": np.inf}))
    metrics = mlflow.get_run(active.info.run_id).data.metrics
    assert "asked" not in metrics and metrics["param.theta_0"] == record.theta[0]


def test_a_search_leaves_its_model(mlflow):
    pytest.importorskip("mlflow.sklearn")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = X @ [1.0, -1.0, 0.0] + 0.1 * rng.standard_normal(40)
    search = SufficeSearchCV(Ridge(), {"l2": (1e-4, 1.0)}, cv=3).fit(X, y)
    with mlflow.start_run() as active:
        pass
    callback = RunCallback(Space(l2=(1e-4, 1.0)), run_id=active.info.run_id)  # a run that is not active
    callback.finish(search)
    known = mlflow.get_run(active.info.run_id).data
    assert float(known.params["alpha"]) == search.best_params_["alpha"]
    assert known.metrics["final_score"] == search.best_score_
    model = mlflow.sklearn.load_model(f"runs:/{active.info.run_id}/model")
    assert np.array_equal(model.predict(X), search.predict(X))


def test_what_cannot_be_logged_is_refused(mlflow):
    with pytest.raises(ValueError, match="no active run"):
        RunCallback(SPACE)
    with mlflow.start_run():
        with pytest.raises(TypeError, match="space must be"):
            RunCallback({"l1": (1, 2)})
        with pytest.raises(TypeError, match="found must be"):
            RunCallback(SPACE).finish(SufficeSearchCV(Ridge()))
