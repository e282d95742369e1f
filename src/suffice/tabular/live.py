"""What a person at a terminal sees of a run: one line while it goes on, a few at the end. Nothing moves in a pipe."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from suffice.report.formats import duration, interval
from suffice.report.formats import settings as told
from suffice.result import Record
from suffice.sklearn.coefficients import proven
from suffice.sklearn.measures import shown
from suffice.sklearn.scores import score_of
from suffice.tabular.columns import WARNING
from suffice.tabular.entries import quoted
from suffice.tabular.problem import TableProblem
from suffice.tabular.run import TunedTable, more_likely
from suffice.tabular.settings import MODELS, Settings

LARGEST = 10  # coefficients that are told


class ProgressLine:
    """A line that follows the search, which rich shows on a terminal; `record` is the search's callback."""

    def __init__(self, settings: Settings, scoring: str) -> None:
        self._settings, self._score = settings, score_of(scoring)
        self._scoring, self._stage = scoring, "preparing the folds"
        self._began = time.monotonic()
        self._made = self._searched = 0
        self._record: Record | None = None
        self._best = (-math.inf, math.inf)

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(self.line(), no_wrap=True, overflow="ellipsis")

    def record(self, record: Record) -> None:
        self._record = record
        self._made += 1
        self._searched += not math.isnan(record.delta)
        if record.interval[1] <= self._best[1]:
            self._best = record.interval

    def stage(self, what: str) -> None:
        self._stage, self._record = what, None

    def line(self) -> str:
        """The state of the search in one line."""
        elapsed = time.monotonic() - self._began
        if self._record is None:
            return f"{self._stage} ... {duration(elapsed)}"
        left = math.inf  # what the budgets still allow, as soon as there is something to go by
        if self._searched >= 3:
            left = (self._settings.max_evaluations - self._searched) * elapsed / self._made
            left = max(min(left, (self._settings.max_seconds or math.inf) - elapsed), 0.0)
        low, high = self._score.interval(self._best)
        parts = [
            f"{self._record.number} evaluations",
            duration(elapsed) + ("" if math.isinf(left) else f", at most {duration(left)} left"),
            f"work {self._record.total_work:,.0f}",
            f"{self._scoring} in {interval(low, high, 4)}",
        ]
        return " · ".join(parts)


def describe(problem: TableProblem, settings: Settings) -> list[str]:
    """What is about to be done."""
    what = f"classification, {problem.classes} classes" if problem.classes else "regression"
    if problem.labels is not None:
        what = f"classification, {quoted(problem.labels[1])} against {quoted(problem.labels[0])}"
    if problem.log_target:
        what = "regression of its logarithm"
    target = quoted(settings.target)
    if settings.event is not None:
        target, events = f"{target} until {quoted(settings.event)}", int((problem.y > 0.0).sum())
        what = f"survival, {events:,} events and {len(problem.y) - events:,} censored times"
    lines = [
        f"Table    {settings.table}: {len(problem.y):,} rows, {len(problem.numeric)} numeric and "
        f"{len(problem.categorical)} categorical columns",
        f"Target   {target}: {what}",
        f"Model    {MODELS[problem.model].words} (--model {problem.model}), {settings.folds}",
    ]
    if problem.groups is not None:
        parts = [f"{group} ({len(columns.columns)} columns)" for group, columns in problem.groups.items()]
        lines.append(f"Groups   {', '.join(parts)}, each with penalties of its own")
    return [*lines, *map(noted, problem.notes)]


def noted(note: str) -> str:
    """A line for a note; warnings look different."""
    return f"WARNING  {note.removeprefix(WARNING)}" if note.startswith(WARNING) else f"Note     {note}"


