"""Prox-Newton: its model, its Hessians and what they take, its ends; problems without a Lipschitz constant."""

import json
import math
import tracemalloc
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model
from hypothesis import given
from hypothesis import strategies as st

from suffice import Composite, Outcome, certify, iterate, solve
from suffice.journal.codec import decode, encode
from suffice.penalties.prox import l1_least_subgradient
from suffice.problems import ElasticNet, ElasticNetHuber, ElasticNetLogistic, ElasticNetPoisson
from suffice.rows.design import Design
from suffice.solvers import auto, hessian
from suffice.solvers import solver as solver_module
from suffice.solvers.fista import FistaState
from suffice.solvers.minimise import from_face_to_face, minimise_model
from suffice.solvers.newton import NewtonState
from suffice.solvers.quadratic import Matrix
from suffice.terms import L1, SQUARED, LinearModel, Zero
from tests.reference import GroupNorms, Margins, OwnSmooth, minimise, norm


def data(rows=1500, columns=120, seed=0, sparse=None):
    """Correlated columns, of which every tenth has an effect."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) + 2.0 * rng.standard_normal((rows, 1))
    if sparse:
        X = sparse(np.where(rng.random(X.shape) < 0.2, X, 0.0))
    return X, X @ np.where(np.arange(columns) % 10 == 0, 1.0, 0.0) + rng.standard_normal(rows)


X, Y = data()
FAMILIES = {
    "squared": ElasticNet(X, Y),
    "logistic": ElasticNetLogistic(X, Y > 0),
    "huber": ElasticNetHuber(X, Y),
    "poisson": ElasticNetPoisson(X / 10, np.round(np.abs(Y))),
}
by_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


# How fast it is, in steps


@by_family
@pytest.mark.parametrize("l1, l2", [(0.05, 1e-2), (0.01, 1e-4), (0.0, 1e-3), (1e3, 1.0)])
def test_some_twenty_steps_do(family, l1, l2):
    solution = solve(family.at(l1=l1, l2=l2), within=2e-6, solver="newton")
    assert solution.reached and solution.steps <= 20


def spectra(seed=2, rows=150, columns=120, width=0.15):
    """Sums of eight Gaussian bumps: columns are collinear but for a little noise."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0.0, 1.0, 8)[:, None]
    bumps = np.exp(-0.5 * ((np.linspace(0.0, 1.0, columns) - centres) / width) ** 2)
    scores = rng.gamma(2.0, 1.0, (rows, 8))
    Z = scores @ bumps + 2e-3 * rng.standard_normal((rows, columns))
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    y = 3.0 * scores[:, 0] + 0.2 * rng.standard_normal(rows)
    return Z, y - y.mean()


@pytest.mark.parametrize("share", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("kind", ["squares", "labels", "counts"])
def test_collinear_columns_take_few_steps_without_any_l2(kind, share):
    Z, y = spectra()
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * y))
    made = {"squares": ElasticNet(Z, y), "labels": ElasticNetLogistic(Z, y > 0), "counts": ElasticNetPoisson(Z, counts)}
    slope = {"squares": y, "labels": (y > 0) - 0.5, "counts": counts - 1.0}[kind]
    l1 = share * np.abs(Z.T @ slope).max() / len(y)
    solution = solve(made[kind].at(l1=l1, l2=0.0), within=1e-3, solver="newton", max_steps=80)
    assert solution.certificate.rule == "verified" and solution.certificate.radius <= 1e-3


def test_least_squares_on_a_complete_working_set_are_one_model_or_two():
    small = ElasticNet(X[:400, :50], Y[:400])
    for l1, most in ((0.0, 1), (0.1, 2)):
        assert solve(small.at(l1=l1, l2=1e-3), within=1e-6, solver="newton").steps <= most


@by_family
def test_a_warm_start_saves_steps(family):
    near = solve(family.at(l1=0.05, l2=1e-2), within=1e-6, solver="newton")
    problem = family.at(l1=0.0505, l2=1.01e-2)
    warm, cold = (solve(problem, within=1e-6, solver="newton", warm=start) for start in (near, None))
    assert warm.steps < cold.steps or cold.steps <= 2


@by_family
def test_phi_never_rises(family):
    problem = family.at(l1=0.02, l2=1e-3)
    far = np.random.default_rng(0).standard_normal(X.shape[1])
    values = [problem.value(solution.x) for solution in islice(iterate(problem, solver="newton", warm=far), 15)]
    assert all(after <= before + 1e-12 * abs(before) for before, after in pairwise(values))


