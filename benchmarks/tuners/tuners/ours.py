"""suffice itself: by default, without derivatives, at fixed accuracy, and with one part of it left out at a time."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

import suffice
from benchmarks.tuners.protocol import RELATIVE, Run, Vector
from suffice.search import accuracy

MOST = 1000  # evaluations: a run ends by itself, or by the protocol's budget


def tune(run: Run, objective: Any = None, **options: Any) -> None:
    """`suffice.tune` from the run's start, with these options."""
    _tune(run, _timed(run, run.problem) if objective is None else objective, run.start, **options)


def many_starts(run: Run, count: int = 8, **options: Any) -> None:
    """`suffice.tune` from several starts at once: the run's, and others at random in the box."""
    rng = np.random.default_rng(run.seed)
    others = [run.lower + rng.random(run.m) * (run.upper - run.lower) for _ in range(count - 1)]
    _tune(run, run.problem, None, starts=[run.start, *others], **options)


def _tune(run: Run, objective: Any, theta0: Vector | None, starts: Any = None, **options: Any) -> None:
    best = np.inf

    def told(record: suffice.Record) -> None:
        nonlocal best
        run.evaluations += 1
        run.add_steps(record.work)
        if record.interval[1] < best:  # the least proven upper bound is what a result holds
            best = record.interval[1]
            run.returns(record.theta)
        run.check()

    chosen = suffice.Options(max_evaluations=MOST, **options)
    bounds = None if getattr(objective, "space", None) is not None else (run.lower, run.upper)
    result = suffice.tune(objective, theta0, starts=starts, bounds=bounds, options=chosen, callback=told)
    run.returns(result.theta)


def fixed(run: Run, steps: int) -> None:
    """The paper's variant: K steps from scratch in every solve, derivative-free."""
    tune(run, run.problem.fixed(steps), derivatives="never")


def _timed(run: Run, problem: suffice.BilevelProblem) -> Any:
    """The problem, with the seconds of its training written down."""
    timed: Any = copy(problem)

    def within_time(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                run.training_seconds += time.process_time() - began

        return call

    for name in ("evaluate", "evaluate_weights", "differentiate"):
        setattr(timed, name, within_time(getattr(problem, name)))
    return timed


class _Without:
    """The objective with one thing taken from it."""

    def __init__(self, run: Run) -> None:
        self.run, self.problem, self.space = run, _timed(run, run.problem), run.problem.space

    def lower_bound(self, theta: Vector) -> float:
        return self.problem.lower_bound(theta)


class _Blocks(_Without):
    """One residual for every lower-level problem, the norm of its own, in place of one for every held-out row."""

    def evaluate(self, theta: Vector, *, within: float, warm: Any = None) -> suffice.Evaluation:
        made = self.problem.evaluate(theta, within=within, warm=warm)
        return suffice.Evaluation(
            made.point, made.coarse, made.e, work=made.work, solutions=made.solutions, distance=made.distance
        )


class _Cold(_Without):
    """Every theta is trained from scratch; a refinement goes on from where its own training was."""

    def evaluate(self, theta: Vector, *, within: float, warm: Any = None) -> suffice.Evaluation:
        same = warm is not None and np.array_equal(warm.point, theta)
        return self.problem.evaluate(theta, within=within, warm=warm if same else None)


class _SameAccuracy(_Without):
    """Every training is as accurate as that of tuners that know nothing of accuracy, and believed."""

    def __init__(self, run: Run, relative: float) -> None:
        super().__init__(run)
        self.relative = relative

    def evaluate(self, theta: Vector, *, within: float, warm: Any = None) -> suffice.Evaluation:
        made = self.run.train(theta, offer=False, relative=self.relative)
        return replace(made, errors=np.zeros(len(made.e)), work=0.0)


def without_blocks(run: Run) -> None:
    tune(run, _Blocks(run), derivatives="never")


def cold(run: Run) -> None:
    tune(run, _Cold(run), derivatives="never")


def same_accuracy(run: Run, relative: float = RELATIVE) -> None:
    tune(run, _SameAccuracy(run, relative), derivatives="never")


def accurate_looks(run: Run) -> None:
    """A first look at the end of a step is as accurate as a verdict needs at most."""
    before = accuracy.FIRST_LOOK["residual"]
    accuracy.FIRST_LOOK["residual"] = accuracy.DECISION_ERROR
    try:
        tune(run, derivatives="never")
    finally:
        accuracy.FIRST_LOOK["residual"] = before
