"""Rows on a cluster: the same bits, more rows than memory, few passes, and what 10^9 rows would take.

    bits      elastic-net logistic regression, two folds as views of rows, a search of six evaluations: RowBlocks in one
              process, then 1, 2 and 4 worker processes with chunks of 1,000, 7,777 and all rows, and one run in which a
              worker is killed after the third evaluation. A digest of the whole history is compared.
    memory    X of 0.56 GB in a file, two workers that may have 500 MB each, of which Python and its libraries take 190:
              a search to its end, its rows read again at every pass. The workers' peak memory is told. (With 400 MB
              each so little is left that Dask pauses workers and moves data to the disk, and a pass takes three times
              as long.)
    disk      X of 3.2 GB in a file and one process that may have 1 GB of memory, with what the system keeps of the
              file (a cgroup): a search to its end. How much was read from the disk is told. Needs root, and is not
              among the sections that are made by default.
    searches  how often X is read by whole searches of SufficeSearchCV with their defaults, 200,000 x 18 rows of two
              workers, logistic regression and squares over l1 and l2, five folds: 80 times at most are wanted.
    passes    how often X is read until the answer has an accuracy, as `suffice.certify` proves it, for suffice,
              dask-glm's (dask-ml's) ADMM and proximal gradient, and SGDClassifier.partial_fit, which are given the same
              ridge logistic regression. dask-glm's elastic net has a proximal operator that does nothing, hence no l1.
    growth    rows from 10^4 to 10^7 in a file of float32, one process: seconds and peak memory of one certified solve.

All data are synthetic. Needs the extra dask; dask-glm where it is installed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from common import parser, provenance, table, target, write_json, write_text
from distributed import Client, LocalCluster

import suffice
from suffice import BilevelProblem, Options, Space, losses, problems, terms, tune
from suffice.rows import blocks
from suffice.rows.dask import rows_of

SPACE = Space(l1=(1e-6, 1.0), l2=(1e-6, 1.0))


def data(N: int, d: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, d))
    return X, X @ rng.standard_normal(d) / np.sqrt(d) + rng.logistic(size=N) > 0.0


def from_file(path: Path, chunks: int) -> Any:
    """Rows of a file of numpy.save, which every worker opens itself."""
    N, d = np.load(path, mmap_mode="r").shape
    sizes = tuple(min(chunks, N - start) for start in range(0, N, chunks))

    def load(block_info: Any = None) -> Any:
        (start, stop), _ = block_info[None]["array-location"]
        return np.array(np.load(path, mmap_mode="r")[start:stop])

    dtype = np.load(path, mmap_mode="r").dtype
    return da.map_blocks(load, chunks=(sizes, (d,)), dtype=dtype, meta=np.zeros((0, 0), dtype))


def search(X: Any, y: Any, evaluations: int, callback: Any = None, **how: Any) -> tuple[Any, Any]:
    parts = terms.row_folds(X, 2)
    problem = BilevelProblem(
        [problems.ElasticNetLogistic(train, y) for train, _ in parts],
        [losses.LogLoss(held, y) for _, held in parts],
        space=SPACE,
    )
    start = {"l1": 1e-3, "l2": 1e-3}
    options = Options(max_evaluations=evaluations, **how)
    return tune(problem, start, options=options, callback=callback), parts[0][0].X


def cluster(workers: int, memory: Any = None) -> LocalCluster:
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, memory_limit=memory, dashboard_address=":0"
    )


def digest(result: Any) -> str:
    return blake2b(repr(result.history).encode(), digest_size=8).hexdigest()


# The same bits


def bits(N: int = 20_000, d: int = 20, evaluations: int = 6) -> dict[str, Any]:
    X, y = data(N, d)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        np.save(path, X)
        began = time.perf_counter()
        here, _ = search(terms.RowBlocks.of(path, block=1_000), y, evaluations)
        rows.append(["RowBlocks, one process", "-", digest(here), time.perf_counter() - began])
        blocks.BLOCK_BYTES = 1_000 * 8 * d
        for workers in (1, 2, 4):
            with cluster(workers) as running, Client(running) as client:
                for chunks in (1_000, 7_777, N):
                    began = time.perf_counter()
                    there, _ = search(from_file(path, chunks), y, evaluations)
                    rows.append([f"{workers} workers", chunks, digest(there), time.perf_counter() - began])
                if workers == 2:
                    victims = list(client.run(os.getpid).values())

                    def kill(record: Any, victims: Any = victims) -> None:
                        if record.number == 3:
                            os.kill(victims[0], signal.SIGKILL)

                    began = time.perf_counter()
                    there, _ = search(from_file(path, 7_777), y, evaluations, kill)
                    rows.append(["2 workers, one killed", 7_777, digest(there), time.perf_counter() - began])
    return {"rows": rows, "same": len({row[2] for row in rows}) == 1, "params": here.params}


# More rows than memory


def written(path: Path, N: int, d: int, dtype: Any = np.float64) -> Any:
    """Rows in a file of numpy.save, and their labels."""
    file = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(N, d))
    rng = np.random.default_rng(0)
    w, y = rng.standard_normal(d) / np.sqrt(d), np.empty(N, dtype=bool)
    for start in range(0, N, 100_000):
        part = rng.standard_normal((min(100_000, N - start), d), dtype=np.float32).astype(dtype, copy=False)
        file[start : start + len(part)] = part
        y[start : start + len(part)] = part @ w + rng.logistic(size=len(part)) > 0.0
    file.flush()
    return y


def peak_memory() -> int:
    """Bytes. What getrusage tells of a process includes its parent's, before it became its own."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines["VmHWM"].split()[0])


