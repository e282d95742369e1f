"""A study's folder: JSON files that a kill leaves whole, what made them, and the command that goes on with them.

A file is one dictionary with a digest of the rest of it as its last entry, `CHECKSUM`, so that a digit that has changed
is noticed. Files of older versions have none, and are taken as they are.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import version
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


def plain(value: Any) -> Any:
    """`value` as it comes back from a file."""
    return json.loads(json.dumps(value))


def write_command(folder: Path, **arguments: str) -> None:
    """Note down what `suffice reproduce` was called with."""
    write(folder / COMMAND, {"command": "reproduce", **arguments})


def read_command(folder: Path) -> dict[str, str]:
    """What `suffice reproduce` was called with; text, and nothing else, whatever the file holds."""
    known = read(folder / COMMAND)
    if known is None:
        raise ValueError(f"{folder} holds no run: there is no {COMMAND} in it")
    names = {"figure", "preset", "device"}
    if not isinstance(known, dict) or known.pop("command", None) != "reproduce" or set(known) != names:
        raise ValueError(f"{folder / COMMAND} does not describe a run of `suffice reproduce`")
    if not all(isinstance(value, str) for value in known.values()):
        raise ValueError(f"{folder / COMMAND} must hold text, got {known!r}")
    return known


def provenance(command: str, seconds: float, machine: str) -> dict[str, Any]:
    """What produced a study, and how long it took."""
    return {
        **{name: version(name) for name in ("suffice", "numpy", "scipy")},
        "python": platform.python_version(),
        "machine": machine,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "seconds": seconds,
    }


def processor() -> str:
    """The processor's name, from Linux's own description where there is one, and the number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
