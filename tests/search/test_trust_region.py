"""The search as a state machine: pure functions of immutable states, whatever the oracle's errors are."""

from dataclasses import FrozenInstanceError, replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice import Evaluation, Options, Status
from suffice.options import ModelKind, Policy
from suffice.result import Purpose
from suffice.search import trust_region
from suffice.search.accuracy import for_model
from suffice.search.state import Plan, Sample, Scaling, Setting, Trial, pool_size
from suffice.search.trust_region import TrustRegion
from suffice.search.tuner import Search

REFINEMENTS = (Purpose.REFINE_INCUMBENT, Purpose.REFINE_POINT, Purpose.REFINE_STEP)


def setting(theta0, bounds=(0.0, 1.0), **options):
    return Setting(Scaling.of(np.array(theta0, dtype=float), bounds), Options(**options))


def begin(theta0, world):
    return Search.begin(np.array(theta0, dtype=float), world, trust_region.begin)


def curved(theta):
    """Residuals with curvature, and one minimiser in the unit square."""
    x, y = theta
    return np.array([x - 0.3 + 0.5 * (y - 0.6) ** 2, 2.0 * (y - 0.6) + (x - 0.3) ** 2, 0.1 + 0.1 * x])


def truthful(f, rng=None):
    """An oracle that errs by all it may, with random signs; exact without rng."""

    def evaluate(theta, within):
        r = f(theta)
        e = np.zeros(len(r)) if rng is None else np.full(len(r), within)
        signs = np.zeros(len(r)) if rng is None else rng.choice([-1.0, 1.0], len(r))
        return Evaluation(theta, r + signs * e, e, work=1, solutions=(tuple(theta.tolist()),))

    return evaluate


def steps(search, evaluate):
    """(search that asks, search that knows) for every evaluation of a run."""
    while (search := search.decide()).status is Status.RUNNING:
        pending = search.strategy.pending
        known = search.absorb(evaluate(search.setting.scaling.to_theta(pending.u), pending.within))
        yield search, known
        search = known


def end(search, evaluate):
    for _, known in steps(search, evaluate):
        search = known
    return search.decide()


def test_states_are_immutable_and_deciding_twice_is_deciding_once():
    world = setting([0.9, 0.1])
    for asking, known in steps(begin([0.9, 0.1], world), truthful(curved)):
        assert asking.decide() is asking
        before = replace(asking.strategy)
        again = asking.absorb(truthful(curved)(world.scaling.to_theta(asking.strategy.pending.u), 1.0))
        assert asking.strategy == before
        assert again.ledger.records == known.ledger.records
        with pytest.raises(FrozenInstanceError):
            asking.strategy.delta = 1.0


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2),
    st.sampled_from(get_args(ModelKind)),
    st.one_of(st.none(), st.integers(0, 9)),
)
def test_what_holds_throughout_every_run(oracle_seed, theta0, model, seed):
    world = setting(theta0, model=model, seed=seed, max_evaluations=150, final_radius=1e-4)
    evaluate = truthful(curved, np.random.default_rng(oracle_seed))
    m, rho = 2, np.inf
    for number, (asking, known) in enumerate(steps(begin(theta0, world), evaluate), 1):
        pending = asking.strategy.pending
        assert (pending.u >= 0).all() and (pending.u <= 1).all()
        assert 0.0 < pending.within < np.inf
        assert (pending.purpose is Purpose.FIRST) == (number <= m + 1)
        assert len(known.ledger.records) == number
        record, asking, known = known.ledger.records[-1], asking.strategy, known.strategy
        assert asking.rho <= asking.delta * (1 + 1e-12)
        assert asking.rho <= rho
        rho = asking.rho
        assert len(known.points) == min(number, m + 1)
        assert len(known.pool) <= pool_size(m)
        if number > m:
            points = np.array([point.u for point in known.points])
            D = np.delete(points, known.k, axis=0) - points[known.k]
            assert np.linalg.matrix_rank(D / np.linalg.norm(D, axis=1, keepdims=True), tol=1e-10) == m
        if number > 1 and asking.points:
            before, after = asking.points[asking.k].u, known.points[known.k].u
            if record.verdict == "accepted":
                assert tuple(world.scaling.to_theta(after).tolist()) == record.step.target
            elif pending.purpose in REFINEMENTS or pending.purpose is Purpose.STEP:
                assert (before == after).all()  # nothing but an accepted step moves the incumbent
        if pending.purpose is Purpose.GEOMETRY and known.k != asking.k:
            old, new = (s.current.evaluation for s in (asking, known))
            assert new.interval[1] < old.interval[0]  # or a point that is proven to be better


