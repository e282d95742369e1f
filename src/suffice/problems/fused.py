"""Linear models whose neighbouring weights are to be alike, as a lower-level problem in fused, l1 and l2."""

from __future__ import annotations

from suffice.arrays import positive
from suffice.models.margin_losses import Squared
from suffice.penalties.fused import Fused
from suffice.problems.linear import ElasticNetModel
from suffice.solvers.problem import Composite


class FusedLasso:
    """A linear model with the fused penalty: sum_i a_i psi(x_i . w, y_i) + (l2/2) ||w||^2 + fused sum_j |w_{j+1} -
    w_j| + l1 ||w||_1.

    `model` is the loss, such as `problems.ElasticNet(X, y)` or `problems.ElasticNetLogistic(X, y)`; columns of X are in
    an order that means something, such as positions or times. `at(fused=..., l1=..., l2=...)` is the problem at fixed
    penalties. Its proofs need l2 > 0, or squares of an X with full column rank. With X the identity it is the denoising
    of a signal.
    """

    def __init__(self, model: ElasticNetModel) -> None:
        if not isinstance(model, ElasticNetModel):
            raise TypeError(f"model must be a linear model of suffice.problems, got {model!r}")
        self.model = model

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.model.size

    def at(self, *, fused: float, l2: float, l1: float = 0.0) -> Composite:
        """The problem at fixed penalties."""
        ridged = self.model.at(l1=0.0, l2=positive(l2, "l2", zero=True))
        of_data = self.model.design.least_curvature if isinstance(self.model.loss, Squared) else 0.0
        if not ridged.mu + of_data > 0.0:
            raise ValueError("l2 must be positive: nothing else makes this problem strongly convex")
        return Composite(ridged.smooth, Fused(fused, l1), mu=ridged.mu + of_data, L=ridged.L, size=self.size)
