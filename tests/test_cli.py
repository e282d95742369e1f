"""The command line refuses what it does not know, and makes a figure."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")

from suffice_paper import command  # noqa: E402

import suffice  # noqa: E402
from suffice import cli  # noqa: E402
from suffice.cli import app  # noqa: E402

runner = typer_testing.CliRunner()


def test_without_the_extra_one_line_says_how_to_install_it():
    code = "import runpy, sys; sys.modules['typer'] = None; runpy.run_module('suffice', run_name='__main__')"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert made.returncode == 2 and made.stdout == ""
    assert made.stderr.splitlines() == ["suffice: the command line needs the extra cli: pip install 'suffice[cli]'"]


def test_without_the_studies_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "suffice_paper", None)
    monkeypatch.delitem(sys.modules, "suffice_paper.command")
    result = runner.invoke(app, ["reproduce", "fig1", "--out", str(tmp_path)])
    assert result.exit_code == 2 and "suffice_paper is missing" in result.output


@pytest.mark.parametrize(
    "arguments, named", [(["fig9"], "fig9"), (["fig1", "--preset", "huge"], "huge")], ids=["figure", "preset"]
)
def test_bad_arguments_are_named(arguments, named, tmp_path):
    result = runner.invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert named in result.output


def test_figure_one_and_its_report_are_made(tmp_path):
    pytest.importorskip("matplotlib")
    result = runner.invoke(app, ["reproduce", "fig1", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["claims"] == []
    assert (tmp_path / "report.html").exists() and (tmp_path / "fig1.png").exists()


def test_a_run_is_resumed_with_the_arguments_it_was_started_with_and_reported_anew(tmp_path):
    pytest.importorskip("matplotlib")
    assert (
        runner.invoke(app, ["reproduce", "fig1", "--preset", "full", "--out", str(tmp_path), "--json"]).exit_code == 0
    )
    first = json.loads((tmp_path / "study.json").read_text())
    (tmp_path / "study.json").unlink()
    result = runner.invoke(app, ["resume", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    again = json.loads((tmp_path / "study.json").read_text())
    assert again["figure1"] == first["figure1"] and again["preset"]["name"] == "full"
    (tmp_path / "report.html").unlink()
    result = runner.invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "content",
    [
        None,
        "nonsense",
        "[1, 2]",
        '{"command": "rm -rf", "figure": "all", "preset": "quick", "device": ""}',
        '{"command": "reproduce", "figure": "all", "preset": "quick", "device": 3}',
        '{"command": "reproduce", "figure": "all", "preset": "quick", "device": "", "out": "/etc"}',
        '{"command": "reproduce", "figure": "../..", "preset": "quick", "device": ""}',
    ],
)
@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_folder_that_holds_no_run_is_refused(command, content, tmp_path):
    if content is not None:
        (tmp_path / "command.json").write_text(content)
    result = runner.invoke(app, [command, str(tmp_path)])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert {path.name for path in tmp_path.iterdir()} <= {"command.json"}


def test_a_broken_file_of_a_study_is_named(tmp_path):
    command.write_command(tmp_path, figure="fig2", preset="quick", device="")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "dynamic_+1.json").write_text('{"preset": ')
    result = runner.invoke(app, ["resume", str(tmp_path)])
    assert result.exit_code == 2
    assert "dynamic_+1.json is not a file of a run" in " ".join(result.output.split())


def test_the_package_runs_as_a_module():
    shown = subprocess.run([sys.executable, "-m", "suffice", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: python -m suffice" in shown.stdout


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the age of a process is asked after in /proc")
def test_a_command_s_clock_began_with_its_process():
    code = "import time, suffice.cli as cli; print(time.process_time(), cli._age(), time.monotonic())"
    before = time.monotonic()
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    spent, age, now = map(float, made.stdout.split())
    assert spent <= age <= now - before + 0.02  # the kernel's clock ticks


def test_a_process_that_has_become_a_command_late_does_not_count_what_was_before(monkeypatch):
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 1e9)
    assert cli._age() == pytest.approx(time.process_time(), abs=1.0)


def test_the_version_is_told():
    told = runner.invoke(app, ["--version"])
    assert told.exit_code == 0 and told.stdout == f"suffice {suffice.__version__}\n"


def test_bench_tells_what_it_does_not_know_and_what_it_needs(tmp_path, monkeypatch):
    result = runner.invoke(app, ["bench", "nothing"])
    assert result.exit_code == 2 and "nothing" in result.output
    monkeypatch.setattr("suffice_bench.command.__file__", str(tmp_path / "a" / "b" / "command.py"))
    result = runner.invoke(app, ["bench", "tuners"])
    assert result.exit_code == 2 and "clone" in result.output


def test_bench_compares_tools_on_a_table_of_ones_own(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    rows = [",".join(map(str, [*x, "ab"[int(x[0] + rng.normal() > 0)]])) for x in X]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["u,v,w,label", *rows]))
    told = runner.invoke(app, ["bench", str(path), "--target", "label", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert (found["rows"], found["columns"], found["scoring"]) == (80, 3, "neg_log_loss")
    assert {(run["tool"], run["penalties"]) for run in found["runs"]} == {
        ("suffice", "l2"), ("LogisticRegressionCV", "l2"), ("suffice", "l1 and l2"),
    }  # fmt: skip
    assert runner.invoke(app, ["bench", str(path)]).exit_code != 0


@pytest.mark.parametrize("command", ["predict", "certify"])
def test_a_run_that_is_not_there_is_said_not_to_be_there(command, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("x,y\n1,2\n")
    told = runner.invoke(app, [command, str(tmp_path / "gone"), str(table)])
    assert told.exit_code == 2 and "there is no f" in told.stderr and "gone" in told.stderr
