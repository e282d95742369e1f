"""Which penalties are searched, what they mean for every column, and how those that are not named follow.

`groups_of_features` maps names of groups to columns: names, numbers, a slice, a mask, or a function of the list of all
names that returns a mask. Columns in no group form the group `others`. They are the columns of X if every step of a
pipeline before the estimator keeps columns one to one, as scalers do, and those that the last step puts out
(`get_feature_names_out`) else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import OneToOneFeatureMixin
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.sklearn._target import inside, transforms_target
from suffice.sklearn._words import ends, in_penalties, strength, without_step
from suffice.sklearn.adapters import Adapter, Fold
from suffice.sklearn.folds import FLOOR, LinearFold
from suffice.solvers.problem import Composite
from suffice.space import Space

PENALTIES = ("l1", "l2")
USUAL_RANGE = (1e-6, 1e2)  # of data without any l1 or l2 that matters
# Of the l1 that makes all weights zero, and of the largest curvature: nothing changes above them, next to nothing below
# the lower ends, where arithmetic has no more digits to spare.
OF_DATA = {"l1": (1e-8, 1.1), "l2": (1e-11, 1e3)}
# For models whose small penalties are dear; widened if need be.
NARROWER = {"l1": (1e-6, 1.1), "l2": (1e-7, 1e2)}
# Of the largest curvature: the one of these that proves the loss and changes it least stands in for no l2, where that
# cannot be verified (columns of which some add up to others, above all).
RIDGES = (1e-13, 1e-11, 1e-9, 1e-7)
WIDER = 2.0  # decades
LARGEST = 1e100  # of them: other data are searched over the usual range


@dataclass(frozen=True, eq=False)
class Penalised:
    """A fold as a problem in the parameters of the space; `group` has the number of every column's group, if any, and
    `ridge`, a share of the largest curvature, stands in for no l2."""

    fold: Fold
    ratio: float
    groups: tuple[str, ...] = ()
    group: Any = None
    ridge: float = 0.0

    @property
    def design(self) -> Any:
        """Of a fold of ours: problems of rows in blocks are solved side by side."""
        return self.fold.design if isinstance(self.fold, LinearFold) else None

    def shares(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        """(share of l1, share of l2) of every parameter, for a global certificate; groups have none."""
        if self.groups or not set(names) <= set(PENALTIES):
            return {}
        units = [{one: float(one == name) for one in names} for name in names]
        each = [penalties(unit, self.ratio) for unit in units]
        return {name: (both["l1"], both["l2"]) for name, both in zip(names, each, strict=True)}

    def _both(self, params: Mapping[str, float]) -> tuple[Any, Any]:
        """l1 and l2 of these parameters: numbers, or arrays of one per column."""
        if not self.groups:
            both = penalties(params, self.ratio)
            return both["l1"], both["l2"]
        each = group_penalties(params, self.ratio, self.groups)
        return each["l1"][self.group], each["l2"][self.group]

    def at(self, **params: float) -> Composite:
        (l1, l2), least = self._both(params), self.ridge * self.fold.l2_floor / FLOOR
        return self.fold.at(l1=l1, l2=np.where(l2 == 0.0, least, l2) if self.groups else l2 or least)

    def cross(self, x: Array, **params: float) -> Array | None:
        """d/dp [grad f(x) + l1 sign(x)], a column for every parameter p (`solvers.sensitivity`); None for a fold
        of somebody's own, which may penalise what it likes."""
        if not (isinstance(self.fold, LinearFold) and self.fold.learner.differentiable):
            return None
        return self._columns(np.sign(x), x, params)

    def _columns(self, signs: Array, x: Array, params: Mapping[str, float]) -> Array:
        assert isinstance(self.fold, LinearFold)
        columns = []
        for name in params:  # penalties are linear in the parameters
            unit = {other: float(other == name) for other in params}
            l1, l2 = (self.fold.of_weights(one) for one in self._both(unit))
            columns.append(np.where(l1 == 0.0, 0.0, l1 * signs) + l2 * x)
        return np.column_stack(columns)


