"""The one array type of the package, arrays that live elsewhere, and the checks every public entrance shares.

Weights, gradients and certificates are NumPy arrays in float64. A design matrix, and with it the margins of all its
rows, may also be an array of torch, CuPy or JAX on any device: `namespace` finds its functions (through
array-api-compat, the extra `gpu`), `host` brings a result back.
"""

from __future__ import annotations

import math
import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
TINY = 5e-324  # what a product that underflows loses at most


def namespace(x: Any) -> Any:
    """The functions of the array API standard for arrays of this kind."""
    if isinstance(x, np.ndarray):
        return np
    return _compat().array_namespace(x)


def lives_elsewhere(x: Any) -> bool:
    """Whether x is an array of torch, CuPy, JAX or any other library of the standard: not NumPy's, not scipy.sparse."""
    if isinstance(x, np.ndarray | np.generic):
        return False
    # Arrays of torch, and of CuPy before version 14, do not say so themselves.
    return hasattr(x, "__array_namespace__") or type(x).__module__.partition(".")[0] in ("torch", "cupy")


def host(x: Any) -> Array:
    """x as a NumPy array."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "detach"):  # torch
        x = x.detach().cpu()
    elif hasattr(x, "get"):  # CuPy
        x = x.get()
    return np.asarray(x)


def like(x: Any, model: Any) -> Any:
    """The NumPy array x as an array of `model`'s kind, on its device; one that lives elsewhere stays."""
    if isinstance(model, np.ndarray) or not isinstance(x, np.ndarray) or not lives_elsewhere(model):
        return x
    # A copy: torch complains about memory that it may not write to, and ours is frozen.
    return namespace(model).asarray(np.array(x), device=_compat().device(model))


def _compat() -> Any:
    try:
        import array_api_compat
    except ImportError as error:
        raise ImportError("arrays of torch, CuPy or JAX need array-api-compat: pip install 'suffice[gpu]'") from error
    return array_api_compat


def norm(x: Array) -> float:
    """Euclidean norm of a vector, scaled only where squaring would overflow or underflow."""
    squared = float(np.vdot(x, x))  # the one product of vectors that does not warn when it overflows
    if 1e-280 < squared < 1e280:
        return math.sqrt(squared)
    largest = float(np.max(np.abs(x), initial=0.0))
    return largest * float(np.linalg.norm(x / largest)) if 0.0 < largest < math.inf else largest


def length(x: Any) -> float:
    """No less than the Euclidean norm of a vector, wherever it lives, but for the rounding of one on a host."""
    if isinstance(x, np.ndarray):
        return norm(x)
    n = int(x.shape[0])
    found = float(namespace(x).sqrt(namespace(x).sum(x * x))) + math.sqrt(n) * 1e-150  # what underflows in squares
    found *= 1.0 + (n + 8) * EPS
    return found if math.isfinite(found) else math.inf


def vector(value: Any, name: str) -> Array:
    """`value` as a fresh one-dimensional float64 array of finite numbers, or an error that names it."""
    try:
        x = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a vector of real numbers, got {value!r}") from error
    if x.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite, got {value!r}")
    return x


def outside_stacklevel() -> int:
    """The `stacklevel` at which a warning points at the first caller outside this package."""
    frame, level = sys._getframe(1), 1
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


def positive(value: float, name: str, *, zero: bool = False, infinite: bool = False) -> float:
    """`value` as a float > 0 (>= 0 with `zero`), finite unless `infinite`, or an error that names it."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    number = float(value)
    if not (number > 0 or (zero and number == 0)) or (number == math.inf and not infinite):
        kind = "non-negative" if zero else "positive"
        raise ValueError(f"{name} must be {kind}{'' if infinite else ' and finite'}, got {value!r}")
    return number


def whole_number(value: Any, name: str, *, least: int) -> int:
    """`value` as an int >= `least` (0 or 1), or an error that names it."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a {'positive' if least else 'non-negative'} integer, got {value!r}")
    return int(value)


def frozen(x: Array) -> Array:
    """The same array, from now on read-only: what a result holds cannot be changed behind its back."""
    x.setflags(write=False)
    return x
