"""Sections of the page of a search that have much to tell: its coefficients, rows that its models have not seen,
intervals of predictions, and single rows; and the data that the latter two show.

Row i lies in fold k, whose model has not seen it. Its interval here is that model's prediction and the residuals R_j of
rows in other folds, which is CV+ with one model in place of all: what it covers is measured on rows that neither the
prediction nor the residuals are of.
"""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from suffice.report import figures
from suffice.report import html as shell
from suffice.report.chart import Panel, cut
from suffice.report.formats import ABSENT, bound, show
from suffice.report.svg import figure
from suffice.sklearn.coefficients import divided_by, proven
from suffice.sklearn.influence import ranges
from suffice.sklearn.intervals import Conformal
from suffice.sklearn.measures import share_interval

HALF = 520  # pixels: half a page
ON_TOP, DIGITS = 12, 4  # of coefficients
SAID = {"+": "positive", "-": "negative", "zero": "zero", "open": "open"}
COVERAGE, BINS, MOST_NAMES, MOST_ROWS = 0.9, 8, 15, 12
MOST_FOLDS = 2000
TITLES = {"reliability": "Calibration", "margins": "Margins", "regression": "Predictions", "survival": "Survival"}
_PREDICTED = {"reliability": "predicted probability", "margins": "their decision value (there are no probabilities)"}

Data = dict[str, Any]


def caption(text: str) -> str:
    return f'<p class="caption">{text}</p>'


def drawn(text: str, panel: Panel, name: str) -> str:
    return f"{caption(text)}{figure(panel, name)}"


# --- coefficients ---------------------------------------------------------------------------------------------------


def coefficients(found: Data, table: Data | None, *, hazards: bool) -> str:
    """From the data of the bars, and of the table, if the search has a model; `hazards`: whether coefficients are
    logarithms of hazard ratios."""
    whose = {
        "certified": "the final model, fitted to all data to a proven accuracy",
        "best_estimator_": "the final model, fitted by scikit-learn to all data",
    }.get(found["source"], "a model of all data; the search did not refit")
    bars = min(len(found["names"]), figures.MOST_BARS)
    text = f"Coefficients of {whose}: {found['nonzero']:,} of {found['features']:,} columns have one that is not zero"
    text += f", the {bars} largest are drawn." if bars < found["nonzero"] else "."
    picture = figure(figures.coefficients(found), "coefficients") if bars else ""
    intercepts = ", ".join(
        f"{escape(label)} {show(value, DIGITS)}".strip()
        for label, value in zip(found["outputs"], found["intercepts"], strict=True)
    )
    told = "" if table is None else _told(table, hazards)
    return caption(f"{text} Intercept: {intercepts}.") + told + picture


def _told(table: Data, hazards: bool) -> str:
    of = table["rows"]
    rows, several, errors = len(of["name"]), of["output"] is not None, any(one is not None for one in of["se"])
    head = ["Column", *["Class"] * several, "Coefficient", "Per standard deviation", "Exact one is", "Off by at most"]
    head += ["Hazard ratio", "Ratio per s. d."] * hazards + ["Standard error"] * errors
    made = []
    for k in range(rows):
        cells = [escape(str(of["name"][k])), *([escape(str(of["output"][k]))] if several else [])]
        cells += [show(of[name][k], DIGITS) for name in ("coef", "coef_standardised")]
        cells += [SAID[of["proven"][k]], _at_most(of["radius"][k])]
        cells += [_ratio(of[name][k]) for name in ("coef", "coef_standardised")] if hazards else []
        made.append((*cells, *([show(of["se"][k], 3)] if errors else [])))
    numeric = [k for k, name in enumerate(head) if name not in ("Column", "Class", "Exact one is")]
    words = f"Of the exact model {proven(table)}. Coefficients are per unit of the column before it was scaled."
    if hazards:
        words += " A hazard ratio is exp(coefficient): by what the hazard is multiplied; penalties draw it towards 1."
    if errors:
        words += " Standard errors (sandwich) are of the penalised estimate, which a ridge pulls towards zero."
    shown = shell.table(head, made[:ON_TOP], numeric=numeric)
    if rows <= ON_TOP:
        return caption(words) + shown
    whole = shell.table(head, made, numeric=numeric)
    some = f"All {rows:,}" if rows == table["count"] else f"The {rows:,} largest of {table['count']:,}"
    box = f'<details><summary>{some}</summary><div class="tall">{whole}</div></details>'
    return caption(f"{words} The {ON_TOP} largest per standard deviation:") + shown + box


def _ratio(coef: float | None) -> str:
    with np.errstate(over="ignore"):
        return show(None if coef is None else float(np.exp(coef)), DIGITS)


def _at_most(radius: float | None) -> str:
    return ABSENT if radius is None or not math.isfinite(radius) else bound(radius, up=True)


# --- rows not seen --------------------------------------------------------------------------------------------------


def held_out(found: Data) -> str:
    """Curves of classes, predictions against the truth, or what became of rows by predicted risk."""
    if found["kind"] == "survival":
        return _survival(found)
    if found["kind"] == "regression":
        text = f"Held-out predictions against the truth, {len(found['true']):,} of {found['samples']:,} rows."
    else:
        classes, curves = found["classes"], len(found["curves"])
        text = (
            f"Held-out rows, sorted by {_PREDICTED[found['kind']]}, in bins of equal size: the share of rows that are "
            "of the class against the mean prediction. "
        )
        text += "Bars are 90 % intervals of the share (Clopper and Pearson)." if curves <= 3 else ""
        text += f" {curves} of {classes} classes." if classes > 2 and curves < classes else ""
    return drawn(text, figures.calibration(found), "calibration")


