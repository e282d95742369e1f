"""What a run leaves behind: its status, one record per evaluation, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING, Any

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.space import Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Status(Enum):
    """Why a run ended, or that it has not; members carry their messages."""

    RUNNING = ("the run has not ended yet", False)
    CONVERGED = ("converged: steps are as small as final_radius", True)
    SUFFICES = ("converged: too little is left to gain, as the model has it", True)
    TARGET = ("F is proven to be at most target_cost", True)
    MAX_EVALUATIONS = ("max_evaluations was reached", False)
    MAX_WORK = ("max_work was reached", False)
    MAX_SECONDS = ("max_seconds have passed", False)
    ACCURACY = ("the objective cannot deliver the accuracy that the next decision needs", False)
    KINK = ("no step along the gradient decreases F, however short: F has a kink here, or the gradient is wrong", False)
    NOT_FINITE = ("no finite values were found around the best point", False)
    OVERTAKEN = ("another start has reached target_cost", False)
    STOPPED = ("the callback asked to stop", False)
    INTERRUPTED = ("interrupted", False)
    TERMINATED = ("the process was asked to end (SIGTERM)", False)
    JOURNAL = ("the journal could not be written", False)
    FAILED = ("the objective failed", False)

    @property
    def message(self) -> str:
        """The status in words."""
        return self.value[0]

    @property
    def success(self) -> bool:
        """Whether the search ended by itself, rather than by a budget, a stop or a failure. ACCURACY is for
        `Result.success` to tell, which sees how well F is known."""
        return self.value[1]

    @property
    def can_go_on(self) -> bool:
        """Whether a search that ended this way goes on if it is given more of a budget, or another chance."""
        ended = (Status.ACCURACY, Status.KINK, Status.NOT_FINITE, Status.OVERTAKEN)
        return not self.success and self not in ended


SETTLED = 1e-4  # of F, or of what F is elsewhere: an interval so narrow leaves nothing worth deciding


class Purpose(Enum):
    """Why an evaluation was made."""

    FIRST = "first points"
    STEP = "step"
    GEOMETRY = "geometry"
    UNSEEN = "unseen direction"
    TEST = "test of derivatives"
    REFINE_INCUMBENT = "refine best"
    REFINE_STEP = "refine step"
    REFINE_POINT = "refine point"


@dataclass(frozen=True)
class Step:
    """A step that was judged."""

    predicted: float  #: the decrease that it promised
    #: "accepted", "rejected" or "open"; with "not proven" where that went by F as computed
    verdict: str
    origin: tuple[float, ...]  #: where it started
    target: tuple[float, ...]  #: where it led


@dataclass(frozen=True)
class Record:
    """One evaluation: what was asked, what was achieved, what was decided."""

    number: int  #: the number of the evaluation, from 1
    purpose: str  #: why it was made, see `Purpose`
    #: where it was made; empty, like `incumbent` and the ends of `step`, in a search over more than 1,000
    #: parameters
    theta: tuple[float, ...]
    within: float  #: the accuracy asked for
    errors: tuple[float, ...]  #: the errors achieved, one per residual
    distance: float | None  #: the proven distance of the weights, where the objective reports it
    cost: float  #: F as it was computed, infinite if the residuals were not finite
    interval: tuple[float, float]  #: where F is proven to lie
    work: float  #: the work of this evaluation
    total_work: float  #: the work of all evaluations so far
    delta: float  #: the trust radius when the evaluation was asked for
    step: Step | None = None  #: the step under judgement, if there is one
    incumbent: tuple[float, ...] = ()  #: the incumbent afterwards
    incumbent_cost: float = float("nan")  #: F of the incumbent, as it was computed
    note: str = ""  #: what else there is to know, such as why there is no F at theta

    @property
    def error(self) -> float:
        """The largest achieved error of a residual."""
        return max(self.errors, default=0.0)

    @property
    def verdict(self) -> str | None:
        """That on the step under judgement."""
        return None if self.step is None else self.step.verdict


@dataclass(frozen=True)
class Result:
    """The best point, with the interval in which F is proven to lie there.

    It is the one with the least proven upper bound of F among all that were evaluated; with exact residuals, the one
    with the least F.
    """

    theta: Array  #: the best point
    cost: float  #: F there, as it was computed
    interval: tuple[float, float]  #: where F is proven to lie there
    status: Status  #: why the run ended (or that it has not)
    evaluations: int  #: how many were made, refinements included
    work: float  #: the work of all evaluations
    history: tuple[Record, ...] = field(repr=False)  #: one record per evaluation
    evaluation: Evaluation | None = field(default=None, repr=False)  #: the evaluation at theta
    params: dict[str, float] | None = None  #: theta by name, in the user's units, if the objective has a `space`
    detail: str = ""  #: what `message` adds to the status, or says more exactly
    starts: tuple[Result, ...] = field(default=(), repr=False)  #: the results of all starts, of a run from many
    space: Space | None = field(default=None, repr=False)  #: the space of the objective, if it has one
    policy: str = "residual"  #: what `within` of the records bounds, see Options.policy

    def __repr__(self) -> str:
        at = ", ".join(f"{name} = {value:.4g}" for name, value in (self.params or {}).items())
        found = f"F = {self.cost:.4g}{' at ' + at if at else ''}, {self.evaluations} evaluations, work {self.work:,.0f}"
        return f"<Result: {self.message}; {found}>"

    @property
    def success(self) -> bool:
        """Whether the search ended by itself; False after a spent budget, a stop or a failure.

        A search that ended because its next decision would need more accuracy than the objective has (ACCURACY) has
        converged if F is known well all the same: to 1e-4 of itself, or of what it is elsewhere (`settled`).
        """
        return self.status.success or (self.status is Status.ACCURACY and self.settled)

    @property
    def settled(self) -> bool:
        """Whether the proven interval is narrow against F, or against what F is elsewhere: the median, over the points
        that models began with, of what F is proven to be there at least."""
        low, high = self.interval
        elsewhere = [record.interval[0] for record in self.history if record.purpose == Purpose.FIRST.value]
        return high - low <= SETTLED * max(abs(self.cost), median(elsewhere) if elsewhere else 0.0)

    @property
    def message(self) -> str:
        """The status in words, with its detail."""
        text, detail = self.status.message, self.detail
        if self.status is Status.ACCURACY and self.settled:
            text = f"converged as far as the objective's accuracy allows, {self.interval[1] - self.interval[0]:.2g}"
        elif self.status is Status.ACCURACY and detail:
            return detail
        elif self.status is Status.ACCURACY:
            low, high = self.interval
            theta = ", ".join(f"{one:.4g}" for one in self.theta.tolist())
            detail = f"theta = [{theta}], F lies in [{low:.4g}, {high:.4g}]"
        elif self.status in (Status.SUFFICES, Status.TARGET) and detail:
            text = "converged"
        return f"{text}{': ' + detail if detail else ''}"

    @property
    def solutions(self) -> tuple[Any, ...]:
        """What the objective attached to the best point's evaluation (the lower-level solutions)."""
        return () if self.evaluation is None else tuple(self.evaluation.solutions)

    def plot_path(self, ax: Axes | None = None, *, parameters: Sequence[str] | None = None) -> Axes:
        """Where the search went: F over one parameter with its proven intervals, the path over contours for two, all
        points on parallel axes for more. `parameters` chooses some by name (`theta[0]`, ... without a space)."""
        return self._drawn("path", ax, parameters)

    def plot_progress(self, ax: Axes | None = None) -> Axes:
        """F of every evaluation with its proven interval, and what is proven to be reached."""
        return self._drawn("progress", ax)

    def plot_accuracy(self, ax: Axes | None = None) -> Axes:
        """The accuracy that every evaluation was asked for, and the one it proved."""
        return self._drawn("accuracy", ax)

    def plot_work(self, ax: Axes | None = None) -> Axes:
        """The work of every evaluation, and of all so far."""
        return self._drawn("work", ax)

    def _drawn(self, figure: str, *given: Any) -> Axes:
        from suffice import plots

        draw: Callable[..., Axes] = getattr(plots, f"draw_{figure}")
        return draw(plots.trace(self), *given)


class OracleError(RuntimeError):
    """The objective raised or returned something unusable. `theta` says where, `result` keeps all that was
    evaluated."""

    def __init__(self, message: str, theta: Array, result: Result | None = None) -> None:
        super().__init__(message, theta, result)
        self.theta = theta
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])
