r"""How far a fitted linear model is from the exact minimiser of its own objective (`suffice.sklearn.adapters`).

With c the coefficients at hand, c* those of our own solver started there, and c_hat the exact ones,

    ||c* - c_hat|| <= R  proven,  so that  ||c - c*|| - R  <=  ||c - c_hat||  <=  ||c - c*|| + R.

The left side shows that a model is off, which a certificate of c alone cannot. Where c is its own certificate, to FINE
||c||, no solve is needed: c* = c. The margins of a row t, intercept b included, differ by

    |t . (c - c_hat) + b - b_hat|  <=  |t . (c - c*) + b - b*| + ||t|| R + S,        |b* - b_hat| <= S.

The score of the exact model is that of c* with the error that `prove.held_out` proves for training rows.

X is taken as it is, never centred: centred data are rounded, and their minimiser is another one.

The last step of a pipeline has seen what `fit_transform` of the steps before it gave for the training rows; at hand is
`transform` of the fitted steps. For a step with scikit-learn's own `fit_transform`, `fit(X, y).transform(X)`, the two
are the same; one of its own may give there what it never gives again (`TargetEncoder` encodes rows by folds). Some of
the latter (`REPLAYED`) have been read: what their `fit_transform` gives comes out of the same computation as the state
that `transform` depends on. All steps are then fitted once more, and where `transform` agrees with that of the steps at
hand in all bits, what has come out on the way is what the model has seen. Where it does not (a random state that nobody
knows), and for any other step, nothing is told.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import _check_feature_names, _check_sample_weight, check_is_fitted

from suffice.arrays import EPS, Array, norm, whole_number
from suffice.certifying import FitReport
from suffice.prove.loss_at import LossAt
from suffice.report.formats import bound
from suffice.rows.gram import same_bits
from suffice.rows.rounding import gamma
from suffice.sklearn._coefficient_proofs import MINUS, OPEN, PLUS, ZERO, claims
from suffice.sklearn._final_fit import OFF, solved
from suffice.sklearn.adapters import CannotTellError, Objective, name_of, objective_of, refuse
from suffice.sklearn.folds import Hazards, LinearFold, Softmax
from suffice.sklearn.scores import SCORES
from suffice.sklearn.target import transformed, transforms_target
from suffice.solvers.certificate import Certificate, certify
from suffice.solvers.problem import Composite

FINE = 1e-9  # of the norm of the coefficients: what our own solver is asked for
CLOSE = 1e-4  # of it: from there on a second start is not worth its price
WITHOUT_L2 = 200  # steps


def certify_fit(estimator: Any, X: Any, y: Any, sample_weight: Any, *, max_steps: int) -> FitReport:
    """The report of a fitted estimator on the data it was fitted to."""
    if isinstance(estimator, type):
        raise TypeError(f"certify needs a fitted estimator, got the class {estimator.__name__}")
    steps = whole_number(max_steps, "max_steps", least=1)
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    check_consistent_length(X, y)
    try:
        model, X, y = _unwrapped(estimator, X, y)
        if isinstance(model, BaseEstimator):
            check_is_fitted(model)
        X, weights = _checked(model, X, sample_weight)
        fit = objective_of(model, y, weights)
        d = fit.coef.shape[-1]
        if X.shape[1] != d:
            raise ValueError(f"X has {X.shape[1]} columns, and {type(model).__name__} was fitted to {d}")
        finite = np.isfinite(fit.coef).all() and np.isfinite(fit.intercept).all()
        refuse(not finite, "its coefficients are not finite")
        return _Judgement.of(fit, X, steps).report(model)
    except CannotTellError as reason:
        return FitReport.nothing(f"{reason}")


def _unwrapped(estimator: Any, X: Any, y: Any) -> tuple[Any, Any, Any]:
    """The linear model inside searches, pipelines and transformations, and the data that it was fitted to."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            grouped = getattr(estimator, "groups_of_features", None) is not None
            refuse(grouped, "groups_of_features has penalties that the fitted estimator does not know")
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "cv_results_") and hasattr(estimator, "refit"):
            raise CannotTellError("the search has kept no model (refit=False)")
        elif transforms_target(estimator):
            estimator, y = estimator.regressor_, transformed(estimator, y)
        elif isinstance(estimator, Pipeline) and len(estimator.steps) > 1:
            estimator, X = estimator.steps[-1][1], seen_by_the_last(estimator, X, y)
        elif isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        else:
            return estimator, X, y


