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
and n rows with n s (s + 1)/2 multiplications. Not counted are the sketches with which it begins, which are part of its
seconds. The final fit to all data counts on neither side.
"""

import numpy as np
from common import parser, provenance, write_json, write_text
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.preprocessing import StandardScaler
from suffice_bench.grids import beside

from suffice.datasets import load_mnist

GRID = 20


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


def compare(name):
    return {"data": name, **beside(*data(name), GRID)}


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
        cells += [f"{row[name]:.2f}" if name.endswith("seconds") else str(row[name]) for name in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    options = parser(__doc__)
    options.add_argument("--data", nargs="*", default=NAMES, choices=NAMES)
    arguments = options.parse_args()
    rows = []
    for name in arguments.data:
        rows.append(compare(name))
        print(rows[-1], flush=True)
        made = provenance("scikit-learn")
        write_json(arguments.out / "sklearn_search.json", {"provenance": made, "rows": rows})
        text = "# Penalties of scikit-learn's estimators: a search beside grids of 20 x 20\n\n" + table(rows)
        told = ", ".join(f"{name} {value}" for name, value in made.items())
        text += "\n\n" + "\n".join(__doc__.splitlines()[2:]) + f"\n{told}\n"
        write_text(arguments.out / "sklearn_search.md", text)


if __name__ == "__main__":
    main()