@given(st.integers(0, 2**32 - 1))
def test_whoever_is_refined_is_continued_from_its_own_solution(oracle_seed):
    world = setting([0.9, 0.9], max_evaluations=100)
    refinements = 0
    for asking, _ in steps(begin([0.9, 0.9], world), truthful(curved, np.random.default_rng(oracle_seed))):
        pending = asking.strategy.pending
        if pending.purpose in REFINEMENTS:
            refinements += 1
            theta = world.scaling.to_theta(pending.u)
            assert (pending.warm.point == theta).all()
            assert pending.warm.solutions == (tuple(theta.tolist()),)
            assert pending.within < pending.warm.e.max()
    assert refinements > 0


@given(st.integers(0, 2**32 - 1))
def test_new_points_start_from_the_nearest_evaluated_one(oracle_seed):
    world = setting([0.2, 0.9], max_evaluations=60)
    for asking, _ in steps(begin([0.2, 0.9], world), truthful(curved, np.random.default_rng(oracle_seed))):
        asking = asking.strategy
        pending, known = asking.pending, [*asking.points, *asking.pool]
        if not known:
            assert pending.warm is None
        elif asking.trial is None:
            nearest = min(np.linalg.norm(point.u - pending.u) for point in known)
            warm = world.scaling.to_u(pending.warm.point)
            assert np.linalg.norm(warm - pending.u) <= nearest + 1e-12


def test_points_keep_their_solutions_only_while_these_are_of_use():
    """Memory: however long the run, a bounded number of old points still holds solutions."""
    world = setting([0.1] * 5, max_evaluations=150, final_radius=1e-12)

    def wavy(theta):
        return np.append(theta - 0.5 + 0.1 * np.sin(9 * theta), 1.0)

    most = 0
    for _, known in steps(begin([0.1] * 5, world), truthful(wavy, np.random.default_rng(0))):
        most = max(most, sum(bool(point.evaluation.solutions) for point in known.strategy.pool))
        assert all(point.evaluation.solutions for point in known.strategy.points)
    assert 0 < most <= 30


def test_at_the_minimiser_no_step_is_evaluated():
    """Steps too short to matter cost nothing: only the first points and their approach are evaluated."""
    A, b = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]]), np.array([1.0, 0.5, 2.0])
    minimiser = np.linalg.lstsq(A, b, rcond=None)[0]
    world = setting(minimiser, bounds=None)
    last = end(begin(minimiser, world), truthful(lambda theta: A @ theta - b))
    assert last.status is Status.CONVERGED
    assert {record.purpose for record in last.ledger.records} == {Purpose.FIRST.value, Purpose.GEOMETRY.value}
    assert last.ledger.records[-1].incumbent == tuple(minimiser.tolist())


def test_the_search_ends_with_the_final_radius():
    world = setting([0.9, 0.1], final_radius=1e-3)
    last = end(begin([0.9, 0.1], world), truthful(curved))
    assert last.status is Status.CONVERGED
    assert last.strategy.rho == 1e-3
    assert last.strategy.pending is None


def at(u, r=(1.0, 1.0), e=0.0, solution="x"):
    return Sample(np.array(u), Evaluation(np.array(u), np.array(r), np.full(len(r), e), solutions=(solution,)))


def under_judgement(world, **changes):
    """A search whose verdict on a step to the corner is open."""
    points = (at([0.5, 0.5]), at([0.6, 0.5], (0.9, 1.0)), at([0.5, 0.6], (1.0, 0.9)))
    trial = Trial(at([0.0, 0.0], e=0.1, solution="of the step"), Plan(1e-2, 0.7, (1.0, 1.0)))
    return Search(world, replace(TrustRegion(0.1, 0.1, (), points=points, trial=trial), **changes))


@pytest.mark.parametrize("policy", get_args(Policy))
def test_while_steps_are_short_no_point_is_refined_twice(policy):
    """The radius is halved until it meets rho, and the step stays as short as it is: each point is asked at once for
    the accuracy that the model needs there."""
    world = setting([0.5], policy=policy)

    def evaluation(u, e):
        return Evaluation([u], [u - 0.5, 1.0], [e, e], distance=e)

    points = tuple(Sample(np.array([u]), evaluation(u, 1e-3)) for u in (0.5, 0.508))
    search = Search(world, TrustRegion(delta=0.016, rho=1e-3, first=(), points=points)).decide()
    refined = []
    while (state := search.strategy).rho == 1e-3:
        assert state.pending.purpose in REFINEMENTS
        assert state.pending.within <= for_model(state.rho, points[0].evaluation, world.options)
        refined.append(float(state.pending.u[0]))
        search = search.absorb(evaluation(refined[-1], state.pending.within)).decide()
    assert sorted(refined) == [0.5, 0.508]


