"""What an objective is: `evaluate`, and what it may offer besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.options import Options, Policy
from suffice.result import OracleError
from suffice.space import Space


@runtime_checkable
class Objective(Protocol):
    """An oracle of adjustable accuracy: the error of every residual (or block) is to be at most `within`.

    `evaluate` is all that `suffice.tune` needs. An objective may offer more:

    evaluate_weights(theta, *, within, warm=None) -> Evaluation
        Residuals of weights within this distance of the exact ones, reported as `distance`: the paper's rule, for
        `Options(policy="weights")`.
    evaluate_all(thetas, *, within, warm, policy) -> sequence of Evaluation
        One evaluation for every theta, each to its own accuracy, as `policy` means it: one of every start at once.
    differentiate(evaluation) -> Evaluation
        The same evaluation with its `jacobian`, or with the `gradient` of F where there are too many parameters, and
        with what that cost added to its work. Unchanged where there is no derivative to be had. Nothing that is proven
        rests on derivatives: they are to be as accurate as the evaluation's solutions, and need no bound.
    space : Space
        Names and ranges of the parameters: it gives the bounds, and lets starts and results speak in them.
    lower_bound(theta) -> float
        At most F(theta), for free; steps that it proves to be worse than the incumbent are not evaluated.
    fingerprint() -> mapping
        What has to be the same for a run to be continued from its journal, by name.
    take_events() -> sequence of mappings
        What has happened since the last call besides evaluations, such as a worker that was lost, for the journal.
    """

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        """Residuals at theta. `warm` is the nearest earlier evaluation: at the same theta it is to be continued,
        elsewhere its `solutions` may be a start. An error larger than `within` is allowed if it is reported."""


def offered(objective: object, name: str) -> Callable[..., Any] | None:
    """The objective's method of this name, if it offers one; None is nothing."""
    method = getattr(objective, name, None)
    return method if callable(method) else None


def space_of(objective: object) -> Space | None:
    """The names and ranges of its parameters, if it has any."""
    return getattr(objective, "space", None)


def oracle(objective: object, policy: Policy) -> Callable[..., Evaluation]:
    """The method that answers requests of this policy; whatever it raises comes out as an `OracleError`."""
    name = "evaluate_weights" if policy == "weights" else "evaluate"
    method = offered(objective, name)
    if method is None:
        raise TypeError(f"objective must offer {name}(theta, *, within, warm), {objective!r} does not")

    def evaluate(theta: Array, *, within: float, warm: Evaluation | None) -> Evaluation:
        # A copy: the objective may overwrite it.
        answer: Evaluation = _asked(method, "", theta, theta.copy(), within=within, warm=warm)
        return answer

    return evaluate


def derivatives_of(objective: object, options: Options) -> Callable[[Evaluation], Evaluation] | None:
    """The method that adds derivatives to an evaluation, if there is one and the options allow it; whatever it raises
    comes out as an `OracleError`. Options that insist on it refuse an objective that has none."""
    own = offered(objective, "differentiate")
    if own is None and options.derivatives == "always":
        raise TypeError(
            f"derivatives='always' needs an objective that offers differentiate(evaluation), {objective!r} does not"
        )
    if own is None or options.derivatives == "never":
        return None
    return lambda evaluation: _asked(own, " in differentiate", evaluation.point, evaluation)


def _asked(method: Callable[..., Any], what: str, theta: Array, *args: Any, **kwargs: Any) -> Any:
    """What the method says; an error of its own names theta."""
    try:
        return method(*args, **kwargs)
    except Exception as error:
        where = np.array2string(theta, precision=17)
        raise OracleError(f"the objective raised {error!r}{what} at theta = {where}", theta) from error


class exact:  # noqa: N801 (reads like a function)
    """A plain function theta -> residuals as an objective without errors.

    `jacobian`, if there is one, is a function theta -> d residuals / d theta, one row per residual and one column per
    parameter; models of steps then use it (`Options(derivatives=...)`). Every call of either counts as one unit of
    work.
    """

    def __init__(self, fun: Callable[[Array], Any], jacobian: Callable[[Array], Any] | None = None) -> None:
        for name, function in (("fun", fun), ("jacobian", jacobian)):
            if not callable(function) and (function is not None or name == "fun"):
                raise TypeError(f"{name} must be callable, got {function!r}")
        self.fun, self.jacobian = fun, jacobian
        self.differentiate: Callable[..., Evaluation] | None = None if jacobian is None else self._differentiate

    def evaluate(self, theta: Array, *, within: float, warm: Evaluation | None = None) -> Evaluation:
        residuals = np.atleast_1d(np.asarray(self.fun(theta.copy()), dtype=np.float64))
        return Evaluation(theta, residuals, np.zeros(residuals.shape), work=1)

    def _differentiate(self, evaluation: Evaluation) -> Evaluation:
        assert self.jacobian is not None
        J = np.asarray(self.jacobian(evaluation.point.copy()), dtype=np.float64)
        return replace(evaluation, jacobian=J, work=evaluation.work + 1)
