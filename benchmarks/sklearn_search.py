"""SufficeSearchCV beside LogisticRegressionCV and ElasticNetCV with grids of 20 x 20, on data that ship with packages.

The rivals are used as they come: 20 values of C from 1e-4 to 1e4 (or of alpha, down to a thousandth of the largest
useful one) and 20 of l1_ratio, saga or coordinate descent to their default tolerance, 5 folds. SufficeSearchCV searches
l1 and l2 from 1e-6 to 1e2 with its own defaults. Features are standardised (MNIST: pixels / 255), and all run on one
thread in one process.

The loss of a grid is that of exactly trained models at the penalties it chooses; what it reports is that of models as
it has trained them, and may be lower where training stops early.

Work is counted in passes over a training matrix, N d K multiplications each, K the number of linear functions that
are fitted at once (classes, if there are more than two). An epoch of saga or coordinate descent is counted as one pass
(it is nearly two). For SufficeSearchCV every product with X or its transpose is counted, and every Hessian of s columns
and n rows with n s (s + 1)/2 multiplications. The final fit to all data counts on neither side.
"""

import argparse
import json
import math
import time
import warnings
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import ElasticNet, LogisticRegression, LogisticRegressionCV, enet_path
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from suffice import Options
from suffice.datasets import load_mnist
from suffice.lower import newton
from suffice.sklearn import SufficeSearchCV
from suffice.sklearn._multinomial import Multinomial
from suffice.terms.design import Design

SPACE = {"l1": (1e-6, 1e2), "l2": (1e-6, 1e2)}


