"""A run's folder holds regular files of its own: nothing else is opened, waited for, or written through."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from suffice_paper import progress

import suffice
from suffice import JournalError, Options, exact, files, resume, tune
from suffice.report import folder as places

OPTIONS = Options(max_evaluations=9)
STARTS = [[-1.2, 1.0], [2.0, 2.0]]
SECRET = b"0123456789abcdef 000000000009 not ours"
SOURCE = str(Path(suffice.__file__).parents[1])

pytestmark = pytest.mark.skipif(os.name != "posix", reason="makes links, pipes and devices")


def rosenbrock(theta):
    return np.array([10.0 * (theta[1] - theta[0] * theta[0]), 1.0 - theta[0]])


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def run(tmp_path):
    tune(exact(rosenbrock), [-1.2, 1.0], options=OPTIONS, journal=tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def shelf(tmp_path):
    tune(exact(rosenbrock), starts=STARTS, options=OPTIONS, journal=tmp_path / "shelf")
    return tmp_path / "shelf"


def more(folder):
    return resume(folder, problem=exact(rosenbrock), options=Options(max_evaluations=14))


def refused(folder, path, kind):
    with pytest.raises(JournalError, match=f"{path.name} is {kind}; a run's folder must hold regular files only"):
        more(folder)


@pytest.mark.parametrize("kind", ["run", "shelf"])
@pytest.mark.parametrize("name", ["lock", "journal.tmp", "journal.jsonl"])
def test_a_link_in_a_run_s_folder_is_refused_and_its_target_is_left_alone(kind, victim, name, request):
    run = request.getfixturevalue(kind)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(victim)
    refused(run, run / name, "a symbolic link")
    assert victim.read_bytes() == SECRET


@pytest.mark.parametrize("starts", [None, STARTS])
def test_a_new_run_does_not_write_through_links_either(tmp_path, victim, starts):
    for name in ("lock", "journal.tmp"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).symlink_to(victim)
        with pytest.raises(JournalError, match=f"{name} is a symbolic link"):
            tune(exact(rosenbrock), None if starts else [-1.2, 1.0], starts=starts, options=OPTIONS, journal=folder)
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / "nothing")  # nor does it make a file where there was none
        with pytest.raises(JournalError, match=f"{name} is a symbolic link"):
            tune(exact(rosenbrock), None if starts else [-1.2, 1.0], starts=starts, options=OPTIONS, journal=folder)
    assert victim.read_bytes() == SECRET and not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", ["lock", "journal.jsonl"])
def test_a_file_with_another_name_is_not_changed_in_place(run, tmp_path, name):
    os.link(run / name, tmp_path / "other name")
    before = (tmp_path / "other name").read_bytes()
    with pytest.raises(JournalError, match=f"{name} is a hard link"):
        more(run)
    assert (tmp_path / "other name").read_bytes() == before


def test_a_draft_with_another_name_goes_without_a_change_to_it(run, victim):
    os.link(victim, run / "journal.tmp")
    assert more(run).evaluations == 14
    assert victim.read_bytes() == SECRET and not (run / "journal.tmp").exists()


@pytest.mark.parametrize("kind, make", [("a named pipe", os.mkfifo), ("a folder", os.mkdir)])
@pytest.mark.parametrize("name", ["lock", "journal.jsonl"])
def test_what_is_no_file_is_neither_waited_for_nor_opened(run, name, kind, make):
    (run / name).unlink()
    make(run / name)
    refused(run, run / name, kind)
    if name == "journal.jsonl":
        with pytest.raises(JournalError, match=f"is {kind}"):
            suffice.journal.read(run)


def test_a_link_to_a_device_is_not_read(run):
    (run / "journal.jsonl").unlink()
    (run / "journal.jsonl").symlink_to("/dev/zero")
    refused(run, run / "journal.jsonl", "a symbolic link")


def test_a_device_is_not_read():
    with pytest.raises(JournalError, match="/dev/zero is a device"):
        files.read_bounded(Path("/dev/zero"), 100)


def test_the_run_s_folder_may_be_a_link(shelf, tmp_path):
    (tmp_path / "alias").symlink_to(shelf)
    assert more(tmp_path / "alias").evaluations > 0


def test_a_folder_in_a_run_s_folder_may_be_no_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="runs is a symbolic link; a run's folder must hold real folders only"):
        progress.folder_of_runs(tmp_path)


def test_files_of_more_bytes_than_their_kind_has_are_not_read(run, tmp_path):
    os.truncate(run / "journal.jsonl", files.JOURNAL + 1)  # it takes no room
    with pytest.raises(JournalError, match=r"journal.jsonl has more than"):
        more(run)
    os.truncate(run / "journal.jsonl", (run / "journal.jsonl").stat().st_size // 2)  # more than a torn record can have
    with pytest.raises(JournalError, match="damaged"):
        more(run)
    (tmp_path / "command.json").touch()
    os.truncate(tmp_path / "command.json", files.SETTINGS + 1)
    with pytest.raises(JournalError, match=r"command.json has more than"):
        places.read(tmp_path / "command.json")


def test_without_o_nofollow_files_are_looked_at_before_they_are_opened(run, victim, monkeypatch):
    monkeypatch.setattr(files, "_NO_LINKS", 0)
    (run / "lock").unlink()
    (run / "lock").symlink_to(victim)
    refused(run, run / "lock", "a symbolic link")
    assert victim.read_bytes() == SECRET


def test_a_link_that_appears_after_the_look_is_refused_all_the_same(run, victim, monkeypatch):
    (run / "lock").unlink()
    (run / "lock").symlink_to(victim)
    look, looks = files.present, []

    def late(path, **how):
        looks.append(path)
        return True if len(looks) <= 2 else look(path, **how)  # nothing to be seen before the file is opened

    monkeypatch.setattr(files, "present", late)
    with pytest.raises(JournalError, match="lock is a symbolic link"):
        more(run)
    assert victim.read_bytes() == SECRET


def test_a_replaced_file_is_whole_and_leaves_no_draft(tmp_path):
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        files.replace_atomically(path, [content, b"."])
        assert path.read_bytes() == content + b"." and [one.name for one in tmp_path.iterdir()] == ["file"]

    def fails():
        yield b"half"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.replace_atomically(path, fails())
    assert path.read_bytes() == b"two." and [one.name for one in tmp_path.iterdir()] == ["file"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_lock_tells_which_run_began_in_a_folder(run, tmp_path):
    whole = more(run)
    tune(exact(rosenbrock), [0.5, 0.5], options=OPTIONS, journal=tmp_path / "other")
    shutil.copyfile(tmp_path / "other" / "journal.jsonl", run / "journal.jsonl")
    with pytest.raises(JournalError, match=r"journal.jsonl is not the journal of the run that began in this folder"):
        more(run)
    (run / "lock").unlink()  # the way out that the message tells
    assert more(run).theta.tolist() != whole.theta.tolist()


def test_a_journal_written_anew_is_still_that_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(suffice.journal.answers, "SLACK", -(1 << 40))  # at every evaluation
    journal = suffice.Journal(tmp_path, settings={"columns": ("a", "b"), "alpha": 0.1})
    tune(exact(rosenbrock), [-1.2, 1.0], options=OPTIONS, journal=journal)
    began = suffice.journal.read(tmp_path).began
    assert more(tmp_path).evaluations == 14 and suffice.journal.read(tmp_path).began == began


# --- studies and the command line


@pytest.mark.parametrize("kind", ["link", "pipe", "zero", "folder"])
@pytest.mark.slow
def test_settings_that_are_no_file_are_refused_on_the_command_line(kind, tmp_path):
    pytest.importorskip("typer")
    path = tmp_path / "run" / "command.json"
    path.parent.mkdir()
    if kind == "link":
        (tmp_path / "else.json").write_text(json.dumps({"command": "tune"}))
        path.symlink_to(tmp_path / "else.json")
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    code = """
import sys
from suffice.cli import app
for command in ("resume", "report"):
    try:
        app([command, sys.argv[1]])
    except SystemExit as end:
        print(end.code)
