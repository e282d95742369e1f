"""Kernel machines: radii against exact machines in ball arithmetic, and what they rest on."""

import math

import numpy as np
import pytest
from flint import arb, arb_mat
from hypothesis import given
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from suffice.kernels.machines import Kernel, SupportVectors, certified_ridge, ridge_machine
from tests.reference_balls import precision

BITS = 300
KERNELS = {
    "rbf": (Kernel("rbf"), lambda x, z, g: (-g * sum(((a - b) ** 2 for a, b in zip(x, z, strict=True)), arb(0))).exp()),
    "laplacian": (
        Kernel("laplacian"),
        lambda x, z, g: (-g * sum((abs(a - b) for a, b in zip(x, z, strict=True)), arb(0))).exp(),
    ),
    "linear": (Kernel("linear"), lambda x, z, g: sum((a * b for a, b in zip(x, z, strict=True)), arb(0))),
    "poly": (
        Kernel("poly", degree=3, coef0=0.5),
        lambda x, z, g: (g * sum((a * b for a, b in zip(x, z, strict=True)), arb(0)) + arb(0.5)) ** 3,
    ),
}


def rows(count=14, columns=3, seed=0, centre=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, columns))
    y = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.7 * rng.standard_normal(count)
    return X + centre, y


def exact_matrix(name, X, Z, gamma):
    X, Z = ([[arb(float(a)) for a in row] for row in part] for part in (X, Z))
    return arb_mat([[KERNELS[name][1](x, z, arb(gamma)) for z in Z] for x in X])


@pytest.mark.parametrize("centre", [0.0, 1e3])
@pytest.mark.parametrize("name", KERNELS)
def test_matrices_of_kernels_err_by_no_more_than_they_say(name, centre):
    X, _ = rows(centre=centre)
    gamma = 0.3 if centre == 0.0 else 1e-4
    gram = KERNELS[name][0].matrix(X[:8], X, gamma)
    with precision(BITS):
        true = exact_matrix(name, X[:8], X, gamma)
        apart = [[abs(arb(float(gram.K[i, j])) - true[i, j]) for j in range(14)] for i in range(8)]
        assert all(apart[i][j] <= arb(float(gram.E[i, j])) for i in range(8) for j in range(14))
        beta = np.random.default_rng(1).standard_normal(8)
        f, doubt = gram.product(beta)
        for j in range(14):
            value = sum((arb(float(b)) * true[i, j] for i, b in enumerate(beta)), arb(0))
            assert abs(arb(float(f[j])) - value) <= arb(float(doubt[j]))
    assert gram.E.max() <= 1e-13 * max(1.0, float(np.abs(gram.K).max()))


def machine(problem, tol, polish=False):
    made, _ = problem.trained(tol, math.inf)
    return problem.polished(made) if polish else made


def exact_machine(problem, K, near):
    """beta and b of the exact machine, from the signed support of one near by; conditions are checked strictly."""
    y, C, n = problem.y, problem.C, len(problem.y)
    lower, upper = problem.bounds
    free = (near > lower + 1e-7 * C) & (near < upper - 1e-7 * C) & (np.abs(near) > 1e-7 * C)
    F = np.flatnonzero(free)
    assert len(F) > 0
    fixed = [
        arb(0) if i in F or abs(near[i]) <= 1e-7 * C[i] else arb(float(math.copysign(C[i], near[i]))) for i in range(n)
    ]
    epsilon = arb(problem.epsilon or 0.0)
    target = [arb(float(y[i])) - epsilon * (1 if near[i] > 0 else -1) for i in range(n)]
    A = arb_mat([[*(K[i, j] for j in F), 1] for i in F] + [[*(1 for _ in F), 0]])
    right = [target[i] - sum((K[i, j] * fixed[j] for j in range(n)), arb(0)) for i in F]
    found = A.solve(arb_mat([[r] for r in right] + [[-sum(fixed, arb(0))]]))
    beta = list(fixed)
    for k, i in enumerate(F):
        beta[i] = found[k, 0]
        assert arb(float(lower[i])) < beta[i] < arb(float(upper[i]))
    b = found[len(F), 0]
    for i in set(range(n)) - set(F.tolist()):
        m = sum((K[i, j] * beta[j] for j in range(n)), arb(0)) + b
        rest = arb(float(y[i])) - m
        if problem.epsilon is None:
            assert (rest * arb(float(y[i])) > 0) == (near[i] != 0.0)
        else:
            outside = (rest > epsilon) if near[i] > 0 else (rest < -epsilon)
            assert outside if abs(near[i]) > 1e-7 * C[i] else abs(rest) < epsilon
    return beta, b


