"""The journal: every evaluation on disk before the next one begins.

A journal is a folder with one append-only text file of records, one line each:

    digest length {"kind": ..., ...}

`digest` is BLAKE2b of the previous record's digest and this record's text, so that a record that was changed, lost or
moved is noticed, and so is everything after it. A write that was cut short leaves a bad *last* record: it is dropped. A
bad record anywhere else is damage, and refused. Records are JSON and hold data only (`suffice.plain`); reading one
never executes anything. The kinds:

- `header`      format, versions, options, scaling, fingerprint of the objective, settings, the first state;
- `evaluation`  the record of the history, the evaluation itself, and the state of the search after it;
- `event`       what happened to the run besides: a lost worker, a dropped record, a run taken up again;
- `end`         why the run stopped, for readers; a run that is resumed goes on after it.

A state names the evaluations it holds by their numbers, so that a record is about as large as its evaluation.
Evaluations that the search no longer holds are dead weight: when they make up more than half of the file, it is written
anew without them, next to the old one, and put in its place in one step. The file therefore never exceeds about twice
what the search itself holds plus the history.

The file `lock` beside it keeps other writers out, and has the digest of the header: another run's journal is not taken
for this one. A journal that was cut behind a record is an earlier state of the run, and continues to the same result.

The search is told what the journal holds (images that can be computed again are left out of both), so that a resumed
run knows no less than an uninterrupted one, and continues to the same bits.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from suffice import files
from suffice._array import Array
from suffice.files import JournalError as JournalError  # for those who look for it here
from suffice.options import Options
from suffice.plain import check_fields, decode, encode
from suffice.result import Record
from suffice.upper.evaluation import Evaluation
from suffice.upper.scaling import Scaling
from suffice.upper.search import is_coarse
from suffice.upper.state import Plan, Point, Setting, State, Trial

FORMAT = "suffice journal 1"
FILE, LOCK = "journal.jsonl", "lock"
STARTS = "starts.json"  # of a run from many starts: `suffice.shelf`
PREFIX = 16 + 1 + 12 + 1  # digest and length, each with a space after it
SLACK = 1 << 22  # bytes of dead weight that are not worth writing a file anew

# Parts of a state that are written by reference, or not at all.
_BY_REFERENCE = {"points", "pool", "trial", "best", "records", "pending"}

# Parts that journals of earlier versions do not have: they start as in a new search.
_ADDED_LATER = {
    *("best", "retries", "unseen", "looked", "nothing_unseen", "floors", "restarts", "in_vain", "mark"),
    *("sparsity", "checked"),
}


@dataclass(frozen=True)
class Held:
    """An evaluation that the search holds, its number, and the point where it was made."""

    evaluation: Evaluation
    number: int
    u: Array


@dataclass(frozen=True)
class Contents:
    """A journal as it was read."""

    header: Mapping[str, Any]
    setting: Setting
    state: State
    held: tuple[Held, ...] = ()  # the evaluations that the state holds
    events: tuple[Mapping[str, Any], ...] = ()
    end: Mapping[str, Any] | None = None
    settings: Any = None  # whatever the run was started with, for those who have to make the problem again
    began: bytes = b""  # the digest of the header
    digest: bytes = b""  # of the last good record
    size: int = 0  # bytes up to and with the last good record
    torn: int = 0  # bytes after it

    @property
    def fingerprint(self) -> Mapping[str, str]:
        return self.header["fingerprint"]  # type: ignore[no-any-return]

    @property
    def history(self) -> tuple[Record, ...]:
        return self.state.records


def read(folder: str | os.PathLike[str]) -> Contents:
    """What a journal holds, without locking or changing it. Raises `JournalError` if it is not one, or damaged."""
    path = Path(folder) / FILE
    try:
        with os.fdopen(files.open_regular(path), "rb") as file:
            return _read(file, path)
    except FileNotFoundError:
        raise JournalError(f"{os.fspath(folder)} holds no journal ({FILE} is missing)") from None
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be read: {error}") from error


def versions() -> dict[str, str]:
    """What the last bits of a run depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("suffice", "numpy", "scipy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a source tree
            found[name] = "unknown"
    return found


@dataclass
class Journal:
    """A journal open for writing, by this process alone. `settings` is plain data for those who start runs from
    files."""

    folder: str | os.PathLike[str]
    settings: Any = None
    _lock: files.Lock | None = field(default=None, init=False, repr=False)
    _file: int | None = field(default=None, init=False, repr=False)
    _digest: bytes = field(default=b"", init=False, repr=False)
    _end: int = field(default=0, init=False, repr=False)
    _compact_from: int = field(default=0, init=False, repr=False)
    _header: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _held: tuple[Held, ...] = field(default=(), init=False, repr=False)
    _events: list[Mapping[str, Any]] = field(default_factory=list, init=False, repr=False)
    evaluations: int = field(default=0, init=False, repr=False)  # how many are on disk
    began: bytes = field(default=b"", init=False, repr=False)  # the digest of the header

    @property
    def path(self) -> Path:
        return Path(self.folder) / FILE

    def create(self, setting: Setting, state: State, fingerprint: Mapping[str, str]) -> Journal:
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
                "options": encode(setting.options),
                "scaling": encode(setting.scaling),
                "fingerprint": dict(fingerprint),
                "settings": encode(self.settings),
                "state": _state_to_plain(state, ()),
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
        lock = self._take_lock()
        try:
            try:
                self._file = files.open_to_change(self.path)
                with open(self._file, "rb", closefd=False) as file:
                    contents = _read(file, self.path)
                lock.check(self.path, contents.began)
                files.remove_draft(self.path)
                if contents.torn:
                    os.ftruncate(self._file, contents.size)
                    files.sync(self._file)
            except OSError as error:
                raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
            self._header, self._held = dict(contents.header), contents.held
            self._events, self.evaluations = list(contents.events), len(contents.history)
            self.began, self._digest, self._end = contents.began, contents.digest, contents.size
            self._compact_from = 2 * contents.size + SLACK
        except BaseException:
            self.close()
            raise
        return contents

    def keep(self, evaluation: Evaluation, encoded: Any, state: State) -> None:
        """The latest evaluation and the state after it: on disk when this returns."""
        number = len(state.records)
        held = _held(state, self._held, evaluation, number)
        line = {
            "kind": "evaluation",
            "number": number,
            "record": encode(state.records[-1]),
            "evaluation": encoded,
            "state": _state_to_plain(state, held),
        }
        for item in held:
            if item.evaluation is evaluation:
                line["u"] = encode(item.u)
        self._append(line)
        self._held, self.evaluations = held, number
        if self._end > self._compact_from:
            with contextlib.suppress(OSError):  # a full disk or a folder that may not be changed: the old file is good
                self._compact(state)

    def event(self, **what: Any) -> None:
        """Something that happened, for readers."""
        line = {"kind": "event", **what}
        self._append(line)
        self._events.append(line)

    def end(self, status: str, message: str, evaluations: int) -> None:
        """Why the run stopped."""
        self._append({"kind": "end", "status": status, "message": message, "evaluations": evaluations})

    def close(self) -> None:
        """Let others write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_lock(self) -> files.Lock:
        if self._lock is not None:
            raise JournalError(f"the journal in {os.fspath(self.folder)} is open already")
        self._lock = files.Lock.take(Path(self.folder) / LOCK)
        return self._lock

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            raise JournalError(f"the journal {self.path} is not open for writing")
        data, digest = _line(line, self._digest)
        if self._end + len(data) > files.JOURNAL:
            raise JournalError(f"the journal {self.path} would have more than {files.JOURNAL:,} bytes")
        try:
            os.lseek(self._file, self._end, os.SEEK_SET)
            files.write(self._file, data)
            files.sync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
        self._digest, self._end = digest, self._end + len(data)

    def _compact(self, state: State) -> None:
        fullest: dict[int, Held] = {}
        for item in sorted(self._held, key=lambda item: bool(item.evaluation.solutions)):
            fullest[item.number] = item

        def lines() -> Iterator[Mapping[str, Any]]:
            yield self._header
            yield from self._events
            for record in state.records:
                line = {"kind": "evaluation", "number": record.number, "record": encode(record)}
                if record.number in fullest:
                    item = fullest[record.number]
                    line |= {"evaluation": encode(item.evaluation), "u": encode(item.u)}
                if record is state.records[-1]:
                    line["state"] = _state_to_plain(state, self._held)
                yield line

        self._replace(lines())

    def _replace(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write a new file next to the old one, and put it in its place in one step."""
        began, digest, size = b"", b"", 0

        def written() -> Iterator[bytes]:
            nonlocal began, digest, size
            for line in lines:
                data, digest = _line(line, digest)
                began, size = began or digest, size + len(data)
                yield data

        if self._file is not None:  # Windows does not replace open files
            os.close(self._file)
            self._file = None
        try:
            files.replace_atomically(self.path, written(), alone=True)
        except (OSError, JournalError) as error:
            if self._end == 0:
                if isinstance(error, JournalError):
                    raise
                raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
            self._file = files.open_to_change(self.path)
            self._compact_from = 2 * self._end  # not again before long
            raise
        self._file = files.open_to_change(self.path)
        self.began, self._digest, self._end = began, digest, size
        self._compact_from = 2 * size + SLACK


# States by reference


def _points(state: State) -> Iterator[Point]:
    yield from state.points
    yield from state.pool
    if state.trial is not None:
        yield state.trial.point
    if state.best is not None:
        yield state.best


def _held(state: State, known: tuple[Held, ...], latest: Evaluation, number: int) -> tuple[Held, ...]:
    """Every evaluation of the state with its number; one that has lost its solutions is known by its content."""
    by_id = {id(item.evaluation): item.number for item in known} | {id(latest): number}
    found: dict[int, Held] = {}
    for point in _points(state):
        item = point.evaluation
        n = by_id.get(id(item)) or next(other.number for other in known if _same(item, point.u, other))
        found[id(item)] = Held(item, n, point.u)
    return tuple(found.values())


def _same(item: Evaluation, u: Array, other: Held) -> bool:
    one, two = (
        [part.tobytes() for part in (place, this.point, this.r, this.e)] + [this.work, this.distance, this.blocks]
        for this, place in ((item, u), (other.evaluation, other.u))
    )
    return one == two


def _state_to_plain(state: State, held: tuple[Held, ...]) -> dict[str, Any]:
    numbers = {id(item.evaluation): item.number for item in held}

    def reference(point: Point) -> list[Any]:
        item = point.evaluation
        return [numbers[id(item)], point.futile, encode(point.moved), bool(item.solutions)]

    plain = {item.name: encode(getattr(state, item.name)) for item in fields(State) if item.name not in _BY_REFERENCE}
    plain["points"] = [reference(point) for point in state.points]
    plain["pool"] = [reference(point) for point in state.pool]
    trial = state.trial
    plain["trial"] = None if trial is None else [reference(trial.point), encode(trial.plan)]
    plain["best"] = None if state.best is None else reference(state.best)
    return plain


def _state_from_plain(
    plain: Mapping[str, Any], lines: Mapping[int, Mapping[str, Any]], records: tuple[Record, ...]
) -> tuple[State, tuple[Held, ...]]:
    whole: dict[int, Evaluation] = {}
    bare: dict[int, Evaluation] = {}

    def point(reference: Any) -> Point:
        number, futile, moved, kept = reference
        if number not in lines:
            raise ValueError(f"the state names evaluation {number}, which is not there")
        if number not in whole:
            whole[number] = _expect(decode(lines[number]["evaluation"]), Evaluation, f"evaluation {number}")
        if not kept and whole[number].solutions and number not in bare:
            bare[number] = replace(whole[number], solutions=())
        evaluation = whole[number] if kept else bare.get(number, whole[number])
        u = decode(lines[number]["u"])
        return Point(**_checked(Point, {"u": u, "evaluation": evaluation, "futile": futile, "moved": decode(moved)}))

    points, pool = (tuple(map(point, _expect(plain[name], list, name))) for name in ("points", "pool"))
    trial = None
    if plain["trial"] is not None:
        reference, plan = plain["trial"]
        trial = Trial(point(reference), _expect(decode(plan), Plan, "trial"))
    best = None if plain.get("best") is None else point(plain["best"])
    names = {item.name for item in fields(State)} - _BY_REFERENCE
    simple = {name: decode(plain[name]) for name in names - (_ADDED_LATER - set(plain))}
    by_reference = {"points": points, "pool": pool, "trial": trial, "best": best, "records": records}
    state = State(**_checked(State, {**simple, **by_reference}))
    table = {id(item): n for known in (whole, bare) for n, item in known.items()}
    held = {id(item.evaluation): Held(item.evaluation, table[id(item.evaluation)], item.u) for item in _points(state)}
    return state, tuple(held.values())


def _checked(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    check_fields(cls, values)
    return values


def _expect(value: Any, cls: type, name: str) -> Any:
    if not isinstance(value, cls):
        raise ValueError(f"{name} must be {cls.__name__}, got {type(value).__name__}")
    return value


# Lines


def _line(line: Mapping[str, Any], before: bytes) -> tuple[bytes, bytes]:
    text = json.dumps(line, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > files.RECORD:
        raise JournalError(f"a record of {len(text)} bytes is too large for a journal, which takes {files.RECORD}")
    digest = _digest(before, text)
    return b"%s %012d %s\n" % (digest, len(text), text), digest


def _digest(before: bytes, text: bytes) -> bytes:
    return blake2b(before + text, digest_size=8).hexdigest().encode("ascii")


def good_lines(file: IO[bytes], path: Path) -> Iterator[tuple[bytes, bytes, int]]:
    """(text, digest, end) of every record, up to one at the end that was cut short; other damage is refused."""
    total = os.fstat(file.fileno()).st_size
    if total > files.JOURNAL:
        raise JournalError(f"the journal {path} has more than {files.JOURNAL:,} bytes, and is not read")
    offset, digest = 0, b""
    while offset < total:
        line = _next_line(file, offset, total, digest)
        if line is None:
            if _anything_after(file, offset, total):
                raise JournalError(
                    f"the journal {path} is damaged: the record at byte {offset} is not what was written"
                )
            return
        text, digest, length = line
        offset += length
        yield text, digest, offset


NONSENSE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


def _read(file: IO[bytes], path: Path) -> Contents:
    reading = _Reading()
    offset, began, digest = 0, b"", b""
    for text, latest, end in good_lines(file, path):
        try:
            reading.take(text)
        except NONSENSE as error:
            raise JournalError(f"the journal {path} cannot be understood at byte {offset}: {_short(error)}") from error
        offset, began, digest = end, began or latest, latest
    if reading.header is None:
        raise JournalError(f"{path} is not a journal, or its first record is incomplete")
    try:
        contents = reading.contents()
    except NONSENSE as error:
        raise JournalError(f"the journal {path} cannot be understood: {_short(error)}") from error
    torn = max(os.fstat(file.fileno()).st_size - offset, 0)
    return replace(contents, began=began, digest=digest, size=offset, torn=torn)


def _short(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 300 else f"{text[:300]} ..."


def _next_line(file: IO[bytes], offset: int, total: int, digest: bytes) -> tuple[bytes, bytes, int] | None:
    """(text, digest, bytes) of the record at `offset`, or None if it is not a good one."""
    file.seek(offset)
    prefix = file.read(PREFIX)
    if len(prefix) < PREFIX or prefix[16:17] != b" " or prefix[-1:] != b" " or not prefix[17:-1].isdigit():
        return None
    size = int(prefix[17:-1])
    if size > files.RECORD or offset + PREFIX + size + 1 > total:
        return None
    text = file.read(size)
    if file.read(1) != b"\n" or _digest(digest, text) != prefix[:16]:
        return None
    return text, prefix[:16], PREFIX + size + 1


def _anything_after(file: IO[bytes], offset: int, total: int) -> bool:
    """Whether a bad record is followed by another one, that is, whether a line ends before the end of the file; or
    whether there is more than a record can have."""
    if total - offset > PREFIX + files.RECORD + 1:
        return True
    file.seek(offset)
    position = offset
    while chunk := file.read(1 << 16):
        at = chunk.find(b"\n")
        if at >= 0:
            return position + at + 1 < total
        position += len(chunk)
    return False


class _Reading:
    """Takes records one by one, and forgets evaluations as soon as the search had."""

    def __init__(self) -> None:
        self.header: Mapping[str, Any] | None = None
        self.records: list[Record] = []
        self.lines: dict[int, Mapping[str, Any]] = {}
        self.state: Mapping[str, Any] | None = None
        self.events: list[Mapping[str, Any]] = []
        self.end: Mapping[str, Any] | None = None

    def take(self, text: bytes) -> None:
        line = json.loads(text, parse_constant=_no_constant)
        kind = _expect(line, dict, "a record").get("kind")
        if (kind == "header") != (self.header is None):
            raise ValueError("the header must be the first record and the only one")
        if kind == "header":
            if line.get("format") != FORMAT:
                raise ValueError(f"the format must be {FORMAT!r}, got {line.get('format')!r}")
            for name in ("versions", "fingerprint"):
                if not all(isinstance(item, str) for pair in _expect(line[name], dict, name).items() for item in pair):
                    raise ValueError(f"{name} must map words to words")
            self.header, self.state = line, _expect(line["state"], dict, "state")
        elif kind == "evaluation":
            record = _expect(decode(line["record"]), Record, "record")
            number = _expect(line["number"], int, "number")
            if number != len(self.records) + 1 or record.number != number:
                raise ValueError(f"evaluation {len(self.records) + 1} is missing: the next one is {number}")
            self.records.append(record)
            self.end = None
            if "evaluation" in line:
                self.lines[number] = line
            if "state" in line:
                self.state = _expect(line["state"], dict, "state")
                held = {reference[0] for reference in _references(self.state)}
                self.lines = {n: item for n, item in self.lines.items() if n in held}
        elif kind == "event":
            self.events.append(line)
        elif kind == "end":
            self.end = line
        else:
            raise ValueError(f"there is no record of kind {kind!r}")

    def contents(self) -> Contents:
        assert self.header is not None and self.state is not None
        options = _expect(decode(self.header["options"]), Options, "options")
        scaling = _expect(decode(self.header["scaling"]), Scaling, "scaling")
        setting = Setting(scaling, options)
        state, held = _state_from_plain(self.state, self.lines, tuple(self.records))
        check_state(state, setting)
        settings = decode(self.header["settings"])
        return Contents(self.header, setting, state, held, tuple(self.events), self.end, settings)


def _references(plain: Mapping[str, Any]) -> Iterator[Any]:
    yield from plain["points"]
    yield from plain["pool"]
    if plain["trial"] is not None:
        yield plain["trial"][0]
    if plain.get("best") is not None:
        yield plain["best"]


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def check_state(state: State, setting: Setting) -> None:
    """Whether the parts of a state that comes from outside belong together; raises ValueError if not."""
    m = len(setting.scaling.lower)
    for name in ("lower", "upper", "origin", "unit"):
        if getattr(setting.scaling, name).shape != (m,):
            raise ValueError(f"scaling.{name} must have shape ({m},)")
    first = state.points[0].evaluation if state.points else None
    for u in [*state.first, *(point.u for point in _points(state))]:
        if u.shape != (m,):
            raise ValueError(f"a point must have shape ({m},), got {u.shape}")
    for point in _points(state):
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
    if state.points and not 0 <= state.incumbent < len(state.points):
        raise ValueError(f"the incumbent must be one of {len(state.points)} points, got {state.incumbent}")
    if len(state.points) + len(state.first) != m + 1:
        raise ValueError(f"there must be {m + 1} points, got {len(state.points)} and {len(state.first)} to come")
    if state.sparsity is not None:
        rows = 0 if first is None else len(first.coarse if is_coarse(state) else first.r)
        S = state.sparsity
        if S.ndim != 2 or len(S) != rows or S.shape[1] < 1 or S.min() < 0 or S.max() > m:
            raise ValueError(f"sparsity must give parameters of {m} for each of {rows} residuals")
    if bool(state.records) != bool(state.points):
        raise ValueError("there must be points once there are evaluations")
