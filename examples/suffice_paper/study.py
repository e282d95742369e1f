r"""The study of Ehrhardt and Roberts (2020), run and written down.

Lower level: elastic-net logistic regression, one problem per digit 0..5, raw pixels, no intercept. Upper level:
Brier loss on test images plus J = 1e-8 (L/mu)^2 + 1/l1, theta = (log10 l1, log10 l2) in [-8, 8]^2, 80 evaluations or
radius 1e-5. Four variants: dynamic accuracy (policy "weights", c = 100, FISTA with step 1/L), and K = 20, 200, 2000
FISTA steps for every solve. Seven starts: l1 = 10, l2 = 10^-3 .. 10^3. A fifth variant is shown for l2 = 10 only:
"adaptive", dynamic accuracy by the same rule, with FISTA's step lengths adapted to the curvature along the way
(`fista_adaptive`).

Figure 1 is a problem of its own: (1/2)||Aw - b||^2 + (10/2)||w||^2 + 10 ||w||_1, A random of 100 x 200 with L about
2e4.

Everything is written to a folder as it is found: one file per run, updated after every evaluation, so that a killed
study goes on where it was. Runs of the same K go through one matrix product together; the rest of the work is spread
over processes. The exact F of a theta is solved for afterwards: weights proven to 1e-9, or as far as float64 can prove
them, which is reported; it is not part of a run's work.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import joblib
import numpy as np
import scipy.sparse as sp

from suffice.arrays import Array, norm
from suffice.datasets import Mnist, load_mnist
from suffice.losses import Brier
from suffice.models.linear import LinearModel
from suffice.models.margin_losses import SQUARED
from suffice.options import Options
from suffice.penalties.prox import L1
from suffice.problems import ElasticNetLogistic
from suffice.report.folder import read, write
from suffice.result import Record
from suffice.rows.design import Design
from suffice.search.bilevel import BilevelProblem
from suffice.search.tuner import Tuner
from suffice.solvers.certificate import Rule
from suffice.solvers.problem import Composite
from suffice.solvers.solver import iterate, solve
from suffice.space import Space
from suffice_paper.command import plain, processor, provenance
from suffice_paper.progress import StudyProgress, folder_of_runs, note

DYNAMIC, ADAPTIVE = "dynamic", "adaptive"
ONE_START = 1.0  # log10 l2 of the runs of figure 2
CHUNK, CHUNK_ON_DEVICE = 8, 64  # thetas whose exact F is solved in one go
Show = Callable[[str], object]


@dataclass(frozen=True)
class Preset:
    """How large a study is. `exact`: the points of every run whose F is solved for exactly."""

    name: str
    train: int
    test: int
    starts: tuple[float, ...] = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
    steps: tuple[int, ...] = (20, 200, 2000)
    digits: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    validation_digits: tuple[int, ...] = tuple(range(10))
    max_evaluations: int = 80
    final_radius: float = 1e-5
    exact: Literal["all", "incumbents"] = "all"
    exact_within: float = 1e-9
    pixels: Literal["raw", "unit"] = "raw"

    @property
    def variants(self) -> tuple[str, ...]:
        return (DYNAMIC, ADAPTIVE, *self.fixed)

    @property
    def fixed(self) -> tuple[str, ...]:
        return tuple(f"K = {steps}" for steps in self.steps)


PRESETS = {
    "quick": Preset("quick", train=300, test=300, starts=(-2.0, -1.0, 0.0, 1.0, 2.0, 3.0), final_radius=2e-4),
    "full": Preset("full", train=5000, test=1000),
}


@dataclass(frozen=True)
class Place:
    """Where a study lives and is computed: its folder, and the device of X (None: scipy.sparse on the CPU)."""

    folder: Path
    device: str | None = None

    def path(self, variant: str, start: float) -> Path:
        return folder_of_runs(self.folder) / f"{variant.replace(' ', '').replace('=', '')}_{start:+g}.json"

    @property
    def machine(self) -> str:
        if self.device is None or not self.device.startswith("cuda"):
            return processor()
        torch: Any = importlib.import_module("torch")
        return str(torch.cuda.get_device_name(self.device))


def mnist_problem(
    preset: Preset, data: Mnist, digits: tuple[int, ...], solver: str, device: str | None = None
) -> BilevelProblem:
    """The paper's bilevel problem on the first images of a part of MNIST."""
    X, X_test = (
        _matrix(images[:count], device) for images, count in ((data.X_train, preset.train), (data.X_test, preset.test))
    )
    y, y_test = data.y_train[: preset.train], data.y_test[: preset.test]
    design, test_design = Design.of(X), Design.of(X_test)
    curvature = 0.25 * design.squared_norm  # L - mu

    def penalty(params: Mapping[str, float]) -> list[float]:
        return [1e-4 * (curvature + params["l2"]) / params["l2"], params["l1"] ** -0.5]

    def penalty_jacobian(params: Mapping[str, float]) -> list[list[float]]:
        return [[0.0, -1e-4 * curvature / params["l2"] ** 2], [-0.5 * params["l1"] ** -1.5, 0.0]]

    return BilevelProblem(
        lower=[ElasticNetLogistic(design, y == digit) for digit in digits],
        losses=[Brier(test_design, y_test == digit, positive=True) for digit in digits],
        penalty=penalty,
        penalty_jacobian=penalty_jacobian,
        space=Space(l1=(1e-8, 1e8), l2=(1e-8, 1e8)),
        solver=solver,
    )


