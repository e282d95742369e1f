r"""F over the whole space at a glance: where a search begins, and no proof of anything.

What is found here is where the certified search begins, which proves what it returns. But it shows valleys that a few
certified looks would miss, for less than these cost. F is sketched along lines, in decades below the l1_max that makes
all weights zero and the largest curvature L: the line of l2 alone, that of l1 alone, and lines of constant l1 / l2
between them, each from large penalties to small ones until F has turned upwards for good: on hundreds of tables F never
came down again to its least value from where it was TURNED times that and TURNED_SE of its standard errors above it
(from 3.7 % and 0.35 of them at the most). A line ends, too, where penalties are so small that all folds have the loss
that they have at its end: weights change no more in between. Then around the lowest place of all, as long as that gets
better.

Solutions of every fold are had without certificates, by Newton's method where rows and columns are few (`CurvedFold`).
For squares, Phi(w) = 1/2 sum_i a_i (x_i . w + b - y_i)^2 + (l2/2) ||w||^2 + l1 ||w||_1, a free b centres rows and
targets, and all that matters is  G = X^T A X  and  c = X^T A y  (`QuadraticFold`). So is the loss of any psi near known
weights, which those of many rows are not far from. So they cost little:

- without an l1, G = V diag(s) V^T gives  w = V (V^T c) / (s + l2)  for all l2 at once; where rows are fewer than
  columns, the same by the matrix of their products, X A X^T;
- with one, scikit-learn's coordinate descent on G takes a fraction of a millisecond. Collinear columns it leaves far
  from optimal: there, and where columns are many and more than rows, the active set of Newton's models goes on.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from scipy.linalg.lapack import dposv
from sklearn.linear_model import enet_path

from suffice.arrays import EPS, Array, host, norm
from suffice.lazy import cached_property
from suffice.models.margin_losses import Bending, MarginLoss, Squared, slope_and_bend
from suffice.penalties.prox import Indices, l1_least_subgradient
from suffice.protocols import conforms
from suffice.prove.held_out import HeldOut
from suffice.rows.given import here, taken
from suffice.rows.gram import fits_array, gram
from suffice.sklearn._recorded import error_of_mean
from suffice.sklearn.folds import FLOOR, LinearFold
from suffice.sklearn.penalties import PenaltySpace, penalties
from suffice.solvers.minimise import from_face_to_face
from suffice.solvers.quadratic import Quadratic, with_ridge
from suffice.solvers.unproven import LIKELY, MarginProblem, quadratic
from suffice.space import Space

MOST = 2000  # rows and columns of G
SMALL = 100_000  # numbers of X: then any psi is sketched;
MANY, LONG = 50_000, 20  # numbers, and rows for a column: then by quadratics near known weights,
FIRST = 3  # Newton steps away from 0
STEP = 0.25  # decades along lines
SLOPES = (-1.0, 0.5, 2.0, 3.5, 5.0)  # how much smaller l2 / L is there than l1 / l1_max
AT_ONCE = 6  # places along a line
TURNED, TURNED_SE = 1.25, 1.5  # F has turned upwards; see above
ALIKE = 3e-5  # of every fold's loss: it has settled where it is the same at the end of the line
ALMOST_NONE = 1e-6  # of l1_max: the least l1 of the space is none beside an l2, where it is no more
AROUND, FARTHEST = {"l1": 0.12, "l2": 0.4}, 2.0  # decades; times this at first,
CLOSEST, FINEST = 0.5, 0.03  # and at last; of quadratics
BETTER = 1.0 - 1e-4  # times F: what leads on from a place
FEWEST, FEW = 128, 600  # columns: with fewer coordinate descent does not pay, of more it is left as it is
DESCENT, SWEEPS, NEAR_ENOUGH = 1e-5, 100, 0.05  # of l1: how far from optimal coordinate descent may leave weights
ROUNDS, EXACT, ROUGH = 10, 1e-4, 1e-2  # of working sets; of l1: how optimal is exact
LARGE, DENSE = 100_000, 2.0  # numbers of rows; times as many weights as these: there an l1 takes long
NEWTON, ENOUGH = 30, 3  # this power of it, of Phi: what one more step of Newton's method has to promise

Theta = tuple[float, ...]


@dataclass(eq=False)
class Sketch:
    """F over a space of one or two penalties, in decades."""

    folds: Sequence[QuadraticFold | CurvedFold]
    space: Space
    ratio: float
    l1_max: float
    curvature: float
    seen: dict[Theta, Array] = field(default_factory=dict)  # the folds' parts of F
    weights: dict[Theta, list[Array]] = field(default_factory=dict)
    exact: set[Theta] = field(default_factory=set)  # places seen after the lines, which are rough

    @classmethod
    def of(
        cls, folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace, near: Sequence[Array] | None = None
    ) -> Sketch:
        """`near`: weights of every fold around which its loss is taken as a quadratic."""
        models = [fold.model for fold in folds]
        if near is not None:
            made: list[Any] = [QuadraticFold.around(*known) for known in zip(models, losses, near, strict=True)]
        else:
            kind = QuadraticFold if isinstance(models[0].psi, Squared) else CurvedFold
            made = [kind.of(*known) for known in zip(models, losses, strict=True)]
        l1_max, L = max(model.l1_max for model in models), max(model.l2_floor / FLOOR for model in models)
        sketch = cls(made, space.space, space.ratio, l1_max, L)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for line in sketch._lines():
                sketch._along(line)
            valley = min(sketch.seen, key=sketch.height)
            sketch._see([valley], valley)
            sketch._around(valley)
        return sketch

    def height(self, theta: Theta) -> float:
        """F anywhere in the space."""
        if theta not in self.seen:
            self._see([theta], None)
        return float(self.seen[theta].sum())

    @property
    def lowest(self) -> Theta:
        """Where F is least of all that was seen well enough."""
        return min(self.exact or self.seen, key=self.height)

    @property
    def standard_error(self) -> float:
        """That of the least F over folds."""
        return error_of_mean(self.seen[self.lowest] * len(self.folds)) if len(self.folds) > 1 else math.inf

    def _bounds(self, name: str) -> tuple[float, float]:
        lower, upper = self.space.bounds
        k = self.space.names.index(name) if name in self.space.names else None
        return (-math.inf, math.inf) if k is None else (float(lower[k]), float(upper[k]))

    def _lines(self) -> list[list[Theta]]:
        """From large penalties to small ones: without an l1 or with the least one, of one ratio each, and with the
        least l2. Each begins and ends on the edges of the space."""
        t1, t2 = math.log10(self.l1_max), math.log10(self.curvature)
        (low1, high1), (low2, high2) = self._bounds("l1"), self._bounds("l2")
        if len(self.space) == 2:
            lines: list[list[Theta]] = [[(low1, level) for level in self._levels(t2 + 2.0, low2, high2)]]
            lines += [[(level, low2) for level in self._levels(t1, low1, high1)]]
            for slope in reversed(SLOPES):
                way = t2 - t1 - slope
                ends = max(low1, low2 - way), min(high1, high2 - way)
                lines += [[(level, level + way) for level in self._levels(t1, *ends)]]
            return [line for line in lines if line]
        if "l1" in self.space.names:
            return [[(level,) for level in self._levels(t1, low1, high1)]]
        top = t1 + math.log10((1.0 - self.ratio) / self.ratio) if self.ratio > 0.0 else t2 + 2.0
        return [[(level,) for level in self._levels(top, low2, high2)]]

    def _levels(self, top: float, low: float, high: float) -> list[float]:
        """From the top, or the upper end of the range where that is less, down to the lower end; none in an empty
        range."""
        if low > high:
            return []
        return [*np.arange(max(min(top, high), low), low, -STEP).tolist(), low]

    def _along(self, line: Sequence[Theta]) -> None:
        """A line up to where F has turned upwards, AT_ONCE places at a time."""
        least = math.inf
        for first in range(0, len(line), AT_ONCE):
            part = line[first : first + AT_ONCE]
            self._see(part, line[first - 1] if first else None, rough=True)
            least = min(least, *(self.height(theta) for theta in part))
            last = self.height(part[-1])
            if last > max(TURNED * least, least + TURNED_SE * self.standard_error) or math.isinf(last):
                break
            if len(part) > 1 and self._alike(part[-2:]) and part[-1] != line[-1]:
                self._see(line[-1:], part[-1], rough=True)
                if self._alike([part[-1], line[-1]]):
                    break

    def _alike(self, thetas: Sequence[Theta]) -> bool:
        """Whether the losses of all folds are the same at two places."""
        one, other = (self.seen[theta] for theta in thetas)
        return bool((np.abs(one - other) <= ALIKE * one).all())

    def _see(self, thetas: Sequence[Theta], near: Theta | None, rough: bool = False) -> None:
        """F at places on a line, from weights near the first."""
        both = [penalties(self.space.params(np.array(theta)), self.ratio) for theta in thetas]
        l1, l2 = (np.array([one[kind] for one in both]) for kind in ("l1", "l2"))
        least = 10.0 ** self._bounds("l1")[0] if len(self.space) == 2 else 0.0
        if (l1 <= least * (1.0 + 1e-9)).all() and least <= ALMOST_NONE * self.l1_max:
            l1 = np.zeros_like(l1)
        known = self.weights.get(near) if near is not None else None
        starts = [None] * len(self.folds) if known is None else known
        parts = [fold.path(l1, l2, start, rough) for fold, start in zip(self.folds, starts, strict=True)]
        count = min(W.shape[1] for W in parts)
        heights = np.full((len(self.folds), len(thetas)), np.inf)
        heights[:, :count] = [fold.losses(W[:, :count]) for fold, W in zip(self.folds, parts, strict=True)]
        heights = np.where(np.isfinite(heights), heights, np.inf)
        self.seen |= dict(zip(thetas, heights.T, strict=True))
        self.exact |= set() if rough and isinstance(self.folds[0], CurvedFold) else set(thetas)
        self.weights |= {theta: [W[:, i] for W in parts] for i, theta in enumerate(thetas[:count])}

    def _around(self, middle: Theta) -> None:
        """Crosses around a place and on to better ones, smaller where it is the best of its cross."""
        m, share = len(self.space), FARTHEST
        steps = [AROUND[name] for name in self.space.names]
        lower, upper = self.space.bounds
        cheap = isinstance(self.folds[0], QuadraticFold)
        closest, least = (FINEST, 1.0 - 1e-6) if cheap else (CLOSEST, BETTER)
        while share >= closest:
            cross = [middle]
            for k, step in enumerate(steps):
                for sign in (-1.0, 1.0):
                    there = np.clip(np.array(middle) + sign * share * step * np.eye(m)[k], lower, upper)
                    cross.append(tuple(float(x) for x in there))
                    if cross[-1] not in self.exact:
                        self._see(cross[-1:], middle)
            best = min(cross, key=self.height)
            better = self.height(best) < least * self.height(middle)
            share, middle = (share, best) if better else (0.5 * share, middle)


def sketches(folds: Sequence[Any], losses: Sequence[Any], space: PenaltySpace, near: bool = False) -> bool:
    """Whether F can be sketched: not for groups of columns, sparse rows and several margins, nor where it would cost
    too much. `near`: by quadratics near known weights, of so many rows that these are known well."""
    models = [fold.model for fold in folds]
    if space.groups or any(scale != "log" for scale in space.space.scales.values()):
        return False
    pairs = zip(models, losses, strict=True)
    return max(model.l1_max for model in models) > 0.0 and all(_sketchable(*pair, near) for pair in pairs)


def _sketchable(model: Any, loss: Any, near: bool) -> bool:
    if not (isinstance(model, LinearFold) and model.plain and isinstance(loss, HeldOut)):
        return False
    X = model.design.X
    if not (fits_array(X) and fits_array(loss.design.X)) or min(X.shape) > MOST:
        return False
    if isinstance(model.psi, Squared):
        return not near
    rows, columns = np.count_nonzero(host(model.design.weights)), X.shape[1]
    long = rows >= LONG * columns and rows * columns > MANY
    fit = long if near else rows * columns <= SMALL
    return bool(fit) and conforms(model.psi, Bending) and model.kind != "column" and model.design.rows.at_hand


def _held_out(held: HeldOut, margins: Array) -> Array:
    each = [held.score.residuals(m, held.y) for m in margins.T]
    return held.share * np.array([float(host(held.design.weights) @ r**2) for r in each])


@dataclass(frozen=True, eq=False)
class QuadraticFold:
    """Squares; margins of held-out rows are  X w + level - mean . w."""

    rows: Array | None  # sqrt(a) x_i, centred, where they are fewer than columns
    G: Array  # as in the module's text, or X A X^T
    c: Array
    y: Array  # sqrt(a) y_i, centred
    mean: Array
    level: float
    held: HeldOut

    @classmethod
    def of(cls, fold: LinearFold, held: HeldOut) -> QuadraticFold:
        design, a, y = fold.design, host(fold.design.weights), host(fold.y)
        used, free = a > 0.0, fold.minimised_out
        mean, level = (design.adjoint(a), float(a @ y)) if free else (np.zeros(design.shape[1]), 0.0)
        root, y = np.sqrt(a[used]), np.sqrt(a) * (y - level)
        if len(root) >= len(mean):
            G = gram(design.X, scale=np.sqrt(a))[0] - np.outer(mean, mean)
            return cls(None, G, design.adjoint(np.sqrt(a) * y), y, mean, level, held)
        rows, y = (here(taken(design.X, used)) - mean) * root[:, None], y[used]
        return cls(rows, rows @ rows.T, rows.T @ y, y, mean, level, held)

    @classmethod
    def around(cls, fold: LinearFold, held: HeldOut, w: Array) -> QuadraticFold:
        """What the loss looks like at w: that of rows with weights C = a psi'' and targets z = m - psi'/psi''."""
        design, a, free, psi = fold.design, host(fold.design.weights), fold.minimised_out, cast(MarginLoss, fold.psi)
        b = float(fold.learner.intercept(fold.unpenalised, w)) if free else 0.0
        m = host(design.margins(w)) + b
        slopes, bends = slope_and_bend(psi, m, host(fold.y))
        C, slopes = a * bends, a * slopes
        total = float(C.sum())
        mean = design.adjoint(C) / total if free else np.zeros(len(w))
        level = float(C @ m - slopes.sum()) / total if free else 0.0
        G = gram(design.X, scale=np.sqrt(C))[0] - total * np.outer(mean, mean)
        return cls(None, G, design.adjoint(C * (m - level) - slopes), np.sqrt(C) * (m - level), mean, level, held)

    @classmethod
    def nearly_free(cls, fold: LinearFold, held: HeldOut) -> Array:
        """Weights with next to no penalty, by a few of Newton's steps; not finite where these lead nowhere."""
        w, l2 = np.zeros(fold.size), np.array([fold.l2_floor / FLOOR / len(host(fold.y))])
        for _ in range(FIRST):
            w = cls.around(fold, held, w).path(np.zeros(1), l2, None)[:, 0]
            if not np.isfinite(w).all():
                break
        return w

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        s, V = np.linalg.eigh(self.G)
        return np.maximum(s, 0.0), V

    def path(self, l1: Array, l2: Array, near: Array | None, rough: bool = False) -> Array:
        """Weights along penalties, from large to small, a column for each; from weights near the first. Fewer columns
        where many more weights than rows are not zero: there an l1 hardly matters, and takes long."""
        if not l1.any():
            s, V = self.spectrum
            l2 = np.maximum(l2, EPS * s[-1])
            W = V @ ((V.T @ (self.c if self.rows is None else self.y))[:, None] / (s[:, None] + l2))
            return W if self.rows is None else np.asarray(self.rows.T @ W)
        v = np.zeros(len(self.c)) if near is None else near
        pays = self.rows is None and len(l1) > 1 and len(v) > FEWEST
        descended = self._descended(l1, l2, near).T if pays else [v] * len(l1)
        columns = []
        for one, two, w in zip(l1.tolist(), l2.tolist(), descended, strict=True):
            if self.rows is not None and self.rows.size > LARGE and np.count_nonzero(v) > DENSE * len(self.rows):
                break
            off = float(np.abs(l1_least_subgradient(one, w, -self._pull(w, two))).max()) / one if pays else math.inf
            done = off <= EXACT or (pays and len(w) > FEW)
            v = w if done else self._solved(w if off <= NEAR_ENOUGH else v, one, two)
            columns.append(v)
        return np.array(columns).reshape(-1, len(v)).T

    def losses(self, W: Array) -> Array:
        """The fold's part of F for every column of W."""
        return _held_out(self.held, host(self.held.design.margins(W)) + (self.level - self.mean @ W))

    def _descended(self, l1: Array, l2: Array, near: Array | None) -> Array:
        # One row and one target: their number and size are all that is taken of them beside G and c.
        row, size = np.zeros((1, len(self.c))), np.array([norm(self.y)])
        alike = np.ptp(l2 / l1) <= 1e-9 * (l2 / l1).max()  # else l2 is the least one, the same along the line
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coordinate descent that has not converged
            _, W, _ = enet_path(
                row, size, l1_ratio=float(l1[0] / (l1[0] + l2[0])) if alike else 1.0, alphas=l1 + l2 if alike else l1,
                precompute=self.G, Xy=self.c, coef_init=None if near is None else near.copy(),  # it is written to
                check_input=False, tol=DESCENT, max_iter=SWEEPS,
            )  # fmt: skip
        return np.asarray(W)

    def _solved(self, v: Array, l1: float, l2: float) -> Array:
        """Weights at penalties, from v: with its signs, or on a working set that grows until no other weight would
        leave zero."""
        if (there := self._with_signs_of(v, l1, l2)) is not None:
            return there
        pull = self._pull(v, l2)
        for _ in range(ROUNDS):
            W = np.flatnonzero((v != 0.0) | (np.abs(pull) > LIKELY * l1))
            v, there = v.copy(), v[W]
            v[W] = from_face_to_face(there, self._on(W, l2), -pull[W], there, l1, EXACT * l1 * math.sqrt(len(W)))
            pull = self._pull(v, l2)
            if not (np.abs(pull[v == 0.0]) > (1.0 + EXACT) * l1).any():
                break
        return v

    def _with_signs_of(self, v: Array, l1: float, l2: float) -> Array | None:
        """The minimiser, if it has these signs."""
        S = np.flatnonzero(v)
        if self.rows is not None or not len(S):
            return None
        H, signs = self.G[np.ix_(S, S)], np.sign(v[S])
        H[np.diag_indices(len(S))] += l2
        _, w, failed = dposv(H, self.c[S] - l1 * signs)
        if failed or (w * signs <= 0.0).any():
            return None
        there = np.zeros_like(v)
        there[S] = w
        off = l1_least_subgradient(l1, there, -self._pull(there, l2))
        return there if float(np.abs(off).max()) <= EXACT * l1 else None

    def _pull(self, v: Array, l2: float) -> Array:
        return np.asarray(self.c - (self.G @ v if self.rows is None else self.rows.T @ (self.rows @ v)) - l2 * v)

    def _on(self, W: Indices, l2: float) -> Quadratic:
        if self.rows is not None:
            return quadratic(self.rows[:, W], l2)
        return with_ridge(self.G[np.ix_(W, W)], l2)


