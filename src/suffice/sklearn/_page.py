"""The page of a search: sections to click through; on paper and without scripts all of them."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from suffice.globally.certificate import Landscape
from suffice.report import figures
from suffice.report import html as shell
from suffice.report.chart import LINES
from suffice.report.figures import Trace
from suffice.report.formats import ABSENT, interval, show
from suffice.report.svg import figure
from suffice.sklearn._answer import answer, lead, tiles
from suffice.sklearn.measures import MEASURES, as_text

FORMAT = "suffice report 3"

Data = dict[str, Any]


def made_page(data: Data) -> str:
    """The page of a report's data."""
    shown, seen = Trace.of(data["search"]), _CALIBRATIONS[data["calibration"]["kind"]]
    sections = [
        ("model", "The model", answer(data)),
        ("coefficients", "Columns", _coefficients(data["coefficients"])),
        *([("calibration", seen, _calibration(data["calibration"]))] if seen else []),
        ("summary", "Penalties and proof", _summary(data, shown)),
        ("regularisation", "Regularisation path", _regularisation(data["regularisation"])),
        ("search", "Search", _search(shown)),
        *([("global", "All other penalties", _global(data["global"]))] if data["global"] else []),
        ("accuracy", "Accuracy and work", _accuracy(data, shown)),
        ("evaluations", "Evaluations", _evaluations(data, shown)),
        ("about", "About", _about(data)),
    ]
    tabs = "".join(
        f'<button role="tab" id="tab-{key}" aria-controls="{key}" aria-selected="false">{title}</button>'
        for key, title, _ in sections
    )
    cards = "".join(
        f'<section class="card" role="tabpanel" id="{key}" aria-labelledby="tab-{key}"><h2>{title}</h2>{body}</section>'
        for key, title, body in sections
    )
    title = escape(str(data["about"].get("title") or f"Penalties of {data['estimator']}"))
    body = f"""<header><h1>{title}</h1><p class="lead">{lead(data)}</p></header>
{tiles(data)}
<div class="tabs" role="tablist">{tabs}</div>
{cards}
<footer>Made with suffice {escape(data["versions"]["suffice"])}. Nothing here comes from elsewhere.</footer>
<script>{shell.static("search.js")}</script>"""
    return shell.page(title, body, f"<style>{shell.static('search.css')}</style>")


def landscape(found: Data) -> Landscape:
    """What pictures show of a global certificate."""
    line = np.array(found["line"], dtype=np.float64).reshape(-1, 3)
    line[:, 2] = np.where(np.isnan(line[:, 2]), math.inf, line[:, 2])
    arrays = {"best": np.array(found["best"]), "cells": np.array(found["cells"], dtype=np.float64), "line": line}
    return Landscape(**found | arrays)


# --- words and numbers ---------------------------------------------------------------------------------------------


def _number(value: float | None, digits: int = 5) -> str:
    return escape(show(None if value is None else float(value), digits))


def _params(params: dict[str, float]) -> str:
    """Exact: what is shown gives the same model again."""
    return ", ".join(f"{escape(name.rpartition('__')[2])} = {escape(repr(value))}" for name, value in params.items())


def _penalties(best: Data) -> str:
    return ", ".join(f"{escape(name)} {_number(value, 4)}" for name, value in best["penalties"].items())


def _caption(text: str) -> str:
    return f'<p class="caption">{text}</p>'


# --- sections ------------------------------------------------------------------------------------------------------


