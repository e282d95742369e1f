"""The page's section of coefficients: the largest with what is proven of each, all of them in a box that scrolls."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from suffice.report import figures
from suffice.report import html as shell
from suffice.report.formats import ABSENT, bound, show
from suffice.report.svg import figure
from suffice.sklearn.coefficients import proven

ON_TOP = 12
DIGITS = 4
SAID = {"+": "positive", "-": "negative", "zero": "zero", "open": "open"}

Data = dict[str, Any]


def section(found: Data, table: Data | None, *, hazards: bool) -> str:
    """From the data of the bars, and of the table, if the search has a model; `hazards`: whether coefficients are
    logarithms of hazard ratios."""
    whose = {
        "certified": "the final model, fitted to all data to a proven accuracy",
        "best_estimator_": "the final model, fitted by scikit-learn to all data",
    }.get(found["source"], "a model of all data; the search did not refit")
    bars = min(len(found["names"]), figures.MOST_BARS)
    text = f"Coefficients of {whose}: {found['nonzero']:,} of {found['features']:,} columns have one that is not zero"
    text += f", the {bars} largest are drawn." if bars < found["nonzero"] else "."
    drawn = figure(figures.coefficients(found), "coefficients") if bars else ""
    intercepts = ", ".join(
        f"{escape(label)} {show(value, DIGITS)}".strip()
        for label, value in zip(found["outputs"], found["intercepts"], strict=True)
    )
    parts = [f'<p class="caption">{text} Intercept: {intercepts}.</p>']
    if table is not None:
        parts.append(_told(table, hazards))
    return "".join(parts) + drawn


def _told(table: Data, hazards: bool) -> str:
    of = table["rows"]
    rows, several, errors = len(of["name"]), of["output"] is not None, any(one is not None for one in of["se"])
    head = ["Column", *(["Class"] if several else []), "Coefficient", "Per standard deviation", "Exact one is"]
    head += [
        "Off by at most",
        *(["Hazard ratio", "Ratio per s. d."] if hazards else []),
        *(["Standard error"] if errors else []),
    ]
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
        return f'<p class="caption">{words}</p>{shown}'
    whole = shell.table(head, made, numeric=numeric)
    some = f"All {rows:,}" if rows == table["count"] else f"The {rows:,} largest of {table['count']:,}"
    box = f'<details><summary>{some}</summary><div class="tall">{whole}</div></details>'
    return f'<p class="caption">{words} The {ON_TOP} largest per standard deviation:</p>{shown}{box}'


def _ratio(coef: float | None) -> str:
    with np.errstate(over="ignore"):
        return show(None if coef is None else float(np.exp(coef)), DIGITS)


def _at_most(radius: float | None) -> str:
    return ABSENT if radius is None or not math.isfinite(radius) else bound(radius, up=True)
