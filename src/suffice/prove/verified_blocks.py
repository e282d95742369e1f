r"""What a verification asks of rows (`suffice.prove.verified_rows`), for blocks of rows, wherever these are.

Every question is a pass over the blocks, whose answers are summed in the tree of `suffice.rows.blocks`: the same bits
for any chunks and workers. What has one number for every row stays with the rows; w, H on S, its inverse factor Z and
a few columns' sums travel. A verification of a smooth psi takes a pass over X for slopes, margins' errors and H at
once, another one where rows have to be solved for, and one more or two where zeros are in doubt.

A term of H passes the roundings of a sum within its block (`suffice.rows.gram.rows_at_once`) and those of the
tree, ceil(log2 of the number of blocks). All other sums are of numbers that are not negative, or of terms whose sizes
are summed beside them: N roundings at most, whatever the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm
from suffice.lazy import cached_property
from suffice.models.jobs import Gram
from suffice.models.linear import LossModel
from suffice.models.margin_losses import LARGEST, Bending, slope_size
from suffice.protocols import conforms
from suffice.prove.signed_factor import Indices, SignedFactor
from suffice.prove.verified_rows import Change, Slopes
from suffice.rows.blocks import Block, Length, Margins, Most
from suffice.rows.gram import chosen_columns, gram, rows_at_once
from suffice.rows.rounding import TINY, gamma


class Weights(Protocol):
    """C of the rows of a block that count."""

    def __call__(self, block: Block, counts: npt.NDArray[np.bool_]) -> Array: ...


@dataclass(frozen=True)
class Bent:
    """a psi''. a, y are given."""

    loss: Any
    b: float

    def __call__(self, block: Block, counts: npt.NDArray[np.bool_]) -> Array:
        m, y = block.margins[0][counts] + self.b, block["y"][counts]
        C: Array = block["a"][counts] * self.loss.second(m, y)
        return C


@dataclass(frozen=True)
class Piecewise:
    """c a of rows that do not reach a kink, or, if they are to count, of these as well. a, kinks, doubtful are
    given."""

    c: float
    heavy: bool = False

    def __call__(self, block: Block, counts: npt.NDArray[np.bool_]) -> Array:
        doubtful, curved = block["doubtful"][counts], block["kinks"][counts, 2] > 0.0
        counting = curved | doubtful if self.heavy else curved & ~doubtful
        return np.where(counting, self.c * block["a"][counts], 0.0)

    def rows(self, block: Block) -> Array:
        return self(block, block["a"] >= 0.0)


@dataclass(frozen=True)
class Margin:
    """Margins x_i . w + b of a block, and how far each may be off: `slack` |x_i| . |w|, and what sums round to."""

    w: Array
    b: float
    slack: float

    def at(self, block: Block, X: Array, counts: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
        image = block.margins[0][counts]
        S = np.flatnonzero(self.w)
        sizes = np.abs(chosen_columns(X, S)) @ np.abs(self.w[S])
        off = self.slack * sizes + TINY * len(self.w) + 4.0 * EPS * (np.abs(image) + abs(self.b))
        return image + self.b, off


@dataclass(frozen=True)
class Facts:
    """Sums at a point: those of `Slopes`, of margins' errors and, for a psi that bends, X_S^T C X_S. Distances to
    kinks, margins' errors and whether psi'' > 0 stay with the rows of a psi that has kinks. a, y are given."""

    loss: Any
    margin: Margin
    S: Indices
    intercept: bool
    bends: bool
    reads: bool = True

    @property
    def keeps(self) -> bool:
        return not self.bends

    @property
    def size(self) -> int:
        return len(self.S) ** 2

    def __call__(self, block: Block) -> Any:
        counts, X, loss = block["a"] > 0.0, block.X, self.loss
        X = X if counts.all() else X[counts]
        with np.errstate(over="ignore", invalid="ignore"):
            m, off = self.margin.at(block, X, counts)
            a, y = block["a"][counts], block["y"][counts]
            slopes, bends = loss.derivative(m, y), loss.curvature_between(m, m, y)
            sizes = slope_size(loss, slopes, bends, m, y)
            cut = math.isinf(loss.curvature) and not np.all(loss.curvature_between(m - off, m + off, y) < LARGEST)
            finite = bool(np.isfinite(m).all())
            found = (Most(not finite), Length(norm(np.sqrt(a) * sizes)), float((a * slopes).sum()), float(a @ sizes))
            if not self.bends:
                distance = loss.kink_distance(m, y) - off - 4.0 * EPS * (np.abs(m) + np.abs(y) + 1.0)
                kept = np.tile([math.inf, 0.0, 0.0], (len(counts), 1))
                kept[counts] = np.column_stack([distance, off, bends > 0.0])
                return kept, found
            second = loss.second(m, y)
            C = a * second
            H = gram(X, self.S, np.sqrt(C), intercept=self.intercept)[0] if finite else self._nothing
            largest = (Most(off.max(initial=0.0)), Most(cut), Most(second.max(initial=0.0)))
            return (*found, *largest, Length(norm(np.sqrt(C) * off)), H)

    @property
    def _nothing(self) -> Array:
        s = len(self.S) + self.intercept
        return np.zeros((s, s))


