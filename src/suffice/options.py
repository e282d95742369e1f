"""Options of the upper level: frozen, checked on construction. Each default says where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from suffice.arrays import positive, whole_number

Policy = Literal["residual", "weights"]
ModelKind = Literal["competing", "linear"]
NoiseKind = Literal["additive", "multiplicative", "unknown"]
Derivatives = Literal["auto", "never", "always"]

STEP_RULES = ("eta1", "eta2", "decision_error", "shrink", "grow", "grow_step")
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
        is refused. With model="linear" or noise, "auto" is "never".
    seed : int | None, default None
        None: first points along the axes; a number: along a random orthogonal basis.
    noise : {"additive", "multiplicative", "unknown"} or None, default None
        Residuals carry random noise that the oracle cannot bound (its errors are zero, or too small): "additive" with
        standard deviation `noise_level`, "multiplicative" with `noise_level` times the residual, or "unknown", which is
        estimated. Verdicts then go by F as it was computed, and nothing is proven: the result's interval is (0, inf),
        target_cost ends no run, no start is given up for another, and the history repeats the errors that were
        reported.
    noise_level : float | None, default None
        The standard deviation of the noise, for "additive" and "multiplicative".
    eta1 : float, default 0.1
        A step is accepted from this ratio of actual to predicted decrease on (published implementation).
    eta2 : float, default 0.75
        A step is very successful from this ratio on (customary; published: 0.7; no difference over many runs).
    decision_error : float, default 0.04
        eta1': F at both ends of a step errs by at most this share of the prediction. The published 0.05 with eta1 = 0.1
        leaves eta1 - 2 eta1' = 0, that is, no proven decrease at all.
    shrink : float, default 0.5
        Factor of the trust radius after a failure (gamma_dec).
    grow : float, default 2.0
        Factor of the trust radius after a very successful step (gamma_inc).
    grow_step : float, default 4.0
        After such a step the radius is at least this many times its length (gamma_inc_bar).
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

    noise: NoiseKind | None = None
    noise_level: float | None = None

    eta1: float = 0.1
    eta2: float = 0.75
    decision_error: float = 0.04
    shrink: float = 0.5
    grow: float = 2.0
    grow_step: float = 4.0

    def __post_init__(self) -> None:
        whole_number(self.max_evaluations, "max_evaluations", least=1)
        for name in ("max_work", "max_seconds"):
            positive(getattr(self, name), name, infinite=True)
        for name in ("target_cost", "enough"):
            positive(getattr(self, name), name, zero=True)
        for name in ("initial_radius", "final_radius", "accuracy_factor", *STEP_RULES):
            positive(getattr(self, name), name)
        if self.seed is not None:
            whole_number(self.seed, "seed", least=0)
        if self.noise_level is not None:
            positive(self.noise_level, "noise_level")
        if self.final_radius > self.initial_radius:
            raise ValueError(
                f"final_radius must not exceed initial_radius, got {self.final_radius!r} > {self.initial_radius!r}"
            )
        for name, kind in (("policy", Policy), ("model", ModelKind), ("derivatives", Derivatives)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        if self.derivatives == "always" and (self.noise is not None or self.model == "linear"):
            raise ValueError(
                "derivatives='always' needs model='competing' and noise=None, "
                f"got model={self.model!r}, noise={self.noise!r}"
            )
        if self.noise is not None and self.noise not in get_args(NoiseKind):
            raise ValueError(f"noise must be None or one of {', '.join(get_args(NoiseKind))}, got {self.noise!r}")
        if (self.noise in ("additive", "multiplicative")) != (self.noise_level is not None):
            raise ValueError(
                "noise_level must be given with noise='additive' and 'multiplicative', and only then, "
                f"got noise={self.noise!r}, noise_level={self.noise_level!r}"
            )
        if not 0 < self.eta1 <= self.eta2 < 1:
            raise ValueError(f"0 < eta1 <= eta2 < 1 is required, got eta1={self.eta1!r}, eta2={self.eta2!r}")
        if not 0 < 2 * self.decision_error < min(self.eta1, 1 - self.eta2):
            raise ValueError(
                "2 decision_error must lie below min(eta1, 1 - eta2), or a step could be accepted that increases F; "
                f"got decision_error={self.decision_error!r}, eta1={self.eta1!r}, eta2={self.eta2!r}"
            )
        if not 0 < self.shrink < 1 < self.grow <= self.grow_step:
            raise ValueError(
                "0 < shrink < 1 < grow <= grow_step is required, "
                f"got shrink={self.shrink!r}, grow={self.grow!r}, grow_step={self.grow_step!r}"
            )

    def plain(self) -> dict[str, object]:
        """The options as a dictionary of plain values."""
        return {item.name: getattr(self, item.name) for item in fields(self)}
