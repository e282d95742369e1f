"""Each g is what its docstring says: its prox, its Bregman remainder and its shortest subgradient, by definition."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from suffice.penalties.prox import Generic, certifiable, soft
from suffice.problems import ElasticNet as Model
from suffice.solvers.problem import Composite
from suffice.terms import L1, Box, ElasticNet, Group, NonNegative, Zero
from tests.reference import LONG, GroupNorms, OwnProx

SIZE = 6
GROUPS = ([0, 3], [4, 1])  # 2 and 5 are free

TERMS = {
    "zero": Zero(),
    "l1": L1(0.7),
    "l1 without weight": L1(0.0),
    "group": Group(GROUPS, [0.5, 2.0]),
    "group with one weight": Group(GROUPS, 0.8),
    "no groups": Group([], []),
    "box": Box(-1.0, 2.0),
    "box of vectors": Box(np.array([-1.0, 0.0, -np.inf, 0.5, -2.0, 0.0]), np.array([1.0, 0.0, 0.0, np.inf, -1.0, 3.0])),
    "nonnegative": NonNegative(),
    "a user's l1": Generic(OwnProx(L1(0.7))),
    "a user's box": Generic(OwnProx(Box(-1.0, 2.0))),
}
BY_NAME = pytest.mark.parametrize("g", TERMS.values(), ids=TERMS.keys())
KNOWN = {name: g for name, g in TERMS.items() if not isinstance(g, Generic)}

# Exact zeros and exact bounds are where subdifferentials are large.
entries = st.one_of(st.sampled_from([0.0, -1.0, 2.0, 0.7]), st.floats(-8.0, 8.0).map(lambda x: round(x, 6)))
vectors = arrays(np.float64, SIZE, elements=entries)
positives = st.floats(-3.0, 3.0).map(lambda e: 10.0**e)


def subgradients(g, x, rng):
    """Elements of dg(x), drawn at random."""
    for size in (0.0, 0.1, 1.0, 10.0):
        draw = size * rng.standard_normal(SIZE)
        if isinstance(g, L1):
            yield np.where(x == 0, np.clip(draw, -g.l1, g.l1), g.l1 * np.sign(x))
        elif isinstance(g, Group):
            p = np.zeros(SIZE)
            for G, weight in zip(g.groups, g.weights, strict=True):
                length, reach = np.linalg.norm(x[G]), max(1.0, np.linalg.norm(draw[G]) / weight)
                p[G] = weight * x[G] / length if length else draw[G] / reach
            yield p
        elif isinstance(g, Box):
            yield np.where(x == g.lower, -abs(draw), 0.0) + np.where(x == g.upper, abs(draw), 0.0)
        else:
            yield np.zeros(SIZE)


@BY_NAME
@given(v=vectors, y=vectors, step=positives)
def test_prox_gives_a_subgradient(g, v, y, step):
    p = g.prox(v, step)
    assert math.isfinite(g.value(p))
    y = g.prox(y, 1e-12)  # into the domain
    slope = (v - p) / step
    blur = 1e-12 * (1.0 + np.abs(slope) @ (np.abs(y) + np.abs(p)) + abs(g.value(y)))
    assert g.value(y) >= g.value(p) + slope @ (y - p) - blur


@BY_NAME
@given(v=vectors, y=vectors, step=positives)
def test_prox_is_firmly_nonexpansive(g, v, y, step):
    moved = g.prox(v, step) - g.prox(y, step)
    assert moved @ moved <= moved @ (v - y) + 1e-12 * (1.0 + v @ v + y @ y)


@pytest.mark.parametrize("l1, l2", [(0.7, 0.0), (0.0, 0.3), (0.7, 0.3), (0.0, 0.0)])
@given(v=vectors, step=positives)
def test_prox_of_the_elastic_net_is_stationary(l1, l2, v, step):
    g = ElasticNet(l1, l2)
    p = g.prox(v, step)
    slope = (v - p) / step - l2 * p  # must be in l1 d||.||_1 at p
    blur = 1e-12 * (1.0 + np.abs(v).max() / step)
    assert np.all(np.abs(slope) <= l1 + blur)
    assert np.all(np.abs(slope - l1 * np.sign(p))[p != 0] <= blur)
    assert g.value(p) == pytest.approx(l1 * np.abs(p).sum() + l2 / 2 * p @ p)


def test_the_elastic_net_splits_into_l1_and_ridge():
    smooth = Model(np.eye(2), np.ones(2)).at(l1=0.0, l2=0.5).smooth
    made = Composite(smooth, ElasticNet(0.7, 0.25), mu=0.5, L=1.0, size=2).canonical
    assert (made.g, made.term, made.ridge, made.mu, made.L) == (L1(0.7), smooth, 0.25, 0.75, 1.25)


@given(v=vectors, t=positives)
def test_soft_thresholding_is_exact(v, t):
    assert np.array_equal(soft(v, t), np.sign(v) * np.maximum(np.abs(v) - t, 0.0))
    assert np.array_equal(soft(v, t) == 0.0, np.abs(v) <= t)


@given(v=vectors, step=positives)
def test_a_group_is_shrunk_towards_zero_and_free_indices_stay(v, step):
    g = Group(GROUPS, [0.5, 2.0])
    expected = v.copy()
    for G, weight in zip(GROUPS, (0.5, 2.0), strict=True):
        length = np.linalg.norm(v[G])
        expected[G] = 0.0 if length <= step * weight else v[G] * (1.0 - step * weight / length)
    assert np.allclose(g.prox(v, step), expected, rtol=1e-12, atol=1e-13)
    assert np.array_equal(g.prox(v, step)[[2, 5]], v[[2, 5]])
    assert g.value(v) == pytest.approx(0.5 * np.hypot(v[0], v[3]) + 2.0 * np.hypot(v[4], v[1]))


@BY_NAME
@given(x=vectors, v=vectors, mu=positives)
def test_the_remainder_is_what_its_definition_says(g, x, v, mu):
    x = g.prox(x, 1e-12)
    w_bar, B = g.remainder(x, v, mu)
    assert np.allclose(w_bar, g.prox(v / mu, 1.0 / mu), rtol=1e-12, atol=1e-12 * np.abs(v).max() / mu)
    p = v - mu * w_bar
    assert B >= 0.0
    scale = abs(g.value(x)) + abs(g.value(w_bar)) + np.abs(v) @ (np.abs(x) + np.abs(w_bar))
    assert abs(B - (g.value(x) - g.value(w_bar) - p @ (x - w_bar))) <= 1e-12 * (1.0 + scale)


@pytest.mark.parametrize("name", ["box", "nonnegative", "a user's box"])
def test_the_remainder_is_infinite_outside_the_domain(name):
    x = np.full(SIZE, -3.0)
    assert TERMS[name].value(x) == math.inf
    assert TERMS[name].remainder(x, np.ones(SIZE), 1.0)[1] == math.inf


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-8, 1e-10])
def test_the_remainder_of_a_group_keeps_its_digits_near_the_optimum(angle):
    # x and v enclose a small angle: B = weight ||x|| (1 - cos(angle)), and 1 - cos cancels unless it is avoided.
    weight = 2.0
    x = np.array([3.0, 4.0])
    v = 10.0 * np.array([3.0 * math.cos(angle) - 4.0 * math.sin(angle), 4.0 * math.cos(angle) + 3.0 * math.sin(angle)])
    X, V = x.astype(LONG), v.astype(LONG)
    sine = (X[0] * V[1] - X[1] * V[0]) / np.sqrt((X @ X) * (V @ V))
    exact = weight * 5.0 * float(sine**2 / (1 + np.sqrt(1 - sine**2)))
    assert Group([[0, 1]], weight).remainder(x, v, 1.0)[1] == pytest.approx(exact, rel=1e-4, abs=0.0)


def test_the_remainder_of_a_users_term_allows_for_its_cancellation():
    # By definition it is a difference of values: whatever rounding does to them, it must not come out too small.
    rng = np.random.default_rng(0)
    own, exact = Generic(OwnProx(Group(GROUPS, 0.8))), GroupNorms(GROUPS, [0.8, 0.8])
    for _ in range(300):
        v = 10.0 ** rng.uniform(-1, 2) * rng.standard_normal(SIZE)
        w_bar = own.prox(v, 1.0)
        x = w_bar * (1.0 + 10.0 ** rng.uniform(-12, -7) * rng.standard_normal(SIZE))
        V, X = v.astype(LONG), x.astype(LONG)
        W = exact.prox(V, LONG(1))
        B = exact.value(X) - exact.value(W) - (V - W) @ (X - W)
        assert own.remainder(x, v, 1.0)[1] >= B


@pytest.mark.parametrize("g", KNOWN.values(), ids=KNOWN.keys())
@given(x=vectors, y=vectors, gradient=vectors, seed=st.integers(0, 2**16))
def test_the_shortest_subgradient_is_the_projection_of_zero(g, x, y, gradient, seed):
    x, y = g.prox(x, 0.1), g.prox(y, 0.1)
    u = g.least_subgradient(x, gradient)
    p = u - gradient
    blur = 1e-10 * (1.0 + np.abs(gradient).max())
    assert g.value(y) >= g.value(x) + p @ (y - x) - blur  # p is in dg(x)
    for other in subgradients(g, x, np.random.default_rng(seed)):
        assert u @ (gradient + other - u) >= -blur * (1.0 + np.linalg.norm(other))


def test_a_users_term_has_no_shortest_subgradient():
    with pytest.raises(TypeError, match=r"'minimum_norm' needs .* which OwnProx does not offer"):
        Generic(OwnProx(L1(1.0))).least_subgradient(np.ones(2), np.ones(2))


def test_only_terms_that_do_not_know_their_subdifferential_are_completed():
    known, own = L1(1.0), OwnProx(L1(1.0))
    assert certifiable(known) is known
    assert certifiable(own) == Generic(own)


@pytest.mark.parametrize(
    "one, same, other",
    [
        (L1(1.0), L1(1.0), L1(2.0)),
        (Zero(), Zero(), L1(0.0)),
        (Box(0.0, 1.0), Box(0.0, 1.0), Box(0.0, 2.0)),
        (Box(0.0, np.array([1.0, 2.0])), Box(0.0, np.array([1.0, 2.0])), Box(0.0, np.array([1.0, 3.0]))),
        (NonNegative(), NonNegative(), Box(-1.0, math.inf)),
        (Group([[0, 1]], 1.0), Group([[0, 1]], [1.0]), Group([[0], [1]], 1.0)),
        (Group([[0, 1]], 1.0), Group([np.array([0, 1])], 1.0), Group([[0, 1]], 2.0)),
        (Group([[0, 1]], 1.0), Group([(0, 1)], 1.0), Group([[0, 2]], 1.0)),
    ],
)
def test_terms_compare_by_what_they_are(one, same, other):
    assert one == same and one != other and other != "g"


@pytest.mark.parametrize(
    "build, error, message",
    [
        (lambda: L1(-1.0), ValueError, "l1 must be non-negative and finite, got -1.0"),
        (lambda: L1(math.nan), ValueError, "l1 must be non-negative and finite, got nan"),
        (lambda: L1(math.inf), ValueError, "l1 must be non-negative and finite, got inf"),
        (lambda: L1("a"), TypeError, "l1 must be a real number, got 'a'"),  # type: ignore[arg-type]
        (lambda: ElasticNet(-1.0, 1.0), ValueError, "l1 must be non-negative and finite, got -1.0"),
        (lambda: ElasticNet(1.0, -2.0), ValueError, "l2 must be non-negative and finite, got -2.0"),
        (lambda: ElasticNet(1.0, None), TypeError, "l2 must be a real number, got None"),  # type: ignore[arg-type]
        (lambda: Group([[0, 1], [1]], 1.0), ValueError, "groups must not overlap or repeat an index"),
        (lambda: Group([[0, 0]], 1.0), ValueError, "groups must not overlap or repeat an index"),
        (lambda: Group([[0], [-2]], 1.0), ValueError, "groups must hold non-negative indices, got -2"),
        (
            lambda: Group([[0], [1]], [1.0, -1.0]),
            ValueError,
            "weights must be non-negative and finite, got [1",
        ),
        (lambda: Group([[0]], math.nan), ValueError, "weights must be non-negative and finite, got nan"),
        (lambda: Box(2.0, 1.0), ValueError, "lower must not exceed upper, got lower=2.0, upper=1.0"),
        (lambda: Box(math.nan, 1.0), ValueError, "lower must not exceed upper, got lower=nan, upper=1.0"),
        (lambda: Box(np.array([0.0, 3.0]), 1.0), ValueError, "lower must not exceed upper, got lower=array"),
    ],
)
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build()
