"""What a run was made from, as short digests: enough to tell whether it is continued with the same data.

A fingerprint is a flat dictionary from the name of a part (`lower[0].design.X`) to a description of it: numbers and
words as they are, arrays as type, shape and a digest of every byte. Two fingerprints are compared part by part, so that
a refusal can say what has changed. Functions are known by name only, since their code is not data: that a penalty gives
other values is seen from its values at a few points. Quantities that are computed on demand (`cached_property`) do not
count; an object may describe itself by a method `fingerprint()` that returns a dictionary of plain values.
"""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Iterator, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy

from suffice.lazy import cached_property
from suffice.rows.given import here
from suffice.rows.gram import arrays_of

ON_DEMAND = (cached_property, functools.cached_property)
DEPTH = 12
BLOCK = 1 << 24  # bytes of a memory-mapped array that are looked at in one go


class Fingerprint:
    """Collects parts; arrays that several objects share are read once."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self._known: dict[int, tuple[Any, str]] = {}  # the object is held, so that its id stays its own

    def add(self, name: str, value: Any, depth: int = 0) -> None:
        """Describe `value` under `name`, part by part."""
        if depth > DEPTH:
            raise ValueError(f"{name} is nested too deeply for a fingerprint; give the object a method fingerprint()")
        simple = _simple(value)
        if simple is not None:
            self.parts[name] = simple
        elif id(value) in self._known:
            self.parts[name] = self._known[id(value)][1]
        elif isinstance(value, np.ndarray):
            self._remember(name, value, _digest(value))
        elif sparse := arrays_of(value):
            digests = "-".join(_digest(part).rpartition(" ")[2] for part in sparse)
            self._remember(name, value, f"{value.format} {value.dtype.str} {_shape(value)} {digests}")
        else:
            self._remember(name, value, f"as {name}")  # also ends the walk through an object that contains itself
            own = getattr(value, "fingerprint", None)
            children = own().items() if callable(own) and not isinstance(value, type) else _children(value)
            self.parts[name] = type(value).__qualname__
            for key, child in children:
                self.add(f"{name}{key}" if key.startswith("[") else f"{name}.{key}", child, depth + 1)

    def _remember(self, name: str, value: Any, description: str) -> None:
        self._known[id(value)] = (value, description)
        self.parts[name] = description


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, each as a phrase that names the part."""
    changed = []
    for name in sorted({*before, *now}):
        one, other = before.get(name), now.get(name)
        if one is None:
            changed.append(f"{name} is new")
        elif other is None:
            changed.append(f"{name} is missing")
        elif one != other:
            changed.append(f"{name} was {one}, now it is {other}")
    return changed


def versions() -> dict[str, str]:
    """What the last bits of a run depend on."""
    import suffice

    packages = {package.__name__: package.__version__ for package in (suffice, np, scipy)}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


def _simple(value: Any) -> str | None:
    if value is None or isinstance(value, bool | str | bytes | int | np.integer | np.bool_):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, float | np.floating):
        return "nan" if math.isnan(value) else float(value).hex()
    if isinstance(value, complex | np.complexfloating):
        return repr(complex(value))
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{getattr(value, '__qualname__', '?')}"
    return None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, tuple | list):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif (values := here(value)) is not value:
        yield "values", values
    elif hasattr(value, "__dict__"):
        for name, item in vars(value).items():
            if not isinstance(getattr(type(value), name, None), ON_DEMAND):
                yield name, item


def _digest(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.hasobject:
        text = repr(array.tolist()).encode()
        return f"objects {_shape(array)} {blake2b(text, digest_size=16).hexdigest()}"
    content, rows = blake2b(digest_size=16), np.atleast_1d(array).view(np.ndarray)
    step = max(BLOCK // max(rows[:1].nbytes, 1), 1)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        content.update(np.ascontiguousarray(block).data if block.size else b"")
    return f"{array.dtype.str} {_shape(array)} {content.hexdigest()}"


def _shape(array: Any) -> str:
    return "x".join(map(str, array.shape))
