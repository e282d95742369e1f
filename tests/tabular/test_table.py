"""A file is read as what it holds, or refused with one kind of error that says where."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from suffice.tabular import Limits, TableError, read, reading
from suffice.tabular.entries import NOTHING, NUMBER, quoted
from tests.conftest import examples


def written(tmp_path, content, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def values(table, name):
    found = table[name].values
    return [None if value is None or value != value else value for value in found.tolist()]


@pytest.mark.parametrize(
    "text, name, kind, expected",
    [
        ("a,b\n1,x\n2,y\n", "a", "numeric", [1.0, 2.0]),
        ("a,b\n1,x\n2,y\n", "b", "text", ["x", "y"]),
        ("a;b\n1;x\n2;y\n", "a", "numeric", [1.0, 2.0]),
        ("a\tb\n1\tx\n", "b", "text", ["x"]),
        ("a|b\n1|x\n", "b", "text", ["x"]),
        ("a;b\n1,5;x\n-2,25;y\n", "a", "numeric", [1.5, -2.25]),
        ("a,b\r\n 1 ,x\r\n,y\r\n", "a", "numeric", [1.0, None]),
        ("a,b\rNA,x\r1e3,y\r", "a", "numeric", [None, 1000.0]),
        ("a,b\nTrue,1\nfalse,2\n,3\n", "a", "boolean", [1.0, 0.0, None]),
        ('a,b\n"x, ""y""\nz",1\n', "a", "text", ['x, "y"\nz']),
        ("a,b\n\n1,2\n\n3,4\n", "a", "numeric", [1.0, 3.0]),
        ("a,b\n007,x\nA12,y\n", "a", "text", ["007", "A12"]),
        ("a,b\n1_000,x\n2_000,y\n", "a", "text", ["1_000", "2_000"]),
        ("a,b\n\u0661,x\n", "a", "text", ["\u0661"]),
        ("a,b\n0x10,x\n", "a", "text", ["0x10"]),
        ("a,b\n,x\n,y\n", "a", "numeric", [None, None]),
        ("\ufeffa,b\n1,2\n", "a", "numeric", [1.0]),
        (",b\n1,2\n", "Unnamed: 0", "numeric", [1.0]),
        ("a,b\ninf,1\n-Infinity,2\n1e101,3\n9" + 400 * "9" + ",4\n5,5\n", "a", "numeric", [None] * 4 + [5.0]),
    ],
)
def test_entries_are_read_as_what_they_are(tmp_path, text, name, kind, expected):
    table = read(written(tmp_path, text))
    assert table[name].kind == kind
    assert values(table, name) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
@pytest.mark.parametrize("packed", [False, True])
def test_encodings_and_compression_are_found_out(tmp_path, encoding, packed):
    content = "name,größe\nJosé,1\n".encode(encoding)
    table = read(written(tmp_path, gzip.compress(content) if packed else content))
    assert table.names == ("name", "größe")
    assert values(table, "name") == ["José"]


def test_a_character_across_two_chunks_does_not_change_the_encoding(tmp_path):
    text = "a,b\n" + ("é" * 1000 + ",1\n") * 1200
    assert values(read(written(tmp_path, text)), "a") == ["é" * 1000] * 1200


@pytest.mark.parametrize(
    "content, told",
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b\n", "a header and no rows"),
        (b"1,2\n3,4\n", "names of the columns"),
        (b"a,b\n1,2\n1,2,3\n", "line 3 has 3 fields, the header has 2"),
        (b'a,b\n"x\ny",1\n2\n', "line 4 has 1 fields"),
        (b"a,b\n1,\x002\n", "line 2 has a NUL character"),
        (b'a,b\n1,"2\n', "is a closing quote missing"),
        (b'a,b\n1,"2"x\n', "line 2: "),
        (b"\x1f\x8bnonsense", "cannot be read"),
        (gzip.compress(b"a,b\n" + 1000 * b"1,2\n", mtime=0)[:-20], "cannot be read"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"PK\x03\x04...", "Excel"),
        (b"PAR1nonsense", "parquet"),
        (b"\xff\xfea", "encoding"),
        (b"a,b\n\x81\x8d,1\n", "encoding"),
        (b"a," + 2000 * b"b" + b"\n1,2\n", "more than 1,000"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, content, told):
    with pytest.raises(TableError) as caught:
        read(written(tmp_path, content))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_only_regular_files_are_read(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        read(tmp_path / "nothing.csv")
    with pytest.raises(TableError):
        read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TableError, match="not a regular file"):
        read(tmp_path / "pipe")
    with pytest.raises(TableError, match="cannot be read"):
        read("nul\0byte")


@pytest.mark.parametrize(
    "limits, told",
    [
        ({"text": 50}, "more than 50 bytes"),
        ({"rows": 9}, "more than 9 rows"),
        ({"columns": 2}, "3 columns, more than 2"),
        ({"cells": 29}, "more than 9 rows of 3 columns"),
        ({"record": 8}, "more than 8 characters"),
        ({"field": 3}, "line 2: a field has more than 3 characters"),
    ],
)
def test_limits_are_kept(tmp_path, limits, told):
    path = written(tmp_path, "a,b,c\n" + 10 * "1234,2,3\n")
    assert len(read(path)) == 10
    with pytest.raises(TableError, match=told):
        read(path, Limits(**limits))


def test_a_row_that_goes_on_over_many_lines_is_bounded(tmp_path):
    path = written(tmp_path, b"a,b\n" + b'"\n",' * 300_000)
    tracemalloc.start()
    with pytest.raises(TableError, match="a row has more than 100,000 characters"):
        read(path, Limits(record=100_000))
    assert tracemalloc.get_traced_memory()[1] < 2e7
    tracemalloc.stop()


def test_a_bomb_is_not_unpacked(tmp_path):
    path = written(tmp_path, gzip.compress(b"a,b\n" + 50_000_000 * b"1", mtime=0))
    tracemalloc.start()
    with pytest.raises(TableError, match="more than 10,000,000 bytes"):
        read(path, Limits(text=10_000_000))
    assert tracemalloc.get_traced_memory()[1] < 2e7
    tracemalloc.stop()


def test_a_few_entries_that_are_not_numbers_are_missing_and_told(tmp_path):
    path = written(tmp_path, "age,b\n" + 30 * "4,x\n" + "unknown,x\n" + 5 * "5,x\n" + "?,x\n")
    table = read(path)
    assert table["age"].kind == "numeric" and np.isnan(table["age"].values[[30, 36]]).all()
    stray = table["age"].strays[0]
    assert (stray.count, stray.line, stray.entry) == (1, 32, "unknown")
    assert "column 'age': 1 of 37 entries is not a number (line 32 has 'unknown'); treated as missing" in table.notes
    assert "column 'age': 1 entry such as '?' (line 38) taken for missing" in table.notes


def test_names_and_entries_cannot_write_on_a_terminal(tmp_path):
    table = read(written(tmp_path, "a\x1b[31m,b\n" + 20 * "4,x\n" + "\x1b]0;title\x07,x\n"))
    assert all(note.isprintable() for note in table.notes) and table.notes
    assert quoted("\x1b[2J" * 100).isprintable() and len(quoted("x" * 1000)) <= 60


def test_blocks_do_not_show(tmp_path, monkeypatch):
    text = "n,t,b\n" + "".join(f"{i / 7!r},{'even' if i % 2 == 0 else i},{i % 3 == 0}\n" for i in range(500))
    whole = read(written(tmp_path, text))
    monkeypatch.setattr(reading, "BLOCK", 10)
    parts = read(written(tmp_path, text))
    assert values(whole, "n") == values(parts, "n") == [i / 7 for i in range(500)]
    assert values(whole, "t") == values(parts, "t") and values(whole, "b") == values(parts, "b")


def test_it_agrees_with_pandas(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n = 300
    frame = pandas.DataFrame({"x": rng.standard_normal(n), "k": rng.integers(0, 9, n), "t": rng.choice(["u", "v"], n)})
    frame.loc[::7, "x"] = np.nan
    frame.loc[::5, "t"] = None
    frame["b"] = frame["x"] > 0
    frame.to_csv(tmp_path / "data.csv", index=False)
    pandas.testing.assert_frame_equal(
        read(tmp_path / "data.csv").frame(), pandas.read_csv(tmp_path / "data.csv"), check_dtype=False
    )


def test_parquet_is_read_like_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    made = pyarrow.table(
        {
            "x": [1.5, None, math.inf],
            "i": pyarrow.array([1, 2, None], pyarrow.int16()),
            "t": ["u", None, "NA"],
            "d": pyarrow.array(["p", "q", "p"]).dictionary_encode(),
            "b": [True, None, False],
            "nested": [[1], [2, 3], []],
            "when": pyarrow.array([0, 1, 2], pyarrow.timestamp("s")),
        }
    )
    parquet.write_table(made, tmp_path / "data.parquet")
    table = read(tmp_path / "data.parquet")
    kinds = ["numeric", "numeric", "text", "text", "boolean", "other", *["numeric"] * 2, *["text"] * 3]
    assert [column.kind for column in table.columns] == kinds
    assert values(table, "x") == [1.5, None, None] and values(table, "i") == [1.0, 2.0, None]
    assert values(table, "t") == ["u", None, None] and values(table, "d") == ["p", "q", "p"]
    assert values(table, "b") == [1.0, None, 0.0]
    when = [f"when: {part}" for part in ("days", "year", "month", "weekday", "hour")]
    assert list(table.frame().columns) == ["x", "i", "t", "d", "b", *when]
    assert values(table, "when: weekday") == ["Thursday"] * 3
    assert any("'x'" in note and "infinite" in note for note in table.notes)
    with pytest.raises(TableError, match="more than 2"):
        read(tmp_path / "data.parquet", Limits(rows=2))
    damaged = bytearray((tmp_path / "data.parquet").read_bytes())
    damaged[-400:-8] = bytes(392)
    with pytest.raises(TableError, match="parquet"):
        read(written(tmp_path, bytes(damaged), "damaged.parquet"))


def test_parquet_without_pyarrow_or_with_an_old_one_is_refused(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    path = written(tmp_path, b"PAR1...", "data.parquet")
    monkeypatch.setattr(pyarrow, "__version__", "14.0.0")
    with pytest.raises(TableError, match=r"14\.0\.1 or later"):
        read(path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(TableError, match=r"suffice\[parquet\]"):
        read(path)


@pytest.mark.slow
def test_memory_is_a_small_multiple_of_the_text(tmp_path):
    text = "a,b,c,d\n" + "".join(f"{i / 7:.6f},{i},level {i % 9},{i * 0.5}\n" for i in range(60_000))
    path = written(tmp_path, text)
    tracemalloc.start()
    table = read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table) == 60_000
    assert most < 5 * len(text) + 8 * 4 * 60_000 + 20_000_000  # the last is a block of single strings


cells = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e99, max_value=1e99).map(repr),
    st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=5),
)


@given(st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=8))
def test_what_is_written_is_read(tmp_path_factory, rows):
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
    writer.writerows([["first", "second"], *rows])
    table = read(written(tmp_path_factory.mktemp("t"), buffer.getvalue()))
    for k, name in enumerate(("first", "second")):
        column = table[name]
        for row, value, missing in zip(rows, column.values, column.missing, strict=True):
            text = row[k].strip()
            if column.kind == "text":
                assert (missing and text in NOTHING) or value == text
            elif column.kind == "numeric" and not missing and NUMBER.fullmatch(text) and column.form.decimal == ".":
                assert value == float(text)


@examples(150)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet='a1,;"\n\r\t |.e-\0é', max_size=100).map(str.encode)))
@example(b'"')
@example(b"a,b\n1,2\r3,4")
def test_any_bytes_are_a_table_or_a_table_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("t") / "data.csv"
    path.write_bytes(content)
    try:
        table = read(path)
    except TableError as error:
        assert "\n" not in str(error)
    else:
        assert len(table) >= 1 and all(len(column.values) == len(table) for column in table.columns)
