"""The command line: `suffice reproduce`, `resume`, `report`. Needs the extras `cli` and `plot`."""

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

from suffice.reproduce.folder import read, read_command, write_command
from suffice.reproduce.imaging import SETTINGS, STUDIES
from suffice.reproduce.imaging import make as make_imaging
from suffice.reproduce.study import PRESETS, make

FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5")

app = typer.Typer(add_completion=False, help="Hyperparameter tuning that trains each model just accurately enough.")


@app.callback()
def main() -> None:
    """Hyperparameter tuning that trains each model just accurately enough, and can prove it."""


@app.command()
def reproduce(
    figure: Annotated[
        str, typer.Argument(help="fig1, fig2, fig3, fig4, fig5, all; or denoise1, denoise3, denoise2d, mri")
    ] = "all",
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
    known = (*FIGURES, "all", *STUDIES)
    if figure not in known:
        raise typer.BadParameter(f"must be one of {', '.join(known)}, got {figure!r}", param_hint="FIGURE")
    if preset not in PRESETS:
        raise typer.BadParameter(f"must be one of {', '.join(PRESETS)}, got {preset!r}", param_hint="--preset")
    if device:
        if figure in STUDIES:
            raise typer.BadParameter(f"{figure} runs on the CPU only, got {device!r}", param_hint="--device")
        _check_device(device)
    from suffice.reproduce import report

    write_command(out, figure=figure, preset=preset, device=device)
    if figure in STUDIES:
        return _imaging(figure, preset, out, as_json)
    wanted = set(FIGURES) if figure == "all" else {figure}
    show = (lambda line: None) if as_json else (lambda line: typer.echo(line, err=True))
    command = f"suffice reproduce {figure} --preset {preset}" + (f" --device {device}" if device else "")
    data = make(PRESETS[preset], wanted, out, command, show, jobs=jobs or os.cpu_count() or 1, device=device or None)
    _tell(data, report.write(data, out), as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="the folder of an unfinished run")],
    jobs: Annotated[int, typer.Option(min=0, help="processes; 0: one per core")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print the claims as JSON")] = False,
) -> None:
    """Go on with a run where it was, with the arguments it was started with."""
    reproduce(**_command(folder), out=folder, jobs=jobs, as_json=as_json)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="the folder of a finished run")]) -> None:
    """Make the report of a finished run anew from its data, `study.json`."""
    command = _command(folder)
    data = read(folder / "study.json")
    if data is None:
        raise typer.BadParameter(f"{folder} holds no finished run: `suffice resume {folder}` goes on with it")
    if command["figure"] in STUDIES:
        raise typer.BadParameter(f"the report of {command['figure']} needs its images: use `suffice resume {folder}`")
    from suffice.reproduce import report as pages

    typer.echo(f"Report: {pages.write(data, folder)}")


def _command(folder: Path) -> dict[str, str]:
    try:
        return read_command(folder)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="FOLDER") from error


def _tell(data: dict[str, Any], page: Path, as_json: bool) -> None:
    """The claims and where the report is."""
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


def _imaging(name: str, preset: str, out: Path, as_json: bool) -> None:
    from suffice.reproduce import imaging_report

    setting = SETTINGS[name, preset]
    show = (lambda line: None) if as_json else (lambda line: typer.echo(line, err=True))
    data = make_imaging(setting, out, f"suffice reproduce {name} --preset {preset}", show)
    _tell(data, imaging_report.write(setting, data, out), as_json)
