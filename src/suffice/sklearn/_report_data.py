"""What the figures of a search show of its models, as plain data: every function returns what JSON can hold.

Models of folds are those of the search. Others (at multiples of the best penalties, with scikit-learn's defaults) are
trained by `suffice.solve` from neighbours on, along the path until the distance of their weights from the exact ones is
proven to be at most ROUGH times the norm of the weights: figures show no more. Each of both kinds may take SHARE of the
steps that the search took, and no longer than a time that is given; what is not proven to POOR by then (to ROUGH, for
the scores of defaults) is left out. `accuracy` in the data is the largest distance that was proven over the largest
norm, of all models concerned; the distance itself if all are zero.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import hash as digest
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, column_or_1d

from suffice.arrays import Array, norm
from suffice.lazy import cached_property
from suffice.report.figures import Trace, changes
from suffice.rows.given import counted, here, indexed, numbered
from suffice.sklearn._final_fit import between, fitted_weights, solved
from suffice.sklearn._left_out_search import LeftOutFold, folds_of_rows, joined
from suffice.sklearn._preparation import in_place
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.left_out import LeftOutTask
from suffice.sklearn.measures import Predicted, compared_measures, share_interval
from suffice.sklearn.penalties import FeatureGroups, in_strength, kind_of, split_pipeline, strength
from suffice.sklearn.scores import score_of
from suffice.sklearn.splits import SearchData, Split, splitter_of
from suffice.sklearn.survival import survived
from suffice.sklearn.target import fitted_inside, inside, transforms_target
from suffice.solvers.solution import Solution

ACCURACY = 1e-4  # of the folds' models, where the search's cannot be used
ROUGH, POOR = 0.01, 0.1
SHARE, LEAST_STEPS = 0.25, 200
MULTIPLES = np.geomspace(100.0, 0.01, 25)  # of the best penalties, along the regularisation path
BINS = 10
MOST_LINES, MOST_NAMES, MOST_POINTS, MOST_CLASSES = 40, 200, 2000, 10

Data = dict[str, Any]


@dataclass(frozen=True)
class HeldOutFold:
    """A fold's model, and what it says about its held-out rows."""

    split: Split
    solution: Solution
    weighted: bool

    @cached_property
    def predictor(self) -> tuple[Any, Any]:
        return self.split.predictor(self.solution.x)

    @cached_property
    def predicted(self) -> Predicted:
        return self.split.predicted(*self.predictor, self.weighted)

    def scored(self, scorer: Any) -> float:
        """As the loss has targets and weights."""
        weight = {"sample_weight": self.split.weight} if self.weighted else {}
        return float(scorer(*self.predictor, self.split.labels, **weight))


