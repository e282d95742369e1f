r"""What a verification (`suffice.prove.verified`) asks of the rows of X: sums over them, and largest values.

    slopes      ||a^(1/2) size||, sum a psi', sum a size          size: what psi' is rounded relative to
    off         delta_i, how far margins may be off: max delta_i, ||C^(1/2) delta||
    factor      of H = X_S^T C X_S + l2                           C = diag(a psi''), or what kinks leave of it
    reach       max ||x_i||_{H^-1}
    outside     sum_i C_i x_ij^2, and (X^T C X n)_j with its rounding, of columns that are not in S

`Rows` is that for any X; this module has it for an X in main memory, or on a device: whatever has one number for every
row is then an array of the host, and what takes X itself is made where X lives. `suffice.prove.verified_blocks` has it
for blocks of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, host, like, norm
from suffice.lazy import cached_property
from suffice.models.margin_losses import LARGEST, Squared, slope_size
from suffice.prove.signed_factor import Indices, SignedFactor
from suffice.rows.design import Design
from suffice.rows.gram import dense_rows
from suffice.rows.rounding import TINY, gamma

COLUMN_BYTES = 1 << 22  # of columns outside the support that are copied at a time


@dataclass(frozen=True)
class Slopes:
    """psi' of all rows at w."""

    rough: float  # ||a^(1/2) size||
    total: float  # sum a psi'
    size: float  # sum a size


@dataclass(frozen=True, eq=False)
class Change:
    """X^T C X n on some columns, and what bounds its rounding; C as in H."""

    change: Array
    sizes: Array  # sum_i |x_ij| C_i |x_i . n|
    along: float  # ||C^(1/2) X n||
    blur: float  # ||C^(1/2) e||, e_i a bound on the rounding of x_i . n


class Kinks(Protocol):
    """Rows of a piecewise quadratic psi, of which some, `heavy`, may reach a kink and do not count in H."""

    def factor(self, l2: Array) -> SignedFactor | None:
        """Of rows that are not heavy."""
        ...

    def pulls(self, factor: SignedFactor, up: float) -> tuple[Kinks, float, float, float]:
        """The same, with norms ||x_i|| that are `up` times the factor's; ||C^(1/2) delta||; and of rows that are heavy
        the sums of c a ||x_i|| delta_i and of c a ||x_i||^2."""
        ...

    def reached(self, rho: float) -> bool:
        """Whether other rows may reach a kink within rho."""
        ...

    def wider(self, rho: float) -> Kinks:
        """With all rows heavy that may reach a kink within rho."""
        ...

    def largest(self) -> tuple[Any, float]:
        """C of all rows, heavy or not, for `outside`, and ||C^(1/2) delta||."""
        ...


