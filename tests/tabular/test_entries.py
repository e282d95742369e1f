"""What the entries of a column are: numbers, true and false, or text."""

import math

import numpy as np
import pytest

from suffice.tabular.entries import STRAYS, column_of, finite


def column(*entries, commas=False):
    return column_of("x", ["\0".join(entries)], np.arange(2, len(entries) + 2), commas)


@pytest.mark.parametrize(
    "entries, kind",
    [
        (["1", " 2.5 ", "-3e2"], "numeric"),
        (["1", "NA", ""], "numeric"),
        (["true", "FALSE", "NA"], "boolean"),
        (["1_000", "2_000", "x"], "text"),
        (["a", "1", "2"], "text"),
    ],
)
def test_entries_tell_the_kind_of_their_column(entries, kind):
    assert column(*entries).kind == kind


def test_commas_are_decimal_points_of_a_whole_column_or_of_none():
    assert column("1,5", "2", commas=True).values.tolist() == [1.5, 2.0]
    assert column("1,5", "2").kind == "text"
    assert column("1,5", "2.5", commas=True).kind == "text"


def test_a_tenth_of_the_entries_may_be_strays_and_they_are_missing():
    most = int(STRAYS * 20)
    found = column(*["1"] * (20 - most), *["?"] * most)
    assert found.kind == "numeric" and found.missing.sum() == most
    assert (found.stray.count, found.stray.line, found.stray.entry) == (most, 20 - most + 2, "?")
    assert column(*["1"] * (19 - most), *["?"] * (most + 1)).kind == "text"


def test_numbers_whose_squares_overflow_are_missing():
    values = np.array([1.0, math.inf, -1e101, math.nan])
    found = finite(values, np.arange(4))
    assert np.isfinite(values).tolist() == [True, False, False, False]
    assert (found.count, found.line) == (2, 1)
