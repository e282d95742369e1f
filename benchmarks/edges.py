"""Does the default search find the best penalties of the space, also where they lie on an edge of it?

F, the cross-validated loss, is mapped over the space of every problem to a proven error of 1 %: on every second line of
a grid of 25 x 25 (of 97 points for one penalty), and on all of the grid around points within 10 % of the best. From up
to four of its best points, three cells apart, local searches go on with steps of a cell at first. The best value of
these, or of any search if one is better, is the best known F. A point of the grid whose models take more than 200 steps
of the solver each counts with the upper bound that is proven by then. The excess of a search is how far its F lies
above the best known one, relative to it. A valley narrower than a cell of the grid may be missed by all.

Spaces are l1 and l2 from 1e-6 to 1e2, or the one penalty of Ridge and Lasso. Searches are those of `SufficeSearchCV`
with its defaults, 5 folds, at most 500 rows. `statsmodels` has nine of the data sets. The rules of the search were made
with the data sets and the first 60 random problems in view; 20 fresh ones were only measured afterwards.

Work is counted in passes over a training matrix, as in `sklearn_search.py`. With `--before SRC` the searches are made
by the code in that source folder as well, and work is compared with theirs. Maps are kept in `--cache`.
"""

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import parser, provenance, table, target, write_json, write_text
from sklearn import datasets as bundled
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from suffice_bench.grids import counted

import suffice
from suffice.sklearn import SufficeSearchCV

FINE, LINE = 25, 97
MAPPED = 5e-3  # the error of the root of F on the grid, relative to it
PROMISING = 1.1  # around points of every second line that are this near to the best, all points of the grid are seen
STARTS, FOLLOWED, APART = 4, 1.03, 3.0  # local searches from so many points, so near to the best, so far apart
LIMIT = 0.005
STEPS = 200  # of a solver for one model of the grid: what takes more counts with its proven upper bound
RANGE = (1e-6, 1e2)
ROWS = 500
KINDS = {"": "Data sets", "random": "Random problems", "fresh": "Fresh random problems"}  # by the first word of a name


# Problems: name -> (X, y, estimator, scoring)


def standardised(X):
    X = np.asarray(X, dtype=float)
    return StandardScaler().fit_transform(X[:, X.std(axis=0) > 0])


def some(X, y):
    """ROWS of the rows, if there are more."""
    if len(y) <= ROWS:
        return X, y
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:ROWS])
    return X[rows], y[rows]


def digits(*pair, rows=250):
    X, y = bundled.load_digits(return_X_y=True)
    kept = np.flatnonzero(np.isin(y, pair))[:rows]
    return X[kept], y[kept] == pair[0]


def iris(*pair):
    X, y = bundled.load_iris(return_X_y=True)
    kept = np.isin(y, pair)
    return X[kept], y[kept]


def house_like(seed=0):
    """Like the Californian houses: eight skewed, dependent columns and an outcome that is not linear in them."""
    rng = np.random.default_rng(seed)
    income, age = rng.lognormal(1.2, 0.45, 400), rng.uniform(1, 52, 400)
    rooms = 3.0 + 0.6 * income + rng.lognormal(0.0, 0.5, 400)
    bedrooms, people = 0.2 * rooms + rng.normal(0, 0.1, 400), rng.lognormal(7.0, 0.7, 400)
    north, west = rng.uniform(32, 42, 400), rng.uniform(-124, -114, 400)
    price = 0.4 * income + 0.01 * age - 0.3 * np.abs(north + west + 82) ** 0.5 + rng.gumbel(0, 0.4, 400)
    X = np.column_stack([income, age, rooms, bedrooms, people, people / rng.uniform(2, 4, 400), north, west])
    return X, price


def statsmodels(name, outcome, positive=None):
    """Numeric columns of a data set of statsmodels; labels are outcome > positive, where that is given."""
    import statsmodels.api as sm

    table = getattr(sm.datasets, name).load_pandas().data.select_dtypes("number").dropna()
    y = table.pop(outcome).to_numpy(dtype=float)
    X, y = some(table.to_numpy(dtype=float), y)
    return X, (y > positive if positive is not None else (y - y.mean()) / y.std())


