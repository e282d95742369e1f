r"""How far the derivatives of smoothed total variation (`suffice.imaging.variation`) can move with the image.

With phi(d) = sqrt(|d|^2 + eps^2), eta = phi(d), let x move by no more than R. Then differences at a pixel move by no
more than delta = ||D|| R, ||D||^2 <= 4 per axis.

- phi'' = (1 - d d^T / eta^2) / eta. Its derivative is a symmetric form of three directions, which is largest where all
  are the same one (Banach): 3 (t - t^3) / eta^2 for t = d.u / eta, at most 2 / (3^(1/2) eta^2). With |t| <= |d| / eta
  it is at most 48 / (25 5^(1/2) eps^2) < 0.8588 / eps^2. So phi'' moves by at most delta times the lesser of the two,
  eta being at least eta(x) - delta on the way, and

      ||(H(x^) - H(x)) q||  <=  alpha ||D|| ( sum_i (change of phi''_i)^2 |(D q)_i|^2 )^(1/2).

- d/dalpha:  D^T (d / eta)  moves by at most  ||D||^2 R / eps.
- d/deps_tv: -alpha eps D^T (d / eta^3)  moves by at most  alpha ||D||^2 R / eps^2, as the derivative of d / eta^3 has
  the eigenvalues 1 / eta^3 and (1 - 3 |d|^2 / eta^2) / eta^3, none larger than 1 / eps^3.
- d/deps_l2: x moves by R.

Rounding, with u = eps/2: components of phi'' D q err by at most 35 u |D q| / eta, as differences have one rounding, eta
4.5 u, and nothing of what is summed is larger than |D q|; D^T adds up four of them. Those of d / eta err by 8 u, those
of d / eta^3 by 24 u. The constants below are larger than that.
"""

from __future__ import annotations

import math

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.imaging.variation import Variation, flat, squares

LARGEST_THIRD = 0.8588  # times 1 / eps^2
THIRD = 1.1548  # times 1 / eta^2
ROUNDING = 64.0 * EPS


def _spread(f: Variation) -> float:
    """||D||."""
    return 2.0 * math.sqrt(f.axes)


def hessian_doubt(f: Variation, x: Array, q: Array, radius: float) -> float:
    """A bound on ||H(x^) q - fl(H(x) q)|| for any x^ within `radius` of x, the product being that of `f.hessian_at`."""
    _, eta = f.slopes(f.pixels(x))
    along, _ = f.slopes(f.pixels(q))
    e = np.sqrt(sum(squares(part) for part in along))
    moved = _spread(f) * radius * (1.0 + 8.0 * EPS)
    least = np.maximum(eta * (1.0 - 8.0 * EPS) - moved, f.eps_tv)
    change = np.minimum(LARGEST_THIRD / f.eps_tv**2, THIRD / least**2) * moved
    data = 1.0 if f.weights is None else float(f.weights.max())
    product = 0.0 if f.operator is None else 2.0 * f.operator.rounding
    data *= 1.0 if f.operator is None else f.operator.squared_norm
    rest = ((product + ROUNDING) * data + ROUNDING * f.eps_l2) * norm(q)
    bent = f.alpha * _spread(f) * norm(((change + ROUNDING / eta) * e).ravel())
    return (bent + rest) * (1.0 + (x.size + 32) * EPS)


def cross_doubt(f: Variation, x: Array, name: str, radius: float) -> tuple[float, float]:
    """Bounds on ||K(x)|| and ||K(x^) - fl(K(x))|| of the parameter's column of `f.cross`."""
    K = norm(f.cross(x, name)) * (1.0 + (x.size + 32) * EPS)
    if name == "eps_l2":
        return K, radius
    d, eta = f.slopes(f.pixels(x))
    weight = f.alpha * f.eps_tv / eta**3 if name == "eps_tv" else 1.0 / eta
    steep = f.alpha / f.eps_tv**2 if name == "eps_tv" else 1.0 / f.eps_tv
    change = _spread(f) ** 2 * radius * steep
    rounding = ROUNDING * _spread(f) * norm(flat(d * weight))
    return K, (change + rounding) * (1.0 + (x.size + 32) * EPS)
