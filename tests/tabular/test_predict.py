"""A model is used as it was made: new files are read as the training file was, and predictions are the model's own."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")
pandas = pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")

from suffice.cli import app  # noqa: E402
from suffice.tabular import run  # noqa: E402
from suffice.tabular.settings import from_plain  # noqa: E402
from suffice.tabular.table import Recipe  # noqa: E402

runner = typer_testing.CliRunner()
rng = np.random.default_rng(5)
N = 90
SIZE = rng.uniform(20.0, 2000.0, N).round(2)
CITY = rng.choice(["Paris", "Lyon", "Nice"], N)
PRICE = np.exp(7.0 + SIZE / 1000 + 0.5 * (CITY == "Paris") + 0.1 * rng.standard_normal(N))
SOLD = np.where(PRICE * np.exp(0.3 * rng.standard_normal(N)) > np.median(PRICE), "yes", "no")
DAYS = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(N)]


def european(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Reports take longer than the runs here."""
    monkeypatch.setattr(run, "_report", lambda *_: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("predict")
    lines = ["Größe;Stadt;Datum;Preis;verkauft"]
    for size, city, day, price, sold in zip(SIZE, CITY, DAYS, PRICE, SOLD, strict=True):
        lines.append(f"{european(size)};{city};{day};{european(price)} €;{sold}")
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n", encoding="cp1252")
    return tmp_path / "data.csv"


RUNS: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}


def tune(data, *arguments, target="Preis", other="verkauft"):
    """The folder of such a run, and what it printed; made once."""
    key = (target, *map(str, arguments))
    if key not in RUNS:
        RUNS[key] = tuned(data, data.parent / f"run {len(RUNS)}", target, other, *arguments)
    return RUNS[key]


def tuned(data, out, target, other, *arguments):
    given = ["--target", target, "--drop", other, "--out", str(out), "--max-evaluations", "4", "--json"]
    result = runner.invoke(app, ["tune", str(data), *given, *map(str, arguments)])
    assert result.exit_code in (0, 1), result.output
    return out, json.loads(result.stdout)


def predict(out, path, *arguments):
    return runner.invoke(app, ["predict", str(out), str(path), *map(str, arguments)])


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_new_files_are_read_as_the_training_file_was(data):
    out, _ = tune(data, "--model", "ridge")
    lines = data.read_text(encoding="cp1252").splitlines()
    whole = [float(row["predicted Preis"]) for row in rows_of(predict(out, data).stdout)]
    assert np.corrcoef(whole, PRICE)[0, 1] > 0.8
    for k in range(3):  # one row alone tells nothing of decimals or dates
        (data.parent / "one.csv").write_text(f"{lines[0]}\n{lines[k + 1]}\n", encoding="cp1252")
        (alone,) = rows_of(predict(out, data.parent / "one.csv").stdout)
        assert float(alone["predicted Preis"]) == pytest.approx(whole[k], rel=1e-12)


def test_rows_keep_their_order_columns_may_not(data):
    out, _ = tune(data, "--model", "ridge")
    frame = pandas.read_csv(data, sep=";", encoding="cp1252", dtype=str)
    shuffled = frame.iloc[::-1][["Datum", "Größe", "Stadt"]]
    shuffled.to_csv(data.parent / "new.csv", index=False, sep="\t")
    straight = [row["predicted Preis"] for row in rows_of(predict(out, data).stdout)]
    result = predict(out, data.parent / "new.csv", "--out", data.parent / "predicted.csv")
    assert result.exit_code == 0 and "predicted.csv: 90 rows, predicted Preis" in result.stdout
    written = (data.parent / "predicted.csv").read_text(encoding="utf-8")
    assert [float(row["predicted Preis"]) for row in rows_of(written)] == pytest.approx(
        [float(value) for value in straight[::-1]], rel=1e-12
    )


def test_levels_that_are_new_and_entries_that_are_missing_are_told(data, recwarn):
    out, _ = tune(data, "--model", "ridge")
    text = "Größe;Stadt;Datum\n1.200,50;Brest;2024-05-06\n-;Lyon;nie\n"
    (data.parent / "new.csv").write_text(text, encoding="cp1252")
    result = predict(out, data.parent / "new.csv")
    assert result.exit_code == 0 and len(rows_of(result.stdout)) == 2
    assert (
        "column 'Stadt': 1 row with levels that are new to the model ('Brest'), taken for average ones" in result.stderr
    )
    assert "'Datum': 1 of 2 entries is not a date (line 3 has 'nie')" in result.stderr
    assert all(math.isfinite(float(row["predicted Preis"])) for row in rows_of(result.stdout))
    assert not any("unknown categories" in str(one.message) for one in recwarn)  # once is enough


