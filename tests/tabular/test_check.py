"""A new file beside the rows of a run: alarms for what has changed, few where nothing has."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from suffice.cli import app
from suffice.tabular import TableError
from suffice.tabular.check import AS_BEFORE, CANNOT_BE_TOLD, NOT_AS_BEFORE, Finding, check, holm
from suffice.tabular.run import claim, execute, load
from suffice.tabular.settings import Settings


def drawn(rows, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "z": rng.exponential(size=rows).round(1)})
    frame["town"] = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    frame["y"] = (2.0 * frame["x"] + (frame["town"] == "a") + 0.5 * rng.normal(size=rows)).round(6)
    frame.loc[rng.uniform(size=rows) < 0.1, "z"] = np.nan
    return frame


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    drawn(300, 0).to_csv(folder / "base.csv", index=False)
    problem, settings = load(Settings(data=str(folder / "base.csv"), target="y", model="ridge", no_report=True))
    claim(folder / "run", settings)
    execute(settings, problem, folder / "run")
    return folder / "run"


def checked(run, frame, tmp_path):
    frame.to_csv(tmp_path / "new.csv", index=False)
    return check(run, str(tmp_path / "new.csv"))


def test_rows_of_the_same_kind_are_as_before(run, tmp_path):
    found = checked(run, drawn(80, 1), tmp_path)
    assert found.verdict == AS_BEFORE and found.code == 0
    assert {one.what for one in found.findings} == {"numbers", "levels", "missing", "score"}
    assert not any(one.alarm for one in found.findings)
    p = {(one.name, one.what): one.p for one in found.findings}
    x = pd.read_csv(run.parent / "base.csv")["x"], drawn(80, 1)["x"]
    assert np.isclose(p["x", "numbers"], stats.ks_2samp(*x, method="asymp").pvalue, atol=1e-3)


def test_what_has_changed_is_found_and_named(run, tmp_path):
    new = drawn(80, 2)
    planted = {
        ("x", "numbers"): new.assign(x=new["x"] + 1.0, y=new["y"] + 2.0),
        ("town", "levels"): new.assign(town="c", y=new["y"] - (new["town"] == "a")),
        ("z", "missing"): new.assign(z=new["z"].where(np.arange(80) % 2 == 0)),
    }
    for place, frame in planted.items():
        found = checked(run, frame, tmp_path)
        assert found.verdict == NOT_AS_BEFORE
        assert place in {(one.name, one.what) for one in found.findings if one.alarm}
        assert ("ALARM    " + place[0]) in "\n".join(found.lines())
    worse = checked(run, new.assign(y=new["y"].to_numpy()[::-1]), tmp_path)
    assert [one.what for one in worse.findings if one.alarm] == ["score"]


def test_files_of_another_shape_are_not_as_before(run, tmp_path):
    new = drawn(40, 3)
    assert checked(run, new.drop(columns="x"), tmp_path).alarms == ("there is no column 'x'",)
    assert "40 of 40 entries are not numbers" in checked(run, new.assign(x="many"), tmp_path).alarms[0]
    without = checked(run, new.drop(columns="y").assign(more=1), tmp_path)
    assert without.code == 0
    assert any("without 'y' the model is not measured" in note for note in without.notes)
    assert any("columns that the run has not: 'more'" in note for note in without.notes)
    new.loc[0, ["town", "x"]] = "elsewhere", 50.0
    strange = checked(run, new, tmp_path)
    assert any("column 'town': 1 level never seen, 'elsewhere'" in note for note in strange.notes)
    assert any("column 'x': " in note and "outside of" in note for note in strange.notes)
    assert checked(run, drawn(5, 4), tmp_path).verdict == CANNOT_BE_TOLD


def test_a_run_whose_table_has_changed_cannot_tell(run, tmp_path):
    before = (run.parent / "base.csv").read_text()
    (run.parent / "base.csv").write_text(before + "1,1,a,1\n")
    try:
        with pytest.raises(TableError, match="has changed since the run"):
            checked(run, drawn(40, 5), tmp_path)
    finally:
        (run.parent / "base.csv").write_text(before)


def test_holms_rule_ends_at_the_first_that_is_no_alarm():
    found = holm([Finding("", "", p, "") for p in (0.04, 0.001, 0.02, 0.03)])
    assert [one.alarm for one in found] == [False, True, False, False]
    assert all(one.alarm for one in holm([Finding("", "", p, "") for p in (0.01, 0.02, 0.05)]))
    assert holm([]) == []


def test_alarms_without_a_change_are_as_rare_as_they_say(run, tmp_path):
    alarms = sum(checked(run, drawn(60, seed), tmp_path).code for seed in range(100, 130))
    assert alarms <= stats.binom.ppf(0.999, 30, 0.05)


def test_the_command_has_codes_for_cron_json_for_machines_and_a_page_for_people(run, tmp_path):
    new, path = drawn(60, 6), tmp_path / "new.csv"
    for frame, code in ((new, 0), (new.assign(x=5.0), 1), (new[:3], 2)):
        frame.to_csv(path, index=False)
        done = CliRunner().invoke(app, ["check", str(run), str(path), "--json", "--page", str(tmp_path / "page.html")])
        assert done.exit_code == json.loads(done.stdout)["code"] == code
        assert "<h1>new.csv" in (tmp_path / "page.html").read_text()
    assert CliRunner().invoke(app, ["check", str(run), str(tmp_path / "none.csv")]).exit_code == 2


def test_the_score_of_classes_is_held_against_chance(tmp_path):
    frame = drawn(300, 7)
    frame["y"] = np.where(frame["y"] > 0, "up", "down")
    frame[:250].to_csv(tmp_path / "base.csv", index=False)
    settings = Settings(data=str(tmp_path / "base.csv"), target="y", model="logistic-l2", no_report=True)
    problem, settings = load(settings)
    claim(tmp_path / "run", settings)
    execute(settings, problem, tmp_path / "run")
    assert checked(tmp_path / "run", frame[250:], tmp_path).code == 0
    swapped = frame[250:].assign(y=frame["y"][250:].map({"up": "down", "down": "up"}))
    found = checked(tmp_path / "run", swapped, tmp_path)
    assert "score" in {one.what for one in found.findings if one.alarm}
