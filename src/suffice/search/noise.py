r"""Noise: what no request reduces, and how the search goes on in spite of it.

A residual is seen as r~ = r + noise of standard deviation s_t at the point u_t. Where s_t comes from:

- `Options(noise="additive" or "multiplicative", noise_level=sigma)`: s_t = sigma, or sigma times the root mean square
  of the residuals at u_t;
- `noise="unknown"`: sigma and which of the two are estimated from the fit below;
- an oracle whose proven errors e have stopped falling: s_t = e / sqrt(3), as if they were uniform within their bounds.

**Model.** Interpolation would reproduce the noise. Instead every residual is modelled by a quadratic c + g.s + s.H s/2
that minimises  sum_t (model(z_t) - r_t)^2 / s_t^2 + ||H||_F^2 / (2 kappa)  over all points nearby, also those that
have left the model. With P = [1, z], Q_tu = (z_t.z_u)^2 / 2, D = diag(s_t^2) the minimiser is

    lam = (kappa Q + D)^{-1} (r - P beta),  P^T lam = 0,  beta = (c, g),  H = kappa sum_t lam_t z_t z_t^T,

linear in r, so that F(s) ~ phi(s)^T G phi(s) as in `suffice.search.model`. kappa = 0 is linear regression, kappa =
infinity the interpolant with the least curvature. On the vectors orthogonal to P the whitened residuals have variances
1 + kappa a_j, a_j the eigenvalues of D^{-1/2} Q D^{-1/2} there: kappa, and an unknown sigma, maximise this (restricted)
likelihood, all residuals being equally likely.

**Noise of F.** F~ has variance 4 s^2 F + 2 n s^4, so a difference of two has the standard deviation
eps = sqrt(2 (4 s^2 F + 2 n s^4)). A step is judged by (F^_k - F~_new + eps) / (pred + eps), F^_k the model's own value
where the step starts: what noise alone can do is no failure of the model.

The incumbent is the one of the m+1 points at which F is least by the model: F~ alone would choose the luckiest.

**Restarts.** The predicted decrease has itself a standard deviation, that of F~ times ||phi(s) - phi(0)||. A step that
promises less shows nothing but noise. Then the radius grows again, and m new points along random directions from the
incumbent join the old ones, whose noise the regression averages out. A restart that has not decreased F by a quarter
of eps was in vain; after `IN_VAIN` of these in a row the search ends: what is left to gain cannot be
distinguished from noise. An oracle that is at the limit of its arithmetic (F proven to a relative error of
`ROUNDING`) ends it without restarts, and so does an F that is down to `NOTHING` of what it was.

None of this is proven. Where errors are proven but cannot be reduced, intervals of F still hold, and a verdict that
they decide is a proof; the others are marked as not proven. Unbounded noise (`Options(noise=...)`) leaves no proof at
all: the result has no interval of F.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.arrays import Array, norm
from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.result import Status
from suffice.search.accuracy import by_policy
from suffice.search.geometry import first_points
from suffice.search.model import Basis, GramModel, fit
from suffice.search.state import Iterate, Restarts, Setting
from suffice.search.step import eigenvalues

IN_VAIN = 10
GAIN, NOTHING = 0.25, 1e-10  # of eps and of F at the start, by which a restart must have decreased F
ROUNDING = 1e-4  # a proven error of F, relative to F, that no restart is worth
FEWEST = 3  # points beyond those of a linear model from which an unknown noise is estimated
GRID = 10.0 ** np.arange(-2.0, 13.0)  # kappa times the largest a_j
NEAR = 3.0  # points within this many trust radii are always used
WIDEN = 4.0  # the radius after a restart, over the one at which there was nothing but noise
WIDEST = 4.0  # of initial_radius
BACK = (0.25, 0.06, 0.016, 0.004)  # of initial_radius: where a search that has come to final_radius looks again


@dataclass(frozen=True)
class Fit:
    """A regression around the incumbent, and the noise that it has found or was given."""

    model: GramModel
    smoothed: Array  # F at the m+1 points by the model, without what noise adds on average
    spread: float  # the standard deviation of F~ at the incumbent
    bias: float  # what noise adds to F~ there on average

    @property
    def eps(self) -> float:
        return math.sqrt(2.0) * self.spread

    def doubt(self, s: Array) -> float:
        """The standard deviation of the decrease that the model predicts."""
        return self.spread * norm(self.model.basis.phi(s) - self.model.basis.c)


def regression(
    points: Array, evaluations: Sequence[Evaluation], k: int, old: int, coarse: bool, options: Options
) -> Fit:
    """Quadratic models of all residuals by regularised regression, centred at the k-th of the points (rows); the last
    `old` of them are points that have left the model."""
    z = points - points[k]
    unit = float(np.max(np.linalg.norm(z, axis=1)))
    z = z / unit
    r = np.array([one.coarse if coarse else one.r for one in evaluations])
    sizes = np.sqrt(np.mean(r**2, axis=1))
    sizes = np.maximum(sizes, 1e-8 * sizes.max() + 1e-300)
    unknown = options.noise == "unknown"
    if unknown:
        candidates = [np.ones(len(z)), sizes]
    elif options.noise is not None:
        assert options.noise_level is not None
        candidates = [options.noise_level * (sizes if options.noise == "multiplicative" else np.ones(len(z)))]
    else:
        errors = np.array([math.sqrt(float(np.mean(one.e**2)) / 3.0) for one in evaluations])
        candidates = [np.maximum(errors, 1e-8 * errors.max() + 1e-300)]
    usual = 1e-100 < sizes.max() < 1e100
    c = 1.0 if usual or not math.isfinite(sizes.max()) else float(sizes.max())  # squares of r / c are numbers
    likelihoods = [_likeliest(z, r / c, s / c, unknown) for s in candidates]
    chosen = int(np.argmax([likelihood for likelihood, _, _ in likelihoods]))
    _, kappa, sigma = likelihoods[chosen]
    s = candidates[chosen]
    basis = _basis(z, s / c, kappa, unit, tuple(range(old)))
    first = len(points) - old
    model = fit(basis, k, r[:first], r[first:])
    if unknown or options.noise is not None:
        relative = options.noise == "multiplicative" or (unknown and chosen == 1)
        each = sigma * s[k] * (np.abs(r[k]) / sizes[k] if relative else np.ones(r.shape[1]))
    else:
        each = np.full(r.shape[1], s[k])
    bias = float(each @ each)
    phis = np.array([basis.phi(z[t] * unit) for t in range(first)])
    at = phis @ r
    smoothed = np.sum(at**2, axis=1) - bias * np.sum(phis**2, axis=1)
    smoothed = np.where(np.isnan(smoothed), math.inf, smoothed)  # of residuals too large for products to be numbers
    return Fit(model, smoothed, math.sqrt(float(np.sum(4.0 * each**2 * r[k] ** 2 + 2.0 * each**4))), bias)


def unsure(state: Iterate, setting: Setting) -> bool:
    """Whether noise may hide something worth a restart: F is neither negligible nor known to rounding."""
    best, options = setting.ledger.better(state.current).evaluation, setting.options
    known = options.noise is None and by_policy(best, options).error <= ROUNDING * best.cost
    return best.cost > NOTHING * setting.ledger.records[0].cost and not known


def restart(state: Iterate, fitted: Fit, setting: Setting) -> Iterate:
    """Look again from the incumbent, on a larger radius and along other directions."""
    options, restarts, begun = setting.options, state.restarts, setting.ledger.records[0]
    reached = float(fitted.smoothed[state.k])
    gain = max(GAIN * fitted.eps, NOTHING * begun.cost)
    in_vain = 0 if reached < restarts.mark - gain else restarts.in_vain + 1
    if in_vain > IN_VAIN or not unsure(state, setting):
        best = by_policy(setting.ledger.better(state.current).evaluation, options)
        progress = best.interval[1] < begun.interval[0]
        known = options.noise is not None or progress or best.error <= 0.1 * best.cost
        return replace(state, status=Status.NOISE if known else Status.ACCURACY)
    delta, count = _next_radius(state.delta, in_vain, options), restarts.count + 1
    first = first_points(state.current.u, delta, *setting.box, count + 1000 * (options.seed or 0))[1:]
    others = [point for t, point in enumerate(state.points) if t != state.k]
    restarts = Restarts(count, in_vain, reached)
    state = replace(state, delta=delta, rho=delta, first=tuple(first), restarts=restarts)
    return replace(state, points=(state.current,), k=0).pooled(*others)


def _next_radius(delta: float, in_vain: int, options: Options) -> float:
    """The trust radius of a restart: wider, and from final_radius back to some of the larger ones. An unknown noise may
    turn out to be what a quadratic misses on too large a radius, so then narrower and wider in turn."""
    if delta <= WIDEN * options.final_radius:
        return max(options.initial_radius * BACK[in_vain % len(BACK)], options.final_radius)
    factor = WIDEN
    if options.noise == "unknown":
        factor = WIDEN**2 if in_vain % 2 else 1.0 / WIDEN
    return min(factor * delta, max(WIDEST * options.initial_radius, delta))


def nearest(u: Array, others: Sequence[Array], delta: float) -> list[int]:
    """Which old points to use: all within NEAR delta, and more up to twice what a linear model needs."""
    m = len(u)
    distances = [norm(other - u) for other in others]
    order = sorted(range(len(others)), key=lambda i: (distances[i], -i))
    return [i for place, i in enumerate(order) if distances[i] <= NEAR * delta or place < m + 1]


def _basis(z: Array, s: Array, kappa: float, unit: float, old: tuple[int, ...]) -> Basis:
    """phi_t(s) for the fit with this kappa."""
    V, a, _ = _whitened(z, s)
    V = V / s[:, None]
    L = (V / (1.0 + kappa * a)) @ V.T  # r -> lam
    Q = 0.5 * (z @ z.T) ** 2
    P = np.column_stack([np.ones(len(z)), z])
    rest = np.eye(len(z)) - (kappa * Q + np.diag(s**2)) @ L
    beta = np.linalg.pinv(P / s[:, None], rcond=1e-12) @ (rest / s[:, None])
    return Basis(z, z, beta[0], beta[1:], kappa * L, unit, old, smooths=True)


def _whitened(z: Array, s: Array) -> tuple[Array, Array, Array]:
    """Orthonormal columns V with V^T D^{-1/2} P = 0 and V^T D^{-1/2} Q D^{-1/2} V = diag(a); a; log det of P's part."""
    P = np.column_stack([np.ones(len(z)), z]) / s[:, None]
    full, R = np.linalg.qr(P, mode="complete")
    Z = full[:, P.shape[1] :]
    Q = 0.5 * (z @ z.T) ** 2 / np.outer(s, s)
    a, U = eigenvalues(Z.T @ Q @ Z)
    return Z @ U, np.maximum(a, 0.0), R


def _likeliest(z: Array, r: Array, s: Array, unknown: bool) -> tuple[float, float, float]:
    """The restricted likelihood at its largest, kappa and sigma there (1 if s is the noise itself)."""
    V, a, R = _whitened(z, s)
    if not a.size or a[-1] <= 0.0:
        return 0.0, 0.0, 0.0 if unknown else 1.0
    if unknown and len(a) < FEWEST:
        return 0.0, GRID[-1] / a[-1], 0.0
    n = r.shape[1]
    scale = 2.0 * float(np.sum(np.log(s)) + np.sum(np.log(np.abs(np.diag(R)) + 1e-300)))
    energy = np.sum((V.T @ (r / s[:, None])) ** 2, axis=1)
    best = (-math.inf, 0.0, 1.0)
    for kappa in (0.0, *(GRID / a[-1])):
        v = 1.0 + kappa * a
        sigma2 = max(float(np.mean(energy / v)) / n, 1e-300) if unknown else 1.0
        likelihood = -float(np.sum(n * np.log(sigma2 * v) + energy / (sigma2 * v))) - n * scale
        if likelihood > best[0]:
            best = (likelihood, kappa, math.sqrt(sigma2))
    return best
