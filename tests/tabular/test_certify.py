"""`suffice certify`: a fitted model in a file, or in a run's folder, beside the table that it was fitted to."""

from __future__ import annotations

import json

import joblib
import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")
pandas = pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")

from sklearn.ensemble import RandomForestRegressor  # noqa: E402
from sklearn.linear_model import Lasso, LogisticRegression, Ridge  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from suffice.cli import app  # noqa: E402
from suffice.tabular import run  # noqa: E402

runner = typer_testing.CliRunner()
rng = np.random.default_rng(3)
N = 80
FRAME = pandas.DataFrame(rng.standard_normal((N, 3)).round(4), columns=["a", "b", "c"])
FRAME["price"] = np.exp(FRAME["a"] - 0.5 * FRAME["b"] + 0.3 * rng.standard_normal(N)).round(4) + 0.01
FRAME["sold"] = np.where(FRAME["price"] * np.exp(rng.standard_normal(N)) > 1.0, "yes", "no")
FRAME["count"] = rng.integers(1, 4, N)


@pytest.fixture
def table(tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def certify(*arguments):
    return runner.invoke(app, ["certify", *map(str, arguments)])


def test_a_model_in_a_file(table, tmp_path):
    model = make_pipeline(StandardScaler(), Lasso(alpha=0.01, tol=1e-12)).fit(
        FRAME[["c", "a", "b"]], FRAME["price"], lasso__sample_weight=FRAME["count"]
    )
    skops.dump(model, tmp_path / "model.skops")
    found = certify(tmp_path / "model.skops", table, "--target", "price", "--weights", "count", "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["radius"] < 1e-6 and told["scoring"] == "neg_mean_squared_error"
    assert told["score_interval"][0] <= told["score_interval"][1] < 0.0
    without = certify(tmp_path / "model.skops", table, "--target", "price")
    assert without.exit_code == 1 and " off, at the least" in without.stdout


def test_a_model_that_is_off_or_unknown_has_exit_code_1(table, tmp_path):
    columns = FRAME[["a", "b", "c"]].to_numpy()  # a model without names of columns takes those that are left
    FRAME[["a", "b", "c", "sold"]].to_csv(table, index=False)
    with pytest.warns():
        model = LogisticRegression(solver="saga", max_iter=2, random_state=0).fit(columns, FRAME["sold"])
    joblib.dump(model, tmp_path / "model.joblib")
    refused = certify(tmp_path / "model.joblib", table, "--target", "sold")
    assert refused.exit_code == 2 and "--trust" in refused.stderr
    found = certify(tmp_path / "model.joblib", table, "--target", "sold", "--trust")
    assert found.exit_code == 1 and "2 iterations were not enough: raise max_iter" in found.stdout
    assert [line.split()[0] for line in found.stdout.splitlines()[1:]] == [
        *("Distance", "Intercept", "Predictions", "Score")
    ]
    assert certify(tmp_path / "model.joblib", table, "--target", "sold", "--trust", "--within", "10").exit_code == 0
    joblib.dump(RandomForestRegressor(2).fit(columns, FRAME["price"]), tmp_path / "forest.joblib")
    FRAME[["a", "b", "c", "price"]].to_csv(table, index=False)
    unknown = certify(tmp_path / "forest.joblib", table, "--target", "price", "--trust")
    assert unknown.exit_code == 1 and unknown.stdout.startswith("cannot tell: ")


def test_files_and_columns_that_do_not_fit_are_one_line(table, tmp_path):
    joblib.dump(Ridge().fit(FRAME[["a", "b"]], FRAME["price"]), tmp_path / "model.joblib")
    for arguments, reason in (
        (["--trust"], "--target"),
        (["--trust", "--target", "none"], "has no 'none'"),
        (["--trust", "--target", "sold"], "no number"),
        (["--trust", "--target", "price", "--weights", "none"], "has no 'none'"),
    ):
        found = certify(tmp_path / "model.joblib", table, *arguments)
        assert found.exit_code == 2 and reason in found.stderr and found.stderr.count("\n") == 1, found.output
    assert certify(tmp_path / "nothing.joblib", table, "--target", "price", "--trust").exit_code == 2


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("price", ["--model", "lasso", "--log-target", "--drop", "sold"]),
        ("price", ["--model", "ridge", "--weights", "count"]),
        ("sold", ["--model", "logistic", "--positive", "no"]),
        ("sold", ["--model", "svm"]),
    ],
)
def test_the_model_of_a_run_is_what_the_search_has_promised(table, tmp_path, monkeypatch, target, given):
    monkeypatch.setattr(run, "_report", lambda *_: None)
    out = tmp_path / "run"
    options = ["--target", target, "--out", str(out), "--max-evaluations", "3", *given]
    assert runner.invoke(app, ["tune", str(table), *options]).exit_code in (0, 1)
    found = certify(out, table, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["relative"] < 1e-5
    assert certify(out, table, "--target", target).exit_code == 2
    FRAME[:70].to_csv(table, index=False)
    other = certify(out, table)
    assert other.exit_code == 2 and "is not the table" in other.stderr
