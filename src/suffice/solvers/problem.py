r"""The lower-level problem at a fixed theta:  minimise  Phi(x) = f(x) + g(x).

f is convex with an L-Lipschitz gradient and mu-strongly convex; g is convex with a cheap prox. With mu > 0 the
minimiser x_hat is unique, and proofs rest on mu being a lower and L an upper bound: `suffice.testing.check_problem`
looks for counterexamples. For a linear model, and for the multinomial one, mu may be 0: where the data supply the
curvature, a minimiser, the only one, is proven by `suffice.prove.verified`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from suffice.arrays import Array, positive, whole_number
from suffice.models.linear import LossModel
from suffice.models.multinomial import Multinomial
from suffice.models.smooth import ImagedSmooth, Ridged, Smooth, imaged
from suffice.penalties.prox import L1, CertifiableProx, ElasticNet, Lasso, Prox, certifiable, check_size
from suffice.protocols import conforms

LEAST_L = 1e-300  # in place of the L of a model that is constant, such as one of an X of zeros


@dataclass(frozen=True)
class Composite:
    """f + g: `smooth` has value(x) and gradient(x), `prox` has value(x) and prox(v, step); mu and L belong to f.

    For a linear model L may be infinite, as for Poisson regression, and mu may be 0: then solvers that need none can be
    used, such as "newton" and "auto".
    `size` is the dimension of x; without it a start must be given to `suffice.solve`.
    """

    smooth: Smooth
    prox: Prox
    mu: float
    L: float
    size: int | None = None
    canonical: Canonical = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, methods in (("smooth", ("value", "gradient")), ("prox", ("value", "prox"))):
            term = getattr(self, name)
            missing = [method for method in methods if not callable(getattr(term, method, None))]
            if missing:
                raise TypeError(f"{name} must offer {' and '.join(methods)}, {term!r} lacks {' and '.join(missing)}")
        ridge = self.prox.l2 if isinstance(self.prox, ElasticNet) else 0.0
        own = not conforms(self.smooth, ImagedSmooth)  # without bounds of its own on rounding
        linear = isinstance(
            self.smooth.term if isinstance(self.smooth, Ridged) else self.smooth, LossModel | Multinomial
        )
        mu, L = (
            positive(self.mu, "mu", zero=ridge > 0 or linear),
            positive(self.L, "L", zero=ridge > 0 or not own, infinite=not own),
        )
        if mu > L:
            raise ValueError(f"mu must not exceed L, got mu={mu!r}, L={L!r}")
        if self.size is not None:
            check_size(self.prox, whole_number(self.size, "size", least=1))
        object.__setattr__(self, "canonical", Canonical.of(self))

    def value(self, x: Array) -> float:
        """Phi(x)."""
        return self.smooth.value(x) + self.prox.value(x)

    @property
    def kappa(self) -> float:
        """The condition number L/mu of the problem as it is solved; infinite without a mu."""
        return self.canonical.kappa


@dataclass(frozen=True)
class Canonical:
    """The problem as solvers see it: all strong convexity in f, a linear image, a g that can be certified."""

    f: ImagedSmooth
    g: CertifiableProx
    mu: float
    L: float

    @property
    def kappa(self) -> float:
        """L/mu, infinite for mu = 0."""
        return self.L / self.mu if self.mu > 0.0 else math.inf

    @property
    def term(self) -> ImagedSmooth:
        """f but for the ridge of an elastic net, or one per variable, that has been added to the user's term."""
        return self.f.term if isinstance(self.f, Ridged) else self.f

    @property
    def ridge(self) -> float | Array:
        """f = term + 1/2 sum_i ridge_i x_i^2."""
        return self.f.ridge if isinstance(self.f, Ridged) else 0.0

    @classmethod
    def of(cls, problem: Composite) -> Canonical:
        mu, L = float(problem.mu), max(float(problem.L), LEAST_L)
        f = imaged(problem.smooth, L)
        if isinstance(problem.prox, ElasticNet):
            ridge = problem.prox.l2
            return cls(Ridged(f, ridge), L1(problem.prox.l1), mu + ridge, L + ridge)
        return cls(f, certifiable(problem.prox), mu, L)


@dataclass(frozen=True)
class LinearParts:
    """A linear model, with or without an intercept, and an l1 penalty or none, g = sum_i l1_i |x_i|; the model's own l2
    and a ridge are one."""

    model: LossModel
    l2: float | Array
    l1: float | Array

    @classmethod
    def of(cls, problem: Canonical) -> LinearParts | None:
        """None for anything else."""
        term, g = problem.term, problem.g
        if not isinstance(term, LossModel) or not isinstance(g, Lasso):
            return None
        return cls(term, term.l2 + problem.ridge, g.l1)


def lacks_constants(problem: Canonical) -> str | None:
    """Why a method whose steps are proven by L and mu does not take the problem."""
    if problem.mu == 0.0:
        return "needs mu > 0, that is an l2 > 0: use solver='newton'"
    return "needs a finite L, and f has none: use solver='newton'" if math.isinf(problem.L) else None
