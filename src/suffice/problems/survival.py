"""Cox's proportional hazards with an elastic-net penalty, as a lower-level problem in l1 and l2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from suffice.arrays import positive
from suffice.lazy import cached_property
from suffice.models.cox import CoxModel
from suffice.penalties.prox import L1
from suffice.problems.linear import least_zeroing_l1
from suffice.rows.design import Design
from suffice.solvers.problem import Composite


class ElasticNetCox:
    """Elastic-net Cox regression: minus the mean partial log-likelihood + (l2/2) ||w||^2 + l1 ||w||_1.

    `y` holds times, negative where they are censored, or two columns (time, event), or an array with a field of bools
    and one of numbers. `ties` is "efron" or "breslow"; `strata` labels rows whose hazards have nothing in common,
    `entry` are times from which on rows are at risk (left truncation), `offset` is a known part of the linear
    predictor. `at(l1=..., l2=...)`, l2 > 0, is the problem at fixed penalties. For l1 >= `l1_max` the solution is
    exactly 0.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        ties: str = "efron",
        sample_weight: Any = None,
        strata: Any = None,
        entry: Any = None,
        offset: Any = None,
    ) -> None:
        self.design = Design.of(X)
        self.model = CoxModel.of(self.design, y, ties, sample_weight, strata, entry, offset)

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.design.shape[1]

    @cached_property
    def l1_max(self) -> float:
        """The smallest l1 for which w = 0 is the solution, for every l2."""
        return least_zeroing_l1(self.model, self.size)

    def at(self, *, l1: float, l2: float) -> Composite:
        """The problem at fixed penalties l1 >= 0 and l2 > 0."""
        l1, l2 = positive(l1, "l1", zero=True), positive(l2, "l2")
        smooth = replace(self.model, l2=l2)
        return Composite(smooth, L1(l1), mu=l2, L=smooth.L, size=self.size)
