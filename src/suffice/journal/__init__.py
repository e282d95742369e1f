"""Journals: what a run has found, on disk before it goes on, and what a killed run is continued from.

`read` tells what the journal of a run holds, `Journal` writes one. Below them: `lines` (checked records in files),
`codec` (values as plain data and back), `fingerprint` (what a run was made from), `states` (the state of a search),
`run` (the journal of one run), `starts` (those of a run from many starts), `answers` (that of a search by its
requests).
"""

from suffice.files import JournalError
from suffice.journal.fingerprint import versions
from suffice.journal.lines import FILE, LOCK, STARTS
from suffice.journal.run import Contents, Journal, read

__all__ = ["FILE", "LOCK", "STARTS", "Contents", "Journal", "JournalError", "read", "versions"]
