r"""Docstrings as they are written in this package, as reStructuredText for autodoc.

They are plain text: `code` in single backquotes, formulas with |, _ and * that mean nothing else, lists that begin with
"- ", blocks of four blanks or more that are shown as they are, and numpydoc's sections of parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def converted(lines: list[str]) -> list[str]:
    """The lines of a docstring (without common indentation) as reStructuredText."""
    return [line for block in _blocks(lines) for line in [*_block(block), ""]]


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs; an indented one that follows a blank line stays whole, blank lines and all."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            if block and not block[-1].strip() and not line.startswith("    "):
                yield _stripped(block)
                block = []
            block.append(line)
        elif block and block[0].startswith("    "):
            block.append("")
        elif block:
            yield block
            block = []
    if block:
        yield _stripped(block)


def _stripped(block: list[str]) -> list[str]:
    while not block[-1].strip():
        block = block[:-1]
    return block


def _block(block: list[str]) -> list[str]:
    if block[0].startswith("    "):
        return ["::", "", *block]
    if len(block) > 1 and re.fullmatch("-{3,}", block[1]):
        return [f".. rubric:: {block[0]}", "", *_entries(block[2:])]
    if block[0].startswith("- "):
        return _list(block)
    first = next((i for i, line in enumerate(block) if line.startswith("- ")), len(block))
    return [_text(line) for line in block[:first]] + (["", *_list(block[first:])] if first < len(block) else [])


def _list(block: list[str]) -> list[str]:
    return [f"- {_text(line[2:])}" if line.startswith("- ") else f"  {_text(line.strip())}" for line in block]


def _entries(block: list[str]) -> list[str]:
    """`name : kind` with an indented text below, as a list."""
    made: list[str] = []
    for line in block:
        if line.startswith(" "):
            made.append(f"  {_text(line.strip())}")
            continue
        names, colon, kind = line.partition(" : ")
        made.append("- " + ", ".join(f"``{name}``" for name in names.split(", ")) + _text(f": {kind}" if colon else ""))
    return made


def _text(line: str) -> str:
    parts = re.split("`([^`]+)`", line)
    return "".join(f"``{part}``" if i % 2 else re.sub(r"([\\*_|`])", r"\\\1", part) for i, part in enumerate(parts))


def setup(app: Any) -> dict[str, bool]:
    def process(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
        lines[:] = converted(lines)

    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
