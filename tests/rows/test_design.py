"""A design matrix is checked, shared without copies, and its norm is bounded from above: always, and tightly."""

import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from suffice.rows import norms as module
from suffice.rows.design import Design
from suffice.rows.norms import squared_norm_bound
from tests.conftest import examples
from tests.reference import LONG

rng = np.random.default_rng(0)


def attained(X, weights):
    """||diag(a)^(1/2) X v||^2 / ||v||^2 in extended precision at the best v that double precision finds."""
    A = np.sqrt(np.asarray(weights, dtype=LONG))[:, None] * np.asarray(X, dtype=LONG)
    scale = np.abs(A).max()
    if scale == 0:
        return LONG(0)
    v = np.linalg.svd((A / scale).astype(float))[2][0].astype(LONG)
    return np.sum((A @ v) ** 2) / np.sum(v**2)


def graded(rows, columns, condition):
    U, V = (np.linalg.qr(rng.standard_normal((n, min(rows, columns))))[0] for n in (rows, columns))
    return (U * np.geomspace(1.0, 1.0 / condition, min(rows, columns))) @ V.T


MATRICES = {
    "tall": rng.standard_normal((60, 7)),
    "wide": rng.standard_normal((7, 60)),
    "square": rng.standard_normal((25, 25)),
    "rank one": np.outer(rng.standard_normal(30), rng.standard_normal(9)),
    "non-negative": rng.random((40, 12)),
    "ill-conditioned": graded(40, 20, 1e14),
    "ill-conditioned and wide": graded(20, 40, 1e14),
    "one row": rng.standard_normal((1, 9)),
    "one column": rng.standard_normal((9, 1)),
    "one entry": np.array([[-3.0]]),
    "zero": np.zeros((5, 3)),
    "zero and constant columns": np.column_stack([np.zeros(20), np.ones(20), rng.standard_normal(20)]),
    "columns of very different size": rng.standard_normal((30, 6)) * np.geomspace(1e-9, 1e9, 6),
    "tiny": 1e-140 * rng.standard_normal((20, 5)),
    "huge": 1e140 * rng.standard_normal((20, 5)),
    "integers": rng.integers(0, 255, (30, 10)),
}


@examples(150)
@given(
    X=arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(-9, 9, width=32)),
    weighted=st.booleans(),
)
@example(X=np.array([[4.32, 2.09, 7.22, 8.31, 2.4, 4.85, 3.98, 8.38, 0.36, 6.59, 5.53]]), weighted=False)
def test_rounding_never_puts_the_bound_below_the_norm(X, weighted):
    design = Design.of(X, np.arange(1.0, len(X) + 1.0) if weighted else None)
    assert attained(X, design.weights) <= LONG(design.squared_norm)


@pytest.mark.parametrize("exponent", [-170, -160, 153, 160])
def test_scales_whose_squares_leave_the_range_of_floats_give_no_false_bound(exponent):
    X = 10.0**exponent * np.array([[1.0, 0.5], [0.2, 1.0]])
    truth = attained(X, Design.of(X).weights)
    try:
        bound = Design.of(X).squared_norm
    except (ValueError, OverflowError):
        return  # refusing is honest
    assert LONG(bound) >= truth


def large_sparse(rows, columns, draw):
    X = sp.random_array((rows, columns), density=2e-3, rng=np.random.default_rng(1), data_sampler=draw)
    return X.tocsr()


LARGE = {
    "signed": large_sparse(2300, 2100, lambda size: rng.standard_normal(size)),
    "non-negative": large_sparse(2100, 2600, lambda size: rng.random(size)),
    "with empty rows and columns": sp.block_diag(
        [large_sparse(2050, 2050, lambda size: rng.standard_normal(size)), sp.csr_array((100, 100))], format="csr"
    ),
    "dominated by one column": large_sparse(2100, 2100, lambda size: rng.standard_normal(size))
    @ sp.diags_array(np.r_[50.0, np.ones(2099)]),
}


@pytest.mark.parametrize("name", LARGE)
def test_beyond_the_size_of_a_gram_matrix_the_bound_still_holds_and_is_tight(name):
    X = LARGE[name]
    assert min(X.shape) > module.DENSE_GRAM_SIZE
    truth = sp.linalg.svds(X, k=1, return_singular_vectors=False, rng=np.random.default_rng(0))[0] ** 2
    bound = squared_norm_bound(X)
    assert truth * (1 - 1e-9) <= bound <= 1.06 * truth
    if name == "non-negative":
        assert bound <= 1.01 * truth


@pytest.mark.parametrize("name", ["signed", "non-negative"])
def test_large_designs_of_either_sparse_format_have_the_same_bound(name):
    X = LARGE[name]
    bounds = [Design.of(kind(X)).squared_norm * X.shape[0] for kind in (sp.csr_array, sp.csc_matrix)]
    assert bounds == pytest.approx([squared_norm_bound(X)] * 2, rel=1e-9)


@pytest.mark.parametrize("name", MATRICES)
def test_the_ways_beyond_a_gram_matrix_agree_with_it(name, monkeypatch):
    X = np.asarray(MATRICES[name], dtype=float)
    exact = squared_norm_bound(X)
    monkeypatch.setattr(module, "DENSE_GRAM_SIZE", 1)
    for A in (X, sp.csr_array(X)):
        assert exact * (1 - 1e-9) <= squared_norm_bound(A) <= 1.06 * exact


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("name", MATRICES)
def test_sparse_and_dense_products_give_the_same_bound(name, kind, monkeypatch):
    bounds = []
    for share in (0.0, 1.0):  # always dense, never dense
        monkeypatch.setattr("suffice.rows.gram.DENSE_SHARE", share)
        bounds.append(Design.of(kind(MATRICES[name])).squared_norm)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


