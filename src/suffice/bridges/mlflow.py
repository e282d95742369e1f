"""A run in MLflow: metrics of every evaluation while it goes on, parameters and the model at its end.

    with mlflow.start_run():
        log = RunCallback(problem.space)
        result = suffice.tune(problem, start, callback=log)
        log.finish(result)                       # or log.finish(search), a fitted SufficeSearchCV

Metrics have the number of the evaluation as their step: `cost`, `cost_low`, `cost_high` (the proven interval), `asked`,
`achieved`, `work`, `total_work`, `best_cost` (the incumbent's), `radius`, and `param.NAME` for every parameter in the
user's units. What is infinite is left out. At the end the parameters found, tags with the status and its message, and
metrics `final_...` are written; a search also leaves its `best_estimator_` as a model, with the full package mlflow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from suffice.result import Record, Result
from suffice.space import Space


class RunCallback:
    """A `callback` that logs every evaluation to the active run, or to the run `run_id`.

    `space` names the parameters; without it they are theta_0, theta_1, ...
    """

    def __init__(self, space: Space | None = None, *, run_id: str | None = None) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise ImportError("RunCallback needs mlflow: pip install suffice[mlflow]") from error
        if space is not None and not isinstance(space, Space):
            raise TypeError(f"space must be a suffice.Space or None, got {space!r}")
        if run_id is None:
            active = mlflow.active_run()
            if active is None:
                raise ValueError("there is no active run: call mlflow.start_run() first, or give run_id")
            run_id = active.info.run_id
        self.space, self.run_id, self._mlflow = space, str(run_id), mlflow

    def __call__(self, record: Record) -> None:
        metrics = {
            "cost": record.cost,
            "cost_low": record.interval[0],
            "cost_high": record.interval[1],
            "asked": record.within,
            "achieved": record.error,
            "work": record.work,
            "total_work": record.total_work,
            "best_cost": record.incumbent_cost,
            "radius": record.delta,
        }
        self._log(
            metrics | {f"param.{name}": value for name, value in self._named(record.theta).items()}, record.number
        )

    def finish(self, found: Any) -> None:
        """Log a `Result`, or a fitted `SufficeSearchCV` with its model."""
        if isinstance(found, Result):
            params: dict[str, Any] = dict(found.params) if found.params is not None else self._named(found.theta)
            self._end(params, found, {"final_cost": found.cost, **_ends("final_cost", found.interval)})
            return
        result = getattr(found, "result_", None)
        if not isinstance(result, Result) or not hasattr(found, "best_params_"):
            raise TypeError(f"found must be a Result or a fitted SufficeSearchCV, got {found!r}")
        score = {"final_score": found.best_score_, **_ends("final_score", found.score_interval_)}
        penalties = {f"penalty.{name}": value for name, value in found.best_penalties_.items()}
        self._end({**found.best_params_, **penalties}, result, score)
        self._client.set_tag(self.run_id, "suffice.scoring", found.optimised_scoring_)
        if hasattr(found, "best_estimator_"):
            self._log_model(found.best_estimator_)

    def _end(self, params: dict[str, Any], result: Result, metrics: dict[str, float]) -> None:
        for name, value in params.items():
            self._client.log_param(self.run_id, name, value)
        self._log({**metrics, "evaluations": result.evaluations, "final_work": result.work}, result.evaluations)
        self._client.set_tag(self.run_id, "suffice.status", result.status.name)
        self._client.set_tag(self.run_id, "suffice.message", result.message)

    def _log_model(self, estimator: Any) -> None:
        """The model goes to the active run: MLflow logs models nowhere else."""
        active = self._mlflow.active_run()
        if active is None or active.info.run_id != self.run_id:
            with self._mlflow.start_run(run_id=self.run_id, nested=active is not None):
                self._mlflow.sklearn.log_model(estimator, name="model")
        else:
            self._mlflow.sklearn.log_model(estimator, name="model")

    @property
    def _client(self) -> Any:
        return self._mlflow.MlflowClient()

    def _named(self, theta: Any) -> dict[str, float]:
        if self.space is not None:
            return self.space.params(np.array(theta, dtype=np.float64))
        return {f"theta_{k}": float(value) for k, value in enumerate(theta)}

    def _log(self, metrics: dict[str, float], step: int) -> None:
        known = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        self._mlflow.log_metrics(known, step=step, run_id=self.run_id)


def _ends(name: str, interval: tuple[float, float]) -> dict[str, float]:
    return {f"{name}_low": interval[0], f"{name}_high": interval[1]}