def _summary(data: Data, shown: Trace) -> str:
    best, found = data["best"], data["measures"]
    steps = "".join(f"{escape(step)}, " for step in data["steps"])
    stands = ""
    if data["asked_scoring"] is not None:
        stands = f" in place of {escape(data['asked_scoring'])}, which is not smooth and is reported only"
    low, high = best["interval"]
    rows = []
    for name, row in found["scores"].items():
        tuned, default = (_number(float(np.mean(row[key])), 6) if row[key] else ABSENT for key in ("tuned", "default"))
        better = sum(a > b for a, b in zip(row["tuned"], row["default"], strict=False))
        folds = f"{better} of {len(row['default'])}" if row["default"] else ABSENT
        rows.append((escape(name), tuned, default, folds, ABSENT))
    for name in found["tuned"]:
        values = [found[key].get(name) for key in ("tuned", "default", "baseline")]
        tuned, default, alone = (ABSENT if one is None else as_text(name, one, 6) for one in values)
        rows.append((MEASURES[name], tuned, default, ABSENT, alone))
    head = ("Held-out rows", "Tuned", "Default", "Folds in which tuned is better", "Without the columns")
    notes = []
    if not found["same_folds"]:
        notes.append(
            "These folds are not those of the search: cv shuffles without a seed, or weights or groups were not given "
            "again. Compare the two columns with each other only."
        )
    if not found["default"]:
        notes.append("Models with the defaults would have taken too long, and are left out.")
    floor = ""
    if best["l2_floor"] > 0.0:
        floor = f" A pure l1 penalty was certified with l2 = {_number(best['l2_floor'], 3)} in place of 0."
    refit = {
        False: " The search did not refit.",
        "one_se": " They are the largest multiple of the best ones whose loss is within one standard error.",
    }.get(best["refit"], "")
    defaults = _params(found["defaults"]) or "the parameters that it was given with"
    return (
        f"<p>The penalties of {steps}{escape(data['estimator'])} were tuned for {escape(data['scoring'])}{stands}, in "
        f"{data['folds']:,}-fold cross-validation of {data['samples']:,} rows: {len(shown.cost):,} "
        f"evaluations of {data['folds']:,} models each, {shown.work.sum():,.0f} lower-level steps in all. Every "
        "evaluation trained its models only as precisely as the next decision needed, and proved that it did.</p>"
        f"<p>The best parameters are <b>{_params(best['params'])}</b>, with a score of {_number(best['score'])}; as "
        f"penalties in units of the mean loss, {_penalties(best)}.{refit} "
        f"There, the mean {escape(data['scoring'])} of exactly trained models is proven to lie in "
        f"<b>{interval(low, high)}</b>, an interval of width {high - low:.2g}.{floor} The search ended because "
        f"{escape(best['message'])}.</p><h3>Against scikit-learn's defaults</h3>"
        + _caption(
            "Mean scores of the same folds, larger is better, and measures of all rows. Default is the same estimator "
            f"with {defaults}. The tuned models' weights are {_proven(data['calibration']['accuracy'])}."
        )
        + shell.table(head, rows, numeric=(1, 2, 3, 4))
        + "".join(f'<p class="note">{note}</p>' for note in notes)
    )


def _search(shown: Trace) -> str:
    F = escape(shown.label)
    words = {
        1: f"{F} of every evaluation over the penalty, with the interval in which it is proven to lie.",
        2: f"Dots are evaluations, in the colours of {F} above the best; orange joins the incumbents, the star is the "
        "result.",
    }.get(len(shown.names), f"One line per evaluation, the darker the less {F}; the orange one is the best.")
    looks = f"{F} of every evaluation. Rough first looks have wide intervals: that is all they were asked for."
    return (
        _caption(words)
        + figure(figures.path(shown), "path")
        + f"<h3>Progress</h3>{_caption(looks)}"
        + figure(figures.progress(shown), "progress")
    )


def _global(found: Data) -> str:
    drawn = landscape(found["landscape"])
    ranges = " and ".join(
        f"{escape(name)} from {_number(low, 3)} to {'infinity' if high is None else _number(high, 3)}"
        for name, (low, high) in found["ranges"].items()
    )
    asked = f" {100.0 * found['epsilon']:g} % was asked for; {escape(found['message'])}."
    text = (
        f"The search is local; this is a proof about all penalties at once: <b>no {ranges}</b> gives a loss F that is "
        f"lower than the best known one by more than <b>{drawn.gap_in_percent} %</b>. It took "
        f"{found['evaluations']:,} further evaluations.{'' if drawn.gap <= found['epsilon'] else asked}"
    )
    words = "F is proven to lie in the band for every penalty, not only for those that were tried."
    if len(drawn.names) == 2:
        words = "Colours say by how much penalties are proven to be worse, all of them, not only those that were tried."
    return f"<p>{text}</p>{_caption(words)}" + figure(figures.landscape(drawn), "landscape")


def _proven(accuracy: float | None) -> str:
    """How near models are to exact ones."""
    if accuracy is None:
        return "not all of them proven to be near exact ones"
    return f"proven to within {accuracy:.1g} of the largest norm among them"