def memory(N: int = 700_000, d: int = 100, limit: str = "500MB") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        y = written(path, N, d)
        blocks.BLOCK_BYTES = 1 << 23
        with cluster(2, limit) as running, Client(running) as client:
            before, empty = set(client.run(os.getpid).values()), max(client.run(peak_memory).values())
            began = time.perf_counter()
            found, rows = search(from_file(path, 25_000), y, 40, final_radius=0.1, enough=1e-3 * N)
            seconds = time.perf_counter() - began
            peak = max(client.run(peak_memory).values())
            restarted = len(set(client.run(os.getpid).values()) - before)
    return {
        "bytes of X": 8 * N * d, "limit of each of two workers": limit, "X is held": rows.held,
        "bytes of a worker without rows": empty, "peak bytes of a worker": peak,
        "workers that were restarted": restarted,
        "evaluations": found.evaluations, "status": found.status.name, "passes": rows.passes, "seconds": seconds,
        "interval": list(found.interval),
    }  # fmt: skip


def disk(N: int = 8_000_000, d: int = 50, limit: int = 1 << 30) -> dict[str, Any]:
    """A process of its own in a cgroup, which counts what the system keeps of the file as well: X is read again from
    the disk at every pass."""
    groups = Path("/sys/fs/cgroup/memory")
    if not groups.is_dir():
        raise SystemExit("the section disk needs root, and cgroups of version 1 for memory")
    group = groups / f"suffice-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        np.save(Path(folder) / "y.npy", written(path, N, d))
        with open(path, "rb") as file:  # what is kept of it belongs to this process
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        group.mkdir()
        try:
            (group / "memory.limit_in_bytes").write_text(str(limit))
            code = f"import cluster_rows; cluster_rows.limited({folder!r}, {str(group / 'tasks')!r})"
            made = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            most = int((group / "memory.max_usage_in_bytes").read_text())
        finally:
            group.rmdir()
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return {"bytes of X": 8 * N * d, "limit": limit, "most memory at a time, file included": most, **found}


def limited(folder: str, tasks: str) -> None:
    """A search, in the cgroup of these tasks."""
    Path(tasks).write_text(str(os.getpid()))
    y = np.load(Path(folder) / "y.npy")
    began, cpu = time.perf_counter(), time.process_time()
    found, _ = search(terms.RowBlocks.of(Path(folder) / "X.npy"), y, 40, final_radius=0.1, enough=1e-4 * len(y))
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    print(json.dumps({
        "evaluations": found.evaluations, "status": found.status.name,
        "bytes read from the disk": int(io["read_bytes"]),
        "seconds": time.perf_counter() - began, "CPU seconds": time.process_time() - cpu,
        "interval": list(found.interval),
    }))  # fmt: skip


# Passes


