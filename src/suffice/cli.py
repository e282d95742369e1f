"""The command line: `suffice tune`, `predict`, `certify`, `update`, `check`, `history`, `reproduce`, `resume`,
`report`, `bench`. Needs the extras `cli` and `plot`.

Exit codes: 0 for a run that has come to its end, 1 for one that was stopped before (a budget, Ctrl-C, SIGTERM; the best
so far is written down, and `suffice resume` goes on), for a `--certify-global` that is not proven to what it asked for
(the output begins with NOT PROVEN) and for a model that `certify` does not prove to be accurate, 2 for arguments
or files that cannot be used, 3 if something failed after the search (the model, its file, the report): what was found
is in the journal, and whatever could be made is there.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import inspect
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

try:
    import typer
except ModuleNotFoundError:
    print("suffice: the command line needs the extra cli: pip install 'suffice[cli]'", file=sys.stderr)
    raise SystemExit(2) from None

from suffice.files import JournalError
from suffice.report.folder import COMMAND, read
from suffice.result import OracleError
from suffice.signals import termination
from suffice.tabular.settings import AfterSearchError, Settings

LONG = 10.0  # seconds that a process may have waited before its first line is run
Jobs = Annotated[int, typer.Option(min=0, help="processes; 0: one per core")]
Json = Annotated[bool, typer.Option("--json", help="print what was found as JSON, and nothing else")]
Trust = Annotated[bool, typer.Option("--trust", help="load a file that runs code which is in it: only if you made it")]

_began: float | None = None  # when this process did, if it is a command's own, by `time.monotonic()`

app = typer.Typer(add_completion=False, help="Hyperparameter tuning that trains each model just accurately enough.")


@app.callback(invoke_without_command=True, no_args_is_help=True)
def main(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    """Hyperparameter tuning that trains each model just accurately enough, and can prove it."""
    if version:
        from suffice import __version__

        typer.echo(f"suffice {__version__}")
        raise typer.Exit
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may hold bytes that are not UTF-8
        sys.stdout.reconfigure(errors="surrogateescape")


def _options_of_settings(command: Any) -> Any:
    """The command with an option for every field of `Settings` that has a help text, in place of its `options`."""
    hints, signature = get_type_hints(Settings), inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
    for item in fields(Settings):
        if "help" in item.metadata:
            option = typer.Option(f"--{item.name.replace('_', '-')}", help=item.metadata["help"])
            many = get_origin(hints[item.name]) is tuple
            kind, default = (list[str] | None, None) if many else (hints[item.name], item.default)
            own.append(inspect.Parameter(
                item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
            ))  # fmt: skip
    command.__signature__ = signature.replace(parameters=own)
    return command


@app.command()
@_options_of_settings
def tune(
    data: Annotated[
        list[Path],
        typer.Argument(help="a CSV file with a header (also .gz), or a parquet file; with --cluster, parquet files"),
    ],
    target: Annotated[str | None, typer.Option(help="the column to predict")] = None,
    time: Annotated[str | None, typer.Option(help="the column of times until an event, in place of --target")] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the run (results/tune-NAME); an unfinished run in it is continued")
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Tune a linear model on a table by cross-validation, with a proven interval of its score."""
    with _one_line_errors("tune"):
        first, cluster = data[0], options["cluster"]
        if len(data) > 1 and cluster is None:
            raise ValueError(f"{len(data)} files were given: several are for --cluster, and parquet")
        settings = Settings.asked(str(first), target, time, options)
        settings = replace(settings, files=() if cluster is None else tuple(map(str, data)))
        name = first.name.removesuffix(".gz").rpartition(".")[0] or first.name
        out = Path("results") / f"tune-{name}" if out is None else out
        _tune(settings, out, as_json)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="the folder of a run of `suffice tune`")],
    data: Annotated[Path, typer.Argument(help="a file with the columns of the training table, but for the target")],
    out: Annotated[Path | None, typer.Option(help="CSV file for the predictions; without it they are printed")] = None,
    times: Annotated[
        str | None, typer.Option(help="1,2,5 for Cox's model: columns with the probability of no event until then")
    ] = None,
    intervals: Annotated[
        float | None, typer.Option(help="0.9: columns low and high, between which 90 % lie, or the set of classes")
    ] = None,
    carried: Annotated[
        list[str] | None, typer.Option("--id", help="a column that comes along, in front (repeatable)")
    ] = None,
    trust: Trust = False,
) -> None:
    """Predict with a tuned model: one row for each row of a new file, read exactly as the training file was."""
    with _one_line_errors("predict"):
        from suffice.files import replace_atomically
        from suffice.tabular import predict as predicting

        asked = () if times is None else predicting.times_of(times)
        given = {"carried": carried or (), "trust": trust, "times": asked, "intervals": intervals}
        names, columns, notes = predicting.predict(run, str(data), **given)  # type: ignore[arg-type]
        text = io.StringIO()
        predicting.write(text, names, columns)
        for note in notes:
            typer.echo(f"Note     {note}", err=True)
        if out is None:
            return typer.echo(text.getvalue(), nl=False)
        replace_atomically(out, text.getvalue().encode("utf-8"))
        typer.echo(f"Wrote    {out}: {len(columns[0]):,} rows, {', '.join(names)}")


