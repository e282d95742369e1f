"""What a run leaves behind: its status, one record per evaluation, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from suffice._array import Array
from suffice.space import Space
from suffice.upper.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Status(Enum):
    """Why a run stands where it does; members carry their messages."""

    RUNNING = ("the run has not ended yet", False)
    CONVERGED = ("the trust radius reached final_radius", True)
    NOISE = ("what is left to gain cannot be told from the noise of the objective", True)
    TARGET = ("F is proven to be at most target_cost", True)
    MAX_EVALUATIONS = ("max_evaluations were spent", False)
    MAX_WORK = ("max_work was spent", False)
    MAX_SECONDS = ("max_seconds have passed", False)
    ACCURACY = ("the objective cannot deliver the accuracy that the next decision needs", False)
    NOT_FINITE = ("no finite residuals were found at the points that the model needs next to the incumbent", False)
    OVERTAKEN = ("another start has got the better of this one", False)
    STOPPED = ("the callback asked to stop", False)
    INTERRUPTED = ("interrupted from the keyboard", False)
    TERMINATED = ("the process was asked to end (SIGTERM)", False)
    JOURNAL = ("the journal could not be written", False)
    FAILED = ("the objective failed", False)

    @property
    def message(self) -> str:
        """The status in words."""
        return self.value[0]

    @property
    def success(self) -> bool:
        """Whether the search came to an end of its own."""
        return self.value[1]


class Purpose(Enum):
    """Why an evaluation was made."""

    FIRST = "first points"
    STEP = "step"
    GEOMETRY = "geometry"
    UNSEEN = "unseen direction"
    REFINE_INCUMBENT = "refine incumbent"
    REFINE_STEP = "refine step"
    REFINE_POINT = "refine point"


@dataclass(frozen=True)
class Record:
    """One evaluation: what was asked, what was achieved, what was decided."""

    number: int  #: from 1
    purpose: str  #: why it was made, see `Purpose`
    theta: tuple[float, ...]  #: where
    within: float  #: the accuracy asked for
    errors: tuple[float, ...]  #: the errors achieved, one per residual
    distance: float | None  #: the proven distance of the weights, where the objective tells
    cost: float  #: F as it was computed, infinite if the residuals were not finite
    interval: tuple[float, float]  #: where F is proven to lie
    work: float  #: of this evaluation
    total_work: float  #: of all so far
    delta: float  #: the trust radius when the evaluation was asked for
    rho: float  #: and its lower bound
    predicted: float | None = None  #: the decrease that the step under judgement promised
    #: accepted, rejected or open, where a step was judged; with "not proven" where it went by F as it was computed
    verdict: str | None = None
    origin: tuple[float, ...] | None = None  #: where that step started
    target: tuple[float, ...] | None = None  #: and where it led
    incumbent: tuple[float, ...] = ()  #: the incumbent afterwards
    incumbent_cost: float = float("nan")  #: and its F as it was computed
    note: str = ""  #: what else there is to know, such as why there is no F at theta

    @property
    def error(self) -> float:
        """The largest achieved error of a residual."""
        return max(self.errors, default=0.0)


@dataclass(frozen=True)
class Result:
    """The best point, with the interval in which F is proven to lie there.

    It is the one with the least proven upper bound of F among all that were evaluated; with exact residuals, the one
    with the least F.
    """

    theta: Array  #: the best point
    cost: float  #: F there, as it was computed
    interval: tuple[float, float]  #: where F is proven to lie there
    status: Status  #: why the run stands where it does
    evaluations: int  #: how many were made, refinements included
    work: float  #: of all of them
    history: tuple[Record, ...] = field(repr=False)  #: one record per evaluation
    evaluation: Evaluation | None = field(default=None, repr=False)  #: the one at theta
    params: dict[str, float] | None = None  #: theta by name, in the user's units, if the objective has a `space`
    detail: str = ""  #: what `message` adds to the status
    starts: tuple[Result, ...] = field(default=(), repr=False)  #: of a run from many starts: what became of each
    space: Space | None = field(default=None, repr=False)  #: of the objective, if it has one
    policy: str = "residual"  #: what `within` of the records bounds, see Options.policy

    @property
    def success(self) -> bool:
        """Whether the search came to an end of its own; False after a spent budget, a stop or a failure."""
        return self.status.success

    @property
    def message(self) -> str:
        """The status in words, with its detail."""
        return f"{self.status.message}{': ' + self.detail if self.detail else ''}"

    @property
    def solutions(self) -> tuple[Any, ...]:
        """What the objective attached to the best point's evaluation (the lower-level solutions)."""
        return () if self.evaluation is None else tuple(self.evaluation.solutions)

    def plot_path(self, ax: Axes | None = None, *, parameters: Sequence[str] | None = None) -> Axes:
        """Where the search went: F over one parameter with its proven intervals, the way over contours for two, all
        points on parallel axes for more. `parameters` chooses some by name (`theta[0]`, ... without a space)."""
        from suffice import plots

        return plots.draw_path(plots.trace(self), ax, parameters)

    def plot_progress(self, ax: Axes | None = None) -> Axes:
        """F of every evaluation with its proven interval, and what is proven to be reached."""
        from suffice import plots

        return plots.draw_progress(plots.trace(self), ax)

    def plot_accuracy(self, ax: Axes | None = None) -> Axes:
        """The accuracy that every evaluation was asked for, and the one it proved."""
        from suffice import plots

        return plots.draw_accuracy(plots.trace(self), ax)

    def plot_work(self, ax: Axes | None = None) -> Axes:
        """The work of every evaluation, and of all so far."""
        from suffice import plots

        return plots.draw_work(plots.trace(self), ax)


class OracleError(RuntimeError):
    """The objective raised or returned something unusable. `theta` says where, `result` keeps all that was
    evaluated."""

    def __init__(self, message: str, theta: Array, result: Result | None = None) -> None:
        super().__init__(message, theta, result)
        self.theta = theta
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])
