r"""The lower-level problem at a fixed theta:  minimise  Phi(x) = f(x) + g(x).

f is convex with an L-Lipschitz gradient and mu-strongly convex, mu > 0; g is convex with a cheap prox. The minimiser
x_hat is unique. Every proof in this package rests on mu being a lower and L an upper bound:
`suffice.testing.check_problem` looks for counterexamples.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from suffice.arrays import Array, positive, whole_number
from suffice.terms.prox import CertifiableProx, ElasticNet, Prox, certifiable, check_size
from suffice.terms.smooth import ImagedSmooth, Ridged, Smooth, imaged


@dataclass(frozen=True)
class Composite:
    """f + g: `smooth` has value(x) and gradient(x), `prox` has value(x) and prox(v, step); mu and L belong to f.

    L may be infinite for a linear model, such as Poisson regression: then solvers that need none can be used.
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
        own = not isinstance(self.smooth, ImagedSmooth)  # without bounds of its own on rounding
        mu, L = positive(self.mu, "mu", zero=ridge > 0), positive(self.L, "L", zero=ridge > 0, infinite=not own)
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
        """The condition number L/mu of the problem as it is solved."""
        return self.canonical.L / self.canonical.mu


@dataclass(frozen=True)
class Canonical:
    """The problem as solvers see it: all strong convexity in f, a linear image, a g that can be certified."""

    f: ImagedSmooth
    g: CertifiableProx
    mu: float
    L: float

    @classmethod
    def of(cls, problem: Composite) -> Canonical:
        mu, L = float(problem.mu), float(problem.L)
        f = imaged(problem.smooth, L)
        if isinstance(problem.prox, ElasticNet):
            l1, ridge = problem.prox.without_ridge()
            return cls(Ridged(f, ridge), l1, mu + ridge, L + ridge)
        return cls(f, certifiable(problem.prox), mu, L)
