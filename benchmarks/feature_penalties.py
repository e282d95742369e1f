"""One penalty for every feature: does it predict better than two penalties for all? It may, and it may not.

    python benchmarks/feature_penalties.py

Models are trained on one part of the rows, penalties are tuned on another, and what counts is the loss on a third that
nothing has seen. Compared are two penalties for all features (l1, l2), and then from there one l2, or one l1, for every
feature, by the search for many parameters (`Options(max_evaluations=...)`, the same for all).

- synthetic: 500 features, 250 rows to train, 2,000 to tune, 10,000 to test; a fifth of the weights matters, by sizes
  that fall from 1 to 1/100. There is something to learn about every feature, and enough rows to learn it from.
- synthetic, few rows to tune: the same with 250 rows to tune.
- breast cancer with all products of two features (495 features), thirds of 569 rows: hardly any rows to tune by.
- digits, even against odd, with all products of neighbouring pixels, thirds of 1,797 rows.
- no structure: 500 features with weights drawn alike, 250 + 2,000 rows: there is nothing to learn about any of them.

Penalties of every feature learn from the rows that they are tuned on nearly as weights do. So each model is also fitted
again, with the penalties found, on the rows to train and those to tune together, which is what one would use.

Losses are relative to that of two penalties, on the rows that were tuned on and on the unseen ones, over random splits
or draws: the mean and its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from common import parser, provenance, table, write_json, write_text
from sklearn.datasets import load_breast_cancer, load_digits
from threadpoolctl import threadpool_limits

import suffice
from suffice import losses, problems

Vector = npt.NDArray[np.float64]
Rows = tuple[Vector, Vector]
Split = tuple[Rows, Rows, Rows]  # to train, to tune, to test
KINDS = ("l2", "l1")


def synthetic(tune: int, alike: bool = False) -> Callable[[int], Split]:
    def draw(seed: int) -> Split:
        rng = np.random.default_rng([7, seed])
        d = 500
        sizes = np.zeros(d)
        sizes[rng.permutation(d)[:100]] = 10.0 ** -np.linspace(0.0, 2.0, 100)
        w = (np.full(d, norm(sizes) / math.sqrt(d)) if alike else sizes) * rng.standard_normal(d)
        parts = [rng.standard_normal((rows, d)) for rows in (250, tune, 10_000)]
        train, held, test = ((X, X @ w + rng.standard_normal(len(X))) for X in parts)
        return train, held, test

    return draw


def norm(v: Vector) -> float:
    return float(np.linalg.norm(v))


def thirds(X: Vector, y: Vector) -> Callable[[int], Split]:
    def draw(seed: int) -> Split:
        order = np.random.default_rng([11, seed]).permutation(len(X))
        parts = np.array_split(order, 3)
        train = X[parts[0]]
        centre, scale = train.mean(axis=0), np.maximum(train.std(axis=0), 1e-9)
        one, two, three = ((np.column_stack([(X[p] - centre) / scale, np.ones(len(p))]), y[p]) for p in parts)
        return one, two, three

    return draw


def cancer() -> Callable[[int], Split]:
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    i, j = np.triu_indices(X.shape[1])
    return thirds(np.hstack([X, X[:, i] * X[:, j]]), data.target == 1)


def digits() -> Callable[[int], Split]:
    data = load_digits()
    images = data.images / 16.0
    parts = [images, images[:, 1:] * images[:, :-1], images[:, :, 1:] * images[:, :, :-1]]
    X = np.hstack([part.reshape(len(images), -1) for part in parts])
    return thirds(X[:, X.std(axis=0) > 0.02], data.target % 2 == 0)


PROBLEMS: dict[str, tuple[Callable[[int], Split], bool]] = {
    "synthetic, 2,000 rows to tune": (synthetic(2000), False),
    "synthetic, 250 rows to tune": (synthetic(250), False),
    "no structure, 2,000 rows to tune": (synthetic(2000, alike=True), False),
    "breast cancer, products": (cancer(), True),
    "digits, products": (digits(), True),
}


def loss_of(rows: Rows, labels: bool) -> Any:
    return losses.LogLoss(*rows, positive=True) if labels else losses.SquaredError(*rows)


def compare(split: Split, labels: bool, evaluations: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Two penalties, and then one for every feature from there."""
    (X, y), held, test = split
    kind_of = problems.ElasticNetLogistic if labels else problems.ElasticNet
    model, both = kind_of(X, y), kind_of(np.vstack([X, held[0]]), np.concatenate([y, held[1]]))
    unseen = loss_of(test, labels)

    def judged(result: suffice.Result, again: suffice.Composite) -> dict[str, Any]:
        w, refitted = result.solutions[0].x, suffice.solve(again, within=1e-6, warm=result.solutions[0].x).x
        return {
            "tuned": result.cost / len(held[1]),
            "unseen": unseen.at(w).residual ** 2 / len(test[1]),
            "refitted": unseen.at(refitted).residual ** 2 / len(test[1]),
            "evaluations": result.evaluations,
            "status": result.status.name,
            "weights": int(np.count_nonzero(w)),
        }

    space = suffice.Space(l1=(1e-6, 1e2), l2=(1e-6, 1e2))
    problem = suffice.BilevelProblem([model], [loss_of(held, labels)], space=space)
    two = suffice.tune(problem, {"l1": 0.03, "l2": 0.03})
    assert two.params is not None
    yield "two", judged(two, both.at(**two.params))
    for kind in KINDS:
        other = "l1" if kind == "l2" else "l2"
        each = problems.Grouped(model, range(X.shape[1]), **{other: two.params[other]})
        space = suffice.Space(**dict.fromkeys(each.names(kind), (1e-6, 1e4)))
        problem = suffice.BilevelProblem([each], [loss_of(held, labels)], space=space)
        options = suffice.Options(max_evaluations=evaluations)
        found = suffice.tune(problem, dict.fromkeys(space.names, two.params[kind]), options=options)
        assert found.params is not None
        again = problems.Grouped(both, range(X.shape[1]), **{other: two.params[other]})
        yield kind, judged(found, again.at(**found.params))


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--draws", type=int, default=5, help="of every problem (%(default)s)")
    arguments.add_argument("--evaluations", type=int, default=60, help="of every search (%(default)s)")
    args = arguments.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    with threadpool_limits(1):
        for name, (draw, labels) in PROBLEMS.items():
            found[name] = [dict(compare(draw(seed), labels, args.evaluations)) for seed in range(args.draws)]
            print(name, found[name], flush=True)
            write_json(args.out / "feature_penalties.json", {"provenance": provenance(), "draws": found})
    rows = []
    for name, draws in found.items():
        for kind in KINDS:
            cells = []
            for what in ("tuned", "unseen", "refitted"):
                ratios = np.array([one[kind][what] / one["two"][what] for one in draws])
                error = ratios.std(ddof=1) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
                cells.append(f"{ratios.mean():.3f} ± {error:.3f}")
            two = [f"{np.mean([one['two'][what] for one in draws]):.4f}" for what in ("unseen", "refitted")]
            rows.append([name, " / ".join(two), f"one {kind} each", *cells])
    head = ["problem", "unseen loss, two penalties / refitted", "instead: loss relative to that", "tuned on", "unseen"]
    head.append("unseen, both refitted")
    title = "# One penalty for every feature, or two for all"
    text = f"{title}\n\n{args.draws} draws or splits each.\n\n{table(head, rows)}\n"
    print(text)
    write_text(args.out / "feature_penalties.md", text)


if __name__ == "__main__":
    main()