@pytest.mark.parametrize("sparse", [sp.csr_array, sp.csc_array])
def test_sparse_and_dense_data_lead_to_the_same_solution(sparse):
    Z, y = data(sparse=sparse)
    one, other = (
        solve(ElasticNetLogistic(A, y > 0).at(l1=0.01, l2=1e-3), within=1e-9, solver="newton") for A in (Z, Z.toarray())
    )
    assert np.linalg.norm(one.x - other.x) <= 2e-9


# The model


@given(st.integers(0, 10_000), st.floats(-4, 1), st.integers(1, 25))
def test_the_model_is_brought_close_to_its_minimiser(seed, log_l1, size):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((size, size)) * 10.0 ** rng.uniform(-2, 2, size)
    H = A @ A.T + 10.0 ** rng.uniform(-6, 0) * np.eye(size)
    gradient, l1 = rng.standard_normal(size), 10.0**log_l1
    w = np.where(rng.random(size) < 0.5, rng.standard_normal(size), 0.0)

    def q(v):
        return gradient @ (v - w) + 0.5 * (v - w) @ H @ (v - w) + l1 * np.abs(v).sum()

    v = minimise_model(Matrix(H), gradient, w, L1(l1))
    assert q(v) < q(w) or np.array_equal(v, w)


@given(st.integers(0, 10_000), st.floats(-5.0, -0.5), st.integers(0, 60))
def test_from_any_start_faces_lead_to_the_minimiser_of_collinear_models(seed, log_l1, filled):
    Z, y = spectra(seed, rows=80, columns=60)
    H, c, rng = Z.T @ Z / 80.0, Z.T @ y / 80.0, np.random.default_rng(seed)
    w = np.where(rng.permutation(60) < filled, rng.standard_normal(60), 0.0)
    l1, gradient = 10**log_l1 * np.abs(c).max(), H @ w - c
    v = from_face_to_face(w, Matrix(H), gradient, w, l1, 1e-6 * l1)
    assert norm(l1_least_subgradient(l1, v, H @ v - c)) <= 1e-3 * l1


def test_a_model_without_l1_is_a_linear_system():
    H = np.array([[2.0, 1.0], [1.0, 3.0]])
    assert minimise_model(Matrix(H), np.array([1.0, -1.0]), np.array([1.0, 1.0]), L1(0.0)) == pytest.approx(
        np.array([1.0, 1.0]) - np.linalg.solve(H, [1.0, -1.0])
    )


# States, memory


@by_family
def test_a_run_that_goes_through_a_file_at_any_step_gives_the_same_bits(family):
    problem = family.at(l1=0.01, l2=1e-4)
    whole = list(islice(iterate(problem, solver="newton"), 12))
    for k, solution in enumerate(whole[:-1]):
        back = decode(json.loads(json.dumps(encode(solution))))
        _, following = islice(iterate(problem, solver="newton", warm=replace(back, problem=problem)), 2)
        assert np.array_equal(following.x, whole[k + 1].x)
        assert following.certificate == whole[k + 1].certificate


def test_a_state_holds_no_matrix():
    problem = FAMILIES["logistic"].at(l1=0.01, l2=1e-4)
    solution = solve(problem, steps=6, solver="newton")
    arrays = [value for value in vars(solution.state).values() if isinstance(value, np.ndarray)]
    assert max(array.size for array in arrays) <= max(X.shape)


@pytest.mark.parametrize("family", [ElasticNetLogistic(X, Y > 0), ElasticNetLogistic(sp.csr_array(X), Y > 0)])
def test_a_working_set_that_does_not_fit_takes_no_matrix_or_is_left_to_fista(family, monkeypatch):
    monkeypatch.setattr("suffice.rows.design.SMALL", 0)
    monkeypatch.setattr("suffice.rows.design.MEMORY", 0.05)
    assert 40 < hessian.largest_matrix(family.design) < 80
    problem = family.at(l1=1e-3, l2=1e-2)
    exact = solve(problem, within=1e-9, solver="fista_adaptive")
    assert np.count_nonzero(exact.x) > 80
    by_products = solve(problem, within=1e-6, solver="newton", max_steps=500)
    assert by_products.reached and by_products.steps <= 20
    assert np.linalg.norm(by_products.x - exact.x) <= 1e-6 + 1e-9
    chosen = solve(problem, within=1e-7, solver="auto")
    assert isinstance(chosen.state, FistaState)
    assert chosen.reached and np.linalg.norm(chosen.x - exact.x) <= 1e-7 + 1e-9


STORAGE = {"C": np.ascontiguousarray, "F": np.asfortranarray, "csr": sp.csr_array, "csc": sp.csc_array}


