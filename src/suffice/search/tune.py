"""Tuning: `tune` begins a run, `resume` goes on with one from its journal; `suffice.search.run` is their loop."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from suffice.arrays import vector
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.journal.answers import Contents, Journal
from suffice.journal.fingerprint import Fingerprint, differences, versions
from suffice.journal.lines import NONSENSE, shortened
from suffice.options import BUDGETS, Options
from suffice.result import Result
from suffice.search.objective import (
    Objective,
    derivatives_of,
    exact,
    lower_bound_of,
    offered,
    oracle,
    space_of,
)
from suffice.search.run import Callback, Run, Start
from suffice.search.strategy import Begin
from suffice.search.tuner import Request, Tuner, unlimited

__all__ = ["Request", "Tuner", "exact", "resume", "tune"]

JournalLike = str | os.PathLike[str] | Journal


def tune(
    objective: Objective,
    theta0: Any = None,
    *,
    starts: Iterable[Any] | None = None,
    bounds: Any = None,
    scale: Any = None,
    options: Options | None = None,
    callback: Callback | None = None,
    journal: JournalLike | None = None,
    seen: Sequence[Evaluation] = (),
    strategy: Begin | None = None,
) -> Result:
    """Minimise F(theta) = sum of squared residuals, asking `objective` for no more accuracy than the next decision
    needs.

    `objective` is anything with `evaluate(theta, *, within, warm=None) -> Evaluation` (`suffice.exact` makes one
    from a plain function), or a `BilevelProblem`, whose `space` then gives the bounds and lets theta0 and the result
    use named parameters. If it has a `lower_bound(theta)`, a bound of F that costs nothing, steps that this rules
    out are not evaluated. `callback(record)` sees every evaluation; raising StopIteration in it ends the run.

    `theta0` is where the search starts: a vector, or a dictionary of named parameters if the objective has a space.
    `bounds` is a pair of vectors, the lower and the upper ends; `options` are `suffice.Options`.

    `scale` is the unit of each parameter (a positive vector, or one number), in which `initial_radius` and
    `final_radius` are measured: a step of one unit should change F noticeably. Without it the unit is the width of the
    box, and max(1, |theta0|) for a parameter with an infinite bound, which serves badly if theta is, say, 1e-12.

    `starts` are more starts; theta0, if it is given too, comes first. The search is local, so each may find another
    minimiser. All go on side by side, one evaluation each in turn, until they end, until another start overtakes
    them (`suffice.search.starts` has the rule), or until a budget of `options` is spent, which all of them share:
    max_work and max_seconds are checked after every turn. An objective with `evaluate_all(thetas, *, within, warm,
    policy)`, such as a `BilevelProblem`, is asked for a whole turn at once. The result is that of the start with the
    least proven upper bound of F; `result.starts` has the results of all, in their order.

    `seen` are evaluations of the same objective that were made before: they are not made again for being known, but
    models of steps near them know more of F's curvature, from the first step on.

    `strategy` is an upper-level method of your own: a function of u, the setting and `seen` that gives the
    `suffice.search.strategy.Strategy` at u. None: a trust region, or quasi-Newton steps for many parameters.

    `journal` names a folder in which every evaluation is on disk before the next one begins; `suffice.resume` continues
    the run, to the same result. It is made if need be, and refused if it holds a run already.

    Ctrl-C ends the run, and so does SIGTERM if the process has no handler of its own for it; the evaluation under way
    is given up, and the result holds the best point so far, with a status that says why. A second signal acts as usual.
    A journal that can no longer be written (a full disk, say) ends the run as well. An objective that fails raises
    `OracleError`, whose `result` holds everything evaluated before. Residuals that are infinite or NaN, or whose sum of
    squares overflows, are no failure but at theta0: a step there counts as rejected, and the search goes on closer by.
    """
    space = space_of(objective)
    box = space.bounds if space is not None and bounds is None else bounds
    given: dict[str, Any] = {"bounds": box, "scale": scale, "options": options, "seen": seen, "strategy": strategy}
    tuners = [Start(theta, lower_bound=lower_bound_of(objective), **given) for theta in _starts(theta0, starts, space)]
    run = _run(tuners, objective, callback, tuners[0].options, starts is not None)
    with nullcontext() if journal is None else _book(journal) as run.journal:
        if run.journal is not None:
            run.journal.create(_fingerprint(objective, strategy), run.arguments)
        return run.go()


def resume(
    journal: JournalLike,
    *,
    problem: Objective,
    options: Options | None = None,
    callback: Callback | None = None,
    strategy: Begin | None = None,
) -> Result:
    """Continue the run in a journal from where it stands, to the result of an uninterrupted run.

    A journal holds data, never code, so the objective is given again as `problem`, and so is a `strategy` of your own.
    They have to be the same: what the problem's fingerprint covers (for a `BilevelProblem` data, losses, space, solver,
    and the penalty at a few points; for any other objective what its method `fingerprint()` returns, or else its class
    and space only) is compared, and a difference is refused with its name. `options` may change the budgets
    (max_evaluations, max_work, max_seconds, target_cost), which are totals that include everything done before; every
    other option has to be as it was. A run that has ended is not run again.
    """
    with _book(journal) as book:
        cause = None
        try:
            contents = book.open()
        except JournalError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            contents, cause = book.look(), error  # a finished run may be looked at where nobody may write
        tuners, listed, before = _taken_up(contents, options, problem, strategy)
        options = before if options is None else options
        run = _run(tuners, problem, callback, options, listed)
        run.journal, run.seconds_before = book, contents.seconds
        run.replay(options)
        if all(tuner.done for tuner in run.tuners):
            return run.result()
        if cause is not None:
            raise cause
        contents.warn_of_versions()
        book.event(what="resumed", evaluations=contents.answers, dropped_bytes=contents.torn, versions=versions())
        return run.go()


def _taken_up(
    contents: Contents, options: Options | None, problem: Objective, strategy: Begin | None
) -> tuple[list[Start], bool, Options]:
    """The starts of a run as it began, without budgets, whether they were given as a list, and its options."""
    fingerprint = _fingerprint(problem, strategy)
    try:
        if contents.arguments is None:
            raise TypeError("it is of another kind of search, and no run of suffice.tune")
        given = dict(contents.arguments)
        thetas, listed, before = given.pop("theta0"), bool(given.pop("listed")), given["options"]
        if not isinstance(before, Options):
            raise TypeError(f"options must be Options, got {type(before).__name__}")
        given |= {"options": unlimited(before), "lower_bound": lower_bound_of(problem), "strategy": strategy}
        tuners = [Start(theta, **given) for theta in thetas]
        if not tuners:
            raise ValueError("there must be a start")
    except NONSENSE as error:
        raise JournalError(f"the journal {contents.path} cannot be understood: {shortened(error)}") from error
    contents.refuse_changes(_changed_options(before, options) + differences(contents.fingerprint, fingerprint))
    return tuners, listed, before


def _run(tuners: list[Start], objective: Objective, callback: Any, options: Options, listed: bool) -> Run:
    """A run, whose arguments are refused before a journal is made."""
    oracle(objective, options.policy)
    derivatives_of(objective, options)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")
    return Run(tuners, objective, callback, listed=listed)


def _starts(theta0: Any, starts: Any, space: Any) -> list[Any]:
    """All starts as theta, theta0 first."""
    if theta0 is None and starts is None:
        raise TypeError("theta0 or starts must be given")
    if isinstance(starts, Mapping | str) or not isinstance(starts, Iterable | None):
        raise TypeError(f"starts must be a sequence of starts, got {starts!r}")
    given = [] if theta0 is None else [theta0]
    given += [] if starts is None else list(starts)
    if not given:
        raise ValueError("starts must not be empty")
    if space is None and any(isinstance(start, Mapping) for start in given):
        raise TypeError("theta0 by name needs an objective with a `space`")
    thetas = [space.theta(start) if isinstance(start, Mapping) else start for start in given]
    if starts is not None:
        names = [*(["theta0"] if theta0 is not None else []), *(f"starts[{i}]" for i in range(len(given)))]
        thetas = [vector(theta, name) for theta, name in zip(thetas, names, strict=False)]
        for theta, name in zip(thetas, names, strict=False):
            if theta.shape != thetas[0].shape:
                raise ValueError(f"{name} must have {len(thetas[0])} entries like {names[0]}, got {len(theta)}")
    return thetas


def _changed_options(before: Options, now: Options | None) -> list[str]:
    if now is None:
        return []
    if not isinstance(now, Options):
        raise TypeError(f"options must be Options, got {now!r}")
    pairs = ((name, old, now.plain()[name]) for name, old in before.plain().items() if name not in BUDGETS)
    return [f"option {name} was {old!r}, now it is {new!r}" for name, old, new in pairs if old != new]


def _book(journal: JournalLike) -> Journal:
    if isinstance(journal, Journal):
        return journal
    if not isinstance(journal, str | os.PathLike):
        raise TypeError(f"journal must be a folder or a Journal, got {journal!r}")
    return Journal(journal)


def _fingerprint(objective: object, strategy: Begin | None) -> dict[str, str]:
    found = Fingerprint()
    found.add("objective", type(objective).__qualname__)
    if strategy is not None:
        found.add("strategy", strategy)
    own = offered(objective, "fingerprint")
    parts = {} if own is None else own()
    if not isinstance(parts, Mapping):
        raise TypeError(f"fingerprint() must return a dictionary, got {type(parts).__name__}")
    space = space_of(objective)
    for name, value in {**({} if space is None else {"space": space.ranges}), **parts}.items():
        found.add(str(name), value)
    return found.parts
