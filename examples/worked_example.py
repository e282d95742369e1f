"""A worked example: elastic-net logistic regression on breast-cancer data, tuned with dynamic and with fixed accuracy.

Half of the samples train the models, half judge them by the Brier score. The dynamic run trains each model just
accurately enough for its next decision; the others take K solver steps every time. The table shows what each
believed and what is proven about the theta it found: with too few steps, a run
converges to a wrong theta in good faith.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_breast_cancer

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import suffice
from suffice import losses, problems

WIDTHS = (13, 9, 10, 10, 12, 22)


def build() -> suffice.BilevelProblem:
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    order = np.random.default_rng(0).permutation(len(y))
    train, held_out = order[::2], order[1::2]
    return suffice.BilevelProblem(
        lower=[problems.ElasticNetLogistic(X[train], y[train])],
        losses=[losses.Brier(X[held_out], y[held_out])],
        space=suffice.Space(l1=(1e-4, 1e1), l2=(1e-4, 1e1)),
        solver="fista",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/example"), help="folder for the figure (%(default)s)")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    problem = build()
    start = {"l1": 1e-2, "l2": 1e-2}
    options = suffice.Options(max_evaluations=60)
    variants: dict[str, suffice.Objective] = {"dynamic": problem}
    variants |= {f"K = {steps}": problem.fixed(steps) for steps in (5, 50, 1000)}

    print("Breast cancer, 285 + 284 samples, 30 features; Brier score on the held-out half\n")
    heads = ("evaluations", "work", "l1", "l2", "F believed", "F proven to lie in")
    print(f"{'accuracy':10s}" + "".join(f"{head:>{width}s}" for head, width in zip(heads, WIDTHS, strict=True)))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, objective in variants.items():
        result = suffice.tune(objective, start, options=options)
        records, params = result.history, result.params or {}
        low, high = problem.evaluate(result.theta, within=1e-6).interval
        cells = (
            f"{result.evaluations}",
            f"{result.work:.0f}",
            f"{params['l1']:.2e}",
            f"{params['l2']:.2e}",
            f"{result.cost:.4f}",
            f"[{low:.4f}, {high:.4f}]",
        )
        print(f"{name:10s}" + "".join(f"{cell:>{width}s}" for cell, width in zip(cells, WIDTHS, strict=True)))
        believed = np.minimum.accumulate([record.cost for record in records])
        (line,) = left.plot([record.total_work for record in records], believed, lw=1, ls="--")
        left.plot(result.work, 0.5 * (low + high), "o", color=line.get_color(), label=name)
        if objective is problem:
            numbers = [record.number for record in records]
            right.semilogy(numbers, [record.within for record in records], "o", label="asked for", mfc="none")
            right.semilogy(numbers, [record.error for record in records], ".", label="proven")
    left.set(xscale="log", xlabel="work: solver steps", ylabel="F")
    left.set_title("Best F as each run believes (lines) and F as it is (dots)")
    right.set(xlabel="evaluation", ylabel="error of the residual")
    right.set_title("Dynamic: accuracy asked for and delivered")
    left.legend()
    right.legend()
    path = out / "worked_example.png"
    figure.savefig(path, dpi=150)
    print(f"\nFigure: {path}")


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"{time.perf_counter() - started:.1f} s")