def test_columns_come_along_as_they_are_written(data, tmp_path):
    out, _ = tune(data)
    lines = data.read_text(encoding="cp1252").splitlines()
    keys = ["007", "NA", "90071992547409931", ' "a;b"', "x ", "", *map(str, range(len(lines) - 7))]
    new = [f"Schlüssel;{lines[0]}", *(f"{key};{line}" for key, line in zip(keys, lines[1:], strict=True))]
    (tmp_path / "new.csv").write_text("\n".join(new) + "\n", encoding="cp1252")
    alone, found = (
        predict(out, tmp_path / "new.csv"),
        predict(out, tmp_path / "new.csv", "--id", "Schlüssel", "--id", "Größe"),
    )
    assert found.exit_code == 0, found.output
    rows = rows_of(found.stdout)
    assert [*rows[0]] == ["Schlüssel", "Größe", "predicted Preis"]
    assert [row["Schlüssel"] for row in rows[:6]] == ["007", "NA", "90071992547409931", "a;b", "x", ""]
    assert [row["Größe"] for row in rows] == [line.split(";")[0] for line in lines[1:]]  # a decimal comma stays one
    assert [row["predicted Preis"] for row in rows] == [row["predicted Preis"] for row in rows_of(alone.stdout)]
    wrong = predict(out, tmp_path / "new.csv", "--id", "key")
    assert wrong.exit_code == 2 and "has no column 'key' to carry along" in wrong.output


