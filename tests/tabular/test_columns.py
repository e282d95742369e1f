"""What a table is taken for: the task, the use of every column, and a pipeline that takes the table as it is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from suffice.tabular import TableError, read
from suffice.tabular.problem import pose as pose_
from suffice.tabular.problem import read_groups
from suffice.tabular.settings import MODELS, Settings

pytest.importorskip("pandas")
rng = np.random.default_rng(0)


def pose(known, target, **given):
    """The problem of a table."""
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return pose_(known, Settings(data="data.csv", target=target, **{**given, **lists}))


def table(tmp_path, **columns):
    """A table of these columns, by way of a file."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join("" if entry is None else str(entry) for entry in row) for row in rows)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(lines) + "\n")
    return read(path)


N = 60
X1, X2 = rng.standard_normal((2, N)).round(3)
GROUP = rng.choice(["u", "v", "w"], N)
LABEL = np.where(X1 + rng.standard_normal(N) > 0, "yes", "no")


@pytest.mark.parametrize(
    "target, given, task, model",
    [
        (LABEL, {}, "classification", "logistic"),
        (LABEL == "yes", {}, "classification", "logistic"),
        ((LABEL == "yes") * 1, {}, "classification", "logistic"),
        (rng.integers(0, 4, N), {}, "classification", "logistic"),
        (rng.integers(0, 4, N), {"task": "regression"}, "regression", "elastic-net"),  # no counts, and pure noise
        (rng.integers(0, 4, N), {"model": "poisson"}, "regression", "poisson"),
        (np.round(10 * (X1 - X1.min())), {}, "regression", "elastic-net"),
        (X2, {}, "regression", "elastic-net"),
        (np.where(X2 > 0, 0.5, 1.5), {}, "classification", "logistic"),
    ],
)
def test_the_target_decides_the_task(tmp_path, target, given, task, model):
    problem = pose(table(tmp_path, x=X1, y=target), "y", **given)
    assert (problem.task, problem.model) == (task, model)


def test_labels_keep_their_type(tmp_path):
    for target, kind in ((LABEL, "U"), (LABEL == "yes", "b"), ((LABEL == "yes") * 1, "i"), (X2, "f")):
        assert pose(table(tmp_path, x=X1, y=target), "y").y.dtype.kind == kind


@pytest.mark.parametrize(
    "columns, options, told",
    [
        ({"y": [1] * N}, {}, "one value only, '1'"),
        ({"y": ["a"] * N}, {}, "one value only, 'a'"),
        ({"y": [None] * N}, {}, "no values"),
        ({"y": [None, *LABEL[1:]]}, {}, "missing in 1 of 60 rows, first in line 2"),
        ({"y": ["x", *X2[1:]]}, {}, "is numeric, but line 2 has 'x'"),
        ({"y": ["inf", *X2[1:]]}, {}, "is inf in line 2"),
        ({"y": ["5", *(f"{value}%" for value in X2[1:])]}, {}, "is in percent, but line 2 has '5'"),
        (
            {"y": ["rare"] * 3 + [*LABEL[3:]]},
            {},
            "'rare' has 3 rows, fewer than the 5 folds: --cv 3, or --min-class-size 5",
        ),
        ({"y": ["rare", *LABEL[1:]]}, {}, "'rare' has 1 row, fewer than the 5 folds: --min-class-size 5 joins"),
        ({"y": LABEL}, {"task": "regression"}, "regression needs numbers"),
        ({"y": LABEL}, {"model": "ridge", "task": "classification"}, "ridge is for regression"),
        ({"y": GROUP}, {"model": "svm"}, "svm takes two classes"),
        ({"y": X2}, {"model": "poisson"}, "is negative in line"),
        ({"y": X2}, {"cv": 40}, "60 rows, too few for 40 folds"),
        ({"y": [f"t{i}" for i in range(200)], "x": range(200)}, {}, "too many to be classes"),
        ({"y": LABEL, "x": [1] * N}, {}, "no column to learn from"),
    ],
)
def test_what_poses_no_problem_is_told(tmp_path, columns, options, told):
    with pytest.raises(TableError) as caught:
        pose(table(tmp_path, **({"x": X1} | columns)), "y", **options)
    assert told in str(caught.value)