@pytest.mark.parametrize("storage", STORAGE)
def test_extra_memory_is_at_most_three_times_x(storage):
    Z, y = data(4000, 600, sparse=STORAGE[storage] if storage.startswith("cs") else None)
    Z = STORAGE[storage](Z)
    size = Z.nbytes if isinstance(Z, np.ndarray) else Z.data.nbytes + Z.indices.nbytes + Z.indptr.nbytes
    problem = ElasticNetLogistic(Z, y > 0).at(l1=1e-3, l2=1e-3)
    certify(problem, np.zeros(600))  # norms of X that every solver needs
    _ = problem.smooth.design.row_norms
    tracemalloc.start()
    solution = solve(problem, within=1e-6)
    extra = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(solution.state, NewtonState) and solution.reached
    assert extra <= 3.0 * size


# Ends


@by_family
def test_what_rounding_forbids_is_an_outcome_after_few_steps(family):
    solution = solve(family.at(l1=0.01, l2=1e-3), within=0.0, solver="newton")
    assert solution.outcome is Outcome.PRECISION and solution.steps <= 25
    assert solution.certificate.radius <= 1e3 * solution.certificate.rounding


def test_a_state_that_cannot_be_improved_is_returned_as_it_is():
    problem = FAMILIES["squared"].at(l1=0.01, l2=1e-3)
    solutions = list(islice(iterate(problem, solver="newton"), 30))
    assert solutions[-1].state is solutions[-2].state
    assert solutions[-1].steps == 29


def test_a_start_at_the_solution_is_certified():
    family = FAMILIES["logistic"]
    solution = solve(family.at(l1=2.0 * family.l1_max, l2=1e-3), within=0.0, solver="newton")
    assert (solution.outcome, solution.steps, solution.certificate.radius) == (Outcome.REACHED, 1, 0.0)


class OwnProx:
    """The l2 norm of all weights, of which nothing is known but its prox."""

    def value(self, x):
        return float(np.linalg.norm(x))

    def prox(self, v, step):
        return v * max(0.0, 1.0 - step / max(float(np.linalg.norm(v)), 1e-300))


@pytest.mark.parametrize(
    "smooth, prox, words",
    [
        (OwnSmooth(np.eye(4), np.ones(4)), Zero(), "Plain and Zero"),
        (LinearModel(ElasticNet(X[:, :4], Y).design, Y, SQUARED, 1.0), OwnProx(), "LinearModel and Generic"),
    ],
)
def test_other_problems_are_refused(smooth, prox, words):
    problem = Composite(smooth, prox, mu=1.0, L=1e3, size=4)
    with pytest.raises(
        ValueError, match=f"solver='newton' needs a smooth term with a Hessian, such as a linear model .* got {words}"
    ):
        solve(problem, within=1e-3, solver="newton")
    assert isinstance(solve(problem, within=1e-3, solver="auto").state, FistaState)


def test_auto_takes_fista_where_it_is_as_fast():
    family = FAMILIES["logistic"]
    easy, hard = (family.at(l1=0.01, l2=family.at(l1=0.0, l2=1.0).L / kappa) for kappa in (5.0, 1e4))
    assert easy.kappa < auto.EASY < hard.kappa
    assert isinstance(solve(easy, within=1e-4).state, FistaState)
    assert isinstance(solve(hard, within=1e-4).state, NewtonState)


# Without a Lipschitz constant: Poisson regression


def poisson_case(seed):
    """A small problem, its minimiser in extended precision and that one's error."""
    rng = np.random.default_rng(seed)
    N, d = int(rng.integers(10, 40)), int(rng.integers(2, 10))
    A = 10.0 ** rng.uniform(-1.5, 0.7) * rng.standard_normal((N, d))
    y = rng.poisson(10.0 ** rng.uniform(-1, 2), N).astype(float)
    weight = rng.integers(0, 3, N) + (np.arange(N) == 0) if rng.random() < 0.3 else None
    family = ElasticNetPoisson(sp.csr_array(A) if rng.random() < 0.3 else A, y, sample_weight=weight)
    l1, l2 = family.l1_max * 10.0 ** rng.uniform(-4, 0.1), 10.0 ** rng.uniform(-4, 1)
    problem = family.at(l1=l1, l2=l2)
    f, g = Margins(A, y, family.design.weights, "poisson", l2), GroupNorms([[i] for i in range(d)], [l1] * d)
    near = solve(problem, within=1e-6, max_steps=300).x
    L = float(np.linalg.norm(f.hessian(near), 2))
    x_hat, error = minimise(f, g, l2, 4.0 * L, d)
    assert error <= 1e-11 * (1.0 + float(norm(x_hat)))
    return problem, x_hat, float(error)


