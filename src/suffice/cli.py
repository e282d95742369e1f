"""The command line: `suffice reproduce`. Needs the extras `cli` and `plot`."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
except ImportError as error:
    raise SystemExit("the command line needs typer: pip install 'suffice[cli,plot]'") from error

from suffice.reproduce.study import PRESETS, make

FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5")

app = typer.Typer(add_completion=False, help="Hyperparameter tuning that trains each model just accurately enough.")


@app.callback()
def main() -> None:
    """Hyperparameter tuning that trains each model just accurately enough, and can prove it."""


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="fig1, fig2, fig3, fig4, fig5 or all")] = "all",
    preset: Annotated[str, typer.Option(help="quick: a small study on real MNIST; full: the paper's")] = "quick",
    out: Annotated[Path, typer.Option(help="folder of the run; an unfinished run in it is continued")] = Path(
        "results/paper"
    ),
    jobs: Annotated[int, typer.Option(min=0, help="processes; 0: one per core")] = 0,
    device: Annotated[
        str, typer.Option(help="where the images live, for torch: cpu, cuda; empty: sparse, no torch")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the claims as JSON")] = False,
) -> None:
    """Make the paper's figures and check its claims; kill it and call it again to continue."""
    if figure not in (*FIGURES, "all"):
        raise typer.BadParameter(f"must be one of {', '.join(FIGURES)} or all, got {figure!r}", param_hint="FIGURE")
    if preset not in PRESETS:
        raise typer.BadParameter(f"must be one of {', '.join(PRESETS)}, got {preset!r}", param_hint="--preset")
    from suffice.reproduce import report

    wanted = set(FIGURES) if figure == "all" else {figure}
    show = (lambda line: None) if as_json else (lambda line: typer.echo(line, err=True))
    command = f"suffice reproduce {figure} --preset {preset}" + (f" --device {device}" if device else "")
    if device:
        _check_device(device)
    data = make(PRESETS[preset], wanted, out, command, show, jobs=jobs or os.cpu_count() or 1, device=device or None)
    page = report.write(data, out)
    if as_json:
        typer.echo(json.dumps({"report": str(page), "claims": data["claims"]}))
        return
    for claim in data["claims"]:
        typer.echo(
            f"{'holds' if claim['passed'] else 'FAILS':6s} {claim['claim']}: {claim['measured']} ({claim['target']})"
        )
    typer.echo(f"Report: {page}")


def _check_device(device: str) -> None:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise typer.BadParameter("needs torch: pip install 'suffice[gpu]'", param_hint="--device") from error
    try:
        torch.zeros(1, device=device)
    except Exception as error:  # torch has no single class for devices that are not there
        raise typer.BadParameter(f"{device!r} cannot be used: {error}", param_hint="--device") from error
