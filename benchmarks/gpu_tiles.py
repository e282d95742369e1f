"""Tiles of the fused kernels (`suffice.cuda.fused`): which are fastest on this device?

Kernels and whole iterations are timed as parts of a recorded graph, for the two sizes of `benchmarks/gpu.py` and random
data: 5,000 x 784 with 42 columns and 60,000 x 784 with 70. A tile of a product is (rows, depth of one read, warps,
stages, registers). Products alone are timed first, with every tile and number of parts; then whole iterations with the
fastest of them, and with other tiles of the kernels without a product. Kernels are compiled by several processes at a
time before anything is timed.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.cuda import fused
from suffice.cuda.batched_columns import FistaColumns
from suffice.models.margin_losses import Logistic
from suffice.rows.design import Design

PARTS, WAVES = (2, 3, 4, 5), (1, 2, 3, 4)
SMALL = [
    *((64, 32, 4, 3, 168), (64, 32, 4, 4, None), (64, 16, 4, 4, None), (64, 16, 4, 6, None), (128, 32, 8, 3, None)),
    *((32, 32, 2, 3, None), (32, 32, 2, 4, None), (32, 16, 2, 5, None)),
]
LARGE = [
    *((32, 32, 2, 3, None), (64, 32, 4, 3, 168), (64, 32, 4, 4, None), (64, 16, 4, 4, 168), (64, 16, 4, 6, 168)),
    *((128, 16, 8, 4, 128), (128, 16, 8, 4, None), (128, 16, 4, 4, None), (64, 16, 2, 4, None), (32, 16, 2, 4, 168)),
]
ALONE = {
    "GATHERED": [(128, 4), (256, 4), (256, 8), (512, 4)],
    "DESCEND": [(1, 2), (2, 4), (4, 4), (4, 8)],
    "ROWWISE": [(8, 4), (16, 4), (32, 4), (32, 8)],
    "HOPPER": [9, 99],  # 99: no kernel is sent out early
}
BEST = 2  # of each product, in whole iterations


@contextmanager
def settings(**values: Any) -> Iterator[None]:
    before = {name: getattr(fused, name) for name in values}
    for name, value in values.items():
        setattr(fused, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(fused, name, value)


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


@dataclass(frozen=True)
class Study:
    """Random data of one size."""

    torch: Any
    design: Design
    Y: Any
    l1: Any
    l2: Any
    L: Any

    @classmethod
    def of(cls, torch: Any, N: int, d: int, n: int) -> Study:
        rng = np.random.default_rng(0)
        design = Design.of(torch.asarray(rng.integers(0, 256, (N, d)).astype(np.float64), device="cuda"))
        Y = torch.asarray(np.sign(rng.standard_normal((N, n))), device="cuda")
        l1, l2 = (torch.full((n,), value, dtype=torch.float64, device="cuda") for value in (10.0, 1.0))
        return cls(torch, design, Y, l1, l2, torch.full((n,), 4e7, dtype=torch.float64, device="cuda"))

    def kernels(self) -> fused.Kernels:
        return fused.Kernels.of(self.design, Logistic(), self.Y, self.l1, self.l2)

    def margins(self) -> Callable[[], object]:
        kernels = self.kernels()
        Z = self.torch.zeros_like(kernels.empty())
        return lambda: kernels.residuals(Z)

    def adjoint(self) -> Callable[[], object]:
        return self.kernels().adjoint

    def descend(self) -> Callable[[], object]:
        kernels = self.kernels()
        Z = self.torch.zeros_like(kernels.empty())
        return lambda: kernels.descended(Z, 1.0 / self.L, Z)

    def fista(self) -> Callable[[], object]:
        """Every call goes on from where the last one has ended."""
        step = fused.iteration(self.design, Logistic(), self.Y, self.l1, self.l2, self.l2, self.L)
        s = self.state()
        at = [(s.W, s.W_before, s.t, s.k)]

        def run() -> None:
            W, before, t, k = at.pop()
            W_next, _, _, t_next, k_next = step(W, before, t, k)
            at.append((W_next, W, t_next, k_next))

        return run

    def adaptive(self) -> Callable[[], object]:
        given = (self.design, Logistic(), self.Y, self.l1, self.l2, self.l2, self.L)
        step, s = fused.adaptive_iteration(*given, 1.08, 0.5), self.state()
        return lambda: step(s)

    def state(self) -> FistaColumns:
        torch, (_, d), n = self.torch, self.design.shape, self.Y.shape[1]
        rng = np.random.default_rng(1)
        W, before = (torch.asarray(1e-4 * rng.standard_normal((d, n)), device="cuda") for _ in range(2))
        ones = torch.ones(n, dtype=torch.float64, device="cuda")
        short, M, M_before = 0.1 / self.L, *((one.T @ self.design.X.T).contiguous().T for one in (W, before))
        return FistaColumns(
            *(W, before, M, M_before, W, self.Y[:0], W, 1.5 * ones, 3.0 * ones, short, short),
            torch.zeros(n, dtype=torch.bool, device="cuda"),
        )


Choice = tuple[str, dict[str, Any], Callable[[], Callable[[], object]]]


def products(study: Study, large: bool) -> dict[str, list[Choice]]:
    """(label, settings, what is timed) of both products, with every tile."""
    N = study.design.shape[0]
    multiprocessors = study.torch.cuda.get_device_properties(0).multi_processor_count
    margins: list[Choice] = []
    adjoints: list[Choice] = []
    for tile in LARGE if large else SMALL:
        if large:
            margins.append((str(tile), {"MARGINS": tile}, study.margins))
        for parts in () if large else PARTS:
            busy = parts * -(-N // tile[0]) / multiprocessors
            margins.append((f"{tile} in {parts} parts", {"MARGINS": tile, "BUSY": busy}, study.margins))
        for waves in (2,) if large else WAVES:
            adjoints.append((f"{tile} in {waves} waves", {"ADJOINT": tile, "WAVES": waves}, study.adjoint))
    return {"residuals": margins, "adjoint": adjoints}


def timed(study: Study, large: bool) -> None:
    torch, (N, d), n = study.torch, study.design.shape, study.Y.shape[1]
    bytes_, operations = 8.0 * (2 * N * d + 3 * N * n), 4.0 * N * d * n
    limits = f"{1e6 * bytes_ / 4.16e12:.0f} us of bytes, {1e6 * operations / 61.1e12:.0f} of operations"
    print(f"\n{N} x {d}, {n} columns: {limits}", flush=True)
    best: dict[str, list[tuple[float, str, dict[str, Any]]]] = {}
    for name, choices in products(study, large).items():
        found = []
        for label, chosen, what in choices:
            with settings(**chosen):
                found.append((microseconds(torch, what()), label, chosen))
        found.sort(key=lambda one: one[0])
        print(f"  {name}: " + "; ".join(f"{label} {time:.1f}" for time, label, _ in found[:12]), flush=True)
        best[name] = found

    def whole(label: str, **chosen: Any) -> None:
        with settings(**chosen):
            times = [microseconds(torch, what()) for what in (study.descend, study.fista, study.adaptive)]
        names = ("adjoint and descend", "fista", "fista_adaptive")
        shown = ", ".join(f"{name} {time:.1f}" for name, time in zip(names, times, strict=True))
        print(f"  {label}: {shown}", flush=True)

    whole("as it is")
    whole("both copies of X", CACHED=0)
    for name, values in ALONE.items():
        for value in values:
            whole(f"{name} = {value}", **{name: value})
    for (_, one, first), (_, other, second) in itertools.product(*(found[:BEST] for found in best.values())):
        whole(f"{one} and {other}", **(first | second))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=["small", "large"])
    arguments.add_argument("--processes", type=int, default=12, help="that compile kernels (%(default)s)")
    arguments.add_argument("--compile", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    torch = importlib.import_module("torch")
    sizes = [("small", 5_000, 42), ("large", 60_000, 70)]
    studies = [(Study.of(torch, N, 784, n), name == "large") for name, N, n in sizes if options.only in (None, name)]
    if options.compile is not None:
        every = [one for study, large in studies for choices in products(study, large).values() for one in choices]
        for _, chosen, what in every[options.compile :: options.processes]:
            with settings(**chosen):
                microseconds(torch, what(), 1)
        return
    print(torch.cuda.get_device_name(), torch.__version__)
    parts = [subprocess.Popen([sys.executable, *sys.argv, "--compile", str(k)]) for k in range(options.processes)]
    for part in parts:
        part.wait()
    for study, large in studies:
        timed(study, large)


if __name__ == "__main__":
    main()
