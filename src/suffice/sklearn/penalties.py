r"""Which penalties are searched, what they mean for every column, and how those that are not named follow.

A range is its two ends: those of a pair, the least and the largest entry of a list or an array (`np.logspace(-5, 1,
7)`), the support of a distribution (`scipy.stats.loguniform`). In scikit-learn's words the strength of a penalty, C or
alpha, is a power of  s = l1 + l2,  w = k s  or  w = k / s,  with a k that the adapter's `params` tells (it depends on
the number of samples). With r the share of l1, l1 = r s and l2 = (1 - r) s:

- the strength alone, r that of the estimator: one penalty is searched, the other follows;
- the strength in [s0, s1] and l1_ratio in [r0, r1]: both are, over the smallest box that holds all of these,

      l1 in [r0 s0, r1 s1],    l2 in [(1 - r1) s0, (1 - r0) s1],

  of which some corners lie a little outside the ranges in scikit-learn's words. An end 0 becomes LEAST s0: as good as
  none.

`groups_of_features` maps names of groups to columns: names, numbers, a slice, a mask, or a function of the list of all
names that returns a mask. Columns in no group form the group `others`. They are the columns of X if every step of a
pipeline before the estimator keeps columns one to one, as scalers do, and those that the last step puts out
(`get_feature_names_out`) else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.pipeline import Pipeline

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.penalties.prox import Indices
from suffice.rows.margins import together_if_dear
from suffice.sklearn.adapters import Adapter, Fold, by_liblinear
from suffice.sklearn.folds import FLOOR, LinearFold
from suffice.sklearn.target import inside, transforms_target
from suffice.solvers.problem import Composite
from suffice.space import Space

PENALTIES = ("l1", "l2")
USUAL_RANGE = (1e-6, 1e2)  # of data without any l1 or l2 that matters
# Of the l1 that makes all weights zero, and of the largest curvature: nothing changes above them, next to nothing below
# the lower ends, where arithmetic has no more digits to spare.
OF_DATA = {"l1": (1e-8, 1.1), "l2": (1e-11, 1e3)}
# For models whose small penalties are dear; beyond these edges there may be better ones.
NARROWER = {"l1": (1e-6, 1.1), "l2": (1e-7, 1e2)}
# Of the largest curvature: the one of these that proves the loss and changes it least stands in for no l2, where that
# cannot be verified (columns of which some add up to others, above all).
RIDGES = (1e-13, 1e-11, 1e-9, 1e-7)
LEAST = 1e-3  # of the strength: what an end 0 of a range of l1_ratio stands for
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
        return {name: self.both({one: float(one == name) for one in names}) for name in names}

    def both(self, params: Mapping[str, float]) -> tuple[Any, Any]:
        """l1 and l2 of these parameters: numbers, or arrays of one per column."""
        each = group_penalties(params, self.ratio, self.groups or ("",))
        l1, l2 = ([own[kind] for own in each] for kind in PENALTIES)
        return (np.array(l1)[self.group], np.array(l2)[self.group]) if self.groups else (l1[0], l2[0])

    def at(self, **params: float) -> Composite:
        (l1, l2), least = self.both(params), self.ridge * self.fold.l2_floor / FLOOR
        return self.fold.at(l1=l1, l2=np.where(l2 == 0.0, least, l2) if self.groups else l2 or least)

    def cross(self, x: Array, **params: float) -> Array | None:
        """d/dp [grad f(x) + l1 sign(x)], a column for every parameter p (`solvers.sensitivity`); None for a fold
        of somebody's own, which may penalise what it likes."""
        known = isinstance(self.fold, LinearFold) and self.fold.learner.differentiable
        return self._columns(np.sign(x), x, params) if known else None

    def _columns(self, signs: Array, sizes: Array, params: Iterable[str]) -> Array:
        assert isinstance(self.fold, LinearFold)
        columns = []
        for name in params:  # penalties are linear in the parameters
            l1, l2 = map(self.fold.of_weights, self.both({other: float(other == name) for other in params}))
            columns.append(np.where(l1 == 0.0, 0.0, l1 * signs) + l2 * sizes)
        return np.column_stack(columns)


def penalties(params: Mapping[str, float], ratio: float) -> dict[str, float]:
    """l1 and l2 of parameters that name both of them or one: the other follows by the ratio."""
    return group_penalties(params, ratio, ("",))[0]


def group_penalties(params: Mapping[str, float], ratio: float, groups: tuple[str, ...]) -> list[dict[str, float]]:
    """l1 and l2 of every group: its own, else that of all groups, else what follows from its other one by the ratio."""
    found = []
    for group in groups:
        own = {kind: params[name] for kind in PENALTIES for name in (kind, f"{kind}_{group}") if name in params}
        if "l1" not in own:
            own["l1"] = own["l2"] * ratio / (1.0 - ratio) if ratio < 1.0 else 0.0
        elif "l2" not in own:
            own["l2"] = own["l1"] * (1.0 - ratio) / ratio if ratio > 0.0 else 0.0
        found.append(own)
    return found


