"""Figures in documents are those of the results that they cite.

A row of a table, an item of a list or a paragraph that links to a file of results has, but for words and code, no
number that is not in such a file: rounded to the digits that are written, in percent or not. What is computed of a
file's numbers (a count, a ratio, a span) is computed here, from the file. So a benchmark that is run again fails this
test where a document still tells the old figure; `python tests/test_figures_in_docs.py` lists all of these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
SOURCES = {RESULTS, ROOT / "docs" / "paper", ROOT / "docs" / "imaging"}

FENCE = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"`[^`]*`|\$[^$]*\$")
# A number that is no part of a name (l1, x86), of a version (1.9.1) or of a size (20 x 20).
NUMBER = re.compile(r"(?<![\w.^-])[-+]?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(e[-+]?\d+)?(?![\w^]|\.\d|,\d{3})")
TARGET = re.compile(r"[<>]= *[\d.,]+")
AIMED = re.compile(r"aimed at [\d.,]+")
SIZE = re.compile(r"\d[\d,]* x \d[\d,]*")


@dataclass(frozen=True)
class Figure:
    """A number as it is written, and the unit of its last digit."""

    text: str
    value: float
    unit: float

    @property
    def digits(self) -> int:
        return len(re.sub(r"e.*|\D", "", self.text).lstrip("0"))

    def is_found_in(self, numbers: set[float]) -> bool:
        """One digit may be a count, and has to be there as it is; more of them may be rounded."""
        slack = 0.5001 * self.unit if self.digits > 1 or self.unit < 1 else 0.0
        return any(abs(abs(self.value) - abs(known)) <= slack for known in numbers)


def figures(text: str) -> list[Figure]:
    found = []
    for match in NUMBER.finditer(SIZE.sub(" ", CODE.sub(" ", text))):
        exponent = int(match[3][1:]) if match[3] else 0
        unit = 10.0 ** (exponent - (len(match[2]) - 1 if match[2] else 0))
        found.append(Figure(match[0], float(match[0].replace(",", "")), unit))
    return found


def claims(document: Path) -> Iterator[tuple[str, list[Path]]]:
    """Rows, items and paragraphs, without the targets of links, beside the files of results that they cite.

    What a paragraph cites that ends in a colon is cited by the rows of the table below it, too.
    """
    above: list[Path] = []
    text = FENCE.sub("\n", document.read_text())
    for unit in re.split(r"\n(?=\s*\n|\||\s*- |\s*\d+\. |#)", text):
        cited = [(document.parent / target).resolve() for target, _ in LINK.findall(unit)]
        sources = [path for path in cited if path.suffix == ".md" and path.parent in SOURCES and path != document]
        if unit.startswith("|") or not unit.strip():
            sources = sources or above
        else:
            above = sources if unit.rstrip().endswith(":") else []
        if sources:
            yield LINK.sub("]", unit), sources


def rows(name: str, number: int) -> list[list[str]]:
    """The cells of a table in a file of results, its head first; the first table is number 0."""
    tables = re.findall(r"(?:^\|.*\n)+", (RESULTS / f"{name}.md").read_text(), re.M)
    lines = [line for line in tables[number].splitlines() if not set(line) <= set("|-: ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def of_real_tables() -> list[float]:
    """What is measured of targets, and how often boosting loses less, by the loss that a model was fitted for; how
    often by a tenth, either way."""
    measured = [float(row[1]) for row in rows("tables", 0)[1:]]
    head, *table = rows("tables", 1)
    loss, ratio = head.index("loss"), head.index("ours / boosted")
    ratios = [float(row[ratio]) for row in table if "*" not in row[loss]]
    above, below = sum(one > 1.1 for one in ratios), sum(one < 0.9 for one in ratios)
    return [*measured, len(ratios), sum(one > 1 for one in ratios), above, below]


def of_grids() -> list[float]:
    table = [[float(cell) for cell in row[2:]] for row in rows("sklearn_search", 0)[1:]]
    shares = [100 * row[5] / row[6] for row in table]
    return [len(table), sum(row[0] < row[1] for row in table), round(min(shares)), round(max(shares))]


def of_solves() -> list[float]:
    settings = [row[0] for row in rows("certified_solves", 0)[1:]]
    return [len(settings), sum(name != "l1 = 0" for name in settings)]


def of_families() -> list[float]:
    """Problems, and those on which we are behind and ahead of a rival at its usual tolerance."""
    head, *table = rows("families", 0)
    ours, theirs = head.index("suffice s"), head.index("usual tol: s")
    text = (RESULTS / "families.md").read_text()
    ahead = float(re.search(r"usual tolerance.*ahead in (\d+);?", text)[1])  # type: ignore[index]
    slower = sum(float(row[ours]) >= float(row[theirs]) for row in table)
    assert abs(len(table) - ahead - slower) <= 2, "milliseconds are rounded in the table"
    return [len(table), len(table) - ahead, ahead]


def of_kills() -> list[float]:
    table = [[float(cell) for cell in row[1:]] for row in rows("kill_test", 0)[1:]]
    return [sum(row[0] for row in table), sum(row[-1] for row in table)]


COMPUTED: dict[str, Callable[[], list[float]]] = {
    "tables": of_real_tables,
    "sklearn_search": of_grids,
    "certified_solves": of_solves,
    "families": of_families,
    "kill_test": of_kills,
}


# Files of so many numbers that any small one is among them: whole ones below 100 have to be computed.
COUNTED = {"tables", "sklearn_search", "kill_test", "families"}


def computed(source: Path) -> list[float]:
    return COMPUTED[source.stem]() if source.parent == RESULTS and source.stem in COMPUTED else []


def known(source: Path, aims: bool = False) -> set[float]:
    """All numbers of a file of results, also in percent, and what is computed of them; without its targets."""
    text = LINK.sub("]", FENCE.sub("\n", source.read_text())).replace("`", " ")
    numbers = {figure.value for figure in figures(text if aims else TARGET.sub(" ", text))} | set(computed(source))
    return numbers | {100 * value for value in numbers if 0 < abs(value) < 1}


def missing(given: list[Figure], sources: list[Path], aims: bool = False) -> list[Figure]:
    """The figures that none of the files has."""
    numbers: set[float] = set().union(*(known(path, aims) for path in sources))
    counts: set[float] = set().union(*(computed(path) for path in sources))
    strict = not aims and all(path.stem in COUNTED for path in sources)
    return [
        one
        for one in given
        if not (one.value in counts if strict and one.unit == 1.0 and one.value < 100 else one.is_found_in(numbers))
    ]


def strangers(document: Path) -> list[str]:
    """Figures that no cited file has, with what is computed of these: among that is the one that is right now."""
    found = []
    for text, sources in claims(document):
        wrong = missing(figures(AIMED.sub(" ", text)), sources)
        wrong += missing(figures(" ".join(AIMED.findall(text))), sources, aims=True)
        names, begin = ", ".join(f"{path.name} {computed(path)}" for path in sources), " ".join(text.split())[:60]
        found += [f"{one.text} is not in {names}: {begin}" for one in wrong]
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_figures_are_those_of_the_results_that_are_cited(document: Path) -> None:
    assert strangers(document) == []


def test_what_is_computed_of_results_is_computed() -> None:
    assert all(math.isfinite(value) for compute in COMPUTED.values() for value in compute())


def test_documents_cite_results() -> None:
    assert sum(1 for document in DOCUMENTS for _ in claims(document)) >= 40


def test_a_changed_figure_is_found() -> None:
    """Every figure of two digits or more in the front page's table, with each of its digits changed in turn."""
    changed, found = 0, 0
    for text, sources in claims(ROOT / "README.md"):
        for figure in (one for one in figures(text) if one.digits >= 2):
            for place in (index for index, letter in enumerate(figure.text) if letter.isdigit()):
                digit = str((int(figure.text[place]) + 3) % 10)
                others = figures(figure.text[:place] + digit + figure.text[place + 1 :])
                changed, found = changed + 1, found + bool(missing(others, sources))
    assert changed >= 20 and found >= 0.9 * changed, f"{found} of {changed}"


def test_a_changed_count_is_found() -> None:
    """Of 63 tables: files of thousands of numbers have any small one somewhere."""
    tables = [RESULTS / "tables.md"]
    right = [f"{value:.0f}" for value in of_real_tables()[-4:]]
    assert missing(figures(" of ".join(right)), tables) == []
    assert len(missing(figures(" of ".join(str(int(one) + 1000) for one in right)), tables)) == 4
    assert [one.text for one in missing(figures("26 of 62"), tables)] == [
        one for one in ("26", "62") if float(one) not in of_real_tables()
    ]


if __name__ == "__main__":  # all of them at once, for whoever has measured again
    for page in DOCUMENTS:
        for line in strangers(page):
            print(f"{page.relative_to(ROOT)}: {line}")
