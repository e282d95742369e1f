"""What rows on a cluster take: a simulation of jobs, held against measured ones, and then asked about 10^9 rows.

A job does all that is asked for at a time, in up to four rounds: a task for each piece of the rows; where margins stay
with the rows, a small one more, which takes the sums out of what stays; and where sums are large, one for every pair
of them that is joined on the workers. Its constants are

    job      seconds of the head, client and scheduler, for a round
    head     seconds of the head for a task that it hands out and takes back, and
    ask      for every request of a task
    task     seconds of a worker for a task, and
    take     for every request of it, besides what the request takes
    delay    seconds in which a job waits for messages, and nobody computes
    pair     the speed of a core while another one is at work, too: they share caches, memory, and perhaps more
    idle     CPU seconds that a worker takes for every second in which it does nothing
    block, row   seconds of a worker for a block and for a row, for every kind of request

and a simulation turns them into time on the clock: the head hands out tasks one by one, every worker makes those of the
pieces that it holds, one at a time, and all of them share as many cores as there are. Constants come from four
searches on one worker: few rows in few pieces with five folds and with two, few rows in many pieces, and 100,000 rows.
Seconds for blocks and rows are measured inside of the worker, request by request: it gives memory back at once, as Dask
wants it, and takes up to twice as long as the same work elsewhere. All other searches are predicted: more rows, more
workers, other pieces, other folds. A search is three evaluations of an elastic-net logistic regression with folds, and
their derivatives; its jobs are counted as they are asked for, and what the client computes between them is not part of
it. A search asks for the same jobs every time: it is made REPEATS times, and the least seconds of every job count,
since other work on the machine makes the same job take up to twice as long. Their spread is told.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict, deque
from typing import Any

import dask.array as da
import numpy as np
from common import table, target
from distributed import Client, LocalCluster, wait
from scipy.optimize import nnls

from suffice import BilevelProblem, Space, losses, problems, terms
from suffice.terms import blocks, cluster
from suffice.terms.cluster import ClusterRows

D = 50
CORES = 2  # of the machine that cases are measured on
SPACE = Space(l1=(1e-6, 1.0), l2=(1e-6, 1.0))
OVERHEADS = ("job", "head", "ask", "task", "take", "delay")  # in seconds
REPEATS = 2
THETA = np.array([-3.0, -3.0])
BLOCK = blocks.block_rows((1 << 30, D))


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


def of_kind(name: str, c: dict[str, Any]) -> tuple[float, float]:
    """Seconds for a block and a row; a kind that the known searches have not asked for is taken for its like."""
    like = next((one for one in (name, f"{name}*", name.rstrip("*")) if one in c["kinds"]), None)
    if like is None:
        like = max((one for one in c["kinds"] if one.split()[0] == name.split()[0].rstrip("*")), key=len)
    return c["kinds"][like]  # type: ignore[no-any-return]


def simulated(job: dict[str, Any], c: dict[str, Any], cores: float) -> tuple[float, float]:
    """Seconds of a job on the clock, and CPU seconds of all processes."""
    owners, workers = job["owners"], max(job["owners"]) + 1
    handed: list[tuple[float, int, float]] = []  # the head's seconds for a task, whose it is, and that one's seconds
    for round_ in job["rounds"]:
        pieces, number = list(zip(owners, job["rows"], job["blocks"], strict=True)), asked_of(round_)
        small, head, most = c["task"], c["head"], c["head"] + c["ask"] * number
        own = small + c["take"] * number
        tasks = [(most, owner, own + computing(round_, rows, count, c)) for owner, rows, count in pieces]
        tasks += [(head, owner, small) for owner in owners] * round_["stays"]
        tasks += [(head, owner, small) for owner in owners[1:]] * round_["joined"]
        tasks[0] = tasks[0][0] + c["job"], *tasks[0][1:]
        handed += tasks
    clock, cpu = _served(handed, workers, cores, c["pair"])
    return c["delay"] + clock, cpu + c["idle"] * workers * (c["delay"] + clock)


def _served(handed: list[tuple[float, int, float]], workers: int, cores: float, pair: float) -> tuple[float, float]:
    """Until all tasks are done, if all who have something to do share the cores, which are slower side by side."""
    if cores > workers and pair == 1.0:  # nobody waits for a core
        ready, free = 0.0, [0.0] * workers
        for head, owner, seconds in handed:
            ready += head
            free[owner] = max(free[owner], ready) + seconds
        return max(ready, *free), sum(head + seconds for head, _, seconds in handed)
    queues: list[deque[float]] = [deque() for _ in range(workers)]
    left, clock, cpu, k = [0.0] * workers, 0.0, 0.0, 0
    head = handed[0][0]
    while True:
        for owner in range(workers):
            if left[owner] == 0.0 and queues[owner]:
                left[owner] = queues[owner].popleft()
        busy = [owner for owner in range(workers) if left[owner] > 0.0]
        active = k < len(handed)
        if not busy and not active:
            return clock, cpu
        count = len(busy) + active
        step = min([left[owner] for owner in busy] + [head] * active)
        speed = pair if count > 1 else 1.0
        clock += step / (min(1.0, cores / count) * speed)
        cpu += count * step / speed
        for owner in busy:
            left[owner] = left[owner] - step if left[owner] - step > 1e-12 else 0.0
        if active:
            head -= step
            if head <= 1e-12:
                queues[handed[k][1]].append(handed[k][2])
                k += 1
                head = handed[k][0] if k < len(handed) else 0.0


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
    """Jobs while it is entered: what they were, and how long they took."""

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
            began, cpu = time.perf_counter(), time.thread_time()
            found = self.before[0](rows, requests)
            self.jobs.append({
                "rounds": list(rounds), "rows": [b - a for a, b in rows.places],
                "blocks": [-(-(b - a) // rows.block) for a, b in rows.places],
                "seconds": time.perf_counter() - began, "cpu": time.thread_time() - cpu,
            })  # fmt: skip
            return found

        ClusterRows.answers, ClusterRows._start = answers, start  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        ClusterRows.answers, ClusterRows._start = self.before  # type: ignore[method-assign]


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


def watched() -> None:
    """In a worker: from now on the CPU seconds of every request on a piece are written down."""
    before, seen = cluster._of_request, []

    def of_request(spec: Any, given: Any, known: Any, start: int, stop: int, X: Any) -> Any:
        began = time.thread_time()
        found = before(spec, given, known, start, stop, X)
        seen.append((name_of(spec, given), -(-(stop - start) // spec.block), stop - start, time.thread_time() - began))
        return found

    cluster._of_request, cluster.seen = of_request, seen  # type: ignore[attr-defined]


def seen_by_now() -> list[Any]:
    """In a worker: what was written down since the last time."""
    found = list(cluster.seen)  # type: ignore[attr-defined]
    cluster.seen.clear()  # type: ignore[attr-defined]
    return found


async def of_loop() -> float:
    """In the thread that serves messages of client and scheduler: its CPU seconds."""
    return time.thread_time()


def measured(client: Any, N: int, folds: int = 5, block: int = 0, watch: bool = False) -> dict[str, Any]:
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
    if watch:
        client.run(seen_by_now)
    runs: list[dict[str, Any]] = []
    for _ in range(REPEATS):
        there, loop = sum(client.run(time.process_time).values()), client.sync(of_loop)
        with Asked() as asked:
            searched(problem)
        there = sum(client.run(time.process_time).values()) - there
        head = client.sync(of_loop) - loop + sum(job["cpu"] for job in asked.jobs)
        seen = [one for of_worker in client.run(seen_by_now).values() for one in of_worker] if watch else []
        runs.append({"jobs": asked.jobs, "head": head, "there": there, "seen": seen})
    jobs = runs[0]["jobs"]
    for k, job in enumerate(jobs):
        job["owners"], job["seconds"] = owners, min(run["jobs"][k]["seconds"] for run in runs)
    head, there = (min(run[name] for run in runs) for name in ("head", "there"))
    return {
        "rows": N, "folds": folds, "workers": len(names), "pieces": len(owners), "jobs": jobs, "head": head,
        "seconds": sum(job["seconds"] for job in jobs), "CPU": head + there,
        "seen": min((run["seen"] for run in runs), key=lambda seen: sum(one[-1] for one in seen)),
        "spread": max(run["head"] + run["there"] for run in runs) / (head + there) - 1.0,
    }  # fmt: skip


def started(workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, memory_limit=None, dashboard_address=":0"
    )


KNOWN = (
    {"N": 512, "block": 64},
    {"N": 512, "block": 64, "folds": 2},
    {"N": 2048, "block": 64},
    {"N": 100_000},
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


def at_work(seconds: float) -> float:
    """In a worker: CPU seconds of what jobs mostly do, with a block."""
    X = np.random.default_rng(0).standard_normal((BLOCK, D))
    w, ends, count, began = np.full(D, 0.1), time.perf_counter() + seconds, 0, time.thread_time()
    while time.perf_counter() < ends:
        p = 1.0 / (1.0 + np.exp(-(X @ w)))
        B = X * np.sqrt(p)[:, None]
        X.T @ p, B.T @ B
        count += 1
    return (time.thread_time() - began) / count


def of_machine(client: Any) -> dict[str, float]:
    """`pair` and `idle`, with two workers."""
    names = list(client.scheduler_info()["workers"])

    def all_of(workers: Any, key: int) -> list[float]:
        futures = [client.submit(at_work, 2.0, workers=[one], key=f"at-work-{key}-{one}") for one in workers]
        return client.gather(futures)  # type: ignore[no-any-return]

    all_of(names, 0)
    alone = [all_of([one], 1)[0] for one in names]
    both = all_of(names, 2)
    before = sum(client.run(time.process_time).values())
    time.sleep(3.0)
    idle = (sum(client.run(time.process_time).values()) - before) / (3.0 * len(names))
    return {"pair": float(min(np.mean(alone) / np.mean(both), 1.0)), "idle": idle}


def fitted(known: list[dict[str, Any]], machine: dict[str, float]) -> dict[str, Any]:
    """Constants from the searches of KNOWN."""
    kinds: dict[str, list[Any]] = defaultdict(list)
    for case in known:
        for name, count, rows, seconds in case["seen"]:
            kinds[name].append((count, rows, seconds))
    of_kinds = {}
    for name, seen in kinds.items():
        sizes = sorted({(count, rows) for count, rows, _ in seen})
        typical = [float(np.mean([s for count, rows, s in seen if (count, rows) == size])) for size in sizes]
        of_kinds[name] = _least([[float(one) for one in column] for column in zip(*sizes, strict=True)], typical)

    def total(case: dict[str, Any], of: Any) -> float:
        return float(sum(of(one) for job in case["jobs"] for one in job["rounds"]))

    rounds = [total(case, lambda one: 1) for case in known]
    tasks = [total(case, lambda one, n=case["pieces"]: tasks_of(one, n)) for case in known]
    requests = [case["pieces"] * total(case, asked_of) for case in known]
    job, head, ask = _least([rounds, tasks, requests], [case["head"] for case in known])
    few = known[:3]  # rows; where there are many, the rest is a small difference of large numbers
    rest = [
        case["CPU"] - case["head"] - sum(one[-1] for one in case["seen"]) - machine["idle"] * case["seconds"]
        for case in few
    ]
    task, take = _least([tasks[:3], requests[:3]], rest)
    c = {**machine, "job": job, "head": head, "ask": ask, "task": task, "take": take, "delay": 0.0, "kinds": of_kinds}
    waits = [
        (case["seconds"] - sum(simulated(job, c, CORES)[0] for job in case["jobs"])) / len(case["jobs"])
        for case in known
    ]
    return {**c, "delay": max(float(np.median(waits)), 0.0)}


def _least(columns: list[list[float]], measured: list[float]) -> list[float]:
    """Constants >= 0 with the least squares of relative errors."""
    A = np.array(columns).T / np.array(measured)[:, None]
    return [float(one) for one in nnls(A, np.ones(len(measured)))[0]]


def plan() -> dict[str, Any]:
    cases: list[dict[str, Any]] = []
    course: list[dict[str, Any]] = []
    with started(2) as running, Client(running) as client:
        machine = of_machine(client)
    with started(1) as running, Client(running) as client:
        client.run(watched)
        known = [measured(client, watch=True, **how) for how in KNOWN]
        c = fitted(known, machine)
        cases += [_compared(case, c, True) for case in known]
    for workers in sorted({workers for workers, _ in PREDICTED}):
        with started(workers) as running, Client(running) as client:
            for case in (measured(client, **how) for number, how in PREDICTED if number == workers):
                cases.append(_compared(case, c, False))
                print(_case(cases[-1]), file=sys.stderr, flush=True)
                course = case["jobs"] if case["folds"] == 5 and case["rows"] >= 100_000 else course
    return {"constants": c, "cases": cases, "plan": planned(c, course), "evaluations": 3}


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
                constants = {**c, "pair": 1.0, "kinds": {**c["kinds"], "reading": (0.0, read)}}
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
        f"Seconds on the clock, of all jobs, and CPU seconds of all processes, on two cores, the least of {REPEATS} "
        "repeats. `a job is off by`: the median over the jobs of a search, on the clock. `CPU varies by`: how much "
        "more the slowest repeat took.",
        table([*titles, "predicted"], [_case(case) for case in found["cases"]]),
        table(["largest error of a predicted case", "measured", "target", ""], [
            target("on the clock", clock, 0.2), target("CPU", cpu, 0.2),
        ]),
        f"Overheads: {overheads}; pair {c['pair']:.2f}, idle {c['idle']:.3f}.",
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
