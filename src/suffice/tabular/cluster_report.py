"""The report of a run on a cluster: that of `suffice.sklearn.report`, from sums over rows that stay where they are.

Folds' models at the best penalties and with scikit-learn's defaults, models of all rows at multiples of the best
penalties, and what is counted of held-out rows all come from passes that problems share (`suffice.rows.together`).
Left out are measures that need every prediction here. Calibration has bins of equal width in the predicted probability,
where one machine has bins of equal size; for numbers, a few held-out rows are shown, the same ones for any cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import sklearn

from suffice.arrays import Array, norm
from suffice.journal.fingerprint import versions
from suffice.models.row_softmax import RowsMultinomial
from suffice.models.softmax_jobs import softmax_rows
from suffice.report.live import finite
from suffice.result import Result
from suffice.rows.blocks import Block
from suffice.rows.together import together
from suffice.sklearn.report import FORMAT
from suffice.solvers.solution import Solution
from suffice.solvers.solver import solve
from suffice.tabular.models import MODELS, POSITIVE

SCORINGS = {
    "logistic": "neg_log_loss",
    "logistic-l2": "neg_log_loss",
    "poisson": "neg_mean_poisson_deviance",
    "gamma": "neg_mean_gamma_deviance",
    "tweedie": "neg_mean_deviance",
    "negative-binomial": "neg_mean_deviance",
}
MULTIPLES = np.geomspace(100.0, 0.01, 13)  # of the best penalties, along the regularisation path
ACCURACY = 0.01  # of models in figures: the distance of their weights, relative to the norm
BINS, MOST_POINTS, MOST_LINES, MOST_NAMES, MOST_CLASSES = 10, 2000, 40, 200, 10
MOST_STEPS = 100

Data = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Made:
    """What a run has made."""

    model: str
    folds: Sequence[Any]
    losses: Sequence[Any]
    whole: Any
    solution: Solution
    pipeline: Any
    result: Result
    classes: tuple[Any, ...] | None
    rows: int
    total: float  # of their weights

    @property
    def scoring(self) -> str:
        return SCORINGS.get(self.model, "neg_mean_squared_error")

    @property
    def penalties(self) -> dict[str, float]:
        return {name: float(value) for name, value in (self.result.params or {}).items()}


def words(model: str, penalties: dict[str, float], rows: float) -> dict[str, float]:
    """Penalties in scikit-learn's words, for a fit to so many rows, or to rows that weigh so much."""
    l1, l2 = penalties.get("l1", 0.0), penalties["l2"]
    match model:
        case "logistic":
            return {"C": 1.0 / (rows * (l1 + l2)), "l1_ratio": l1 / (l1 + l2)}
        case "logistic-l2":
            return {"C": 1.0 / (rows * l2)}
        case "elastic-net":
            return {"alpha": l1 + l2, "l1_ratio": l1 / (l1 + l2)}
        case "ridge":
            return {"alpha": rows * l2}
        case "poisson":
            return {"alpha": l2}
    return {"l1": l1, "l2": l2}


def defaults(model: str, rows: float) -> tuple[dict[str, float], dict[str, float]]:
    """scikit-learn's defaults in its own words, and the penalties that these are for so many rows."""
    match model:
        case "logistic":
            return {"C": 1.0, "l1_ratio": 0.0}, {"l1": 0.0, "l2": 1.0 / rows}
        case "logistic-l2":
            return {"C": 1.0}, {"l2": 1.0 / rows}
        case "elastic-net":
            return {"alpha": 1.0, "l1_ratio": 0.5}, {"l1": 0.5, "l2": 0.5}
        case "ridge":
            return {"alpha": 1.0}, {"l2": 1.0 / rows}
        case "poisson":
            return {"alpha": 1.0}, {"l2": 1.0}
    return {"l1": 0.01, "l2": 0.01}, {"l1": 0.01, "l2": 0.01}