# Groups of features

OTHERS = "others"


def keeps_columns(before: Any) -> bool:
    """Whether all steps of a pipeline put out one column for each of their own."""
    steps = [] if before is None else [step for _, step in before.steps]
    return all(step is None or step == "passthrough" or isinstance(step, OneToOneFeatureMixin) for step in steps)


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
    selection = selection(names) if callable(selection) else selection
    given = selection if isinstance(selection, slice) else np.atleast_1d(np.asarray(selection))
    if not isinstance(given, slice) and given.dtype.kind in "UO":
        missing = [str(name) for name in given if str(name) not in names]
        if missing:
            raise ValueError(f"{where} names {missing[0]!r}, which is not a column: they are {', '.join(names[:20])}")
        given = np.array([names.index(str(name)) for name in given])
    try:
        columns: Indices = np.arange(len(names))[given]
    except IndexError as error:
        raise ValueError(
            f"{where} must be names, numbers from 0 to {len(names) - 1}, a slice or a mask of {len(names)} columns, "
            f"got {selection!r}"
        ) from error
    if columns.ndim != 1 or len(columns) == 0:
        raise ValueError(f"{where} holds no column, got {selection!r}")
    return columns


@dataclass(frozen=True)
class FeatureGroups:
    """`groups_of_features`, and the names of the columns they may refer to."""

    selections: Mapping[str, Any]
    names: tuple[str, ...]
    names_in: Any

    @classmethod
    def of(cls, search: Any) -> FeatureGroups:
        groups, names_in = search.groups_of_features, getattr(search, "feature_names_in_", None)
        if not isinstance(groups, Mapping) or not groups:
            raise ValueError(f"groups_of_features must be a dictionary of groups to columns, got {groups!r}")
        for name in groups:
            if not isinstance(name, str) or not name or name == OTHERS:
                raise ValueError(f"a group must be named by a word other than {OTHERS!r}, got {name!r}")
        final, before = split_pipeline(search.estimator)
        if getattr(final, "fit_intercept", False) and by_liblinear(final):
            raise ValueError(
                f"groups_of_features leaves no penalty for the intercept of {type(final).__name__}, which liblinear "
                "takes for a feature: set fit_intercept=False"
            )
        unnamed = cls(groups, tuple(groups), names_in)
        if not keeps_columns(before):  # which columns there are is seen in every fold
            return unnamed
        return replace(unnamed, names=group_of_columns(groups, unnamed._names(before, search.n_features_in_))[0])

    def _names(self, before: Any, count: int) -> list[str]:
        """The names of the columns that the estimator sees; `before` is fitted, if it does not keep columns."""
        if keeps_columns(before):
            return [str(name) for name in (range(count) if self.names_in is None else self.names_in)]
        try:
            return [str(name) for name in before.get_feature_names_out()]
        except (AttributeError, ValueError) as error:
            raise ValueError(
                "groups_of_features needs steps that keep columns one to one or give their names by "
                f"get_feature_names_out, and these do not: {error}"
            ) from error

    def of_columns(self, before: Any, count: int) -> Any:
        names, group = group_of_columns(self.selections, self._names(before, count))
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
    ours: frozenset[str] = frozenset()  # those that nothing is gained for beyond the ranges that data give

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
            if not groups:
                only_penalties(space, step, estimator, adapter, ratio)
                space = in_penalties(space, estimator, adapter, ratio, total)
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
        l1 = together_if_dear(models)([partial(attrgetter("l1_max"), fold) for fold in models])
        largest = {"l1": max(l1), "l2": max(fold.l2_floor / FLOOR for fold in models)}
        if not self.ours or not min(largest.values()) > 0.0 or not max(largest.values()) < LARGEST:
            return replace(self, ours=frozenset())
        if self.ratio > 0.0 and self.names == ("l2",):  # which brings an l1 along
            largest["l2"] = largest["l1"] * (1.0 - self.ratio) / self.ratio

        plain = not self.groups and all(isinstance(fold, LinearFold) and fold.plain for fold in models)
        ranges = self.space.ranges
        for name, kind in ((name, kind_of(name)) for name in self.ours):
            low, high = (OF_DATA if plain else NARROWER)[kind]
            ranges = ranges | {name: (low * largest[kind], high * largest[kind])}
        space = Space(**{name: (*ranges[name], self.space.scales[name]) for name in self.names})
        return replace(self, space=space, ours=self.ours if plain else frozenset())

    def penalties(self, evaluation: Evaluation) -> dict[str, float]:
        """All penalties by name."""
        each = group_penalties(self.space.params(evaluation.point), self.ratio, self.groups or ("",))
        names = [f"_{group}" for group in self.groups] or [""]
        return {f"{kind}{name}": own[kind] for kind in PENALTIES for name, own in zip(names, each, strict=True)}


# Words