def made(kind, seed, standard=True, **settings):
    make = bundled.make_classification if kind == "classes" else bundled.make_regression
    X, y = make(random_state=seed, **settings)
    return (standardised(X) if standard else X), (y if kind == "classes" else y / y.std())


def sparse(seed, labels):
    rng = np.random.default_rng(seed)
    X = sp.random_array((300, 200), density=0.05, rng=rng, format="csr")
    signal = X @ np.where(np.arange(200) < 20, rng.normal(0, 3, 200), 0.0) + rng.normal(0, 0.5, 300)
    return X, (signal > np.median(signal) if labels else signal)


def logistic(X, y, scoring="neg_brier_score"):
    return X, np.asarray(y).astype(int), LogisticRegression(l1_ratio=0.5, solver="saga"), scoring


def net(X, y):
    return X, np.asarray(y, dtype=float), ElasticNet(), None


def of_one(estimator):
    return lambda X, y: (X, np.asarray(y, dtype=float), estimator, None)


def diabetes():
    X, y = bundled.load_diabetes(return_X_y=True)
    return standardised(X), (y - y.mean()) / y.std()


def linnerud(k):
    X, Y = bundled.load_linnerud(return_X_y=True)
    return standardised(X), standardised(Y)[:, k]


def labelled(load):
    X, y = load(return_X_y=True)
    return (standardised(X), y)


def data_sets():
    """Every data set under its name, as a function without arguments."""
    log, brier = "neg_log_loss", "neg_brier_score"
    cancer, wine = bundled.load_breast_cancer, bundled.load_wine
    ridge, lasso = of_one(Ridge()), of_one(Lasso())
    more, fewer = {"n_samples": 300, "n_features": 20}, {"n_samples": 60, "n_features": 150}
    cases = {
        "breast cancer, Brier": lambda: logistic(*some(*labelled(cancer))),
        "breast cancer, log loss": lambda: logistic(*some(*labelled(cancer)), log),
        "wine, three classes, Brier": lambda: logistic(*labelled(wine)),
        "diabetes": lambda: net(*diabetes()),
        "diabetes as it comes": lambda: net(*bundled.load_diabetes(return_X_y=True)),
        "diabetes, ridge": lambda: ridge(*diabetes()),
        "diabetes, lasso": lambda: lasso(*diabetes()),
        "linnerud, pulse": lambda: net(*linnerud(2)),
        "linnerud, weight": lambda: net(*linnerud(0)),
        "houses": lambda: net(standardised(house_like()[0]), standardised(house_like()[1][:, None])[:, 0]),
        "houses, lasso": lambda: lasso(standardised(house_like()[0]), house_like()[1]),
    }
    for pair in ((3, 8), (1, 7)):
        for how, change in (("standardised", standardised), ("as they come", np.asarray)):
            for scoring in (brier, log):
                name = f"digits {pair[0]} or {pair[1]}, {how}, {'Brier' if scoring == brier else 'log loss'}"
                cases[name] = lambda pair=pair, change=change, scoring=scoring: logistic(
                    change(digits(*pair)[0]), digits(*pair)[1], scoring
                )

    def parity():
        X, y = bundled.load_digits(return_X_y=True)
        return standardised(X[:400]), y[:400] % 2

    cases["digits, even or odd, Brier"] = lambda: logistic(*parity())
    cases["digits, even or odd, log loss"] = lambda: logistic(*parity(), log)
    for pair, words in (((0, 1), "setosa or versicolor"), ((1, 2), "versicolor or virginica")):
        cases[f"iris, {words}, Brier"] = lambda pair=pair: logistic(standardised(iris(*pair)[0]), iris(*pair)[1])
        cases[f"iris, {words}, log loss"] = lambda pair=pair: logistic(*iris(*pair), log)
    numbers = {
        "longley": "TOTEMP", "stackloss": "STACKLOSS", "statecrime": "murder", "copper": "WORLDCONSUMPTION",
        "scotland": "YES", "ccard": "AVGEXP", "star98": "LOWINC",
    }  # fmt: skip
    for name, outcome in numbers.items():
        cases[f"{name} (statsmodels)"] = lambda name=name, outcome=outcome: net(
            standardised(statsmodels(name, outcome)[0]), statsmodels(name, outcome)[1]
        )
    for name, outcome, positive in (("spector", "GRADE", 0.5), ("fair", "affairs", 0.0)):
        cases[f"{name} (statsmodels), Brier"] = lambda name=name, outcome=outcome, positive=positive: logistic(
            standardised(statsmodels(name, outcome, positive)[0]), statsmodels(name, outcome, positive)[1]
        )
    cases |= {
        "made classes, 300 x 20, Brier": lambda: logistic(*made("classes", 0, **more, n_informative=5, flip_y=0.1)),
        "made classes, separable, log loss": lambda: logistic(*made("classes", 1, **more, flip_y=0, class_sep=3), log),
        "made classes, 60 x 150, Brier": lambda: logistic(*made("classes", 2, **fewer, n_informative=10)),
        "made regression, 300 x 20": lambda: net(*made("numbers", 0, **more, n_informative=10, noise=50.0)),
        "made regression, 60 x 150": lambda: net(*made("numbers", 1, **fewer, n_informative=10, noise=5.0)),
        "made regression, 60 x 150, ridge": lambda: ridge(*made("numbers", 2, **fewer, n_informative=100, noise=1.0)),
        "made regression, no noise": lambda: net(*made("numbers", 3, **more, n_informative=20)),
        "made regression, low rank": lambda: net(*made("numbers", 4, **more, effective_rank=4, noise=1.0)),
        "made regression, low rank, lasso": lambda: lasso(*made("numbers", 5, **more, effective_rank=4, noise=0.5)),
        "sparse classes, 300 x 200, Brier": lambda: logistic(*sparse(0, labels=True)),
        "sparse regression, 300 x 200": lambda: net(*sparse(1, labels=False)),
    }
    return cases