def _matrix(images: Array, device: str | None) -> Any:
    if device is None:
        return sp.csr_array(images)
    torch: Any = importlib.import_module("torch")
    return torch.asarray(np.array(images, dtype=np.float64), device=device)


def run(preset: Preset, variant: str, starts: Sequence[float], place: Place) -> None:
    """One variant from some starts, side by side; continues what the folder already has of them."""
    known = {start: _known(preset, variant, start, place) for start in starts}
    left = {start: one for start, one in known.items() if one is None or not one["done"]}
    for start, one in known.items():
        if one is not None and one["done"]:
            note(place.folder, variant, start, one["evaluations"], True, one["seconds"])
    if not left:
        return
    solver = "fista_adaptive" if variant == ADAPTIVE else "fista"
    problem = mnist_problem(preset, load_mnist(pixels=preset.pixels), preset.digits, solver, place.device)
    fixed = problem.fixed(int(variant.removeprefix("K = "))) if variant in preset.fixed else None
    options = Options(
        max_evaluations=preset.max_evaluations, final_radius=preset.final_radius, derivatives="never"
    )  # the paper has none
    if fixed is None:
        options = replace(options, policy="weights", accuracy_factor=100.0)
    tuners = {
        start: Tuner.from_state(one["state"], lower_bound=problem.lower_bound)
        if one is not None
        else Tuner([1.0, start], bounds=problem.space.bounds, options=options, lower_bound=problem.lower_bound)
        for start, one in left.items()
    }
    seconds = {start: 0.0 if one is None else float(one["seconds"]) for start, one in left.items()}
    while tuners:
        began = time.monotonic()
        requests = [tuner.ask() for tuner in tuners.values()]
        if fixed is None:
            evaluations = [
                problem.evaluate_all(
                    [request.theta], within=request.within, warm=[request.warm], policy=options.policy
                )[0]
                for request in requests
            ]
        else:
            # K steps always start from 0: their solutions serve nothing, and would make the files large.
            evaluations = [
                replace(one, solutions=()) for one in fixed.evaluate_all([request.theta for request in requests])
            ]
        spent = (time.monotonic() - began) / len(tuners)
        for (start, tuner), evaluation in zip(list(tuners.items()), evaluations, strict=True):
            tuner.tell(evaluation)
            seconds[start] += spent
            if tuner.done:
                write(place.path(variant, start), _finished(preset, variant, start, tuner, seconds[start], place))
                del tuners[start]
            else:
                unfinished = {"state": tuner.state(), "seconds": seconds[start], "done": False}
                write(place.path(variant, start), {"preset": plain(asdict(preset)), **unfinished})
            note(place.folder, variant, start, len(tuner.history), tuner.done, seconds[start])


def _known(preset: Preset, variant: str, start: float, place: Place) -> dict[str, Any] | None:
    known = read(place.path(variant, start), "preset", "done", "seconds")
    if known is not None and known["preset"] != plain(asdict(preset)):
        raise ValueError(f"{place.folder} holds a study with other settings; choose another folder")
    return known


