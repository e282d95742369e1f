"""Tables on a cluster: the rules of one machine, exact statistics, a model that scikit-learn takes."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import cross_val_score

import suffice
from suffice import problems, solve
from suffice.rows.blocks import RowBlocks
from suffice.sklearn import ElasticNetGLM
from suffice.tabular import TableError, read
from suffice.tabular.check import check
from suffice.tabular.columns import Summary
from suffice.tabular.entries import Column, Form
from suffice.tabular.parts import PartedTable, check_settings, of_files
from suffice.tabular.predict import predict
from suffice.tabular.preparation import RowsPreparation, preparation_of
from suffice.tabular.run import claim, execute, load, opened
from suffice.tabular.settings import Settings
from suffice.tabular.update import update

pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed")
typer_testing = pytest.importorskip("typer.testing")

from suffice.cli import app  # noqa: E402

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


def asked(data, **how):
    return Settings(data=data[0], files=data, **{"target": "y", **how})


def run(settings, address, folder):
    settings = replace(settings, cluster=address)
    with opened(settings) as table:
        problem, settings = load(settings, table)
        claim(folder, settings)
        return execute(settings, problem, folder)


def prepared(raw, levels, fold, folds):
    """Preparations of raw rows, of which the first columns are numbers."""
    names = [f"x{k}" for k in range(raw.shape[1] - len(levels))]
    counts = {name: len(known) if name == "sex" else len(known) + 1 for name, known in levels.items()}
    step = RowsPreparation(preparation_of(names, counts, 10, dense=True), names, levels)
    return step.fit_rows(RowBlocks.of(raw, block=50), fold, folds)


def numbered(cv, y):
    numbers = np.empty(len(y), dtype=int)
    for k, (_, held) in enumerate(cv.split(np.zeros(len(y)), y)):
        numbers[held] = k
    return numbers


@pytest.fixture(scope="module")
def address(cluster):
    return cluster.scheduler_address


def test_preparations_are_those_of_scikit_learn_for_the_training_rows_of_every_fold():
    codes = FRAME.c.map({"x": 0.0, "y": 1.0, "z": 2.0}).fillna(3.0)
    sex = np.arange(ROWS) % 5 == 0
    raw = np.column_stack([FRAME.a, FRAME.b, sex, codes])
    fold = np.random.default_rng(1).permutation(ROWS) % FOLDS
    found = prepared(raw, {"sex": np.array(["f", "m"]), "c": np.array(["x", "y", "z"])}, fold, FOLDS)
    frame = FRAME[["a", "b", "c"]].assign(c=FRAME.c.where(FRAME.c.notna(), np.nan), sex=np.where(sex, "m", "f"))
    frame = frame.rename(columns={"a": "x0", "b": "x1"})
    for k, preparation in enumerate(found):
        theirs = preparation_of(["x0", "x1"], {"sex": 2, "c": 4}, 10, dense=True).fit(frame[fold != k])
        np.testing.assert_allclose(preparation.transform(raw), theirs.transform(frame), rtol=1e-12, atol=1e-13)
        ours = preparation.of_frames()
        np.testing.assert_allclose(ours.transform(frame), theirs.transform(frame), rtol=1e-12, atol=1e-13)
        assert preparation.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()


@pytest.mark.parametrize("values", [[-0.0, 0.0, -1.5, 3.0], [1e100, -1e-300, 2.0, 5e-324, -7.0], [2.0, 2.0, np.nan]])
def test_medians_are_exact(values):
    column = np.array(values * 7 + [0.25])[:, None]
    fold = np.arange(len(column)) % 2
    for k, preparation in enumerate(prepared(column, {}, fold, 2)):
        inside = fold != k
        assert preparation.medians_[0] == np.nanmedian(column[inside])


def test_parts_come_and_go(files, address, tmp_path):
    y = FRAME.a + (FRAME.c == "x") + 0.5 * np.random.default_rng(5).standard_normal(ROWS)
    paths, new = files(y=y), str(tmp_path / "new.parquet")
    more = FRAME.assign(y=y)[:60].assign(a=FRAME.a[:60] + 0.5, c="w")
    more.to_parquet(new)
    run(asked(paths, cv=2, model="ridge", no_report=True, max_evaluations=2), address, tmp_path / "run")
    folds = json.loads((tmp_path / "run" / "state.json").read_text())["folds"][0]
    found = update(tmp_path / "run", new)
    assert found.update.same_folds and (found.update.added, found.update.rows) == (60, 300)
    found = update(tmp_path / "run", None, gone=paths[0], cluster=address)
    assert (found.update.removed, found.update.rows) == (120, 180)
    left, search = pd.concat([FRAME.assign(y=y)[120:], more]), found.outcome.search
    X = found.outcome.model[0].transform(left)
    X, l2 = X - X.mean(axis=0), search.best_penalties_["l2"]
    exact = np.linalg.solve(X.T @ X + 180 * l2 * np.eye(X.shape[1]), X.T @ (left.y - left.y.mean()))
    assert np.linalg.norm(search.coef_ - exact) <= search.coef_radius_ + 1e-9
    assert json.loads((tmp_path / "run" / "state.json").read_text())["folds"][0][:120] == folds[120:]
    for path, gone, words in (
        (new, None, "was added already"),
        (None, paths[0], "is no part of the run"),
        (str(tmp_path / "none.parquet"), None, "cannot be read"),
    ):
        with pytest.raises(TableError, match=words):
            update(tmp_path / "run", path, gone=gone)
    FRAME.assign(y=y)[:70].to_parquet(new)
    with pytest.raises(TableError, match="has changed since the run"):
        update(tmp_path / "run", None, gone=paths[1])
    with pytest.raises(ValueError, match="a check is for runs of one table"):
        check(tmp_path / "run", new)


@pytest.mark.slow
def test_a_model_is_tuned_saved_and_at_work(files, address, tmp_path):
    paths = files(y=LABELS)
    found = run(asked(paths, cv=2, max_evaluations=2), address, tmp_path / "run")
    assert (found.problem.model, found.problem.numeric, found.problem.categorical) == ("logistic", ("a", "b"), ("c",))
    assert any("counts the rows" in note for note in found.notes)
    assert any("one value only" in note for note in found.notes)
    low, high = found.result.interval
    assert low <= found.result.cost <= high < np.log(2.0)
    names, columns, _ = predict(tmp_path / "run", paths[0])
    assert names[0] == "predicted y"
    assert np.mean(columns[0] == LABELS[:120]) > 0.6
    again = run(asked(paths, cv=2, max_evaluations=2), address, tmp_path / "run")
    assert again.result.theta.tobytes() == found.result.theta.tobytes()
    assert json.dumps(found.plain())


def test_the_final_model_is_the_minimiser_that_scikit_learn_states(files, address, tmp_path):
    skops = pytest.importorskip("skops.io")
    paths = files(y=FRAME.a.fillna(0.0) + 0.5 * (FRAME.c == "x") + rng.standard_normal(ROWS))
    found = run(asked(paths, model="ridge", cv=2, max_evaluations=1), address, tmp_path / "run")
    model = skops.load(found.model_file, trusted=["numpy.dtype"])
    frame = FRAME[["a", "b", "c"]].assign(c=FRAME.c.where(FRAME.c.notna(), np.nan))
    X, y = model[:-1].transform(frame), pd.concat([pd.read_parquet(path) for path in paths]).y.to_numpy()
    r = y - model.predict(frame)
    l2 = found.plain()["penalties"]["l2"]
    assert model[-1].alpha == pytest.approx(ROWS * l2)
    assert abs(r.mean()) < 1e-9
    assert np.linalg.norm(X.T @ r / ROWS - l2 * model[-1].coef_) < 1e-5


@pytest.mark.parametrize(
    ("target", "wish", "message"),
    [
        ({"y": LABELS}, {"target": "z"}, "there is no column"),
        ({"y": LABELS}, {"model": "svm"}, "not for a cluster"),
        ({"y": LABELS}, {"model": "cox", "event": "a"}, "rows depend on each other"),
        ({"y": LABELS}, {"weights": "a"}, "the weight 'a' is -.* in line"),
        ({"y": LABELS}, {"weights": "b"}, "the weight 'b' is missing in line"),
        ({"y": LABELS}, {"weights": "c"}, "the weights 'c' are not numbers"),
        ({"y": LABELS}, {"weights": "y"}, "cannot be the weights"),
        ({"y": np.arange(ROWS) % 120}, {"model": "logistic"}, "too many to be classes"),
        ({"y": np.where(np.arange(ROWS) < 3, "rare", LABELS)}, {}, "class 'rare' has 3 rows"),
        (
            {"y": np.arange(ROWS) % 7 * 1.0},
            {"model": "gamma"},
            "is 0 in line 1: Gamma regression needs positive numbers",
        ),
        ({"y": [None, *LABELS[1:]]}, {}, "is missing in"),
        ({"y": LABELS, "when": pd.Timestamp("2026-01-01")}, {}, "--drop when"),
        ({"y": "same"}, {}, "one value only"),
    ],
)
def test_what_a_cluster_does_not_do_is_said(files, address, tmp_path, target, wish, message):
    with pytest.raises(TableError, match=message):
        run(asked(files(**target), **wish), address, tmp_path / "run")


def test_options_that_do_not_go_with_a_cluster_are_refused():
    with pytest.raises(ValueError, match="--offset does not go with --cluster"):
        check_settings(Settings(data="a.parquet", target="y", model="poisson", offset="b"))
    check_settings(Settings(data="a.parquet", target="y", cv=3))


def test_a_scheduler_that_is_not_there(files, tmp_path, monkeypatch):
    monkeypatch.setattr("suffice.tabular.parts.PATIENCE", "1s")
    with pytest.raises(TableError, match="no scheduler answers"):
        run(asked(files(y=LABELS)), "tcp://127.0.0.1:1", tmp_path / "run")


def test_files_that_do_not_go_together(tmp_path):
    FRAME.to_parquet(tmp_path / "a.parquet")
    FRAME.drop(columns="a").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(TableError, match="has other columns"):
        of_files([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], None)


def test_summaries_of_parts_are_those_of_the_whole():
    def of(kind, values):
        return Summary.of(Column("x", Form(kind), values), values)

    values = np.arange(100.0)
    whole, first, last = (of("numeric", part) for part in (values, values[:40], values[40:]))
    assert first.then(last) == whole and whole.identifying == "it counts the rows"
    assert not last.then(first).rising
    texts = np.array(["a", None, "b", "b"], dtype=object)
    assert of("text", texts[:2]).then(of("text", texts[2:])) == of("text", texts)


def test_texts_that_nobody_can_list_are_left_out_whatever_is_asked(files, address, monkeypatch):
    monkeypatch.setattr("suffice.tabular.columns.MOST_TEXTS", 50)
    settings = asked(files(y=LABELS, code=[f"code {k}" for k in range(ROWS)]), keep=("code",), cluster=address)
    with opened(settings) as table:
        problem, _ = load(settings, table)
    assert "column 'code' is left out: it has more than 50 different texts" in problem.notes


@pytest.mark.parametrize("how", [{"target": "y", "seed": 7}, {"target": "a"}])
def test_folds_and_looks_are_those_of_one_machine(files, address, tmp_path, how):
    """The very splits, columns and notes of `suffice tune` without a cluster, of classes and of numbers."""
    paths = files(y=LABELS)
    pd.concat([pd.read_parquet(path) for path in paths]).to_parquet(tmp_path / "whole.parquet")
    here, _ = load(Settings(data=str(tmp_path / "whole.parquet"), cv=3, **how))
    settings = asked(paths, cv=3, cluster=address, **how)
    with opened(settings) as table:
        there, _ = load(settings, table)
    assert numbered(here.cv, here.y).tolist() == numbered(there.cv, there.y).tolist()
    assert (here.y == there.y).all() and here.notes == there.notes
    assert (here.numeric, here.categorical, here.model) == (there.numeric, there.categorical, there.model)


def test_some_rows_of_parts_are_those_of_the_file(files, address, tmp_path):
    paths = files(y=LABELS)
    pd.concat([pd.read_parquet(path) for path in paths]).to_parquet(tmp_path / "whole.parquet")
    whole, some = read(tmp_path / "whole.parquet"), np.array([0, 49, 50, 119, 120, 239])
    with distributed.Client(address) as client:
        table = of_files(paths, client)
        assert isinstance(table, PartedTable) and len(table) == ROWS
        pd.testing.assert_frame_equal(table.frame(["a", "c"], some), whole.frame(["a", "c"], some))
        assert table["c"].values.tolist() == whole["c"].values.tolist()


@pytest.mark.slow
def test_the_score_is_that_of_one_machine(files, address, tmp_path):
    """The mean log loss of a table is the same number, to what is proven, here and there."""
    paths = files(y=LABELS)
    whole = tmp_path / "whole.parquet"
    pd.concat([pd.read_parquet(path) for path in paths]).to_parquet(whole)
    there = run(asked(paths, cv=2, max_evaluations=3, seed=5), address, tmp_path / "there")
    problem, _ = load(Settings(data=str(whole), target="y", cv=2, seed=5))
    penalties = there.plain()["penalties"]
    estimator = problem.estimator.set_params(
        model__C=1.0 / sum(penalties.values()) / (ROWS // 2),
        model__l1_ratio=penalties["l1"] / sum(penalties.values()),
        model__tol=1e-9,
        model__max_iter=100_000,
    )
    here = cross_val_score(estimator, problem.X, problem.y, cv=problem.cv, scoring="neg_log_loss").mean()
    low, high = there.plain()["interval"]
    assert low - 1e-6 <= here <= high + 1e-6


CLASSES = np.select([FRAME.a + rng.logistic(size=ROWS) > 0.7, FRAME.c == "x"], ["up", "x"], "rest")


@pytest.mark.parametrize(
    ("target", "quick"),
    [
        pytest.param(CLASSES, True, id="text"),
        pytest.param(np.searchsorted(["rest", "up", "x"], CLASSES), False, id="numbers", marks=pytest.mark.slow),
    ],
)
def test_several_classes_have_the_score_and_the_model_of_one_machine(files, address, tmp_path, target, quick):
    paths = files(y=target)
    whole = tmp_path / "whole.parquet"
    pd.concat([pd.read_parquet(path) for path in paths]).to_parquet(whole)
    wish = asked(paths, cv=2, max_evaluations=2, seed=5, no_report=quick)
    found = run(wish, address, tmp_path / "run")
    assert found.problem.model == "logistic" and found.failures == []
    problem, _ = load(Settings(data=str(whole), target="y", cv=2, seed=5))
    penalties = found.plain()["penalties"]
    l1, l2 = penalties["l1"], penalties["l2"]
    estimator = problem.estimator.set_params(
        model__C=1.0 / (l1 + l2) / (ROWS // 2), model__l1_ratio=l1 / (l1 + l2), model__tol=1e-8, model__max_iter=100_000
    )
    here = cross_val_score(estimator, problem.X, problem.y, cv=problem.cv, scoring="neg_log_loss").mean()
    low, high = found.plain()["interval"]
    assert low - 1e-6 <= here <= high + 1e-6
    fitted = estimator.set_params(model__C=1.0 / (l1 + l2) / ROWS).fit(problem.X, problem.y)
    _, columns, _ = predict(tmp_path / "run", str(whole))
    assert columns[0].astype(str).tolist() == fitted.predict(problem.X).astype(str).tolist()
    if quick:
        return
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["coefficients"]["outputs"] == sorted({str(one) for one in target})
    assert [sum(curve["count"]) for curve in report["calibration"]["curves"]] == [ROWS] * 3


@pytest.mark.parametrize("model", ["gamma", "tweedie", "negative-binomial"])
@pytest.mark.slow
def test_families_are_the_models_that_scikit_learn_is_given(files, address, tmp_path, model):
    y = np.exp(0.3 * FRAME.a) * rng.gamma(2.0, 0.5, ROWS)
    y = np.round(y) if model == "negative-binomial" else np.where(y < 0.3, 0.0, y) if model == "tweedie" else y
    paths = files(y=y)
    wish = asked(paths, model=model, cv=2, max_evaluations=1, no_report=model == "gamma")
    found = run(wish, address, tmp_path / "run")
    assert found.failures == []
    low, high = found.plain()["interval"]
    assert low <= found.plain()["score"] <= high < 0.0
    # The same estimator, fitted here to the prepared rows, predicts the same.
    skops = pytest.importorskip("skops.io")
    saved = skops.load(found.model_file, trusted=skops.get_untrusted_types(file=found.model_file))
    frame = FRAME[["a", "b", "c"]].assign(c=FRAME.c.where(FRAME.c.notna(), np.nan))
    X = saved[:-1].transform(frame)
    here = clone(saved[-1]).set_params(**found.plain()["penalties"]).fit(X, y)
    assert saved.predict(frame) == pytest.approx(here.predict(X), rel=1e-5)


@pytest.mark.parametrize("target", [pytest.param(LABELS, id="two"), pytest.param(CLASSES, id="three")])
@pytest.mark.slow
def test_rows_count_as_much_as_their_weights_say(files, address, tmp_path, target):
    """The score and the model are those of main memory with these weights, fold by fold."""
    s = rng.integers(0, 4, ROWS).astype(float)
    paths = files(y=target, s=s)
    whole = tmp_path / "whole.parquet"
    pd.concat([pd.read_parquet(path) for path in paths]).to_parquet(whole)
    wish = asked(paths, weights="s", cv=2, max_evaluations=1, no_report=True)
    found = run(wish, address, tmp_path / "run")
    problem, _ = load(Settings(data=str(whole), target="y", weights="s", cv=2))
    assert set(found.problem.numeric) == set(problem.numeric) == {"a", "b"}
    l1, l2 = (found.plain()["penalties"][name] for name in ("l1", "l2"))

    def probabilities(train, held):
        """Of a model in main memory, whose coefficients are proven: scikit-learn's saga may circle around weighted
        classes for ever."""
        before = clone(problem.estimator[:-1]).fit(problem.X.iloc[train])
        X, T = (before.transform(problem.X.iloc[rows]) for rows in (train, held))
        if len(np.unique(target)) == 2:
            model = ElasticNetGLM("binomial", l1=l1, l2=l2).fit(X, problem.y[train], s[train])
            return model.predict_proba(T)
        lower = problems.ElasticNetMultinomial(X, problem.y[train], intercept=True, sample_weight=s[train])
        w, model = solve(lower.at(l1=l1, l2=l2), within=1e-8).x, lower.model()
        return softmax(T @ w.reshape(3, -1).T + model.shift(model.image(w))[0], axis=1)

    scores = [
        log_loss(problem.y[held], probabilities(train, held), sample_weight=s[held])
        for train, held in problem.cv.split(problem.X, problem.y)
    ]
    low, high = found.plain()["interval"]
    assert low - 1e-6 <= -np.mean(scores) <= high + 1e-6
    (_, columns, _), rows = predict(tmp_path / "run", str(whole)), np.arange(ROWS)
    expected = np.unique(target)[probabilities(rows, rows).argmax(axis=1)]
    assert columns[0].tolist() == expected.tolist()


def invoked(*arguments):
    return typer_testing.CliRunner().invoke(app, ["tune", *map(str, arguments)])


def test_the_command_line_tunes_on_a_cluster(files, address, tmp_path):
    known = [*files(y=LABELS), "--target", "y", "--cluster", address, "--out", tmp_path / "run", "--cv", 2]
    made = invoked(*known, "--max-evaluations", 2, "--json", "--no-report")
    assert made.exit_code == 1  # two evaluations are not enough
    assert "stopped early" in made.stderr and "run --max-evaluations N` goes on" in made.stderr
    found = json.loads(made.stdout)
    assert found["status"] == "max_evaluations" and found["model"] == "logistic" and found["report"] is None
    again = typer_testing.CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "--max-evaluations", "3"])
    assert again.exit_code == 1, again.output
    again = invoked(*known, "--max-evaluations", 3)
    assert "Best     C = " in again.stdout and "neg_log_loss, proven for exactly trained models" in again.stdout
    assert (tmp_path / "run" / "model.skops").exists() or (tmp_path / "run" / "model.joblib").exists()
    assert again.exit_code == 1 and "Report   " in again.stdout
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert sum(report["calibration"]["curves"][0]["count"]) == ROWS  # every row was held out once
    assert np.mean(report["measures"]["scores"]["neg_log_loss"]["tuned"]) == pytest.approx(
        report["best"]["score"], rel=1e-2
    )
    assert "mean neg_log_loss" in (tmp_path / "run" / "report.html").read_text()
    other = invoked(*known, "--seed", 1)
    assert other.exit_code == 2 and "holds another run" in other.stderr


def test_an_interrupted_run_says_how_to_go_on(files, address, tmp_path, monkeypatch):
    def interrupted(*args, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr("suffice.tabular.run.execute", interrupted)
    made = invoked(*files(y=LABELS), "--target", "y", "--cluster", address, "--out", tmp_path / "run")
    assert made.exit_code == 1
    assert made.stderr.startswith("suffice: interrupted; every finished evaluation is in")
    assert "`suffice resume" in made.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--groups", "a.csv"], "--groups does not go with --cluster"), (["--model", "svm"], "svm is not for a cluster")],
)
def test_the_command_line_refuses_in_one_line(files, address, tmp_path, arguments, message):
    paths = files(y=LABELS)
    made = invoked(*paths, "--target", "y", "--cluster", address, "--out", tmp_path / "run", *arguments)
    assert made.exit_code == 2
    assert message in made.stderr and len(made.stderr.splitlines()) == 1


def test_several_files_need_a_cluster(files):
    made = invoked(*files(y=LABELS), "--target", "y")
    assert made.exit_code == 2 and "several are for --cluster" in made.stderr


@pytest.mark.parametrize("model", ["elastic-net", "poisson"])
@pytest.mark.slow
def test_reports_of_numbers_and_counts(files, address, tmp_path, model):
    wish = asked(files(y=rng.poisson(np.exp(0.3 * FRAME.a)).astype(float)), model=model, cv=2)
    found = run(replace(wish, max_evaluations=1), address, tmp_path / "run")
    assert found.failures == [] and found.page is not None and found.page.exists()
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert len(report["calibration"]["true"]) == ROWS
    # The loss of the held-out rows is that of the pairs shown.
    pairs = np.array([report["calibration"]["true"], report["calibration"]["predicted"]])
    loss = mean_squared_error if model == "elastic-net" else mean_poisson_deviance
    assert -np.mean(next(iter(report["measures"]["scores"].values()))["tuned"]) == pytest.approx(loss(*pairs), rel=1e-6)


@pytest.mark.slow
def test_a_dask_dataframe_is_tuned_as_its_files_are(files, address, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    paths, how = files(y=LABELS), {"cv": 2, "max_evaluations": 1, "no_report": True}
    there = run(asked(paths, **how), address, tmp_path / "files")
    frame = pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)
    with distributed.Client(address) as client:
        lazy = dd.from_pandas(frame.astype({"c": "category"}), npartitions=3)
        found = suffice.tune_table(lazy, "y", out=tmp_path / "frame", client=client, **how)
        assert found.result.status is there.result.status, there.result.message  # nobody interrupted it
        assert found.result.interval == there.result.interval  # whatever the partitions
        assert predict(tmp_path / "frame", paths[0])[0][0] == "predicted y"
        with pytest.raises(TableError, match="holds another run"):
            suffice.tune_table(lazy, "y", out=tmp_path / "frame", client=client, cv=3)
        with pytest.raises(ValueError, match="--groups does not go"):
            suffice.tune_table(lazy, "y", out=tmp_path / "other", client=client, groups="a.csv")