def random_problem(seed):
    """A random linear truth: rows, columns, correlation, sparsity, noise and kind all drawn; a third are classes."""
    rng = np.random.default_rng([7, seed])
    N, d = int(rng.integers(30, 301)), int(rng.integers(3, 81))
    correlation, noise = rng.choice([0.0, 0.5, 0.9, 0.99]), 10.0 ** rng.uniform(-2, 0.7)
    X = rng.normal(size=(N, d))
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + math.sqrt(1 - correlation**2) * X[:, j]
    w = rng.normal(size=d) * (rng.uniform(size=d) < rng.choice([0.1, 0.4, 1.0]))
    signal = X @ w if w.any() else X[:, 0]
    y = signal / signal.std() + noise * rng.normal(size=N)
    if seed % 3 == 2:
        return logistic(X, y > np.median(y), "neg_brier_score" if seed % 2 else "neg_log_loss")
    return net(X * 10.0 ** rng.uniform(-1, 1), y / y.std())


def problems():
    cases = data_sets()
    cases |= {f"random {seed}": lambda seed=seed: random_problem(seed) for seed in range(60)}
    cases |= {f"fresh {seed}": lambda seed=seed: random_problem(1000 + seed) for seed in range(20)}
    return cases


# What is measured


class FoundError(Exception):
    """Carries the problem of a search out of it."""


class _Stopped(SufficeSearchCV):
    def _search(self, noted, folds, tie, options):
        raise FoundError(noted.problem)


