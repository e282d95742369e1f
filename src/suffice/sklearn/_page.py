"""The page of a search: sections to click through; on paper and without scripts all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from suffice.globally.certificate import Landscape
from suffice.report import figures
from suffice.report import html as shell
from suffice.report.chart import BLUE, GREY, INK, LINES, ORANGE, Line, Mark, Panel, cut
from suffice.report.figures import Trace
from suffice.report.formats import ABSENT, interval, settings, show
from suffice.report.svg import figure
from suffice.sklearn import _page_sections as parts
from suffice.sklearn._page_sections import HALF, caption, drawn
from suffice.sklearn.measures import MEASURES, accuracy_range, as_text

FORMAT = "suffice report 4"
MOST_EFFECTS = 10
OTHER_FOLDS = (
    "These folds are not those of the search: cv shuffles without a seed, or weights or groups were not given again. "
    "Compare the two columns with each other only."
)

Data = dict[str, Any]


def page(data: Data) -> str:
    """The report as one web page. Data that are not what `collect` returned, perhaps by way of a file, raise
    ValueError."""
    found = data.get("format") if isinstance(data, dict) else data
    if found != FORMAT:
        text = repr(found)
        raise ValueError(
            f"data must be what `suffice.sklearn.report.collect` of this version returns, with the format {FORMAT!r}, "
            f"got {text if len(text) <= 80 else f'{text[:77]}...'}; another version's report is drawn by that version"
        )
    try:
        return _page(data)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"data are not what `collect` returned: {str(error)[:200] or type(error).__name__}") from error


def _page(data: Data) -> str:
    shown, seen = Trace.of(data["search"]), parts.TITLES[data["calibration"]["kind"]]
    about = (("Run", data["about"]), ("Versions", data["versions"]))
    hazards = data["calibration"]["kind"] == "survival"
    sections = [
        ("model", "The model", _answer(data)),
        ("coefficients", "Columns", parts.coefficients(data["coefficients"], data["table"], hazards=hazards)),
        ("calibration", seen, parts.held_out(data["calibration"])),
        *([("intervals", "Intervals", parts.intervals(data["intervals"]))] if data.get("intervals") else []),
        *([("influence", "Single rows", parts.influence(data["influence"]))] if data.get("influence") else []),
        ("summary", "Penalties and proof", _summary(data, shown)),
        ("regularisation", "Regularisation path", _regularisation(data["regularisation"])),
        ("search", "Search", _search(shown)),
        *([("global", "All other penalties", _global(data["global"]))] if data["global"] else []),
        ("accuracy", "Accuracy and work", _accuracy(data, shown)),
        ("evaluations", "Evaluations", _evaluations(data, shown)),
        ("about", "About", f'<div class="pair">{shell.pairs(about, "h3")}</div>'),
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
    body = f"""<header><h1>{title}</h1><p class="lead">{_lead(data)}</p></header>
{_tiles(data)}
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


def _ends(data: Data) -> tuple[float, float]:
    """Of the proven interval; None stands for no bound."""
    low, high = data["best"]["interval"]
    return -math.inf if low is None else low, math.inf if high is None else high


def _params(params: dict[str, float]) -> str:
    return escape(settings({name.rpartition("__")[2]: value for name, value in params.items()}))


# --- the first screen: how good, which columns, how sure; proofs come later -------------------------------------------


def _lead(data: Data) -> str:
    """What was asked, and how it was answered."""
    how = escape(str(data["about"].get("held out") or f"{data['folds']:,}-fold cross-validation"))
    rows = min(data["measures"]["rows"], data["samples"])  # that are held out several times count once
    return (
        f"How well can <b>{_target(data, 200)}</b> be predicted from {data['features']:,} columns? All numbers here "
        f"are of {rows:,} rows, each predicted by a model that had not seen it ({how})."
    )


def _whose(data: Data) -> str:
    return "the" if data["estimator"] == "ElasticNetGLM" else "scikit-learn's"


def _target(data: Data, most: int) -> str:
    target = data["about"].get("target")
    return escape(cut(target, most)) if isinstance(target, str) and target else "the target"


POOR = "The model is no better than the baseline: these columns hardly tell the target."
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


def _tiles(data: Data) -> str:
    """The few numbers that matter most."""
    found = data["measures"]
    tuned, baseline, default = found["tuned"], found["baseline"], found["default"]
    _, (guess, _), error = WORDS[found["folds"]["measure"]]
    shown = []
    for name, words in TILES.items():
        if name in tuned:
            beside = [f"{guess}: {as_text(name, baseline[name])}"] if name in baseline else []
            beside += [f"{_whose(data)} defaults: {as_text(name, default[name])}"] if name in default else []
            told = f"{words.format(_target(data, 24))}<small>{'<br>'.join(beside)}</small>"
            shown.append((as_text(name, tuned[name]), told))
    if found["gain"] is not None:
        text = f"{100.0 * max(found['gain'], 0.0):.0f} %" if found["better_than_baseline"] else "nothing"
        what = "Brier score" if "log_loss" in tuned else error
        shown.append((text, f"gained on the baseline<small>the part of its {what} that is gone</small>"))
    measure, values = found["folds"]["measure"], found["folds"]["tuned"]
    if accuracies := accuracy_range(tuned):
        words = "of other rows would be predicted correctly<small>95 % interval of Clopper and Pearson</small>"
        shown.append((accuracies, words))
    elif measure != "accuracy" and len(values) > 1:
        error = as_text("rmse", float(np.std(values, ddof=1)) / math.sqrt(len(values)), 2)
        shown.append((f"± {error}", "give or take, for other rows<small>standard error over the folds</small>"))
    return shell.tiles(shown)


