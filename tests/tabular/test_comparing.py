"""What a rule has chosen is looked at again: a model or a column that costs much is noticed, and told."""

import json

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")
pandas = pytest.importorskip("pandas")
from sklearn.linear_model import PoissonRegressor, Ridge  # noqa: E402
from sklearn.model_selection import cross_val_predict  # noqa: E402

from suffice.cli import app  # noqa: E402
from suffice.tabular import comparing  # noqa: E402
from suffice.tabular.columns import pose, sample  # noqa: E402
from suffice.tabular.settings import Settings  # noqa: E402
from suffice.tabular.table import TableError, read  # noqa: E402

N = 240
rng = np.random.default_rng(8)
X = rng.standard_normal((N, 2)).round(3)
SUMMANDS = rng.negative_binomial(1, 0.05, (N, 3)) * (np.arange(N) > 0)[:, None]
MONTHS = np.arange(N)


def posed(tmp_path, columns, target="y", **given):
    pandas.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return pose(read(tmp_path / "t.csv"), Settings(data="t.csv", target=target, **{**given, **lists}))


def note_of(problem, *words):
    (found,) = [note for note in problem.notes if all(word in note for word in words)]
    return found


# Counts


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


# Codes


def test_hours_are_categories_if_held_out_rows_say_so(tmp_path):
    hour = np.arange(N) * 7 % 24
    wave = np.sin(hour / 24 * 2 * np.pi) ** 2 + 0.05 * X[:, 0]
    problem = posed(tmp_path, {"hr": hour, "size": hour[::-1], "y": wave})
    assert problem.categorical == ("hr",) and problem.numeric == ("size",)
    assert "is taken for categories: held-out rows have" in note_of(problem, "'hr' holds codes")
    assert posed(tmp_path, {"hr": hour, "y": wave}, keep=["hr"]).numeric == ("hr",)
    assert posed(tmp_path, {"hr": hour, "y": hour + X[:, 0]}).numeric == ("hr",)  # they rise: numbers


# Columns that count the rows


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
    note = note_of(problem, "'rownames' is left out: it counts the rows (--keep uses it)")
    assert "an order that tells the target" in note


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_row_numbers_of_a_file_that_is_sorted_by_the_target_stay_out(tmp_path, classes, backwards):
    y = np.sort(X[:, 1] + np.linspace(-3.0, 3.0, N))
    y = np.where(y > np.median(y), "yes", "no") if classes else y
    number = np.arange(N)[::-1] if backwards else np.arange(N)
    problem = posed(tmp_path, {"x": X[:, 0], "nr": number, "y": y})
    assert problem.numeric == ("x",)
    assert note_of(problem, "'nr'").startswith(
        "warning: column 'nr' is left out: it counts the rows (--keep uses it); "
    )
    assert "nr" in posed(tmp_path, {"x": X[:, 0], "nr": number, "y": y}, keep=["nr"]).numeric


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


# Text


def test_texts_that_come_again_and_tell_the_target_are_used(tmp_path):
    codes = np.concatenate([np.repeat(np.arange(100), 2), np.arange(100, 140)])
    effect = rng.standard_normal(140)[codes] + 0.05 * rng.standard_normal(N)
    names = np.array([f"person {code}" for code in codes])
    problem = posed(tmp_path, {"x": X[:, 0], "who": names, "y": effect})
    assert problem.categorical == ("who",)
    assert note_of(problem, "column 'who' is used, 140 different texts in 240 rows: held-out rows")
    other = posed(tmp_path, {"x": X[:, 0], "who": names, "y": X[:, 1]})
    assert other.categorical == () and "column 'who' is left out: 140" in note_of(other, "'who'")


# The looks themselves


def test_errors_are_those_of_ridge_regression_on_held_out_rows():
    y = X @ [1.0, -2.0] + 0.3 * rng.standard_normal(N)
    held = [np.arange(N) % 3 == k for k in range(3)]
    folds = [(np.flatnonzero(~out), np.flatnonzero(out)) for out in held]
    mean = np.concatenate([(y[out] - y[~out].mean()) ** 2 for out in held]).sum()
    expected = []
    for penalty in comparing.PENALTIES:
        made = cross_val_predict(Ridge(alpha=penalty * 160), X, y, cv=folds)
        expected.append(np.sum((made - y) ** 2) / mean)
    found = comparing._errors(comparing._ridge(X, y[:, None], held), y[:, None], held)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_predictions_of_counts_are_those_of_poisson_regression():
    y = rng.poisson(np.exp(X[:, 0])).astype(float)
    held = [np.arange(N) % 3 == k for k in range(3)]
    found = comparing._poisson(X, y, held)
    for out in held:
        model = PoissonRegressor(alpha=1e-2 * y[~out].mean(), max_iter=300).fit(X[~out], y[~out])
        np.testing.assert_allclose(found[2, out], model.predict(X[out]), rtol=1e-3)
    mean_deviance = pytest.importorskip("sklearn.metrics").mean_poisson_deviance
    assert comparing._deviance(y, found[2]) == pytest.approx(mean_deviance(y, found[2]))


def test_sorted_rows_have_sortedness_one_and_shuffled_ones_hardly_any():
    places = np.arange(N) + 0.0
    for y, classes in ((np.sort(X[:, 0]), False), (np.repeat([2, 0, 1], N // 3), True), (places // 100, False)):
        assert comparing._sortedness(places, y, classes) == pytest.approx(1.0)
        assert comparing._sortedness(places[::-1], y, classes) == pytest.approx(1.0)
        assert comparing._sortedness(places, rng.permutation(y), classes) < 0.3


def test_a_look_is_small_whatever_the_table():
    frame = pandas.DataFrame({"x": np.zeros(50_000)})
    y = np.arange(50_000.0)
    for width, rows in ((1, 2_000), (400, 1_000), (100_000, 200)):
        some = sample(np.ones(50_000, dtype=bool), comparing.most_rows(width))
        look = comparing.SampledRows(frame.iloc[some], y[some], False, lambda numeric, categorical: None)
        assert len(look.frame) == len(look.y) == rows
        assert sum(look.at_random).tolist() == [1] * rows


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
