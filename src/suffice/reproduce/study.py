r"""The study of Ehrhardt and Roberts (2020), run and written down.

Lower level: elastic-net logistic regression, one problem per digit 0..5, raw pixels, no intercept. Upper level:
Brier loss on test images plus J = 1e-8 (L/mu)^2 + 1/l1, theta = (log10 l1, log10 l2) in [-8, 8]^2, 80 evaluations or
radius 1e-5. Four variants: dynamic accuracy (policy "weights", c = 100, FISTA with step 1/L), and K = 20, 200, 2000
FISTA steps for every solve. Seven starts: l1 = 10, l2 = 10^-3 .. 10^3.

Figure 1 is a problem of its own: (1/2)||Aw - b||^2 + (10/2)||w||^2 + 10 ||w||_1, A random of 100 x 200 with L about
2e4.

Everything is written to a folder as it is found: one file per run, updated after every evaluation, so that a killed
study goes on where it was. The exact F of a theta is solved afterwards with `fista_adaptive`; it is not part of a
run's work.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from suffice._array import Array, norm
from suffice.bilevel import BilevelProblem
from suffice.datasets import Mnist, load_mnist
from suffice.losses import Brier
from suffice.lower.certificate import Rule
from suffice.lower.fista import rate
from suffice.lower.solver import iterate, solve
from suffice.options import Options
from suffice.problem import Composite
from suffice.problems import ElasticNetLogistic
from suffice.result import Record
from suffice.space import Space
from suffice.terms.design import Design
from suffice.terms.prox import L1
from suffice.terms.smooth import SQUARED, LinearModel
from suffice.tune import Tuner

DYNAMIC = "dynamic"
Show = Callable[[str], object]


@dataclass(frozen=True)
class Preset:
    """How large a study is."""

    name: str
    train: int
    test: int
    starts: tuple[float, ...] = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
    steps: tuple[int, ...] = (20, 200, 2000)
    digits: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    validation_digits: tuple[int, ...] = tuple(range(10))
    max_evaluations: int = 80
    final_radius: float = 1e-5
    exact_within: float = 1e-6
    pixels: Literal["raw", "unit"] = "raw"

    @property
    def variants(self) -> tuple[str, ...]:
        return (DYNAMIC, *(f"K = {steps}" for steps in self.steps))


PRESETS = {
    "quick": Preset("quick", train=300, test=300, starts=(-1.0, 1.0, 3.0), final_radius=1e-4),
    "full": Preset("full", train=5000, test=1000),
}


def mnist_problem(preset: Preset, data: Mnist, digits: tuple[int, ...], solver: str) -> BilevelProblem:
    """The paper's bilevel problem on the first images of a part of MNIST."""
    X, X_test = (
        sp.csr_array(images[:count]) for images, count in ((data.X_train, preset.train), (data.X_test, preset.test))
    )
    y, y_test = data.y_train[: preset.train], data.y_test[: preset.test]
    design = Design.of(X)
    curvature = 0.25 * design.squared_norm  # L - mu

    def penalty(params: Mapping[str, float]) -> list[float]:
        return [1e-4 * (curvature + params["l2"]) / params["l2"], params["l1"] ** -0.5]

    return BilevelProblem(
        lower=[ElasticNetLogistic(design, y == digit) for digit in digits],
        losses=[Brier(X_test, y_test == digit, positive=True) for digit in digits],
        penalty=penalty,
        space=Space(l1=(1e-8, 1e8), l2=(1e-8, 1e8)),
        solver=solver,
    )


def run(preset: Preset, variant: str, start: float, folder: Path, show: Show) -> dict[str, Any]:
    """One variant from one start; continues what the folder already has of it."""
    path = folder / "runs" / f"{variant.replace(' ', '').replace('=', '')}_{start:+g}.json"
    known: dict[str, Any] | None = _read(path)
    if known is not None and known["preset"] != _plain(asdict(preset)):
        raise ValueError(f"{folder} holds a study with other settings; choose another folder")
    if known is not None and known["done"]:
        return known
    problem = mnist_problem(preset, load_mnist(pixels=preset.pixels), preset.digits, "fista")
    objective = problem if variant == DYNAMIC else problem.fixed(int(variant.removeprefix("K = ")))
    options = Options(max_evaluations=preset.max_evaluations, final_radius=preset.final_radius)
    if variant == DYNAMIC:
        options = replace(options, policy="weights", accuracy_factor=100.0)
    if known is not None:
        tuner = Tuner.from_state(known["state"], lower_bound=problem.lower_bound)
    else:
        tuner = Tuner([1.0, start], bounds=problem.space.bounds, options=options, lower_bound=problem.lower_bound)
    ask = problem.evaluate_weights if objective is problem else objective.evaluate
    while not tuner.done:
        request = tuner.ask()
        record = tuner.tell(ask(request.theta, within=request.within, warm=request.warm))
        _write(path, {"preset": _plain(asdict(preset)), "state": tuner.state(), "done": False})
        show(f"{variant}, start {start:+g}: evaluation {record.number}, F {record.cost:.4f}")
    result = tuner.result()
    finished = {
        "variant": variant,
        "start": start,
        "theta": result.theta.tolist(),
        "believed": result.cost,
        "evaluations": result.evaluations,
        "work": result.work,
        "status": result.status.name,
        "records": [_record(record, variant) for record in result.history],
        "preset": _plain(asdict(preset)),
        "done": True,
    }
    _write(path, finished)
    return finished