def collect(made: Made, about: Data) -> Data:
    """What a report shows, as plain data fit for JSON."""
    K, low_high = len(made.folds), made.result.interval
    names = list(made.penalties)
    tuned = _trained([fold.at(**made.penalties) for fold in made.folds], made.solution.x)
    said, usual = defaults(made.model, made.total * (K - 1) / K)
    default = _trained([fold.at(**usual) for fold in made.folds], made.solution.x)
    scores = {name: _scores(made, models) for name, models in (("tuned", tuned), ("default", default))}
    return {
        "format": FORMAT,
        "about": about,
        "versions": {**versions(), "scikit-learn": sklearn.__version__},
        "estimator": type(made.pipeline[-1]).__name__,
        "steps": [type(step).__name__ for _, step in made.pipeline.steps[:-1]],
        "samples": made.rows,
        "features": len(made.pipeline.feature_names_in_),
        "folds": K,
        "asked_scoring": None,
        "policy": made.result.policy,
        "best": {
            "params": words(made.model, made.penalties, made.total),
            "penalties": made.penalties,
            "l2_floor": 0.0,
            "score": -float(made.result.cost),
            "interval": [-float(low_high[1]), -float(low_high[0])],
            "message": made.result.message,
            "refit": True,
        },
        "scoring": made.scoring,
        "names": names,
        **_course(made.result, names),
        "comparison": {
            "params": said,
            "converged": True,
            "scores": [{"scoring": made.scoring, **scores}],
            "same_folds": True,
        },
        "regularisation": _path(made),
        "calibration": _calibration(made, tuned),
        "coefficients": _coefficients(made),
    }


def _trained(problems: Sequence[Any], start: Array) -> list[Solution]:
    """A model of each, side by side."""

    def trained(problem: Any) -> Solution:
        within = ACCURACY * max(norm(start), 1e-300)
        warm = start if problem.size == len(start) else None  # folds may have seen fewer levels
        first = solve(problem, within=within, warm=warm, max_steps=MOST_STEPS)
        within = ACCURACY * norm(first.x)
        if not 0.0 < within < first.certificate.radius:
            return first
        return solve(problem, within=within, warm=first, max_steps=MOST_STEPS)

    return together([partial(trained, problem) for problem in problems])


def _scores(made: Made, models: Sequence[Solution]) -> list[float]:
    """Of every fold; larger is better."""
    found = together([partial(loss.at, model.x) for loss, model in zip(made.losses, models, strict=True)])
    return [-float(np.sum(np.square(one.residuals))) * len(models) for one in found]


def _course(result: Result, names: list[str]) -> Data:
    """Every evaluation and the incumbents."""
    assert result.space is not None
    evaluations = []
    for record in result.history:
        params = result.space.params(np.array(record.theta))
        asked, achieved = finite((record.within, max(record.errors, default=0.0)))
        evaluations.append({
            "number": record.number,
            "purpose": str(record.purpose),
            "point": [float(params[name]) for name in names],
            "cost": float(record.cost),
            "interval": finite(record.interval),
            "asked": asked,
            "achieved": achieved,
            "work": float(record.work),
        })  # fmt: skip
    path = [result.space.params(np.array(record.incumbent)) for record in result.history]
    path = [point for k, point in enumerate(path) if k == 0 or point != path[k - 1]]
    best = min(range(len(evaluations)), key=lambda k: (result.history[k].interval[1], k))
    return {
        "evaluations": evaluations,
        "evaluation": best + 1,
        "path": [[float(point[name]) for name in names] for point in path],
    }