@pytest.mark.parametrize("gram_size", [1, 2000])
def test_entries_given_in_parts_are_summed_before_they_are_squared(gram_size, monkeypatch):
    """Row i of this CSR matrix holds 1 and 2 for column i, that is 3."""
    monkeypatch.setattr(module, "DENSE_GRAM_SIZE", gram_size)
    parts = (np.tile([1.0, 2.0], 4), np.repeat(np.arange(4), 2), np.arange(0, 9, 2))
    assert 9.0 / 4.0 <= Design.of(sp.csr_array(parts, shape=(4, 4))).squared_norm <= 9.0 / 4.0 * 1.06


def test_a_diagonal_matrix_with_a_hidden_largest_entry_is_not_underestimated(monkeypatch):
    monkeypatch.setattr(module, "DENSE_GRAM_SIZE", 1)
    for position in (0, 17, 299):
        entries = np.ones(300)
        entries[position] = 1.5
        assert 2.25 <= squared_norm_bound(sp.diags_array(entries).tocsr()) <= 1.06 * 2.25


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, lambda A: -A])
@pytest.mark.parametrize("size", [50, 2100])
@pytest.mark.parametrize("fooled", [1.44, 0.0, np.nan, 1e-300])
def test_a_direction_that_lanczos_never_sees_is_bounded(fooled, size, kind, monkeypatch):
    """1.2 I, but for one direction of length 10, and a Lanczos run that is orthogonal to it or finds nothing."""
    monkeypatch.setattr(module, "DENSE_GRAM_SIZE", 40)
    monkeypatch.setattr(module, "lanczos_value", lambda gram: fooled)
    v = np.zeros(size)
    v[3], v[7] = 0.6, -0.8
    assert squared_norm_bound(kind(1.2 * np.eye(size) + 8.8 * np.outer(v, v))) >= 100.0


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_blocks_bound_what_is_too_large_for_one_gram_matrix(kind, monkeypatch):
    monkeypatch.setattr(module, "SMALL_GRAM", 0)
    monkeypatch.setattr(module, "DENSE_GRAM_SIZE", 60)
    A = np.random.default_rng(0).standard_normal((300, 200)) * (np.random.default_rng(1).random((300, 200)) < 0.3)
    monkeypatch.setattr(module, "_cholesky_bound", lambda *_: math.inf)
    exact = np.linalg.norm(A, 2) ** 2
    assert exact <= squared_norm_bound(kind(A)) <= 4.0 * exact
    assert exact <= squared_norm_bound(kind(A.T)) <= 4.0 * exact


def test_weights_sum_to_one():
    assert Design.of(np.ones((4, 2))).weights.tolist() == [0.25] * 4
    assert Design.of(np.ones((2, 2)), [1, 3]).weights.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("X", [np.ones((3, 2)), np.asfortranarray(np.ones((3, 2))), sp.csr_array(np.ones((3, 2)))])
def test_float64_data_are_not_copied(X):
    assert Design.of(X).X is X


@pytest.mark.parametrize(
    "X, sample_weight, error, message",
    [
        (np.array([[1.0, math.nan]]), None, ValueError, "X must be finite, got NaN or infinite entries"),
        (np.array([[1.0, -math.inf]]), None, ValueError, "X must be finite, got NaN or infinite entries"),
        (sp.csr_array(np.array([[1.0, math.nan]])), None, ValueError, "X must be finite, got NaN or infinite entries"),
        (np.ones(3), None, ValueError, "X must be a matrix with at least one row and column, got shape (3,)"),
        (np.ones((2, 2, 2)), None, ValueError, "X must be a matrix with at least one row and column, got shape (2, 2"),
        (np.ones((0, 3)), None, ValueError, "X must be a matrix with at least one row and column, got shape (0, 3)"),
        (
            sp.csr_array((3, 0)),
            None,
            ValueError,
            "X must be a matrix with at least one row and column, got shape (3, 0)",
        ),
        ([["a", "b"]], None, TypeError, "X must be a matrix of real numbers, got list"),
        ([[1.0], [1.0, 2.0]], None, TypeError, "X must be a matrix of real numbers, got list"),
        (np.ones((3, 2)), [1.0, 2.0], ValueError, "sample_weight must have shape (3,), got (2,)"),
        (np.ones((2, 2)), [1.0, -1.0], ValueError, "sample_weight must be finite, non-negative and not all zero"),
        (np.ones((2, 2)), [0.0, 0.0], ValueError, "sample_weight must be finite, non-negative and not all zero"),
        (np.ones((2, 2)), [1.0, math.nan], ValueError, "sample_weight must be finite, non-negative and not all zero"),
    ],
)
def test_bad_input_is_named(X, sample_weight, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Design.of(X, sample_weight)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_complex_numbers_are_refused_and_not_cut_to_their_real_parts(kind):
    with pytest.raises(TypeError, match="X must be a matrix of real numbers, got complex"):
        Design.of(kind(np.array([[1.0 + 1.0j]])))