def _record(record: Record, variant: str) -> dict[str, Any]:
    return {
        "number": record.number,
        "purpose": record.purpose,
        "theta": list(record.theta),
        "within": record.within if variant == DYNAMIC else None,
        "error": record.error if variant == DYNAMIC else None,
        "believed": record.cost,
        "interval": list(record.interval) if variant == DYNAMIC else None,
        "exact": None,
        "work": record.total_work,
        "incumbent": list(record.incumbent),
        "incumbent_believed": record.incumbent_cost,
        "incumbent_exact": None,
    }


def add_exact(preset: Preset, runs: list[dict[str, Any]], folder: Path, show: Show) -> None:
    """The exact F of every incumbent, into the records; known ones are kept in a file."""
    path = folder / "exact.json"
    known: dict[str, float] = _read(path) or {}
    problem = mnist_problem(preset, load_mnist(pixels=preset.pixels), preset.digits, "fista_adaptive")
    for one in runs:
        for record in one["records"]:
            key = json.dumps(record["incumbent"])
            if key not in known:
                known[key] = problem.evaluate(np.array(record["incumbent"]), within=preset.exact_within).cost
                _write(path, known)
                show(f"exact F for {one['variant']}, start {one['start']:+g}")
            record["incumbent_exact"] = known[key]
            if record["theta"] == record["incumbent"]:
                record["exact"] = known[key]
        one["exact"] = one["records"][-1]["incumbent_exact"]


def validate(preset: Preset, runs: list[dict[str, Any]], folder: Path, show: Show) -> list[dict[str, Any]]:
    """Accuracy of every final theta on images that no run has seen, for all ten digits."""
    path = folder / "validation.json"
    known: dict[str, list[float]] = _read(path) or {}
    data = load_mnist("validation", pixels=preset.pixels)
    problem = mnist_problem(preset, data, preset.validation_digits, "fista_adaptive")
    X, y = data.X_test[: preset.test], data.y_test[: preset.test]
    rows = []
    for one in runs:
        key = json.dumps(one["theta"])
        if key not in known:
            solutions = problem.evaluate(np.array(one["theta"]), within=1e-3).solutions
            known[key] = [
                float(np.mean((X @ solution.x >= 0.0) == (y == digit)))
                for digit, solution in zip(preset.validation_digits, solutions, strict=True)
            ]
            _write(path, known)
            show(f"validation of {one['variant']}, start {one['start']:+g}")
        rows += [
            {"variant": one["variant"], "start": one["start"], "digit": digit, "accuracy": accuracy}
            for digit, accuracy in zip(preset.validation_digits, known[key], strict=True)
        ]
    return rows


def figure1(iterations: int = 500, seed: int = 0) -> dict[str, Any]:
    """Bounds on ||w^k - w_hat||^2 along FISTA for the paper's random problem."""
    rng = np.random.default_rng(seed)
    A, b, start = 2.0 * rng.random((100, 200)), rng.standard_normal(100), rng.standard_normal(200)
    smooth = LinearModel(Design.of(10.0 * A), 10.0 * b, SQUARED, 10.0)  # a mean over 100 rows
    problem = Composite(smooth, L1(10.0), mu=10.0, L=smooth.L, size=200)
    w_hat = solve(problem, within=1e-11).x
    initial = norm(start - w_hat)

    def bounds(rule: Rule) -> list[float]:
        return [radius * radius for radius in _radii(problem, start, rule, iterations)]

    return {
        "L": smooth.L,
        "mu": 10.0,
        "iterations": list(range(1, iterations + 1)),
        "truth": [norm(x - w_hat) ** 2 for x in _iterates(problem, start, iterations)],
        "rate": [(rate(problem.kappa, k) * initial) ** 2 for k in range(1, iterations + 1)],
        "subgradient": bounds("subgradient"),
        "gap": bounds("tightest"),
    }


def _radii(problem: Composite, start: Array, rule: Rule, count: int) -> list[float]:
    solutions = iterate(problem, warm=start, certificate=rule)
    next(solutions)
    return [next(solutions).certificate.radius for _ in range(count)]


def _iterates(problem: Composite, start: Array, count: int) -> list[Array]:
    solutions = iterate(problem, warm=start)
    next(solutions)
    return [next(solutions).x for _ in range(count)]


def provenance(command: str, seconds: float) -> dict[str, Any]:
    """What produced a study."""
    versions = {name: version(name) for name in ("suffice", "numpy", "scipy")}
    return {
        **versions,
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "seconds": seconds,
    }


def make(preset: Preset, figures: set[str], folder: Path, command: str, show: Show) -> dict[str, Any]:
    """All that the figures need, as plain data; `study.json` in the folder."""
    from suffice.reproduce.claims import check

    started = time.monotonic()
    data: dict[str, Any] = {"preset": _plain(asdict(preset)), "runs": [], "validation": []}
    if "fig1" in figures:
        show("figure 1")
        data["figure1"] = figure1()
    if figures - {"fig1"}:
        starts = (1.0,) if figures <= {"fig1", "fig2"} else preset.starts
        data["runs"] = [run(preset, variant, start, folder, show) for variant in preset.variants for start in starts]
        add_exact(preset, data["runs"], folder, show)
        best = min(data["runs"], key=lambda one: float(one["exact"]))
        data["best"] = {"theta": best["theta"], "F": best["exact"]}
    if "fig5" in figures:
        data["validation"] = validate(preset, data["runs"], folder, show)
    data["claims"] = check(data)
    data["provenance"] = provenance(command, time.monotonic() - started)
    _write(folder / "study.json", data)
    return data


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def _write(path: Path, data: Any) -> None:
    """In one go: a kill at any moment leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(data, allow_nan=False))
    draft.replace(path)
