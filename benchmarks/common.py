"""What the benchmarks share: the MNIST problem of the paper, provenance of a result, files and tables."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from suffice_paper.study import PRESETS
from suffice_paper.study import mnist_problem as study_problem

import suffice
from suffice import datasets

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # tests/ has targets and references that benchmarks share

# One colour and one line style per solver, the same in every figure; suffice stands out (colour-blind safe, Okabe-Ito).
OURS, OURS_LINEAR, OURS_SAMPLES = "suffice", "suffice, linear model", "suffice, per sample"
STYLES: dict[str, dict[str, Any]] = {
    OURS: {"color": "#D55E00", "linestyle": "-", "linewidth": 2.4, "zorder": 5},
    OURS_LINEAR: {"color": "#E69F00", "linestyle": "--", "linewidth": 2.0, "zorder": 4},
    OURS_SAMPLES: {"color": "#D55E00", "linestyle": ":", "linewidth": 2.4, "zorder": 5},
    "DFO-LS": {"color": "#0072B2", "linestyle": "-", "linewidth": 1.6},
    "DFO-LS, per sample": {"color": "#0072B2", "linestyle": ":", "linewidth": 1.6},
    "COBYQA": {"color": "#009E73", "linestyle": "-", "linewidth": 1.6},
    "COBYQA, radius 1.6": {"color": "#009E73", "linestyle": "--", "linewidth": 1.6},
    "Nelder-Mead": {"color": "#CC79A7", "linestyle": "-", "linewidth": 1.6},
    "Optuna TPE": {"color": "#777777", "linestyle": "-", "linewidth": 1.2},
}


def mnist_problem(solver: str = "fista") -> suffice.BilevelProblem:
    """The paper's problem at its full size: eight residual blocks, one per digit and two for the terms of J."""
    full = PRESETS["full"]
    return study_problem(full, datasets.load_mnist(), full.digits, solver)


class Tied:
    """A problem with one parameter: l1 and l2 in fixed proportions."""

    def __init__(self, problem: Any, l1: float, l2: float) -> None:
        self.problem, self.l1, self.l2 = problem, l1, l2

    def at(self, *, strength: float) -> Any:
        return self.problem.at(l1=self.l1 * strength, l2=self.l2 * strength)

    def shares(self, names: Any) -> dict[str, tuple[float, float]]:
        return {"strength": (self.l1, self.l2)}


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The command line that all benchmarks have."""
    result = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--out", type=Path, default=HERE / "results", help="folder for the results (%(default)s)")
    return result


def provenance(*packages: str) -> dict[str, str]:
    """What produced a result: commit (with "-dirty" if files beside the results have changed), versions, processor,
    time."""
    git = ["git", "-C", str(HERE)]
    changes = [*git, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)results"]
    try:
        describe, status = ([*git, "rev-parse", "--short", "HEAD"], changes)
        found = [subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in (describe, status)]
        commit = found[0].strip() + ("-dirty" if found[1].strip() else "")
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    versions = {"suffice": suffice.__version__, **{name: _version(name) for name in ("numpy", "scipy", *packages)}}
    return {
        "commit": commit,
        "python": platform.python_version(),
        **versions,
        "processor": _processor(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def write_text(path: Path, text: str) -> None:
    """Replace a file in one go, so that an interrupted run leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_text(text)
    draft.replace(path)


def write_json(path: Path, data: Any) -> None:
    """Strict JSON: infinities and NaN become null."""
    write_text(path, json.dumps(_plain(data), indent=1, allow_nan=False) + "\n")


def _plain(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table that also reads well on a terminal: first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        return f"| {' | '.join([first.strip().ljust(widths[0]), *others])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(map(line, [cells[0], rule, *cells[1:]]))


def target(what: str, measured: float, limit: float, *, at_least: bool = False, digits: int = 2) -> list[str]:
    """A row "what | measured | target | PASS or FAIL"."""
    passed = measured >= limit if at_least else measured <= limit
    sign = ">=" if at_least else "<="
    return [what, f"{measured:.{digits}f}", f"{sign} {limit:.{digits}f}", "PASS" if passed else "FAIL"]