def test_unknown_columns_are_named_with_near_ones(tmp_path):
    known = table(tmp_path, Survived=LABEL, x=X1)
    for wrong in ("survived", "Surived"):
        with pytest.raises(TableError, match=f"no column '{wrong}': did you mean 'Survived'"):
            pose(known, wrong)
    with pytest.raises(TableError, match="no column 'qq': there are 'Survived', 'x'"):
        pose(known, "Survived", drop=["qq"])


def test_rows_without_a_target_are_left_out_on_request(tmp_path):
    problem = pose(table(tmp_path, x=X1, y=[None, None, *X2[2:]]), "y", skip_missing_target=True)
    assert len(problem.y) == len(problem.X) == N - 2
    assert "2 rows without a target are left out" in problem.notes
    assert list(problem.X.index) == list(range(N - 2))


USELESS = {
    "row": (range(1, N + 1), "it counts the rows"),
    "user_id": (rng.permutation(1000)[:N], "it looks like an identifier"),
    "userId": (rng.permutation(1000)[:N], "it looks like an identifier"),
    "name": ([f"name {i}" for i in range(N)], "60 different texts in 60 rows"),
    "same": ([3] * N, "one value only"),
    "void": ([None] * N, "no values"),
}


@pytest.mark.parametrize("name", USELESS)
def test_columns_of_no_use_are_left_out_with_a_note(tmp_path, name):
    entries, reason = USELESS[name]
    known = table(tmp_path, x=X1, **{name: entries}, y=LABEL)
    problem = pose(known, "y")
    assert problem.numeric == ("x",) and problem.categorical == ()
    assert any(name in note and reason in note for note in problem.notes)
    kept = pose(known, "y", keep=[name])
    assert (name in (*kept.numeric, *kept.categorical)) == (name not in ("same", "void"))


@pytest.mark.parametrize(
    "name, entries",
    [
        ("valid", rng.permutation(1000)[:N]),  # whole numbers, all different, but not an identifier by name
        ("paid", rng.permutation(1000)[:N]),
        ("id", rng.integers(0, 20, N)),  # not all different
        ("half", [1.0] * 30 + [None] * 30),  # missing or not is something to learn from
    ],
)
def test_columns_of_use_are_kept(tmp_path, name, entries):
    assert name in pose(table(tmp_path, x=X1, **{name: entries}, y=LABEL), "y").numeric


def test_dropped_and_categorical_columns(tmp_path):
    problem = pose(table(tmp_path, x=X1, k=rng.integers(0, 4, N), g=GROUP, y=LABEL), "y", drop=["x"], categorical=["k"])
    assert problem.numeric == () and problem.categorical == ("k", "g")


def prepared(problem):
    return problem.estimator[:-1].fit_transform(problem.X, problem.y)


def test_missing_numbers_become_the_median_and_are_marked(tmp_path):
    entries = [None if i % 6 == 0 else value for i, value in enumerate(X1)]
    Z = prepared(pose(table(tmp_path, x=entries, y=LABEL), "y"))
    known = np.array([value for value in entries if value is not None])
    filled = np.array([np.median(known) if value is None else value for value in entries])
    np.testing.assert_allclose(Z[:, 0], (filled - filled.mean()) / filled.std(), atol=1e-12)
    assert len(np.unique(Z[:, 1])) == 2 and (Z[::6, 1] > 0).all()
    assert Z.shape == (N, 2)


def test_levels_become_columns_and_missing_is_a_level(tmp_path):
    entries = [None if i == 0 else value for i, value in enumerate(GROUP)]
    Z = prepared(pose(table(tmp_path, g=entries, y=LABEL), "y"))
    assert Z.shape == (N, 4) and (Z.sum(axis=1) == 1.0).all() and Z[0, 3] == 1.0


def test_a_category_of_two_levels_is_one_column(tmp_path):
    posed = pose(table(tmp_path, sex=["f", "m"] * 10, y=list(range(20))), "y", task="regression")
    made = posed.estimator[0].fit(posed.X)
    assert made.get_feature_names_out().tolist() == ["sex_m"]
    assert np.asarray(made.transform(posed.X)).ravel().tolist() == [0.0, 2.0] * 10  # whose standard deviation is 1


def levels_of(problem):
    """What the columns of categories are called."""
    return [str(name) for name in problem.estimator[:-1].fit(problem.X, problem.y).get_feature_names_out()]