@dataclass(frozen=True, eq=False)
class CurvedFold:
    """Any other psi, by Newton's method; b is had anew for all weights. A `rough` path is cheaper."""

    rows: MarginProblem
    held: HeldOut

    @classmethod
    def of(cls, fold: LinearFold, held: HeldOut) -> CurvedFold:
        a = host(fold.design.weights)
        used = a > 0.0
        X, y = here(taken(fold.design.X, used)), host(fold.y)[used]
        return cls(MarginProblem(X, a[used], y, fold.psi, fold.minimised_out), held)

    def path(self, l1: Array, l2: Array, near: Array | None, rough: bool = False) -> Array:
        v = np.zeros(self.rows.X.shape[1]) if near is None else near
        optimal, columns, b = ROUGH if rough else EXACT, [], self.rows.level(self.rows.X @ v)
        for one, two in zip(l1.tolist(), l2.tolist(), strict=True):
            v, b, _, _ = self.rows.from_both(v, b, one, two, optimal, optimal**ENOUGH, NEWTON)
            columns.append(v)
        return np.array(columns).reshape(-1, len(v)).T

    def losses(self, W: Array) -> Array:
        levels = [0.0]
        for m in (self.rows.X @ W).T:
            levels.append(self.rows.level(m, levels[-1]))
        return _held_out(self.held, host(self.held.design.margins(W)) + np.array(levels[1:]))
