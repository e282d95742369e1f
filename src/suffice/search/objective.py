"""What an objective is: `evaluate`, and what it may offer besides.

`Objective` is all that `suffice.tune` needs. Each protocol below it is one thing more that an objective may have, and
what that is good for. `offered` finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.options import Options, Policy
from suffice.result import OracleError
from suffice.space import Space

P = TypeVar("P")


@runtime_checkable
class Objective(Protocol):
    """An oracle of adjustable accuracy: the error of every residual (or block) is to be at most `within`."""

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals at theta. `warm` is the nearest earlier evaluation: at the same theta it is to be continued,
        elsewhere its `solutions` may be a start. An error larger than `within` is allowed if it is reported."""
        ...


@runtime_checkable
class WeightsObjective(Protocol):
    """An oracle that takes requests on the distance of the weights: the paper's rule, `Options(policy="weights")`."""

    def evaluate_weights(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals at theta, of weights within this distance of the exact ones, reported as `distance`."""
        ...


@runtime_checkable
class BatchObjective(Protocol):
    """An oracle that is asked for one theta of every start at once."""

    def evaluate_all(
        self,
        thetas: Sequence[Array],
        *,
        within: Sequence[float],
        warm: Sequence[Evaluation | None],
        policy: Policy,
    ) -> Sequence[Evaluation]:
        """One evaluation for every theta, each to its own accuracy, as `policy` means it."""
        ...


@runtime_checkable
class DifferentiableObjective(Protocol):
    """An objective that can tell the derivatives of an evaluation it has made."""

    def differentiate(self, evaluation: Evaluation) -> Evaluation:
        """The same evaluation with its `jacobian`, or with the `gradient` of F where there are too many parameters, and
        with what that cost added to its work. Unchanged where there is no derivative to be had. Nothing that is proven
        rests on derivatives: they are to be as accurate as the evaluation's solutions, and need no bound."""
        ...


@runtime_checkable
class StationaryObjective(Protocol):
    """An objective that can prove how small the gradient of F is."""

    def stationarity(self, evaluation: Evaluation, bounds: tuple[Array, Array]) -> float | None:
        """A proven bound on the norm of the gradient of F with respect to theta at an evaluation it has made, without
        entries that point out of the box where theta touches it; None where nothing is proven."""
        ...


@runtime_checkable
class NamedObjective(Protocol):
    """An objective whose parameters have names and ranges."""

    @property
    def space(self) -> Space:
        """It gives the bounds, and lets starts and results speak in named parameters."""
        ...


@runtime_checkable
class BoundedObjective(Protocol):
    """An objective that knows something about F for free."""

    def lower_bound(self, theta: Array) -> float:
        """At most F(theta); steps that it proves to be worse than the incumbent are not evaluated."""
        ...


@runtime_checkable
class FingerprintedObjective(Protocol):
    """An objective that a journal can tell from another."""

    def fingerprint(self) -> Mapping[str, Any]:
        """What has to be the same for a run to be continued, by name."""
        ...


@runtime_checkable
class EventfulObjective(Protocol):
    """An objective that has more to report than its evaluations, such as a worker that was lost."""

    def take_events(self) -> Sequence[Mapping[str, Any]]:
        """What has happened since the last call, for the journal."""
        ...


def offered(objective: object, protocol: Callable[..., P]) -> P | None:
    """The objective, if it offers what the protocol declares, else None.

    Methods have to be callable, and None is nothing. Unlike `isinstance` from Python 3.12 on, this also sees what a
    wrapper passes on by `__getattr__`.
    """
    for name, member in vars(protocol).items():
        if not name.startswith("_"):
            value = getattr(objective, name, None)
            if value is None or not (callable(value) or isinstance(member, property)):
                return None
    return cast(P, objective)


def space_of(objective: object) -> Space | None:
    """The names and ranges of its parameters, if it has any."""
    named = offered(objective, NamedObjective)
    return None if named is None else named.space


def lower_bound_of(objective: object) -> Callable[[Array], float] | None:
    """The bound of F that costs nothing, if there is one."""
    bounded = offered(objective, BoundedObjective)
    return None if bounded is None else bounded.lower_bound


def stationarity_of(objective: object, evaluation: Evaluation, bounds: tuple[Array, Array]) -> float | None:
    """The proven bound on the gradient of F, if the objective has one."""
    own = offered(objective, StationaryObjective)
    try:
        return None if own is None else own.stationarity(evaluation, bounds)
    except Exception as error:
        where = np.array2string(evaluation.point, precision=17)
        raise OracleError(
            f"the objective raised {error!r} in stationarity at theta = {where}", evaluation.point
        ) from error


def events_of(objective: object) -> list[Mapping[str, Any]]:
    """What it has to report besides its evaluations."""
    eventful = offered(objective, EventfulObjective)
    return [] if eventful is None else list(eventful.take_events())


def oracle(objective: object, policy: Policy) -> Callable[..., Evaluation]:
    """The method that answers requests of this policy; whatever it raises comes out as an `OracleError`."""
    plain, on_weights = offered(objective, Objective), offered(objective, WeightsObjective)
    method: Callable[..., Evaluation]
    if policy == "weights" and on_weights is not None:
        method = on_weights.evaluate_weights
    elif policy != "weights" and plain is not None:
        method = plain.evaluate
    else:
        name = "evaluate_weights" if policy == "weights" else "evaluate"
        raise TypeError(f"objective must offer {name}(theta, *, within, warm), {objective!r} does not")

    def evaluate(theta: Array, *, within: float, warm: Evaluation | None) -> Evaluation:
        try:
            return method(theta.copy(), within=within, warm=warm)  # a copy: the objective may overwrite it
        except Exception as error:
            where = np.array2string(theta, precision=17)
            raise OracleError(f"the objective raised {error!r} at theta = {where}", theta) from error

    return evaluate


def derivatives_of(objective: object, options: Options) -> Callable[[Evaluation], Evaluation] | None:
    """The method that adds derivatives to an evaluation, if there is one and the options allow it; whatever it raises
    comes out as an `OracleError`. Options that insist on it refuse an objective that has none."""
    own = offered(objective, DifferentiableObjective)
    if own is None and options.derivatives == "always":
        raise TypeError(
            f"derivatives='always' needs an objective that offers differentiate(evaluation), {objective!r} does not"
        )
    if own is None or options.derivatives == "never":
        return None

    def differentiate(evaluation: Evaluation) -> Evaluation:
        try:
            return own.differentiate(evaluation)
        except Exception as error:
            where = np.array2string(evaluation.point, precision=17)
            raise OracleError(
                f"the objective raised {error!r} in differentiate at theta = {where}", evaluation.point
            ) from error

    return differentiate


class exact:  # noqa: N801 (reads like a function)
    """A plain function theta -> residuals as an objective without errors.

    `jacobian`, if there is one, is a function theta -> d residuals / d theta, one row per residual and one column per
    parameter; models of steps then use it (`Options(derivatives=...)`). Every call of either counts as one unit of
    work.
    """

    differentiate: Callable[[Evaluation], Evaluation] | None

    def __init__(self, fun: Callable[[Array], Any], jacobian: Callable[[Array], Any] | None = None) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        if jacobian is not None and not callable(jacobian):
            raise TypeError(f"jacobian must be callable, got {jacobian!r}")
        self.fun, self.jacobian = fun, jacobian
        self.differentiate = None if jacobian is None else self._differentiate

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        residuals = np.atleast_1d(np.asarray(self.fun(theta.copy()), dtype=np.float64))
        return Evaluation(theta, residuals, np.zeros(residuals.shape), work=1)

    def _differentiate(self, evaluation: Evaluation) -> Evaluation:
        assert self.jacobian is not None
        J = np.asarray(self.jacobian(evaluation.point.copy()), dtype=np.float64)
        return replace(evaluation, jacobian=J, work=evaluation.work + 1)
