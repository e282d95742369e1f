r"""Weights that are proven to be zero at the solution of a linear model with an l1 penalty.

At the solution w_hat of  sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1,  w_hat_j != 0 only if the loss's
gradient has |X_j^T A psi'(m_hat)| > l1, A = diag(a). With psi'' <= gamma, the loss's Bregman distance bounds how far
psi' can be from there, and the duality gap G of any w bounds that distance:

    1/(2 gamma) ||A^(1/2) (psi'(m) - psi'(m_hat))||^2  <=  Phi(w) - Phi(w_hat)  <=  G,

    |X_j^T A psi'(m)| + ||A^(1/2) X_j|| sqrt(2 gamma G) < l1   implies   w_hat_j = 0

(Ndiaye, Fercoq, Gramfort and Salmon, JMLR 18, 2017). G = B + (mu/2) ||w - w_bar||^2 as in
`suffice.solvers.certificate`. A gradient that errs by at most e changes G by at most ||w - w_bar|| e + e^2/(2 mu), and
each of its entries by at most e.

A variable that is proven to be zero leaves the problem: `Restricted` is f without its column of X. The minimiser of
what is left is w_hat, so that proofs carry over: with zeros in place of the gradient's entries that are no longer
computed, every formula of `suffice.solvers.certificate` gives what it would give without these variables.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm, vector
from suffice.models.linear import LinearModel
from suffice.models.smooth import ImagedSmooth
from suffice.penalties.prox import Indices
from suffice.rows.design import Design
from suffice.rows.rounding import gamma as roundings
from suffice.solvers.hessian import entries as stored
from suffice.solvers.problem import Canonical, Composite, LinearParts

# The share of entries of X, of those that are left, that may stay for a smaller X to pay: one of rows in compressed
# storage costs as much to make as several products.
SHRINK, SHRINK_SPARSE = 0.7, 0.4
LARGE, SHRINK_LARGE = 1 << 25, 0.25  # bytes of a dense X, from which on copies are to be small


def proven_zeros(problem: Composite, x: Array) -> npt.NDArray[np.bool_]:
    """Which weights are zero at the solution, as far as the point x can prove it: one gradient.

    The closer x is to the solution, the more; nothing is proven where psi'' is unbounded, as for Poisson regression.
    """
    canonical = problem.canonical
    terms = LinearParts.of(canonical)
    if terms is None:
        raise ValueError("proven_zeros needs a linear model with an l1 penalty")
    x, size = vector(x, "x"), terms.model.design.shape[1]
    if x.shape != (size,):
        raise ValueError(f"x must have shape ({size},), got {x.shape}")
    image = canonical.f.image(x)
    gradient = canonical.f.gradient_at(x, image)
    return _zeros(canonical, terms, x, gradient, canonical.f.gradient_rounding(x, image))


def _zeros(problem: Canonical, terms: LinearParts, z: Array, gradient: Array, e: float) -> npt.NDArray[np.bool_]:
    mu, gamma, design = problem.mu, terms.model.loss.curvature, terms.model.design
    if not math.isfinite(gamma) or not np.any(terms.l1):
        return np.zeros(z.shape, dtype=np.bool_)
    e = e + 8.0 * EPS * (mu * norm(z) + norm(gradient))  # what is done with the gradient is rounded as well
    w_bar, B = problem.g.remainder(z, mu * z - gradient, mu)
    D = norm(z - w_bar) + 8.0 * EPS * norm(z)
    G = (B + 0.5 * mu * D * D) * (1.0 + 64.0 * EPS) + D * e + 0.5 * e * e / mu
    slack = 1.0 + roundings(sum(design.shape))
    reach = design.column_norms * math.sqrt(2.0 * gamma * G) * slack
    loss_gradient = np.abs(gradient - terms.l2 * z)
    proven: npt.NDArray[np.bool_] = (loss_gradient + reach + e) * (1.0 + 16.0 * EPS) < terms.l1
    return proven


@dataclass(frozen=True, eq=False)
class Restricted:
    """f on the variables `active`, all others being zero; `design` holds their columns. Vectors keep their length."""

    f: ImagedSmooth
    model: LinearModel
    l2: float | Array
    active: Indices
    design: Design

    @classmethod
    def to(cls, problem: Canonical, active: Indices) -> Canonical:
        terms = LinearParts.of(problem)
        assert terms is not None and isinstance(terms.model, LinearModel)
        columns = _memory.columns(terms.model.design, active)
        return replace(problem, f=cls(problem.f, terms.model, terms.l2, active, columns))  # type: ignore[arg-type]

    def image(self, x: Array) -> Array:
        image: Array = self.design.margins(x[self.active])
        return image

    def gradient_at(self, x: Array, image: Array) -> Array:
        residual = self.model.loss.derivative(image, self.model.y)
        residual *= self.design.weights
        gradient = np.zeros_like(x)
        gradient[self.active] = self.design.adjoint(residual) + (self.l2 * x)[self.active]
        return gradient

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        return self.f.majoriser(z, z_image, x, x_image)


class _LastColumns(threading.local):
    """The last smaller X of this thread: solutions that are kept do not hold on to theirs."""

    def __init__(self) -> None:
        self.last: tuple[Design, Indices, Design] | None = None

    def columns(self, design: Design, active: Indices) -> Design:
        if self.last is None or self.last[0] is not design or self.last[1] is not active:
            self.last = None
            self.last = (design, active, design.columns(active))
        return self.last[2]


_memory = _LastColumns()


def still_active(
    problem: Canonical, z: Array, z_image: Array, gradient: Array, before: Indices | None
) -> Indices | None:
    """The variables that are left, where leaving the others out pays; None where it does not, or nothing is proven."""
    terms = LinearParts.of(problem)
    if terms is None or not isinstance(terms.model, LinearModel) or terms.model.offset is not None:
        return None
    design = terms.model.design
    if not design.rows.at_hand:
        return None
    left = _zeros(problem, terms, z, gradient, problem.f.gradient_rounding(z, z_image))
    np.logical_not(left, out=left)
    here = np.ones(len(z), dtype=np.bool_)
    if before is not None:
        here[:] = False
        here[before] = True
        left &= here
    entries = design.column_entries
    size = math.prod(design.shape)
    enough = SHRINK_SPARSE if stored(design) < size else SHRINK_LARGE if 8 * size >= LARGE else SHRINK
    return np.flatnonzero(left) if entries[left].sum() <= enough * entries[here].sum() else None
