"""Tiles of the fused kernels (`suffice.lower.fused`): which are fastest on this device?

Every kernel of an iteration is timed alone, as part of a recorded graph, for the two sizes of `benchmarks/gpu.py` and
random data: the products of `fista` for 5,000 x 784 with 42 columns, what `fista_adaptive` has of its own for 60,000 x
784 with 70. A tile is (rows, depth of one read, warps, stages); `waves`: how many tiles of the adjoint product go to a
multiprocessor. Whole iterations are timed with the best ones and with those that the package has.
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

PRODUCTS = [
    *((16, 32, 1, 4), (16, 32, 2, 4), (16, 64, 2, 3), (16, 64, 4, 3), (16, 32, 4, 4), (32, 32, 2, 3)),
    *((32, 32, 4, 3), (32, 64, 4, 3), (32, 16, 4, 5), (32, 32, 2, 4)),
]
ADJOINT = [
    *((64, 32, 4, 4), (32, 32, 2, 4), (32, 32, 4, 4), (64, 64, 4, 3), (32, 64, 4, 3), (16, 64, 2, 4), (64, 16, 4, 5)),
]
ARRIVAL = [(32, 32, 2, 3), (32, 32, 4, 3), (64, 32, 4, 3), (64, 16, 4, 4), (32, 16, 2, 4), (64, 32, 8, 3)]
SLOPES = [(32, 4), (64, 4), (64, 8), (16, 4), (16, 8)]
WAVES = (1, 2, 4)


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
        *(W, before, design.X @ W, design.X @ before, W, W, 1.5 * ones, 3.0 * ones, 1.0 / L, 1.0 / L),
        torch.zeros(n, dtype=torch.bool, device="cuda"),
    )


def study(torch: Any, N: int, d: int, n: int, waves: tuple[int, ...], plain: bool) -> None:
    rng = np.random.default_rng(0)
    design = Design.of(torch.asarray(rng.integers(0, 256, (N, d)).astype(np.float64), device="cuda"))
    Y = torch.asarray(np.sign(rng.standard_normal((N, n))), device="cuda")
    l1, l2 = (torch.full((n,), value, dtype=torch.float64, device="cuda") for value in (10.0, 1.0))
    L = torch.full((n,), 0.25 * design.squared_norm + 1.0, dtype=torch.float64, device="cuda")
    given, psi = (l1, l2, l2, L), Logistic()
    bytes_, operations = 8.0 * (2 * N * d + 3 * N * n), 4.0 * N * d * n
    limits = f"{1e6 * bytes_ / 4.16e12:.0f} us of bytes, {1e6 * operations / 61.1e12:.0f} of operations"
    print(f"\n{N} x {d}, {n} columns: {limits}")
    best: dict[str, Any] = {}

    def tried(name: str, tiles: list[Any], run: Callable[[], Callable[[], object]], also: str = "") -> None:
        found = []
        for one in tiles:
            setattr(fused, name, one)
            found.append((microseconds(torch, run()), one))
        best[name] = min(found)[1]
        setattr(fused, name, best[name])
        print(f"  {name}{also}:", ", ".join(f"{one} {time:.1f}" for time, one in sorted(found)), flush=True)

    before = {name: getattr(fused, name) for name in ("MARGINS", "ADJOINT", "ARRIVAL", "SLOPES", "WAVES")}

    def whole(label: str) -> None:
        simple = fused.iteration(design, psi, Y, *given)
        s = state(torch, design, Y, L)
        adaptive = fused.adaptive_iteration(design, psi, Y, *given, 1.08, 0.5)
        times = microseconds(torch, lambda: simple(s.W, s.W_before, s.t)), microseconds(torch, lambda: adaptive(s))
        print(f"  whole iteration, {label}: fista {times[0]:.1f}, fista_adaptive {times[1]:.1f}", flush=True)

    whole("as it is")
    kernels = fused.Kernels.of(design, psi, Y, l1, l2)
    if plain:
        tried("MARGINS", PRODUCTS, lambda: kernels.residuals)
        for count in waves:
            fused.WAVES = count
            tried("ADJOINT", ADJOINT, lambda: _descent(design, psi, Y, l1, l2, L), f" and descend, {count} waves")
    else:
        tried("ARRIVAL", ARRIVAL, lambda: _step(torch, design, psi, Y, given, L), ", all of a step")
        tried("SLOPES", SLOPES, lambda: _step(torch, design, psi, Y, given, L), ", all of a step")
    for count in waves:
        fused.WAVES = count
        whole(f"best tiles, {count} waves")
    for name, value in before.items():
        setattr(fused, name, value)


def _descent(design: Design, psi: Any, Y: Any, l1: Any, l2: Any, L: Any) -> Callable[[], object]:
    kernels = fused.Kernels.of(design, psi, Y, l1, l2)
    return lambda: kernels.descended(1.0 / L)


def _step(torch: Any, design: Design, psi: Any, Y: Any, given: Any, L: Any) -> Callable[[], object]:
    step, s = fused.adaptive_iteration(design, psi, Y, *given, 1.08, 0.5), state(torch, design, Y, L)
    return lambda: step(s)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=["small", "large"])
    options = arguments.parse_args()
    torch = importlib.import_module("torch")
    print(torch.cuda.get_device_name(), torch.__version__)
    if options.only != "large":
        study(torch, 5_000, 784, 42, WAVES, True)
    if options.only != "small":
        study(torch, 60_000, 784, 70, (2,), False)


if __name__ == "__main__":
    main()
