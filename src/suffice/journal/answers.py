"""The journal of a run: the list of answers to its requests, each on disk before the next evaluation begins.

A search is a function of the answers to its requests. A run that is taken up asks the same questions in the same order,
takes from the list what has been answered, and makes the first evaluation that is not there. It ends at the same bits
as a run that was never interrupted, because that one, too, goes on with what its journal holds (images that can be
computed again are left out of both).

A journal is a folder with one append-only file of checked lines (`suffice.journal.lines`). Records hold data only
(`suffice.journal.codec`). Their kinds:

- `header`   format, versions, the fingerprint of problem and settings, what the run began with;
- `answers`  those to one turn of requests: a turn of many starts has either been made or it has not. Each has a key, by
             which a request finds it, and the record of the history that it led to;
- `event`    what happened to the run besides: a lost worker, a dropped record, a run taken up again;
- `end`      why the run stopped, for readers; a run that is taken up goes on after it;
- `whole`    how many answers, from the first on, belong together.

Solutions, from which searches start later solves and make derivatives, are the bulk of an answer, and those that a
search no longer holds are dead weight. Where the file has doubled since, it is written anew without them, next to the
old one, and put in its place in one step. A file that was cut behind a record is an earlier state of the run, and
continues to the same result;
one that was cut inside what belongs together is refused.

The file `lock` beside it keeps other writers out, and has the digest of the header: another run's journal is not taken
for this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from suffice import files
from suffice.arrays import Array, outside_stacklevel
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.journal.codec import decode, encode
from suffice.journal.fingerprint import differences, versions
from suffice.journal.lines import NONSENSE, Lines, shortened
from suffice.protocols import Closing
from suffice.result import Record
from suffice.signals import undisturbed

FORMAT = "suffice journal 5"
FILE, LOCK = "journal.jsonl", "lock"
SLACK = 1 << 20  # bytes of dead weight that are not worth writing a file anew


@dataclass
class Contents:
    """A journal as it was read: `starts` are the histories of all starts."""

    path: Path
    header: Mapping[str, Any] = field(default_factory=dict)
    settings: Any = None  # whatever the run was started with, for those who have to make the problem again
    arguments: Any = None  # the arguments that `suffice.resume` goes on with
    starts: list[list[Record]] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    end: Mapping[str, Any] | None = None
    seconds: float = 0.0  # that the run had taken at its latest answer
    answers: int = 0
    places: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list), repr=False)
    whole: int = field(default=0, repr=False)
    began: bytes = b""  # the digest of the header
    torn: int = 0  # bytes after the last good record

    @property
    def history(self) -> tuple[Record, ...]:
        """The records of all evaluations, start by start."""
        return tuple(record for start in self.starts for record in start)

    def refuse_changes(self, changed: Sequence[str]) -> None:
        """Whatever has changed is named."""
        if changed:
            shown = "; ".join(changed[:8]) + (f"; and {len(changed) - 8} more" if len(changed) > 8 else "")
            raise JournalError(f"{self.path} holds a run of another problem: {shown}")

    def warn_of_versions(self) -> None:
        """Other versions may end at other last bits."""
        others = differences(self.header["versions"], versions())
        if others:
            level = outside_stacklevel()
            warnings.warn(f"the run is continued with other versions: {'; '.join(others)}", stacklevel=level)

    def take(self, line: Any, offset: int) -> None:
        """The next record, which begins at this byte."""
        kind = line["kind"]
        if (kind == "header") != (not self.header):
            raise ValueError("the header must be the first record and the only one")
        if kind == "header":
            self._take_header(line)
        elif kind == "answers":
            for i, answer in enumerate(line["answers"]):
                self.places[str(answer["key"])].append((offset, i))
                self.answers += 1
                if "record" in answer:
                    self._take_record(decode(answer["record"]), answer["start"])
            self.seconds, self.end = float(line["seconds"]), None
        elif kind == "event":
            self.events.append(line)
        elif kind == "end":
            self.end = line
        elif kind == "whole":
            self.whole = int(line["answers"])
        else:
            raise ValueError(f"there is no record of kind {kind!r}")

    def _take_header(self, line: Mapping[str, Any]) -> None:
        if line["format"] != FORMAT:
            version = line["versions"].get("suffice", "") if isinstance(line.get("versions"), Mapping) else ""
            reader = f"suffice {version}, which wrote it," if version else "the version of suffice that wrote it"
            found = f"{self.path} is of format {line['format']!r:.60}, not {FORMAT!r}"
            raise JournalError(f"{found}: {reader} goes on with it")
        for name in ("versions", "fingerprint"):
            if not all(isinstance(item, str) for pair in line[name].items() for item in pair):
                raise ValueError(f"{name} must map words to words")
        self.header, self.settings, self.arguments = line, decode(line["settings"]), decode(line["arguments"])

    def _take_record(self, record: Any, start: Any) -> None:
        if not isinstance(record, Record) or start not in range(len(self.starts) + 1):
            raise ValueError(f"a record of a start was expected, got {type(record).__name__} of {start!r:.20}")
        if start == len(self.starts):
            self.starts.append([])
        if record.number not in range(1, len(self.starts[start]) + 2):
            raise ValueError(f"evaluation {len(self.starts[start]) + 1} is missing: the next one is {record.number}")
        del self.starts[start][record.number - 1 :]  # other versions may have gone another way
        self.starts[start].append(record)


def read(folder: str | os.PathLike[str]) -> Contents:
    """What a journal holds, without locking or changing it. Raises `JournalError` if it is not one, or damaged."""
    with Journal(folder) as journal:
        return journal.look()


@dataclass
class Journal(Closing):
    """A journal, open for writing by this process alone. `settings` is plain data for those who start runs from
    files."""

    folder: str | os.PathLike[str]
    settings: Any = None
    evaluations: int = field(default=0, init=False, repr=False)  # how many answers are on disk
    _lock: files.Lock | None = field(default=None, init=False, repr=False)
    _lines: Lines = field(init=False, repr=False)
    _places: dict[str, list[tuple[int, int]]] = field(default_factory=dict, init=False, repr=False)
    _compact_from: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._lines = Lines(self.path)

    @property
    def path(self) -> Path:
        return Path(self.folder) / FILE

    def create(self, fingerprint: Mapping[str, str], arguments: Any = None) -> Journal:
        """Begin the journal of a new run. A folder that holds one already is refused."""
        with self._locked() as lock:
            if files.present(self.path):
                raise JournalError(
                    f"{os.fspath(self.folder)} holds a run: suffice.resume continues it, a new one needs another folder"
                )
            self._begin(lock, fingerprint, arguments)
        return self

    def open(self) -> Contents:
        """Lock an existing journal, read it, and be ready to go on after its last good record."""
        self._refuse_nothing()
        with self._locked() as lock:
            return self._open(lock)

    def look(self) -> Contents:
        """Read an existing journal, whoever is writing it; nothing can be written."""
        self._refuse_nothing()
        self._lines = Lines(self.path)
        try:
            return self._read(to_change=False)
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be read: {error}") from error

    def continued(self, fingerprint: Mapping[str, str]) -> Journal:
        """Go on with the journal in the folder, or begin it if there is none. One of other data or settings is
        refused."""
        with self._locked() as lock:
            if not files.present(self.path):
                self._begin(lock, fingerprint, None)
            else:
                contents = self._open(lock)
                contents.refuse_changes(differences(contents.header["fingerprint"], fingerprint))
                contents.warn_of_versions()
        return self

    def take(self, key: str, kind: type = Evaluation) -> Any:
        """The answer to a request, if it is on disk; every answer is given once."""
        places = self._places.get(key)
        if not places:
            return None
        offset, i = places.pop(0)
        try:
            answer = decode(self._lines.record_at(offset)["answers"][i]["answer"])
            if not isinstance(answer, kind):
                raise TypeError(f"{kind.__name__} was expected, got {type(answer).__name__}")
        except NONSENSE as error:
            raise JournalError(f"the journal {self.path} cannot be understood: {shortened(error)}") from error
        return answer

    def keep(self, key: str, purpose: str, answer: Any) -> Any:
        """The answer as the journal knows it: on disk when this returns."""
        encoded = encode(answer)
        self.write([{"key": key, "purpose": purpose, "answer": encoded}], 0.0)
        return decode(encoded)

    def write(self, answers: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """All answers of a turn, `answer` encoded: on disk when this returns, or none of them."""
        with undisturbed():
            self._lines.append({"kind": "answers", "seconds": seconds, "answers": answers})
            self.evaluations += len(answers)

    def event(self, **what: Any) -> None:
        """Something that happened, for readers."""
        self._lines.append({"kind": "event", **what})

    def end(self, status: str, message: str, evaluations: int) -> None:
        """Why the run stopped."""
        self._lines.append({"kind": "end", "status": status, "message": message, "evaluations": evaluations})

    def compact(self, held: Iterable[Evaluation], derived: Iterable[Evaluation] = ()) -> None:
        """If the file has doubled: write it anew without the solutions of any other evaluations than these; those that
        are `derived` take the place of what was written before their derivatives were known."""
        if self._lines.end <= self._compact_from or any(self._places.values()):  # answers that are yet to be taken
            return
        needed = {_content(encode(one)) for one in held}
        plain = (encode(replace(one, solutions=())) for one in derived)
        instead = {_content(one): one for one in plain}

        def lines() -> Iterator[Mapping[str, Any]]:
            for line in self._lines.records():
                for answer in line.get("answers", ()) if line["kind"] == "answers" else ():
                    made = answer["answer"]
                    if made.get("class") == "Evaluation" and _content(made) not in needed:
                        made["fields"]["solutions"] = encode(())
                        answer["answer"] = instead.get(_content(made), made)
                if line["kind"] != "whole":
                    yield line
                if line["kind"] == "header":
                    yield {"kind": "whole", "answers": self.evaluations}

        self._compact_from, self._places = 2 * self._lines.end, {}  # where this fails: not again before long
        with contextlib.suppress(OSError, *NONSENSE):  # a full disk, say: the old file is good
            self._lines.replace(lines())
            self._compact_from = 2 * self._lines.end + SLACK

    def close(self) -> None:
        """Let others write."""
        self._lines.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[files.Lock]:
        """The lock, which is kept unless something goes wrong inside."""
        if self._lock is not None:
            raise JournalError(f"the journal in {os.fspath(self.folder)} is open already")
        self._lock = files.Lock.take(files.make_folder(Path(self.folder)) / LOCK)
        self._lines = Lines(self.path)
        try:
            yield self._lock
        except OSError as error:
            self.close()
            raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
        except BaseException:
            self.close()
            raise

    def _begin(self, lock: files.Lock, fingerprint: Mapping[str, str], arguments: Any) -> None:
        lock.note(b"")
        header = {"kind": "header", "format": FORMAT, "versions": versions(), "fingerprint": dict(fingerprint)}
        self._lines.replace([{**header, "settings": encode(self.settings), "arguments": encode(arguments)}])
        self._compact_from, self.evaluations = 2 * self._lines.end + SLACK, 0
        lock.note(self._lines.began)

    def _open(self, lock: files.Lock) -> Contents:
        contents = self._read(to_change=True)
        lock.check(self.path, contents.began)
        files.remove_draft(self.path)
        return contents

    def _read(self, *, to_change: bool) -> Contents:
        contents = Contents(self.path)
        self._lines.open(contents.take, to_change=to_change)
        if not contents.header:
            raise JournalError(f"{self.path} is not a journal, or its first record is incomplete")
        if contents.answers < contents.whole:
            raise JournalError(
                f"{self.path} was cut short: it holds {contents.answers} evaluations of {contents.whole} that belong "
                "together"
            )
        contents.began, contents.torn = self._lines.began, self._lines.torn
        self._places, self.evaluations = contents.places, contents.answers
        self._compact_from = 2 * self._lines.end + SLACK
        return contents

    def _refuse_nothing(self) -> None:
        if not files.present(self.path):
            raise JournalError(f"{os.fspath(self.folder)} holds no journal ({FILE} is missing)")


def request_key(policy: str, theta: Array, within: float, warm: Evaluation | None) -> str:
    """A request as a short word: the same for the same question only."""
    content = blake2b(f"{policy} {within.hex()} ".encode() + theta.tobytes(), digest_size=12)
    if warm is not None:
        content.update(warm.point.tobytes() + warm.e.tobytes() + warm.r.tobytes())
    return content.hexdigest()


def _content(encoded: Mapping[str, Any]) -> str:
    """An evaluation without what may be left out of it, or is added to it: derivatives are work, too."""
    return json.dumps([encoded["fields"][name] for name in ("theta", "residuals", "errors")])
