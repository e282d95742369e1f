"""`suffice tune` with its defaults on real tables, beside scikit-learn's own: the loss on rows that nobody has seen.

Each table (`table_sources.py`: where it comes from) is split, three quarters for training and a quarter held out,
stratified by class where there are classes; where several splits are given, losses are means over them. `suffice tune
train.csv --target y --json` runs in a process of its own, with no option but `--skip-missing-target` where targets are
missing; its predictions are those of `suffice predict` for the held-out file. The rivals see the same two files through
pandas, which was told of "." and "-" for missing:

- linear: medians for missing numbers with a column that marks them, standardised; one column per category, categories
  of fewer than five rows joined; dates, which somebody has told them of, as days, month and weekday (and the hour).
  LogisticRegressionCV with 10 values of C from 1e-4 to 1e4 and the log loss; RidgeCV with 25 values of alpha from
  1e-6 to 1e6; for the deviance of counts PoissonRegressor over 13 values from 1e-6 to 1e2 by GridSearchCV. Five folds
  (RidgeCV: leave one out).
- boosted: HistGradientBoosting with its defaults, categories as such (for the deviance of counts its Poisson loss).
- baseline: the classes' frequencies, or the mean.

Losses are means over held-out rows: the log loss of classes, the squared error of numbers, and for counts half the
Poisson deviance, too; a star marks a loss that our model was not fitted for. "ours / linear" is the ratio of two such
means; beside it stands the standard error of the difference, as a share of the linear model's loss: over held-out rows,
or over splits if there are several. "clock" is the shell's for the whole command, from the start of Python to the
written report; "search" is that for search and final fit, as the command tells it; seconds are those of the processor
for all of it, on one thread; with a dagger, they are without the report (`--no-report`).

Tables on which one split was clearly worse have five, and most of that was the split's. Of `leaders`, reigns of heads
of governments, the reason is known: countries with fewer than five rows, which the rival joins, have so few since their
reigns are long, 11 years in the mean where others have 4. On other tables joining makes models worse.

Rivals do not depend on suffice; their losses are kept in benchmarks/.cache. Results are written after each table, and
those of tables that are not run again (`--tables`) stay.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pandas as pd
from common import parser, provenance, target, write_json, write_text
from common import table as markdown
from sklearn import __version__ as sklearn_version
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor, RidgeCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from table_sources import SOURCES, download, path_of

from suffice.tabular.predict import predict

WAITS = 1.3  # seconds of the clock for one of the processor, where it waited for none
LIMIT = 180  # seconds of the processor after which a run is given up
SLOWEST, WORST = 60.0, 1.01
LOG_LOSS, SQUARES, DEVIANCE = "log loss", "squared error", "half Poisson deviance"


# The two files


def split(name, seed):
    """A folder with train.csv and test.csv of a table, the shape of the first and the rows of the second."""
    source, folder = SOURCES[name], path_of(name) / f"split-{seed}"
    frame = source.frame()
    y = frame[source.target]
    numbers = pd.to_numeric(y, errors="coerce")
    classes = y.nunique() <= 10 or numbers.notna().sum() == 0
    train, test = train_test_split(frame, test_size=0.25, random_state=seed, stratify=y if classes else None)
    folder.mkdir(parents=True, exist_ok=True)
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    return folder, train.shape, len(test)


# Ours


def tuned(name, folder, with_report):
    """What `suffice tune` says of train.csv, and what it took."""
    source, out = SOURCES[name], folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    options = [*source.options, *([] if with_report else ["--no-report"])]
    command = [sys.executable, "-m", "suffice", "tune", "train.csv", "--target", source.target, *options]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [*command, "--test", "test.csv", "--out", "run", "--json"], capture_output=True, text=True, cwd=folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT)),
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = {
        "exit code": done.returncode,
        "report": with_report,
        "seconds": seconds,
        "wall": time.perf_counter() - began,
    }
    try:
        told = json.loads(done.stdout)
    except ValueError:
        why = f"given up after {LIMIT} seconds" if done.returncode < 0 else done.stderr.strip()[-500:]
        return {**found, "status": "failed", "message": why}
    names = ("status", "message", "task", "model", "evaluations", "work", "score", "interval", "penalties", "failures")
    clock = {"search seconds": told["seconds"], "told seconds": told["total_seconds"]}
    return {**found, **clock, **{key: told[key] for key in names}, "notes": told["notes"]}


# The rivals


def prepared(path, dates):
    """A table as pandas reads it, dates as numbers."""
    frame = pd.read_csv(path, na_values=[".", "-", " "], skipinitialspace=True)
    for name in dates:
        moment = pd.to_datetime(frame.pop(name), format="mixed")
        parts = {"days": (moment - pd.Timestamp("2000-01-01")) / pd.Timedelta(days=1)}
        parts |= {part: getattr(moment.dt, part).astype(str) for part in ("month", "day_of_week", "hour")}
        frame = pd.concat([frame, pd.DataFrame({f"{name} {part}": value for part, value in parts.items()})], axis=1)
    return frame


def sorts(X):
    texts = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    return [name for name in X if name not in texts], texts


def linear(X, model):
    numbers, texts = sorts(X)
    impute = SimpleImputer(strategy="median", add_indicator=True)
    encode = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5, sparse_output=False)
    parts = [("numbers", make_pipeline(impute, StandardScaler()), numbers), ("texts", encode, texts)]
    return make_pipeline(ColumnTransformer(parts), model)


def boosted(X, model):
    numbers, texts = sorts(X)
    few = [name for name in texts if X[name].nunique() < 250]
    encode = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan, min_frequency=1
    )
    parts = [("few", encode, few), ("many", encode, [name for name in texts if name not in few])]
    before = ColumnTransformer([*parts, ("numbers", "passthrough", numbers)])
    return make_pipeline(before, model.set_params(categorical_features=list(range(len(few)))))


def rivals_of(measure, X):
    """The three rivals for a measure."""
    if measure == LOG_LOSS:
        logistic = LogisticRegressionCV(
            Cs=10, l1_ratios=(0.0,), scoring="neg_log_loss", max_iter=5000, use_legacy_attributes=False
        )
        boost = HistGradientBoostingClassifier(random_state=0)
        return {"linear": linear(X, logistic), "boosted": boosted(X, boost), "baseline": DummyClassifier()}
    if measure == SQUARES:
        ridge, boost = RidgeCV(np.logspace(-6, 6, 25)), HistGradientBoostingRegressor(random_state=0)
        return {"linear": linear(X, ridge), "boosted": boosted(X, boost), "baseline": DummyRegressor()}
    poisson = linear(X, PoissonRegressor(max_iter=5000))
    grid = {"poissonregressor__alpha": np.logspace(-6, 2, 13)}
    search = GridSearchCV(poisson, grid, scoring="neg_mean_poisson_deviance")
    boost = HistGradientBoostingRegressor(loss="poisson", random_state=0)
    return {"linear": search, "boosted": boosted(X, boost), "baseline": DummyRegressor()}


def label(value):
    """A class as text, whether it was read as 1 or 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def losses(measure, y, predicted, classes=()):
    """The loss of each row."""
    if measure == LOG_LOSS:
        place = {label(name): k for k, name in enumerate(classes)}
        return -np.log(np.maximum(predicted[np.arange(len(y)), [place[label(value)] for value in y]], 1e-15))
    if measure == SQUARES:
        return (y - predicted) ** 2
    predicted = np.maximum(predicted, 1e-12)
    return predicted - y + np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / predicted), 0.0)


