"""The journal of a search: killed anywhere, it goes on to the same bits; another search is refused by name."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.model_selection import KFold

import suffice
from suffice.journal import JournalError, answers
from suffice.result import Status
from suffice.sklearn import SufficeSearchCV, _recorded

FEW = suffice.Options(max_evaluations=8, final_radius=1e-2)
SPACE = {"l1": (1e-4, 1.0), "l2": (1e-4, 1.0)}


class KilledError(Exception):
    pass


def data():
    X, y = make_regression(60, 5, n_informative=3, noise=10.0, random_state=2)
    return X, y / 20.0


def search(**more):
    return SufficeSearchCV(ElasticNet(), **{"space": SPACE, "cv": 3, "options": FEW, "refit": "one_se", **more})


def same(one, two):
    assert one.best_params_ == two.best_params_ and one.score_interval_ == two.score_interval_
    assert one.best_index_ == two.best_index_
    for name, values in ((name, values) for name, values in one.cv_results_.items() if not name.endswith("_time")):
        np.testing.assert_array_equal(values, two.cv_results_[name])
    assert one.result_.history == two.result_.history and one.result_.status is two.result_.status


def after(number, error):
    """A callback that raises at the record of this number."""

    def callback(record):
        if record.number == number:
            raise error

    return callback


def test_killed_after_any_evaluation_a_second_fit_ends_at_the_same_bits(tmp_path):
    X, y = data()
    whole = search(journal=tmp_path / "whole").fit(X, y)
    count = len(whole.cv_results_["work"])
    known = {"overview", "search", "final", "one standard error"}
    assert known >= set(whole.cv_results_["purpose"]) != {"search"}
    looks = int(np.sum(whole.cv_results_["purpose"] == "overview"))
    for number in (1, 7, looks + 1, looks + 5, count - 1, count):
        folder, made = tmp_path / str(number), []
        with pytest.raises(KilledError):
            search(journal=folder, callback=after(number, KilledError())).fit(X, y)
        again = search(journal=folder, callback=made.append).fit(X, y)
        same(again, whole)
        assert [record.number for record in made] == list(range(number + 1, count + 1))  # nothing is made twice
        assert again.best_estimator_.predict(X).tolist() == whole.best_estimator_.predict(X).tolist()


SEVERAL = make_classification(60, 6, n_classes=3, n_informative=4, n_redundant=0, random_state=0)
SEARCHES = {
    "a sketch": (ElasticNet(), None, data()),
    "one penalty": (Ridge(), None, data()),
    "looks on a lattice": (LogisticRegression(l1_ratio=0.5, solver="saga"), SPACE, SEVERAL),
    "a ridge that proves": (Lasso(), {"l1": (1e-4, 1.0)}, (np.hstack([data()[0], data()[0]]), data()[1])),
}


@pytest.mark.parametrize(
    "estimator, space, given",
    [pytest.param(*what, id=name, marks=[pytest.mark.slow] * ("lattice" in name)) for name, what in SEARCHES.items()],
)
def test_a_search_goes_on_without_the_weights_of_looks_that_nothing_starts_from(
    estimator, space, given, tmp_path, monkeypatch
):
    monkeypatch.setattr(_recorded, "STARTS", 1)
    monkeypatch.setattr(answers, "SLACK", -(1 << 40))  # the journal is written anew after every evaluation
    few = {"cv": 3, "options": suffice.Options(max_evaluations=5)}
    whole = SufficeSearchCV(estimator, space, **few).fit(*given)
    count = len(whole.cv_results_["work"])
    for number in range(1, count + 1):
        folder = tmp_path / str(number)
        with pytest.raises(KilledError):
            SufficeSearchCV(estimator, space, **few, journal=folder, callback=after(number, KilledError())).fit(*given)
        again = SufficeSearchCV(estimator, space, **few, journal=folder).fit(*given)
        same(again, whole)
        assert again.best_estimator_.coef_.tolist() == whole.best_estimator_.coef_.tolist()
        taken = SufficeSearchCV(estimator, space, **few, journal=folder).fit(*given)  # all of it from the journal
        same(taken, whole)
        assert taken.held_out_.measured() == whole.held_out_.measured()


def test_the_journal_of_few_rows_with_many_columns_is_small(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((62, 2308)), rng.integers(0, 4, 62)
    X[:, :20] += y[:, None]
    sizes = []

    def size(record):
        sizes.append((tmp_path / "journal.jsonl").stat().st_size)

    SufficeSearchCV(LogisticRegression(max_iter=5000), journal=tmp_path, callback=size).fit(X, y)
    assert len(sizes) * 5 * 4 * 2308 * 8 > 4.5e6 > max(sizes)  # their weights alone are more than that


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_no_finished_evaluation(tmp_path):
    code = """
        import sys, numpy as np
        sys.path.insert(0, {root!r})
        from tests.sklearn.test_recorded import data, search
        search(journal={folder!r}, callback=lambda record: print(record.number, flush=True)).fit(*data())
    """
    root, folder = os.getcwd(), str(tmp_path / "run")
    text = textwrap.dedent(code).format(root=root, folder=folder)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    told = [int(process.stdout.readline()) for _ in range(5)]
    time.sleep(0.003)
    os.kill(process.pid, signal.SIGKILL)
    told += [int(line) for line in process.communicate()[0].split()]
    made = []
    again = search(journal=folder, callback=made.append).fit(*data())
    same(again, search(journal=tmp_path / "whole").fit(*data()))
    assert not made or made[0].number in (told[-1] + 1, told[-1] + 2)  # one may have been written, but not yet told


def test_a_finished_search_evaluates_nothing_again(tmp_path):
    first = search(journal=tmp_path).fit(*data())
    made = []
    same(search(journal=tmp_path, callback=made.append).fit(*data()), first)
    assert not made


def test_a_larger_budget_goes_on_where_the_search_had_ended(tmp_path):
    less, more = (suffice.Options(max_evaluations=n, final_radius=1e-2) for n in (1, 6))
    short = search(journal=tmp_path / "a", refit=False, tolerance=1e-6, options=less).fit(*data())
    made = []
    longer = search(journal=tmp_path / "a", refit=False, tolerance=1e-6, options=more, callback=made.append).fit(
        *data()
    )
    whole = search(journal=tmp_path / "b", refit=False, tolerance=1e-6, options=more).fit(*data())
    same(longer, whole)
    assert 0 < len(made) < len(whole.cv_results_["work"]) - len(short.cv_results_["work"]) + 4


@pytest.mark.slow
def test_several_classes_and_processes_go_on_as_well(tmp_path):
    X, y = make_classification(60, 4, n_classes=3, n_informative=3, n_redundant=0, random_state=0)
    kwargs = {"estimator": LogisticRegression(l1_ratio=0.5, solver="saga"), "space": SPACE, "cv": 3}
    kwargs |= {"options": suffice.Options(max_evaluations=5), "initial": {"l1": 1e-2, "l2": 1e-2}, "refit": False}
    whole = SufficeSearchCV(**kwargs, journal=tmp_path / "whole").fit(X, y)
    with pytest.raises(KilledError):
        SufficeSearchCV(**kwargs, journal=tmp_path / "cut", callback=after(3, KilledError())).fit(X, y)
    same(SufficeSearchCV(**kwargs, journal=tmp_path / "cut", n_jobs=2).fit(X, y), whole)


X, Y = data()
CHANGES = {
    "X": ((X + 1e-9 * (np.arange(5) == 2), Y), {}, r"folds\.lower\[0\]\.fold\.design\.X was"),
    "y": ((X, Y * (1 + 1e-15)), {}, r"folds\.lower\[0\]\.fold\.y was"),
    "cv": ((X, Y), {"cv": KFold(3, shuffle=True, random_state=1)}, "design"),
    "space": ((X, Y), {"space": {"l1": (1e-4, 1.0), "l2": (1e-4, 2.0)}}, "space"),
    "scoring": ((X, Y), {"scoring": "r2"}, "scoring was 'neg_mean_squared_error', now it is 'r2'"),
    "tolerance": ((X, Y), {"tolerance": 1e-3}, "tolerance was"),
    "refit": ((X, Y), {"refit": False}, "refit was 'one_se', now it is False"),
    "initial": ((X, Y), {"initial": {"l1": 0.1, "l2": 0.1}}, "initial was None"),
    "options": (
        (X, Y),
        {"options": suffice.Options(seed=1, final_radius=1e-2)},
        r"options\.seed was None, now it is 1",
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    search(journal=folder).fit(X, Y)
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_named(finished, name):
    arguments, settings, match = CHANGES[name]
    with pytest.raises(JournalError, match=match):
        search(journal=finished, **settings).fit(*arguments)


def test_damage_is_refused_and_a_torn_end_is_dropped(tmp_path):
    whole = search(journal=tmp_path).fit(X, Y)
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    same(search(journal=tmp_path).fit(X, Y), whole)
    assert path.read_bytes() == content
    path.write_bytes(content[:2000] + b"?" + content[2001:])
    with pytest.raises(JournalError, match="damaged"):
        search(journal=tmp_path).fit(X, Y)
    path.write_bytes(content[:50])  # no kill leaves this: a header is put in its place whole
    with pytest.raises(JournalError, match="first record is incomplete"):
        search(journal=tmp_path).fit(X, Y)


@pytest.mark.parametrize("content", [b"notes of mine", b"0123456789abcdef 000000000009 notes", b"{}"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_that_is_no_journal_is_not_taken_for_a_torn_one(tmp_path, content, linked):
    path = tmp_path / "run" / "journal.jsonl"
    path.parent.mkdir()
    (tmp_path / "mine").write_bytes(content)
    if linked:
        path.symlink_to(tmp_path / "mine")
    else:
        path.write_bytes(content)
    with pytest.raises(JournalError, match=r"journal.jsonl is (not a journal|a symbolic link)"):
        search(journal=path.parent).fit(X, Y)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["lock", "journal.tmp"])
def test_a_search_does_not_write_through_links(tmp_path, name):
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "victim")
    with pytest.raises(JournalError, match=f"{name} is a symbolic link"):
        search(journal=tmp_path / "run").fit(X, Y)
    assert (tmp_path / "victim").read_bytes() == b"victim"


@pytest.mark.parametrize("number", [1, 5, 9])
@pytest.mark.parametrize("error, status", [(StopIteration, Status.STOPPED), (KeyboardInterrupt, Status.INTERRUPTED)])
def test_a_stopped_search_ends_with_the_best_so_far(number, error, status):
    stopped = search(callback=after(number, error())).fit(X, Y)
    assert stopped.result_.status is status and not stopped.result_.success
    assert len(stopped.cv_results_["work"]) == number
    assert stopped.score_interval_[0] == max(stopped.cv_results_["test_score_low"])
    assert stopped.best_estimator_.alpha == stopped.best_params_["alpha"]


def test_a_disk_that_is_full_ends_the_search_with_the_best_so_far(tmp_path, monkeypatch):
    from suffice import files

    for lines in (5, 9):
        written = []

        def write(file, data, lines=lines, written=written):
            written.append(1)
            if len(written) > lines:
                raise OSError(28, "No space left on device")
            os.write(file, data)

        with monkeypatch.context() as patch, pytest.warns(UserWarning, match="No space left"):
            patch.setattr(files, "write", write)
            ended = search(journal=tmp_path / str(lines)).fit(X, Y)
        assert ended.result_.status is Status.JOURNAL and len(ended.cv_results_["work"]) == lines - 1
        same(search(journal=tmp_path / str(lines)).fit(X, Y), search(journal=tmp_path / "whole").fit(X, Y))


@pytest.mark.parametrize("kwargs, match", [({"journal": 3}, "journal must be"), ({"callback": 3}, "callback must be")])
def test_arguments_are_checked(kwargs, match):
    with pytest.raises(TypeError, match=match):
        search(**kwargs).fit(X, Y)
