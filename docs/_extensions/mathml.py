"""Formulas as MathML, made while the site is built: browsers show it without scripts and without a network.

Roots, brackets and sums only come out right with a font that has a table of mathematical layout, which few machines
have. STIX Two Math (SIL Open Font License) comes with the package ziamath; the part of it that formulas use goes into a
style sheet.
"""

from __future__ import annotations

import base64
import io
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from sphinx.application import Sphinx

# Latin, accents, Greek, punctuation, letters, arrows, operators, brackets; and letters in mathematical italics, which
# browsers put in the place of single letters.
BLOCKS = (
    *((0x20, 0x17F), (0x2C6, 0x2DD), (0x300, 0x338), (0x391, 0x3F6), (0x2010, 0x2057), (0x2100, 0x214F)),
    *((0x2190, 0x21FF), (0x2200, 0x22FF), (0x2308, 0x230B), (0x25A0, 0x25FF), (0x27E6, 0x27EF)),
    *((0x1D434, 0x1D467), (0x1D49C, 0x1D4CF), (0x1D6E2, 0x1D71B)),
)
STYLE = """@font-face {{ font-family: "formulas"; src: url(data:font/woff;base64,{font}) format("woff"); }}
math {{ font-family: "formulas", math; }}
"""

# What latex2mathml leaves to a browser's guess: bars are fences of a fixed size, names of functions are no operators,
# a fraction's slash takes no room, hats are accents.
REPAIRS = (
    ('<mo( stretchy="false")?>&#x(02016|0007C);</mo>', r'<mo stretchy="false" lspace="0" rspace="0">&#x\2;</mo>'),
    ("<mo>([A-Za-z]{2,})</mo>", r"<mi>\1</mi>"),
    ("<mo>&#x0002F;</mo>", '<mo lspace="0" rspace="0">&#x0002F;</mo>'),
    ("<mo>&#x0005E;</mo>", '<mo stretchy="false">&#x002C6;</mo>'),
)


def mathml(formula: str, display: str) -> str:
    made = convert(formula, display=display)
    for pattern, repaired in REPAIRS:
        made = re.sub(pattern, repaired, made)
    if "\\" in made or re.search("&amp;|&#x0*26;", made):
        raise ValueError(f"latex2mathml does not know a part of {formula!r}")
    return made


def inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.Element) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="formula"))
    writer.body.append(mathml(node.astext(), "block"))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def write_style(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    font = TTFont(io.BytesIO(files("ziamath").joinpath("fonts/STIXTwoMath-Regular.ttf").read_bytes()))
    options = subset.Options(drop_tables=["DSIG", "GPOS"], name_IDs=["*"])
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[code for first, last in BLOCKS for code in range(first, last + 1)])
    subsetter.subset(font)
    font.flavor = "woff"
    made = io.BytesIO()
    font.save(made)
    style = STYLE.format(font=base64.b64encode(made.getvalue()).decode("ascii"))
    (Path(app.outdir) / "_static" / "formulas.css").write_text(style)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.add_css_file("formulas.css")
    app.connect("build-finished", write_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