def _survival(found: Data) -> str:
    horizon, marks = f"{found['horizon']:.4g}", [f"{mark:.4g}" for mark in found["marks"]]
    curves = (
        f"{found['samples']:,} held-out rows with {found['events']:,} events in three groups of equal size, by the "
        "survival that models which have not seen them predict: what became of them (Kaplan and Meier), and dashed the "
        "mean prediction. The further apart the curves are, the better the model ranks; the nearer the dashed ones, "
        "the better it is calibrated."
    )
    head = ("Rows at risk", *(f"at {mark}" for mark in marks))
    rows = [(escape(group["name"]), *(f"{count:,}" for count in group["at_risk"])) for group in found["groups"]]
    at_risk = shell.table(head, rows, numeric=range(1, len(head)))
    calibrated = (
        f"Survival at {horizon}, the median time of an event: held-out rows sorted by their prediction, in "
        f"{len(found['bins'])} groups of equal size, the mean prediction against the share that has survived."
    )
    if found["bins"][0]["low"] is not None:
        calibrated += " Bars are 90 % intervals (Greenwood, of log(-log S))."
    below = drawn(calibrated, figures.calibration(found), "calibration")
    return f"{drawn(curves, figures.kaplan_meier(found), 'survival')}{at_risk}<h3>Calibration</h3>{below}"


# --- intervals, and single rows -------------------------------------------------------------------------------------


def collect(search: Any) -> Data:
    """What there is of both; None for either."""
    return {"intervals": _intervals(search), "influence": _influence(search)}


def _intervals(search: Any) -> Data | None:
    try:
        if search.n_splits_ > MOST_FOLDS:
            return None
        found: Conformal = search._training.conformal(search, "cv+", "fixed")
        made = measured(found, COVERAGE)
        return made if np.isfinite(made["wide"]).all() else None  # too few rows
    except (AttributeError, TypeError, ValueError):  # there are none: see `predict_interval`
        return None


def measured(found: Conformal, coverage: float) -> Data:
    """What lies in intervals, or in sets, by prediction, fold by fold."""
    hit, wide, at = found.cross_validated(coverage)
    parts = np.array_split(np.argsort(at, kind="stable"), min(BINS, max(1, len(at) // 10)))
    counts, hits = np.array([len(part) for part in parts]), np.array([hit[part].sum() for part in parts])
    low, high = share_interval(hits, counts, 0.9)
    sets = found.classes is not None
    return {
        "coverage": coverage, "what": "sets" if sets else "intervals", "all": float(hit.mean()), "rows": len(hit),
        "of": "probability of the predicted class" if sets else "prediction",
        "predicted": [float(at[part].mean()) for part in parts], "covered": (hits / counts).tolist(),
        "low": low.tolist(), "high": high.tolist(), "count": counts.tolist(),
        "wide": [float(wide[part].mean()) for part in parts], "guarantee": found.guarantee(coverage),
    }  # fmt: skip


def _influence(search: Any) -> Data | None:
    found = ranges(search)
    if found is None:
        return None
    count = len(found["low"])
    unit = search._proofs.spread * divided_by(search, count)
    per = {name: np.where(np.isfinite(found[name]), found[name] * unit, 0.0) for name in ("coef", "low", "high")}
    return {**per, **{name: found[name] for name in ("names", "kept", "changed", "open", "moves", "models")}}


def intervals(found: Data) -> str:
    """The section of intervals."""
    what, share = found["what"], 100.0 * found["coverage"]
    text = (
        f"How many of {found['rows']:,} held-out rows lie in {what} of {share:g} %, by prediction: "
        f"{100.0 * found['all']:.1f} % of all. Each row by the model of its fold and the errors of the other folds; "
        "bars are 90 % intervals of the share (Clopper and Pearson)."
    )
    pair = "".join(f"<div>{figure(draw(found), name, HALF)}</div>"
                   for draw, name in ((figures.coverage, "coverage"), (figures.widths, "widths")))  # fmt: skip
    promise = caption(f"What is promised of new rows: {escape(found['guarantee'])}")
    return f'{caption(text)}<div class="two">{pair}</div>{promise}'


def influence(found: Data) -> str:
    """The section of single rows."""
    told = []
    for name, words in (("kept", "No single row changes the sign of {} (proven)."), ("open", "Open: {}.")):
        if found[name]:
            told.append(words.format(_listed(found[name])))
    picture = figure(figures.influence(found), "influence")
    changed, moves = found["changed"], found["moves"]
    table = ""
    if changed:
        of: dict[str, list[str]] = {}
        for row, name in changed:
            of.setdefault(name, []).append(f"{row + 1:,}")
        rows = [
            (escape(cut(name)), f"{len(one):,}", " ".join([*one[:MOST_ROWS], *["..."] * (len(one) > MOST_ROWS)]))
            for name, one in of.items()
        ]
        words = "Rows, counted from 1, without which a coefficient has another sign, or is zero, or is not (proven):"
        table = caption(words) + shell.table(("Column", "Rows", "Which"), rows, numeric=(1,))
    much = ", ".join(f"{row + 1:,} (by {math.floor(10.0 * size) / 10.0:.1f})" for row, size in moves[:MOST_ROWS])
    told.append(f"Rows that move a prediction by more than its standard error: {much or 'none'}.")
    kept = "Coefficients of the exact models without one row lie in these bars, the preparation of columns kept."
    return caption(f"{' '.join(told)} {kept}") + picture + table


def _listed(names: Any) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return escape(", ".join(cut(name) for name in names[:MOST_NAMES])) + more
