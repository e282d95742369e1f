"""What a release says of itself: one version everywhere, terms for what is in it, and nothing that does not exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from suffice_paper.command import provenance
from typer.testing import CliRunner

import suffice
from suffice import Options, exact, journal, tune
from suffice.cli import app

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_stands_in_one_place_and_everything_else_says_the_same() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r'^version: "(.*)"$', citation, re.M) == [suffice.__version__]
    recipe = (ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8")
    assert re.findall(r'^  version: "(.*)"$', recipe, re.M) == [suffice.__version__]
    assert PROJECT["dynamic"] == ["version"]
    assert CliRunner().invoke(app, ["--version"]).output == f"suffice {suffice.__version__}\n"
    assert provenance("a command", 1.0, "a machine")["suffice"] == suffice.__version__


def test_a_journal_carries_the_version_that_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another one is installed than runs, as in a clone whose version has just been raised."""
    monkeypatch.setattr(suffice, "__version__", "9.8.7")
    tune(exact(lambda x: [x[0] - 1.0]), [0.0], options=Options(max_evaluations=3), journal=tmp_path)
    header = journal.read(tmp_path).header
    assert header["versions"]["suffice"] == "9.8.7" and header["format"] == "suffice journal 5"


def test_a_version_that_is_released_has_its_page_in_the_changelog() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == ("Unreleased:" if suffice.__version__.startswith("0.") else suffice.__version__)


def test_the_wheel_names_the_terms_of_everything_in_it() -> None:
    terms = (ROOT / "src/suffice/datasets/data/README.md").read_text(encoding="utf-8")
    assert "Attribution-ShareAlike 3.0" in terms and "MIT" in terms
    assert PROJECT["license"] == "BSD-3-Clause AND CC-BY-SA-3.0 AND MIT"
    for path in PROJECT["license-files"]:
        assert (ROOT / path).is_file(), path
    for file in (ROOT / "src/suffice/datasets/data").glob("*.[nc]*"):
        assert file.name in terms, f"{file.name} has no terms"


def test_the_recipe_needs_what_the_metadata_need() -> None:
    recipe = (ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8")
    found = re.search(r"^  run:\n(?P<run>.*?)^  run_constraints:\n(?P<optional>.*?)^\S", recipe, re.M | re.S)
    assert found

    def listed(text: str) -> set[str]:
        return {each.replace(" ", "").replace("-base", "") for each in re.findall(r"^ +- (.*)$", text, re.M)}

    extras = PROJECT["optional-dependencies"]
    assert listed(found["run"]) - {"python>=${{python_min}}"} == set(PROJECT["dependencies"])
    assert listed(found["optional"]) == {each for name in ("cli", "plot", "parquet", "skops") for each in extras[name]}
    assert f'python_min: "{PROJECT["requires-python"].removeprefix(">=")}"' in recipe
    assert f"license: {PROJECT['license']}" in recipe
