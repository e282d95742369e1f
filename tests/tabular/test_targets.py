"""Whether whole numbers are counts, held-out rows say; the choice is told."""

import json

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")
pandas = pytest.importorskip("pandas")
from sklearn.linear_model import Ridge  # noqa: E402

from suffice.cli import app  # noqa: E402
from suffice.tabular import TableError, columns, read, targets  # noqa: E402
from suffice.tabular.preparation import preparation_of  # noqa: E402
from suffice.tabular.problem import pose, sample  # noqa: E402
from suffice.tabular.settings import Settings  # noqa: E402

N = 240
rng = np.random.default_rng(8)
X = rng.standard_normal((N, 2)).round(3)
MONTHS = np.arange(N)
SUMMANDS = rng.negative_binomial(1, 0.05, (N, 3)) * (np.arange(N) > 0)[:, None]


def posed(tmp_path, table, target="y", **given):
    pandas.DataFrame(table).to_csv(tmp_path / "t.csv", index=False)
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


def test_whole_thousands_are_amounts_and_no_counts(tmp_path):
    """As stevedata::DAPO has exports, in millions: of 91 rows, which four folds cannot tell."""
    counts = rng.poisson(np.exp(0.7 * X[:, 0]))
    assert posed(tmp_path, {"x": X[:, 0], "y": 1_000 * counts}).model == "elastic-net"
    assert posed(tmp_path, {"x": X[:, 0], "y": 10 * counts}).model == "poisson"


def test_errors_are_those_of_the_best_penalties_as_a_share_of_the_means():
    """Of two numbers nearly without noise, and of counts whose logarithm is linear."""
    frame = pandas.DataFrame(X, columns=["a", "b"])
    before = preparation_of(["a", "b"], {}, 10, dense=True)
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


# Columns in which every row has a value of its own


