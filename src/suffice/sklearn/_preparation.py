"""Before a search: what `fit` is given, checked and passed on by scikit-learn's rules, and the folds, the space and the
scores that follow from it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from suffice.arrays import Array, outside_stacklevel, positive
from suffice.evaluation import Evaluation
from suffice.executors.pools import MANY, Threads, Worthwhile
from suffice.journal.answers import Journal
from suffice.journal.fingerprint import Fingerprint
from suffice.models.cox import signed_times
from suffice.options import BUDGETS, Options
from suffice.rows import given
from suffice.rows.given import Place, counted, here, in_main_memory, numbered, read_by_sklearn
from suffice.rows.gram import fits_array
from suffice.rows.margins import one_by_one, together, together_if_dear
from suffice.search.bilevel import BilevelProblem
from suffice.sklearn import _l2_first
from suffice.sklearn._final_fit import FoldWeights, held_out
from suffice.sklearn._left_out_search import LeftOutProblem, few_folds, folds_of_rows, left_out_fold
from suffice.sklearn.adapters import find_adapter, misunderstood
from suffice.sklearn.folds import Softmax
from suffice.sklearn.left_out import LeftOutTask
from suffice.sklearn.measures import Predicted
from suffice.sklearn.penalties import FeatureGroups, PenaltySpace, split_pipeline, step_to
from suffice.sklearn.scores import score_of, scorer_of, scoring_name
from suffice.sklearn.splits import STEPS, SearchData, Split, prepares_rows, splitter_of
from suffice.sklearn.target import inside, transforms_target

ON_DEVICES = "LogisticRegression (two classes, any solver but liblinear), ElasticNet, Lasso and Ridge (one target)"
LARGEST_TARGET = 1e150  # the sum of squares of so many is finite


def routed(search: Any, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Arguments of the final fit and of the splitter, and the sample weights: by metadata routing where it is enabled,
    else `sample_weight` and `groups` by name."""
    estimator = inside(search.estimator)
    name = "sample_weight" if not isinstance(estimator, Pipeline) else f"{estimator.steps[-1][0]}__sample_weight"
    if get_config()["enable_metadata_routing"]:
        found = process_routing(search, "fit", **params)
        fit = dict(found.estimator.fit)
        weights = [value for key, value in fit.items() if key.endswith("sample_weight")]
        return fit, dict(found.splitter.split), weights[0] if weights else None
    known = {"sample_weight", name, "groups"}
    if unknown := set(params) - known:
        raise TypeError(f"fit takes {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
    weight = params.get("sample_weight", params.get(name))
    return {} if weight is None else {name: weight}, {"groups": params.get("groups")}, weight


def in_place(search: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """X where it is, if the models of a search take it there, and y on this machine."""

    def why_here() -> str:
        final, before = split_pipeline(search.estimator)
        if not find_adapter(final).takes_blocks(final):
            return f"{final} needs it"
        if transforms_target(search.estimator):
            return "a transformed target needs it"
        if not prepares_rows(before):
            return f"steps before the estimator need it, but for {STEPS}"
        return "" if search.device is None else f"device={search.device!r} needs it"

    return given.in_place(X, y, type(search).__name__, why_here)


def checked(search: Any, X: Any, y: Any, sample_weight: Any, several: bool = False) -> tuple[Any, Any, Array]:
    """X, y and the sample weights; a table stays one, so that steps before the estimator see its columns. `several`:
    whether y may have several columns."""
    if y is None:
        raise ValueError(f"This {type(search).__name__} estimator requires y to be passed, but the target y is None.")
    if getattr(getattr(y, "dtype", None), "names", None):
        y = signed_times(y)  # of survival: events and times
    labels, estimator = is_classifier(search.estimator), inside(search.estimator)
    y, sample_weight = here(y), here(sample_weight)
    shape = np.asarray(y).shape
    several = several and len(shape) == 2 and shape[1] > 1 and given.numbered(X)
    if not read_by_sklearn(X) or (isinstance(estimator, Pipeline) and len(estimator.steps) > 1):
        X = X if read_by_sklearn(X) else given.checked_in_place(X, type(search).__name__)
        validate_data(search, X, skip_check_array=True)
        y = check_array(y, dtype=np.float64) if several else column_or_1d(y, warn=True)
        check_consistent_length(y, counted(X))
    else:
        how = {"accept_sparse": ("csr", "csc"), "dtype": np.float64, "y_numeric": not labels, "multi_output": several}
        numbers, y = validate_data(search, X, y, **how)
        X = X if hasattr(X, "columns") else numbers
    if labels:
        check_classification_targets(y)
    else:
        y = np.asarray(y, dtype=np.float64)
        largest = float(np.max(np.abs(y), initial=0.0))
        if largest > LARGEST_TARGET:
            raise ValueError(
                f"y must not hold numbers beyond {LARGEST_TARGET:g}, whose squares are no longer finite, got "
                f"{largest!r}: divide it by a constant"
            )
    X, y = given.indexed(X, y)
    rows = np.broadcast_to(0.0, (len(y), 1))
    return X, y, _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)


@dataclass(frozen=True)
class Scores:
    """Which score is optimised, which one was asked for, and all scorers by name; `surrogate`: whether the first stands
    in for the second."""

    optimised: str
    asked: str
    scorers: dict[str, Any]
    surrogate: bool

    @classmethod
    def of(cls, search: Any, adapter: Any, several: bool) -> Scores:
        """`several`: whether there are several targets, whose mean of roots is no root of F."""
        given, transforms = scorings(search.scoring), transforms_target(search.estimator)
        smooth = [name for name in adapter.scorings if not (several and score_of(name).root)]
        asked = search.refit if isinstance(search.refit, str) and search.refit in given else next(iter(given), None)
        scoring = smooth[0] if asked is None else given[asked]
        named = isinstance(scoring, str) and scoring in smooth
        optimised = scoring if named else smooth[0]
        name = optimised if asked is None else asked
        surrogate = not named or (asked is not None and transforms)
        if surrogate:
            why = "not a smooth score" if not named else "the score of targets before they are transformed"
            of = " of transformed targets" if transforms else ""
            warnings.warn(
                f"scoring={name!r} is {why}: {optimised}{of} is optimised in its place, and {name!r} is reported",
                stacklevel=outside_stacklevel(),
            )
        return cls(optimised, name, {key: scorer_of(one) for key, one in (given or {name: scoring}).items()}, surrogate)


def scorings(scoring: Any) -> dict[str, Any]:
    """What was asked for, by name; empty for None."""
    if scoring is None:
        return {}
    if isinstance(scoring, set | frozenset):
        scoring = sorted(scoring, key=str)
    several = scoring if isinstance(scoring, list | tuple) else [scoring]
    found = dict(scoring) if isinstance(scoring, Mapping) else {scoring_name(one): one for one in several}
    if not found:
        raise ValueError("scoring must name a score at least, got none")
    return found


@dataclass(frozen=True)
class SearchPreparation:
    """What a search is about; `splits` are the row numbers of `folds`."""

    data: SearchData
    splits: list[Any]
    folds: list[Split]
    space: PenaltySpace
    scores: Scores
    options: Options
    fit_params: dict[str, Any]  # of the final fit
    l2_first: bool = False  # whether l1 has to pay (`suffice.sklearn._l2_first`)
    task: LeftOutTask | None = None  # rows that are left out one by one, or many groups; folds are a few then

    @property
    def count(self) -> int:
        """Folds that F is the mean of."""
        return len(self.folds if self.task is None else self.task.groups)

    def problem(self, jobs: int, space: PenaltySpace | None = None) -> BilevelProblem:
        """The mean loss over folds, by so many processes where they pay; over another space than the search's, if one
        is given."""
        if self.task is not None:
            return LeftOutProblem(self.task, self.scores.optimised, self.space)
        return self.by_folds(min(jobs, len(self.folds)), space)

    def by_folds(self, jobs: int = 1, space: PenaltySpace | None = None) -> BilevelProblem:
        """The same, each fold trained."""
        folds, scoring, space = self.folds, self.scores.optimised, space or self.space
        each = together_if_dear([fold.model for fold in folds])
        return BilevelProblem(
            [fold.penalised(space.ratio) for fold in folds],
            each([partial(fold.loss, scoring, len(folds)) for fold in folds]),
            space=space.space,
            solver=folds[0].solver,
            executor=None if jobs < 2 else Threads(jobs) if self._large else Worthwhile(jobs),
        )

    @property
    def _large(self) -> bool:
        """Whether threads hardly wait for Python."""
        designs = [getattr(fold.model, "design", None) for fold in self.folds]
        return all(one is not None and one.rows.full and math.prod(one.shape) >= MANY for one in designs)

    def scored(self, problem: Any) -> Callable[[Evaluation, Any], list[float]]:
        """Scores of all folds by an evaluation and a scorer, as accurate as its models are."""
        if self.task is not None:
            return lambda made, scorer: left_out_fold(problem, made).scores(scorer)
        return lambda made, scorer: [
            fold.scored(scorer, one.x) for fold, one in zip(self.folds, made.solutions, strict=True)
        ]

    def weights(self, problem: Any, best: Evaluation) -> FoldWeights:
        """What the search keeps of the best models."""
        if self.task is None:
            return FoldWeights.of(self.splits, best.solutions)
        return FoldWeights.of([problem.groups.rows, problem.groups.which], best.solutions, problem.margins(best))

    def held_out(self, problem: Any, best: Evaluation) -> tuple[Predicted, Predicted]:
        """Predictions of the folds' models for the rows that they have not seen, and those of the target alone."""
        if self.task is None:
            return held_out(self.folds, self.splits, best.solutions, self.data)
        fold = left_out_fold(problem, best)
        return fold.predicted, fold.of_the_target_alone()


def prepared(search: Any, X: Any, y: Any, fit_params: dict[str, Any], splits: Any = None) -> SearchPreparation:
    """The preparation of a `SufficeSearchCV`; whatever is wrong with its arguments or data is said here. `splits` take
    the place of its own."""
    final, before = split_pipeline(search.estimator)
    adapter = find_adapter(final)
    _check(search, final)
    fit_params, of_splitter, weight = routed(search, fit_params)
    several = adapter.several and not transforms_target(search.estimator)
    X, y, weight = checked(search, X, y, weight, several)
    grouped = None if search.groups_of_features is None else FeatureGroups.of(search)
    place = Place.of(search.device, X)
    why = None if place is None else refused(search, X, y, adapter, final, before is not None)
    if why is not None:
        if search.device is not None or not in_main_memory(X):
            raise ValueError(why)
        X, place = here(X), None
    data = SearchData(clone(search.estimator), X, y, weight, grouped, place=place)
    adapter.targets(final, y, data.classes)
    groups = () if grouped is None else grouped.names
    space = PenaltySpace.of(search.space, final, adapter, groups, step=step_to(search.estimator), total=data.total)
    scores = Scores.of(search, adapter, np.ndim(y) == 2)
    task = folds_of_rows(search, data, scores.optimised, of_splitter)
    if task is not None:
        splits = few_folds(task)
    elif splits is None:
        splitter = splitter_of(search.cv, y, is_classifier(search.estimator))
        splits = list(splitter.split(counted(X), y, **of_splitter))
    data = data.sharing(splits)
    made = [partial(data.split, train, test, f"split {k} of cv", k) for k, (train, test) in enumerate(splits)]
    folds = [made[0](), *(one_by_one if numbered(data.X) else together)(made[1:])]  # norms of rows are held once
    dear = search.initial is None and search.refit != "one_se" and space.ours == {"l1", "l2"} and not groups
    dear = dear and isinstance(getattr(folds[0].model, "learner", None), Softmax)
    space = space.of_data([fold.model for fold in folds])
    options = _options(search, len(space.names))
    return SearchPreparation(
        data, splits, folds, _l2_first.with_none(space) if dear else space, scores, options, fit_params, dear, task,
    )  # fmt: skip


def refused(search: Any, X: Any, y: Any, adapter: Any, final: Any, steps: bool) -> str | None:
    """Why this is not done on a device; None where it is."""
    why = f"device={search.device!r}" if search.device is not None else "X on a device"
    if not adapter.shares_rows(final) or np.ndim(y) != 1 or (is_classifier(final) and len(np.unique(y)) > 2):
        return f"{why} is for {ON_DEVICES}: other models take X in main memory, got {type(final).__name__}"
    if steps and not read_by_sklearn(X):
        return "steps of a pipeline take X in main memory: give it as such, and device=... for the folds"
    if not fits_array(X):
        return f"{why} takes a dense X, got {type(X).__name__}"
    if effective_n_jobs(search.n_jobs) > 1:
        return f"{why} goes with n_jobs=1: the device does the work, got n_jobs={search.n_jobs!r}"
    if search.certify_global is not None:
        return f"certify_global takes X in main memory, got {why}"
    return None


def _check(search: Any, final: Any) -> None:
    """Whether its arguments go together."""
    strange = misunderstood(final)
    if strange is not None:
        raise ValueError(strange)
    if isinstance(search.tolerance, str) and search.tolerance != "statistical":
        raise ValueError(f"tolerance must be 'statistical' or a positive number, got {search.tolerance!r}")
    if not isinstance(search.tolerance, str):
        positive(search.tolerance, "tolerance")
    if search.refit not in (True, False, "one_se", "sklearn", *scorings(search.scoring)):
        raise ValueError(
            f"refit must be True, False, 'one_se', 'sklearn' or the name of one of the scores, got {search.refit!r}"
        )
    if search.refit == "sklearn" and search.groups_of_features is not None:
        raise ValueError("refit='sklearn' has one penalty for all columns, groups_of_features has several")
    if search.certify_global is not None:
        positive(search.certify_global, "certify_global")
    if search.callback is not None and not callable(search.callback):
        raise TypeError(f"callback must be callable, got {search.callback!r}")


def _options(search: Any, parameters: int) -> Options:
    seed = None if search.random_state is None else int(check_random_state(search.random_state).randint(2**31))
    options = search.options
    if options is None:
        options = Options(max_evaluations=max(60, 30 + 15 * parameters), final_radius=1e-3, seed=seed)
    if not isinstance(options, Options):
        raise TypeError(f"options must be suffice.Options or None, got {search.options!r}")
    return options


def journal_of(search: Any, problem: BilevelProblem, known: SearchPreparation) -> Journal:
    """Its journal, which refuses other folds and settings by name; budgets may differ."""
    if not isinstance(search.journal, str | os.PathLike):
        raise TypeError(f"journal must be a folder or None, got {search.journal!r}")
    found = Fingerprint()
    found.add("folds", problem)
    found.add("estimator", type(split_pipeline(search.estimator)[0]))
    for name in ("tolerance", "initial", "refit"):
        found.add(name, getattr(search, name))
    found.add("scoring", known.scores.optimised)
    for name, value in vars(known.options).items():
        if name not in BUDGETS:
            found.add(f"options.{name}", value)
    return Journal(search.journal).continued(found.parts)
