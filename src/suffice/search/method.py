"""Which search it is: over few parameters by points (`suffice.search.trust_region`), over many by gradients (`.many`).

More than FEW parameters are searched by gradients if the evaluation of the start brings one and the options allow it;
otherwise the search goes on by points from that evaluation. What kind of search it is, its state tells.
"""

from __future__ import annotations

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.options import Options
from suffice.search import many
from suffice.search import trust_region as search
from suffice.search.state import ManyState, Setting, State

FEW = 64  # beyond, m + 1 points cost more than they tell, and adjoint gradients one solve


def start(u0: Array, setting: Setting) -> State | ManyState:
    """The state before the first evaluation."""
    by_gradients = len(u0) > FEW and allowed(setting.options)
    return many.start(u0, setting) if by_gradients else search.start(u0, setting)


def allowed(options: Options) -> bool:
    """Whether the options leave room for derivatives."""
    return options.derivatives != "never" and options.noise is None and options.model != "linear"


def decide(state: State | ManyState, setting: Setting) -> State | ManyState:
    """Think until an evaluation is pending or the search has ended."""
    return many.decide(state, setting) if isinstance(state, ManyState) else search.decide(state, setting)


def absorb(
    state: State | ManyState, evaluation: Evaluation, setting: Setting, seconds: float = 0.0
) -> State | ManyState:
    """Take in the evaluation that was pending."""
    if isinstance(state, ManyState) and not state.points and many.slope_of(evaluation) is None:
        state = search.decide(search.start(state.first[0], setting), setting)
    if isinstance(state, ManyState):
        return many.absorb(state, evaluation, setting, seconds)
    return search.absorb(state, evaluation, setting, seconds)