_HAVE_BEEN_READ = """
    BisectingKMeans CountVectorizer DictVectorizer DictionaryLearning FastICA HashingVectorizer Isomap IterativeImputer
    KMeans KNeighborsTransformer KernelPCA LatentDirichletAllocation LocallyLinearEmbedding MiniBatchKMeans MiniBatchNMF
    MissingIndicator NMF PCA PowerTransformer RadiusNeighborsTransformer RandomTreesEmbedding TfidfVectorizer
    TruncatedSVD
"""
REPLAYED = frozenset(f"sklearn.{name}" for name in _HAVE_BEEN_READ.split())
_WAY_OUT = "give certify its last step and the rows that this was fitted to"


def seen_by_the_last(pipeline: Pipeline, X: Any, y: Any) -> Any:
    """The rows that the last step of a fitted pipeline was fitted to; `CannotTellError` if that is not certain."""
    for _, step in pipeline.steps:
        refuse(hasattr(step, "fit_resample"), f"{type(step).__name__} has changed the rows of the training data")
    parts = [part for _, step in pipeline.steps[:-1] for part in _parts(step) if hasattr(part, "fit_transform")]
    own = [part for part in parts if _way(type(part)) is not _way(TransformerMixin)]
    for part in own:
        other = f"{type(part).__name__} may have given other rows to the training than it gives now: {_WAY_OUT}"
        refuse(name_of(type(part)) not in REPLAYED, other)
    before = pipeline[:-1]
    rows = before.transform(X)
    again = clone(before) if own else before
    seen = again.fit_transform(X, y) if own else rows
    names = ", ".join(dict.fromkeys(type(part).__name__ for part in own)) or "a step of the pipeline"
    refuse(not same_bits(again.transform(X), rows), f"{names} gives other values each time: {_WAY_OUT}")
    return seen


_MADE_OF = {Pipeline: "steps", FeatureUnion: "transformer_list", ColumnTransformer: "transformers_"}


def _parts(step: Any) -> list[Any]:
    """The transformers that a step is made of."""
    for kind, name in _MADE_OF.items():
        if isinstance(step, kind) and _way(type(step)) is _way(kind):
            return [part for _, one, *_ in getattr(step, name) for part in _parts(one)]
    return [] if step is None or isinstance(step, str) else [step]  # "passthrough", "drop"


def _way(kind: type) -> Any:
    return inspect.getattr_static(kind, "fit_transform", None)


def _checked(model: Any, X: Any, sample_weight: Any) -> tuple[Any, Array]:
    """X and the weights of its rows as float64."""
    if isinstance(model, BaseEstimator) and hasattr(model, "n_features_in_"):
        _check_feature_names(model, X, reset=False)
    kinds = [getattr(kind, "kind", "O") for kind in getattr(X, "dtypes", ())] if hasattr(X, "columns") else []
    refuse(not set(kinds) <= set("biuf"), "X has columns that are not numbers")
    X = check_array(X, accept_sparse=("csr", "csc"), dtype=np.float64)
    weights: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must not be all zero")
    return X, weights


