"""A global certificate: no penalties in the space are better by more than it says, and F lies where it says."""

import math

import numpy as np
import pytest

import suffice
from suffice import losses, problems
from suffice.globally import UnsupportedError
from suffice.journal import read
from suffice.solvers.problem import Composite
from suffice.terms import POISSON


class OnePenalty:
    """A problem with one parameter: l1 and l2 in fixed proportions."""

    def __init__(self, problem, l1, l2):
        self.problem, self.l1, self.l2 = problem, l1, l2

    def at(self, *, strength) -> Composite:
        made: Composite = self.problem.at(l1=self.l1 * strength, l2=self.l2 * strength)
        return made

    def shares(self, names):
        return {"strength": (self.l1, self.l2)}


def data(seed, n=40, d=6, logistic=False, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * n, d))
    m = X[:, :3] @ rng.standard_normal(3) + noise * rng.standard_normal(2 * n)
    y = np.where(m > 0, 1.0, -1.0) if logistic else m
    return X, y


LOSSES = {"squares": losses.SquaredError, "logistic": losses.LogLoss, "brier": losses.Brier}


def one_fold(kind, l1=0.0, l2=1.0, seed=0, ends=(1e-4, 1e2), **kwargs):
    X, y = data(seed, logistic=kind != "squares", **kwargs)
    n = len(y) // 2
    lower = (problems.ElasticNet if kind == "squares" else problems.ElasticNetLogistic)(X[:n], y[:n])
    held = LOSSES[kind](X[n:], y[n:])
    return suffice.BilevelProblem([OnePenalty(lower, l1, l2)], [held], space=suffice.Space(strength=(*ends, "log")))


def two_penalties(kind="squares", folds=2, l1=(1e-3, 10.0), l2=(1e-3, 10.0)):
    lower, held = [], []
    for seed in range(folds):
        X, y = data(seed, logistic=kind != "squares")
        n = len(y) // 2
        lower.append((problems.ElasticNet if kind == "squares" else problems.ElasticNetLogistic)(X[:n], y[:n]))
        held.append(LOSSES[kind](X[n:], y[n:]))
    return suffice.BilevelProblem(lower, held, space=suffice.Space(l1=l1, l2=l2))


def false_proofs(problem, made, points, seed=0):
    """Random parameters at which F, proven by a solution of its own, lies outside the proven surfaces."""
    rng = np.random.default_rng(seed)
    lower, upper = problem.space.bounds
    upper = np.minimum(upper, 4.0)
    found = []
    for theta in lower + rng.random((points, len(lower))) * (upper - lower):
        low, high = problem.evaluate(theta, within=1e-9).interval
        a, b = made.bounds_at(problem.space.params(theta))
        if high < a or low > b or high < made.lower:
            found.append((theta, (a, b), (low, high)))
    return found


CASES = {
    "ridge": lambda: one_fold("squares"),
    "lasso": lambda: one_fold("squares", l1=1.0, l2=0.0),
    "both, tied": lambda: one_fold("squares", l1=0.5, l2=2.0),
    "l2 logistic": lambda: one_fold("logistic"),
    "l1 logistic": lambda: one_fold("logistic", l1=1.0, l2=0.0, ends=(1e-3, 1e1)),
    "Brier": lambda: one_fold("brier"),
    "more columns than rows": lambda: one_fold("squares", n=15, d=40),
    "more columns than rows, logistic": lambda: one_fold("logistic", n=15, d=40),
}


@pytest.mark.parametrize("name", CASES)
def test_one_penalty_is_certified_and_f_lies_where_it_is_proven_to(name):
    problem = CASES[name]()
    made = suffice.certify_global(problem, 3e-3, options=suffice.GlobalOptions(max_evaluations=400))
    assert made.success, made.message
    assert made.lower <= made.upper <= made.lower * (1.0 + 3.1e-3)
    assert false_proofs(problem, made, 20) == []