@app.command()
def certify(
    model: Annotated[Path, typer.Argument(help="a fitted model (.skops, .joblib), or the folder of `suffice tune`")],
    data: Annotated[Path, typer.Argument(help="the table that the model was fitted to")],
    target: Annotated[str | None, typer.Option(help="the column that it predicts; a run's folder knows")] = None,
    weights: Annotated[str | None, typer.Option(help="a column that says how much a row counts")] = None,
    within: Annotated[
        float, typer.Option(help="the exit code is 0 if no more of the coefficients' norm is open")
    ] = 0.01,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """How far a fitted linear model is from the exact minimiser of its own objective, proven."""
    with _one_line_errors("certify"):
        from suffice.tabular.certify import certify_file, certify_run, lines

        if not model.exists():
            raise ValueError(f"there is no file or folder {model}")
        if model.is_dir():
            if target is not None or weights is not None:
                raise ValueError(f"{model} knows its target and weights: --target and --weights are for files")
            found = certify_run(model, str(data), trust=trust)
        elif target is None:
            raise ValueError(f"{model} does not know its target: --target names it")
        else:
            found = certify_file(model, str(data), target, weights, trust=trust)
    typer.echo(json.dumps(found.plain(), allow_nan=False) if as_json else "\n".join(lines(found)))
    if not found.relative <= within:
        raise typer.Exit(1)


@app.command()
def update(
    run: Annotated[Path, typer.Argument(help="the folder of a run of `suffice tune`")],
    data: Annotated[Path | None, typer.Argument(help="a file of rows to add, with the columns of the table")] = None,
    remove: Annotated[
        Path | None, typer.Option(help="a file of ids of rows to remove; of a run on a cluster, a part to remove")
    ] = None,
    by: Annotated[str | None, typer.Option("--id", help="the column of both in which ids stand")] = None,
    cluster: Annotated[str | None, typer.Option(help="where the scheduler of the run is now, if it has moved")] = None,
    as_json: Json = False,
) -> None:
    """Go on with rows added or removed: a new model, proven of the rows that there are now, and whether the penalties
    are still good. A kill leaves the old run or the new one."""
    with _one_line_errors("update"):
        from suffice.tabular import update as updating

        found = updating.update(run, data, gone=remove, by=by, cluster=cluster, began=_began)
    typer.echo(json.dumps(found.plain(), allow_nan=False) if as_json else "\n".join(updating.told(found)))
    if not found.outcome.result.success:
        raise _exit(f"suffice: stopped early, {found.outcome.result.message}", 1)


@app.command()
def check(
    run: Annotated[Path, typer.Argument(help="the folder of a run of `suffice tune`")],
    data: Annotated[Path, typer.Argument(help="a file with the columns of its table")],
    page: Annotated[Path | None, typer.Option(help="an HTML file for people")] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Whether a new file looks like the rows of a run, and the model does on it what it did: no training. Exit codes: 0
    as before, 1 not as before, 2 cannot be told."""
    with _one_line_errors("check"):
        from suffice.tabular.check import check as checking

        found = checking(run, str(data), trust=trust, save=page)
    typer.echo(json.dumps(found.plain(), allow_nan=False) if as_json else "\n".join(found.lines()))
    raise typer.Exit(found.code)


@app.command()
def history(
    run: Annotated[Path, typer.Argument(help="the folder of a run of `suffice tune`")],
    picture: Annotated[Path | None, typer.Option(help="a page (.html) or a figure (.png, .svg, .pdf)")] = None,
    as_json: Json = False,
) -> None:
    """The models of a run from its first day on: dates, rows, penalties, scores, coefficients."""
    with _one_line_errors("history"):
        from suffice.tabular.history import draw, told
        from suffice.tabular.states import lines_of

        lines = lines_of(run)
        if picture is not None:
            draw(run, picture)
    typer.echo(json.dumps(lines, allow_nan=False) if as_json else "\n".join(told(lines)))


@app.command()
def reproduce(
    figure: Annotated[
        str, typer.Argument(help="fig1, fig2, fig3, fig4, fig5, all; or denoise1, denoise3, denoise2d, mri")
    ] = "all",
    preset: Annotated[str, typer.Option(help="quick: a small study on real MNIST; full: the paper's")] = "quick",
    out: Annotated[Path, typer.Option(help="folder of the run; an unfinished run in it is continued")] = Path(
        "results/paper"
    ),
    jobs: Jobs = 0,
    device: Annotated[
        str, typer.Option(help="torch device that holds the images, cpu or cuda; empty: sparse matrices, without torch")
    ] = "",
    as_json: Json = False,
) -> None:
    """Make the paper's figures and check its claims; if interrupted, run it again to continue."""
    paper = _beside("suffice_paper", "reproduce")
    with _one_line_errors("reproduce"):
        show = (lambda line: None) if as_json else (lambda line: typer.echo(line, err=True))
        data, page = paper.reproduce(figure, preset, out, show, jobs=jobs or os.cpu_count() or 1, device=device)
        if as_json:
            return typer.echo(json.dumps({"report": str(page), "claims": data["claims"]}))
        typer.echo("\n".join([*paper.lines(data), f"Report: {page}"]))


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="the folder of an unfinished run")],
    jobs: Annotated[int | None, typer.Option(min=0, help="processes; by default as before; 0: one per core")] = None,
    as_json: Json = False,
    data: Annotated[Path | None, typer.Option(help="where the table of `suffice tune` is now, if it has moved")] = None,
    max_evaluations: Annotated[int | None, typer.Option(help="`suffice tune`: a new limit on the total")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="`suffice tune`: a new limit on seconds")] = None,
) -> None:
    """Continue a run with the arguments it was started with."""
    changes = {"data": data and str(data), "max_evaluations": max_evaluations, "max_seconds": max_seconds}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    with _one_line_errors("resume"):
        if _is_tune(folder):
            from suffice.tabular.run import read_settings

            if (folder / "rows.csv").exists():
                raise ValueError(f"{folder} has been updated, and is whole: `suffice update` goes on with more rows")
            given |= {} if jobs is None else {"jobs": jobs}
            return _tune(replace(read_settings(folder), **given), folder, as_json)
        for name in given:
            raise ValueError(f"--{name.replace('_', '-')}: {folder} holds no run of `suffice tune`")
        known = _beside("suffice_paper", "reproduce").read_command(folder)
    reproduce(**known, out=folder, jobs=jobs or 0, as_json=as_json)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="the folder of a finished run")]) -> None:
    """Make the report of a finished run again from its data, `report.json` or `study.json`."""
    with _one_line_errors("report"):
        if _is_tune(folder):
            from suffice.tabular.run import REPORT, write_page

            found = read(folder / REPORT)
            if found is None:
                raise ValueError(f"{folder} holds no finished run: `suffice resume {folder}` continues it")
            return typer.echo(f"Report: {write_page(folder, found)}")
        typer.echo(f"Report: {_beside('suffice_paper', 'reproduce').report_again(folder)}")


