"""Computations side by side: one pass for all that is asked for at a time, and the results of each alone."""

import threading
from functools import cached_property, partial

import numpy as np
import pytest

from suffice import BilevelProblem, Options, Space, losses, problems, solve, terms, tune
from suffice.models.intercept import Intercepted
from suffice.models.margin_losses import LOGISTIC
from suffice.problems.linear import penalised
from suffice.prove.held_out import HeldOut
from suffice.prove.scores import LogScore
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import Design
from suffice.rows.gram import Pull
from suffice.rows.margins import together

rng = np.random.default_rng(0)
X = rng.standard_normal((600, 5))
y = X @ rng.standard_normal(5) + rng.logistic(size=600) > 0.5
SIGNS = np.where(y, 1.0, -1.0)


class Counted:
    """Rows of X, and how often they were read."""

    def __init__(self):
        self.reads = 0.0
        self.X = RowBlocks(self._rows, X.shape, block=100)

    def _rows(self, start, stop):
        self.reads += (stop - start) / len(X)
        return X[start:stop]


def pulls(blocks, count):
    """So many passes, each of which depends on the one before."""
    r = np.ones(len(X))
    for _ in range(count):
        r = np.full(len(X), np.tanh(blocks.run(Pull(), r=r).sum()))
    return r[0]


def test_as_many_passes_as_the_one_takes_that_takes_most():
    counted = Counted()
    found = together([partial(pulls, counted.X, count) for count in (1, 4, 2)])
    assert counted.reads == pytest.approx(4.0)
    assert found == [pulls(RowBlocks.of(X, block=100), count) for count in (1, 4, 2)]


def test_rows_of_different_sources_are_read_each():
    one, other = Counted(), Counted()
    together([partial(pulls, one.X, 2), partial(pulls, other.X, 3)])
    assert (one.reads, other.reads) == pytest.approx((2.0, 3.0))


def test_inside_of_another_they_go_one_after_the_other():
    counted = Counted()
    inner = partial(together, [partial(pulls, counted.X, 2)] * 2)
    assert together([inner, inner]) == [[pulls(counted.X, 2)] * 2] * 2


def test_an_error_ends_all_and_leaves_no_thread_behind():
    counted, before = Counted(), threading.active_count()

    def fails():
        pulls(counted.X, 1)
        raise LookupError("of one")

    with pytest.raises(LookupError, match="of one"):
        together([partial(pulls, counted.X, 100), fails, partial(pulls, counted.X, 100)])
    assert counted.reads == pytest.approx(1.0)
    assert threading.active_count() == before


def test_properties_of_a_model_do_not_lock_each_other_out():
    """That of functools would, before Python 3.12."""
    assert not isinstance(vars(Design)["survey"], cached_property)
    parts = [train for train, _ in terms.row_folds(Counted().X, 2)]
    assert together([lambda part=part: part.squared_norm for part in parts]) == [part.squared_norm for part in parts]


def searched(blocks, folds):
    parts = [terms.row_folds(blocks, 3, interleaved=True)[k] for k in folds]
    lower = [problems.ElasticNetLogistic(train, y) for train, _ in parts]
    held = [losses.LogLoss(rows, y) for _, rows in parts]
    space = Space(l1=(1e-4, 1.0), l2=(1e-4, 1.0))
    return BilevelProblem(lower, held, space=space)


def test_folds_of_a_search_share_their_passes():
    theta = np.array([-2.0, -2.0])
    alone = []
    for k in range(3):
        counted = Counted()
        searched(counted.X, [k]).evaluate(theta, within=1e-6)
        alone.append(counted.reads)
    counted = Counted()
    whole = searched(counted.X, range(3)).evaluate(theta, within=1e-6)
    assert counted.reads < 0.55 * sum(alone)
    parts = [searched(RowBlocks.of(X, block=100), [k]).evaluate(theta, within=1e-6) for k in range(3)]
    assert whole.residuals.tolist() == [r for part in parts for r in part.residuals.tolist()]


def test_a_search_can_be_interrupted():
    def enough(record):
        raise KeyboardInterrupt

    before = threading.active_count()
    options = Options(max_evaluations=3)
    found = tune(searched(RowBlocks.of(X), range(3)), np.array([-2.0, -2.0]), options=options, callback=enough)
    assert not found.success
    assert threading.active_count() == before


def with_intercept(kind, design, l1=1e-3, l2=1e-3):
    return penalised(lambda ridge: kind(design, SIGNS, LOGISTIC, ridge), l1, l2, 0.0, X.shape[1])


def test_a_point_with_an_intercept_takes_two_passes_over_the_rows():
    counted = Counted()
    model = Intercepted(Design.of(counted.X), SIGNS, LOGISTIC, 1e-3)
    _ = model.at_zero, model.L
    counted.reads = 0.0
    w = 0.1 * np.ones(5)
    gradient = model.gradient_at(w, image := model.image(w))
    assert model.rounding_at(w, image) < 1e-12
    model.value_at(w, image)
    assert counted.reads == pytest.approx(2.0)
    here = Intercepted(Design.of(X), SIGNS, LOGISTIC, 1e-3)
    exact = here.gradient_at(w, here.image(w))
    assert np.linalg.norm(gradient - exact) <= model.rounding_at(w, image) + here.rounding_at(w, here.image(w))


def test_the_intercept_at_no_weights_is_found_once_for_all_penalties(monkeypatch):
    design, asked = Design.of(RowBlocks.of(X)), []
    run = RowBlocks.run
    monkeypatch.setattr(RowBlocks, "run", lambda *args, **given: asked.append(1) or run(*args, **given))
    first = Intercepted(design, SIGNS, LOGISTIC, 1e-3).at_zero
    passes = len(asked)
    assert passes > 0
    assert Intercepted(design, SIGNS, LOGISTIC, 1e-1).at_zero == first
    assert len(asked) == passes


def test_with_an_intercept_the_solution_is_that_of_the_matrix_in_memory():
    here = solve(with_intercept(Intercepted, Design.of(X)), within=1e-9)
    counted = Counted()
    there = solve(with_intercept(Intercepted, Design.of(counted.X)), within=1e-7)
    assert np.linalg.norm(here.x - there.x) <= there.certificate.radius + 1e-9
    assert counted.reads < 35


def test_what_a_point_is_asked_for_next_is_found_with_its_gradient():
    counted = Counted()
    train, held = terms.row_folds(counted.X, 3)[0]
    model = Intercepted(Design.of(train), SIGNS, LOGISTIC, 1e-3)
    loss = HeldOut(held, SIGNS, LogScore(), 1.0, model)
    model.design.riders.append(loss.rider)
    w, image = 0.1 * np.ones(5), model.image(0.1 * np.ones(5))
    model.gradient_at(w, image)
    before = counted.reads
    H = model.row_curvature(image).gram(np.arange(5), True)
    found = loss.at(w)
    assert counted.reads == before
    plain = HeldOut(held, SIGNS, LogScore(), 1.0, model).at(w)
    assert found.residuals.tolist() == plain.residuals.tolist() and found.error(1e-3) == plain.error(1e-3)
    inside = train.here(train.weights)
    m = X @ w + model.b(image)
    C = inside * np.exp(m) / (1.0 + np.exp(m)) ** 2
    mean = C @ X / C.sum()
    assert np.allclose(H, (X - mean).T @ (C[:, None] * (X - mean)), atol=1e-14)


def test_margins_of_no_weights_read_nothing():
    counted = Counted()
    assert not (counted.X @ np.zeros(5)).any()
    assert counted.reads == 0.0
