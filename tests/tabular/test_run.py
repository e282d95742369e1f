"""`suffice tune`, as it is used: a table in, a folder with a model and a report out; killed and taken up again."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")
pandas = pytest.importorskip("pandas")

from suffice import cli  # noqa: E402
from suffice.cli import app  # noqa: E402
from suffice.result import Record, Status  # noqa: E402
from suffice.signals import TimeOver  # noqa: E402
from suffice.sklearn import coefficients  # noqa: E402
from suffice.tabular import TableError, live, read, run  # noqa: E402
from suffice.tabular.settings import Settings  # noqa: E402

runner = typer_testing.CliRunner()
rng = np.random.default_rng(3)
N = 120
FRAME = pandas.DataFrame(
    {
        "id": np.arange(1, N + 1),
        "age": rng.integers(20, 70, N).astype(float),
        "weight": rng.standard_normal(N).round(4),
        "sex": rng.choice(["m", "f"], N),
        "member": rng.random(N) > 0.5,
    }
)
FRAME.loc[::9, "age"] = np.nan
FRAME["bought"] = np.where(FRAME["weight"] + (FRAME["sex"] == "f") + rng.logistic(size=N) > 0.5, "yes", "no")
FRAME["spent"] = (10_000 * FRAME["weight"] + 3_000 * rng.standard_normal(N)).round(2)


@pytest.fixture
def data(tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


@pytest.fixture
def no_report(monkeypatch):
    """Reports take longer than the runs here."""
    monkeypatch.setattr(run, "_report", lambda *_: None)


def tune(data, *arguments, target="bought", out=None):
    place = [] if out is None else ["--out", str(out)]
    drop = ["--drop", "spent" if target == "bought" else "bought"]
    return runner.invoke(app, ["tune", str(data), "--target", target, *drop, *place, *map(str, arguments)])


def test_a_file_whose_name_is_not_utf_8_gets_its_report(tmp_path):
    strange = tmp_path / os.fsdecode(b"caf\xe9.csv")
    try:
        FRAME.to_csv(strange, index=False)
    except OSError:
        pytest.skip("this file system has no such names")
    result = tune(strange, target="spent", out=tmp_path / os.fsdecode(b"run\xff"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / os.fsdecode(b"run\xff") / "report.html").read_text(encoding="utf-8").count("caf\ufffd.csv") > 0


@pytest.mark.parametrize("scale", [1e-300, 1e-155, 1e60])
def test_targets_of_any_scale_get_a_model_and_a_report(tmp_path, scale):
    FRAME.assign(spent=scale * FRAME["spent"].astype(float)).to_csv(tmp_path / "data.csv", index=False)
    tune(tmp_path / "data.csv", "--model", "elastic-net", target="spent", out=tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("target, task", [("bought", "classification"), ("spent", "regression")])
def test_a_table_becomes_a_model_and_a_report(data, tmp_path, target, task):
    skops = pytest.importorskip("skops.io")
    out = tmp_path / "run"
    model = "logistic-l2" if target == "bought" else "auto"
    result = tune(data, "--json", "--model", model, target=target, out=out)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    low, high = found["interval"]
    assert low <= found["score"] <= high and found["measures"]["better_than_baseline"]
    assert found["status"] == "suffices" and found["task"] == task and found["folder"] == str(out)
    assert {path.name for path in out.iterdir()} == {
        *("command.json", "intervals.skops", "journal.jsonl", "lock", "model.skops"),
        *("report.html", "report.json", "table.json", "history.json", "state.json"),
    }
    assert (out / "report.html").stat().st_size < 1_000_000
    trusted = found["model_types"]
    assert trusted == skops.get_untrusted_types(file=out / "model.skops") and set(trusted) <= {"numpy.dtype"}
    model = skops.load(out / "model.skops", trusted=trusted)
    raw = pandas.read_csv(data)  # by any other means than ours, the target and all
    np.testing.assert_array_equal(model.predict(raw), model.predict(read(data).frame()))
    assert set(model[-1].get_params().items()) >= set(found["best_params"].items())


def test_people_are_told_what_was_done_and_found(data, tmp_path):
    result = tune(data, "--model", "logistic-l2", out=tmp_path / "run")
    assert result.exit_code == 0, result.output
    for part in (
        "120 rows, 3 numeric and 1 categorical columns",
        "classification, 2 classes",
        "column 'id' is left out: it counts the rows",
        "neg_log_loss, proven for exactly trained models: [-0.",
        "a model that knows class frequencies only: accuracy",
        " left to gain, by the search's own estimate",
        "model.skops",
        "report.html",
    ):
        assert part in result.output


def test_without_skops_the_model_is_a_joblib_file_with_a_warning(data, tmp_path, no_report, monkeypatch):
    import joblib

    monkeypatch.setattr("suffice.tabular.model_file.find_spec", lambda name: None)
    result = tune(data, "--max-evaluations", 3, out=tmp_path / "run")
    assert "runs code that the file contains" in result.output
    assert len(joblib.load(tmp_path / "run" / "model.joblib").predict(FRAME)) == N


def test_a_spent_budget_is_exit_code_one_and_resume_goes_on_to_the_same_bits(data, tmp_path, no_report):
    first = tune(data, "--max-evaluations", 2, "--json", out=tmp_path / "run")
    assert first.exit_code == 1
    assert json.loads(first.stdout)["status"] == "max_evaluations" and "suffice resume" in first.stderr
    whole = json.loads(tune(data, "--json", out=tmp_path / "whole").stdout)
    resumed = runner.invoke(app, ["resume", str(tmp_path / "run"), "--max-evaluations", "200", "--jobs", "1", "--json"])
    assert resumed.exit_code == 0, resumed.output
    changing = {"folder", "model_file", "report", "seconds", "total_seconds"}
    again = json.loads(resumed.stdout)
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in whole.items() if k not in changing
    }
    assert tune(data, "--json", out=tmp_path / "run").exit_code == 0  # the same command continues, too


def test_people_get_four_digits_and_machines_the_very_parameters(data, tmp_path, no_report):
    arguments = ("--max-evaluations", 12)
    printed = tune(data, *arguments, out=tmp_path / "run").output
    exact = json.loads(tune(data, *arguments, "--json", out=tmp_path / "run").stdout)["best_params"]
    line = next(line for line in printed.splitlines() if line.startswith("Best "))
    shown = dict(part.split(" = ") for part in line.removeprefix("Best").strip().split(", "))
    assert {name: float(value) for name, value in shown.items()} == pytest.approx(exact, rel=1e-3)
    assert not re.search(r"\d\.\d{7}", printed)


def test_parameters_next_to_one_are_not_printed_as_one():
    """scikit-learn at l1_ratio=1 is another model, with a loss outside the proven interval."""
    from suffice.sklearn._page import _params

    assert _params({"clf__l1_ratio": 0.99999968}) == "l1_ratio = 0.99999968"


def test_a_column_that_gives_the_target_away_is_no_failure(data, tmp_path, no_report):
    FRAME.assign(copy=2.0 * FRAME["spent"]).to_csv(data, index=False)
    result = tune(data, target="spent", out=tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "suffice resume" not in result.output


def test_resume_is_not_offered_where_it_cannot_go_on(data, tmp_path, no_report, monkeypatch):
    whole = run.SufficeSearchCV.fit

    def fit(search, X, y):
        whole(search, X, y)
        search.result_ = replace(search.result_, status=Status.ACCURACY, interval=(0.0, 1e9), detail="")
        return search

    monkeypatch.setattr(run.SufficeSearchCV, "fit", fit)
    result = tune(data, "--max-evaluations", 3, "--model", "logistic-l2", out=tmp_path / "run")
    assert result.exit_code == 1 and "cannot deliver the accuracy" in result.output
    assert "suffice resume" not in result.output


def started(folder):
    here = str(Path(run.__file__).parents[2])
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": here}
    own = np.random.default_rng(0)
    X = own.standard_normal((500, 20))
    frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(20)])
    frame["y"] = np.where(X[:, :5].sum(axis=1) + own.logistic(size=500) > 0, "yes", "no")
    frame.to_csv(folder / "wide.csv", index=False)
    code = "import suffice.tabular.run as run; run._report = lambda *_: None; from suffice.cli import app; app()"
    command = [sys.executable, "-c", code, "tune", "wide.csv", "--target", "y"]
    made = subprocess.Popen(
        [*command, "--out", "run", "--json"], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    journal = folder / "run" / "journal.jsonl"
    while made.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 3):
        time.sleep(0.005)
    return made


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.usefixtures("heeds_ctrl_c", "no_report")
@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow), "SIGKILL"])
def test_a_run_that_is_ended_from_outside_goes_on(tmp_path, name, monkeypatch):
    process = started(tmp_path)
    process.send_signal(getattr(signal, name))
    stdout, stderr = process.communicate()
    if name != "SIGKILL":
        assert process.returncode == 1, stderr
        assert b"suffice resume run" in stderr and b"Traceback" not in stderr
        no_time_for_a_model = b'{"status": "interrupted", "model_file": "run/table.json"}'
        found = json.loads(stdout or no_time_for_a_model)
        assert found["status"] == "interrupted" and (tmp_path / found["model_file"]).exists()
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["resume", "run", "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["status"] in ("suffices", "converged", "accuracy")  # ends of the search's own


def test_a_table_that_has_moved_or_changed(data, tmp_path, no_report):
    out = tmp_path / "run"
    tune(data, "--max-evaluations", 1, out=out)
    moved = data.rename(tmp_path / "moved.csv")
    result = runner.invoke(app, ["resume", str(out)])
    assert result.exit_code == 2 and "No such file" in result.output
    result = runner.invoke(app, ["resume", str(out), "--data", str(moved), "--max-evaluations", "2", "--jobs", "1"])
    assert result.exit_code == 1, result.output
    moved.write_text(moved.read_text().replace("yes", "oui"))
    result = runner.invoke(app, ["resume", str(out), "--data", str(moved)])
    assert result.exit_code == 2 and "has changed since the run began" in result.output


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--cv", 1], "cv must be between 2 and 1000"),
        (["--cv", 100], "folds"),
        (["--model", "forest"], "model must be auto, logistic"),
        (["--task", "clustering"], "task must be auto"),
        (["--seed", -1], "seed must be"),
        (["--max-evaluations", 0], "max_evaluations"),
        (["--max-seconds", "nan"], "max_seconds"),
        (["--scoring", "acuracy"], "did you mean accuracy"),
        (["--scoring", "f1"], "the score f1 cannot be used here"),
        (["--scoring", "roc_auc_ovr", "--model", "svm"], "cannot be used here"),
        (["--drop", "agee"], "did you mean 'age'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(data, tmp_path, arguments, told):
    result = tune(data, *arguments, out=tmp_path / "run")
    assert result.exit_code == 2
    assert told in result.stderr and len(result.stderr.splitlines()) == 1 and result.stdout == ""
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_used_is_refused(data, tmp_path, no_report):
    (tmp_path / "file").write_text("")
    result = tune(data, out=tmp_path / "file" / "run")
    assert result.exit_code == 2 and "cannot be" in result.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "command.json").write_text('{"command": "reproduce"}')
    result = tune(data, out=tmp_path / "other")
    assert result.exit_code == 2 and "holds other files" in result.stderr
    tune(data, "--max-evaluations", 2, out=tmp_path / "run")
    result = tune(data, "--cv", 4, out=tmp_path / "run")
    assert result.exit_code == 2 and "holds another run (it differs in cv)" in result.stderr


def test_a_score_that_is_not_smooth_is_reported_and_another_optimised(data, tmp_path, no_report):
    found = json.loads(tune(data, "--scoring", "roc_auc", "--json", out=tmp_path / "run").stdout)
    assert found["scoring"] == "roc_auc" and 0.5 < found["score"] <= 1.0
    assert found["optimised_scoring"] == "neg_log_loss" and found["optimised_interval"][1] < 0.0


def test_which_score_was_optimised_in_place_of_another_is_said_once(data, tmp_path, no_report):
    printed = tune(data, "--scoring", "roc_auc", out=tmp_path / "area").output
    assert printed.count("neg_log_loss") == printed.count("neg_log_loss was optimised in its place") == 1
    assert re.search(r"^Score    0\.\d+ roc_auc$", printed, re.MULTILINE)
    roots = ("--scoring", "neg_root_mean_squared_error")
    printed = tune(data, *roots, "--model", "ridge", target="spent", out=tmp_path / "roots").output
    assert "in its place" not in printed and re.search(r"-(\S+) neg_root_mean_squared_error, proven", printed)


def test_a_share_that_is_not_proven_is_told_first_and_by_the_exit_code(data, tmp_path, no_report, monkeypatch):
    monkeypatch.setattr("suffice.sklearn._search.GLOBAL_EVALUATIONS", 3)
    arguments = (data, "--certify-global", 0.001, "--model", "logistic-l2")
    result = tune(*arguments, out=tmp_path / "poor")
    before = ("Table", "Target", "Model", "Note")
    found = [line for line in result.output.splitlines() if not line.startswith(before)]
    assert result.exit_code == 1 and found[0].startswith("NOT PROVEN  --certify-global asked for 0.1 %, and ")
    assert "max_evaluations was reached" in found[0] and "Proof " not in result.output
    assert "suffice: not proven" in result.stderr and (tmp_path / "poor" / "model.skops").exists()
    monkeypatch.undo()
    again = tune(data, "--certify-global", 0.2, "--model", "logistic-l2", "--no-report", out=tmp_path / "well")
    assert again.exit_code == 0 and "NOT PROVEN" not in again.output and "Proof    no l2 in the space" in again.output


OURS = re.compile(r"residual|incumbent|lower[- ]level|\blooks?\b(?! (like|useless))", re.IGNORECASE)  # not the readers'


@pytest.mark.parametrize("arguments", [(), ("--model", "logistic-l2", "--max-evaluations", 3, "--certify-global", 0.2)])
def test_words_of_ours_are_neither_in_the_terminal_nor_on_the_page(data, tmp_path, arguments):
    result = tune(data, *arguments, out=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    told = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    for text in (result.output, told, runner.invoke(app, ["tune", "--help"]).output):
        words = " ".join(re.sub(r"[│\s]+", " ", text).split())
        assert len(words) > 500 and not OURS.search(words), OURS.search(words)


def test_endings_are_plain_words_and_few_of_them():
    for status in Status:
        assert not OURS.search(status.message) and len(status.message.split()) <= 20


def test_the_report_is_made_anew_from_its_data(data, tmp_path):
    out = tmp_path / "run"
    tune(data, "--max-evaluations", 3, "--model", "logistic-l2", out=out)
    before = (out / "report.html").read_text()
    (out / "report.html").unlink()
    result = runner.invoke(app, ["report", str(out)])
    assert result.exit_code == 0 and (out / "report.html").read_text() == before
    for nonsense in ("[]", "{", '{"format": 1}', '{"about": NaN}', "[" * 100_000):
        (out / "report.json").write_text(nonsense)
        result = runner.invoke(app, ["report", str(out)])
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, nonsense


def test_a_report_that_fails_does_not_lose_the_model(data, tmp_path, monkeypatch):
    from suffice.sklearn import report

    monkeypatch.setattr(report, "collect", lambda *_, **__: 1 / 0)
    result = tune(data, "--json", "--model", "logistic-l2", out=tmp_path / "run")
    found = json.loads(result.stdout)
    assert result.exit_code == 3 and found["report"] is None and (tmp_path / "run" / "model.skops").exists()
    assert any("the report could not be made: ZeroDivisionError" in failure for failure in found["failures"])
    assert "the report could not be made" in result.stderr and "the model is in" in result.stderr


@pytest.mark.parametrize("name", ["compared_measures", "write_page"])
def test_whatever_fails_after_the_search_the_model_is_there(data, tmp_path, monkeypatch, name):
    monkeypatch.setattr(run, name, lambda *_, **__: 1 / 0)
    result = tune(data, "--json", "--model", "logistic-l2", out=tmp_path / "run")
    assert result.exit_code == 3 and (tmp_path / "run" / "model.skops").exists()
    assert "ZeroDivisionError" in result.stderr and "Traceback" not in result.output


def test_a_model_that_skops_cannot_save_is_saved_by_joblib(data, tmp_path, monkeypatch, no_report):
    skops = pytest.importorskip("skops.io")
    monkeypatch.setattr(skops, "dumps", lambda *_: 1 / 0)
    result = tune(data, "--json", "--model", "logistic-l2", out=tmp_path / "run")
    assert result.exit_code == 3 and json.loads(result.stdout)["model_file"].endswith("model.joblib")
    assert (tmp_path / "run" / "model.joblib").exists() and "could not be saved as model.skops" in result.stderr


def test_a_model_that_cannot_be_fitted_leaves_the_journal(data, tmp_path, monkeypatch, no_report):
    """The search is not made again when the final fit works the next time."""
    whole = run.SufficeSearchCV.fit

    def fit(search, X, y):
        whole(search, X, y)
        raise np.linalg.LinAlgError("Singular matrix")

    with monkeypatch.context() as patch:
        patch.setattr(run.SufficeSearchCV, "fit", fit)
        result = tune(data, "--model", "logistic-l2", out=tmp_path / "run")
    assert result.exit_code == 3 and "could not be fitted: LinAlgError: Singular matrix" in result.stderr
    assert "`suffice resume" in result.stderr and "Traceback" not in result.output
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    again = runner.invoke(app, ["resume", str(tmp_path / "run"), "--jobs", "1", "--json"])
    assert again.exit_code == 0, again.output
    assert (tmp_path / "run" / "journal.jsonl").read_bytes().startswith(before)
    assert (tmp_path / "run" / "model.skops").exists()


def test_settings_of_an_older_version_are_read(tmp_path):
    plain = Settings(data="a.csv", target="y").plain()
    old = {name: value for name, value in plain.items() if name not in ("max_levels", "weights", "test", "log_target")}
    assert Settings.from_plain(json.loads(json.dumps(old))) == Settings(data="a.csv", target="y")


@pytest.mark.parametrize(
    "change",
    [
        {"cv": "5"},
        {"cv": True},
        {"data": 3},
        {"drop": "a"},
        {"drop": [1]},
        {"seed": 1.5},
        {"max_seconds": "inf"},
        {"model": "os.system"},
        {"more": 1},
        {"skip_missing_target": 1},
    ],
)
def test_settings_that_were_tampered_with_are_refused(tmp_path, change):
    plain = json.loads(json.dumps(Settings(data="a.csv", target="y").plain()))
    assert Settings.from_plain(plain) == Settings(data="a.csv", target="y")
    (tmp_path / "command.json").write_text(json.dumps(plain | change))
    result = runner.invoke(app, ["resume", str(tmp_path)])
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["command.json"]


def test_settings_of_another_folder_are_not_overwritten(tmp_path):
    settings = Settings(data="a.csv", target="y", digest="0")
    run.claim(tmp_path, settings)
    run.claim(tmp_path, replace(settings, data="moved.csv", max_evaluations=3))
    with pytest.raises(TableError, match="differs in target, the table"):
        run.claim(tmp_path, replace(settings, target="z", digest="1"))
    assert run.read_settings(tmp_path).target == "y"


def test_an_end_of_the_interval_that_is_not_known_is_null(data, tmp_path, no_report, monkeypatch):
    whole = run.SufficeSearchCV.fit

    def fit(search, X, y):
        whole(search, X, y).score_interval_ = (-math.inf, 0.0)
        return search

    monkeypatch.setattr(run.SufficeSearchCV, "fit", fit)
    result = tune(data, "--max-evaluations", 2, "--model", "logistic-l2", "--json", out=tmp_path / "run")
    assert json.loads(result.stdout, parse_constant=pytest.fail)["interval"] == [None, 0.0]


# What is shown


def test_the_line_tells_evaluations_time_work_and_the_best_interval():
    import io

    from rich.console import Console

    settings = Settings(data="a.csv", target="y", max_evaluations=50)
    record = Record(1, "step", (0.0,), 1.0, (0.1,), None, 0.2, (0.1, 0.3), 5.0, 5.0, 0.1)
    progress = live.ProgressLine(settings, "neg_brier_score")
    assert "preparing the folds" in progress.line()
    for number in range(1, 6):
        upper = 0.3 if number == 2 else 0.9
        progress.record(replace(record, number=number, total_work=5.0 * number, interval=(0.1, upper)))
    line = progress.line()
    assert line.startswith("5 evaluations · ") and "work 25" in line and "left" in line
    assert "neg_brier_score in [-0.30, -0.10]" in line
    (shown,) = Console(file=io.StringIO(), force_terminal=True, width=40).render_lines(progress)
    assert "".join(part.text for part in shown).startswith("5 evaluations · ")
    progress = live.ProgressLine(settings, "r2")
    progress.record(record)
    assert "r2 in [0.70, 0.90]" in progress.line()


def test_evaluations_that_have_proven_nothing_are_reported_too():
    from sklearn.linear_model import Ridge

    from suffice.sklearn import SufficeSearchCV, report

    X, y = FRAME[["weight"]].to_numpy(), FRAME["spent"].to_numpy()
    search = SufficeSearchCV(Ridge(), {"l2": (1e-3, 1.0)}).fit(X, y)
    search.cv_results_["test_score_low"][0] = -math.inf  # a rough look may have no upper bound of its loss
    data = json.loads(json.dumps(report.collect(search, X, y, about={}), allow_nan=False))
    assert "<html" in report.page(data)


def test_a_finished_run_tells_the_same_without_an_evaluation(data, tmp_path):
    out, asked = tmp_path / "run", ("--model", "logistic-l2", "--no-report")
    first = tune(data, *asked, out=out)
    assert first.exit_code == 0 and not (out / run.PAGE).exists() and not (out / run.REPORT).exists()
    before = (out / "journal.jsonl").read_bytes()
    resumed = runner.invoke(app, ["resume", str(out), "--jobs", "1"])
    score = next(line for line in first.output.splitlines() if line.startswith("Score"))
    assert resumed.exit_code == 0 and score in resumed.output
    assert (out / "journal.jsonl").read_bytes() == before
    made = tune(data, "--model", "logistic-l2", out=out)  # the report was not asked for until now
    assert made.exit_code == 0 and (out / run.PAGE).exists()
    FRAME.assign(weight=0.0).to_csv(data, index=False)
    assert tune(data, "--model", "logistic-l2", out=out).exit_code == 2  # another table


def test_all_seconds_are_counted_from_the_start_of_the_process(data, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "PAGE_SECONDS", 600.0)
    monkeypatch.setattr(cli, "_began", time.monotonic() - 1000.0)
    result = tune(data, "--max-seconds", 900, "--json", out=tmp_path / "run")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and found["status"] == "max_seconds"
    assert found["total_seconds"] > 1000.0 > found["seconds"]
    assert Path(found["report"]).exists() and Path(found["model_file"]).exists()


def test_resume_takes_the_jobs_that_tune_had(data, tmp_path, no_report):
    out = tmp_path / "run"
    first = tune(data, "--jobs", 2, "--max-evaluations", 2, out=out)
    assert "Jobs     one process: evaluations took" in first.output  # so few rows are none for two
    asked = []

    def fit(self, *given, _fit=run.SufficeSearchCV.fit, **how):
        asked.append(self.n_jobs)
        return _fit(self, *given, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.SufficeSearchCV, "fit", fit)
        again = runner.invoke(app, ["resume", str(out), "--max-evaluations", "3"])
        alone = runner.invoke(app, ["resume", str(out), "--jobs", "1", "--max-evaluations", "4"])
    assert asked == [2, 1] and {again.exit_code, alone.exit_code} <= {0, 1}
    refused = tune(data, "--jobs", -1, out=out)
    assert refused.exit_code == 2 and "jobs must be 0 or more, got -1" in refused.output


def test_a_run_without_time_for_its_report_says_so(data, tmp_path, monkeypatch):
    def late(*_):
        raise TimeOver

    monkeypatch.setattr(run, "_report", late)
    result = tune(data, "--model", "logistic-l2", out=tmp_path / "run")
    assert result.exit_code == 0 and "no time was left" in result.output and "model.skops" in result.output
    assert run.seconds_for_the_search(10.0, report=True) == 6.0 and run.seconds_for_the_search(-10.0, report=True) > 0.0
    assert run.seconds_for_the_search(10.0, report=False) == 10.0


@pytest.mark.parametrize("target, log", [("bought", False), ("spent", False), ("spent", True)])
def test_people_are_told_what_they_know(data, tmp_path, no_report, target, log):
    if log:
        FRAME.assign(spent=np.exp(FRAME["spent"] / 10_000)).to_csv(data, index=False)
    arguments = [
        "--json",
        "--model",
        "logistic-l2" if target == "bought" else "ridge",
        *(["--log-target"] if log else []),
    ]
    found = json.loads(tune(data, *arguments, target=target, out=tmp_path / "run").stdout)["measures"]
    assert found["rows"] == N and found["better_than_baseline"] and found["gain"] > 0.1
    if target == "bought":
        assert found["tuned"]["accuracy"] > found["baseline"]["accuracy"] and found["tuned"]["auc"] > 0.5
        counts = np.array(found["confusion"]["counts"])
        assert counts.trace() / N == pytest.approx(found["tuned"]["accuracy"]) and counts.sum() == N
    else:
        y = read(data).frame()["spent"]
        assert found["baseline"]["rmse"] == pytest.approx(np.std(y), rel=0.2)  # in the target's own units
        assert found["tuned"]["rmse"] < 0.8 * found["baseline"]["rmse"] and found["tuned"]["r2"] > 0.3


def test_a_model_no_better_than_the_baseline_is_called_so(data, tmp_path, no_report):
    noise = np.random.default_rng(1).standard_normal(N)
    FRAME[["age", "member"]].assign(spent=noise, bought="a").to_csv(data, index=False)
    result = tune(data, "--model", "ridge", target="spent", out=tmp_path / "run")
    assert result.exit_code == 0 and "no better than that baseline" in result.output


def test_the_largest_coefficients_are_told_with_what_is_proven(tmp_path):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(rng.standard_normal((120, 12)), columns=[f"c{k}" for k in range(12)])
    table["y"] = 3.0 * table["c4"] - table["c7"] + rng.standard_normal(120)
    path = tmp_path / "table.csv"
    table.to_csv(path, index=False)
    given = ["tune", str(path), "--target", "y", "--model", "lasso", "--no-report"]
    told = runner.invoke(app, [*given, "--out", str(tmp_path / "one")]).stdout.splitlines()
    at = next(k for k, line in enumerate(told) if line.startswith("Columns  "))
    assert "proven to be zero" in told[at] and told[at + 2].endswith("  c4") and told[at + 3].endswith("  c7")
    found = json.loads(runner.invoke(app, [*given, "--out", str(tmp_path / "two"), "--json"]).stdout)
    rows = found["coefficients"]["rows"]
    assert len(rows["name"]) == 12 and rows["name"][:2] == ["c4", "c7"] and rows["proven"][:2] == ["+", "-"]
    assert rows["se"] == [None] * 12  # there is an l1
    assert found["coefficients"]["proven_zero"] == rows["proven"].count("zero") > 0


def test_levels_that_a_fold_has_not_seen_are_no_warnings(tmp_path, recwarn, no_report):
    levels = np.concatenate([np.repeat([f"l{k}" for k in range(5)], 22), [f"rare {k}" for k in range(10)]])
    table = FRAME[["age", "weight", "spent", "bought"]].assign(level=rng.permutation(levels))
    table.to_csv(tmp_path / "table.csv", index=False)
    result = tune(tmp_path / "table.csv", "--model", "logistic-l2", out=tmp_path / "run")
    assert result.exit_code == 0 and "unknown categories" not in result.output
    assert not [str(one.message) for one in recwarn if "unknown categories" in str(one.message)]


def test_columns_of_missing_entries_are_named_for_people(tmp_path):
    table = FRAME[["age", "spent"]].assign(kind=rng.choice(["a", "b", "c", ""], N))
    table.to_csv(tmp_path / "table.csv", index=False)
    given = ["tune", str(tmp_path / "table.csv"), "--target", "spent", "--model", "ridge", "--json"]
    found = json.loads(runner.invoke(app, [*given, "--out", str(tmp_path / "run")]).stdout)
    names = found["coefficients"]["rows"]["name"]
    assert {"age (missing)", "kind (missing)"} <= set(names)
    assert "kind (missing)" in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_one_is_told_as_one():
    assert coefficients.proven({"proven_signs": 4, "proven_zero": 1, "open": 0}) == (
        "4 signs are proven, 1 is proven to be zero"
    )
    assert coefficients.proven({"proven_signs": 1, "proven_zero": 0, "open": 1}) == "1 sign is proven, 1 is open"
