"""Derivative-free methods on exact evaluations: SciPy's, and Powell's and his successors'.

Trust radii begin at a tenth of the box and end at 1e-5 of it, as ours do. (pdfo 2.2 does not work with NumPy 2.)
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np

from benchmarks.tuners.protocol import Run, Vector

FIRST, LAST = 0.1, 1e-5  # of the box


def _unit(run: Run) -> Any:
    """theta from coordinates in [0, 1], and the start in these."""
    width = run.upper - run.lower
    return lambda u: run.lower + np.asarray(u) * width, (run.start - run.lower) / width


def nelder_mead(run: Run, relative: float | None = None) -> None:
    """SciPy's, the first simplex of a tenth of the box."""
    from scipy.optimize import minimize

    run.relative = run.relative if relative is None else relative
    theta, u0 = _unit(run)
    steps = np.where(u0 + FIRST > 1.0, -FIRST, FIRST)
    simplex = np.vstack([u0, u0 + np.diag(steps)])
    options = {"initial_simplex": simplex, "maxfev": 10_000, "maxiter": 10_000, "xatol": LAST, "fatol": np.inf}
    minimize(lambda u: run.cost(theta(u)), u0, method="Nelder-Mead", bounds=[(0.0, 1.0)] * run.m, options=options)


def cobyqa(run: Run) -> None:
    from cobyqa import minimize

    theta, u0 = _unit(run)
    options = {"radius_init": FIRST, "radius_final": LAST, "maxfev": 10_000, "maxiter": 10_000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minimize(lambda u: run.cost(theta(u)), u0, bounds=[(0.0, 1.0)] * run.m, options=options)


def py_bobyqa(run: Run) -> None:
    import pybobyqa

    theta, u0 = _unit(run)
    box: tuple[Vector, Vector] = np.zeros(run.m), np.ones(run.m)
    logging.disable(logging.WARNING)
    pybobyqa.solve(lambda u: run.cost(theta(u)), u0, bounds=box, rhobeg=FIRST, rhoend=LAST, maxfun=10_000,
                   do_logging=False)  # fmt: skip


def dfols(run: Run, relative: float | None = None, blocks: bool = False) -> None:
    """DFO-LS on all residuals, or on one for each block."""
    import dfols as package

    run.relative = run.relative if relative is None else relative
    theta, u0 = _unit(run)
    box: tuple[Vector, Vector] = np.zeros(run.m), np.ones(run.m)

    def residuals(u: Vector) -> Vector:
        made = run.train(theta(u))
        return np.array(made.coarse if blocks else made.r)

    logging.disable(logging.WARNING)
    package.solve(residuals, u0, bounds=box, rhobeg=FIRST, rhoend=LAST, maxfun=10_000, do_logging=False)
