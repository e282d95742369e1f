"""`suffice.tune_table`: what `suffice tune` does, on a DataFrame."""

from __future__ import annotations

import datetime
import html
import re

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
typer_testing = pytest.importorskip("typer.testing")
pytest.importorskip("skops.io")

import suffice  # noqa: E402
from suffice.cli import app  # noqa: E402
from suffice.tabular import TableError, read  # noqa: E402
from suffice.tabular.frames import table_of  # noqa: E402

runner = typer_testing.CliRunner()
rng = np.random.default_rng(5)
N = 120
FRAME = pandas.DataFrame(
    {
        "x": rng.standard_normal(N),
        "city": rng.choice(["Rome", "Oslo", "Lima"], N),
        "when": pandas.date_range("2023-01-30", periods=N, freq="17h"),
        "full": rng.random(N) > 0.5,
    }
)
FRAME.loc[::7, "x"] = np.nan
FRAME.loc[::11, "city"] = None
FRAME["y"] = np.nan_to_num(FRAME["x"]) + (FRAME["city"] == "Oslo") + 0.3 * rng.standard_normal(N)
SMALL = {"max_evaluations": 1, "cv": 3, "no_report": True}


def test_a_frame_gives_what_the_command_line_gives_for_its_file(tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    given = ["--target", "y", "--model", "ridge", "--drop", "full", "--no-report", "--out", str(tmp_path / "run")]
    made = runner.invoke(app, ["tune", str(tmp_path / "data.csv"), *given])
    assert made.exit_code == 0, made.output
    tuned = suffice.tune_table(FRAME, "y", model="ridge", drop="full", no_report=True, out=tmp_path / "frame")
    shown = [line for line in made.stdout.splitlines() if line.startswith(("Quality", "Score", "Best"))]
    assert shown and shown == [
        line for line in str(tuned).splitlines() if line.startswith(("Quality", "Score", "Best"))
    ]
    printed = runner.invoke(app, ["predict", str(tmp_path / "run"), str(tmp_path / "data.csv")]).stdout.split()[2:]
    predicted = tuned.predict(FRAME)
    assert [*predicted.columns] == ["predicted y"] and predicted.index.equals(FRAME.index)
    assert predicted["predicted y"].to_numpy() == pytest.approx([float(one) for one in printed], rel=1e-12)
    also = runner.invoke(app, ["predict", str(tmp_path / "frame"), str(tmp_path / "data.csv")])
    assert also.exit_code == 0 and also.stdout.split()[2:] == printed


def test_texts_that_a_file_would_read_as_dates_are_dates_and_other_texts_stay():
    days = pandas.date_range("2023-01-30", periods=N, freq="D").strftime("%Y-%m-%d")
    texts = FRAME[["x", "y"]].assign(when=days, code=[f"{k % 7:03d}" for k in range(N)])
    texts.loc[3, "when"] = None
    forms = table_of(texts).reading.forms
    assert forms["code"].kind == "text" and forms["when"].kind == "date"
    tuned = suffice.tune_table(texts, "y", model="ridge", **SMALL)
    as_dates = texts.assign(when=pandas.to_datetime(texts["when"]))
    assert tuned.plain()["score"] == suffice.tune_table(as_dates, "y", model="ridge", **SMALL).plain()["score"]
    assert np.array_equal(tuned.predict(texts), tuned.predict(as_dates))
    mixed = texts.assign(when=[*days[: N // 2], *["later"] * (N // 2)])
    assert table_of(mixed).reading.forms["when"].kind == "text"


def test_a_frame_of_polars_is_one_of_pandas(tmp_path):
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    one, other = suffice.tune_table(FRAME, "y", **SMALL), suffice.tune_table(polars.from_pandas(FRAME), "y", **SMALL)
    assert one.plain()["score"] == other.plain()["score"] and one.problem.notes == other.problem.notes
    assert np.array_equal(one.predict(FRAME), other.predict(polars.from_pandas(FRAME)))


def test_columns_have_the_types_that_they_come_with(tmp_path):
    held = pandas.DataFrame(
        {
            "object numbers": pandas.Series([1, 2.5, None], dtype=object),
            "nullable": pandas.array([1, None, 3], dtype="Int64"),
            "object flags": pandas.Series([True, None, False], dtype=object),
            "days": pandas.Series([datetime.date(2024, 1, 2), None, datetime.date(1969, 12, 31)], dtype=object),
            "zoned": pandas.to_datetime(["2024-01-02T01:00+01:00", None, "1970-01-01T12:00Z"], utc=True),
            "codes": ["001", "002", None],
            "few": pandas.Categorical([3, 4, 3]),
            "length": pandas.to_timedelta([1, 2, 3], unit="D"),
        }
    )
    table = table_of(held)
    kinds = {column.origin or column.name: column.form.kind for column in table.columns}
    assert kinds["object numbers"] == kinds["nullable"] == "numeric" and kinds["object flags"] == "boolean"
    assert kinds["codes"] == kinds["few"] == "text" and kinds["length"] == "other"
    assert {"days: days", "days: weekday", "zoned: hour"} <= {*table.names} and "days: hour" not in table.names
    assert table["days: days"].values == pytest.approx([19724.0, np.nan, -1.0], nan_ok=True)
    assert table["zoned: days"].values == pytest.approx([19724.0, np.nan, 0.5], nan_ok=True)
    assert table["few"].values.tolist() == ["3", "4", "3"]
    pytest.importorskip("pyarrow")
    plain = held.drop(columns=["length", "object numbers", "few"])
    plain.to_parquet(tmp_path / "data.parquet")
    file = read(tmp_path / "data.parquet")
    assert file.names == table_of(plain).names
    for name in file.names:
        ours = table_of(plain)[name].values
        assert file[name].values.tolist() == pytest.approx(ours.tolist(), nan_ok=True), name


def test_two_frames_have_one_digest_only_if_they_are_the_same():
    digests = {
        table_of(one).digest for one in (FRAME, FRAME[::-1], FRAME.assign(x=0.0), FRAME.rename(columns={"x": "X"}))
    }
    assert len(digests) == 4 and table_of(FRAME.copy()).digest in digests


@pytest.mark.parametrize(
    "frame, given, error, told",
    [
        ([[1, 2]], {"target": "y"}, TypeError, "frame must be a DataFrame of pandas, polars or dask, got list"),
        (FRAME[:0], {"target": "y"}, TableError, "the table has no rows"),
        (FRAME.set_axis(range(5), axis=1), {"target": "y"}, TableError, "names of columns must be texts"),
        (FRAME, {}, ValueError, "give the column to predict"),
        (FRAME, {"target": "y", "modell": "ridge"}, TypeError, "no option 'modell': did you mean model"),
        (FRAME, {"target": "yy"}, TableError, "no column 'yy': did you mean 'y'"),
        (FRAME, {"target": "y", "cluster": "tcp://a"}, ValueError, "cluster is for files"),
        (FRAME, {"target": "y", "cv": 1}, ValueError, "cv must be between 2 and 1000"),
    ],
)
def test_what_cannot_be_used_is_told(frame, given, error, told):
    with pytest.raises(error, match=told):
        suffice.tune_table(frame, **given)


def test_times_until_an_event():
    frame = FRAME.assign(months=np.exp(-FRAME["y"]), died=rng.random(N) > 0.3)
    tuned = suffice.tune_table(frame, time="months", event="died", drop=["y", "when"], **SMALL)
    assert tuned.problem.model == "cox"
    found = tuned.predict(frame, times=[0.5, 1.0])
    assert [*found.columns] == ["log hazard", "survival at 0.5", "survival at 1"]
    assert (found["survival at 1"] <= found["survival at 0.5"]).all()


def test_new_rows_are_checked_and_new_levels_told():
    tuned = suffice.tune_table(FRAME, "y", **SMALL)
    with pytest.raises(TableError, match="lacks columns that the model needs, 'city'"):
        tuned.predict(FRAME.drop(columns="city"))
    with pytest.raises(TableError, match="column 'when' is numeric, and was date before"):
        tuned.predict(FRAME.assign(when=1.0))
    with pytest.warns(UserWarning, match="column 'city': 120 rows with levels that are new to the model"):
        tuned.predict(FRAME.assign(city="Bern"))


def test_without_a_folder_nothing_stays_and_save_keeps_all(tmp_path):
    tuned = suffice.tune_table(FRAME, "y", **SMALL)
    folder, expected = tuned.folder, tuned.predict(FRAME)
    assert "tuned.predict(frame)" in str(tuned) and str(folder) not in str(tuned)
    tuned.save(tmp_path / "kept")
    del tuned
    assert not folder.exists()
    FRAME.to_csv(tmp_path / "new.csv", index=False)
    found = runner.invoke(app, ["predict", str(tmp_path / "kept"), str(tmp_path / "new.csv")])
    assert [float(one) for one in found.stdout.split()[2:]] == pytest.approx(
        expected["predicted y"].tolist(), rel=1e-12
    )


def test_the_report_is_shown_in_a_frame_of_its_own(tmp_path):
    tuned = suffice.tune_table(FRAME, "y", cv=3)
    report = tuned.report
    shown = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"<>]*" srcdoc="([^"<>]*)"></iframe>', report._repr_html_()
    )
    assert html.unescape(shown[1]) == report.content == tuned.page.read_text(encoding="utf-8")
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == report.content
    assert len(repr(report)) < 100 and len(repr(tuned)) < 200
    assert suffice.tune_table(FRAME, "y", **SMALL).report is None


def test_the_same_call_in_a_folder_goes_on_and_another_frame_is_refused(tmp_path):
    first = suffice.tune_table(FRAME, "full", out=tmp_path / "run", **SMALL)
    again = suffice.tune_table(FRAME, "full", out=tmp_path / "run", **{**SMALL, "max_evaluations": 200})
    assert again.result.success and not first.result.success
    with pytest.raises(TableError, match="another run"):
        suffice.tune_table(FRAME[1:], "full", out=tmp_path / "run", **SMALL)


def test_a_penalty_on_the_edge_of_its_range_is_told_in_words_of_the_command():
    """There is no space to widen, and no step of a pipeline to name."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((45, 60)), np.arange(45) % 3
    X[:, :10] += 3 * y[:, None]
    found = suffice.tune_table(pandas.DataFrame(X).add_prefix("x").assign(y=y).astype({"y": str}), "y", no_report=True)
    (note,) = [note for note in found.notes if "the best l2 lies on the lower edge of its range, " in note]
    assert "widen" not in note and "model__" not in note and "(best is C = " in note
