"""What every loss psi of a row claims, against ball arithmetic: values, slopes with what they are rounded by, bounds on
curvature at a margin and between two, on the third derivative, and what the rounding of psi'' is worth.

Margins are random, near the minimiser where slopes cancel, and extreme. A loss is one line of the table; the tutorial's
own loss is held to the same as those in the box.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb

from suffice import terms
from suffice.arrays import EPS
from suffice.models.margin_losses import LARGEST, Bending, Kinked, Quantile, slope_and_bend, slope_size
from suffice.models.softmax_jobs import softmax_rows
from suffice.protocols import conforms
from suffice.prove.verified_rows import LEAST_PROBABILITY, SoftmaxRows
from tests import reference_balls, reference_families
from tests.reference_balls import ZERO, precision, total

BITS = 600
UNIT = 2.0**-53
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "own_loss.md"


def own_loss():
    """The class of the tutorial, as it stands there."""
    names: dict[str, Any] = {}
    exec(re.search(r"```python\n(import math\n.*?)```", TUTORIAL.read_text("utf-8"), re.S)[1], names)
    return names["LogCosh"]()


class LogCoshBalls:
    """log cosh(m - y)."""

    def value(self, m, y):
        return (m - y).cosh().log()

    def slope(self, m, y):
        return (m - y).tanh()

    def bend(self, m, y):
        return 1 / (m - y).cosh() ** 2


class QuantileBalls:
    """The pinball loss of y - m, smoothed."""

    def __init__(self, q, h):
        self.q, self.h = arb(q), arb(h)

    def slope(self, m, y):
        return -((y - m) / self.h).max(self.q - 1).min(self.q)

    def value(self, m, y):
        s = -self.slope(m, y)
        return s * (y - m - self.h * s / 2)

    def bend(self, m, y):
        t = (y - m) / self.h
        return 1 / self.h if self.q - 1 <= t <= self.q else ZERO


@dataclass(frozen=True)
class Claimed:
    """A loss, the truth, and where its targets lie."""

    psi: Any
    exact: Any
    targets: str  # labels, numbers, positive, counts or shares


LOSSES = {
    "squares": Claimed(terms.SQUARED, reference_balls.Squared(), "numbers"),
    "logistic": Claimed(terms.LOGISTIC, reference_balls.Logistic(), "labels"),
    "Huber": Claimed(terms.HUBER, reference_balls.Huber(1.0), "numbers"),
    "Huber of 1e-3": Claimed(terms.Huber(1e-3), reference_balls.Huber(1e-3), "numbers"),
    "squared hinge": Claimed(terms.SQUARED_HINGE, reference_balls.SquaredHinge(), "labels"),
    "poisson": Claimed(terms.POISSON, reference_balls.Poisson(), "counts"),
    "gamma": Claimed(terms.GAMMA, reference_families.Gamma(), "positive"),
    "tweedie": Claimed(terms.Tweedie(1.3), reference_families.Tweedie(1.3), "counts"),
    "tweedie near poisson": Claimed(terms.Tweedie(1.01), reference_families.Tweedie(1.01), "counts"),
    "tweedie near gamma": Claimed(terms.Tweedie(1.99), reference_families.Tweedie(1.99), "positive"),
    "negative binomial": Claimed(terms.NegativeBinomial(0.4), reference_families.NegativeBinomial(0.4), "counts"),
    "binomial": Claimed(terms.BINOMIAL, reference_families.Binomial(), "shares"),
    "median": Claimed(Quantile(0.5, 1e-2), QuantileBalls(0.5, 1e-2), "numbers"),
    "quantile 0.9": Claimed(Quantile(0.9, 1e-4), QuantileBalls(0.9, 1e-4), "numbers"),
    "log cosh": Claimed(own_loss(), LogCoshBalls(), "numbers"),
}
BENDING = [name for name, one in LOSSES.items() if conforms(one.psi, Bending)]
KINKED = [name for name, one in LOSSES.items() if conforms(one.psi, Kinked)]
UNBOUNDED = [name for name, one in LOSSES.items() if one.psi.curvature == math.inf]


def rows(name):
    """(m, y): random margins, some that nearly fit, some that are far out, zeros."""
    rng, kind = np.random.default_rng([len(name), 3]), LOSSES[name].targets
    n = 160
    y = {
        "labels": lambda: rng.choice([-1.0, 1.0], n),
        "numbers": lambda: rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 6, n),
        "positive": lambda: 10.0 ** rng.uniform(-3, 4, n),
        "counts": lambda: np.where(rng.random(n) < 0.2, 0.0, 10.0 ** rng.uniform(-3, 4, n)),
        "shares": lambda: np.where(rng.random(n) < 0.2, rng.integers(0, 2, n), rng.random(n)),
    }[kind]()
    m = np.where(rng.random(n) < 0.6, rng.uniform(-30.0, 30.0, n), rng.uniform(-300.0, 300.0, n))
    if kind in ("positive", "counts"):
        best = np.log(np.where(y > 0.0, y, 1.0))
    elif kind == "shares":
        best = np.log(np.clip(y, 1e-3, 0.999) / (1.0 - np.clip(y, 1e-3, 0.999)))
    else:
        best = y
    near = best + rng.choice([0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0], n) * rng.standard_normal(n)
    m = np.where(rng.random(n) < 0.5, near, m)
    m[:8] = [0.0, -0.0, 36.0, -36.0, 300.0, -300.0, 1e-300, -1e-17]
    return m, y


def balls(*numbers):
    return [arb(float(one)) for one in numbers]


def error(found, exact):
    """An upper bound."""
    return abs(arb(float(found)) - exact).abs_upper()


@pytest.mark.parametrize("name", LOSSES)
def test_a_slope_errs_by_no_more_than_four_units_of_what_it_is_rounded_by(name):
    """|fl(psi') - psi'| <= 4 u size, size >= |psi'|; from `slope_and_bend` too, whose bend is no less than psi''."""
    psi, exact, (m, y) = LOSSES[name].psi, LOSSES[name].exact, rows(name)
    slope, (other, bend) = psi.derivative(m, y), slope_and_bend(psi, m, y)
    size = slope_size(psi, slope, bend, m, y)
    with precision(BITS):
        for k, at in enumerate(zip(m, y, strict=True)):
            true = exact.slope(*balls(*at))
            for one in (slope[k], other[k]):
                assert error(one, true) <= 4 * arb(UNIT) * arb(float(size[k])), at
            assert size[k] >= abs(slope[k])
            if not at_kink(exact, *at):
                slack = 1 + arb(16 * UNIT) * (1 + abs(arb(float(m[k]))))  # exponents are products
                assert arb(float(bend[k])) * slack + arb(1e-290) >= exact.bend(*balls(*at)).mid(), at


def at_kink(exact, m, y):
    """Whether psi'' jumps within the rounding of m."""
    ends = [exact.bend(*balls(m + sign * 4.0 * EPS * (abs(m) + abs(y)), y)) for sign in (-1.0, 1.0)]
    return abs(ends[0] - ends[1]) > abs(ends[0] + ends[1]) / 4


@pytest.mark.parametrize("name", LOSSES)
def test_a_value_is_right_to_twelve_digits_of_its_parts(name):
    psi, exact, (m, y) = LOSSES[name].psi, LOSSES[name].exact, rows(name)
    value = psi.value(m, y)
    assert np.isfinite(value).all()
    with precision(BITS):
        for k, at in enumerate(zip(m, y, strict=True)):
            margin, target = balls(*at)
            true, slope = exact.value(margin, target), exact.slope(margin, target)
            parts = abs(true) + (abs(slope) + abs(target) + 1) * (abs(margin) + abs(target))
            assert error(value[k], true) <= arb(1e-13) * parts if name in UNBOUNDED else arb(1e-14) * parts, at


@pytest.mark.parametrize("name", LOSSES)
def test_curvature_between_two_margins_is_the_largest_on_the_way_and_no_larger_than_needed(name):
    """psi'' at 9 points of the way is no larger; at one of 129 it is about as large, but for kinks that are nearly
    touched; the other way round it is the same."""
    psi, exact, (m, y) = LOSSES[name].psi, LOSSES[name].exact, rows(name)
    rng = np.random.default_rng(4)
    n = np.where(
        rng.random(len(m)) < 0.2, m, m + 10.0 ** rng.uniform(-6, 1.5, len(m)) * rng.choice([-1.0, 1.0], len(m))
    )
    found, back, alone = (psi.curvature_between(*pair, y) for pair in ((m, n), (n, m), (m, m)))
    assert np.array_equal(found, back)
    assert (found <= psi.curvature).all() and (found <= LARGEST).all()
    assert (alone <= found * (1.0 + 16 * UNIT)).all()
    with precision(BITS):
        for k, (a, b, target) in enumerate(zip(m, n, y, strict=True)):
            a, b, target = balls(a, b, target)
            way = [exact.bend((a + arb(j) / 16 * (b - a)).mid(), target) for j in range(17)]
            ends = [arb(float(psi.curvature_between(*np.array([[p], [p], [float(y[k])]]))[0])) for p in (m[k], n[k])]
            slack = 1 + arb(64 * UNIT) * (2 + abs(a) + abs(b))
            if name not in KINKED:
                assert all(one <= arb(float(found[k])) * slack + arb(1e-300) for one in way), (m[k], n[k], y[k])
                assert max(ends) <= arb(float(found[k])) * slack
            else:
                inner = [
                    one
                    for j, one in enumerate(way)
                    if not at_kink(exact, float((a + arb(j) / 16 * (b - a)).mid()), float(y[k]))
                ]
                assert all(one <= arb(float(found[k])) * slack for one in inner), (m[k], n[k], y[k])
            if name in KINKED:
                assert found[k] in (0.0, psi.curvature)
            elif float(abs(a - b)) < 0.1:
                third = arb(float(psi.third)) if name in BENDING else arb(2)
                assert arb(float(found[k])) <= max(way) * (third * abs(a - b)).exp() * slack + arb(1e-300)


@pytest.mark.parametrize("name", BENDING)
def test_second_derivatives_are_right_but_for_what_blur_tells_and_third_ones_are_bounded_by_them(name):
    """fl(psi'')(m) = psi''(m + e) (1 + few u), |e| <= blur; |psi'''| <= third psi'' by log psi'' at two margins."""
    psi, exact, (m, y) = LOSSES[name].psi, LOSSES[name].exact, rows(name)
    second = psi.second(m, y)
    blur = psi.blur(m, y) if hasattr(psi, "blur") else np.zeros(len(m))
    rng, few = np.random.default_rng(5), arb(16 * UNIT)
    moved = rng.uniform(-3.0, 3.0, len(m)) * 10.0 ** rng.uniform(-6, 0, len(m))
    third = arb(float(psi.third))
    with precision(BITS):
        for k, at in enumerate(zip(m, y, strict=True)):
            margin, target = balls(*at)
            true = exact.bend(margin, target)
            if not arb(1e-290) < true < arb(1e290):
                continue
            # a margin that is off by e moves log psi'' by third |e| at most
            off = (third * arb(float(blur[k]))).exp() * (1 + few * (1 + abs(margin)))
            assert true / off <= arb(float(second[k])) <= true * off, at
            there = exact.bend((margin + arb(float(moved[k]))).mid(), target)
            if there > 0 and true > 0:
                assert abs((there / true).log()) <= third * abs(arb(float(moved[k]))) * (1 + arb(1e-30)) + arb(1e-30), (
                    at
                )


@pytest.mark.parametrize("name", KINKED)
def test_kinks_are_as_far_as_is_said_and_psi_bends_by_nothing_or_all_between_them(name):
    psi, exact, (m, y) = LOSSES[name].psi, LOSSES[name].exact, rows(name)
    distance = psi.kink_distance(m, y)
    with precision(BITS):
        for k, (margin, target) in enumerate(zip(m, y, strict=True)):
            here = exact.bend(*balls(margin, target)) > 0
            assert not here or abs(exact.bend(*balls(margin, target)) / arb(psi.curvature) - 1) < 1e-15
            slack = 8.0 * EPS * (1.0 + abs(margin) + abs(target))
            inside = distance[k] - slack
            if inside > 0.0:
                for end in (margin - inside, margin + inside):
                    assert (exact.bend(*balls(end, target)) > 0) == here, (margin, target)
            reached = [exact.bend(*balls(margin + s * (distance[k] + slack), target)) > 0 for s in (-1.0, 1.0)]
            assert any(one != here for one in reached) or inside <= 0.0, (margin, target)


@pytest.mark.parametrize("name", LOSSES)
def test_margins_beyond_all_bounds_leave_no_nan_and_claim_no_less_than_is_true(name):
    """Rates are cut off at `LARGEST`, where nothing is proven any more; what is bounded stays right."""
    psi, exact = LOSSES[name].psi, LOSSES[name].exact
    m = np.array([-1e300, -1e8, -745.0, -709.9, -700.0, 700.0, 709.9, 745.0, 1e8, 1e150])
    for target in {"labels": (-1.0, 1.0), "numbers": (0.0, 1e3), "positive": (1e-3, 5.0), "counts": (0.0, 5.0)}.get(
        LOSSES[name].targets, (0.0, 0.3, 1.0)
    ):
        y = np.full(len(m), target)
        with np.errstate(over="ignore"):
            value, slope, bend = psi.value(m, y), psi.derivative(m, y), psi.curvature_between(m, m, y)
        assert not (np.isnan(value).any() or np.isnan(slope).any() or np.isnan(bend).any())
        assert (bend >= 0.0).all() and np.isfinite(bend).all()
        for k in range(len(m)):
            if bend[k] >= LARGEST or abs(slope[k]) >= LARGEST or abs(m[k]) > 1e9:
                continue
            with precision(4000):
                true = exact.slope(*balls(m[k], target))
                size = slope_size(psi, slope[k : k + 1], bend[k : k + 1], m[k : k + 1], y[:1])[0]
                assert error(slope[k], true) <= 4 * arb(UNIT) * arb(float(size)) + arb(1e-300), (m[k], target)


# Several outputs


def softmax_case(spread):
    rng = np.random.default_rng(8)
    m = rng.uniform(-1.0, 1.0, (60, 3)) * spread
    m[0], m[1], m[2] = 0.0, [spread, 0.0, -spread], [1.0, 1.0 + 1e-15, 1.0]
    return m, rng.integers(0, 3, 60)


@pytest.mark.parametrize("spread", [1e-8, 1.0, 30.0, 200.0, 1e4])
def test_softmax_of_three_classes(spread):
    """p, losses, slopes with their sizes, and H_i within what blur and the roundings of p are worth."""
    m, labels = softmax_case(spread)
    p, loss = softmax_rows(m, labels)
    state = SoftmaxRows(m, labels)
    assert np.array_equal(state.p, p)
    blur, c = state.blur, 8 * UNIT * 3
    with precision(BITS + int(spread) * 4):
        for k in range(len(m)):
            row = balls(*m[k])
            top = max(row, key=float)
            e = [(one - top).exp() for one in row]
            whole = total(e)
            exact = [one / whole for one in e]
            off = [arb(float(one)) for one in blur[k]]
            # |e| moved margins move log p by |e_k| + max |e|, and rounding is a factor of 1 + c
            most = total(x * b for x, b in zip(exact, off, strict=True))
            assert error(loss[k], whole.log() + top - row[labels[k]]) <= arb(8 * UNIT) * (
                4 + 4 * abs(top - row[labels[k]])
            )
            for j in range(3):
                if p[k, j] < LEAST_PROBABILITY:
                    continue
                allowed = exact[j] * ((off[j] + most * 2) * 1 + arb(c)) + arb(1e-300)
                assert error(p[k, j], exact[j]) <= allowed, (m[k], j)
                assert error(state.slopes[k, j], exact[j] - int(j == labels[k])) <= allowed + arb(UNIT) * abs(
                    1 - exact[j]
                )
                assert state.sizes[k, j] >= abs(state.slopes[k, j])
                others = total(x for i, x in enumerate(exact) if i != j)
                bend = exact[j] * others
                assert error(state.second[k, j], bend) <= bend * (
                    off[j] + 2 * max(off, key=float) * 2 + arb(2 * c)
                ) + arb(1e-300)
