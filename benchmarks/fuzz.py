"""Can a file crash its reader? 100,000 hostile journals, tuner states and options, and 100,000 hostile tables.

Journals are made from a good one: bytes changed, cut, doubled or moved; or any part of any record replaced by generated
JSON and the checksums made good again, so that the contents are looked at. Generated are also states for
`Tuner.from_state` and arguments of `Options`. Tables are CSV files in several encodings and delimiters, some of them
packed, with bytes changed, cut, doubled or moved, or text made of what CSV files are made of. A reader may answer with
its value or with its own error (JournalError; ValueError or TypeError; TableError), and with nothing else. The slowest
input is reported, and the most memory that one in a hundred took.

`--atheris` lets coverage guide the choice of bytes instead (needs atheris).
"""

from __future__ import annotations

import copy
import gc
import gzip
import json
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from common import parser, provenance, table, target, write_json, write_text
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import suffice
from suffice import journal, losses, problems
from suffice.journal import answers, codec
from suffice.journal import lines as journal_lines
from suffice.tabular import Limits, TableError, reading

WORDS = [
    *(
        "kind",
        "header",
        "evaluation",
        "event",
        "end",
        "float",
        "array",
        "dtype",
        "shape",
        "enum",
        "name",
        "tuple",
        "dict",
    ),
    *(
        "class",
        "fields",
        "State",
        "Point",
        "Evaluation",
        "Solution",
        "Record",
        "Options",
        "Scaling",
        "inf",
        "nan",
        "<f8",
    ),
    *("|O", "<U999999999", "os.system", "__reduce__", "../../etc/passwd", "RUNNING", "Status", "AAAAAAAAAAA="),
]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(WORDS),
    st.text(max_size=6),
)
json_values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)), inner, max_size=4),
    ),
    max_leaves=12,
)


ROWS = "name,age,city,member,income\n" + "".join(
    f'"Smith, {i}",{20 + i},{city},{i % 2 == 0},{1000.5 * i}\n'
    for i, city in enumerate(["Köln", "", "NA", "Ürümqi"] * 5)
)
TABLES = [
    ROWS.encode(),
    ROWS.encode("utf-16"),
    ROWS.encode("utf-8-sig"),
    ROWS.encode("cp1252"),
    ROWS.replace(",", ";").replace(".", ",").replace("\n", "\r\n").encode(),
    gzip.compress(ROWS.encode(), mtime=0),
]
csv_text = st.lists(
    st.one_of(
        st.sampled_from([",", ";", "\t", "|", "\n", "\r\n", "\r", '"', '""', "'", "\0", " ", "\\", "=cmd()", "\ufeff"]),
        st.sampled_from(["a", "b", "NA", "true", "1", "-1e5", "1,5", "inf", "nan", "1e999", "9" * 400, "x" * 2000]),
        st.text(max_size=4),
        st.floats().map(repr),
        st.integers().map(str),
    ),
    max_size=60,
).map("".join)
LIMITS = Limits(text=20_000, rows=200, columns=50, cells=2_000, record=5_000, field=1_000)  # within reach of inputs


