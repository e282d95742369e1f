"""The journal of a search: every finished evaluation on disk before the next one begins.

A search is a function of the answers to its requests, so its journal is the list of these answers. A second fit asks
the same questions in the same order, takes what has been answered from the list, and makes the first evaluation that
is not there. It ends at the same bits as a fit that was never interrupted, because that one, too, goes on with what
its journal holds. Budgets may differ: with a larger one the search goes on, where it had ended, from there.

The file is one of checked lines, as in `suffice.journal`: a header with versions and the fingerprint of data and
settings, then one line for every evaluation. A line that was cut short at the end is dropped; any other damage, and
any difference of data or settings, is refused.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from suffice import files
from suffice._array import Array, outside_stacklevel
from suffice.files import JournalError
from suffice.fingerprint import differences
from suffice.journal import (
    FILE,
    LOCK,
    NONSENSE,
    STARTS,
    _line,
    _no_constant,
    _short,
    good_lines,
    versions,
)
from suffice.plain import decode, encode
from suffice.signals import undisturbed
from suffice.upper.evaluation import Evaluation

FORMAT = "suffice search 1"


@dataclass
class SearchJournal:
    """A journal open for reading and writing, by this process alone; `fingerprint` is of data and settings."""

    folder: str | os.PathLike[str]
    fingerprint: Mapping[str, str]
    evaluations: int = field(default=0, init=False)  # how many are on disk
    _known: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list), init=False, repr=False)
    _lock: files.Lock | None = field(default=None, init=False, repr=False)
    _file: int = field(default=-1, init=False, repr=False)
    _began: bytes = field(default=b"", init=False, repr=False)  # the digest of the header
    _digest: bytes = field(default=b"", init=False, repr=False)
    _end: int = field(default=0, init=False, repr=False)

    @property
    def path(self) -> Path:
        return Path(self.folder) / FILE

    def __enter__(self) -> SearchJournal:
        folder = files.make_folder(self.path.parent)
        self._lock = files.Lock.take(folder / LOCK)
        try:
            if files.present(folder / STARTS):
                raise JournalError(f"{folder} holds a run from many starts: a search needs another folder")
            if files.present(self.path):
                self._read()
            if self._end == 0:
                self._begin()
            self._lock.check(self.path, self._began)
            files.remove_draft(self.path)
        except OSError as error:
            self.__exit__()
            raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        """A journal with a header, and nothing more."""
        assert self._lock is not None
        if self._file >= 0:  # Windows does not replace open files
            os.close(self._file)
            self._file = -1
        header = {"kind": "header", "format": FORMAT, "versions": versions(), "fingerprint": self.fingerprint}
        data, self._digest = _line(header, b"")
        self._lock.note(b"")
        files.replace_atomically(self.path, data, alone=True)
        self._file = files.open_to_change(self.path)
        self._began, self._end = self._digest, len(data)

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
        if self._lock is not None:
            self._lock.release()
        self._file, self._lock = -1, None

    def take(self, key: str) -> Evaluation | None:
        """The answer to a request, if it is on disk; every answer is given once."""
        answers = self._known[key]
        return _evaluation(answers.pop(0)) if answers else None

    def keep(self, key: str, purpose: str, evaluation: Evaluation) -> Evaluation:
        """The evaluation as the journal knows it: on disk when this returns."""
        encoded = encode(evaluation)
        with undisturbed():
            self._append({"kind": "evaluation", "key": key, "purpose": purpose, "evaluation": encoded})
            self.evaluations += 1
        return _evaluation(encoded)

    def _append(self, line: Mapping[str, Any]) -> None:
        data, digest = _line(line, self._digest)
        if self._end + len(data) > files.JOURNAL:
            raise JournalError(f"the journal {self.path} would have more than {files.JOURNAL:,} bytes")
        try:
            os.lseek(self._file, self._end, os.SEEK_SET)
            os.ftruncate(self._file, self._end)
            files.write(self._file, data)
            files.sync(self._file)
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
        self._digest, self._end = digest, self._end + len(data)

    def _read(self) -> None:
        self._file = files.open_to_change(self.path)
        with open(self._file, "rb", closefd=False) as file:
            for text, digest, end in good_lines(file, self.path):
                try:
                    self._take_in(json.loads(text, parse_constant=_no_constant))
                except NONSENSE as error:
                    where = f"the journal {self.path} cannot be understood at byte {self._end}"
                    raise JournalError(f"{where}: {_short(error)}") from error
                self._began, self._digest, self._end = self._began or digest, digest, end
            file.seek(0)
            if self._end == 0 and not _torn_header(file.read(1 << 12)):
                raise JournalError(f"{self.path} is not a journal: its first record is no header")

    def _take_in(self, line: Any) -> None:
        if self._end == 0:
            if line["kind"] != "header" or line["format"] != FORMAT:
                raise ValueError(f"its first record must be a header of format {FORMAT!r}")
            self._compare(line)
        elif line["kind"] == "evaluation":
            self._known[line["key"]].append(line["evaluation"])
            self.evaluations += 1
        else:
            raise ValueError(f"there is no record of kind {line['kind']!r} here")

    def _compare(self, header: Mapping[str, Any]) -> None:
        changed = differences(header["fingerprint"], self.fingerprint)
        if changed:
            shown = "; ".join(changed[:8]) + (f"; and {len(changed) - 8} more" if len(changed) > 8 else "")
            raise JournalError(f"{self.path} holds a search of other data or settings: {shown}")
        others = differences(header["versions"], versions())
        if others:
            level = outside_stacklevel()
            warnings.warn(f"the search is continued with other versions: {'; '.join(others)}", stacklevel=level)


def _torn_header(content: bytes) -> bool:
    """Whether these bytes, which are no record, may be a header that was cut short; then nothing was finished."""
    start = b'{"kind":"header","format":"%s"' % FORMAT.encode("ascii")
    pattern = [b"0123456789abcdef"] * 16 + [b" "] + [b"0123456789"] * 12 + [b" "] + [bytes([byte]) for byte in start]
    return all(byte in allowed for byte, allowed in zip(content, pattern, strict=False))


def request_key(policy: str, theta: Array, within: float, warm: Evaluation | None) -> str:
    """A request as a short word: the same for the same question only."""
    content = blake2b(f"{policy} {within.hex()} ".encode() + theta.tobytes(), digest_size=12)
    if warm is not None:
        content.update(warm.point.tobytes() + warm.e.tobytes() + warm.r.tobytes())
    return content.hexdigest()


def _evaluation(encoded: Any) -> Evaluation:
    evaluation = decode(encoded)
    if not isinstance(evaluation, Evaluation):
        raise JournalError(f"an evaluation was expected in the journal, got {type(evaluation).__name__}")
    return evaluation
