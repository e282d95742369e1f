"""Every benchmark whose figures README or the documentation show, measured anew: `make results`.

    python benchmarks/all_results.py               what is older than the code that it measures, and how long it takes
    python benchmarks/all_results.py run           measures that, two stages at a time
    python benchmarks/all_results.py run NAME...   these stages, older or not
    python benchmarks/all_results.py try [NAME...] all of them as small as can be, into build/tried: do they still run?
    python benchmarks/all_results.py table         writes results/README.md: commit, date and command of every result

A stage is a command and the results that it writes, and is as long as its claim needs: longer campaigns are options of
the programs, and what they have found is in results/campaigns.md. What a result depends on is not said here but seen:
every process of a stage writes down which files of the repository it has loaded (`recording/`), and
results/measured.json keeps them with a digest of each. A digest is that of the text without comments, docstrings, white
space and the words of errors, so it changes when the code does, and with no commit. A result is older than the code if
one of its files has another digest by now, or if its file is not the one that its stage has written.

`run` skips what is not older, so one that was interrupted goes on; stages that read the clock run alone, at the end.
Results that need a device, data or days are measured once. They name where and when, and never count as older.
Logs are in build/results.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import HERE, provenance, table, write_json, write_text

ROOT = HERE.parent
RESULTS, BUILD, RECORDING = HERE / "results", ROOT / "build", HERE / "recording"
SHOWN = re.compile(r"results/(\w+)\.(?:md|png)")
HAND = ("campaigns",)  # pages that no program writes
DEVICE = "a CUDA device"


@dataclass(frozen=True)
class Stage:
    """A command, relative to the root of the repository."""

    results: tuple[str, ...]
    command: str
    minutes: float  # of one core, where they have not been measured yet
    small: str = ""  # options that make it as short as can be
    packages: tuple[str, ...] = ()
    alone: bool = False  # it reads the clock, or has processes of its own
    once: str = ""  # why it is not measured again here

    @property
    def name(self) -> str:
        return self.results[0]

    @property
    def missing(self) -> str:
        """Packages that it needs and that are not installed."""
        return ", ".join(name for name in self.packages if find_spec(name) is None)

    def words(self, work: Path, small: bool = False) -> list[str]:
        """The command; WORK is a folder for what it can go on from, of this state of the code."""
        chosen = f"{self.command} {self.small} --out {work / self.name}" if small else self.command
        return [sys.executable, *chosen.replace("WORK", str(work)).split()]


def _stage(name: str, minutes: float, options: str = "", small: str = "", *packages: str, **more: Any) -> Stage:
    return Stage((name,), f"benchmarks/{name}.py {options}".strip(), minutes, small, packages, **more)


# fmt: off
STAGES = (
    # Models that are there already, and tables
    _stage("certify", 3, "--models 5000", "--models 60"),
    _stage("supports", 10, "", "--tables 4", "skglm"),
    _stage("interval_coverage", 5, "--splits 10", "--tables 4 --splits 2", "mapie"),
    _stage("leave_one_out", 8, "--intervals 20000", "--intervals 300"),
    _stage("update", 6, "--count 100", "--part sequences --count 5"),
    _stage("tables", 15, "--go-on WORK/tables.json", "--tables hitters auto"),
    _stage("known_tables", 5, "", "--lines NCI60", "glum"),
    Stage(
        ("many_tables",),
        "benchmarks/many_tables.py --half unseen --every 8 --limit 30 --lines WORK/many_tables.jsonl",
        10, "--every 500", ("glum", "skglm", "adelie"),
    ),
    _stage("sklearn_search", 5, "", "--data diabetes"),
    _stage("answers", 8, "--count 20 --seed 1", "--count 1"),
    _stage("sklearn_groups", 3, "", "--data synthetic"),
    _stage("feature_penalties", 6, "--draws 3", "--draws 1 --evaluations 5"),
    _stage("global_certificate", 14, "--seconds 10 --grid-seconds 3 --truth-seconds 3 --points 1000", "--part valleys"),
    # Single solves, and their proofs
    _stage("certified_solves", 12, "--digits 2 --limit 10", "--digits 1 --limit 1 --settings l1", "skglm", "celer"),
    _stage("families", 2, "", "", "glum", "sksurv", "statsmodels", "skglm", "adelie"),
    _stage("attack", 3, "--certificates 100000", "--only own --certificates 100", "flint"),
    _stage("verified", 6, "--points 20000", "--points 300", "flint"),
    # The paper's problem, and evaluations
    _stage("dynamic_accuracy", 7),
    _stage("paper_run", 4, "--rounds 2", "--rounds 1 --only"),
    _stage("exact_evaluations", 3, "--solver auto", "", "dfols", "cobyqa"),
    _stage("derivative_free", 1, "", "", "dfols"),
    _stage("many_parameters", 4, "", "--only 52 --budget 1", "dfols"),
    _stage("derivatives", 6, "", "more_wild"),
    _stage("hypercleaning", 4, "", "--products 100"),
    # Size, and what can go wrong
    _stage("growth", 2),
    _stage("memory", 1),
    Stage(("memory_search",), "benchmarks/memory.py --search 20000 250", 1),
    _stage("damage", 2, "--each 4", "--each 1 --kinds single"),
    _stage("fuzz", 2, "--inputs 20000", "--inputs 200"),
    _stage("kill_test", 3, "", "--trials 3", alone=True),
    _stage("cluster", 2, "", "", "distributed", alone=True),
    _stage("cluster_rows", 8, "", "--only bits", "distributed", alone=True),
    # Measured once
    _stage("gpu", 2, once=DEVICE),
    _stage("full_mnist", 5, "--folder FOLDER", once="MNIST's idx files"),
    Stage(("full_mnist_cuda",), "benchmarks/full_mnist.py --folder FOLDER --device cuda", 1, once=DEVICE),
    Stage(("hypercleaning_20000",), "benchmarks/hypercleaning.py --rows 20000 --device cuda", 10, once=DEVICE),
    Stage(("outside",), "-m benchmarks.tuners.outside", 600, once="a day of one core"),
    Stage(("tuners",), "-m benchmarks.tuners --jobs 16", 4000, once="a machine of 16 cores for hours"),
)
# fmt: on


def of_text(text: str) -> str:
    """A digest of a program that is the same where only comments, docstrings, layout or the words of errors differ, by
    whatever version of Python it is made."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    gone: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[:1]
            if body and isinstance(body[0], ast.Expr) and isinstance(getattr(body[0].value, "value", None), str):
                gone.append(_span(body[0], starts))
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            gone += [_span(one, starts) for one in node.exc.args]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            at = starts[token.start[0] - 1] + len(token.line[: token.start[1]].encode())
            gone.append((at, at + len(token.string.encode())))
    kept, done, whole = [], 0, b"".join(lines)
    for first, last in sorted(gone):
        kept.append(whole[done : max(first, done)])
        done = max(last, done)
    return hashlib.sha256(b"".join(b"".join([*kept, whole[done:]]).split())).hexdigest()[:10]


