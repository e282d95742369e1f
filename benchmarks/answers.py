"""Do searches end at the best place? The default search beside the best known loss, on tables made from a seed.

Four kinds of tables: spectra (overlapping bumps, collinear columns, drifting baselines), wide ones (more columns than
rows), one-hot columns (few to many levels, some of them rare), and such that next to no penalty is best (labels that
can be separated or nearly, counts with huge means, numbers with next to no noise); with squares, log loss and Poisson
deviance in turn. Each is searched for one penalty (Lasso, Ridge, ElasticNet of a fixed l1_ratio, LogisticRegression
with l1 or l2, PoissonRegressor) and for two, by `SufficeSearchCV` with its defaults and five folds, in a process of its
own that is killed after LIMIT seconds.

The best known loss is the least of an exact path or map of F (`exact_paths.py`, which shares no code with the search)
and of F where any of the searches has ended. Paths go from the l1 that makes all weights zero to 1e-8 of it, and from
1e3 to 1e-10 of the largest curvature for l2: also beyond the default range, except where the search was given a range.
Excess: how far F where a search has ended, by the same code, is above the best known, in percent, and in standard
errors over folds. Where that code does not come to its end, F is the upper end of what the search has proven. Losses
below a billionth of the plainest model's count as that.

Even tables are half a, odd ones half b: rules can be decided on one and judged on the other. Paths and maps are kept in
`--cache`. With `--before SRC` the same searches are made by the code in that source folder, or were (a file of
`--searches-only`), and work and time are compared.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import exact_paths
import numpy as np
from common import parser, provenance, table, target, write_json, write_text
from exact_paths import Folds, best_of_one, best_of_two
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from suffice.sklearn import ElasticNetGLM, SufficeSearchCV

KINDS = ("spectra", "wide", "one-hot", "near")
TARGETS = ("squares", "logistic", "Poisson")
USUAL = (1e-6, 1e2)  # the default range of a penalty
LIMIT = 120.0  # seconds of a search
CLOSE, FAR = 0.005, 0.05  # of the best known loss
NEGLIGIBLE = 1e-9  # of the loss of the plainest model: smaller losses are all alike
FEWEST = 12  # rows of a class
COSTS = ("work", "seconds")


# Tables


def spectra(rng: Any) -> tuple[Any, Any, float]:
    """Rows of spectra, the score that matters, and the noise of what is measured."""
    N, d, bumps = int(rng.integers(60, 301)), int(rng.integers(60, 201)), int(rng.integers(3, 13))
    places = np.linspace(0.0, 1.0, d)
    shapes = np.exp(-0.5 * ((places - rng.uniform(0, 1, (bumps, 1))) / rng.uniform(0.02, 0.15, (bumps, 1))) ** 2)
    amounts = rng.gamma(2.0, 1.0, (N, bumps))
    X = amounts @ shapes + 10.0 ** rng.uniform(-4.0, -1.3) * rng.normal(size=(N, d))
    if rng.random() < 0.5:
        X += rng.normal(size=(N, 3)) @ np.vander(places, 3).T * rng.choice([0.3, 3.0])
    of_each = np.where(np.arange(bumps) < rng.choice([1, 2, bumps]), rng.normal(size=bumps), 0.0)
    return StandardScaler().fit_transform(X), amounts @ of_each, 10.0 ** rng.uniform(-2.0, 0.0)


def wide(rng: Any) -> tuple[Any, Any, float]:
    N, d = int(rng.integers(30, 101)), int(10.0 ** rng.uniform(2.0, 3.0))
    correlation, X = rng.choice([0.0, 0.5, 0.95]), rng.normal(size=(N, d))
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + math.sqrt(1.0 - correlation**2) * X[:, j]
    matter = rng.permutation(d)[: max(2, int(d * rng.choice([0.01, 0.1, 1.0])))]
    return X, X[:, matter] @ rng.normal(size=len(matter)), 10.0 ** rng.uniform(-1.5, 0.3)


def one_hot(rng: Any) -> tuple[Any, Any, float]:
    N = int(rng.integers(80, 401))
    parts, score = [], np.zeros(N)
    for _ in range(int(rng.integers(2, 7))):
        levels = int(2.0 * 20.0 ** rng.uniform())
        shares = np.arange(1.0, levels + 1.0) ** -rng.choice([0.0, 1.0, 2.0])
        number = rng.choice(levels, N, p=shares / shares.sum())
        score += (rng.normal(size=levels) * rng.choice([0.0, 0.3, 1.0]))[number]
        parts.append(np.eye(levels)[:, np.unique(number)][number])
    return np.hstack(parts), score + 1e-3 * rng.normal(size=N), 10.0 ** rng.uniform(-1.0, 0.5)


def near(rng: Any) -> tuple[Any, Any, float]:
    """Next to no noise."""
    N, d = int(rng.integers(60, 401)), int(3.0 * 20.0 ** rng.uniform())
    correlation, X = rng.choice([0.0, 0.9]), rng.normal(size=(N, d))
    X = math.sqrt(1.0 - correlation) * X + math.sqrt(correlation) * rng.normal(size=(N, 1))
    X *= 10.0 ** (rng.uniform(-1.0, 1.0, d) * (rng.random() < 0.3))
    weights = rng.normal(size=d) * (rng.uniform(size=d) < rng.choice([0.2, 1.0]))
    return X, X @ weights + (0.0 if weights.any() else X[:, 0]), 10.0 ** rng.uniform(-6.0, -1.5)


MAKERS = dict(zip(KINDS, (spectra, wide, one_hot, near), strict=True))


@dataclass(frozen=True)
class Table:
    """X, y and the folds; `loss` as in TARGETS."""

    kind: str
    number: int
    loss: str
    X: Any
    y: Any
    splits: list[tuple[Any, Any]]

    @classmethod
    def of(cls, seed: int, kind: str, number: int) -> Table:
        """Halves have all targets alike: what rotates does so with every second table."""
        rng = np.random.default_rng([seed, KINDS.index(kind), number])
        loss = TARGETS[number // 2 % 3]
        X, score, noise = MAKERS[kind](rng)
        score = (score - score.mean()) / score.std()
        y = drawn(rng, loss, score, noise, close=kind == "near")
        splitter = StratifiedKFold if loss == "logistic" else KFold
        folds = splitter(5, shuffle=True, random_state=number).split(X, y)
        return cls(kind, number, loss, X, y, list(folds))

    def estimator(self, penalties: int) -> tuple[Any, dict[str, Any] | None, float]:
        """What is searched: the estimator, its space, and its l1_ratio where there is one penalty."""
        turn = self.number // 6
        if penalties == 2:
            both = LogisticRegression(l1_ratio=0.5, solver="saga")
            nets = {"squares": ElasticNet(), "logistic": both, "Poisson": ElasticNetGLM("poisson")}
            return nets[self.loss], None, 0.5
        if self.loss == "Poisson":
            return PoissonRegressor(), None, 0.0
        if self.loss == "logistic":
            lasso = LogisticRegression(l1_ratio=1.0, solver="saga")
            return (LogisticRegression(), None, 0.0) if turn % 2 else (lasso, None, 1.0)
        net = ElasticNet(l1_ratio=0.5), {"l1": USUAL}, 0.5
        return ((Lasso(), None, 1.0), (Ridge(), None, 0.0), net)[turn % 3]


def drawn(rng: Any, loss: str, score: Any, noise: float, close: bool) -> Any:
    """Targets whose dependence on a score of variance 1 has so much noise."""
    if loss == "squares":
        return 3.0 * score + 3.0 * noise * rng.normal(size=len(score))
    if loss == "Poisson":
        level, slope = (
            (rng.uniform(5.0, 11.0), rng.uniform(0.3, 1.0)) if close else (rng.uniform(0.0, 3.0), 0.3 / noise**0.3)
        )
        return rng.poisson(np.exp(np.minimum(level + min(slope, 1.5) * score, 15.0))).astype(float)
    part = rng.uniform(0.3, 0.7)
    while True:
        hidden = score + noise * rng.logistic(size=len(score))
        y = (hidden > np.quantile(hidden, part)).astype(int)
        if min(y.sum(), len(y) - y.sum()) >= FEWEST or len(y) < 3 * FEWEST:
            return y


# The best known loss


def exact_folds(made: Table) -> Folds:
    y = np.where(made.y == 1, 1.0, -1.0) if made.loss == "logistic" else made.y
    return Folds.of(made.X, y, made.splits, made.loss)


def best_known(made: Table, penalties: int, folds: Folds) -> dict[str, Any]:
    if penalties == 2:
        return best_of_two(folds, USUAL)
    _, space, ratio = made.estimator(1)
    l1, l2, decades = 0.0, folds.curvature, (-10.0, 3.0)
    if ratio > 0.0:
        l1, l2, decades = folds.l1_max, folds.l1_max * (1.0 - ratio) / ratio, (-8.0, 0.0)
    usual = math.log10(USUAL[0] / max(l1, l2)), math.log10(USUAL[1] / max(l1, l2))
    if space is not None:
        decades = max(decades[0], usual[0]), min(decades[1], usual[1])
    return best_of_one(folds, lambda t: (l1 * 10.0**t, l2 * 10.0**t), decades, usual)


def kept(folder: Path, seed: int, made: Table, penalties: int) -> dict[str, Any]:
    """From the cache, if it has one of this table by this code."""
    digest = hashlib.blake2b(
        Path(exact_paths.__file__).read_bytes() + made.X.tobytes() + made.y.tobytes(), digest_size=6
    )
    path = folder / f"{seed}-{made.kind}-{made.number}-{penalties}-{digest.hexdigest()}.json"
    if not path.exists():
        began = time.process_time()
        found = best_known(made, penalties, exact_folds(made))
        write_json(path, found | {"seconds": time.process_time() - began})
    return dict(json.loads(path.read_text()))


# Searches


def searched(made: Table, penalties: int) -> dict[str, Any]:
    """The default search, where it has ended, and what it took."""
    estimator, space, _ = made.estimator(penalties)
    scoring = "neg_log_loss" if made.loss == "logistic" else None
    began = time.process_time()
    search = SufficeSearchCV(estimator, space, cv=made.splits, scoring=scoring).fit(made.X, made.y)
    seconds = time.process_time() - began
    return {
        "penalties": [search.best_penalties_["l1"], search.best_penalties_["l2"]],
        "interval": [-search.score_interval_[1], -search.score_interval_[0]],
        "floor": search.l2_floor_,
        "status": search.result_.status.name,
        "success": search.result_.success,
        "evaluations": len(search.cv_results_["work"]),
        "purposes": dict(Counter(search.cv_results_["purpose"].tolist())),
        "work": float(search.cv_results_["work"].sum()),
        "seconds": seconds,
    }


def _answer(pipe: Any, made: Table, penalties: int) -> None:
    try:
        pipe.send(searched(made, penalties))
    except Exception as error:
        pipe.send({"failed": f"{type(error).__name__}: {error}", "where": traceback.format_exc()})


def apart(made: Table, penalties: int) -> dict[str, Any]:
    """The search in a process of its own."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(there, made, penalties))
    process.start()
    there.close()
    try:
        found = here.recv() if here.poll(LIMIT) else {"failed": f"not done within {LIMIT:g} seconds"}
    except EOFError:
        found = {"failed": "the process has died"}
    process.kill()
    process.join()
    return dict(found)


