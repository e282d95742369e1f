"""A run as an Optuna study, so that Optuna's figures and its dashboard show it.

    study = optuna.create_study()
    suffice.tune(problem, start, callback=StudyCallback(study, problem.space))

Every evaluation becomes one finished trial, at once: a run that is killed leaves a study of all that it had evaluated.
The trial's parameters are those of the space, in the user's units, with their ranges as distributions; its user
attributes are `interval`, `asked`, `achieved`, `work`, `purpose`, `verdict` and `cost`.

Optuna cannot change a finished trial, and a search may come back to a theta to know F more sharply. Such a refinement
is a trial of its own with the attribute `refines`, the number of the trial before it at the same theta.

Optuna ranks trials by one number and knows no intervals. With `value="cost"`, F as it was computed, `study.best_trial`
may be a rough evaluation whose F happens to be too low. With `value="upper"`, the upper end of the interval, it is the
theta with the least proven bound on F. `StudyCallback.best_trial` goes by these bounds in either case, and by the
latest evaluation of every theta.
"""

from __future__ import annotations

import math
import uuid
from typing import Any, Literal, get_args

import numpy as np

from suffice.result import Record
from suffice.space import Space

Value = Literal["cost", "upper"]


class StudyCallback:
    """A `callback` that adds every evaluation to `study`, which has to minimise one value.

    `space` is that of the problem: `problem.space`, or the `Space` of what a search is given. A parameter whose range
    is infinite takes a distribution that ends at the largest number.
    """

    def __init__(self, study: Any, space: Space, *, value: Value = "cost") -> None:
        try:
            import optuna
        except ImportError as error:
            raise ImportError("StudyCallback needs optuna: pip install suffice[optuna]") from error
        if not isinstance(study, optuna.Study):
            raise TypeError(f"study must be an optuna.Study, got {study!r}")
        if not isinstance(space, Space):
            raise TypeError(f"space must be a suffice.Space, got {space!r}")
        if value not in get_args(Value):
            raise ValueError(f"value must be one of {', '.join(get_args(Value))}, got {value!r}")
        if study.directions != [optuna.study.StudyDirection.MINIMIZE]:
            raise ValueError(f"study must minimise one value, its directions are {[d.name for d in study.directions]}")
        self.study, self.space, self.value = study, space, value
        self._optuna = optuna
        self._distributions = {name: self._distribution(name) for name in space.names}
        self._run = uuid.uuid4().hex
        self._latest: dict[tuple[float, ...], tuple[int, float]] = {}  # of a theta: its trial and its upper bound

    def _distribution(self, name: str) -> Any:
        low, high = (min(max(end, -1e308), 1e308) for end in self.space.ranges[name])
        return self._optuna.distributions.FloatDistribution(low, high, log=self.space.logarithmic(name))

    def __call__(self, record: Record) -> None:
        low, high = record.interval
        attributes: dict[str, Any] = {
            "run": self._run,
            "evaluation": record.number,
            "purpose": record.purpose,
            "cost": record.cost,
            "interval": [_plain(low), _plain(high)],
            "asked": _plain(record.within),
            "achieved": _plain(record.error),
            "work": record.work,
        }
        if record.verdict is not None:
            attributes["verdict"] = record.verdict
        if record.theta in self._latest:
            attributes["refines"] = self._latest[record.theta][0]
        value = record.cost if self.value == "cost" else high
        state = self._optuna.trial.TrialState
        trial = self._optuna.create_trial(
            state=state.COMPLETE if math.isfinite(value) else state.PRUNED,  # no bound, no value to rank it by
            value=value if math.isfinite(value) else None,
            params=self.space.params(np.array(record.theta)),
            distributions=self._distributions,
            user_attrs=attributes,
        )
        self.study.add_trial(trial)
        self._latest[record.theta] = (self._number_of_last(), high)

    def _number_of_last(self) -> int:
        """The number of the trial just added; others may write to the same study."""
        trials = self.study.get_trials(deepcopy=False)
        return int(next(trial.number for trial in reversed(trials) if trial.user_attrs.get("run") == self._run))

    @property
    def best_trial(self) -> Any:
        """The trial with the least proven upper bound on F, among the latest ones of every theta."""
        if not self._latest:
            raise ValueError("no evaluation has been made yet")
        number = min(self._latest.values(), key=lambda known: known[1])[0]
        return next(trial for trial in self.study.get_trials() if trial.number == number)


def _plain(value: float) -> float | str:
    """JSON has no infinity; storages of Optuna keep attributes as JSON."""
    return value if math.isfinite(value) else "inf"