MANY = [f"city {i % 50}" for i in range(300)]


def test_every_level_has_a_column(tmp_path):
    problem = pose(table(tmp_path, g=MANY, y=[i % 2 for i in range(300)]), "y")
    assert levels_of(problem) == sorted(f"g_city {i}" for i in range(50))
    assert "column 'g' has 50 levels, each with a coefficient" in problem.notes


def test_a_level_that_is_new_has_the_effect_of_none(tmp_path):
    problem = pose(table(tmp_path, g=[*MANY[:-1], "once"], y=[i % 2 for i in range(300)]), "y")
    fitted = problem.estimator[:-1].fit(problem.X, problem.y)
    assert not fitted.transform(problem.X.head(1).assign(g="never seen")).any()
    assert fitted.transform(problem.X.tail(1)).sum() == 1.0


def test_rare_levels_and_new_ones_share_a_column_where_levels_are_limited(tmp_path):
    entries = [*MANY[:-3], "a", "b", "c"]
    problem = pose(table(tmp_path, g=entries, y=[i % 2 for i in range(300)]), "y", max_levels=50)
    fitted = problem.estimator[:-1].fit(problem.X, problem.y)
    assert fitted.transform(problem.X).shape == (300, 51)
    for fresh in ("never seen", "b"):
        np.testing.assert_array_equal(fitted.transform(problem.X.head(1).assign(g=fresh))[0], np.eye(51)[-1])


def test_the_number_of_levels_is_limited_on_request(tmp_path):
    problem = pose(table(tmp_path, g=MANY, y=[i % 2 for i in range(300)]), "y", max_levels=10)
    assert len(levels_of(problem)) == 11 and levels_of(problem)[-1] == "g_infrequent_sklearn"
    assert any("beyond the 10 most frequent levels, all join 'other' (--max-levels)" in note for note in problem.notes)


def test_levels_that_were_joined_are_called_other(tmp_path):
    from suffice.sklearn import SufficeSearchCV
    from suffice.sklearn._report_data import feature_names

    problem = pose(table(tmp_path, g=MANY, y=np.arange(300) % 7), "y", model="ridge", max_levels=2)
    search = SufficeSearchCV(problem.estimator, problem.space, cv=problem.cv).fit(problem.X, problem.y)
    assert feature_names(search, 3)[-1] == "g_other"


def test_levels_that_memory_does_not_allow_join_the_rare_ones_with_a_note(tmp_path, monkeypatch):
    from suffice.tabular import columns

    monkeypatch.setattr(columns, "WIDTH", 25)
    problem = pose(table(tmp_path, g=MANY, h=[i % 7 for i in range(300)], y=[i % 2 for i in range(300)]), "y",
                   categorical=["h"])  # fmt: skip
    assert len(levels_of(problem)) == 16 + 1 + 7
    assert any("'g': beyond the 16 most frequent" in note and "25 columns" in note for note in problem.notes)


def test_many_levels_explain_what_thirty_cannot(tmp_path):
    """A country of 140 is worth its own coefficient: held out, R^2 is well above that of 30 levels."""
    from suffice.sklearn import SufficeSearchCV

    own = np.random.default_rng(1)
    place = np.repeat(np.arange(140), 8)
    y = own.standard_normal(140)[place] + 0.3 * own.standard_normal(len(place))
    known = table(tmp_path, g=[f"c{i}" for i in place], x=own.standard_normal(len(place)).round(3), y=y.round(4))
    r2 = {}
    for most in (30, None):
        problem = pose(known, "y", model="ridge", max_levels=most)
        search = SufficeSearchCV(problem.estimator, problem.space, cv=problem.cv, scoring="r2")
        r2[most] = search.fit(problem.X, problem.y).best_score_
    assert r2[None] > 0.85 and r2[30] < 0.4


def test_large_tables_are_prepared_as_sparse_ones_with_the_same_entries(tmp_path, monkeypatch):
    from suffice.tabular import problem as problems

    known = table(tmp_path, x=X1, g=GROUP, y=LABEL)
    dense = prepared(pose(known, "y"))
    monkeypatch.setattr(problems, "DENSE", 0)
    sparse = prepared(pose(known, "y"))
    np.testing.assert_array_equal(sparse.toarray(), dense)


