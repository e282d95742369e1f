"""Many solves at a time: what goes together, and what must not."""

import numpy as np
import pytest

from suffice import solve
from suffice.problems import Denoising, ElasticNet, ElasticNetPoisson
from suffice.solvers.fista import Fista
from suffice.solvers.many import solve_each
from suffice.solvers.solution import Ask

rng = np.random.default_rng(0)
X, y = rng.standard_normal((30, 5)), rng.standard_normal(30)
MODEL = ElasticNet(X, y)
COLUMNS = [MODEL.at(l1=0.1, l2=l2) for l2 in (0.1, 0.01)]
IMAGES = [Denoising(one, eps_tv=0.1, eps_l2=0.1).at(alpha=0.5) for one in rng.standard_normal((2, 8))]
OTHER = ElasticNet(X[:20], y[:20]).at(l1=0.1, l2=0.1)


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive", "gradient_descent", "newton", Fista()])
def test_answers_come_in_the_order_of_the_asks_whatever_goes_together(solver):
    problems = [COLUMNS[0], OTHER, COLUMNS[1]]
    if solver != "newton":
        problems = [IMAGES[0], *problems, IMAGES[1]]
    for problem, found in zip(problems, solve_each([Ask(one, within=1e-6) for one in problems], solver), strict=True):
        alone = solve(problem, within=1e-6, solver=solver)
        assert found.problem == problem and found.certificate.radius <= 1e-6
        assert np.linalg.norm(found.x - alone.x) <= 2e-6
        assert solve(problem, within=1e-6, solver=solver, warm=found) is not None


@pytest.mark.parametrize("solver", ["fista", "fista_adaptive"])
def test_what_a_solver_does_not_take_alone_it_does_not_take_together(solver):
    family = ElasticNetPoisson(X, np.round(np.abs(y)))
    with pytest.raises(ValueError, match=f"solver='{solver}' needs a finite L"):
        solve_each([Ask(family.at(l1=0.1, l2=l2), steps=3) for l2 in (0.1, 1.0)], solver)