def conclude(outcome: TunedTable) -> list[str]:
    """What has been found."""
    search, problem, found = outcome.search, outcome.problem, outcome.plain()
    proven = f"proven for exactly trained models: {interval(*search.optimised_interval_, 4)}"
    measures = found["measures"]
    lines = [f"NOT PROVEN  {outcome.unproven}"] if outcome.unproven else []
    if measures is not None:
        known = "class frequencies" if problem.classes else "the times" if problem.model == "cox" else "the mean"
        spread = ""
        if problem.model == "cox":
            of_folds = [one.get("concordance", math.nan) for one in search.held_out_.by_fold()]
            error = float(np.std(of_folds, ddof=1)) / math.sqrt(len(of_folds))
            spread = f" ± {error:.2g} (standard error over folds, from {min(of_folds):.3f} to {max(of_folds):.3f})"
        times = max(measures["rows"] // len(problem.y), 1)
        rows, again = measures["rows"] // times, "" if times == 1 else f", {times} times each"
        lines += [
            f"Quality  {shown(measures['tuned'])}{spread}",
            f"         on {rows:,} held-out rows{again}: each fold's model predicts rows that it has not seen",
            f"         a model that knows {known} only: {shown(measures['baseline'])}",
        ]
        if not measures["better_than_baseline"]:
            lines.append("WARNING  the model is no better than that baseline: these columns hardly tell the target")
    score = f"Score    {found['score']:.4g} {found['scoring']}"
    if search.surrogate_:
        lines += [score, f"         {found['optimised_scoring']} was optimised in its place, {proven}"]
    else:
        lines.append(f"{score}, {proven}")
    if found["global_gap"] is not None and not outcome.unproven:
        gap, names = search.global_certificate_.landscape.gap_in_percent, " and ".join(problem.space)
        lines.append(f"Proof    no {names} in the space have a loss that is lower by more than {gap} %")
    if problem.log_target:
        lines.append("         of the logarithm of the target; predictions are in the target's own units")
    if outcome.test is not None:
        lines.append(f"Test     {outcome.test['rows']:,.0f} rows that were not seen: {shown(outcome.test)}")
    took = duration(outcome.seconds)
    given = told(found["best_params"])
    if search.refit == "one_se":
        given += ": the largest penalties whose loss is within one standard error of the best"
    made = f"{found['evaluations']} evaluation{'s' * (found['evaluations'] != 1)}"
    lines += [f"Best     {given}", f"Search   {made} in {took}: {found['message']}"]
    if found["jobs"] is not None:
        lines.append(f"Jobs     {found['jobs']}")
    lines += _columns(found["coefficients"], problem)
    if outcome.temporary is not None:
        lines += (f"{'Use' if k == 0 else '':9}{line}" for k, line in enumerate(outcome.how_to_load()))
    elif outcome.model_file is not None:
        lines += [f"Saved    {outcome.model_file}", *(f"         {line}" for line in outcome.how_to_load())]
    lines += map(noted, outcome.notes[len(problem.notes) :])
    if outcome.page is not None and outcome.temporary is None:
        lines.append(f"Report   {outcome.page}")
    before, after = outcome.before, outcome.total_seconds - outcome.before - outcome.seconds
    parts = f"{duration(before)} to begin, {took} for search and fit, {duration(after)} for all that follows"
    return [*lines, f"Time     {duration(outcome.total_seconds)} in all: {parts}"]


def _columns(found: dict[str, Any], problem: TableProblem) -> list[str]:
    """The largest coefficients, per standard deviation."""
    of = found["rows"]
    lines = [f"Columns  {found['nonzero']:,} of {found['count']:,} coefficients are not zero: {proven(found)}"]
    shown = [k for k, coef in enumerate(of["coef"]) if coef][:LARGEST]
    if shown:
        ways = f", + for {quoted(more_likely(problem))}" if problem.classes == 2 else ""
        what = "hazard ratios of the largest" if problem.model == "cox" else "the largest"
        lines.append(f"         {what}, for a change of one standard deviation{ways}:")
    for k in shown:
        size = of["coef_standardised"][k]
        output = "" if of["output"] is None else f", {of['output'][k]}"
        known = "" if of["proven"][k] != "open" else ", sign open"
        size = of["coef"][k] if size is None else size
        told = f"{np.exp(size):11.4g}" if problem.model == "cox" else f"{size:+11.4g}"
        lines.append(f"         {told}  {of['name'][k]}{output}{known}")
    return lines