@app.command()
def bench(
    what: Annotated[
        str,
        typer.Argument(help="grids: beside scikit-learn's; a table of your own; tuners: beside everything installed"),
    ] = "grids",
    target: Annotated[str | None, typer.Option(help="a table of your own: the column to predict")] = None,
    grid: Annotated[
        int | None, typer.Option(min=2, max=50, help="values of a penalty in a grid (grids: 10; a table: as they come)")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="tuners: three problems, one seed, a minute or two")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="tuners: processes of one thread each")] = 1,
    as_json: Json = False,
) -> None:
    """Compare with scikit-learn's grid searches on this machine, on data that ship with it: 10 to 20 seconds. `suffice
    bench data.csv --target y` compares with its RidgeCV, ElasticNetCV and LogisticRegressionCV on a table of your own.
    In a clone of the repository `suffice bench tuners` compares with every other tuner that is installed, for hours."""
    if what not in ("grids", "tuners") and target is None:
        raise typer.BadParameter(f"must be grids, tuners, or a table with --target COLUMN, got {what!r}")
    command = _beside("suffice_bench", "bench")
    with _one_line_errors("bench"):
        if what == "tuners":
            command.bench_tuners(quick, jobs, as_json)
        elif what == "grids":
            command.bench_grids(grid or 10, as_json)
        else:
            command.bench_table(what, target, grid, as_json)


