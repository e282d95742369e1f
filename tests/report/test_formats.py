"""Values in words: what is shown of a proven interval is proven, too."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.report.formats import ABSENT, bound, duration, interval, settings, show


@pytest.mark.parametrize(
    "low, high, shown",
    [
        (-0.161045471, -0.161045132, "[-0.16104548, -0.16104513]"),
        (2971.738430, 2971.738445, "[2971.7384, 2971.7385]"),
        (0.1, 0.3, "[0.10, 0.30]"),
        (1e6, 2e6, "[1000000, 2000000]"),
        (-math.inf, 0.5, "[-inf, 0.5]"),
        (-math.inf, 0.12345649, "[-inf, 0.123457]"),
        (2.1982999999999997, 2.1983144446155864, "[2.198299, 2.198315]"),
        (0.0, 0.0, None),
    ],
)
def test_intervals_are_rounded_outwards(low, high, shown):
    text = interval(low, high)
    assert shown is None or text == shown
    ends = [float(end) for end in text.strip("[]").split(",")]
    assert ends[0] <= low and high <= ends[1]


@given(st.floats(-1e6, 1e6), st.floats(0.0, 1e3))
def test_no_interval_is_narrower_than_the_proven_one(low, width):
    down, up = (float(end) for end in interval(low, low + width).strip("[]").split(", "))
    assert down <= low and low + width <= up
    assert up - down <= 1.2 * width + 3e-6 * max(abs(low), abs(low + width))


@pytest.mark.parametrize(
    "seconds, rough, exact",
    [(0.42, "0.4 s", "0.42 s"), (89.4, "89 s", "89.4 s"), (100.5, "2 min", "1.68 min"), (9000.0, "2.5 h", "2.5 h")],
)
def test_a_time_has_the_unit_that_keeps_it_short(seconds, rough, exact):
    assert (duration(seconds), duration(seconds, 3)) == (rough, exact)


def test_a_bound_is_rounded_to_the_side_on_which_it_holds():
    assert bound(2.4905e-6, up=True) == "2.5e-06" and bound(2.4905e-6, up=False) == "2.4e-06"
    assert bound(61.39, up=False, digits=3) == "61.3" and bound(0.0, up=True) == "0"
    assert bound(math.inf, up=True) == "inf"


def test_lists_are_words_side_by_side_and_vectors_keep_their_brackets():
    assert show(["a", "b"]) == "a, b" and show([]) == ABSENT and show([1.0, 2.5]) == "[1, 2.5]"


def test_a_share_next_to_one_is_told_by_what_it_lacks():
    assert settings({"alpha": 0.52664, "l1_ratio": 1.0 - 4.5e-11}) == "alpha = 0.5266, l1_ratio = 1 - 4.5e-11"
    assert settings({"l1_ratio": 1.0}) == "l1_ratio = 1" and settings({"l1_ratio": 0.9359}) == "l1_ratio = 0.9359"
    assert settings({"l1_ratio": 0.99999968}) == "l1_ratio = 0.99999968"
