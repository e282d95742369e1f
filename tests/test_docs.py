"""The documents: their code runs, their links lead somewhere, their pages and the API reference are complete."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import suffice
from suffice.cli import app
from suffice.sklearn import SufficeSearchCV

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *PAGES])
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.M | re.S)
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
INCLUDE = re.compile(r"^```\{include\} (\S+)\n.*?^```", re.M | re.S)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# More than the developers' environment has:
NEEDS = dict.fromkeys(["docs/tutorials/learned_regulariser.md", "docs/guide/devices.md"], "torch")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_code_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks in order, in one namespace per document; commands of console blocks in the same folder."""
    pytest.importorskip(NEEDS.get(name(path), "suffice"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = path.read_text()
    namespace: dict[str, object] = {"__name__": "document"}
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        if match[1] == "python":
            code = compile("\n" * (line - 1) + match[2], str(path), "exec", dont_inherit=True)
            exec(code, namespace)
        else:
            _run_console(match[2], tmp_path)


def _run_console(block: str, folder: Path) -> None:
    """All commands of a block in one shell. Each line that is shown is printed; `...` stands for anything in it."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    shown = [line for line in block.splitlines() if line and not line.startswith("$ ")]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    made = subprocess.run(
        ["bash", "-c", "\n".join(commands)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr
    for line in shown:
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert re.search(f"^{pattern}$", made.stdout, re.M), f"{line!r} was not printed:\n{made.stdout}"


def test_documents_have_code_blocks() -> None:
    python = {name(path): sum(kind == "python" for kind, _ in BLOCK.findall(path.read_text())) for path in DOCUMENTS}
    assert python["README.md"] >= 3 and python["docs/index.md"] >= 4
    for page in ("tutorials/csv", "tutorials/own_problem", "tutorials/ask_tell", "guide/scikit_learn"):
        assert python[f"docs/{page}.md"] >= 4
    console = [block for kind, block in BLOCK.findall((DOCS / "tutorials/csv.md").read_text()) if kind == "console"]
    assert sum("$ suffice " in block for block in console) == 3


def test_options_of_the_command_line_exist() -> None:
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    known = {option for command in commands.values() for given in command.params for option in given.opts} | {"--help"}
    for path in DOCUMENTS:
        lines = re.findall(
            r"suffice (?:tune|predict|certify|update|check|history|resume|report|reproduce|bench) [^`\n]*",
            path.read_text(),
        )
        named = {option for line in lines for option in re.findall(r"--[a-z][a-z-]*", line)}
        if path.name in ("csv.md", "command_line.md"):
            named |= set(re.findall("`(--[a-z-]+)`", path.read_text()))
        assert named <= known, name(path)


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    entries: list[Path] = []
    for page in PAGES:
        for block in TOCTREE.findall(page.read_text()):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            entries += [(page.parent / f"{line}.md").resolve() for line in lines]
    assert len(entries) == len(set(entries))
    assert set(entries) == {page.resolve() for page in PAGES} - {DOCS / "index.md"}


def _headings(path: Path) -> set[str]:
    """Anchors of a document's headings, those of what it includes among them."""
    text = path.read_text()
    found: set[str] = set()
    for included in INCLUDE.findall(text):
        found |= _headings(path.parent / included)
    for title in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M):
        found.add(re.sub("[^a-z0-9]+", "-", title.lower()).strip("-"))
    return found


def _broken(path: Path) -> Iterator[str]:
    text = FENCE.sub("", path.read_text())
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        place, _, anchor = target.partition("#")
        there = (path.parent / place).resolve() if place else path
        if not there.exists() or (anchor and anchor not in _headings(there)):
            yield target
    for included in INCLUDE.findall(path.read_text()):
        if not (path.parent / included).exists():
            yield included


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    assert list(_broken(path)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title, two words\n[here](#a-title-two-words) [gone](gone.md) [there](page.md#nowhere)\n")
    assert list(_broken(page)) == ["gone.md", "page.md#nowhere"]


# Modules whose `__all__`, or whose own public classes and functions, are the public face.
PUBLIC = (
    *(
        "suffice",
        "suffice.problems",
        "suffice.losses",
        "suffice.autodiff",
        "suffice.terms",
        "suffice.testing",
        "suffice.datasets",
    ),
    *("suffice.sklearn", "suffice.sklearn.report", "suffice.tabular", "suffice.executors"),
)
INTERNAL = {"suffice.executors.find", "suffice.losses.norm_rounding"}


def _public(module: str) -> Iterator[str]:
    imported = importlib.import_module(module)
    names = getattr(imported, "__all__", None)
    for key in vars(imported) if names is None else names:  # some are imported when they are asked for
        value = getattr(imported, key)
        if inspect.ismodule(value) or key.startswith("_"):
            continue
        own = getattr(value, "__module__", None) == module and (inspect.isclass(value) or inspect.isfunction(value))
        if names is not None or own:
            yield f"{module}.{key}"


def _documented() -> dict[str, str]:
    found = {}
    for page in (DOCS / "api").glob("*.md"):
        for kind, full in re.findall(r"^\.\. auto(\w+):: (\S+)$", page.read_text(), re.M):
            assert full not in found, f"{full} is described twice"
            found[full] = kind
    return found


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    public = set(_public(module)) - INTERNAL
    # An error is described once, whatever the module it is offered by.
    known = {_resolved(full) for full in _documented()}
    assert public and {full for full in public if _resolved(full) not in known} == set()


def _resolved(full: str) -> object:
    module, _, attribute = full.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    return f"{module}.{attribute}" if getattr(value, "__hash__", None) is None else value


def test_the_reference_describes_what_exists() -> None:
    for full, kind in _documented().items():
        module, _, attribute = full.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        assert inspect.isclass(value) == (kind in ("class", "exception")), f"{full} is no {kind}"
        assert inspect.isfunction(value) == (kind == "function"), f"{full} is no {kind}"
        assert inspect.getdoc(value), f"{full} has no docstring"


def _names(text: str) -> set[str]:
    return set(re.findall(r"`((?:suffice|suffice_paper|suffice_bench)(?:\.\w+)+)", text))


def _is_there(full: str) -> bool:
    """Whether a dotted name is a module, or an attribute or a field of what is."""
    parts = full.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if _is_module(name):
            value: Any = importlib.import_module(name)
            for part in parts[length:]:
                if not hasattr(value, part) and part not in getattr(value, "__annotations__", {}):
                    return False
                value = getattr(value, part, None)
            return True
    return False


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=name)
def test_names_in_documents_exist(path: Path) -> None:
    assert {full for full in _names(path.read_text()) if not _is_there(full)} == set()


def test_a_name_that_is_not_there_is_found() -> None:
    assert _names("`suffice.tune(x)`, `suffice.gone`") == {"suffice.tune", "suffice.gone"}
    assert _is_there("suffice.tune") and _is_there("suffice.search.state.Ledger.best")
    assert not _is_there("suffice.gone") and not _is_there("suffice.search.state.Ledger.better")


def _docstrings(full: str) -> Iterator[str]:
    module, _, attribute = full.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    yield inspect.getdoc(value) or ""
    if inspect.isclass(value):
        for key, member in vars(value).items():
            if not key.startswith("_"):
                yield inspect.getdoc(member) or ""


def test_public_docstrings_stand_on_their_own_in_help() -> None:
    for full in _documented():
        for text in _docstrings(full):
            assert "module's text" not in text, full


@pytest.mark.parametrize("kind", [suffice.Options, suffice.Record, suffice.result.Step, suffice.Result])
def test_the_reference_explains_every_field(kind: type) -> None:
    """Sphinx takes what stands behind a field, or above it, after `#:`."""
    explained = r"^    (?:(?P<above>\w+): .*$|#:.*\n(?:    #:.*\n)*    (?P<below>\w+): )"
    found = re.finditer(explained, inspect.getsource(kind), re.M)
    names = [one["below"] or one["above"] for one in found if one["below"] or "#: " in one[0]]
    assert names == [each.name for each in dataclasses.fields(kind)]


def test_docstrings_become_restructured_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    converted = importlib.import_module("plain_docstrings").converted
    text = ["With |x|_1 and `co", "de_`:", "", "    a_1 = *b*", "", "    c", "", "then", "- one", "  more", "- two", ""]
    expected = [r"With \|x\|\_1 and ``co de_``:", "::", "    a_1 = *b*", "    c", "then", "- one more", "- two"]
    assert [line for line in converted(text) if line] == expected
    entries = ["Parameters", "----------", "a_ : int,", "    or so", "b, c : str", "    Text."]
    expected = [".. rubric:: Parameters", "- ``a_``: int, or so", "- ``b``, ``c``: str", "  Text."]
    assert [line for line in converted(entries) if line] == expected


def test_what_is_called_what_is_an_expression_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All code in the last column of the tables of words; `StopIteration` and the like among them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = (DOCS / "guide/migration.md").read_text()
    namespace: dict[str, Any] = {"__name__": "document"}
    for _, block in BLOCK.findall(text):
        exec(block, namespace)
    rows = [line.strip("| ").rsplit(" | ", 1) for line in text.splitlines() if line.startswith("| ")]
    ours = [code for *_, last in rows for code in re.findall("`([^`]+)`", last)]
    assert len(ours) > 40
    for code in ours:
        made = eval(code, namespace)
        if isinstance(made, SufficeSearchCV) and not hasattr(made, "best_params_") and "LogisticRegression" not in code:
            made.set_params(options=suffice.Options(max_evaluations=2), journal=None, n_jobs=None)
            made.fit(namespace["X"], namespace["y"])  # names and ranges are looked at then