@pytest.mark.parametrize("seed", range(30))
def test_certificates_of_poisson_regression_hold_without_a_lipschitz_constant(seed):
    problem, x_hat, error = poisson_case(seed)
    assert problem.L == problem.kappa == math.inf
    rng = np.random.default_rng(seed)
    near = x_hat.astype(float) + 10.0 ** rng.uniform(-12, -3) * rng.standard_normal(len(x_hat))
    for start in (None, rng.standard_normal(len(x_hat)), near):
        for rule in ("tightest", "gap", "minimum_norm"):
            for solution in islice(iterate(problem, solver="newton", warm=start, certificate=rule), 60):
                assert float(norm(solution.x - x_hat)) - error <= solution.certificate.radius
        assert solution.certificate.radius <= 1e-6 * (1.0 + float(norm(x_hat)))


def test_poisson_regression_agrees_with_scikit_learn():
    family = FAMILIES["poisson"]
    theirs = sklearn.linear_model.PoissonRegressor(
        alpha=0.01, fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cholesky"
    ).fit(family.design.X, family.y)
    assert np.abs(solve(family.at(l1=0.0, l2=0.01), within=1e-9).x - theirs.coef_).max() <= 1e-8


def test_the_search_survives_rates_that_overflow():
    rng = np.random.default_rng(1)
    A, y = 10.0 * rng.standard_normal((40, 5)), rng.poisson(3.0, 40)
    problem = ElasticNetPoisson(A, y).at(l1=0.01, l2=0.1)
    exact = solve(problem, within=1e-8)
    assert exact.reached
    far = solve(problem, within=1e-6, warm=10.0 * rng.standard_normal(5), max_steps=1000)  # margins of some hundreds
    assert far.reached and np.linalg.norm(far.x - exact.x) <= 2e-6


def test_nothing_is_certified_where_a_rate_overflows():
    problem = ElasticNetPoisson(np.eye(2), [1.0, 2.0]).at(l1=0.1, l2=1.0)
    assert certify(problem, np.array([710.0, 0.0])).radius == math.inf
    weightless = ElasticNetPoisson(np.eye(2), [1.0, 2.0], sample_weight=[0.0, 1.0]).at(l1=0.1, l2=1.0)
    assert certify(weightless, np.array([710.0, 0.0])).radius < 1e4


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive", "gradient_descent"])
def test_first_order_methods_refuse_a_problem_without_a_lipschitz_constant(solver):
    with pytest.raises(ValueError, match=f"solver='{solver}' needs a finite L, and f has none: use solver='newton'"):
        solve(FAMILIES["poisson"].at(l1=0.1, l2=0.1), within=1e-3, solver=solver)


def test_counts_must_not_be_negative():
    with pytest.raises(ValueError, match=r"y must not be negative, got -1\.0"):
        ElasticNetPoisson(np.eye(2), [1, -1])


def test_a_users_own_f_needs_a_finite_lipschitz_constant():
    with pytest.raises(ValueError, match="L must be positive and finite, got inf"):
        Composite(OwnSmooth(np.eye(2), np.ones(2)), Zero(), mu=1.0, L=math.inf)


def test_the_hessian_of_least_squares_is_made_once_for_all_targets_and_penalties(monkeypatch):
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((300, 30)), rng.standard_normal((300, 3))
    design = Design.of(X)
    assert design.gram == pytest.approx(X.T @ X / 300, rel=1e-12)
    monkeypatch.setattr("suffice.rows.gram.gram", None)  # no other Hessian is made
    for y in Y.T:
        for l1, l2 in ((0.1, 0.01), (0.0, 0.1), (0.01, 1e-4)):
            found = solve(ElasticNet(design, y).at(l1=l1, l2=l2), within=1e-7, solver="newton")
            assert found.reached
            expected = solve(ElasticNet(X, y).at(l1=l1, l2=l2), within=1e-6, solver="fista")
            assert np.linalg.norm(found.x - expected.x) <= found.certificate.radius + expected.certificate.radius


def test_a_verification_is_not_tried_before_steps_have_cost_what_a_sparse_matrix_costs_to_be_made_dense(monkeypatch):
    tried = []
    monkeypatch.setattr(solver_module, "verified", lambda *_: tried.append(1))
    rng = np.random.default_rng(0)
    X = np.where(rng.random((4000, 200)) < 0.2, rng.standard_normal((4000, 200)), 0.0)
    model = ElasticNetLogistic(sp.csr_array(X), X[:, :4].sum(axis=1) + rng.standard_normal(4000) > 0.0)
    solution = solve(model.at(l1=0.3 * model.l1_max, l2=1e-2), within=1e-4, solver="newton")
    assert np.count_nonzero(solution.x) == 4
    assert solution.reached
    assert solution.steps < 8
    assert not tried
