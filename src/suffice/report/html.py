"""The shell of every page: one self-contained file. Nothing is fetched, and its own content policy forbids it."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Literal

from suffice.report.chart import FONT
from suffice.report.formats import show

_CSS = """
:root { --ink: #1c2733; --grey: #5f6b7a; --rule: #e1e5ea; --soft: #f6f8fa; --accent: #D55E00; --link: #0072B2;
  --page: #f3f5f8; --paper: #fff; --text: #37424f; --hover: #e9edf2; --note: #8a4b08; color-scheme: light }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 15.5px/1.55 FONT }
main { max-width: 1160px; margin: 0 auto; padding: 36px 24px 64px }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 10px; letter-spacing: -.015em }
h2 { font-size: 20px; margin: 0 0 6px; letter-spacing: -.01em }
p { margin: 0 0 12px; max-width: 82ch }
.lead { font-size: 16.5px; color: var(--text) }
.card { background: var(--paper); border: 1px solid var(--rule); border-radius: 10px; padding: 22px 24px;
  margin: 20px 0 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 14px; margin: 22px 0 }
.tile { background: var(--paper); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 18px }
.tile b { display: block; font-size: 23px; line-height: 1.25; letter-spacing: -.01em; white-space: nowrap }
.tile span { color: var(--grey); font-size: 13px }
nav { margin: 14px 0 0; font-size: 14px } nav a { margin-right: 16px; white-space: nowrap }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums }
th { text-align: left; color: var(--grey); font-weight: 600; font-size: 12.5px; border-bottom: 2px solid var(--rule) }
th, td { padding: 7px 12px 7px 0; vertical-align: top }
td { border-bottom: 1px solid var(--rule) } tbody tr:last-child td { border-bottom: 0 }
td.n, th.n { text-align: right; white-space: nowrap }
td.n + td:not(.n), th.n + th:not(.n) { padding-left: 14px }
td small { color: var(--grey); display: block; font-size: 12.5px }
.badge { display: inline-block; min-width: 76px; text-align: center; border-radius: 99px; padding: 1px 10px;
  font-size: 12.5px; font-weight: 650; white-space: nowrap; border: 1px solid }
.pass { color: #05603f; background: #e3f5ed; border-color: #a9dfc8 }
.fail { color: #9b1c1c; background: #fdeaea; border-color: #f3b9b9 }
.open { color: #565f6b; background: #eff1f4; border-color: #d5dae0 }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px }
.caption { color: var(--text); font-size: 14.5px } .still { display: none } .still img { max-width: 100%; height: auto }
.whole img { max-width: 100% }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 0 40px }
.pair th { width: 42% } .pair td { overflow-wrap: anywhere }
.pair tbody th { border-bottom: 1px solid var(--rule); font-size: 13.5px }
.pair tbody tr:last-child th { border-bottom: 0 }
details { border-top: 1px solid var(--rule); padding: 8px 0 } details[open] { padding-bottom: 16px }
summary { cursor: pointer; font-size: 14.5px } summary span { color: var(--grey); font-size: 13.5px }
details table { font-size: 12px; margin-top: 8px } details th { font-size: 11.5px; white-space: nowrap }
details th, details td { padding: 3px 10px 3px 0 }
footer { color: var(--grey); font-size: 13px }
@media print {
  body { background: #fff; font-size: 11.5px } main { padding: 0; max-width: none } nav, .live { display: none }
  .still { display: block } .card, .tile { border: 0; padding: 0; break-inside: avoid } .card { margin: 14px 0 }
  h1 { font-size: 22px } h2 { font-size: 15px } .tiles { grid-template-columns: repeat(4, 1fr) }
  .tile b { font-size: 16px } table { font-size: 10.5px } th, td { padding: 3px 10px 3px 0 }
  .lead, .caption { font-size: 11.5px } .records { display: none }
  .pair { grid-template-columns: 1fr 1fr } .still img { max-height: 42vh }
  .badge, .dot { print-color-adjust: exact; -webkit-print-color-adjust: exact }
}
""".replace("FONT", FONT)

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)

# Nothing of the page leaves it: plotly's own choice of buttons may include one that uploads the figure.
CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}


def page(title: str, script: str, body: str) -> str:
    """A self-contained page around a body; all three are HTML already."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>suffice: {title}</title>
<style>{_CSS}</style>
<noscript><style>.live {{ display: none }} .still {{ display: block }}</style></noscript>
{script}
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def plotly() -> str:
    """The script that draws the figures of a page, as part of it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("the report needs plotly: pip install suffice[plot]") from error
    return f"<script>{get_plotlyjs()}</script>"


def picture(figure: Any, dpi: int, kind: Literal["png", "pdf"] = "png") -> bytes:
    """matplotlib's picture of a figure: the same bytes for the same figure."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # names in a script that matplotlib's font lacks; plotly has them
        figure.savefig(buffer, format=kind, dpi=dpi, metadata={"Software" if kind == "png" else "CreationDate": None})
    return buffer.getvalue()


def image(figure: Any, alt: str, dpi: int) -> str:
    """matplotlib's picture of a figure, as part of the page."""
    still = base64.b64encode(picture(figure, dpi)).decode("ascii")
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{still}">'


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
