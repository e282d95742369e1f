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

*Rows* with K outputs at margins m_i have slopes of losses, what these are rounded relative to, and H_i, the matrix of
second derivatives.

    one output     H_i = psi''(m_i),                  M |d|       bounds what a move d of the margin does to log H_i,
    softmax        H_i = diag(p_i) - p_i p_i^T,       range(d)    what a move d of the margins does,
    pieces         H_i = c, or 0 where a kink of a piecewise quadratic psi may be reached.

*Rounding.* psi' errs by a few units relative to `slope_size`. The computed p_i are those of margins that err by a few
units more, exponents included (`blur`), times 1 + c_i, c_i = gamma_{K + 4} at most. With 1 - p_ik taken as q_ik, the
sum of the other probabilities, nothing cancels: a p q and a p_k p_l have hardly more roundings than p. As p_il <= q_ik,
sum_i a_i p_ik p_il |x_ij x_im| <= sqrt(H_(kj)(kj) H_(lm)(lm)), and the error of every entry of H is bounded by the
diagonal as `suffice.prove.factor` wants it. To keep products within the range of floats, no p_ik may be below
LEAST_PROBABILITY, and no a p q below LEAST_CURVATURE: what underflows before H is scaled, when it is whole, is at most
1e-220 for every term, in scaled units, since |x| (a p)^(1/2) scale <= 2 LEAST_PROBABILITY^(-1/2) and no scale exceeds
1e50 (`suffice.prove.factor.SMALLEST`).

`State`s make them from a block of rows; rows that do not count, a_i = 0, are at margins 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, host, like, norm
from suffice.lazy import cached_property
from suffice.models.margin_losses import LARGEST, Bending, Squared, slope_size
from suffice.models.softmax_jobs import gap, softmax_rows
from suffice.protocols import conforms
from suffice.prove.factor import Indices, ProvenFactor, Variables, apart
from suffice.rows.design import OF_FACTORS, Design
from suffice.rows.gram import dense_rows, gram, rows_at_once
from suffice.rows.memory import absolute_product
from suffice.rows.rounding import TINY, gamma
from suffice.rows.sums import Block, Job, Length, Most

COLUMN_BYTES = 1 << 22  # of columns outside the support that are copied at a time
LEAST_PROBABILITY = 1e-100
LEAST_CURVATURE = 1e-280


class OneOutput:
    """H_i is a number, `second`; all arrays are n x 1."""

    second: Array

    def own_norms(self, a: Array) -> Array:
        """A bound on ||x_i||_{H^-1} by what the row itself is in H."""
        with np.errstate(divide="ignore"):
            return 1.0 / np.sqrt(a[:, None] * self.second)

    def product(self, d: Array, e: Array) -> tuple[Array, Array, Array, Array]:
        """H_i d_i of every row, what it is rounded relative to, d . H_i d, and no less than e . H_i e."""
        C = self.second
        return C * d, C * np.abs(d), (C * d * d)[:, 0], (C * e * e)[:, 0]

    def shaken(self, off: Array) -> Array:
        """No less than delta . H_i delta of every row, |delta| <= off."""
        return np.asarray((self.second * off * off)[:, 0])

    def gram(self, X: Any, variables: Variables, a: Array) -> tuple[Array, float]:
        """The upper triangle of sum_i a_i B_i^T H_i B_i, and how many roundings a term of it passes."""
        return weighted_gram(X, variables, a * self.second[:, 0])


@dataclass(frozen=True, eq=False)
class Pieces(OneOutput):
    """Of a piecewise quadratic psi."""

    second: Array


@dataclass(frozen=True, eq=False)
class MarginRows(OneOutput):
    """One margin for every row; m and y are n x 1."""

    loss: Any
    m: Array
    y: Array

    @property
    def blur(self) -> Any:
        """What the rounding of psi'' by the loss itself is worth, as an error of margins, where that says so."""
        own = getattr(self.loss, "blur", None)
        return 0.0 if own is None else own(self.m, self.y)

    @property
    def kinked(self) -> bool:
        """Whether psi is piecewise quadratic."""
        return not conforms(self.loss, Bending)

    @property
    def third(self) -> float:
        return float(self.loss.third)

    @cached_property
    def second(self) -> Array:
        return np.asarray(self.loss.second(self.m, self.y))

    @cached_property
    def slopes(self) -> Array:
        return np.asarray(self.loss.derivative(self.m, self.y))

    @cached_property
    def bends(self) -> Array:
        """No less than psi''."""
        return np.asarray(self.loss.curvature_between(self.m, self.m, self.y))

    @property
    def sizes(self) -> Array:
        """What slopes are rounded relative to."""
        return slope_size(self.loss, self.slopes, self.bends, self.m, self.y)

    def fine(self, a: Array, off: Array) -> bool:
        """Whether all is within the range of floats, for margins that err by no more than `off`."""
        if not np.isfinite(self.m).all():
            return False
        cut = math.isinf(self.loss.curvature)  # rates may be
        return not cut or bool(np.all(self.loss.curvature_between(self.m - off, self.m + off, self.y) < LARGEST))


