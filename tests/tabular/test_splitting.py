"""Which rows are held out: at random, by groups, or by time."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, RepeatedKFold

from suffice.tabular import TableError, read
from suffice.tabular.problem import pose
from suffice.tabular.run import load, read_settings
from suffice.tabular.settings import Settings

pytest.importorskip("pandas")
typer_testing = pytest.importorskip("typer.testing")

from suffice.cli import app  # noqa: E402

runner = typer_testing.CliRunner()
rng = np.random.default_rng(7)
N = 120
PERSON = rng.permutation(np.repeat(np.arange(30), 4))
DAY = rng.permutation(np.repeat(np.arange(40), 3))
X = rng.standard_normal(N).round(3)
Y = (X + rng.standard_normal(30)[PERSON] + 0.1 * rng.standard_normal(N)).round(4)


def data(folder, **columns):
    """A file of these columns."""
    known = {
        "x": X,
        "person": [f"p{k}" for k in PERSON],
        "day": [f"{1 + d % 28:02d}.{1 + d // 28:02d}.2024" for d in DAY],
    }
    known |= {"y": Y, **columns}
    lines = [",".join(known), *(",".join(map(str, row)) for row in zip(*known.values(), strict=True))]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    return folder / "data.csv"


def posed(folder, columns=None, target="y", **given):
    path = str(data(folder, **(columns or {})))
    return pose(read(path), Settings(data=path, target=target, **given))


def tune(path, *options, out="run"):
    folder = path.parent / out
    return runner.invoke(
        app, ["tune", str(path), "--target", "y", "--no-report", "--out", str(folder), *options]
    ), folder


def test_rows_of_a_group_are_held_out_together_and_by_no_coefficient_known(tmp_path):
    for repeats in (1, 3):
        problem = posed(tmp_path, group_column="person", repeats=repeats)
        assert len(problem.cv) == 5 * repeats and "person" not in problem.X
        for train, test in problem.cv:
            assert not {*PERSON[train]} & {*PERSON[test]} and len(train) + len(test) == N
        held = np.concatenate([test for _, test in problem.cv])
        assert (np.bincount(held) == repeats).all()
    assert any("30, are held out together" in note for note in problem.notes)


def test_folds_of_later_rows_know_nothing_of_the_future(tmp_path):
    problem = posed(tmp_path, time_column="day", cv=4)
    assert len(problem.cv) == 4
    for (train, test), (following, _) in zip(problem.cv, [*problem.cv[1:], (np.arange(N), None)], strict=True):
        assert DAY[train].max() < DAY[test].min()  # and so no day is in both
        assert np.array_equal(np.sort([*train, *test]), np.sort(following))
    sizes = [len(test) for _, test in problem.cv]
    assert max(sizes) - min(sizes) <= 6
    by_number = posed(tmp_path, {"day": DAY}, time_column="day", cv=4)
    assert all(
        np.array_equal(a, b)
        for one, two in zip(problem.cv, by_number.cv, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def test_classes_keep_their_shares_in_folds_of_groups(tmp_path):
    label = np.where(np.quantile(Y, 0.7) < Y, "yes", "no")
    problem = posed(tmp_path, {"y": label}, group_column="person")
    shares = [(label[test] == "yes").mean() for _, test in problem.cv]
    assert max(shares) - min(shares) < 0.3


@pytest.mark.parametrize(
    "columns, given, told",
    [
        ({"person": PERSON % 3}, {"group_column": "person"}, "has 3 groups, too few for 5 folds: --cv 3"),
        ({"person": [1] * N}, {"group_column": "person"}, "has 1 group, too few for 5 folds$"),
        ({"person": ["", *PERSON[1:]]}, {"group_column": "person"}, "'person' is missing in 1 row, first in line 2"),
        ({"day": ["", *DAY[1:]]}, {"time_column": "day"}, "time column 'day' is missing in 1 row, first in line 2"),
        ({"day": [f"day {d}" for d in DAY]}, {"time_column": "day"}, "'day' is text: neither dates nor numbers"),
        ({"day": DAY % 3}, {"time_column": "day"}, "has 3 times, of 120 rows: too few parts for 5 folds: --cv 2"),
        ({"day": [3] * N}, {"time_column": "day"}, "has 1 time, of 120 rows: too few parts for 5 folds$"),
        ({"y": np.where(DAY > 9, "b", "a")}, {"time_column": "day"}, "fold 1 of 5 is trained on .* without .* 'b'"),
        ({}, {"group_column": "persn"}, "no column 'persn': did you mean 'person'"),
        ({}, {"time_column": "dya"}, "no column 'dya'"),
        ({}, {"time_column": "y"}, "the target 'y' cannot say how rows are held out"),
        ({}, {"group_column": "y"}, "the target 'y' cannot say how rows are held out"),
    ],
)  # fmt: skip
def test_splits_that_cannot_be_made_are_told(tmp_path, columns, given, told):
    with pytest.raises(TableError, match=told):
        posed(tmp_path, columns, **given)


@pytest.mark.parametrize(
    "given, told",
    [
        ({"group_column": "a", "time_column": "b"}, "--time-column does not go with --group-column"),
        ({"time_column": "b", "repeats": 2}, "--repeats is for folds at random"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"one_se": True, "certify_global": 0.01}, "--certify-global is about the best penalties"),
    ],
)
def test_what_does_not_go_together_is_told(given, told):
    with pytest.raises(ValueError, match=told):
        Settings(data="data.csv", target="y", **given)


@pytest.mark.parametrize("option", [{"group_column": "a"}, {"time_column": "a"}, {"repeats": 2}, {"one_se": True}])
def test_a_cluster_has_folds_at_random_only(option):
    from suffice.tabular.parts import check_settings

    with pytest.raises(ValueError, match="does not go with --cluster"):
        check_settings(Settings(data="a.parquet", target="y", cluster="tcp://nowhere", files=("a.parquet",), **option))


def test_times_until_an_event_need_events_in_every_fold(tmp_path):
    died = (DAY > 30).astype(int)
    with pytest.raises(TableError, match="fold 1 of 3 has no event to be trained on"):
        posed(tmp_path, {"y": 1.0 + X**2, "died": died}, model="cox", event="died", time_column="day", cv=3)
    problem = posed(tmp_path, {"y": 1.0 + X**2, "died": died}, model="cox", event="died", group_column="person")
    assert len(problem.cv) == 5


def made_by(cv, groups=None):
    """Splits of these rows."""
    return cv if isinstance(cv, list) else [*cv.split(X, Y, groups)]


def test_a_score_by_groups_or_repeats_is_scikit_learns(tmp_path):
    path = data(tmp_path)
    for options, splitter, groups in (
        (["--group-column", "person", "--drop", "day"], GroupKFold(5), np.array([f"p{k}" for k in PERSON])),
        (
            ["--repeats", "3", "--drop", "day", "--drop", "person"],
            RepeatedKFold(n_splits=5, n_repeats=3, random_state=0),
            None,
        ),
    ):
        made, folder = tune(path, "--model", "ridge", "--json", *options, out=options[1])
        assert made.exit_code == 0, made.output
        found = json.loads(made.stdout)
        problem, _ = load(read_settings(folder))
        for ours, theirs in zip(made_by(problem.cv), made_by(splitter, groups), strict=True):
            assert np.array_equal(ours[1], theirs[1])
        scores = []
        for train, test in made_by(splitter, groups):
            model = clone(problem.estimator).set_params(model__alpha=found["penalties"]["l2"] * len(train))
            model.fit(problem.X.iloc[train], Y[train])
            scores.append(-np.mean((model.predict(problem.X.iloc[test]) - Y[test]) ** 2))
        assert found["score"] == pytest.approx(np.mean(scores), rel=1e-6)
        low, high = found["interval"]
        assert low <= found["score"] <= high


def test_how_rows_were_held_out_is_told_remembered_and_the_same_when_resumed(tmp_path):
    path = data(tmp_path, y=np.where(Y > 0.0, "yes", "no"))
    made, folder = tune(path, "--group-column", "person", "--repeats", "2", "--one-se", "--max-evaluations", "1")
    assert made.exit_code == 1
    assert "5 folds of groups by 'person', 2 times" in made.stdout
    assert f"on {N} held-out rows, 2 times each" in made.stdout
    command = json.loads((folder / "command.json").read_text())
    assert (command["group_column"], command["repeats"], command["one_se"]) == ("person", 2, True)
    made = runner.invoke(app, ["resume", str(folder), "--max-evaluations", "200", "--json", "--jobs", "1"])
    whole, _ = tune(path, "--group-column", "person", "--repeats", "2", "--one-se", "--json", out="whole")
    assert made.exit_code == whole.exit_code == 0, made.output + whole.output
    for key in ("best_params", "score", "interval", "evaluations"):
        assert json.loads(made.stdout)[key] == json.loads(whole.stdout)[key]
    other, _ = tune(path, "--group-column", "person", "--repeats", "3", "--one-se")
    assert other.exit_code == 2 and "another run (it differs in repeats)" in other.output


def test_one_standard_error_takes_larger_penalties_and_says_so(tmp_path):
    path = data(tmp_path)
    best, _ = tune(path, "--model", "ridge", "--json", out="best")
    larger, _ = tune(path, "--model", "ridge", "--json", "--one-se", out="larger")
    found = [json.loads(one.stdout)["penalties"]["l2"] for one in (best, larger)]
    assert found[1] > 2.0 * found[0]
    assert "largest penalties whose loss is within one standard error" in tune(path, "--one-se", out="told")[0].stdout


def test_the_report_says_how_rows_were_held_out(tmp_path):
    path = data(tmp_path)
    given = ["--target", "y", "--repeats", "2", "--cv", "3", "--group-column", "person", "--out", str(tmp_path / "run")]
    made = runner.invoke(app, ["tune", str(path), *given])
    assert made.exit_code == 0, made.output
    words = (
        "of 120 rows, each predicted by a model that had not seen it (3 folds of groups by &#x27;person&#x27;, 2 times)"
    )
    assert words in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