@dataclass(frozen=True)
class Reach:
    """The largest ||x_i||_{(R^T R)^-1}, no sharper than useful; with `rough` by lengths and C alone. a, norms and what
    C needs are given."""

    C: Weights
    factor: SignedFactor
    useful: float
    columns: int
    rough: bool = False
    keeps: bool = False

    @property
    def reads(self) -> bool:
        return not self.rough

    def __call__(self, block: Block) -> Most:
        return Most(self.norms(block, block["a"] > 0.0).max(initial=0.0))

    def norms(self, block: Block, counts: npt.NDArray[np.bool_]) -> Array:
        C, lengths = self.C(block, counts), block["norms"][counts]
        if self.rough:
            return self.factor.rough_norms(lengths, C, (len(C), self.columns))
        X = block.X[counts]
        return self.factor.norms_of_rows(X, lengths, C, np.ones(len(C), dtype=np.bool_), self.useful)


@dataclass(frozen=True)
class Squares:
    """sum_i C_i x_ij^2 of some columns, C_i being `grow` times what is said, and what has underflowed in it."""

    C: Weights
    grow: float
    columns: Indices
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        counts = block["a"] > 0.0
        C, X = self.C(block, counts) * self.grow + TINY, chosen_columns(block.X, self.columns)[counts]
        squares: Array = C @ X**2
        return squares


@dataclass(frozen=True)
class Changed:
    """`Change` of some columns, for a scaled n."""

    C: Weights
    factor: SignedFactor
    n: Array
    columns: Indices
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        counts = block["a"] > 0.0
        C, X = self.C(block, counts), block.X[counts]
        along, blur, _ = self.factor.over_rows(X, self.n)
        B, root = chosen_columns(X, self.columns), np.sqrt(C)
        change, sizes = B.T @ (C * along), np.abs(B).T @ (C * np.abs(along))
        return change, sizes, Length(norm(root * along)), Length(norm(root * blur))


@dataclass(frozen=True)
class Pulls:
    """||x_i|| of every row, `up` times the factor's, which stay; ||C^(1/2) delta||, and of rows that may reach a kink
    sum c a ||x_i|| delta_i and sum c a ||x_i||^2. a, norms, kinks, doubtful are given."""

    C: Piecewise
    factor: SignedFactor
    up: float
    columns: int
    reads: bool = True
    keeps: bool = True

    def __call__(self, block: Block) -> Any:
        counts = block["a"] > 0.0
        norms = np.zeros(len(counts))
        norms[counts] = self.up * Reach(self.C, self.factor, 0.0, self.columns).norms(block, counts)
        off, length = block["kinks"][counts, 1], norms[counts]
        heavy = self.C.c * block["a"][counts] * block["doubtful"][counts]
        rest = Length(norm(np.sqrt(self.C(block, counts)) * off))
        return norms, (rest, float(heavy @ (length * off)), float(heavy @ (length * length)))


@dataclass(frozen=True)
class Wider:
    """Which rows may reach a kink within rho, with those that may anyway; and whether there are others than these. a,
    kinks and, but for the first time, doubtful and lengths are given."""

    rho: float
    reads: bool = False
    keeps: bool = True

    def __call__(self, block: Block) -> Any:
        distance, lengths, before = block["kinks"][:, 0], block.given.get("lengths"), block.given.get("doubtful")
        reached = (distance <= (0.0 if lengths is None else self.rho * lengths)) & (block["a"] > 0.0)
        if before is None:
            return reached, Most(0.0)
        return reached | before, Most(bool((reached & ~before).any()))


@dataclass(frozen=True)
class Blurred:
    """||C^(1/2) delta||. a, kinks, doubtful are given."""

    C: Weights
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Length:
        counts = block["a"] > 0.0
        return Length(norm(np.sqrt(self.C(block, counts)) * block["kinks"][counts, 1]))


@dataclass(frozen=True, eq=False)
class Curved:
    """C, which stays with the rows: `grow` times what is said of them, and what has underflowed."""

    weights: Weights
    steepest: float  # max C_i / a_i, without `grow`
    kept: dict[str, Any] = field(default_factory=dict)
    grow: float = 1.0

    def __mul__(self, factor: float) -> Curved:
        return replace(self, grow=self.grow * factor * (1.0 + EPS))

    def __add__(self, least: float) -> Curved:
        """As it is: `Squares` counts what has underflowed."""
        return self