def _accuracy(data: Data, shown: Trace) -> str:
    what = "the root of a fold's share of the loss"
    if data["policy"] == "weights":
        what += "; the search itself asked for distances of the weights"
    asked = f"How accurate every evaluation was asked to be, and what was proven: the error of {what}. "
    steps = "Steps of the lower-level solver, summed over folds. An evaluation without a bar took none."
    return (
        _caption(asked + "Where nothing was asked for, anything would have done.")
        + figure(figures.accuracy(shown), "accuracy")
        + f"<h3>Work</h3>{_caption(steps)}"
        + figure(figures.work(shown), "work")
    )


def _regularisation(found: Data) -> str:
    lines, total = len(found["lines"]), found["coefficients"]
    some = f"The {lines} largest of {total:,} coefficients" if lines < total else f"All {total:,} coefficients"
    text = (
        "Models of all data as the penalties are multiplied by one factor, their ratio fixed. "
        f"{some} are drawn{', the ten largest in colour' if lines > len(LINES) else ''}. "
        f"{len(found['multiples'])} models, {_proven(found['accuracy'])}. "
        f"Coefficients that are not zero: {found['nonzero'][0]:,} at {found['multiples'][0]:g} times the best "
        f"penalties, {found['nonzero'][-1]:,} at {found['multiples'][-1]:g} times."
    )
    if found.get("left_out", 0):
        text += f" {found['left_out']:,} further models would have taken longer than the search, and are left out."
    return _caption(text) + figure(figures.regularisation_path(found), "regularisation")


_CALIBRATIONS = {"reliability": "Calibration", "margins": "Margins", "regression": "Predictions", "survival": ""}


def _calibration(found: Data) -> str:
    if found["kind"] == "reliability":
        classes, curves = found["classes"], len(found["curves"])
        text = (
            "Held-out rows, sorted by predicted probability, in bins of equal size: the share of rows that are of the "
            "class against the mean prediction. "
        )
        text += "Bars are 90 % intervals of the share (Clopper and Pearson)." if curves <= 3 else ""
        text += f" {curves} of {classes} classes." if classes > 2 and curves < classes else ""
    elif found["kind"] == "margins":
        text = "Decision values of held-out rows by their true class. The estimator predicts no probabilities."
    else:
        text = f"Held-out predictions against the truth, {len(found['true']):,} of {found['samples']:,} rows."
    return _caption(text) + figure(figures.calibration(found), "calibration")


def _coefficients(found: Data) -> str:
    whose = {
        "certified": "the final model, fitted to all data to a proven accuracy",
        "best_estimator_": "the final model, fitted by scikit-learn to all data",
    }.get(found["source"], "a model of all data; the search did not refit")
    bars = min(len(found["names"]), figures.MOST_BARS)
    text = f"Coefficients of {whose}: {found['nonzero']:,} of {found['features']:,} features have one that is not zero"
    text += f", the {bars} largest are drawn." if bars < found["nonzero"] else "."
    head = ("Feature", *(escape(label) or "Coefficient" for label in found["outputs"]))
    rows = [(escape(name), *(_number(row[k], 6) for row in found["values"])) for k, name in enumerate(found["names"])]
    rows.append(("<i>intercept</i>", *(_number(value, 6) for value in found["intercepts"])))
    table = shell.table(head, rows, numeric=range(1, len(head)))
    drawn = figure(figures.coefficients(found), "coefficients") if bars else ""
    return f"{_caption(text)}{drawn}<details><summary>As a table</summary>{table}</details>"


def _evaluations(data: Data, shown: Trace) -> str:
    head = ("No.", "Purpose", *map(escape, shown.names), "Loss", "Proven interval", "Asked", "Proven", "Work")
    rows = [
        (
            str(k + 1),
            escape(purpose),
            *(_number(value, 5) for value in shown.points[k]),
            _number(shown.cost[k], 7),
            interval(shown.low[k], shown.high[k]),
            "any" if math.isinf(shown.asked[k]) else _number(shown.asked[k], 3),
            _number(shown.achieved[k], 3),
            f"{shown.work[k]:,.0f}",
        )
        for k, purpose in enumerate(data["purposes"])
    ]
    return shell.table(head, rows, numeric=(0, *range(2, len(head))))


def _about(data: Data) -> str:
    parts = (("Run", data["about"]), ("Versions", data["versions"]))
    return f'<div class="pair">{shell.pairs(parts, "h3")}</div>'