@dataclass(frozen=True, eq=False)
class _Judgement:
    """Our solution x* of the model's problem beside the model's own x; both have the intercept's column, if any."""

    fit: Objective
    fold: LinearFold
    problem: Composite
    X: Any
    x: Array
    best: Array  # x*
    proof: Certificate  # of x*
    own: Certificate  # of x

    @classmethod
    def of(cls, fit: Objective, X: Any, steps: int) -> _Judgement:
        try:
            fold = fit.fold(X)
        except ValueError as error:  # there is no finite intercept, or a class is missing
            raise CannotTellError(str(error)) from error
        l2 = fit.least_l2
        refuse(l2 == 0.0 and fold.l2_in_place_of_none > 0.0, "this loss without an l2 penalty is beyond our proofs")
        empty = l2 == 0.0 and fit.kind != "column" and not np.any(np.ravel(abs(X).sum(axis=1)) * fit.weights)
        refuse(empty, "X is zero wherever it counts, and there is no l2 penalty: nothing determines the coefficients")
        problem = fold.at(l1=fit.l1, l2=fit.l2)
        x = fold.places.of_features(fit.coef).ravel()
        x = np.append(x, fit.intercept / fit.scaling) if fit.kind == "column" else x
        own = certify(problem, x)
        if own.radius <= FINE * norm(x):
            return cls(fit, fold, problem, X, x, x, own, own)
        best, proof = _solved(problem, fold.solver, x, own, steps)
        return cls(fit, fold, problem, X, x, best, proof, own)

    def report(self, model: Any) -> FitReport:
        R = self.proof.radius
        if not math.isfinite(R):
            raise CannotTellError(_why_not(self.fit, self.X))
        d = len(self.x) - (self.fit.kind == "column")
        here, there = self.x[:d], self.best[:d]
        apart = norm(here - there) * (1.0 + gamma(d + 8))
        via = apart + R * (1.0 + 4.0 * EPS)
        radius, rule = (self.own.radius, self.own.rule) if self.own.radius < via else (via, self.proof.rule)
        at_least = max(0.0, apart * (1.0 - 2.0 * gamma(d + 8)) - R)
        size = norm(there) * (1.0 - gamma(d + 8)) - R
        relative = radius / size if size > 0.0 else (0.0 if radius == 0.0 else math.inf)
        nonzero, zero, left = self._support()
        message = _message(model, radius, at_least, relative, norm(there) + R)
        message += _about_support(nonzero, zero, int(np.count_nonzero(here)), d)
        of_b, of_margins = self._errors()
        score, ends = self._score()
        scoring = self.fit.scoring
        return FitReport(
            radius, at_least, relative, of_b, of_margins, scoring, score, ends, rule, message, nonzero, zero, left
        )

    def _support(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Columns whose coefficients are wrongly not zero, and wrongly zero; how many claims there are none of."""
        proven = claims(self.problem, self.best, self.proof)
        K = len(self.fit.coef) if self.fit.psi is None else 1
        whole, own = (self.fold.laid_out(one, ZERO) for one in (proven, np.where(self.x != 0.0, PLUS, ZERO)))
        off = (own != ZERO) & (whole == ZERO), (own == ZERO) & np.isin(whole, (PLUS, MINUS))
        wrong = [tuple(np.flatnonzero(one.reshape(K, -1).any(axis=0)).tolist()) for one in off]
        return wrong[0], wrong[1], int(np.sum(whole == OPEN))

    def _score(self) -> tuple[float, tuple[float, float]]:
        """That of the model at hand, and an interval for that of the exact one."""
        fit, fold, scoring = self.fit, self.fold, self.fit.scoring
        held_out = fold.held_out(self.X, fit.targets, fit.weights, scoring, 1)
        there: LossAt = held_out.at(self.best)
        error = there.error(self.proof.radius)
        verification = self.proof.verification
        if there.verified is not None and verification is not None:
            error = min(error, there.verified(verification))
        low, high = max(there.residual - error, 0.0), there.residual + error
        interval = SCORES[scoring].interval((low * low * (1.0 - 4.0 * EPS), high * high * (1.0 + 4.0 * EPS)))
        if isinstance(fold.learner, Hazards):
            return -(held_out.at(self.x).residual ** 2), interval
        w = self.x.reshape(len(fit.coef), -1).T if fit.psi is None else self.x
        a, m = fold.design.weights, fold.design.margins(w) + (0.0 if fit.kind == "column" else fit.intercept)
        if isinstance(fold.learner, Softmax):
            return float(a @ log_softmax(m, axis=1)[np.arange(len(m)), fold.y.astype(int)]), interval
        phi = SCORES[scoring].phi
        assert phi is not None
        return -float(a @ phi.residuals(m, fold.y) ** 2), interval

    def _errors(self) -> tuple[float, float]:
        """Bounds on the errors of the intercept and of margins. A constant added to all of a row's margins of several
        classes is free, and counts for nothing."""
        fit, R, design = self.fit, self.proof.radius, self.fold.design
        change = self.x - self.best
        moved = design.margins(change.reshape(len(fit.coef), -1).T if fit.psi is None else change)
        apart, S = self._of_intercept()
        here, away = (np.abs(one).reshape(len(moved), -1).max(axis=1) for one in (moved, moved + apart))
        blur = 8.0 * EPS * here + (design.margin_rounding(change) + 2.0 * EPS) * norm(change) * design.row_norms
        of_b = norm(np.atleast_1d(apart)) * (1.0 + 4.0 * EPS) + S if fit.kind == "free" else 0.0
        if fit.kind == "column":  # over its scaling it is no float
            blur = blur + 4.0 * EPS * abs(fit.intercept)
            of_b = fit.scaling * (abs(change[-1]) + R) * (1.0 + 8.0 * EPS) + 4.0 * EPS * abs(fit.intercept)
        bounds = away * (1.0 + 4.0 * EPS) + blur + design.row_norms * R + S
        return float(of_b), float(bounds.max()) * (1.0 + 8.0 * EPS)

    def _of_intercept(self) -> tuple[Any, float]:
        """b - b*, and a bound on how far b* and its difference from b may be off."""
        if not self.fold.minimised_out:
            return 0.0, 0.0
        model, b = self.fold.unpenalised, self.fit.intercept
        image = model.image(self.best)
        rounding = self.fold.design.margin_rounding(self.best)  # of the image
        reach = self.proof.radius + rounding * norm(self.best)
        if self.fit.psi is not None:
            apart = b - model.shift(image)[0]
            return apart, model.shift_within(self.best, image, reach) + 4.0 * EPS * abs(apart)
        b, (best, error) = b - b.mean(), model.shift(image)
        return b - best, model.reach * reach + error + 16.0 * len(b) * EPS * (norm(b) + norm(best))


def _solved(problem: Composite, solver: Any, x: Array, own: Certificate, steps: int) -> tuple[Array, Certificate]:
    """A point close to the minimiser with its certificate: from x, and where that leads nowhere, from 0."""
    found, proof = x, own
    # Newton's method verifies within a few dozen steps, or there is no minimiser that it could come near to.
    steps = steps if problem.mu > 0.0 else min(steps, WITHOUT_L2)
    for start in (x, None):
        solution = solved(problem, solver, FINE, start, most=steps)
        if solution.certificate.radius < proof.radius:
            found, proof = solution.x, solution.certificate
        if proof.radius <= CLOSE * norm(found):
            break
    return found, proof


def _why_not(fit: Objective, X: Any) -> str:
    if fit.least_l2 > 0.0:
        return "the solver has proven nothing in the steps it was given, or rounding hides all there is to see"
    wide = "more columns than rows, " if X.shape[1] >= X.shape[0] else ""
    return (
        "without an l2 penalty the data have to determine the coefficients, and it could not be proven that they do "
        f"({wide}columns that depend on each other, or classes that can be separated)"
    )


def _message(model: Any, radius: float, at_least: float, relative: float, most: float) -> str:
    """What to make of it, in a sentence; exact coefficients have a norm of `most` at most."""
    if at_least > OFF * most:
        if most == 0.0:
            by = f"{bound(at_least, up=False)} off, at the least, and exact ones are 0"
        elif at_least < 10.0 * most:
            by = f"{bound(100.0 * at_least / most, up=False, digits=3)} % off, at the least"
        else:
            by = f"off by {int(at_least / most):,} times their norm, at the least"
        return f"coefficients are {by}: {_advice(model)}"
    share = f", {bound(100.0 * relative, up=True)} % of their norm" if 1e-6 < relative < math.inf else ""
    return f"coefficients are within {bound(radius, up=True)} of exact{share}"


def _about_support(nonzero: tuple[int, ...], zero: tuple[int, ...], count: int, d: int) -> str:
    """What is wrong about which coefficients are zero, in words; nothing where nothing is known to be."""
    told = []
    if nonzero:
        told.append(f"{len(nonzero):,} of the columns that it has chosen are proven to have a coefficient of zero")
    if zero:
        told.append(f"{len(zero):,} that it has left out are proven to have one that is not")
    return f"; {', and '.join(told)} ({count:,} of {d:,} coefficients are not zero)" if told else ""


def _advice(model: Any) -> str:
    """What to do about coefficients that are off, as far as the model says what it has done."""
    done, most = getattr(model, "n_iter_", None), getattr(model, "max_iter", None)
    done = None if done is None else int(np.max(np.ravel(done)))
    limited = done is not None and isinstance(most, int) and most > 0 and done >= most
    data = "unless X and y are not what it was fitted to"
    if limited:
        return f"{done:,} iterations were not enough: raise max_iter ({data})"
    return f"its solver has stopped too early: lower tol, or bring the features to one scale ({data})"
