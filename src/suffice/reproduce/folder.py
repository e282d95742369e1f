"""A study's folder: what made it, and the command that goes on with it (`suffice.report.folder` has the files)."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from suffice.report.folder import COMMAND, read, write


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
