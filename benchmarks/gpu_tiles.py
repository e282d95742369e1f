"""Tiles of the fused kernels (`suffice.lower.fused`): which are fastest on this device?

Kernels and whole iterations are timed as parts of a recorded graph, for the two sizes of `benchmarks/gpu.py` and random
data: 5,000 x 784 with 42 columns and 60,000 x 784 with 70. A tile of a product is (rows, depth of one read, warps,
stages), one without a product (rows, warps).
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from suffice.lower import fused
from suffice.terms.design import Design
from suffice.terms.margin_losses import Logistic

PRODUCTS = [(32, 32, 2, 3), (32, 32, 2, 4), (16, 32, 1, 4), (16, 32, 2, 4), (32, 32, 4, 3)]
BUSY = [0, 2, 3, 4, 5, 7]  # tiles of X Z on every multiprocessor: more of them are parts of the columns of X
ROWWISE = [(16, 4), (8, 4), (32, 4), (32, 8), (16, 8)]


def microseconds(torch: Any, run: Callable[[], object], launches: int = 10) -> float:
    """Of one call, in a recorded graph; infinite where it does not fit the device."""
    try:
        run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(launches):
                run()
    except Exception as error:
        return float("inf") if "resources" in str(error) or "shared memory" in str(error) else _raise(error)
    times = []
    for _ in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / launches)
    return min(times)


def _raise(error: Exception) -> float:
    raise error


def state(torch: Any, design: Design, Y: Any, L: Any) -> fused.Moving:
    d, n, rng = design.shape[1], Y.shape[1], np.random.default_rng(1)
    W, before = (torch.asarray(1e-4 * rng.standard_normal((d, n)), device="cuda") for _ in range(2))
    ones = torch.ones(n, dtype=torch.float64, device="cuda")
    return fused.Moving(
        *(W, before, design.X @ W, design.X @ before, W, W, 1.5 * ones, 3.0 * ones, 0.1 / L, 0.1 / L),
        torch.zeros(n, dtype=torch.bool, device="cuda"),
    )


def study(torch: Any, N: int, d: int, n: int) -> None:
    rng = np.random.default_rng(0)
    design = Design.of(torch.asarray(rng.integers(0, 256, (N, d)).astype(np.float64), device="cuda"))
    Y = torch.asarray(np.sign(rng.standard_normal((N, n))), device="cuda")
    l1, l2 = (torch.full((n,), value, dtype=torch.float64, device="cuda") for value in (10.0, 1.0))
    L = torch.full((n,), 0.25 * design.squared_norm + 1.0, dtype=torch.float64, device="cuda")
    bytes_, operations = 8.0 * (2 * N * d + 3 * N * n), 4.0 * N * d * n
    limits = f"{1e6 * bytes_ / 4.16e12:.0f} us of bytes, {1e6 * operations / 61.1e12:.0f} of operations"
    print(f"\n{N} x {d}, {n} columns: {limits}", flush=True)

    def timed(label: str) -> None:
        kernels = fused.Kernels.of(design, Logistic(), Y, l1, l2)
        s = state(torch, design, Y, L)
        simple = fused.iteration(design, Logistic(), Y, l1, l2, l2, L)
        adaptive = fused.adaptive_iteration(design, Logistic(), Y, l1, l2, l2, L, 1.08, 0.5)
        parts = {
            "residuals": kernels.residuals,
            "margins": lambda: kernels.margins(kernels.wide, kernels.in_parts),
            "adjoint and descend": lambda: kernels.descended(s.tau),
            "fista": lambda: simple(s.W, s.W_before, s.t),
            "fista_adaptive": lambda: adaptive(s),
        }
        found = {name: microseconds(torch, run) for name, run in parts.items()}
        many = f"{kernels.margin_parts} parts, " if kernels.margin_parts > 1 else ""
        print(f"  {label}: {many}" + ", ".join(f"{name} {time:.1f}" for name, time in found.items()), flush=True)

    def tried(name: str, values: list[Any]) -> None:
        before = getattr(fused, name)
        for one in values:
            setattr(fused, name, one)
            timed(f"{name} = {one}")
        setattr(fused, name, before)

    timed("as it is")
    if N < 10_000:
        tried("BUSY", BUSY)
        tried("MARGINS", PRODUCTS)
    tried("ROWWISE", ROWWISE)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=["small", "large"])
    options = arguments.parse_args()
    torch = importlib.import_module("torch")
    print(torch.cuda.get_device_name(), torch.__version__)
    if options.only != "large":
        study(torch, 5_000, 784, 42)
    if options.only != "small":
        study(torch, 60_000, 784, 70)


if __name__ == "__main__":
    main()