def _finished(preset: Preset, variant: str, start: float, tuner: Tuner, seconds: float, place: Place) -> dict[str, Any]:
    result = tuner.result()
    return {
        "variant": variant,
        "start": start,
        "theta": result.theta.tolist(),
        "believed": result.cost,
        "evaluations": result.evaluations,
        "work": result.work,
        "status": result.status.name,
        "seconds": seconds,
        "machine": place.machine,
        "records": [_record(record, fixed=variant in preset.fixed) for record in result.history],
        "preset": plain(asdict(preset)),
        "done": True,
    }


def _record(record: Record, *, fixed: bool) -> dict[str, Any]:
    return {
        "number": record.number,
        "purpose": record.purpose,
        "theta": list(record.theta),
        "within": None if fixed else record.within,
        "error": None if fixed else record.error,
        "believed": record.cost,
        "interval": None if fixed else list(record.interval),
        "exact": None,
        "exact_error": None,
        "work": record.total_work,
        "incumbent": list(record.incumbent),
        "incumbent_believed": record.incumbent_cost,
        "incumbent_exact": None,
    }


def add_exact(preset: Preset, runs: list[dict[str, Any]], place: Place, jobs: int, show: Show) -> None:
    """The exact F of the runs' points, with its proven error, into the records; known ones are kept in a file."""
    path = place.folder / "exact.json"
    known: dict[str, list[float]] = read(path) or {}
    wanted: dict[str, list[float]] = {}
    for one in runs:
        for record in one["records"]:
            for theta in [record["incumbent"]] + ([record["theta"]] if preset.exact == "all" else []):
                wanted.setdefault(json.dumps(theta), theta)
    # Neighbours in l2 take about as many steps, and lend each other their solutions.
    missing = sorted((theta for key, theta in wanted.items() if key not in known), key=lambda theta: -theta[1])
    size = CHUNK if place.device is None else CHUNK_ON_DEVICE
    chunks = [missing[i : i + size] for i in range(0, len(missing), size)]
    tasks = [joblib.delayed(_exact)(preset, chunk, place) for chunk in chunks]
    for done, found in enumerate(_parallel(tasks, jobs), start=1):
        known |= found
        write(path, known)
        show(f"exact F: {done} of {len(tasks)} parts")
    for one in runs:
        for record in one["records"]:
            record["incumbent_exact"] = known[json.dumps(record["incumbent"])][0]
            record["exact"], record["exact_error"] = known.get(json.dumps(record["theta"]), (None, None))
        one["exact"] = one["records"][-1]["incumbent_exact"]


def _exact(preset: Preset, thetas: list[list[float]], place: Place) -> dict[str, list[float]]:
    data = load_mnist(pixels=preset.pixels)
    problem = mnist_problem(preset, data, preset.digits, _precise(place), place.device)
    points = [np.array(theta) for theta in thetas]
    evaluations = problem.evaluate_all(points, within=preset.exact_within, policy="weights")
    return {
        json.dumps(theta): [one.cost, 0.5 * (one.interval[1] - one.interval[0])]
        for theta, one in zip(thetas, evaluations, strict=True)
    }


def _precise(place: Place) -> str:
    """The fastest way to a precise solution: on a device that of many columns at once."""
    return "newton" if place.device is None else "auto"


def validate(preset: Preset, runs: list[dict[str, Any]], place: Place, jobs: int, show: Show) -> list[dict[str, Any]]:
    """Accuracy of every final theta on images that no run has seen, for all ten digits."""
    path = place.folder / "validation.json"
    known: dict[str, list[float]] = read(path) or {}
    wanted = {json.dumps(one["theta"]): one["theta"] for one in runs}
    missing = [theta for key, theta in wanted.items() if key not in known]
    tasks = [joblib.delayed(_accuracies)(preset, theta, place) for theta in missing]
    for done, found in enumerate(_parallel(tasks, jobs), start=1):
        known |= found
        write(path, known)
        show(f"validation: {done} of {len(tasks)} points")
    return [
        {"variant": one["variant"], "start": one["start"], "digit": digit, "accuracy": accuracy}
        for one in runs
        for digit, accuracy in zip(preset.validation_digits, known[json.dumps(one["theta"])], strict=True)
    ]


