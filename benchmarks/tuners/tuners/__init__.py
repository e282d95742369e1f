"""All tuners by name: what each is, and where it can be used."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from benchmarks.tuners.protocol import Problem, Run
from benchmarks.tuners.tuners import derivative_free, gradient, optuna_tuners, others, ours, search

Kind = Literal["ours", "search", "model", "derivative-free", "gradient", "ablation"]


@dataclass(frozen=True)
class Tuner:
    """How a tuner is called and where it applies. `needs` are packages, `most` is how many parameters it takes."""

    name: str
    kind: Kind
    call: Callable[[Run], None]
    needs: tuple[str, ...] = ()
    most: int = 1000
    solvers: tuple[str, ...] = ("fista", "auto")
    slopes: bool = False  # whether it needs derivatives
    slow: bool = False  # it takes longer than the training: fewer seeds

    @property
    def installed(self) -> bool:
        return all(importlib.util.find_spec(name) is not None for name in self.needs)

    def takes(self, problem: Problem, solver: str) -> bool:
        """Whether there is something to run."""
        fits = len(problem.start) <= self.most and solver in self.solvers and solver in problem.solvers
        return fits and (problem.slopes or not self.slopes) and not (problem.by_steps and self.name.startswith("K ="))


OURS, OURS_FREE = "suffice", "suffice, no derivatives"
STEPS = ("fista",)

_ALL: list[Tuner] = [
    Tuner(OURS, "ours", ours.tune),
    Tuner(OURS_FREE, "ours", partial(ours.tune, derivatives="never")),
    *(Tuner(f"K = {K}", "ours", partial(ours.fixed, steps=K), solvers=STEPS) for K in (20, 200, 2000)),
    Tuner("suffice, 8 starts", "ours", ours.many_starts, most=2),
    Tuner("grid", "search", search.grid, most=3),
    Tuner("random", "search", search.random),
    Tuner("halving grid", "search", search.halving_grid, most=3, solvers=STEPS),
    Tuner("halving random", "search", search.halving_random, solvers=STEPS),
    Tuner("TPE", "model", optuna_tuners.tpe, needs=("optuna",)),
    Tuner("TPE, 1e-2", "model", partial(optuna_tuners.tpe, relative=1e-2), needs=("optuna",)),
    Tuner("TPE, median", "model", optuna_tuners.tpe_median, needs=("optuna",), solvers=STEPS),
    Tuner("TPE, Hyperband", "model", optuna_tuners.tpe_hyperband, needs=("optuna",), solvers=STEPS),
    Tuner("CMA-ES", "model", optuna_tuners.cma, needs=("optuna", "cmaes")),
    Tuner("GP", "model", optuna_tuners.gp, needs=("optuna", "torch"), slow=True),
    Tuner("SMAC", "model", others.smac, needs=("smac",), slow=True),
    Tuner("Nevergrad", "model", others.nevergrad, needs=("nevergrad",)),
    Tuner("BoTorch", "model", others.botorch, needs=("botorch",), slow=True),
    Tuner("BADS", "model", others.bads, needs=("pybads",)),
    Tuner("Nelder-Mead", "derivative-free", derivative_free.nelder_mead),
    Tuner("Nelder-Mead, 1e-2", "derivative-free", partial(derivative_free.nelder_mead, relative=1e-2)),
    Tuner("COBYQA", "derivative-free", derivative_free.cobyqa, needs=("cobyqa",)),
    Tuner("Py-BOBYQA", "derivative-free", derivative_free.py_bobyqa, needs=("pybobyqa",)),
    Tuner("DFO-LS", "derivative-free", derivative_free.dfols, needs=("dfols",)),
    Tuner("DFO-LS, 1e-2", "derivative-free", partial(derivative_free.dfols, relative=1e-2), needs=("dfols",)),
    Tuner("DFO-LS, blocks", "derivative-free", partial(derivative_free.dfols, blocks=True), needs=("dfols",)),
    Tuner("HOAG", "gradient", gradient.hoag, slopes=True),
    Tuner("MAID", "gradient", gradient.maid, slopes=True),
    Tuner("L-BFGS-B", "gradient", gradient.lbfgsb, slopes=True),
    Tuner("accuracy of others", "ablation", ours.same_accuracy),
    Tuner("accuracy of others, 1e-2", "ablation", partial(ours.same_accuracy, relative=1e-2)),
    Tuner("policy of the paper", "ablation",
          partial(ours.tune, derivatives="never", policy="weights", accuracy_factor=100.0)),
    Tuner("c = 30", "ablation", partial(ours.tune, derivatives="never", accuracy_factor=30.0)),
    Tuner("c = 100", "ablation", partial(ours.tune, derivatives="never", accuracy_factor=100.0)),
    Tuner("linear model", "ablation", partial(ours.tune, derivatives="never", model="linear")),
    Tuner("block residuals", "ablation", ours.without_blocks),
    Tuner("cold starts", "ablation", ours.cold),
    Tuner("accurate looks", "ablation", ours.accurate_looks),
]  # fmt: skip
TUNERS = {one.name: one for one in _ALL}