def test_a_time_that_holds_the_answer_is_used_and_warned_of(tmp_path):
    months = {"year": 1988 + MONTHS // 12, "t": MONTHS + 1, "noise": X[:, 0], "y": MONTHS % 12 + 1}
    problem = posed(tmp_path, months)
    assert "t" in problem.numeric
    note = note_of(problem, "'t'")
    assert note.startswith("warning: column 't' is used, though it counts the rows") and "--drop 't'" in note
    assert "t" not in posed(tmp_path, months, drop=["t"]).numeric
    kept = posed(tmp_path, months, keep=["t"])
    assert "t" in kept.numeric and not any("'t'" in note for note in kept.notes)


def test_row_names_are_not_used_whatever_they_tell(tmp_path):
    months = {"rownames": MONTHS + 1, "year": 1988 + MONTHS // 12, "noise": X[:, 0], "y": MONTHS % 12 + 1}
    problem = posed(tmp_path, months)
    assert "rownames" not in problem.numeric
    note = note_of(problem, "column 'rownames' is left out: it counts the rows (--keep uses it)")
    assert "an order that tells the target" in note and not note.startswith("warning")


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_row_numbers_of_a_file_that_is_sorted_by_the_target_stay_out(tmp_path, classes, backwards):
    y = np.sort(X[:, 1] + np.linspace(-3.0, 3.0, N))
    y = np.where(y > np.median(y), "yes", "no") if classes else y
    number = np.arange(N)[::-1] if backwards else np.arange(N)
    table = {"x": X[:, 0], "nr": number, "y": y}
    problem = posed(tmp_path, table)
    assert problem.numeric == ("x",)
    note = note_of(problem, "'nr'")
    assert note.startswith("warning: column 'nr' is left out: it counts the rows (--keep uses it); ")
    assert "nr" in posed(tmp_path, table, keep=["nr"]).numeric


def test_row_numbers_that_tell_nothing_of_rows_to_come_stay_out(tmp_path):
    """Two groups, each sorted by the target, that only the first three quarters of the file are in order of."""
    y = np.concatenate([np.arange(180) % 90 + 0.0, rng.permutation(60)])
    group = np.repeat(["a", "b", "c"], [90, 90, 60])
    problem = posed(tmp_path, {"g": group, "x": X[:, 0], "nr": np.arange(N), "y": y})
    assert "nr" not in problem.numeric


def test_numbers_that_only_number_get_the_note_they_had(tmp_path):
    problem = posed(tmp_path, {"x": X[:, 0], "nr": np.arange(N), "y": X.sum(axis=1)})
    assert "column 'nr' is left out: it counts the rows (--keep uses it)" in problem.notes


def test_a_table_of_row_numbers_only_is_told_of_keep(tmp_path):
    with pytest.raises(TableError, match="no column to learn from besides the target: --keep uses 'nr'"):
        posed(tmp_path, {"nr": np.arange(N), "y": X[:, 0]})


def test_texts_that_come_again_and_tell_the_target_are_used(tmp_path):
    codes = np.concatenate([np.repeat(np.arange(100), 2), np.arange(100, 140)])
    effect = rng.standard_normal(140)[codes] + 0.05 * rng.standard_normal(N)
    names = np.array([f"person {code}" for code in codes])
    problem = posed(tmp_path, {"x": X[:, 0], "who": names, "y": effect})
    assert problem.categorical == ("who",)
    assert note_of(problem, "column 'who' is used, 140 different texts in 240 rows: held-out rows")
    other = posed(tmp_path, {"x": X[:, 0], "who": names, "y": X[:, 1]})
    assert other.categorical == () and "column 'who' is left out: 140" in note_of(other, "'who'")
    once = posed(tmp_path, {"x": X[:, 0], "who": [f"person {k}" for k in range(N)], "y": X[:, 1]})
    assert note_of(once, "'who'").endswith("(--keep uses it)")


def test_errors_are_those_of_ridge_regression_on_held_out_rows():
    y = X @ [1.0, -2.0] + 0.3 * rng.standard_normal(N)
    held = np.arange(N) // (N // columns.FOLDS)
    expected = []
    for penalty in 10.0 ** np.arange(-8.0, 3.0):
        models = [Ridge(alpha=N * penalty).fit(X[held != k], y[held != k]) for k in range(columns.FOLDS)]
        made = np.concatenate([model.predict(X[held == k]) for k, model in enumerate(models)])
        expected.append(np.sum((made - y) ** 2) / np.sum((y - y.mean()) ** 2))
    assert columns.share_of_mean(columns.by_squares(X, y), y) == pytest.approx(min(expected), rel=1e-9)


def test_sorted_rows_are_told_from_shuffled_ones():
    for y, classes in ((np.sort(X[:, 0]), False), (np.repeat([2, 0, 1], N // 3), True), (np.arange(N) // 100, False)):
        assert columns._sorted(y, classes) and columns._sorted(y[::-1], classes)
        assert not columns._sorted(rng.permutation(y), classes)


@pytest.mark.parametrize("missing", [False, True])
def test_two_levels_are_what_zeros_and_ones_are(tmp_path, missing):
    """Prepared columns differ by a shift, which the intercept takes: penalties and models are the same."""
    told = np.where(X[:, 0] > 0.5, "" if missing else "yes", "no")
    as_text = posed(tmp_path, {"told": told, "x": X[:, 1], "y": X[:, 0] + X[:, 1]})
    as_number = posed(tmp_path, {"told": (told == "no").astype(float), "x": X[:, 1], "y": X[:, 0] + X[:, 1]})
    prepared = [one.estimator[0].fit_transform(one.X) for one in (as_text, as_number)]
    by_name = [dict(zip(one.estimator[0].get_feature_names_out(), made.T, strict=True)) for one, made in
               zip((as_text, as_number), prepared, strict=True)]  # fmt: skip
    (name,) = by_name[0].keys() - {"x"}
    assert {name[:5], *by_name[1]} == {"told_", "told", "x"}
    ours, theirs = by_name[0][name], by_name[1]["told"]
    sign = 1.0 if np.dot(ours - ours.mean(), theirs) > 0.0 else -1.0
    np.testing.assert_allclose(ours - ours.mean(), sign * (theirs - theirs.mean()), rtol=0.0, atol=1e-12)
    assert np.std(ours) == pytest.approx(1.0)