def rivals(name, folder, measure):
    """Losses of each rival on each held-out row."""
    source = SOURCES[name]
    frames = [prepared(folder / file, source.dates).dropna(subset=source.target) for file in ("train.csv", "test.csv")]
    content = b"".join((folder / file).read_bytes() for file in ("train.csv", "test.csv"))
    said = f"{measure} {sklearn_version} {Path(__file__).read_text().split('# The rivals')[1]}".encode()
    kept = folder / f"rivals-{blake2b(content + said, digest_size=8).hexdigest()}.npz"
    if not kept.exists():
        y, y_test = (frame.pop(source.target) for frame in frames)
        X, X_test = (frame for frame in frames)
        if measure == LOG_LOSS:
            y, y_test = y.map(label), y_test.map(label)
        found = {}
        for rival, model in rivals_of(measure, X).items():
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
                said = model.predict_proba(X_test) if measure == LOG_LOSS else model.predict(X_test)
            found[rival] = losses(measure, y_test.to_numpy(), said, getattr(model, "classes_", ()))
            found[f"{rival} seconds"] = np.array(time.process_time() - began)
        np.savez(kept, **found)
    with np.load(kept) as found:
        return dict(found)


# Side by side


def ours(name, folder, measure):
    """Losses of our model on each held-out row."""
    source = SOURCES[name]
    y = prepared(folder / "test.csv", source.dates)[source.target]
    there = y.notna().to_numpy()
    names, columns, _ = predict(folder / "run", str(folder / "test.csv"))
    if measure != LOG_LOSS:
        return losses(measure, y.to_numpy()[there], np.asarray(columns[0], dtype=float)[there])
    classes = [title.removeprefix("probability of ") for title in names[1:]]
    return losses(measure, y.to_numpy()[there], np.column_stack(columns[1:])[there], classes)


