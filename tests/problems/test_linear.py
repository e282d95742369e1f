"""The elastic-net problems against scikit-learn, SciPy and closed forms; labels, weights and what they refuse."""

import math
import re

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
import sklearn.linear_model

import suffice
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic, signs

N, D = 60, 12
rng = np.random.default_rng(7)
X = rng.standard_normal((N, D)) @ np.diag(np.geomspace(0.3, 3.0, D))
X[:, 3] = 0.0
X[:, 8] = 1.0
noise = rng.standard_normal(N)
y = X[:, :4] @ np.array([1.0, -2.0, 0.5, 1.0]) + 0.5 * noise
labels = np.where(y + noise > 0, 1, -1)
WEIGHTS = {"unweighted": None, "weighted": np.random.default_rng(8).integers(0, 4, N).astype(float)}
STORAGE = {"dense": np.asarray, "sparse": sp.csr_array}
PENALTIES = [(0.1, 0.01), (0.02, 0.5), (1e-3, 0.05), (0.0, 0.1)]
SOLVERS = ["fista", "fista_adaptive", "gradient_descent"]

by_data = pytest.mark.parametrize("storage", STORAGE.values(), ids=STORAGE.keys())
by_weight = pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS.keys())
by_penalty = pytest.mark.parametrize("l1, l2", PENALTIES)
by_solver = pytest.mark.parametrize("solver", SOLVERS)


@by_solver
@by_data
@by_weight
@by_penalty
def test_least_squares_agrees_with_scikit_learn(l1, l2, weight, storage, solver):
    theirs = sklearn.linear_model.ElasticNet(
        alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), fit_intercept=False, tol=1e-12, max_iter=100_000
    ).fit(X, y, sample_weight=weight)
    ours = suffice.solve(ElasticNet(storage(X), y, sample_weight=weight).at(l1=l1, l2=l2), within=1e-7, solver=solver)
    assert np.abs(ours.x - theirs.coef_).max() <= 1e-5


@by_data
@by_weight
@by_penalty
def test_logistic_regression_agrees_with_scikit_learn(l1, l2, weight, storage):
    # Repeated rows in place of weights: with weights, saga's own convergence is poor.
    rows = np.arange(N) if weight is None else np.repeat(np.arange(N), weight.astype(int))
    theirs = sklearn.linear_model.LogisticRegression(
        C=1.0 / (len(rows) * (l1 + l2)),
        l1_ratio=l1 / (l1 + l2),
        solver="saga",
        fit_intercept=False,
        tol=1e-9,
        max_iter=100_000,
        random_state=0,
    ).fit(X[rows], labels[rows])
    problem = ElasticNetLogistic(storage(X), labels, sample_weight=weight).at(l1=l1, l2=l2)
    for solver in SOLVERS:
        assert np.abs(suffice.solve(problem, within=1e-7, solver=solver).x - theirs.coef_[0]).max() <= 1e-5


@by_weight
@by_penalty
def test_huber_regression_agrees_with_scipy(l1, l2, weight):
    a = np.full(N, 1.0) if weight is None else weight
    a = a / a.sum()

    def smooth(w):
        r = X @ w - y
        size = np.abs(r)
        value = a @ np.where(size <= 0.7, 0.5 * r**2, 0.7 * (size - 0.35)) + 0.5 * l2 * w @ w
        return value, X.T @ (a * np.clip(r, -0.7, 0.7)) + l2 * w

    def split(uv):  # w = u - v with u, v >= 0 makes the l1 norm linear
        value, gradient = smooth(uv[:D] - uv[D:])
        return value + l1 * uv.sum(), np.r_[gradient + l1, -gradient + l1]

    theirs = scipy.optimize.minimize(
        split,
        np.zeros(2 * D),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * (2 * D),
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 40},
    ).x
    ours = suffice.solve(ElasticNetHuber(X, y, delta=0.7, sample_weight=weight).at(l1=l1, l2=l2), within=1e-8)
    assert np.abs(ours.x - (theirs[:D] - theirs[D:])).max() <= 1e-5


@by_solver
@pytest.mark.parametrize("l1, l2", [(0.3, 0.2), (1e-3, 5.0), (0.0, 1e-2), (5.0, 0.1)])
def test_an_orthonormal_design_has_a_closed_form(l1, l2, solver):
    Q = np.linalg.qr(np.random.default_rng(3).standard_normal((N, D)))[0] * math.sqrt(N)  # Q.T Q / N = 1
    correlation = Q.T @ y / N
    expected = np.sign(correlation) * np.maximum(np.abs(correlation) - l1, 0.0) / (1.0 + l2)
    solution = suffice.solve(ElasticNet(Q, y).at(l1=l1, l2=l2), within=1e-10, solver=solver)
    assert solution.reached
    assert np.linalg.norm(solution.x - expected) <= 1e-10


MODELS = {
    "squared": lambda storage, weight: ElasticNet(storage(X), y, sample_weight=weight),
    "logistic": lambda storage, weight: ElasticNetLogistic(storage(X), labels, sample_weight=weight),
    "huber": lambda storage, weight: ElasticNetHuber(storage(X), y, delta=0.3, sample_weight=weight),
}
by_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