def settings(case):
    _, y, estimator, scoring = case
    splitter = StratifiedKFold if hasattr(estimator, "C") else KFold
    names = {"Ridge": ("l2",), "Lasso": ("l1",)}.get(type(estimator).__name__, ("l1", "l2"))
    return {
        "estimator": estimator,
        "space": dict.fromkeys(names, RANGE),
        "scoring": scoring,
        "cv": splitter(min(5, len(y) // 2), shuffle=True, random_state=0),
        "refit": False,
    }


def searched(case):
    """The default search: F, where, how many evaluations of each kind, and passes."""
    X, y, *_ = case
    with counted() as work:
        search = SufficeSearchCV(**settings(case)).fit(X, y)
    purposes, counts = np.unique(search.cv_results_["purpose"], return_counts=True)
    folds = search.n_splits_
    classes = len(np.unique(y)) if hasattr(search.estimator, "C") else 1
    each = (1.0 - 1.0 / folds) * math.prod(X.shape) * (classes if classes > 2 else 1)
    steps = search.cv_results_["work"]
    return {
        "F": -float(search.best_score_),
        "interval": [-search.score_interval_[1], -search.score_interval_[0]],
        "penalties": search.best_penalties_,
        "evaluations": len(steps),
        "evaluations by purpose": {str(name): int(n) for name, n in zip(purposes, counts, strict=True)},
        "steps": float(steps.sum()),
        "passes": round(sum(work) / each),
        "status": search.result_.status.name,
    }


def mapped(case):
    """The best F over the space, and where, by a grid and a compass search."""
    X, y, *_ = case
    try:
        _Stopped(**settings(case)).fit(X, y)
    except FoundError as found:
        (full,) = found.args
    problem = suffice.BilevelProblem(
        full.lower, full.losses, space=full.space, solver=full.solver, max_steps=STEPS
    )  # fmt: skip
    lower, upper = problem.space.bounds
    m, folds = len(lower), len(problem)
    side = FINE if m == 2 else LINE
    step = (upper - lower) / (side - 1)
    known = {}

    def look(place):
        if place in known:
            return
        theta = np.clip(lower + step * np.array(place), lower, upper)
        near = min(known, key=lambda other: math.dist(place, other), default=None)
        made = known.get(near)
        size = math.inf if made is None else made.cost
        for _ in range(4):  # the size of F is known better every time
            made = problem.evaluate(theta, within=MAPPED * math.sqrt(size / folds), warm=made)
            size = made.cost
            if made.e.max() <= MAPPED * math.sqrt(size / folds) or made.work >= STEPS * folds:
                break
        known[place] = made

    def height(place):
        made = known[place]
        return made.cost if made.e.max() <= 2 * MAPPED * math.sqrt(made.cost / folds) else made.interval[1]

    def best(count):
        places = sorted(known, key=height)
        limit = FOLLOWED * height(places[0])
        kept = []
        for p in places:
            if height(p) <= limit and all(math.dist(p, q) >= APART for q in kept):
                kept.append(p)
        return kept[:count]

    for place in sorted(product(range(0, side, 2), repeat=m), reverse=True):
        look(place)
    limit = PROMISING * min(map(height, known))
    for p in [p for p in known if height(p) <= limit]:
        for move in product((-1, 0, 1), repeat=m):
            look(tuple(int(i) for i in np.clip(np.add(p, move), 0, side - 1)))
    options = suffice.Options(max_evaluations=40, initial_radius=1.0 / (side - 1), final_radius=5e-4)
    ends = [suffice.tune(problem, known[p].point, options=options).evaluation for p in best(STARTS)]
    found = min(ends, key=lambda made: made.interval[1])
    found = problem.evaluate(found.point, within=1e-4 * math.sqrt(found.cost / folds), warm=found)
    return {
        "F": found.cost,
        "interval": list(found.interval),
        "theta": found.point.tolist(),
        "grid": min(map(height, known)),
        "evaluated": len(known),
        "ends": [[made.cost, *made.point.tolist()] for made in ends],
    }


# Files


def cached(folder, name, case):
    X, y, estimator, scoring = case
    dense = X.toarray() if sp.issparse(X) else np.ascontiguousarray(X)
    content = hashlib.blake2b(dense.tobytes() + np.ascontiguousarray(y).tobytes(), digest_size=8)
    made_with = (FINE, LINE, MAPPED, PROMISING, STARTS, FOLLOWED, APART, STEPS, RANGE)
    content.update(f"{estimator} {scoring} {made_with}".encode())
    path = folder / f"{content.hexdigest()}.json"
    if not path.exists():
        write_json(path, mapped(case))
    return json.loads(path.read_text())


def searched_by(source, names):
    """The searches as the code in another source folder makes them, or has made them."""
    if source.is_file():
        return json.loads(source.read_text())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "searches.json"
        paths = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, __file__, "--searches-only", str(path), "--problems", *names]
        subprocess.run(command, env=environment, check=True)
        return json.loads(path.read_text())


def searches(names, cases):
    found = {}
    for name in names:
        found[name] = searched(cases[name]())
        print(f"{name}: F {found[name]['F']:.6g}, {found[name]['passes']} passes", flush=True)
    return found


def percent(value):
    return f"{100 * value:.2f}"


def report(rows, before):
    """Tables of all problems, and the targets."""
    parts = []
    targets = []
    for kind in KINDS:
        kept = [row for row in rows if (first if (first := row["name"].split()[0]) in KINDS else "") == kind]
        if not kept:
            continue
        within = sum(row["excess"] <= LIMIT for row in kept)
        what = f"{KINDS[kind]}: F within 0.5 % of the best known, of {len(kept)}"
        targets.append(target(what, within, len(kept), at_least=True, digits=0))
        header = ["problem", "best known F", "log10 of penalties", "excess, %", "evaluations", "passes"]
        if before:
            header += ["excess before, %", "evaluations before", "passes before"]
            ratio = float(np.median([row["search"]["passes"] / row["before"]["passes"] for row in kept]))
            targets.append(target(f"{KINDS[kind]}: passes, now / before, median", ratio, 1.1))
        lines = []
        for row in kept:
            place = ", ".join(f"{math.log10(value):.2f}" for value in row["best penalties"].values())
            lines.append([row["name"], f"{row['best']:.6g}", place, percent(row["excess"])])
            lines[-1] += [row["search"]["evaluations"], row["search"]["passes"]]
            if before:
                lines[-1] += [percent(row["excess before"]), row["before"]["evaluations"], row["before"]["passes"]]
        parts.append(f"## {KINDS[kind]}\n\n" + table(header, lines))
    head = "# The default search beside the best known F\n\n" + table(["", "measured", "target", ""], targets)
    return "\n\n".join([head, *parts])


def main():
    options = parser(__doc__)
    options.add_argument("--problems", nargs="*", default=None, help="by name; all of them unless given")
    options.add_argument(
        "--before", type=Path, default=None, help="what to compare with: a source folder, or a file of --searches-only"
    )
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "suffice-edges")
    options.add_argument("--searches-only", type=Path, default=None, help="search only, and write that to this file")
    options.add_argument("--maps-only", action="store_true", help="make the maps, search nothing")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    cases = problems()
    names = list(cases) if arguments.problems is None else arguments.problems
    if arguments.searches_only is not None:
        write_json(arguments.searches_only, searches(names, cases))
        return
    maps = {}
    for name in names:
        maps[name] = cached(arguments.cache, name, cases[name]())
        print(f"{name}: best F {maps[name]['F']:.6g} at {np.round(maps[name]['theta'], 2)}", flush=True)
    if arguments.maps_only:
        return
    before = {} if arguments.before is None else searched_by(arguments.before, names)
    now = searches(names, cases)
    rows = []
    for name in names:
        case, found = cases[name](), [now[name], *([before[name]] if before else [])]
        best = min([maps[name]["F"], *(one["F"] for one in found)])
        where = dict(zip(settings(case)["space"], 10.0 ** np.array(maps[name]["theta"]), strict=True))
        row = {"name": name, "rows": case[0].shape[0], "columns": case[0].shape[1], "best": best}
        row |= {"best penalties": where, "map": maps[name], "search": now[name], "excess": now[name]["F"] / best - 1}
        row |= {"before": before[name], "excess before": before[name]["F"] / best - 1} if before else {}
        rows.append(row)
    made_by = provenance("scikit-learn", "statsmodels")
    write_json(arguments.out / "edges.json", {"provenance": made_by, "problems": rows})
    text = report(rows, bool(before))
    print(text)
    write_text(arguments.out / "edges.md", text + "\n\n" + "\n".join(__doc__.splitlines()[2:]) + "\n")


if __name__ == "__main__":
    main()
