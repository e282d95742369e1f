"""Options of the upper level: frozen, checked on construction. Each default says where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from suffice.arrays import positive, whole_number

Policy = Literal["residual", "weights"]
ModelKind = Literal["competing", "linear"]
Derivatives = Literal["auto", "never", "always"]

BUDGETS = ("max_evaluations", "max_work", "max_seconds", "target_cost")  # these say when to stop, never where to go


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to search, how accurately, and when to stop.

    Radii are fractions of the box; a parameter with an infinite bound is measured in units of max(1, |theta0|). With
    `tune(scale=...)` they are in units of `scale`.

    Parameters
    ----------
    max_evaluations : int, default 100
        Evaluations at most, refinements included.
    max_work : float, default infinity
        Work at most, in the objective's unit (solver steps for a `BilevelProblem`).
    max_seconds : float, default infinity
        Seconds at most, checked after every evaluation (`SufficeSearchCV` gives up what is under way).
    target_cost : float, default 0.0
        Stop when F is proven to be no larger.
    enough : float, default 0.0
        A decrease of F that is worth no evaluation: the search ends when two models in a row promise no more than that
        within the trust region, or one whose best step is too short to be made.
    initial_radius : float, default 0.1
        The first trust radius (Ehrhardt and Roberts 2021: a tenth of the box).
    final_radius : float, default 1e-5
        The trust radius at which the search ends (Ehrhardt and Roberts 2020, appendix).
    policy : {"residual", "weights"}, default "residual"
        What requests bound: the error of each residual, or the distance of the weights (the paper's rule).
    accuracy_factor : float, default 10.0
        Model points are accurate to c delta^2, c this factor and delta the trust radius; the paper's study uses 100.
    model : {"competing", "linear"}, default "competing"
        Quadratic models of the residuals that compete with linear ones, or linear ones only, as in the paper.
    derivatives : {"auto", "never", "always"}, default "auto"
        Whether models of a step may use derivatives of the residuals; verdicts never do. "auto": where the objective
        offers them, until their models have failed repeatedly. "always": the same, but an objective that offers none
        is refused. With model="linear", "auto" is "never".
    seed : int | None, default None
        None: first points along the axes; a number: along a random orthogonal basis.
    """

    max_evaluations: int = 100
    max_work: float = math.inf
    max_seconds: float = math.inf
    target_cost: float = 0.0
    enough: float = 0.0
    initial_radius: float = 0.1
    final_radius: float = 1e-5
    policy: Policy = "residual"
    accuracy_factor: float = 10.0
    model: ModelKind = "competing"
    derivatives: Derivatives = "auto"
    seed: int | None = None

    def __post_init__(self) -> None:
        whole_number(self.max_evaluations, "max_evaluations", least=1)
        for name in ("max_work", "max_seconds"):
            positive(getattr(self, name), name, infinite=True)
        for name in ("target_cost", "enough"):
            positive(getattr(self, name), name, zero=True)
        for name in ("initial_radius", "final_radius", "accuracy_factor"):
            positive(getattr(self, name), name)
        if self.seed is not None:
            whole_number(self.seed, "seed", least=0)
        if self.final_radius > self.initial_radius:
            raise ValueError(
                f"final_radius must not exceed initial_radius, got {self.final_radius!r} > {self.initial_radius!r}"
            )
        for name, kind in (("policy", Policy), ("model", ModelKind), ("derivatives", Derivatives)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        if self.derivatives == "always" and self.model == "linear":
            raise ValueError("derivatives='always' needs model='competing', got model='linear'")

    def plain(self) -> dict[str, object]:
        """The options as a dictionary of plain values."""
        return {item.name: getattr(self, item.name) for item in fields(self)}