"""
    told = subprocess.run(
        [sys.executable, "-c", code, str(path.parent)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.stdout.split() == ["2", "2"]
    assert told.stderr.count("command.json is a") == 2 and "Traceback" not in told.stderr


def test_files_of_a_study_are_not_written_through_links(tmp_path, victim):
    for name in ("study.json", "claims.md", "fig1.png", "progress.jsonl"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(JournalError, match=r"study.json is a symbolic link"):
        places.write(tmp_path / "study.json", {"a": 1})
    with pytest.raises(JournalError, match=r"progress.jsonl is a symbolic link"):
        progress.note(tmp_path, "dynamic", 1.0, 1, False, 0.1)
    assert victim.read_bytes() == SECRET


def test_figures_and_pages_of_a_study_are_not_written_through_links(tmp_path, victim):
    pytest.importorskip("matplotlib")
    pytest.importorskip("matplotlib")
    from suffice_paper import report
    from suffice_paper.study import figure1

    for name in ("fig1.png", "claims.md", "report.html"):
        out = tmp_path / name.partition(".")[0]
        out.mkdir()
        (out / name).symlink_to(victim)
        with pytest.raises(JournalError, match=f"{name} is a symbolic link"):
            report.write({"figure1": figure1(20), "claims": []}, out)
    assert victim.read_bytes() == SECRET


def test_a_changed_digit_in_a_file_of_a_study_is_noticed_and_old_files_are_read(tmp_path):
    path = tmp_path / "exact.json"
    known = {"[0.1, 0.2]": [131.042, 1e-3], "é": [1]}
    places.write(path, known)
    assert places.read(path) == known
    path.write_text(path.read_text().replace("131.042", "131.043"))
    with pytest.raises(ValueError, match=r"exact.json is damaged"):
        places.read(path)
    path.write_text(json.dumps(known))
    assert places.read(path) == known
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"exact.json is not a file of a run"):
        places.read(path)


def test_notes_of_progress_that_make_no_sense_do_not_count():
    good = json.dumps(["dynamic", 1.0, 3, False, 0.5])
    text = "\n".join(["3", "[1]", "[{}, 1, 2, 3, 4]", '["dynamic", [], 1, false, 1]', "[" * 10_000, good])
    assert progress.describe(text, [[("dynamic", 1.0)]], 80, 1).startswith("3 evaluations, 0 of 1 runs ended")


@pytest.mark.parametrize("name", ["model.skops", "model.joblib", "report.json", "report.html"])
def test_a_folder_in_which_the_model_would_be_written_through_a_link_is_refused_before_the_search(
    tmp_path, victim, name
):
    pytest.importorskip("pandas")
    from suffice.tabular import run
    from suffice.tabular.settings import Settings

    (tmp_path / "data.csv").write_text("a,y\n" + "".join(f"{i % 7},{(3 * i) % 11}\n" for i in range(40)))
    _, settings = run.load(Settings(data=str(tmp_path / "data.csv"), target="y", cv=3))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(victim)
    with pytest.raises(JournalError, match=f"{name} is a symbolic link"):
        run.claim(tmp_path / "run", settings)
    assert victim.read_bytes() == SECRET


@pytest.mark.parametrize("name", ["model.skops", "model.joblib"])
def test_a_model_is_not_read_through_a_link_either(tmp_path, victim, name):
    pytest.importorskip("skops")
    from suffice.tabular.model_file import load_file

    (tmp_path / name).symlink_to(victim)
    with pytest.raises(JournalError, match=f"{name} is a symbolic link"):
        load_file(tmp_path / name, trust=True)


def test_a_model_is_not_written_through_a_link(tmp_path, victim):
    pytest.importorskip("pandas")
    from sklearn.linear_model import Ridge

    from suffice.tabular import model_file

    for name in model_file.SAVED:
        (tmp_path / name).symlink_to(victim)
    (file, _), failures = model_file.save(Ridge().fit([[1.0], [2.0]], [1.0, 2.0]), tmp_path)
    assert file is None and all("is a symbolic link" in text for text in failures) and failures
    assert victim.read_bytes() == SECRET
