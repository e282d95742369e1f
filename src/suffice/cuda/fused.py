r"""A FISTA iteration of many columns on a CUDA device in a few kernels, written in Triton:

    extrapolate   t' and beta of every column, Z = W + beta (W - W_before)
    residuals     R = a psi'(X Z, Y):  margins stay in registers, only R is written
    adjoint       X^T R, rows split over the multiprocessors
    descend       G = X^T R + l2 Z,  W' = prox(Z - tau G),  and t', beta and Z of the iteration that follows

Two of them read X, and little else is read or written: an iteration costs what its two products cost. A library's
products are made for widths of 64, 128, ...; here the columns are cut into pieces of P1 + P2, each a power of two, so
that 70 columns are padded to 72. X is read by rows and by columns (`Design.by_columns`), Z and R are stored by columns:
each product reads both of its factors along what it sums over. An X of which one copy fits into the device's cache,
and not two, is read by columns only, so that it stays there. Where float32 holds X exactly (`Design.compact`: data that
came in float32, pixels, counts) the copies are in float32, half the bytes, and numbers become float64 in registers:
products are those of float64 all the same.

With step lengths that are tried (`fista_adaptive`) margins M of W are known, and those of Z are M + beta (M -
M_before), made where they are needed:

    ahead         the length tau that is tried, t', beta and Z of every column
    slopes        R = a psi'(M_z, Y)
    adjoint, descend as above
    margins       M' = X W'
    compare       sum a c (m' - m_z)^2 over the rows of a tile, c the largest psi'' between both
    judge         of every column the majoriser, whether tau was short enough, and the next length to try
    settle        columns whose step was too long take their W and M back: nothing else is copied

Few rows make few tiles, which would leave most of the device idle: the columns of X are then cut as well, and margins
are summed from their parts (`gathered`, `compare`).

Kernels that follow each other are sent out before the one before has ended, where the device can (from Hopper on).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from suffice.arrays import EPS
from suffice.lazy import cached_property
from suffice.models.margin_losses import Huber, Logistic, MarginLoss, Squared
from suffice.rows.design import ALIGNED, Design
from suffice.rows.memory import device_blocks
from suffice.rows.rounding import gamma

WIDEST = 80  # columns in one piece
# Rows of a tile, depth of one read, warps, stages, registers: the fastest on an H200 (benchmarks/gpu_tiles.py).
Tile = tuple[int, int, int, int, int | None]
MARGINS: Tile = (32, 32, 2, 3, None)
ADJOINT: Tile = (64, 32, 4, 4, None)
ROWWISE = 16, 4  # rows of a tile, and warps, where there is no product,
GATHERED = 128, 4  # where there is one column,
DESCEND = 1, 2  # and where there is no row of X
BUSY, MOST_PARTS = 4, 8  # tiles of X Z on every multiprocessor, and parts of its columns to get there
SETTLED, TAKEN_BACK = 8, 1024  # rows of a tile of all columns, and of margins of one column
WAVES = 2  # tiles of the adjoint product at a time on every multiprocessor
CACHED = 1 << 25  # bytes of copies of X: so many stay in the device's cache
HOPPER = 9  # of compute capability: there programs may be sent out before the kernel before has ended


def available(X: Any, loss: MarginLoss) -> bool:
    """Whether X is a torch array on a CUDA device, Triton is installed, and psi' is one of those written down here."""
    return bool(getattr(X, "is_cuda", False)) and isinstance(loss, Squared | Logistic | Huber) and _triton() is not None


def one_copy(X: Any) -> bool:
    """Whether the device's cache has room for one copy of X, and not for two."""
    return CACHED < 2 * int(X.nbytes) <= 2 * CACHED


@cache
def _triton() -> Any:
    try:
        return importlib.import_module("suffice.cuda.fused_kernels")
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


