"""The package as a whole: no module reaches into another's private names, and solvers know nothing of files."""

import ast
from pathlib import Path

import pytest

import suffice
import suffice.journal

SOURCE = Path(suffice.__file__).parent


def imported(path):
    """(module, name) of everything that a file of the package imports from it; name is empty for whole modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.module, item.name) for item in node.names)
        elif isinstance(node, ast.Import):
            yield from ((item.name, "") for item in node.names)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_names_of_journals_stay_where_they_are(path):
    ours = path.parent == SOURCE / "journal"
    for module, name in imported(path):
        if module.startswith("suffice.journal") or (ours and module.startswith("suffice")):
            assert not name.startswith("_"), f"{module}.{name}"


@pytest.mark.parametrize("path", sorted((SOURCE / "solvers").glob("*.py")), ids=lambda path: path.name)
def test_solvers_do_not_know_of_journals(path):
    for module, name in imported(path):
        assert not f"{module}.{name}".startswith("suffice.journal")


def test_the_public_names_are_there():
    assert suffice.Journal is suffice.journal.Journal and suffice.JournalError is suffice.journal.JournalError
    for name in ("Contents", "FILE", "read", "versions"):
        assert hasattr(suffice.journal, name)
