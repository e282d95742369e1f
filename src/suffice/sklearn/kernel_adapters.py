r"""Adapters of kernel machines: SVC, SVR and KernelRidge, whose kernel is tuned along with their strength.

SVC(C, gamma)            1/2 ||f||^2 + C sum_i s_i max(0, 1 - y_i (f(x_i) + b)),  several classes by pairs
SVR(C, gamma, epsilon)   the same with max(0, |y_i - f(x_i) - b| - epsilon)
KernelRidge(alpha, gamma)   sum_i s_i (y_i - f(x_i))^2 + alpha ||f||^2

The score of SVC is the squared hinge of decision values on held-out rows: it is smooth, which accuracy is not, and it
needs no calibration, which the logarithmic loss would.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR

from suffice.arrays import Array
from suffice.kernels.machines import Kernel
from suffice.rows.gram import all_entries
from suffice.sklearn._kernel_fold import KernelFold, KernelProblem, KernelSpace, Kind, gamma_by_scale
from suffice.sklearn.adapters import READ, SQUARES, Adapter, register_adapter
from suffice.sklearn.estimators import class_weighted, numbered
from suffice.solvers.solution import Solution

ALIKE = {"polynomial": "poly"}


def kernel_of(estimator: Any) -> Kernel:
    """The kernel; ValueError for one that there is no proof for."""
    name = ALIKE.get(estimator.kernel, estimator.kernel)
    known = ("rbf", "linear", "poly", "laplacian") if isinstance(estimator, KernelRidge) else ("rbf", "linear", "poly")
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"{type(estimator).__name__}(kernel={estimator.kernel!r}) is not supported: use one of {', '.join(known)}"
        )
    degree = estimator.degree
    return Kernel(name, int(degree) if float(degree).is_integer() else degree, float(estimator.coef0))  # type: ignore[arg-type]


class _KernelAdapter(Adapter):
    """What adapters of kernel machines have in common."""

    kind: Kind
    tuned: tuple[str, ...]
    scorings: tuple[str, ...] = SQUARES
    by_penalties = False

    def ratio(self, estimator: Any) -> float:
        return 0.0

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        kernel_of(estimator)
        given = getattr(estimator, self.tuned[0])
        if np.ndim(given) > 0:
            raise ValueError(
                f"{type(estimator).__name__}({self.tuned[0]}={given!r}) must have one number for all targets"
            )

    def params(self, estimator: Any, l1: float, l2: float, total: float, names: tuple[str, ...]) -> dict[str, float]:
        raise TypeError(f"{type(estimator).__name__} has no l1 and l2")

    def space(self, estimator: Any, given: Any, step: str, data: Any) -> KernelSpace:
        """What is searched: the strength, gamma where the kernel has one, and what else the estimator has."""
        self.check(estimator, ())
        known = self.tuned if kernel_of(estimator).has_gamma else tuple(one for one in self.tuned if one != "gamma")
        scale = (
            1.0 if given is not None else gamma_by_scale(data.whole().model.X)
        )  # of all rows, as the machine sees them
        return KernelSpace.of(given, known, scale, step, data.total)

    def fold(self, estimator: Any, X: Any, y: Array, weights: Array, classes: Any) -> Any:
        count = 2 if classes is None else len(classes)
        epsilon = float(getattr(estimator, "epsilon", 0.0))
        return KernelFold(X, y, weights, kernel_of(estimator), self.kind, estimator.gamma, count, epsilon)

    def problem(self, folds: Sequence[Any], space: KernelSpace, scoring: str, jobs: int) -> KernelProblem:
        """The objective of a search."""
        losses = [fold.loss(scoring, len(folds)) for fold in folds]
        strength = self.tuned[0]
        fixed = {strength: float(getattr(folds[0].estimator, strength))}
        models = tuple(fold.model for fold in folds)
        return KernelProblem(models, tuple(losses), space.space, space.total, fixed, jobs)

    def final(self, split: Any, params: dict[str, float], accuracy: float) -> tuple[Solution, float]:
        """The machines of all rows, and ||f||."""
        strength = self.tuned[0]
        given = {strength: float(getattr(split.estimator, strength)), **params}
        fold: KernelFold = split.model
        solution = fold.solve(
            given, fold.total, lambda _, made: made.certificate.radius <= accuracy * fold.norm(made.x)
        )
        return solution, fold.norm(solution.x)

    def targets(self, estimator: Any, y: Any, classes: Any) -> Array:
        return np.asarray(y, dtype=np.float64) if classes is None else numbered(y, classes)

    def weights(self, estimator: Any, y: Any, sample_weight: Array, classes: Any) -> Array:
        return class_weighted(estimator, y, sample_weight, by_rows=True)


def _with_gamma(estimator: Any, fold: KernelFold, gamma: float) -> None:
    """gamma as it was tuned; "scale" and its like stay where they were not."""
    if fold.kernel.has_gamma and gamma != fold.own_gamma:
        estimator.set_params(gamma=gamma)


def _shell(estimator: Any, fold: KernelFold, y: Any) -> Any:
    """The estimator after libsvm's first iteration: all attributes are there, and those of its solution are put in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        given, estimator.max_iter = estimator.max_iter, 1
        estimator.fit(fold.given, y, sample_weight=fold.s)
        estimator.max_iter = given
    return estimator


