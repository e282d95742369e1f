r"""`suffice check`: does a new file look like the rows of a run, and does the model do on it what it did?

Every column that the model needs, and the target, has its hypothesis: the new entries are drawn as the run's were.

    numbers              Kolmogorov and Smirnov's distance of known entries (ties only make it less eager)
    categories           chi-squared of levels; those that are expected in fewer than EXPECTED rows count as one
    missing entries      Fisher's exact test of their number

Dates have none: days come one after another.

The model's loss on the new rows, l_i, is held against its cross-validated loss F by Welch's t, with the standard error
of F over the K folds, and that of the mean of l_i:

    t = (mean l - F) / sqrt(e^2 + v / n),    (e^2 + v / n)^2 / (e^4 / (K - 1) + (v / n)^2 / (n - 1)) degrees of freedom.

All of these are one family: by Holm's rule the chance of any alarm is LEVEL at most where nothing has changed, as far
as each p-value is one (chi-squared and t are approximations). Columns that are missing or of another type are alarms
without a test. Levels never seen and numbers outside of the range are told, and are none: even rows of the same kind
have some. Where there are fewer than LEAST rows nothing can be told.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special, stats

from suffice.files import replace_atomically
from suffice.report.formats import settings as shown
from suffice.report.html import page, table, tiles
from suffice.sklearn.target import fitted_inside
from suffice.tabular.entries import Array, Column, TableError, listed, plural, quoted
from suffice.tabular.model_file import load_file, model_file
from suffice.tabular.predict import frame_for, read_recipe
from suffice.tabular.reading import read
from suffice.tabular.states import lines_of
from suffice.tabular.table import Recipe, Table
from suffice.tabular.targets import known_labels

LEVEL = 0.05
EXPECTED = 5.0
LEAST = 8
AS_BEFORE, NOT_AS_BEFORE, CANNOT_BE_TOLD = "as before", "not as before", "cannot be told"
CODES = {AS_BEFORE: 0, NOT_AS_BEFORE: 1, CANNOT_BE_TOLD: 2}


@dataclass(frozen=True)
class Finding:
    """Of one test: `p` of its own, and whether it is an alarm among all."""

    name: str
    what: str
    p: float
    told: str
    alarm: bool = False


@dataclass(frozen=True)
class Check:
    """What a file looks like beside the rows of a run."""

    file: str
    rows: int
    verdict: str
    findings: tuple[Finding, ...]
    alarms: tuple[str, ...]  # without a test
    notes: tuple[str, ...]

    @property
    def code(self) -> int:
        """The exit code."""
        return CODES[self.verdict]

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "code": self.code, "level": LEVEL}

    def lines(self) -> list[str]:
        """For a terminal."""
        said = [f"Verdict  {self.file}: {self.verdict} ({plural(self.rows, 'row')}, {len(self.findings)} tests)"]
        said += [f"ALARM    {text}" for text in self.alarms]
        said += [f"ALARM    {one.name}, {one.what}: {one.told} (p = {one.p:.2g})" for one in self.findings if one.alarm]
        quiet = [one for one in self.findings if one.what == "score" and not one.alarm]
        said += [f"         {one.name}, {one.what}: {one.told}" for one in quiet]
        return [*said, *(f"Note     {note}" for note in self.notes)]

    def html(self) -> str:
        """A page."""
        body = f"<h1>{escape(self.file)}: {self.verdict}</h1>"
        body += tiles([(f"{self.rows:,}", "rows"), (str(len(self.findings)), "tests"),
                       (str(len(self.alarms) + sum(one.alarm for one in self.findings)), "alarms")])  # fmt: skip
        rows = []
        for one in sorted(self.findings, key=lambda one: one.p):
            words = f"<b>{escape(one.told)}</b>" if one.alarm else escape(one.told)
            rows.append((escape(one.name), escape(one.what), words, f"{one.p:.2g}"))
        body += table(["column", "of", "in the run and in the file", "p"], rows, numeric=(3,))
        told = [*(f"<b>{escape(text)}</b>" for text in self.alarms), *map(escape, self.notes)]
        body += "".join(f"<p>{text}</p>" for text in told)
        body += f"<p>Chance alone raises any of these alarms in {100 * LEVEL:g} % of files at most (Holm's rule).</p>"
        return page(f"check of {escape(self.file)}", body)


def check(folder: Path, path: str, *, trust: bool = False, save: Path | None = None) -> Check:
    """A file beside the rows of a run, without any training; its page in `save`."""
    from suffice.tabular.update import known_of  # which knows where the rows are

    settings = known_of(folder)[0]
    if settings.files:
        raise ValueError(f"{folder} is the run of files on a cluster: a check is for runs of one table")
    made = _checked(folder, path, settings.data, read_recipe(folder), trust)
    if save is not None:
        replace_atomically(save, made.html().encode("utf-8"))
    return made


def _checked(folder: Path, path: str, data: str, recipe: Recipe, trust: bool) -> Check:
    before, file = read(data, like=recipe.reading), Path(path).name
    try:
        new = read(path, like=recipe.reading)
    except TableError as error:
        if "before" not in str(error):  # of a type in parquet
            raise
        return Check(file, 0, NOT_AS_BEFORE, (), (str(error),), ())
    alarms = [f"there is no column {quoted(one)}" for one in recipe.needs if one not in new.origins]
    notes, findings = list(new.notes), []
    if more := [name for name in new.origins if name not in before.origins]:
        notes.append(f"columns that the run has not: {listed(more)}")
    notes += [] if recipe.target in new.origins else [f"without {quoted(recipe.target)} the model is not measured"]
    for one in (*recipe.needs, recipe.target):
        for column in (column for column in new.columns if one in (column.name, column.origin)):
            old = before[column.name] if column.name in before.names else None
            if old is None or "other" in (old.kind, column.kind) or column.origin:
                continue
            strays = sum(stray.count for stray in column.strays if stray.what[1] == column.form.wrong[1])
            if 2 * strays > len(new):
                alarms.append(f"column {quoted(one)}: {strays:,} of {len(new):,} entries are {column.form.wrong[1]}")
                continue
            findings += list(_drift(old, column, column.name in recipe.categorical))
            notes += strange(old, column, column.name in recipe.categorical)
    if len(new) >= LEAST and not alarms and recipe.target in new.origins:
        findings += _score(folder, new, recipe, trust, notes)
    findings = holm(findings)
    if alarms or any(one.alarm for one in findings):
        verdict = NOT_AS_BEFORE
    else:
        verdict = AS_BEFORE if len(new) >= LEAST else CANNOT_BE_TOLD
        notes += [] if len(new) >= LEAST else [f"{plural(len(new), 'row')}: {LEAST} at least tell anything"]
    return Check(file, len(new), verdict, tuple(findings), tuple(alarms), tuple(notes))


def holm(findings: list[Finding]) -> list[Finding]:
    """With alarms: the k-th smallest of m p-values is one if it and those before are at most LEVEL / (m - k + 1)."""
    order, alarms = sorted(range(len(findings)), key=lambda k: findings[k].p), set()
    for rank, k in enumerate(order):
        if findings[k].p > LEVEL / (len(order) - rank):
            break
        alarms.add(k)
    return [Finding(one.name, one.what, one.p, one.told, k in alarms) for k, one in enumerate(findings)]


def _drift(old: Column, new: Column, categorical: bool) -> Iterator[Finding]:
    absent, count = (int(old.missing.sum()), int(new.missing.sum())), (len(old.values), len(new.values))
    if any(absent):
        counts = [[absent[0], count[0] - absent[0]], [absent[1], count[1] - absent[1]]]
        told = " and ".join(f"{100 * a / n:.3g} %" for a, n in zip(absent, count, strict=True))
        yield Finding(new.name, "missing", float(stats.fisher_exact(counts)[1]), told)
    a, b = old.values[~old.missing], new.values[~new.missing]
    if not len(a) or not len(b):
        return
    if categorical or old.kind == "text":
        yield Finding(new.name, "levels", *_levels(_texts(a), _texts(b)))
    else:
        p = float(stats.ks_2samp(a, b, method="asymp").pvalue)
        told = " and ".join(
            f"{np.median(part):.4g} ({np.quantile(part, 0.1):.4g} to {np.quantile(part, 0.9):.4g})" for part in (a, b)
        )
        yield Finding(new.name, "numbers", p, f"medians (and 80 % of rows) {told}")


def _texts(levels: Array) -> Array:
    """As people write them: 14, not 14.0."""
    return levels.astype(str) if levels.dtype.kind != "f" else np.array([f"{level:.15g}" for level in levels])


def _levels(a: Array, b: Array) -> tuple[float, str]:
    levels, numbers = np.unique(np.concatenate([a, b]), return_inverse=True)
    counts = np.array([np.bincount(part, minlength=len(levels)) for part in np.split(numbers, [len(a)])])
    shares = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.argmax(np.abs(shares[1] - shares[0])))
    told = f"{quoted(levels[most], 30)} in {100 * shares[0, most]:.3g} % and {100 * shares[1, most]:.3g} %"
    rare = counts.sum(axis=0) * min(len(a), len(b)) / (len(a) + len(b)) < EXPECTED
    joined = np.column_stack([counts[:, ~rare], counts[:, rare].sum(axis=1)])
    joined = joined[:, joined.sum(axis=0) > 0]
    return (float(stats.chi2_contingency(joined, correction=True).pvalue) if joined.shape[1] > 1 else 1.0), told


def strange(old: Column, new: Column, categorical: bool) -> list[str]:
    """Notes on levels never seen, and on numbers outside of the range."""
    a, b = old.values[~old.missing], new.values[~new.missing]
    if not len(a) or not len(b):
        return []
    if categorical or old.kind == "text":
        more = sorted(set(_texts(b)) - set(_texts(a)))
        told = f"{plural(len(more), 'level')} never seen, {listed(more, 3)}"
        return [f"column {quoted(new.name)}: {told}"] if more else []
    beyond = np.maximum(a.min() - b, b - a.max())
    outside, most = plural(int((beyond > 0.0).sum()), "number"), b[np.argmax(beyond)]
    told = f"{outside} outside of {a.min():.4g} to {a.max():.4g}, such as {most:.4g}"
    return [f"column {quoted(new.name)}: {told}"] if beyond.max() > 0.0 else []


# The model


def _score(folder: Path, new: Table, recipe: Recipe, trust: bool, notes: list[str]) -> list[Finding]:
    """The loss on the new rows beside the cross-validated one; nothing where it is not known row by row."""
    line = lines_of(folder)[-1]
    model = fitted_inside(whole := load_file(model_file(folder), trust=trust))
    target, rows = new[recipe.target], ~new[recipe.target].missing
    X = frame_for(whole, new)[rows]
    if hasattr(model, "classes_"):
        found = np.array(known_labels(target, model.classes_), dtype=object)[rows]
        if strange := sum(label is None for label in found):
            notes.append(f"{plural(strange, 'row')} of classes that the model does not know")
            X, found = X[[label is not None for label in found]], found[[label is not None for label in found]]
        y: Any = np.array([list(model.classes_).index(label) for label in found])
    else:
        y = target.values[rows].astype(np.float64)
        y = np.log(y) if whole is not model else y
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found unknown categories")  # which the notes tell
        losses, loss, error = _losses(model, X, y, line) if len(y) > 1 else (None, 0.0, 0.0)
    if losses is None or not np.isfinite(losses).all():
        notes.append(f"{line['scoring']} is not compared: it is not known row by row here")
        return []
    n, folds, spread = len(losses), line["folds"], float(np.var(losses, ddof=1)) / len(losses)
    variance = error**2 + spread
    freedom = variance**2 / max(error**4 / max(folds - 1, 1) + spread**2 / (n - 1), 1e-300)
    t = (float(np.mean(losses)) - loss) / math.sqrt(variance) if variance > 0.0 else 0.0
    here = f"{np.mean(losses):.4g} ± {math.sqrt(spread):.2g} here"
    told = f"a mean loss of {loss:.4g} ± {error:.2g} in cross-validation, and of {here}"
    return [Finding(f"the model ({shown(line['penalties'])})", "score", float(2.0 * stats.t.sf(abs(t), freedom)), told)]


def _losses(model: Any, X: Any, y: Array, line: dict[str, Any]) -> tuple[Array | None, float, float]:
    """The loss of every row, and the cross-validated one with its standard error."""
    name, loss, error = line["scoring"], -line["score"], line["standard_error"] or math.inf
    if name in ("neg_log_loss", "neg_brier_score") and hasattr(model, "predict_proba"):
        P = model.predict_proba(X)
        if name == "neg_log_loss":
            return -np.log(np.maximum(P[np.arange(len(y)), y], 1e-300)), loss, error
        squares = np.sum((P - np.eye(P.shape[1])[y]) ** 2, axis=1)
        return squares * (0.5 if P.shape[1] == 2 else 1.0), loss, error
    if hasattr(model, "classes_") or getattr(model[-1], "family", None) == "cox":
        return None, loss, error
    p = np.asarray(model.predict(X), dtype=np.float64)
    if name in ("neg_mean_squared_error", "neg_root_mean_squared_error"):
        return (y - p) ** 2, *((loss**2, 2.0 * loss * error) if "root" in name else (loss, error))
    if name == "neg_mean_poisson_deviance":
        return 2.0 * (special.xlogy(y, np.where(y > 0.0, y, 1.0) / p) - y + p), loss, error
    if name == "neg_mean_gamma_deviance":
        return 2.0 * (np.log(p / y) + y / p - 1.0), loss, error
    return None, loss, error
