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

    Radii are fractions of the box; a parameter with an infinite bound is measured in units of max(1, |theta0|).
    """

    max_evaluations: int = 100  #: evaluations at most, refinements included
    max_work: float = math.inf  #: work at most, in the objective's unit (solver steps for a `BilevelProblem`)
    #: seconds at most, checked after every evaluation (`SufficeSearchCV` gives up what is under way)
    max_seconds: float = math.inf
    target_cost: float = 0.0  #: stop when F is proven to be no larger
    #: a decrease of F that is worth no evaluation: the search ends when two models in a row promise no more
    #: than that within the trust region, or one whose best step is too short to be made, or one by derivatives
    #: that promises less than a hundredth of it
    enough: float = 0.0
    initial_radius: float = 0.1  #: the first trust radius (Ehrhardt and Roberts 2021: a tenth of the box)
    final_radius: float = 1e-5  #: the trust radius at which the search ends (Ehrhardt and Roberts 2020, appendix)
    #: what requests bound: the error of each residual, or the distance of the weights (the paper's rule)
    policy: Policy = "residual"
    #: model points are accurate to c delta^2, c this factor and delta the trust radius; the paper's study uses
    #: 100
    accuracy_factor: float = 10.0
    #: quadratic models of the residuals that compete with linear ones, or linear ones only, as in the paper
    model: ModelKind = "competing"
    #: Whether models of a step may use derivatives of the residuals; verdicts never do. "auto": where the
    #: objective offers them, until their models have failed repeatedly. "always": the same, but an objective
    #: that offers none is refused. With model="linear", "auto" is "never".
    derivatives: Derivatives = "auto"
    seed: int | None = None  #: None: first points along the axes; a number: along a random orthogonal basis

    def __repr__(self) -> str:
        """What is not the default."""
        values = {item.name: (getattr(self, item.name), item.default) for item in fields(self)}
        return f"Options({', '.join(f'{name}={one!r}' for name, (one, usual) in values.items() if one != usual)})"

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
