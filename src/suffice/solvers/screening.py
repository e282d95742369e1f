r"""Weights that are proven to be zero at the solution of a linear model with an l1 penalty.

At the solution w_hat of  sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + l1 ||w||_1,  w_hat_j != 0 only if the loss's
gradient has |X_j^T A psi'(m_hat)| > l1, A = diag(a). With psi'' <= gamma, the loss's Bregman distance bounds how far
psi' can be from there, and the duality gap G of any w bounds that distance:

    1/(2 gamma) ||A^(1/2) (psi'(m) - psi'(m_hat))||^2  <=  Phi(w) - Phi(w_hat)  <=  G,

    |X_j^T A psi'(m)| + ||A^(1/2) X_j|| sqrt(2 gamma G) < l1   implies   w_hat_j = 0

(Ndiaye, Fercoq, Gramfort and Salmon, JMLR 18, 2017). G = B + (mu/2) ||w - w_bar||^2 as in
`suffice.solvers.certificate`. A gradient that errs by at most e changes G by at most ||w - w_bar|| e + e^2/(2 mu), and
each of its entries by at most e.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suffice.arrays import EPS, Array, norm, vector
from suffice.rows.rounding import gamma as roundings
from suffice.solvers.problem import Composite, LinearParts


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
    gradient, e = canonical.f.gradient_at(x, image), canonical.f.gradient_rounding(x, image)
    mu, gamma, design = canonical.mu, terms.model.loss.curvature, terms.model.design
    if not math.isfinite(gamma) or not np.any(terms.l1):
        return np.zeros(x.shape, dtype=np.bool_)
    e = e + 8.0 * EPS * (mu * norm(x) + norm(gradient))  # what is done with the gradient is rounded as well
    w_bar, B = canonical.g.remainder(x, mu * x - gradient, mu)
    D = norm(x - w_bar) + 8.0 * EPS * norm(x)
    G = (B + 0.5 * mu * D * D) * (1.0 + 64.0 * EPS) + D * e + 0.5 * e * e / mu
    slack = 1.0 + roundings(sum(design.shape))
    reach = design.column_norms * math.sqrt(2.0 * gamma * G) * slack
    loss_gradient = np.abs(gradient - terms.l2 * x)
    proven: npt.NDArray[np.bool_] = (loss_gradient + reach + e) * (1.0 + 16.0 * EPS) < terms.l1
    return proven
