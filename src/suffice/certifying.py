r"""How far is it from the exact minimiser? One question, asked of a point or of anybody's fitted model.

A point x of a problem that is stated here has a `Certificate`. A fitted model has coefficients c, and an objective of
its own whose exact minimiser is c_hat; a `FitReport` says what is proven about ||c - c_hat||, about the intercept, the
predictions, and the score that an exactly trained model has.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, overload

from suffice.arrays import Array
from suffice.solvers.certificate import Certificate
from suffice.solvers.certificate import certify as certify_point
from suffice.solvers.problem import Composite

MOST_STEPS = 2_000  # of our own solver, for one model


@dataclass(frozen=True)
class FitReport:
    """What is proven about a fitted linear model, whose coefficients c should minimise an objective of its own.

    `message` says it in a sentence. c_hat, the exact minimiser, is that of the data as they were given to `certify`:
    they have to be those that the model was fitted to. All bounds include rounding; where nothing can be told they are
    infinite, and `message` says why.
    """

    radius: float  #: ||c - c_hat|| is at most this; infinite where nothing can be told
    at_least: float  #: and at least this: more than 0 means that the coefficients are shown to be off
    relative: float  #: `radius` in units of ||c_hat||
    intercept_error: float  #: the intercept is within this of the exact one (the vector of them, for several classes)
    prediction_error: float  #: no decision value of a row of X is farther from the exact model's; for a log link: log
    scoring: str  #: the name of the training score that the next two are about, greater being better
    score: float  #: that of the model at hand, in floating-point arithmetic
    score_interval: tuple[float, float]  #: a proven interval for that of the exactly trained model
    rule: str  #: which proof gave `radius`: see `Certificate.rule`; "none" where there is none
    message: str  #: a sentence for people
    wrongly_nonzero: tuple[int, ...] = ()  #: columns with a coefficient that is proven to be zero in the exact model
    wrongly_zero: tuple[int, ...] = ()  #: columns without one, which is proven not to be zero there
    support_open: int = 0  #: how many coefficients of the exact model have neither a sign nor a zero proven

    def __repr__(self) -> str:
        score = f", {self.scoring} {self.score:.4g}" if self.scoring else ""
        return f"<FitReport: {self.message}{score}; {self.rule}>"

    @property
    def told(self) -> bool:
        """Whether anything is proven about the coefficients."""
        return math.isfinite(self.radius)

    def plain(self) -> dict[str, Any]:
        """For machines: numbers that are not finite are None."""

        def known(value: Any) -> Any:
            return None if isinstance(value, float) and not math.isfinite(value) else value

        found = {name: known(value) for name, value in asdict(self).items()}
        return found | {"score_interval": [known(end) for end in self.score_interval]}

    @classmethod
    def nothing(cls, reason: str) -> FitReport:
        """A report that nothing can be told, and why."""
        everything = (-math.inf, math.inf)
        return cls(
            math.inf, 0.0, math.inf, math.inf, math.inf, "", math.nan, everything, "none", f"cannot tell: {reason}"
        )


@overload
def certify(model: Composite, X: Array) -> Certificate: ...
@overload
def certify(model: Any, X: Any, y: Any, sample_weight: Any = None, *, max_steps: int = MOST_STEPS) -> FitReport: ...
def certify(
    model: Any, X: Any, y: Any = None, sample_weight: Any = None, *, max_steps: int = MOST_STEPS
) -> Certificate | FitReport:
    """How far is this from the exact minimiser, provably?

    `certify(problem, x)`, with a `Composite`, is the tightest certificate of a point x, wherever it came from. It costs
    one gradient of the problem's f at x and, for a linear model, a factorisation on the support of x. The radius is
    infinite where nothing can be proven in floating-point arithmetic.

    `certify(estimator, X, y, sample_weight=None)` is a `FitReport` of a fitted linear model, on the data it was fitted
    to: how far its coefficients are from the exact minimiser of its own objective, and how far off its predictions and
    its training score are. Known are the linear estimators of scikit-learn (also inside a `Pipeline`, a
    `TransformedTargetRegressor` or a search, and with penalties chosen by cross-validation), those of skglm, celer and
    glum, and what `suffice.sklearn.register_objective` has made known; of any other fitted model the report says that
    it cannot tell. Where the coefficients are not near enough for a proof the problem is solved here, in at most
    `max_steps` steps from there, and as many from 0. Raises `sklearn.exceptions.NotFittedError`, and ValueError for an
    X of the wrong width.
    """
    if isinstance(model, Composite):
        if y is not None or sample_weight is not None:
            raise TypeError("certify(problem, x) takes no y and no sample_weight: the problem has its data")
        return certify_point(model, X)
    if y is None:
        raise TypeError("certify(estimator, X, y) needs the targets y that the estimator was fitted to")
    from suffice.sklearn.certify import certify_fit

    return certify_fit(model, X, y, sample_weight, max_steps=max_steps)
