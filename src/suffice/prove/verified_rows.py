r"""What a verification (`suffice.prove.verified`) asks of the rows of X, wherever these are: sums, and largest values.

    facts       ||a^(1/2) size||, sum a psi', sum a size          size: what psi' is rounded relative to
                delta_i, how far margins may be off: max delta_i, (sum_i a_i delta_i . H_i delta_i)^(1/2)
                H = sum_i a_i B_i^T H_i B_i                       on the variables of S
    reach       max of what outputs of a row move apart, at most, for ||R h|| = 1
    outside     sum_i C_ik x_ij^2, C_ik = a_i (H_i)_kk, and sum_i a_i (H_i B_i n)_k x_ij with its rounding, of columns j

Every question is a pass over the blocks of `Design.rows`, whose answers are summed in the tree of
`suffice.rows.blocks`: the same bits for any chunks and workers; rows in memory or on a device are one block. What has
one number for every row stays with the rows; W, H on S, its inverse factor Z and a few columns' sums travel. A
verification of a smooth psi takes a pass over X for all facts, another one where rows have to be solved for, and one
more or two where zeros are in doubt.

A term of H passes the roundings of a sum within its block (`suffice.rows.gram.rows_at_once`) and those of the
tree, ceil(log2 of the number of blocks). All other sums are of numbers that are not negative, or of terms whose sizes
are summed beside them: N roundings at most, whatever the order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, like, norm
from suffice.lazy import cached_property
from suffice.models.margin_losses import Bending, Squared
from suffice.protocols import conforms
from suffice.prove.factor import Factor, Indices, Variables, apart
from suffice.prove.outputs import At, MarginRows, Piecewise, State, images, weighted_gram
from suffice.rows.blocks import Block, Length, Most
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.gram import dense_rows
from suffice.rows.products import absolute_product
from suffice.rows.rounding import TINY, gamma

COLUMN_BYTES = 1 << 22  # of columns outside the support that are copied at a time


def entry_gammas(design: Design, outputs: int) -> Array:
    """gamma of all roundings that a term of X^T (a psi') passes, for every column; a softmax's slopes add some."""
    if outputs == 1:
        return design.pull_gammas
    counts, place = np.unique(design.pull.roundings, return_inverse=True)
    gammas: Array = np.array([gamma(float(count) + OF_FACTORS + outputs + 16) for count in counts])[place]
    return gammas


@dataclass(frozen=True)
class Facts:
    """Whether something is broken, the sums of slopes, those of margins' errors, max (H_i)_kk, and H. a, y are given.

    Of a psi that has kinks there is no H: distances to these, margins' errors and whether psi'' > 0 stay with the
    rows."""

    at: At
    W: Array
    slack: Array  # of every output: margins err by so many times |x_i| . |w_k|, and what sums and the loss round to
    variables: Variables
    sharp: bool = True  # else by ||x_i|| ||w_k||, which is no product with X
    hessian: bool = True
    kinks: bool = False
    reads: bool = True

    @property
    def keeps(self) -> bool:
        return self.kinks

    @property
    def size(self) -> int:
        return len(self.variables) ** 2

    def __call__(self, block: Block) -> Any:
        a = host(block["a"])
        counts = a > 0.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            rows, image = self.at(block), images(block)
            if self.sharp:
                off = absolute_product(block.X, self.W.T) * self.slack + TINY * self.W.size
            else:
                sizes = self.slack * np.array([norm(one) for one in self.W])
                off = host(block["norms"])[:, None] * sizes + TINY * self.W.size
            off = off + 4.0 * EPS * (np.abs(image) + np.abs(self.at.b)) + rows.blur
            off = off if counts.all() else np.where(counts[:, None], off, 0.0)
            slopes, sizes, fine = rows.slopes, rows.sizes, rows.fine(a, off)
            rough = tuple(Length(norm(one)) for one in (np.sqrt(a)[:, None] * sizes).T)
            found = Most(not fine), rough, a @ slopes, a @ sizes
            if self.kinks:
                assert isinstance(rows, MarginRows)
                distance = rows.loss.kink_distance(rows.m, rows.y) - off
                distance = distance - 4.0 * EPS * (np.abs(rows.m) + np.abs(rows.y) + 1.0)
                kept = np.column_stack([np.where(counts[:, None], distance, math.inf), off, rows.bends > 0.0])
                return kept, found
            steepest = tuple(Most(one) for one in rows.second[counts].max(axis=0, initial=0.0))
            H, terms = rows.gram(block.X, self.variables, a) if fine and self.hessian else self._nothing
            shaken = Length(norm(np.sqrt(a * rows.shaken(off))))
            return *found, Most(rows.third * apart(off).max(initial=0.0)), shaken, steepest, Most(terms), H

    @property
    def _nothing(self) -> tuple[Array, float]:
        s = len(self.variables)
        return np.zeros((s, s)), 0.0


@dataclass(frozen=True)
class Reach:
    """The largest that outputs of a row move apart, no sharper than useful. a, norms and what H_i needs are given."""

    state: State
    factor: Factor
    useful: float
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        return Most(apart(self.norms(block)).max(initial=0.0))

    def norms(self, block: Block) -> Array:
        """Of all rows; 0 where they do not count. X is read only if lengths and H_i say too little."""
        a, lengths = host(block["a"]), host(block["norms"])
        known = self.factor.rough_norms(lengths, self.state(block).own_norms(a))
        known = np.where((a > 0.0)[:, None], known, 0.0)
        if not apart(known).max(initial=0.0) > self.useful:
            return known
        return self.factor.norms(block.X, known, self.useful)


@dataclass(frozen=True)
class Squares:
    """sum_i C_ik x_ij^2 of some columns, C being `grow` times a_i (H_i)_kk, and what has underflowed in it."""

    state: State
    grow: float
    columns: Indices
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        a = host(block["a"])[:, None]
        C = np.where(a > 0.0, a * self.state(block).second * self.grow + TINY, 0.0)
        parts = dense_rows(block.X, self.columns, _length(self.columns))
        return sum((host(like(C[here].T, part) @ part**2) for here, part in parts), np.zeros((1, 1)))


@dataclass(frozen=True)
class Changed:
    """sum_i a_i (H_i B_i n)_k x_ij of some columns j, for a scaled n, with its sizes, (sum_i a_i d_i . H_i d_i)^(1/2),
    d_i = B_i n, and the same of its rounding."""

    state: State
    factor: Factor
    n: Array
    columns: Indices
    reads: bool = True
    keeps: bool = False

    def __call__(self, block: Block) -> Any:
        a, X = host(block["a"]), block.X
        moved, rounding = (np.where((a > 0.0)[:, None], one, 0.0) for one in self.factor.moved(X, self.n)[:2])
        pulls, sizes, along, blur = self.state(block).product(moved, rounding)
        change, size = (np.zeros((pulls.shape[1], len(self.columns))) for _ in range(2))
        for here, part in dense_rows(X, self.columns, _length(self.columns)):
            change += host(like((a[here, None] * pulls[here]).T, part) @ part)
            size += host(like((a[here, None] * sizes[here]).T, part) @ abs(part))
        return change, size, Length(math.sqrt(float(a @ along))), Length(math.sqrt(float(a @ blur)))


def _length(columns: Indices) -> int:
    """How many rows of these columns are copied at a time."""
    return COLUMN_BYTES // (8 * max(len(columns), 1))


@dataclass(frozen=True)
class WeightedGram:
    """H of rows whose H_i are numbers, and how many roundings a term passes. a and what H_i needs are given."""

    state: Piecewise
    variables: Variables
    reads: bool = True
    keeps: bool = False

    @property
    def size(self) -> int:
        return len(self.variables) ** 2

    def __call__(self, block: Block) -> Any:
        H, terms = weighted_gram(block.X, self.variables, host(block["a"]) * self.state(block).second[:, 0])
        return H, Most(terms)


@dataclass(frozen=True)
class Pulls:
    """||x_i|| of every row, `up` times the factor's, which stay; ||C^(1/2) delta||, and of rows that may reach a kink
    sum c a ||x_i|| delta_i and sum c a ||x_i||^2. a, norms, kinks, doubtful are given."""

    state: Piecewise
    factor: Factor
    up: float
    reads: bool = True
    keeps: bool = True

    def __call__(self, block: Block) -> Any:
        a, off = host(block["a"]), block["kinks"][:, 1]
        lengths = self.up * Reach(self.state, self.factor, 0.0).norms(block)[:, 0]
        heavy = self.state.c * a * block["doubtful"]
        rest = Length(norm(np.sqrt(a * self.state(block).second[:, 0]) * off))
        return lengths, (rest, float(heavy @ (lengths * off)), float(heavy @ (lengths * lengths)))


@dataclass(frozen=True)
class Wider:
    """Which rows may reach a kink within rho, with those that may anyway; and whether there are others than these. a,
    kinks and, but for the first time, doubtful and lengths are given."""

    rho: float
    reads: bool = False
    keeps: bool = True

    def __call__(self, block: Block) -> Any:
        distance, lengths, before = block["kinks"][:, 0], block.given.get("lengths"), block.given.get("doubtful")
        reached = (distance <= (0.0 if lengths is None else self.rho * lengths)) & (host(block["a"]) > 0.0)
        if before is None:
            return reached, Most(0.0)
        return reached | before, Most(bool((reached & ~before).any()))


@dataclass(frozen=True)
class Blurred:
    """||C^(1/2) delta||. a, kinks, doubtful are given."""

    state: Piecewise
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Length:
        return Length(norm(np.sqrt(host(block["a"]) * self.state(block).second[:, 0]) * block["kinks"][:, 1]))


@dataclass(frozen=True, eq=False)
class Curvature:
    """`grow` times the H_i of rows, with what these need: numbers that stay with the rows."""

    state: State
    steepest: Array  # max_i (H_i)_kk, without `grow`
    kept: Mapping[str, Any] = field(default_factory=dict)
    grow: float = 1.0

    def grown(self, factor: float) -> Curvature:
        return replace(self, grow=self.grow * factor * (1.0 + EPS))


@dataclass(frozen=True, eq=False)
class Slopes:
    """psi' of all rows at w, output by output."""

    rough: Array  # ||a^(1/2) size||
    total: Array  # sum a psi'
    size: Array  # sum a size


@dataclass(frozen=True, eq=False)
class Questions:
    """Rows of X at W, with margins that are a product, an offset among them, plus b, and the variables of H. `loss` is
    None for a softmax; a, y, norms are given."""

    design: Design
    loss: Any
    given: Mapping[str, Any]
    W: Array
    image: Any
    b: Array
    variables: Variables

    def ask(self, job: Any, **kept: Any) -> Any:
        """The sum over all blocks."""
        return self.design.rows.run(job, [self.image], **self.given, **kept)

    @cached_property
    def at(self) -> At:
        at = At(self.loss, self.b)
        return at if self.design.rows.dear else replace(at, made=self.ask(at))

    @property
    def kinked(self) -> bool:
        return self.loss is not None and not conforms(self.loss, Bending)

    @property
    def more(self) -> float:
        """What a sum of numbers that are not negative is multiplied by."""
        return 1.0 + gamma(sum(self.design.shape) + len(self.b) + 16)

    def facts(self) -> tuple[Slopes, Any] | None:
        """Slopes, and what else `Facts` has found; None where margins are not finite, rates were cut off, or a
        probability is too small."""
        kinks, known = self.kinked, None
        if isinstance(self.loss, Squared) and not self.variables.intercept:
            known = self.design.gram
        found = self.ask(self._facts(kinks or self.sharp, known is None))
        kept, found = found if kinks else (None, found)
        broken, rough, total, size, *others = found
        if broken:
            return None
        if known is not None:
            S = self.variables.columns[0]
            others[-2:] = self.design.shape[0] + 12.0, known[np.ix_(S, S)]
        slopes = Slopes(np.array([float(one) for one in rough]) * self.more, total, size * self.more)
        return slopes, kept if kinks else others

    @property
    def sharp(self) -> bool:
        """Whether all is asked in the first pass."""
        return self.design.rows.dear

    def _facts(self, sharp: bool, hessian: bool) -> Facts:
        up = 1.0 + gamma(self.W.size + 8)
        slack = np.array([self.design.margin_rounding(one) * up for one in self.W])
        return Facts(self.at, self.W, slack, self.variables, sharp, hessian, self.kinked)

    def sharper(self) -> tuple[float, float]:
        """How far margins are off, as `Facts` has it, by a product with |X|."""
        off, shaken = self.ask(self._facts(True, False))[4:6]
        return float(off), float(shaken)

    def factor(self, H: Any, terms: float, l2: Array) -> Factor | None:
        """None where it cannot be proven that H is positive definite; l2 is K x d."""
        N, block = self.design.shape[0], self.design.rows.block
        terms = float(terms) + math.ceil(math.log2(math.ceil(N / block))) + 1
        return Factor.of(
            np.array(H, order="F"), terms, N, self.variables, self.variables.gathered(l2, np.zeros(len(l2)))
        )

    def reach(self, factor: Factor, C: Curvature, useful: float) -> float:
        """No sharper than useful."""
        return float(self.ask(Reach(C.state, factor.travelling(), useful), **C.kept))

    def squares(self, columns: Indices, C: Curvature) -> Array:
        squares: Array = self.ask(Squares(C.state, C.grow, columns), **C.kept)
        return squares

    def change(self, columns: Indices, factor: Factor, C: Curvature, n: Array) -> tuple[Array, Array, float, float]:
        """As `Changed` has it."""
        change, sizes, along, blur = self.ask(Changed(C.state, factor.travelling(), n, columns), **C.kept)
        return change, sizes * self.more, float(along) * self.more, float(blur) * self.more

    def kinks(self, kinks: Any) -> Kinks:
        return Kinks(self, {"kinks": kinks, "doubtful": self.ask(Wider(0.0), kinks=kinks)[0]})


@dataclass(frozen=True, eq=False)
class Kinks:
    """Rows of a piecewise quadratic psi, of which some, `heavy`, may reach a kink and do not count in H. `kept` are
    numbers that stay with the rows: distances to kinks and so on, which rows may reach one, and norms."""

    questions: Questions
    kept: Mapping[str, Any]

    @property
    def c(self) -> float:
        return float(self.questions.loss.curvature)

    def factor(self, l2: Array) -> tuple[Factor | None, Curvature]:
        """Of rows that are not heavy."""
        C = Curvature(Piecewise(self.c), np.array([self.c]), self.kept)
        H, terms = self.questions.ask(WeightedGram(Piecewise(self.c), self.questions.variables), **self.kept)
        return self.questions.factor(H, terms, l2), C

    def pulls(self, factor: Factor, up: float) -> tuple[Kinks, float, float, float]:
        """The same, with norms ||x_i|| that are `up` times the factor's; ||C^(1/2) delta||; and of rows that are heavy
        the sums of c a ||x_i|| delta_i and of c a ||x_i||^2."""
        job = Pulls(Piecewise(self.c), factor.travelling(), up)
        lengths, (rest, of_heavy, squares) = self.questions.ask(job, **self.kept)
        return replace(self, kept={**self.kept, "lengths": lengths}), float(rest), of_heavy, squares

    def reached(self, rho: float) -> bool:
        """Whether other rows may reach a kink within rho."""
        return bool(self.questions.ask(Wider(rho), **self.kept)[1])

    def wider(self, rho: float) -> Kinks:
        """With all rows heavy that may reach a kink within rho."""
        return replace(self, kept={**self.kept, "doubtful": self.questions.ask(Wider(rho), **self.kept)[0]})

    def largest(self) -> tuple[Curvature, float]:
        """H_i of all rows, heavy or not, and ||C^(1/2) delta||."""
        C = Curvature(Piecewise(self.c, heavy=True), np.array([self.c]), self.kept, 1.0 + 32.0 * EPS)
        return C, float(self.questions.ask(Blurred(Piecewise(self.c, heavy=True)), **self.kept)) * (1.0 + 32.0 * EPS)
