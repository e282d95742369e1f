"""Every Python block of the documents runs, in order, in one namespace per document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    namespace: dict[str, object] = {"__name__": "document"}
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        exec(compile("\n" * (line - 1) + match[1], str(path), "exec"), namespace)


def test_the_readme_has_code_blocks() -> None:
    assert len(BLOCK.findall((ROOT / "README.md").read_text())) >= 4
