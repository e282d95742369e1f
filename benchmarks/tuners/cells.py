"""Cells: one (problem, solver, tuner, seed) each, run in N processes of one thread, written down as JSON lines.

Each process appends to a file of its own, one line per cell that has ended; a run that is cut loses the cells under way
and nothing else, and the next one does what is left. Cells are in the order of their seeds: a cut run is balanced.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Cell = tuple[str, str, str, int]  # problem, solver, tuner, seed
PER_CELL = 12.0  # seconds of a run at most, its scoring not counted


def plan(
    problems: Iterable[str], solvers: Iterable[str], tuners: Iterable[str], seeds: Iterable[int], slow_seeds: int = 3
) -> list[Cell]:
    """All cells that make sense."""
    from benchmarks.tuners.problems import known
    from benchmarks.tuners.tuners import TUNERS

    problems, solvers, tuners = list(problems), list(solvers), list(tuners)
    return [
        (problem, solver, tuner, seed)
        for seed in seeds
        for problem in problems
        for solver in solvers
        for tuner in tuners
        if TUNERS[tuner].takes(known(problem), solver) and not (TUNERS[tuner].slow and seed >= slow_seeds)
    ]


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """All cells that have ended, each once."""
    seen = set()
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for line in text.splitlines():
            try:
                one = json.loads(line)
            except ValueError:  # cut in the middle of a line
                continue
            cell = one["problem"], one["solver"], one["tuner"], one["seed"]
            if cell not in seen:
                seen.add(cell)
                yield one


def run(cells: list[Cell], folder: Path, jobs: int, minutes: float = 1e9, seconds: float = PER_CELL) -> None:
    """What is left of these cells, until the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {(one["problem"], one["solver"], one["tuner"], one["seed"]) for one in read(folder)}
    left = [cell for cell in cells if cell not in done]
    print(f"{len(left)} of {len(cells)} cells are left, {jobs} processes", flush=True)
    end = time.time() + 60.0 * minutes
    if jobs == 1:
        for cell in left:
            if time.time() < end:
                _work((cell, folder, end, seconds))
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    with get_context("spawn").Pool(jobs, initializer=_quiet, maxtasksperchild=200) as pool:
        arguments = [(cell, folder, end, seconds) for cell in left]
        for k, _ in enumerate(pool.imap_unordered(_work, arguments, chunksize=1), 1):
            if k % 100 == 0:
                print(f"{k} cells, {(end - time.time()) / 60:.1f} minutes left", flush=True)


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


_exact: dict[str, Any] = {}


def _work(argument: tuple[Cell, Path, float, float]) -> None:
    cell, folder, end, seconds = argument
    if time.time() > end:
        return
    problem, solver, tuner, seed = cell
    one: dict[str, Any] = {"problem": problem, "solver": solver, "tuner": tuner, "seed": seed}
    try:
        one |= play(cell, seconds)
    except Exception as error:  # a tuner that fails on a problem has failed on it, and says why
        one |= {
            "reason": f"{type(error).__name__}: {error}"[:300],
            "curve": [],
            "trace": traceback.format_exc()[-2000:],
        }
    with (folder / f"cells-{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(one) + "\n")


def play(cell: Cell, seconds: float = PER_CELL) -> dict[str, Any]:
    """One cell, here and now."""
    from threadpoolctl import threadpool_limits

    from benchmarks.tuners import protocol
    from benchmarks.tuners.problems import known
    from benchmarks.tuners.tuners import TUNERS

    name, solver, tuner, seed = cell
    problem = known(name)
    if name not in _exact:
        _exact[name] = protocol.Exact(problem)
    limits = protocol.Limits(problem.products[solver], seconds=seconds)
    with threadpool_limits(1):
        return protocol.play(problem, solver, TUNERS[tuner].call, seed, _exact[name], limits)
