r"""A FISTA iteration of many columns on a CUDA device in four kernels, written in Triton:

    extrapolate   t' and beta of every column, Z = W + beta (W - W_before)
    residuals     R = a psi'(X Z, Y):  margins stay in registers, only R is written
    adjoint       X^T R, rows split over the multiprocessors
    descend       G = X^T R + l2 Z,  W' = prox(Z - tau G)

Two of them read X, and little else is read or written: an iteration costs what its two products cost. A library's
products are made for widths of 64, 128, ...; here the columns are cut into pieces of P1 + P2, each a power of two, so
that 70 columns are padded to 72. X is read by columns (`Design.by_columns`); an X stored by rows is copied once.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from suffice.terms.design import ALIGNED, Design
from suffice.terms.margin_losses import Huber, Logistic, MarginLoss, Squared
from suffice.terms.products import device_blocks

WIDEST = 80  # columns in one piece
# Rows of a tile, depth of one read, warps, stages: the fastest of 36 on an H200, for the 60,000 x 784 of MNIST.
MARGINS, ADJOINT = (32, 32, 2, 3), (64, 32, 4, 4)
WAVES = 2  # tiles of the adjoint product at a time on every multiprocessor


def available(X: Any, loss: MarginLoss) -> bool:
    """Whether X is a torch array on a CUDA device, Triton is installed, and psi' is one of those written down here."""
    return bool(getattr(X, "is_cuda", False)) and isinstance(loss, Squared | Logistic | Huber) and _triton() is not None


@cache
def _triton() -> Any:
    try:
        return importlib.import_module("suffice.lower.fused_kernels")
    except ImportError:
        return None


@dataclass(frozen=True)
class Shape:
    """n columns in `pieces` of P1 + P2."""

    pieces: int
    P1: int
    P2: int

    @classmethod
    def of(cls, n: int) -> Shape:
        pieces = math.ceil(n / WIDEST)
        width = math.ceil(n / pieces)
        P1 = max(16, 1 << (width.bit_length() - 1))  # the largest power of two that fits, and another for the rest
        rest = width - P1
        if rest <= 0:
            return cls(pieces, P1, 0)
        P2 = max(8, 1 << (rest - 1).bit_length())
        return cls(pieces, 2 * P1, 0) if P2 >= P1 else cls(pieces, P1, P2)

    @property
    def width(self) -> int:
        return self.P1 + self.P2

    @property
    def stride(self) -> int:
        """The padded width of all pieces."""
        return _up(self.pieces * self.width)


def iteration(
    design: Design, loss: MarginLoss, Y: Any, l1: Any, l2: Any, mu: Any, L: Any
) -> Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]:
    """(W, W_before, t) -> (W', Z, G, t'): one iteration, for arrays with one column per problem.

    Z is a view of memory that the next iteration writes to."""
    torch, kernels = importlib.import_module("torch"), _triton()
    X, weights = design.by_columns, design.weights
    # Products read fastest along what they sum over: X Z along rows, where those are aligned, X^T R along columns.
    rows = design.X if design.X.stride(1) == 1 and design.X.stride(0) % ALIGNED == 0 else X
    (N, d), n = X.shape, Y.shape[1]
    shape = Shape.of(n)
    name = type(loss).__name__.lower()
    delta = weights.new_tensor([getattr(loss, "delta", 0.0)])  # as a number it would be passed in float32
    high, deep, warps, stages = ADJOINT
    multiprocessors = torch.cuda.get_device_properties(X.device).multi_processor_count if X.is_cuda else 1
    # No sum is longer than those that the rounding of `Design.pull` allows for.
    splits = max(device_blocks(N)[0], WAVES * multiprocessors // (math.ceil(d / high) * shape.pieces))
    chunk = math.ceil(N / splits / deep) * deep
    Z = torch.zeros((d, shape.stride), dtype=X.dtype, device=X.device)
    R = torch.zeros((N, shape.stride), dtype=X.dtype, device=X.device)
    targets = torch.zeros_like(R)
    targets[:, :n] = Y
    parts = torch.zeros((splits, d, shape.stride), dtype=X.dtype, device=X.device)
    small = 1 << (n - 1).bit_length()

    def step(W: Any, W_before: Any, t: Any) -> tuple[Any, Any, Any, Any]:
        W_next, G, t_next = torch.empty_like(W), torch.empty_like(W), torch.empty_like(t)
        kernels.extrapolate[(math.ceil(d / 8),)](
            *(W, W_before, t, mu, L, Z, t_next, d, n, shape.stride), ROWS=8, COLUMNS=small, num_warps=4
        )
        kernels.residuals[(math.ceil(N / MARGINS[0]), shape.pieces)](
            *(rows, Z, targets, weights, R, N, d, n, rows.stride(0), rows.stride(1), shape.stride, delta, name),
            *(*MARGINS[:2], shape.P1, shape.P2),
            num_warps=MARGINS[2],
            num_stages=MARGINS[3],
        )
        kernels.adjoint[(math.ceil(d / high), splits, shape.pieces)](
            *(X, R, parts, N, d, chunk, X.stride(1), shape.stride),
            *(high, deep, shape.P1, shape.P2),
            num_warps=warps,
            num_stages=stages,
        )
        kernels.descend[(d,)](*(parts, Z, l1, l2, L, G, W_next, d, n, shape.stride, splits), COLUMNS=small, num_warps=2)
        return W_next, Z[:, :n], G, t_next

    return step


def _up(number: int) -> int:
    return math.ceil(number / ALIGNED) * ALIGNED