def distance(K, one, other):
    apart = [arb(float(a)) - b for a, b in zip(one, other, strict=True)]
    n = len(apart)
    square = sum((apart[i] * K[i, j] * apart[j] for i in range(n) for j in range(n)), arb(0))
    return square.abs_upper().sqrt()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [0.3, 30.0])
@pytest.mark.parametrize("epsilon", [None, 0.2])
@pytest.mark.parametrize("name", ["rbf", "poly"])
def test_radii_and_intercepts_hold_against_the_exact_machine(name, epsilon, C, weighted):
    X, y = rows()
    y = np.where(y > np.median(y), 1.0, -1.0) if epsilon is None else y
    s = np.random.default_rng(3).uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    problem = SupportVectors(KERNELS[name][0].matrix(X, X, 0.4), y, C * s, epsilon)
    near = machine(problem, 1e-12, polish=True)
    with precision(BITS):
        K = exact_matrix(name, X, X, 0.4)
        beta, b = exact_machine(problem, K, near.beta)
        for tol in (1.0, 1e-1, 1e-3, 1e-9):
            for polish in (False, True):
                made = machine(problem, tol, polish)
                away = distance(K, made.beta, beta)
                assert away <= arb(made.radius)
                assert abs(arb(made.b) - b) <= arb(made.reach * made.radius + made.slack)
        assert near.radius <= 1e-4 * C


@given(st.integers(0, 10**6), st.sampled_from([None, 0.1]), st.floats(-3, 4))
def test_feasible_weights_are_so_to_the_last_bit(seed, epsilon, decade):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) if epsilon is None else rng.standard_normal(n)
    problem = SupportVectors(None, y, 10.0**decade * rng.uniform(0.1, 3.0, n), epsilon)
    lower, upper = problem.bounds
    beta = problem.feasible(rng.uniform(2.0 * lower, 2.0 * upper) * 10.0 ** -rng.uniform(0, 8))
    assert math.fsum(beta) == 0.0
    assert np.all((lower <= beta) & (beta <= upper))


def test_an_intercept_without_free_support_vectors_is_libsvms():
    X, y = rows(count=20)
    y = np.where(y > np.median(y), 1.0, -1.0)
    gram = Kernel("rbf").matrix(X, X, 0.2)
    model = SVC(kernel="precomputed", C=1e-3, tol=1e-12).fit(gram.K, y)
    problem = SupportVectors(gram, y, np.full(20, 1e-3), None)
    beta = np.zeros(20)
    beta[model.support_] = model.dual_coef_[0]
    assert np.all(np.abs(beta) == 1e-3)  # all of them are at their bound
    assert problem.certified(problem.feasible(beta)).b == pytest.approx(float(model.intercept_[0]), abs=1e-9)


def test_polishing_leads_from_a_rough_solution_to_one_that_only_rounding_bounds():
    X, y = rows(count=60)
    problem = SupportVectors(Kernel("rbf").matrix(X, X, 0.4), y, np.full(60, 2.0), 0.1)
    rough, fine = (machine(problem, 1e-3, polish) for polish in (False, True))
    assert rough.radius > 1e-2
    assert fine.radius <= 3e-6  # the root of what rounding adds to the gap


@pytest.mark.parametrize("alpha", [1e-4, 1.0])
@pytest.mark.parametrize("name", KERNELS)
def test_ridge_is_scikit_learns_and_its_radius_holds(name, alpha):
    X, y = rows()
    s = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    gram = KERNELS[name][0].matrix(X, X, 0.4)
    made = ridge_machine(gram, y, s, alpha)
    theirs = KernelRidge(alpha=alpha, kernel="precomputed").fit(gram.K, y, sample_weight=s)
    assert np.allclose(gram.K @ made.beta, gram.K @ theirs.dual_coef_, atol=1e-8)
    with precision(BITS):
        K = exact_matrix(name, X, X, 0.4)
        n = len(y)
        A = arb_mat([[K[i, j] + (arb(alpha) / arb(float(s[i])) if i == j else 0) for j in range(n)] for i in range(n)])
        exact = A.solve(arb_mat([[arb(float(value))] for value in y]))
        beta = [exact[i, 0] for i in range(n)]
        assert distance(K, made.beta, beta) <= arb(made.radius)
        off = made.beta + 1e-6 * np.random.default_rng(5).standard_normal(n)
        assert distance(K, off, beta) <= arb(certified_ridge(gram, off, y, s, alpha).radius)
    assert made.radius <= 1e-6


def test_a_kernel_that_is_not_positive_is_refused():
    for wrong in ({"kind": "sigmoid"}, {"kind": "poly", "coef0": -1.0}, {"kind": "poly", "degree": 2.5}):
        with pytest.raises(ValueError):
            Kernel(**wrong)
