"""What others ask of a design, in every layout and place, against rational arithmetic: every number lies within the
rounding that is claimed for it.

Rows are few and hostile. The same table goes through all layouts: what a layout is asked has one test, whatever the
layout is, and a new layout is one more line of `PLACES`.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
from flint import fmpq

from suffice.arrays import host
from suffice.rows import blocks
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import OF_FACTORS, Design, row_folds
from suffice.rows.gram import Gram, Normal, gram, rows_at_once
from suffice.rows.memory import absolute_product
from suffice.rows.rounding import TINY, gamma
from suffice.rows.sums import Block, Job, tree_roundings
from tests.test_backends import array

OF_SCALING = 6  # roundings of both factors of a term, twice each, and to spare
BLOCK = 3  # rows


def rational(number):
    return number if isinstance(number, fmpq) else fmpq(*float(number).as_integer_ratio())


EXACT = np.vectorize(rational, otypes=[object])


def on_dask(X):
    return pytest.importorskip("dask.array").from_array(X, chunks=(2, X.shape[1]), name=False)


def in_parts(X):
    """Every entry as the sum of two halves."""
    halves, (i, j) = 0.5 * X.ravel(), np.indices(X.shape).reshape(2, -1)
    return sp.coo_array((np.tile(halves, 2), (np.tile(i, 2), np.tile(j, 2))), shape=X.shape)


PLACES = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr": sp.csr_array,
    "csc": sp.csc_array,
    "csr_matrix": sp.csr_matrix,
    "coo, entries in parts": in_parts,
    "one block": lambda X: RowBlocks.of(X, block=1000),
    "rows one by one": lambda X: RowBlocks.of(X, block=1),
    "blocks": lambda X: RowBlocks.of(X, block=BLOCK),
    "blocks of functions": lambda X: RowBlocks(lambda a, b: X[a:b].tolist(), X.shape, block=BLOCK),
    "dask": on_dask,
    **{name: partial(array, name) for name in ("array_api_strict", "torch") if find_spec(name)},
}
IN_BLOCKS = ("one block", "rows one by one", "blocks", "blocks of functions", "dask")


def hostile():
    """(X, weights of rows) by name."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((7, 3))
    holes = np.where(rng.random((7, 3)) < 0.5, X, 0.0)
    holes[2], holes[:, 1] = 0.0, 0.0
    apart = X * [1e-120, 1.0, 1e120]
    cancelling = np.array([[1e16, 1.0, -1e16], [1.0, 1e-16, 0.0], [-1e16, 1.0, 1e16], [3.0, -1.0, 0.1]])
    weights = np.array([0.0, 1e-300, 1.0, 0.3, 0.0, 2.0, 1e-8])
    return {
        "usual": (X, None),
        "zero rows and columns": (holes, None),
        "nothing but zeros": (np.zeros((4, 2)), None),
        "weights of 0, 1e-300 and 1": (X, weights),
        "weights of 0, 1e-300 and 1e150": (X, np.where(weights == 1.0, 1e150, weights)),
        "one row": (X[:1], None),
        "one column": (X[:, :1], weights),
        "one entry": (X[:1, :1], None),
        "more columns than rows": (X.T.copy(), np.array([1.0, 0.0, 3.0])),
        "duplicated rows": (np.repeat(X[:2], 4, axis=0), None),
        "dependent columns": (np.column_stack([X, X[:, 0] * (1.0 + 2.0**-50), X[:, 1]]), None),
        "columns of 1e-120 and 1e120": (apart, weights),
        "what cancels": (cancelling, None),
        "all large": (X * 1e140, None),
        "all small": (X * 1e-140, weights),
        "one of 1e-300": (np.where(np.arange(3) == 1, 1e-300, X), None),
        "alike terms in many rows": (np.full((600, 2), 0.1), None),
        "many rows": (rng.standard_normal((600, 3)) * (rng.random((600, 3)) < 0.2), rng.random(600)),
    }


HOSTILE = hostile()


def graded(rows, columns):
    """Singular values from 1 to 1e-14."""
    U, V = (np.linalg.qr(np.random.default_rng(n).standard_normal((n, min(rows, columns))))[0] for n in (rows, columns))
    return (U * np.geomspace(1.0, 1e-14, min(rows, columns))) @ V.T