@dataclass(frozen=True, eq=False)
class Kernels:
    """The products of an iteration with their memory, for a design and the targets of some columns."""

    design: Design
    loss: MarginLoss
    l1: Any
    l2: Any
    targets: Any  # padded and stored by columns, as Z and R are
    R: Any
    parts: Any  # of X^T R
    delta: Any
    shape: Shape
    chunk: int  # rows of a part of X^T R
    cut: int  # columns of a part of X Z

    @classmethod
    def of(cls, design: Design, loss: MarginLoss, Y: Any, l1: Any, l2: Any) -> Kernels:
        torch = importlib.import_module("torch")
        X, n = design.X, Y.shape[1]
        N, d = X.shape
        shape = Shape.of(n)
        high, deep = ADJOINT[:2]
        multiprocessors = torch.cuda.get_device_properties(X.device).multi_processor_count if X.is_cuda else 1
        # No sum is longer than those that the rounding of `Design.pull` allows for.
        splits = max(device_blocks(N)[0], WAVES * multiprocessors // (math.ceil(d / high) * shape.pieces))
        chunk = math.ceil(N / splits / deep) * deep
        parts = min(MOST_PARTS, max(1, round(BUSY * multiprocessors / (math.ceil(N / MARGINS[0]) * shape.pieces))))
        cut = math.ceil(d / parts / MARGINS[1]) * MARGINS[1]

        def zeros(*size: int) -> Any:
            return torch.zeros(size, dtype=X.dtype, device=X.device)

        targets = zeros(shape.stride, _up(N))
        targets[:n, :N] = Y.T
        delta = design.weights.new_tensor([getattr(loss, "delta", 0.0)])  # as a number it would be passed in float32
        memory = (targets, zeros(shape.stride, _up(N)), zeros(math.ceil(N / chunk), d, shape.stride))
        return cls(design, loss, l1, l2, *memory, delta, shape, chunk, cut)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """N, d and the number of columns."""
        return (*self.design.shape, len(self.l1))

    @property
    def columns(self) -> int:
        """Their number, padded to a power of two."""
        return 1 << (len(self.l1) - 1).bit_length()

    @property
    def name(self) -> str:
        """That of psi."""
        return type(self.loss).__name__.lower()

    @cached_property
    def early(self) -> bool:
        """Whether programs may be sent out before the kernel before has ended."""
        torch, X = importlib.import_module("torch"), self.design.X
        known = bool(X.is_cuda) and _triton().gdc_wait is not None
        return known and torch.cuda.get_device_capability(X.device)[0] >= HOPPER

    @cached_property
    def by_rows(self) -> tuple[Any, int]:
        """X for products along its rows, and how many rows may be read: products read fastest along what they sum over,
        where that is aligned, unless the device's cache has room for one copy of X only."""
        X, N = self.design.compact, self.design.shape[0]
        return self.by_columns if X.stride(1) != 1 or X.stride(0) % ALIGNED or one_copy(X) else (X, N)

    @cached_property
    def by_columns(self) -> tuple[Any, int]:
        """The same along columns."""
        return self.design.by_columns, self.long_rows

    @property
    def margin_parts(self) -> int:
        """How many parts X Z has."""
        return math.ceil(self.design.shape[1] / self.cut)

    @cached_property
    def in_parts(self) -> Any:
        """Memory for them."""
        return self.R.new_zeros((self.margin_parts, *self.R.shape))

    @property
    def long(self) -> int:
        """What Z's columns are padded to, and how far the next begins."""
        return _up(self.design.shape[1])

    @property
    def long_rows(self) -> int:
        """The same of R, Y and parts of X Z."""
        return int(self.R.shape[1])

    def empty(self) -> Any:
        """Memory for weights, stored by columns: what is in those that pad it meets no other."""
        return self.R.new_empty((self.shape.stride, self.long)).T

    def launch(self, kernel: Any, grid: tuple[int, ...], warps: int, *arguments: Any, **constants: Any) -> None:
        ahead = {"launch_pdl": True} if self.early else {}
        kernel[grid](*arguments, **constants, EARLY=self.early, num_warps=warps, **ahead)

    def multiply(self, kernel: Any, grid: tuple[int, ...], tile: Tile, *arguments: Any, **constants: Any) -> None:
        rows, depth, warps, stages, registers = tile
        shape = {"ROWS": rows, "DEPTH": depth, "P1": self.shape.P1, "P2": self.shape.P2}
        self.launch(kernel, grid, warps, *arguments, **constants, **shape, num_stages=stages, maxnreg=registers)

    def residuals(self, Z: Any) -> None:
        """R = a psi'(X Z, Y), for a Z that is padded."""
        (N, d, n), (X, rows), parts = self.sizes, self.by_rows, self.margin_parts
        given, ends = (self.targets, self.design.weights, self.R, N), (self.delta, self.name)
        if parts > 1:
            self.margins(Z, self.in_parts, (1, self.long_rows))
            self.launch(
                *(_triton().gathered, (math.ceil(N / GATHERED[0]), n), GATHERED[1], self.in_parts, *given, n),
                *(self.long_rows, self.in_parts.stride(0), *ends),
                SPLITS=parts,
                ROWS=GATHERED[0],
            )
            return
        grid, strides = (math.ceil(N / MARGINS[0]), self.shape.pieces), (X.stride(0), X.stride(1))
        lengths = (rows, d, n, *strides, self.long, self.long_rows)
        self.multiply(_triton().residuals, grid, MARGINS, X, Z, *given, *lengths, *ends)

    def margins(self, Z: Any, out: Any, strides: tuple[int, int]) -> None:
        """The parts of X Z, stored with these strides."""
        (N, d, n), (X, rows), parts = self.sizes, self.by_rows, self.margin_parts
        grid = (math.ceil(N / MARGINS[0]), self.shape.pieces, parts)
        lengths = (N, rows, d, n, self.cut, X.stride(0), X.stride(1), self.long)
        size = out.stride(0) if parts > 1 else 0
        self.multiply(_triton().margins, grid, MARGINS, X, Z, out, *lengths, *strides, size)

    def adjoint(self) -> None:
        """The parts of X^T R."""
        (X, rows), d = self.by_columns, self.design.shape[1]
        grid = (math.ceil(d / ADJOINT[0]), len(self.parts), self.shape.pieces)
        lengths = (rows, d, self.chunk, X.stride(0), X.stride(1), self.long_rows, self.shape.stride)
        self.multiply(_triton().adjoint, grid, ADJOINT, X, self.R, self.parts, *lengths)

    def descended(self, Z: Any, tau: Any, wide: Any, ahead: tuple[Any, ...] | None = None) -> tuple[Any, Any]:
        """The next W, and G at Z, from R. `wide` gets the next W or, where `ahead` holds W, t', mu, L, memory for the
        t after that, the count k of steps and memory for the next k, the next Z."""
        self.adjoint()
        (_, d, n), stride = self.sizes, self.shape.stride
        W, G = self.R.new_empty((d, n)), self.R.new_empty((d, n))
        *known, t_after, k, k_next = (tau,) * 7 if ahead is None else ahead
        self.launch(
            *(_triton().descend, (math.ceil(d / DESCEND[0]),), DESCEND[1]),
            *(self.parts, Z, self.l1, self.l2, tau, *known, G, W, wide, t_after, k, k_next, d, n, stride, self.long),
            AHEAD=ahead is not None,
            SPLITS=len(self.parts),
            ROWS=DESCEND[0],
            COLUMNS=self.columns,
        )
        return W, G


def iteration(
    design: Design, loss: MarginLoss, Y: Any, l1: Any, l2: Any, mu: Any, L: Any
) -> Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any, Any]]:
    """(W, W_before, t, k) -> (W', Z, G, t', k + 1): one iteration, for arrays with one column per problem, none of
    which is written to again.

    An iteration also makes the Z and t' of the next, which are taken if that one starts from the very arrays that this
    one has returned."""
    torch, made = importlib.import_module("torch"), Kernels.of(design, loss, Y, l1, l2)
    (_, d, n), tau = made.sizes, 1.0 / L
    prepared: list[tuple[Any, ...]] = []

    def step(W: Any, W_before: Any, t: Any, k: Any) -> tuple[Any, Any, Any, Any, Any]:
        known = prepared.pop() if prepared else (None,) * 5
        if all(one is other for one, other in zip(known, (W, W_before, t), strict=False)):
            Z, t_next = known[3:]
        else:
            Z, t_next = made.empty(), torch.empty_like(t)
            made.launch(
                *(_triton().extrapolate, (math.ceil(d / 8),), 4, W, W_before, t, mu, L, Z, t_next, d, n, made.long),
                ROWS=8,
                COLUMNS=made.columns,
            )
        made.residuals(Z)
        Z_ahead, t_ahead, k_next = made.empty(), torch.empty_like(t), torch.empty_like(k)
        W_next, G = made.descended(Z, tau, Z_ahead, (W, t_next, mu, L, t_ahead, k, k_next))
        prepared.append((W_next, W, t_next, Z_ahead, t_ahead))
        return W_next, Z[:d, :n], G, t_next, k_next

    return step


