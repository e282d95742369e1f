r"""Cross-validated tuning of penalties, with proven bounds on the cross-validation score.

Every fold is a lower-level problem with its own held-out loss:

    F(l1, l2) = (1/K) sum_k loss_k( w_k(l1, l2) ),        w_k = argmin of the training objective of fold k,

which is minus the mean test score that `GridSearchCV` would report for an estimator fitted without any error (1 minus
it for r2). `suffice.tune` minimises F; each fold is trained as accurately as the next decision needs and no further.
Penalties are in units of the mean over samples, so that they carry over from folds to all data.

A score that is not smooth, such as accuracy, cannot be optimised this way: a smooth one stands in for it
(`optimised_scoring_`, and a warning), and the score that was asked for is reported.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from suffice import plots
from suffice.arrays import outside_stacklevel
from suffice.evaluation import Evaluation
from suffice.globally import GlobalOptions, certify_global
from suffice.globally.certificate import INTERRUPTED
from suffice.globally.models import folds_of
from suffice.options import Options
from suffice.report.formats import interval, settings
from suffice.result import Record, Status
from suffice.rows.given import here
from suffice.rows.sums import one_thread
from suffice.search.bilevel import BilevelProblem
from suffice.signals import at_once
from suffice.sklearn import _l2_first, _left_out_search, _report_data, survival
from suffice.sklearn._delegated import of_the_best, survives
from suffice.sklearn._final_fit import (
    fit_final,
    in_the_estimators_words,
    table_of_evaluations,
    table_of_scores,
    without_data,
)
from suffice.sklearn._penalty_search import PenaltySearch
from suffice.sklearn._preparation import SearchPreparation, in_place, journal_of, prepared
from suffice.sklearn._recorded import RecordedProblem, Tolerance, fold_losses
from suffice.sklearn.adapters import find_adapter
from suffice.sklearn.intervals import TellsHowSure, Training
from suffice.sklearn.penalties import split_pipeline
from suffice.sklearn.scores import score_of
from suffice.sklearn.splits import splitter_of
from suffice.sklearn.target import fitted_inside, transformed, transforms_target
from suffice.sklearn.update import StillGood, kept_for_updates, updated

GLOBAL_EVALUATIONS = 2000  # of a global certificate
SHARE_OF_CERTIFICATE = 0.8  # of max_seconds: when it ends at the latest
SMALL = 1_000_000  # numbers of X: threads of BLAS wait for each other longer than they work on fewer
GRACE = 1.2  # seconds for what follows a search that was interrupted


class SufficeSearchCV(TellsHowSure, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Cross-validated search for the penalties of a linear estimator, with a proven interval of the score.

    Parameters
    ----------
    estimator : LogisticRegression, LinearSVC (squared hinge, two classes), ElasticNet, Lasso, Ridge (one target or
        several), MultiTaskElasticNet, MultiTaskLasso, QuantileRegressor, PoissonRegressor, GammaRegressor,
        TweedieRegressor, RidgeClassifier, ElasticNetGLM, estimators of skglm (see the guide),
        any that `register_adapter` has made known; a Pipeline that ends in one, whose steps are fitted inside every
        fold; or a TransformedTargetRegressor around one: scores are then proven for transformed targets.
    space : dict of names to ranges, default None
        "l1" and/or "l2", penalties in units of the mean loss over samples; one that is not named follows by the
        estimator's `l1_ratio`. Or scikit-learn's words: "C" or "alpha", alone or with "l1_ratio", which stand for the
        ranges of l1 and l2 that hold them all. Names may have the step of a pipeline in front ("clf__C"). A range is
        (lower, upper), or a list, an array or a distribution that has ends. None in place of a range, or of all: what
        the data give, l1 from 1e-8 of the one that makes all weights zero to that one, l2 from 1e-11 to 1e3 of the
        loss's largest curvature. A UserWarning tells of best penalties on an edge of a range that was given, unless the
        loss is level.
    cv : as in scikit-learn; "loo" for LeaveOneOut(), whose models come from that of all rows where that can be proven.
    scoring : str, callable, list or dict, default None
        A smooth score: "neg_log_loss" or "neg_brier_score" (LogisticRegression), "neg_mean_squared_error",
        "neg_root_mean_squared_error" (whose squares are optimised) or "r2" (ElasticNet, Lasso, Ridge),
        "neg_mean_poisson_deviance" (PoissonRegressor) and deviances of
        other families; None: the first of them, for LinearSVC minus the squared hinge. Any other scorer is reported
        only: the first smooth one is optimised in its place, with a warning. Of several the first, or the one that
        `refit` names, is tuned, and all are in `cv_results_` (mean_test_<name> and so on).
    refit : bool, "one_se", "sklearn" or the name of one of several scores (like True), default True
        How to fit the best penalties to all data. True: by our own solver, to six digits where arithmetic allows
        (`coef_radius_` has what is proven), inside a clone of the estimator: the model that you get is the one that was
        scored. "one_se": the same with the largest multiple of the penalties whose loss is within one standard error
        (over folds) of the best. "sklearn": by the estimator's own `fit`, with a `ConvergenceWarning` if its
        coefficients are proven to lie farther from exact ones than 1 % of their norm. False: not at all.
    tolerance : "statistical" or float, default "statistical"
        When to end. "statistical": let e be 1 % of the standard error of the loss over folds, and no more than 0.02 %
        of the loss. The search ends when its model promises no decrease of more than e near the best penalties (no
        proof: `result_.message` says what is), and the loss is proven to lie in an interval no wider than e, where
        arithmetic allows. A number: down to `options.final_radius`, the interval no wider than it times the loss.
    initial : dict, default None
        Where to begin, by name; None: where a rough view of all the space, its edges included, is best.
    options : suffice.Options, default None
        Of the search. None: at most 60 evaluations (30 + 15 for every parameter, if there are more than two), down to
        steps of a thousandth of the space. max_evaluations and max_work do not count first looks and the last, accurate
        evaluation. max_seconds are for all of `fit`: the search ends when 70 % of them have passed, the last evaluation
        at 85 %, the final fit has the rest; what is under way then is given up (in the main thread).
    n_jobs : int, default None
        Threads, for a large dense X, or else processes that folds are spread over, at most, from the moment on at which
        they pay: until then one does all, to the same bits. None: 1.
    device : device of torch, such as "cuda" or "cuda:1", default None
        Where rows of folds live, in float64; None: where X is, which may be an array of torch, CuPy or JAX. For dense X
        and LogisticRegression (two classes, any solver but liblinear), ElasticNet, Lasso and Ridge; steps of a pipeline
        are fitted in main memory. The final model is NumPy's, and so are predictions.
    random_state : int, RandomState or None
        None: the search takes its first steps along the axes; else along a random basis.
    verbose : int
        1: what is searched, and what was found; 2: a line for every evaluation; 3: with the loss of every fold.
    journal : folder, default None
        Every evaluation is on disk there before the next one begins. Another fit with the same journal, data and
        settings takes up what was interrupted at any moment, and ends at the same bits; budgets of `options` may
        differ. Other data or settings are refused with what has changed.
    callback : callable, default None
        Given the `suffice.result.Record` of every evaluation that is made. StopIteration raised in it ends the search,
        and so does Ctrl-C: `fit` goes on with the best penalties so far, and `result_.status` says why. With a journal
        KeyboardInterrupt is raised if the final model takes longer than a second.
    groups_of_features : dict of names to columns, default None
        Groups with penalties of their own: column names, numbers, slices, masks, or functions that make a mask of the
        list of all names; columns in no group form the group "others". `space` then takes "l1_<group>" and
        "l2_<group>"; "l1" and "l2" are common to all groups that have none of their own, and one that is not named
        follows by `l1_ratio`. None there: one parameter for every group. Columns are those of X if the steps of a
        pipeline keep them one to one, else those that the last step puts out. Many parameters fit the folds more
        closely than few: without groups that truly differ, or with few rows, two penalties may do better on new data.
    certify_global : float, default None
        Prove, after the search, that no penalties in the space are better by more than this share of the loss, by 2000
        evaluations and 80 % of max_seconds at most. For Ridge, Lasso, ElasticNet, LogisticRegression (two classes)
        and PoissonRegressor without `groups_of_features`. Better penalties that are found become the best ones.

    Attributes
    ----------
    best_params_ : dict, in the estimator's words (C, l1_ratio, alpha), for all data; with `groups_of_features`, which
        it has no words for, the same as `best_penalties_` : dict of "l1" and "l2" (of every group) in our units.
    best_score_ : float, mean test score as `scoring` has it, of the folds' models at the best penalties.
    score_interval_ : (low, high), in which that score is proven to lie for models trained without error: infinite where
        another one was optimised in its place (`surrogate_` : bool).
    optimised_scoring_ : str, the score that was optimised; `optimised_interval_` : (low, high), the same of it.
    cv_results_ : dict of arrays, one row per evaluation: the penalties, the score of every fold and their mean, what
        accuracy was asked for and proved, the work it took, its seconds by the clock over the number of folds
        (mean_fit_time; not a number where a journal had it, as are times that are not taken), and its purpose:
        "overview", "search", "final", "one standard error" or "global" (where `certify_global` has found something
        better).
    coef_radius_ : float, a proven bound on the distance ||coef_ - exact||_2 of the coefficients of `best_estimator_`
        from the exact minimiser's at the best penalties; infinite where nothing can be proven.
    l2_floor_ : float, the l2 that stands in for none with a pure l1 penalty where that may not be verified (more than
        two classes) or was not (columns of which some add up to others); the largest over folds, 0 otherwise.
    held_out_ : `suffice.sklearn.measures.Predicted`, what the folds' models at the best penalties say of the rows that
        they have not seen, fold after fold, with `measured()` and `confusion()`; `baseline_` the same of models that
        know the target only: the most frequent class, or the mean.
    global_gap_ : float, with `certify_global`: no penalties in the space have a loss that is lower by more than this
        share; `global_certificate_` : suffice.GlobalCertificate, with `plot()`.
    estimate_of_jobs_ : str, with n_jobs > 1, whether more processes than one paid, and the figures that said so.
    scorers_ : dict of all scorers by name; `scorer_` is the one of `best_score_` and `score`, named `asked_scoring_`.
    coef_, intercept_, n_nonzero_ : of the linear estimator inside `best_estimator_`; see `coefficients()`. How sure a
        prediction is say `predict_interval` and `predict_set`, for which the data are kept, but not in files.
    best_index_, best_estimator_, n_splits_, refit_time_, multimetric_, classes_, n_features_in_ : as in GridSearchCV.
    update_ : `suffice.sklearn.update.Update`, after `update`: whether the penalties were kept, and by how much others
        could be better.
    left_out_ : str, what was not searched and why: l1 beside l2 of three classes or more without a `space`, where it
        would gain less than a quarter of the standard error over folds; empty else.
    result_ : suffice.Result of the search; if there were several, of the best, and `result_.starts` has all.
    """

    def __init__(
        self,
        estimator: Any,
        space: Mapping[str, tuple[float, float] | None] | None = None,
        *,
        cv: Any = None,
        scoring: Any = None,
        refit: bool | str = True,
        tolerance: Tolerance = "statistical",
        initial: Mapping[str, float] | None = None,
        options: Options | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        journal: str | os.PathLike[str] | None = None,
        callback: Callable[[Record], object] | None = None,
        groups_of_features: Mapping[str, Any] | None = None,
        certify_global: float | None = None,
        device: Any = None,
    ) -> None:
        self.estimator, self.space, self.cv, self.scoring, self.refit = estimator, space, cv, scoring, refit
        self.tolerance, self.initial, self.options = tolerance, initial, options
        self.n_jobs, self.random_state, self.verbose = n_jobs, random_state, verbose
        self.journal, self.callback, self.groups_of_features = journal, callback, groups_of_features
        self.certify_global, self.device = certify_global, device

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> SufficeSearchCV:
        """Tune and refit. `sample_weight` counts in training and in scores, `groups` goes to the splitter."""
        began = time.monotonic()
        X, y = in_place(self, X, y)
        with one_thread() if math.prod(getattr(X, "shape", ())) <= SMALL else nullcontext():
            return self._fit(X, y, fit_params, began)

    def update(
        self, X_new: Any = None, y_new: Any = None, remove: Any = None, *, sample_weight: Any = None, groups: Any = None
    ) -> SufficeSearchCV:
        """Go on with rows added, or removed: `remove` has their numbers, of those that the search has, or is a mask.
        New rows come last. Models go on from those of before and are proven of the rows that are there now; rows stay
        in their folds, new ones are dealt by a hash, or with their group. `update_` says whether the penalties stayed:
        where others could gain no more than a tenth of the standard error over folds, by an estimate or, with
        `certify_global` or of one penalty and a small X, as proven. A search holds on to its rows, not in a file."""
        updated(self, X_new, y_new, remove, sample_weight, groups)
        return self

    def _fit(
        self, X: Any, y: Any, fit_params: dict[str, Any], began: float, kept: StillGood | None = None
    ) -> SufficeSearchCV:
        known = prepared(self, X, y, fit_params, None if kept is None else kept.rows.splits)
        self.n_splits_, scores = known.count, known.scores
        grouped = fit_params.get("groups") is not None
        self._training = Training(replace(known.data, one=None), known.splits, grouped)
        self.optimised_scoring_, self.asked_scoring_, self.surrogate_ = scores.optimised, scores.asked, scores.surrogate
        self.scorers_, self.scorer_ = scores.scorers, scores.scorers[scores.asked]
        self.multimetric_ = isinstance(self.scoring, list | tuple | set | frozenset | Mapping)
        with ExitStack() as stack:
            problem = stack.enter_context(known.problem(effective_n_jobs(self.n_jobs)))
            noted = self.journal is not None and kept is None
            journal = stack.enter_context(journal_of(self, problem, known)) if noted else None
            count = 0 if journal is None else journal.evaluations
            held = f", {count} evaluations in the journal" if count else ""
            self._say(1, f"{', '.join(known.space.names)} by {known.count} folds" + held)
            recorded = RecordedProblem(problem, journal, self._tell)
            recorded.holds_all = len(self.scorers_) > 1
            search = PenaltySearch(
                recorded, known.folds, known.space, known.options, self.initial, self.tolerance,
                self.refit == "one_se", began,
            )  # fmt: skip
            if kept is not None:
                search.finds = kept.start
            elif known.task is not None and self.initial is None:
                _left_out_search.begin(search, stack.enter_context(known.by_folds()))
            elif known.l2_first:
                space = _l2_first.of_l2(known.space)
                of_l2 = stack.enter_context(known.problem(effective_n_jobs(self.n_jobs), space))
                _l2_first.begin(search, of_l2, space)
            if self.certify_global is not None:
                folds_of(problem)  # what cannot be certified is refused before the search
            try:
                best = search.run()
                if self.certify_global is not None:
                    best = self._certify(recorded.problem, search, best)
                elif kept is not None:
                    best = kept.prove(recorded.problem, best)
            finally:
                self.result_, self.left_out_ = without_data(search.result), search.left_out
            self.estimate_of_jobs_ = getattr(problem.executor, "estimate", "")
            interrupted = self.result_.status in (Status.INTERRUPTED, Status.TERMINATED)
            hurry = time.monotonic() + GRACE if interrupted and journal is not None else math.inf
            with at_once(hurry):
                self._report(recorded, best, known)
                self._fold_weights = known.weights(recorded.problem, best)
                self._for_updates = kept_for_updates(known, fit_params.get("groups"), kept)
                self.held_out_, self.baseline_ = known.held_out(recorded.problem, best)
        self._tell_the_end(search, best, len(recorded.notes))
        if self.refit:
            with at_once(hurry):
                self._refit(known, began + known.options.max_seconds)
        if known.data.classes is not None and not self.refit:
            self._classes = known.data.classes
        return self

    def _tell_the_end(self, search: PenaltySearch, best: Evaluation, evaluations: int) -> None:
        """Of a search: warnings about edges, and what was found."""
        given = settings(self.best_params_)
        for text in search.edge_warnings(best, given) if self.refit != "one_se" else ():
            warnings.warn(text, stacklevel=outside_stacklevel())
        proven = f"{self.optimised_scoring_} proven to lie in {interval(*self.optimised_interval_, 4)}"
        found = f"score {self.best_score_:.4g}, {proven}"
        self._say(1, f"{evaluations} evaluations, {found} at {given}; {self.result_.message}")
        for text in filter(None, (self.estimate_of_jobs_, self.left_out_)):
            self._say(1, text)

    def _refit(self, known: SearchPreparation, until: float) -> None:
        """The final model."""
        began, estimator, fitted = time.monotonic(), clone(self.estimator), None
        if self.groups_of_features is None:  # which scikit-learn has no words for
            estimator.set_params(**self.best_params_)
        if self.refit == "sklearn":
            fitted = estimator.fit(here(known.data.X), known.data.y, **known.fit_params)
        data, near = replace(known.data, estimator=estimator), self._fold_weights.solutions
        made = fit_final(data, self.best_penalties_, near, until, fitted)
        self.best_estimator_, self.coef_radius_, self._proofs = made
        self.refit_time_ = time.monotonic() - began

    def _certify(self, problem: BilevelProblem, search: PenaltySearch, best: Evaluation) -> Evaluation:
        """The global certificate; the best evaluation, which may be at penalties that were found on the way."""
        assert self.certify_global is not None
        least = best if best.interval[1] < search.problem.best.interval[1] else search.problem.best
        left = search.began + SHARE_OF_CERTIFICATE * search.options.max_seconds - time.monotonic()
        budget = GlobalOptions(max_evaluations=GLOBAL_EVALUATIONS, max_seconds=max(left, 1e-6))
        journal = None if self.journal is None else Path(self.journal) / f"global-{self.certify_global:g}"
        made = certify_global(problem, self.certify_global, options=budget, known=least, journal=journal)
        if made.message == INTERRUPTED:
            search.result = replace(search.result, status=Status.INTERRUPTED)
        if not search.one_se and made.upper < best.interval[0]:
            best = least = search.moved(made.theta, best)
        ended = made.message if not made.success else "the penalties that are reported are not the best that were seen"
        made = replace(made, upper=max(least.interval[1], made.lower))  # of the penalties that are reported
        made = made if made.success else replace(made, message=ended)
        self.global_certificate_, self.global_gap_ = made, made.gap
        gap = f"a gap of {made.landscape.gap_in_percent} % is proven"
        self._say(1, f"{gap} after {made.evaluations} evaluations; {made.message}")
        if not made.success:
            asked = f"certify_global={self.certify_global:g} is not proven"
            warnings.warn(f"{asked}: {gap}, no more ({made.message})", ConvergenceWarning, outside_stacklevel())
        return best

    def _tell(self, record: Record, evaluation: Evaluation) -> None:
        loss = f"loss {record.cost:.4g} in {interval(*record.interval, 4)}"
        self._say(2, f"evaluation {record.number}, {record.purpose}: {loss}, {record.work:g} steps")
        self._say(3, f"  of the folds: {', '.join(f'{loss:.4g}' for loss in fold_losses(evaluation))}")
        if self.callback is not None:
            self.callback(record)

    def _say(self, level: int, text: str) -> None:
        if self.verbose >= level:
            print(f"[{type(self).__name__}] {text}")

    def _report(self, recorded: RecordedProblem, best: Evaluation, known: SearchPreparation) -> None:
        score, space, problem = score_of(self.optimised_scoring_), known.space, recorded.problem
        self.optimised_interval_ = score.proven(best)
        self.score_interval_ = (-math.inf, math.inf) if self.surrogate_ else self.optimised_interval_
        words = in_the_estimators_words(self.estimator, space, known.data.total)
        self.best_params_, self.best_penalties_ = words(best), space.penalties(best)
        without = any(value == 0.0 for name, value in self.best_penalties_.items() if name.startswith("l2"))
        self.l2_floor_ = max(recorded.curvatures(best.point), default=0.0) if without else 0.0
        self.cv_results_ = table_of_evaluations(recorded.notes, recorded.seconds, words, space, score)
        self.best_index_ = [k for k, note in enumerate(recorded.notes) if note[-1] is best][-1]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        if len(self.scorers_) > 1:
            tuned = () if self.surrogate_ else (self.asked_scoring_,)
            self.cv_results_ |= table_of_scores(
                recorded.evaluations, known.scored(problem), self.scorers_, self.cv_results_, tuned
            )
        if self.surrogate_:
            self.best_score_ = float(np.mean(known.scored(problem)(best, self.scorer_)))

    def __getstate__(self) -> Any:
        return {name: value for name, value in super().__getstate__().items() if name != "_for_updates"}

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The score of `best_estimator_` on these data: the one that `best_score_` is the mean over folds of."""
        check_is_fitted(self, "best_estimator_")
        best, X, y = self.best_estimator_, here(X), here(y)
        if transforms_target(best) and not self.surrogate_:
            best, y = fitted_inside(best), transformed(best, y)
        weight = {} if sample_weight is None else {"sample_weight": here(sample_weight)}
        return float(self.scorer_(best, X, y, **weight))

    @property
    def coef_(self) -> Any:
        """The coefficients of `best_estimator_`, as its last step sees the columns."""
        return _report_data.final_estimator(self).coef_

    @property
    def intercept_(self) -> Any:
        """The intercept of `best_estimator_`."""
        return _report_data.final_estimator(self).intercept_

    @property
    def n_nonzero_(self) -> int:
        """How many coefficients of `best_estimator_` are not zero."""
        return int(np.count_nonzero(self.coef_))

    def plot_path(self, ax: Any = None) -> Any:
        """The loss over the penalties at every evaluation, and the way of the search; see `suffice.plots`."""
        return plots.draw_path(_report_data.course(self), ax)

    def plot_regularisation_path(self, X: Any, y: Any, *, sample_weight: Any = None, ax: Any = None) -> Any:
        """Coefficients of models of X and y at multiples of the best penalties."""
        task = _report_data.FittedSearch(self, X, y, sample_weight)
        return plots.draw_regularisation_path(_report_data.regularisation_path(task), ax)

    def plot_calibration(self, X: Any, y: Any, *, sample_weight: Any = None, groups: Any = None, ax: Any = None) -> Any:
        """Held-out predictions at the best penalties: a reliability curve, or against the truth for regression."""
        task = _report_data.FittedSearch(self, X, y, sample_weight, groups)
        return plots.draw_calibration(_report_data.calibration(task.held_out()), ax)

    def plot_coefficients(self, ax: Any = None) -> Any:
        """The largest coefficients of `best_estimator_`, by name."""
        check_is_fitted(self, "best_penalties_")
        return plots.draw_coefficients(_report_data.coefficients(self), ax)

    predict = of_the_best("predict")
    predict_proba = of_the_best("predict_proba")
    predict_log_proba = of_the_best("predict_log_proba")
    decision_function = of_the_best("decision_function")

    @available_if(survives)  # type: ignore[untyped-decorator]
    def predict_survival_function(self, X: Any, times: Any = None) -> Any:
        """Survival curves of Cox's model (rows x times): see `ElasticNetGLM`."""
        return survival.survival_function(self, here(X), times)

    @available_if(survives)  # type: ignore[untyped-decorator]
    def predict_cumulative_hazard_function(self, X: Any, times: Any = None) -> Any:
        """Minus their logarithms."""
        return survival.cumulative_hazards(*survival.asked(self, here(X)), times)

    @property
    def classes_(self) -> Any:
        """The labels, for classifiers."""
        return self.best_estimator_.classes_ if hasattr(self, "best_estimator_") else self._classes

    def get_metadata_routing(self) -> MetadataRouter:
        """How `fit` passes on what it is given, if scikit-learn's metadata routing is enabled."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=to_fit)
        splitter = splitter_of(self.cv, None, is_classifier(self.estimator))
        return router.add(splitter=splitter, method_mapping=to_split)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        adapter = find_adapter(split_pipeline(self.estimator)[0])
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_class = adapter.many
        if tags.regressor_tags is not None and self.scoring != "r2":
            tags.regressor_tags.poor_score = True  # `score` is another one than R^2, which is what they would look at
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.target_tags.single_output = inner.target_tags.single_output
        tags.target_tags.multi_output = adapter.several
        tags.target_tags.required = True
        tags.target_tags.positive_only = inner.target_tags.positive_only
        return tags