def test_an_open_verdict_is_settled_by_refining_the_less_certain_end():
    world = setting([0.5, 0.5])
    asking = under_judgement(world).decide().strategy
    assert asking.pending.purpose is Purpose.REFINE_STEP
    assert asking.pending.u.tolist() == [0.0, 0.0]
    assert asking.pending.warm.solutions == ("of the step",)
    points = (at([0.5, 0.5], e=0.2, solution="of the incumbent"), *asking.points[1:])
    asking = under_judgement(world, points=points).decide().strategy
    assert asking.pending.purpose is Purpose.REFINE_INCUMBENT
    assert asking.pending.warm.solutions == ("of the incumbent",)


def test_a_step_to_a_theta_that_was_evaluated_long_ago_is_refined_from_its_own_solution():
    world = setting([0.5, 0.5])
    older = at([0.0, 0.0], e=10.0, solution="older and cruder")
    asking = under_judgement(world, pool=(older,)).decide().strategy
    assert asking.pending.purpose is Purpose.REFINE_STEP
    assert asking.pending.warm.solutions == ("of the step",)


def test_a_point_that_does_not_improve_may_miss_once_but_not_twice():
    world = setting([0.5, 0.5])
    search, asked = under_judgement(world), []
    while (search := search.decide()).strategy.trial is not None:
        pending = search.strategy.pending
        asked.append(pending.purpose)
        search = search.absorb(Evaluation(world.scaling.to_theta(pending.u), [1.0, 1.0], [0.1, 0.1]))
    assert asked == [Purpose.REFINE_STEP] * 2
    assert search.ledger.records[-1].verdict == "rejected, not proven"


def test_a_refinement_that_came_back_worse_does_not_replace_what_was_known():
    world = setting([0.5, 0.5])
    search = under_judgement(world).decide().absorb(Evaluation([0.0, 0.0], [1.5, 1.5], [0.6, 0.6]))
    assert search.strategy.trial.point.evaluation.e.tolist() == [0.1, 0.1]


def test_rounding_does_not_decide_whether_a_point_is_far():
    """After a rejected step of length 2 delta the radius is delta: the distance of that point is a tie by design."""
    world = setting([0.5, 0.5])
    decisions = []
    for ulps in (-4, 0, 4):
        rim = 0.5 + 0.05 * (1.0 + ulps * 2.3e-16)
        points = (at([0.5, 0.5], (1.0, 0.0)), at([rim, 0.5], (1.1, 0.0)), at([0.5, 0.525], (1.0, 0.1)))
        state = TrustRegion(0.025, 1e-3, (), points=points, after_failure=True)
        decisions.append(Search(world, state).decide().strategy.pending.purpose)
    assert len(set(decisions)) == 1


@pytest.mark.parametrize(
    ("u", "pool", "expected"),
    [
        ([0.6, 0.5], [], "b"),  # known already: continued
        ([0.9, 0.9], [([0.9, 0.9], "old")], "old"),
        ([0.61, 0.5], [], "b"),
        ([0.9, 0.9], [([0.9, 0.8], "old"), ([0.1, 0.1], "older")], "old"),
    ],
)
def test_starts_are_the_nearest_evaluation_itself(u, pool, expected):
    places = {"a": [0.5, 0.5], "b": [0.6, 0.5], "c": [0.5, 0.6]}
    points = [at(place, solution=name) for name, place in places.items()]
    old = [at(place, solution=name) for place, name in pool]
    state = TrustRegion(0.1, 0.1, (np.array(u),), points=tuple(points), pool=tuple(old))
    warm = Search(setting([0.5, 0.5]), state).decide().strategy.pending.warm
    assert any(warm is point.evaluation for point in [*points, *old])
    assert warm.solutions == (expected,)


def test_a_point_for_the_model_is_as_accurate_as_a_model_of_its_distance_needs():
    """However little the latest step has promised: what a step needs is asked for when there is one."""
    world = setting([0.5, 0.5])
    points = (at([0.5, 0.5], e=1e-9), at([0.9, 0.5], (1.1, 1.0), e=1e-9), at([0.5, 0.51], (1.0, 1.01), e=1e-9))
    state = TrustRegion(1e-2, 1e-2, (), points=points, after_failure=True)
    asking = Search(world, state).decide().strategy.pending
    assert asking.purpose is Purpose.GEOMETRY
    radius = float(np.linalg.norm(asking.u - 0.5))
    assert asking.within == pytest.approx(for_model(radius, points[0].evaluation, world.options))


def test_a_far_point_is_not_refined_for_a_small_promise():
    """The verdict on the step does not go by it."""
    world = setting([0.5])
    near, far = at([0.5], (1.0, 0.0), e=1e-6), at([0.9], (0.9, 1.0), e=2e-2)
    asking = Search(world, TrustRegion(0.05, 0.01, (), points=(near, far))).decide().strategy
    assert asking.pending.plan is not None and asking.pending.purpose is Purpose.STEP
    assert far.evaluation.error > 4.0 * asking.pending.plan.predicted
