"""What a person at a terminal sees of a run: one line while it goes on, a few at the end. Nothing moves in a pipe."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from suffice.report.formats import duration, short_interval
from suffice.result import Record
from suffice.sklearn.measures import shown
from suffice.sklearn.scores import score_of
from suffice.tabular.columns import TableProblem
from suffice.tabular.entries import quoted
from suffice.tabular.models import MODELS
from suffice.tabular.outcome import TunedTable
from suffice.tabular.settings import Settings
from suffice.tabular.summaries import WARNING

MOST_SHOWN = 8  # classes of a confusion matrix


def number(value: float) -> str:
    """For people."""
    return f"{value:.6g}"


class ProgressLine:
    """A line that follows the search, on a terminal; `record` is its callback."""

    def __init__(self, console: Console, settings: Settings, scoring: str, *, quiet: bool = False) -> None:
        self._settings, self._score = settings, score_of(scoring)
        self._scoring, self._stage = scoring, "preparing the folds"
        self._began = time.monotonic()
        self._made = self._searched = 0
        self._record: Record | None = None
        self._best = (-math.inf, math.inf)
        hidden = quiet or not console.is_terminal  # nothing moves in a pipe
        live = nullcontext() if hidden else Live(console=console, get_renderable=self._text, transient=True)
        self._live: AbstractContextManager[Any] = live

    def __enter__(self) -> ProgressLine:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def record(self, record: Record) -> None:
        self._record = record
        self._made += 1
        self._searched += record.purpose == "edge" or not math.isnan(record.delta)  # looks at edges count, too
        if record.interval[1] <= self._best[1]:
            self._best = record.interval

    def stage(self, what: str) -> None:
        self._stage = what
        self._record = None

    def line(self) -> str:
        """The state of the search in one line."""
        elapsed = time.monotonic() - self._began
        if self._record is None:
            return f"{self._stage} ... {duration(elapsed)}"
        low, high = self._score.interval(self._best)
        left = self._left(elapsed)
        parts = [
            f"{self._record.number} evaluations",
            duration(elapsed) + ("" if left is None else f", at most {duration(left)} left"),
            f"work {self._record.total_work:,.0f}",
            f"{self._scoring} in {short_interval(low, high)}",
        ]
        return " · ".join(parts)

    def _left(self, elapsed: float) -> float | None:
        """What the budgets still allow; None while there is nothing to go by."""
        if self._searched < 3:
            return None
        left = (self._settings.max_evaluations - self._searched) * elapsed / self._made
        if self._settings.max_seconds is not None:
            left = min(left, self._settings.max_seconds - elapsed)
        return max(left, 0.0)

    def _text(self) -> Text:
        return Text(self.line(), no_wrap=True, overflow="ellipsis")


def describe(problem: TableProblem, settings: Settings) -> list[str]:
    """What is about to be done."""
    what = f"classification, {problem.classes} classes" if problem.classes else "regression"
    if problem.labels is not None:
        what = f"classification, {quoted(problem.labels[1])} against {quoted(problem.labels[0])}"
    if problem.log_target:
        what = "regression of its logarithm"
    lines = [
        f"Table    {settings.table}: {len(problem.y):,} rows, {len(problem.numeric)} numeric and "
        f"{len(problem.categorical)} categorical columns",
        f"Target   {quoted(settings.target)}: {what}",
        f"Model    {MODELS[problem.model].words} (--model {problem.model}), {settings.cv} folds",
    ]
    if problem.groups is not None:
        parts = [f"{group} ({len(columns.columns)} columns)" for group, columns in problem.groups.items()]
        lines.append(f"Groups   {', '.join(parts)}, each with penalties of its own")
    return [*lines, *map(noted, problem.notes)]


def noted(note: str) -> str:
    """A line for a note; warnings look different."""
    if note.startswith(WARNING):
        return f"WARNING  {note.removeprefix(WARNING)}"
    return f"Note     {note}"


def conclude(outcome: TunedTable) -> list[str]:
    """What has been found."""
    search = outcome.search
    found = outcome.plain()
    given = ", ".join(f"{name} = {value!r}" for name, value in found["best_params"].items())  # exact, to be used
    low, high = search.score_interval_
    proven = f"proven for exactly trained models: {short_interval(low, high)}"
    if search.surrogate_:
        score = f"{number(found['score'])} {outcome.scoring}; {search.optimised_scoring_}, optimised in its place, "
    else:
        score = f"{number(found['score'])} {outcome.scoring}, "
    lines = [*held_out(found["measures"], bool(outcome.problem.classes)), f"Score    {score}{proven}"]
    if found["global_gap"] is not None:
        gap, names = search.global_certificate_.landscape.gap_in_percent, " and ".join(outcome.problem.space)
        lines.append(f"Proof    no {names} in the space have a loss that is lower by more than {gap} %")
    if outcome.problem.log_target:
        lines.append("         of the logarithm of the target; predictions are in the target's own units")
    if outcome.baseline is not None:
        knows = "class frequencies" if outcome.problem.classes else "the mean"
        lines.append(f"         a model that knows {knows} only: {number(outcome.baseline)}")
    if outcome.test is not None:
        lines.append(f"Test     {outcome.test['rows']:,.0f} rows that were not seen: {shown(outcome.test)}")
    lines += [
        f"Best     {given}",
        f"Search   {outcome.evaluations} evaluations in {duration(outcome.seconds)}: {search.result_.message}",
    ]
    if outcome.model_file is not None:
        lines += [f"Saved    {outcome.model_file}", *(f"         {line}" for line in outcome.how_to_load())]
    lines += map(noted, outcome.notes[len(outcome.problem.notes) :])
    if outcome.page is not None:
        lines.append(f"Report   {outcome.page}")
    after = outcome.total_seconds - outcome.seconds
    parts = f"{duration(outcome.seconds)} for search and fit, {duration(after)} for all that follows"
    return [*lines, f"Time     {duration(outcome.total_seconds)} in all: {parts}"]


def held_out(found: dict[str, Any] | None, classes: bool) -> list[str]:
    """How good the model is, in words that people know."""
    if found is None:
        return []
    knows = "class frequencies" if classes else "the mean"
    lines = [f"Quality  {shown(found['tuned'])}", f"         {of_rows(found['rows'])}"]
    lines.append(f"         a model that knows {knows} only: {shown(found['baseline'])}")
    if not found["better_than_baseline"]:
        lines.append("WARNING  the model is no better than that baseline: these columns hardly tell the target")
    table = found["confusion"]
    if table is not None and len(table["classes"]) <= MOST_SHOWN:
        names = [name if len(name) <= 12 else f"{name[:11]}…" for name in table["classes"]]
        rows = [
            ["true \\ predicted", *names],
            *([name, *map(str, row)] for name, row in zip(names, table["counts"], strict=True)),
        ]
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines += [
            "         " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
    return lines


def of_rows(rows: int) -> str:
    return f"on {rows:,} held-out rows: each fold's model predicts rows that it has not seen"
