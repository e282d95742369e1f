r"""What a fold's solutions depend on, without proofs: for sketches of F (`suffice.sklearn._sketch`).

For squares, Phi(w) = 1/2 sum_i a_i (x_i . w + b - y_i)^2 + (l2/2) ||w||^2 + l1 ||w||_1, a free b centres rows and
targets, and all that matters is  G = X^T A X  and  c = X^T A y  (`QuadraticFold`). So solutions cost little:

- without an l1, G = V diag(s) V^T gives  w = V (V^T c) / (s + l2)  for all l2 at once; where rows are fewer than
  columns, the same by the matrix of their products, X A X^T;
- with one, scikit-learn's coordinate descent on G takes a fraction of a millisecond. Collinear columns it leaves far
  from optimal: there, and where columns are many and more than rows, the active set of Newton's models goes on.

Any other smooth psi is solved by Newton's method where rows and columns are few (`CurvedFold`). Elsewhere it is taken
for the quadratic that it is near known weights v, with  G = X^T A psi'' X  less what b takes up, and
c = G v - X^T A psi': that is near F where solutions are not far from v.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import cast

import numpy as np
from sklearn.linear_model import enet_path

from suffice.arrays import EPS, Array, host, norm
from suffice.lazy import cached_property
from suffice.models.intercept import Intercepted
from suffice.models.margin_losses import Bending, MarginLoss
from suffice.penalties.prox import Indices, l1_least_subgradient
from suffice.prove.held_out import HeldOut
from suffice.rows.given import here, taken
from suffice.rows.gram import gram
from suffice.sklearn.folds import LinearFold
from suffice.solvers.minimise import from_face_to_face
from suffice.solvers.quadratic import Quadratic, with_ridge
from suffice.solvers.unproven import LIKELY, MarginProblem, quadratic

FEWEST, FEW = 32, 600  # columns: with fewer coordinate descent does not pay, of more it is left as it is
DESCENT, SWEEPS, NEAR_ENOUGH = 1e-5, 100, 0.05  # of l1: how far from optimal coordinate descent may leave weights
ROUNDS, EXACT, ROUGH = 10, 1e-4, 1e-2  # of working sets; of l1: how optimal is exact
LARGE, DENSE = 100_000, 2.0  # numbers of rows; times as many weights as these: there an l1 takes long
NEWTON, ENOUGH = 30, 3  # this power of it, of Phi: what one more step of Newton's method has to promise


def wide(model: LinearFold) -> bool:
    """Whether columns are more than the rows that count."""
    return bool(np.count_nonzero(host(model.design.weights)) < model.design.shape[1])


def _held_out(held: HeldOut, margins: Array) -> Array:
    each = [held.score.residuals(m, held.y) for m in margins.T]
    return held.share * np.array([float(host(held.design.weights) @ r**2) for r in each])


@dataclass(frozen=True, eq=False)
class QuadraticFold:
    """Squares, or a quadratic near weights; margins of held-out rows are  X w + level - mean . w."""

    rows: Array | None  # sqrt(a) x_i, centred, where they are fewer than columns
    G: Array  # as in the module's text, or X A X^T
    c: Array
    y: Array  # sqrt(a) y_i, of these rows
    size: float  # ||y||, or what stands for it
    mean: Array
    level: float
    held: HeldOut

    @classmethod
    def of(cls, fold: LinearFold, held: HeldOut, v: Array | None = None) -> QuadraticFold:
        """Near weights v, which do not matter for squares."""
        design, a, y = fold.design, host(fold.design.weights), host(fold.y)
        d = design.shape[1]
        if v is None and wide(fold):
            used = a > 0.0
            mean, level = (design.adjoint(a), float(a @ y)) if fold.minimised_out else (np.zeros(d), 0.0)
            root = np.sqrt(a[used])
            rows, y = (here(taken(design.X, used)) - mean) * root[:, None], root * (y[used] - level)
            return cls(rows, rows @ rows.T, rows.T @ y, y, norm(y), mean, level, held)
        v, model = np.zeros(d) if v is None else v, fold.unpenalised
        image = model.image(v)
        b = model.intercept(image)[0] if isinstance(model, Intercepted) else 0.0
        psi, m = cast("MarginLoss", fold.psi), host(image) + b
        C, pull = a * cast("Bending", psi).second(m, y), a * psi.derivative(m, y)
        G = gram(design.X, scale=np.sqrt(C))[0]
        mean = design.adjoint(C) / C.sum() if isinstance(model, Intercepted) else np.zeros(d)
        left = getattr(psi, "excess", psi.value)  # psi of counts may be negative
        size = math.sqrt(2.0 * float(a @ left(m, y)))
        G = G - np.outer(mean, C.sum() * mean)
        return cls(None, G, G @ v - design.adjoint(pull), y, size, mean, b + float(mean @ v), held)

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        s, V = np.linalg.eigh(self.G)
        return np.maximum(s, 0.0), V

    def ridge(self, l2: Array) -> Array:
        """Weights without an l1, a column for every l2."""
        s, V = self.spectrum
        l2 = np.maximum(l2, EPS * s[-1])
        W = V @ ((V.T @ (self.c if self.rows is None else self.y))[:, None] / (s[:, None] + l2))
        return W if self.rows is None else np.asarray(self.rows.T @ W)

    def path(self, l1: Array, l2: Array, near: Array | None, rough: bool = False) -> Array:
        """Weights along penalties, from large to small, a column for each; from weights near the first. Fewer columns
        where many more weights than rows are not zero: there an l1 hardly matters, and takes long."""
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
        row, size = np.zeros((1, len(self.c))), np.array([self.size])
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
        """Weights at penalties, from v: on a working set that grows until no other weight would leave zero."""
        pull = self._pull(v, l2)
        for _ in range(ROUNDS):
            W = np.flatnonzero((v != 0.0) | (np.abs(pull) > LIKELY * l1))
            v, there = v.copy(), v[W]
            v[W] = from_face_to_face(there, self._on(W, l2), -pull[W], there, l1, EXACT * l1 * math.sqrt(len(W)))
            pull = self._pull(v, l2)
            if not (np.abs(pull[v == 0.0]) > (1.0 + EXACT) * l1).any():
                break
        return v

    def _pull(self, v: Array, l2: float) -> Array:
        pull: Array = self.c - (self.G @ v if self.rows is None else self.rows.T @ (self.rows @ v)) - l2 * v
        return pull

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
        optimal, columns = ROUGH if rough else EXACT, []
        for one, two in zip(l1.tolist(), l2.tolist(), strict=True):
            v, _, _ = self.rows.minimised(v, one, two, optimal=optimal, least=optimal**ENOUGH, steps=NEWTON)
            columns.append(v)
        return np.array(columns).reshape(-1, len(v)).T

    def losses(self, W: Array) -> Array:
        levels = np.array([self.rows.level(m) for m in (self.rows.X @ W).T])
        return _held_out(self.held, host(self.held.design.margins(W)) + levels)


FoldSketch = QuadraticFold | CurvedFold
