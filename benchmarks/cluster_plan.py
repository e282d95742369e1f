"""What rows on a cluster take: a simulation of jobs, held against measured ones, and then asked about 10^9 rows.

A job does all that is asked for at a time, in one round or two: a task for each piece of the rows; where margins stay
with the rows, a small one more, which takes the sums out of what stays; and where sums are large, one for every pair
of them that is joined on the workers. It has three phases, one after the other. The head, client and scheduler,
describes all tasks before the first one begins. Workers make them, each those of the pieces that it holds, one at a
time, and all of them share as many cores as there are. Then the head brings the sums here:

    before    job  for a round, hand for a task, ask for every request of a task
    within    task for a task, take for every request of it, and block and row for a block and a row of every request,
              by its kind
    after     end  for a job, back for a sum that comes here, bring for every request that it is of

These are seconds on the clock, and of a CPU. Besides there are

    aside     CPU seconds of a worker for a task, in which it serves messages while others are waited for
    beat      and for every second on the clock, in which it looks after itself: Dask takes samples of what it does
    pair      the speed of a core while 2, or 4, are at work: they share caches, memory, and perhaps more.

Constants come from four searches on one worker: few rows in few pieces with five folds and with two, few rows in many
pieces, and 100,000 rows. Workers write down when tasks begin and end, and the CPU seconds of every request on a piece.
All other searches are predicted: more rows, more workers, other pieces, other folds. A search is three evaluations of
an elastic-net logistic regression with folds, and their derivatives; its jobs are counted as they are asked for, and
what the client computes between them is not part of it. A search asks for the same jobs every time: it is made several
times, and the least seconds of every job count, on the clock and of CPUs, since other work on the machine and its host
makes the same job take up to twice as long. What is left of that is told by a yardstick, a short computation before
every job: seconds are those of a machine on which it takes as long as it mostly does. Needs Linux, for CPU seconds of
threads.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from common import table, target, write_json
from distributed import Client, LocalCluster, WorkerPlugin, wait
from scipy.optimize import nnls

from suffice import BilevelProblem, Space, losses, problems, terms
from suffice.rows import blocks
from suffice.rows import dask as cluster
from suffice.rows.dask import ClusterRows
from suffice.rows.pieces import kept_memory

D = 50
CORES = 2  # of the machine that cases are measured on
SPACE = Space(l1=(1e-6, 1.0), l2=(1e-6, 1.0))
BEFORE, WITHIN, AFTER = ("job", "hand", "ask"), ("task", "take"), ("end", "back", "bring")  # in seconds
OVERHEADS = (*BEFORE, *WITHIN, *AFTER, "aside")
REPEATS = 2
THETA = np.array([-3.0, -3.0])
BLOCK = blocks.block_rows((1 << 30, D))
YARD = np.random.default_rng(0).standard_normal((4_000, D))


# Simulation


def tasks_of(round_: dict[str, Any], pieces: int) -> int:
    """How many tasks a round has."""
    return pieces * (1 + round_["stays"]) + (pieces - 1) * round_["joined"]


def asked_of(round_: dict[str, Any]) -> int:
    """How many requests a task of a round has."""
    return sum(round_["requests"].values())


def computing(round_: dict[str, Any], rows: int, count: int, c: dict[str, Any]) -> float:
    """Seconds of a worker for the requests of a round on a piece of so many rows and blocks."""
    pairs = ((of_kind(name, c), number) for name, number in round_["requests"].items())
    return sum(number * (block * count + row * rows) for (block, row), number in pairs)


def computed(job: dict[str, Any], c: dict[str, Any]) -> float:
    """Seconds of all workers for the requests of a job."""
    pieces = list(zip(job["rows"], job["blocks"], strict=True))
    return sum(computing(one, rows, count, c) for one in job["rounds"] for rows, count in pieces)


def of_kind(name: str, c: dict[str, Any]) -> tuple[float, float]:
    """Seconds for a block and a row; a kind that the known searches have not asked for is taken for its like."""
    like = next((one for one in (name, f"{name}*", name.rstrip("*")) if one in c["kinds"]), None)
    if like is None:
        like = max((one for one in c["kinds"] if one.split()[0] == name.split()[0].rstrip("*")), key=len)
    return c["kinds"][like]  # type: ignore[no-any-return]


def counted(job: dict[str, Any]) -> dict[str, list[int]]:
    """How often the constants of each phase are spent in a job."""
    pieces, rounds = len(job["owners"]), job["rounds"]
    sums = [1 if one["joined"] else pieces for one in rounds]
    tasks, requests = sum(tasks_of(one, pieces) for one in rounds), pieces * sum(asked_of(one) for one in rounds)
    return {
        "before": [len(rounds), tasks, requests], "within": [tasks, requests],
        "after": [1, sum(sums), sum(number * asked_of(one) for number, one in zip(sums, rounds, strict=True))],
    }  # fmt: skip


def simulated(job: dict[str, Any], c: dict[str, Any], cores: float) -> tuple[float, float]:
    """Seconds of a job on the clock, and CPU seconds of all processes."""
    count = counted(job)
    loads = [0.0] * (max(job["owners"]) + 1)
    for one in job["rounds"]:
        sizes = list(zip(job["rows"], job["blocks"], strict=True))
        seconds = {size: c["take"] * asked_of(one) + computing(one, *size, c) for size in set(sizes)}
        for k, (owner, size) in enumerate(zip(job["owners"], sizes, strict=True)):
            loads[owner] += c["task"] * (1 + one["stays"] + (one["joined"] and k > 0)) + seconds[size]
    head = sum(c[name] * times for name, times in zip(BEFORE + AFTER, count["before"] + count["after"], strict=True))
    clock, cpu = shared(loads, cores, c)
    clock += head
    return clock, cpu + head + c["aside"] * count["within"][0] + c["beat"] * len(loads) * clock


def speed_of(count: int, c: dict[str, Any]) -> float:
    """Of a core while so many are at work: as measured with so many, or a few more."""
    return next((speed for number, speed in c["pair"] if number >= count > 1), 1.0)


def shared(loads: list[float], cores: float, c: dict[str, Any]) -> tuple[float, float]:
    """Seconds on the clock until all workers have done what they have to do, and CPU seconds: whoever is at work has
    the same share of the cores, which are slower side by side, and of which workers' own affairs take a part."""
    clock = cpu = done = 0.0
    for k, load in enumerate(sorted(loads)):
        count = len(loads) - k
        speed = speed_of(count, c)
        clock += (load - done) / (min(1.0, (cores - c["beat"] * len(loads)) / count) * speed)
        cpu += count * (load - done) / speed
        done = load
    return clock, cpu


