"""C (alpha) and gamma of kernel machines: SufficeSearchCV beside a grid of 30 points with the same folds and score.

The grid is GridSearchCV's, six values of the strength and five of gamma, one for every decade of the same ranges, with
scikit-learn's own tolerances. Reported: the cross-validation loss of the best parameters (squared hinge of decision
values for SVC, mean squared error for the others) of either, of folds trained by scikit-learn to 1e-10, ours with the
mean share of rows in a fold; the width of our proven interval; CPU seconds of one thread, so that other work on the
machine does not count.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/kernels.py
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from common import parser, provenance, table, write_json, write_text
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from suffice.sklearn import SufficeSearchCV
from suffice.sklearn.scores import SCORES

FOLDS = 5


def problems() -> list[tuple[str, Any, Any, dict[str, tuple[float, float]], Any]]:
    """(name, data, estimator, ranges, scorer)."""
    hinge = SCORES["neg_squared_hinge"].scorer
    classes = {"C": (1e-2, 1e3), "gamma": (1e-4, 1e0)}
    simulated = make_classification(1000, 20, n_informative=8, n_clusters_per_class=3, flip_y=0.05, random_state=0)
    diabetes = load_diabetes(return_X_y=True)
    return [
        ("SVC, breast cancer 569 x 30", load_breast_cancer(return_X_y=True), SVC(), classes, hinge),
        ("SVC, wine 178 x 13, three classes", load_wine(return_X_y=True), SVC(), classes, hinge),
        ("SVC, simulated 1,000 x 20", simulated, SVC(), classes, hinge),
        ("SVR, diabetes 442 x 10", diabetes, SVR(epsilon=10.0), {"C": (1e-1, 1e4), "gamma": (1e-4, 1e0)},
         "neg_mean_squared_error"),
        ("KernelRidge, diabetes 442 x 10", diabetes, KernelRidge(kernel="rbf"),
         {"alpha": (1e-4, 1e1), "gamma": (1e-4, 1e0)}, "neg_mean_squared_error"),
    ]  # fmt: skip


def compared(name: str, data: Any, estimator: Any, ranges: dict[str, tuple[float, float]], scorer: Any) -> Any:
    X, y = data
    machine = make_pipeline(StandardScaler(), estimator)
    step = machine.steps[-1][0]
    grid = {
        f"{step}__{key}": np.logspace(*np.log10(ends), 6 if k == 0 else 5)
        for k, (key, ends) in enumerate(ranges.items())
    }
    began = time.process_time()
    other = GridSearchCV(machine, grid, cv=FOLDS, scoring=scorer).fit(X, y)
    theirs = time.process_time() - began
    began = time.process_time()
    ours = SufficeSearchCV(machine, {f"{step}__{key}": ends for key, ends in ranges.items()}, cv=FOLDS).fit(X, y)
    seconds = time.process_time() - began
    tight = {f"{step}__tol": 1e-10} if hasattr(estimator, "tol") else {}
    share = {"C": FOLDS / (FOLDS - 1), "alpha": (FOLDS - 1) / FOLDS}  # what folds are trained with, by either's rule
    best = {key: value * share.get(key.rpartition("__")[2], 1.0) for key, value in ours.best_params_.items()}

    def loss(params: dict[str, float]) -> float:
        return -float(cross_val_score(machine.set_params(**params, **tight), X, y, cv=FOLDS, scoring=scorer).mean())

    low, high = ours.score_interval_
    return {
        "problem": name, "seconds": seconds, "loss": loss(best), "interval": [-high, -low],
        "evaluations": len(ours.cv_results_["work"]), "radius": ours.coef_radius_, "best": dict(ours.best_params_),
        "grid_seconds": theirs, "grid_loss": loss(dict(other.best_params_)), "grid_best": dict(other.best_params_),
    }  # fmt: skip


def report(rows: list[dict[str, Any]], about: dict[str, str]) -> str:
    header = ["problem", "loss", "proven to", "evaluations", "CPU s", "grid of 30: loss", "more by", "CPU s"]
    shown = [
        [one["problem"], f"{one['loss']:.6g}", f"{one['interval'][1] - one['interval'][0]:.1e}", one["evaluations"],
         f"{one['seconds']:.1f}", f"{one['grid_loss']:.6g}", f"{100 * (one['grid_loss'] / one['loss'] - 1):.1f} %",
         f"{one['grid_seconds']:.1f}"] for one in rows
    ]  # fmt: skip
    text = ", ".join(f"{key} {value}" for key, value in about.items())
    return "\n".join(["# Kernel machines beside a grid", "", table(header, shown), "", text, ""])


def main() -> None:
    warnings.filterwarnings("ignore")
    out = parser(__doc__).parse_args().out
    rows = [compared(*one) for one in problems()]
    about = provenance("scikit-learn")
    write_json(out / "kernels.json", {"about": about, "rows": rows})
    write_text(out / "kernels.md", report(rows, about))
    print(report(rows, about))


if __name__ == "__main__":
    main()
