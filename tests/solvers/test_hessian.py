"""Hessians that are dear are lent to problems nearby, which find what they would find alone."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import BilevelProblem, Composite, Space, solve
from suffice.executors import Processes
from suffice.journal.codec import decode, encode
from suffice.losses import Brier
from suffice.models.intercept import Intercepted
from suffice.models.margin_losses import LOGISTIC
from suffice.problems import ElasticNetLogistic
from suffice.rows.design import Design
from suffice.solvers import hessian
from suffice.solvers.hessian import Metric, OfRows, hessians_of
from suffice.solvers.sensitivity import Direct, Near, Sensitivity
from suffice.terms import L1

rng = np.random.default_rng(0)
# Two or three entries in a row, so that a Hessian costs much more than products with X.
X = sp.csr_array(np.where(rng.random((600, 40)) < 0.06, rng.standard_normal((600, 40)), 0.0))
CLEAN = X @ rng.standard_normal(40)
TARGETS = [CLEAN + rng.logistic(size=600) > 0.0, CLEAN + rng.logistic(size=600) > 0.5]
SPACE = Space(l1=(1e-6, 1.0), l2=(1e-6, 1.0))
PATH = [[-3.4, -2.5], [-3.35, -2.45], [-3.35, -2.45], [-3.6, -2.4]]
ACCURACY = [1e-3, 1e-4, 1e-8, 1e-6]


def problem(executor=None, solver="newton"):
    lower = [ElasticNetLogistic(X[:500], y[:500]) for y in TARGETS]
    losses = [Brier(X[500:], y[500:]) for y in TARGETS]
    return BilevelProblem(lower, losses, space=SPACE, executor=executor, solver=solver)


def along(problem, forget=False, through_files=False):
    """A path of evaluations with derivatives, each from the one before."""
    near, found = None, []
    for theta, within in zip(PATH, ACCURACY, strict=True):
        if forget:
            hessian._lent.matrices.clear()
        near = problem.differentiate(problem.evaluate(np.array(theta), within=within, warm=near))
        if through_files:
            near = decode(json.loads(json.dumps(encode(near))))
        found.append(near)
    return found


def bits(evaluations):
    parts = [(one.r, one.e, one.J, *(w.x for w in one.solutions)) for one in evaluations]
    return [array.tobytes() for part in parts for array in part]


@pytest.fixture
def made(monkeypatch):
    """The metrics whose Hessians are made."""
    metrics, original = [], OfRows.made

    def spied(hessians, metric, *arguments):
        metrics.append(metric)
        return original(hessians, metric, *arguments)

    monkeypatch.setattr(OfRows, "made", spied)
    return metrics


def test_this_is_a_problem_whose_hessians_are_lent():
    terms = hessians_of(problem().lower[0].at(l1=1e-3, l2=1e-2).canonical)
    assert terms.lends(40) and not terms.lends(10)


def test_a_hessian_serves_the_problems_nearby(made, monkeypatch):
    along(problem())
    lent = len(made)
    monkeypatch.setattr(hessian, "DEAR", np.inf)  # none is lent
    made.clear()
    along(problem())
    assert 3 * lent <= len(made)


def test_derivatives_are_those_of_the_exact_hessian(monkeypatch):
    lent = along(problem())
    assert all(isinstance(w.lent, Metric) for one in lent for w in one.solutions)
    monkeypatch.setattr(hessian, "DEAR", np.inf)
    for one, close in zip(lent, [2e-3, 2e-3, 2e-3, 1e-5], strict=True):  # the third has those of the second
        exact = problem().differentiate(replace(one, jacobian=None))
        np.testing.assert_allclose(one.J, exact.J, atol=close * np.abs(exact.J).max())


@pytest.mark.parametrize("other", ["forgotten", "through files", "serial", "threads", "processes"])
def test_results_have_the_same_bits_wherever_hessians_are_known(other):
    here = bits(along(problem("serial")))
    if other in ("forgotten", "through files"):
        there = along(problem("serial"), forget=True, through_files=other == "through files")
    else:
        executor = {"threads": ThreadPoolExecutor(2), "processes": Processes(2)}.get(other, other)
        with problem(executor) as elsewhere:
            there = along(elsewhere)
    assert bits(there) == here


def test_a_matrix_of_another_x_or_y_is_never_served():
    one, other = (hessians_of(lower.at(l1=1e-3, l2=1e-2).canonical) for lower in problem().lower)
    metric = Metric(np.zeros(40), np.arange(40), 500, lent=True)
    first = one.at(metric)
    for terms in (other, hessians_of(problem().lower[0].at(l1=1e-3, l2=1e-2).canonical)):
        before = hessian._lent.get(terms.term, metric)
        assert before is None
        terms.at(metric)
    assert hessian._lent.get(one.term, metric) is None  # the latest has taken its place
    np.testing.assert_array_equal(one.at(metric).H, first.H)


def test_another_l2_is_added_to_what_is_kept(made):
    lower = problem().lower[0]
    metric = Metric(np.zeros(40), np.arange(40), 500, lent=True)
    small, large = (hessians_of(lower.at(l1=1e-3, l2=l2).canonical).at(metric).H for l2 in (1e-3, 0.5))
    np.testing.assert_allclose(large - small, (0.5 - 1e-3) * np.eye(40), atol=1e-12)
    assert len(made) == 1


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(hessian, "MEMORY", 10 * 40 * 40 * 8)
    terms = hessians_of(problem().lower[0].at(l1=1e-3, l2=1e-2).canonical)
    for _ in range(25):
        terms.at(Metric(np.zeros(40), np.arange(40), 500, lent=True))
    assert sum(kept.nbytes for *_, kept in hessian._lent.matrices.values()) <= hessian.MEMORY


def test_a_hessian_from_too_far_away_gives_way_to_a_fresh_one(made):
    lower = problem().lower[0]
    near = solve(lower.at(l1=1e-5, l2=1e-2), within=1e-6, solver="newton")
    assert near.last_metric is not None
    far = Metric(30.0 * rng.standard_normal(40), near.last_metric.working, 500, lent=True)
    there = lower.at(l1=2e-5, l2=1e-2)
    made.clear()
    found = solve(there, within=1e-8, warm=replace(near, state=None, lent=far), solver="newton")
    assert found.reached and any(metric is not far for metric in made)
    assert np.linalg.norm(found.x - solve(there, within=1e-10).x) <= 1e-8 + 1e-10


def test_an_intercept_moves_along():
    model = Intercepted(Design.of(X), np.where(TARGETS[0], 1.0, -1.0), LOGISTIC, 1e-3)
    composite = Composite(model, L1(1e-5), mu=model.l2, L=model.L, size=40)
    x = solve(composite, within=1e-8, solver="newton").x
    near = Sensitivity.of(composite, x)
    K = rng.standard_normal((40, 2))
    exact = hessians_of(composite.canonical).exact(x, near.support)
    assert isinstance(near.system, Near)
    found = near.forward(K, np.ones(2), 1e-6).value[near.support]
    np.testing.assert_allclose(found, -exact.solver()(K[near.support]), atol=1e-5 * np.abs(found).max())


def test_one_that_is_of_no_use_to_a_derivative_gives_way_to_one_that_is():
    lower = problem().lower[0].at(l1=1e-5, l2=1e-3)
    x = solve(lower, within=1e-8).x
    far = Metric(30.0 * rng.standard_normal(40), np.arange(40), 500, lent=True)
    sensitivity, without = Sensitivity.of(lower, x, far), Sensitivity.of(lower, x)
    assert isinstance(sensitivity.system, Near) and not isinstance(sensitivity.system, Direct)
    K = rng.standard_normal((40, 2))
    helped, alone = (one.forward(K, np.ones(2), 1e-6) for one in (sensitivity, without))
    assert helped.metric is not far
    np.testing.assert_allclose(helped.value, alone.value, atol=1e-5 * np.abs(alone.value).max())


def test_first_order_solvers_lend_the_hessians_of_their_derivatives(made):
    found = along(problem(solver="fista_adaptive"))
    assert len(made) <= 4 and all(s.lent is not None for s in found[-1].solutions)
