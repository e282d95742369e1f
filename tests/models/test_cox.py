"""Cox's proportional hazards: the likelihood by its definition, minimisers enclosed, held-out errors, estimators."""

import math
import re

import numpy as np
import pytest
from flint import arb

import suffice
from suffice import losses, problems, terms
from suffice.models.cox import CoxModel, signed_times
from suffice.rows.design import Design
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn.measures import concordance
from suffice.solvers.solver import iterate
from suffice.testing import check_loss, check_problem
from tests.reference_cox import Cox
from tests.reference_exact import Kinked, enclose
from tests.sklearn.adapter_checks import check_adapter


def data(rows=24, columns=3, seed=0, tied=True):
    """(X, y, strata, entry, weight): times with ties, negative where censored."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    time = rng.exponential(np.exp(-X[:, 0] + 0.5 * X[:, 1]))
    time = np.ceil(5.0 * time) if tied else time
    y = np.where(rng.random(rows) < 0.7, time, -time)
    entry = np.where(rng.random(rows) < 0.4, time * rng.random(rows) * 0.9, 0.0)
    return X, y, rng.integers(0, 2, rows), entry, rng.integers(0, 3, rows).astype(float)


SETTINGS = {
    "": {},
    "strata": {"strata": True},
    "entry": {"entry": True},
    "weights": {"sample_weight": True},
    "all": {"strata": True, "entry": True, "sample_weight": True},
}


def chosen(name, strata, entry, weight):
    made = {"strata": strata, "entry": entry, "sample_weight": weight}
    return {key: made[key] for key in SETTINGS[name]}


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("name", SETTINGS)
def test_no_radius_is_less_than_the_distance_to_forty_digits(name, ties):
    X, y, *others = data()
    given = chosen(name, *others)
    problem = problems.ElasticNetCox(X, y, ties=ties, **given)
    renamed = {"weight" if key == "sample_weight" else key: value for key, value in given.items()}
    for l1, l2 in ((0.0, 1e-2), (0.05, 1e-5)):
        exact = enclose(Cox(X, y, l2, efron=ties == "efron", **renamed), Kinked.l1([l1] * 3))
        for step, one in enumerate(iterate(problem.at(l1=l1, l2=l2), solver="auto")):
            radius = one.certificate.radius
            assert math.isinf(radius) or exact.distance(one.x) <= arb(radius)
            if step == 8:
                assert radius <= 1e-7
                break


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_a_problem_conforms(ties):
    X, y, strata, entry, weight = data()
    given = {"strata": strata, "entry": entry, "sample_weight": weight}
    check_problem(problems.ElasticNetCox(X, y, ties=ties, **given).at(l1=0.02, l2=0.1), trials=8)


def test_hazards_far_apart_are_summed_where_differences_would_cancel():
    X, y, strata, entry, weight = data()
    model = CoxModel.of(Design.of(X), y, strata=strata, entry=entry, sample_weight=weight, l2=0.1)
    exact = Cox(X, y, 0.1, weight=weight, strata=strata, entry=entry)
    for size in (1.0, 30.0, 200.0):
        w = size * np.array([1.0, -0.7, 0.4])
        gradient, rounding = model.gradient(w), model.gradient_rounding(w, model.image(w))
        truth = [float(part.mid()) for part in exact.gradient([arb(float(part)) for part in w])]
        assert np.linalg.norm(gradient - truth) <= rounding <= 1e-8 * size


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_the_held_out_likelihood_is_not_negative_and_its_error_holds(ties):
    X, y, strata, entry, weight = data(60)
    loss = losses.PartialLikelihood(X, y, ties=ties, strata=strata, entry=entry, sample_weight=weight)
    check_loss(loss, [0.8, -0.3, 0.1], trials=40)
    alone = losses.PartialLikelihood(X[:1], np.array([2.0]), ties=ties)
    assert alone.at(np.ones(3)).residual == 0.0  # nobody else was at risk


def test_structures_go_with_it():
    X, y, *_ = data(80)
    smooth = CoxModel.of(Design.of(X), y, l2=1e-2)
    for g in (terms.Positive(0.01), terms.SparseGroup([[0, 1], [2]], 0.05)):
        problem = suffice.Composite(smooth, g, mu=1e-2, L=smooth.L, size=3)
        fast, slow = (suffice.solve(problem, within=1e-8, solver=one) for one in ("newton", "fista_adaptive"))
        assert fast.reached and slow.reached and np.allclose(fast.x, slow.x, atol=2e-8)


def test_times_are_read_as_people_have_them():
    time, event = np.array([3.0, 1.0, 2.0]), np.array([True, False, True])
    pairs = np.array(list(zip(event, time, strict=True)), dtype=[("died", bool), ("days", float)])
    for y in (pairs, np.stack([time, event], axis=1), [3.0, -1.0, 2.0]):
        assert np.array_equal(signed_times(y), [3.0, -1.0, 2.0])


def test_concordance_counts_pairs():
    y, risk = np.array([1.0, 2.0, -2.0, 3.0]), np.array([4.0, 2.0, 2.0, 3.0])
    # comparable: (0; 1, 2, 3) all right, (1; 2) tied, (1; 3) wrong
    assert concordance(y, risk) == pytest.approx((3 + 0.5) / 5)
    assert concordance(y, risk, [1.0, 1.0, 0.0, 2.0]) == pytest.approx((1 + 2) / (1 + 2 + 2))


def test_an_estimator_is_tuned_by_the_held_out_likelihood():
    X, y, strata, entry, _ = data(150, seed=3)
    X = np.c_[X, strata, entry]
    model = ElasticNetGLM("cox", l1=0.02, l2=0.02, strata=3, entry=-1).fit(X, y)
    assert model.coef_[3] == model.coef_[4] == 0.0 and model.intercept_ == 0.0 and model.coef_radius_ < 1e-7
    assert model.score(X, y) > 0.6
    direct = problems.ElasticNetCox(X[:, :3], y, strata=strata, entry=entry).at(l1=0.02, l2=0.02)
    assert np.allclose(model.coef_[:3], suffice.solve(direct, within=1e-9).x, atol=1e-7)
    pairs = np.array(list(zip(y > 0, np.abs(y), strict=True)), dtype=[("event", bool), ("time", float)])
    few = suffice.Options(max_evaluations=10, final_radius=1e-2)
    search = SufficeSearchCV(ElasticNetGLM("cox", strata=3, entry=-1), cv=3, options=few).fit(X, pairs)
    low, high = search.score_interval_
    assert low <= search.best_score_ <= high and high - low < 1e-4
    assert search.held_out_.measured()["concordance"] > 0.6 and search.baseline_.measured() == {"concordance": 0.5}


def test_its_adapter_conforms():
    X, y, *_ = data(60)
    check_adapter(ElasticNetGLM("cox"), X, y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ties": "exact"}, "ties must be 'breslow' or 'efron', got 'exact'"),
        ({"entry": np.full(24, 100.0)}, "entry must be before the time of every row"),
        ({"strata": [1, 2]}, "strata must have shape (24,) to match X, got (2,)"),
        ({"sample_weight": np.zeros(24)}, "y must hold an event at least"),
    ],
)
def test_what_it_cannot_take_is_named(given, message):
    X, y, *_ = data()
    with pytest.raises(ValueError, match=re.escape(message)):
        problems.ElasticNetCox(X, y, **given)
    with pytest.raises(ValueError, match="strata is for family='cox'"):
        ElasticNetGLM(strata=1).fit(X, y)
    with pytest.raises(ValueError, match="not 0"):
        problems.ElasticNetCox(X, 0.0 * y)


def test_rows_may_be_shared_with_another_problem_unless_they_have_weights():
    X, y, *_ = data()
    design = Design.of(X)
    assert problems.ElasticNetCox(design, y).design is design
    weighted = Design.of(X, np.arange(1.0, len(X) + 1.0))
    for made in (problems.ElasticNetCox, losses.PartialLikelihood):
        with pytest.raises(ValueError, match="a design without sample weights"):
            made(weighted, y)
