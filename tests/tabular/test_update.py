"""A run from one day to the next: new rows, rows that go, files that do not fit, kills, and two at a time."""

import contextlib
import json
import shutil
from pathlib import Path
from time import monotonic

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

from suffice import files
from suffice.report import folder as places
from suffice.tabular import TableError, states
from suffice.tabular.predict import predict
from suffice.tabular.run import claim, execute, load
from suffice.tabular.settings import Settings
from suffice.tabular.states import lines_of
from suffice.tabular.update import told, update


@pytest.fixture(scope="module")
def whole():
    frame = load_diabetes(as_frame=True, scaled=False).frame
    frame["sex"] = frame["sex"].map({1: "f", 2: "m"})
    frame["id"] = [f"patient-{k:04d}" for k in range(len(frame))]
    return frame[["id", "bmi", "sex", "bp", "s5", "target"]]


@pytest.fixture(scope="module")
def tuned(whole, tmp_path_factory):
    """The folder of a run of 300 rows; tests work on copies."""
    folder = tmp_path_factory.mktemp("update")
    whole[:300].to_csv(folder / "base.csv", index=False)
    settings = Settings(data=str(folder / "base.csv"), target="target", model="ridge", no_report=True)
    problem, settings = load(settings)
    claim(folder / "run", settings)
    execute(settings, problem, folder / "run")
    return folder / "run"


@pytest.fixture
def run(tuned, tmp_path):
    return Path(shutil.copytree(tuned, tmp_path / "run"))


def file_of(frame, path):
    frame.to_csv(path, index=False)
    return str(path)


