"""Notebooks run from above to below; in a kernel where there is one, else as one program."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook that hold code."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    if importlib.util.find_spec("nbclient") is not None and importlib.util.find_spec("ipykernel") is not None:
        nbclient, nbformat = (importlib.import_module(name) for name in ("nbclient", "nbformat"))
        nbclient.NotebookClient(nbformat.read(path, as_version=4), timeout=300).execute()
        return
    namespace: dict[str, object] = {"__name__": "notebook"}
    for number, cell in enumerate(cells(path), 1):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_a_notebook_shows_what_its_cells_have_printed_and_no_error(path: Path) -> None:
    for number, cell in enumerate(cells(path), 1):
        assert cell["execution_count"] == number
        assert all(output["output_type"] != "error" for output in cell["outputs"])
    assert sum(bool(cell["outputs"]) for cell in cells(path)) >= len(cells(path)) - 1
