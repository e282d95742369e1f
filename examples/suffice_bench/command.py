"""`suffice bench`: beside grids, beside tools on a table of one's own, or beside all tuners that are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import typer
from rich.console import Console
from rich.table import Table
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from suffice.report.formats import interval
from suffice.sklearn.penalties import split_pipeline
from suffice.tabular import TableError
from suffice.tabular.run import load
from suffice.tabular.settings import Settings
from suffice_bench import grids
from suffice_bench.tools import Tabled, compared


def bench_grids(grid: int, as_json: bool) -> None:
    """SufficeSearchCV beside grids of `grid` x `grid`."""
    rows = []
    progress = Console(stderr=True)
    for name in grids.DATA:
        with progress.status(f"{name}: suffice beside a grid of {grid} x {grid}"), threadpool_limits(1):
            rows.append(grids.compare(name, grid))
    if as_json:
        return typer.echo(json.dumps(rows))
    table = Table(title=f"SufficeSearchCV beside grids of {grid} x {grid}, 5 folds, one thread")
    for head in ("data", "CV loss, proven interval", "the grid's", "passes", "the grid's", "seconds", "the grid's"):
        table.add_column(head, justify="left" if head == "data" else "right")
    for row in rows:
        more, longer = f"{row['work ratio']:.1f} times", f"{row['time ratio']:.1f} times"
        table.add_row(
            row["data"], f"{row['loss']:.6g}\nin {interval(*row['interval'])}", f"{row['grid loss']:.6g}",
            f"{row['passes']:,}", f"{row['grid passes']:,}\n{more}",
            f"{row['seconds']:.1f}", f"{row['grid seconds']:.1f}\n{longer}",
        )  # fmt: skip
    Console(width=max(Console().width, 100)).print(table)
    typer.echo("Losses are those of exactly trained models; a pass goes once through the training data of a fold.")


def bench_table(path: str, target: str, grid: int | None, as_json: bool) -> None:
    """Tools that tune by cross-validation, on a table of the user's own."""
    data, notes = tabled(path, target)
    rows, columns = data.X.shape
    with Console(stderr=True).status(f"{rows} x {columns}: each tool in turn"), threadpool_limits(1):
        families = compared(data, grid)
    if as_json:
        known = [
            {"tool": run.tool, "penalties": run.penalties, "seconds": run.seconds, "loss": run.loss,
             "near after": run.until(runs[0].loss)}
            for runs in families for run in runs
        ]  # fmt: skip
        return typer.echo(json.dumps({"rows": rows, "columns": columns, "scoring": data.scoring, "runs": known}))
    table = Table(title=f"{Path(path).name}, {rows} x {columns}, 5 folds, one thread")
    for head in ("penalties", "tool", "exact CV loss", "above the best", "seconds", "within 0.1 % after"):
        table.add_column(head, justify="left" if head in ("penalties", "tool") else "right")
    for runs in families:
        table.add_section()
        best = runs[0].loss
        for run in runs:
            near = run.until(best)
            over = f"{100.0 * (run.loss / best - 1.0):.3g} %" if best > 0.0 else ""
            table.add_row(
                run.penalties, run.tool, f"{run.loss:.6g}", over, f"{run.seconds:.2f}",
                "never" if near is None else f"{near:.2f}",
            )  # fmt: skip
    Console(width=max(Console().width, 110)).print(table)
    typer.echo("The best is that of the same penalties; seconds are the processor's, of search and final fit.")
    if data.labels:
        typer.echo("LogisticRegressionCV with l1 and l2, by saga, is left out: it may take hours.")
    for note in notes:
        typer.echo(note)


def tabled(path: str, target: str) -> tuple[Tabled, list[str]]:
    """The rows and targets of a table, and what was done to them: its columns prepared as for `suffice tune`, by all
    rows at once, so that every tool gets the same numbers."""
    problem, _ = load(Settings(data=path, target=target))
    if problem.model not in ("logistic", "elastic-net"):
        raise TableError(f"only linear and logistic models are compared, and the table asks for {problem.model}")
    _, before = split_pipeline(problem.estimator)
    X = problem.X if before is None else before.fit_transform(problem.X, problem.y)
    X = StandardScaler().fit_transform(X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64))
    labels = problem.task == "classification"
    y = np.unique(problem.y, return_inverse=True)[1] if labels else np.asarray(problem.y, dtype=np.float64)
    return Tabled(X, y, labels), list(problem.notes)


def bench_tuners(quick: bool, jobs: int, as_json: bool) -> None:
    """The benchmark of the clone that this package is in, in a process of its own: rivals, some of them GPL, are
    imported there and never here."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks" / "tuners").is_dir():
        raise ValueError(
            "bench tuners needs a clone of the repository with the package installed from it (pip install -e .)"
        )
    command = [sys.executable, "-m", "benchmarks.tuners", "--jobs", str(jobs), *(["--quick"] if quick else [])]
    paths = [str(root / "src"), str(root / "examples"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    made = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.DEVNULL if as_json else None)
    if made.returncode:
        raise typer.Exit(made.returncode)
    if as_json:
        place = root / "benchmarks" / (".cache/tuners/quick" if quick else "results")
        typer.echo((place / "tuners.json").read_text())
