"""How far a study is, and how long it may still take, from notes that its runs leave in its folder.

The time left is an estimate: a run is expected to take as many evaluations as those that have ended took on average,
each as long as its own evaluations, or those of its variant, took so far. Nothing is said before there is something
to go by, and a limit is shown next to it: all evaluations that the budget still allows.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from suffice import files
from suffice.report.formats import duration

NOTES, LARGEST = "progress.jsonl", 1 << 26  # bytes
INTERVAL = 2.0  # seconds between two looks

Key = tuple[str, float]


def note(folder: Path, variant: str, start: float, evaluations: int, done: bool, seconds: float) -> None:
    """One line per evaluation; short lines written in one go do not mix."""
    line = json.dumps([variant, start, evaluations, done, round(seconds, 3)]) + "\n"
    handle = files.open_to_change(folder / NOTES, os.O_APPEND | os.O_CREAT)
    try:
        files.write(handle, line.encode("ascii"))
    finally:
        os.close(handle)


def folder_of_runs(folder: Path) -> Path:
    """Where a study keeps its runs; if there is something, it is a folder and no link to one."""
    path = folder / "runs"
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        kind = "a symbolic link" if path.is_symlink() else "no folder"
        raise files.JournalError(f"{path} is {kind}; a run's folder must hold real folders only")
    return path


class StudyProgress:
    """Shows a line whenever the runs of a study have got further, while a `with` block waits for them."""

    def __init__(
        self,
        folder: Path,
        most: int,
        groups: Sequence[tuple[str, Sequence[float]]],
        jobs: int,
        show: Callable[[str], object],
    ) -> None:
        self._folder, self._most, self._jobs, self._show = folder, most, jobs, show
        self._groups = [[(variant, start) for start in starts] for variant, starts in groups]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._shown = ""

    def __enter__(self) -> StudyProgress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        try:
            text = files.read_bounded(self._folder / NOTES, LARGEST).decode("ascii", "replace")
        except (OSError, files.JournalError):  # whoever writes there is told
            return
        line = describe(text, self._groups, self._most, self._jobs)
        if line and line != self._shown:
            self._shown = line
            self._show(line)


def describe(text: str, groups: Sequence[Sequence[Key]], most: int, jobs: int) -> str:
    """One line about the notes in `text`; groups of runs go side by side in one process."""
    latest: dict[Key, tuple[int, bool, float]] = {}
    for line in text.splitlines():
        try:
            variant, start, evaluations, done, seconds = json.loads(line)
            latest[str(variant), float(start)] = (int(evaluations), bool(done), float(seconds))
        except (ValueError, TypeError, OverflowError, RecursionError):  # the end of a line that is being written
            continue
    keys = [key for group in groups for key in group]
    known = {key: latest[key] for key in keys if key in latest}
    made, ended = sum(one[0] for one in known.values()), [one[0] for one in known.values() if one[1]]
    if not known:
        return ""
    line = f"{made} evaluations, {len(ended)} of {len(keys)} runs ended"
    if len(ended) == len(keys):
        return line
    estimate = _left(groups, known, sum(ended) / len(ended) if ended else float(most), jobs)
    limit = _left(groups, known, float(most), jobs)
    if estimate is None or limit is None:
        return f"{line}, time left not known yet"
    if not ended:
        return f"{line}, at most {duration(limit)} left"
    return f"{line}, about {duration(estimate)} left, at most {duration(limit)}"


def _left(
    groups: Sequence[Sequence[Key]], known: dict[Key, tuple[int, bool, float]], expected: float, jobs: int
) -> float | None:
    times = []
    for group in groups:
        left = 0.0
        for key in group:
            evaluations, done, seconds = known.get(key, (0, False, 0.0))
            if done:
                continue
            each = seconds / evaluations if evaluations else _seconds_each(key[0], known)
            if each is None:
                return None
            left += each * max(expected - evaluations, 1.0)
        times.append(left)
    return max(max(times), sum(times) / jobs)


def _seconds_each(variant: str, known: dict[Key, tuple[int, bool, float]]) -> float | None:
    """What an evaluation of this variant took; from another K in proportion, if need be."""
    for other in (variant, *(key[0] for key in known if _steps(key[0]) and _steps(variant))):
        runs = [run for key, run in known.items() if key[0] == other]
        if runs:
            ratio = 1.0 if other == variant else _steps(variant) / _steps(other)
            return ratio * sum(run[2] for run in runs) / sum(run[0] for run in runs)
    return None


def _steps(variant: str) -> int:
    return int(variant.removeprefix("K = ")) if variant.startswith("K = ") else 0
