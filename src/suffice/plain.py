"""Plain data: states as nested dictionaries, lists, strings and numbers that any JSON writer takes, and back, bit
for bit.

Arrays become their raw bytes in base64 with dtype and shape; the package's own immutable classes become their fields
under their name. Nothing is ever executed on the way back: only the classes listed here are built.
"""

from __future__ import annotations

import base64
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from suffice.lower.certificate import Certificate
from suffice.lower.fista import FistaState
from suffice.lower.gradient_descent import DescentState
from suffice.lower.newton import Metric, NewtonState
from suffice.lower.solver import Outcome, Solution
from suffice.options import Options
from suffice.result import Purpose, Record, Status
from suffice.upper.evaluation import Evaluation
from suffice.upper.scaling import Scaling
from suffice.upper.search import Pending, Plan, Point, State, Trial

_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Certificate, FistaState, DescentState, NewtonState, Metric, Solution, Options, Record, Evaluation, Scaling),
        *(Pending, Plan, Point, State, Trial),
    )
}
_ENUMS: dict[str, type[Enum]] = {cls.__name__: cls for cls in (Outcome, Purpose, Status)}

# What can be had again at the price of a matrix product, or belongs to the user, stays out: linear images and
# evidence are recomputed by the next step (to the same bits), the problem is given again.
_LEFT_OUT: dict[type, tuple[str, ...]] = {
    Solution: ("problem",),
    FistaState: ("image", "previous_image", "evidence"),
    DescentState: ("image", "evidence"),
    NewtonState: ("image", "evidence"),
}


def encode(value: Any) -> Any:
    """`value` as plain data."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("arrays of objects cannot be turned into plain data")
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"array": data, "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, Enum) and _ENUMS.get(type(value).__name__) is type(value):
        return {"enum": type(value).__name__, "name": value.name}
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode(item) for key, item in value.items()}}
    if is_dataclass(value) and _CLASSES.get(type(value).__name__) is type(value):
        return {"class": type(value).__name__, "fields": _encode_fields(value)}
    raise TypeError(
        f"{type(value).__name__} cannot be turned into plain data; an oracle's `solutions` may hold arrays, numbers, "
        "strings, lists, tuples, dictionaries and suffice's own solutions"
    )


def _encode_fields(value: Any) -> dict[str, Any]:
    left_out = _LEFT_OUT.get(type(value), ())
    encoded = {
        item.name: getattr(value, item.name) for item in fields(value) if item.init and item.name not in left_out
    }
    if isinstance(value, Solution):
        # A solver of the user's own, or its state, may be anything: without them a solution is still a warm start.
        if not isinstance(value.solver, str):
            encoded["solver"] = value.solver.name
        if not isinstance(value.state, FistaState | DescentState | NewtonState):
            encoded["state"] = None
    return {name: encode(item) for name, item in encoded.items()}


def decode(data: Any) -> Any:
    """The value that `encode` turned into `data`."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "float" in data:
        return float(data["float"])
    if "array" in data:
        flat = np.frombuffer(base64.b64decode(data["array"]), dtype=np.dtype(data["dtype"]))
        array = flat.reshape(data["shape"]).copy()
        array.setflags(write=False)
        return array
    if "enum" in data:
        return _ENUMS[data["enum"]][data["name"]]
    if "tuple" in data:
        return tuple(decode(item) for item in data["tuple"])
    if "dict" in data:
        return {key: decode(item) for key, item in data["dict"].items()}
    if "class" in data:
        cls = _CLASSES[data["class"]]
        return cls(**{name: decode(item) for name, item in data["fields"].items()})
    raise ValueError(f"not plain data of this package: {sorted(data)}")
