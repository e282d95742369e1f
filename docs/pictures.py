"""The pictures of the pages, from the code that the pages show: python docs/pictures.py writes docs/_static/*.png."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.linear_model import ElasticNet
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from suffice import plots
from suffice.sklearn import SufficeSearchCV

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def blocks_of(page: str, containing: str = "") -> dict[str, Any]:
    """The variables of a page after its blocks have run; only those up to the first that contains a text, if given."""
    names: dict[str, Any] = {"__name__": "document"}
    for block in BLOCK.findall((HERE / page).read_text()):
        exec(block, names)
        if containing and containing in block:
            break
    return names


def save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(HERE / "_static" / name, dpi=100, metadata={"Software": None})
    plt.close(figure)


def first_search() -> None:
    search = blocks_of("index.md", "SufficeSearchCV(model")["search"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
    search.result_.plot_path(left)
    search.result_.plot_accuracy(right)
    save(figure, "first_search.png")


def csv_path() -> None:
    table = blocks_of("tutorials/csv.md", "to_csv")["table"][:400].dropna()
    X, y = table.drop(columns=["target", "sex"]), table["target"]
    space = {"l1": (1e-2, 1e2), "l2": (1e-4, 1e2)}
    search = SufficeSearchCV(make_pipeline(StandardScaler(), ElasticNet(max_iter=50_000)), space, cv=5).fit(X, y)
    figure, axes = plt.subplots(figsize=(7, 3.8))
    search.plot_regularisation_path(X, y, ax=axes)
    save(figure, "csv_path.png")


def own_problem() -> None:
    names = blocks_of("tutorials/own_problem.md", "estimate = result")
    result, pulses = names["result"], names["pulses"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6))
    left.plot(names["recorded"], color="#8a94a0", label="recording")
    left.vlines(np.flatnonzero(pulses), 0.0, pulses[pulses > 0], color="#009E73", linewidth=3, label="pulses")
    left.plot(names["estimate"], color="#0072B2", label="estimate")
    left.set_ylim(top=1.35 * pulses.max())
    left.legend(frameon=False, ncols=3, loc="upper center", fontsize=8)
    left.set_xlabel("sample")
    result.plot_path(middle)
    result.plot_accuracy(right)
    save(figure, "own_problem.png")


def global_certificate() -> None:
    names = blocks_of("guide/global_certificate.md", "certify_global=1e-3")
    figure, axes = plt.subplots(figsize=(7, 3.8))
    names["certificate"].plot(axes)
    save(figure, "global_line.png")
    space = {"l1": (1e-3, 10.0), "l2": (1e-5, 1.0)}
    search = SufficeSearchCV(ElasticNet(), space, cv=5, certify_global=0.05).fit(names["X"], names["y"])
    figure, axes = plt.subplots(figsize=(7, 4.2))
    search.global_certificate_.plot(axes)
    save(figure, "global_plane.png")


def clinical() -> None:
    names = blocks_of("tutorials/clinical.md", "predict_interval")
    intervals, truth, search = np.asarray(names["intervals"]), names["truth"], names["search"]
    some = np.argsort(search.predict(names["new"]))[:: len(truth) // 40][:40]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.0), width_ratios=(3, 2))
    inside = (intervals[some, 0] <= truth[some]) & (truth[some] <= intervals[some, 1])
    left.vlines(
        np.arange(len(some)), intervals[some, 0], intervals[some, 1], color="#56B4E9", linewidth=4, label="interval"
    )
    for these, colour, label in ((inside, "#1c2733", "what came"), (~inside, "#D55E00", "outside")):
        left.plot(np.flatnonzero(these), truth[some][these], "o", color=colour, markersize=4, label=label)
    left.set_xlabel("new patients, by prediction")
    left.set_ylabel("progression")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    plots.draw_influence(names["rows"], right)
    right.legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, "clinical.png")


def genes() -> None:
    names = blocks_of("tutorials/genes.md", "influence(search)")
    chosen, models = names["chosen"].sort_values("selected"), names["found"].attrs["models"]
    real = chosen.index.isin(np.arange(0, 1000, 170))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.2), width_ratios=(1, 1))
    left.bar(np.arange(len(chosen)), chosen["selected"], color=np.where(real, "#D55E00", "#0072B2"), width=0.9)
    left.axhline(models, color="#8a94a0", linestyle=":")
    left.set_xlabel("genes of the model")
    left.set_ylabel(f"models without one sample, of {models}, that have the gene")
    plots.draw_influence(names["rows"], right)
    right.legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, "genes.png")


def certify() -> None:
    names = blocks_of("guide/certify.md", "kept, right")
    exact, fitted, kept = names["exact"].coef_, names["lasso"].coef_[0], names["right"]
    order = np.argsort(exact, kind="stable")
    figure, axes = plt.subplots(figsize=(9, 3.6))
    axes.axhline(0.0, color="#8a94a0", linewidth=0.8)
    axes.bar(np.arange(len(order)), exact[order], color="#0072B2", label="exact")
    wrong = ~kept[order] & (fitted[order] != 0)
    for those, colour, label in ((~wrong, "#333", "as fitted"), (wrong, "#D55E00", "as fitted; exactly, it is zero")):
        axes.plot(np.flatnonzero(those), fitted[order][those], "o", color=colour, markersize=5, label=label)
    axes.set(xlabel="column, by its exact coefficient", ylabel="coefficient")
    axes.legend(frameon=False)
    save(figure, "certify.png")


def survival() -> None:
    names = blocks_of("tutorials/survival.md", "predict_survival_function")
    search, X = names["search"], names["data"].X
    times = np.arange(1, 53)
    ranks = np.argsort(search.predict(X))
    figure, axes = plt.subplots(figsize=(7, 3.8))
    for share, colour in ((0.05, "#009E73"), (0.5, "#0072B2"), (0.95, "#D55E00")):
        row = X[ranks[[int(share * len(ranks))]]]
        curve = search.predict_survival_function(row, times=times)[0]
        axes.step(times, curve, color=colour, where="post", label=f"riskier than {100 * share:.0f} % of all")
    axes.set(xlabel="week after release", ylabel="not arrested yet", ylim=(0, 1.02))
    axes.legend(frameon=False, loc="lower left")
    save(figure, "survival.png")


def report() -> None:
    """The first screen of the page that the README's commands write, in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("report.png stays as it is: no Chromium here")
        return
    blocks_of("../README.md", "to_csv")
    subprocess.run([sys.executable, "-m", "suffice", "tune", "patients.csv", "--target", "target"], check=True)
    page = Path("results/tune-patients/report.html").resolve().as_uri()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={Path.cwd()}"]
    shot = [chromium, *flags, "--window-size=1200,1200", "--screenshot=screen.png", page]
    subprocess.run(shot, check=True, stderr=subprocess.DEVNULL)
    screen = Image.open("screen.png").convert("RGB").crop((24, 16, 1176, 866))
    screen.quantize(256).save(HERE / "_static" / "report.png", optimize=True)


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    certify()
    report()
    survival()
    first_search()
    csv_path()
    own_problem()
    global_certificate()
    clinical()
    genes()