def adaptive_iteration(
    design: Design, loss: MarginLoss, Y: Any, l1: Any, l2: Any, mu: Any, L: Any, grow: float, shrink: float
) -> Callable[[Any], dict[str, Any]]:
    """One iteration with step lengths that are tried, of `suffice.cuda.batched_columns.FistaColumns`: what it changes.
    Columns whose step was too long stay where they are.

    Margins are stored by columns; M of a state that has it so becomes the next M_before, and is written to."""
    torch, made, kernels = importlib.import_module("torch"), Kernels.of(design, loss, Y, l1, l2), _triton()
    (N, d, n), stride, shape = made.sizes, made.shape.stride, made.shape
    spread = gamma(design.row_length + 8) * design.frobenius_norm * math.sqrt(loss.curvature)
    constants = l1.new_tensor([grow, shrink, 1.0 + gamma(N + 8), spread, 1e-150, 1.0 + 4.0 * EPS, 0.95])
    tiles, Z_trial, wide = math.ceil(N / ROWWISE[0]), made.empty(), made.empty()
    along = made.R.new_zeros((tiles, stride))
    flag = torch.zeros(n, dtype=torch.int8, device=made.R.device)

    def step(s: Any) -> dict[str, Any]:
        t, tau, beta, t_next, k, tau_next, taken = (torch.empty_like(s.t) for _ in range(7))
        M_now, M_before = _by_columns(s.M), _by_columns(s.M_before)
        made.launch(
            *(kernels.ahead, (math.ceil(d / 8),), 4),
            *(s.W, s.W_before, s.t, s.tau, s.taken, s.k, s.failed.view(torch.int8), mu, constants),
            *(Z_trial, t, tau, beta, d, n, made.long),
            ROWS=8,
            COLUMNS=made.columns,
        )
        made.launch(
            *(kernels.slopes, (tiles, shape.pieces), ROWWISE[1]),
            *(M_now, M_before, beta, made.targets, design.weights, made.R, N, n, N),
            *(made.long_rows, made.delta, made.name, ROWWISE[0], shape.P1, shape.P2),
        )
        W, G = made.descended(Z_trial, tau, wide)
        M = made.R.new_empty((n, N)).T
        parts, high, size = (M, N, 0) if made.margin_parts == 1 else (made.in_parts, made.long_rows, made.R.numel())
        made.margins(wide, parts, (1, high))
        made.launch(
            *(kernels.compare, (tiles, shape.pieces), ROWWISE[1]),
            *(parts, M_now, M_before, M, beta, made.targets, design.weights, along, N, n),
            *(high, size, N, stride, made.long_rows),
            *(made.delta, made.name, made.margin_parts, ROWWISE[0], shape.P1, shape.P2),
        )
        failed = torch.empty_like(flag)
        made.launch(
            *(kernels.judge, (n,), 4),
            *(along, W, s.W, Z_trial, l2, L, constants, t, tau, s.t, s.k, s.taken, flag, failed, t_next, k, tau_next),
            *(taken, d, n, stride, made.long, tiles),
            BLOCK=1024,
        )
        W_next, W_before, Z, G_next = (torch.empty_like(W) for _ in range(4))
        made.launch(
            *(kernels.settle, (math.ceil(d / SETTLED) + n * math.ceil(N / TAKEN_BACK),), 4),
            *(flag, W, s.W, s.W_before, Z_trial, s.Z, G, s.G, W_next, W_before, Z, G_next, M, M_now, M_before),
            *(N, d, n, made.long, N),
            ROWS=SETTLED,
            COLUMNS=made.columns,
            BLOCK=TAKEN_BACK,
        )
        moved = {"W": W_next, "W_before": W_before, "M": M, "M_before": M_now, "Z": Z, "G": G_next}
        return moved | {"t": t_next, "k": k, "tau": tau_next, "taken": taken, "failed": failed.view(torch.bool)}

    return step


def _by_columns(M: Any) -> Any:
    """M stored by columns, without anything between them."""
    return M if M.stride(0) == 1 and M.stride(1) == M.shape[0] else M.T.contiguous().T


def _up(number: int) -> int:
    return math.ceil(number / ALIGNED) * ALIGNED