def penalties(params: Mapping[str, float], ratio: float) -> dict[str, float]:
    """l1 and l2 of parameters that name both of them or one: the other follows by the ratio."""
    if len(params) == 2:
        return dict(params)
    ((name, value),) = params.items()
    if name == "l1":
        return {"l1": value, "l2": value * (1.0 - ratio) / ratio if ratio > 0.0 else 0.0}
    return {"l1": value * ratio / (1.0 - ratio) if ratio < 1.0 else 0.0, "l2": value}


def group_penalties(params: Mapping[str, float], ratio: float, groups: tuple[str, ...]) -> dict[str, Array]:
    """l1 and l2 of every group: its own, else that of all groups, else what follows from its other one."""

    def of(group: str) -> dict[str, float]:
        names = [(kind, name) for kind in PENALTIES for name in (kind, f"{kind}_{group}") if name in params]
        return penalties({kind: params[name] for kind, name in names}, ratio)

    each = [of(group) for group in groups]
    return {kind: np.array([own[kind] for own in each]) for kind in PENALTIES}


# Groups of features

OTHERS = "others"

Indices = npt.NDArray[np.intp]


def check_groups(groups: Any) -> None:
    """Whether these are groups at all; which columns they mean is seen from data."""
    if not isinstance(groups, Mapping) or not groups:
        raise ValueError(f"groups_of_features must be a dictionary of groups to columns, got {groups!r}")
    for name in groups:
        if not isinstance(name, str) or not name or name == OTHERS:
            raise ValueError(f"a group must be named by a word other than {OTHERS!r}, got {name!r}")


def keeps_columns(before: Any) -> bool:
    """Whether all steps of a pipeline put out one column for each of their own."""
    steps = [] if before is None else [step for _, step in before.steps]
    return all(step is None or step == "passthrough" or isinstance(step, OneToOneFeatureMixin) for step in steps)


def names_out(before: Any, names_in: Any, count: int) -> list[str]:
    """The names of the columns that the estimator sees; `before` is fitted."""
    if keeps_columns(before):
        return [str(name) for name in (range(count) if names_in is None else names_in)]
    try:
        return [str(name) for name in before.get_feature_names_out()]
    except (AttributeError, ValueError) as error:
        raise ValueError(
            "groups_of_features needs steps that keep columns one to one or give their names by "
            f"get_feature_names_out, and these do not: {error}"
        ) from error


def group_of_columns(groups: Mapping[str, Any], names: list[str]) -> tuple[tuple[str, ...], Indices]:
    """All groups, `others` last if there are any, and the number of the group of every column."""
    of = np.full(len(names), -1)
    for number, (group, selection) in enumerate(groups.items()):
        columns = _columns(group, selection, names)
        taken = columns[of[columns] >= 0]
        if len(taken) or len(np.unique(columns)) < len(columns):
            twice = names[int(taken[0] if len(taken) else columns[0])]
            raise ValueError(f"groups_of_features[{group!r}] names the column {twice!r} a second time")
        of[columns] = number
    found = tuple(groups)
    if (of < 0).any():
        found, of = (*found, OTHERS), np.where(of < 0, len(found), of)
    return found, of


def _columns(group: str, selection: Any, names: list[str]) -> Indices:
    where = f"groups_of_features[{group!r}]"
    if callable(selection):
        selection = np.asarray(selection(names), dtype=bool)
    if isinstance(selection, slice):
        columns: Indices = np.arange(len(names))[selection]
    else:
        values = np.atleast_1d(np.asarray([selection] if isinstance(selection, str) else selection))
        if values.dtype.kind in "US" or values.dtype.kind == "O":
            missing = [str(name) for name in values if str(name) not in names]
            if missing:
                raise ValueError(
                    f"{where} names {missing[0]!r}, which is not a column: they are {', '.join(names[:20])}"
                )
            columns = np.array([names.index(str(name)) for name in values], dtype=np.intp)
        elif values.dtype.kind == "b":
            if values.shape != (len(names),):
                raise ValueError(f"{where} must be a mask of {len(names)} columns, got shape {values.shape}")
            columns = np.flatnonzero(values)
        elif values.dtype.kind in "iu" and values.ndim == 1:
            if ((values < 0) | (values >= len(names))).any():
                raise ValueError(f"{where} must hold numbers from 0 to {len(names) - 1}, got {selection!r}")
            columns = values.astype(np.intp)
        else:
            raise ValueError(f"{where} must be names, numbers, a slice or a mask of columns, got {selection!r}")
    if len(columns) == 0:
        raise ValueError(f"{where} holds no column")
    return columns


