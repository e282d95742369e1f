"""Plain data: answers as nested dictionaries, lists, strings and numbers that any JSON writer takes, and back, bit
for bit.

Arrays become their bytes, compressed (weights are mostly zeros), in base64 with dtype and shape; the package's own
immutable classes become their fields under their name, without those that are declared as left out
(`solvers.certificate`). Nothing is ever executed on the way back: only the classes listed here are built.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import numpy as np

from suffice.evaluation import Evaluation
from suffice.imaging.newton_tv import VariationState
from suffice.options import Options
from suffice.result import Record, Step
from suffice.solvers.certificate import Certificate, left_out
from suffice.solvers.fista import FistaState
from suffice.solvers.newton import NewtonState
from suffice.solvers.solution import Outcome, Solution

SolverState = FistaState | NewtonState | VariationState

_CLASSES: dict[str, type] = {
    cls.__name__: cls for cls in (*get_args(SolverState), Certificate, Solution, Options, Record, Step, Evaluation)
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
        data = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes(), 1)).decode("ascii")
        return {"array": data, "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, Outcome):
        return {"enum": "Outcome", "name": value.name}
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
    again = left_out(type(value))
    encoded = {item.name: getattr(value, item.name) for item in fields(value) if item.init and item.name not in again}
    if isinstance(value, Solution):
        # A solver of the user's own, or its state, may be anything: without them a solution is still a warm start.
        if not isinstance(value.solver, str):
            encoded["solver"] = value.solver.name
        if type(value.state) not in get_args(SolverState):
            encoded["state"] = None
        elif value.state.x is value.x or value.state.x.tobytes() == value.x.tobytes():  # written once
            encoded["state"] = replace(value.state, x=None)
    return {name: encode(item) for name, item in encoded.items()}


def light(solution: Solution) -> Solution:
    """The solution as a file would give it back, but for its solver: all that is needed to continue it, and hardly more
    than x."""
    proof, state = replace(solution.certificate, verification=None), solution.state
    # An image that one product made for many problems has other last bits than one made for a few: so an evaluation,
    # from which searches go on, never has any, whether it goes through a file or not. Nor a state of the user's own.
    known = type(state) in get_args(SolverState)
    state = replace(state, **dict.fromkeys(left_out(type(state)))) if known else None
    return replace(solution, problem=None, state=state, certificate=proof)


# Numbers and short text in either byte order: nothing that could hold, or stand for, an object.
_DTYPE = re.compile(r"[<>|=]?(?:[biufc][0-9]{1,2}|[SU][0-9]{1,9})|\?")


def decode(data: Any) -> Any:
    """The value that `encode` turned into `data`; ValueError, TypeError or KeyError if `data` is anything else."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "float" in data:
        return float(_expect(data["float"], str))
    if "array" in data:
        return _decode_array(data)
    if "enum" in data:
        return Outcome[data["name"]]
    if "tuple" in data:
        return tuple(decode(item) for item in _expect(data["tuple"], list))
    if "dict" in data:
        return {key: decode(item) for key, item in _expect(data["dict"], dict).items()}
    if "class" in data:
        cls = _CLASSES[data["class"]]
        values = {name: decode(item) for name, item in _expect(data["fields"], dict).items()}
        state = values.get("state")
        if cls is Solution and state is not None and state.x is None:
            values["state"] = replace(state, x=values["x"])
        return cls(**values)
    raise ValueError(f"not plain data of this package: {sorted(data)[:5]}")


def _decode_array(data: Mapping[str, Any]) -> Any:
    if not _DTYPE.fullmatch(_expect(data["dtype"], str)):
        raise ValueError(f"not a type of numbers: {data['dtype'][:20]!r}")
    dtype, shape = np.dtype(data["dtype"]), _expect(data["shape"], list)
    if not all(isinstance(side, int) and not isinstance(side, bool) and side >= 0 for side in shape):
        raise ValueError(f"the shape of an array must be non-negative integers, got {shape[:5]}")
    size = dtype.itemsize * math.prod(shape)
    try:
        raw = zlib.decompressobj().decompress(base64.b64decode(_expect(data["array"], str), validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(f"not a compressed array: {error}") from error
    if len(raw) != size:
        raise ValueError(f"an array of {len(raw)} bytes cannot have type {dtype.str} and shape {shape[:5]}")
    array = np.frombuffer(raw, dtype=dtype).copy() if raw else np.empty(0, dtype=dtype)
    array = array.reshape(shape)
    array.setflags(write=False)
    return array


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} was expected, got {type(value).__name__}")
    return value
