"""A run from many starts survives being killed between any two writes, and ends at the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import suffice
from suffice import BilevelProblem, JournalError, Options, OracleError, Space, Status, resume, tune
from suffice.journal.answers import SearchJournal
from suffice.journal.lines import Lines
from suffice.journal.starts import StartsJournal
from suffice.losses import SquaredError
from suffice.problems import ElasticNet

rng = np.random.default_rng(0)
X, X_val = rng.standard_normal((60, 8)), rng.standard_normal((40, 8))
w = np.array([2.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
y, y_val = X @ w + rng.standard_normal(60), X_val @ w + rng.standard_normal(40)
STARTS = [[-1.0, -1.0], [0.0, 0.5], [0.4, -2.0]]


def budget(evaluations):
    return Options(derivatives="never", max_evaluations=evaluations)  # with derivatives searches end sooner


OPTIONS = budget(24)


def problem(solver="auto", shift=0.0):
    return BilevelProblem(
        lower=[ElasticNet(X, y + shift)],
        losses=[SquaredError(X_val, y_val)],
        space=Space(l1=(1e-4, 1e2), l2=(1e-4, 1e2)),
        solver=solver,
    )


def same(one, other):
    assert one.theta.tobytes() == other.theta.tobytes()
    assert (one.cost, one.interval, one.status) == (other.cost, other.interval, other.status)
    for a, b in zip(one.starts, other.starts, strict=True):
        assert a.status is b.status and a.message == b.message
        assert [(r.theta, r.cost, r.interval, r.within, r.purpose) for r in a.history] == [
            (r.theta, r.cost, r.interval, r.within, r.purpose) for r in b.history
        ]


class Killed(BaseException):
    pass


def killed_at(monkeypatch, call):
    """The n-th write is never made."""
    count = [0]
    for owner, name in ((StartsJournal, "keep"), (Lines, "append")):
        original = getattr(owner, name)

        def write(self, *args, original=original, **kwargs):
            count[0] += 1
            if count[0] == call:
                raise Killed
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, write)
    return count


@pytest.mark.parametrize("solver", ["auto", pytest.param("fista", marks=pytest.mark.slow)])
def test_killed_before_any_write_the_run_ends_the_same(solver, tmp_path, monkeypatch):
    whole = tune(problem(solver), starts=STARTS, options=OPTIONS, journal=tmp_path / "whole")
    assert whole.evaluations > 0 and sum(len(one.history) for one in whole.starts) == 24
    same(resume(tmp_path / "whole", problem=problem(solver)), whole)
    for call in (1, 2, 3, 4, 5, 9, 14, 20, 27, 31):
        folder = tmp_path / f"run{call}"
        with monkeypatch.context() as patch:
            killed_at(patch, call)
            with pytest.raises(Killed):
                tune(problem(solver), starts=STARTS, options=OPTIONS, journal=folder)
        same(resume(folder, problem=problem(solver)), whole)


def test_a_journal_changes_nothing(tmp_path):
    with_journal = tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    assert with_journal.theta == pytest.approx(tune(problem(), starts=STARTS, options=OPTIONS).theta, rel=1e-6)


def test_a_start_that_was_given_up_stays_so(tmp_path, monkeypatch):
    twins = [[-1.0, -1.0], [-1.0, -1.0 + 1e-9], [0.4, -2.0]]
    options = budget(90)
    whole = tune(problem(), starts=twins, options=options, journal=tmp_path / "whole")
    assert Status.OVERTAKEN in [one.status for one in whole.starts]
    with monkeypatch.context() as patch:
        killed_at(patch, 60)
        with pytest.raises(Killed):
            tune(problem(), starts=twins, options=options, journal=tmp_path / "run")
    same(resume(tmp_path / "run", problem=problem()), whole)


def test_budgets_are_totals_and_may_be_raised(tmp_path):
    whole = tune(problem(), starts=STARTS, options=budget(40), journal=tmp_path / "whole")
    tune(problem(), starts=STARTS, options=budget(15), journal=tmp_path / "run")
    same(resume(tmp_path / "run", problem=problem(), options=budget(40)), whole)


def test_what_has_changed_is_named(tmp_path):
    tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    with pytest.raises(JournalError, match=r"another problem: .*y"):
        resume(tmp_path / "run", problem=problem(shift=1.0))
    with pytest.raises(JournalError, match="option final_radius was"):
        resume(tmp_path / "run", problem=problem(), options=Options(derivatives="never", final_radius=1e-2))
    with pytest.raises(JournalError, match="holds a run"):
        tune(problem(), starts=STARTS, journal=tmp_path / "run")
    with pytest.raises(JournalError, match="holds a run"):
        tune(problem(), STARTS[0], journal=tmp_path / "run" / "start-000")


def test_a_run_that_was_killed_before_it_began_leaves_its_folder_free(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(suffice.journal.starts, "put_record", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    with pytest.raises(JournalError, match="holds no journal"):
        resume(tmp_path / "run", problem=problem())
    assert tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run").evaluations > 0


@pytest.mark.parametrize("name", ["starts.json", "turn.json"])
@pytest.mark.parametrize("damage", ["", "x", "{}", json.dumps({"format": "suffice starts 1"})])
def test_damage_is_told(tmp_path, name, damage):
    tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    (tmp_path / "run" / name).write_text(damage)
    with pytest.raises(JournalError, match=rf"{name} is damaged"):
        resume(tmp_path / "run", problem=problem())


def test_an_objective_that_fails_keeps_what_was_evaluated(tmp_path):
    class Fragile:
        calls = 0

        def evaluate(self, theta, *, within, warm=None):
            Fragile.calls += 1
            if Fragile.calls == 8:
                raise RuntimeError("no")
            return suffice.Evaluation(theta, theta - 0.3, np.zeros(2))

    with pytest.raises(OracleError) as failure:
        tune(Fragile(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    assert sum(len(one.history) for one in failure.value.result.starts) == 6
    found = resume(tmp_path / "run", problem=Fragile())
    assert found.theta == pytest.approx([0.3, 0.3], abs=1e-4)


# --- journals know of each other


def books(folder):
    return sorted(folder.glob("start-*/journal.jsonl"))


def cut(path, records):
    """The last records of a journal go."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) - records]))