def _answer(data: Data) -> str:
    """How good, which columns, how sure."""
    found, code = data["measures"], data["about"].get("load and predict")
    name, text = found["folds"]["measure"], "The predictions are too large to be measured"
    if name in found["tuned"]:
        claim, (guess, does), _ = WORDS[name]
        text = claim.format(as_text(name, found["tuned"][name]))
        text += f"; {guess} {does} {as_text(name, found['baseline'][name])}"
    if name in found["tuned"] and name in found["default"]:
        text += f", the same model with {_whose(data)} default penalties {as_text(name, found['default'][name])}"
    poor = name in found["tuned"] and not found["better_than_baseline"]
    warning = f'<p class="answer warn">{POOR}</p>' if poor else ""
    matter = f"<h3>Which columns matter?</h3>{_effects(data)}"
    sure = f"<h3>How sure are we?</h3><p>{_sure(data)}</p>{_strip(data)}{_confusion(found.get('confusion'))}"
    use = f"<h3>Use it</h3><pre>{escape(code)}</pre>" if isinstance(code, str) and code else ""
    columns = f'<div class="two"><div>{matter}</div><div>{sure}</div></div>'
    return f'<p class="answer">{text}.</p>{warning}{columns}{use}'


def _sure(data: Data) -> str:
    folds, (low, high) = data["measures"]["folds"], _ends(data)
    name, values = folds["measure"], folds["tuned"]
    size = max(abs(low), abs(high))
    share = (high - low) / size if size > 0.0 else 0.0
    if share < 0.01:
        proof = f"the computation adds next to nothing to that: the tuned score is proven to {_parts(share)}"
    elif math.isfinite(share):
        proof = f"the search had no time to prove the tuned score any better than to {100.0 * share:.2g} %"
    else:
        proof = "the search had no time to prove anything of the tuned score"
    if not values:
        return f"{proof[0].upper()}{proof[1:]}."
    if accuracies := accuracy_range(data["measures"]["tuned"]):
        return f"Of other rows of the same kind, {accuracies} would be predicted correctly (95 % interval); {proof}."
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
    rows = [row for row in rows if len(row[1]) > 1]  # rows that are left out one by one have one measure
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
    words = "Dots are folds, bars their mean."
    return f"{figure(panel, 'folds', HALF)}{caption(words)}"


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
    unit = "per unit of the column, as the linear model sees it after the steps before it"
    unit = escape(str(about.get("units of coefficients") or unit))
    more, none = found["nonzero"] - min(len(found["names"]), MOST_EFFECTS), found["features"] - found["nonzero"]
    rest = f" {more:,} more column{' has a smaller one' if more == 1 else 's have smaller ones'}." if more > 0 else ""
    rest += f" {none:,} {'has' if none == 1 else 'have'} none." if none else ""
    return figure(panel, "effects", HALF) + caption(f"Coefficients: {unit}.{rest}")


def _confusion(found: Data | None) -> str:
    if found is None or len(found["classes"]) > 12:
        return ""
    names, rows = [escape(cut(name, 18)) for name in found["classes"]], []
    for k, (name, counts) in enumerate(zip(names, found["counts"], strict=True)):
        rows.append((name, *(f"<b>{count:,}</b>" if j == k else f"{count:,}" for j, count in enumerate(counts))))
    table = shell.table(("true \\ predicted", *names), rows, numeric=range(1, len(names) + 1))
    return f'<h3>Where is it wrong?</h3><div class="confusion">{table}</div>'


# --- sections ------------------------------------------------------------------------------------------------------