def weighted_gram(X: Any, variables: Variables, C: Array) -> tuple[Array, float]:
    """X^T C X on the variables of one output, and how many roundings a term of it passes, those of C among them."""
    rows = np.flatnonzero(C)
    some, root = rows if len(rows) < len(C) else None, np.sqrt(C[rows])
    H, terms = gram(X, variables.columns[0], root, some, intercept=variables.intercept)
    return H, terms + 12.0


@dataclass(frozen=True, eq=False)
class SoftmaxRows:
    """K classes; m is n x K, y holds their numbers."""

    m: Array
    y: Array
    third, kinked = 1.0, False

    @cached_property
    def p(self) -> Array:
        return softmax_rows(self.m, np.zeros(len(self.m), dtype=np.intp))[0]

    @cached_property
    def q(self) -> Array:
        return np.column_stack([np.delete(self.p, k, axis=1).sum(axis=1) for k in range(self.p.shape[1])])

    @property
    def second(self) -> Array:
        return self.p * self.q

    @cached_property
    def slopes(self) -> Array:
        return gap(self.p, self.y)

    @property
    def sizes(self) -> Array:
        return np.abs(self.slopes) + self.p

    @property
    def blur(self) -> Array:
        return np.asarray(2.0 * EPS * (self.m.max(axis=1, keepdims=True) - self.m) + 4.0 * EPS)

    def own_norms(self, a: Array) -> float:
        return math.inf

    def fine(self, a: Array, off: Array) -> bool:
        fine = np.isfinite(self.m).all() and np.all(self.p > LEAST_PROBABILITY)
        return bool(fine and np.all((a[:, None] * self.second > LEAST_CURVATURE)[a > 0.0]))

    def product(self, d: Array, e: Array) -> tuple[Array, Array, Array, Array]:
        p = self.p
        gap = d - (p * d).sum(axis=1, keepdims=True)
        sizes = p * (np.abs(d) + (p * np.abs(d)).sum(axis=1, keepdims=True))
        return p * gap, sizes, (p * gap * gap).sum(axis=1), (p * e * e).sum(axis=1)

    def shaken(self, off: Array) -> Array:
        """By sum_k p_k (delta_k - delta_l)^2, l the most probable class."""
        first = self.m.argmax(axis=1)[:, None]
        others = np.where(np.arange(self.m.shape[1]) == first, 0.0, self.p)
        return np.asarray((others * (off + np.take_along_axis(off, first, axis=1)) ** 2).sum(axis=1))

    def gram(self, X: Any, variables: Variables, a: Array) -> tuple[Array, float]:
        """H_(kj)(lm) = sum_i a_i (p_ik [k = l] - p_ik p_il) x_ij x_im."""
        (N, K), p, places, s = self.p.shape, self.p, variables.places, len(variables)
        H, root = np.zeros((s, s), order="F"), np.sqrt(a[:, None] * p)
        length, terms = rows_at_once(N)
        for here, rows in variables.rows(X, np.ones(s), length):
            rows = [host(rows[k]) * root[here, k, None] for k in range(K)]
            for k in range(K):
                for j in range(k):
                    between = np.sqrt(p[here, j] * p[here, k])
                    H[places[j], places[k]] -= rows[j].T @ (between[:, None] * rows[k])
                H[places[k], places[k]] += rows[k].T @ (self.q[here, k, None] * rows[k])
        return H, terms + 4.0 * K + 32.0


@dataclass(frozen=True)
class PsiAt:
    """At margins image + b, of a loss of one margin or, without one, of a softmax. a, y are given. Rows at hand are
    made once, by a pass of their own."""

    loss: Any
    b: Array
    made: MarginRows | SoftmaxRows | None = None

    def __call__(self, block: Block) -> MarginRows | SoftmaxRows:
        if self.made is not None:
            return self.made
        counts, m, y = host(block["a"]) > 0.0, images(block) + self.b, host(block["y"])
        m = m if counts.all() else np.where(counts[:, None], m, 0.0)
        return SoftmaxRows(m, y) if self.loss is None else MarginRows(self.loss, m, y[:, None])


@dataclass(frozen=True)
class Piecewise:
    """c of rows that do not reach a kink or, if they are to count, of these as well. kinks, doubtful are given."""

    c: float
    heavy: bool = False

    def __call__(self, block: Block) -> Pieces:
        doubtful, curved = block["doubtful"], block["kinks"][:, 2] > 0.0
        counting = curved | doubtful if self.heavy else curved & ~doubtful
        return Pieces(np.where(counting, self.c, 0.0)[:, None])