rng = np.random.default_rng(7)
SPECTRA = {
    "rank one": (np.outer(rng.standard_normal(9), rng.standard_normal(5)), None),
    "non-negative": (rng.random((9, 4)), np.arange(9.0)),
    "integers": (rng.integers(0, 255, (9, 6)), np.arange(9) % 3 + 0.5),
    "square": (rng.standard_normal((6, 6)), None),
    "ill-conditioned": (graded(9, 6), np.arange(9) % 3 + 0.5),
    "ill-conditioned and wide": (graded(5, 8), None),
    "zero and constant columns": (np.column_stack([np.zeros(6), np.ones(6), rng.random(6)]), np.arange(6.0)),
}
DATA = HOSTILE | SPECTRA


@dataclass(frozen=True)
class Case:
    """A design in some place beside its exact entries, its weights too."""

    data: str
    place: str
    design: Design
    X: np.ndarray

    @cached_property
    def A(self):  # noqa: N802
        """X as rational numbers."""
        return EXACT(self.X)

    @cached_property
    def a(self):
        return EXACT(self.design.here(self.design.weights))

    @cached_property
    def scaled(self):
        """|x_ij| a_i^(1/2), squared."""
        return self.a[:, None] * self.A**2

    @property
    def block(self):
        return self.design.rows.block


