"""X^T C X: the same matrix wherever X lies, within the rounding that is told with it."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.rows import gram as module
from suffice.rows.design import Design
from suffice.rows.gram import centred, gram
from suffice.rows.rounding import gamma
from tests.test_backends import LIBRARIES, array

STORED = {"C": np.ascontiguousarray, "F": np.asfortranarray, "csr": sp.csr_array, "csc": sp.csc_array}
LAYOUTS = [*STORED, "csr, few entries", "csc, few entries", *LIBRARIES]
OF_SCALING = 6  # roundings of both factors of a term, twice each, and to spare
EXACT = np.vectorize(Fraction, otypes=[object])


def stored(layout, X):
    return array(layout, X) if layout in LIBRARIES else STORED[layout.split(",")[0]](X)


@pytest.fixture(params=[512, 16], ids=["few blocks", "many blocks"])
def data(request, monkeypatch):
    monkeypatch.setattr(module, "GRAM_ROWS", request.param)
    monkeypatch.setattr(module, "BYTES_ELSEWHERE", 1 << 14)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 6))
    X[:, 2] = 0.1  # alike terms: their errors add up
    return X, rng.random(700)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("chosen", ["all", "some columns", "some rows"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_matrix_errs_by_no_more_than_its_roundings_allow(layout, chosen, intercept, data, monkeypatch):
    X, scale = data
    if "few" in layout:
        X = np.where(np.random.default_rng(1).random(X.shape) < 0.3, X, 0.0)
        monkeypatch.setattr(module, "DENSE_SHARE", 0.5)
    columns = None if chosen == "all" else np.array([0, 2, 5])
    rows = np.flatnonzero(scale > 0.2) if chosen == "some rows" else None
    scale = scale if rows is None else scale[rows]
    G, roundings = gram(stored(layout, X), columns, scale, rows, intercept=intercept)
    part = X[:, slice(None) if columns is None else columns][slice(None) if rows is None else rows]
    A = EXACT(np.hstack([part, np.ones((len(part), int(intercept)))])) * EXACT(scale)[:, None]
    allowed = gamma(roundings + OF_SCALING) * (abs(A).T @ abs(A)).astype(float) * (1.0 + 1e-9)
    assert G.shape == allowed.shape and np.all(np.abs((EXACT(G) - A.T @ A).astype(float)) <= allowed)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_a_scale_every_row_counts_as_it_is(layout, data, monkeypatch):
    X, _ = data
    monkeypatch.setattr(module, "DENSE_SHARE", 1.0 if "few" in layout else 0.0)
    A = np.hstack([X, np.ones((700, 1))])
    assert gram(stored(layout, X), intercept=True)[0] == pytest.approx(A.T @ A, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_rows_give_zeros(layout):
    G, _ = gram(stored(layout, np.ones((4, 3))), np.array([0, 2]), np.zeros(0), np.arange(0), intercept=True)
    assert np.array_equal(G, np.zeros((3, 3)))


@pytest.mark.parametrize("layout", ["C", "csr", "csr, few entries", *LIBRARIES])
def test_a_term_of_many_rows_passes_far_fewer_roundings(layout):
    X = np.ones((40_000, 2))
    X[20 if "few" in layout else len(X) :, 0] = 0.0
    assert gram(stored(layout, X), np.array([0]))[1] < 1000


@pytest.mark.parametrize("layout", STORED)
def test_products_in_single_precision_are_as_good_as_that(layout, data):
    X, scale = data
    A = scale[:, None] * X
    rough, _ = gram(stored(layout, X), scale=scale, dtype=np.float32)
    assert 0.0 < np.abs(rough - A.T @ A).max() <= 1e-6 * np.linalg.norm(A) ** 2


def test_without_its_intercept_it_is_that_of_the_rows_less_their_mean(data):
    X, scale = data
    away = scale[:, None] * (X - scale**2 @ X / (scale @ scale))
    assert centred(gram(X, scale=scale, intercept=True)[0]) == pytest.approx(away.T @ away, rel=1e-9, abs=1e-9)
    assert np.array_equal(centred(np.zeros((3, 3))), np.zeros((2, 2)))


def test_a_few_columns_of_rows_stored_by_columns_cost_no_copy_of_all():
    X = np.asfortranarray(np.random.default_rng(0).standard_normal((200, 4000)))
    columns = np.arange(0, 4000, 400)
    tracemalloc.start()
    G, _ = gram(X, columns)
    part = Design.of(X).columns(columns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * X.nbytes
    assert np.allclose(G, X[:, columns].T @ X[:, columns], rtol=1e-12)
    assert np.array_equal(part.X, X[:, columns]) and part.X.flags.f_contiguous
