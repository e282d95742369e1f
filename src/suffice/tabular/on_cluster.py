"""`suffice tune folder/*.parquet --target y --cluster ADDRESS`: a table in many files, tuned where its rows are.

Columns are prepared by the rules of `suffice.tabular.columns` (`suffice.tabular.preparation`), for the training rows of
each fold anew, and up to MOST_SHUFFLED rows folds are those of one machine: shuffled by the seed, with their share of
every class. What differs: beyond, folds are made of a hash of the row's number and the seed, which is told; fewer looks
are taken before the search begins, at the best of them; every level has a column of its own; columns that a rule
leaves out are not looked at again (`suffice.tabular.comparing`). There is one model with unpenalised intercepts per
fold (`suffice.tabular.cluster_models`), an l2 > 0 and, but for `logistic-l2`, `ridge` and `poisson`, an l1. Classes,
numbers, counts and costs can be predicted.

The run's folder is that of `suffice.tabular.run`, with its report (`suffice.tabular.cluster_report`): `suffice predict`
takes it. The same command in the
same folder goes on where it was, and ends at the same bits, whatever the cluster.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from suffice.arrays import Array
from suffice.evaluation import Evaluation
from suffice.journal.answers import FILE as JOURNAL
from suffice.options import Options
from suffice.report import folder as places
from suffice.result import Record, Result
from suffice.rows.blocks import Block, block_rows
from suffice.rows.dask import ClusterError, ClusterRows
from suffice.rows.design import Design, is_dask_frame
from suffice.rows.together import together
from suffice.search.bilevel import BilevelProblem
from suffice.search.tune import resume, tune
from suffice.sklearn.enough import worth
from suffice.solvers.solver import solve
from suffice.space import Space
from suffice.tabular import cluster_report
from suffice.tabular.cluster_folds import Split
from suffice.tabular.cluster_models import LOSSES, OTHERS, Training, training
from suffice.tabular.columns import check_known, check_names, features, left_out, preparation_of
from suffice.tabular.models import MODELS, POSITIVE, USUAL, estimator_of
from suffice.tabular.notation import Form
from suffice.tabular.parts import Parts, find_parts, matrix, parts_of_frame, summarise, summed, target_values
from suffice.tabular.preparation import Hashed, Preparation, numbered, prepared
from suffice.tabular.run import PAGE, REPORT, RESULT, claim, save, told, write_page
from suffice.tabular.settings import FINAL_RADIUS, Settings
from suffice.tabular.summaries import Summary
from suffice.tabular.table import RECIPE, Reading, Recipe, TableError, quoted
from suffice.tabular.targets import check_classes, check_range, plain, task_of

MOST_SHUFFLED = 20_000_000  # rows that folds are shuffled for, here
LOOKS: dict[int, list[tuple[float, ...]]] = {
    1: [(0.0,), (1.5,), (3.0,), (4.5,)],
    2: [(0.5, 0.5), (1.0, 3.0), (2.0, 3.0), (2.5, 1.5), (3.5, 4.5)],
}  # decades
LOOK, LOOK_STEPS = 0.02, 12  # the accuracy of a look, relative to the root of the loss, and its most steps
PATIENCE = "10s"  # with a scheduler that does not answer
BEGIN = "begin.json"  # where the search begins, and what it leaves alone
RADIUS = 1e-6  # of the final model's coefficients, relative to their norm


@dataclass(frozen=True, eq=False)
class Found:
    """What a run has found."""

    result: Result
    model: str
    rows: int
    columns: int
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    notes: tuple[str, ...]
    passes: int
    radius: float
    seconds: float
    folder: Path
    model_file: Path | None
    page: Path | None
    failures: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        low, high = self.result.interval
        return {
            "success": bool(self.result.success),
            "message": self.result.message,
            "model": self.model,
            "rows": self.rows,
            "columns": self.columns,
            "penalties": {name: float(value) for name, value in (self.result.params or {}).items()},
            "score": -float(self.result.cost),
            "interval": [-high, -low],
            "evaluations": self.result.evaluations,
            "passes": self.passes,
            "radius": self.radius,
            "seconds": round(self.seconds, 3),
            "model_file": None if self.model_file is None else str(self.model_file),
            "report": None if self.page is None else str(self.page),
            "notes": list(self.notes),
            "failures": list(self.failures),
        }


TAKEN = (
    "data", "target", "model", "cv", "drop", "keep", "weights", "max_evaluations", "max_seconds", "seed", "no_report",
    "files", "cluster", "digest",
)  # fmt: skip


def check(settings: Settings) -> None:
    """ValueError for what a cluster does not do."""
    if settings.model in OTHERS:
        why, there = OTHERS[settings.model], ", ".join(LOSSES)
        raise TableError(f"--model {settings.model} is not for a cluster ({why}): {there} are")
    for item in fields(Settings):
        if item.name not in TAKEN and getattr(settings, item.name) != item.default:
            raise ValueError(f"--{item.name.replace('_', '-')} does not go with --cluster")


def lines(found: Found) -> list[str]:
    """For people."""
    low, high = found.plain()["interval"]
    penalties = ", ".join(f"{name} = {value:.4g}" for name, value in found.plain()["penalties"].items())
    score = "mean log loss" if found.model.startswith("logistic") else "mean squared error"
    score = "mean deviance" if found.model in POSITIVE else score
    return [
        *(f"Note     {note}" for note in found.notes),
        f"Table    {found.rows:,} rows, {len(found.numeric)} numeric and {len(found.categorical)} categorical columns",
        f"Best     {penalties}",
        f"Score    {score} {found.result.cost:.6g} of held-out rows, proven to lie in [{-high:.6g}, {-low:.6g}]",
        f"Model    {found.columns} coefficients within {found.radius:.2g} of the exact minimiser, all rows",
        f"Work     {found.result.evaluations} evaluations, {found.passes} passes over the rows, {found.seconds:.1f} s",
        f"Wrote    {found.model_file}",
        *([] if found.page is None else [f"Report   {found.page}"]),
        *(f"Failed   {failure}" for failure in found.failures),
    ]


def run(settings: Settings, folder: Path, *, callback: Callable[[Record], object] | None = None) -> Found:
    """Search, fit and write everything down."""
    began = time.monotonic()
    check(settings)
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise TableError("--cluster needs dask: pip install 'suffice[dask]'") from error
    parts = find_parts(settings.files)
    try:
        client = distributed.Client(settings.cluster, timeout=PATIENCE)
    except (OSError, TimeoutError) as error:
        raise TableError(f"no scheduler answers at {settings.cluster}: start one with `dask scheduler`") from error
    with client:
        return _run(settings, client, folder, parts, callback, began)


def tune_frame(
    frame: Any,
    target: str,
    out: str | os.PathLike[str],
    *,
    client: Any = None,
    callback: Callable[[Record], object] | None = None,
    **how: Any,
) -> Found:
    """`suffice tune --cluster`, for a `dask.dataframe` whose rows live on the cluster of `client`, or of the current
    `distributed.Client`.

    `target` names the column to predict, `out` is the run's folder: journal, model and report are there, `suffice
    predict` takes it, and the same call goes on where it was. `how` may be `model`, `cv`, `seed`, `drop`, `keep`,
    `weights`, `max_evaluations`, `max_seconds` and `no_report`, as on the command line. The result has `result`,
    `plain()` and `model_file`.
    """
    began, folder = time.monotonic(), Path(out)
    if not is_dask_frame(frame) or not hasattr(frame, "columns"):
        raise TypeError(f"frame must be a dask.dataframe, got {type(frame).__name__}")
    distributed: Any = import_module("distributed")
    client = distributed.get_client() if client is None else client
    lists = {name: tuple(value) for name, value in how.items() if name in ("drop", "keep")}
    settings = Settings(data="dask.dataframe", target=target, **{**how, **lists})
    check(settings)
    return _run(settings, client, folder, parts_of_frame(frame), callback, began)


def _run(settings: Settings, client: Any, folder: Path, parts: Parts, callback: Any, began: float) -> Found:
    settings = replace(settings, digest=blake2b(parts.name.encode(), digest_size=16).hexdigest())
    claim(folder, settings)
    notes: list[str] = []
    kinds, model, labels, classes = _columns(settings, client, parts, notes)
    numeric = {name: kind for name, kind in kinds.items() if kind != "text" and name != settings.target}
    levels = labels
    width = 2 * len(numeric) + sum(len(known) + 1 for known in levels.values())
    raw, y = _arrays(client, parts, numeric, levels, settings.target, kinds[settings.target], classes, width)
    weights = None if settings.weights is None else _column(parts, settings.weights, parts.kinds[settings.weights])
    sizes = tuple(len(known) + 1 for known in levels.values())
    numbers, held = _numbers(settings, raw, y, classes, notes)
    split = Split.of(raw, numbers, held, weights)
    preparations = prepared(raw, len(numeric), sizes, settings.cv, numbers)
    designs = together([partial(Design.of, raw.through(one, one.columns)) for one in preparations])
    count = len(classes or ())
    # each prepared by the statistics of its own rows
    folds = [training(split.training(designs[k], k), y, model, count) for k in range(settings.cv)]
    losses = [fold.held_out(split.held_out(designs[k], k), 1.0 / settings.cv) for k, fold in enumerate(folds)]
    space = _space(model, *(raw.run(Moments(), y=raw.rows_of(y)) / parts.rows))
    problem = BilevelProblem(folds, losses, space=space)
    begin = places.read(folder / BEGIN)
    if begin is None:
        theta, enough = _start(problem, folds)
        begin = {"theta": theta.tolist(), "enough": enough}
        places.write(folder / BEGIN, begin)
    options = Options(
        max_evaluations=settings.max_evaluations, max_seconds=_seconds(settings), final_radius=FINAL_RADIUS,
        enough=float(begin["enough"]),
    )  # fmt: skip
    if (folder / JOURNAL).exists():
        result = resume(folder, problem=problem, options=options, callback=callback)
    else:
        result = tune(problem, np.array(begin["theta"]), options=options, callback=callback, journal=folder)
    whole = training(split.whole(designs[-1]), y, model, count)
    params = dict(result.params or {})
    solution = solve(whole.at(**params), within=1e-3, solver="auto")
    size = float(np.linalg.norm(solution.x))
    solution = solve(whole.at(**params), within=max(RADIUS * size, 1e-12), solver="auto", warm=solution)
    fitted = _pipeline(preparations[-1], model, numeric, levels, classes, whole, solution.x, params, split.total)
    (file, _), failures = _saved(fitted, folder, settings.target, kinds, tuple(numeric), tuple(levels))
    passes = raw.passes
    page = None
    if not settings.no_report:
        made = cluster_report.Made(
            model, folds, losses, whole, solution, fitted, result, classes, parts.rows, split.total
        )  # fmt: skip
        columns = {"numeric columns": list(numeric), "categorical columns": list(levels)}
        more = len(settings.files) - 1
        name = Path(settings.data).name + (f" and {more} more" if more > 0 else "")
        about = cluster_report.about(made, name, settings.target, columns, notes, time.monotonic() - began)
        page = _report(made, about, folder, notes, failures)
    found = Found(
        result, model, parts.rows, designs[-1].shape[1], tuple(numeric), tuple(levels), tuple(notes), passes,
        solution.certificate.radius, time.monotonic() - began, folder, file, page, tuple(failures),
    )  # fmt: skip
    places.write(folder / RESULT, {"found": found.plain()})
    return found


def _report(
    made: cluster_report.Made, about: dict[str, Any], folder: Path, notes: list[str], failures: list[str]
) -> Path | None:
    """report.json and report.html; the model is there, and must not be lost for a figure."""
    try:
        data = cluster_report.collect(made, about)
        places.write(folder / REPORT, data)
        return write_page(folder, data)
    except ImportError as error:
        notes.append(f"{PAGE} needs {error.name}: pip install 'suffice[plot]', then run `suffice report`")
    except ClusterError:
        raise
    except Exception as error:
        failures.append(f"the report could not be made: {told(error)}")
    return None


def _seconds(settings: Settings) -> float:
    return math.inf if settings.max_seconds is None else settings.max_seconds


def _columns(settings: Settings, client: Any, parts: Parts, notes: list[str]) -> Any:
    """Columns that are used with their kinds, the model, levels of texts, and the classes to predict."""
    check_names(tuple(parts.kinds), tuple(parts.kinds), settings)
    kinds = {name: kind for name, kind in parts.kinds.items() if name not in settings.drop}
    dates = [name for name, kind in kinds.items() if kind == "date"]
    if dates:
        shown = " ".join(f"--drop {name}" for name in dates)
        raise TableError(f"columns of dates are not read on a cluster: {shown} leaves them out")
    read = {name: kind for name, kind in kinds.items() if kind != "other"}
    summary = import_module("dask").delayed(summarise, pure=False)
    summaries = summed(client.gather(client.compute([summary(part, read) for part in parts.parts])))
    model, classes = _target(settings, summaries.get(settings.target), parts, notes)
    if settings.weights is not None:
        one = summaries.get(settings.weights)
        known = [] if one is None else [*([math.nan] if one.missing else []), one.low, one.high]
        kind = "other" if one is None else one.kind
        check_known(settings.weights, kind, "weights", np.array(known), settings.target, notes)
    empty = [Summary(name, "other", 0, 0, 0, {}) for name in kinds if name not in read]
    columns = [*summaries.values(), *empty]
    numeric, levels, doubtful = features(columns, settings, left_out(settings), parts.what, notes)
    notes += [f"column {quoted(name)} is left out: {reason} (--keep uses it)" for name, reason in doubtful.items()]
    if not numeric and not levels:
        raise TableError("there is no column to learn from besides the target")
    labels = {name: np.array(list(summaries[name].levels or ())) for name in levels}
    used = {name: kinds[name] for name in (*numeric, *levels, settings.target)}
    return used, model, labels, classes


def _target(
    settings: Settings, target: Summary | None, parts: Parts, notes: list[str]
) -> tuple[str, tuple[Any, ...] | None]:
    """The model, and the classes if there are any."""
    name = quoted(settings.target)
    if target is None:
        what = parts.what[settings.target]
        raise TableError(f"the target {name} holds {what}, which is neither numbers nor text")
    if target.missing:
        rows = f"{target.missing:,} of {target.known + target.missing:,} rows"
        raise TableError(f"the target {name} is missing in {rows}")
    task = task_of(target, settings, notes)
    model = USUAL[task] if settings.model == "auto" else settings.model
    if task == "regression":
        check_range(settings.target, target.low, model, "somewhere")
        return model, None
    check_classes(target.levels or {}, model, settings, False, joins=False)
    return model, tuple(bool(value) if target.kind == "boolean" else plain(value) for value in target.levels or ())


def _arrays(
    client: Any, parts: Parts, numeric: Any, levels: Any, target: str, kind: Any, classes: Any, width: int
) -> tuple[ClusterRows, Any]:
    """The table as a matrix of numbers, and the target, on the cluster."""
    dask: Any = import_module("dask")
    da: Any = import_module("dask.array")
    columns = len(numeric) + len(levels)
    text = repr((parts.name, sorted(numeric), sorted(levels), target))
    token = blake2b(text.encode(), digest_size=8).hexdigest()
    read = dask.delayed(matrix, pure=False)
    X = da.concatenate(
        [
            da.from_delayed(read(part, numeric, levels, dask_key_name=f"table-{token}-{k}"), (rows, columns), float)
            for k, (part, rows) in enumerate(zip(parts.parts, parts.sizes, strict=True))
        ]
    )
    y = _column(parts, target, kind)
    if kind == "text":
        y = y.map_blocks(class_numbers, classes, dtype=float, meta=np.zeros(0))
    return ClusterRows(X, client, block=block_rows((parts.rows, width))), y


def _column(parts: Parts, name: str, kind: Any) -> Any:
    """One column, as it is, on the cluster."""
    dask, da = import_module("dask"), import_module("dask.array")
    read, dtype = dask.delayed(target_values, pure=False), object if kind == "text" else float
    token = blake2b(repr((parts.name, name)).encode(), digest_size=8).hexdigest()
    return da.concatenate(
        [
            da.from_delayed(read(part, name, kind, dask_key_name=f"column-{token}-{k}"), (rows,), dtype)
            for k, (part, rows) in enumerate(zip(parts.parts, parts.sizes, strict=True))
        ]
    )


def class_numbers(y: Any, classes: tuple[str, ...]) -> Array:
    """The number of every label's class, of sorted ones. In a worker."""
    numbers: Array = np.searchsorted(np.array(classes), y.astype(str)).astype(np.float64)
    return numbers


def _numbers(settings: Settings, raw: ClusterRows, y: Any, classes: Any, notes: list[str]) -> tuple[Any, list[int]]:
    """The fold that holds out each row, with the rows, and how many rows each fold has."""
    N = raw.shape[0]
    if settings.cv > N:
        raise TableError(f"the table has {N} rows, too few for {settings.cv} folds")
    if N <= MOST_SHUFFLED:
        labels = None if classes is None else raw.gathered(raw.rows_of(y))
        numbers = numbered(N, settings.cv, settings.seed, labels)
        return raw.rows_of(numbers), np.bincount(numbers, minlength=settings.cv).tolist()
    notes.append("folds are made of a hash of the number of the row and the seed")
    rows, counts = raw.run(Hashed(settings.cv, settings.seed))
    if not counts.all():
        raise TableError(f"the table has {N} rows, too few for {settings.cv} folds")
    return rows, [int(count) for count in counts]


@dataclass(frozen=True)
class Moments:
    """sum y and sum y^2. y is given."""

    reads: bool = False
    keeps: bool = False

    def __call__(self, block: Block) -> Array:
        y = block["y"].astype(np.float64)
        return np.array([y.sum(), y @ y])


def _space(model: str, mean: float, square: float) -> Space:
    """Ranges of penalties; of a regression's target the mean and the mean square are known."""
    usual = (1e-6, 1e2)
    scale = math.sqrt(max(square - mean * mean, 0.0)) or 1.0
    scales = {"elastic-net": (scale, 1.0), "poisson": (1.0, mean or 1.0)}
    scales["tweedie"] = (math.sqrt(abs(mean)) or 1.0,) * 2  # of the deviance, for power 1.5
    of_l1, of_l2 = scales.get(model, (1.0, 1.0))
    l1 = usual if model == "logistic" else (1e-6 * of_l1, 1e1 * of_l1)
    l2 = (usual[0] * of_l2, usual[1] * of_l2)
    return Space(l1=l1, l2=l2) if "l1" in MODELS[model].penalties else Space(l2=l2)


def _start(problem: BilevelProblem, folds: Sequence[Training]) -> tuple[Array, float]:
    """Where to begin, and what is not worth a search (`suffice.sklearn.enough`).

    The best of a few rough looks, from large penalties to small ones, each from where the last one ended: some decades
    below the l1 that leaves nothing, and below the largest curvature of the loss."""
    largest = {
        "l1": max(together([partial(getattr, fold, "l1_max") for fold in folds])),
        "l2": max(fold.steepness * fold.design.squared_norm for fold in folds),
    }
    lower, upper = problem.space.bounds
    tops = np.log10([largest[name] for name in problem.space.names])
    looks: list[Evaluation] = []
    within = math.inf
    for below in LOOKS[len(tops)]:
        theta = np.clip(tops - np.array(below), lower, upper)
        looks.append(problem.limited(LOOK_STEPS).evaluate(theta, within=within, warm=looks[-1] if looks else None))
        within = LOOK * math.sqrt(max(looks[-1].cost, 1e-300))
    best = min(looks, key=lambda one: one.interval[1])
    return best.point, worth(best, "statistical")


def _pipeline(
    preparation: Preparation,
    model: str,
    numeric: Any,
    levels: Any,
    classes: Any,
    whole: Training,
    w: Array,
    params: dict[str, float],
    total: float,
) -> Pipeline:
    """scikit-learn's own pipeline, with the statistics and coefficients that were found on the cluster: fitted to a few
    rows that have the medians, the missing entries and the levels of the table, and then given the rest."""
    import pandas

    categories = [_entries(known, preparation.levels[k]) for k, known in enumerate(levels.values())]
    length = max([2, len(classes or ()), *(len(known) for known in categories)])
    frame: dict[str, Any] = {}
    for j, name in enumerate(numeric):
        frame[name] = np.full(length, preparation.medians[j])
        if j in preparation.marked:
            frame[name][0] = math.nan
    for known, name in zip(categories, levels, strict=True):
        frame[name] = np.array([known[i % len(known)] for i in range(length)], dtype=object)
    most = max([2, *(len(known) for known in categories)])
    before = preparation_of(tuple(numeric), tuple(levels), most, dense=True)
    estimator = estimator_of(model)
    estimator.set_params(**cluster_report.words(model, params, total))
    if classes is not None:
        y = np.array([classes[i % len(classes)] for i in range(length)])
    else:
        y = np.abs(np.arange(length) % 2 + 1.0)
    X = pandas.DataFrame(frame)
    pipeline = Pipeline([("prepare", before), ("model", estimator)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a fit that is none
        pipeline.fit(X, y)
    if numeric:
        scaler = pipeline[0].named_transformers_["numeric"][-1]
        scaler.mean_, scaler.scale_ = preparation.means.copy(), preparation.scales.copy()
        scaler.var_, scaler.n_samples_seen_ = preparation.scales**2, whole.design.shape[0]
    coef, intercepts = whole.fitted(w)
    last = pipeline[-1]
    last.coef_ = coef if classes is not None else coef[0]
    last.intercept_ = intercepts if classes is not None else float(intercepts[0])
    return pipeline


def _entries(known: Array, levels: Any) -> list[Any]:
    """Levels as they stand in a frame; missing is NaN, and the last."""
    return [float("nan") if level == len(known) else str(known[level]) for level in levels]


def _saved(
    pipeline: Pipeline, folder: Path, target: str, kinds: Any, numeric: tuple[str, ...], levels: tuple[str, ...]
) -> Any:
    forms = {name: Form(kinds[name]) for name in (*numeric, *levels, target)}
    recipe = Recipe(target, (*numeric, *levels), levels, Reading(",", forms))
    places.write(folder / RECIPE, recipe.plain())
    return save(pipeline, folder)