class Rows(Protocol):
    """Rows of X at w, with margins that are a product, and the columns S of H."""

    @property
    def C(self) -> Any:  # noqa: N802 (the symbol)
        """a psi'' of every row, to be multiplied by numbers, and added to."""
        ...

    def slopes(self) -> Slopes | None:
        """None where margins are not finite."""
        ...

    def off(self, sharp: bool) -> tuple[float, float] | None:
        """max delta_i and ||C^(1/2) delta||, sharp at the price of a product with |X|; None where rates were cut off,
        or there is nothing but the sharp ones."""
        ...

    def factor(self, l2: Array) -> SignedFactor | None:
        """None where it cannot be proven that H is positive definite."""
        ...

    def reach(self, factor: SignedFactor, useful: float) -> float:
        """max ||x_i||_{(R^T R)^-1} over rows that count, no sharper than useful."""
        ...

    def kinks(self) -> Kinks: ...

    def steepest(self, C: Any) -> float:
        """max C_i / a_i."""
        ...

    def squares(self, columns: Indices, C: Any) -> Array:
        """sum_i C_i x_ij^2."""
        ...

    def change(self, columns: Indices, factor: SignedFactor, n: Array) -> Change:
        """For an n that is scaled."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """Rows of an X in main memory or on a device: image, b and y are the host's."""

    design: Design
    loss: Any
    y: Array
    w: Array
    image: Array
    b: float
    S: Indices
    intercept: bool

    @cached_property
    def a(self) -> Array:
        return host(self.design.weights)

    @cached_property
    def m(self) -> Array:
        return self.image + self.b

    @cached_property
    def C(self) -> Array:  # noqa: N802 (the symbol)
        C: Array = self.a * self.loss.second(self.m, self.y)
        return C

    def slopes(self) -> Slopes | None:
        if not np.isfinite(self.m).all():
            return None
        slopes = self.loss.derivative(self.m, self.y)
        sizes = slope_size(self.loss, slopes, self.loss.curvature_between(self.m, self.m, self.y), self.m, self.y)
        rough = norm(np.sqrt(self.a) * sizes) * (1.0 + gamma(sum(self.design.shape) + 8))
        size = float(self.a @ sizes) * (1.0 + gamma(len(self.m)))
        return Slopes(rough, float((self.a * slopes).sum()), size)

    def delta(self, sharp: bool) -> Array:
        """How far the margins may be off; sharper, and whatever the units of columns, at the price of a product."""
        w, design = self.w, self.design
        sizes = design.absolute_margins(w) if sharp else design.row_norms * norm(w)
        off: Array = design.margin_rounding(w) * sizes * (1.0 + gamma(len(w) + 8)) + TINY * len(w)
        return off + 4.0 * EPS * (np.abs(self.image) + abs(self.b))

    def off(self, sharp: bool) -> tuple[float, float] | None:
        off = self.delta(sharp)
        between = self.loss.curvature_between
        if math.isinf(self.loss.curvature) and not np.all(between(self.m - off, self.m + off, self.y) < LARGEST):
            return None
        shaken = math.sqrt(float(self.C @ (off * off))) * (1.0 + gamma(len(self.m) + 8))
        return float(off[self.a > 0.0].max()), shaken

    def factor(self, l2: Array) -> SignedFactor | None:
        gram = self.design.gram if isinstance(self.loss, Squared) and not self.intercept else None
        return SignedFactor.of(self.design, self.S, self.C, l2, self.intercept, gram)

    def reach(self, factor: SignedFactor, useful: float) -> float:
        return float(np.max(factor.norms(self.design, useful)[self.a > 0.0]))

    def kinks(self) -> KinksInMemory:
        blur = self.delta(True)
        distance = self.loss.kink_distance(self.m, self.y) - blur
        distance = distance - 4.0 * EPS * (np.abs(self.m) + np.abs(self.y) + 1.0)
        curved = self.loss.curvature_between(self.m, self.m, self.y) > 0.0
        return KinksInMemory(self, self.loss.curvature, distance, curved, blur, distance <= 0.0)

    def steepest(self, C: Array) -> float:
        return float(np.max(np.divide(C, self.a, out=np.zeros_like(C), where=self.a > 0.0)))

    def squares(self, columns: Indices, C: Array) -> Array:
        blocks = dense_rows(self.design.X, columns, _length(columns))
        parts = (host(like(C[place], block) @ block**2) for place, block in blocks)
        return sum(parts, np.zeros(len(columns)))

    def change(self, columns: Indices, factor: SignedFactor, n: Array) -> Change:
        X, own = self.design.X, factor.curvature  # r is what it leaves of the change
        along, blur, _ = factor.over_rows(X, n)
        change, sizes = np.zeros(len(columns)), np.zeros(len(columns))
        for place, block in dense_rows(X, columns, _length(columns)):
            change += host(block.T @ like((own * along)[place], block))
            sizes += host(abs(block).T @ like((own * np.abs(along))[place], block))
        return Change(change, sizes, math.sqrt(float(own @ along**2)), math.sqrt(float(own @ blur**2)))


@dataclass(frozen=True, eq=False)
class KinksInMemory:
    """One number for every row each."""

    rows: InMemory
    c: float
    distance: Array  # to a kink
    curved: npt.NDArray[np.bool_]
    blur: Array
    doubtful: npt.NDArray[np.bool_]
    norms: Array | None = None

    @property
    def C(self) -> Array:  # noqa: N802 (the symbol)
        return np.where(self.curved & ~self.doubtful, self.c * self.rows.a, 0.0)

    @property
    def heavy(self) -> Array:
        return self.c * self.rows.a * self.doubtful

    def factor(self, l2: Array) -> SignedFactor | None:
        return SignedFactor.of(self.rows.design, self.rows.S, self.C, l2, self.rows.intercept)

    def pulls(self, factor: SignedFactor, up: float) -> tuple[KinksInMemory, float, float, float]:
        norms, heavy = up * factor.norms(self.rows.design, 0.0), self.heavy
        rest = math.sqrt(float(self.C @ (self.blur * self.blur)))
        return replace(self, norms=norms), rest, float(heavy @ (norms * self.blur)), float(heavy @ (norms * norms))

    def _within(self, rho: float) -> npt.NDArray[np.bool_]:
        assert self.norms is not None
        within: npt.NDArray[np.bool_] = (self.distance <= rho * self.norms) & (self.rows.a > 0.0)
        return within

    def reached(self, rho: float) -> bool:
        return bool((self._within(rho) & ~self.doubtful).any())

    def wider(self, rho: float) -> KinksInMemory:
        return replace(self, doubtful=self.doubtful | self._within(rho))

    def largest(self) -> tuple[Array, float]:
        largest = (self.C + self.heavy) * (1.0 + 32.0 * EPS)
        return largest, math.sqrt(float(largest @ (self.blur * self.blur)))


def _length(columns: Indices) -> int:
    """How many rows of these columns are copied at a time."""
    return COLUMN_BYTES // (8 * max(len(columns), 1))
