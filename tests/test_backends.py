"""X may be an array of any library of the array API standard: same problem, same solutions, same proofs."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import BilevelProblem, Options, Space, solve, tune
from suffice.losses import Brier, LogLoss, SquaredError
from suffice.problems import (
    ElasticNet,
    ElasticNetHuber,
    ElasticNetLogistic,
    ElasticNetMultinomial,
    MultiTaskElasticNet,
)
from suffice.rows.design import Design

rng = np.random.default_rng(1)
X, X_val = rng.standard_normal((80, 12)), rng.standard_normal((40, 12))
w = rng.standard_normal(12) * (np.arange(12) % 3 == 0)
y, y_val = X @ w + rng.standard_normal(80), X_val @ w
LIBRARIES = ["array_api_strict", "torch", "jax", "cupy", "torch on cuda"]  # the last two where there is a device


def array(library, values):
    if library == "numpy":
        return values
    if library == "jax":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
        return pytest.importorskip("jax.numpy").asarray(values)
    if library == "cupy":
        cupy = pytest.importorskip("cupy")
        return cupy.asarray(values) if cupy.cuda.is_available() else pytest.skip("no device")
    if library == "torch on cuda":
        torch = pytest.importorskip("torch")
        return torch.asarray(values, device="cuda") if torch.cuda.is_available() else pytest.skip("no device")
    return pytest.importorskip(library).asarray(values)


MODELS = {
    "logistic": lambda X: ElasticNetLogistic(X, y > 0.0),
    "squares": lambda X: ElasticNet(X, y),
    "huber": lambda X: ElasticNetHuber(X, y, delta=0.7),
    "weighted": lambda X: ElasticNetLogistic(X, y > 0.0, sample_weight=np.arange(1.0, 81.0)),
}


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive", "gradient_descent"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_solution_is_proven_wherever_the_matrix_lives(library, model, solver):
    problem = MODELS[model](array(library, X)).at(l1=0.02, l2=0.1)
    exact = solve(MODELS[model](X).at(l1=0.02, l2=0.1), within=1e-12)
    for within in (1e-2, 1e-9):
        solution = solve(problem, within=within, solver=solver)
        assert solution.reached and solution.certificate.radius <= within
        assert np.linalg.norm(solution.x - exact.x) <= solution.certificate.radius + exact.certificate.radius
        assert isinstance(solution.x, np.ndarray)


OUTPUTS = {
    "classes": lambda X: ElasticNetMultinomial(X, np.arange(80) % 3),
    "classes, intercepts": lambda X: ElasticNetMultinomial(X, np.digitize(y, [-1.0, 1.0]), intercept=True),
    "targets": lambda X: MultiTaskElasticNet(X, np.column_stack([y, y**2])),
}


@pytest.mark.parametrize("solver", ["fista_adaptive", "newton"])
@pytest.mark.parametrize("model", OUTPUTS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_several_outputs_are_proven_wherever_the_matrix_lives(library, model, solver):
    exact = solve(OUTPUTS[model](X).at(l1=0.02, l2=0.1), within=1e-12)
    solution = solve(OUTPUTS[model](array(library, X)).at(l1=0.02, l2=0.1), within=1e-8, solver=solver)
    assert solution.reached and solution.certificate.radius <= 1e-8
    assert np.linalg.norm(solution.x - exact.x) <= solution.certificate.radius + exact.certificate.radius


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("model", MODELS)
def test_slopes_on_the_way_between_two_points_are_those_of_numpy(library, model):
    def slope(X):
        f = MODELS[model](X).at(l1=0.02, l2=0.1).smooth
        return f.slope_between(f.image(np.zeros_like(w)), f.image(w))

    assert slope(array(library, X)) == pytest.approx(slope(X), rel=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("shape", [(80, 12), (12, 80)])
def test_the_norms_of_a_design_are_those_of_its_numpy_twin(library, shape):
    matrix = X.reshape(shape)
    here, there = Design.of(matrix), Design.of(array(library, matrix))
    for name in ("squared_norm", "frobenius_norm", "row_norms", "column_norms", "row_length"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-12)


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_a_norm_too_large_for_its_gram_matrix_is_bounded_wherever_the_matrix_lives(library, monkeypatch):
    monkeypatch.setattr("suffice.rows.norms.DENSE_GRAM_SIZE", 5)
    exact = np.linalg.norm(X, 2) ** 2 / len(X)
    assert exact <= Design.of(array(library, X)).squared_norm <= 1.06 * exact


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "loss", [lambda X: Brier(X, y_val > 0), lambda X: LogLoss(X, y_val > 0), lambda X: SquaredError(X, y_val)]
)
def test_losses_take_held_out_data_from_anywhere(library, loss):
    here, there = loss(X_val).at(w), loss(array(library, X_val)).at(w)
    np.testing.assert_allclose(there.residuals, here.residuals, rtol=1e-12, atol=1e-14)
    assert there.error(0.1) == pytest.approx(here.error(0.1), rel=1e-12)


@pytest.mark.parametrize("library", ["array_api_strict", "torch", "cupy", "torch on cuda"])
def test_tuning_ends_at_the_same_penalties(library):
    def problem(library):
        return BilevelProblem(
            lower=[ElasticNet(array(library, X), y)],
            losses=[SquaredError(array(library, X_val), y_val)],
            space=Space(l1=(1e-4, 1e1), l2=(1e-4, 1e1)),
            solver="fista_adaptive",
        )

    ours, theirs = (
        tune(problem(one), {"l1": 0.1, "l2": 0.1}, options=Options(max_evaluations=15)) for one in ("numpy", library)
    )
    np.testing.assert_allclose(theirs.theta, ours.theta, atol=1e-5)  # of which numpy's alone is verified
    assert theirs.interval[0] <= ours.interval[1] and ours.interval[0] <= theirs.interval[1]


def test_what_is_wrong_with_the_matrix_is_told_wherever_it_lives():
    bad = X.copy()
    bad[3, 4] = np.nan
    with pytest.raises(ValueError, match="X must be finite"):
        Design.of(array("array_api_strict", bad))
    with pytest.raises(ValueError, match="at least one row and column, got shape"):
        Design.of(array("array_api_strict", X[:0]))
    with pytest.raises(ValueError, match="y must have shape"):
        ElasticNet(array("array_api_strict", X), y[:5])
