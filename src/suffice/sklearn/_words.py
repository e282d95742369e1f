r"""Ranges as people give them: pairs, lists, arrays or distributions; of l1 and l2, or in scikit-learn's words.

A range is its two ends: those of a pair, the least and the largest entry of a list or an array (`np.logspace(-5, 1,
7)`), the support of a distribution (`scipy.stats.loguniform`).

The word for the strength of a penalty, C or alpha, is a power of  s = l1 + l2,  w = k s  or  w = k / s,  with a k that
the adapter's `params` tells (it depends on the number of samples). With r the share of l1, l1 = r s and l2 = (1 - r) s:

- the strength alone, r that of the estimator: one penalty is searched, the other follows;
- the strength in [s0, s1] and l1_ratio in [r0, r1]: both are, over the smallest box that holds all of these,

      l1 in [r0 s0, r1 s1],    l2 in [(1 - r1) s0, (1 - r0) s1],

  of which some corners lie a little outside the ranges in scikit-learn's words. An end 0 becomes LEAST s0: as good as
  none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

LEAST = 1e-3
RATIO = "l1_ratio"

Range = tuple[float, float]


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
        if isinstance(plain, str) and "__" in plain and not plain.startswith(("l1_", "l2_")):
            leads = f"{step}{plain.rpartition('__')[2]}" if step else plain.rpartition("__")[2]
            raise ValueError(f"space names {name!r}, which is no parameter of the linear estimator: {leads!r} may be")
        if plain in found:
            raise ValueError(f"space names {plain!r} twice")
        found[plain] = value
    return found


def in_penalties(space: Mapping[str, Any], estimator: Any, adapter: Any, ratio: float, total: float) -> dict[str, Any]:
    """The space in l1 and l2; one that has l1 and l2 already is returned as it is."""
    if set(space) <= {"l1", "l2"}:
        return dict(space)
    word = strength(estimator, adapter, ratio)
    if word not in space and RATIO not in space:
        return dict(space)
    known = {word, RATIO} if _mixes(estimator, adapter) else {word}
    if not set(space) <= known or word not in space:
        what = f"{word}, alone or with {RATIO}" if RATIO in known else word
        raise ValueError(f"space in scikit-learn's words has {what}, got {', '.join(map(str, space))}")
    low, high = in_strength(ends(space[word], word), word, estimator, adapter, total)
    if RATIO not in space:
        if ratio == 1.0:
            return {"l1": (low, high)}
        return {"l2": ((1.0 - ratio) * low, (1.0 - ratio) * high)}
    r0, r1 = ends(space[RATIO], RATIO)
    if not 0.0 <= r0 < r1 <= 1.0:
        raise ValueError(f"space[{RATIO!r}] must lie between 0 and 1, got {space[RATIO]!r}")
    return {
        "l1": (max(r0, LEAST) * low, r1 * high),
        "l2": (max(1.0 - r1, LEAST) * low, (1.0 - r0) * high),
    }


def strength(estimator: Any, adapter: Any, ratio: float) -> str:
    """What the estimator calls the strength of its penalty: C or alpha."""
    kind = "l1" if ratio == 1.0 else "l2"
    words = adapter.params(estimator, ratio, 1.0 - ratio, 1.0, (kind,))
    return str(next(name for name in words if name != RATIO))


def _mixes(estimator: Any, adapter: Any) -> bool:
    return RATIO in adapter.params(estimator, 0.5, 0.5, 1.0, ("l1", "l2"))


def in_strength(given: Any, word: str, estimator: Any, adapter: Any, total: float) -> Range:
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
