"""Looks at cells: from the journal what it holds, by the executor or here what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from suffice.executors import Spread
from suffice.globally.centres import Look, Looked, Looking
from suffice.globally.quadratics import Quadratic
from suffice.globally.surfaces import Surface
from suffice.journal.answers import SearchJournal


def looked(spread: Spread | None, kept: SearchJournal | None, work: Looking, tasks: Sequence[Look]) -> list[Looked]:
    """The answers to all tasks, in their order."""
    keys = [] if kept is None else [_key(task) for task in tasks]
    known: list[Looked | None] = [None] * len(tasks)
    if kept is not None:
        known = [None if (found := kept.take_data(key)) is None else _unpacked(found) for key in keys]
    asked = [k for k, answer in enumerate(known) if answer is None]
    wanted = [tasks[k] for k in asked]
    made = [work.solve(task) for task in wanted] if spread is None else spread.map(work, wanted)
    for k, answer in zip(asked, made, strict=True):
        known[k] = answer
        if kept is not None:
            kept.keep_data(keys[k], "look", _packed(answer))
    return [answer for answer in known if answer is not None]


def _key(task: Look) -> str:
    """A task as a short word: the same for the same task only."""
    content = blake2b(f"look {task.j} ".encode() + task.low.tobytes() + task.high.tobytes(), digest_size=12)
    if task.start is not None:
        content.update(task.start.tobytes())
    return content.hexdigest()


def _packed(answer: Looked) -> Any:
    """As plain data. Weights go by those that are not zero: of many there are few."""
    S, part = np.flatnonzero(answer.w), answer.part
    q = part.quadratic
    numbers = (part.slack, part.floor, part.ceiling, *part.free)
    return (
        len(answer.w),
        S,
        answer.w[S],
        answer.cost,
        answer.steps,
        numbers,
        part.centre,
        q.c,
        q.G,
        q.Q,
        part.relief,
        part.halvings,
    )


def _unpacked(data: Any) -> Looked:
    size, S, values, cost, steps, (slack, floor, ceiling, *free), centre, c, G, Q, relief, halvings = data
    w = np.zeros(size)
    w[S] = values
    part = Surface(centre, Quadratic(c, G, Q), slack, floor, ceiling, (free[0], free[1]), relief, halvings)
    return Looked(w, cost, steps, part)