def test_nothing_of_the_held_out_rows_is_known_in_training(tmp_path):
    """Medians, means and levels are refitted: the pipeline scores as if it were cross-validated by scikit-learn."""
    problem = pose(table(tmp_path, x=X1, z=X2, g=GROUP, y=LABEL), "y", model="logistic-l2")
    from suffice.sklearn import SufficeSearchCV

    search = SufficeSearchCV(problem.estimator, problem.space, cv=problem.cv, scoring="neg_log_loss").fit(
        problem.X, problem.y
    )
    l2 = search.best_penalties_["l2"]
    model = LogisticRegression(C=1.0 / (l2 * 0.8 * N), tol=1e-10, max_iter=10_000)
    pipeline = problem.estimator.set_params(model=model)
    expected = cross_val_score(pipeline, problem.X, problem.y, cv=problem.cv, scoring="neg_log_loss").mean()
    low, high = search.score_interval_
    assert low - 1e-6 <= expected <= high + 1e-6


@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_be_tuned(tmp_path, model):
    from suffice import Options
    from suffice.sklearn import SufficeSearchCV

    task = MODELS[model].task
    counts = model in ("poisson", "tweedie", "negative-binomial")
    target = LABEL if task == "classification" else rng.poisson(np.exp(0.5 * X1)) if counts else 1e5 * X2
    target = np.exp(X2) if model in ("gamma", "cox") else target
    columns, more = {"x": X1, "g": GROUP, "y": target}, {}
    if model == "cox":
        columns, more = columns | {"died": (np.arange(N) % 3 > 0).astype(int)}, {"event": "died"}
    problem = pose(table(tmp_path, **columns), "y", task=task, model=model, **more)
    search = SufficeSearchCV(problem.estimator, problem.space, cv=problem.cv, options=Options(max_evaluations=4))
    search.fit(problem.X, problem.y)
    low, high = search.score_interval_
    assert low <= search.best_score_ <= high
    assert len(search.predict(problem.X)) == N


# Columns that look like mistakes


def test_shuffled_row_numbers_are_left_out(tmp_path):
    for entries in (rng.permutation(N) + 1, np.sort(rng.choice(2 * N, N, replace=False))):
        entries = entries - entries.min()
        problem = pose(table(tmp_path, x=X1, k=entries, y=LABEL), "y")
        assert problem.numeric == ("x",) and any("'k' is left out: its 60 different" in note for note in problem.notes)


def test_numbers_in_the_order_of_the_rows_get_a_warning(tmp_path):
    problem = pose(table(tmp_path, x=X1, year=range(1900, 1900 + N), y=LABEL), "y")
    assert problem.numeric == ("x", "year")
    assert any(note.startswith("warning: column 'year' holds 60 different whole numbers") for note in problem.notes)
    assert not any("warning" in note for note in pose(table(tmp_path, x=X1, y=LABEL), "y").notes)


@pytest.mark.parametrize(
    "target, column, told",
    [
        (LABEL, np.where(LABEL == "yes", 2, 1) + 0.1 * rng.random(N), "tells the class of 100.0 %"),
        (LABEL, np.where(LABEL == "yes", "J", "N"), "tells the class of 100.0 %"),
        (X2, 3.0 - 7.0 * X2, "has correlation -1.00000"),
        (np.repeat([1.5, 2.5, 4.0], 20), np.repeat(["a", "b", "c"], 20), "has correlation 1.00000"),
    ],
)
def test_columns_that_give_the_target_away_get_a_warning(tmp_path, target, column, told):
    problem = pose(table(tmp_path, x=X1, leak=column, y=target), "y")
    assert any(note.startswith("warning: column 'leak' " + told) for note in problem.notes)
    assert sum(note.startswith("warning") for note in problem.notes) == 1


HOURS = np.arange(8 * N) * 7 % 24
BY_THE_HOUR = np.sin(np.arange(24.0) * 2.4)[HOURS] + 0.3 * rng.standard_normal(8 * N)


