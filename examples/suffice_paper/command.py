"""`suffice reproduce`, `resume` and `report` of a study: what it may be asked for, its folder, and what made it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import suffice
from suffice.report.folder import COMMAND, read, write

FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5")
STUDIES = ("denoise1", "denoise3", "denoise2d", "mri")
WANTED = (*FIGURES, "all", *STUDIES)
PRESET_NAMES = ("quick", "full")


def reproduce(
    figure: str, preset: str, out: Path, show: Callable[[str], object], *, jobs: int = 1, device: str = ""
) -> tuple[dict[str, Any], Path]:
    """The study that one of `WANTED` asks for, run or continued in the folder `out`, and the path of its report."""
    check(figure, preset, device)
    from suffice_paper import imaging, imaging_report, report, study

    write_command(out, figure=figure, preset=preset, device=device)
    command = f"suffice reproduce {figure} --preset {preset}" + (f" --device {device}" if device else "")
    if figure in STUDIES:
        setting = imaging.SETTINGS[figure, preset]
        data = imaging.make(setting, out, command, show)
        return data, imaging_report.write(setting, data, out)
    wanted = set(FIGURES) if figure == "all" else {figure}
    data = study.make(study.PRESETS[preset], wanted, out, command, show, jobs=jobs, device=device or None)
    return data, report.write(data, out)


def check(figure: str, preset: str, device: str) -> None:
    """ValueError for what there is not."""
    if figure not in WANTED:
        raise ValueError(f"FIGURE must be one of {', '.join(WANTED)}, got {figure!r}")
    if preset not in PRESET_NAMES:
        raise ValueError(f"--preset must be one of {', '.join(PRESET_NAMES)}, got {preset!r}")
    if device and figure in STUDIES:
        raise ValueError(f"--device: {figure} runs on the CPU only, got {device!r}")
    if device:
        try:
            torch: Any = import_module("torch")
        except ImportError as error:
            raise ValueError("--device needs torch: pip install 'suffice[gpu]'") from error
        try:
            torch.zeros(1, device=device)
        except Exception as error:  # torch has no single class for devices that are not there
            raise ValueError(f"--device {device!r} cannot be used: {error}") from error


def report_again(folder: Path) -> Path:
    """The report of a finished study, made from its data."""
    from suffice_paper import report

    command = read_command(folder)
    data = read(folder / "study.json")
    if data is None:
        raise ValueError(f"{folder} holds no finished run: `suffice resume {folder}` continues it")
    if command["figure"] in STUDIES:
        raise ValueError(f"the report of {command['figure']} needs its images: use `suffice resume {folder}`")
    return report.write(data, folder)


def lines(data: dict[str, Any]) -> list[str]:
    """The claims of a study, one or two lines each."""
    made = []
    for claim in data["claims"]:
        word = "OVERTAKEN" if claim.get("overtaken") else "holds" if claim["passed"] else "FAILS"
        made.append(f"{word:9s} {claim['claim']}: {claim['measured']} ({claim['target']})")
        made += [f"{'':9s} {claim['note']}"] if claim.get("overtaken") else []
    return made


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
        "suffice": suffice.__version__,
        **{name: version(name) for name in ("numpy", "scipy")},
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
