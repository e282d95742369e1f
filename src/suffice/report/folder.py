"""The files of a run's folder: JSON that a kill leaves whole.

A file is one dictionary with a digest of the rest of it as its last entry, `CHECKSUM`, so that a digit that has changed
is noticed. Files of older versions have none, and are taken as they are.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from suffice import files

COMMAND = "command.json"
CHECKSUM = "checksum"


def read(path: Path, *names: str) -> dict[str, Any] | None:
    """The dictionary in a file of a run, with at least these names; None if there is no file. ValueError if it holds
    anything else, `JournalError` if it is no file to be read."""
    try:
        text = files.read_bounded(path, files.SETTINGS if path.name == COMMAND else files.DATA)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a file of a run: {error}") from error
    if not isinstance(found, dict) or not {*names} <= {*found}:
        raise ValueError(f"{path} is not a file of a run: it must hold a dictionary with {', '.join(names) or 'names'}")
    if CHECKSUM in found and found.pop(CHECKSUM) != _checksum(json.dumps(found)):
        raise ValueError(f"{path} is damaged: its content is not what was written")
    return found


def write(path: Path, data: dict[str, Any]) -> None:
    """In one go: a kill at any moment leaves the old file or the new one."""
    body = json.dumps(data, allow_nan=False)
    text = f'{body[:-1]}{", " if data else ""}"{CHECKSUM}": "{_checksum(body)}"}}'.encode("ascii")
    if len(text) > files.DATA:
        raise ValueError(f"{path} would have {len(text):,} bytes, and {files.DATA:,} are read at most")
    files.make_folder(path.parent)
    files.replace_atomically(path, text)


def _checksum(body: str) -> str:
    return blake2b(body.encode("ascii"), digest_size=8).hexdigest()
