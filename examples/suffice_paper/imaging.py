r"""The imaging studies of Ehrhardt and Roberts (J. Math. Imaging Vis. 63, 2021), run and written down.

    denoise1    one parameter, log10 alpha, for 10 signals of 256 pixels; five starts, 20 evaluations
    denoise3    three parameters, log10 (alpha, eps_l2, eps_tv), for 20 signals, with the penalty w (L/mu)^2
    denoise2d   the same three parameters for natural images of 256 x 256 pixels (scikit-image's, which it ships)
    mri         64 weights c of Fourier samples for 10 signals of 64 pixels, with the penalty 0.1 sum c

Signals, differences and noise follow the authors' recipe bit for bit: NumPy's legacy generator, box functions, a zero
before the first pixel. In mri the image is complex, the transform unitary, and the noise 0.05 (a + i b) / sqrt(2). The
search runs on sqrt(c), where the penalty is a sum of squares of linear residuals.

Every variant is dynamic (each solve as accurate as the next decision needs) or takes K solver steps for every solve.
Runs are written to files as they go, so that a killed study goes on where it was. The exact F of an incumbent is
solved afterwards and is not part of a run's work, which counts solver steps (gradients) over all signals.
"""

from __future__ import annotations

import importlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from suffice.arrays import Array
from suffice.losses import SquaredDistance
from suffice.options import Options, Policy
from suffice.problems import Denoising, SampledFourier
from suffice.report.folder import read, write
from suffice.search.bilevel import BilevelProblem
from suffice.search.tuner import Tuner
from suffice.space import Space
from suffice_paper.command import plain, processor, provenance
from suffice_paper.progress import folder_of_runs

Show = Callable[[str], object]


@dataclass(frozen=True)
class Variant:
    """A way to solve the lower level: dynamic, or `steps` solver steps for every solve."""

    name: str
    solver: str
    steps: int | None = None
    policy: Policy = "residual"


DYNAMIC = Variant("FISTA dynamic", "fista")
FISTA = (
    DYNAMIC,
    Variant("FISTA dynamic, weights", "fista", policy="weights"),
    Variant("FISTA K = 200", "fista", 200),
    Variant("FISTA K = 2000", "fista", 2000),
)
DESCENT = (
    Variant("GD dynamic", "gradient_descent"),
    Variant("GD K = 1000", "gradient_descent", 1000),
    Variant("GD K = 10000", "gradient_descent", 10000),
)


@dataclass(frozen=True)
class ImagingSetting:
    """One study: which runs, and how long. A start is a label and, for denoise3, the penalty's weight w."""

    study: str
    preset: str
    starts: tuple[float, ...]
    variants: tuple[Variant, ...]
    max_evaluations: int
    signals: int = 10
    pixels: int = 256
    final_radius: float = 1e-6
    seed: int = 0


SETTINGS: dict[tuple[str, str], ImagingSetting] = {
    ("denoise1", "full"): ImagingSetting("denoise1", "full", (-2.0, -1.0, 0.0, 1.0, 2.0), FISTA + DESCENT, 20),
    ("denoise1", "quick"): ImagingSetting("denoise1", "quick", (0.0,), FISTA[:3], 20, signals=3, pixels=64),
    ("denoise3", "full"): ImagingSetting("denoise3", "full", (1e-4, 1e-6), FISTA + DESCENT, 100, signals=20),
    ("denoise3", "quick"): ImagingSetting("denoise3", "quick", (1e-4,), FISTA[:3], 40, signals=3, pixels=64),
    ("denoise2d", "full"): ImagingSetting("denoise2d", "full", (1e-6,), (DYNAMIC, FISTA[2], DESCENT[0]), 40, signals=3),
    ("denoise2d", "quick"): ImagingSetting(
        "denoise2d", "quick", (1e-6,), (DYNAMIC, FISTA[2]), 15, signals=1, pixels=32
    ),
    ("mri", "full"): ImagingSetting("mri", "full", (0.5,), (DYNAMIC, *FISTA[2:], DESCENT[0]), 3000, pixels=64),
    ("mri", "quick"): ImagingSetting("mri", "quick", (0.5,), (DYNAMIC, FISTA[2]), 60, signals=2, pixels=16),
}