@dataclass(frozen=True)
class FeatureGroups:
    """`groups_of_features`, and the names of the columns they may refer to."""

    selections: Mapping[str, Any]
    names: tuple[str, ...]
    names_in: Any

    @classmethod
    def of(cls, search: Any) -> FeatureGroups:
        check_groups(search.groups_of_features)
        selections, names_in = search.groups_of_features, getattr(search, "feature_names_in_", None)
        final, before = split_pipeline(search.estimator)
        if getattr(final, "fit_intercept", False) and (
            isinstance(final, LinearSVC) or getattr(final, "solver", "") == "liblinear"
        ):
            raise ValueError(
                f"groups_of_features leaves no penalty for the intercept of {type(final).__name__}, which liblinear "
                "takes for a feature: set fit_intercept=False"
            )
        if keeps_columns(before):
            count = search.n_features_in_
            names, _ = group_of_columns(selections, names_out(before, names_in, count))
        else:  # which columns there are is seen in every fold
            names = tuple(selections)
        return cls(selections, names, names_in)

    def of_columns(self, before: Any, count: int) -> Any:
        names, group = group_of_columns(self.selections, names_out(before, self.names_in, count))
        if names != self.names:
            raise ValueError(
                f"groups_of_features must name all columns that the steps before the estimator put out: they have "
                f"{len(group)}, of which {int(np.sum(group == len(self.names)))} belong to no group"
            )
        return group


