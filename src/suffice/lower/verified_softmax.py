r"""Verified solutions (`suffice.lower.verified`) of the multinomial model with K classes, without strong convexity:

    f(W, b) = sum_i a_i ( log sum_k exp(m_ik) - m_{i, y_i} ) + 1/2 sum_kj l2_kj W_kj^2,     m_i = W x_i + b,

and l1_kj |W_kj| on top. The variables of S are the W_kj that are not 0 or have no l1, and b but for its last entry:
softmax does not see a constant added to all.

In a direction that moves m_i by d_i, the derivative of v . H_i v, H_i = diag(p_i) - p_i p_i^T, is the mean of (v - mean
v)^2 (d_i - mean d_i), at most range(d_i) v . H_i v. So H_i changes by no more than the factor e^(+-a), a = max_i range(
d_i), in the order of matrices: this is all that steps 1 to 4 need, with kappa = max_i max_{k, l} of ||row k - row l||_{
H^-1} of the map B_i: h -> d_i, and C_ik = a_i p_ik (1 - p_ik), as e_k . H_i d <= ||e_k||_{H_i} ||d||_{H_i}.

Rounding. The computed p_i are those of margins that err by delta_ik each, products, sums and exponents included, times
1 + c_i, c_i = gamma_{K + 4} at most. The former moves u by sqrt(sum_i a_i delta_i . H_i delta_i) in the norm of H^-1,
and delta_i . H_i delta_i <= sum_k p_ik (delta_ik - delta_il)^2 for any l, such as the most probable class; the latter
is part of the sums' error, entry by entry.

Without an l2 and an l1 a vector added to all classes' weights changes nothing: H is singular, and nothing is verified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax

from suffice.arrays import EPS, Array, lives_elsewhere
from suffice.lower.parts import Parts
from suffice.lower.signed_factor import LEAST
from suffice.lower.softmax_factor import LEAST_PROBABILITY, SoftmaxFactor, Variables, two_largest
from suffice.lower.verified import Place, Region, Verification, bent_region, signs_kept
from suffice.problem import Canonical
from suffice.terms.blocks import Blocked
from suffice.terms.design import OF_FACTORS, largest_matrix
from suffice.terms.multinomial import Multinomial
from suffice.terms.rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class VerifiableSoftmax:
    """A multinomial model with l1 and l2, both K x d."""

    model: Multinomial
    l1: Array
    l2: Array

    @classmethod
    def of(cls, problem: Canonical, size: int) -> VerifiableSoftmax | None:
        """None for anything else, or where X is not in main memory."""
        parts = Parts.of(problem)
        model = parts.term
        if not isinstance(model, Multinomial) or parts.l1 is None:
            return None
        if isinstance(model.design.X, Blocked) or lives_elsewhere(model.design.X):
            return None
        penalties = (parts.l1, model.l2 + parts.ridge)
        return cls(model, *(np.broadcast_to(one, size).reshape(model.classes, -1) for one in penalties))


@dataclass(frozen=True, eq=False)
class SoftmaxVerification(Verification):
    """That of a multinomial model."""

    factor: SoftmaxFactor
    b: Array  # what `step` adds to

    def moved(self, X: Any) -> tuple[Array, Array]:
        """How n moves the margins of rows of X, N x K, and its rounding."""
        return self.factor.moved(X, self.step / self.factor.scale)

    def further(self, X: Any, useful: float) -> Array:
        """How much further h may move class k, but for a constant in all classes of a row, no sharper than useful."""
        return self.slack * self.factor.norms(X, useful / self.slack)


def verify_softmax(model: VerifiableSoftmax, w: Array, image: Array, gradient: Array) -> SoftmaxVerification | None:
    """The proof that the minimiser is close to w, or None. `image` is X W^T, a product, and `gradient` that of f at w,
    by this image."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _verify(model, w, image, gradient)


