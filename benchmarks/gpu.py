"""Batched FISTA on a CUDA device: all of MNIST, ten digits, the paper's seven starts. How near to the chip's limits?

60,000 x 784 raw pixels in float64, one column for every digit and every theta0 of the paper (l1 = 10, l2 = 10^-3 ..
10^3): 70 columns share every product with X. An iteration is timed by the difference of a long and a short run of
`solve_each`, so that moving data, recording graphs and final certificates do not count.

Limits are measured in the same process: the arithmetic one by a product of two 8192 x 8192 matrices in float64, the
one of memory by copying 2 GB. An iteration has 4 N d n operations in its two products, padding not counted; it has to
read X, in float64, twice, write R and read it again, and read Y. The larger of the two times is the limit. Pixels are
numbers of float32, in which the kernels hold them; the paper's study is timed a second time with 1.1 times its pixels,
which are not.

The CPU's times are those of the same call on two threads of the same machine's processor, X dense and X sparse.
Results are proven: certificates of the GPU's solutions are held against solutions of Newton's method on the CPU, and
iterates against the CPU's. --folder holds the idx files of MNIST (they do not come with the package).
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import parser, provenance, table, target, write_json, write_text
from suffice_paper.study import PRESETS
from threadpoolctl import threadpool_limits

from suffice import solve
from suffice.datasets import load_mnist, load_mnist_full
from suffice.problems import ElasticNetLogistic
from suffice.rows.design import Design
from suffice.solvers.many import solve_each
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Ask, Solution

L2 = [10.0**exponent for exponent in PRESETS["full"].starts]


def columns(X: Any, y: np.ndarray, digits: tuple[int, ...]) -> list[Composite]:
    design = Design.of(X)
    return [ElasticNetLogistic(design, y == digit).at(l1=10.0, l2=l2) for digit in digits for l2 in L2]


def batch(problems: list[Composite], solver: str, **asked: Any) -> list[Solution]:
    return solve_each([Ask(problem, **asked) for problem in problems], solver)


def seconds_per_iteration(problems: list[Composite], solver: str, steps: int, rounds: int) -> list[float]:
    """Of `steps` iterations, in several rounds, without what comes before and after them."""
    torch = importlib.import_module("torch")
    found = []
    batch(problems, solver, steps=steps)  # compiles kernels
    for _ in range(rounds):
        times = []
        for count in (steps, 3 * steps):
            torch.cuda.synchronize() if torch.cuda.is_available() else None
            began = time.perf_counter()
            batch(problems, solver, steps=count)
            torch.cuda.synchronize() if torch.cuda.is_available() else None
            times.append(time.perf_counter() - began)
        found.append((times[1] - times[0]) / (2 * steps))
    return sorted(found)


def limits(torch: Any) -> tuple[float, float]:
    """(operations, bytes) per second, measured."""

    def best(run: Any) -> float:
        run()
        times = []
        for _ in range(5):
            torch.cuda.synchronize()
            began = time.perf_counter()
            run()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        return min(times)

    A = torch.rand((8192, 8192), dtype=torch.float64, device="cuda")
    arithmetic = 2 * 8192**3 / best(lambda: A @ A)
    block = torch.rand(2**28, dtype=torch.float64, device="cuda")
    return arithmetic, 2 * 8 * 2**28 / best(lambda: block.clone())


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--folder", type=Path, required=True, help="where the idx files are")
    arguments.add_argument("--cpu-steps", type=int, default=4, help="of timings on the CPU; 0: none (%(default)s)")
    options = arguments.parse_args()
    torch = importlib.import_module("torch")
    full = load_mnist_full(options.folder)
    part = load_mnist()
    arithmetic, memory = limits(torch)
    print(f"limits: {arithmetic / 1e12:.1f} TFLOP/s, {memory / 1e12:.2f} TB/s", flush=True)
    six = PRESETS["full"].digits
    rows, records = [], []
    for name, X, y, digits in (
        ("all of MNIST, 70 columns", full.X_train, full.y_train, tuple(range(10))),
        ("the paper's study, 42 columns", part.X_train, part.y_train, six),
        ("the same times 1.1, 42 columns", 1.1 * np.asarray(part.X_train, dtype=np.float64), part.y_train, six),
    ):
        X = np.asarray(X, dtype=np.float64)
        on_gpu = columns(torch.asarray(X, device="cuda"), y, digits)
        N, d, n = *X.shape, len(on_gpu)
        operations, moved = 4.0 * N * d * n, 8.0 * (2 * N * d + 3 * N * n)
        limit = max(operations / arithmetic, moved / memory)
        for solver in ("fista", "fista_adaptive"):
            times = seconds_per_iteration(on_gpu, solver, 400 * max(1, 60_000 // N), 5)
            kinds = {"dense": X, "sparse": sp.csr_array(X)} if options.cpu_steps > 0 else {}
            with threadpool_limits(2):
                torch.set_num_threads(2)
                cpu = {
                    kind: min(seconds_per_iteration(columns(data, y, digits), solver, options.cpu_steps, 2))
                    for kind, data in kinds.items()
                }
            record = {
                "what": name,
                "solver": solver,
                "N, d, n": [N, d, n],
                "microseconds per iteration": [1e6 * one for one in times],
                "operations": operations,
                "bytes": moved,
                "limit, microseconds": 1e6 * limit,
                "fraction of the limit": limit / times[len(times) // 2],
                "CPU, two threads, milliseconds": {kind: 1e3 * value for kind, value in cpu.items()},
                "times faster than the CPU": min(cpu.values(), default=float("nan")) / times[len(times) // 2],
            }
            records.append(record)
            print(record, flush=True)
            rows.append(
                [
                    f"{name}, {solver}",
                    f"{1e6 * times[len(times) // 2]:.1f}",
                    f"{1e6 * times[0]:.1f} - {1e6 * times[-1]:.1f}",
                    f"{1e6 * operations / arithmetic:.1f}",
                    f"{1e6 * moved / memory:.1f}",
                    f"{100 * record['fraction of the limit']:.0f} %",
                    *(f"{1e3 * cpu[kind]:.0f}" for kind in cpu),
                    *([f"{record['times faster than the CPU']:.0f}"] if cpu else []),
                ]
            )
    checks = proofs(torch, part, six)
    made = {**provenance("torch", "triton"), "device": torch.cuda.get_device_name()}
    head = ["what", "us per iteration", "least and most", "arithmetic alone", "memory alone", "of the limit"]
    head += ["CPU dense, ms", "CPU sparse, ms", "times faster"] if options.cpu_steps > 0 else []
    targets = [
        target(
            "all of MNIST, fista: percent of the limit", 100 * records[0]["fraction of the limit"], 60, at_least=True
        ),
        target(
            "all of MNIST, fista_adaptive: percent of the limit",
            100 * records[1]["fraction of the limit"],
            50,
            at_least=True,
        ),
        target("the paper's study, fista: times the limit", 1.0 / records[2]["fraction of the limit"], 2.0),
        target("the same times 1.1, fista: times the limit", 1.0 / records[4]["fraction of the limit"], 2.0),
        target("GPU against CPU after 100 steps: largest difference", checks["apart"], 1e-9, digits=12),
        target("certificates that are wrong", checks["wrong"], 0, digits=0),
    ]
    text = (
        f"# Batched FISTA on a GPU\n\ncommit {made['commit']}, {made['device']}, torch {made['torch']}, "
        f"measured limits {arithmetic / 1e12:.1f} TFLOP/s (float64) and {memory / 1e12:.2f} TB/s\n\n"
        f"    python benchmarks/gpu.py --folder FOLDER --cpu-steps {options.cpu_steps}\n\n{table(head, rows)}\n\n"
        f"{table(['target', 'measured', 'wanted', ''], targets)}\n\n"
        f"{checks['checked']} certificates checked.\n"
    )
    print(text)
    write_text(options.out / "gpu.md", text)
    write_json(
        options.out / "gpu.json", {"provenance": made, "limits": [arithmetic, memory], "runs": records, **checks}
    )


def proofs(torch: Any, part: Any, digits: tuple[int, ...]) -> dict[str, Any]:
    """GPU iterates against the CPU's, and certificates against solutions that Newton's method proves to 1e-9 or so."""
    X = np.asarray(part.X_train, dtype=np.float64)
    on_gpu = columns(torch.asarray(X, device="cuda"), part.y_train, digits)
    on_cpu = columns(sp.csr_array(X), part.y_train, digits)
    together = batch(on_gpu, "fista", steps=100)
    apart = max(
        float(np.abs(one.x - solve(problem, steps=100, solver="fista").x).max())
        for one, problem in zip(together, on_cpu, strict=True)
    )
    wrong = checked = 0
    exact = [solve(problem, within=1e-10, solver="newton") for problem in on_cpu]
    for solver in ("fista", "fista_adaptive"):
        for solutions in (
            batch(on_gpu, solver, steps=300),
            batch(on_gpu, solver, within=1e-3, max_steps=3000.0),
        ):
            for one, truth in zip(solutions, exact, strict=True):
                checked += 1
                distance = float(np.linalg.norm(one.x - truth.x))
                wrong += distance > one.certificate.radius + truth.certificate.radius
    return {"apart": apart, "wrong": wrong, "checked": checked}


if __name__ == "__main__":
    main()