class FittedSearch:
    """A fitted search with the data that it was fitted to, and its estimator taken apart."""

    def __init__(self, search: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> None:
        check_is_fitted(search, "best_penalties_")
        if y is None:
            raise ValueError("y must be the targets that the search was fitted to, got None")
        X, y = in_place(search, here(X), here(y))
        X, y = indexed(X, column_or_1d(y))
        width, known = getattr(X, "shape", ())[1:], getattr(search, "n_features_in_", None)
        if width and known is not None and width[0] != known:
            raise ValueError(f"X must have the {known} columns that the search was fitted to, got {width[0]}")
        weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != (len(y),):
            raise ValueError(f"sample_weight must have one entry per sample, {len(y)}, got shape {weight.shape}")
        self.search, self.X, self.y, self.groups = search, X, y, groups
        self.final, self.before = split_pipeline(search.estimator)
        grouped = None if search.groups_of_features is None else FeatureGroups.of(search)
        self.data = SearchData(search.estimator, X, y, weight, grouped)
        self.classes, self.known = self.data.classes, getattr(search, "_fold_weights", None)
        self.weighted = bool(np.any(weight != 1.0))
        if not numbered(X):
            self.data = self.data.sharing(self.splits)

    @cached_property
    def splits(self) -> list[tuple[Any, Any]]:
        """The folds, made again. Those of a splitter that shuffles without a seed are others than the search's."""
        splitter = splitter_of(self.search.cv, self.y, self.classes is not None)
        made = list(splitter.split(counted(self.X), self.y, self.groups))
        if len(made) != self.search.n_splits_:
            raise ValueError(f"cv gave {self.search.n_splits_} folds to the search, now it gives {len(made)}")
        return made

    @cached_property
    def folds(self) -> list[Split]:
        """The folds' problems and their held-out rows."""
        return [self.data.split(*rows, f"split {k} of cv", k) for k, rows in enumerate(self.splits)]

    @cached_property
    def task(self) -> LeftOutTask | None:
        """The groups of rows that the search has left out, if its models came from one."""
        if self.known is None or self.known.margins is None:
            return None
        return folds_of_rows(self.search, self.data, self.search.optimised_scoring_, {"groups": self.groups})

    def without_rows(self, penalties: dict[str, float]) -> list[LeftOutFold]:
        """What models without a group each say of it: the search's own at its best penalties."""
        assert self.task is not None and self.known is not None
        whole, known = self.task.whole, self.known
        rows, which = joined(self.task.groups)
        ours = penalties == self.search.best_penalties_ and known.rows == digest([rows, which])
        solution = known.solutions[0] if ours else trained(whole, penalties, ACCURACY)
        left = replace(self.task, penalties=lambda weights: (penalties["l1"], penalties["l2"]))
        margins = known.margins if ours else left.left_out(math.inf, self.search.optimised_scoring_).margin[rows]
        return [LeftOutFold(whole, solution, margins, rows, which, self.weighted)]

    def held_out(self) -> Sequence[HeldOutFold | LeftOutFold]:
        """One model per fold at the best penalties, with what it has not seen: the search's own if the folds are."""
        if self.task is not None:
            return self.without_rows(self.search.best_penalties_)
        if self.known is not None and self.known.rows == digest(self.splits):
            solutions = self.known.solutions
        else:
            solutions = [trained(one, self.search.best_penalties_, ACCURACY) for one in self.folds]
        return [
            HeldOutFold(split, solution, self.weighted) for split, solution in zip(self.folds, solutions, strict=True)
        ]

    def held_out_with_defaults(self, until: float = math.inf) -> Sequence[HeldOutFold | LeftOutFold]:
        """The same with scikit-learn's defaults of the parameters tuned; empty if that takes too long, or there are
        none that can be said in l1 and l2."""
        if self.task is not None:
            usual = _default_penalties(self, slice(None))
            return [] if usual is None else self.without_rows(usual)
        result, left = [], self.allowed()
        for k, split in enumerate(self.folds):
            there = _default_penalties(self, self.splits[k][0])
            if there is None:
                return []
            warm = None if self.known is None else self.known.solutions[k].x
            solution = trained(split, there, ACCURACY, warm, until=until, most=left)
            left -= solution.steps
            if solution.certificate.radius > ROUGH * norm(solution.x):
                return []
            result.append(HeldOutFold(split, solution, self.weighted))
        return result

    def allowed(self) -> int:
        """How many steps further models may take."""
        return max(LEAST_STEPS, int(SHARE * float(np.sum(self.search.cv_results_["work"]))))


def feature_names(search: Any, count: int) -> list[str]:
    """Names of what the linear estimator sees."""
    names: Any = getattr(search, "feature_names_in_", None)
    estimator = inside(search.estimator)
    if isinstance(estimator, Pipeline) and len(estimator.steps) > 1:
        try:
            best = getattr(search, "best_estimator_", None)
            names = None if best is None else fitted_inside(best)[:-1].get_feature_names_out(names)
        except (AttributeError, ValueError, TypeError):  # not every transformer knows
            names = None
    if names is None or len(names) != count:
        return [f"x{k}" for k in range(count)]
    given = set(map(str, getattr(search, "feature_names_in_", ())))
    return [name if name in given else _of_level(name) for name in map(str, names)]


def _of_level(name: str) -> str:
    """The name that an encoder or imputer gives to a column, for people: `hour_4.0` is hour_4, rare levels that were
    joined are other, and `missingindicator_hour` and `hour_nan` tell where hours are missing."""
    name = re.sub("infrequent_sklearn$", "other", re.sub(r"^missingindicator_(.+)|(.+)_nan$", r"\1\2 (missing)", name))
    return re.sub(r"(?<=_)(-?\d+)\.0$", r"\1", name)


def output_names(search: Any, count: int) -> list[str]:
    """What rows of coefficients belong to: classes, or nothing that needs a name."""
    return [str(label) for label in search.classes_] if count > 1 else [""] * count


def trained(split: Split, penalties: dict[str, float], accuracy: float, warm: Any = None, **limits: Any) -> Solution:
    """The model of all training rows; `penalties` has l1 and l2, of every group if there are groups."""
    return solved(split.penalised().at(**penalties), split.solver, accuracy, warm, **limits)


def accuracy_of(solutions: Iterable[Solution]) -> float | None:
    """The largest proven distance of weights over their largest norm; the distance itself if all weights are zero;
    None where one has no proof."""
    known = list(solutions)
    size = max(norm(solution.x) for solution in known)
    accuracy = max(solution.certificate.radius for solution in known) / (size if size > 0.0 else 1.0)
    return accuracy if math.isfinite(accuracy) else None


# --- the figures' data ---------------------------------------------------------------------------------------------


def course(search: Any) -> Trace:
    """Every evaluation of a search, and its incumbents."""
    check_is_fitted(search, "cv_results_")
    made, names, score = search.cv_results_, searched(search), score_of(search.optimised_scoring_)
    points = np.stack([made[f"penalty_{name}"] for name in names], axis=1)
    known = [search.result_.space.params(np.array(record.incumbent)) for record in search.result_.history]
    path = changes(np.array([[point[name] for name in names] for point in known]))
    ends = score.offset - made["test_score_high"], score.offset - made["test_score_low"]
    proof, work = (made["asked_error"], made["proved_error"]), made["work"].astype(float)
    cost, best = score.offset - made["mean_test_score"], points[search.best_index_]
    shown = tuple(names), (True,) * len(names), points, cost, *ends, *proof, work, (path,) if len(path) else (), best
    return Trace(*shown, score.loss)


def regularisation_path(task: FittedSearch, until: float = math.inf) -> Data:
    """Coefficients of models of all data, at multiples of the best penalties whose ratio stays; as far from the best
    ones as steps and time allow."""
    split = task.data.whole()
    best, left = task.search.best_penalties_, task.allowed()
    start = between(() if task.known is None else task.known.solutions, split.penalised().at(**best))
    centre = trained(split, best, ROUGH, start, until=until)
    made = {1.0: centre}
    for way in ([m for m in MULTIPLES[::-1] if m > 1.0], [m for m in MULTIPLES if m < 1.0]):
        model = centre
        for multiple in way:
            scaled = {name: float(value * multiple) for name, value in best.items()}
            model = trained(split, scaled, ROUGH, model, until=until, most=left)
            left -= model.steps
            if model.certificate.radius > POOR * max(norm(model.x), norm(centre.x)):
                break
            made[float(multiple)] = model
    multiples = sorted(made, reverse=True)
    coefs = np.array([np.atleast_2d(split.model.coefficients(made[multiple].x)[0]) for multiple in multiples])
    if hasattr(task.search, "best_estimator_") and task.search.refit != "sklearn":  # what is delivered, by our solver
        coefs[multiples.index(1.0)] = final_estimator(task.search).coef_
    outputs, features = coefs.shape[1:]
    names, of = feature_names(task.search, features), output_names(task.search, outputs)
    largest = np.abs(coefs).max(axis=0).ravel()
    shown = np.sort(np.argsort(-largest, kind="stable")[:MOST_LINES])
    return {
        "multiples": multiples,
        "left_out": len(MULTIPLES) - len(multiples),
        "penalties": best,
        "lines": [
            {"name": names[k], "output": of[j], "values": coefs[:, j, k]}
            for j, k in (divmod(one, features) for one in shown.tolist())
        ],
        "nonzero": [np.count_nonzero(coef) for coef in coefs],
        "coefficients": outputs * features,
        "accuracy": accuracy_of(made.values()),
    }


def final_estimator(search: Any) -> Any:
    """The linear estimator inside the one that is delivered."""
    return split_pipeline(fitted_inside(search.best_estimator_))[0]


def coefficients(search: Any, task: FittedSearch | None = None) -> Data:
    """The coefficients of the final model, largest first; of our own model of all data if the search did not refit."""
    if hasattr(search, "best_estimator_"):
        final = final_estimator(search)
        coef, intercept = final.coef_, final.intercept_
        source = "best_estimator_" if search.refit == "sklearn" else "certified"
    elif task is not None:
        split = task.data.whole()
        coef, intercept = split.model.coefficients(fitted_weights(split, search.best_penalties_)[1].x)
        source = "suffice"
    else:
        raise AttributeError(f"{type(search).__name__}(refit={search.refit!r}) has no best_estimator_, no coefficients")
    coef = np.atleast_2d(coef)
    outputs, features = coef.shape
    names, of = feature_names(search, features), output_names(search, outputs)
    largest = np.abs(coef).max(axis=0)
    order = [k for k in np.argsort(-largest, kind="stable").tolist() if largest[k] > 0.0][:MOST_NAMES]
    return {
        "source": source,
        "names": [names[k] for k in order],
        "outputs": of,
        "values": coef[:, order],
        "intercepts": np.broadcast_to(np.asarray(intercept, dtype=np.float64), (outputs,)),
        "features": features,
        "nonzero": np.count_nonzero(largest),
    }


def calibration(held: Sequence[Any], labels: Any = None) -> Data:
    """Predictions of rows not seen in training: curves of classes over probabilities or margins, pairs for regression,
    or what became of rows by predicted risk."""
    found = Predicted.joined([one.predicted for one in held])
    y, classes, p, accuracy = found.y, found.classes, found.decided, accuracy_of(one.solution for one in held)
    if found.survival:
        models = [(*one.predictor, one.split.model, one.solution.x) for one in held]
        return {**survived(models, found), "kind": "survival", "accuracy": accuracy}
    told = {"samples": len(y), "accuracy": accuracy}
    if classes is None or p is None:
        step = max(1, math.ceil(len(y) / MOST_POINTS))
        pairs = {"true": y[::step].astype(float), "predicted": found.predicted[::step].astype(float)}
        return {"kind": "regression", **pairs, **told}
    names = [str(label) for label in (classes if labels is None else labels)]
    kind = "reliability" if hasattr(held[0].split.estimator, "predict_proba") else "margins"
    p = np.stack([-p, p], axis=1) if p.ndim == 1 else p
    chosen = range(1, 2) if len(classes) == 2 else range(min(len(classes), MOST_CLASSES))
    curves = [_reliability(p[:, k], y == classes[k], names[k]) for k in chosen]
    return {"kind": kind, "curves": curves, "classes": len(classes), **told}


def _reliability(p: Array, hit: Any, label: str) -> Data:
    """Bins of equal size: what is predicted in the mean and the share of rows of the class, with a 90 % interval."""
    parts = np.array_split(np.argsort(p, kind="stable"), min(BINS, max(1, len(p) // 5)))
    hits, counts = np.array([[int(np.sum(hit[part])), len(part)] for part in parts]).T
    low, high = share_interval(hits, counts, 0.9)
    return {
        "label": label,
        "predicted": [p[part].mean() for part in parts],
        "observed": hits / counts,
        "low": low,
        "high": high,
        "count": counts,
    }


def measures(task: FittedSearch, held: Sequence[Any], default: Sequence[Any], inverse: Any, labels: Any) -> Data:
    """Of all rows, in the target's own units; and of every fold its scores and `Predicted.main`. All of it of the best
    penalties, and of scikit-learn's defaults of the parameters tuned."""
    search, both = task.search, {"tuned": held, "default": default}
    scorers = {search.optimised_scoring_: score_of(search.optimised_scoring_).scorer}
    if not transforms_target(search.estimator):  # whose models are compared for transformed targets
        scorers |= search.scorers_
    told = {key: [one.predicted for one in folds] for key, folds in both.items()}
    main, again = search.held_out_.main, Predicted.joined(told["tuned"])
    folds = {key: [one.in_units(inverse).measured().get(main) for one in made] for key, made in told.items()}
    usual = Predicted.joined(told["default"]) if default else None
    return {
        **compared_measures(search.held_out_, search.baseline_, usual, inverse, labels),
        "folds": {"measure": main, **{key: [] if None in values else values for key, values in folds.items()}},
        "scores": {
            name: {key: [one.scored(scorer) for one in folds] for key, folds in both.items()}
            for name, scorer in scorers.items()
        },
        "defaults": _defaults(task),
        "same_folds": all(np.array_equal(getattr(again, of), getattr(search.held_out_, of)) for of in ("y", "weight")),
    }


def searched(search: Any) -> list[str]:
    """The names of the parameters searched."""
    return [key.removeprefix("penalty_") for key in search.cv_results_ if key.startswith("penalty_")]


def _default_penalties(task: FittedSearch, train: Any) -> dict[str, float] | None:
    """l1 and l2, of every group, that scikit-learn's defaults stand for in a fit to these rows."""
    defaults = _defaults(task)
    estimator = clone(task.final).set_params(**defaults)
    adapter = find_adapter(estimator)
    ratio = adapter.ratio(estimator)
    y = task.data.y[train]
    total = float(adapter.weights(estimator, y, task.data.weight[train], task.classes).sum())
    try:
        word = strength(estimator, adapter, ratio)
        value = float(getattr(estimator, word))
        s = in_strength((value, value), word, estimator, adapter, total)[0]
    except (ValueError, AttributeError):
        return None
    return {name: s * (ratio if kind_of(name) == "l1" else 1.0 - ratio) for name in task.search.best_penalties_}


def _defaults(task: FittedSearch) -> Data:
    known = inspect.signature(type(task.final).__init__).parameters
    kinds = tuple(dict.fromkeys(kind_of(name) for name in searched(task.search)))
    names = find_adapter(task.final).params(task.final, 1.0, 1.0, 1.0, kinds)
    return {
        name: known[name].default for name in names if name in known and isinstance(known[name].default, int | float)
    }
