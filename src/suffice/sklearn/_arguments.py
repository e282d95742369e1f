"""The arguments of constructors that have been read here: what `suffice` says is about the model that one has.

For each class, those on which the minimiser depends (rows of `suffice.sklearn.table` deal with all their values, or
refuse them), then those that decide how it is found or reported. An argument in neither list is new: nobody has read
what it does, and any value but its default is refused by name. `TAKEN` has arguments of which some values only are
understood, whatever else the estimator is.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from suffice.sklearn.adapters import name_of

# What these mean is the same for all estimators: how far and how the solver goes, never whereto.
EVERYWHERE = "copy_X max_iter n_jobs random_state tol verbose warm_start"
READ: dict[str, tuple[str, str]] = {}
TAKEN: dict[str, dict[str, tuple[Any, ...]]] = {}


def misunderstood(estimator: Any) -> str | None:
    """The first argument whose value is not understood here, and the way out; None if there is none. Arguments that a
    derived class has added are its own affair."""
    kind = next((one for one in type(estimator).__mro__ if name_of(one) in READ), None)
    if kind is None:
        return None
    known = {*EVERYWHERE.split(), *" ".join(READ[name_of(kind)]).split()}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(estimator, name, parameter.default)
        here, taken = f"{kind.__name__}({name}={value!r})", TAKEN.get(name_of(kind), {}).get(name)
        if name not in known and not _same(value, parameter.default):
            return (
                f"{here} is new here, and may change what is minimised: use {name}={parameter.default!r}, its default"
            )
        if taken is not None and not any(_same(value, one) for one in taken):
            return f"{here} changes what is minimised, and there is no proof for that: use {name}={_or(taken)}"
    return None


def takes_weights(estimator: Any) -> bool:
    """Whether its fit takes weights of samples, as far as its class tells."""
    fit = getattr(type(estimator), "fit", None)
    return fit is None or "sample_weight" in inspect.signature(fit).parameters


def _or(values: tuple[Any, ...]) -> str:
    return " or ".join(map(repr, values))


def _same(value: Any, other: Any) -> bool:
    return value is other or (np.ndim(value) == np.ndim(other) == 0 and bool(value == other))
