"""The shell of every page: one self-contained file. Nothing is fetched, and its own content policy forbids it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from suffice.files import replace_atomically
from suffice.report.chart import FONT
from suffice.report.formats import show

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def static(name: str) -> str:
    """A style sheet or a script of the package."""
    return files("suffice.report").joinpath("static", name).read_text("utf-8")


def page(title: str, body: str, more: str = "") -> str:
    """A self-contained page around a body, with `more` in its head; all three are HTML already."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>suffice: {title}</title>
<style>{static("page.css").replace("FONT", FONT)}</style>
{more}
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """The few numbers that matter most, each with its words; both are HTML already."""
    cells = "".join(f'<div class="tile"><b>{big}</b><span>{small}</span></div>' for big, small in pairs)
    return f'<div class="tiles">{cells}</div>' if cells else ""


def pairs(parts: Iterable[tuple[str, Mapping[str, Any]]], heading: str) -> str:
    """Plain values by name, under their titles, side by side in a `pair`."""
    made = []
    for title, values in parts:
        names = ((str(name).replace("_", " "), value) for name, value in values.items())
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(show(value))}</td></tr>" for name, value in names)
        if rows:
            made.append(f"<div><{heading}>{title}</{heading}><table><tbody>{rows}</tbody></table></div>")
    return "".join(made)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """A table of cells that are already HTML; the columns `numeric` are set flush right."""

    def row(cells: Sequence[str], tag: str) -> str:
        marks = (' class="n"' if index in numeric else "" for index in range(len(cells)))
        return "<tr>" + "".join(f"<{tag}{m}>{c}</{tag}>" for m, c in zip(marks, cells, strict=True)) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="scroll"><table><thead>{row(head, "th")}</thead><tbody>{body}</tbody></table></div>'


class ShownPage:
    """A page that notebooks show, in a frame of its own: its scripts reach nothing of the notebook."""

    def __init__(self, content: str) -> None:
        self.content = content

    def _repr_html_(self) -> str:
        how = 'sandbox="allow-scripts" style="width:100%;height:50rem;border:1px solid #ccc"'
        return f'<iframe {how} srcdoc="{escape(self.content)}"></iframe>'

    def __repr__(self) -> str:
        return f"<a page of {len(self.content):,} characters: save(path) writes it, notebooks show it>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file of HTML that fetches nothing."""
        replace_atomically(Path(path), self.content.encode("utf-8"))