def _verify(stated: VerifiableSoftmax, w: Array, image: Array, gradient: Array) -> SoftmaxVerification | None:
    model, l1, l2 = stated.model, stated.l1, stated.l2
    design, (N, K) = model.design, image.shape
    W, gradient = w.reshape(K, -1), gradient.reshape(K, -1)
    free = (W != 0.0) | (l1 == 0.0)
    variables = Variables.of(free, model.intercept)
    if not 0 < len(variables) <= min(largest_matrix(design, K), N * (K - 1) + np.count_nonzero(l2[free])):
        return None
    a, b = design.weights, model.shift(image)[0]
    m = image + b
    p = softmax(m, axis=1)
    if not (np.isfinite(m).all() and np.all(p[a > 0.0] > LEAST_PROBABILITY)):
        return None
    p = np.maximum(p, LEAST_PROBABILITY)  # of rows without a weight
    q = np.column_stack([np.delete(p, k, axis=1).sum(axis=1) for k in range(K)])

    # delta, the margins' error, in the norms that matter
    top = m.max(axis=1, keepdims=True)
    products = [design.margin_rounding(one) * design.absolute_margins(one) for one in W]
    delta = np.column_stack(products) * (1.0 + gamma(len(w) + 8)) + TINY * len(w)
    delta += 4.0 * EPS * (np.abs(image) + np.abs(b)) + 2.0 * EPS * (top - m) + 4.0 * EPS
    likeliest = np.take_along_axis(delta, m.argmax(axis=1)[:, None], axis=1)
    others = np.where(np.arange(K) == m.argmax(axis=1)[:, None], 0.0, p)
    shaken = math.sqrt(float(a @ (others * (delta + likeliest) ** 2).sum(axis=1))) * (1.0 + gamma(N + K + 16))
    own = float(two_largest(delta)[a > 0.0].max()) + 16.0 * EPS

    # u = grad f + l1 sigma on S, and how far its sums may be off, entry by entry
    sigma = np.where(l1 > 0.0, np.sign(W), 0.0)
    slopes = p - model.onehot
    sizes = np.abs(slopes) + p
    rough = np.sqrt(a @ sizes**2) * (1.0 + gamma(N + K + 16))
    of_sums = np.array([gamma(float(count) + OF_FACTORS + K + 8) for count in design.pull.roundings])
    of_sums = rough[:, None] * (of_sums * design.column_norms) + 4.0 * EPS * (np.abs(gradient) + l2 * np.abs(W))
    of_sums += design.underflow
    u = variables.gathered(gradient + l1 * sigma, a @ slopes)
    of_intercepts = gamma(N + OF_FACTORS + K + 8) * (a @ sizes) * (1.0 + gamma(N)) + design.underflow
    error = variables.gathered(of_sums + 4.0 * EPS * l1, of_intercepts)

    factor = SoftmaxFactor.of(design, variables, p, q, l2)
    if factor is None:
        return None

    def bend(useful: float) -> float:
        return float(two_largest(factor.norms(design.X, useful))[a > 0.0].max())

    region = bent_region(factor, own, shaken, u, error, bend, a[:, None] * p * q * (1.0 + gamma(4 * K + 16)))
    if region is None:
        return None
    place = Place.of(factor, region, u)
    signs, weights = sigma[free], variables.weights
    bounds = signs_kept(factor, region, place, W[free], signs, weights)
    if bounds is None or not _zeros(stated, free, factor, region, gradient, of_sums, place, p):
        return None
    return SoftmaxVerification(factor, place.n * factor.scale, region.up * place.epsilon, *bounds, b)


def _zeros(
    stated: VerifiableSoftmax,
    free: Any,
    factor: SoftmaxFactor,
    region: Region,
    gradient: Array,
    of_sums: Array,
    place: Place,
    p: Array,
) -> bool:
    """Whether all weights outside the support are zero at the minimiser, by bounds that get sharper."""
    design, (N, K) = stated.model.design, p.shape
    a, C, up = design.weights, region.C, 1.0 + gamma(N + K + 16)
    outside = ~free
    steepest = np.sqrt(np.max(C[a > 0.0] / a[a > 0.0, None], axis=0)) * up
    slope, limit = np.abs(gradient) + of_sums, stated.l1 * (1.0 - 4.0 * EPS)
    if not (outside & ~(slope + region.pull * steepest[:, None] * design.column_norms < limit)).any():
        return True
    squares = design.X.multiply(design.X) if sp.issparse(design.X) else design.X**2
    lengths = np.sqrt(np.asarray(squares.T @ C).T) * up + LEAST
    if not (outside & ~(slope + region.pull * lengths < limit)).any():
        return True

    # The change to first order, of which the remainder is what n and r leave
    d, rounding = factor.moved(design.X, place.n)
    aP, mean = a[:, None] * p, (p * d).sum(axis=1, keepdims=True)
    sizes = aP * (np.abs(d) + (p * np.abs(d)).sum(axis=1, keepdims=True))
    change = np.asarray(design.X.T @ (aP * (d - mean))).T
    error = gamma(N + 4 * K + 24) * np.asarray(abs(design.X).T @ sizes).T
    error += lengths * up * (1.0 + region.eta) * math.sqrt(float((aP * rounding**2).sum()))
    error += lengths * up * region.eta * math.sqrt(float((aP * (d - mean) ** 2).sum()))
    error += 4.0 * EPS * (np.abs(gradient) + np.abs(change)) + of_sums
    there = np.abs(gradient + change) + error + lengths * (place.epsilon + region.remainder_pull)
    return bool(np.all((there < limit) | free))
