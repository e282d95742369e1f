"""Pictures of a global certificate show what it proves."""

import numpy as np
import pytest

import suffice
from suffice import losses, problems
from suffice.globally.certificate import Landscape

pytest.importorskip("matplotlib")

rng = np.random.default_rng(0)
X, noise = rng.standard_normal((60, 4)), rng.standard_normal(60)
y = X[:, 0] + noise


class Ridge:
    def at(self, *, l2):
        return problems.ElasticNet(X[:30], y[:30]).at(l1=0.0, l2=l2)

    def shares(self, names):
        return {"l2": (0.0, 1.0)}


HELD = losses.SquaredError(X[30:], y[30:])


def test_the_band_of_one_penalty_holds_f_and_the_title_tells_the_gap():
    problem = suffice.BilevelProblem([Ridge()], [HELD], space=suffice.Space(l2=(1e-3, 1e3)))
    made = suffice.certify_global(problem, 0.02)
    x, lower, upper = made.landscape.line.T
    assert np.all(np.diff(x) >= 0.0) and x[0] == pytest.approx(1e-3) and x[-1] == pytest.approx(1e3)
    assert np.all(lower <= upper) and lower.min() >= made.lower
    for value in x[::17]:
        low, high = problem.evaluate(problem.space.theta({"l2": value}), within=1e-9).interval
        at = int(np.argmin(np.abs(x - value)))
        assert lower[at] <= high * (1.0 + 1e-9) and low <= upper[at] * (1.0 + 1e-9)
    assert f"{made.landscape.gap_in_percent} %" in made.plot().get_title()


def test_all_cells_of_two_penalties_are_drawn():
    lower = problems.ElasticNet(X[:30], y[:30])
    space = suffice.Space(l1=(1e-2, 10.0), l2=(1e-2, 10.0))
    made = suffice.certify_global(suffice.BilevelProblem([lower], [HELD], space=space), 0.2)
    drawn = [len(boxes) for boxes in made.plot().containers]  # those that are not ruled out, and the others
    assert sum(drawn) == len(made.cells)
    assert sum(cell.lower <= made.upper for cell in made.cells) in drawn


@pytest.mark.parametrize(
    ("gap", "told"), [(0.0496, "5"), (0.0504, "5.1"), (4.41e-4, "0.045"), (0.999, "100"), (0.0, "0")]
)
def test_a_gap_is_told_with_two_digits_and_never_as_less_than_it_is(gap, told):
    empty = np.empty((0, 3))
    assert Landscape(("l2",), np.array([1.0]), 1.0 - gap, 1.0, empty, empty).gap_in_percent == told
    assert float(told) >= 100.0 * gap
