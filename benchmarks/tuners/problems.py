"""The problems: seventeen bilevel problems with two to 21 hyperparameters, none of which a default was chosen on except
where it says so.

Penalties are searched over their logarithms, in boxes of eight decades (the paper's problem: sixteen). Half of the rows
train, the other half judges, where the data do not say otherwise. Budgets are about 50 (m + 1) trainings from scratch
at the optimum to the accuracy of the protocol, by either solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from suffice_paper import imaging
from suffice_paper.study import PRESETS, mnist_problem

import suffice
from benchmarks.tuners import data
from benchmarks.tuners.protocol import Problem
from suffice import losses, problems
from suffice.datasets import load_mnist
from suffice.prove.held_out import HeldOut
from suffice.prove.scores import SoftmaxBrier
from suffice.rows.design import Design

BOX = (1e-6, 1e2)
WIDE = {"l1": (1e-5, 1e1), "l2": (1e-2, 1e3)}  # of thousands of columns


def mnist(train: int, test: int, solver: str) -> suffice.BilevelProblem:
    """The paper's: six digits, raw pixels, Brier loss, J. Our model's constants were chosen with it in view."""
    preset = replace(PRESETS["full"], train=train, test=test)
    return mnist_problem(preset, load_mnist(), preset.digits, solver)


def logistic(
    load: Callable[[], data.Split], positive: Sequence[Any], solver: str, wide: bool = False
) -> suffice.BilevelProblem:
    """Elastic-net logistic regression, one label against all others in every block, Brier loss."""
    X, y, Z, t = load()
    X, Z = with_ones(X), with_ones(Z)
    return suffice.BilevelProblem(
        lower=[problems.ElasticNetLogistic(X, y == label) for label in positive],
        losses=[losses.Brier(Z, t == label, positive=True) for label in positive],
        space=suffice.Space(**(WIDE if wide else {"l1": BOX, "l2": BOX})),
        solver=solver,
    )


def with_ones(X: Any) -> Any:
    """A last column of ones, for an intercept that is penalised like the other weights."""
    ones = np.ones((X.shape[0], 1))
    return sp.csr_array(sp.hstack([X, ones])) if sp.issparse(X) else np.hstack([X, ones])


def regression(load: Callable[[], data.Split], solver: str) -> suffice.BilevelProblem:
    """Elastic-net least squares."""
    X, y, Z, t = load()
    return suffice.BilevelProblem(
        lower=[problems.ElasticNet(X, y)],
        losses=[losses.SquaredError(Z, t)],
        space=suffice.Space(l1=BOX, l2=BOX),
        solver=solver,
    )


def groups(m: int, solver: str) -> suffice.BilevelProblem:
    """One l1 for all and an l2 for each of m groups of columns."""
    X, y, Z, t = data.grouped(m, 0)
    model = problems.Grouped(problems.ElasticNet(X, y), np.repeat(np.arange(m), 8))
    ranges = {name: (1e-4, 1e3) for name in ("l1", *model.names("l2"))}
    return suffice.BilevelProblem(
        lower=[model], losses=[losses.SquaredError(Z, t)], space=suffice.Space(**ranges), solver=solver
    )


def denoise3(solver: str) -> suffice.BilevelProblem:
    """Total variation of noisy box functions: weight, smoothing and ridge (Ehrhardt and Roberts 2021)."""
    setting = imaging.ImagingSetting("denoise3", "full", (1e-4,), (), 100, signals=5, pixels=64)
    return imaging.problem(setting, 1e-4, solver)


class _OneSolve(problems.ElasticNetMultinomial):
    """A multinomial model; its products have as many columns as there are classes."""

    @property
    def classes_at_once(self) -> int:
        return len(self.classes)


def multinomial(load: Callable[[], data.Split], solver: str) -> suffice.BilevelProblem:
    """Multinomial logistic regression, mean Brier loss, l1 and l2."""
    X, y, Z, t = load()
    model = _OneSolve(with_ones(X), y)
    numbers = np.searchsorted(model.classes, t)
    return suffice.BilevelProblem(
        lower=[model],
        losses=[HeldOut(Design.of(with_ones(Z)), numbers, SoftmaxBrier(), 1.0, model.model())],
        space=suffice.Space(l1=BOX, l2=BOX),
        solver=solver,
    )


def cox(solver: str) -> suffice.BilevelProblem:
    """Cox's proportional hazards, partial likelihood of held-out rows."""
    X, y, Z, t = data.survival()
    return suffice.BilevelProblem(
        lower=[problems.ElasticNetCox(X, y)],
        losses=[losses.PartialLikelihood(Z, t)],
        space=suffice.Space(l1=BOX, l2=BOX),
        solver=solver,
    )


