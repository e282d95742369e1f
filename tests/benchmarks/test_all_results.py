"""Results beside the code that they are of: what is older is told, and nothing that is shown is left out."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
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


def test_every_result_that_is_shown_has_a_stage_and_the_other_way_round(results: ModuleType) -> None:
    stages = [name for stage in results.STAGES for name in stage.results]
    assert sorted(stages) == sorted(results.shown())
    there = {path.stem for path in (BENCHMARKS / "results").glob("*.json")} - {"measured"}
    assert there == {*stages}, "results that no stage makes, or stages whose result is missing"


def test_stages_run_programs_that_there_are(results: ModuleType) -> None:
    for stage in results.STAGES:
        first, second = stage.command.split()[:2] if " " in stage.command else (stage.command, "")
        path = second.replace(".", "/") if first == "-m" else first
        assert any((BENCHMARKS.parent / each).exists() for each in (path, f"{path}.py")), stage.name


def test_programs_import_what_there_is() -> None:
    """Files beside them, installed packages, or rivals, which may not be installed here."""
    names = "adelie atheris benchopt celer cobyqa dask_glm dfols flint glum jax mapie optimagic skglm sksurv"
    rivals = {*names.split(), "numba", "statsmodels", "torch"}
    for path in BENCHMARKS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            asked = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            asked += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for root in {name.split(".")[0] for name in asked} - rivals:
                there = (BENCHMARKS / f"{root}.py").exists() or (BENCHMARKS.parent / root).is_dir()
                assert there or importlib.util.find_spec(root), f"{path.name} imports {root}"


def test_all_of_it_takes_less_than_a_hundred_minutes_on_two_cores(results: ModuleType) -> None:
    known = results.records()
    took = {
        one: known[one.name]["seconds"] / 60 if one.name in known else one.minutes
        for one in results.STAGES
        if not one.once
    }
    both, alone = (
        sum(minutes for one, minutes in took.items() if one.alone is by_itself) for by_itself in (False, True)
    )
    assert both / 2 + alone <= 100


def test_the_table_says_the_commit_of_every_result_and_what_is_older(results: ModuleType) -> None:
    """Older is what its stage has written when one of its files was another program. `all_results.py table` says so
    anew: a change that makes results older is a decision that can be seen."""
    older = results.complaints()
    rows = re.findall(r"^\| (?!result )(\w+) +\|(.*)$", (BENCHMARKS / "results/README.md").read_text(), re.M)
    assert sorted(name for name, _ in rows) == sorted(results.shown())
    told = {name for name, row in rows if "older than the code" in row}
    assert told == older.keys(), f"run benchmarks/all_results.py table; {[older[n] for n in older.keys() - told]}"
    for name, row in rows:
        assert all(commit in row for commit, _ in results.measured(name)), name


def test_a_digest_is_that_of_the_program_and_not_of_its_words(results: ModuleType) -> None:
    program = 'def f(x):\n    """Says é."""\n    if x < 0:  # "never"\n        raise ValueError(f"{x}")\n'
    program += '    return "# no" + str(x)\n'
    same = 'def f(x):\n    if x<0:\n        raise ValueError("negative")\n\n    return "# no" + str(x)\n'
    assert results.of_text(program) == results.of_text(same)
    for changed in (
        same.replace("x<0", "x<=0"),
        same.replace("# no", "# yes"),
        same.replace("ValueError", "TypeError"),
        same.replace("    return", "    x = 1\n    return"),
    ):
        assert results.of_text(changed) != results.of_text(program)


def test_a_result_is_older_when_a_file_that_it_has_loaded_is_another(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, path = results.STAGES[0], "benchmarks/common.py"
    record = {"commit": "abc1234", "content": results._content(stage.name), "code": {path: results.digest(path)}}
    assert results.complaint(stage, stage.name, {stage.name: record}) == ""
    assert "before" in results.complaint(stage, stage.name, {})
    assert "left it" in results.complaint(stage, stage.name, {stage.name: {**record, "content": "another"}})
    for code in ({path: "another"}, {"src/suffice/gone.py": "another"}):
        assert "1 files have changed" in results.complaint(stage, stage.name, {stage.name: {**record, "code": code}})
    once = next(one for one in results.STAGES if one.once)
    assert results.complaint(once, once.name, {}) == ""


def test_processes_write_down_which_files_they_have_loaded(results: ModuleType, tmp_path: Path) -> None:
    """Those that they start as well; and files of other places are not of the repository."""
    (tmp_path / "mine.py").write_text("import json\n")
    (tmp_path / "child.py").write_text("import other\n")
    (tmp_path / "other.py").write_text("")
    program = (
        f"import mine, subprocess, sys; subprocess.run([sys.executable, {str(tmp_path / 'child.py')!r}], check=True)"
    )
    recorded = {
        "RESULTS_ROOT": str(tmp_path),
        "RESULTS_LOADED": str(tmp_path / "loaded"),
        "PYTHONPATH": os.pathsep.join([str(results.RECORDING), str(tmp_path)]),
    }
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, **recorded}, check=True)
    assert {*(tmp_path / "loaded").read_text().split()} == {"mine.py", "child.py", "other.py"}


def test_packages_of_an_environment_inside_the_repository_are_not_of_it(results: ModuleType, tmp_path: Path) -> None:
    recorded = {
        "RESULTS_ROOT": str(Path(sys.prefix).parent),  # as a clone with its .venv
        "RESULTS_LOADED": str(tmp_path / "loaded"),
        "PYTHONPATH": str(results.RECORDING),
    }
    subprocess.run([sys.executable, "-c", "import numpy"], cwd=tmp_path, env={**os.environ, **recorded}, check=True)
    assert "numpy" not in (tmp_path / "loaded").read_text()


def test_a_stage_is_recorded_with_its_code_and_not_measured_again(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small benchmark of two results in a repository of its own, measured, changed in a comment and then in code."""
    (tmp_path / "src").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "src/part.py").write_text("value = 1\n")
    program = (
        "import sys, json\nsys.path.insert(0, 'src')\nimport part\n"
        "open('results/tiny.json', 'w').write(json.dumps({'commit': 'abc1234', 'date': '', 'value': part.value}))\n"
    )
    (tmp_path / "tiny.py").write_text(program)
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(results, "BUILD", tmp_path / "build")
    monkeypatch.setattr(results, "STAGES", (results.Stage(("tiny",), "tiny.py", 1),))

    def run() -> None:
        results.digest.cache_clear()
        assert results.run([], 2, False) == 0

    run()
    assert json.loads((tmp_path / "results/measured.json").read_text())["tiny"]["code"].keys() == {
        "src/part.py",
        "tiny.py",
    }
    (tmp_path / "src/part.py").write_text("value = 1  # of a comment\n")
    run()
    (tmp_path / "src/part.py").write_text("value = 2\n")
    run()
    assert capsys.readouterr().out.count("exit code 0") == 2, "measured at first, and after the code had changed"
    (tmp_path / "tiny.py").write_text("raise SystemExit(3)\n")
    results.digest.cache_clear()
    assert results.run([], 2, False) == 1 and "tiny" in results.complaints(), "a failure records nothing"
