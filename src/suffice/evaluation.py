r"""What the upper level knows about a theta: residuals, and how wrong each of them can be.

F(theta) = sum_t r_t^2. An evaluation holds r~ and proven errors e with |r~_t - r_t| <= e_t, so that

    sum_t max(0, |r~_t| - e_t)^2  <=  F  <=  sum_t (|r~_t| + e_t)^2.

Residuals may come in blocks, such as all samples that judge one model. Errors then belong to blocks, and bound how
far the block's norm ||r~_j|| can be from ||r_j||: the interval of F reads the same with norms in place of residuals.
It is much tighter than one made from every sample's own error, since not all samples can be off in the worst way at
once.

An evaluation may also carry derivatives: the Jacobian J = d r / d theta of all residuals, or only the gradient of F,
which is 2 J^T r where there is a Jacobian. They err by an unknown amount, and nothing that is proven rests on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, TINY, Array, frozen, norm, positive
from suffice.lazy import cached_property


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Residuals at theta with proven errors: one error per residual, or per block if `blocks` gives the blocks' sizes.

    `work` is what this evaluation cost, in any unit. `solutions` is whatever the oracle wants back as `warm` later.
    `distance` is the proven distance of the weights, for `policy="weights"`. `jacobian` has one row per residual and
    one column per parameter; `gradient` is that of F, for those who have no Jacobian.
    """

    theta: npt.ArrayLike
    residuals: npt.ArrayLike
    errors: npt.ArrayLike
    work: float = 0
    solutions: Sequence[Any] = ()
    distance: float | None = None
    blocks: Sequence[int] | None = None
    jacobian: npt.ArrayLike | None = None
    gradient: npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        for name in ("theta", "residuals", "errors"):
            value = np.array(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, frozen(np.atleast_1d(value)))
        if self.r.ndim != 1:
            raise ValueError(f"residuals must be one-dimensional, got shape {self.r.shape}")
        if self.blocks is not None:
            blocks = tuple(int(size) for size in self.blocks)
            if sum(blocks) != len(self.r) or min(blocks, default=0) < 1:
                raise ValueError(f"blocks must be positive sizes that sum to {len(self.r)} residuals, got {blocks}")
            object.__setattr__(self, "blocks", blocks)
        count = len(self.r) if self.blocks is None else len(self.blocks)
        if self.e.shape != (count,):
            raise ValueError(f"errors must have shape ({count},), one per residual or block, got {self.e.shape}")
        object.__setattr__(self, "solutions", tuple(self.solutions))
        for name, shape in (("jacobian", (len(self.r), len(self.point))), ("gradient", (len(self.point),))):
            if getattr(self, name) is not None:
                value = np.array(getattr(self, name), dtype=np.float64)
                if value.shape != shape:
                    raise ValueError(f"{name} must have shape {shape}, got {value.shape}")
                object.__setattr__(self, name, frozen(value))

    @property
    def r(self) -> Array:
        """The residuals."""
        return self.residuals  # type: ignore[return-value]

    @property
    def e(self) -> Array:
        """The proven errors."""
        return self.errors  # type: ignore[return-value]

    @property
    def point(self) -> Array:
        """theta as an array."""
        return self.theta  # type: ignore[return-value]

    @property
    def J(self) -> Array | None:  # noqa: N802 (a symbol)
        """The Jacobian d r / d theta, if it is known."""
        return self.jacobian  # type: ignore[return-value]

    @cached_property
    def slope(self) -> Array | None:
        """The gradient of F, if it is known: 2 J^T r."""
        return self.gradient if self.J is None else 2.0 * (self.J.T @ self.r)  # type: ignore[return-value]

    @cached_property
    def coarse(self) -> Array:
        """One residual per block: its norm, or the residual itself where it is alone."""
        if self.blocks is None:
            return self.r
        starts = np.concatenate(([0], np.cumsum(self.blocks)[:-1]))
        with np.errstate(over="ignore"):
            squares = np.add.reduceat(self.r**2, starts)
        if squares.min() > 1e-280 and squares.max() < 1e280:
            sizes = np.sqrt(squares)
        else:
            sizes = np.array([norm(block) for block in np.split(self.r, starts[1:])])
        return np.where(np.array(self.blocks) == 1, self.r[starts], sizes)

    @cached_property
    def cost(self) -> float:
        """F~ = sum of squares of the residuals."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.r @ self.r)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Where F is proven to lie (a point if all errors are zero)."""
        if not self.e.any():
            return self.cost, self.cost
        slack, lost = (len(self.r) + 8) * EPS, len(self.e) * TINY  # `lost` by squares that underflow
        size = np.abs(self.coarse)
        with np.errstate(over="ignore"):
            low = max(float(np.sum(np.maximum(size - self.e, 0.0) ** 2)) * (1.0 - slack) - lost, 0.0)
            high = float(np.sum((size + self.e) ** 2)) * (1.0 + slack) + lost
        return min(low, self.cost), max(high, self.cost)

    @cached_property
    def error(self) -> float:
        """The proven bound on |F~ - F|."""
        low, high = self.interval
        return max(self.cost - low, high - self.cost)

    @cached_property
    def failure(self) -> str | None:
        """Why there is no F here, or None: a place where the residuals cannot be computed, not an oracle's fault."""
        if not np.isfinite(self.r).all():
            return "residuals are not all finite"
        return None if math.isfinite(self.cost) else "the sum of squared residuals overflows"

    def complaint(self) -> str | None:
        """What an oracle has done wrong, or None."""
        if self.failure is None and (np.isnan(self.e).any() or (self.e < 0).any()):
            return f"errors must be non-negative numbers, got {self.e.tolist()}"
        try:
            positive(self.work, "work", zero=True)
            if self.failure is None and self.distance is not None:
                positive(self.distance, "distance", zero=True, infinite=True)
        except (TypeError, ValueError) as error:
            return str(error)
        return None
