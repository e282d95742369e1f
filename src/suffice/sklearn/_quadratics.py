r"""Least squares of every fold at many penalties, without a proof.

G, c and the rest are as in `suffice.sklearn._sketch`. Folds of few columns go side by side (`Stack`): semismooth
Newton's method for all of them at once, and at several penalties. With D = diag(G) + l2 and z = c - (G + l2) w a round
takes

    A = { j : |w_j + z_j / D_j| > l1 / D_j },  s_A their signs,  (G_AA + l2) w_A = c_A - l1 s_A,  w_j = 0 elsewhere,

which ends where signs are those of w and no other |z_j| exceeds l1. It mostly takes two rounds or three from weights
nearby; where it has not ended after MOST_ROUNDS, as it may not with collinear columns, that fold is solved alone.

Held-out rows count by the triangle of a QR decomposition of  v^(1/2) [x - mean, level - y],  which has the same sums of
squares in as many rows as there are columns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from sklearn.linear_model import enet_path

from suffice.arrays import EPS, Array, host, norm
from suffice.lazy import cached_property
from suffice.models.margin_losses import MarginLoss, slope_and_bend
from suffice.penalties.prox import Indices, l1_least_subgradient
from suffice.prove.held_out import HeldOut
from suffice.prove.scores import SquaredScore
from suffice.rows.given import here, taken
from suffice.rows.gram import gram
from suffice.sklearn.folds import FLOOR, LinearFold
from suffice.solvers.minimise import from_face_to_face
from suffice.solvers.quadratic import Quadratic, with_ridge
from suffice.solvers.unproven import LIKELY, quadratic

FIRST, MOVED = 12, 0.05  # Newton steps away from 0, at most; of the weights: a step that is the last
FEWEST, FEW = 128, 600  # columns: with fewer coordinate descent does not pay, of more it is left as it is
DESCENT, SWEEPS, NEAR_ENOUGH = 1e-5, 100, 0.05  # of l1: how far from optimal coordinate descent may leave weights
ROUNDS, EXACT = 10, 1e-4  # of working sets; of l1: how optimal is exact
LARGE, DENSE = 100_000, 2.0  # numbers of rows; times as many weights as these: there an l1 takes long
STACKED, MOST_ROUNDS = 64, 5  # columns of folds that go side by side
ROUNDED, SINGULAR = 1e-11, 64.0 * EPS  # of c, how exact is exact; of D, what keeps a pivot from being 0


def held_out(held: HeldOut, margins: Array) -> Array:
    each = [held.score.residuals(m, held.y) for m in margins.T]
    return held.share * np.array([float(host(held.design.weights) @ r**2) for r in each])


@dataclass(frozen=True, eq=False)
class Stack:
    """Folds side by side."""

    folds: Sequence[QuadraticFold]
    G: Array  # folds x columns x columns
    c: Array
    triangles: Array | None  # of held-out rows; None where their losses are no squares

    @classmethod
    def of(cls, folds: Sequence[Any]) -> Stack | None:
        """None where they do not go side by side."""
        if not all(isinstance(fold, QuadraticFold) and fold.rows is None for fold in folds):
            return None
        if (d := len(folds[0].c)) > STACKED or any(len(fold.c) != d for fold in folds):
            return None
        triangles = None
        if all(isinstance(fold.held.score, SquaredScore) and fold.held.offset is None for fold in folds):
            triangles = np.zeros((len(folds), d + 1, d + 1))
            for triangle, fold in zip(triangles, folds, strict=True):
                found = np.linalg.qr(fold.held_rows(), mode="r")
                triangle[: len(found)] = found
        return cls(folds, np.array([fold.G for fold in folds]), np.array([fold.c for fold in folds]), triangles)

    @cached_property
    def spectra(self) -> tuple[Array, Array, Array]:
        """Eigenvalues and vectors of every G, and c along these."""
        s, V = np.linalg.eigh(self.G)
        return np.maximum(s, 0.0), V, (self.c[:, None, :] @ V)[:, 0]

    def weights(self, l1: Array, l2: Array, near: Array | None = None) -> Array:
        """Folds x columns x penalties, from weights near each."""
        if not l1.any():
            s, V, c = self.spectra
            l2 = np.maximum(l2, EPS * s[:, -1:])
            return np.asarray(V @ (c[:, :, None] / (s[:, :, None] + l2[:, None, :])))
        (K, d), n = self.c.shape, len(l1)
        assert near is not None
        l1, l2 = np.tile(l1, K)[:, None], np.tile(l2, K)[:, None]
        G, c, w = np.repeat(self.G, n, axis=0), np.repeat(self.c, n, axis=0), np.moveaxis(near, 1, 2).reshape(-1, d)
        D = np.einsum("kii->ki", G) + l2
        D += np.maximum(SINGULAR * D.max(axis=1, keepdims=True), 1e-300)
        enough = EXACT * l1[:, 0] + ROUNDED * np.abs(c).max(axis=1)
        found, left, diagonal = w.copy(), np.arange(K * n), np.arange(d)
        z = c - (G @ w[:, :, None])[:, :, 0] - l2 * w
        for _ in range(MOST_ROUNDS):
            u = D * w + z
            on, signs = np.abs(u) > l1, np.sign(u)
            H = G * (on[:, :, None] & on[:, None, :])
            H[:, diagonal, diagonal] = np.where(on, D, 1.0)
            w = np.linalg.solve(H, np.where(on, c - l1 * signs, 0.0)[:, :, None])[:, :, 0]
            z = c - (G @ w[:, :, None])[:, :, 0] - l2 * w
            off = np.where(on, np.maximum(-w * signs * D, np.abs(z - l1 * signs)), np.abs(z) - l1).max(axis=1)
            done = off <= enough
            found[left[done]] = w[done]
            rest = ~done
            left, w, z, G, c, D, l1, l2, enough = (one[rest] for one in (left, w, z, G, c, D, l1, l2, enough))
            if not len(left):
                break
        for k, one, two in zip(left.tolist(), l1[:, 0].tolist(), l2[:, 0].tolist(), strict=True):
            found[k] = self.folds[k // n].solved(found[k], one, two)
        return np.moveaxis(found.reshape(K, n, d), 1, 2)

    def losses(self, W: Array) -> Array:
        """The folds' parts of F, folds x penalties."""
        if self.triangles is None:
            return np.array([fold.losses(w) for fold, w in zip(self.folds, W, strict=True)])
        margins = self.triangles[:, :, :-1] @ W + self.triangles[:, :, -1:]
        return np.asarray((margins * margins).sum(axis=1))


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
    def nearly_free(cls, folds: Sequence[LinearFold], losses: Sequence[HeldOut]) -> list[Array]:
        """Weights with next to no penalty, by a few of Newton's steps, from those of the fold before; not finite where
        these lead nowhere."""
        found, w = [], np.zeros(folds[0].size)
        for fold, held in zip(folds, losses, strict=True):
            w = w if len(w) == fold.size else np.zeros(fold.size)
            l2 = np.array([fold.l2_floor / FLOOR / len(host(fold.y))])
            for _ in range(FIRST):
                w, before = cls.around(fold, held, w).path(np.zeros(1), l2, None)[:, 0], w
                if not norm(w - before) > MOVED * norm(w):  # not finite, too
                    break
            found.append(w)
        return found

    @property
    def descends(self) -> bool:
        """Whether coordinate descent pays."""
        return len(self.c) > FEWEST if self.rows is None else FEWEST < len(self.c) <= FEW

    @cached_property
    def scaled(self) -> tuple[Array, Array]:
        """Rows and targets as scikit-learn has them, whose objective is divided by the number of rows."""
        root, rows = math.sqrt(len(self.y)), cast(Array, self.rows)
        return np.asfortranarray(root * rows), root * self.y

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
        pays = self.descends and len(l1) > 1
        descended = self._descended(l1, l2, near).T if pays else [v] * len(l1)
        columns = []
        for one, two, w in zip(l1.tolist(), l2.tolist(), descended, strict=True):
            if self.rows is not None and self.rows.size > LARGE and np.count_nonzero(v) > DENSE * len(self.rows):
                break
            off = float(np.abs(l1_least_subgradient(one, w, -self._pull(w, two))).max()) / one if pays else math.inf
            done = off <= EXACT or (pays and self.rows is None and len(w) > FEW)
            v = w if done else self.solved(w if off <= NEAR_ENOUGH else v, one, two)
            columns.append(v)
        return np.array(columns).reshape(-1, len(v)).T

    def held_rows(self) -> Array:
        """Held-out rows whose squared margins, with a last weight of 1, are the fold's part of F."""
        v = np.sqrt(self.held.share * host(self.held.design.weights))
        X = here(self.held.design.X) - self.mean
        return np.column_stack([X, self.level - host(self.held.y)]) * v[:, None]

    def losses(self, W: Array) -> Array:
        """The fold's part of F for every column of W."""
        return held_out(self.held, host(self.held.design.margins(W)) + (self.level - self.mean @ W))

    def _descended(self, l1: Array, l2: Array, near: Array | None) -> Array:
        if self.rows is None:  # one row and one target: their number and size are all that is taken beside G and c
            row, size = np.zeros((1, len(self.c))), np.array([norm(self.y)])
            known: dict[str, Any] = {"precompute": self.G, "Xy": self.c}
        else:
            row, size = self.scaled
            known = {"precompute": False}
        alike = np.ptp(l2 / l1) <= 1e-9 * (l2 / l1).max()  # else l2 is the least one, the same along the line
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coordinate descent that has not converged
            _, W, _ = enet_path(
                row, size, l1_ratio=float(l1[0] / (l1[0] + l2[0])) if alike else 1.0, alphas=l1 + l2 if alike else l1,
                coef_init=None if near is None else near.copy(),  # it is written to
                check_input=False, tol=DESCENT, max_iter=SWEEPS, **known,
            )  # fmt: skip
        return np.asarray(W)

    def solved(self, v: Array, l1: float, l2: float) -> Array:
        """Weights at penalties, from v, on a working set that grows until no other weight would leave zero."""
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
        return np.asarray(self.c - (self.G @ v if self.rows is None else self.rows.T @ (self.rows @ v)) - l2 * v)

    def _on(self, W: Indices, l2: float) -> Quadratic:
        if self.rows is not None:
            return quadratic(self.rows[:, W], l2)
        return with_ridge(self.G[np.ix_(W, W)], l2)
