"""The comparison of tuners charges what it says it charges, and its profiles are what they are called."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks" / "tuners").is_dir():
    pytest.skip("the benchmark is not at hand", allow_module_level=True)


@pytest.fixture(scope="module")
def profiles():
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.tuners import profiles
    finally:
        sys.path.remove(str(ROOT))
    return profiles


CODE = """
import json, sys
sys.path[:0] = {paths!r}
import numpy as np
from benchmarks.tuners import protocol
from benchmarks.tuners.problems import known
from benchmarks.tuners.tuners import TUNERS

problem, theta = known("diabetes"), np.array([-2.0, -1.0])
run = protocol.Run("diabetes", problem.make("fista"), protocol.Limits(1e9), theta, 0)
run.problem.fixed(50).evaluate(theta, within=0.0)
products = run.products
share = run.problem.losses[0].design.X.size / run.problem.lower[0].design.X.size
exact, limits = protocol.Exact(problem), protocol.Limits(1e9, evaluations=6)
played = [protocol.play(problem, "auto", TUNERS["random"].call, 3, exact, limits) for _ in range(2)]
again = problem.make("newton").evaluate(played[0]["curve"][-1][-1], within=1e-8).cost
print(json.dumps({{"products": products, "share": share, "played": played, "again": again}}))
"""


@pytest.fixture(scope="module")
def measured():
    """In a process of its own: counting patches the package."""
    code = CODE.format(paths=[str(ROOT / "src"), str(ROOT / "examples"), str(ROOT)])
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1])


def test_a_step_of_fista_is_charged_as_two_products_and_a_look_at_held_out_rows_as_its_share(measured):
    # 50 steps, the first image, the gradient of the proof; margins and the gradient of the held-out loss
    assert 100.0 <= measured["products"] - 2.0 * measured["share"] <= 104.0


def test_what_a_tuner_would_return_is_scored_by_its_exact_loss_and_never_charged_for_it(measured):
    one, two = measured["played"]
    assert one["reason"] == "budget" and one["evaluations"] == 6
    assert one["products"] == two["products"]  # though its F was known already in the second run
    assert one["curve"][-1][4] == pytest.approx(measured["again"], rel=1e-6) and one["curve"][-1][5] < 1e-8
    assert [entry[4] for entry in one["curve"]] == sorted((entry[4] for entry in one["curve"]), reverse=True)


def test_profiles_count_instances_and_ranks_share_ties(profiles):
    work = np.array([[1.0, 2.0, math.inf], [4.0, 1.0, math.inf], [3.0, math.inf, 3.0], [math.inf] * 3])
    shares = profiles.performance(work, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(shares, [[0.5, 0.5, 0.75], [0.25, 0.5, 0.5], [0.25, 0.25, 0.25]])
    units = np.array([1.0, 2.0, 1.0, 1.0])
    np.testing.assert_allclose(profiles.data(work, units, np.array([1.0, 2.0])), [[0.25, 0.5], [0.25, 0.5], [0.0, 0.0]])
    np.testing.assert_allclose(profiles.ranks(np.array([[5.0, math.inf, math.inf, 1.0]])), [[2.0, 3.5, 3.5, 1.0]])


def test_work_to_a_level_is_that_of_the_first_theta_within_it(profiles):
    curve = [[10, 1, 1, 1, 3.0, 0, []], [20, 2, 2, 2, 1.005, 0, []], [30, 3, 3, 3, 1.0, 0, []]]
    runs = [
        {"problem": "p", "solver": "s", "tuner": "t", "seed": seed, "curve": curve[:end]}
        for seed, end in ((0, 3), (1, 1))
    ]
    found = profiles.Cells.of(runs)
    assert found.best == {"p": 1.0}
    assert found.to_reach(("p", "s", "t"), 1e-2) == {0: 20, 1: math.inf}
    assert math.isinf(found.median(("p", "s", "t"), 1e-2))  # one of two seeds is not the median
    assert found.gap_at(("p", "s", "t"), np.array([15.0]))[0, 0] == pytest.approx(2.0)