@dataclass(frozen=True, eq=False)
class InBlocks:
    """Rows of blocks. `image` is a promise of margins, a product, an offset among them."""

    model: LossModel
    w: Array
    image: Margins
    b: float
    S: Indices
    intercept: bool

    def ask(self, job: Any, **kept: Any) -> Any:
        """The sum over all blocks."""
        design = self.model.design
        given = {"a": design.weights, "y": self.model.y, "norms": design.row_norms}
        return design.X.run(job, [self.image], **given, **kept)

    @property
    def more(self) -> float:
        """What a sum of numbers that are not negative is multiplied by."""
        return 1.0 + gamma(sum(self.model.design.shape) + 16)

    @property
    def bends(self) -> bool:
        return conforms(self.model.loss, Bending)

    @cached_property
    def facts(self) -> Any:
        w = self.w
        slack = self.model.design.margin_rounding(w) * (1.0 + gamma(len(w) + 8))
        return self.ask(Facts(self.model.loss, Margin(w, self.b, slack), self.S, self.intercept, self.bends))

    def slopes(self) -> Slopes | None:
        broken, rough, total, size = (self.facts if self.bends else self.facts[1])[:4]
        return None if broken else Slopes(float(rough) * self.more, total, size * self.more)

    def off(self, sharp: bool) -> tuple[float, float] | None:
        off, cut, _, shaken = self.facts[4:8]
        return (float(off), float(shaken) * self.more) if sharp and not cut else None

    @property
    def C(self) -> Curved:  # noqa: N802 (the symbol)
        return Curved(Bent(self.model.loss, self.b), float(self.facts[6]))

    def factor(self, l2: Array) -> SignedFactor | None:
        return self.factored(self.facts[8], l2, self.C)

    def factored(self, H: Array, l2: Array, C: Curved) -> SignedFactor | None:
        N, block = self.model.design.shape[0], self.model.design.X.block
        terms = rows_at_once(min(N, block))[1] + math.ceil(math.log2(math.ceil(N / block))) + 1
        return SignedFactor.of_gram(np.array(H, order="F"), terms, N, self.S, C, l2, self.intercept)

    def reach(self, factor: SignedFactor, useful: float) -> float:
        C: Curved = factor.curvature
        job = Reach(C.weights, travelling(factor), useful, self.model.design.shape[1], rough=True)
        rough = float(self.ask(job, **C.kept))
        return rough if rough <= useful else float(self.ask(replace(job, rough=False), **C.kept))

    def kinks(self) -> KinksInBlocks:
        kinks = self.facts[0]
        return KinksInBlocks(self, {"kinks": kinks, "doubtful": self.ask(Wider(0.0), kinks=kinks)[0]})

    def steepest(self, C: Curved) -> float:
        return C.grow * C.steepest

    def squares(self, columns: Indices, C: Curved) -> Array:
        squares: Array = self.ask(Squares(C.weights, C.grow, columns), **C.kept)
        return squares

    def change(self, columns: Indices, factor: SignedFactor, n: Array) -> Change:
        C: Curved = factor.curvature
        job = Changed(C.weights, travelling(factor), n, columns)
        change, sizes, along, blur = self.ask(job, **C.kept)
        return Change(change, sizes * self.more, float(along) * self.more, float(blur) * self.more)


@dataclass(frozen=True, eq=False)
class KinksInBlocks:
    """`kept` are numbers that stay with the rows: distances to kinks and so on, which rows may reach one, and norms."""

    rows: InBlocks
    kept: dict[str, Any]

    @property
    def c(self) -> float:
        return float(self.rows.model.loss.curvature)

    def factor(self, l2: Array) -> SignedFactor | None:
        C = Curved(Piecewise(self.c), self.c, self.kept)
        H = self.rows.ask(Gram(self.rows.S, curvature=Piecewise(self.c), intercept=self.rows.intercept), **self.kept)
        return self.rows.factored(H, l2, C)

    def pulls(self, factor: SignedFactor, up: float) -> tuple[KinksInBlocks, float, float, float]:
        job = Pulls(Piecewise(self.c), travelling(factor), up, self.rows.model.design.shape[1])
        lengths, (rest, of_heavy, squares) = self.rows.ask(job, **self.kept)
        return replace(self, kept={**self.kept, "lengths": lengths}), float(rest), of_heavy, squares

    def reached(self, rho: float) -> bool:
        return bool(self.rows.ask(Wider(rho), **self.kept)[1])

    def wider(self, rho: float) -> KinksInBlocks:
        return replace(self, kept={**self.kept, "doubtful": self.rows.ask(Wider(rho), **self.kept)[0]})

    def largest(self) -> tuple[Curved, float]:
        C = Curved(Piecewise(self.c, heavy=True), self.c, self.kept, 1.0 + 32.0 * EPS)
        return C, float(self.rows.ask(Blurred(C.weights), **self.kept)) * (1.0 + 32.0 * EPS)


def travelling(factor: SignedFactor) -> SignedFactor:
    """Without what rows do not ask for."""
    return replace(factor, R=np.zeros((0, 0)), curvature=None)
