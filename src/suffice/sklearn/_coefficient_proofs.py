r"""What is proven of every coefficient of the final model: the sign of the exact one, or that it is zero, and how far
it is off. With ||w - w_hat|| <= R from the solver's certificate, f without its l1:

- *verified* (`suffice.prove.verified`): w_hat has the signs and the zeros of w, |w_j - w_hat_j| <= |n_j| + epsilon
  ||e_j||_{H^-1}, and where there is no l1_j the sign is that of w_j + n_j if this is larger than what it errs by;
- elsewhere |w_j| > R proves a sign, and |grad_j f(w)| + e + L R < l1_j a zero: grad f errs by e in arithmetic, and
  changes by no more than L R on the way to w_hat.

The first is of rows as the model sees them, never centred, unless these are shared by folds.

*Standard errors* of models without an l1 are those of the sandwich for the estimating equations of the ridge, H and u_i
= a_i psi'_i x_i at w, the intercept among the variables:

    V = H^-1 ( sum_i u_i u_i^T ) H^-1,        se_j = V_jj^(1/2).

They say how much w_j varies from sample to sample, at this l2, whether the family is right or not (White 1980); not how
far a ridge pulls it towards zero, nor what tuning adds. With no fewer variables than rows they say nothing.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from suffice.arrays import EPS, Array, host
from suffice.models.margin_losses import Bending
from suffice.models.multinomial import Multinomial
from suffice.models.smooth import Ridged
from suffice.penalties.groups import SparseGroup
from suffice.penalties.prox import BoxL1, Lasso
from suffice.protocols import conforms
from suffice.prove.factor import ROWS
from suffice.prove.verified import Verifiable, Verification
from suffice.rows.rounding import TINY, gamma
from suffice.sklearn.folds import LinearFold
from suffice.solvers.certificate import Certificate, Evidence, verified
from suffice.solvers.problem import Canonical, Composite
from suffice.solvers.solution import Solution

MOST_PRODUCTS = 2e10  # N s^2, s the support: about a second
OPEN, ZERO, PLUS, MINUS = "open", "zero", "+", "-"

Texts = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class CoefficientProofs:
    """One row for every output and one column for every one that the model sees."""

    proven: Texts
    radius: Array  #: of the coefficient as it is delivered
    se: Array  #: NaN where there is no theory
    spread: Array  #: the standard deviation of each column, rows weighted as the model does it; NaN: not known

    @classmethod
    def of(cls, split: Any, problem: Composite, solution: Solution, until: float) -> CoefficientProofs:
        """Of a model of all rows, a `Split`; nothing sharp once `until` has passed."""
        fold, x = split.model, solution.x
        R = float(solution.certificate.radius)
        if not isinstance(fold, LinearFold):
            coef = np.atleast_2d(fold.coefficients(x)[0])
            nothing = np.full(coef.shape, math.nan)
            return cls(_by_radius(coef, R), np.full(coef.shape, R), nothing, nothing[0])
        proven, radius, se = _by_radius(x, R), np.full(x.shape, R), np.full(x.shape, math.nan)
        proven[_zeros(problem.canonical, x, R)] = ZERO
        radius[(proven == ZERO) & (x == 0.0)] = 0.0
        found = _verified(split, problem, x) if time.monotonic() < until else None
        if found is not None:
            proof, model, own = found
            proven, radius = _told(proof, model, x)
            se = _standard_errors(proof, model, own, x)
        laid, design = fold.laid_out, fold.design
        spread = np.sqrt(np.maximum(design.column_norms**2 - design.mean**2, 0.0))
        spread = laid(np.tile(spread, fold.learner.outputs), math.nan)[0]
        return cls(laid(proven, ZERO), laid(radius, 0.0), laid(se, math.nan), spread)

    def beside(self, ours: Array, theirs: Array) -> CoefficientProofs:
        """The same of coefficients of somebody else, whose exact ones are the same."""
        apart = np.abs(np.reshape(theirs, self.radius.shape) - np.reshape(ours, self.radius.shape))
        return replace(self, radius=(self.radius + apart) * (1.0 + 4.0 * EPS))


def _by_radius(w: Array, R: float) -> Texts:
    return np.where(np.abs(w) > R, np.where(w > 0.0, PLUS, MINUS), OPEN)


def _zeros(problem: Canonical, x: Array, R: float) -> npt.NDArray[np.bool_]:
    """Entries that are zero at the exact minimiser, by the gradient at x and the distance from there."""
    f, g = problem.f, problem.g
    if not (isinstance(g, Lasso | BoxL1 | SparseGroup) and f.rounding_is_known and math.isfinite(problem.L * R)):
        return np.zeros(x.shape, dtype=np.bool_)
    image = f.image(x)
    gradient = f.gradient_at(x, image)
    off = (f.gradient_rounding(x, image) + problem.L * R) * (1.0 + 8.0 * EPS) + TINY
    if isinstance(g, SparseGroup):
        small = g.norms(gradient) * (1.0 + gamma(len(x) + 8)) + off < g.weights * (1.0 - 4.0 * EPS)
        zero = np.zeros(x.shape, dtype=np.bool_)
        for group, inside in zip(g.groups, small, strict=True):
            zero[np.asarray(group)] = inside
        return np.asarray(zero & (x == 0.0))
    pull, limit = np.abs(gradient), np.broadcast_to(np.asarray(g.l1, dtype=np.float64), x.shape)
    if isinstance(g, BoxL1):
        if not g.one_sided:
            return np.zeros(x.shape, dtype=np.bool_)
        pull = np.where(np.broadcast_to(np.asarray(g.lower) == 0.0, x.shape), -gradient, pull)
    return np.asarray((x == 0.0) & (pull + off < limit * (1.0 - 4.0 * EPS)))


def claims(problem: Composite, x: Array, proof: Certificate) -> Texts:
    """What the certificate of a point proves of every weight of the minimiser."""
    known = _by_radius(x, float(proof.radius))
    model = None if proof.verification is None else Verifiable.of(problem.canonical, len(x))
    if proof.verification is not None and model is not None:
        return _told(proof.verification, model, x)[0]
    known[_zeros(problem.canonical, x, float(proof.radius))] = ZERO
    return known


Proof = tuple[Verification, Verifiable, LinearFold]


def _verified(split: Any, problem: Composite, x: Array) -> Proof | None:
    """The proof on rows as they were given, where it is possible and no dearer than the fit."""
    canonical, fold = problem.canonical, split.model
    model = Verifiable.of(canonical, len(x))
    if model is None:
        return None
    free = np.count_nonzero((x != 0.0) | (model.l1.ravel() == 0.0))
    if fold.design.shape[0] * float(free) ** 2 > MOST_PRODUCTS:
        return None
    own = fold.as_given(split.rows, split.y)
    term = own.model(canonical.term.l2)  # type: ignore[attr-defined]
    here = replace(canonical, f=Ridged(term, canonical.ridge) if isinstance(canonical.f, Ridged) else term)
    with np.errstate(over="ignore", invalid="ignore"):
        proof = verified(here, x, Evidence.at(here, x))
    return None if proof is None or proof.verification is None else (proof.verification, model, own)


def _told(proof: Verification, model: Verifiable, x: Array) -> tuple[Texts, Array]:
    """Signs and distances of all weights."""
    variables, shape = proof.factor.variables, model.l1.shape
    doubt = proof.slack * proof.factor.spread(slice(None))[0] * (1.0 + 8.0 * EPS) + TINY
    step, off = (_placed(values, variables, shape).ravel() for values in (proof.step, doubt))
    there = x + step
    clear = np.abs(there) > off + 4.0 * EPS * (np.abs(x) + np.abs(step))
    signed = model.l1.ravel() > 0.0
    signed = signed if model.positive is None else signed | model.positive.ravel()
    at = np.where(signed, x, np.where(clear, there, 0.0))
    texts = np.where(at > 0.0, PLUS, np.where(at < 0.0, MINUS, np.where(signed, ZERO, OPEN)))
    return texts, (np.abs(step) + off) * (1.0 + 8.0 * EPS)


def _placed(values: Array, variables: Any, shape: tuple[int, ...]) -> Array:
    """Values of the variables among all weights, zeros elsewhere."""
    whole = np.zeros(shape)
    for k, (columns, place) in enumerate(zip(variables.columns, variables.places, strict=True)):
        whole[k, columns] = values[place][: len(columns)]
    return whole


def _standard_errors(proof: Verification, model: Verifiable, fold: LinearFold, x: Array) -> Array:
    """se of every weight; NaN where the module's text has none, and of rows that are not in main memory."""
    factor, design, K = proof.factor, fold.design, model.outputs
    a, nothing = design.here(design.weights), np.full(x.shape, math.nan)
    known = model.loss is None or conforms(model.loss, Bending)
    if np.any(model.l1 > 0.0) or model.positive is not None or not (design.rows.at_hand and known):
        return nothing
    if np.count_nonzero(a) <= len(factor):
        return nothing
    m, y = np.reshape(design.margins(x.reshape(K, -1).T), (-1, K)) + proof.b, np.asarray(fold.y)
    if isinstance(model.model, Multinomial):
        slopes = softmax(m, axis=1) - (y.astype(int)[:, None] == np.arange(K))
    else:
        m = m[:, 0] if fold.offset is None else m[:, 0] + fold.offset
        slopes = np.reshape(model.loss.derivative(m, y), (-1, 1))
    middle = np.zeros((len(factor), len(factor)))
    for here, parts in factor.variables.rows(design.X, factor.scale, ROWS):
        pulls = [host(part) * (a[here] * slopes[here, k])[:, None] for k, part in enumerate(parts)]
        U = np.hstack(pulls) @ factor.Z
        middle += U.T @ U
    variances = ((factor.Z @ middle) * factor.Z).sum(axis=1)
    se = np.sqrt(np.maximum(variances, 0.0)) * factor.scale
    return _placed(se, factor.variables, model.l1.shape).ravel()
