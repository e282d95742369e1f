"""The journal of a search by its requests: every finished evaluation on disk before the next one begins.

A search is a function of the answers to its requests, so its journal is the list of these answers. A second fit asks
the same questions in the same order, takes what has been answered from the list, and makes the first evaluation that
is not there. It ends at the same bits as a fit that was never interrupted, because that one, too, goes on with what
its journal holds. Budgets may differ: with a larger one the search goes on, where it had ended, from there.

The file is one of checked lines (`suffice.journal.lines`): a header with versions and the fingerprint of data and
settings, then one line for every evaluation. A line that was cut short at the end is dropped; any other damage, and
any difference of data or settings, is refused.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from suffice import files
from suffice.arrays import Array, outside_stacklevel
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.journal.codec import decode, encode
from suffice.journal.fingerprint import differences, versions
from suffice.journal.lines import FILE, LOCK, STARTS, Lines
from suffice.signals import undisturbed

FORMAT, OLD = "suffice answers 1", "suffice search 1"  # the old one was also the tag of reports


@dataclass
class SearchJournal:
    """A journal open for reading and writing, by this process alone; `fingerprint` is of data and settings."""

    folder: str | os.PathLike[str]
    fingerprint: Mapping[str, str]
    evaluations: int = field(default=0, init=False)  # how many are on disk
    _known: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list), init=False, repr=False)
    _lock: files.Lock | None = field(default=None, init=False, repr=False)
    _lines: Lines = field(init=False, repr=False)
    _begun: bool = field(default=False, init=False, repr=False)  # whether there is a header

    def __post_init__(self) -> None:
        self._lines = Lines(self.path)

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
                self._lines.open(self._take_in)
                if not self._begun and not _torn_header(self._lines.start_of_file(1 << 12)):
                    raise JournalError(f"{self.path} is not a journal: its first record is no header")
            if not self._begun:
                self._lock.note(b"")
                header = {"kind": "header", "format": FORMAT, "versions": versions(), "fingerprint": self.fingerprint}
                self._lines.replace([header])
            self._lock.check(self.path, self._lines.began)
            files.remove_draft(self.path)
        except OSError as error:
            self.__exit__()
            raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def take(self, key: str) -> Evaluation | None:
        """The answer to a request, if it is on disk; every answer is given once."""
        answers = self._known[key]
        return _evaluation(answers.pop(0)) if answers else None

    def keep(self, key: str, purpose: str, evaluation: Evaluation) -> Evaluation:
        """The evaluation as the journal knows it: on disk when this returns."""
        return _evaluation(self._append(key, purpose, evaluation))

    def take_data(self, key: str) -> Any:
        """The same as `take` for an answer that is no evaluation: numbers, arrays and tuples of them."""
        answers = self._known[key]
        return decode(answers.pop(0)) if answers else None

    def keep_data(self, key: str, purpose: str, data: Any) -> None:
        """The same as `keep` for such an answer."""
        self._append(key, purpose, data)

    def _append(self, key: str, purpose: str, answer: Any) -> Any:
        encoded = encode(answer)
        with undisturbed():
            self._lines.append({"kind": "evaluation", "key": key, "purpose": purpose, "evaluation": encoded})
            self.evaluations += 1
        return encoded

    def _take_in(self, line: Any) -> None:
        if not self._begun:
            if line["kind"] != "header" or line["format"] not in (FORMAT, OLD):
                raise ValueError(f"its first record must be a header of format {FORMAT!r}")
            self._compare(line)
            self._begun = True
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
    numbers = [b"0123456789abcdef"] * 16 + [b" "] + [b"0123456789"] * 12 + [b" "]
    for format in (FORMAT, OLD):
        start = b'{"kind":"header","format":"%s"' % format.encode("ascii")
        pattern = numbers + [bytes([byte]) for byte in start]
        if all(byte in allowed for byte, allowed in zip(content, pattern, strict=False)):
            return True
    return False


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