def _accuracies(preset: Preset, theta: list[float], place: Place) -> dict[str, list[float]]:
    data = load_mnist("validation", pixels=preset.pixels)
    problem = mnist_problem(preset, data, preset.validation_digits, _precise(place), place.device)
    X, y = data.X_test, data.y_test  # all of them: more images tell smaller differences
    solutions = problem.evaluate(np.array(theta), within=1e-3).solutions
    accuracies = [
        float(np.mean((X @ solution.x >= 0.0) == (y == digit)))
        for digit, solution in zip(preset.validation_digits, solutions, strict=True)
    ]
    return {json.dumps(theta): accuracies}


def figure1(iterations: int = 500, seed: int = 0) -> dict[str, Any]:
    """Bounds on ||w^k - w_hat||^2 along FISTA for the paper's random problem."""
    rng = np.random.default_rng(seed)
    A, b, start = 2.0 * rng.random((100, 200)), rng.standard_normal(100), rng.standard_normal(200)
    smooth = LinearModel(Design.of(10.0 * A), 10.0 * b, SQUARED, 10.0)  # a mean over 100 rows
    problem = Composite(smooth, L1(10.0), mu=10.0, L=smooth.L, size=200)
    w_hat = solve(problem, within=1e-11).x
    initial, root = norm(start - w_hat), problem.kappa**-0.5

    def bounds(rule: Rule) -> list[float]:
        return [radius * radius for radius in _radii(problem, start, rule, iterations)]

    return {
        "L": smooth.L,
        "mu": 10.0,
        "iterations": list(range(1, iterations + 1)),
        "truth": [norm(x - w_hat) ** 2 for x in _iterates(problem, start, iterations)],
        "rate": [(1.0 - root) ** k * (1.0 + root) / root**2 * initial**2 for k in range(1, iterations + 1)],
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


def make(
    preset: Preset,
    figures: set[str],
    folder: Path,
    command: str,
    show: Show,
    *,
    jobs: int = 1,
    device: str | None = None,
) -> dict[str, Any]:
    """All that the figures need, as plain data; `study.json` in the folder."""
    from suffice_paper.claims import check

    started = time.monotonic()
    place = Place(folder, device)
    data: dict[str, Any] = {"preset": plain(asdict(preset)), "runs": [], "validation": []}
    if "fig1" in figures:
        show("figure 1")
        data["figure1"] = figure1()
    if figures - {"fig1"}:
        starts = (ONE_START,) if figures <= {"fig1", "fig2"} else preset.starts
        wanted = [
            (variant, start)
            for variant in preset.variants
            for start in (starts if variant != ADAPTIVE else (ONE_START,))
        ]
        for variant, start in wanted:
            _known(preset, variant, start, place)  # refuses a folder of another study before any work
        # The longest first; runs of one K go side by side, dynamic ones ask for other accuracies and go alone.
        groups = [(variant, list(starts)) for variant in reversed(preset.fixed)]
        groups[1:1] = [*((DYNAMIC, [start]) for start in starts), (ADAPTIVE, [ONE_START])]
        with StudyProgress(folder, preset.max_evaluations, groups, jobs, show):
            list(_parallel([joblib.delayed(run)(preset, *group, place) for group in groups], jobs))
        data["runs"] = [read(place.path(variant, start)) for variant, start in wanted]
        add_exact(preset, data["runs"], place, jobs, show)
        data["best"] = _best(data["runs"])
    if "fig5" in figures:
        data["validation"] = validate(preset, data["runs"], place, jobs, show)
    data["claims"] = check(data)
    data["provenance"] = provenance(command, time.monotonic() - started, place.machine)
    data["provenance"]["machines of the runs"] = sorted({one["machine"] for one in data["runs"]})
    write(folder / "study.json", data)
    return data


def _best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The lowest exact F that any run has come across."""
    records = [record for one in runs for record in one["records"]]
    points = [(record["incumbent_exact"], record["incumbent"]) for record in records]
    points += [(record["exact"], record["theta"]) for record in records if record["exact"] is not None]
    F, theta = min(points)
    return {"theta": theta, "F": F}


def _parallel(tasks: list[Any], jobs: int) -> Any:
    """The results of joblib's tasks as they come; one process less overhead for a single job."""
    if jobs == 1:
        return (function(*arguments, **named) for function, arguments, named in tasks)
    return joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(tasks)
