"""Penalties for groups of features beside two for all: held-out loss and work of SufficeSearchCV.

Both searches see the same training rows and tune the same estimator by 5-fold cross-validation with their defaults: one
l1 and one l2 for all features, or one l2 for every group (of an estimator with an l2 penalty only). Losses are those of
the final fit on rows that no search has seen, over 10 splits at random. Work is counted in lower-level solver steps.

Groups win where they differ (the synthetic data, by construction, and products of features, by a little more than its
standard error). On the other two the search finds a lower loss of cross-validation and a higher one on new rows: eight
or ten parameters can be fitted to the folds of 300 rows.

- `synthetic`: 8 groups of 8 standard normal features, 240 rows, 120 of them for training; the coefficients of group k
  have standard deviation 2^-k, noise has 1. Made for groups of different relevance, so this shows what is possible
  where they differ, not that they do.
- `diabetes, products`: the 10 features of 442 patients and their 54 products (all but the square of sex, which says
  nothing new) in 6 groups: a patient's own 4 features, 6 of serum, squares, and products of own with own, own with
  serum and serum with serum. Half of the rows for training, standardised.
- `breast cancer`: 10 measured properties, each with mean, error and worst value: 10 groups of 3, 569 rows, half of them
  for training, standardised.
- `digits, even or odd`: the 8 rows of 8 pixels of an image are the groups, 1797 rows, 300 of them for training,
  standardised.
"""

import time
import warnings

import numpy as np
from common import parser, write_json, write_text
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from suffice.sklearn import SufficeSearchCV

SPLITS = 10


def synthetic():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 64))
    scale = np.repeat(2.0 ** -np.arange(8), 8)
    y = X @ (scale * rng.standard_normal(64)) + rng.standard_normal(240)
    groups = {f"group{k}": slice(8 * k, 8 * k + 8) for k in range(8)}
    return X, y, groups, ElasticNet(max_iter=100_000), Ridge(), 120, "neg_mean_squared_error"


def products():
    X, y = load_diabetes(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = [(i, j) for i in range(10) for j in range(i, 10) if (i, j) != (1, 1)]
    Z = np.hstack([X, np.stack([X[:, i] * X[:, j] for i, j in pairs], axis=1)])

    def kind(i, j):
        return "squares" if i == j else "own_own" if j < 4 else "serum_serum" if i >= 4 else "own_serum"

    kinds = ["own"] * 4 + ["serum"] * 6 + [kind(*pair) for pair in pairs]
    groups = {name: np.flatnonzero(np.array(kinds) == name) for name in dict.fromkeys(kinds)}
    both, ridge = (make_pipeline(StandardScaler(), model) for model in (ElasticNet(max_iter=100_000), Ridge()))
    return Z, y, groups, both, ridge, len(y) // 2, "neg_mean_squared_error"


def breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    groups = {f"property{k}": [k, k + 10, k + 20] for k in range(10)}
    return (X, y, groups, *classifiers(), len(y) // 2, "neg_brier_score")


def digits():
    X, y = load_digits(return_X_y=True)
    groups = {f"row{k}": slice(8 * k, 8 * k + 8) for k in range(8)}
    return (X, y % 2, groups, *classifiers(), 300, "neg_brier_score")


def classifiers():
    return (
        make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=0.5, solver="saga", max_iter=20_000)),
        make_pipeline(StandardScaler(), LogisticRegression()),
    )


DATA = {
    "synthetic": synthetic,
    "diabetes, products": products,
    "breast cancer": breast_cancer,
    "digits, even or odd": digits,
}


def compare(name):
    X, y, groups, both, ridge, rows, scoring = DATA[name]()
    found = {"two": [], "groups": []}
    for train, test in ShuffleSplit(SPLITS, train_size=rows, random_state=0).split(X):
        searches = {
            "two": SufficeSearchCV(both, {"l1": (1e-6, 1e2), "l2": (1e-6, 1e2)}, cv=5, scoring=scoring),
            "groups": SufficeSearchCV(ridge, cv=5, scoring=scoring, groups_of_features=groups),
        }
        for kind, search in searches.items():
            began = time.perf_counter()
            search.fit(X[train], y[train])
            seconds = time.perf_counter() - began
            loss = -get_scorer(scoring)(search.best_estimator_, X[test], y[test])
            found[kind].append(
                (loss, -search.best_score_, len(search.cv_results_["work"]), sum(search.cv_results_["work"]), seconds)
            )
    two, many = (np.array(found[kind]) for kind in ("two", "groups"))
    difference = two[:, 0] - many[:, 0]
    return {
        "data": name, "groups": len(groups), "rows": rows, "splits": SPLITS,
        **{f"{kind}, {what}": float(values[:, k].mean()) for kind, values in (("two", two), ("groups", many))
           for k, what in enumerate(("held-out loss", "CV loss", "evaluations", "steps", "seconds"))},
        "better on": int(np.sum(difference > 0.0)),
        "difference": float(difference.mean()), "its standard error": float(difference.std(ddof=1) / SPLITS**0.5),
    }  # fmt: skip


def table(rows):
    lines = [
        "| data | groups | held-out loss, two penalties | one per group | better on splits | CV loss, two | "
        "per group | evaluations, two | per group | steps, two | per group | seconds, two | per group |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["data"], str(row["groups"])]
        cells += [f"{row[f'{kind}, held-out loss']:.4g}" for kind in ("two", "groups")]
        cells += [f"{row['better on']} of {row['splits']}"]
        cells += [f"{row[f'{kind}, CV loss']:.4g}" for kind in ("two", "groups")]
        for what in ("evaluations", "steps"):
            cells += [f"{row[f'{kind}, {what}']:.0f}" for kind in ("two", "groups")]
        cells += [f"{row[f'{kind}, seconds']:.2f}" for kind in ("two", "groups")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    options = parser(__doc__)
    options.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA))
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in arguments.data:
        rows.append(compare(name))
        print(rows[-1], flush=True)
    write_json(arguments.out / "sklearn_groups.json", rows)
    text = "# Penalties for groups of features\n\n" + table(rows)
    write_text(arguments.out / "sklearn_groups.md", text + "\n\n" + "\n".join(__doc__.splitlines()[2:]) + "\n")


if __name__ == "__main__":
    main()
