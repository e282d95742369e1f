"""The journals of many starts: one journal each, and the turn that is being written down.

    run/starts.json       how many starts there are; written last, so that a run without it never began
    run/start-000/ ...    the journal of every start
    run/turn.json         the evaluations of the latest turn, all of them

Starts are evaluated in turns, problems of a turn together. A turn is on disk as a whole, in one step, before the first
of its evaluations goes into a journal. So a run that is killed in between finds on disk what it was about to write, and
goes on as if nothing had happened: a turn has either been made or it has not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.journal import FILE, Contents, Journal, JournalError, _line, _next_line, _no_constant, _sync, _write, read
from suffice.plain import decode
from suffice.upper.evaluation import Evaluation
from suffice.upper.state import Setting, State

FORMAT = "suffice starts 1"
STARTS, TURN = "starts.json", "turn.json"
MOST = 10_000  # starts
GIVEN_UP = "given up"


@dataclass(frozen=True)
class Told:
    """One evaluation of a turn: whose, and which of its own it is, counted from 1."""

    start: int
    number: int
    encoded: Any


@dataclass
class Shelf:
    """The journals of a run from many starts, open for writing."""

    folder: Path
    books: list[Journal] = field(default_factory=list)

    def create(self, settings: Any, starts: Sequence[tuple[Setting, State]], fingerprint: Mapping[str, str]) -> Shelf:
        """Begin a new run. A folder that holds one already is refused."""
        if holds_starts(self.folder) or (self.folder / FILE).exists():
            raise JournalError(
                f"{os.fspath(self.folder)} holds a run: suffice.resume continues it, a new one needs another folder"
            )
        try:
            self._clear()
            for k, (setting, state) in enumerate(starts):
                self.books.append(Journal(self._place(k), settings).create(setting, state, fingerprint))
            self._put(STARTS, {"format": FORMAT, "starts": len(starts)})
        except BaseException:
            self.close()
            raise
        return self

    def open(self) -> list[Contents]:
        """Lock the journals of an existing run and read them."""
        count = self._get(STARTS).get("starts")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST:
            raise JournalError(f"{self.folder / STARTS} is damaged: {count!r} is no number of starts")
        try:
            self.books = [Journal(self._place(k)) for k in range(count)]
            return [book.open() for book in self.books]
        except BaseException:
            self.close()
            raise

    def keep(self, turn: Sequence[Told], seconds: float) -> None:
        """The turn as a whole: on disk when this returns."""
        told = [{"start": one.start, "number": one.number, "evaluation": one.encoded} for one in turn]
        self._put(TURN, {"format": FORMAT, "seconds": seconds, "told": told})

    def latest(self) -> tuple[list[tuple[Told, Evaluation]], float]:
        """The latest turn, and the seconds that the run had taken then."""
        if not (self.folder / TURN).exists():
            return [], 0.0
        line = self._get(TURN)
        try:
            turn = [Told(int(one["start"]), int(one["number"]), one["evaluation"]) for one in line["told"]]
            evaluations = [decode(one.encoded) for one in turn]
            if not all(isinstance(one, Evaluation) for one in evaluations):
                raise TypeError("an evaluation was expected")
            if not all(0 <= one.start < len(self.books) for one in turn):
                raise ValueError("there is no such start")
            return list(zip(turn, evaluations, strict=True)), float(line["seconds"])
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise JournalError(f"{self.folder / TURN} cannot be understood: {str(error)[:200]}") from error

    def close(self) -> None:
        """Let others write."""
        for book in self.books:
            book.close()

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clear(self) -> None:
        """Journals of a run that was killed before it began hold no evaluation, and go."""
        for path in sorted(self.folder.glob("start-*")):
            if (path / FILE).is_file() and not read(path).history:
                try:
                    (path / FILE).unlink()
                except OSError as error:
                    raise JournalError(f"{path / FILE} cannot be removed: {error}") from error

    def _place(self, k: int) -> Path:
        return self.folder / f"start-{k:03d}"

    def _put(self, name: str, line: Mapping[str, Any]) -> None:
        """Replace a file of one record in one step."""
        path, draft = self.folder / name, self.folder / f"{name}.tmp"
        try:
            with draft.open("wb") as file:
                _write(file.fileno(), _line(line, b"")[0])
                _sync(file.fileno())
            os.replace(draft, path)
        except OSError as error:
            raise JournalError(f"the journal {path} cannot be written: {error}") from error

    def _get(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            with path.open("rb") as file:
                line = _next_line(file, 0, os.fstat(file.fileno()).st_size, b"")
        except OSError as error:
            raise JournalError(f"the journal {path} cannot be read: {error}") from error
        found: Any = None
        if line is not None:
            try:
                found = json.loads(line[0], parse_constant=_no_constant)
            except (ValueError, RecursionError):
                found = None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise JournalError(f"the journal {path} is damaged, or of another format")
        return found


def holds_starts(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run from many starts."""
    return (Path(folder) / STARTS).exists()
