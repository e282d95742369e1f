"""Tables on a cluster: the rules of one machine, exact statistics, a model that scikit-learn takes."""

import json

import numpy as np
import pandas as pd
import pytest

from suffice.tabular.columns import preparation_of
from suffice.tabular.on_cluster import Wish, run, wish_of
from suffice.tabular.parts import Summary, find_parts
from suffice.tabular.predict import predict
from suffice.tabular.preparation import prepared
from suffice.tabular.settings import Settings
from suffice.tabular.table import TableError
from suffice.terms.blocks import RowBlocks

pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed")

ROWS, FOLDS = 240, 3
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "a": np.round(rng.standard_normal(ROWS), 1),
        "b": np.where(rng.random(ROWS) < 0.1, np.nan, rng.exponential(size=ROWS)),
        "c": rng.choice(np.array(["x", "y", "z", None], dtype=object), ROWS),
        "number": np.arange(ROWS),
        "same": 1.0,
    }
)
LABELS = np.where(FRAME.a + (FRAME.c == "x") + rng.logistic(size=ROWS) > 0.3, "yes", "no")


@pytest.fixture
def files(tmp_path):
    def written(**target):
        paths = []
        for k in range(2):
            half = slice(k * 120, (k + 1) * 120)
            path = tmp_path / f"{k}.parquet"
            FRAME.assign(**target)[half].to_parquet(path, row_group_size=50)
            paths.append(str(path))
        return tuple(paths)

    return written


@pytest.fixture(scope="module")
def address():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as made:
        yield made.scheduler_address


def test_preparations_are_those_of_scikit_learn_for_the_training_rows_of_every_fold():
    codes = FRAME.c.map({"x": 0.0, "y": 1.0, "z": 2.0}).fillna(3.0)
    raw = np.column_stack([FRAME.a, FRAME.b, codes])
    found = prepared(RowBlocks.of(raw, block=50), 2, (4,), FOLDS)
    frame = FRAME[["a", "b", "c"]].assign(c=FRAME.c.where(FRAME.c.notna(), np.nan))
    rows = np.arange(ROWS)
    for k, preparation in enumerate(found):
        theirs = preparation_of(["a", "b"], ["c"], 10, dense=True).fit(frame[rows % FOLDS != k])
        np.testing.assert_allclose(preparation(raw), theirs.transform(frame), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("values", [[-0.0, 0.0, -1.5, 3.0], [1e100, -1e-300, 2.0, 5e-324, -7.0], [2.0, 2.0, np.nan]])
def test_medians_are_exact(values):
    column = np.array(values * 7 + [0.25])[:, None]
    for k, preparation in enumerate(prepared(RowBlocks.of(column, block=5), 1, (), 2)):
        inside = np.arange(len(column)) % 2 != k
        assert preparation.medians[0] == np.nanmedian(column[inside])


def test_a_model_is_tuned_saved_and_at_work(files, address, tmp_path):
    paths = files(y=LABELS)
    found = run(Wish(data=paths, target="y", cv=2, max_evaluations=2), address, tmp_path / "run")
    assert (found.model, found.numeric, found.categorical) == ("logistic", ("a", "b"), ("c",))
    assert any("counts the rows" in note for note in found.notes)
    assert any("one value only" in note for note in found.notes)
    low, high = found.result.interval
    assert low <= found.result.cost <= high < np.log(2.0)
    predicted = predict(tmp_path / "run", paths[0])
    assert predicted.names[0] == "predicted y"
    assert np.mean(predicted.columns[0] == LABELS[:120]) > 0.6
    again = run(Wish(data=paths, target="y", cv=2, max_evaluations=2), address, tmp_path / "run")
    assert again.result.theta.tobytes() == found.result.theta.tobytes()
    assert json.dumps(found.plain())


def test_the_final_model_is_the_minimiser_that_scikit_learn_states(files, address, tmp_path):
    skops = pytest.importorskip("skops.io")
    paths = files(y=FRAME.a.fillna(0.0) + 0.5 * (FRAME.c == "x") + rng.standard_normal(ROWS))
    found = run(Wish(data=paths, target="y", model="ridge", cv=2, max_evaluations=1), address, tmp_path / "run")
    model = skops.load(found.model_file, trusted=["numpy.dtype"])
    frame = FRAME[["a", "b", "c"]].assign(c=FRAME.c.where(FRAME.c.notna(), np.nan))
    X, y = model[:-1].transform(frame), pd.concat([pd.read_parquet(path) for path in paths]).y.to_numpy()
    r = y - model.predict(frame)
    l2 = found.plain()["penalties"]["l2"]
    assert abs(r.mean()) < 1e-9
    assert np.linalg.norm(X.T @ r / ROWS - l2 * model[-1].coef_) < 1e-5


@pytest.mark.parametrize(
    ("target", "wish", "message"),
    [
        ({"y": LABELS}, {"target": "z"}, "there is no column"),
        ({"y": LABELS}, {"model": "svm"}, "not for a cluster"),
        ({"y": rng.choice(["p", "q", "r"], ROWS)}, {}, "has 3 classes"),
        ({"y": [None, *LABELS[1:]]}, {}, "is missing in"),
        ({"y": LABELS, "when": pd.Timestamp("2026-01-01")}, {}, "--drop when"),
        ({"y": "same"}, {}, "one value only"),
    ],
)
def test_what_a_cluster_does_not_do_is_said(files, address, tmp_path, target, wish, message):
    with pytest.raises(TableError, match=message):
        run(Wish(**{"data": files(**target), "target": "y", **wish}), address, tmp_path / "run")


def test_options_that_do_not_go_with_a_cluster_are_refused():
    with pytest.raises(ValueError, match="--weights does not go with --cluster"):
        wish_of(Settings(data="a.parquet", target="y", weights="w"), ["a.parquet"])
    assert wish_of(Settings(data="a.parquet", target="y", cv=3), ["a.parquet", "b.parquet"]).cv == 3


def test_a_scheduler_that_is_not_there(files, tmp_path, monkeypatch):
    monkeypatch.setattr("suffice.tabular.on_cluster.PATIENCE", "1s")
    with pytest.raises(TableError, match="no scheduler answers"):
        run(Wish(data=files(y=LABELS), target="y"), "tcp://127.0.0.1:1", tmp_path / "run")


def test_files_that_do_not_go_together(tmp_path):
    FRAME.to_parquet(tmp_path / "a.parquet")
    FRAME.drop(columns="a").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(TableError, match="has other columns"):
        find_parts([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")])


def test_summaries_of_parts_are_those_of_the_whole():
    values = np.arange(100.0)
    whole = Summary.of(values, "numeric")
    parts = Summary.of(values[:40], "numeric").then(Summary.of(values[40:], "numeric"), "numeric")
    assert (parts.known, parts.low, parts.high, parts.increasing) == (whole.known, 0.0, 99.0, True)
    assert not Summary.of(values[40:], "numeric").then(Summary.of(values[:40], "numeric"), "numeric").increasing
