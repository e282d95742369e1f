"""Hostile input: a correct answer with a valid certificate, or a clear error; nothing in between."""

import math
import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from suffice import BilevelProblem, Evaluation, Options, Space, losses, problems, solve, terms, tune
from suffice.solvers.problem import Composite
from tests.reference import GroupNorms, Margins, minimise, norm

rng = np.random.default_rng(7)
BASE = rng.standard_normal((20, 5))
LABELS = BASE[:, 0] + 0.5 * rng.standard_normal(20) > 0
TARGETS = BASE @ np.arange(5.0) + rng.standard_normal(20)
SEPARABLE = np.sign(BASE[:, :1]) * np.abs(BASE)  # the first column decides


def read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def mapped(X):
    import tempfile

    file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the map)
    memory = np.memmap(file, dtype=X.dtype, mode="w+", shape=X.shape)
    memory[:] = X
    return memory


MATRICES = {
    "huge": 1e100 * BASE,
    "very huge": 1e140 * BASE,
    "tiny": 1e-100 * BASE,
    "very tiny": 1e-140 * BASE,
    "subnormal": 1e-310 * BASE,
    "scales from 1e-8 to 1e8": BASE * np.geomspace(1e-8, 1e8, 5),
    "rows from 1e-8 to 1e8": BASE * np.geomspace(1e-8, 1e8, 20)[:, None],
    "duplicated columns": BASE[:, [0, 0, 1, 1, 1]],
    "opposite columns": np.column_stack([BASE[:, 0], -BASE[:, 0]]),
    "zero rows": BASE * (np.arange(20) % 3 == 0)[:, None],
    "zero columns": BASE * [1, 0, 1, 0, 0],
    "zero": np.zeros((20, 5)),
    "one column": BASE[:, :1],
    "more columns than rows": rng.standard_normal((20, 60)),
    "float32": BASE.astype("f4"),
    "float16": BASE.astype("f2"),
    "integers": (10 * BASE).astype("i8"),
    "bytes": rng.integers(0, 256, (20, 5)).astype("u1"),
    "booleans": BASE > 0,
    "big endian": BASE.astype(">f8"),
    "long double": BASE.astype(np.longdouble),
    "fortran": np.asfortranarray(BASE),
    "strided": np.repeat(BASE, 2, axis=1)[:, ::2],
    "reversed": BASE[::-1, ::-1],
    "read-only": read_only(BASE),
    "memory-mapped": mapped(BASE),
    "lists": BASE.tolist(),
    "sparse": sp.coo_array(BASE * (BASE > 0)),
    "sparse with duplicates": sp.coo_array((np.ones(40), (np.r_[:20, :20], np.r_[:20, :20] % 5)), shape=(20, 5)),
    "sparse of integers": sp.csc_array((10 * BASE).astype("i4")),
}
MODELS = {
    "logistic": (problems.ElasticNetLogistic, LABELS, "logistic"),
    "squared": (problems.ElasticNet, TARGETS, "squared"),
    "huber": (problems.ElasticNetHuber, TARGETS, "huber"),
}


def dense(X):
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)


