"""Ridges of more columns than rows: intervals hold against refits in rational numbers, leverages next to 1 or not."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.models.margin_losses import Logistic, Squared
from suffice.prove.downdated import Groups, WholeModel
from suffice.prove.left_out_dual import WideRidge, left_out_models
from suffice.rows.design import Design
from tests.reference_left_out import SLOPES, refitted, solved_whole


def exact(model, share, i):
    """The margin of row i without it: no rounding."""
    X, a = [[Fraction(v) for v in row] for row in model.design.X.tolist()], model.a.tolist()
    offset = [Fraction(v) for v in (np.zeros(len(a)) if model.offset is None else model.offset).tolist()]
    keep, border = [j for j in range(len(a)) if j != i], [[Fraction(1)]] * model.intercept
    gram = [[sum(map(Fraction.__mul__, X[j], X[k])) for k in range(len(a))] for j in range(len(a))]
    rows = [
        [gram[j][k] for k in keep] + [Fraction(1)] * model.intercept + [Fraction(model.y[j]) - offset[j]] for j in keep
    ]
    for place, j in enumerate(keep):
        rows[place][place] += Fraction(model.l2[0]) * Fraction(share) / Fraction(a[j])
    if border:
        rows.append([Fraction(1)] * len(keep) + [Fraction(0)] * 2)
    for p in range(len(rows)):
        pivot = next(q for q in range(p, len(rows)) if rows[q][p] != 0)
        rows[p], rows[pivot] = rows[pivot], rows[p]
        rows[p] = [v / rows[p][p] for v in rows[p]]
        for q in range(len(rows)):
            if q != p and rows[q][p] != 0:
                rows[q] = [v - rows[q][p] * u for v, u in zip(rows[q], rows[p], strict=True)]
    b = rows[-1][-1] if border else Fraction(0)
    return sum(rows[p][-1] * gram[j][i] for p, j in enumerate(keep)) + b + offset[i]


def wide(rng, l2, intercept, n=6, d=15, kind="plain"):
    X = rng.standard_normal((n, d)) * (10.0 ** rng.uniform(-3, 3, d) if kind == "units" else 1.0)
    X[1] = X[0] if kind == "twice" else X[1]
    X = X[:, :2] @ rng.standard_normal((2, d)) if kind == "two directions" else X
    a = rng.uniform(0.01, 1.0, n) if kind == "weights" else np.ones(n)
    y = X @ rng.standard_normal(d) + rng.standard_normal(n) + (1e6 if kind == "far away" else 0.0)
    shift = rng.standard_normal(n) if kind == "offset" else None
    return WholeModel(Design(X, a / a.sum()), y, Squared(), np.zeros(d), np.full(d, l2), intercept, shift)


def each(n, share=0.75):
    return Groups.of([np.array([i]) for i in range(n)], np.full(n, share))


@pytest.mark.parametrize("l2", [1e-13, 1e-9, 1e-4, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["plain", "twice", "two directions", "weights", "offset", "units", "far away"])
def test_every_margin_is_as_near_as_is_claimed(l2, intercept, kind):
    model = wide(np.random.default_rng(0), l2, intercept, kind=kind)
    m, error = WideRidge.of(model, np.zeros(15), each(6)).left()
    assert kind != "plain" or error.max() < 1e-8 * np.abs(model.y).max()
    for i in np.flatnonzero(np.isfinite(error)):
        assert abs(exact(model, 0.75, i) - Fraction(m[i])) <= Fraction(error[i])


def test_how_margins_move_with_l2_is_what_differences_say():
    rows, step = each(6), 1e-6
    at, ahead, back = (
        WideRidge.of(wide(np.random.default_rng(1), l2, True), np.zeros(15), rows)
        for l2 in (0.5, 0.5 + step, 0.5 - step)
    )
    np.testing.assert_allclose(at.slopes, (ahead.margins - back.margins) / (2.0 * step), rtol=1e-5, atol=1e-7)


def test_rows_in_any_order_and_sparse_ones_are_the_same():
    model = wide(np.random.default_rng(2), 1e-3, True)
    sparse = WholeModel(Design(sp.csr_array(model.design.X), model.a), model.y, Squared(), model.l1, model.l2, True)
    known = WideRidge.of(model, np.zeros(15), each(6))
    some = WideRidge.of(sparse, np.zeros(15), Groups.of([np.array([4]), np.array([3])], np.full(2, 0.75)))
    np.testing.assert_allclose(some.margins, known.margins[[4, 3]], rtol=1e-10)


def test_other_models_are_none_of_these():
    rng = np.random.default_rng(3)
    model, w, rows = wide(rng, 1e-3, True), np.zeros(15), each(6)
    known = model.design, model.y, Squared(), model.l1, model.l2, True
    assert WideRidge.of(wide(rng, 1e-3, True, n=40), w, each(40)) is None
    assert WideRidge.of(WholeModel(*known[:2], Logistic(), *known[3:]), w, rows) is None
    assert WideRidge.of(WholeModel(*known[:3], np.full(15, 0.1), *known[4:]), w, rows) is None
    assert WideRidge.of(WholeModel(*known[:4], np.arange(15.0), True), w, rows) is None
    assert WideRidge.of(model, w, Groups.of([np.arange(3), np.arange(3, 6)], np.ones(2))) is None


@pytest.mark.parametrize("kind", ["squares", "logistic"])
@pytest.mark.parametrize("l1", [0.0, 1e-9])
def test_models_in_coordinates_of_the_rows_are_as_near_as_is_claimed(kind, l1):
    """Rows that are left out, and new ones, of models with 10 times as many columns as rows."""
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((8, 80)), rng.standard_normal((3, 80))
    y = np.where(np.arange(8) % 2 == 0, 1.0, -1.0) + (0.1 * rng.standard_normal(8) if kind == "squares" else 0.0)
    problem = kind, X, y, np.full(8, 1 / 8), np.full(80, l1), np.full(80, 0.3), True, 0.1 * rng.standard_normal(8)
    w, b = solved_whole(problem)
    model = WholeModel(Design(X, problem[3]), y, SLOPES[kind][0], problem[4], problem[5], True, problem[7])
    found = left_out_models(model, w, b, each(8, 7 / 8), 1e-6)
    (m, error), (of_new, error_of_new) = found.left(), found.margins(new)
    assert found.turn is not None and found.proven.all() and max(error.max(), error_of_new.max()) < 1e-5
    for i in range(8):
        keep, near = np.arange(8) != i, np.append(found.weights_of(i), found.b[i])
        penalties = problem[4] * 7 / 8, problem[5] * 7 / 8
        true = refitted(kind, X[keep], y[keep], problem[3][keep], *penalties, True, problem[7][keep], near)
        assert abs(true.margin(X[i], problem[7][i]) - m[i]) <= error[i]
        assert max(abs(true.margin(new[q]) - of_new[q, i]) / error_of_new[q, i] for q in range(3)) <= 1.0


def test_columns_that_an_l1_has_chosen_keep_their_own_coordinates():
    model = wide(np.random.default_rng(0), 0.1, True)
    large = WholeModel(model.design, model.y, model.loss, np.full(15, 0.5), model.l2, True)
    assert left_out_models(large, np.ones(15), 0.0, each(6)).turn is None
