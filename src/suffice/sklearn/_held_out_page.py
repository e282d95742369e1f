"""The part of a search's page that tells what its models say of rows that they have not seen."""

from __future__ import annotations

from html import escape
from typing import Any

from suffice.report import figures
from suffice.report import html as shell
from suffice.report.chart import Panel
from suffice.report.svg import figure

Data = dict[str, Any]

TITLES = {"reliability": "Calibration", "margins": "Margins", "regression": "Predictions", "survival": "Survival"}
_PREDICTED = {"reliability": "predicted probability", "margins": "their decision value (there are no probabilities)"}


def caption(text: str) -> str:
    return f'<p class="caption">{text}</p>'


def drawn(text: str, panel: Panel, name: str) -> str:
    return f"{caption(text)}{figure(panel, name)}"


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
