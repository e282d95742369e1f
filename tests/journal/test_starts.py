"""A run from many starts survives being killed between any two writes, and ends at the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import suffice
from suffice import BilevelProblem, JournalError, Options, OracleError, Space, resume, tune
from suffice.journal.lines import Lines
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
    append, count = Lines.append, [0]

    def write(self, *args):
        count[0] += 1
        if count[0] == call:
            raise Killed
        return append(self, *args)

    monkeypatch.setattr(Lines, "append", write)


@pytest.mark.parametrize("solver", ["auto", pytest.param("fista", marks=pytest.mark.slow)])
def test_killed_before_any_write_the_run_ends_the_same(solver, tmp_path, monkeypatch):
    whole = tune(problem(solver), starts=STARTS, options=OPTIONS, journal=tmp_path / "whole")
    assert whole.evaluations > 0 and sum(len(one.history) for one in whole.starts) == 24
    same(resume(tmp_path / "whole", problem=problem(solver)), whole)
    for call in range(1, 9):
        folder = tmp_path / f"run{call}"
        with monkeypatch.context() as patch:
            killed_at(patch, call)
            with pytest.raises(Killed):
                tune(problem(solver), starts=STARTS, options=OPTIONS, journal=folder)
        same(resume(folder, problem=problem(solver)), whole)


def test_a_journal_changes_nothing(tmp_path):
    with_journal = tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    assert with_journal.theta == pytest.approx(tune(problem(), starts=STARTS, options=OPTIONS).theta, rel=1e-6)


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
        tune(problem(), STARTS[0], journal=tmp_path / "run")


def test_a_run_that_was_killed_before_it_began_leaves_its_folder_free(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    with pytest.raises(JournalError, match="holds no journal"):
        resume(tmp_path / "run", problem=problem())
    assert tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run").evaluations > 0


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


def test_a_turn_that_a_budget_has_cut_short_is_finished_first(tmp_path):
    whole = tune(problem(), starts=STARTS, options=budget(40))
    tune(problem(), starts=STARTS, options=budget(2), journal=tmp_path / "run")
    for evaluations in (7, 8, 10, 22, 40):
        found = resume(tmp_path / "run", problem=problem(), options=budget(evaluations))
        assert sum(one.evaluations for one in found.starts) == evaluations
    same(found, whole)


def test_the_history_of_every_start_is_read(tmp_path):
    whole = tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    contents = suffice.journal.read(tmp_path / "run")
    assert [tuple(start) for start in contents.starts] == [one.history for one in whole.starts]
    assert contents.history == sum((one.history for one in whole.starts), ())
    assert contents.answers == contents.end["evaluations"] == 24


def test_a_file_that_was_cut_behind_a_turn_is_an_earlier_state_of_the_run(tmp_path):
    whole = tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    path = tmp_path / "run" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for count in (1, 2, 5, len(lines) - 1):
        path.write_bytes(b"".join(lines[:count]))
        same(resume(tmp_path / "run", problem=problem()), whole)


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
    suffice.journal.answers.SLACK = -(1 << 40)  # the journal is written anew at every turn
    objective = suffice.exact(lambda t: np.array([10.0 * (t[1] - t[0] * t[0]), 1.0 - t[0]]))
    starts, options = [[-1.2, 1.0], [2.0, 2.0], [0.5, -1.0]], suffice.Options(derivatives="never", max_evaluations=30)
    if os.path.exists(os.path.join(folder, "journal.jsonl")):
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
    for when in rng.integers(1, 40_000, size=6).tolist():
        command = [sys.executable, "-c", textwrap.dedent(CHILD), str(folder), str(when)]
        kills += subprocess.run(command, env=environment, check=False).returncode == 9
    assert kills >= 3
    if (folder / "journal.jsonl").exists():
        same(resume(folder, problem=objective, options=options), whole)
    else:
        same(tune(objective, starts=starts, options=options, journal=folder), whole)
