"""Results beside the code that they are of: what is older is listed, and nothing that is shown is left out."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def results() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        spec = importlib.util.spec_from_file_location("all_results", BENCHMARKS / "all_results.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "all_results", module)  # where dataclasses look for it
        spec.loader.exec_module(module)
        return module


@pytest.fixture(scope="module")
def complaints(results: ModuleType) -> dict[str, str]:
    if not results.has_history():
        pytest.skip("the age of results is told by a clone with its history")
    found: dict[str, str] = results.complaints()
    return found


def test_every_result_that_is_shown_has_a_stage_and_the_other_way_round(results: ModuleType) -> None:
    stages = [name for stage in results.STAGES for name in stage.results]
    assert sorted(stages) == sorted(results.shown())


def test_stages_measure_what_there_is(results: ModuleType) -> None:
    for stage in results.STAGES:
        for path in (stage.script, *(f"src/suffice/{part}" for part in stage.measures)):
            assert (BENCHMARKS.parent / path).exists(), f"{stage.results[0]}: there is no {path}"


def test_results_that_are_older_than_the_code_are_those_that_are_listed(
    results: ModuleType, complaints: dict[str, str]
) -> None:
    unlisted = {name: why for name, why in complaints.items() if name not in results.known_as_older()}
    assert unlisted == {}, "measure again (make results), or add the name to benchmarks/results/older.txt"
    assert [name for name in results.known_as_older() if name not in complaints] == [], "these are new: unlist them"


def test_a_result_of_this_commit_is_not_older_and_one_of_uncommitted_changes_is(
    results: ModuleType, complaints: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, head = results.STAGES[0], results.git("rev-parse", "--short", "HEAD")
    for commit, expected in ((head, ""), (f"{head}-dirty", f"measured with changes beside {head}")):
        monkeypatch.setattr(results, "measured", lambda name, commit=commit: [(commit, "")])
        assert results.complaint(stage.results[0], stage) == expected
    monkeypatch.setattr(results, "measured", lambda name: [(head, ""), ("unknown", "")])
    assert results.complaint(stage.results[0], stage) == "its commit is 'unknown'"


def test_the_table_says_the_commit_of_every_result_and_what_is_older(
    results: ModuleType, complaints: dict[str, str]
) -> None:
    rows = re.findall(r"^\| (?!result )(\w+) +\|(.*)$", (BENCHMARKS / "results/README.md").read_text(), re.M)
    assert sorted(name for name, _ in rows) == sorted(results.shown())
    for name, row in rows:
        assert all(commit in row for commit, _ in results.measured(name)), name
        assert ("older than the code" in row) == (name in results.known_as_older()), name