# Measurements


def data(N: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    return X, X @ rng.standard_normal(D) / np.sqrt(D) + rng.logistic(size=N) > 0.0


def in_folds(X: Any, y: Any, folds: int) -> BilevelProblem:
    parts = terms.row_folds(X, folds, interleaved=True)
    lower = [problems.ElasticNetLogistic(train, y) for train, _ in parts]
    return BilevelProblem(lower, [losses.LogLoss(held, y) for _, held in parts], space=SPACE)


def searched(problem: BilevelProblem) -> None:
    """Three evaluations, as a search makes them, with derivatives."""
    first = problem.differentiate(problem.evaluate(THETA, within=1e-2))
    second = problem.differentiate(problem.evaluate(THETA + 0.2, within=1e-4, warm=first))
    problem.differentiate(problem.evaluate(THETA + np.array([0.3, 0.1]), within=1e-6, warm=second))


class Asked:
    """Jobs while it is entered: what they were, how long they took, and CPU seconds of `threads` from the beginning of
    each to that of the next one, since some of its work is done when its answer is there."""

    def __init__(self, threads: list[Path]) -> None:
        self.threads = threads

    def __enter__(self) -> Asked:
        self.jobs: list[dict[str, Any]] = []
        self.before = ClusterRows.answers, ClusterRows._start
        rounds: list[dict[str, Any]] = []

        def start(rows: ClusterRows, units: Any) -> Any:
            size = 8 * sum(getattr(unit.request.job, "size", 0) for unit in units)
            names = Counter(name_of(unit.spec, unit.given) for unit in units)
            rounds.append({
                "requests": dict(names), "stays": any(unit.spec.stays for unit in units),
                "joined": size > cluster.LARGE, "reads": any(unit.reads for unit in units),
                "matrices": sum(bool(getattr(unit.request.job, "size", 0)) for unit in units),
            })  # fmt: skip
            return self.before[1](rows, units)

        def answers(rows: ClusterRows, requests: Any) -> Any:
            rounds.clear()
            yard = yardstick()
            there, began, here = cpu_seconds(self.threads), time.time(), time.thread_time()
            found = self.before[0](rows, requests)
            ended, here = time.time(), time.thread_time() - here
            self.jobs.append({
                "rounds": list(rounds), "rows": [b - a for a, b in rows.places],
                "blocks": [-(-(b - a) // rows.block) for a, b in rows.places],
                "began": began, "ended": ended, "seconds": ended - began, "here": here, "there": there,
                "yard": yard,
            })  # fmt: skip
            return found

        ClusterRows.answers, ClusterRows._start = answers, start  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        ClusterRows.answers, ClusterRows._start = self.before  # type: ignore[method-assign]
        ends = [job["there"] for job in self.jobs[1:]] + [cpu_seconds(self.threads)]
        for job, end in zip(self.jobs, ends, strict=True):
            job["CPU"] = job["here"] + end - job["there"]


def yardstick() -> float:
    """Seconds of a computation that is always the same, of the kinds that jobs are made of: Python, functions of
    numbers, products of matrices. It is short, and made while no worker has anything to do."""
    began = time.perf_counter()
    total = sum(k * k % 7 for k in range(10_000))
    X = YARD
    for _ in range(3):
        p = 1.0 / (1.0 + np.exp(-(X @ X[0])))
        total += float(((X * p[:, None]).T @ X)[0, 0])
    return time.perf_counter() - began


def cpu_seconds(threads: list[Path]) -> float:
    """Of these threads, folders of /proc, to the nanosecond."""
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads if one.exists()) / 1e9


def name_of(spec: Any, given: Any) -> str:
    """The class of a job; with a star where it makes margins, and told where not all rows count or X is not read."""
    even = [one for one in given if isinstance(one, blocks.Even)]
    fold = bool(even) and even[0].view is not None
    unread = not (spec.new or spec.job.reads)
    return (
        type(spec.job).__name__
        + (" of a fold" if fold else "")
        + (" without X" if unread else "")
        + ("*" if spec.new else "")
    )


class Watch(WorkerPlugin):
    """In a worker: when tasks begin and end."""

    name = "watch"

    def setup(self, worker: Any) -> None:
        self.seen: list[tuple[float, float]] = []
        self.began: dict[Any, float] = {}

    def transition(self, key: Any, start: Any, finish: Any, **_: Any) -> None:
        if finish == "executing":
            self.began[key] = time.time()
        elif start == "executing":
            self.seen.append((self.began.pop(key), time.time()))


def watched() -> None:
    """In a worker: from now on the CPU seconds of every request on a piece are written down."""
    before, seen = cluster._of_request, []

    def of_request(spec: Any, given: Any, known: Any, start: int, stop: int, X: Any) -> Any:
        began = time.thread_time()
        found = before(spec, given, known, start, stop, X)
        seen.append((name_of(spec, given), -(-(stop - start) // spec.block), stop - start, time.thread_time() - began))
        return found

    cluster._of_request, cluster.seen = of_request, seen  # type: ignore[attr-defined]


def seen_by_now(dask_worker: Any) -> tuple[list[Any], list[Any]]:
    """In a worker: requests and tasks that were written down since the last time."""
    requests, tasks = cluster.seen, dask_worker.plugins["watch"].seen  # type: ignore[attr-defined]
    found = list(requests), list(tasks)
    requests.clear()
    tasks.clear()
    return found


def phases(job: dict[str, Any], tasks: list[tuple[float, float]]) -> dict[str, float]:
    """Seconds on the clock before the first task of a job, from there to the end of the last one, and after it."""
    mine = [one for one in tasks if job["began"] <= one[0] <= job["ended"]]
    first, last = min(one[0] for one in mine), max(one[1] for one in mine)
    return {"before": first - job["began"], "within": last - first, "after": job["ended"] - last}


async def of_loop() -> int:
    """The number of the thread that serves messages of client and scheduler."""
    return threading.get_native_id()


def threads_of(client: Any) -> list[Path]:
    """All of the workers, and that of the head which serves messages."""
    workers = [Path(f"/proc/{number}/task") for number in client.run(os.getpid).values()]
    return [*(thread for worker in workers for thread in worker.iterdir()), Path(f"/proc/{client.sync(of_loop)}")]


def measured(client: Any, N: int, folds: int = 5, block: int = 0) -> dict[str, Any]:
    """Jobs of a search, and CPU seconds of the head and of all workers; blocks of `block` rows are pieces."""
    usual = blocks.BLOCK_BYTES, cluster.HELD_BYTES
    if block:
        blocks.BLOCK_BYTES = cluster.HELD_BYTES = 8 * D * block
    X, y = data(N)
    problem = in_folds(da.from_array(X, chunks=(max(N // 4, 1), -1), name=False), y, folds)
    blocks.BLOCK_BYTES, cluster.HELD_BYTES = usual
    rows = problem.lower[0].design.X
    wait(list(rows._pieces))
    problem.evaluate(THETA, within=1.0)
    names = sorted(client.scheduler_info()["workers"])
    holders = client.who_has(list(rows._pieces))
    owners = [names.index(holders[piece.key][0]) for piece in rows._pieces]
    client.run(seen_by_now)
    with Asked(threads_of(client)) as asked:
        searched(problem)
    written = list(client.run(seen_by_now).values())
    tasks = [one for _, of_worker in written for one in of_worker]
    for job in asked.jobs:
        job |= {"owners": owners, "phases": phases(job, tasks)}
    seen: dict[Any, list[float]] = defaultdict(list)
    for name, count, size, seconds in (one for of_worker, _ in written for one in of_worker):
        seen[name, count, size].append(seconds)
    return {
        "rows": N, "folds": folds, "workers": len(names), "pieces": len(owners), "jobs": asked.jobs,
        "seen": [[*key, float(np.mean(seconds))] for key, seconds in seen.items()],
    }  # fmt: skip


def yard_of(run: dict[str, Any]) -> float:
    """How slow the machine was."""
    return float(np.median([job["yard"] for job in run["jobs"]]))


def least_of(runs: list[dict[str, Any]], yard: float) -> dict[str, Any]:
    """The same search several times, each as if the machine had been as slow as this: of every job, and of requests of
    a kind, the least."""
    factors = [yard / yard_of(run) for run in runs]
    jobs = []
    for same in zip(*(run["jobs"] for run in runs), strict=True):
        scaled = [_scaled(job, factor) for job, factor in zip(same, factors, strict=True)]
        jobs.append({**min(scaled, key=lambda job: job["seconds"]), "CPU": min(job["CPU"] for job in scaled)})
    seen: dict[Any, list[float]] = defaultdict(list)
    for run, factor in zip(runs, factors, strict=True):
        for *key, seconds in run["seen"]:
            seen[tuple(key)].append(factor * seconds)
    totals = [factor * sum(job["CPU"] for job in run["jobs"]) for run, factor in zip(runs, factors, strict=True)]
    return {
        **runs[0], "jobs": jobs, "seconds": sum(job["seconds"] for job in jobs),
        "CPU": sum(job["CPU"] for job in jobs), "spread": max(totals) / min(totals) - 1.0, "factors": factors,
        "seen": {key: min(seconds) for key, seconds in seen.items()},
    }  # fmt: skip


def _scaled(job: dict[str, Any], factor: float) -> dict[str, Any]:
    phases_ = {name: factor * seconds for name, seconds in job["phases"].items()}
    return {**job, "seconds": factor * job["seconds"], "CPU": factor * job["CPU"], "phases": phases_}


def started(workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, memory_limit=None, dashboard_address=":0"
    )


KNOWN = (
    (1, {"N": 512, "block": 64}),
    (1, {"N": 512, "block": 64, "folds": 2}),
    (1, {"N": 2048, "block": 64}),
    (1, {"N": 100_000}),
)
PREDICTED = (
    (1, {"N": 200_000}),
    (1, {"N": 100_000, "block": 5_000}),
    (1, {"N": 100_000, "folds": 2}),
    (2, {"N": 1024, "block": 64}),
    (2, {"N": 100_000}),
    (2, {"N": 200_000, "folds": 3}),
    (4, {"N": 100_000}),
)


def at_work(seconds: float) -> tuple[float, float]:
    """In a worker: CPU seconds of what jobs mostly do, with a block, and of all else for every second on the clock."""
    X = np.random.default_rng(0).standard_normal((BLOCK, D))
    w, count = np.full(D, 0.1), 0
    began, mine, every = time.perf_counter(), time.thread_time(), time.process_time()
    with kept_memory():
        while time.perf_counter() < began + seconds:
            p = 1.0 / (1.0 + np.exp(-(X @ w)))
            B = X * np.sqrt(p)[:, None]
            X.T @ p, B.T @ B
            count += 1
    mine, every = time.thread_time() - mine, time.process_time() - every
    return mine / count, (every - mine) / (time.perf_counter() - began)


def of_machine(client: Any) -> tuple[float, float, float]:
    """CPU seconds of what jobs mostly do, of a worker alone and of all of them side by side, and `beat`."""
    names = list(client.scheduler_info()["workers"])

    def all_of(workers: Any) -> list[float]:
        futures = [client.submit(at_work, 0.6, workers=[one], pure=False) for one in workers]
        return [float(np.mean(one)) for one in zip(*client.gather(futures), strict=True)]

    all_of(names)
    (alone, beat), (together, _) = all_of(names[:1]), all_of(names)
    return alone, together, beat


def fitted(known: list[dict[str, Any]], pair: list[tuple[int, float]], beat: float) -> dict[str, Any]:
    """Constants from the searches of KNOWN."""
    kinds: dict[str, list[Any]] = defaultdict(list)
    for case in known:
        for (name, count, rows), seconds in case["seen"].items():
            kinds[name].append((count, rows, seconds))
    of_kinds = {name: _least(np.array(seen, dtype=float)) for name, seen in kinds.items()}
    jobs = [job for case in known for job in case["jobs"]]
    counts = [counted(job) for job in jobs]
    c: dict[str, Any] = {"pair": pair, "beat": beat, "aside": 0.0, "kinds": of_kinds}
    for phase, names in (("before", BEFORE), ("within", WITHIN), ("after", AFTER)):
        seconds = [job["phases"][phase] for job in jobs]
        if phase == "within":
            seconds = [max(all_ - computed(job, c), 0.0) for all_, job in zip(seconds, jobs, strict=True)]
        found = nnls(np.array([one[phase] for one in counts], dtype=float), np.array(seconds))[0]
        c |= dict(zip(names, map(float, found), strict=True))
    rest, tasks = [], []
    for case in known:
        rest.append(1.0 - sum(simulated(job, c, CORES)[1] for job in case["jobs"]) / case["CPU"])
        tasks.append(sum(counted(job)["within"][0] for job in case["jobs"]) / case["CPU"])
    return {**c, "aside": max(float(np.dot(rest, tasks) / np.dot(tasks, tasks)), 0.0)}


def _least(seen: Any) -> list[float]:
    """Factors >= 0 of all columns but the last, which make up that one with the least squares of relative errors."""
    return [float(one) for one in nnls(seen[:, :-1] / seen[:, -1:], np.ones(len(seen)))[0]]


def repeat() -> dict[str, Any]:
    """All searches once, and how fast cores are side by side."""
    runs: dict[int, Any] = {}
    speeds = []
    for workers in sorted({workers for workers, _ in KNOWN + PREDICTED}):
        with started(workers) as running, Client(running) as client:
            client.register_plugin(Watch())
            client.run(watched)
            if workers > 1:
                speeds.append([workers, *of_machine(client)])
            for k, (number, how) in enumerate(KNOWN + PREDICTED):
                if number == workers:
                    runs[k] = measured(client, **how)
    return {"runs": [runs[k] for k in sorted(runs)], "speeds": speeds}


def plan(folder: Path | None = None) -> dict[str, Any]:
    """From REPEATS repeats or, with a folder, from those that lie there and one more. They are best far apart: a
    machine may be slower for minutes."""
    if folder is None:
        repeats = [repeat() for _ in range(REPEATS)]
    else:
        folder.mkdir(parents=True, exist_ok=True)
        repeats = [*(json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))), repeat()]
        write_json(folder / f"{time.time():.0f}.json", repeats[-1])
    return of_repeats(repeats)


def of_repeats(repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """Constants, cases and the plan."""
    yard = float(np.median([yard_of(run) for one in repeats for run in one["runs"]]))
    cases = [least_of(list(same), yard) for same in zip(*(one["runs"] for one in repeats), strict=True)]
    speeds = [one for each in repeats for one in each["speeds"]]
    alone, beat = min(one for _, one, _, _ in speeds), float(np.median([one for *_, one in speeds]))
    beside = {workers: min(one[2] for one in speeds if one[0] == workers) for workers, *_ in speeds}
    pair = [(workers, min(alone / together, 1.0)) for workers, together in sorted(beside.items())]
    c = fitted(cases[: len(KNOWN)], pair, beat)
    course = next(case["jobs"] for case in cases if case["folds"] == 5 and case["rows"] == 200_000)
    compared = [_compared(case, c, k < len(KNOWN)) for k, case in enumerate(cases)]
    return {
        "constants": c, "cases": compared, "plan": planned(c, course), "evaluations": 3, "repeats": len(repeats),
    }  # fmt: skip


def _compared(case: dict[str, Any], c: dict[str, Any], known: bool) -> dict[str, Any]:
    found = [simulated(job, c, CORES) for job in case["jobs"]]
    off = [abs(clock / job["seconds"] - 1.0) for (clock, _), job in zip(found, case["jobs"], strict=True)]
    return {
        **{key: case[key] for key in ("rows", "folds", "workers", "pieces", "seconds", "CPU", "spread")},
        "known": known, "jobs": len(found), "simulated": sum(clock for clock, _ in found),
        "simulated CPU": sum(cpu for _, cpu in found), "of a job": float(np.median(off)),
    }  # fmt: skip


def planned(c: dict[str, Any], course: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """10^9 rows of D columns on workers with a core of their own each, a head with one, X held (400 GB) or read at 200
    MB/s by every worker at each pass. The course of a search is that of the small case: for a given accuracy Newton's
    method takes no more steps for more rows."""
    N, made = 10**9, []
    for workers in (64, 256):
        for held in (True, False):
            size = cluster.HELD_BYTES if held else cluster.PIECE_BYTES
            piece = BLOCK * cluster.blocks_of_piece((N, D), BLOCK, workers, size)
            pieces = -(-N // piece)
            read = 0.0 if held else 8.0 * D / 2e8
            shape = {"rows": [piece] * pieces, "blocks": [piece // BLOCK] * pieces}
            shape["owners"] = [k % workers for k in range(pieces)]
            seconds = {"compute": 0.0, "reading": 0.0, "all": 0.0}
            down = up = moved = 0.0
            for job in course:
                rounds = [
                    {**one, "requests": {**one["requests"], "reading": int(one["reads"])}} for one in job["rounds"]
                ]
                constants = {**c, "pair": [], "kinds": {**c["kinds"], "reading": (0.0, read)}}
                seconds["all"] += simulated({**shape, "rounds": rounds}, constants, 1e9)[0]
                for one in job["rounds"]:
                    seconds["compute"] += pieces * computing(one, piece, piece // BLOCK, c) / workers
                    seconds["reading"] += N * read * one["reads"] / workers
                    count = sum(one["requests"].values())
                    down += pieces * 8.0 * D * count
                    up += pieces * 8.0 * (D + 5) * (count - one["matrices"])
                    joined = (pieces - 1) * 8.0 * D * D * one["matrices"]
                    moved, up = (moved + joined, up) if one["joined"] else (moved, up + joined)
            each = 1.0 / 3.0  # of three evaluations
            overhead = 1.0 - (seconds["compute"] + seconds["reading"]) / seconds["all"]
            made.append({
                "workers": workers, "X": "held" if held else "read", "pieces": pieces,
                "jobs of an evaluation": len(course) * each,
                "passes over X": sum(one["reads"] for job in course for one in job["rounds"]) * each,
                "MB from the client": down * each / 1e6, "MB to the client": up * each / 1e6,
                "MB between workers": moved * each / 1e6,
                "seconds of computing": seconds["compute"] * each, "seconds of reading": seconds["reading"] * each,
                "seconds of an evaluation": seconds["all"] * each, "share of overhead": overhead,
                "minutes of a search of 20": 20 * seconds["all"] * each / 60.0,
            })  # fmt: skip
    return made


def text(found: dict[str, Any]) -> list[str]:
    predicted = [case for case in found["cases"] if not case["known"]]
    clock, cpu = (max(abs(case[there] / case[here] - 1.0) for case in predicted) for here, there in PAIRS)
    c = found["constants"]
    overheads = ", ".join(f"{name} {1e3 * c[name]:.2g} ms" for name in OVERHEADS)
    pairs = ", ".join(f"{speed:.2f} of {number}" for number, speed in c["pair"])
    per_row = ", ".join(f"{name} {1e9 * row:.0f}" for name, (_, row) in sorted(c["kinds"].items()))
    header = ["10^9 rows, 50 columns", *(f"{case['workers']} workers, X {case['X']}" for case in found["plan"])]
    keys = [key for key in found["plan"][0] if key not in ("workers", "X")]
    titles = [
        "three evaluations",
        "clock",
        "simulated",
        "off by",
        "CPU",
        "simulated",
        "off by",
        "a job is off by",
        "CPU varies by",
    ]
    return [
        "## A plan for 10^9 rows",
        "Seconds on the clock, of all jobs, and CPU seconds of all processes, on two cores, the least of "
        f"{found['repeats']} repeats. `a job is off by`: the median over the jobs of a search, on the clock. `CPU "
        "varies by`: how much more the slowest repeat took.",
        table([*titles, "predicted"], [_case(case) for case in found["cases"]]),
        table(["largest error of a predicted case", "measured", "target", ""], [
            target("on the clock", clock, 0.2), target("CPU", cpu, 0.2),
        ]),
        f"Overheads: {overheads}; pair {pairs}, beat {c['beat']:.3f}.",
        f"Nanoseconds per row (* with new margins): {per_row}.",
        table(header, [[key, *(_short(case[key]) for case in found["plan"])] for key in keys]),
    ]  # fmt: skip


PAIRS = (("seconds", "simulated"), ("CPU", "simulated CPU"))


def _case(case: dict[str, Any]) -> list[str]:
    workers = f"{case['workers']} worker{'s' if case['workers'] > 1 else ''}"
    what = f"{case['rows']:,} rows, {case['pieces']} pieces, {case['folds']} folds, {workers}"
    cells = [what]
    for here, there in PAIRS:
        cells += [f"{case[here]:.1f} s", f"{case[there]:.1f} s", f"{100.0 * (case[there] / case[here] - 1.0):+.0f} %"]
    return [*cells, *(f"{100.0 * case[key]:.0f} %" for key in ("of a job", "spread")), "" if case["known"] else "yes"]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}"