def _summary(data: Data, shown: Trace) -> str:
    best, found = data["best"], data["measures"]
    steps = "".join(f"{escape(step)}, " for step in data["steps"])
    stands = ""
    if data["asked_scoring"] is not None:
        stands = f" in place of {escape(data['asked_scoring'])}, which is not smooth and is reported only"
    low, high = _ends(data)
    rows = []
    for name, row in found["scores"].items():
        tuned, default = (_number(float(np.mean(row[key])), 4) if row[key] else ABSENT for key in ("tuned", "default"))
        better = sum(a > b for a, b in zip(row["tuned"], row["default"], strict=False))
        folds = f"{better} of {len(row['default'])}" if row["default"] else ABSENT
        rows.append((escape(name), tuned, default, folds, ABSENT))
    for name in (name for name in found["tuned"] if name in MEASURES):
        values = [found[key].get(name) for key in ("tuned", "default", "baseline")]
        tuned, default, alone = (ABSENT if one is None else as_text(name, one) for one in values)
        rows.append((MEASURES[name], tuned, default, ABSENT, alone))
    head = ("Held-out rows", "Tuned", "Default", "Folds in which tuned is better", "Without the columns")
    notes = [] if found["same_folds"] else [OTHER_FOLDS]
    notes += [] if found["default"] else ["Models with the defaults would have taken too long, and are left out."]
    floor = f" A pure l1 penalty was certified with l2 = {_number(best['l2_floor'], 3)} in place of 0."
    floor = floor if best["l2_floor"] > 0.0 else ""
    refit = {
        False: " The search did not refit.",
        "one_se": " They are the largest multiple of the best ones whose loss is within one standard error.",
    }.get(best["refit"], "")
    penalties = ", ".join(f"{escape(name)} {_number(value, 4)}" for name, value in best["penalties"].items())
    defaults = _params(found["defaults"]) or "the parameters that it was given with"
    return (
        f"<p>The penalties of {steps}{escape(data['estimator'])} were tuned for {escape(data['scoring'])}{stands}, in "
        f"{data['folds']:,}-fold cross-validation of {data['samples']:,} rows: {len(shown.cost):,} "
        f"evaluations of {data['folds']:,} models each, {shown.work.sum():,.0f} steps of training in all. Every "
        "evaluation trained its models only as precisely as the next decision needed, and proved that it did.</p>"
        f"<p>The best parameters are <b>{_params(best['params'])}</b>, with a score of {_number(best['score'], 4)}; as "
        f"penalties in units of the mean loss, {penalties}.{refit} "
        f"There, the mean {escape(data['scoring'])} of exactly trained models is proven to lie in "
        f"<b>{interval(low, high, 4)}</b>, an interval of width {high - low:.2g}.{floor} How the search ended: "
        f"{escape(best['message'])}.</p><h3>Against {_whose(data)} defaults</h3>"
        + caption(
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
        2: f"Dots are evaluations, in the colours of {F} above the best; orange joins the best so far, the star is the "
        "result.",
    }.get(len(shown.names), f"One line per evaluation, the darker the less {F}; the orange one is the best.")
    looks = f"{F} of every evaluation. The first are rough, with wide intervals: that is all they were asked for."
    progress = drawn(looks, figures.progress(shown), "progress")
    return f"{drawn(words, figures.path(shown), 'path')}<h3>Progress</h3>{progress}"


def _global(found: Data) -> str:
    shown = landscape(found["landscape"])
    ranges = " and ".join(
        f"{escape(name)} from {_number(low, 3)} to {'infinity' if high is None else _number(high, 3)}"
        for name, (low, high) in found["ranges"].items()
    )
    asked = f" {100.0 * found['epsilon']:g} % was asked for; {escape(found['message'])}."
    text = (
        f"The search is local; this is a proof about all penalties at once: <b>no {ranges}</b> gives a loss F that is "
        f"lower than the best known one by more than <b>{shown.gap_in_percent} %</b>. It took "
        f"{found['evaluations']:,} further evaluations.{'' if shown.gap <= found['epsilon'] else asked}"
    )
    words = "F is proven to lie in the band for every penalty, not only for those that were tried."
    if len(shown.names) == 2:
        words = "Colours say by how much penalties are proven to be worse, all of them, not only those that were tried."
    return f"<p>{text}</p>" + drawn(words, figures.landscape(shown), "landscape")


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
    asked += "Where nothing was asked for, anything would have done."
    steps = "Steps of training, summed over folds. An evaluation without a bar took none."
    proven = drawn(asked, figures.accuracy(shown), "accuracy")
    return f"{proven}<h3>Work</h3>{drawn(steps, figures.work(shown), 'work')}"


def _regularisation(found: Data) -> str:
    lines, total, models = len(found["lines"]), found["coefficients"], len(found["multiples"])
    text = "Models of all data as the penalties are multiplied by one factor, their ratio fixed. "
    if models < 2:
        return caption(f"{text}They would have taken longer than the search, and are left out.")
    some = f"The {lines} largest of {total:,} coefficients" if lines < total else f"All {total:,} coefficients"
    text += (
        f"{some} are drawn{', the ten largest in colour' if lines > len(LINES) else ''}. "
        f"{models} models, {_proven(found['accuracy'])}. "
        f"Coefficients that are not zero: {found['nonzero'][0]:,} at {found['multiples'][0]:g} times the best "
        f"penalties, {found['nonzero'][-1]:,} at {found['multiples'][-1]:g} times."
    )
    if found.get("left_out", 0):
        text += f" {found['left_out']:,} further models would have taken longer than the search, and are left out."
    return drawn(text, figures.regularisation_path(found), "regularisation")


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