@cache
def truth(name, model, l1, l2):
    """The minimiser in extended precision, and its error."""
    X = dense(MATRICES[name])
    _, y, psi = MODELS[model]
    y = np.where(y, 1.0, -1.0) if psi == "logistic" else y
    f = Margins(X, y, np.full(20, 0.05), psi, l2)
    L = float(np.linalg.norm(X / max(np.abs(X).max(), 1e-300), 2) ** 2 * max(np.abs(X).max(), 1e-300) ** 2) + l2
    return minimise(f, GroupNorms([[j] for j in range(X.shape[1])], [l1] * X.shape[1]), l2, L, X.shape[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", MATRICES)
def test_any_matrix_of_numbers_is_solved_with_a_valid_certificate(name, model):
    """Penalties follow the data's scale, so that solutions do not vanish."""
    make, y, _ = MODELS[model]
    size = max(float(np.abs(dense(MATRICES[name])).max()), 1e-300)
    size = size if size > 1e-150 else 1.0
    l1, l2 = 1e-3 * size, 1e-2 * size**2
    problem = make(MATRICES[name], y).at(l1=l1, l2=l2)
    solution = solve(problem, within=1e-6 / size, solver="fista_adaptive", max_steps=20_000)
    x_hat, error = truth(name, model, l1, l2)
    assert np.isfinite(solution.x).all()
    assert norm(solution.x - x_hat) <= solution.certificate.radius + error
    assert solution.reached or solution.certificate.radius > 1e-6 / size


@pytest.mark.parametrize("within", [1e-2, 1e-6, 0.0])
@pytest.mark.parametrize("l2", [1e-12, 1e-8, 1e-4])
def test_separable_data_with_hardly_any_penalty_are_proven_or_told(l2, within):
    problem = problems.ElasticNetLogistic(SEPARABLE, BASE[:, 0] > 0).at(l1=0.0, l2=l2)
    solution = solve(problem, within=within, solver="fista_adaptive", max_steps=3_000)
    f = Margins(SEPARABLE, np.sign(BASE[:, 0]), np.full(20, 0.05), "logistic", l2)
    x_hat, error = minimise(f, GroupNorms([], []), l2, problem.L, 5)
    assert norm(solution.x - x_hat) <= solution.certificate.radius + error
    assert solution.reached == (solution.certificate.radius <= within)


@pytest.mark.parametrize("rows", [1, 2])
def test_one_sample_is_enough_for_regression(rows):
    X, y = BASE[:rows], TARGETS[:rows]
    solution = solve(problems.ElasticNet(X, y).at(l1=0.0, l2=0.5), within=1e-10)
    exact = np.linalg.solve(X.T @ X / rows + 0.5 * np.eye(5), X.T @ y / rows)
    assert np.linalg.norm(solution.x - exact) <= 1e-10 + 1e-13


PARTS = problems.ElasticNet(BASE, TARGETS).design, TARGETS, terms.SQUARED, 1.0


def composite(prox, size=5):
    smooth = terms.LinearModel(*PARTS)
    return Composite(smooth, prox, mu=1.0, L=smooth.L, size=size)


TEXT: Any = ("a", "b")
NAN, INF = BASE.copy(), BASE.copy()
NAN[3, 2], INF[4, 0] = math.nan, math.inf
OBJECTS = np.array([[1.0, "two"], [3.0, None]], dtype=object)
ERRORS = [
    ("NaN", lambda: problems.ElasticNet(NAN, TARGETS), "X must be finite"),
    ("infinite", lambda: problems.ElasticNet(INF, TARGETS), "X must be finite"),
    ("sparse NaN", lambda: problems.ElasticNet(sp.csr_array(NAN), TARGETS), "X must be finite"),
    ("mapped NaN", lambda: problems.ElasticNet(mapped(NAN), TARGETS), "X must be finite"),
    ("float32 overflow", lambda: problems.ElasticNet((1e300 * BASE).astype("f4"), TARGETS), "X must be finite"),
    ("objects", lambda: problems.ElasticNet(OBJECTS, [1, 2]), "X must be a matrix of real numbers"),
    ("text", lambda: problems.ElasticNet([["a", "b"]], [1]), "X must be a matrix of real numbers"),
    ("complex", lambda: problems.ElasticNet(BASE + 0j, TARGETS), "real numbers"),
    ("dates", lambda: problems.ElasticNet(np.zeros((2, 2), "M8[s]"), [1, 2]), "X must be a matrix of real numbers"),
    ("vector", lambda: problems.ElasticNet(BASE[0], TARGETS), "X must be a matrix"),
    ("cube", lambda: problems.ElasticNet(BASE[None], TARGETS), "X must be a matrix"),
    ("no rows", lambda: problems.ElasticNet(BASE[:0], []), "at least one row"),
    ("no columns", lambda: problems.ElasticNet(BASE[:, :0], TARGETS), "at least one row and column"),
    ("too large", lambda: problems.ElasticNet(1e200 * BASE, TARGETS).at(l1=1.0, l2=1.0), "X is too large"),
    ("targets NaN", lambda: problems.ElasticNet(BASE, np.full(20, math.nan)), "y must be finite"),
    ("targets text", lambda: problems.ElasticNet(BASE, ["a"] * 20), "y must be numeric"),
    ("targets too few", lambda: problems.ElasticNet(BASE, TARGETS[1:]), r"y must have shape \(20,\)"),
    ("one class", lambda: problems.ElasticNetLogistic(BASE, np.ones(20)), "exactly two distinct labels, got 1"),
    ("one sample", lambda: problems.ElasticNetLogistic(BASE[:1], [1]), "exactly two distinct labels, got 1"),
    ("three classes", lambda: problems.ElasticNetLogistic(BASE, np.arange(20) % 3), "two distinct labels, got 3"),
    ("labels NaN", lambda: problems.ElasticNetLogistic(BASE, np.where(LABELS, 1.0, math.nan)), "got NaN"),
    ("weights text", lambda: problems.ElasticNet(BASE, TARGETS, sample_weight=["a"] * 20), "sample_weight must be num"),
    ("weights NaN", lambda: problems.ElasticNet(BASE, TARGETS, sample_weight=[math.nan] * 20), "sample_weight must be"),
    ("weights zero", lambda: problems.ElasticNet(BASE, TARGETS, sample_weight=np.zeros(20)), "not all zero"),
    ("l2 negative", lambda: problems.ElasticNet(BASE, TARGETS).at(l1=0.0, l2=-1.0), "l2 must be non-negative"),
    ("l1 NaN", lambda: problems.ElasticNet(BASE, TARGETS).at(l1=math.nan, l2=1.0), "l1 must be non-negative"),
    ("group beyond", lambda: composite(terms.Group([[0, 7]], 1.0)), "groups must hold indices below 5.*got 7"),
    ("group mask", lambda: terms.Group([[True, False]], 1.0), "groups must hold integers, got bool"),
    ("group weights", lambda: terms.Group([[0], [1]], [1.0, 2.0, 3.0]), "weights must be a number or 2 numbers"),
    ("box length", lambda: composite(terms.Box(np.zeros(4), 1.0)), r"lower must be a number or have shape \(5,\)"),
    ("box lengths", lambda: terms.Box(np.zeros(4), np.ones(5)), "vectors of one length"),
    ("box text", lambda: terms.Box(*TEXT), "lower and upper must be numeric"),
    (
        "size",
        lambda: Composite(terms.LinearModel(*PARTS), terms.Zero(), mu=1.0, L=1.0, size=True),
        "size must be a pos",
    ),
    ("steps and max_steps", lambda: solve(composite(terms.Zero()), steps=3, max_steps=5), "max_steps goes with within"),
    ("absent label", lambda: losses.Brier(BASE, LABELS, positive="yes"), "positive must be one of y's labels"),
    ("w NaN", lambda: losses.Brier(BASE, LABELS).at(np.full(5, math.nan)), "w must be finite"),
    ("w length", lambda: losses.LogLoss(BASE, LABELS).at(np.zeros(4)), r"w must have shape \(5,\)"),
]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("build", "message"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
def test_anything_else_is_named(build, message):
    with pytest.raises((ValueError, TypeError, OverflowError), match=message):
        build()


@pytest.mark.parametrize("prox", [terms.Group([[0, 9]], 1.0), terms.Box(np.zeros(3), 1.0)], ids=["group", "box"])
def test_a_term_of_the_wrong_size_is_named_when_the_size_comes_with_the_start(prox):
    smooth = terms.LinearModel(*PARTS)
    with pytest.raises(ValueError, match=r"below 5|shape \(5,\)"):
        solve(Composite(smooth, prox, mu=1.0, L=smooth.L), within=1e-3, warm=np.zeros(5))


def test_held_out_data_may_hold_one_class_only():
    for y, share in ((np.zeros(20, bool), 0.25), (np.ones(20, bool), 0.25)):
        assert losses.Brier(BASE, y, positive=True).at(np.zeros(5)).residual ** 2 == pytest.approx(share * 20)


@pytest.mark.parametrize("name", ["tiny", "huge", "duplicated columns", "zero", "one column", "more columns than rows"])
def test_hostile_data_can_be_tuned(name):
    X = MATRICES[name]
    size = max(float(np.abs(X).max()), 1e-100)
    size = size if np.any(X) else 1.0
    space = Space(l1=(1e-4 * size, size), l2=(1e-4 * size**2, size**2))
    problem = BilevelProblem(
        [problems.ElasticNetLogistic(X, LABELS)], [losses.Brier(X, LABELS)], space=space, solver="fista_adaptive"
    )
    result = tune(problem, {"l1": 0.1 * size, "l2": 0.1 * size**2}, options=Options(max_evaluations=12))
    low, high = problem.evaluate(result.theta, within=1e-8).interval
    assert result.interval[0] <= high and low <= result.interval[1]


# --- memory


class Reluctant:
    """An oracle that makes a point more accurate by a tenth at a time, with solutions of some size."""

    def evaluate(self, theta, *, within, warm=None):
        known = warm is not None and np.array_equal(warm.point, theta)
        error = max(within, 0.89 * warm.e[0] if known else 1.0)
        residuals = [10.0 * (theta[1] - theta[0] ** 2), 1.0 - theta[0], 0.3]
        return Evaluation(theta, residuals, np.full(3, error), work=1, solutions=(np.zeros(2_000),))


def bytes_after(evaluations):
    options = Options(max_evaluations=evaluations, final_radius=1e-9)
    tracemalloc.start()
    result = tune(Reluctant(), [-1.2, 1.0], options=options)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert result.evaluations == evaluations
    return used


def test_memory_grows_by_the_history_alone():
    few, many = bytes_after(150), bytes_after(400)
    assert (many - few) / 250 < 4_000  # a record, and not the 16,000 bytes of a solution
