"""Journals: what a run has found, on disk before it goes on, and what a killed run is continued from.

`read` tells what the journal of a run holds, `Journal` writes one: the list of answers to a search's requests
(`answers`). Below it: `lines` (checked records in files), `codec` (values as plain data and back), `fingerprint` (what
a run was made from).
"""

from suffice.files import JournalError
from suffice.journal.answers import FILE, LOCK, Contents, Journal, read
from suffice.journal.fingerprint import versions

__all__ = ["FILE", "LOCK", "Contents", "Journal", "JournalError", "read", "versions"]
