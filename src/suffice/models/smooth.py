r"""Smooth convex terms f.

A user's own f needs `value(x)` and `gradient(x)`. A term that depends on x through a linear image of it, such as the
margins X w of a linear model (`suffice.models.linear`), says so by `image`, `value_at` and `gradient_at`: a solver that
moves along straight lines carries the image along and pays one product with X and one with X^T per iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from suffice.arrays import EPS, Array, host, norm
from suffice.protocols import conforms


@runtime_checkable
class Smooth(Protocol):
    """A convex function with a Lipschitz gradient."""

    def value(self, x: Array) -> float:
        """f(x)."""

    def gradient(self, x: Array) -> Array:
        """grad f(x)."""


@runtime_checkable
class ImagedSmooth(Smooth, Protocol):
    """A smooth term that depends on x through x itself and a linear image of it."""

    def image(self, x: Array) -> Array: ...

    def value_at(self, x: Array, image: Array) -> float: ...

    def gradient_at(self, x: Array, image: Array) -> Array: ...

    @property
    def rounding_is_known(self) -> bool:
        """Whether `gradient_rounding` is a bound for any data, or assumes that nothing large cancels in f."""

    def gradient_rounding(self, x: Array, image: Array) -> float:
        """A bound on the norm of the rounding error of `gradient_at`."""

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        """M with f(x) <= f(z) + <grad f(z), x - z> + M/2 ||x - z||^2 for these two points, or infinity."""


class Made:
    """A dataclass that is equal to what was made from the same, some of which may be arrays of any library. Of objects
    without an equality of their own, designs among them, each is equal to itself."""

    def __eq__(self, other: object) -> bool:
        names = [item.name for item in fields(self) if item.init]  # type: ignore[arg-type]
        return type(other) is type(self) and all(_same(getattr(self, one), getattr(other, one)) for one in names)

    __hash__ = None  # type: ignore[assignment]


def _same(one: Any, other: Any) -> bool:
    if one is other or type(one).__eq__ is vars(object)["__eq__"]:
        return one is other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    arrays = hasattr(one, "shape") or hasattr(other, "shape")
    return np.array_equal(host(one), host(other)) if arrays else bool(one == other)


class Imaged:
    """f and its gradient at x, from what they are at an image."""

    def value(self: ImagedSmooth, x: Array) -> float:
        return self.value_at(x, self.image(x))

    def gradient(self: ImagedSmooth, x: Array) -> Array:
        return self.gradient_at(x, self.image(x))


@dataclass(frozen=True)
class Plain(Imaged):
    """A user's `value` and `gradient` with the identity as its linear image."""

    term: Smooth
    L: float

    @property
    def rounding_is_known(self) -> bool:
        return False

    def image(self, x: Array) -> Array:
        return x

    def value_at(self, x: Array, image: Array) -> float:
        return float(self.term.value(x))

    def gradient_at(self, x: Array, image: Array) -> Array:
        return np.asarray(self.term.gradient(x), dtype=np.float64)

    def gradient_rounding(self, x: Array, image: Array) -> float:
        # The term is a black box: assume a backward stable gradient, exact for data perturbed in their last bits. The
        # part that does not vanish with x is told by the gradient's size, in `suffice.solvers.certificate`.
        return x.size * EPS * self.L * norm(x)

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        return math.inf


@dataclass(frozen=True, eq=False)
class Ridged(Made, Imaged):
    """term + (1/2) sum_i ridge_i x_i^2, one ridge for all i or one each."""

    term: ImagedSmooth
    ridge: float | Array

    @property
    def largest(self) -> float:
        return float(np.max(self.ridge))

    @property
    def rounding_is_known(self) -> bool:
        return self.term.rounding_is_known

    def image(self, x: Array) -> Array:
        return self.term.image(x)

    def value_at(self, x: Array, image: Array) -> float:
        return self.term.value_at(x, image) + 0.5 * float(x @ (self.ridge * x))

    def gradient_at(self, x: Array, image: Array) -> Array:
        return self.term.gradient_at(x, image) + self.ridge * x

    def gradient_rounding(self, x: Array, image: Array) -> float:
        return self.term.gradient_rounding(x, image) + 2.0 * EPS * self.largest * norm(x)

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        return self.term.majoriser(z, z_image, x, x_image) + self.largest


def imaged(term: Smooth, L: float) -> ImagedSmooth:
    """`term` itself if it has a linear image of its own, else with the identity."""
    return cast("ImagedSmooth", term) if conforms(term, ImagedSmooth) else Plain(term, L)