State = PsiAt | Piecewise


def images(block: Block) -> Array:
    """Margins of a block without intercepts, n x K."""
    image = host(block.margins[0])
    return image[:, None] if image.ndim == 1 else image


def entry_gammas(design: Design, outputs: int) -> Array:
    """gamma of all roundings that a term of X^T (a psi') passes, for every column; a softmax's slopes add some."""
    if outputs == 1:
        return design.pull_gammas
    counts, place = np.unique(design.pull.roundings, return_inverse=True)
    return np.asarray(np.array([gamma(float(count) + OF_FACTORS + outputs + 16) for count in counts])[place])


@dataclass(frozen=True)
class Question(Job):
    """A job: a function of a block and of its rows as `state` makes them, with these arguments."""

    function: Callable[..., Any]
    state: State
    arguments: tuple[Any, ...] = ()
    keeps: bool = False
    reads: bool = True
    size: int = 0  # of what it gives

    def __call__(self, block: Block) -> Any:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self.function(block, self.state(block), *self.arguments)


def facts(block: Block, rows: Any, W: Array, b: Array, slack: Array, variables: Variables, hessian: bool) -> Any:
    """Whether something is broken, the sums of slopes, those of margins' errors, max (H_i)_kk, and H, if it is asked
    for. Margins of output k err by slack_k |x_i| . |w_k|. a, y, norms are given.

    Of a psi that has kinks there is no H: distances to these, margins' errors and whether psi'' > 0 stay with the
    rows."""
    a, image = host(block["a"]), images(block)
    counts = a > 0.0
    off = absolute_product(block.X, W.T) * slack + TINY * W.size
    off = off + 4.0 * EPS * (np.abs(image) + np.abs(b)) + rows.blur
    off = off if counts.all() else np.where(counts[:, None], off, 0.0)
    slopes, sizes, fine = rows.slopes, rows.sizes, rows.fine(a, off)
    rough = tuple(Length(norm(one)) for one in (np.sqrt(a)[:, None] * sizes).T)
    found = Most(not fine), rough, a @ slopes, a @ sizes
    if rows.kinked:
        distance = rows.loss.kink_distance(rows.m, rows.y) - off
        distance = distance - 4.0 * EPS * (np.abs(rows.m) + np.abs(rows.y) + 1.0)
        kept = np.column_stack([np.where(counts[:, None], distance, math.inf), off, rows.bends > 0.0])
        return kept, found
    steepest = tuple(
        Most(one) for one in (rows.second if counts.all() else rows.second[counts]).max(axis=0, initial=0.0)
    )
    s = len(variables) * hessian
    H, terms = rows.gram(block.X, variables, a) if fine and hessian else (np.zeros((s, s)), 0.0)
    shaken = Length(norm(np.sqrt(a * rows.shaken(off))))
    return *found, Most(rows.third * apart(off).max(initial=0.0)), shaken, steepest, Most(terms), H


def reach(block: Block, rows: Any, factor: ProvenFactor, useful: float) -> Most:
    """The largest that outputs of a row move apart, no sharper than useful: X is read only if lengths and H_i say too
    little. a, norms and what H_i needs are given."""
    a = host(block["a"])
    rough = apart(factor.rough_norms(host(block["norms"]), rows.own_norms(a)))[a > 0.0].max(initial=0.0)
    return Most(rough if rough <= useful else apart(factor.norms(block.X))[a > 0.0].max(initial=0.0))


def squares(block: Block, rows: Any, grow: float, columns: Indices) -> Array:
    """sum_i C_ik x_ij^2 of some columns, C being `grow` times a_i (H_i)_kk, and what has underflowed in it."""
    a = host(block["a"])[:, None]
    C = np.where(a > 0.0, a * rows.second * grow + TINY, 0.0)
    parts = dense_rows(block.X, columns, _length(columns))
    return sum((host(like(C[here].T, part) @ part**2) for here, part in parts), np.zeros((1, 1)))


def changed(block: Block, rows: Any, factor: ProvenFactor, n: Array, columns: Indices) -> Any:
    """sum_i a_i (H_i B_i n)_k x_ij of some columns j, for a scaled n, with its sizes, (sum_i a_i d_i . H_i d_i)^(1/2),
    d_i = B_i n, and the same of its rounding."""
    a, X = host(block["a"]), block.X
    moved, rounding = (np.where((a > 0.0)[:, None], one, 0.0) for one in factor.moved(X, n)[:2])
    pulls, sizes, along, blur = rows.product(moved, rounding)
    change, size = (np.zeros((pulls.shape[1], len(columns))) for _ in range(2))
    for here, part in dense_rows(X, columns, _length(columns)):
        change += host(like((a[here, None] * pulls[here]).T, part) @ part)
        size += host(like((a[here, None] * sizes[here]).T, part) @ abs(part))
    return change, size, Length(math.sqrt(float(a @ along))), Length(math.sqrt(float(a @ blur)))


