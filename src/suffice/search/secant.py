r"""A quadratic model of F from gradients alone, in memory O(m), and its minimiser in a box.

The gradients at c + 1 points give c pairs  s_i = u_{i+1} - u_i,  y_i = g_{i+1} - g_i.  BFGS updates of sigma I by these
pairs, the oldest first, are in compact form (Byrd, Nocedal and Schnabel, Math. Program. 63, 1994)

    B = sigma I - W M^-1 W^T,     W = [Y, sigma S],     M = [ -D   L^T          ]     L_ij = s_i . y_j  for i > j,
                                                           [  L   sigma S^T S  ]     D_ii = s_i . y_i,

with sigma = y.y / s.y of the latest pair. B is positive definite if all s_i . y_i > 0; pairs without are left out:
where F is concave the model has no minimiser of its own, and the trust region ends the step.

The model  q(s) = g.s + s.Bs/2  is minimised over  l <= s <= h,  the box of the parameters and that of the trust region
in one, by turns of

- a projected gradient step  s(t) = P(s - t r),  r = g + B s, with t halved until q falls by a share of r.(s - s(t)),
  which finds the variables that end on a bound;
- a Newton step on the others, F: B_FF^-1 = I/sigma + W_F (M - W_F^T W_F / sigma)^-1 W_F^T / sigma^2, projected and
  halved in the same way.

It ends where the projected gradient has fallen to TOLERANCE of its first length. A turn costs O(m c^2).

At a kink another vector takes the place of g: the shortest of the convex hull of the gradients around it. The negative
of it is the direction in which the largest of all g_i . d falls fastest; if it is 0 no d makes them all negative. (P.
Wolfe, A method of conjugate subgradients for minimizing nondifferentiable functions, 1975, has the use that is made of
it.) It is found by non-negative least squares:  ||sum_i l_i g_i||^2 + (1 - sum_i l_i)^2  over l >= 0, whose minimiser
for any one direction of l falls with the length of  sum_i l_i g_i / sum_i l_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from suffice.arrays import Array, norm

CURVED = 1e-10  # of ||s|| ||y||: an s.y that is positive for certain
TOLERANCE = 1e-6
TURNS = 60
HALVINGS = 40
DECREASE = 1e-2


@dataclass(frozen=True, eq=False)
class Secants:
    """B by W and M; without any pairs sigma I."""

    sigma: float
    W: Array
    M: Array

    @classmethod
    def of(cls, sigma: float, pairs: Sequence[tuple[Array, Array]], m: int) -> Secants:
        """From (s, y), the oldest first. `sigma` counts where no pair tells of curvature."""
        with np.errstate(over="ignore", invalid="ignore"):
            good = [(s, y) for s, y in pairs if _curved(s, y)]
        if not good:
            return cls(sigma, np.empty((m, 0)), np.empty((0, 0)))
        S, Y = (np.array(part) for part in zip(*good, strict=True))
        SY = S @ Y.T
        sigma = float(Y[-1] @ Y[-1]) / float(SY[-1, -1])
        L = np.tril(SY, -1)
        M = np.block([[-np.diag(np.diag(SY)), L.T], [L, sigma * (S @ S.T)]])
        return cls(sigma, np.concatenate([Y, sigma * S]).T, M)

    @property
    def count(self) -> int:
        """How many pairs B has."""
        return len(self.M) // 2

    def times(self, v: Array) -> Array:
        """B v."""
        if not self.count:
            return self.sigma * v
        return self.sigma * v - self.W @ np.linalg.solve(self.M, self.W.T @ v)

    def newton(self, r: Array, free: npt.NDArray[np.bool_]) -> Array:
        """d with d = 0 where a variable is not free, and B_FF d_F = -r_F."""
        d = np.where(free, -r / self.sigma, 0.0)
        if self.count:
            W = self.W[free]
            inner = self.M - W.T @ W / self.sigma
            d[free] += W @ np.linalg.solve(inner, W.T @ d[free]) / self.sigma
        return d


def _curved(s: Array, y: Array) -> bool:
    product, sizes = float(s @ y), norm(s) * norm(y)
    return 0.0 < sizes < np.inf and product > CURVED * sizes


def minimise(g: Array, B: Secants, l: Array, h: Array) -> tuple[Array, float]:  # noqa: E741 (the symbol)
    """The minimiser s of q over l <= s <= h, where l <= 0 <= h, and the decrease -q(s) >= 0 that it promises."""
    s, Bs, first = np.zeros_like(g), np.zeros_like(g), 0.0
    for turn in range(TURNS):
        r = g + Bs
        size = norm(np.clip(s - r / B.sigma, l, h) - s)
        first = first or size
        if size <= TOLERANCE * first or size == 0.0:
            break
        before = s
        s, Bs = _search(s, Bs, -r / B.sigma, r, B, (l, h))
        r = g + Bs
        free = ((s > l) | (r < 0.0)) & ((s < h) | (r > 0.0))
        if B.count and free.any():
            s, Bs = _search(s, Bs, B.newton(r, free), r, B, (l, h))
        if turn and np.array_equal(before, s):
            break
    return s, max(-float(g @ s + 0.5 * (s @ Bs)), 0.0)


def _search(s: Array, Bs: Array, d: Array, r: Array, B: Secants, box: tuple[Array, Array]) -> tuple[Array, Array]:
    """The projection of s + t d with a t at which q, whose gradient at s is r, falls by a share of its slope."""
    t = 1.0
    for _ in range(HALVINGS):
        moved = np.clip(s + t * d, *box)
        step = moved - s
        image = B.times(step)
        slope = float(r @ step)
        if slope < 0.0 and slope + 0.5 * float(step @ image) <= DECREASE * slope:
            return moved, Bs + image
        t *= 0.5
    return s, Bs


def shortest(G: Array) -> Array:
    """The shortest vector of the convex hull of the rows of G."""
    A = np.vstack([G.T / (float(np.abs(G).max()) or 1.0), np.ones(len(G))])
    weights, _ = nnls(A, np.append(np.zeros(G.shape[1]), 1.0))
    result: Array = (weights / weights.sum()) @ G
    return result