Case = tuple[str, int, int]  # kind, number, penalties


def searches(seed: int, cases: list[Case]) -> dict[str, Any]:
    found = {}
    for case in cases:
        found[name(case)] = one = apart(Table.of(seed, *case[:2]), case[2])
        said = one.get("failed") or f"{one['status']}, work {one['work']:.0f}, {one['seconds']:.2f} s"
        print(f"{name(case)}: {said}", flush=True)
    return found


def searched_by(source: Path, seed: int, cases: list[Case]) -> dict[str, Any]:
    """The searches as the code in another source folder makes them, or has made them."""
    if source.is_file():
        return dict(json.loads(source.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "searches.json"
        paths = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [
            sys.executable,
            __file__,
            "--seed",
            str(seed),
            "--searches-only",
            str(path),
            "--cases",
            *map(name, cases),
        ]
        subprocess.run(command, env=environment, check=True)
        return dict(json.loads(path.read_text()))


def name(case: Case) -> str:
    return "/".join(map(str, case))


def case_of(text: str) -> Case:
    kind, number, penalties = text.split("/")
    return kind, int(number), int(penalties)


# What was found


def judged(made: Table, penalties: int, known: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, Any]:
    """A row: the best known loss, and the excess of every search that came to its end."""
    folds = exact_folds(made)
    done = [one for one in found if "failed" not in one]
    for one in done:
        low, high = one["interval"]
        low, high = 0.0 if low is None else low, math.inf if high is None else high  # JSON has no infinity
        folds.descended(*one["penalties"])
        one["F"] = folds.mean(*one["penalties"])
        one["F"] = one["F"] if math.isfinite(one["F"]) else high
        l1, l2 = one["penalties"]
        folds.descended(l1, l2 or one["floor"])
        F = folds.mean(l1, l2 or one["floor"])  # what the interval is about
        one["outside its interval"] = max(0.0, low / F - 1.0, 1.0 - high / F) if math.isfinite(F) else 0.0
    best = min([known["F"], *(one["F"] for one in done)])
    inside = min([known["F inside"], *(one["F"] for one in done)])
    least = NEGLIGIBLE * folds.mean(folds.l1_max, folds.curvature)
    for one in done:
        one["excess"], one["excess inside"] = (max(one["F"], least) / max(F, least) - 1.0 for F in (best, inside))
        one["excess in se"] = max(one["F"] - max(best, least), 0.0) / known["se"]
        one["better than known"] = max(known["F"] / one["F"] - 1.0, 0.0)
    estimator, _, ratio = made.estimator(penalties)
    words = type(estimator).__name__ + (f", l1_ratio {ratio:g}" if penalties == 1 and ratio > 0.0 else "")
    row = {"name": name((made.kind, made.number, penalties)), "kind": made.kind, "loss": made.loss}
    row |= {"penalties": penalties, "estimator": words, "shape": list(made.X.shape), "best": best, "known": known}
    row["best lies beyond"] = known["F inside"] > (1.0 + CLOSE) * max(best, least)
    return row | {"search": found[0], "before": found[1] if len(found) > 1 else None}


def percent(value: float) -> str:
    return f"{100.0 * value:.2f}" if value < 10.0 else f"{100.0 * value:.0f}"


def decades(pair: list[float]) -> str:
    return ", ".join("-" if value <= 0.0 else f"{math.log10(value):.2f}" for value in pair)


def summary(rows: list[dict[str, Any]], which: str, label: str) -> list[str]:
    """A line of the table of groups."""
    done = [row[which] for row in rows if "failed" not in row[which]]
    close = sum(one["excess"] <= CLOSE for one in done)
    wrong = sum(one["success"] and one["excess"] > CLOSE for one in done)
    said = sum(one["success"] for one in done)
    most = [max((one[key] for one in done), default=math.nan) for key in ("excess", "excess in se")]
    middle = [float(np.median([one[key] for one in done])) if done else math.nan for key in ("evaluations", *COSTS)]
    return [
        label, str(len(rows)), str(len(rows) - len(done)), f"{close}", percent(most[0]), f"{most[1]:.2f}",
        f"{wrong} of {said}", f"{middle[0]:.0f}", f"{middle[1]:.0f}", f"{middle[2]:.2f}",
    ]  # fmt: skip


def ratio_to_before(rows: list[dict[str, Any]], key: str) -> float:
    both = [(row["search"], row["before"]) for row in rows]
    each = [now[key] / was[key] for now, was in both if "failed" not in now and "failed" not in was]
    return float(np.median(each)) if each else math.nan


HEAD = (
    "penalties, kind, loss", "tables", "failed", "within 0.5 %", "largest excess, %", "in se",
    "success, but not within", "evaluations", "work", "CPU s",
)  # fmt: skip


def parts_of(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """All of them, and by number of penalties, kind and loss."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        group = row["penalties"], row["kind"], row["loss"]
        for length in range(4):
            found.setdefault(group[:length], []).append(row)
    order = sorted(found, key=lambda g: (*g[:1], *map(KINDS.index, g[1:2]), *map(TARGETS.index, g[2:])))
    return {", ".join(map(str, group)) or "all": found[group] for group in order}


def targets_of(rows: list[dict[str, Any]], compared: bool) -> str:
    done = [row["search"] for row in rows if "failed" not in row["search"]]
    share = {key: 100.0 * sum(one[key] <= CLOSE for one in done) / len(rows) for key in ("excess", "excess inside")}
    far = sum(one["excess"] > FAR for one in done) + len(rows) - len(done)
    lines = [
        target("within 0.5 % of the best known, %", share["excess"], 99.0, at_least=True),
        target("within 0.5 % of the best of the default range, %", share["excess inside"], 99.0, at_least=True),
        target("more than 5 % above the best known, or failed", far, 0, digits=0),
    ]
    if compared:
        lines.append(target("work, now / before, median", ratio_to_before(rows, "work"), 1.3))
        lines.append(target("CPU seconds, now / before, median", ratio_to_before(rows, "seconds"), 1.3))
    return table(["", "measured", "target", ""], lines)


def report(seed: int, half: str | None, rows: list[dict[str, Any]]) -> str:
    compared, groups = rows[0]["before"] is not None, parts_of(rows)
    which = f"Seed {seed}, {f'half {half}' if half else 'both halves'}: {len(rows)} searches."
    parts = [f"# Where searches end, beside the best known loss\n\n{which}", targets_of(rows, compared)]
    parts.append("## By kind\n\n" + table(HEAD, [summary(own, "search", label) for label, own in groups.items()]))
    if compared:
        parts.append("## Before\n\n" + table(HEAD, [summary(own, "before", label) for label, own in groups.items()]))
        ratios = [[label, *(f"{ratio_to_before(own, key):.2f}" for key in COSTS)] for label, own in groups.items()]
        parts.append("## Now / before, medians\n\n" + table(["penalties, kind, loss", *COSTS], ratios))
    bad = [row for row in rows if row["search"].get("excess", math.inf) > CLOSE]
    if bad:
        columns = ["table", "estimator", "rows x columns", "excess, %", "in se", "of the default range, %", "status"]
        columns += ["log10 l1, l2", "log10 best l1, l2", "best loss", *(["before, %"] if compared else [])]
        lines = [bad_line(row) for row in sorted(bad, key=worst)]
        parts.append("## More than 0.5 % above the best known\n\n" + table(columns, lines))
    done = [one for row in rows for one in (row["search"], row["before"]) if one and "failed" not in one]
    better, off = (
        max((one[key] for one in done), default=0.0) for key in ("better than known", "outside its interval")
    )
    beyond = sum(row["best lies beyond"] for row in rows)
    parts.append(
        f"A search was better than the path or map by {percent(better)} % at most. F where it ended was outside the "
        f"interval that was proven by {off:.1e} of it at most. On {beyond} tables the best of the default range, 1e-6 "
        "to 1e2, is more than 0.5 % above the best of all penalties."
    )
    return "\n\n".join(parts)


def worst(row: dict[str, Any]) -> tuple[int, float]:
    return row["penalties"], -row["search"].get("excess", math.inf)


def bad_line(row: dict[str, Any]) -> list[str]:
    one, shape = row["search"], "{} x {}".format(*row["shape"])
    before = [] if row["before"] is None else [percent(row["before"].get("excess", math.nan))]
    best = [decades(row["known"]["at"]), f"{row['best']:.4g}", *before]
    label = [f"{row['name']}, {row['loss']}", row["estimator"], shape]
    if "failed" in one:
        return [*label, "failed", "", "", one["failed"][:60], "", *best]
    figures = [percent(one["excess"]), f"{one['excess in se']:.2f}", percent(one["excess inside"])]
    return [*label, *figures, one["status"], decades(one["penalties"]), *best]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=None, help="of the tables; from the clock unless given")
    options.add_argument("--count", type=int, default=40, help="tables of each kind (%(default)s)")
    options.add_argument("--only", choices=KINDS, default=None, help="tables of this kind")
    options.add_argument("--half", choices=("a", "b"), default=None, help="a: even tables only, b: odd ones")
    options.add_argument("--penalties", type=int, choices=(1, 2), default=None, help="searches for so many only")
    options.add_argument("--cases", nargs="*", default=None, help="kind/number/penalties, in place of all this")
    options.add_argument("--before", type=Path, default=None, help="a source folder, or a file of --searches-only")
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "suffice-answers")
    options.add_argument("--searches-only", type=Path, default=None, help="search only, and write that to this file")
    options.add_argument("--maps-only", action="store_true", help="make paths and maps, search nothing")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    seed = int(time.time()) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    numbers = range(given.half == "b", given.count, 1 if given.half is None else 2)
    kinds, counts = (given.only,) if given.only else KINDS, (given.penalties,) if given.penalties else (1, 2)
    cases = [(kind, number, count) for count in counts for kind in kinds for number in numbers]
    cases = cases if given.cases is None else [case_of(text) for text in given.cases]
    if given.searches_only is not None:
        write_json(given.searches_only, searches(seed, cases))
        return
    known = {}
    for case in cases:
        known[case] = one = kept(given.cache, seed, Table.of(seed, *case[:2]), case[2])
        print(f"{name(case)}: best {one['F']:.6g} at {decades(one['at'])}, {one['seconds']:.1f} s", flush=True)
    if given.maps_only:
        return
    now = searches(seed, cases)
    before = {} if given.before is None else searched_by(given.before, seed, cases)
    rows = []
    for case in cases:
        found = [now[name(case)], *([before[name(case)]] if before else [])]
        rows.append(judged(Table.of(seed, *case[:2]), case[2], known[case], found))
    made_by = provenance("scikit-learn")
    write_json(given.out / "answers.json", {"provenance": made_by, "seed": seed, "half": given.half, "tables": rows})
    text = report(seed, given.half, rows)
    print(text)
    measured = ", ".join(f"{key} {value}" for key, value in made_by.items())
    write_text(given.out / "answers.md", f"{text}\n\n{measured}\n\n" + "\n".join(__doc__.splitlines()[2:]) + "\n")


if __name__ == "__main__":
    main()
