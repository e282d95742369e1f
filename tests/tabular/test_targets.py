"""Whether whole numbers are counts, held-out rows say; the choice is told."""

import json

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")
pandas = pytest.importorskip("pandas")
from suffice.cli import app  # noqa: E402
from suffice.tabular import read, targets  # noqa: E402
from suffice.tabular.preparation import preparation_of  # noqa: E402
from suffice.tabular.problem import pose, sample  # noqa: E402
from suffice.tabular.settings import Settings  # noqa: E402

N = 240
rng = np.random.default_rng(8)
X = rng.standard_normal((N, 2)).round(3)
SUMMANDS = rng.negative_binomial(1, 0.05, (N, 3)) * (np.arange(N) > 0)[:, None]


def posed(tmp_path, columns, target="y", **given):
    pandas.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return pose(read(tmp_path / "t.csv"), Settings(data="t.csv", target=target, **{**given, **lists}))


def note_of(problem, *words):
    (found,) = [note for note in problem.notes if all(word in note for word in words)]
    return found


def test_counts_that_add_up_are_predicted_by_squares(tmp_path):
    total = dict(zip("abc", SUMMANDS.T, strict=True)) | {"y": SUMMANDS.sum(axis=1)}
    problem = posed(tmp_path, total)
    assert problem.model == "elastic-net"
    assert "linear regression, unless --model poisson" in note_of(problem, "holds whole numbers")
    assert posed(tmp_path, total, model="poisson").model == "poisson"  # what was asked for is not looked at


def test_counts_are_predicted_as_counts(tmp_path):
    counts = rng.poisson(np.exp(0.7 * X[:, 0]))
    problem = posed(tmp_path, {"x": X[:, 0], "z": X[:, 1], "y": counts})
    assert problem.model == "poisson"
    assert note_of(problem, "holds whole numbers").endswith("Poisson regression, unless --model elastic-net")


def test_whole_numbers_that_multiply_are_predicted_as_counts(tmp_path):
    effect = rng.uniform(-1.0, 4.0, N).round(3)
    many = np.sort(rng.poisson(np.exp(effect[:, None] + np.array([0.0, 2.0])), (N, 2)), axis=1)[:, 1] + 1
    problem = posed(tmp_path, {"x": effect, "y": many})
    assert problem.model == "poisson" and "Poisson regression, unless --model elastic-net" in problem.notes[-1]
    additive = posed(tmp_path, {"x": effect, "y": np.round(20 + 4 * effect).astype(int) - 15})
    assert additive.model == "elastic-net" and "linear regression, unless" in additive.notes[-1]


def test_errors_are_those_of_the_best_penalties_as_a_share_of_the_means():
    """Of two numbers nearly without noise, and of counts whose logarithm is linear."""
    frame = pandas.DataFrame(X, columns=["a", "b"])
    before = preparation_of(["a", "b"], [], 10, dense=True)
    y = 10.0 + X @ [1.0, -2.0]
    counted, squares, counts = targets.counts_or_numbers(frame, y, before)
    assert not counted and squares < 1e-10 < 0.05 * counts
    y = rng.poisson(np.exp(3.0 * X[:, 0])).astype(float)
    counted, squares, counts = targets.counts_or_numbers(frame, y, before)
    assert counted and counts < 0.5 * squares


def test_a_look_is_small_whatever_the_table():
    some = sample(np.arange(50_000) % 2 == 0, 2_000)
    assert len(some) == 2_000 and (some % 2 == 0).all() and (np.diff(some) > 0).all()
    assert sample(np.ones(30, dtype=bool), 2_000).tolist() == list(range(30))


def test_the_choice_is_printed_and_in_the_json(tmp_path):
    total = dict(zip("abc", SUMMANDS.T, strict=True)) | {"y": SUMMANDS.sum(axis=1)}
    pandas.DataFrame(total).to_csv(tmp_path / "t.csv", index=False)
    given = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "run"), "--no-report"]
    printed = typer_testing.CliRunner().invoke(app, given)
    again = typer_testing.CliRunner().invoke(app, [*given, "--json"])
    assert printed.exit_code == 0 and "linear regression, unless --model poisson" in printed.output
    found = json.loads(again.stdout)
    assert found["model"] == "elastic-net" and any(
        "linear regression, unless --model poisson" in note for note in found["notes"]
    )
