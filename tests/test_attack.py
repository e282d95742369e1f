"""No certificate is ever wrong: radii against minimisers that are enclosed to forty digits.

The whole campaign is `benchmarks/attack.py`; this is a small part of it, and each case that has ever been false.
"""

from fractions import Fraction

import numpy as np
import pytest

import suffice
from suffice import problems, terms
from suffice.solvers.certificate import RULES
from suffice.solvers.solver import iterate

pytest.importorskip("flint")

from flint import arb

from tests import attack_targets, attacks
from tests.reference import GroupNorms, Margins, minimise, norm
from tests.reference_balls import precision
from tests.reference_exact import truth


def false_claims(target, rng, **effort):
    found = [claim for claim in attacks.certificates(target, rng, **effort) if not isinstance(claim, str)]
    assert found
    return [f"{c.solver}, {c.rule}, {c.how}: {c.radius} < {float(c.distance)}" for c in found if c.false]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", attack_targets.KINDS)
def test_no_certificate_of_a_random_problem_is_false(kind, number):
    target, rng = attack_targets.target_of(kind, 7, number)
    assert false_claims(target, rng, steps=8, ways=5) == []


@pytest.mark.parametrize(
    ("solver", "rule"),
    [(solver, rule) for solver in attacks.LINEAR for rule in RULES if (solver, rule) != ("newton", "subgradient")],
)
def test_every_rule_of_every_solver_tells_the_truth_down_to_rounding(solver, rule):
    """From zero to where rounding is all that is left, for data that cancel."""
    for name in ("y against l1", "exact at zero"):
        target = attack_targets.CRAFTED[name]()
        for _, solution in zip(range(8), iterate(target.problem, solver=solver, certificate=rule), strict=False):
            assert target.minimiser.distance(solution.x) <= arb(solution.certificate.radius)


@pytest.mark.parametrize(
    "name", ["y against l1", "exact at zero", "underflow", "overflow", "flat and curved", "flat by default"]
)
def test_no_certificate_of_a_problem_made_by_hand_is_false(name):
    target = attack_targets.CRAFTED[name]()
    assert false_claims(target, np.random.default_rng(0), steps=20, ways=20) == []


def claim_of(solution, target):
    return target.minimiser.distance(solution.x) <= arb(solution.certificate.radius)


def test_what_cancels_in_the_first_gradient_is_rounding_too():
    target = attack_targets.cancelling_once()
    assert claim_of(suffice.solve(target.problem, steps=1, solver="fista"), target)


def test_a_gradient_at_zero_is_a_product_that_is_rounded_like_any_other():
    target = attack_targets.exact_at_zero()
    solution = suffice.solve(target.problem, within=1e-3)
    assert claim_of(solution, target)
    assert solution.reached == bool(target.minimiser.distance(solution.x) <= arb(1e-3))


@pytest.mark.parametrize(
    ("name", "solver", "within"), [("flat and curved", "fista_adaptive", 1e-12), ("flat by default", "auto", 1e-9)]
)
def test_a_step_that_was_accepted_with_a_slack_contracts_no_more_than_the_slack_allows(name, solver, within):
    target = attack_targets.CRAFTED[name]()
    solution = suffice.solve(target.problem, within=within, solver=solver, warm=target.start)
    assert claim_of(solution, target)


def test_radii_whose_squares_underflow_are_not_halved():
    target = attack_targets.underflowing()
    assert target.minimiser.distance([0.0]) <= arb(suffice.certify(target.problem, [0.0]).radius)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_gradient_beyond_the_range_of_floats_certifies_nothing():
    target = attack_targets.overflowing()
    assert suffice.certify(target.problem, target.start).radius == np.inf


def test_the_smallest_numbers_have_rounding_as_well():
    problem = problems.ElasticNet([[1.0]], [5e-324]).at(l1=0.0, l2=0.1)
    assert truth(problem).distance([5e-324]) <= arb(suffice.certify(problem, [5e-324]).radius)


@pytest.mark.parametrize("solver", ["fista", "gradient_descent", "newton"])
def test_errors_of_a_sum_that_all_have_one_sign_add_up(solver):
    target = attack_targets.rare_positives(10**5)
    solution = suffice.solve(target.problem, within=0.0, solver=solver, max_steps=30)
    assert claim_of(solution, target)


def test_errors_of_a_million_additions_are_not_their_square_root():
    target = attack_targets.rare_positives(10**6)
    assert claim_of(suffice.solve(target.problem, steps=8, solver="fista"), target)


# The reference itself.


def test_the_lasso_in_one_variable_is_known_in_closed_form():
    X, y, l1, l2 = [[1.5], [-0.1], [3.0]], [1.0, 2.0, 0.3], 0.1, 0.7
    problem = problems.ElasticNet(X, y).at(l1=l1, l2=l2)
    a = [Fraction(float(part)) for part in problem.smooth.design.weights]
    x = [Fraction(row[0]) for row in X]
    pull = sum(p * q * Fraction(r) for p, q, r in zip(a, x, y, strict=True)) - Fraction(l1)
    exact = pull / (sum(p * q * q for p, q in zip(a, x, strict=True)) + Fraction(l2))
    found = truth(problem)
    with precision(300):
        gap = abs(found.x[0] - arb(exact.numerator) / arb(exact.denominator))
        assert gap <= found.error + arb(10) ** -80
    assert found.error <= found.x[0] * arb(10) ** -40


@pytest.mark.parametrize("psi", ["squared", "logistic", "huber"])
def test_the_reference_in_extended_precision_lies_within_its_own_error(psi):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 5))
    y = np.where(X[:, 0] + rng.standard_normal(20) > 0, 1.0, -1.0) * (1.0 if psi == "logistic" else 2.0)
    problem = attack_targets.MODELS[psi](X, y).at(l1=0.05, l2=0.01)
    f = Margins(X, y, problem.smooth.design.weights, psi, 0.01)
    x_hat, error = minimise(f, GroupNorms([[j] for j in range(5)], [0.05] * 5), 0.01, problem.L, 5)
    assert float(truth(problem).distance(x_hat)) <= float(error) + 1e-16 * float(norm(x_hat))


def test_a_point_that_is_not_the_minimiser_is_told_from_it():
    problem = problems.ElasticNetHuber([[1.0, 2.0], [0.5, -1.0]], [1.0, 3.0]).at(l1=0.01, l2=0.1)
    found = truth(problem)
    nudged = found.rounded() * (1.0 + 2.0**-50)
    assert 2.0**-51 * found.size() < float(found.distance(nudged)) < 2.0**-49 * found.size()


def test_groups_and_boxes_are_enclosed_as_well():
    rng = np.random.default_rng(1)
    design = problems.ElasticNet(rng.standard_normal((12, 4)), np.zeros(12)).design
    smooth = terms.LinearModel(design, rng.standard_normal(12), terms.SQUARED, 0.1)
    for prox in (terms.Group([[0, 1], [2, 3]], [0.1, 0.2]), terms.Box(-0.1, [0.0, 0.1, 0.2, 0.3]), terms.NonNegative()):
        problem = suffice.Composite(smooth, prox, mu=0.1, L=smooth.L, size=4)
        solution = suffice.solve(problem, within=1e-10, solver="fista")
        assert float(truth(problem).distance(solution.x)) <= 1e-10
