"""Tuners that cost more than the training here: SMAC, Nevergrad, BoTorch, BADS. Fewer seeds and problems."""

from __future__ import annotations

import logging
import tempfile
import warnings
from typing import Any

import numpy as np

from benchmarks.tuners.protocol import Run


def nevergrad(run: Run) -> None:
    """NGOpt, told a budget of 100 evaluations, by ask and tell."""
    import nevergrad as ng

    warnings.simplefilter("ignore")
    space = ng.p.Array(init=run.start, lower=run.lower, upper=run.upper)
    space.random_state.seed(run.seed)
    optimizer = ng.optimizers.NGOpt(parametrization=space, budget=min(100, run.limits.evaluations))
    optimizer.suggest(run.start)
    while True:
        asked = optimizer.ask()
        optimizer.tell(asked, run.cost(asked.value))


def smac(run: Run) -> None:
    """The facade for hyperparameters, random forests, by ask and tell."""
    from ConfigSpace import Configuration, ConfigurationSpace, Float
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory import TrialValue

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    space = ConfigurationSpace(seed=run.seed)
    for k, (low, high) in enumerate(zip(run.lower.tolist(), run.upper.tolist(), strict=True)):
        space.add(Float(f"theta{k}", (low, high), default=float(run.start[k])))
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(space, deterministic=True, n_trials=200, seed=run.seed, output_directory=folder)  # type: ignore[arg-type]
        facade = HyperparameterOptimizationFacade(
            scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=False,
            initial_design=HyperparameterOptimizationFacade.get_initial_design(
                scenario, n_configs=min(10 * run.m, 20),
                additional_configs=[Configuration(space, {f"theta{k}": float(v) for k, v in enumerate(run.start)})],
            ),
        )  # fmt: skip
        while True:
            asked = facade.ask()
            theta = np.array([asked.config[f"theta{k}"] for k in range(run.m)])
            facade.tell(asked, TrialValue(cost=run.cost(theta)))


def botorch(run: Run) -> None:
    """A Gaussian process with its default prior and the logarithm of expected improvement, after 2 m + 2 points."""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    warnings.simplefilter("ignore")
    torch.manual_seed(run.seed)
    torch.set_num_threads(1)
    rng, width = np.random.default_rng(run.seed), run.upper - run.lower
    points: list[Any] = [(run.start - run.lower) / width, *rng.random((2 * run.m + 1, run.m))]
    values = [run.cost(run.lower + u * width) for u in points]
    box = torch.stack([torch.zeros(run.m), torch.ones(run.m)]).double()
    while True:
        U, F = torch.tensor(np.array(points)), torch.tensor(np.log(values))[:, None]
        model = SingleTaskGP(U, -F, outcome_transform=Standardize(1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        best = LogExpectedImprovement(model, best_f=float((-F).max()))
        u, _ = optimize_acqf(best, box, q=1, num_restarts=5, raw_samples=128)
        points.append(u.numpy()[0])
        values.append(run.cost(run.lower + points[-1] * width))


def bads(run: Run) -> None:
    """Bayesian adaptive direct search."""
    from pybads import BADS

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    width = run.upper - run.lower
    np.random.seed(run.seed)
    options = {"display": "off", "uncertainty_handling": False, "max_fun_evals": 200, "random_seed": run.seed}
    BADS(
        lambda u: run.cost(run.lower + np.asarray(u).ravel() * width), (run.start - run.lower) / width,
        np.zeros(run.m), np.ones(run.m), np.full(run.m, 0.25), np.full(run.m, 0.75), options=options,
    ).optimize()  # fmt: skip