@pytest.fixture
def stopped(tmp_path):
    """A run at rest: 8 evaluations of each of 3 starts."""
    tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    return tmp_path / "run"


MORE = budget(40)


@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("records", [3, 5, 8])
def test_a_journal_that_was_cut_short_is_refused_by_name(stopped, start, records):
    cut(books(stopped)[start], records)
    with pytest.raises(JournalError, match=rf"start-00{start}.*holds \d evaluations, and .*turn.json knows of 8"):
        resume(stopped, problem=problem(), options=MORE)


def test_the_last_evaluation_of_a_turn_may_be_cut_off_since_the_turn_has_it(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "whole")
    whole = resume(tmp_path / "whole", problem=problem(), options=MORE)
    for path in books(stopped):
        cut(path, 2)  # the end of the run and its last evaluation
    same(resume(stopped, problem=problem(), options=MORE), whole)


@pytest.mark.parametrize("what", ["swapped", "another run's", "of an earlier moment", "missing"])
def test_a_journal_that_was_exchanged_is_refused_by_name(stopped, tmp_path, what):
    one, two = books(stopped)[:2]
    for path in (one, two):
        path.with_name("lock").unlink()  # it would tell, too
    if what == "swapped":
        content = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(content)
    elif what == "another run's":
        tune(problem(), starts=[[-1.0, -0.9], *STARTS[1:]], options=OPTIONS, journal=tmp_path / "other")
        shutil.copyfile(books(tmp_path / "other")[0], one)
    elif what == "of an earlier moment":
        shutil.copyfile(one, tmp_path / "early")
        resume(stopped, problem=problem(), options=MORE)
        shutil.copyfile(tmp_path / "early", one)
    else:
        one.unlink()
    with pytest.raises(JournalError, match="start-000"):
        resume(stopped, problem=problem(), options=budget(50))


