"""What is public is a decision: names, signatures and files of a run are those that are recorded."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from suffice.cli import app
from suffice.tabular.run import read_settings

ROOT = Path(__file__).parent.parent
RUNS = sorted((ROOT / "tests" / "data" / "runs").iterdir())


@pytest.fixture(scope="module")
def public_names() -> ModuleType:
    spec = importlib.util.spec_from_file_location("public_names", ROOT / "tools" / "public_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_public_names_and_signatures_are_those_that_are_recorded(public_names: ModuleType) -> None:
    recorded, found = public_names.LIST.read_text(encoding="utf-8").splitlines(), list(public_names.names())
    gone, new = sorted({*recorded} - {*found}), sorted({*found} - {*recorded})
    assert (gone, new) == ([], []), "if this is meant: python tools/public_names.py, and a line in the changelog"
    assert recorded == found


def test_the_list_sees_what_users_write(public_names: ModuleType) -> None:
    found = list(public_names.names())
    assert "suffice.Options.max_seconds" in found
    assert any(line.startswith("suffice.solve(problem, *, within=") for line in found)
    assert any(line.startswith("suffice.sklearn.SufficeSearchCV(estimator, space=None, *, cv=None") for line in found)
    assert any(line.startswith("suffice predict RUN DATA --out") for line in found)
    assert not any(" at 0x" in line or "._" in line for line in found)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run.name))
def test_a_run_of_an_older_version_still_predicts(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "predicted.csv").unlink()
    made = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(run / "table.csv")])
    assert made.exit_code == 0, made.stderr
    told, known = (list(csv.reader(text.splitlines())) for text in (made.stdout, (run / "predicted.csv").read_text()))
    assert told[0] == known[0]
    assert [float(row[0]) for row in told[1:]] == pytest.approx([float(row[0]) for row in known[1:]], rel=1e-12)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run.name))
def test_settings_of_an_older_version_are_still_read(run: Path) -> None:
    asked = json.loads((run / "command.json").read_text(encoding="utf-8"))
    settings = read_settings(run)
    assert (settings.target, settings.cv, settings.seed) == (asked["target"], asked["cv"], asked["seed"])
