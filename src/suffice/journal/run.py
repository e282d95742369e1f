"""The journal of a run: every evaluation on disk before the next one begins.

A journal is a folder with one append-only file of checked lines (`suffice.journal.lines`). Records hold data only
(`suffice.journal.codec`). Their kinds:

- `header`      format, versions, options, scaling, fingerprint of the objective, settings, the first state;
- `evaluation`  the record of the history, the evaluation itself, and the state of the search after it;
- `event`       what happened to the run besides: a lost worker, a dropped record, a run taken up again;
- `end`         why the run stopped, for readers; a run that is resumed goes on after it.

A state names the evaluations it holds by their numbers (`suffice.journal.states`). Evaluations that the search no
longer holds are dead weight: when they make up more than half of the file, it is written anew without them, next to the
old one, and put in its place in one step. The file therefore never exceeds about twice what the search itself holds
plus the history.

The file `lock` beside it keeps other writers out, and has the digest of the header: another run's journal is not taken
for this one. A journal that was cut behind a record is an earlier state of the run, and continues to the same result.

The search is told what the journal holds (images that can be computed again are left out of both), so that a resumed
run knows no less than an uninterrupted one, and continues to the same bits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice import files
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.journal.codec import decode, encode
from suffice.journal.fingerprint import versions
from suffice.journal.lines import FILE, LOCK, NONSENSE, STARTS, Extent, Lines, read_records, shortened
from suffice.journal.states import Held, check_state, expect, held_by, references, state_from_plain, state_to_plain
from suffice.options import Options
from suffice.protocols import Closing
from suffice.result import Record
from suffice.search.scaling import Scaling
from suffice.search.state import Setting
from suffice.search.strategy import Search

FORMAT = "suffice journal 1"
SLACK = 1 << 22  # bytes of dead weight that are not worth writing a file anew


@dataclass(frozen=True)
class Contents:
    """A journal as it was read."""

    header: Mapping[str, Any]
    search: Search
    held: tuple[Held, ...] = ()  # the evaluations that the state holds
    events: tuple[Mapping[str, Any], ...] = ()
    end: Mapping[str, Any] | None = None
    settings: Any = None  # whatever the run was started with, for those who have to make the problem again
    began: bytes = b""  # the digest of the header
    digest: bytes = b""  # of the last good record
    size: int = 0  # bytes up to and with the last good record
    torn: int = 0  # bytes after it

    @property
    def setting(self) -> Setting:
        return self.search.setting

    @property
    def fingerprint(self) -> Mapping[str, str]:
        return self.header["fingerprint"]  # type: ignore[no-any-return]

    @property
    def history(self) -> tuple[Record, ...]:
        return self.search.ledger.records


def read(folder: str | os.PathLike[str]) -> Contents:
    """What a journal holds, without locking or changing it. Raises `JournalError` if it is not one, or damaged."""
    path, reading = Path(folder) / FILE, _Reading()
    try:
        with os.fdopen(files.open_regular(path), "rb") as file:
            extent = read_records(file, path, reading.take)
    except FileNotFoundError:
        raise JournalError(f"{os.fspath(folder)} holds no journal ({FILE} is missing)") from None
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be read: {error}") from error
    return reading.contents(path, extent)


@dataclass
class Journal(Closing):
    """A journal open for writing, by this process alone. `settings` is plain data for those who start runs from
    files."""

    folder: str | os.PathLike[str]
    settings: Any = None
    _lock: files.Lock | None = field(default=None, init=False, repr=False)
    _lines: Lines = field(init=False, repr=False)
    _compact_from: int = field(default=0, init=False, repr=False)
    _header: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _held: tuple[Held, ...] = field(default=(), init=False, repr=False)
    _events: list[Mapping[str, Any]] = field(default_factory=list, init=False, repr=False)
    evaluations: int = field(default=0, init=False, repr=False)  # how many are on disk

    def __post_init__(self) -> None:
        self._lines = Lines(self.path)

    @property
    def path(self) -> Path:
        return Path(self.folder) / FILE

    @property
    def began(self) -> bytes:
        """The digest of the header."""
        return self._lines.began

    def create(self, search: Search, fingerprint: Mapping[str, str]) -> Journal:
        """Begin the journal of a new run. A folder that holds a run already is refused."""
        folder = files.make_folder(Path(self.folder))
        lock = self._take_lock()
        try:
            if files.present(self.path) or files.present(folder / STARTS):
                raise JournalError(f"{folder} holds a run: suffice.resume continues it, a new one needs another folder")
            lock.note(b"")
            self._header = {
                "kind": "header",
                "format": FORMAT,
                "versions": versions(),
                "options": encode(search.setting.options),
                "scaling": encode(search.setting.scaling),
                "fingerprint": dict(fingerprint),
                "settings": encode(self.settings),
                "state": state_to_plain(search, ()),
            }
            self._replace([self._header])
            lock.note(self.began)
        except BaseException:
            self.close()
            raise
        return self

    def open(self) -> Contents:
        """Lock an existing journal, read it, drop a torn record at its end, and be ready to go on."""
        if not files.present(self.path):
            raise JournalError(f"{os.fspath(self.folder)} holds no journal ({FILE} is missing)")
        lock, reading = self._take_lock(), _Reading()
        try:
            try:
                extent = self._lines.open(reading.take)
                contents = reading.contents(self.path, extent)
                lock.check(self.path, contents.began)
                files.remove_draft(self.path)
                if extent.torn:
                    self._lines.drop()
            except OSError as error:
                raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
            self._header, self._held = dict(contents.header), contents.held
            self._events, self.evaluations = list(contents.events), len(contents.history)
            self._compact_from = 2 * contents.size + SLACK
        except BaseException:
            self.close()
            raise
        return contents

    def keep(self, evaluation: Evaluation, encoded: Any, search: Search) -> None:
        """The latest evaluation and the state after it: on disk when this returns."""
        number = len(search.ledger.records)
        held = held_by(search, self._held, evaluation, number)
        line = {
            "kind": "evaluation",
            "number": number,
            "record": encode(search.ledger.records[-1]),
            "evaluation": encoded,
            "state": state_to_plain(search, held),
        }
        for item in held:
            if item.number == number:
                line["u"] = encode(item.u)
        self._lines.append(line)
        self._held, self.evaluations = held, number
        if self._lines.end > self._compact_from:
            with contextlib.suppress(OSError):  # a full disk or a folder that may not be changed: the old file is good
                self._compact(search)

    def event(self, **what: Any) -> None:
        """Something that happened, for readers."""
        line = {"kind": "event", **what}
        self._lines.append(line)
        self._events.append(line)

    def end(self, status: str, message: str, evaluations: int) -> None:
        """Why the run stopped."""
        self._lines.append({"kind": "end", "status": status, "message": message, "evaluations": evaluations})

    def close(self) -> None:
        """Let others write."""
        self._lines.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_lock(self) -> files.Lock:
        if self._lock is not None:
            raise JournalError(f"the journal in {os.fspath(self.folder)} is open already")
        self._lock = files.Lock.take(Path(self.folder) / LOCK)
        self._lines = Lines(self.path)
        return self._lock

    def _compact(self, search: Search) -> None:
        fullest: dict[int, Held] = {}
        for item in sorted(self._held, key=lambda item: bool(item.evaluation.solutions)):
            fullest[item.number] = item

        def lines() -> Iterator[Mapping[str, Any]]:
            yield self._header
            yield from self._events
            for record in search.ledger.records:
                line = {"kind": "evaluation", "number": record.number, "record": encode(record)}
                if record.number in fullest:
                    item = fullest[record.number]
                    line |= {"evaluation": encode(item.evaluation), "u": encode(item.u)}
                if record is search.ledger.records[-1]:
                    line["state"] = state_to_plain(search, self._held)
                yield line

        self._replace(lines())

    def _replace(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self._compact_from = 2 * self._lines.end  # where this fails: not again before long
        self._lines.replace(lines)
        self._compact_from = 2 * self._lines.end + SLACK


class _Reading:
    """Takes records one by one, and forgets evaluations as soon as the search had."""

    def __init__(self) -> None:
        self.header: Mapping[str, Any] | None = None
        self.records: list[Record] = []
        self.lines: dict[int, Mapping[str, Any]] = {}
        self.state: Mapping[str, Any] | None = None
        self.events: list[Mapping[str, Any]] = []
        self.end: Mapping[str, Any] | None = None

    def take(self, line: Any) -> None:
        kind = expect(line, dict, "a record").get("kind")
        if (kind == "header") != (self.header is None):
            raise ValueError("the header must be the first record and the only one")
        if kind == "header":
            if line.get("format") != FORMAT:
                raise ValueError(f"the format must be {FORMAT!r}, got {line.get('format')!r}")
            for name in ("versions", "fingerprint"):
                if not all(isinstance(item, str) for pair in expect(line[name], dict, name).items() for item in pair):
                    raise ValueError(f"{name} must map words to words")
            self.header, self.state = line, expect(line["state"], dict, "state")
        elif kind == "evaluation":
            record = expect(decode(line["record"]), Record, "record")
            number = expect(line["number"], int, "number")
            if number != len(self.records) + 1 or record.number != number:
                raise ValueError(f"evaluation {len(self.records) + 1} is missing: the next one is {number}")
            self.records.append(record)
            self.end = None
            if "evaluation" in line:
                self.lines[number] = line
            if "state" in line:
                self.state = expect(line["state"], dict, "state")
                held = {reference[0] for reference in references(self.state)}
                self.lines = {n: item for n, item in self.lines.items() if n in held}
        elif kind == "event":
            self.events.append(line)
        elif kind == "end":
            self.end = line
        else:
            raise ValueError(f"there is no record of kind {kind!r}")

    def contents(self, path: Path, extent: Extent) -> Contents:
        """All of it together; a journal that makes no sense is refused."""
        if self.header is None or self.state is None:
            raise JournalError(f"{path} is not a journal, or its first record is incomplete")
        try:
            options = expect(decode(self.header["options"]), Options, "options")
            scaling = expect(decode(self.header["scaling"]), Scaling, "scaling")
            setting = Setting(scaling, options)
            search, held = state_from_plain(self.state, self.lines, tuple(self.records), setting)
            check_state(search)
            settings = decode(self.header["settings"])
        except NONSENSE as error:
            raise JournalError(f"the journal {path} cannot be understood: {shortened(error)}") from error
        return Contents(
            self.header,
            search,
            held,
            events=tuple(self.events),
            end=self.end,
            settings=settings,
            began=extent.began,
            digest=extent.digest,
            size=extent.size,
            torn=extent.torn,
        )
