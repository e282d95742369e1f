"""Files of records, one checked line each, that a kill at any moment leaves readable.

A record k is JSON text r_k, and stands in its file as the line

    d_k |r_k| r_k        with d_k = H(d_{k-1} r_k), d_0 the empty word, H BLAKE2b,

so that a record that was changed, lost or moved is noticed, and so is everything after it. A write that was cut short
leaves a bad *last* record: it is dropped. A bad record anywhere else is damage, and refused. JSON holds data only:
reading a record never executes anything.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from suffice import files
from suffice.files import JournalError

PREFIX = 16 + 1 + 12 + 1  # digest and length, each with a space after it

# What records that pass their checks, but were written by somebody else, may raise when they are understood.
NONSENSE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


def line_of(record: Mapping[str, Any], before: bytes) -> tuple[bytes, bytes]:
    """The line of a record, and its digest d_k, of d_{k-1} and r_k."""
    text = json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > files.RECORD:
        raise JournalError(f"a record of {len(text)} bytes is too large for a journal, which takes {files.RECORD}")
    digest = _digest(before, text)
    return b"%s %012d %s\n" % (digest, len(text), text), digest


def shortened(error: Exception) -> str:
    """The error in a message: its text may be whatever a file holds."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 300 else f"{text[:300]} ..."


@dataclass
class Lines:
    """A file of records open for reading and, by a process that holds the lock of its folder, for writing."""

    path: Path
    began: bytes = field(default=b"", init=False)  # the digest of the first record
    digest: bytes = field(default=b"", init=False)  # and of the last one
    end: int = field(default=0, init=False)  # bytes up to and with it
    torn: int = field(default=0, init=False)  # and after it, when the file was opened
    _file: int | None = field(default=None, init=False, repr=False)

    def open(self, take: Callable[[Any, int], object], *, to_change: bool) -> None:
        """Read an existing file, and be ready to go on after its last good record. Every good one, with the byte at
        which it begins, is given to `take`; what that makes of nonsense is told as the journal's fault."""
        self._file = files.open_to_change(self.path) if to_change else files.open_regular(self.path)
        with open(self._file, "rb", closefd=False) as file:
            for text, digest, end in _good_lines(file, self.path):
                try:
                    take(_understood(text), self.end)
                except NONSENSE as error:
                    where = f"the journal {self.path} cannot be understood at byte {self.end}"
                    raise JournalError(f"{where}: {shortened(error)}") from error
                self.began, self.digest, self.end = self.began or digest, digest, end
            self.torn = max(os.fstat(file.fileno()).st_size - self.end, 0)

    def record_at(self, offset: int) -> Any:
        """The good record that begins at this byte."""
        assert self._file is not None
        with open(self._file, "rb", closefd=False) as file:
            file.seek(offset)
            return _understood(file.read(int(file.read(PREFIX)[17:-1])))

    def records(self) -> Iterator[Any]:
        """All good records, read once more."""
        with os.fdopen(files.open_regular(self.path), "rb") as file:
            yield from (_understood(text) for text, _, _ in _good_lines(file, self.path))

    def append(self, record: Mapping[str, Any]) -> None:
        """One more record: on disk when this returns, or not there at all."""
        if self._file is None:
            raise JournalError(f"the journal {self.path} is not open for writing")
        data, digest = line_of(record, self.digest)
        if self.end + len(data) > files.JOURNAL:
            raise JournalError(f"the journal {self.path} would have more than {files.JOURNAL:,} bytes")
        try:
            os.lseek(self._file, self.end, os.SEEK_SET)
            os.ftruncate(self._file, self.end)
            files.write(self._file, data)
            files.sync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.end)
            raise JournalError(f"the journal {self.path} cannot be written: {error}") from error
        self.digest, self.end = digest, self.end + len(data)

    def replace(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write a new file next to the old one, and put it in its place in one step. If that fails, the old one, if
        there is one, stays open."""
        began, digest, size = b"", b"", 0

        def written() -> Iterator[bytes]:
            nonlocal began, digest, size
            for record in records:
                data, digest = line_of(record, digest)
                began, size = began or digest, size + len(data)
                yield data

        self.close()  # Windows does not replace open files
        try:
            files.replace_atomically(self.path, written(), alone=True)
        except BaseException:
            if self.end > 0:
                self._file = files.open_to_change(self.path)
            raise
        self._file = files.open_to_change(self.path)
        self.began, self.digest, self.end = began, digest, size

    def close(self) -> None:
        """Records can be neither read nor written any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _digest(before: bytes, text: bytes) -> bytes:
    return blake2b(before + text, digest_size=8).hexdigest().encode("ascii")


def _understood(text: bytes) -> Any:
    """The record of a text, without the numbers that JSON has not; ValueError or RecursionError for any other text."""

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _good_lines(file: IO[bytes], path: Path) -> Iterator[tuple[bytes, bytes, int]]:
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
