"""Links to benchmarks/results/NAME.md, which lead to files in a clone, lead on the site to the page that includes NAME.

The place is the heading of the file, which is that of its section there, or the heading above where it has none.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

LINK = re.compile(r"\]\((?:\.\./)+benchmarks/results/(\w+)\.md\)")
INCLUDED = re.compile(r"^```\{include\} (?:\.\./)+benchmarks/results/(\w+)\.md$", re.M)
HEADING = re.compile(r"^#+ (.*)$", re.M)


def pages(docs: Path) -> dict[str, str]:
    """The page, from the documents' root, and the anchor at which each file of results is included."""
    found = {}
    for page in sorted(docs.glob("*.md")):
        text = page.read_text()
        for match in INCLUDED.finditer(text):
            first = (docs.parent / "benchmarks/results" / f"{match[1]}.md").read_text().partition("\n")[0]
            title = HEADING.findall(first) or HEADING.findall(text[: match.start()])
            found[match[1]] = f"{page.name}#" + re.sub("[^a-z0-9]+", "-", title[-1].lower()).strip("-")
    return found


def linked(text: str, depth: int, places: dict[str, str]) -> str:
    """A page's text, `depth` folders below the documents' root; Sphinx complains of files that no page includes."""
    return LINK.sub(lambda found: f"]({'../' * depth}{places[found[1]]})" if found[1] in places else found[0], text)


def setup(app: Sphinx) -> dict[str, bool]:
    places = pages(Path(app.srcdir))

    def read(_: Sphinx, name: str, content: list[str]) -> None:
        content[0] = linked(content[0], name.count("/"), places)

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
