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
    first = next((i for i, line in enumerate(block) if line.startswith("- ")), len(block))
    text = [_text(block[:first]), ""] if first else []
    return text + [f"- {_text([item[0][2:], *item[1:]])}" for item in _items(block[first:])]


def _items(block: list[str]) -> list[list[str]]:
    """Lines that begin at the margin, each with the indented ones that follow."""
    items: list[list[str]] = []
    for line in block:
        if line.startswith(" "):
            items[-1].append(line.strip())
        else:
            items.append([line])
    return items


def _entries(block: list[str]) -> list[str]:
    """`name : kind` with an indented text below, as a list."""
    made: list[str] = []
    for head, *text in _items(block):
        names, colon, kind = head.partition(" : ")
        named = ", ".join(f"``{name}``" for name in names.split(", "))
        if kind.endswith(","):  # goes on below
            kind, text = " ".join([kind, *text]), []
        made += [f"- {named}{colon and ': '}{_text([kind])}", ""]
        made += [f"  {_text(text)}", ""] if text else []
    return made


def _text(lines: list[str]) -> str:
    """One line; what stands in single backquotes is code, and nothing else means anything."""
    parts = re.split("`+([^`]+)`+", " ".join(lines))
    return "".join(f"``{part}``" if i % 2 else re.sub(r"([\\*_|`])", r"\\\1", part) for i, part in enumerate(parts))


def setup(app: Any) -> dict[str, bool]:
    def process(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
        lines[:] = converted(lines)

    def signature(app: Any, what: str, name: str, obj: object, *_: object) -> tuple[str, None] | None:
        return ("", None) if what == "class" and getattr(obj, "_is_protocol", False) else None

    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
