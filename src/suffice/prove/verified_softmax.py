r"""Verified solutions (`suffice.prove.verified`) of the multinomial model with K classes, without strong convexity:

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

Sums over rows are made where the rows are (`suffice.prove.verified_softmax_rows`): in main memory, or block by block.

Without an l2 and an l1 a vector added to all classes' weights changes nothing: H is singular, and nothing is verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, lives_elsewhere
from suffice.models.multinomial import Multinomial
from suffice.models.row_softmax import RowsMultinomial
from suffice.penalties.prox import Lasso
from suffice.prove.signed_factor import LEAST
from suffice.prove.softmax_factor import SoftmaxFactor, Variables
from suffice.prove.verified import Place, Region, Verification, bent_region, signs_kept
from suffice.prove.verified_softmax_blocks import SoftmaxInBlocks
from suffice.prove.verified_softmax_rows import SoftmaxInMemory, SoftmaxRows
from suffice.rows.blocks import Blocked, Margins
from suffice.rows.design import OF_FACTORS, largest_matrix
from suffice.rows.rounding import gamma
from suffice.solvers.problem import Canonical


@dataclass(frozen=True, eq=False)
class VerifiableSoftmax:
    """A multinomial model with l1 and l2, both K x d."""

    model: Multinomial
    l1: Array
    l2: Array

    @classmethod
    def of(cls, problem: Canonical, size: int) -> VerifiableSoftmax | None:
        """None for anything else, or where X is on a device."""
        model, g = problem.term, problem.g
        if not isinstance(model, Multinomial) or not isinstance(g, Lasso):
            return None
        if isinstance(model.design.X, Blocked) is not isinstance(model, RowsMultinomial):
            return None  # a model that knows nothing of blocks
        if lives_elsewhere(model.design.X):
            return None
        penalties = (g.l1, model.l2 + problem.ridge)
        return cls(model, *(np.broadcast_to(one, size).reshape(model.classes, -1) for one in penalties))

    def rows(self, W: Array, image: Any, b: Array, variables: Variables) -> SoftmaxRows:
        """What is asked of rows at W."""
        if isinstance(self.model, RowsMultinomial):
            return SoftmaxInBlocks(self.model, W, image, b, variables)
        return SoftmaxInMemory(self.model, W, image, b, variables)


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


def verify_softmax(model: VerifiableSoftmax, w: Array, image: Any, gradient: Array) -> SoftmaxVerification | None:
    """The proof that the minimiser is close to w, or None. `image` is X W^T, a product, and `gradient` that of f at w,
    by this image."""
    if isinstance(image, Margins) and not image.is_product:
        return None  # what was carried along straight lines errs by more
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _verify(model, w, image, gradient)


def _verify(stated: VerifiableSoftmax, w: Array, image: Any, gradient: Array) -> SoftmaxVerification | None:
    model, l1, l2 = stated.model, stated.l1, stated.l2
    design, N, K = model.design, model.design.shape[0], model.classes
    W, gradient = w.reshape(K, -1), gradient.reshape(K, -1)
    free = (W != 0.0) | (l1 == 0.0)
    variables = Variables.of(free, model.intercept)
    if not 0 < len(variables) <= min(largest_matrix(design, K), N * (K - 1) + int(np.count_nonzero(l2[free]))):
        return None
    b = model.shift(image)[0]
    rows = stated.rows(W, image, b, variables)
    facts = rows.facts()
    if facts is None:
        return None

    # u = grad f + l1 sigma on S, and how far its sums may be off, entry by entry
    sigma = np.where(l1 > 0.0, np.sign(W), 0.0)
    of_sums = np.array([gamma(float(count) + OF_FACTORS + K + 8) for count in design.pull.roundings])
    of_sums = facts.rough[:, None] * (of_sums * design.column_norms) + 4.0 * EPS * (np.abs(gradient) + l2 * np.abs(W))
    of_sums += design.underflow
    u = variables.gathered(gradient + l1 * sigma, facts.total)
    of_intercepts = gamma(N + OF_FACTORS + K + 8) * facts.size + design.underflow
    error = variables.gathered(of_sums + 4.0 * EPS * l1, of_intercepts)

    factor = rows.factor(l2)
    if factor is None:
        return None
    region = bent_region(factor, facts.own, facts.shaken, u, error, lambda useful: rows.reach(factor, useful), rows.C)
    if region is None:
        return None
    place = Place.of(factor, region, u)
    signs, weights = sigma[free], variables.weights
    bounds = signs_kept(factor, region, place, W[free], signs, weights)
    if bounds is None or not _zeros(stated, rows, free, factor, region, gradient, of_sums, place):
        return None
    return SoftmaxVerification(factor, place.n * factor.scale, region.up * place.epsilon, *bounds, b)


def _zeros(
    stated: VerifiableSoftmax,
    rows: SoftmaxRows,
    free: Any,
    factor: SoftmaxFactor,
    region: Region,
    gradient: Array,
    of_sums: Array,
    place: Place,
) -> bool:
    """Whether all weights outside the support are zero at the minimiser, by bounds that get sharper."""
    design, N, K = stated.model.design, stated.model.design.shape[0], stated.model.classes
    up, outside = 1.0 + gamma(N + K + 16), ~free
    steepest = np.sqrt(rows.steepest(region.C)) * up
    slope, limit = np.abs(gradient) + of_sums, stated.l1 * (1.0 - 4.0 * EPS)
    if not (outside & ~(slope + region.pull * steepest[:, None] * design.column_norms < limit)).any():
        return True
    lengths = np.sqrt(rows.squares(region.C)) * up + LEAST
    if not (outside & ~(slope + region.pull * lengths < limit)).any():
        return True

    # The change to first order, of which the remainder is what n and r leave
    found = rows.change(factor, place.n)
    error = gamma(N + 4 * K + 24) * found.sizes
    error += lengths * up * (1.0 + region.eta) * found.blur
    error += lengths * up * region.eta * found.along
    error += 4.0 * EPS * (np.abs(gradient) + np.abs(found.change)) + of_sums
    there = np.abs(gradient + found.change) + error + lengths * (place.epsilon + region.remainder_pull)
    return bool(np.all((there < limit) | free))