class SVCAdapter(_KernelAdapter):
    """SVC; several classes by their pairs, as libsvm has it."""

    scorings = ("neg_squared_hinge",)
    kind: Kind = "classes"
    tuned = ("C", "gamma")
    many = True

    def check(self, estimator: Any, names: tuple[str, ...]) -> None:
        super().check(estimator, names)
        if estimator.probability is True:
            raise ValueError("SVC(probability=True) is not supported: use CalibratedClassifierCV around the tuned SVC")

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        fold, found = coef
        _with_gamma(estimator, fold, intercept)
        two = len(classes) == 2
        number = np.where(fold.y > 0.0, 1, 0) if two else fold.y.astype(int)
        _shell(estimator, fold, classes[number])
        whole = np.zeros((max(len(classes) - 1, 1), len(fold.y)))
        for (beta, _), one in zip(found, fold.machines, strict=True):
            first, second = (0, 1) if one.classes is None else one.classes
            beta = -beta if one.classes is None else beta  # libsvm's first class is the positive one
            mine = number[one.rows] == first
            whole[second - 1, one.rows[mine]] = beta[mine]
            whole[first, one.rows[~mine]] = beta[~mine]
        used = np.flatnonzero(np.any(whole != 0.0, axis=0))
        used = used[np.argsort(number[used], kind="stable")]
        shifts = np.array([-b if one.classes is None else b for (_, b), one in zip(found, fold.machines, strict=True)])
        counts = np.bincount(number[used], minlength=len(classes))
        _put(estimator, fold, used, whole[:, used], shifts, counts)
        if two:
            estimator.dual_coef_, estimator.intercept_ = -estimator._dual_coef_, -estimator._intercept_
        return estimator


class SVRAdapter(_KernelAdapter):
    kind: Kind = "epsilon"
    tuned = ("C", "gamma", "epsilon")

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        fold, ((beta, b),) = coef
        _with_gamma(estimator, fold, intercept)
        _shell(estimator, fold, fold.y)
        rows = fold.machines[0].rows
        used = rows[beta != 0.0]
        counts = np.array([len(used), *np.zeros(len(estimator._n_support) - 1)])
        _put(estimator, fold, used, beta[beta != 0.0][None, :], np.array([b]), counts)
        return estimator


def _put(estimator: Any, fold: KernelFold, used: Any, coef: Array, shifts: Array, counts: Any) -> None:
    """Support vectors in place of the shell's."""
    estimator.support_ = used.astype(np.int32)
    estimator.support_vectors_ = fold.given[used]
    estimator._n_support = np.asarray(counts, dtype=np.int32)
    estimator.dual_coef_ = all_entries(np.ascontiguousarray(coef), estimator.dual_coef_)
    estimator._dual_coef_ = estimator.dual_coef_
    estimator.intercept_ = shifts.astype(np.float64)
    estimator._intercept_ = estimator.intercept_.copy()
    estimator.fit_status_ = 0


class KernelRidgeAdapter(_KernelAdapter):
    kind: Kind = "ridge"
    tuned = ("alpha", "gamma")

    def fitted(self, estimator: Any, coef: Any, intercept: Any, classes: Any) -> Any:
        fold, ((beta, _),) = coef
        _with_gamma(estimator, fold, intercept)
        whole = np.zeros(len(fold.y))
        whole[fold.machines[0].rows] = beta
        estimator.dual_coef_, estimator.X_fit_, estimator.n_features_in_ = whole, fold.given, fold.X.shape[1]
        return estimator


register_adapter(SVC, SVCAdapter())
register_adapter(SVR, SVRAdapter())
register_adapter(KernelRidge, KernelRidgeAdapter())
READ["sklearn.SVC"] = (
    "C class_weight coef0 degree gamma kernel probability",
    "break_ties cache_size decision_function_shape shrinking",
)
READ["sklearn.SVR"] = "C coef0 degree epsilon gamma kernel", "cache_size shrinking"
READ["sklearn.KernelRidge"] = "alpha coef0 degree gamma kernel", "kernel_params"  # those of a kernel of one's own