def pairs(setting: ImagingSetting) -> list[tuple[Variant, float]]:
    """Which runs a study has."""
    return [(variant, start) for variant in setting.variants for start in setting.starts]


# --- data ----------------------------------------------------------------------------------------------------------


def boxes(rng: np.random.RandomState, signals: int, pixels: int) -> list[Array]:
    """Box functions: 1 within `radius` of `centre`, 0 elsewhere."""
    t = np.linspace(-2.0, 2.0, pixels)
    clean = []
    for _ in range(signals):
        centre = rng.uniform(-1.0, 1.0)
        radius = rng.uniform(-0.5, -1.0)
        clean.append(((t - centre) ** 2 < radius**2).astype(np.float64))
    return clean


@cache
def data(setting: ImagingSetting) -> tuple[list[Any], list[Any]]:
    """Clean images, and what is measured of them."""
    if setting.study == "denoise2d":
        clean = natural_images(setting.pixels)[: setting.signals]
        generator = np.random.default_rng(setting.seed)
        return clean, [image + 0.1 * generator.standard_normal(image.shape) for image in clean]
    rng = np.random.RandomState(setting.seed)
    clean = boxes(rng, setting.signals, setting.pixels)
    if setting.study != "mri":
        return clean, [image + 0.1 * rng.randn(setting.pixels) for image in clean]
    noise = [rng.randn(setting.pixels) + 1j * rng.randn(setting.pixels) for _ in clean]
    spread = 0.05 / math.sqrt(2.0)
    return clean, [np.fft.fft(image, norm="ortho") + spread * e for image, e in zip(clean, noise, strict=True)]


def natural_images(pixels: int) -> list[Array]:
    """Three images that scikit-image ships, grey, between 0 and 1, averaged down to pixels x pixels."""
    try:
        images: Any = importlib.import_module("skimage.data")
    except ImportError as error:
        raise ImportError("denoise2d needs scikit-image: pip install 'suffice[imaging]'") from error
    found = []
    for image in (images.camera(), images.coins(), images.moon()):
        side = min(image.shape[:2])
        side -= side % pixels if side >= pixels else 0
        square = image[:side, :side].astype(np.float64) / 255.0
        if side < pixels:
            raise ValueError(f"pixels must be at most {side}, got {pixels}")
        block = side // pixels
        found.append(square.reshape(pixels, block, pixels, block).mean(axis=(1, 3)))
    return found


def problem(setting: ImagingSetting, start: float, solver: str) -> BilevelProblem:
    """The bilevel problem of a study; `start` is the penalty's weight w in denoise3 and denoise2d."""
    clean, measured = data(setting)
    if setting.study == "mri":
        lower = [SampledFourier(y, alpha=1e-2, eps_l2=1e-4, eps_tv=1e-2, boundary="zero") for y in measured]
        return BilevelProblem(
            lower=lower,
            losses=[SquaredDistance(image.astype(complex)) for image in clean],
            penalty=lambda params: np.sqrt(0.1 * np.array(list(params.values()))),
            penalty_jacobian=lambda params: np.diag(0.5 * np.sqrt(0.1 / np.array(list(params.values())))),
            space=Space(**dict.fromkeys(lower[0].names, (0.001, 0.99, "sqrt"))),
            solver=solver,
        )
    losses = [SquaredDistance(image) for image in clean]
    if setting.study == "denoise1":
        return BilevelProblem(
            lower=[Denoising(y, eps_l2=1e-3, eps_tv=1e-3, boundary="zero") for y in measured],
            losses=losses,
            space=Space(alpha=(1e-7, 1e7)),
            solver=solver,
        )
    axes = clean[0].ndim

    def penalty(params: Mapping[str, float]) -> list[float]:
        L = 1.0 + 4.0 * axes * params["alpha"] / params["eps_tv"] + params["eps_l2"]
        return [math.sqrt(start) * L / (1.0 + params["eps_l2"])]

    def penalty_jacobian(params: Mapping[str, float]) -> list[list[float]]:
        alpha, eps_l2, eps_tv = (params[name] for name in ("alpha", "eps_l2", "eps_tv"))
        steep = math.sqrt(start) * 4.0 * axes / (1.0 + eps_l2) / eps_tv
        return [[steep, -steep * alpha / (1.0 + eps_l2), -steep * alpha / eps_tv]]

    return BilevelProblem(
        lower=[Denoising(y, boundary="zero" if axes == 1 else "free") for y in measured],
        losses=losses,
        penalty=penalty,
        penalty_jacobian=penalty_jacobian,
        space=Space(alpha=(1e-7, 1e7), eps_l2=(1e-7, 1.0), eps_tv=(1e-7, 1.0)),
        solver=solver,
    )


