"""Branch and bound with a journal and an executor: what is on disk is not asked for again, looks are spread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.executors import find
from suffice.globally.balls import Cut
from suffice.globally.branch import BranchAndBound
from suffice.globally.centres import CellAnswer, CellLook, CellWorker
from suffice.globally.quadratics import BoxQuadratic
from suffice.globally.surfaces import LossSurface
from suffice.journal.answers import Journal, request_key
from suffice.journal.fingerprint import Fingerprint
from suffice.search.bilevel import BilevelProblem


@contextmanager
def searching(
    problem: BilevelProblem,
    epsilon: float,
    folder: str | os.PathLike[str] | None,
    executor: Any = None,
    best: Evaluation | None = None,
) -> Iterator[BranchAndBound]:
    """A search whose answers are in a journal, if there is a folder, and come from an executor, if there is one."""
    with ExitStack() as stack:
        kept: Journal | None = None
        if folder is not None:
            parts = Fingerprint()
            parts.add("problem", problem)
            parts.add("epsilon", epsilon)
            kept = stack.enter_context(Journal(folder).continued(parts.parts))
        spread = find(executor)
        if spread is not None and spread is not executor:
            stack.callback(spread.close)

        def evaluate(theta: Array, within: float, warm: Evaluation | None) -> Evaluation:
            key = request_key("cell", theta, within, warm)
            made = None if kept is None else kept.take(key)
            if made is None:
                made = problem.evaluate_all([theta], within=within, warm=[warm])[0]
                made = made if kept is None else kept.keep(key, "cell", made)
            return made

        def look(work: CellWorker, tasks: Sequence[CellLook]) -> list[CellAnswer]:
            keys = [_key(task) for task in tasks]
            known = {
                key: _unpacked(found)
                for key in keys
                if kept is not None and (found := kept.take(key, tuple)) is not None
            }
            asked = {key: task for key, task in zip(keys, tasks, strict=True) if key not in known}
            wanted = list(asked.values())
            made = [work.solve(task) for task in wanted] if spread is None else spread.map(work, wanted)
            for key, answer in zip(asked, made, strict=True):
                known[key] = answer
                if kept is not None:
                    kept.keep(key, "look", _packed(answer))
            return [known[key] for key in keys]

        yield BranchAndBound(problem, epsilon, evaluate, look, best=best)


def _key(task: CellLook) -> str:
    """A task as a short word: the same for the same task only."""
    content = blake2b(f"look {task.j} ".encode() + task.low.tobytes() + task.high.tobytes(), digest_size=12)
    if task.start is not None:
        content.update(task.start.tobytes())
    return content.hexdigest()


def _packed(answer: CellAnswer) -> Any:
    """As plain data. Weights go by those that are not zero: of many there are few."""
    S, part = np.flatnonzero(answer.w), answer.part
    q, cut = part.quadratic, part.cut
    numbers, arrays = (part.slack, part.floor, part.ceiling, *cut.free), (part.centre, q.c, q.G, q.Q)
    return len(answer.w), S, answer.w[S], answer.cost, answer.steps, numbers, *arrays, cut.relief, cut.halvings


def _unpacked(data: Any) -> CellAnswer:
    size, S, values, cost, steps, (slack, floor, ceiling, *free), centre, c, G, Q, relief, halvings = data
    w = np.zeros(size)
    w[S] = values
    part = LossSurface(centre, BoxQuadratic(c, G, Q), slack, floor, ceiling, Cut(relief, halvings, (free[0], free[1])))
    return CellAnswer(w, cost, steps, part)
