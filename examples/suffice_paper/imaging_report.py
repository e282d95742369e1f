"""The imaging studies as figures, a table, and one page in the style of the other report."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from suffice import files
from suffice.report import html as shell
from suffice.report.chart import Line, Panel
from suffice.report.formats import show
from suffice_paper import imaging, report
from suffice_paper.charts import Chart, draw, number, number_ticks
from suffice_paper.charts import image as image_of
from suffice_paper.charts import picture as picture_of
from suffice_paper.figures import Data
from suffice_paper.imaging import ImagingSetting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {  # Okabe and Ito
    "FISTA dynamic": "#D55E00",
    "FISTA dynamic, weights": "#E69F00",
    "FISTA K = 200": "#56B4E9",
    "FISTA K = 2000": "#0072B2",
    "GD dynamic": "#CC79A7",
    "GD K = 1000": "#999999",
    "GD K = 10000": "#009E73",
}
FLOOR = 1e-8  # relative excess objectives below this are drawn here
TITLES = {
    "denoise1": "Denoising with one learned parameter",
    "denoise3": "Denoising with three learned parameters",
    "denoise2d": "Denoising natural images with three learned parameters",
    "mri": "Learning which Fourier samples to take",
}
LEADS = {
    "denoise1": "The weight alpha of a smoothed total variation is learned from pairs of clean and noisy signals, for "
    "the least sum of squared distances to the clean ones.",
    "denoise3": "The weight alpha, the smoothing and the quadratic part of a smoothed total variation are learned "
    "together; a penalty w (L/μ)² keeps the lower level well conditioned.",
    "denoise2d": "The same three parameters for natural images of 256 by 256 pixels.",
    "mri": "Each Fourier sample has a weight c/(1 - c), and a price of 0.1 c: 64 parameters. The reconstruction is a "
    "complex signal, by smoothed total variation.",
}
_CLEAN, _NOISY, _BEFORE, _AFTER = "#000000", "#BBBBBB", "#56B4E9", "#D55E00"


def label(setting: ImagingSetting, start: float) -> str:
    return f"{'w =' if setting.study in ('denoise3', 'denoise2d') else 'start'} {start:g}"


def _colour(variant: str) -> str:
    return COLOURS.get(variant, "#666666")


def _width(variant: str) -> float:
    return 2.2 if variant == imaging.DYNAMIC.name else 1.4


def work_chart(setting: ImagingSetting, data: Data) -> Chart:
    """Excess objective against work, one panel per start."""
    panels, listed = [], set()
    for start in setting.starts:
        best = float(data["best"][f"{start:g}"]["F"])
        if "optimum" in data:
            best = min(best, float(data["optimum"]["F"]))
        lines = []
        for one in (run for run in data["runs"] if run["start"] == start):
            name = one["variant"]
            x = [number(record["work"]) for record in one["records"]]
            y = [max((number(record["incumbent_exact"]) - best) / best, FLOOR) for record in one["records"]]
            lines.append(Line(name, _colour(name), x, y, steps="post", listed=name not in listed, width=_width(name)))
            listed.add(name)
        panels.append(Panel(label(setting, start), "solver steps", "excess objective", lines, True, True))
    return Chart(
        "work",
        "Objective against work",
        "The relative excess (F - F_best)/F_best of the incumbent's exact objective against all solver steps so far. "
        f"Excesses below {FLOOR:g} are drawn there. Lower and further left is better.",
        panels,
        columns=min(3, len(panels)),
        shared=True,
    )


def evaluations_chart(setting: ImagingSetting, data: Data) -> Chart:
    """Objective of the incumbent per evaluation: exact, and as the run believed it."""
    panels, listed = [], set()
    starts = [start for start in setting.starts if start == 0.0] or list(setting.starts)
    for start in starts:
        lines = []
        for one in (run for run in data["runs"] if run["start"] == start):
            name, x = one["variant"], [number(record["number"]) for record in one["records"]]
            believed = [number(record["incumbent_believed"]) for record in one["records"]]
            exact = [number(record["incumbent_exact"]) for record in one["records"]]
            lines.append(Line(name, _colour(name), x, believed, dash="dashed", steps="post", listed=False, width=0.8))
            lines.append(
                Line(name, _colour(name), x, exact, steps="post", listed=name not in listed, width=_width(name))
            )
            listed.add(name)
        panels.append(Panel(label(setting, start), "evaluations", "F(θ)", lines, log_y=True))
    return Chart(
        "evaluations",
        "Objective against evaluations",
        "Solid: the exact objective at each run's incumbent; thin and dashed: what the run itself believed.",
        panels,
        columns=min(2, len(panels)),
    )


def ends_chart(setting: ImagingSetting, data: Data) -> Chart:
    """Where every run of denoise1 ended, per start."""
    lines = []
    symbols = dict(zip(COLOURS, ("o", "v", "s", "D", "o", "^", "D"), strict=True))
    for name in dict.fromkeys(run["variant"] for run in data["runs"]):
        ends = sorted((run for run in data["runs"] if run["variant"] == name), key=lambda run: number(run["start"]))
        x, y = [number(run["start"]) for run in ends], [number(run["theta"][0]) for run in ends]
        lines.append(Line(name, _colour(name), x, y, symbol=symbols.get(name, "o"), width=_width(name)))
    level = float(data["optimum"]["theta"][0])
    off = [replace(line, y=[max(abs(value - level), 1e-7) for value in line.y], listed=False) for line in lines]
    x_label, ticks = "starting log₁₀ alpha", number_ticks(setting.starts)
    return Chart(
        "ends",
        "Does the start matter?",
        f"Left, dotted: the exact optimum, {level:.6f}. Flat lines are good. Right: how far each run ended from it.",
        [
            Panel("", x_label, "final log₁₀ alpha", lines, level=level, ticks=ticks),
            Panel("", x_label, "distance to the optimum", off, log_y=True, ticks=ticks),
        ],
        columns=2,
    )


def signals_chart(setting: ImagingSetting, data: Data) -> Chart:
    """Some signals: clean, as measured, and reconstructed before and after learning."""
    clean, measured = imaging.data(setting)
    start = setting.starts[0]
    learned = np.array(data["best"][f"{start:g}"]["theta"])
    before = imaging.reconstructions(setting, imaging.first_theta(setting, start), start)
    after = imaging.reconstructions(setting, learned, start)
    panels = []
    pixel = [float(i) for i in range(setting.pixels)]
    mri = setting.study == "mri"
    for j in range(min(3, len(clean))):
        noisy = np.fft.ifft(measured[j], norm="ortho") if mri else measured[j]
        curves = (
            ("all samples, no regularisation" if mri else "noisy", _NOISY, noisy, 0.8),
            ("clean", _CLEAN, clean[j], 1.0),
            ("start", _BEFORE, before[j], 1.2),
            ("learned", _AFTER, after[j], 1.6),
        )
        lines = [
            Line(name, colour, pixel, np.real(curve).tolist(), listed=j == 0, width=width)
            for name, colour, curve, width in curves
        ]
        panels.append(Panel(f"signal {j + 1}", "pixel", "real part" if mri else "value", lines))
    return Chart(
        "signals",
        "Signals before and after learning",
        f"Reconstructions with the parameters of the start ({label(setting, start)}) and with the learned ones.",
        panels,
        columns=len(panels),
        shared=True,
    )


def pattern_chart(setting: ImagingSetting, data: Data) -> Chart:
    """The learned weights c of the Fourier samples, low frequencies in the middle."""
    frequency = np.fft.fftfreq(setting.pixels, 1.0 / setting.pixels)
    order = np.argsort(frequency)
    panels = []
    for start in setting.starts:
        lines = []
        for one in data["runs"]:
            if one["start"] != start:
                continue
            name, c = one["variant"], np.array(one["theta"])[order] ** 2
            lines.append(
                Line(name, _colour(name), frequency[order].tolist(), c.tolist(), symbol="o", width=_width(name))
            )
        panels.append(Panel("", "frequency", "weight c of the sample", lines, log_y=True))
    return Chart(
        "pattern",
        "The learned sampling pattern",
        "A sample at the lower bound, 0.001, is hardly used. Zero frequency is in the middle.",
        panels,
    )


def charts(setting: ImagingSetting, data: Data) -> list[Chart]:
    made = [work_chart(setting, data), evaluations_chart(setting, data)]
    if setting.study == "denoise1":
        made.append(ends_chart(setting, data))
    if setting.study == "mri":
        made.append(pattern_chart(setting, data))
    if setting.study != "denoise2d":
        made.append(signals_chart(setting, data))
    return made


def pictures(setting: ImagingSetting, data: Data) -> Figure | None:
    """The images of denoise2d: clean, noisy, reconstructed before and after learning."""
    if setting.study != "denoise2d":
        return None
    from matplotlib.figure import Figure

    clean, measured = imaging.data(setting)
    start = setting.starts[0]
    learned = np.array(data["best"][f"{start:g}"]["theta"])
    before = imaging.reconstructions(setting, imaging.first_theta(setting, start), start)
    after = imaging.reconstructions(setting, learned, start)
    columns = (("clean", clean), ("noisy", measured), ("start", before), ("learned", after))
    figure = Figure(figsize=(9.0, 2.4 * len(clean)), layout="constrained")
    grid = figure.subplots(len(clean), len(columns), squeeze=False)
    for k, (title, images) in enumerate(columns):
        for j, image in enumerate(images):
            axes = grid[j][k]
            axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            axes.set_axis_off()
            error = float(np.mean((image - clean[j]) ** 2))
            axes.set_title(title if k == 0 else f"{title}, {-10.0 * math.log10(error):.1f} dB", fontsize=9)
    return figure


def markdown(setting: ImagingSetting, data: Data) -> str:
    """Where the runs ended and the claims, as Markdown."""
    lines = [f"# {TITLES[setting.study]} (`{setting.study}`)", "", LEADS[setting.study], ""]
    provenance = data["provenance"]
    lines += [
        f"Made by `{provenance['command']}` on {provenance['machine']}, Python {provenance['python']}, numpy "
        f"{provenance['numpy']}, scipy {provenance['scipy']}, {provenance['date']}; the runs took "
        f"{provenance['seconds']:.0f} s.",
        "",
    ]
    if "optimum" in data:
        lines += [f"Exact optimum: {data['optimum']['theta'][0]:.7f}, F = {data['optimum']['F']:.9f}.", ""]
    few = len(data["runs"][0]["theta"]) <= 3
    theta = "final theta | " if few else ""
    lines += [
        f"| variant | start or w | {theta}F believed | F exact | evaluations | solver steps | status |",
        f"| --- | ---: | {'--- | ' if few else ''}---: | ---: | ---: | ---: | --- |",
    ]
    for one in data["runs"]:
        where = f"{', '.join(f'{value:.5f}' for value in one['theta'])} | " if few else ""
        lines.append(
            f"| {one['variant']} | {one['start']:g} | {where}{one['believed']:.8g} | {one['exact']:.9g} | "
            f"{one['evaluations']} | {one['work']:,.0f} | {one['status'].lower()} |"
        )
    return "\n".join(lines) + "\n\n" + report.markdown(data)


def page(setting: ImagingSetting, data: Data, made: list[Chart], picture: Figure | None) -> str:
    """One web page that needs nothing else."""
    rows = [
        (
            escape(one["variant"]),
            f"{one['start']:g}",
            show(one["theta"], 5) if len(one["theta"]) <= 3 else f"{len(one['theta'])} weights",
            show(one["believed"], 8),
            show(one["exact"], 9),
            show(one["evaluations"]),
            f"{one['work']:,.0f}",
            escape(one["status"].lower()),
        )
        for one in data["runs"]
    ]
    head = ("Variant", "Start or w", "Final θ", "F believed", "F exact", "Evaluations", "Solver steps", "Status")
    ends = f'<section class="card"><h2>Where the runs ended</h2>{shell.table(head, rows, range(3, 7))}</section>'
    images = ""
    if picture is not None:
        drawn = image_of(picture, "images", 110)
        images = f'<section class="card whole"><h2>Images before and after learning</h2>{drawn}</section>'
    settings = report.settings({"preset": data["setting"] | {"variants": None}, "provenance": data["provenance"]})
    body = report.claims(data) + "".join(report.figure(chart) for chart in made) + images + ends + settings
    inside = f"""<header><h1>{escape(TITLES[setting.study])}</h1>
<p class="lead">{escape(LEADS[setting.study])} The <b>dynamic</b> variants solve each lower-level problem only as
precisely as the next decision needs, and prove that they did; the fixed ones take <b>K</b> solver steps every time.</p>
</header>
{body}
<footer>After M. J. Ehrhardt and L. Roberts, “Inexact Derivative-Free Optimization for Bilevel Learning”, J. Math.
Imaging Vis. 63, 2021. Made with suffice {escape(data["provenance"]["suffice"])}.</footer>"""
    return shell.page(escape(setting.study), inside)


def write(setting: ImagingSetting, data: Data, out: Path) -> Path:
    """report.html, results.md and the figures, into the folder `out`; returns the path of the page."""
    files.make_folder(out)
    made, picture = charts(setting, data), pictures(setting, data)
    drawn = [(f"{chart.name}.png", draw(chart), 110) for chart in made]
    drawn += [] if picture is None else [("images.png", picture, 72)]
    for name, figure, dpi in drawn:
        files.replace_atomically(out / name, picture_of(figure, dpi))
    files.replace_atomically(out / "results.md", markdown(setting, data).encode("utf-8"))
    path = out / "report.html"
    files.replace_atomically(path, page(setting, data, made, picture).encode("utf-8"))
    return path