def ends(value: Any, name: str) -> Any:
    """(lower, upper) of whatever gives a range."""
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], str):
        return value  # with a scale of its own, for `suffice.Space`
    if callable(getattr(value, "support", None)):
        value = value.support()
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array(math.nan)
    if numbers.ndim != 1 or len(numbers) < 2 or not np.isfinite(numbers).all() or not numbers.min() < numbers.max():
        raise ValueError(
            f"space[{name!r}] must be a range, (lower, upper), or a list or an array of at least two different values, "
            f"got {value!r}"
        )
    if isinstance(value, tuple) and len(value) == 2 and not numbers[0] < numbers[1]:
        raise ValueError(f"space[{name!r}] must satisfy lower < upper, got {value!r}")
    return float(numbers.min()), float(numbers.max())


def without_step(space: Mapping[str, Any], step: str) -> dict[str, Any]:
    """The space with names as the linear estimator has them: `clf__C` is `C` if `clf__` leads to it."""
    found = {}
    for name, value in space.items():
        plain = name.removeprefix(step) if isinstance(name, str) else name
        if plain in found:
            raise ValueError(f"space names {plain!r} twice")
        found[plain] = value
    return found


def only_penalties(space: Mapping[str, Any], step: str, estimator: Any, adapter: Any, ratio: float) -> None:
    """ValueError for a name that is none of a penalty, with what to do about it."""
    words = list(dict.fromkeys([strength(estimator, adapter, ratio), *PENALTIES]))
    words += ["l1_ratio"] * ("l1_ratio" in adapter.params(estimator, 0.5, 0.5, 1.0, PENALTIES))
    for name in (name for name in map(str, space) if name not in words):
        last, hint = name.rpartition("__")[2], ""
        if near := [word for word in words if word.lower() == last.lower()]:
            hint = f": {step + near[0]!r} may be meant"
        elif "__" in name or name in estimator.get_params():
            whole = name if "__" in name else step + name
            hint = (
                f". GridSearchCV(SufficeSearchCV(...), {{'estimator__{whole}': [...]}}) tunes them for each value of it"
            )
        kind, known = type(estimator).__name__, ", ".join(words)
        raise ValueError(f"space names {name!r}, and only the penalties of {kind} are tuned here ({known}){hint}")


def in_penalties(space: Mapping[str, Any], estimator: Any, adapter: Any, ratio: float, total: float) -> dict[str, Any]:
    """The space in l1 and l2; one that has l1 and l2 already is returned as it is."""
    word = strength(estimator, adapter, ratio)
    if set(space) <= set(PENALTIES) or not {word, "l1_ratio"} & set(space):
        return dict(space)
    mixes = "l1_ratio" in adapter.params(estimator, 0.5, 0.5, 1.0, PENALTIES)
    if not set(space) <= {word, *["l1_ratio"] * mixes} or word not in space:
        what = f"{word}, alone or with l1_ratio" if mixes else word
        raise ValueError(f"space in scikit-learn's words has {what}, got {', '.join(map(str, space))}")
    low, high = in_strength(ends(space[word], word), word, estimator, adapter, total)
    if "l1_ratio" not in space:
        return {"l1": (low, high)} if ratio == 1.0 else {"l2": ((1.0 - ratio) * low, (1.0 - ratio) * high)}
    r0, r1 = ends(space["l1_ratio"], "l1_ratio")
    if not 0.0 <= r0 < r1 <= 1.0:
        raise ValueError(f"space['l1_ratio'] must lie between 0 and 1, got {space['l1_ratio']!r}")
    return {"l1": (max(r0, LEAST) * low, r1 * high), "l2": (max(1.0 - r1, LEAST) * low, (1.0 - r0) * high)}


def strength(estimator: Any, adapter: Any, ratio: float) -> str:
    """What the estimator calls the strength of its penalty: C or alpha."""
    words = adapter.params(estimator, ratio, 1.0 - ratio, 1.0, ("l1",) if ratio == 1.0 else ("l2",))
    return str(next(name for name in words if name != "l1_ratio"))


def in_strength(given: Any, word: str, estimator: Any, adapter: Any, total: float) -> tuple[float, float]:
    """The range of s = l1 + l2 that these ends of the word stand for."""
    lower, upper = given[:2]
    if not (lower > 0.0 and math.isfinite(upper)):
        raise ValueError(f"space[{word!r}] must be positive and finite, got {given!r}")
    ratio = adapter.ratio(estimator)
    kind = ("l1",) if ratio == 1.0 else ("l2",)
    one, two = (float(adapter.params(estimator, s * ratio, s * (1.0 - ratio), total, kind)[word]) for s in (1.0, 2.0))
    if math.isclose(two, 2.0 * one):
        return lower / one, upper / one
    if math.isclose(two, 0.5 * one):
        return one / upper, one / lower
    raise ValueError(f"{word} of {type(estimator).__name__} cannot be translated: name l1 or l2 instead")


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
