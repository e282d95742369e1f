"""The files of a run's folder: the one way in which they are opened, read, replaced and locked.

A run's folder may come from anybody, and a kill may come at any moment. Therefore

- only regular files are opened, never through a symbolic link; pipes, sockets and devices are neither waited for nor
  read. Files that are changed in place have no second name (a hard link) elsewhere, and a folder inside a run's folder
  is no link. The run's folder itself may be one: its name comes from the user;
- nothing is read that is larger than its kind may be: `SETTINGS`, `DATA`, `RECORD`, `JOURNAL`;
- a file is replaced in one step, by a draft that did not exist before and is on disk, and so is its name afterwards;
- one process at a time writes a run: `Lock`.

What is refused raises `JournalError` with the file's name and what it is. Other trouble (a full disk, rights) stays
OSError. On systems without O_NOFOLLOW a file is looked at before it is opened, which somebody who changes the folder at
that very moment can defeat.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

# Bytes at most.
SETTINGS = 1 << 20  # command.json
DATA = 1 << 30  # other JSON files: what was found, states of unfinished studies
RECORD = 1 << 30  # one record of a journal
JOURNAL = 1 << 36  # all of them

_QUIETLY = sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"))
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class JournalError(RuntimeError):
    """The files of a run cannot be written, read or continued; the message says why."""


def present(path: Path, *, links: bool = False) -> bool:
    """Whether a regular file is there, or with `links` a symbolic link to one; anything else under that name is
    refused."""
    try:
        found = os.stat(path) if links else os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(found.st_mode):
        raise JournalError(_complaint(path, found.st_mode))
    return True


def _complaint(path: Path, mode: int) -> str:
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
    return f"{path} is {kind}; a run's folder must hold regular files only"


def open_regular(path: Path, flags: int = os.O_RDONLY, *, links: bool = False) -> int:
    """A descriptor of a regular file. `links`: the path is the user's own, and may be a symbolic link."""
    present(path, links=links)  # before it is opened, since opening alone may do something to a device
    try:
        handle = os.open(path, flags | _QUIETLY | (0 if links else _NO_LINKS), 0o666)
    except OSError:
        present(path, links=links)  # it has become something else in between
        raise
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise JournalError(_complaint(path, mode))
    return handle


def open_to_change(path: Path, flags: int = 0) -> int:
    """A descriptor of a regular file to read and to change in place, which no other name may lead to."""
    handle = open_regular(path, os.O_RDWR | flags)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise JournalError(f"{path} is a hard link: it has another name, which would change with it; copy the file")
    return handle


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file, at most so many; FileNotFoundError if there is none."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
        if max(size, len(content)) > most:
            raise JournalError(f"{path} has more than {most:,} bytes, and is not read")
    return content


def replace_atomically(path: Path, content: bytes | Iterable[bytes], *, alone: bool = False) -> None:
    """Put a new file in the place of an old one: a kill at any moment leaves one or the other, whole.

    `alone`: the caller holds the lock, so that a draft which is there already is that of a dead process, and goes.
    """
    present(path)
    draft = draft_of(path) if alone else path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    if alone:
        remove_draft(path)
    handle = open_regular(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            for part in (content,) if isinstance(content, bytes) else content:
                write(handle, part)
            sync(handle)
        finally:
            os.close(handle)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def draft_of(path: Path) -> Path:
    """What becomes `path`, where there is one writer."""
    return path.with_suffix(".tmp")


def remove_draft(path: Path) -> None:
    """Remove what a killed process had begun to write."""
    if present(draft_of(path)):
        draft_of(path).unlink(missing_ok=True)


def make_folder(path: Path) -> Path:
    """The user's folder, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(f"the folder {path} cannot be made: {error}") from error
    return path


def write(file: int, data: bytes) -> None:
    """All of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync(file: int) -> None:
    """Until it is on disk."""
    if sys.platform == "darwin":  # fsync alone does not reach the disk there
        import fcntl

        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Until the names in it are on disk."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # file systems that do not sync folders
            raise
    finally:
        os.close(handle)


@dataclass
class Lock:
    """One writer at a time. The operating system holds the lock for as long as the process lives, and no longer.

    The file also says which run began in the folder, by the digest of the first record of its journal, so that the
    journal of another run is not taken for it.
    """

    path: Path
    handle: int
    run: bytes = b""

    _mine: ClassVar[set[str]] = set()  # POSIX locks do not keep a process from itself

    @classmethod
    def take(cls, path: Path) -> Lock:
        folder, key = path.parent, cls._key(path)
        if key in cls._mine:  # opening and closing the file again would give up the lock
            raise JournalError(f"{folder} is being written by this process; a run has one writer")
        try:
            handle = open_to_change(path, os.O_CREAT)
        except OSError as error:
            raise JournalError(f"the folder {folder} cannot be written: {error}") from error
        try:
            free = _lock(handle)
            content = os.read(handle, 400)
        except BaseException:
            os.close(handle)
            raise
        if not free:
            os.close(handle)
            holder = content.partition(b"\n")[0].decode("ascii", "replace")
            shown = "".join(letter for letter in holder[:100] if letter.isprintable())
            raise JournalError(f"{folder} is being written by {shown or 'another process'}; a run has one writer")
        cls._mine.add(key)
        found = re.search(rb"\nrun ([0-9a-f]{16})\n\Z", content)
        lock = cls(path, handle)
        lock.note(found[1] if found else b"")
        return lock

    @staticmethod
    def _key(path: Path) -> str:
        return str(path.parent.resolve() / path.name)

    def note(self, run: bytes) -> None:
        """Which run this is; nothing for none."""
        self.run = run
        holder = f"process {os.getpid()} on {platform.node()[:200]}\n".encode("ascii", "replace")
        text = holder + (b"run %s\n" % run if run else b"")
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
            os.lseek(self.handle, 0, os.SEEK_SET)
            os.write(self.handle, text)
            os.ftruncate(self.handle, len(text))

    def check(self, journal: Path, run: bytes) -> None:
        """Refuse the journal of another run than the one that began here; one without a note is taken as it is."""
        if self.run and self.run != run:
            raise JournalError(
                f"{journal} is not the journal of the run that began in this folder; "
                f"if it was put there on purpose, remove {self.path}"
            )
        if not self.run:
            self.note(run)

    def release(self) -> None:
        self._mine.discard(self._key(self.path))
        os.close(self.handle)


if os.name == "nt":
    import msvcrt

    def _lock(handle: int) -> bool:
        try:
            os.lseek(handle, 1 << 20, os.SEEK_SET)  # beyond the text, which others may read
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(handle: int) -> bool:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise JournalError(f"this file system has no locks: {error}") from error
        return True
