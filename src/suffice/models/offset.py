r"""Linear models with an offset o_i for every row, a known part of its margin:

    f(w) = sum_i a_i psi(x_i . w + o_i, y_i) + (l2/2) ||w||^2,

such as the logarithm of an exposure for counts, or what an older model says. The image of w is X w + o. It is affine;
solvers carry images along straight lines, by combinations whose coefficients sum to 1, which keep the offset as it is,
and differences of images are without it. What adding o to X w rounds is small against |X w + o| and |o|.

With an intercept, b(w) is the one that belongs to the margins X w + o: all that `suffice.models.intercept` proves is
about margins, whatever they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, frozen, host, norm
from suffice.models.intercept import Intercepted
from suffice.models.linear import LossModel, rounding_through


def offsets(offset: Any, rows: int, name: str = "offset") -> Array:
    """As an array of one finite number per row; raises ValueError if it is not."""
    try:
        given = np.array(offset, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numeric, got {type(offset).__name__}") from error
    if given.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},) to match X, got {given.shape}")
    if not np.isfinite(given).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    return frozen(given)


def exposures(exposure: Any, rows: int) -> Array:
    """The offset that an exposure stands for, its logarithm."""
    given = np.asarray(exposure, dtype=np.float64)
    if not (given > 0.0).all():
        raise ValueError("exposure must be positive")
    return offsets(np.log(given), rows, "exposure")


@dataclass(frozen=True, eq=False)
class OffsetModel(LossModel):
    """sum_i a_i psi(x_i . w + o_i, y_i) + (l2/2) ||w||^2, for an X in main memory."""

    offset: Array = field(default_factory=lambda: np.zeros(0))

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x) + self.offset
        return image

    def shifted(self, image: Array, by: Array) -> Array:
        return image

    def _rounding(self, x: Array, image: Array, products: float) -> float:
        design = self.design
        error = design.margin_errors(x, products) + products * EPS * (np.abs(image) + np.abs(self.offset))
        counts = host(design.weights) > 0.0
        return rounding_through(design, self.loss, image, self.y, error, counts) + 2.0 * EPS * self.l2 * norm(x)


@dataclass(frozen=True, eq=False)
class OffsetIntercepted(Intercepted):
    """min over b of sum_i a_i psi(x_i . w + o_i + b, y_i) + (l2/2) ||w||^2."""

    offset: Array = field(default_factory=lambda: np.zeros(0))

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x) + self.offset
        return image

    def _rounding(self, x: Array, image: Array, products: float) -> float:
        design, counts = self.design, self.design.weights > 0.0
        b, error_of_b = self.intercept(image)
        error = design.margin_errors(x, products) + products * EPS * (
            np.abs(image) + np.abs(self.offset)
        )  # an image may have been carried along
        error = error + float(error[counts].max()) + error_of_b + 2.0 * EPS * (np.abs(image) + abs(b))
        through = rounding_through(design, self.loss, image + b, self.y, error, counts)
        return through + 2.0 * EPS * self.l2 * norm(x)
