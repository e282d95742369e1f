"""What a table is taken for: the task, the use of every column, and a pipeline that takes the table as it is."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from suffice.tabular import TableError, read
from suffice.tabular.columns import LEVELS, MODELS, pose

pytest.importorskip("pandas")
rng = np.random.default_rng(0)


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
        (rng.integers(0, 4, N), {"task": "regression"}, "regression", "elastic-net"),
        (rng.integers(0, 4, N), {"model": "poisson"}, "regression", "poisson"),
        (rng.integers(0, 40, N), {}, "regression", "elastic-net"),
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
        ({"y": ["rare"] * 3 + [*LABEL[3:]]}, {}, "'rare' has 3 rows, fewer than the 5 folds: use --cv 3"),
        ({"y": ["rare", *LABEL[1:]]}, {}, "'rare' has 1 row, fewer than the 5 folds: leave"),
        ({"y": LABEL}, {"task": "regression"}, "regression needs numbers"),
        ({"y": LABEL}, {"model": "ridge", "task": "classification"}, "ridge is for regression"),
        ({"y": GROUP}, {"model": "svm"}, "svm takes two classes"),
        ({"y": X2}, {"model": "poisson"}, "is negative in line"),
        ({"y": X2}, {"folds": 40}, "60 rows, too few for 40 folds"),
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
    problem = pose(table(tmp_path, x=X1, y=[None, None, *X2[2:]]), "y", skip_missing=True)
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


def test_the_number_of_levels_is_limited_and_unknown_ones_join_the_rare_ones(tmp_path):
    many = [f"city {i % 50}" for i in range(300)]
    problem = pose(table(tmp_path, g=many, y=[i % 2 for i in range(300)]), "y")
    assert any("50 levels: the rarest share one column" in note for note in problem.notes)
    fitted = problem.estimator[:-1].fit(problem.X, problem.y)
    assert fitted.transform(problem.X).shape == (300, LEVELS)
    fresh = problem.X.head(1).assign(g="never seen")
    np.testing.assert_array_equal(fitted.transform(fresh)[0], np.eye(LEVELS)[-1])


def test_large_tables_are_prepared_as_sparse_ones_with_the_same_entries(tmp_path, monkeypatch):
    from suffice.tabular import columns

    known = table(tmp_path, x=X1, g=GROUP, y=LABEL)
    dense = prepared(pose(known, "y"))
    monkeypatch.setattr(columns, "DENSE", 0)
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

    task = MODELS[model][0]
    target = LABEL if task == "classification" else rng.poisson(np.exp(0.5 * X1)) if model == "poisson" else 1e5 * X2
    problem = pose(table(tmp_path, x=X1, g=GROUP, y=target), "y", task=task, model=model)
    search = SufficeSearchCV(problem.estimator, problem.space, cv=problem.cv, options=Options(max_evaluations=4))
    search.fit(problem.X, problem.y)
    low, high = search.score_interval_
    assert low <= search.best_score_ <= high
    assert len(search.predict(problem.X)) == N
