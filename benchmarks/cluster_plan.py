"""What rows on a cluster take: a cost model of jobs, held against measured ones, and then asked about 10^9 rows.

A job is one round of tasks, one for each piece of the rows. Where margins stay with the rows there is a second round of
small tasks, which take the sums out of what stays. A job costs, in CPU seconds,

    head      client and scheduler: something for the job, and for every task that they hand out and take back
    worker    something for every task, and the seconds that the task's rows take, request by request

Seconds per row are measured inside of a worker, job by job: it gives memory back at once, as Dask wants it, and takes
up to twice as long as the same work elsewhere. The head's seconds for a task are its own CPU time. What a job and a
task cost besides is fitted to jobs of few rows and many pieces. All other cases are predicted: jobs of many rows, and
whole searches with five folds, whose jobs are counted as they are asked for. CPU time is compared, not time on the
clock: the machine has two cores for all processes, and other work.

For 10^9 rows a simulation turns costs into time on the clock: the head hands out tasks one by one, and every worker, on
a core of its own, makes one at a time.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Any

import dask.array as da
import numpy as np
from common import table, target
from distributed import Client, LocalCluster, wait

from suffice import BilevelProblem, Space, losses, problems, terms
from suffice.terms import blocks, cluster
from suffice.terms.cluster import ClusterRows
from suffice.terms.jobs import At, Gram

D, FOLDS = 50, 5
SPACE = Space(l1=(1e-6, 1.0), l2=(1e-6, 1.0))
FITTED = ("job", "task")
THETA = np.array([-3.0, -3.0])


# Simulation


def simulated(compute: list[float], workers: int, stages: int, c: dict[str, float], cores: float) -> float:
    """Seconds of a job; `compute` are those of a core that the rows of every task take."""
    tasks = len(compute)
    left = [0.0] * workers  # of every worker's task
    head, handed, done, clock = c["job"] + c["head"], 0, 0, 0.0  # of what the head does now
    waiting: list[float] = []
    while done < tasks * stages:
        while waiting and 0.0 in left:
            left[left.index(0.0)] = waiting.pop(0)
        busy = [k for k in range(workers) if left[k] > 0.0]
        rate = min(1.0, cores / (len(busy) + (head > 0.0)))
        step = min([left[k] / rate for k in busy] + ([head / rate] if head > 0.0 else []))
        clock += step
        for k in busy:
            left[k] -= step * rate
            if left[k] <= 1e-12:
                left[k], done = 0.0, done + 1
        if head > 0.0:
            head -= step * rate
            if head <= 1e-12:
                waiting.append(c["task"] + (compute[handed] if handed < tasks else 0.0))
                handed += 1
                head = c["head"] if handed < tasks * stages else 0.0
    return clock


def cost(job: dict[str, Any], c: dict[str, float]) -> float:
    """CPU seconds of a job as `Asked` writes it down: those of the head, of every task, and of the rows."""
    of_row = sum(c[name] * count for name, count in job["requests"].items())
    return c["job"] + job["pieces"] * job["stages"] * (c["head"] + c["task"]) + job["rows"] * of_row


# Measurements


def data(N: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    return X, X @ rng.standard_normal(D) / np.sqrt(D) + rng.logistic(size=N) > 0.0


def folds(X: Any, y: Any) -> BilevelProblem:
    parts = terms.row_folds(X, FOLDS, interleaved=True)
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
        self.before = ClusterRows.answers

        def answers(rows: ClusterRows, requests: Any) -> Any:
            began, passes, cpu = time.perf_counter(), rows.passes, time.process_time()
            names = Counter(name_of(request) for request in requests)
            new = any(name.endswith("*") for name in names)
            found = self.before(rows, requests)
            self.jobs.append({
                "requests": dict(names), "pieces": len(rows.places),
                "sizes": [stop - start for start, stop in rows.places],
                "rows": rows.shape[0], "stages": 1 + (new or any(request.job.keeps for request in requests)),
                "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "reads": rows.passes > passes,
                "workers": len(rows.client.scheduler_info()["workers"]),
            })  # fmt: skip
            return found

        ClusterRows.answers = answers  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        ClusterRows.answers = self.before  # type: ignore[method-assign]


def name_of(request: Any) -> str:
    """The class of a job; with a star where it makes margins, and with the word fold where not all rows count."""
    new = any(one.rows is None for one in blocks.products_of(request.margins))
    fold = isinstance(request.given.get("a"), blocks.Even) and request.given["a"].view is not None
    return type(request.job).__name__ + (" of a fold" if fold else "") + ("*" if new else "")


def per_row(N: int = 50_000) -> dict[str, float]:
    """CPU seconds of every kind of job for a row, in this process."""
    blocks.BLOCK_BYTES = 1 << 21
    seconds: dict[str, list[float]] = defaultdict(list)
    before = terms.RowBlocks.answers

    def answers(rows: Any, requests: Any) -> Any:
        found = []
        for request in requests:
            name, began = name_of(request), time.process_time()
            found += before(rows, [request])
            seconds[name].append((time.process_time() - began) / rows.shape[0])
        return found

    X, y = data(N)
    terms.RowBlocks.answers = answers  # type: ignore[method-assign]
    try:
        rows = terms.RowBlocks.of(X)
        for _ in range(3):
            searched(folds(rows, y))
        C, design = rows.rows_of(np.full(N, 1.0 / N)), problems.ElasticNetLogistic(rows, y)
        given = {"a": C, "y": design.y, "norms": np.ones(N)}
        for k in range(9):
            rows.run(Gram(np.arange(D)), C=C, norms=C)
            rows.run(At(terms.LOGISTIC, 1e-12, 0.0), [rows.margins(np.full(D, 1e-3 * (k + 1)))], **given)
    finally:
        terms.RowBlocks.answers = before  # type: ignore[method-assign]
    return {name: float(np.median(values)) for name, values in seconds.items()}


def started(workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, memory_limit=None, dashboard_address=":0"
    )


def of_workers(client: Any) -> float:
    """CPU seconds of all workers so far."""
    return sum(client.run(time.process_time).values())


def timed(rows: ClusterRows, job: Any, names: dict[str, Any], repeats: int = 8) -> dict[str, Any]:
    """CPU seconds of all processes, the mean of some repeats."""
    before = of_workers(rows.client)
    with Asked() as asked:
        for k in range(repeats):
            margins = [rows.margins(np.full(rows.shape[1], 1e-3 * (k + 1)))] if isinstance(job, At) else []
            rows.run(job, margins, **names)
    there = (of_workers(rows.client) - before) / repeats
    here = sum(one["cpu"] for one in asked.jobs) / repeats
    return {**asked.jobs[0], "cpu": here, "seconds": here + there}


def cases(workers: int) -> list[dict[str, Any]]:
    """Point and Gram matrix for few rows in many pieces, and for many rows in few."""
    made = []
    usual = blocks.BLOCK_BYTES, cluster.HELD_BYTES
    with started(workers) as running, Client(running) as client:
        for N, pieces in ((512, 8), (2048, 32), (8192, 128), (100_000, 0), (200_000, 0), (400_000, 0)):
            if pieces:
                blocks.BLOCK_BYTES = cluster.HELD_BYTES = 8 * D * (N // pieces)
            else:
                blocks.BLOCK_BYTES, cluster.HELD_BYTES = 1 << 21, usual[1]
            X, y = data(N)
            problem = problems.ElasticNetLogistic(da.from_array(X, chunks=(max(N // 4, 1), -1)), y)
            rows, design = problem.design.X, problem.design
            wait(list(rows._pieces))
            given = {"a": design.weights, "y": problem.y, "norms": design.row_norms}
            C = rows.rows_of(np.full(N, 1.0 / N))
            for job, names in ((At(terms.LOGISTIC, 1e-12, 0.0), given), (Gram(np.arange(D)), {"C": C, "norms": C})):
                case = timed(rows, job, names)
                made.append({**case, "fitted": bool(pieces), "what": "a job"})
        blocks.BLOCK_BYTES, cluster.HELD_BYTES = 1 << 21, usual[1]
        for N in (50_000, 100_000):
            X, y = data(N)
            problem = folds(da.from_array(X, chunks=(N // 4, -1)), y)
            problem.evaluate(THETA, within=1.0)
            before = of_workers(client)
            with Asked() as asked:
                searched(problem)
            seconds = of_workers(client) - before + sum(job["cpu"] for job in asked.jobs)
            made.append({
                "what": "a search", "jobs": asked.jobs, "rows": N, "workers": workers, "fitted": False,
                "seconds": seconds, "requests": {}, "pieces": 0, "cpu": 0.0,
            })  # fmt: skip
    blocks.BLOCK_BYTES, cluster.HELD_BYTES = usual
    return made


def fitted(known: list[dict[str, Any]], rows: dict[str, float]) -> dict[str, float]:
    """Constants with the least squared relative errors."""
    from scipy.optimize import least_squares

    def constants(logs: Any) -> dict[str, float]:
        return {**rows, **dict(zip(FITTED, np.exp(logs), strict=True))}

    def errors(logs: Any) -> Any:
        return [np.log(cost(case, constants(logs)) / case["seconds"]) for case in known]

    found = least_squares(errors, np.log([3e-3, 1e-3]))
    return constants(found.x)


def plan() -> dict[str, Any]:
    with started(1) as running, Client(running) as client:
        rows = client.submit(per_row).result()
    measured = [case for workers in (1, 2) for case in cases(workers)]
    few, many = (min(case["cpu"] for case in measured if case["pieces"] == pieces) for pieces in (32, 128))
    c = fitted([case for case in measured if case["fitted"]], {**rows, "head": (many - few) / (128 - 32)})
    for case in measured:
        jobs = case.get("jobs")
        case["simulated"] = cost(case, c) if jobs is None else sum(cost(job, c) for job in jobs)
    largest = max((case for case in measured if "jobs" in case), key=lambda case: case["rows"])
    course = [{key: job[key] for key in ("requests", "stages", "reads")} for job in largest["jobs"]]
    for case in measured:
        if "jobs" in case:
            case["jobs"] = len(case["jobs"])
        case.pop("sizes", None)
    return {"constants": c, "cases": measured, "plan": planned(c, course), "evaluations": 3}


def planned(c: dict[str, float], course: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """10^9 rows of D columns on workers with a core of their own each, a scheduler with one, X held (400 GB) or read at
    200 MB/s by every worker at each pass. The course of a search is that of the small case: for a given accuracy
    Newton's method takes no more steps for more rows."""
    N, made = 10**9, []
    block = blocks.block_rows((N, D))
    for workers in (64, 256):
        for held in (True, False):
            size = cluster.HELD_BYTES if held else cluster.PIECE_BYTES
            piece = block * cluster.blocks_of_piece((N, D), block, workers, size)
            pieces = -(-N // piece)
            read = 0.0 if held else 8.0 * D / 2e8
            seconds = {"compute": 0.0, "reading": 0.0, "all": 0.0}
            down = up = moved = 0.0
            for job in course:
                of_rows = sum(c[name] * count for name, count in job["requests"].items())
                reading = read if job["reads"] else 0.0
                task = piece * (of_rows + reading)
                seconds["all"] += simulated([task] * pieces, workers, job["stages"], c, 1e9)
                seconds["compute"] += N * of_rows / workers
                seconds["reading"] += N * reading / workers
                count = sum(job["requests"].values())
                matrices = sum(k for name, k in job["requests"].items() if name.startswith(("Gram", "Survey")))
                down += pieces * 8.0 * D * count
                up += pieces * 8.0 * (D + 5) * (count - matrices)
                moved += (pieces - 1) * 8.0 * D * D * matrices  # between workers, in a tree
            each = 1.0 / 3.0  # of three evaluations
            overhead = 1.0 - (seconds["compute"] + seconds["reading"]) / seconds["all"]
            made.append({
                "workers": workers, "X": "held" if held else "read", "pieces": pieces,
                "jobs of an evaluation": len(course) * each,
                "passes over X": sum(job["reads"] for job in course) * each,
                "MB from the client": down * each / 1e6, "MB to the client": up * each / 1e6,
                "MB between workers": moved * each / 1e6,
                "seconds of computing": seconds["compute"] * each, "seconds of reading": seconds["reading"] * each,
                "seconds of an evaluation": seconds["all"] * each, "share of overhead": overhead,
                "minutes of a search of 20": 20 * seconds["all"] * each / 60.0,
            })  # fmt: skip
    return made


def text(found: dict[str, Any]) -> list[str]:
    rows = [_case(case) for case in found["cases"]]
    worst = max(abs(case["simulated"] / case["seconds"] - 1.0) for case in found["cases"] if not case["fitted"])
    c = found["constants"]
    overheads = ", ".join(f"{name} {c[name]:.3g}" + " s" for name in ("head", *FITTED))
    per_row = ", ".join(
        f"{name} {1e9 * value:.0f}" for name, value in sorted(c.items()) if name not in (*FITTED, "head")
    )
    header = ["10^9 rows, 50 columns", *(f"{case['workers']} workers, X {case['X']}" for case in found["plan"])]
    keys = [key for key in found["plan"][0] if key not in ("workers", "X")]
    return [
        "## A plan for 10^9 rows",
        "CPU time of all processes, the mean of eight repeats for single jobs.",
        table(["", "measured", "simulated", "off by", "predicted"], rows),
        table(["", "measured", "target", ""], [target("largest error of a predicted case", worst, 0.2)]),
        f"Overheads: {overheads}. Nanoseconds per row (* with new margins): {per_row}.",
        table(header, [[key, *(_short(case[key]) for case in found["plan"])] for key in keys]),
    ]


def _case(case: dict[str, Any]) -> list[str]:
    what = (
        f"a search, {case['jobs']} jobs"
        if "jobs" in case
        else f"{', '.join(case['requests'])}, {case['pieces']} pieces"
    )
    off = 100.0 * (case["simulated"] / case["seconds"] - 1.0)
    times = [f"{1e3 * case[key]:.0f} ms" for key in ("seconds", "simulated")]
    name = f"{what}, {case['rows']:,} rows, {case['workers']} worker{'s' if case['workers'] > 1 else ''}"
    return [name, *times, f"{off:+.0f} %", "" if case["fitted"] else "yes"]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}"