@cache
def case_of(name, place):
    """Made once for all verbs."""
    X, weights = DATA[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", (BLOCK if len(X) < 100 else 64) * 8 * X.shape[1])
        return Case(name, place, Design.of(PLACES[place](X), weights), X)


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    yield
    case_of.cache_clear()


def of_each(data):
    """A verb is tried with all of these data in a place; what fails says with which."""

    def decorate(verb):
        @pytest.mark.parametrize("place", PLACES)
        def test(place, request):
            if place == "dask":
                request.getfixturevalue("client")
            for name in data:
                try:
                    verb(case_of(name, place))
                except AssertionError as error:
                    error.add_note(f"of {name!r} in {place!r}")
                    raise

        test.__doc__ = verb.__doc__
        return test

    return decorate


def within(found, true, allowed):
    """Entry by entry, exactly; nothing is NaN or infinite."""
    found, true, allowed = (np.atleast_1d(np.asarray(one)) for one in (found, true, allowed))
    assert found.shape == true.shape
    assert np.isfinite(found.astype(float)).all()
    off = np.abs(EXACT(found) - true)
    assert (off <= EXACT(np.broadcast_to(allowed, off.shape))).all(), (found, true, off.astype(float))


def up(number):
    """The root of a rational number, or of each of an array: no less than it, and no more than 1e-40 of it above."""
    if isinstance(number, np.ndarray):
        return np.array([up(one) for one in number], dtype=object)
    if number == 0:
        return fmpq(0)
    p, q = int(number.p), int(number.q)
    shift = 2 * max(0, 200 + q.bit_length() - p.bit_length())
    return fmpq(math.isqrt((p << shift) // q) + 1, 1 << (shift // 2))


def vectors(case, length):
    """Usual ones, ones that cancel or have zeros, ones of size 1e-150 and 1e100, and zeros."""
    rng = np.random.default_rng(2)
    v = rng.standard_normal(length)
    yield v
    yield np.where(np.arange(length) % 2 == 0, v, 0.0)
    if case.place == "dask":  # which has the bits of blocks, at the price of a message for each
        return
    yield np.zeros(length)
    yield 1e-150 * v
    yield np.ones(length)
    if np.abs(case.X).max() < 1e100:
        yield 1e100 * v


# One test for each verb.


@of_each(HOSTILE)
def test_product(case):
    """|fl(x_i . w) - x_i . w| <= c ||x_i|| ||w||, and no more than gamma of |x_i| . |w|."""
    N, d = case.design.shape
    assert (N, d) == case.X.shape
    assert np.count_nonzero(case.X, axis=1).max() <= case.design.row_length <= d
    for w in vectors(case, d):
        found = case.design.rows.gathered(case.design.rows.run(Margin(), (case.design.rows.margins(w),))[0])
        if case.place != "dask":
            assert np.array_equal(case.design.here(host(case.design.margins(w))), found)
        exact = case.A @ EXACT(w)
        sizes = abs(case.A) @ EXACT(np.abs(w))
        lost = rational(d * TINY)
        within(found, exact, rational(gamma(case.design.row_length)) * sizes + lost)
        c = rational(case.design.margin_rounding(w))
        lengths = up(np.sum(case.A**2, axis=1)) * up(sum(EXACT(w) ** 2))
        within(found, exact, c * lengths + lost)


@dataclass(frozen=True)
class Margin(Job):
    """Margins themselves."""

    keeps, reads = True, False

    def __call__(self, block):
        return np.array(host(block.margins[0])), 0


@of_each(HOSTILE)
def test_product_with_a_matrix_and_an_offset(case):
    rng = np.random.default_rng(4)
    rows, d = case.design.rows, case.design.shape[1]
    W, offset = rng.standard_normal((d, 3)), rng.standard_normal(case.design.shape[0])
    found = rows.gathered(rows.run(Margin(), (rows.margins(W),))[0])
    lost = rational(d * TINY)
    within(found, case.A @ EXACT(W), rational(gamma(d)) * (abs(case.A) @ abs(EXACT(W))) + lost)
    w = W[:, 0]
    moved = rows.gathered(rows.run(Margin(), (rows.margins(w, rows.rows_of(offset)),))[0])
    sizes = abs(case.A) @ abs(EXACT(w)) + abs(EXACT(offset))
    within(moved, case.A @ EXACT(w) + EXACT(offset), rational(gamma(d + 1)) * sizes + lost)


@of_each(HOSTILE)
def test_pull(case):
    """X^T r, every column within the gamma of the roundings that its terms pass; of a matrix as of its columns."""
    N, d = case.design.shape
    roundings = case.design.pull.roundings
    assert roundings.shape == (d,) and (roundings <= N).all()
    allowed = EXACT(np.array([gamma(k) for k in roundings]))
    every = list(vectors(case, N))
    for r in every:
        sizes = abs(case.A).T @ abs(EXACT(r))
        exact = case.A.T @ EXACT(r)
        for found in (case.design.adjoint(r), case.design.rows.run(Pulled(), r=case.design.of_rows(r))):
            within(found, exact, allowed * sizes + rational(N * TINY))
    R = np.column_stack(every[:2])
    exact, sizes = case.A.T @ EXACT(R), abs(case.A).T @ abs(EXACT(R))
    within(case.design.adjoint(R), exact, allowed[:, None] * sizes + rational(N * TINY))


@dataclass(frozen=True)
class Pulled(Job):
    """X^T r, as a job makes it."""

    def __call__(self, block):
        return np.array(block.pull(block["r"]))


@of_each(HOSTILE)
def test_gram(case):
    """X^T C X on some columns, by rows at hand with the roundings that are told, or as a job on blocks."""
    design, (N, d) = case.design, case.design.shape
    for columns, intercept in ((np.arange(d), False), (np.arange(d), True), (np.arange(d)[::2], True)):
        for C in (np.asarray(case.a, dtype=float), np.random.default_rng(3).random(N)):
            scale = np.sqrt(C)
            if case.place in IN_BLOCKS:
                found = design.rows.run(Gram(columns, intercept), C=design.of_rows(C))
                blocks = math.ceil(N / case.block)
                roundings = rows_at_once(case.block)[1] + math.ceil(math.log2(blocks)) + 1
            else:
                found, roundings = gram(design.X, columns, scale, intercept=intercept)
            part = np.column_stack([case.X[:, columns], np.ones((N, int(intercept)))])
            root = EXACT(scale)
            A = EXACT(part) * root[:, None]
            # what underflows in a product of two entries, and in an entry times its scale
            lost = rational(2 * N * TINY) * (1 + rational(float(np.abs(part).max())))
            within(found, A.T @ A, rational(gamma(roundings + OF_SCALING)) * (abs(A).T @ abs(A)) + lost)


@of_each(HOSTILE)
def test_absolute_product(case):
    """|X| |w|, which bounds what products are rounded by."""
    d = case.design.shape[1]
    for w in vectors(case, d):
        found = case.design.rows.gathered(case.design.rows.run(Absolute(w))[0])
        exact = abs(case.A) @ abs(EXACT(w))
        within(found, exact, rational(gamma(d)) * exact + rational(d * TINY))


@dataclass(frozen=True)
class Absolute(Job):
    """|X| |w|; it stays with the rows."""

    w: np.ndarray
    keeps = True

    def __call__(self, block):
        return absolute_product(block.X, self.w), 0


@of_each(HOSTILE)
def test_norms(case):
    """Of rows, of columns by weights, of all: what underflows in squares is added, so that they are no less than the
    truth by more than roundings, and hardly more."""
    design, (N, d) = case.design, case.design.shape
    few = rational(gamma(N + d + 8))
    unit = rational(design.survey.unit)
    for found, true, terms in (
        (design.here(design.row_norms), up(np.sum(case.A**2, axis=1)), d),
        (design.column_norms, up(np.sum(case.scaled, axis=0)), N),
        (np.array(design.frobenius_norm), up(np.sum(case.scaled)), N * d),
    ):
        found, true = np.atleast_1d(EXACT(found)), np.atleast_1d(true)
        assert (found >= true * (1 - few)).all(), (found.astype(float), true.astype(float))
        assert (found <= true * (1 + few) + 2 * unit * up(rational(terms * TINY))).all()


@of_each(HOSTILE)
def test_survey(case):
    """The largest entry, the longest row, the longest that counts, and the means of columns."""
    design, (N, d) = case.design, case.design.shape
    assert design.survey.largest == np.abs(case.X).max()
    lengths, few = up(np.sum(case.A**2, axis=1)), rational(gamma(d + 8))
    least = 2 * rational(design.survey.unit) * up(rational(d * TINY))
    counts = [length for length, a in zip(lengths, case.a, strict=True) if a > 0]
    for found, true in ((design.largest_row, max(lengths)), (design.reach, max(counts))):
        assert true * (1 - few) <= rational(found) <= true * (1 + few) + least
    roundings = EXACT(np.array([gamma(k) for k in design.pull.roundings]))
    within(design.mean, case.A.T @ case.a, roundings * (abs(case.A).T @ case.a) + rational(N * TINY))


def pivots(M):
    """Of a symmetric matrix of rational numbers, until one is not positive: all positive if and only if it is."""
    M, found = M.copy(), []
    for k in range(len(M)):
        found.append(M[k, k])
        if M[k, k] <= 0:
            return found
        for i in range(k + 1, len(M)):
            M[i, k:] = M[i, k:] - M[k, k:] * (M[i, k] / M[k, k])
    return found


def is_positive(M):
    return all(pivot > 0 for pivot in pivots(M))


@of_each(DATA)
def test_the_norm_is_bounded_from_above_and_the_least_curvature_from_below(case):
    """s >= lambda_max(X^T diag(a) X) >= lambda_min >= c: s I - G and G - c I are positive in rational arithmetic."""
    design = case.design
    G = (case.A * case.a[:, None]).T @ case.A
    eye = EXACT(np.eye(len(G)))
    s, c = rational(design.squared_norm), rational(design.least_curvature)
    if not G.any():
        assert s >= 0 and c == 0
        return
    assert is_positive(s * (1 + fmpq(1, 10**30)) * eye - G)
    assert c == 0 or is_positive(G - c * (1 - fmpq(1, 10**30)) * eye)
    assert not is_positive(s * (1 - fmpq(1, 10**10)) * eye - G)


@of_each(HOSTILE)
def test_what_a_gradient_is_rounded_by(case):
    """||fl(X^T (a r)) - X^T a r|| <= c ||diag(a)^(1/2) r|| for entries of a r that err by a few units, and what
    underflows."""
    design, (N, _) = case.design, case.design.shape
    a = design.here(design.weights)
    assert (design.pull_gammas >= [gamma(k + OF_FACTORS) for k in design.pull.roundings]).all()
    for r in list(vectors(case, N))[:2]:
        found = EXACT(design.adjoint(a * r))
        off = up(sum((found - case.A.T @ (case.a * EXACT(r))) ** 2))
        length = up(sum(case.a * EXACT(r) ** 2))
        allowed = rational(design.pull_rounding) * length * (1 + rational(gamma(16))) + rational(design.underflow)
        assert off <= allowed


@of_each(HOSTILE)
def test_a_hessian_times_a_direction(case):
    """X^T C X V by two products: within gammas of both, of |X|^T C |X| |V|."""
    design, (N, d) = case.design, case.design.shape
    if np.abs(case.X).max() > 1e100:  # squares of squares
        return
    rng = np.random.default_rng(6)
    V, C = rng.standard_normal((d, 2)), rng.random(N)
    for v in (V, V[:, 0]):
        found = design.rows.run(Normal(v), C=design.of_rows(C))
        image = abs(case.A) @ abs(EXACT(v))
        weighted = EXACT(C).reshape(-1, *[1] * (v.ndim - 1))
        exact = case.A.T @ (weighted * (case.A @ EXACT(v)))
        sizes = abs(case.A).T @ (weighted * image)
        passed = gamma(tree_roundings(N, case.block) + N + d + 4)
        within(
            found, exact, rational(passed) * sizes + rational(4 * N * d * TINY) * (1 + rational(np.abs(case.X).max()))
        )


@of_each(HOSTILE)
def test_columns(case):
    """A part of the columns is a design of its own, where rows are at hand."""
    if not case.design.rows.at_hand:
        return
    these = np.arange(case.design.shape[1])[::2]
    part = case.design.columns(these)
    assert np.array_equal(sp.csr_array(part.X).toarray(), case.X[:, these])


# What blocks promise besides.


@pytest.mark.parametrize("name", HOSTILE)
def test_a_cluster_has_the_bits_of_blocks(name, client, monkeypatch):
    X, weights = HOSTILE[name]
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK * 8 * X.shape[1])
    found = []
    for made in (RowBlocks.of(X), on_dask(X)):
        design = Design.of(made, weights)
        N, d = design.shape
        rows, r, w = design.rows, np.random.default_rng(1).standard_normal(N), np.ones(d)
        found.append(
            [
                design.adjoint(r),
                rows.run(Gram(np.arange(d), True), C=design.weights),
                rows.gathered(rows.run(Margin(), (rows.margins(w),))[0]),
                design.here(design.row_norms),
                design.column_norms,
                design.mean,
            ]
        )
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("interleaved", [False, True], ids=["neighbours", "interleaved"])
@pytest.mark.parametrize("place", ["blocks", "dask"])
def test_weights_by_a_rule_are_those_of_an_array(place, interleaved, request, monkeypatch):
    """A fold is a rule; its means, norms and Gram matrix have the bits of the weights written down."""
    if place == "dask":
        request.getfixturevalue("client")
    X, _ = HOSTILE["usual"]
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK * 8 * X.shape[1])
    for train, held in row_folds(PLACES[place](X), 3, interleaved=interleaved):
        out = held.here(held.weights) > 0.0
        assert np.array_equal(train.here(train.weights) == 0.0, out)
        for fold, members in ((train, ~out), (held, out)):
            written = Design.of(RowBlocks.of(X), np.asarray(members, dtype=float))
            a = fold.here(fold.weights)
            assert np.allclose(a, written.here(written.weights), rtol=4e-16, atol=0.0)
            G = fold.rows.run(Gram(np.arange(3)), C=fold.weights)
            assert np.array_equal(G, written.rows.run(Gram(np.arange(3)), C=a))
            assert np.array_equal(fold.mean, written.rows.run(Pulled(), r=a))


def test_exact_arithmetic_finds_what_it_is_to_find():
    """The reference itself: roots from above, pivots of a matrix that is positive and of one that is not."""
    assert up(fmpq(0)) == 0 and up(fmpq(4)) >= 2 and up(fmpq(1, 9)) ** 2 >= fmpq(1, 9)
    assert up(fmpq(2)) ** 2 - 2 < fmpq(1, 10**40)
    assert up(fmpq(1, 10**600)) ** 2 <= fmpq(10**9 + 1, 10**609)
    one = EXACT(np.array([[2.0, 1.0], [1.0, 2.0]]))
    assert is_positive(one) and not is_positive(one - 2 * EXACT(np.eye(2)))
    block = Block(0, 1, lambda: np.ones((1, 2)), {})
    assert np.array_equal(Absolute(np.array([1.0, -2.0]))(block)[0], [3.0])