def test_hours_are_categories_where_held_out_rows_say_so(tmp_path):
    known = table(tmp_path, hr=HOURS, size=HOURS, x=np.tile(X1, 8), y=BY_THE_HOUR)
    problem = pose(known, "y", keep=["size"])
    assert problem.numeric == ("size", "x") and problem.categorical == ("hr",)
    (note,) = (note for note in problem.notes if "'hr'" in note)
    assert note.startswith("column 'hr' is used as 24 categories: held-out rows have 0.")
    assert note.endswith("with numbers (--keep 'hr' for numbers)")
    made = {}
    for how, wish in (("categories", {"keep": ["size"]}), ("numbers", {"keep": ["size", "hr"]})):
        model = pose(known, "y", **wish).estimator.set_params(model__alpha=1e-3)
        made[how] = cross_val_score(model, problem.X, BY_THE_HOUR).mean()
    assert made["categories"] > 0.7 > 0.2 > made["numbers"]


def test_hours_are_numbers_where_categories_are_no_better(tmp_path):
    problem = pose(table(tmp_path, hr=HOURS, y=HOURS + rng.standard_normal(8 * N)), "y")
    assert problem.numeric == ("hr",)
    assert any("'hr' is used as numbers" in note and "--categorical 'hr'" in note for note in problem.notes)
    for given in ({"categorical": ["hr"]}, {"keep": ["hr"]}):
        known = table(tmp_path, hr=HOURS, y=BY_THE_HOUR)
        assert not any("used as" in note for note in pose(known, "y", **given).notes)


