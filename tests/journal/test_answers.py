"""The journal of a search by its requests: every answer is given once, and its file is like no other."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from suffice import Evaluation, JournalError, Options, exact, resume, tune
from suffice.journal.answers import FORMAT, OLD, SearchJournal, request_key
from suffice.journal.lines import PREFIX, line_of

JOURNALS = Path(__file__).parents[1] / "data" / "journals"
MADE_FROM = {"X": "digest"}


def header_of(folder):
    return json.loads((folder / "journal.jsonl").read_bytes().splitlines()[0][PREFIX:])


def old(tmp_path, name):
    shutil.copytree(JOURNALS / name, tmp_path / name)
    return tmp_path / name


def test_old_journals_of_searches_are_read(tmp_path):
    folder = old(tmp_path, "search")
    header = json.loads((folder / "journal.jsonl").read_bytes().splitlines()[0][30:])
    with SearchJournal(folder, header["fingerprint"]) as journal:
        assert journal.evaluations == 6


@pytest.mark.filterwarnings("ignore:the search is continued with other versions")
def test_an_old_journal_goes_on_as_the_file_it_is(tmp_path):
    folder = old(tmp_path, "search")
    before, made_from = (folder / "journal.jsonl").read_bytes(), header_of(folder)["fingerprint"]
    with SearchJournal(folder, made_from) as journal:
        journal.keep("key", "search", Evaluation([1.0], [2.0], [0.0]))
    with SearchJournal(folder, made_from) as journal:
        assert journal.evaluations == 7 and journal.take("key").r.tolist() == [2.0]
    assert (folder / "journal.jsonl").read_bytes().startswith(before) and header_of(folder)["format"] == OLD


def test_a_new_journal_says_what_it_is_and_is_not_taken_for_that_of_a_run(tmp_path):
    with SearchJournal(tmp_path, MADE_FROM):
        pass
    assert header_of(tmp_path)["format"] == FORMAT != OLD
    with pytest.raises(JournalError, match="format"):
        resume(tmp_path, problem=exact(lambda t: t))


@pytest.mark.parametrize("format", ["suffice report 1", "suffice journal 1", "suffice answers 2", None])
def test_a_file_of_another_format_is_refused(tmp_path, format):
    header = {"kind": "header", "format": format, "versions": {}, "fingerprint": MADE_FROM}
    (tmp_path / "journal.jsonl").write_bytes(line_of(header, b"")[0])
    with pytest.raises(JournalError, match=FORMAT), SearchJournal(tmp_path, MADE_FROM):
        pass


def test_the_journal_of_a_run_is_refused(tmp_path):
    tune(exact(lambda t: t - 1.0), [0.0], options=Options(max_evaluations=3), journal=tmp_path)
    content = (tmp_path / "journal.jsonl").read_bytes()
    with pytest.raises(JournalError, match=FORMAT), SearchJournal(tmp_path, MADE_FROM):
        pass
    assert (tmp_path / "journal.jsonl").read_bytes() == content


@pytest.mark.parametrize("format", [FORMAT, OLD])
def test_a_header_that_was_cut_short_anywhere_is_written_again(tmp_path, format):
    header = {"kind": "header", "format": format, "versions": {}, "fingerprint": MADE_FROM}
    whole = line_of(header, b"")[0]
    for size in range(len(whole)):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(whole[:size])
        with SearchJournal(folder, MADE_FROM) as journal:
            assert journal.evaluations == 0
        assert header_of(folder)["format"] == FORMAT


def test_answers_to_one_request_are_given_in_turn_and_once(tmp_path):
    key = request_key("residual", np.array([0.5]), 1e-3, None)
    with SearchJournal(tmp_path, MADE_FROM) as journal:
        for value in (1.0, 2.0):
            journal.keep(key, "search", Evaluation([0.5], [value], [0.0]))
    with SearchJournal(tmp_path, MADE_FROM) as journal:
        assert [journal.take(key).r.tolist() for _ in range(2)] == [[1.0], [2.0]]
        assert journal.take(key) is None


def test_a_request_is_told_from_any_other():
    theta, near, warm = np.array([0.5]), np.array([np.nextafter(0.5, 1.0)]), Evaluation([0.0], [1.0], [0.0])
    asked = [("residual", theta, 1e-3, None), ("weights", theta, 1e-3, None), ("residual", near, 1e-3, None)]
    asked += [("residual", theta, 1e-4, None), ("residual", theta, 1e-3, warm)]
    assert len({request_key(*one) for one in asked}) == len(asked)