def searches(N: int = 200_000, d: int = 18) -> list[list[Any]]:
    from sklearn.linear_model import ElasticNet, LogisticRegression
    from sklearn.model_selection import KFold

    from suffice.sklearn import SufficeSearchCV

    rng, rows = np.random.default_rng(0), []
    X, w = rng.standard_normal((N, d)), rng.choice([-1.0, 1.0], d) / np.sqrt(d)
    logistic = LogisticRegression(penalty="elasticnet", solver="saga", l1_ratio=0.5)
    labels = X @ w + rng.logistic(size=N) > 0.0
    with cluster(2) as running, Client(running):
        for name, model, y in (
            ("logistic", logistic, labels.astype(int)),
            ("squares", ElasticNet(), X @ w + rng.standard_normal(N)),
        ):
            there = rows_of(da.from_array(X, chunks=(N // 8, d)))
            before, began = there.passes, time.perf_counter()
            found = SufficeSearchCV(model, cv=KFold(5)).fit(there, y)
            seconds = time.perf_counter() - began
            rows.append([name, len(found.cv_results_["params"]), there.passes - before, seconds])
    return rows


def passes(N: int = 100_000, d: int = 30, l2: float = 1e-4) -> list[list[Any]]:
    from sklearn.linear_model import SGDClassifier

    X, y = data(N, d)
    X *= np.geomspace(0.1, 3.0, d)  # columns of different units, as most tables have
    problem = problems.ElasticNetLogistic(X, y).at(l1=0.0, l2=l2)
    exact = suffice.solve(problem, within=1e-10).x
    size = float(np.linalg.norm(exact))
    rows: list[list[Any]] = []

    def tell(name: str, reads: float, inner: float, x: Any) -> None:
        proof = suffice.certify(problem, np.asarray(x, dtype=float))
        rows.append([name, reads, inner, proof.radius / size, float(np.linalg.norm(x - exact)) / size])

    for accuracy in (1e-1, 1e-3, 1e-6):
        reads = [0.0]

        def read(start: int, stop: int, reads: list[float] = reads) -> Any:
            reads[0] += (stop - start) / N
            return X[start:stop]

        in_blocks = problems.ElasticNetLogistic(terms.RowBlocks(read, X.shape), y)
        before = reads[0]
        solution = suffice.solve(in_blocks.at(l1=0.0, l2=l2), within=accuracy * size, solver="auto")
        tell(f"suffice, asked for {accuracy:g} (and {before:.0f} to look at X)", reads[0] - before, 0, solution.x)
    sgd, order = SGDClassifier(loss="log_loss", penalty="l2", alpha=l2, fit_intercept=False, random_state=0), None
    for epoch in range(1, 101):
        for start in range(0, N, 10_000):
            order = slice(start, start + 10_000)
            sgd.partial_fit(X[order], y[order], classes=[False, True])
        if epoch in (1, 10, 100):
            tell(f"SGDClassifier.partial_fit, {epoch} epochs", epoch, 0, sgd.coef_[0])
    if find_spec("dask_glm") is not None:
        rows += _glm(X, y, l2, tell, rows)
    return rows


def _glm(X: Any, y: Any, l2: float, tell: Any, rows: Any) -> list[list[Any]]:
    from dask_glm import algorithms, families

    N, d = X.shape
    counts = {"reads": 0.0, "inner": 0.0}

    def load(block_info: Any = None) -> Any:
        (start, stop), _ = block_info[None]["array-location"]
        counts["reads"] += (stop - start) / N
        return X[start:stop]

    class Counted(families.Logistic):
        @staticmethod
        def pointwise_loss(beta: Any, X: Any, y: Any) -> Any:
            counts["inner"] += len(X) / N
            return families.Logistic.pointwise_loss(beta, X, y)

    chunk = N // 4
    with dask.config.set(scheduler="sync"):
        for name, method, steps in (
            ("ADMM", algorithms.admm, (5, 50)),
            ("proximal gradient", algorithms.proximal_grad, (10, 100)),
        ):
            for most in steps:
                counts.update(reads=0.0, inner=0.0)
                lazy = da.map_blocks(load, chunks=((chunk,) * 4, (d,)), dtype=float, meta=np.zeros((0, 0)))
                how = {"abstol": 0.0, "reltol": 0.0} if name == "ADMM" else {"tol": 0.0}
                x = method(
                    lazy, da.from_array(y.astype(float), chunks=chunk), regularizer="l2", lamduh=N * l2,
                    family=Counted, max_iter=most, normalize=False, **how,
                )  # fmt: skip
                tell(f"dask-glm {name}, {most} iterations", counts["reads"], counts["inner"], np.asarray(x).ravel())
    return []


# Growth


def growth(sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000), d: int = 20) -> dict[str, Any]:
    rows = []
    blocks.BLOCK_BYTES = 1 << 23
    with tempfile.TemporaryDirectory() as folder:
        for N in sizes:
            path = Path(folder) / "X.npy"
            file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(N, d))
            rng = np.random.default_rng(0)
            w, y = rng.standard_normal(d) / 4, np.empty(N, dtype=bool)
            for start in range(0, N, 100_000):
                part = rng.standard_normal((min(100_000, N - start), d), dtype=np.float32)
                file[start : start + len(part)] = part
                y[start : start + len(part)] = part @ w + rng.logistic(size=len(part)) > 0.0
            file.flush()
            del file
            tracemalloc.start()
            began = time.process_time()
            problem = problems.ElasticNetLogistic(terms.RowBlocks.of(path), y)
            solution = suffice.solve(problem.at(l1=1e-4, l2=1e-4), within=1e-6, solver="auto")
            seconds, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            rows.append([N, seconds, peak, peak / N, solution.steps, solution.certificate.radius])
    logs = np.log(np.array([[row[0], row[1], row[2]] for row in rows]))
    exponents = [float(np.polyfit(logs[-3:, 0], logs[-3:, k], 1)[0]) for k in (1, 2)]
    return {"rows": rows, "exponent of seconds": exponents[0], "exponent of memory": exponents[1]}


def text(found: dict[str, Any]) -> str:
    commits = ", ".join(f"{name} {commit}" for name, commit in found.get("commits", {}).items())
    parts = ["# Rows on a cluster", f"Commits of the sections: {commits}."]
    if "bits" in found:
        rows = [[row[0], row[1], row[2], f"{row[3]:.1f} s"] for row in found["bits"]["rows"]]
        parts += ["## The same bits", table(["", "chunks", "digest of the history", "wall"], rows)]
        parts.append(table(["", "measured", "target", ""], [target("different digests", float(
            len({row[2] for row in found["bits"]["rows"]})), 1.0, digits=0)]))  # fmt: skip
    for name, title in (("memory", "More rows than workers have memory"), ("disk", "More rows than memory")):
        if name in found:
            parts += [f"## {title}", table(["", ""], [[k, _short(v)] for k, v in found[name].items()])]
    if "searches" in found:
        rows = [[name, n, passes, f"{s:.1f} s"] for name, n, passes, s in found["searches"]]
        parts += ["## Whole searches", table(["", "evaluations", "X is read", "wall"], rows)]
        most = float(max(row[2] for row in found["searches"]))
        parts.append(table(["", "measured", "target", ""], [target("X is read", most, 80.0, digits=0)]))
    if "passes" in found:
        rows = [[n, f"{r:.0f}", f"{i:.0f}" if i else "", f"{p:.1e}", f"{e:.1e}"] for n, r, i, p, e in found["passes"]]
        header = ["", "X is read", "inner passes", "proven distance", "distance"]
        parts += ["## Passes", "Distances are relative to the norm of the exact weights.", table(header, rows)]
    if "growth" in found:
        g = found["growth"]
        rows = [
            [f"{n:,}", f"{s:.2f} s", f"{m / 1e6:.1f} MB", f"{b:.0f}", k, f"{r:.0e}"] for n, s, m, b, k, r in g["rows"]
        ]
        parts += ["## Growth", table(["rows", "CPU", "peak memory", "bytes per row", "steps", "radius"], rows)]
        parts.append(
            f"Exponents over the last three sizes: time {g['exponent of seconds']:.2f}, memory "
            f"{g['exponent of memory']:.2f}."
        )
    return "\n\n".join(parts) + "\n"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(f'{end:.6g}' for end in value)}]"
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


SECTIONS = {"bits": bits, "memory": memory, "disk": disk, "searches": searches, "passes": passes, "growth": growth}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--only", nargs="*", choices=list(SECTIONS), default=[one for one in SECTIONS if one != "disk"]
    )
    options = arguments.parse_args()
    path = options.out / "cluster_rows.json"
    found = json.loads(path.read_text()) if path.exists() and len(options.only) < len(SECTIONS) - 1 else {}
    found["provenance"] = provenance("dask", "distributed", "dask-glm")
    for name in options.only:
        found[name] = SECTIONS[name]()
        found.setdefault("commits", {})[name] = found["provenance"]["commit"]
        write_json(path, found)
        print(text(found))
    write_text(options.out / "cluster_rows.md", text(found))


if __name__ == "__main__":
    main()