@by_solver
@by_data
@by_weight
@by_model
@pytest.mark.parametrize("l2", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("excess", [1.0, 1.0 + 1e-15, 3.0])
def test_from_l1_max_on_the_solution_is_exactly_zero_and_one_step_proves_it(model, storage, weight, l2, excess, solver):
    family = model(storage, weight)
    solution = suffice.solve(family.at(l1=excess * family.l1_max, l2=l2), within=0.0, solver=solver)
    assert solution.outcome is suffice.Outcome.REACHED
    assert np.array_equal(solution.x, np.zeros(D))
    assert (solution.certificate.radius, solution.steps) == (0.0, 1)


@by_data
@by_weight
@by_model
def test_below_l1_max_the_solution_is_not_zero(model, storage, weight):
    family = model(storage, weight)
    assert suffice.solve(family.at(l1=family.l1_max * (1 - 1e-6), l2=0.1), within=1e-12, max_steps=50_000).x.any()


@by_model
def test_the_problem_has_the_constants_of_its_penalties(model):
    family = model(np.asarray, None)
    problem = family.at(l1=0.3, l2=0.7)
    assert family.size == problem.size == D
    assert problem.mu == 0.7
    assert problem.smooth.loss.curvature * family.design.squared_norm + 0.7 == problem.L
    assert problem.prox == suffice.terms.L1(0.3)


@by_model
def test_the_same_penalties_give_an_equal_problem(model):
    family = model(np.asarray, None)
    assert family.at(l1=0.3, l2=0.7) == family.at(l1=0.3, l2=0.7) != family.at(l1=0.3, l2=0.8)


def test_integer_weights_are_repetitions():
    weight = WEIGHTS["weighted"]
    again = np.repeat(np.arange(N), weight.astype(int))
    one = suffice.solve(ElasticNet(X, y, sample_weight=weight).at(l1=0.1, l2=0.1), within=1e-10)
    other = suffice.solve(ElasticNet(X[again], y[again]).at(l1=0.1, l2=0.1), within=1e-10)
    assert np.linalg.norm(one.x - other.x) <= 2e-10


def test_problems_may_share_one_design():
    first = ElasticNetLogistic(X, labels)
    second = ElasticNet(first.design, y)
    assert second.design is first.design
    alone = suffice.solve(ElasticNet(X, y).at(l1=0.1, l2=0.1), within=1e-6)
    assert np.array_equal(suffice.solve(second.at(l1=0.1, l2=0.1), within=1e-6).x, alone.x)


ENCODINGS = {
    "signs": (labels, [-1, 1]),
    "bits": ((labels + 1) // 2, [0, 1]),
    "booleans": (labels > 0, [False, True]),
    "floats": (labels * 2.5, [-2.5, 2.5]),
    "strings": (np.where(labels > 0, "yes", "no"), ["no", "yes"]),
    "a list": ([("b" if label > 0 else "a") for label in labels], ["a", "b"]),
    "objects": (np.where(labels > 0, "yes", "no").astype(object), ["no", "yes"]),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_labels_may_be_any_two_values_and_the_larger_is_positive(name):
    encoded, classes = ENCODINGS[name]
    model = ElasticNetLogistic(X, encoded)
    assert np.array_equal(model.y, labels)
    assert model.classes.tolist() == classes
    assert np.array_equal(signs(encoded)[0], labels)


def test_targets_belong_to_the_problem():
    mine = y.copy()
    model = ElasticNet(X, mine)
    mine[:] = 0.0
    assert np.array_equal(model.y, y) and not model.y.flags.writeable


NOT_FINITE = np.where(np.arange(N) == 5, math.nan, y)


@pytest.mark.parametrize(
    "build, error, message",
    [
        (lambda: ElasticNet(np.where(X == 0, math.nan, X), y), ValueError, "X must be finite, got NaN or infinite"),
        (lambda: ElasticNet(X, y[:-1]), ValueError, "y must have shape (60,) to match X, got (59,)"),
        (lambda: ElasticNet(X, X), ValueError, "y must have shape (60,) to match X, got (60, 12)"),
        (lambda: ElasticNet(X, NOT_FINITE), ValueError, "y must be finite, got NaN or infinite entries"),
        (lambda: ElasticNet(X, np.where(y > 0, "a", "b")), TypeError, "y must be numeric, got dtype <U1"),
        (lambda: ElasticNet(X, y, sample_weight=-np.ones(N)), ValueError, "sample_weight must be finite, non-negative"),
        (
            lambda: ElasticNet(X, y, sample_weight=np.ones(3)),
            ValueError,
            "sample_weight must have shape (60,), got (3,)",
        ),
        (lambda: ElasticNetHuber(X, y, delta=-1.0), ValueError, "delta must be positive and finite, got -1.0"),
        (lambda: ElasticNetLogistic(X, np.ones(N)), ValueError, "y must hold exactly two distinct labels, got 1: 1.0"),
        (lambda: ElasticNetLogistic(X, np.arange(N) % 3), ValueError, "exactly two distinct labels, got 3: 0, 1, 2"),
        (lambda: ElasticNetLogistic(X, NOT_FINITE), ValueError, "y must hold two distinct labels, got NaN"),
        (lambda: ElasticNetLogistic(X, labels[1:]), ValueError, "y must have shape (60,) to match X, got (59,)"),
        (lambda: ElasticNet(X, y).at(l1=-1.0, l2=1.0), ValueError, "l1 must be non-negative and finite, got -1.0"),
        (lambda: ElasticNet(X, y).at(l1=math.nan, l2=1.0), ValueError, "l1 must be non-negative and finite, got nan"),
        (lambda: ElasticNet(X, y).at(l1=1.0, l2=-1.0), ValueError, "l2 must be non-negative and finite, got -1.0"),
        (lambda: ElasticNet(X, y).at(l1=1.0, l2=math.inf), ValueError, "l2 must be non-negative and finite, got inf"),
        (lambda: ElasticNet(X, y).at(l1="a", l2=1.0), TypeError, "l1 must be a real number, got 'a'"),
    ],
)
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build()
