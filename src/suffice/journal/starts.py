"""The journals of many starts: one journal each, and the turn that is being written down.

    run/starts.json       how many starts there are, and with what each journal begins; written last, so that a run
                          without it never began
    run/start-000/ ...    the journal of every start
    run/turn.json         the evaluations of the latest turn, all of them, and how far every journal is with them

Starts are evaluated in turns, problems of a turn together. A turn is on disk as a whole, in one step, before the first
of its evaluations goes into a journal. So a run that is killed in between finds on disk what it was about to write, and
goes on as if nothing had happened: a turn has either been made or it has not.

How far a journal is: its number n of evaluations, and d_n = H(d_{n-1}, record n), where d_0 is the digest of its
header. Both can be had from any journal, also from one that was written anew. With the latest turn t, the journal of a
start is good in two states only: as it was before t, if t has an evaluation of it, and as it is after t. A journal that
was cut short, exchanged or lost is in neither, and beside the turn of another time all of them are not: it is refused.
All files as they were at one earlier moment are an earlier state of the run, and continue to the same result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suffice import files
from suffice.evaluation import Evaluation
from suffice.files import JournalError
from suffice.journal.codec import decode, encode
from suffice.journal.lines import FILE, LOCK, NONSENSE, STARTS, digest_of, get_record, put_record, text_of
from suffice.journal.run import Contents, Journal, read
from suffice.protocols import Closing
from suffice.result import Record
from suffice.search.strategy import Search

FORMAT, OLD = "suffice starts 2", "suffice starts 1"  # the old one does not know how far journals are
TURN = "turn.json"
MOST = 10_000  # starts
GIVEN_UP = "given up"


@dataclass(frozen=True)
class Told:
    """One evaluation of a turn: whose, and which of its own it is, counted from 1."""

    start: int
    number: int
    encoded: Any


@dataclass(frozen=True)
class Mark:
    """How far the journal of a start is, and why the start was given up, if it was."""

    evaluations: int
    digest: str
    given_up: str | None = None

    def after(self, record: Record) -> Mark:
        digest = digest_of(self.digest.encode("ascii"), text_of(encode(record))).decode("ascii")
        return replace(self, evaluations=self.evaluations + 1, digest=digest)

    @classmethod
    def of(cls, contents: Contents) -> Mark:
        mark = cls(0, contents.began.decode("ascii"))
        for record in contents.history:
            mark = mark.after(record)
        reasons = [str(event.get("reason")) for event in contents.events if event.get("what") == GIVEN_UP]
        return replace(mark, given_up=reasons[-1] if reasons else None)


def _mark(plain: Mapping[str, Any]) -> Mark:
    reason = plain["given_up"]
    return Mark(int(plain["evaluations"]), str(plain["digest"]), None if reason is None else str(reason))


@dataclass
class StartsJournal(Closing):
    """The journals of a run from many starts, open for writing."""

    folder: Path
    books: list[Journal] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    _lock: files.Lock | None = field(default=None, init=False, repr=False)
    _old: bool = field(default=False, init=False, repr=False)

    def create(self, settings: Any, starts: Sequence[Search], fingerprint: Mapping[str, str]) -> StartsJournal:
        """Begin a new run. A folder that holds one already is refused."""
        self._lock = files.Lock.take(files.make_folder(self.folder) / LOCK)
        try:
            if holds_starts(self.folder) or files.present(self.folder / FILE):
                raise JournalError(
                    f"{self.folder} holds a run: suffice.resume continues it, a new one needs another folder"
                )
            self._clear()
            for k, search in enumerate(starts):
                self.books.append(Journal(self._place(k), settings).create(search, fingerprint))
            self.marks = [Mark(0, book.began.decode("ascii")) for book in self.books]
            self._begin([mark.digest for mark in self.marks])
        except BaseException:
            self.close()
            raise
        return self

    def open(self) -> list[Contents]:
        """Lock the journals of an existing run and read them."""
        self._lock = files.Lock.take(self.folder / LOCK)
        try:
            for name in (STARTS, TURN):
                files.remove_draft(self.folder / name)
            line = self._get(STARTS)
            count, began = line.get("starts"), line.get("books")
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST:
                raise JournalError(f"{self.folder / STARTS} is damaged: {count!r} is no number of starts")
            self._old = line["format"] == OLD
            self.books = [Journal(self._place(k)) for k in range(count)]
            contents = [book.open() for book in self.books]
            if not self._old:
                if not isinstance(began, list) or len(began) != count:
                    raise JournalError(f"{self.folder / STARTS} is damaged: it must know of {count} journals")
                for book, digest in zip(self.books, began, strict=True):
                    if book.began.decode("ascii") != digest:
                        raise JournalError(f"{book.path} is not the journal that {self.folder / STARTS} knows of")
            self.marks = [Mark.of(one) for one in contents]
        except BaseException:
            self.close()
            raise
        return contents

    def keep(self, turn: Sequence[Told], records: Sequence[Record], seconds: float) -> None:
        """The turn as a whole, and how far journals are with its records: on disk when this returns."""
        told = [{"start": one.start, "number": one.number, "evaluation": one.encoded} for one in turn]
        marks = list(self.marks)
        for one, record in zip(turn, records, strict=True):
            marks[one.start] = marks[one.start].after(record)
        books = [
            {"evaluations": mark.evaluations, "digest": mark.digest, "before": old.digest, "given_up": mark.given_up}
            for mark, old in zip(marks, self.marks, strict=True)
        ]
        put_record(self.folder / TURN, {"format": FORMAT, "seconds": seconds, "told": told, "books": books})
        self.marks = marks
        if self._old:
            self._begin([book.began.decode("ascii") for book in self.books])

    def give_up(self, start: int, reason: str) -> None:
        """This start has no more turns."""
        self.books[start].event(what=GIVEN_UP, reason=reason)
        self.marks[start] = replace(self.marks[start], given_up=reason)

    def latest(self) -> tuple[list[tuple[Told, Evaluation]], float]:
        """The latest turn, and the seconds that the run had taken then. Journals that do not go with it are refused."""
        path = self.folder / TURN
        if not files.present(path):
            if any(mark.evaluations for mark in self.marks) and not self._old:
                raise JournalError(f"{path} is missing, though journals hold evaluations")
            return [], 0.0
        line = self._get(TURN)
        try:
            turn = [Told(int(one["start"]), int(one["number"]), one["evaluation"]) for one in line["told"]]
            evaluations = [decode(one.encoded) for one in turn]
            if not all(isinstance(one, Evaluation) for one in evaluations):
                raise TypeError("an evaluation was expected")
            if not all(0 <= one.start < len(self.books) for one in turn):
                raise ValueError("there is no such start")
            seconds = float(line["seconds"])
            known = None
            if line["format"] == FORMAT:
                known = [(_mark(one), str(one["before"])) for one in line["books"]]
                if len(known) != len(self.books):
                    raise ValueError(f"it knows of {len(known)} journals, and there are {len(self.books)}")
        except NONSENSE as error:
            raise JournalError(f"{path} cannot be understood: {str(error)[:200]}") from error
        self._compare({one.start: one.number for one in turn}, known)
        return list(zip(turn, evaluations, strict=True)), seconds

    def _compare(self, told: Mapping[int, int], known: Sequence[tuple[Mark, str]] | None) -> None:
        """Whether every journal is as it was before or after the latest turn."""
        for k, (book, mark) in enumerate(zip(self.books, self.marks, strict=True)):
            good: dict[int, str | None] = {}
            if known is None:
                good |= {told[k] - 1: None, told[k]: None} if k in told else {mark.evaluations: None}
            else:
                latest, before = known[k]
                good |= {latest.evaluations - 1: before} if k in told else {}
                good[latest.evaluations] = latest.digest
                if latest.given_up is not None:
                    self.marks[k] = replace(mark, given_up=latest.given_up)
            if mark.evaluations not in good:
                raise JournalError(
                    f"{book.path} holds {mark.evaluations} evaluations, and {self.folder / TURN} knows of "
                    f"{max(good)}: one of them was cut short or exchanged"
                )
            if good[mark.evaluations] not in (None, mark.digest):
                raise JournalError(f"{book.path} holds other evaluations than {self.folder / TURN} knows of")

    def close(self) -> None:
        """Let others write."""
        for book in self.books:
            book.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _clear(self) -> None:
        """Journals of a run that was killed before it began hold no evaluation, and go, unless somebody holds them."""
        for place in sorted(self.folder.glob("start-*")):
            path = files.subfolder(self.folder, place.name) / FILE
            if not files.present(path):
                continue
            lock = files.Lock.take(path.with_name(LOCK))
            try:
                if read(place).history:
                    raise JournalError(f"{place} holds a run, or the part of one whose {STARTS} is missing")
                path.unlink()
            except OSError as error:
                raise JournalError(f"{path} cannot be removed: {error}") from error
            finally:
                lock.release()

    def _place(self, k: int) -> Path:
        return files.subfolder(self.folder, f"start-{k:03d}")

    def _begin(self, began: Sequence[str]) -> None:
        put_record(self.folder / STARTS, {"format": FORMAT, "starts": len(began), "books": list(began)})
        self._old = False

    def _get(self, name: str) -> dict[str, Any]:
        found = get_record(self.folder / name)
        if not isinstance(found, dict) or found.get("format") not in (FORMAT, OLD):
            raise JournalError(f"the journal {self.folder / name} is damaged, or of another format")
        return found


def holds_starts(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run from many starts."""
    if files.present(Path(folder) / STARTS):
        return True
    if files.present(Path(folder) / TURN):
        raise JournalError(f"{Path(folder) / STARTS} is missing, and {Path(folder) / TURN} belongs to it")
    return False
