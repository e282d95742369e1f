r"""What a global certificate needs to know of a problem: every fold's training problem and held-out loss,

    Phi(w, b) = sum_i a_i psi(x_i . w + b, y_i) + (l2/2) ||w||^2 + l1 ||w||_1,     loss = share sum_i v_i phi(m_i, y_i),

and how its penalties follow from the parameters t of the space: (l1, l2) = B t with B >= 0, in the user's units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from suffice.arrays import Array
from suffice.globally.expansions import LOSSES, knows
from suffice.lazy import cached_property
from suffice.models.intercept import Intercepted
from suffice.models.linear import LinearModel, LossModel
from suffice.penalties.prox import L1
from suffice.problems import LowerLevel
from suffice.prove.held_out import HeldOut
from suffice.rows.design import Design, largest_matrix
from suffice.rows.gram import as_array, gram, squared, with_constant
from suffice.search.bilevel import BilevelProblem
from suffice.solvers.problem import Composite, LinearParts
from suffice.solvers.solver import solve
from suffice.solvers.unproven import MarginProblem

ENOUGH = 1e-9  # of the root of Phi: what a Newton step promises, its decrement
STEPS = 40
OTHERWISE = 150  # steps of the package's own solver

WHAT_WORKS = (
    "a global certificate is for linear models with squared, logistic or Poisson loss, dense or sparse X in main "
    "memory, one or two parameters that are l1 and l2 penalties or multiples of them, and a held-out squared error, "
    "log loss, Brier score or Poisson deviance"
)


@runtime_checkable
class Proportional(LowerLevel, Protocol):
    """A lower-level problem whose penalties are multiples of its parameters."""

    def shares(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        """(share of l1, share of l2) of every parameter: l1 and l2 are sums of parameters times their shares."""


class UnsupportedError(TypeError, ValueError):
    """Nothing can be proven globally about a problem; the message says why, and what works."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: {WHAT_WORKS}")


@dataclass(frozen=True, eq=False)
class CertifiableFold:
    """One fold: `model` is its training loss without penalties."""

    model: LossModel
    held: HeldOut
    B: Array  # 2 x m

    @property
    def design(self) -> Design:
        return self.model.design

    @property
    def loss(self) -> Any:
        """psi."""
        return self.model.loss

    @property
    def a(self) -> Array:
        return np.asarray(self.design.weights)

    @property
    def y(self) -> Array:
        return np.asarray(self.model.y)

    @property
    def v(self) -> Array:
        """Of held-out rows."""
        design = self.held.design
        return np.ones(design.shape[0]) if self.held.counted else np.asarray(design.weights)

    @property
    def intercept(self) -> bool:
        return self.model.intercept

    @property
    def sparse(self) -> bool:
        """Whether there is an l1 penalty anywhere."""
        return bool(self.B[0].any())

    @cached_property
    def squares(self) -> Any:
        """X^2, entry by entry."""
        return squared(self.design.X)

    @cached_property
    def absolute(self) -> Any:
        """|X|, entry by entry."""
        return abs(self.design.X)

    def column_norms(self, E: Array) -> Array:
        """||diag(E)^(1/2) x_j|| of all columns."""
        return np.asarray(np.sqrt(self.squares.T @ E))

    def columns(self, X: Any, S: Any) -> Array:
        """Columns S of X, dense, with one of ones if there is an intercept."""
        part = as_array(X[:, S])
        return np.ascontiguousarray(with_constant(part, 1.0) if self.intercept else part)

    @cached_property
    def gram(self) -> Array | None:
        """X^T diag(a) X, of which all Hessians of squares are parts; None where it is no help, or too large."""
        n, d = self.design.shape
        if self.loss.third > 0.0 or self.intercept or d > min(n, largest_matrix(self.design)):
            return None
        return gram(self.design.X, scale=np.sqrt(self.a))[0] if self.design.gram is None else self.design.gram

    def hessian(self, S: Any, m: Array, l2: float) -> tuple[Array, Array]:
        """`columns` S of X, and X^T diag(a psi''(m)) X + l2 there, without an l2 for the intercept."""
        X = self.columns(self.design.X, S)
        known = None if self.gram is None else self.gram[np.ix_(S, S)]
        H = gram(X, scale=np.sqrt(self.a * self.loss.second(m, self.y)))[0] if known is None else known
        at = np.arange(len(S))
        H[at, at] += l2
        return X, H

    def start(self, w: Array) -> tuple[Array, float]:
        """The margins of training rows at w with their intercept, and that."""
        image = self.model.image(w)
        b = self.model.b(image)
        return image + b, b

    def cost(self, w: Array) -> float:
        """The fold's share of F by these weights."""
        m = self.held.design.margins(w) + self.start(w)[1]
        return float(self.held.share * (self.v @ self.held.score.residuals(m, self.held.y) ** 2))