@pytest.mark.parametrize("name", ["starts.json", "turn.json"])
def test_what_is_missing_is_named(stopped, name):
    (stopped / name).unlink()
    with pytest.raises(JournalError, match=f"{name} is missing"):
        resume(stopped, problem=problem(), options=MORE)
    with pytest.raises(JournalError, match=r"starts.json is missing|holds a run"):
        tune(problem(), starts=STARTS, options=OPTIONS, journal=stopped)


def test_a_turn_of_another_time_is_refused(stopped, tmp_path):
    shutil.copyfile(stopped / "turn.json", tmp_path / "early")
    resume(stopped, problem=problem(), options=MORE)
    shutil.copyfile(tmp_path / "early", stopped / "turn.json")
    with pytest.raises(JournalError, match="one of them was cut short or exchanged"):
        resume(stopped, problem=problem(), options=budget(50))


def test_all_files_of_an_earlier_moment_are_an_earlier_state_of_the_run(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "early")
    whole = resume(stopped, problem=problem(), options=MORE)
    same(resume(tmp_path / "early", problem=problem(), options=MORE), whole)


def test_a_start_stays_given_up_though_its_journal_has_lost_the_reason(tmp_path):
    twins = [[-1.0, -1.0], [-1.0, -1.0 + 1e-9], [0.4, -2.0]]
    whole = tune(problem(), starts=twins, options=budget(90), journal=tmp_path / "run")
    k = next(k for k, one in enumerate(whole.starts) if "start" in one.message and one.status is Status.OVERTAKEN)
    path = books(tmp_path / "run")[k]
    lines = path.read_bytes().splitlines(keepends=True)
    gone = next(i for i, line in enumerate(lines) if b'"given up"' in line)
    path.write_bytes(b"".join(lines[:gone]))
    same(resume(tmp_path / "run", problem=problem()), whole)