def first_theta(setting: ImagingSetting, start: float) -> Array:
    if setting.study == "denoise1":
        return np.array([start])
    if setting.study == "mri":
        return np.full(setting.pixels, math.sqrt(start))
    return np.array([0.0 if setting.study == "denoise3" else -1.0, -1.0, -1.0])


# --- runs ----------------------------------------------------------------------------------------------------------


def run(setting: ImagingSetting, variant: Variant, start: float, folder: Path, show: Show) -> dict[str, Any]:
    """One variant from one start; continues what the folder already has of it."""
    name = "".join(letter for letter in variant.name if letter.isalnum())
    path = folder_of_runs(folder) / f"{name}_{start:+g}.json"
    settings = plain(asdict(setting) | {"variants": None, "variant": asdict(variant)})
    known = read(path, "settings", "done", "seconds")
    if known is not None and known["settings"] != settings:
        raise ValueError(f"{folder} holds a study with other settings; choose another folder")
    if known is not None and known["done"]:
        return known
    bilevel = problem(setting, start, variant.solver)
    options = Options(
        max_evaluations=setting.max_evaluations,
        final_radius=setting.final_radius,
        policy=variant.policy,
        derivatives="never",  # the paper has none
    )
    if known is not None:
        tuner = Tuner.from_state(known["state"])
    else:
        tuner = Tuner(first_theta(setting, start), bounds=bilevel.space.bounds, options=options)
    objective = bilevel if variant.steps is None else bilevel.fixed(variant.steps)
    ask = objective.evaluate_weights if variant.policy == "weights" else objective.evaluate
    seconds = 0.0 if known is None else float(known["seconds"])
    began, pause = time.monotonic(), 0.0
    saved = began
    while not tuner.done:
        request = tuner.ask()
        record = tuner.tell(ask(request.theta, within=request.within, warm=request.warm))
        now = time.monotonic()
        if now - saved >= pause:  # a large state is not written after every evaluation: at most a tenth of the time
            state = {"settings": settings, "state": tuner.state(), "done": False, "seconds": seconds + now - began}
            write(path, state)
            saved = time.monotonic()
            pause = 9.0 * (saved - now)
        if record.number % max(setting.max_evaluations // 20, 1) == 0:
            show(
                f"{setting.study}, {variant.name}, {start:g}: evaluation {record.number}, F {record.incumbent_cost:.7g}"
            )
    result = tuner.result()
    low, high = result.interval
    finished = {
        "variant": variant.name,
        "start": start,
        "theta": result.theta.tolist(),
        "believed": result.cost,
        "interval": [low, high] if variant.steps is None else None,
        "evaluations": result.evaluations,
        "work": result.work,
        "status": result.status.name,
        "seconds": seconds + time.monotonic() - began,
        "records": [
            {
                "number": record.number,
                "purpose": record.purpose,
                "theta": list(record.theta),
                "within": record.within if variant.steps is None else None,
                "error": record.error if variant.steps is None else None,
                "believed": record.cost,
                "work": record.total_work,
                "incumbent": list(record.incumbent),
                "incumbent_believed": record.incumbent_cost,
                "incumbent_exact": None,
            }
            for record in result.history
        ],
        "settings": settings,
        "done": True,
    }
    write(path, finished)
    return finished


def exact_solver(setting: ImagingSetting) -> str:
    return "fista" if setting.study == "denoise2d" else "newton_tv"


def add_exact(setting: ImagingSetting, runs: list[dict[str, Any]], folder: Path, show: Show) -> None:
    """The exact F of every incumbent, into the records, and of the result; known ones are kept in a file."""
    path = folder / "exact.json"
    known: dict[str, float] = read(path) or {}
    within = 1e-5 if setting.study == "denoise2d" else 1e-9
    saved = time.monotonic()
    for one in runs:
        bilevel, warm = problem(setting, one["start"], exact_solver(setting)), None
        # A run that was cut short may return a better point than its last incumbent.
        exact = []
        for theta in (*(record["incumbent"] for record in one["records"]), one["theta"]):
            key = json.dumps([one["start"] if setting.study != "denoise1" else 0.0, theta])
            if key not in known:
                warm = bilevel.evaluate(np.array(theta), within=within, warm=warm)
                known[key] = warm.cost
                if time.monotonic() - saved > 10.0:
                    write(path, known)
                    saved = time.monotonic()
            exact.append(known[key])
        for record, value in zip(one["records"], exact, strict=False):
            record["incumbent_exact"] = value
        one["exact"] = exact[-1]
        show(f"exact F for {one['variant']}, {one['start']:g}: {one['exact']:.9g}")
    write(path, known)


def reconstructions(setting: ImagingSetting, theta: Array, start: float) -> list[Any]:
    """The images at theta, accurate."""
    bilevel = problem(setting, start, exact_solver(setting))
    evaluation = bilevel.evaluate(theta, within=1e-4)
    formats: Any = bilevel.lower
    return [one.image(solution) for one, solution in zip(formats, evaluation.solutions, strict=True)]


def best_theta(setting: ImagingSetting) -> tuple[float, float] | None:
    """The exact optimum of denoise1, by a bounded search on exact evaluations (one parameter only)."""
    if setting.study != "denoise1":
        return None
    from scipy.optimize import minimize_scalar

    bilevel = problem(setting, 0.0, "newton_tv")
    found = minimize_scalar(
        lambda t: bilevel.evaluate(np.array([t]), within=1e-9).cost, bounds=(-2.0, 1.0), options={"xatol": 1e-9}
    )
    return float(found.x), float(found.fun)


def make(setting: ImagingSetting, folder: Path, command: str, show: Show) -> dict[str, Any]:
    """All that the report needs, as plain data; `study.json` in the folder."""
    from suffice_paper.imaging_claims import check

    runs = [run(setting, variant, start, folder, show) for variant, start in pairs(setting)]
    add_exact(setting, runs, folder, show)
    result: dict[str, Any] = {"setting": plain(asdict(setting)), "runs": runs}
    optimum = best_theta(setting)
    if optimum is not None:
        result["optimum"] = {"theta": [optimum[0]], "F": optimum[1]}
    result["best"] = {}
    for start in setting.starts:
        ends = [one for one in runs if one["start"] == start or setting.study == "denoise1"]
        best = min(ends, key=lambda one: float(one["exact"]))
        result["best"][f"{start:g}"] = {"theta": best["theta"], "F": best["exact"], "variant": best["variant"]}
    result["claims"] = check(setting, result)
    result["provenance"] = provenance(command, sum(one["seconds"] for one in runs), processor())
    kept = result | {"runs": [_short(one) for one in runs]}
    write(folder / "study.json", kept)
    return result


def _short(one: dict[str, Any]) -> dict[str, Any]:
    """A run without the thetas of its records, where they are long."""
    if len(one["theta"]) <= 3:
        return one
    drop = ("theta", "incumbent")
    return one | {"records": [{k: v for k, v in r.items() if k not in drop} for r in one["records"]]}
