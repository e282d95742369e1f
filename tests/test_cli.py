"""The command line refuses what it does not know, and makes a figure."""

from __future__ import annotations

import json

import pytest

typer_testing = pytest.importorskip("typer.testing")

from suffice.cli import app  # noqa: E402

runner = typer_testing.CliRunner()


@pytest.mark.parametrize(
    "arguments, named", [(["fig9"], "fig9"), (["fig1", "--preset", "huge"], "huge")], ids=["figure", "preset"]
)
def test_bad_arguments_are_named(arguments, named, tmp_path):
    result = runner.invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert named in result.output


def test_figure_one_and_its_report_are_made(tmp_path):
    pytest.importorskip("plotly")
    result = runner.invoke(app, ["reproduce", "fig1", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["claims"] == []
    assert (tmp_path / "report.html").exists() and (tmp_path / "fig1.png").exists()