def minimised(fold: CertifiableFold, l1: float, l2: float, w: Array) -> tuple[Array, int]:
    """Nearly a minimiser, and the steps to it: by Newton's method without proofs, from a neighbour's weights in a few
    steps; where that does not converge, the package's solver goes on."""
    curved = MarginProblem(fold.design.X, fold.a, fold.y, fold.loss, fold.intercept)
    with np.errstate(all="ignore"):
        near, steps, done = curved.minimised(w, l1, l2, optimal=ENOUGH, least=ENOUGH**2, steps=STEPS)
    if done:
        return near, steps
    smooth = replace(fold.model, l2=l2)
    problem = Composite(smooth, L1(l1), mu=l2, L=smooth.L, size=len(w))
    found = solve(problem, within=ENOUGH, warm=near, max_steps=OTHERWISE)
    return found.x, steps + found.steps


def folds_of(problem: BilevelProblem) -> list[CertifiableFold]:
    """The folds of a problem; `UnsupportedError` where nothing can be proven."""
    if not isinstance(problem, BilevelProblem):
        raise UnsupportedError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if problem.penalty is not None:
        raise UnsupportedError("the problem has a penalty of its own on parameters")
    if len(problem.space) > 2:
        raise UnsupportedError(f"the space has {len(problem.space)} parameters")
    lower = np.array([ends[0] for ends in problem.space.ranges.values()])
    if not np.all(lower >= 0.0):
        raise UnsupportedError("a penalty may be negative in this space")
    probe = {name: max(ends[0], 1.0) if ends[1] > 1.0 else ends[1] for name, ends in problem.space.ranges.items()}
    return [_fold(*pair, probe) for pair in zip(problem.lower, problem.losses, strict=True)]


def _fold(lower: Any, loss: Any, probe: dict[str, float]) -> CertifiableFold:
    if not isinstance(lower, Proportional):
        raise UnsupportedError(f"{type(lower).__name__} does not say how its penalties follow from its parameters")
    shares = lower.shares(tuple(probe))
    if not set(probe) <= set(shares):
        raise UnsupportedError(f"parameters of {type(lower).__name__} are {', '.join(shares)}")
    B = np.array([shares[name] for name in probe], dtype=np.float64).T
    held = getattr(loss, "held_out", loss)
    if not isinstance(held, HeldOut) or not knows(held.score):
        raise UnsupportedError(f"the held-out loss {type(getattr(held, 'score', loss)).__name__} is not known")
    parts = LinearParts.of(lower.at(**probe).canonical)
    if parts is None or not isinstance(parts.model.loss, LOSSES):
        raise UnsupportedError(f"{type(lower).__name__} is not such a linear model")
    if type(parts.model) not in (LinearModel, Intercepted):
        raise UnsupportedError(f"the model is {type(parts.model).__name__}, which is no plain linear one")
    if parts.model.offset is not None or held.offset is not None:
        raise UnsupportedError("rows have offsets, or exposures")
    if not (parts.model.design.rows.at_hand and held.design.rows.at_hand):
        raise UnsupportedError("X lies elsewhere, or is read in blocks")
    found, told = [np.asarray(one) for one in (parts.l1, parts.l2)], B @ np.array(list(probe.values()))
    if any(one.ndim for one in found) or not np.allclose(found, told, rtol=1e-12, atol=0.0):
        raise UnsupportedError(f"{type(lower).__name__} has other penalties than it says")
    if not B[0].any() and (d := parts.model.design.shape[1]) > largest_matrix(parts.model.design):
        raise UnsupportedError(f"without an l1 all of {d} columns count, of which a matrix would be too large")
    if isinstance(parts.model, Intercepted) != (held.train is not None):
        raise UnsupportedError("the held-out loss and the model do not agree about an intercept")
    return CertifiableFold(type(parts.model)(parts.model.design, parts.model.y, parts.model.loss), held, B)