def _length(columns: Indices) -> int:
    """How many rows of these columns are copied at a time."""
    return COLUMN_BYTES // (8 * max(len(columns), 1))


# Of a piecewise quadratic psi: kinks, which rows may reach one (doubtful), and lengths ||x_i|| go with the rows


def light_hessian(block: Block, rows: Any, variables: Variables) -> Any:
    """H of rows that do not reach a kink, and how many roundings a term passes."""
    H, terms = rows.gram(block.X, variables, host(block["a"]))
    return H, Most(terms)


def pulls(block: Block, rows: Any, factor: ProvenFactor, up: float, c: float) -> Any:
    """||x_i|| of every row, `up` times the factor's, which stay; ||C^(1/2) delta||, and of rows that may reach a kink
    sum c a ||x_i|| delta_i and sum c a ||x_i||^2."""
    a, off = host(block["a"]), block["kinks"][:, 1]
    lengths = np.where(a > 0.0, up * factor.norms(block.X)[:, 0], 0.0)
    heavy = c * a * block["doubtful"]
    return lengths, (blurred(block, rows), float(heavy @ (lengths * off)), float(heavy @ (lengths * lengths)))


def blurred(block: Block, rows: Any) -> Length:
    """||C^(1/2) delta||."""
    return Length(norm(np.sqrt(host(block["a"]) * rows.second[:, 0]) * block["kinks"][:, 1]))


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


@dataclass(frozen=True, eq=False)
class VerifiedRows:
    """Rows of X at W, with margins that are a product, an offset among them, plus b, and the variables of H. `loss` is
    None for a softmax; a, y, norms are given."""

    design: Design
    loss: Any
    given: Mapping[str, Any]
    W: Array
    image: Any
    b: Array
    variables: Variables

    def run(self, job: Any, **kept: Any) -> Any:
        """The sum over all blocks."""
        return self.design.rows.run(job, [self.image], **self.given, **kept)

    def ask(self, function: Callable[..., Any], *arguments: Any, state: State | None = None, **kept: Any) -> Any:
        return self.run(Question(function, state or self.at, arguments), **kept)

    @cached_property
    def at(self) -> PsiAt:
        at = PsiAt(self.loss, self.b)
        return at if self.design.rows.dear else replace(at, made=self.run(at))

    @cached_property
    def kinked(self) -> bool:
        return self.loss is not None and not conforms(self.loss, Bending)

    @property
    def more(self) -> float:
        """What a sum of numbers that are not negative is multiplied by."""
        return 1.0 + gamma(sum(self.design.shape) + len(self.b) + 16)

    def facts(self) -> tuple[Array, Array, Array, Any] | None:
        """||a^(1/2) size||, sum a psi' and sum a size, output by output, and what else `facts` have found; None where
        margins are not finite, rates were cut off, or a probability is too small."""
        known = self.design.gram if isinstance(self.loss, Squared) else None
        hessian, up = known is None and not self.kinked, 1.0 + gamma(self.W.size + 8)
        slack = np.array([self.design.margin_rounding(one) * up for one in self.W])
        asked = self.W, self.b, slack, self.variables, hessian
        found = self.run(Question(facts, self.at, asked, self.kinked, size=hessian * len(self.variables) ** 2))
        kept, found = found if self.kinked else (None, found)
        broken, rough, total, size, *others = found
        if broken:
            return None
        if known is not None:
            others[-2:] = self._of_squares(known)
        more = others if kept is None else kept
        return np.array(rough, dtype=np.float64) * self.more, total, size * self.more, more

    def _of_squares(self, known: Array) -> tuple[float, Array]:
        """How many roundings a term of H passes at most, and H, of X^T diag(a) X; weights sum to 1, nearly."""
        S, rows, N = self.variables.columns[0], self.design.rows, self.design.shape[0]
        blocks = rows.full or rows.dear  # sparse rows may be added one by one
        terms = max(float(rows_at_once(N)[1]), float(self.design.pull.roundings.max())) if blocks else float(N)
        H, mean = known[np.ix_(S, S)], self.design.mean[S][:, None]
        return terms + 12.0, np.block([[H, mean], [mean.T, np.ones((1, 1))]]) if self.variables.intercept else H

    def factor(self, H: Any, terms: float, l2: Array) -> ProvenFactor | None:
        """None where it cannot be proven that H is positive definite; l2 is K x d."""
        N, block = self.design.shape[0], self.design.rows.block
        terms = float(terms) + math.ceil(math.log2(math.ceil(N / block))) + 1
        l2 = self.variables.gathered(l2, np.zeros(len(l2)))
        return ProvenFactor.of(np.array(H, order="F"), terms, N, self.variables, l2)
