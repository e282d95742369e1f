"""The page's sections of intervals and of single rows, and the data that they show.

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
from suffice.report.chart import cut
from suffice.report.svg import figure
from suffice.sklearn.coefficients import divided_by
from suffice.sklearn.influence import ranges
from suffice.sklearn.intervals import Conformal
from suffice.sklearn.measures import share_interval

COVERAGE, BINS, HALF, MOST_NAMES, MOST_ROWS = 0.9, 8, 520, 15, 12

MOST_FOLDS = 2000

Data = dict[str, Any]


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
    promise = f'<p class="caption">What is promised of new rows: {escape(found["guarantee"])}</p>'
    return f'<p class="caption">{text}</p><div class="two">{pair}</div>{promise}'


def influence(found: Data) -> str:
    """The section of single rows."""
    told = []
    for name, words in (("kept", "No single row changes the sign of {} (proven)."), ("open", "Open: {}.")):
        if found[name]:
            told.append(words.format(_listed(found[name])))
    drawn = figure(figures.influence(found), "influence")
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
        table = f'<p class="caption">{words}</p>{shell.table(("Column", "Rows", "Which"), rows, numeric=(1,))}'
    much = ", ".join(f"{row + 1:,} (by {math.floor(10.0 * size) / 10.0:.1f})" for row, size in moves[:MOST_ROWS])
    told.append(f"Rows that move a prediction by more than its standard error: {much or 'none'}.")
    kept = "Coefficients of the exact models without one row lie in these bars, the preparation of columns kept."
    return f'<p class="caption">{" ".join(told)} {kept}</p>{drawn}{table}'


def _listed(names: Any) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return escape(", ".join(cut(name) for name in names[:MOST_NAMES])) + more