def _path(made: Made) -> Data:
    """Coefficients of models of all rows, at multiples of the best penalties; a few at a time."""
    models: list[Solution] = []
    size = len(made.folds)
    for first in range(0, len(MULTIPLES), size):
        scaled = [{n: v * m for n, v in made.penalties.items()} for m in MULTIPLES[first : first + size]]
        models += _trained([made.whole.at(**one) for one in scaled], made.solution.x)
    coefs, names, outputs = np.array([model.x for model in models]), _names(made), _outputs(made)
    shown = np.sort(np.argsort(-np.abs(coefs).max(axis=0), kind="stable")[:MOST_LINES])
    d = len(names)
    return {
        "multiples": MULTIPLES.tolist(),
        "left_out": 0,
        "penalties": made.penalties,
        "lines": [
            {"name": names[k % d], "output": outputs[k // d], "values": coefs[:, k].tolist()} for k in shown.tolist()
        ],
        "nonzero": [int(np.count_nonzero(one)) for one in coefs],
        "coefficients": int(coefs.shape[1]),
        "accuracy": _accuracy(models),
    }


def _accuracy(models: Sequence[Solution]) -> float:
    size = max(norm(model.x) for model in models)
    return max(model.certificate.radius for model in models) / (size if size > 0.0 else 1.0)


def _names(made: Made) -> list[str]:
    return [str(name) for name in made.pipeline[:-1].get_feature_names_out()]


def _outputs(made: Made) -> list[str]:
    """What a row of coefficients is for."""
    several = made.classes is not None and len(made.classes) > 2
    return [str(label) for label in made.classes or ()] if several else [""]


def _coefficients(made: Made) -> Data:
    outputs, names = _outputs(made), _names(made)
    coef = made.solution.x.reshape(len(outputs), -1)
    sizes = np.abs(coef).max(axis=0)
    order = [k for k in np.argsort(-sizes, kind="stable").tolist() if sizes[k] != 0.0][:MOST_NAMES]
    return {
        "source": "certified",
        "names": [names[k] for k in order],
        "outputs": outputs,
        "values": coef[:, order].tolist(),
        "intercepts": np.ravel(made.pipeline[-1].intercept_).astype(float).tolist(),
        "features": coef.shape[1],
        "nonzero": int(np.count_nonzero(coef)),
    }


# Held-out rows


@dataclass(frozen=True)
class Reliability:
    """Of rows that count, by their predicted probability: how many, its sum, and how many belong to the class; for
    several classes, each of the first `MOST_CLASSES`. a, y are given."""

    shift: Any
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        counts = block["a"] > 0.0
        m, y = block.margins[0][counts] + self.shift, block["y"][counts]
        if m.ndim == 2:
            p = softmax_rows(m, np.zeros(len(m), dtype=np.intp))[0][:, :MOST_CLASSES]
            return np.array([_binned(p[:, k], y == k) for k in range(p.shape[1])])
        return _binned(1.0 / (1.0 + np.exp(-np.clip(m, -500.0, 500.0))), y > 0.0)[None]


def _binned(p: Array, hit: Array) -> Array:
    place = np.minimum((p * BINS).astype(np.intp), BINS - 1)
    return np.array([np.bincount(place, weights, BINS) for weights in (np.ones_like(p), p, hit)])


@dataclass(frozen=True)
class Pairs:
    """Targets and predictions of every `step`-th row, of those that count. a, y are given."""

    shift: float
    step: int
    inverse: Callable[[Array], Array] | None
    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> list[tuple[float, float]]:
        rows = (block["a"] > 0.0) & (np.arange(block.start, block.stop) % self.step == 0)
        at = block.margins[0][rows] + self.shift
        at = at if self.inverse is None else self.inverse(at)
        return list(zip(block["y"][rows].tolist(), at.tolist(), strict=True))


def _calibration(made: Made, models: Sequence[Solution]) -> Data:
    def counted(loss: Any, model: Solution, job: Callable[[Any], Any]) -> Any:
        train, design = loss.train, loss.design
        image = train.image(model.x)  # of the matrix that both have
        shift = train.shift(image)[0] if isinstance(train, RowsMultinomial) else train.intercept(image)[0]
        return design.X.run(job(shift), [image], a=design.weights, y=loss.y)

    if made.classes is not None:
        job: Callable[[Any], Any] = Reliability
    else:
        inverse = np.exp if made.model in POSITIVE else None
        job = partial(Pairs, step=max(1, made.rows // MOST_POINTS), inverse=inverse)
    pairs = zip(made.losses, models, strict=True)
    found = together([partial(counted, loss, model, job) for loss, model in pairs])
    accuracy = _accuracy(models)
    if made.classes is not None:
        classes, sums = made.classes, np.sum(found, axis=0)
        labels = classes[1:] if len(classes) == 2 else classes[: len(sums)]
        curves = [_curve(one, str(label)) for one, label in zip(sums, labels, strict=True)]
        return {
            "kind": "reliability", "curves": curves, "samples": made.rows, "classes": len(classes),
            "accuracy": accuracy,
        }  # fmt: skip
    shown = [pair for part in found for pair in part]
    return {
        "kind": "regression",
        "true": [float(true) for true, _ in shown],
        "predicted": [float(predicted) for _, predicted in shown],
        "samples": made.rows,
        "accuracy": accuracy,
    }


def _curve(sums: Array, label: str) -> Data:
    """Bins with rows in them, with 90 % intervals."""
    from scipy.stats import beta

    counts, p, hits = sums[:, sums[0] > 0.0]
    return {
        "label": label,
        "predicted": (p / counts).tolist(),
        "observed": (hits / counts).tolist(),
        "low": np.where(hits > 0, beta.ppf(0.05, hits, counts - hits + 1), 0.0).tolist(),  # Clopper and Pearson
        "high": np.where(hits < counts, beta.ppf(0.95, hits + 1, counts - hits), 1.0).tolist(),
        "count": [int(count) for count in counts],
    }


def about(made: Made, table: str, target: str, columns: Data, notes: Sequence[str], seconds: float) -> Data:
    """What the report says of the run."""
    return {
        "title": f"{table}: {target}",
        "table": table,
        "target": target,
        "model": f"{made.model}: {MODELS[made.model].words}",
        "rows": made.rows,
        **columns,
        "notes": list(notes),
        "seconds": round(seconds, 1),
    }
