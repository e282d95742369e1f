"""The first screen of a report, for the person with the table: how good is the model, in the target's own units and
against what else there is; which columns matter, and in which direction; how sure are we of that. Proofs come later.
"""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from suffice.report import figures, svg
from suffice.report import html as shell
from suffice.report.chart import BLUE, GREY, INK, ORANGE, Line, Mark, Panel, cut
from suffice.sklearn.measures import MEASURES, as_text

Data = dict[str, Any]
MOST_EFFECTS = 10
HALF = 520  # pixels: half a page


def lead(data: Data) -> str:
    """What was asked, and how it was answered."""
    found = data["measures"]
    return (
        f"How well can {_target(data)} be predicted from {data['features']:,} columns? All numbers here are of "
        f"{found['rows']:,} rows, each predicted by a model that had not seen it ({data['folds']:,}-fold "
        "cross-validation)."
    )


def _target(data: Data, plain: bool = False) -> str:
    target = data["about"].get("target")
    if plain:
        return escape(cut(target, 24)) if isinstance(target, str) and target else "the target"
    return f"<b>{escape(str(target))}</b>" if isinstance(target, str) and target else "the target"


TILES = {
    "accuracy": "of held-out rows are predicted correctly",
    "auc": "AUC: 1 ranks all rows rightly, 0.5 is chance",
    "rmse": "typical error (RMSE), in units of {}",
    "r2": "R²: the share of the variance that is explained",
    "concordance": "concordance: 1 tells of all pairs whose event comes first, 0.5 is chance",
}
# Of each main measure: what is said of the model and of one that knows the target only, and which error is gone.
WORDS = {
    "accuracy": (
        "Of the rows that it has not seen, the model predicts <b>{}</b> correctly",
        ("always guessing the most frequent class", "is right for"),
        "share of wrong rows",
    ),
    "rmse": (
        "On rows that it has not seen the model is off by <b>{}</b> (root mean square)",
        ("always guessing the mean", "is off by"),
        "squared error",
    ),
    "concordance": (
        "The model tells whose event comes first in a share of <b>{}</b> of all pairs of rows that it has not seen",
        ("tossing a coin", "does so in"),
        "wrongly ordered pairs",
    ),
}


def tiles(data: Data) -> str:
    """The few numbers that matter most."""
    found = data["measures"]
    tuned, baseline, default = found["tuned"], found["baseline"], found["default"]
    _, (guess, _), error = WORDS[found["folds"]["measure"]]
    shown = []
    for name, words in TILES.items():
        if name in tuned:
            beside = [f"{guess}: {as_text(name, baseline[name])}"] if name in baseline else []
            beside += [f"scikit-learn's defaults: {as_text(name, default[name])}"] if name in default else []
            told = f"{words.format(_target(data, plain=True))}<small>{'<br>'.join(beside)}</small>"
            shown.append((as_text(name, tuned[name]), told))
    if found["gain"] is not None:
        text = f"{100.0 * max(found['gain'], 0.0):.0f} %" if found["better_than_baseline"] else "nothing"
        what = "Brier score" if "log_loss" in tuned else error
        shown.append((text, f"gained on the baseline<small>the part of its {what} that is gone</small>"))
    spread = _spread(found["folds"])
    if spread is not None:
        shown.append((f"± {spread}", "give or take, for other rows<small>standard error over the folds</small>"))
    return shell.tiles(shown)


def _spread(folds: Data) -> str | None:
    values = folds["tuned"]
    if len(values) < 2:
        return None
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{100.0 * error:.2g} points" if folds["measure"] == "accuracy" else as_text("rmse", error, 2)


def answer(data: Data) -> str:
    """How good, which columns, how sure."""
    sure = f"<h3>How sure are we?</h3><p>{_sure(data)}</p>{_strip(data)}"
    matter = f"<h3>Which columns matter?</h3>{_effects(data)}"
    return f'{_good(data)}<div class="two"><div>{matter}</div><div>{sure}{_confusion(data)}</div></div>{_snippet(data)}'


def _good(data: Data) -> str:
    found = data["measures"]
    tuned, baseline, default = found["tuned"], found["baseline"], found["default"]
    name = found["folds"]["measure"]
    if name not in tuned:
        return '<p class="answer">The predictions are too large to be measured.</p>'
    claim, (guess, does), _ = WORDS[name]
    text = f"{claim.format(as_text(name, tuned[name]))}; {guess} {does} {as_text(name, baseline[name])}"
    if name in default:
        text += f", the same model with scikit-learn's default penalties {as_text(name, default[name])}"
    warning = ""
    if not found["better_than_baseline"]:
        warning = (
            '<p class="answer warn">The model is no better than the baseline: these columns hardly tell the target.</p>'
        )
    return f'<p class="answer">{text}.</p>{warning}'


