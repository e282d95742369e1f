"""Optuna's samplers, and TPE with trials that are pruned as they are trained."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from benchmarks.tuners.protocol import Run
from benchmarks.tuners.stepwise import Stepwise

REPORTS = tuple(20 * 3**k for k in range(5))  # steps of the solver at which a trial may be pruned


def _study(run: Run, sampler: Any, pruner: Any = None) -> Any:
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    warnings.simplefilter("ignore")
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    study.enqueue_trial({f"theta{k}": float(value) for k, value in enumerate(run.start)})
    return study


def _theta(run: Run, trial: Any) -> list[float]:
    box = zip(run.lower.tolist(), run.upper.tolist(), strict=True)
    return [trial.suggest_float(f"theta{k}", low, high) for k, (low, high) in enumerate(box)]


def _optimise(run: Run, sampler: Any, relative: float | None = None) -> None:
    run.relative = run.relative if relative is None else relative
    _study(run, sampler).optimize(lambda trial: run.cost(_theta(run, trial)), n_trials=run.limits.evaluations)


def tpe(run: Run, relative: float | None = None) -> None:
    import optuna

    _optimise(run, optuna.samplers.TPESampler(seed=run.seed), relative)


def gp(run: Run) -> None:
    import optuna

    _optimise(run, optuna.samplers.GPSampler(seed=run.seed, deterministic_objective=True))


def cma(run: Run) -> None:
    import optuna

    start = {f"theta{k}": float(value) for k, value in enumerate(run.start)}
    _optimise(run, optuna.samplers.CmaEsSampler(x0=start, seed=run.seed))


def _pruned(run: Run, pruner: Any) -> None:
    import optuna

    trainer = Stepwise(run)

    def trial_value(trial: Any) -> float:
        theta = run.inside(_theta(run, trial))
        for steps in REPORTS:
            value = trainer.train(theta, steps)
            trial.report(value, steps)
            if steps < REPORTS[-1] and trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = _study(run, optuna.samplers.TPESampler(seed=run.seed), pruner)
    study.optimize(trial_value, n_trials=run.limits.evaluations)


def tpe_median(run: Run) -> None:
    import optuna

    _pruned(run, optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=0))


def tpe_hyperband(run: Run) -> None:
    import optuna

    _pruned(run, optuna.pruners.HyperbandPruner(min_resource=REPORTS[0], max_resource=REPORTS[-1], reduction_factor=3))