def valleys(seed: int, solver: str) -> suffice.BilevelProblem:
    """Elastic-net least squares with so few rows that F has several local minima."""
    X, y, Z, t = data.few_rows(seed, sparse=True)
    return suffice.BilevelProblem(
        lower=[problems.ElasticNet(X, y)],
        losses=[losses.SquaredError(Z, t)],
        space=suffice.Space(l1=(1e-4, 1e2), l2=(1e-4, 1e2)),
        solver=solver,
    )


def two_groups(solver: str) -> suffice.BilevelProblem:
    """Ridge regression with one l2 for each half of the columns, and few rows."""
    X, y, Z, t = data.few_rows(6, sparse=False)
    model = problems.Grouped(problems.ElasticNet(X, y), np.repeat([0, 1], X.shape[1] // 2), l1=0.0)
    space = suffice.Space(**dict.fromkeys(model.names("l2"), (1e-4, 1e3)))
    return suffice.BilevelProblem(lower=[model], losses=[losses.SquaredError(Z, t)], space=space, solver=solver)


def lasso_bench(d: int, solver: str) -> suffice.BilevelProblem:
    """A lasso with one l1 for each of d columns, five decades up to the largest that is of use (and a tiny l2)."""
    X, y, Z, t = data.lasso_bench(d)
    model = problems.Grouped(problems.ElasticNet(X, y), np.arange(d), l2=1e-6)
    top = model.model.l1_max
    space = suffice.Space(**dict.fromkeys(model.names("l1"), (1e-5 * top, top)))
    return suffice.BilevelProblem(lower=[model], losses=[losses.SquaredError(Z, t)], space=space, solver=solver)


def _lasso_start(d: int) -> tuple[float, ...]:
    X, y, _, _ = data.lasso_bench(d)
    return (float(np.log10(0.1 * np.max(np.abs(X.T @ y)) / len(y))),) * d


def _budget(fista: float, auto: float) -> dict[str, float]:
    return {"fista": fista, "auto": auto}


PAPER_STARTS = tuple((1.0, float(l2)) for l2 in (-3, -2, -1, 0, 2, 3))
KHAN, NCI60 = (1, 2, 3, 4), ("RENAL", "NSCLC", "MELANOMA")
_ALL: list[Problem] = [
    Problem("mnist", "the paper's, 200 + 150 images", partial(mnist, 200, 150), (1.0, 1.0), _budget(150e3, 220e3),
            starts=PAPER_STARTS),
    Problem("digits", "logistic, ten blocks, 61 columns", partial(logistic, data.digits, range(10)), (-2.0, -2.0),
            _budget(500e3, 150e3)),
    Problem("cancer", "logistic, 31 columns", partial(logistic, data.cancer, (1,)), (-2.0, -2.0), _budget(15e3, 8e3)),
    Problem("caravan", "logistic, 6 % positive, 86 columns", partial(logistic, data.caravan, (True,)), (-2.0, -2.0),
            _budget(26e3, 6e3)),
    Problem("khan", "logistic, four blocks, 2,309 columns", partial(logistic, data.khan, KHAN, wide=True), (-2.0, 0.0),
            _budget(300e3, 30e3)),
    Problem("nci60", "logistic, three blocks, 2,001 columns", partial(logistic, data.nci60, NCI60, wide=True),
            (-2.0, 0.0), _budget(210e3, 21e3)),
    Problem("text", "logistic, sparse, 2,500 columns", partial(logistic, data.text, (True,)), (-2.0, -2.0),
            _budget(86e3, 20e3)),
    Problem("diabetes", "least squares, 65 columns", partial(regression, data.diabetes), (-2.0, -2.0),
            _budget(8e3, 3e3)),
    Problem("correlated", "least squares, 300 columns", partial(regression, data.correlated), (-2.0, -2.0),
            _budget(18e3, 6e3)),
    Problem("groups5", "least squares, l2 for each of 5 groups", partial(groups, 5), (-1.0, *[0.0] * 5),
            _budget(110e3, 10e3)),
    Problem("groups10", "the same with 10", partial(groups, 10), (-1.0, *[0.0] * 10), _budget(250e3, 20e3)),
    Problem("groups20", "the same with 20", partial(groups, 20), (-1.0, *[0.0] * 20), _budget(400e3, 50e3),
            solvers=("auto",)),
    Problem("denoise3", "total variation, five signals, 3 parameters", denoise3, (0.0, -1.0, -1.0),
            _budget(100e3, 100e3), by_steps=True),
    Problem("multinomial", "digits, ten classes at once", partial(multinomial, data.digits), (-2.0, -2.0),
            _budget(130e3, 65e3), solvers=("auto",)),
    Problem("wine", "multinomial, three classes", partial(multinomial, data.wine), (-2.0, -2.0), _budget(22e3, 10e3)),
    Problem("cox", "survival, 60 columns", cox, (-2.0, -2.0), _budget(15e3, 6e3), slopes=False),
]  # fmt: skip
# Measured once, at what suffice finds, to the accuracy of the protocol: fista, auto.
_TRAINING = {
    "mnist": (6282, 3638), "digits": (20354, 2420), "cancer": (458, 129), "caravan": (1075, 63), "khan": (12311, 372),
    "nci60": (8808, 356), "text": (3604, 63), "diabetes": (232, 12), "correlated": (749, 40), "groups5": (2349, 57),
    "groups10": (5831, 41), "groups20": (6597, 13), "denoise3": (748, 614), "multinomial": (5231, 1074),
    "wine": (723, 163), "cox": (398, 67),
}  # fmt: skip
PROBLEMS = {
    one.name: replace(one, training=dict(zip(("fista", "auto"), _TRAINING[one.name], strict=True))) for one in _ALL
}
FULL = Problem("mnist-full", "the paper's, 5000 + 1000 images", partial(mnist, 5000, 1000), (1.0, 1.0),
               _budget(400e3, 400e3), starts=PAPER_STARTS)  # fmt: skip

GLOBAL = {
    one.name: one
    for one in [
        *(Problem(f"valleys{seed}", "24 rows train, 12 judge: several local minima", partial(valleys, seed),
                  (-2.0, -2.0), _budget(60e3, 10e3), solvers=("auto",)) for seed in (1, 7, 11)),
        Problem("two-groups", "the same with one l2 for each half of 40 columns", two_groups, (0.0, 0.0),
                _budget(60e3, 10e3), solvers=("auto",)),
    ]
}  # fmt: skip

LASSO = {
    f"lasso{d}": Problem(f"lasso{d}", f"LassoBench: one l1 for each of {d} columns", partial(lasso_bench, d),
                         _lasso_start(d), _budget(1e6, 2000.0 * d), solvers=("auto",))
    for d in (60, 100, 1000)
}  # fmt: skip


def known(name: str) -> Problem:
    """The problem of this name."""
    return {**PROBLEMS, **GLOBAL, **LASSO, FULL.name: FULL}[name]