def _is_tune(folder: Path) -> bool:
    """Whether `suffice tune` made this folder."""
    known = read(folder / COMMAND)
    return known is not None and known.get("command") == "tune"


@contextmanager
def _one_line_errors(command: str, run: Path | None = None) -> Iterator[None]:
    """Whatever is wrong with arguments, tables and folders, and what ends or breaks a run in its folder: one line and
    the exit code."""
    again = f"every finished evaluation is in {run}, and `suffice resume {run}`"
    try:
        with termination(KeyboardInterrupt) if run is not None else nullcontext():
            yield
    except KeyboardInterrupt as error:
        if run is None:
            raise
        raise _exit(f"suffice: interrupted; {again} goes on", 1) from error
    except OracleError as error:
        raise _exit(f"suffice: {error}", 1) from error
    except AfterSearchError as error:
        raise _exit(f"suffice: {error}; {again} tries again", 3) from error
    except (ValueError, OSError, JournalError) as error:
        raise _exit(f"suffice {command}: {error}", 2) from error
    except ImportError as error:
        raise _exit(f"suffice {command}: needs {error.name}: pip install 'suffice[cli,plot]'", 2) from error


def _exit(line: str, code: int) -> typer.Exit:
    """An exit with this code, and the line that says why."""
    typer.echo(" ".join(line.split()), err=True)
    return typer.Exit(code)


def _tune(settings: Settings, out: Path, as_json: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from suffice.result import Status
    from suffice.tabular import live
    from suffice.tabular.run import claim, execute, load, opened

    began = time.monotonic() if _began is None else _began
    with _one_line_errors("tune", out), opened(settings) as table:
        problem, settings = load(settings, table)
        claim(out, settings)
        if not as_json:
            typer.echo("\n".join(live.describe(problem, settings)))
        console = Console(stderr=True)
        progress = live.ProgressLine(settings, problem.optimised(settings.scoring))
        hidden = as_json or not console.is_terminal  # nothing moves in a pipe
        with nullcontext() if hidden else Live(progress, console=console, transient=True):
            watched: Any = {"callback": progress.record, "stage": progress.stage}
            outcome = execute(settings, problem, out, began=began, **watched)
    lines, result = live.conclude(outcome), outcome.result
    typer.echo(json.dumps(outcome.plain(), allow_nan=False) if as_json else "\n".join(lines))
    for failure in outcome.failures:
        typer.echo(f"suffice: {failure}", err=True)
    if outcome.failures:
        model = "" if outcome.model_file is None else f"the model is in {outcome.model_file}, "
        raise _exit(f"suffice: {model}every evaluation is in {out}, `suffice resume {out}` tries again", 3)
    if not result.success:
        more = {Status.MAX_EVALUATIONS: " --max-evaluations N", Status.MAX_SECONDS: " --max-seconds S"}
        goes_on = f"; `suffice resume {out}{more.get(result.status, '')}` goes on" if result.status.can_go_on else ""
        raise _exit(f"suffice: stopped early, {result.message}{goes_on}", 1)
    if outcome.unproven:
        raise _exit(f"suffice: not proven, {outcome.unproven}", 1)


def start() -> None:
    """A command in a process of its own, whose clock began with the process. What imports make is no garbage: it is
    hardly looked for meanwhile, and not at all at the end, which would take half a second."""
    global _began
    _began = time.monotonic() - _age()
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    app()


def _age() -> float:
    """Seconds since this process began, as Linux tells; elsewhere, and where a program has become this one long after
    it began (`exec`), those that the processor has spent on it."""
    spent = time.process_time()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return spent
    return age if 0.0 <= age <= spent + LONG else spent


def _beside(package: str, command: str) -> Any:
    """What `suffice reproduce` and `suffice bench` run: packages that wheels and clones bring beside this one."""
    try:
        return importlib.import_module(f"{package}.command")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise _exit(f"suffice {command}: the package {package} is missing: install suffice again", 2) from error
