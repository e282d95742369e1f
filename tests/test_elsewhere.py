"""What macOS and Windows do otherwise, as far as it can be had here: open files that cannot be replaced, another kind
of lock, no alarm, no O_NOFOLLOW, another encoding, `\\r\\n`, and names that differ in their case only."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from suffice import Options, exact, files, journal, tune
from suffice.journal import answers
from suffice.signals import TimeOver, time_limit, undisturbed

ROOT = Path(__file__).parent.parent
posix = pytest.mark.skipif(os.name != "posix", reason="plays what the other system is")


def rosenbrock(x):
    return [10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks the system for open files")
def test_a_journal_is_written_anew_where_open_files_cannot_be_replaced(tmp_path, monkeypatch):
    replaced = []

    def replace(source, target):
        opened = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
        if {os.path.realpath(source), os.path.realpath(target)} & opened:
            raise PermissionError(13, "The process cannot access the file because it is being used", str(target))
        replaced.append(Path(target).name)
        os.rename(source, target)

    monkeypatch.setattr(files.os, "replace", replace)
    monkeypatch.setattr(answers, "SLACK", 0)
    result = tune(exact(rosenbrock), [-1.2, 1.0], options=Options(max_evaluations=40), journal=tmp_path)
    assert replaced.count("journal.jsonl") > 2
    assert len(journal.read(tmp_path).history) == result.evaluations


@pytest.fixture
def files_of_windows(monkeypatch) -> ModuleType:
    """`suffice.files` as it is imported there; a lock of one byte is a lock of the open file."""
    fcntl = pytest.importorskip("fcntl")
    held = []

    def locking(handle, mode, count):
        assert (mode, count) == ("at once or not", 1)
        held.append(os.lseek(handle, 0, os.SEEK_CUR))
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    spec = importlib.util.spec_from_file_location("files_of_windows", files.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK="at once or not"))
    monkeypatch.setitem(sys.modules, "files_of_windows", module)
    with monkeypatch.context() as there:
        there.setattr(os, "name", "nt")
        there.delattr(os, "O_NOFOLLOW", raising=False)
        spec.loader.exec_module(module)
    vars(module)["held"] = held
    return module


@posix
def test_a_lock_of_windows_has_one_holder_who_can_be_read(tmp_path, files_of_windows):
    lock = files_of_windows.Lock.take(tmp_path / "lock")
    lock.note(b"0123456789abcdef")
    assert (tmp_path / "lock").read_bytes().endswith(b"\nrun 0123456789abcdef\n")
    assert all(place > 400 for place in files_of_windows.held)  # what is locked cannot be read there: not the text
    files_of_windows.Lock._mine.clear()  # as another process has it
    with pytest.raises(files_of_windows.JournalError, match=f"being written by process {os.getpid()} on "):
        files_of_windows.Lock.take(tmp_path / "lock")
    lock.release()
    again = files_of_windows.Lock.take(tmp_path / "lock")
    assert again.run == b"0123456789abcdef"
    again.release()


@posix
def test_links_are_refused_without_the_flag_for_it(tmp_path, files_of_windows):
    (tmp_path / "secret").write_text("not ours")
    (tmp_path / "journal.jsonl").symlink_to(tmp_path / "secret")
    assert files_of_windows._NO_LINKS == 0
    with pytest.raises(files_of_windows.JournalError, match="is a symbolic link"):
        files_of_windows.open_regular(tmp_path / "journal.jsonl")


def test_without_an_alarm_a_limit_is_looked_at_before_the_work(monkeypatch):
    monkeypatch.delattr(signal, "SIGALRM", raising=False)
    done = []
    with time_limit(time.monotonic() + 1e-3), undisturbed():
        time.sleep(2e-3)
        done.append("to its end")
    assert done == ["to its end"]
    with pytest.raises(TimeOver), time_limit(time.monotonic() - 1.0):
        pytest.fail("too late")


COMMANDS = """
import sys, warnings
warnings.filterwarnings("error", category=EncodingWarning, module="suffice")  # text in whatever encoding the system has
from suffice.cli import app
for words in sys.argv[1].split(";"):
    try:
        app(words.split("|"))
    except SystemExit as end:
        assert not end.code, words
"""


def test_a_table_of_windows_in_a_folder_with_spaces_and_letters_goes_all_the_way(tmp_path):
    """Under the code page of a German Windows, with Excel's mark, semicolons, commas and line ends."""
    folder = tmp_path / "Größe und Alter" / "Übung 1"
    folder.mkdir(parents=True)
    rows = "".join(f"{20 + i % 31};{'äöü'[i % 3]};{3 * (i % 31) + i % 3},{i % 7}\r\n" for i in range(60))
    (folder / "Meßwerte.csv").write_bytes(("\ufeffAlter;Straße;Größe\r\n" + rows).encode("utf-8"))
    more = "".join(f"{22 + i};{'äöü'[i % 3]};{3 * (i + 2) + i % 3},{i % 5}\r\n" for i in range(12))
    (folder / "Neue Meßwerte.csv").write_bytes(("\ufeffAlter;Straße;Größe\r\n" + more).encode("utf-8"))
    commands = "tune|Meßwerte.csv|--target|Größe|--out|Lauf 1;resume|Lauf 1;report|Lauf 1;certify|Lauf 1|Meßwerte.csv"
    commands += ";update|Lauf 1|Neue Meßwerte.csv;history|Lauf 1;predict|Lauf 1|Meßwerte.csv|--out|Vorhersage.csv"
    made = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", COMMANDS, commands],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr.decode("cp1252")
    assert "Größe" in made.stdout.decode("cp1252")
    head, *lines = (folder / "Vorhersage.csv").read_text(encoding="utf-8").splitlines()
    assert head == "predicted Größe" and len(lines) == 60


def test_names_of_files_are_names_everywhere() -> None:
    folders = ("src", "examples", "tests", "benchmarks", "docs", "tools", "requirements")
    kept = [path.relative_to(ROOT) for name in folders for path in (ROOT / name).rglob("*")]
    names = [str(path) for path in kept if not {"__pycache__", ".cache"} & {*path.parts}]
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert not set(name) & set('<>:"|?*') and len(name) < 150, name
        assert {part.partition(".")[0].lower() for part in Path(name).parts}.isdisjoint({"con", "prn", "aux", "nul"})