def test_columns_of_a_parquet_file_come_along(data, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    out, _ = tune(data)
    rows = pandas.read_csv(data, sep=";", encoding="cp1252", dtype=str)
    whole = arrow.Table.from_pandas(rows.assign(key=range(2**60, 2**60 + len(rows))), preserve_index=False)
    pyarrow.parquet.write_table(whole, tmp_path / "new.parquet")
    found = predict(out, tmp_path / "new.parquet", "--id", "key")
    assert found.exit_code == 0, found.output
    assert [int(row["key"]) for row in rows_of(found.stdout)] == [*range(2**60, 2**60 + len(rows))]


def test_columns_that_are_not_there_are_named(data):
    out, _ = tune(data, "--model", "ridge")
    (data.parent / "new.csv").write_text("Stadt;Preis\nLyon;3\n")
    result = predict(out, data.parent / "new.csv")
    assert result.exit_code == 2 and result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert "lacks 2 of the 3 columns that the model needs, 'Größe', 'Datum'" in result.stderr


def test_classes_come_with_their_probabilities(data):
    out, _ = tune(data, "--model", "logistic-l2", target="verkauft", other="Preis")
    rows = rows_of(predict(out, data).stdout)
    assert list(rows[0]) == ["predicted verkauft", "probability of no", "probability of yes"]
    for row in rows:
        p = float(row["probability of yes"])
        assert p + float(row["probability of no"]) == pytest.approx(1.0)
        assert row["predicted verkauft"] == ("yes" if p > 0.5 else "no")


def test_the_positive_class_is_the_second_and_labels_are_the_files(data):
    out, found = tune(
        data, "--model", "logistic-l2", "--positive", "no", "--scoring", "f1", target="verkauft", other="Preis"
    )
    assert found["scoring"] == "f1" and 0.5 < found["score"] <= 1.0  # which has to know the positive class
    rows = rows_of(predict(out, data).stdout)
    assert list(rows[0]) == ["predicted verkauft", "probability of yes", "probability of no"]
    model = skops.load(out / "model.skops", trusted=["numpy.dtype"])
    assert model.classes_.tolist() == ["yes", "no"]
    right = np.mean([row["predicted verkauft"] == label for row, label in zip(rows, SOLD, strict=True)])
    assert right > 0.7


def test_a_logarithm_is_fitted_and_predictions_are_in_the_targets_units(data):
    out, found = tune(data, "--model", "ridge", "--log-target")
    values = np.array([float(row["predicted Preis"]) for row in rows_of(predict(out, data).stdout)])
    model = skops.load(out / "model.skops", trusted=["numpy.dtype"])
    from suffice.tabular import read

    X = read(data).frame()
    np.testing.assert_allclose(values, np.exp(model.regressor_.predict(X)), rtol=1e-12)
    assert np.median(np.abs(np.log(values / PRICE))) < 0.2
    assert -0.1 < found["interval"][0] < found["interval"][1] < 0.0  # of the logarithm, whatever the units


def test_a_held_out_table_is_scored_in_numbers_people_know(data):
    held = data.parent / "held.csv"
    held.write_bytes(data.read_bytes())
    out, found = tune(data, "--model", "ridge", "--log-target", "--test", held)
    predicted = [float(row["predicted Preis"]) for row in rows_of(predict(out, data).stdout)]
    truth = np.array([float(f"{price:.2f}") for price in PRICE])
    error = np.array(predicted) - truth
    assert found["test"]["rows"] == N
    assert found["test"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert found["test"]["r2"] == pytest.approx(1.0 - np.mean(error**2) / truth.var())


def test_a_held_out_table_of_classes(data):
    held = data.parent / "held.csv"
    text = data.read_text(encoding="cp1252").splitlines()
    held.write_text("\n".join([*text, text[-1].rpartition(";")[0] + ";vielleicht"]) + "\n", encoding="cp1252")
    out, found = tune(data, "--model", "logistic-l2", "--test", held, target="verkauft", other="Preis")
    rows = rows_of(predict(out, data).stdout)
    right = np.mean([row["predicted verkauft"] == label for row, label in zip(rows, SOLD, strict=True)])
    likely = [float(row[f"probability of {label}"]) for row, label in zip(rows, SOLD, strict=True)]
    assert found["test"]["accuracy"] == pytest.approx(right)
    assert found["test"]["log_loss"] == pytest.approx(-np.mean(np.log(likely)))
    assert 0.5 < found["test"]["auc"] <= 1.0 and found["test"]["rows"] == N
    assert any("1 rows of classes that the model does not know" in note for note in found["notes"])


def test_a_held_out_table_that_cannot_be_used_is_told_before_the_search(data):
    (data.parent / "held.csv").write_text("Stadt\nLyon\n")
    given = ["--target", "Preis", "--test", str(data.parent / "held.csv"), "--out", str(data.parent / "run")]
    result = runner.invoke(app, ["tune", str(data), *given])
    assert result.exit_code == 2 and "lacks" in result.stderr
    assert not (data.parent / "run" / "journal.jsonl").exists()


def test_weights_count_in_training_and_in_scores(tmp_path):
    """A row of weight 2 is a row that stands there twice, a row of weight 0 one that does not."""
    frame = pandas.DataFrame({"x": rng.standard_normal(N).round(3), "w": rng.integers(0, 3, N)})
    frame["y"] = (frame["x"] + rng.standard_normal(N)).round(3)
    frame.to_csv(tmp_path / "data.csv", index=False)
    given = ["--target", "y", "--model", "ridge", "--json", "--weights", "w", "--test", str(tmp_path / "data.csv")]
    first = runner.invoke(app, ["tune", str(tmp_path / "data.csv"), "--out", str(tmp_path / "a"), *given])
    found = json.loads(first.stdout)
    model = skops.load(found["model_file"], trusted=found["model_types"])
    from sklearn.linear_model import Ridge

    Z = model[:-1].transform(frame[["x"]])
    expected = Ridge(alpha=found["best_params"]["alpha"]).fit(Z, frame["y"], sample_weight=frame["w"])
    np.testing.assert_allclose(model[-1].coef_, expected.coef_, rtol=1e-6)
    errors = (model.predict(frame[["x"]]) - frame["y"]) ** 2
    assert found["test"]["rmse"] == pytest.approx(np.sqrt(np.average(errors, weights=frame["w"])))
    plain = Ridge(alpha=found["best_params"]["alpha"]).fit(Z, frame["y"])
    assert abs(model[-1].coef_[0] - plain.coef_[0]) > 1e-3


def test_groups_of_columns_can_be_tuned(data, monkeypatch):
    monkeypatch.chdir(data.parent)
    (data.parent / "groups.json").write_text('{"place": ["Stadt"], "time": ["Datum"]}')
    out, found = tune(data, "--model", "elastic-net", "--groups", "groups.json")
    low, high = found["interval"]
    assert low <= found["score"] <= high
    assert set(found["penalties"]) == {f"{k}_{g}" for k in ("l1", "l2") for g in ("place", "time", "rest")}
    assert len(rows_of(predict(out, data).stdout)) == N


def test_a_model_that_may_run_code_is_loaded_on_request_only(data, monkeypatch):
    monkeypatch.setattr("suffice.tabular.model_file.find_spec", lambda name: None)
    out, _ = tuned(data, data.parent / "by joblib", "Preis", "verkauft", "--model", "ridge")
    assert (out / "model.joblib").exists()
    result = predict(out, data)
    assert result.exit_code == 2 and "--trust" in result.stderr
    assert predict(out, data, "--trust").exit_code == 0


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"target": 3}', '{"target": "y", "needs": [1], "categorical": []}'])
def test_a_recipe_that_was_tampered_with_is_refused(data, text, tmp_path):
    out = shutil.copytree(tune(data, "--model", "ridge")[0], tmp_path / "run")
    recipe = json.loads((out / "table.json").read_text())
    recipe.pop("checksum")
    assert json.loads(json.dumps(asdict(from_plain(Recipe, recipe)))) == recipe
    (out / "table.json").write_text(text)
    result = predict(out, data)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and "Traceback" not in result.output


def test_folders_without_a_model_are_told(data, tmp_path):
    result = predict(tmp_path / "nothing", data)
    assert result.exit_code == 2 and "there is no folder" in result.stderr
    (tmp_path / "empty").mkdir()
    result = predict(tmp_path / "empty", data)
    assert result.exit_code == 2 and "there is no table.json" in result.stderr