def compare(name, seed, with_report):
    """One table: a row of the results."""
    folder, shape, held_out = split(name, seed)
    found = {
        "data": name, "package": SOURCES[name].package, "split": seed, "rows": shape[0], "held out": held_out,
        "columns": shape[1] - 1, "load": os.getloadavg()[0], "measures": {},
        "suffice": tuned(name, folder, with_report),
    }  # fmt: skip
    told = found["suffice"]
    if told["status"] == "failed":
        return found
    regression = [SQUARES] + [DEVIANCE] * (SOURCES[name].counts or told["model"] == "poisson")
    for measure in [LOG_LOSS] if told["task"] == "classification" else regression:
        mine, other = ours(name, folder, measure), rivals(name, folder, measure)
        difference = mine - other["linear"]
        found["measures"][measure] = {
            "suffice": float(mine.mean()),
            **{rival: float(other[rival].mean()) for rival in ("linear", "boosted", "baseline")},
            **{f"{rival} seconds": float(other[f"{rival} seconds"]) for rival in ("linear", "boosted")},
            "standard error": float(difference.std(ddof=1) / len(difference) ** 0.5),
        }
    return found


def pooled(rows):
    """One row per table and measure: means over the splits, and the standard error of the difference."""
    found = []
    for name in SOURCES:
        same = [row for row in rows if row["data"] == name]
        for measure in dict.fromkeys(measure for row in same for measure in row["measures"]):
            each = [row["measures"][measure] for row in same if measure in row["measures"]]
            mean = {key: float(np.mean([values[key] for values in each])) for key in each[0]}
            if len(each) > 1:  # held-out parts overlap: the correction of Nadeau and Bengio (2003)
                spread = float(np.std([values["suffice"] - values["linear"] for values in each], ddof=1))
                mean["standard error"] = spread * (1.0 / len(each) + 1.0 / 3.0) ** 0.5
            found.append({"data": name, "measure": measure, "rows": same, **mean})
    return found


def worse(found):
    return found["suffice"] > WORST * found["linear"]


def verdicts(rows):
    """Targets beside what was measured."""
    judged = [found for found in pooled(rows) if found["measure"] == judged_by(found["rows"][0])]
    ratios = [found["suffice"] / found["linear"] for found in judged]
    clearly = [found for found in judged if worse(found)]
    clearly = [found for found in clearly if found["suffice"] - found["linear"] > 2.0 * found["standard error"]]
    failed = sum(row["suffice"]["status"] == "failed" or bool(row["suffice"]["failures"]) for row in rows)
    own = f"{len(_unhindered(rows))} runs that hardly waited"
    cells = [
        target("tables", len({row["data"] for row in rows}), 30, at_least=True, digits=0),
        target("runs that failed", failed, 0, digits=0),
        target("most seconds", max(row["suffice"]["seconds"] for row in rows), SLOWEST, digits=1),
        target("seconds of the processor, in the median", _processor(rows), 3.0, digits=2),
        target(f"{own}: the clock beyond the search, in the median", _beyond(rows), 2.5, digits=2),
        target(f"{own}: seconds told, beside the clock's: the most apart", _apart(rows), 0.2, digits=2),
        target("tables with more than 1.01 times the linear rival's loss", sum(map(worse, judged)), 0, digits=0),
        target("of these, by more than two standard errors", len(clearly), 0, digits=0),
        target("largest loss, as a multiple of the linear rival's", max(ratios, default=1.0), WORST, digits=3),
        target("median", float(np.median(ratios or [1.0])), 1.0, digits=4),
    ]
    return markdown(["", "measured", "target", ""], cells)


def _processor(rows):
    """Seconds of a whole command, scikit-learn's import included."""
    return float(np.median([row["suffice"]["seconds"] for row in rows]))


def _unhindered(rows):
    """What was told of runs with a report whose clock is mostly their own."""
    return [row["suffice"] for row in rows if row["suffice"]["wall"] <= WAITS * row["suffice"]["seconds"]]


