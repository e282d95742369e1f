"""The state of a search in the journal of its run: evaluations by their numbers, the rest as plain data.

A state names the evaluations it holds by their numbers, so that a record is about as large as its evaluation. What is
read back is believed only if its parts belong together (`check_state`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.journal.codec import check_fields, decode, encode
from suffice.result import Purpose, Record
from suffice.search.fitting import is_coarse
from suffice.search.many import GradientSearch, slope_of
from suffice.search.state import Ledger, Plan, Point, Setting, Trial
from suffice.search.strategy import Search
from suffice.search.trust_region import TrustRegion

# Parts of a state that are written by reference, or not at all.
_BY_REFERENCE = {"points", "pool", "trial", "best", "rejected", "records", "pending", "start"}

# Kinds of states by the names they have in journals; those of a search over few parameters have none.
_KINDS: dict[str | None, type[Any]] = {None: TrustRegion, "many": GradientSearch}

# Parts that journals of earlier versions do not have: they start as in a new search.
ADDED_LATER = {
    *("best", "retries", "unseen", "looked", "nothing_unseen", "floors", "restarts", "in_vain", "mark", "around"),
    *("edged", "sparsity", "checked", "by_derivatives", "failures", "tested"),
}


@dataclass(frozen=True)
class Held:
    """An evaluation that the search holds, its number, and the point where it was made."""

    evaluation: Evaluation
    number: int
    u: Array


def _points(search: Search) -> Iterator[Point]:
    state: Any = search.strategy
    yield from state.points
    if isinstance(state, TrustRegion):
        yield from state.pool
    else:
        yield from state.rejected
    if state.trial is not None:
        yield state.trial.point
    if search.ledger.best is not None:
        yield search.ledger.best


def held_by(state: Search, known: tuple[Held, ...], latest: Evaluation, number: int) -> tuple[Held, ...]:
    """Every evaluation of the state with its number; one that has lost its solutions is known by its content."""
    by_id = {id(item.evaluation): item.number for item in known} | {id(latest): number}
    found: dict[int, Held] = {}
    for point in _points(state):
        item, candidates = point.evaluation, (*known, Held(latest, number, point.u))
        n = by_id.get(id(item)) or next(other.number for other in candidates if _same(item, point.u, other))
        found[id(item)] = Held(item, n, point.u)
    return tuple(found.values())


def _same(item: Evaluation, u: Array, other: Held) -> bool:
    one, two = (
        [part.tobytes() for part in (place, this.point, this.r, this.e)] + [this.work, this.distance, this.blocks]
        for this, place in ((item, u), (other.evaluation, other.u))
    )
    return one == two


def state_to_plain(search: Search, held: tuple[Held, ...]) -> dict[str, Any]:
    state: Any = search.strategy
    numbers = {id(item.evaluation): item.number for item in held}

    def reference(point: Point) -> list[Any]:
        item = point.evaluation
        return [numbers[id(item)], point.futile, encode(point.moved), bool(item.solutions), item.J is not None]

    parts = [(part, item.name) for part in (search.ledger, state) for item in fields(part)]
    plain = {name: encode(getattr(part, name)) for part, name in parts if name not in _BY_REFERENCE}
    plain["status"] = encode(search.status)
    plain["first"] = plain.get("first", encode(() if state.points else (search.ledger.start,)))
    plain["points"] = [reference(point) for point in state.points]
    if isinstance(state, TrustRegion):
        plain["pool"] = [reference(point) for point in state.pool]
    else:
        plain["method"] = "many"
        plain["rejected"] = [reference(point) for point in state.rejected]
    trial = state.trial
    plain["trial"] = None if trial is None else [reference(trial.point), encode(trial.plan)]
    plain["best"] = None if search.ledger.best is None else reference(search.ledger.best)
    return plain


def state_from_plain(
    plain: Mapping[str, Any], lines: Mapping[int, Mapping[str, Any]], records: tuple[Record, ...], setting: Setting
) -> tuple[Search, tuple[Held, ...]]:
    kind = _KINDS[plain.get("method")]
    whole: dict[int, Evaluation] = {}
    bare: dict[tuple[int, bool, bool], Evaluation] = {}

    def point(reference: Any) -> Point:
        number, futile, moved, kept, *sloped = reference  # journals of earlier versions have no Jacobians
        if number not in lines:
            raise ValueError(f"the state names evaluation {number}, which is not there")
        if number not in whole:
            whole[number] = expect(decode(lines[number]["evaluation"]), Evaluation, f"evaluation {number}")
        evaluation = whole[number]
        lost = not kept and bool(evaluation.solutions), not any(sloped) and evaluation.J is not None
        if any(lost):
            solutions, J = () if lost[0] else evaluation.solutions, None if lost[1] else evaluation.J
            gradient = evaluation.slope if lost[1] and kind is GradientSearch else evaluation.gradient
            less = replace(evaluation, solutions=solutions, jacobian=J, gradient=gradient)
            evaluation = bare.setdefault((number, *lost), less)
        u = decode(lines[number]["u"])
        return Point(**_checked(Point, {"u": u, "evaluation": evaluation, "futile": futile, "moved": decode(moved)}))

    points, trial = tuple(map(point, expect(plain["points"], list, "points"))), None
    if plain["trial"] is not None:
        reference, plan = plain["trial"]
        trial = Trial(point(reference), expect(decode(plan), Plan, "trial"))
    names = {item.name for item in fields(kind)} - _BY_REFERENCE - {"status"}
    simple = {name: decode(plain[name]) for name in names - (ADDED_LATER - set(plain))}
    values: dict[str, Any] = {**simple, "points": points, "trial": trial}
    if kind is TrustRegion:
        values["pool"] = tuple(map(point, expect(plain["pool"], list, "pool")))
    else:
        values["rejected"] = tuple(map(point, _rejected(plain)))
    best, scaling = None if plain.get("best") is None else point(plain["best"]), setting.scaling
    u = scaling.to_u(np.array(records[0].theta)) if records else decode(plain["first"])[0]
    kept = {name: decode(plain[name]) for name in ("work", "seconds", "floors") if name in plain}
    ledger = Ledger(**_checked(Ledger, {"start": u, "records": records, "best": best, **kept}))
    state = Search(replace(setting, ledger=ledger), kind(**_checked(kind, values)), decode(plain["status"]))
    table = {id(item): n for n, item in whole.items()} | {id(item): n for (n, *_), item in bare.items()}
    held = {id(item.evaluation): Held(item.evaluation, table[id(item.evaluation)], item.u) for item in _points(state)}
    return state, tuple(held.values())


def _checked(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    check_fields(cls, values)
    return values


def expect(value: Any, cls: type, name: str) -> Any:
    if not isinstance(value, cls):
        raise ValueError(f"{name} must be {cls.__name__}, got {type(value).__name__}")
    return value


def references(plain: Mapping[str, Any]) -> Iterator[Any]:
    yield from plain["points"]
    yield from plain.get("pool", ())
    if plain["trial"] is not None:
        yield plain["trial"][0]
    if plain.get("best") is not None:
        yield plain["best"]
    yield from _rejected(plain)


def _rejected(plain: Mapping[str, Any]) -> Sequence[Any]:
    """References to the ends of failed steps; journals of earlier versions have one of them, or None."""
    found = plain.get("rejected")
    if found is None:
        return ()
    return [found] if expect(found, list, "rejected") and not isinstance(found[0], list) else found


def check_state(search: Search) -> None:
    """Whether the parts of a state that comes from outside belong together; raises ValueError if not."""
    state: Any = search.strategy
    setting = search.setting
    m = len(setting.scaling.lower)
    for name in ("lower", "upper", "origin", "unit"):
        if getattr(setting.scaling, name).shape != (m,):
            raise ValueError(f"scaling.{name} must have shape ({m},)")
    first = state.points[0].evaluation if state.points else None
    to_come = getattr(state, "first", () if state.points else (search.ledger.start,))
    for u in [*to_come, *(point.u for point in _points(search))]:
        if u.shape != (m,):
            raise ValueError(f"a point must have shape ({m},), got {u.shape}")
    for point in _points(search):
        evaluation = point.evaluation
        if evaluation.point.shape != (m,):
            raise ValueError(f"theta must have shape ({m},), got {evaluation.point.shape}")
        complaint = evaluation.failure or evaluation.complaint()
        if complaint is not None:
            raise ValueError(complaint)
        if first is None:
            raise ValueError("there are old points, but none to go on with")
        if len(evaluation.r) != len(first.r) or evaluation.blocks != first.blocks:
            raise ValueError("evaluations must have the same residuals and blocks")
    if bool(search.ledger.records) != bool(state.points):
        raise ValueError("there must be points once there are evaluations")
    if isinstance(state, GradientSearch):
        ends = [*state.points, *state.rejected, *([] if state.trial is None else [state.trial.point])]
        if any(slope_of(one.evaluation) is None for one in ends):
            raise ValueError("a search by gradients needs a start, or points with gradients")
        if (state.pending is not None and state.pending.purpose is Purpose.STEP) != (state.plan is not None):
            raise ValueError("a step that is waited for must have its plan, and no other evaluation one")
        return
    if state.points and not 0 <= state.incumbent < len(state.points):
        raise ValueError(f"the incumbent must be one of {len(state.points)} points, got {state.incumbent}")
    plans = [state.plan, None if state.trial is None else state.trial.plan]
    if any(plan is not None and len(plan.foreseen) != len(state.misses) for plan in plans) or len(state.misses) < 2:
        raise ValueError("every model that foresees a step must have its misses")
    if state.by_derivatives and len(state.points) != 1:
        raise ValueError(f"with derivatives there must be one point, got {len(state.points)}")
    if len(state.points) + len(state.first) != m + 1:
        raise ValueError(f"there must be {m + 1} points, got {len(state.points)} and {len(state.first)} to come")
    if state.sparsity is not None:
        rows = 0 if first is None else len(first.coarse if is_coarse(state) else first.r)
        S = state.sparsity
        if S.ndim != 2 or len(S) != rows or S.shape[1] < 1 or S.min() < 0 or S.max() > m:
            raise ValueError(f"sparsity must give parameters of {m} for each of {rows} residuals")
