r"""Ready-made lower-level problems: generalised linear models with an elastic-net penalty.

    Phi(w) = sum_i a_i psi(x_i . w + o_i, y_i) + (l2/2) ||w||^2 + l1 ||w||_1

with psi half the unit deviance of a family (`suffice.models.families`) and o_i an offset, the logarithm of an exposure
for one. In scikit-learn's terms, for l1 = 0: GammaRegressor(alpha=l2, fit_intercept=False) and TweedieRegressor(power,
alpha=l2, fit_intercept=False); in glum's, GeneralizedLinearRegressor(alpha=l1 + l2, l1_ratio=l1/(l1 + l2),
fit_intercept=False). There is no intercept (`suffice.sklearn.ElasticNetGLM` has one).

Second derivatives of these losses have no bound, and gradients no Lipschitz constant (the binomial's do): Newton's
method, which `solver="auto"` chooses, solves and certifies them, first-order methods refuse them. Where the data supply
the curvature a solution is verified, with or without an l2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from suffice.models.families import BINOMIAL, GAMMA, NegativeBinomial, Tweedie
from suffice.problems.linear import ElasticNetModel, LogLinkModel


class ElasticNetGamma(LogLinkModel):
    """Elastic-net Gamma regression for y > 0 whose standard deviation is proportional to its mean, exp(x_i . w): the
    severity of claims, for one.

    It minimises sum_i a_i (y_i exp(-m_i) + m_i) + (l2/2) ||w||^2 + l1 ||w||_1, m_i = x_i . w + offset_i. `exposure`
    multiplies the mean of every row; its logarithm adds to `offset`.
    """

    def __init__(self, X: Any, y: Any, *, sample_weight: Any = None, offset: Any = None, exposure: Any = None) -> None:
        super().__init__(X, y, GAMMA, sample_weight=sample_weight, offset=offset, exposure=exposure)


class ElasticNetTweedie(LogLinkModel):
    """Elastic-net regression with Tweedie's deviance, 1 < power < 2, for y >= 0 of which a share is 0, such as the cost
    of claims: the mean is exp(x_i . w), the variance proportional to mean^power.

    `exposure` multiplies the mean of every row; its logarithm adds to `offset`.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        power: float = 1.5,
        sample_weight: Any = None,
        offset: Any = None,
        exposure: Any = None,
    ) -> None:
        super().__init__(X, y, Tweedie(power), sample_weight=sample_weight, offset=offset, exposure=exposure)


class ElasticNetNegativeBinomial(LogLinkModel):
    """Elastic-net negative-binomial regression for counts y >= 0 that vary more than Poisson's: the mean is mu =
    exp(x_i . w), the variance mu + theta mu^2, with theta given.

    `exposure` multiplies the mean of every row; its logarithm adds to `offset`.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        theta: float = 1.0,
        sample_weight: Any = None,
        offset: Any = None,
        exposure: Any = None,
    ) -> None:
        super().__init__(X, y, NegativeBinomial(theta), sample_weight=sample_weight, offset=offset, exposure=exposure)


class ElasticNetBinomial(ElasticNetModel):
    """Elastic-net logistic regression of counts: y_i of `trials_i` trials succeed, each with probability sigm(x_i . w).

    It minimises sum_i a_i (log(1 + exp(m_i)) - (y_i / trials_i) m_i) + (l2/2) ||w||^2 + l1 ||w||_1, m_i = x_i . w +
    offset_i, a_i proportional to `trials_i` times `sample_weight`.
    """

    def __init__(self, X: Any, y: Any, trials: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        y, n = np.asarray(y, dtype=np.float64), np.asarray(trials, dtype=np.float64)
        if n.shape != y.shape or not (np.isfinite(n).all() and (n > 0.0).all()):
            raise ValueError("trials must be positive and finite, one number for each of y")
        if (y < 0.0).any() or (y > n).any():
            raise ValueError("y must lie between 0 and trials")
        weights = n if sample_weight is None else n * np.asarray(sample_weight, dtype=np.float64)
        super().__init__(X, y / n, BINOMIAL, sample_weight=weights, offset=offset)