class Target:
    """A reader, the errors it may raise, and what it took."""

    def __init__(self, name: str, read: Callable[[Any], Any], errors: tuple[type[Exception], ...]) -> None:
        self.name, self.read, self.errors = name, read, errors
        self.outcomes: Counter[str] = Counter()
        self.slowest, self.largest = 0.0, 0

    def __call__(self, value: Any) -> None:
        traced = self.outcomes.total() % 100 == 0  # measuring memory takes longer than reading
        if traced:
            tracemalloc.start()
        gc.disable()  # or the generator's own garbage would be counted
        began = time.process_time()
        try:
            self.read(value)
            self.outcomes["read"] += 1
        except self.errors:
            self.outcomes["refused"] += 1
        except Exception as error:
            self.outcomes[f"CRASH {type(error).__name__}: {str(error)[:80]}"] += 1
        took = time.process_time() - began
        gc.enable()
        if traced:
            self.largest = max(self.largest, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        else:
            self.slowest = max(self.slowest, took)

    @property
    def crashes(self) -> int:
        return sum(count for name, count in self.outcomes.items() if name.startswith("CRASH"))


def good(folder: Path) -> list[dict[str, Any]]:
    """The records of a run."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    problem = suffice.BilevelProblem(
        [problems.ElasticNet(X, X[:, 0])],
        [losses.SquaredError(X, X[:, 1])],
        space=suffice.Space(l1=(1e-3, 1), l2=(1e-3, 1)),
    )
    suffice.tune(problem, {"l1": 0.1, "l2": 0.1}, options=suffice.Options(max_evaluations=4), journal=folder)
    lines = (folder / journal.FILE).read_bytes().splitlines()
    return [json.loads(line[journal_lines.PREFIX :]) for line in lines]


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    found = [here] if here else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*here, key))
    return found


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


def plain(line: Any) -> bytes:
    return json.dumps(line, allow_nan=False, separators=(",", ":")).encode("ascii")


def signed(texts: list[bytes]) -> bytes:
    """Texts as a journal whose checksums are right."""
    data, digest = [], b""
    for text in texts:
        digest = blake2b(digest + text, digest_size=8).hexdigest().encode("ascii")
        data.append(b"%s %012d %s\n" % (digest, len(text), text))
    return b"".join(data)


def mutated(draw: Any, good_bytes: bytes) -> bytes:
    """The bytes with up to three changes."""
    content = bytearray(good_bytes)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(content) - 1))
        match draw.draw(st.sampled_from(["flip", "cut", "insert", "double", "drop"])):
            case "flip":
                content[at] ^= 1 << draw.draw(st.integers(0, 7))
            case "cut":
                del content[max(at, 1) :]
            case "insert":
                content[at:at] = draw.draw(st.binary(max_size=40))
            case "double":
                content[at:at] = content[at : at + draw.draw(st.integers(1, 3000))]
            case "drop":
                del content[at : at + draw.draw(st.integers(1, 3000))]
        content = content or bytearray(b"x")
    return bytes(content)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--inputs", type=int, default=100_000, help="of tables, and of all others (%(default)s)")
    arguments.add_argument("--atheris", type=int, default=0, metavar="RUNS", help="so many inputs, guided by coverage")
    options = arguments.parse_args()
    place = Path(tempfile.mkdtemp())
    lines = good(place / "good")
    texts = [plain(line) for line in lines]
    data = signed(texts)
    state = suffice.Tuner([0.0, 0.0]).state()
    scratch = place / "scratch"
    scratch.mkdir()

    def read_journal(content: bytes) -> None:
        (scratch / journal.FILE).write_bytes(content)
        journal.read(scratch)

    whole = Target("journals, bytes", read_journal, (journal.JournalError,))
    parts = Target("journals, contents", read_journal, (journal.JournalError,))
    states = Target("states of a tuner", suffice.Tuner.from_state, (ValueError, TypeError))
    chosen = Target("options", lambda given: suffice.Options(**given), (ValueError, TypeError))
    scratch_table = place / "table.csv"

    def read_table(content: bytes) -> None:
        scratch_table.write_bytes(content)
        found = reading.read(scratch_table, LIMITS)
        assert len(found) > 0 and all(len(column.values) == len(found) for column in found.columns)

    rows = Target("tables", read_table, (TableError,))
    if options.atheris:
        import atheris

        def one(content: bytes) -> None:
            with suppress(TableError):
                read_table(content)
            with suppress(journal.JournalError):
                read_journal(content)
            with suppress(journal.JournalError):  # the same with good checksums: as a header, and as a later record
                read_journal(signed([content.replace(b"\n", b" ")]))
            with suppress(journal.JournalError):
                read_journal(signed([*texts[:3], content.replace(b"\n", b" ")]))

        (place / "seeds").mkdir()
        for i, line in enumerate(lines):
            (place / "seeds" / str(i)).write_text(json.dumps(line))
        (place / "seeds" / "whole").write_bytes(data)
        for i, content in enumerate(TABLES):
            (place / "seeds" / f"table{i}").write_bytes(content)
        for module in (journal_lines, answers, codec, reading):
            for name, function in list(vars(module).items()):
                if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                    setattr(module, name, atheris.instrument_func(function))
        atheris.Setup([sys.argv[0], f"-runs={options.atheris}", str(place / "seeds")], one)
        atheris.Fuzz()
        return

    ways = [(i, path) for i, line in enumerate(lines) for path in paths(line)]
    state_ways = paths(state)
    names = [item.name for item in fields(suffice.Options)]
    share = options.inputs // 4
    how = settings(
        max_examples=share,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @how
    @given(st.data())
    def bytes_of_journals(draw: Any) -> None:
        whole(mutated(draw, data))

    @how
    @given(st.sampled_from(ways), json_values, st.integers(1, len(lines)))
    def contents_of_journals(way: Any, new: Any, count: int) -> None:
        i, path = way
        count = max(count, i + 1)
        parts(signed([*texts[:i], plain(put(lines[i], path, new)), *texts[i + 1 : count]]))

    @how
    @given(st.sampled_from(state_ways), json_values)
    def states_of_tuners(path: Any, new: Any) -> None:
        states(put(state, path, new))

    @how
    @given(st.dictionaries(st.sampled_from(names), json_values, max_size=4))
    def arguments_of_options(given_options: Any) -> None:
        chosen(given_options)

    @settings(how, max_examples=options.inputs)
    @given(st.data())
    def contents_of_tables(draw: Any) -> None:
        if draw.draw(st.booleans()):
            return rows(mutated(draw, draw.draw(st.sampled_from(TABLES))))
        text = draw.draw(csv_text).encode(draw.draw(st.sampled_from(["utf-8", "utf-16"])), "surrogatepass")
        rows(gzip.compress(text, mtime=0) if draw.draw(st.integers(0, 9)) == 0 else text)

    for test in (bytes_of_journals, contents_of_journals, states_of_tuners, arguments_of_options, contents_of_tables):
        test()
        print(test.__name__, flush=True)
    readers = [whole, parts, states, chosen, rows]
    lines_of_table = [
        [
            one.name,
            one.outcomes.total(),
            one.outcomes["read"],
            one.outcomes["refused"],
            one.crashes,
            f"{1000 * one.slowest:.0f}",
            f"{one.largest / 1e6:.2f}",
        ]
        for one in readers
    ]
    head = ["reader", "inputs", "read", "refused", "crashes", "slowest, CPU ms", "largest, MB"]
    total = sum(one.outcomes.total() for one in readers)
    targets = [
        target("inputs", total, 2 * options.inputs, at_least=True, digits=0),
        target("crashes", sum(one.crashes for one in readers), 0, digits=0),
        target(f"memory for one input, in sizes of a good journal ({len(data) / 1e6:.2f} MB)",
               max(one.largest for one in (whole, parts, states, chosen)) / len(data), 50),
        target("memory for one table, MB, of which 1 is the buffer", rows.largest / 1e6, 2.5),
    ]  # fmt: skip
    text = f"{table(head, lines_of_table)}\n\n{table(['target', 'measured', 'wanted', ''], targets)}\n"
    for one in readers:
        for name, count in one.outcomes.items():
            if name.startswith("CRASH"):
                print(one.name, name, count)
    print(text)
    made = provenance("hypothesis")
    write_text(options.out / "fuzz.md", f"# Hostile files\n\ncommit {made['commit']}, {made['date']}\n\n{text}")
    outcomes = {one.name: dict(one.outcomes) for one in readers}
    write_json(options.out / "fuzz.json", {"provenance": made, "outcomes": outcomes})


if __name__ == "__main__":
    main()