def data(name):
    """X, y and whether y holds labels."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return StandardScaler().fit_transform(X), y - y.mean(), False
    if name == "mnist, 3 or 8":
        images, labels = mnist_rows()
        X = images[:, images.std(axis=0) > 0]
        return X / 255.0, np.where(labels == 3, 1.0, -1.0), False
    X, y = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits, even or odd": load_digits}[name](
        return_X_y=True
    )
    X = X[:, X.std(axis=0) > 0]
    return StandardScaler().fit_transform(X), y % 2 if name.startswith("digits") else y, True


def mnist_rows():
    """The first 300 images of a 3 or an 8."""
    loaded = load_mnist()
    X, y = loaded.X_train, loaded.y_train
    rows = np.flatnonzero((y == 3) | (y == 8))[:300]
    return X[rows], y[rows]


def grid(X, y, labels, cv):
    """(CV loss as reported, at the same penalties without training error, epochs, seconds) of the rival."""
    began = time.perf_counter()
    if labels:
        rival = LogisticRegressionCV(
            Cs=20, l1_ratios=np.linspace(0, 1, 20), cv=cv, solver="saga", scoring="neg_brier_score",
            use_legacy_attributes=False, refit=True,
        )  # fmt: skip
        rival.fit(X, y)
        seconds = time.perf_counter() - began
        total, ratio = 1.0 / (rival.C_ * len(y) * 0.8), rival.l1_ratio_  # as in a fold
        reported = -float(np.mean(rival.scores_, axis=0).max())
        return reported, exact(X, y, cv, ratio * total, (1.0 - ratio) * total), int(np.sum(rival.n_iter_)), seconds
    losses, epochs = np.zeros((20, 20)), 0
    for train, test in cv.split(X, y):  # what ElasticNetCV does, with its epochs counted
        mean, shift = X[train].mean(axis=0), y[train].mean()
        A, b = X[train] - mean, y[train] - shift
        for j, ratio in enumerate(np.linspace(0.05, 1.0, 20)):
            top = np.max(np.abs(X.T @ (y - y.mean()))) / len(y) / ratio
            _, coefs, _, n_iter = enet_path(
                A, b, l1_ratio=ratio, alphas=np.geomspace(top, 1e-3 * top, 20), return_n_iter=True
            )
            losses[j] += np.mean(((X[test] - mean) @ coefs + shift - y[test][:, None]) ** 2, axis=0) / cv.get_n_splits()
            epochs += int(np.sum(n_iter))
    return float(losses.min()), float(losses.min()), epochs, time.perf_counter() - began


def exact(X, y, cv, l1, l2):
    """The CV loss at these penalties, proven to six digits."""
    ranges = {"l1": (0.999 * max(l1, 1e-12), max(l1, 1e-12)), "l2": (0.999 * max(l2, 1e-9), max(l2, 1e-9))}
    there = SufficeSearchCV(
        LogisticRegression(l1_ratio=0.5, solver="saga"), ranges, cv=cv, refit=False, tolerance=1e-6,
        initial={name: high for name, (_, high) in ranges.items()}, options=Options(max_evaluations=1),
    )  # fmt: skip
    return -there.fit(X, y).best_score_


@contextmanager
def counted():
    """A list that every product with a design matrix and every Hessian adds its multiplications to."""
    work, restore = [], []

    def patch(owner, name, cost):
        original = getattr(owner, name)

        @wraps(original)
        def counting(*args, **kwargs):
            work.append(cost(*args))
            return original(*args, **kwargs)

        setattr(owner, name, counting)
        restore.append((owner, name, original))

    patch(Design, "margins", lambda design, w: math.prod(design.shape))
    patch(Design, "adjoint", lambda design, r: math.prod(design.shape))
    patch(newton, "gram", lambda X, columns, rows, scale: len(rows) * len(columns) * (len(columns) + 1) / 2)
    patch(Multinomial, "image", lambda model, x: math.prod(model.design.shape) * model.classes)
    patch(Multinomial, "gradient_at", lambda model, *_: math.prod(model.design.shape) * model.classes)
    patch(Multinomial, "hessian", lambda model, image, working: (
        model.design.shape[0] * (len(working) + model.classes) * (len(working) + model.classes + 1) / 2
    ))  # fmt: skip
    try:
        yield work
    finally:
        for owner, name, original in restore:
            setattr(owner, name, original)


def ours(X, y, labels, cv):
    """(CV loss, the interval, multiplications, evaluations, seconds)."""
    estimator = LogisticRegression(l1_ratio=0.5, solver="saga") if labels else ElasticNet()
    began = time.perf_counter()
    with counted() as work:
        search = SufficeSearchCV(estimator, SPACE, cv=cv, refit=False).fit(X, y)
    seconds = time.perf_counter() - began
    low, high = search.score_interval_
    return -search.best_score_, (-high, -low), sum(work), len(search.cv_results_["work"]), seconds


def compare(name):
    X, y, labels = data(name)
    cv = StratifiedKFold(5, shuffle=True, random_state=0) if labels else KFold(5, shuffle=True, random_state=0)
    K = len(np.unique(y)) if labels and len(np.unique(y)) > 2 else 1
    loss, interval, work, evaluations, seconds = ours(X, y, labels, cv)
    reported, rival, epochs, rival_seconds = grid(X, y, labels, cv)
    passes = work / (0.8 * X.shape[0] * X.shape[1] * K)
    return {
        "data": name, "rows": X.shape[0], "columns": X.shape[1], "classes": K if K > 1 else 2 if labels else 0,
        "loss": loss, "interval": interval, "evaluations": evaluations, "fits": 5 * evaluations,
        "passes": round(passes), "seconds": round(seconds, 2), "grid loss": rival,
        "grid loss reported": reported, "grid fits": 2000,
        "grid passes": epochs, "grid seconds": round(rival_seconds, 2),
    }  # fmt: skip


NAMES = ("diabetes", "wine", "breast cancer", "mnist, 3 or 8", "digits, even or odd")


def table(rows):
    """The results as Markdown."""
    lines = [
        "| data | rows x columns | CV loss | of the grid | as it reports | fits | of the grid | "
        "passes | of the grid | seconds | of the grid |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    columns = ("fits", "grid fits", "passes", "grid passes", "seconds", "grid seconds")
    for row in rows:
        cells = [row["data"], f"{row['rows']} x {row['columns']}"]
        cells += [f"{row[name]:.6g}" for name in ("loss", "grid loss", "grid loss reported")]
        lines.append(f"| {' | '.join([*cells, *(str(row[name]) for name in columns)])} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--data", nargs="*", default=NAMES, choices=NAMES)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # the rivals do not converge within their default number of epochs everywhere
    rows = []
    for name in arguments.data:
        rows.append(compare(name))
        print(rows[-1], flush=True)
        (arguments.out / "sklearn_search.json").write_text(json.dumps(rows, indent=1) + "\n")
        text = "# Penalties of scikit-learn's estimators: a search beside grids of 20 x 20\n\n" + table(rows)
        (arguments.out / "sklearn_search.md").write_text(text + "\n\n" + "\n".join(__doc__.splitlines()[2:]) + "\n")


if __name__ == "__main__":
    main()