def _sure(data: Data) -> str:
    folds, (low, high) = data["measures"]["folds"], data["best"]["interval"]
    name, values = folds["measure"], folds["tuned"]
    size = max(abs(low), abs(high))
    share = (high - low) / size if size > 0.0 else 0.0
    proof = f"the computation adds next to nothing to that: the tuned score is proven to {_parts(share)}"
    if not share < 0.01:
        proof = f"the search had no time to prove the tuned score any better than to {100.0 * share:.2g} %"
    if not values:
        return f"{proof[0].upper()}{proof[1:]}."
    return (
        f"From fold to fold, {MEASURES[name]} goes from {as_text(name, min(values))} to "
        f"{as_text(name, max(values))}, which is about what other rows of the same kind would change; {proof}."
    )


def _parts(share: float) -> str:
    """A small share in words, never smaller than it is."""
    if share < 1e-6:
        return "better than one part in a million"
    unit = 10 ** math.floor(math.log10(1.0 / share))
    return f"one part in {math.floor(1.0 / share / unit) * unit:,}"


def _strip(data: Data) -> str:
    """Every fold a dot, on one scale: tuned, with defaults, and the baseline; bars are means."""
    folds, baseline = data["measures"]["folds"], data["measures"]["baseline"]
    name = folds["measure"]
    rows = [("tuned", folds["tuned"], BLUE), ("defaults", folds["default"], ORANGE)]
    rows = [row for row in rows if row[1]]
    if not rows or name not in baseline:
        return ""
    rows.append(("baseline", [baseline[name]], GREY))
    marks: list[Mark] = []
    for k, (_, values, colour) in enumerate(reversed(rows)):
        y, texts = np.full(len(values), float(k)), [as_text(name, value) for value in values]
        marks.append(Line("", colour, values, y, texts, "o", joined=False, size=7.0, opacity=0.65))
        marks.append(Line("", INK, [float(np.mean(values))] * 2, [k - 0.3, k + 0.3], width=2.0))
    ticks = {float(k): row[0] for k, row in enumerate(reversed(rows))}
    ends = -0.5, len(rows) - 0.5
    panel = Panel("", MEASURES[name], "", marks, y_ticks=ticks, y_ends=ends, legend="", height=70 + 34 * len(rows))
    words = "Dots are folds, bars their mean; defaults: of scikit-learn."
    return f'{svg.figure(panel, "folds", HALF)}<p class="caption">{words}</p>'


def _effects(data: Data) -> str:
    """The largest coefficients as bars to both sides, with what they do in words."""
    found, about = data["coefficients"], data["about"]
    if not found["names"]:
        return "<p>None: all coefficients are zero.</p>"
    ways = "lowers the prediction ← → raises it"
    if data["calibration"]["kind"] == "survival":
        ways = "event comes later ← → earlier"
    elif len(found["outputs"]) > 1:
        ways = "class less likely ← → more likely"
    elif isinstance(about.get("more likely"), str):
        ways = f"{cut(about['more likely'], 20)} less likely ← → more likely"
    panel = replace(figures.coefficients(found, MOST_EFFECTS), x=ways)
    unit = about.get("units of coefficients")
    unit = unit or "per unit of the column, as the linear model sees it after the steps before it"
    more, none = found["nonzero"] - min(len(found["names"]), MOST_EFFECTS), found["features"] - found["nonzero"]
    rest = f" {more:,} more column{' has a smaller one' if more == 1 else 's have smaller ones'}." if more > 0 else ""
    rest += f" {none:,} {'has' if none == 1 else 'have'} none." if none else ""
    return f'{svg.figure(panel, "effects", HALF)}<p class="caption">Coefficients: {escape(str(unit))}.{rest}</p>'


def _confusion(data: Data) -> str:
    found = data["measures"].get("confusion")
    if found is None or len(found["classes"]) > 12:
        return ""
    names = [escape(cut(name, 18)) for name in found["classes"]]
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = ""
    for k, (name, counts) in enumerate(zip(names, found["counts"], strict=True)):
        cells = "".join(f"<td{' class=hit' if j == k else ''}>{count:,}</td>" for j, count in enumerate(counts))
        rows += f"<tr><th>{name}</th>{cells}</tr>"
    return (
        '<h3>Where is it wrong?</h3><div class="scroll"><table class="confusion"><thead>'
        f"<tr><th>true \\ predicted</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _snippet(data: Data) -> str:
    code = data["about"].get("load and predict")
    return f"<h3>Use it</h3><pre>{escape(code)}</pre>" if isinstance(code, str) and code else ""
