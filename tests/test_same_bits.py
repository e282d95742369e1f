"""A journal changes nothing but the disk: runs without one, with one, and killed and taken up again are the same to
the last bit, whatever solves the problems below."""

import numpy as np
import pytest

import suffice
from suffice.losses import Brier, SquaredDistance
from suffice.problems import Denoising, ElasticNetLogistic
from suffice.solvers.fista import Fista

OPTIONS = suffice.Options(max_evaluations=24)
STARTS = {"one start": [[-1.0, -1.0]], "many starts": [[-1.0, -1.0], [-2.0, -3.0], [-3.0, -1.0]]}


class Momentum(Fista):
    """A solver of the user's own, whose states no file can hold."""

    def start(self, problem, x):
        return Own(super().start(problem, x))

    def step(self, problem, state):
        return Own(super().step(problem, state.inner))


class Own:
    def __init__(self, inner):
        self.inner, self.x, self.image, self.evidence = inner, inner.x, inner.image, inner.evidence


NAMES = ("fista", "fista_adaptive", "gradient_descent", "newton", "auto")
SOLVERS = {**{name: name for name in NAMES}, "a user's own": Momentum("own")}


def classifiers(solver):
    """Two models of one matrix: solvers that can solve them together."""
    rng = np.random.default_rng(0)
    X, V = rng.standard_normal((80, 30)), rng.standard_normal((40, 30))
    lower, losses = [], []
    for j in range(2):
        w = np.where(np.arange(30) // 4 == j, 1.0, 0.0)
        lower.append(ElasticNetLogistic(X, X @ w + rng.standard_normal(80) > 0))
        losses.append(Brier(V, V @ w + rng.standard_normal(40) > 0))
    space = suffice.Space(l1=(1e-4, 1.0), l2=(1e-4, 1.0))
    return suffice.BilevelProblem(lower, losses, space=space, solver=solver)


def signals(solver):
    """Images that are denoised."""
    rng = np.random.default_rng(0)
    truth = np.where(np.arange(40) // 10 % 2 == 0, 1.0, -1.0)
    noisy = [truth + 0.3 * rng.standard_normal(40) for _ in range(2)]
    space = suffice.Space(alpha=(1e-4, 0.3), eps_tv=(2e-2, 1.0))
    lower = [Denoising(y, eps_l2=1e-2) for y in noisy]
    return suffice.BilevelProblem(lower, [SquaredDistance(truth)] * 2, space=space, solver=solver)


class Killed(BaseException):
    pass


def killed_after(count):
    told = []

    def callback(record):
        told.append(record)
        if len(told) == count:
            raise Killed

    return callback


def bits(result):
    """All that a run has found; equal text is equal bits."""
    results = result.starts or (result,)
    return [(repr(one.history), one.theta.tobytes(), one.cost.hex(), one.status) for one in results]


def run(problem, starts, journal=None, callback=None):
    first, more = (starts[0], None) if len(starts) == 1 else (None, starts)
    return suffice.tune(problem, first, starts=more, options=OPTIONS, journal=journal, callback=callback)


@pytest.mark.parametrize("starts", STARTS.values(), ids=STARTS.keys())
@pytest.mark.parametrize(
    "problem, solver",
    [pytest.param(classifiers, solver, id=name) for name, solver in SOLVERS.items()]
    + [pytest.param(signals, solver, id=f"images by {solver}") for solver in ("gradient_descent", "newton_tv")],
)
@pytest.mark.slow
def test_a_journal_changes_nothing(problem, solver, starts, tmp_path):
    without = run(problem(solver), starts)
    assert sum(one.evaluations for one in without.starts or (without,)) > 7
    assert bits(run(problem(solver), starts, tmp_path / "whole")) == bits(without)
    with pytest.raises(Killed):
        run(problem(solver), starts, tmp_path / "killed", killed_after(5))
    assert bits(suffice.resume(tmp_path / "killed", problem=problem(solver))) == bits(without)