@dataclass(frozen=True)
class PenaltySpace:
    """Which penalties are searched, and how the others follow; `space` has the ranges of those that are."""

    names: tuple[str, ...]
    ratio: float
    space: Space
    groups: tuple[str, ...] = ()
    ours: frozenset[str] = frozenset()  # those whose ranges are not the user's

    @classmethod
    def of(
        cls,
        space: Any,
        estimator: Any,
        adapter: Adapter,
        groups: tuple[str, ...] = (),
        *,
        step: str = "",
        total: float = 1.0,
    ) -> PenaltySpace:
        """Of what a user gave, perhaps in scikit-learn's words; `step` leads to the linear estimator in a pipeline, and
        `total` is N of the final fit."""
        ratio = adapter.ratio(estimator)
        if not 0.0 <= ratio <= 1.0:
            raise ValueError(f"l1_ratio must lie between 0 and 1, got {ratio!r}")
        own = [f"{kind}_{group}" for kind in PENALTIES for group in groups]
        if space is None:
            usual = ["l1"] * (ratio > 0.0) + ["l2"] * (ratio < 1.0)
            usual = [f"{usual[-1]}_{group}" for group in groups] or usual
            space = dict.fromkeys(usual)
        if isinstance(space, Mapping):
            space = without_step(space, step)
            space = space if groups else in_penalties(space, estimator, adapter, ratio, total)
        if not isinstance(space, Mapping) or not space or not set(space) <= {*PENALTIES, *own}:
            known = f"l1 and/or l2, or {strength(estimator, adapter, ratio)},"
            known = ", ".join([*PENALTIES, *own]) if groups else known
            raise ValueError(f"space must be a dictionary of {known} to ranges, got {space!r}")
        names = tuple(name for name in (*PENALTIES, *own) if name in space)
        ours = frozenset(name for name in names if space[name] is None)
        given = {name: USUAL_RANGE if name in ours else ends(space[name], name) for name in names}
        for name, (lower, upper, *_) in given.items():
            if not (lower >= 0.0 and math.isfinite(upper)):
                raise ValueError(f"space[{name!r}] must be finite and not negative, got {space[name]!r}")
        built = Space(**{name: (*pair[:2], "log") if pair[0] == 0.0 else pair for name, pair in given.items()})
        for group in groups:
            if not any(name in names for kind in PENALTIES for name in (kind, f"{kind}_{group}")):
                raise ValueError(f"space must name a penalty of the group {group!r}: l1_{group}, l2_{group}, l1 or l2")
        kinds = tuple(kind for kind in PENALTIES if any(kind_of(name) == kind for name in names))
        if kinds == ("l1",) and ratio == 0.0:
            ratio = 1.0
        if kinds == ("l2",) and ratio == 1.0:
            raise ValueError("the estimator has l1_ratio=1, no l2 penalty to tune: set its l1_ratio, or name l1")
        adapter.check(estimator, kinds)
        return cls(names, ratio, built, groups, ours)

    def of_data(self, models: Sequence[Fold]) -> PenaltySpace:
        """With ranges that the data give, where the user gave none."""
        largest = {"l1": max(fold.l1_max for fold in models), "l2": max(fold.l2_floor / FLOOR for fold in models)}
        if not self.ours or not min(largest.values()) > 0.0 or not max(largest.values()) < LARGEST:
            return self
        if self.ratio > 0.0 and self.names == ("l2",):  # which brings an l1 along
            largest["l2"] = largest["l1"] * (1.0 - self.ratio) / self.ratio

        plain = not self.groups and all(isinstance(fold, LinearFold) and fold.plain for fold in models)

        def of_data(kind: str) -> tuple[float, float]:
            low, high = (OF_DATA if plain else NARROWER)[kind]
            return low * largest[kind], high * largest[kind]

        ranges = self.space.ranges | {name: of_data(kind_of(name)) for name in self.ours}
        return replace(self, space=Space(**{name: (*ranges[name], self.space.scales[name]) for name in self.names}))

    def widened(self, name: str, down: bool) -> PenaltySpace:
        """With a range that reaches WIDER decades farther."""
        low, high = self.space.ranges[name]
        ends = {**self.space.ranges, name: (low / 10.0**WIDER, high) if down else (low, high * 10.0**WIDER)}
        return replace(self, space=Space(**{one: (*ends[one], self.space.scales[one]) for one in self.names}))

    def penalties(self, evaluation: Evaluation) -> dict[str, float]:
        """All penalties by name."""
        params = self.space.params(evaluation.point)
        if not self.groups:
            return penalties(params, self.ratio)
        both = group_penalties(params, self.ratio, self.groups)
        return {f"{kind}_{g}": float(both[kind][i]) for kind in PENALTIES for i, g in enumerate(self.groups)}

    def words(self, adapter: Adapter, estimator: Any, evaluation: Evaluation, total: float) -> dict[str, float]:
        """The parameters of a fit with weights that sum to `total`, in the estimator's words; the penalties themselves
        for groups, which it has no words for."""
        both = self.penalties(evaluation)
        return both if self.groups else adapter.params(estimator, both["l1"], both["l2"], total, self.names)


def kind_of(name: str) -> str:
    return name.partition("_")[0]


def split_pipeline(estimator: Any) -> tuple[Any, Any]:
    """The linear estimator, and the steps before it or None."""
    estimator = inside(estimator)
    if not isinstance(estimator, Pipeline):
        return estimator, None
    final = estimator.steps[-1][1]
    if transforms_target(final):
        raise TypeError(
            "TransformedTargetRegressor has to be around the pipeline, not a step of it: the model is the same"
        )
    return final, estimator[:-1] if len(estimator.steps) > 1 else None


def step_to(estimator: Any) -> str:
    """What leads to the linear estimator in names of parameters: `clf__` in a pipeline whose last step is `clf`."""
    prefix, estimator = "regressor__" if transforms_target(estimator) else "", inside(estimator)
    return prefix + (f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else "")