def test_a_second_run_is_refused_before_it_touches_the_journals_of_the_first(tmp_path):
    """The first one holds no evaluation yet: that was once taken for a run that never began."""
    seen = []

    class First:
        def evaluate(self, theta, *, within, warm=None):
            if not seen:
                seen.append([path.read_bytes() for path in books(tmp_path / "run")])
                (tmp_path / "run" / "starts.json").unlink()  # as between the journals and the last file of a new run
                with pytest.raises(JournalError, match="one writer"):
                    tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
                (tmp_path / "run" / "lock").unlink()  # nor if the first is of a version that locks the journals only
                with pytest.raises(JournalError, match="one writer"):
                    tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
                assert [path.read_bytes() for path in books(tmp_path / "run")] == seen[0]
            return suffice.Evaluation(theta, theta - 0.3, np.zeros(2))

    assert tune(First(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run").evaluations > 0
    assert len(seen[0]) == 3


@pytest.mark.parametrize("kind", ["single", "search"])
def test_a_folder_of_many_starts_takes_no_other_run(stopped, kind):
    if kind == "single":
        with pytest.raises(JournalError, match="holds a run"):
            tune(problem(), STARTS[0], options=OPTIONS, journal=stopped)
    else:
        with pytest.raises(JournalError, match="holds a run from many starts"), SearchJournal(stopped, {}):
            pass
    assert not (stopped / "journal.jsonl").exists()


CHILD = """
    import os, sys
    import numpy as np
    import suffice
    from suffice import files

    folder, when = sys.argv[1], int(sys.argv[2])
    written, write, rename = 0, files.write, os.replace

    def torn(file, data):
        global written
        if written + len(data) > when:
            os.write(file, data[: when - written])
            os._exit(9)
        written += len(data)
        write(file, data)

    def torn_rename(*names):  # counts as one byte
        global written
        written += 1
        if written > when:
            os._exit(9)
        rename(*names)

    files.write, os.replace = torn, torn_rename
    suffice.journal.run.SLACK = -(1 << 30)  # journals are written anew at every turn
    objective = suffice.exact(lambda t: np.array([10.0 * (t[1] - t[0] * t[0]), 1.0 - t[0]]))
    starts, options = [[-1.2, 1.0], [2.0, 2.0], [0.5, -1.0]], suffice.Options(derivatives="never", max_evaluations=30)
    if os.path.exists(os.path.join(folder, "starts.json")):
        suffice.resume(folder, problem=objective, options=options)
    else:
        suffice.tune(objective, starts=starts, options=options, journal=folder)
"""


@pytest.mark.slow
def test_killed_at_any_byte_again_and_again_the_run_ends_the_same(tmp_path):
    objective = suffice.exact(lambda t: np.array([10.0 * (t[1] - t[0] * t[0]), 1.0 - t[0]]))
    starts, options = [[-1.2, 1.0], [2.0, 2.0], [0.5, -1.0]], budget(30)
    whole = tune(objective, starts=starts, options=options)
    environment = {**os.environ, "PYTHONPATH": str(Path(suffice.__file__).parents[1])}
    folder, rng, kills = tmp_path / "run", np.random.default_rng(1), 0
    for when in rng.integers(1, 120_000, size=6).tolist():
        command = [sys.executable, "-c", textwrap.dedent(CHILD), str(folder), str(when)]
        kills += subprocess.run(command, env=environment, check=False).returncode == 9
    assert kills >= 3
    if (folder / "starts.json").exists():
        same(resume(folder, problem=objective, options=options), whole)
    else:
        same(tune(objective, starts=starts, options=options, journal=folder), whole)


# --- journals of older versions


OLD = Path(__file__).parents[1] / "data" / "journals"
EXPECTED = json.loads((OLD / "expected.json").read_text())


def rosenbrock(theta):
    return np.array([10.0 * (theta[1] - theta[0] * theta[0]), 1.0 - theta[0]])


def old(tmp_path, name):
    shutil.copytree(OLD / name, tmp_path / name)
    return tmp_path / name


def as_expected(result, name):
    for one, known in zip((result, *result.starts), (EXPECTED[name], *EXPECTED[name]["starts"]), strict=True):
        # The search that goes on is today's: it comes to the same end in its own way, and of two starts that have met
        # it may keep the other one.
        assert one.theta == pytest.approx([float.fromhex(value) for value in known["theta"]], rel=1e-3)
        assert one.status.name in (known["status"], "CONVERGED", "OVERTAKEN")


@pytest.mark.filterwarnings("ignore:the run is continued with other versions")
@pytest.mark.parametrize("name", ["single-finished", "single-stopped"])
def test_old_journals_of_one_start_go_on(tmp_path, name):
    folder = old(tmp_path, name)
    as_expected(resume(folder, problem=suffice.exact(rosenbrock), options=Options(max_evaluations=12)), "single")


@pytest.mark.filterwarnings("ignore:the run is continued with other versions")
@pytest.mark.parametrize("name", ["starts-stopped", "starts-killed"])
def test_old_journals_of_many_starts_go_on_and_know_of_each_other_from_then_on(tmp_path, name):
    folder, objective = old(tmp_path, name), suffice.exact(rosenbrock)
    shutil.copytree(folder, tmp_path / "half")
    as_expected(resume(folder, problem=objective, options=Options(max_evaluations=60)), "starts")
    assert b"suffice starts 2" in (folder / "starts.json").read_bytes()
    half = tmp_path / "half"
    resume(half, problem=objective, options=Options(max_evaluations=30))
    cut(books(half)[3], 4)
    with pytest.raises(JournalError, match="start-003"):
        resume(half, problem=objective, options=Options(max_evaluations=60))


def test_an_old_journal_beside_the_latest_turn_must_be_at_it(tmp_path):
    folder = old(tmp_path, "starts-killed")
    told = json.loads((folder / "turn.json").read_bytes()[30:])["told"]
    cut(books(folder)[told[0]["start"]], 3)
    with pytest.raises(JournalError, match=f"start-00{told[0]['start']}"):
        resume(folder, problem=suffice.exact(rosenbrock))