def state(folder):
    """Every file but the lock, byte by byte."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file() and path.name != "lock"}


def test_rows_are_added_and_the_model_is_that_of_all_rows(run, whole, tmp_path):
    found = update(run, file_of(whole[300:320], tmp_path / "a.csv"), began=monotonic() - 100.0)
    assert (found.update.added, found.update.rows) == (20, 320)
    assert found.outcome.total_seconds >= 100.0  # told from when the process began
    search = found.outcome.search
    X = search.best_estimator_[0].transform(whole[:320])
    l2, y = search.best_penalties_["l2"], whole["target"].to_numpy()[:320]
    X, y = X - X.mean(axis=0), y - y.mean()
    exact = np.linalg.solve(X.T @ X + 320 * l2 * np.eye(X.shape[1]), X.T @ y)
    assert np.linalg.norm(search.coef_ - exact) <= search.coef_radius_ + 1e-9
    assert pd.read_csv(run / "rows.csv").equals(whole[:320].reset_index(drop=True))
    assert not (run / "journal.jsonl").exists()
    names, columns, _ = predict(run, str(tmp_path / "a.csv"))
    assert names == ["predicted target"] and np.allclose(columns[0], found.outcome.model.predict(whole[300:320]))
    lines = lines_of(run)
    assert [line["rows"] for line in lines] == [300, 320]
    assert lines[1]["message"] == found.update.message
    assert any(line.startswith("Update   penalties kept: at most") for line in told(found))
    json.dumps(found.plain(), allow_nan=False)


def test_the_report_has_the_name_of_the_first_file(run, whole, tmp_path):
    command = places.read(run / "command.json")
    places.write(run / "command.json", {**command, "no_report": False})
    found = update(run, file_of(whole[300:305], tmp_path / "a.csv"))
    assert "<h1>base.csv after 1 update: target</h1>" in found.outcome.page.read_text()


def test_a_row_that_is_removed_leaves_nothing_behind(run, whole, tmp_path):
    update(run, file_of(whole[300:310], tmp_path / "a.csv"))
    found = update(run, None, gone=file_of(whole.loc[[7, 305], ["id"]], tmp_path / "gone.csv"), by="id")
    assert found.update.removed == 2
    assert len(found.erased) == 2 and "2 ids of 2 rows looked for in" in found.erased[0]
    for content in state(run).values():
        assert b"patient-0007" not in content and b"patient-0305" not in content
    with pytest.raises(TableError, match="the run has no row with 'id' 'patient-0007'"):
        update(run, None, gone=str(tmp_path / "gone.csv"), by="id")
    folds = np.array(json.loads((run / "state.json").read_bytes())["folds"][0])
    assert len(folds) == len(pd.read_csv(run / "rows.csv")) == 308


def test_files_that_do_not_fit_are_refused_and_nothing_changes(run, whole, tmp_path):
    update(run, file_of(whole[300:310], tmp_path / "a.csv"))
    before, new = state(run), whole[310:320]
    wrong = [
        (str(tmp_path / "a.csv"), "was added on .* already, as 'a.csv'"),
        (file_of(new.drop(columns="bmi"), tmp_path / "b.csv"), "lacks 'bmi', which the model needs"),
        (file_of(new.assign(bmi="heavy"), tmp_path / "c.csv"), "column 'bmi' is numeric in the run, and 10 of 10"),
        (file_of(new.assign(target=""), tmp_path / "d.csv"), "the target 'target' is missing in 10 of 320 rows"),
        (str(tmp_path / "none.csv"), "cannot be read"),
    ]
    for path, words in wrong:
        with pytest.raises(TableError, match=words):
            update(run, path)
        assert state(run) == before
    with pytest.raises(ValueError, match="--remove FILE goes with --id"):
        update(run, None, gone="x.csv")
    with pytest.raises(ValueError, match="give a file of rows"):
        update(run, None)


def test_columns_more_or_fewer_and_new_levels_are_told(run, whole, tmp_path):
    new = whole[310:330].drop(columns="id").assign(mood="fine")
    new.loc[312, "sex"], new.loc[313, "bp"] = "x", 1048.0
    found = update(run, file_of(new, tmp_path / "a.csv"))
    assert any("lacks 'id', of no use to the model" in note for note in found.notes)
    assert any("also has 'mood', which the run has not" in note for note in found.notes)
    assert any("column 'sex': 1 level never seen, 'x'" in note for note in found.notes)
    assert any("column 'bp'" in note and note.endswith(", such as 1048") for note in found.notes)
    before, score = lines_of(run)[0]["score"], next(line for line in told(found) if line.startswith("Score"))
    assert score.endswith(f"; {before:.4g} before")
    assert len(found.outcome.search.coef_) == 6


def test_two_updates_at_a_time_are_one_too_many(run, whole, tmp_path):
    lock = files.Lock.take(run / "lock")
    try:
        with pytest.raises(files.JournalError, match="is being written"):
            update(run, file_of(whole[300:310], tmp_path / "a.csv"))
    finally:
        lock.release()


def test_a_kill_leaves_the_old_day_or_the_new_one(run, whole, tmp_path, monkeypatch):
    """At every change of a name in the folder."""
    path = file_of(whole[300:310], tmp_path / "a.csv")
    update(copy := Path(shutil.copytree(run, tmp_path / "copy")), path)
    names = [set(state(run)), set(state(copy))]
    real, left = (states.os.replace, states.os.rename), [0]

    class Killed(BaseException):
        pass

    def dying(step):
        def go(source, target):
            if "next" in str(source):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            step(source, target)

        return go

    seen = set()
    for moment in range(0, 30, 6):
        shutil.rmtree(copy)
        shutil.copytree(run, copy)
        left[0] = moment
        with monkeypatch.context() as patch:
            patch.setattr(states.os, "replace", dying(real[0]))
            patch.setattr(states.os, "rename", dying(real[1]))
            with contextlib.suppress(Killed):
                update(copy, path)
        rows = [line["rows"] for line in lines_of(copy)]  # settles
        assert set(state(copy)) == names[len(rows) - 1]
        assert rows in ([300], [300, 310])
        seen.add(len(rows))
    assert seen == {1, 2}


def test_runs_without_rows_of_their_own_say_so(run, tmp_path):
    (run / "state.json").unlink()
    with pytest.raises(ValueError, match="suffice resume"):
        update(run, "a.csv")
    with pytest.raises(ValueError, match="holds no run"):
        update(tmp_path, "a.csv")


def test_days_follow_each_other_with_groups_weights_and_classes(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"clinic": rng.integers(0, 12, 200), "w": rng.uniform(1, 2, 200), "x": rng.normal(size=200)})
    frame["y"] = np.where(frame["x"] + rng.normal(size=200) > 0, "yes", "no")
    frame[:150].to_csv(tmp_path / "base.csv", index=False)
    options = {"group_column": "clinic", "weights": "w", "model": "logistic-l2", "no_report": True, "cv": 3}
    problem, settings = load(Settings(data=str(tmp_path / "base.csv"), target="y", **options))
    claim(tmp_path / "run", settings)
    execute(settings, problem, tmp_path / "run")
    for k, day in enumerate((frame[150:170], frame[170:])):
        found = update(tmp_path / "run", file_of(day, tmp_path / f"{k}.csv"))
    assert found.update.rows == 200
    folds = np.array(json.loads((tmp_path / "run" / "state.json").read_bytes())["folds"][0])
    for clinic in range(12):
        assert len(set(folds[frame["clinic"] == clinic])) == 1
    with pytest.raises(TableError, match="the class 'maybe' of the target is new"):
        update(tmp_path / "run", file_of(frame[:5].assign(y="maybe"), tmp_path / "c.csv"))