def _beyond(rows):
    """Seconds of the clock that a command took besides its search, scikit-learn's import among them, which takes 1."""
    beyond = [one["wall"] - one["search seconds"] for one in _unhindered(rows)]
    return float(np.median(beyond or [math.nan]))


def _apart(rows):
    return max((abs(one["wall"] - one["told seconds"]) for one in _unhindered(rows)), default=0.0)


def judged_by(row):
    """The measure that the model was fitted for."""
    return DEVIANCE if row["suffice"].get("model") == "poisson" else next(iter(row["measures"]))


def lines(rows):
    header = ["table", "rows x columns", "splits", "loss", "suffice", "linear", "boosted", "baseline", "ours / linear",
              "standard error", "ours / boosted", "clock", "search", "seconds", "evaluations",
              "status"]  # fmt: skip
    cells = []
    for found in pooled(rows):
        same = found["rows"]
        told = [row["suffice"] for row in same]
        size = f"{same[0]['rows'] + same[0]['held out']} x {same[0]['columns']}"
        name = found["measure"] + (" *" if found["measure"] != judged_by(same[0]) else "")
        four = [f"{found[model]:.4g}" for model in ("suffice", "linear", "boosted", "baseline")]
        error = f"{100 * found['standard error'] / found['linear']:.2g} %"
        ratio = [f"{found['suffice'] / found['linear']:.3f}", error, f"{found['suffice'] / found['boosted']:.3f}"]
        mark = "" if all(one["report"] for one in told) else " †"
        clock = [f"{max(one[key] for one in told):.1f}" for key in ("wall", "search seconds")]
        end = [*clock, f"{max(one['seconds'] for one in told):.1f}{mark}", max(one["evaluations"] for one in told)]
        status = ", ".join(dict.fromkeys(one["status"] for one in told))
        cells.append([found["data"], size, len(same), name, *four, *ratio, *end, status])
    for row in rows:
        if not row["measures"]:
            what = f"{row['data']} (split {row['split']}): {row['suffice']['message'][:60]}"
            cells.append([what, *[""] * 12, f"{row['suffice']['seconds']:.1f}", "", row["suffice"]["status"]])
    return markdown(header, cells)


def report(out, rows):
    order = {name: k for k, name in enumerate(SOURCES)}
    rows = sorted(rows, key=lambda row: (order.get(row["data"], len(order)), row["split"]))
    write_json(out / "tables.json", rows)
    load = float(np.median([row["load"] for row in rows if "load" in row] or [0.0]))
    load = f"While these ran, {load:.1f} processes wanted the {os.cpu_count()} processors in the median. Where that is "
    load += "more than there are, the clock is of a busy machine, and seconds of the processor are what to go by."
    text = f"# Real tables, three quarters for training\n\n{verdicts(rows)}\n\n{load}\n\n{lines(rows)}\n\n"
    write_text(out / "tables.md", text + "\n".join(__doc__.splitlines()[2:]) + "\n")


def main():
    options = parser(__doc__)
    options.add_argument("--tables", nargs="*", default=list(SOURCES), choices=list(SOURCES), metavar="NAME")
    options.add_argument("--splits", nargs="*", type=int, default=[0], metavar="SEED", help="seeds of splits (0)")
    options.add_argument("--no-report", action="store_true", help="the search and the fit, without the report")
    options.add_argument("--go-on", type=Path, default=None, help="rows of this file are taken as they are")
    arguments = options.parse_args()
    download()
    known = arguments.go_on or arguments.out / "tables.json"
    rows = json.loads(known.read_text()) if known.exists() else []
    done = {(row["data"], row["split"]) for row in rows} if arguments.go_on else set()
    for name, seed in itertools.product(arguments.tables, arguments.splits):
        if (name, seed) in done:
            continue
        found = {**compare(name, seed, not arguments.no_report), "measured": provenance("scikit-learn")}
        rows = [row for row in rows if (row["data"], row["split"]) != (name, seed)] + [found]
        report(arguments.out, rows)
        write_json(known, rows)
        told = found["suffice"]
        seen = ", ".join(f"{key} {value['suffice'] / value['linear']:.4f}" for key, value in found["measures"].items())
        print(name, seed, seen, f"{told['seconds']:.1f} s", told["status"], told.get("message", "")[:80], flush=True)
    report(arguments.out, rows)
    print(verdicts(rows))


if __name__ == "__main__":
    main()