def _span(node: Any, starts: list[int]) -> tuple[int, int]:
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


@cache
def digest(path: str) -> str:
    """That of a file of the repository; nothing where there is none."""
    try:
        return of_text((ROOT / path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""


def _content(name: str) -> str:
    return hashlib.sha256((RESULTS / f"{name}.json").read_bytes()).hexdigest()[:10]


def records() -> dict[str, Any]:
    """What is known of each result: its commit, date, seconds of the clock, content and the digests of its code."""
    path = RESULTS / "measured.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def shown() -> set[str]:
    """Results that README or the documentation show or lead to."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    names = {name for page in pages for name in SHOWN.findall(page.read_text(encoding="utf-8"))}
    return {name for name in names if name not in (*HAND, "README") and not name.startswith("tuners_")}


def provenances(data: Any, depth: int = 4) -> Iterator[tuple[str, str]]:
    """Every commit and date in a result: one that was measured in parts has several."""
    if isinstance(data, dict) and isinstance(data.get("commit"), str):
        yield data["commit"], str(data.get("date", ""))
    elif isinstance(data, dict | list) and depth:
        for value in data.values() if isinstance(data, dict) else data:
            yield from provenances(value, depth - 1)


def measured(name: str) -> list[tuple[str, str]]:
    """Commits and dates that a result names."""
    data = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return sorted(set(provenances(data))) or [("not said", "")]


def complaint(stage: Stage, name: str, known: dict[str, Any]) -> str:
    """Why a result is older than the code that it measures; nothing if it is not."""
    if stage.once:
        return ""
    if name not in known:
        return "measured before it was recorded what results depend on"
    if known[name]["content"] != _content(name):
        return "not as its stage has left it"
    if changed := [path for path, code in known[name]["code"].items() if digest(path) != code]:
        return f"{len(changed)} files have changed since {known[name]['commit']}, {changed[0]} among them"
    return ""


def complaints() -> dict[str, str]:
    """The results that are older than the code, and why."""
    known = records()
    found = {name: complaint(stage, name, known) for stage in STAGES for name in stage.results}
    return {name: why for name, why in found.items() if why}


def page() -> str:
    """results/README.md."""
    older, rows, once = complaints(), [], []
    for stage in STAGES:
        for name in stage.results:
            commits, dates = zip(*measured(name), strict=True)
            row = [name, ", ".join(dict.fromkeys(commits)), max(dates) or "not said", f"`python {stage.command}`"]
            (once if stage.once else rows).append(
                [*row, stage.once or ("older than the code" if name in older else "")]
            )
    return (
        "# Results, and the code that they are of\n\n"
        f"Written by `python benchmarks/all_results.py table`. Of {len(rows)} results that `make results` measures "
        f"again {len(older)} are older than the code that they measure, comments and messages aside.\n\n"
        + table(["result", "commit", "date", "command", ""], rows)
        + "\n\nMeasured once, and not again with every version: they say what was true of their commit.\n\n"
        + table(["result", "commit", "date", "command", "needs"], once)
        + "\n\nLonger campaigns against proofs have a page of their own, `campaigns.md`.\n"
    )


def measure(stage: Stage, small: bool, lock: threading.Lock) -> dict[str, Any]:
    """Run one stage, and write down what it has used; small ones into build/tried, of which nothing is recorded."""
    code = {str(path.relative_to(ROOT)): digest(str(path.relative_to(ROOT))) for path in ROOT.glob("src/**/*.py")}
    state = hashlib.sha256(json.dumps(code).encode()).hexdigest()[:10]
    folder = BUILD / ("tried" if small else "results")
    work = folder if small else folder / state
    work.mkdir(parents=True, exist_ok=True)
    loaded = folder / f"{stage.name}.loaded"
    loaded.unlink(missing_ok=True)
    paths = os.pathsep.join([str(RECORDING), *filter(None, [os.environ.get("PYTHONPATH")])])
    recorded = {"RESULTS_ROOT": str(ROOT), "RESULTS_LOADED": str(loaded), "PYTHONPATH": paths}
    known, began, words = provenance(), time.monotonic(), stage.words(work, small)
    with (folder / f"{stage.name}.log").open("w", encoding="utf-8") as log:
        made = subprocess.run(words, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, **recorded})
    seconds = time.monotonic() - began
    print(f"{stage.name}: {seconds:.0f} s, exit code {made.returncode}", flush=True)
    if not small and made.returncode == 0:
        used = {*loaded.read_text(encoding="utf-8").splitlines()} - {"benchmarks/recording/sitecustomize.py"}
        with lock:
            everything = records()
            for name in stage.results:
                everything[name] = {
                    "commit": known["commit"], "date": known["date"], "seconds": round(seconds),
                    "content": _content(name), "code": {path: code.get(path) or digest(path) for path in sorted(used)},
                }  # fmt: skip
            write_json(RESULTS / "measured.json", dict(sorted(everything.items())))
    return {"seconds": seconds, "exit code": made.returncode}


def run(names: list[str], jobs: int, small: bool) -> int:
    """Measure what is older, or these; how many have failed."""
    wanted = names or ([one.name for one in STAGES if not one.once] if small else complaints())
    asked = [one for one in STAGES if any(name in wanted for name in one.results)]
    for stage in (one for one in asked if one.missing or one.once):
        print(f"{stage.name}: left out, it needs {stage.missing or stage.once}", flush=True)
    ready = sorted((one for one in asked if not one.missing and not one.once), key=lambda one: -one.minutes)
    lock, took = threading.Lock(), dict[str, dict[str, Any]]()
    for stages, workers in (([one for one in ready if not one.alone], jobs), ([one for one in ready if one.alone], 1)):
        waiting: queue.SimpleQueue[Stage] = queue.SimpleQueue()
        for stage in stages:
            waiting.put(stage)

        def work(waiting: queue.SimpleQueue[Stage] = waiting) -> None:
            while not waiting.empty():
                try:
                    stage = waiting.get_nowait()
                except queue.Empty:
                    return
                took[stage.name] = measure(stage, small, lock)

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if not small:
        write_text(RESULTS / "README.md", page())
    failed = [name for name, one in took.items() if one["exit code"]]
    if failed:
        print(f"failed: {', '.join(failed)}; their logs are in {BUILD / ('tried' if small else 'results')}")
    return len(failed)


def look() -> None:
    """What is older, and the minutes of two cores that it takes to measure it again."""
    older, known = complaints(), records()
    stages = [one for one in STAGES if any(name in older for name in one.results)]
    both = alone = 0.0
    for stage in stages:
        minutes = known[stage.name]["seconds"] / 60 if stage.name in known else stage.minutes
        both, alone = both + minutes * (not stage.alone), alone + minutes * stage.alone
        why = "; ".join(f"{name}: {older[name]}" for name in stage.results if name in older)
        print(f"{minutes:4.0f} min  {why}{f' (needs {stage.missing})' if stage.missing else ''}")
    print(f"{both / 2 + alone:.0f} minutes on two cores")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", nargs="?", default="look", choices=["look", "run", "try", "table"])
    known = [name for stage in STAGES for name in stage.results]
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    arguments.add_argument("--jobs", type=int, default=2, help="stages at a time (%(default)s)")
    given = arguments.parse_args()
    if strange := sorted({*given.names} - {*known}):
        arguments.error(f"there is no result {', '.join(strange)}")
    if given.what in ("run", "try"):
        sys.exit(1 if run(given.names, given.jobs, given.what == "try") else 0)
    if given.what == "table":
        write_text(RESULTS / "README.md", page())
    else:
        look()


if __name__ == "__main__":
    main()
