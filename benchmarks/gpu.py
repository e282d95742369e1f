"""Many models that share X, on a CUDA device: which solver proves an accuracy first, and what does a step cost?

The paper's study, six digits of 5,000 images, and 60,000 x 717 simulated pixels with ten classes, for the paper's seven
l2 (10^-3 .. 10^3, l1 = 10): 42 and 70 columns share every product with X. `auto` is Newton's method for all columns at
a time, the default; `fista` and `fista_adaptive` solve those of the first digit, one after the other. A step is timed
by the difference of a long and a short run of the same call, so that moving data and final certificates do not count.
Certificates are held against solutions of Newton's method in main memory.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np
from common import parser, provenance, table, target, write_json, write_text
from suffice_paper.study import PRESETS

from suffice import solve
from suffice.datasets import load_mnist
from suffice.problems import ElasticNetLogistic
from suffice.rows.design import Design
from suffice.solvers.many import solve_each
from suffice.solvers.problem import Composite
from suffice.solvers.solution import Ask, Solution

L2 = [10.0**exponent for exponent in PRESETS["full"].starts]
WITHIN, STEPS, ROUNDS = 1e-4, 400, 3


def columns(X: Any, y: np.ndarray, digits: tuple[int, ...]) -> list[Composite]:
    design = Design.of(X)
    return [ElasticNetLogistic(design, y == digit).at(l1=10.0, l2=l2) for digit in digits for l2 in L2]


def timed(torch: Any, problems: list[Composite], solver: str, **asked: Any) -> tuple[float, list[Solution]]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    solutions = solve_each([Ask(problem, **asked) for problem in problems], solver)
    torch.cuda.synchronize()
    return time.perf_counter() - began, solutions


def main() -> None:
    options = parser(__doc__).parse_args()
    torch = importlib.import_module("torch")
    part, random = load_mnist(), np.random.default_rng(0)
    pixels = np.floor(256.0 * random.random((60_000, 717)) ** 6)
    images, six = np.asarray(part.X_train, dtype=np.float64), PRESETS["full"].digits
    cases = (
        ("the paper's study, 42 columns", images, part.y_train, six),
        ("60,000 x 717, 70 columns", pixels, random.integers(0, 10, len(pixels)), tuple(range(10))),
    )
    rows, records, wrong, checked = [], [], 0, 0
    for name, X, y, digits in cases:
        there = columns(torch.asarray(X, device="cuda"), y, digits)
        exact = [solve(one, within=1e-9) for one in columns(X, y, digits)] if len(X) < 10_000 else []
        for solver in ("auto", "fista_adaptive", "fista"):
            seconds, asked = [], there if solver == "auto" else there[: len(L2)]
            for _ in range(ROUNDS):
                spent, solutions = timed(torch, asked, solver, within=WITHIN, max_steps=20_000.0)
                seconds.append(spent)
            for one, truth in zip(solutions, exact, strict=False):
                checked += 1
                distance = float(np.linalg.norm(one.x - truth.x))
                wrong += distance > one.certificate.radius + truth.certificate.radius
            proven = sum(one.certificate.radius <= WITHIN for one in solutions)
            step = None
            if solver != "auto":
                runs = [[timed(torch, asked, solver, steps=n)[0] for n in (STEPS, 3 * STEPS)] for _ in range(ROUNDS)]
                steps = 2 * STEPS * len(asked)
                step = 1e6 * float(np.median([(long - short) / steps for short, long in runs]))
            records.append({"what": name, "solver": solver, "seconds": seconds, "proven": proven, "us a step": step})
            print(records[-1], flush=True)
            shown = "" if step is None else f"{step:.0f}"
            rows.append([f"{name}, {solver}", f"{np.median(seconds):.2f}", f"{proven} of {len(asked)}", shown])
    made = {**provenance("torch"), "device": torch.cuda.get_device_name()}
    targets = [target("certificates that are wrong", wrong, 0, digits=0)]
    text = (
        f"# Many models that share X, on a GPU\n\ncommit {made['commit']}, {made['device']}, torch {made['torch']}\n\n"
        f"    python benchmarks/gpu.py\n\n"
        f"{table(['what', f'seconds to within {WITHIN:g}', 'proven', 'us a step'], rows)}\n\n"
        f"{table(['target', 'measured', 'wanted', ''], targets)}\n\n"
        f"{checked} certificates checked.\n"
    )
    print(text)
    write_text(options.out / "gpu.md", text)
    write_json(options.out / "gpu.json", {"provenance": made, "runs": records, "wrong": wrong, "checked": checked})


if __name__ == "__main__":
    main()