def test_numbers_that_say_nothing_by_their_name_stay_numbers_and_are_noted(tmp_path):
    known = table(tmp_path, machine=HOURS, size=HOURS // 2, x=np.tile(X1, 8), y=BY_THE_HOUR)
    problem = pose(known, "y", drop=["size"])
    assert problem.numeric == ("machine", "x")
    assert any("'machine' is used as numbers" in note and "--categorical 'machine'" in note for note in problem.notes)
    straight = table(tmp_path, machine=HOURS, y=HOURS + rng.standard_normal(8 * N))
    assert not any("machine" in note for note in pose(straight, "y").notes)


def test_very_many_codes_are_noted_and_not_tried(tmp_path):
    problem = pose(table(tmp_path, zip=rng.integers(10_000, 99_999, 8 * N), y=BY_THE_HOUR), "y")
    assert problem.numeric == ("zip",)
    assert "column 'zip' holds whole numbers: --categorical 'zip' if they are codes" in problem.notes


def test_a_table_of_row_numbers_only_is_told_of_keep(tmp_path):
    with pytest.raises(TableError, match="no column to learn from besides the target: --keep uses 'nr'"):
        pose(table(tmp_path, nr=range(N), y=X1), "y")


def test_dates_are_used_by_their_parts(tmp_path):
    days = [f"20{20 + i % 3}-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(N)]
    known = table(tmp_path, x=X1, when=days, y=LABEL)
    problem = pose(known, "y")
    assert problem.numeric == ("x", "when: days", "when: year")
    assert problem.categorical == ("when: month", "when: weekday") and problem.recipe.needs == ("x", "when")
    assert pose(known, "y", drop=["when"]).numeric == ("x",)
    assert pose(known, "y", drop=["when: year"]).numeric == ("x", "when: days")
    with pytest.raises(TableError, match="holds dates"):
        pose(known, "when")


# Targets


COUNTS = np.array([0] * 25 + [1] * 17 + [2] * 9 + [3] * 5 + [4] * 3 + [7])


def test_rare_whole_numbers_are_numbers_and_not_classes(tmp_path):
    problem = pose(table(tmp_path, x=X1[np.argsort(X1)], y=COUNTS), "y")
    assert problem.model == "poisson"
    assert any("6 different whole numbers, some of them rare (7 in 1 row): numbers" in note for note in problem.notes)
    assert any("Poisson regression, unless --model elastic-net" in note for note in problem.notes)
    ratings = np.array([3] * 2 + [4] * 8 + [5] * 20 + [6] * 20 + [7] * 8 + [8] * 2)
    assert pose(table(tmp_path, x=X1, y=ratings), "y").model == "elastic-net"


def test_a_rare_class_is_told_with_what_to_do(tmp_path):
    with pytest.raises(TableError, match=r"--min-class-size 5 joins.*or --task regression or --model poisson"):
        pose(table(tmp_path, x=X1, y=COUNTS), "y", task="classification")


def test_rare_classes_are_joined(tmp_path):
    problem = pose(table(tmp_path, x=X1, y=COUNTS), "y", min_class_size=6)
    assert np.unique(problem.y).tolist() == ["0", "1", "2", "other"] and len(problem.y) == len(problem.X) == N
    assert any("3 classes with fewer than 6 rows ('3', '4', '7')" in note for note in problem.notes)


def test_rare_classes_that_are_too_few_together_are_dropped(tmp_path):
    problem = pose(table(tmp_path, x=X1, y=["rare", *LABEL[1:]]), "y", min_class_size=5)
    assert sorted(set(problem.y)) == ["no", "yes"] and any("1 row left out, since together" in n for n in problem.notes)


def test_skewed_targets_are_noted_and_their_logarithm_is_fitted_on_request(tmp_path):
    skewed = np.exp(1.5 * X2)
    known = table(tmp_path, x=X1, y=skewed)
    assert any("strongly skewed" in note and "--log-target" in note for note in pose(known, "y").notes)
    problem = pose(known, "y", log_target=True)
    np.testing.assert_allclose(problem.y, 1.5 * X2, atol=1e-12)
    with pytest.raises(TableError, match="--log-target needs positive"):
        pose(table(tmp_path, x=X1, y=X2), "y", log_target=True)
    with pytest.raises(TableError, match="--log-target is for regression"):
        pose(table(tmp_path, x=X1, y=LABEL), "y", log_target=True)


def test_the_positive_class_is_the_one_that_was_named(tmp_path):
    problem = pose(table(tmp_path, x=X1, y=LABEL), "y", positive="no")
    assert problem.labels == ("yes", "no")
    np.testing.assert_array_equal(problem.y, LABEL == "no")
    against = pose(table(tmp_path, x=X1, y=GROUP), "y", positive="v")
    assert against.labels == ("not v", "v") and against.y.sum() == (GROUP == "v").sum()
    with pytest.raises(TableError, match="'maybe' is not a class of the target: they are 'no', 'yes'"):
        pose(table(tmp_path, x=X1, y=LABEL), "y", positive="maybe")


def test_weights_are_a_column_and_no_feature(tmp_path):
    problem = pose(table(tmp_path, x=X1, w=np.arange(N) % 3, y=LABEL), "y", weights="w")
    assert problem.numeric == ("x",)
    np.testing.assert_array_equal(problem.weight, np.arange(N) % 3)
    for entries, told in (([-1.0, *X1[1:] ** 2], "is -1 in line 2"), ([None, *X1[1:] ** 2], "is missing in line 2")):
        with pytest.raises(TableError, match=told):
            pose(table(tmp_path, x=X1, w=entries, y=LABEL), "y", weights="w")
    with pytest.raises(TableError, match="are not numbers"):
        pose(table(tmp_path, x=X1, w=GROUP, y=LABEL), "y", weights="w")


def grouped(tmp_path, groups):
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    return str(tmp_path / "groups.json")


def test_groups_have_penalties_of_their_own(tmp_path):
    gaps = [None if i % 7 == 0 else value for i, value in enumerate(X2)]
    known = table(tmp_path, x=X1, x_u=gaps, g=GROUP, y=LABEL)
    problem = pose(known, "y", groups=grouped(tmp_path, {"x": "one", "g": "two"}))
    assert set(problem.space) == {f"{kind}_{group}" for kind in ("l1", "l2") for group in ("one", "two", "rest")}
    names = levels_of(problem)
    of = {group: [name for name, chosen in zip(names, select(names), strict=True) if chosen]
          for group, select in problem.groups.items()}  # fmt: skip
    assert of == {"one": ["x"], "two": ["g_u", "g_v", "g_w"], "rest": ["x_u", "missingindicator_x_u"]}
    with pytest.raises(TableError, match="one group only"):
        pose(known, "y", groups=grouped(tmp_path, {"x": "one", "g": "one", "x_u": "one"}))


@pytest.mark.parametrize(
    "text",
    ['{"one": ["x", "z"], "two": ["g"]}', '{"x": "one", "z": "one", "g": "two"}'],
)
def test_groups_are_read_from_either_dictionary(tmp_path, text):
    (tmp_path / "groups").write_text(text)
    assert read_groups(str(tmp_path / "groups")) == {"x": "one", "z": "one", "g": "two"}


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"x": 3}', '{"one": ["x"], "two": ["x"]}', "x,one", '{"x": "a b"}', ""]
)
def test_groups_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "groups").write_text(text)
    with pytest.raises(TableError):
        read_groups(str(tmp_path / "groups"))
