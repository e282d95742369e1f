"""Entries are read as the people who wrote them meant them, and the notes say so."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from suffice.tabular import Reading, read
from suffice.tabular.settings import from_plain


def written(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def column(tmp_path, entries, delimiter=",", beside=None):
    """A column of these entries, quoted, beside another one."""
    beside = [f"w{i % 3}" for i in range(len(entries))] if beside is None else beside
    rows = [f'"{entry}"{delimiter}"{other}"' for entry, other in zip(entries, beside, strict=True)]
    return read(written(tmp_path, "\n".join([f"x{delimiter}other", *rows]) + "\n"))


def numbers(table, name="x"):
    return [None if math.isnan(value) else value for value in table[name].values.tolist()]


@pytest.mark.parametrize(
    "entries, expected, told",
    [
        (["$1,200.00", "$15.50", "-$3", "($20)"], [1200.0, 15.5, -3.0, -20.0], "amounts in $, thousands are"),
        (["1.200,50 €", "3,5 €", "17 €"], [1200.5, 3.5, 17.0], "amounts in €, commas are decimal points"),
        (["$1,200", "$3,400"], [1200.0, 3400.0], "amounts in $"),
        (["EUR 5", "EUR 1 200"], [5.0, 1200.0], "amounts in EUR"),
        (["12.3%", "4 %", "0", "-1.5%"], [12.3, 4.0, 0.0, -1.5], "percents (12.3% is 12.3)"),
        (["100,000", "2,500", "7"], [100000.0, 2500.0, 7.0], "thousands are set apart"),
        (["1,234,567.5", "0.25"], [1234567.5, 0.25], "thousands are set apart"),
        (["1 234", "56"], [1234.0, 56.0], "thousands are set apart"),
        (["1,5", "2,25"], [1.5, 2.25], "commas are decimal points"),
        (["14:30", "07:45:30"], [14.5, 7.0 + 45 / 60 + 30 / 3600], "times of the day"),
        (["\u22121.5", "2"], [-1.5, 2.0], ""),
    ],
)
def test_numbers_as_people_write_them(tmp_path, entries, expected, told):
    table = column(tmp_path, entries)
    assert table["x"].kind == "numeric"
    assert numbers(table) == pytest.approx(expected, rel=1e-15)
    assert any("'x'" in note and told in note for note in table.notes) or not told


def test_a_few_large_numbers_with_commas_do_not_become_missing(tmp_path):
    entries = [*map(str, range(900, 999)), "1,000"]
    table = column(tmp_path, entries)
    assert numbers(table)[-1] == 1000.0 and table["x"].strays == ()


@pytest.mark.parametrize("entries", [["5%", "0.05", "7%"], ["$5", "€5"], ["1,23,4", "x"], ["12/5", "13/5"]])
def test_what_cannot_be_told_stays_text(tmp_path, entries):
    assert column(tmp_path, entries)["x"].kind == "text"


@pytest.mark.parametrize(
    "delimiter, beside, expected",
    [
        (",", ["a", "b"], 1234.0),  # commas between fields: those in numbers are between thousands
        (";", ["a", "b"], 1.234),  # a file with semicolons usually has decimal commas
        (";", ["1.5", "2.25"], 1234.0),  # but this one has decimal points
        (",", ["1,5", "2,25"], 1.234),  # and this one decimal commas
    ],
)
def test_the_rest_of_the_file_decides_what_a_comma_is(tmp_path, delimiter, beside, expected):
    assert numbers(column(tmp_path, ["1,234", "2,500"], delimiter, beside))[0] == expected


def test_points_are_thousands_only_beside_decimal_commas(tmp_path):
    assert numbers(column(tmp_path, ["1.234", "2.500"], ";", ["1,5", "2,25"])) == [1234.0, 2500.0]
    assert numbers(column(tmp_path, ["1.234", "2.500"], ";", ["1", "2"])) == [1.234, 2.5]
    assert numbers(column(tmp_path, ["1.234", "0.500"], ";", ["1,5", "2,25"])) == [1.234, 0.5]


def test_points_of_dates_are_no_decimal_points(tmp_path):
    text = "x;when;other\n1.234;31.12.2024;1,5\n2.500;1.2.2024;2,25\n"
    assert numbers(read(written(tmp_path, text))) == [1234.0, 2500.0]


@pytest.mark.parametrize("word", ["-", "NA", "n/a", "?", ".", "..", "--", "na", "#DIV/0!"])
def test_words_for_missing(tmp_path, word):
    table = column(tmp_path, ["1", word, "3", word, word])
    assert numbers(table) == [1.0, None, 3.0, None, None]
    assert word in ("NA", "n/a") or any(f"3 entries such as '{word}' (line 3)" in note for note in table.notes)


def test_a_dash_beside_a_plus_is_an_entry(tmp_path):
    assert column(tmp_path, ["+", "-", "?"])["x"].values.tolist() == ["+", "-", None]
    assert column(tmp_path, ["a", "-", "b"])["x"].values.tolist() == ["a", None, "b"]


def test_dates_become_elapsed_time_year_month_and_weekday(tmp_path):
    table = column(tmp_path, ["1970-01-02", "2024-02-29", "", "2024/12/31"])
    assert table.names[:4] == ("x: days", "x: year", "x: month", "x: weekday")
    assert numbers(table, "x: days") == [1.0, 19782.0, None, 20088.0]
    assert numbers(table, "x: year") == [1970.0, 2024.0, None, 2024.0]
    assert table["x: month"].values.tolist() == ["January", "February", None, "December"]
    assert table["x: weekday"].values.tolist() == ["Friday", "Thursday", None, "Tuesday"]
    assert table.origins == ("x", "other")
    assert any("'x': dates, as days, year, month, weekday" in note for note in table.notes)


def test_times_of_the_day_and_zones_count(tmp_path):
    table = column(tmp_path, ["1970-01-01T12:00:00Z", "1970-01-01 18:30", "1970-01-02T00:30:00+02:00"])
    assert numbers(table, "x: days") == [0.5, 18.5 / 24, 22.5 / 24]
    assert table["x: hour"].values.tolist() == ["12", "18", "22"]


def test_a_day_that_there_is_not_is_no_date(tmp_path):
    assert column(tmp_path, ["2023-02-29", "2023-13-01"])["x"].kind == "text"


@pytest.mark.parametrize(
    "entries, first, order",
    [
        (["03/04/2024", "31/12/2024"], "April", "day before the month"),
        (["03/04/2024", "12/31/2024"], "March", "month before the day"),
        (["3.4.2024", "5.6.2024"], "April", "day before the month"),  # nobody writes 12.31.2024
        (["03-04-2024 14:30", "31-12-2024 00:00"], "April", "dates and times, the day before the month"),
    ],
)
def test_days_and_months_are_told_apart_by_the_whole_column(tmp_path, entries, first, order):
    table = column(tmp_path, entries)
    assert table["x: month"].values[0] == first
    assert any(order in note for note in table.notes)
    again = read(written(tmp_path, "x,other\n01/02/2024,w\n"), like=from_plain(Reading, asdict(table.reading)))
    assert again["x: month"].values[0] == ("January" if first == "March" else "February")


def test_dates_that_may_be_either_stay_text_with_a_note(tmp_path):
    table = column(tmp_path, ["03/04/2024", "05/06/2024"])
    assert table["x"].values.tolist() == ["03/04/2024", "05/06/2024"]
    assert any("days and months cannot be told apart (03/04/2024): write dates as" in note for note in table.notes)


@pytest.mark.parametrize(
    "entries, kind",
    [
        ([*(f"{k:03d}" for k in range(1, 140)), "136A"], "text"),  # as families in HistData::GaltonFamilies
        ([*(f"{k:03d}" for k in range(1, 140)), "136A", "7B"], "text"),
        (["02139", "10115", "99501"], "text"),
        ([*map(str, range(100, 140)), "136A", "C12"], "text"),
        ([*map(str, range(1, 140)), "136A"], "text"),
        ([*(str(k / 4) for k in range(140)), "136A"], "numeric"),
        ([*(str(10**9 + k) for k in range(140)), "1360000000A"], "numeric"),
        (["1", "02", "13"], "numeric"),  # zeros that somebody has typed
        (["0.5", "00.7"], "numeric"),
        ([*map(str, range(40)), "unknown"], "numeric"),
        ([*map(str, range(40)), "80kg"], "numeric"),
        (["0", "1", "0"], "numeric"),
    ],
)
def test_codes_are_names_and_not_numbers(tmp_path, entries, kind):
    table = column(tmp_path, entries)
    assert table["x"].kind == kind
    assert kind == "numeric" or (table["x"].values.tolist() == entries and any("'x': names" in n for n in table.notes))


@pytest.mark.parametrize(
    "text, names, rows",
    [
        ("# made by a machine\n# on a Monday\na,b\n1,x\n# half way\n2,y\n", ("a", "b"), 2),
        ("# of today\na,b\n1,x\n2,y\n# the end\n", ("a", "b"), 2),
        ("a,b\n#1,x\n#2,y\n", ("a", "b"), 2),  # entries that begin with #
        ('# it\'s "quoted", badly" \na,b\n1,x\n', ("a", "b"), 1),
    ],
)
def test_comment_lines(tmp_path, text, names, rows):
    table = read(written(tmp_path, text))
    assert table.names == names and len(table) == rows
    assert any("#" in note or "comment line" in note for note in table.notes) or text.startswith("a,b\n#1")


def test_lines_are_counted_with_comments(tmp_path):
    table = read(written(tmp_path, "# one\na,b\n1,x\n# two\n2,y\n"))
    assert table.lines.tolist() == [3, 5]


def test_names_that_come_again_get_a_number(tmp_path):
    table = read(written(tmp_path, "a,a.1,a,a\n1,2,3,4\n"))
    assert table.names == ("a", "a.1", "a.2", "a.3")
    assert [table[name].values[0] for name in table.names] == [1.0, 2.0, 3.0, 4.0]
    assert sum("comes again" in note for note in table.notes) == 2


def test_another_file_is_read_in_the_same_way(tmp_path):
    first = "price;share;when;code;flag;n\n1.200,50;5%;2024-01-01;007;true;3\n3,5;7%;2024-01-02;A1;false;4\n"
    reading = read(written(tmp_path, first)).reading
    reading = from_plain(Reading, asdict(reading))
    second = "n;price;share;when;code;flag\n1,234;1,234;8%;2024-02-29;12;true\nx;-;9%;never;13;?\n"
    alone, again = read(written(tmp_path, second)), read(written(tmp_path, second), like=reading)
    assert alone["code"].kind == "numeric" and again["code"].values.tolist() == ["12", "13"]
    assert numbers(again, "price") == [1.234, None]
    assert numbers(again, "share") == [8.0, 9.0]
    assert numbers(again, "when: year") == [2024.0, None]
    assert numbers(again, "flag") == [1.0, None]
    assert any("'when': 1 of 2 entries is not a date (line 3 has 'never')" in note for note in again.notes)


def test_the_delimiter_of_another_file_is_the_one_that_shows_the_names(tmp_path):
    reading = read(written(tmp_path, "a;b\n1,5;2,5\n3,5;4,5\n")).reading
    table = read(written(tmp_path, "a;b\n1,5;2,5\n"), like=reading)  # by itself it may have commas between fields
    assert table.names == ("a", "b") and numbers(table, "a") == [1.5]


@pytest.mark.parametrize(
    "change",
    [{"delimiter": "xx"}, {"forms": 3}, {"more": 1}, {"forms": {"a": {"kind": "no"}}}, {"forms": {"a": {"b": 1}}}],
)
def test_a_reading_that_was_tampered_with_is_refused(tmp_path, change):
    plain = asdict(read(written(tmp_path, "a;b\n1,5;2\n")).reading)
    assert asdict(from_plain(Reading, plain)) == plain
    with pytest.raises(ValueError, match=r"must (have|be)|the delimiter"):
        from_plain(Reading, plain | change)