@pytest.mark.parametrize("name", ["ridge", "l2 logistic", "l1 logistic", "Brier"])
def test_no_look_at_one_penalty_is_lost_on_a_cell_too_wide(name):
    """Halving cells that are too wide takes two looks for every cell that is left."""
    made = suffice.certify_global(CASES[name](), 3e-3, options=suffice.GlobalOptions(max_evaluations=400))
    assert made.success
    assert made.evaluations <= 1.2 * len(made.cells)


@pytest.mark.parametrize(("l1", "l2"), [(1.0, 0.0), (1.0, 0.1)])
def test_rows_that_are_classified_beyond_doubt_stand_in_no_proofs_way(l1, l2):
    """A margin that passes 709, where e^-m ceases to be a normal float, and then 745, where it ceases to be one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.sign(X[:, 0] + 0.5 * rng.standard_normal(60))
    X[0], y[0] = (500.0, 0.0, 0.0), 1.0
    held = losses.LogLoss(X[40:], y[40:])
    lower = OnePenalty(problems.ElasticNetLogistic(X[:40], y[:40]), l1, l2)
    problem = suffice.BilevelProblem([lower], [held], space=suffice.Space(strength=(1e-5, 1.0)))
    made = suffice.certify_global(problem, 1e-3, options=suffice.GlobalOptions(max_evaluations=200))
    assert made.success, made.message
    assert false_proofs(problem, made, 20) == []


@pytest.mark.parametrize("kind", ["squares", "logistic"])
def test_two_penalties_are_certified_and_f_lies_where_it_is_proven_to(kind):
    problem = two_penalties(kind, l1=(1e-2, 10.0), l2=(1e-2, 10.0))
    made = suffice.certify_global(problem, 0.1, options=suffice.GlobalOptions(max_evaluations=600))
    assert made.success, made.message
    assert false_proofs(problem, made, 20) == []


def test_surfaces_hold_in_cells_of_any_size():
    """Also where they are far too large to be of use, and at their corners."""
    from suffice.globally.branch import BranchAndBound

    for make in (CASES["lasso"], CASES["l2 logistic"], two_penalties):
        problem = make()
        search = BranchAndBound(problem, 1e-3)
        for _ in range(12):
            search.step()
            for cell in search.cells[:2]:
                for corner in (cell.low, cell.high, np.sqrt(cell.low * cell.high)):
                    theta = problem.space.theta(dict(zip(problem.space.names, corner.tolist(), strict=True)))
                    low, high = problem.evaluate(theta, within=1e-9).interval
                    a, b = cell.interval(corner)
                    assert a <= high * (1.0 + 1e-12) and low <= b * (1.0 + 1e-12)


def test_a_local_search_that_has_ended_in_a_poor_place_is_found_out():
    """One feature shrinks at a strength of about 1, the other at 100: the held-out loss has a valley at each."""
    X = np.diag([1.0, 10.0]) * math.sqrt(2.0)
    lower = OnePenalty(problems.ElasticNet(X, X.sum(axis=1)), 0.0, 1.0)
    held = losses.SquaredError([[2.12, -0.55], [0.19, 1.95], [1.09, -1.54]], [0.86, 1.54, 0.44])
    problem = suffice.BilevelProblem([lower], [held], space=suffice.Space(strength=(1e-4, 1e6)))
    poor = suffice.tune(problem, {"strength": 1e3}, options=suffice.Options(initial_radius=0.02, final_radius=1e-4))
    assert poor.success and poor.params["strength"] == pytest.approx(239, rel=0.05)  # as far as a local search can see
    made = suffice.certify_global(problem, 1e-2, known=poor)
    assert made.success and made.upper < 0.6 * poor.interval[0] and made.params["strength"] < 1.0


def test_the_same_with_an_l1_penalty():
    X = np.eye(2) * math.sqrt(2.0)
    lower = OnePenalty(problems.ElasticNet(X, X @ [1.0, 0.2]), 1.0, 0.0)  # w = max([1, 0.2] - l1, 0)
    held = losses.SquaredError([[0.69, -5.17], [1.54, -5.7], [-1.0, 1.33]], [-0.62, 0.82, -0.45])
    problem = suffice.BilevelProblem([lower], [held], space=suffice.Space(strength=(1e-4, 10.0)))
    poor = suffice.tune(problem, {"strength": 0.6}, options=suffice.Options(initial_radius=0.02, final_radius=1e-4))
    assert poor.success and poor.params["strength"] == pytest.approx(0.664, rel=0.02)
    made = suffice.certify_global(problem, 1e-2, known=poor)
    assert made.success and made.upper < 0.5 * poor.interval[0] and made.params["strength"] < 0.05


def test_ranges_may_end_in_infinity_and_begin_at_nothing():
    X, y = data(3)
    lower, held = problems.ElasticNet(X[:40], y[:40]), losses.SquaredError(X[40:], y[40:])
    endless = suffice.Space(l1=(1e-3, math.inf), l2=(1e-3, math.inf))
    problem = suffice.BilevelProblem([lower], [held], space=endless)
    made = suffice.certify_global(problem, 0.1)
    assert made.success
    assert any(math.isinf(cell.high.max()) for cell in made.cells)
    assert false_proofs(problem, made, 20) == []
    inside = suffice.certify_global(two_from_zero(lower, held), 0.1)
    assert inside.success and inside.lower <= made.upper


BEGINNINGS = (0.0, 1e-300, 1e-3, 1e5, 1e300)
BUDGETS = [{"max_evaluations": most} for most in (1, 2, 3, 20)] + [{"max_seconds": 1e-6}]


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("kind", ["squares", "logistic"])
def test_what_is_proven_of_endless_ranges_holds_after_any_budget(kind, budget):
    for low in BEGINNINGS:
        ranges = [{"l1": (low, math.inf), "l2": (other, math.inf)} for other in BEGINNINGS]
        ranges += [{"l1": (low, math.inf), "l2": (1e-2, 1.0)}, {"l1": (1e-2, 1.0), "l2": (low, math.inf)}]
        for ends in ranges:
            problem = two_penalties(kind, 1, **ends)
            made = suffice.certify_global(problem, 0.01, options=suffice.GlobalOptions(**budget))
            assert 0.0 <= made.lower <= made.upper < math.inf
            assert all(math.isfinite(value) for value in made.params.values())
            for k, at in enumerate((1.0, 3.0, 30.0)):
                params = {name: min(max(a * at ** (k + 1), at, a), b) for name, (a, b) in ends.items()}
                theta = problem.space.theta({name: min(value, 1e307) for name, value in params.items()})
                assert made.lower <= problem.evaluate(theta, within=1e-9).interval[1]


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.0, 1.0), (0.5, 2.0)], ids=str)
@pytest.mark.parametrize("low", [1e-300, 1e-4, 1e5, 1e307])
def test_one_endless_penalty_is_bounded_by_one_look(low, shares, most):
    problem = one_fold("squares", *shares, ends=(low, math.inf))
    made = suffice.certify_global(problem, options=suffice.GlobalOptions(max_evaluations=most))
    assert 0.0 <= made.lower <= made.upper < math.inf
    assert problem.space.ranges["strength"][0] <= made.params["strength"] < math.inf


def test_cells_that_floats_cannot_cut_end_the_search():
    problem = two_penalties("squares", 1, l1=(1e-3, 1.0), l2=(1e306, math.inf))
    made = suffice.certify_global(problem, 1e-9, options=suffice.GlobalOptions(max_evaluations=60))
    assert made.lower <= made.upper < math.inf
    assert all((cell.low < math.inf).all() for cell in made.cells)


def two_from_zero(lower, held):
    return suffice.BilevelProblem([lower], [held], space=suffice.Space(l1=(0.0, 10.0, "log"), l2=(0.0, 10.0, "log")))


def test_budgets_end_it_with_what_is_proven_so_far():
    problem = CASES["both, tied"]()
    made = suffice.certify_global(problem, 1e-6, options=suffice.GlobalOptions(max_evaluations=7))
    assert not made.success and made.evaluations == 7 and "max_evaluations" in made.message
    assert 0.0 <= made.lower <= made.upper and false_proofs(problem, made, 20) == []
    gaps = [one.gap for one in suffice.certify_global(problem, 1e-2).history]
    assert gaps == sorted(gaps, reverse=True)


def test_a_callback_may_end_it():
    seen = []

    def stop(progress):
        seen.append(progress.gap)
        if len(seen) == 3:
            raise StopIteration

    made = suffice.certify_global(CASES["ridge"](), 1e-9, callback=stop)
    assert made.evaluations == 3 and "callback" in made.message


def test_a_journal_takes_up_what_was_interrupted(tmp_path):
    problem = CASES["both, tied"]()
    whole = suffice.certify_global(problem, 1e-3)
    few = suffice.GlobalOptions(max_evaluations=5)
    first = suffice.certify_global(problem, 1e-3, options=few, journal=tmp_path)
    assert first.evaluations == 5 and not first.success
    before = read(tmp_path).answers
    again = suffice.certify_global(problem, 1e-3, journal=tmp_path)
    assert (again.lower, again.upper, again.evaluations) == (whole.lower, whole.upper, whole.evaluations)
    after = read(tmp_path).answers
    assert after > before >= 5
    third = suffice.certify_global(problem, 1e-3, journal=tmp_path)
    assert third.cells[0].lower == whole.cells[0].lower
    assert read(tmp_path).answers == after  # nothing was looked at again
    with pytest.raises(suffice.JournalError, match="epsilon"):
        suffice.certify_global(problem, 1e-2, journal=tmp_path)


def test_what_cannot_be_certified_is_refused_with_what_can():
    X, y = data(0)
    space = suffice.Space(l1=(1e-3, 1.0), l2=(1e-3, 1.0))
    huber = suffice.BilevelProblem([problems.ElasticNetHuber(X, y)], [losses.SquaredError(X, y)], space=space)
    own = suffice.BilevelProblem([problems.ElasticNet(X, y)], [losses.SquaredDistance(np.zeros(6))], space=space)
    bent = suffice.BilevelProblem(
        [problems.ElasticNet(X, y)], [losses.SquaredError(X, y)], space=space, penalty=lambda params: [params["l1"]]
    )
    for problem in (huber, own, bent):
        with pytest.raises(UnsupportedError, match="squared, logistic or Poisson"):
            suffice.certify_global(problem)


def test_shares_that_are_not_true_are_refused():
    lying = one_fold("squares")
    lying.lower[0].shares = lambda names: {"strength": (0.0, 2.0)}
    with pytest.raises(UnsupportedError, match="other penalties"):
        suffice.certify_global(lying)


def test_where_minimisers_are_not_unique_nothing_is_proven():
    X, y = data(0)
    X[:40, 1] = X[:40, 0]  # equal among training rows, not among those held out
    lower = OnePenalty(problems.ElasticNet(X[:40], y[:40]), 1.0, 0.0)
    space = suffice.Space(strength=(1e-2, 1e2))
    problem = suffice.BilevelProblem([lower], [losses.SquaredError(X[40:], y[40:])], space=space)
    made = suffice.certify_global(problem, 1e-2, options=suffice.GlobalOptions(max_evaluations=60))
    assert not made.success and made.lower == 0.0  # F may be anything between what they have


def test_more_columns_than_a_hessian_has_room_for_need_an_l1():
    with pytest.raises(UnsupportedError, match="without an l1 all of 600 columns count"):
        suffice.certify_global(one_fold("squares", n=10, d=600))
    few = suffice.GlobalOptions(max_evaluations=2)
    made = suffice.certify_global(one_fold("squares", l1=1.0, l2=0.0, n=10, d=600, ends=(0.1, 10.0)), options=few)
    assert 0.0 < made.lower <= made.upper


def test_rows_with_offsets_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, o = rng.standard_normal((40, 3)), rng.standard_normal(40)
    y = rng.poisson(np.exp(0.3 * X[:, 0] + o)).astype(np.float64)
    model = problems.ElasticNetPoisson(X[:30], y[:30], offset=o[:30])
    space = suffice.Space(l1=(1e-3, 1.0), l2=(1e-3, 1.0))
    plain = losses.Deviance(X[30:], y[30:], POISSON)
    with pytest.raises(TypeError, match="offsets"):
        suffice.certify_global(suffice.BilevelProblem([model], [plain], space=space), epsilon=0.5)
