"""A run from many starts survives being killed between any two writes, and ends at the same bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

import suffice
from suffice import BilevelProblem, JournalError, Options, OracleError, Space, Status, resume, tune
from suffice.journal import Journal
from suffice.losses import SquaredError
from suffice.problems import ElasticNet
from suffice.shelf import Shelf

rng = np.random.default_rng(0)
X, X_val = rng.standard_normal((60, 8)), rng.standard_normal((40, 8))
w = np.array([2.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
y, y_val = X @ w + rng.standard_normal(60), X_val @ w + rng.standard_normal(40)
STARTS = [[-1.0, -1.0], [0.0, 0.5], [0.4, -2.0]]
OPTIONS = Options(max_evaluations=24)


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
    for owner, name in ((Shelf, "keep"), (Journal, "_append")):
        original = getattr(owner, name)

        def write(self, *args, original=original, **kwargs):
            count[0] += 1
            if count[0] == call:
                raise Killed
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, write)
    return count


@pytest.mark.parametrize("solver", ["auto", "fista"])
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
    options = Options(max_evaluations=90)
    whole = tune(problem(), starts=twins, options=options, journal=tmp_path / "whole")
    assert Status.OVERTAKEN in [one.status for one in whole.starts]
    with monkeypatch.context() as patch:
        killed_at(patch, 60)
        with pytest.raises(Killed):
            tune(problem(), starts=twins, options=options, journal=tmp_path / "run")
    same(resume(tmp_path / "run", problem=problem()), whole)


def test_budgets_are_totals_and_may_be_raised(tmp_path):
    whole = tune(problem(), starts=STARTS, options=Options(max_evaluations=40), journal=tmp_path / "whole")
    tune(problem(), starts=STARTS, options=Options(max_evaluations=15), journal=tmp_path / "run")
    same(resume(tmp_path / "run", problem=problem(), options=Options(max_evaluations=40)), whole)


def test_what_has_changed_is_named(tmp_path):
    tune(problem(), starts=STARTS, options=OPTIONS, journal=tmp_path / "run")
    with pytest.raises(JournalError, match=r"another problem: .*y"):
        resume(tmp_path / "run", problem=problem(shift=1.0))
    with pytest.raises(JournalError, match="option final_radius was"):
        resume(tmp_path / "run", problem=problem(), options=Options(final_radius=1e-2))
    with pytest.raises(JournalError, match="holds a run"):
        tune(problem(), starts=STARTS, journal=tmp_path / "run")
    with pytest.raises(JournalError, match="holds a run"):
        tune(problem(), STARTS[0], journal=tmp_path / "run" / "start-000")


def test_a_run_that_was_killed_before_it_began_leaves_its_folder_free(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Shelf, "_put", lambda *_: (_ for _ in ()).throw(Killed))
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
