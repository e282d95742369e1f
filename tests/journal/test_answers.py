"""Journals: nothing finished is lost, nothing else is believed, and resumed runs end where uninterrupted ones do."""

import contextlib
import copy
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import suffice
from suffice import (
    BilevelProblem,
    Evaluation,
    Journal,
    JournalError,
    Options,
    OracleError,
    Space,
    Status,
    exact,
    files,
    losses,
    problems,
    resume,
    tune,
)
from suffice import journal as journals
from suffice.journal.answers import request_key
from suffice.journal.lines import PREFIX, line_of
from suffice.rows.design import Design
from suffice.solvers.fista import AdaptiveFista, FistaState
from tests.conftest import examples

SOURCE = str(Path(suffice.__file__).parents[1])
START = {"l1": 0.5, "l2": 1.0}
SHORT = Options(max_evaluations=14, final_radius=1e-3, derivatives="never")  # with them searches end sooner


def bilevel(solver="fista_adaptive", *, seed=0, penalty=0.0, **changes):
    rng = np.random.default_rng(seed)
    lower, upper = [], []
    for rows, d in ((30, 5), (24, 4)):
        X, X_val = rng.standard_normal((2, rows, d))
        w = rng.uniform(1.0, 2.0, d)
        lower.append(problems.ElasticNet(X, X @ w + rng.standard_normal(rows)))
        upper.append(losses.SquaredError(X_val, X_val @ w + rng.standard_normal(rows)))
    arguments = {
        "lower": lower,
        "losses": upper,
        "space": Space(l1=(1e-3, 1e1), l2=(1e-2, 1e1)),
        "penalty": lambda params: [params["l1"] + penalty],
        "solver": solver,
        **changes,
    }
    return BilevelProblem(**arguments)


def rosenbrock(theta):
    return np.array([10.0 * (theta[1] - theta[0] ** 2), 1.0 - theta[0]])


class Wavering:
    """Rosenbrock's residuals up to an error that costs -log10(error) to reduce; solutions are a user's own."""

    def evaluate(self, theta, *, within, warm=None):
        error = np.full(2, min(within, 0.1))
        off = error * np.sin(1e6 * theta)
        return Evaluation(theta, rosenbrock(theta) + off, error, -np.log10(error[0]), ({"w": theta.copy()},))


class OwnState(FistaState):
    pass


class Renamed(AdaptiveFista):
    """A user's own solver, whose state no file can hold."""

    def start(self, problem, x):
        return OwnState(**vars(super().start(problem, x)))

    def step(self, problem, state):
        return OwnState(**vars(super().step(problem, state)))


def together(solver="fista_adaptive"):
    """Problems that share a design, and are solved as one."""
    rng = np.random.default_rng(3)
    X, X_val = rng.standard_normal((2, 40, 6))
    design = Design.of(X)
    signs = [X @ rng.standard_normal(6) > 0 for _ in range(3)]
    upper = [losses.Brier(X_val, X_val @ rng.standard_normal(6) > 0) for _ in range(3)]
    lower = [problems.ElasticNetLogistic(design, y) for y in signs]
    return BilevelProblem(lower, upper, space=Space(l1=(1e-3, 1e1), l2=(1e-2, 1e1)), solver=solver)


RUNS = {
    "together": lambda: (together(), START, SHORT),
    "adaptive": lambda: (bilevel(), START, SHORT),
    "with derivatives": lambda: (bilevel(), START, replace(SHORT, derivatives="always")),
    "fista, weights": lambda: (bilevel("fista"), START, replace(SHORT, policy="weights")),
    "gradient descent": lambda: (bilevel("gradient_descent"), START, SHORT),
    "fixed steps": lambda: (bilevel("fista").fixed(30), START, SHORT),
    "user's oracle": lambda: (Wavering(), [-1.2, 1.0], replace(SHORT, seed=3)),
    "exact": lambda: (exact(rosenbrock), [-1.2, 1.0], replace(SHORT, max_evaluations=40)),
}


def same(one, other):
    """Results equal to the bit."""
    return (
        one.theta.tobytes() == other.theta.tobytes()
        and (one.cost, one.interval, one.status, one.evaluations, one.work)
        == (other.cost, other.interval, other.status, other.evaluations, other.work)
        and repr(one.history) == repr(other.history)
    )


def file_of(folder):
    return Path(folder) / journals.FILE


def offsets(folder):
    """Where the records of a journal end."""
    data = file_of(folder).read_bytes()
    return [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]


# --- bit for bit


@pytest.mark.parametrize("name", RUNS)
def test_a_journal_changes_nothing(name, tmp_path):
    objective, start, options = RUNS[name]()
    assert same(
        tune(objective, start, options=options), tune(objective, start, options=options, journal=tmp_path / "run")
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_run_cut_after_any_record_ends_at_the_same_bits(name, tmp_path):
    objective, start, options = RUNS[name]()
    whole = tune(objective, start, options=options, journal=tmp_path / "whole")
    data = file_of(tmp_path / "whole").read_bytes()
    for i, end in enumerate(offsets(tmp_path / "whole")[:: 3 if name == "exact" else 2]):
        cut = tmp_path / f"cut{i}"
        cut.mkdir()
        file_of(cut).write_bytes(data[:end])
        assert same(resume(cut, problem=objective), whole)
    assert same(resume(cut, problem=RUNS[name]()[0]), whole)  # a run that has ended is not run again


def test_a_solver_whose_state_no_file_can_hold_ends_at_the_same_bits_too(tmp_path):
    whole = tune(bilevel(Renamed("own")), START, options=SHORT, journal=tmp_path / "whole")
    data = file_of(tmp_path / "whole").read_bytes()
    for i, end in enumerate(offsets(tmp_path / "whole")[::3]):
        cut = tmp_path / f"cut{i}"
        cut.mkdir()
        file_of(cut).write_bytes(data[:end])
        assert same(resume(cut, problem=bilevel(Renamed("own"))), whole)


def test_finished_evaluations_are_not_repeated(tmp_path):
    calls = []

    def counting(theta):
        calls.append(theta.tobytes())
        if len(calls) == 6:
            raise ZeroDivisionError
        return rosenbrock(theta)

    with pytest.raises(OracleError):
        tune(exact(counting), [-1.2, 1.0], options=SHORT, journal=tmp_path)
    result = resume(tmp_path, problem=exact(counting))
    assert result.evaluations == 14
    assert len(calls) == 15 and calls[5] == calls[6] and len(set(calls)) == 14


def test_evaluations_are_on_disk_before_the_callback_sees_them(tmp_path):
    def check(record):
        assert len(journals.read(tmp_path).history) == record.number

    tune(bilevel(), START, options=SHORT, callback=check, journal=tmp_path)


# --- torn, damaged, foreign


def test_a_torn_last_record_is_dropped_wherever_it_was_torn(tmp_path):
    objective, start, options = RUNS["exact"]()
    whole = tune(objective, start, options=options, journal=tmp_path / "whole")
    data = file_of(tmp_path / "whole").read_bytes()
    ends = offsets(tmp_path / "whole")
    before, after = ends[9], ends[10]
    cuts = [before + 1, before + 16, before + 30, before + 31, (before + after) // 2, after - 2, after - 1]
    for cut in cuts:
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        file_of(folder).write_bytes(data[:cut])
        contents = journals.read(folder)
        assert len(contents.history) == 9 and contents.torn == cut - before
        result = resume(folder, problem=objective)
        assert same(result, whole)
        assert journals.read(folder).events[0]["dropped_bytes"] == cut - before


def test_a_last_record_with_holes_is_dropped(tmp_path):
    """After a loss of power the end of a record may be there and its middle not."""
    objective, start, options = RUNS["exact"]()
    whole = tune(objective, start, options=options, journal=tmp_path)
    end = offsets(tmp_path)[12]
    data = bytearray(file_of(tmp_path).read_bytes()[:end])
    data[-60:-20] = bytes(40)
    file_of(tmp_path).write_bytes(data)
    assert same(resume(tmp_path, problem=objective), whole)


@pytest.mark.parametrize("where", [0.0, 0.2, 0.6])
def test_damage_elsewhere_is_refused_and_nothing_is_changed(where, tmp_path):
    objective, start, options = RUNS["exact"]()
    tune(objective, start, options=options, journal=tmp_path)
    data = bytearray(file_of(tmp_path).read_bytes())
    data[int(where * len(data))] ^= 1
    file_of(tmp_path).write_bytes(data)
    with pytest.raises(JournalError, match=r"damaged|not a journal"):
        resume(tmp_path, problem=objective)
    assert file_of(tmp_path).read_bytes() == data


@pytest.mark.parametrize("change", ["lost", "swapped"])
def test_records_that_were_lost_or_moved_are_noticed(change, tmp_path):
    objective, start, options = RUNS["exact"]()
    tune(objective, start, options=options, journal=tmp_path)
    lines = file_of(tmp_path).read_bytes().splitlines(keepends=True)
    lines[4:6] = [lines[5]] if change == "lost" else [lines[5], lines[4]]
    file_of(tmp_path).write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match="damaged"):
        resume(tmp_path, problem=objective)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"x" * 100, b"0" * 16 + b" 000000000002 {}\n", bytes(10_000)])
def test_what_is_no_journal_is_told(content, tmp_path):
    if content is not None:
        file_of(tmp_path).write_bytes(content)
    with pytest.raises(JournalError, match=r"no journal|not a journal"):
        resume(tmp_path, problem=exact(rosenbrock))


def signed(*lines):
    """Lines as a journal that passes its checksums."""
    data, digest = b"", b""
    for line in lines:
        text, digest = line_of(line, digest)
        data += text
    return data


def lines_of(folder):
    return [json.loads(line[PREFIX:]) for line in file_of(folder).read_bytes().splitlines()]


def change(line, path, value):
    for key in path[:-1]:
        line = line[key]
    line[path[-1]] = value


GIVEN = ("arguments", "dict")
ANSWER = ("answers", 0)
NONSENSE = [
    (0, ("format",), "suffice journal 99", "format"),
    (0, (*GIVEN, "options"), {"class": "Options", "fields": {"accuracy_factor": -2.0}}, "accuracy_factor"),
    (0, (*GIVEN, "options"), [], "options must be Options"),
    (0, (*GIVEN, "bounds"), 3.0, "bounds must be a pair"),
    (0, (*GIVEN, "theta0"), {"tuple": []}, "there must be a start"),
    (0, (*GIVEN, "seen"), {"tuple": [3]}, "AttributeError"),
    (0, (*GIVEN, "kind"), "new", "kind"),
    (0, ("arguments",), None, "no run of suffice.tune"),
    (0, ("versions",), {"numpy": 2}, "versions"),
    (0, ("fingerprint",), ["X"], "AttributeError"),
    (0, ("kind",), "evaluation", "header"),
    (5, ("kind",), "pickle", "kind"),
    (5, ("seconds",), "long", "could not convert"),
    (5, ("answers",), 3, "not iterable"),
    (5, (*ANSWER, "start"), 2, "a record of a start was expected"),
    (5, (*ANSWER, "record", "fields", "number"), 77, "missing"),
    (5, (*ANSWER, "record"), None, "record"),
    (5, (*ANSWER, "record", "class"), "os.system", "os.system"),
    (5, (*ANSWER, "answer", "fields", "theta"), {"array": "", "dtype": "|O", "shape": [0]}, "type of numbers"),
    (5, (*ANSWER, "answer", "fields", "theta"), {"array": "AAAA", "dtype": "<f8", "shape": [0]}, "compressed"),
    (
        5,
        (*ANSWER, "answer", "fields", "theta"),
        {"array": "eAFjYGAAAAADAAE=", "dtype": "<f8", "shape": [10**12]},
        "shape",
    ),
    (5, (*ANSWER, "answer", "fields", "residuals"), {"tuple": ["a", 2.0]}, "could not convert"),
    (5, (*ANSWER, "answer", "fields", "work"), -1, "work must be non-negative and finite"),
    (5, (*ANSWER, "answer"), {"tuple": []}, "Evaluation"),
]


@pytest.mark.parametrize(("line", "path", "value", "message"), NONSENSE)
def test_nonsense_with_a_good_checksum_is_refused(line, path, value, message, tmp_path):
    tune(exact(rosenbrock), [-1.2, 1.0], options=replace(SHORT, max_evaluations=5), journal=tmp_path)
    lines = lines_of(tmp_path)[:6]
    change(lines[line], path, value)
    file_of(tmp_path).write_bytes(signed(*lines))
    (tmp_path / "lock").unlink()  # it knows the header, and would tell
    with pytest.raises(JournalError, match=message):
        resume(tmp_path, problem=exact(rosenbrock))


def parts(value, here=()):
    """The way to every part of a JSON value."""
    found = [here] if here else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += parts(item, (*here, key))
    return found


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
json_values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


def test_whatever_stands_in_a_record_is_read_or_refused(tmp_path):
    """A hundred of what benchmarks/fuzz.py does 100,000 times."""
    tune(bilevel(), START, options=replace(SHORT, max_evaluations=4), journal=tmp_path)
    lines = lines_of(tmp_path)
    ways = [(i, path) for i, line in enumerate(lines) for path in parts(line)]

    @settings(examples(100), suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(ways), json_values)
    def check(way, value):
        changed = copy.deepcopy(lines)
        change(changed[way[0]], way[1], value)
        file_of(tmp_path).write_bytes(signed(*changed))
        with contextlib.suppress(JournalError):
            journals.read(tmp_path)

    check()


def test_a_record_that_claims_to_be_huge_is_not_read(tmp_path):
    tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT, journal=tmp_path)
    data = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_bytes(data[:17] + b"999999999999" + data[29:])
    with pytest.raises(JournalError, match="damaged"):
        journals.read(tmp_path)


# --- what has changed is named


def design(column=0, value=1e-9):
    problem = bilevel()
    X = problem.lower[0].design.X.copy()
    X[0, column] += value
    return bilevel(lower=[problems.ElasticNet(X, problem.lower[0].y), problem.lower[1]])


def other_target():
    y = bilevel().lower[1].y.copy()
    y[3] = 0.0
    return bilevel(lower=[bilevel().lower[0], problems.ElasticNet(bilevel().lower[1].design, y)])


CHANGES = {
    r"lower\[0\]\.design\.X was": design,
    r"lower\[1\]\.y was": other_target,
    r"losses\[0\]": lambda: bilevel(losses=[losses.SquaredDistance(np.ones(5)), bilevel().losses[1]]),
    r"space\['l1'\]\[0\] was": lambda: bilevel(space=Space(l1=(1e-4, 1e1), l2=(1e-2, 1e1))),
    "solver was 'fista_adaptive', now it is 'fista'": lambda: bilevel("fista"),
    "penalty at a few points": lambda: bilevel(penalty=1e-12),
    "max_steps was 100000, now it is 7": lambda: bilevel(max_steps=7),
    "objective was 'BilevelProblem', now it is 'FixedSteps'": lambda: bilevel().fixed(20),
}


@pytest.mark.parametrize("message", CHANGES)
def test_another_problem_is_refused_by_name(message, tmp_path):
    tune(bilevel(), START, options=replace(SHORT, max_evaluations=4), journal=tmp_path)
    with pytest.raises(JournalError, match=message):
        resume(tmp_path, problem=CHANGES[message](), options=SHORT)
    assert resume(tmp_path, problem=bilevel(), options=SHORT).evaluations == 14


def test_quantities_computed_on_demand_do_not_count(tmp_path):
    problem = bilevel()
    tune(problem, START, options=replace(SHORT, max_evaluations=4), journal=tmp_path)
    _ = [lower.l1_max for lower in problem.lower]
    assert resume(tmp_path, problem=problem).evaluations == 4


@pytest.mark.parametrize(
    ("name", "value"), [("final_radius", 1e-2), ("policy", "weights"), ("seed", 1), ("model", "linear")]
)
def test_another_option_is_refused_by_name(name, value, tmp_path):
    tune(bilevel(), START, options=replace(SHORT, max_evaluations=4), journal=tmp_path)
    with pytest.raises(JournalError, match=f"option {name} was .*, now it is {value!r}"):
        resume(tmp_path, problem=bilevel(), options=replace(SHORT, **{name: value}))


def test_budgets_are_totals(tmp_path):
    whole = tune(bilevel(), START, options=SHORT)
    for count in (1, 5, 9):
        part = tune if count == 1 else resume
        arguments = (bilevel(), START) if count == 1 else ()
        options = replace(SHORT, max_evaluations=count)
        given = {"journal": tmp_path} if count == 1 else {"journal": tmp_path, "problem": bilevel()}
        result = part(*arguments, options=options, **given)
        assert (result.status, result.evaluations) == (Status.MAX_EVALUATIONS, count)
    assert same(resume(tmp_path, problem=bilevel(), options=SHORT), whole)


def test_work_and_a_target_are_budgets_too(tmp_path):
    first = tune(bilevel(), START, options=replace(SHORT, max_work=40), journal=tmp_path)
    assert first.status is Status.MAX_WORK
    target = resume(tmp_path, problem=bilevel(), options=replace(SHORT, target_cost=1e6))
    assert target.status is Status.TARGET and target.evaluations == first.evaluations
    assert same(resume(tmp_path, problem=bilevel(), options=SHORT), tune(bilevel(), START, options=SHORT))


def test_a_plain_objective_may_tell_what_it_depends_on(tmp_path):
    class Own(exact):
        def __init__(self, fun, data):
            super().__init__(fun)
            self.data = data

        def fingerprint(self):
            return {"data": self.data}

    tune(Own(rosenbrock, np.ones(3)), [-1.2, 1.0], options=replace(SHORT, max_evaluations=4), journal=tmp_path)
    with pytest.raises(JournalError, match="data was <f8 3"):
        resume(tmp_path, problem=Own(rosenbrock, np.zeros(3)), options=SHORT)
    assert resume(tmp_path, problem=Own(rosenbrock, np.ones(3)), options=SHORT).evaluations == 14


def test_other_versions_are_warned_about(tmp_path, monkeypatch):
    tune(exact(rosenbrock), [-1.2, 1.0], options=replace(SHORT, max_evaluations=4), journal=tmp_path)
    others = {**journals.versions(), "numpy": "99"}
    monkeypatch.setattr(journals.answers, "versions", lambda: others)
    with pytest.warns(UserWarning, match="numpy was .*, now it is 99") as caught:
        resume(tmp_path, problem=exact(rosenbrock), options=SHORT)
    assert caught[0].filename == __file__


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    first = tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT, journal=tmp_path)
    with pytest.raises(JournalError, match="holds a run"):
        tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT, journal=tmp_path)
    assert same(resume(tmp_path, problem=exact(rosenbrock)), first)


def test_settings_come_back(tmp_path):
    chosen = {"file": "data.csv", "target": "y", "columns": ("a", "b"), "alpha": 0.1}
    tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT, journal=Journal(tmp_path, settings=chosen))
    assert journals.read(tmp_path).settings == chosen


@pytest.mark.parametrize("bad", [3, None, b"bytes"])
def test_a_bad_journal_argument_is_named(bad, tmp_path):
    with pytest.raises(TypeError, match="journal must be a folder"):
        resume(bad, problem=exact(rosenbrock))


# --- one writer


def test_two_writers_in_one_process_are_refused(tmp_path):
    def interfere(record):
        with pytest.raises(JournalError, match="this process; a run has one writer"):
            resume(tmp_path, problem=exact(rosenbrock))
        raise StopIteration

    tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT, journal=tmp_path, callback=interfere)
    assert resume(tmp_path, problem=exact(rosenbrock)).evaluations == 14  # afterwards it is free


CHILD = """
    import os, sys, time
    import numpy as np
    import suffice

    folder, action = sys.argv[1], sys.argv[2]
    killed_at = int(sys.argv[3]) if len(sys.argv) > 3 else -1

    def residuals(theta):
        with open(f"{folder}.calls", "a") as log:
            log.write(theta.tobytes().hex() + "\\n")
        return np.array([10.0 * (theta[1] - theta[0] ** 2), 1.0 - theta[0]])

    written, write = 0, suffice.files.write

    def torn(file, data):  # dies in the middle of a write
        global written
        if written + len(data) > killed_at >= 0:
            os.write(file, data[: killed_at - written])
            os.kill(os.getpid(), 9)
        written += len(data)
        write(file, data)

    suffice.files.write = torn
    options = suffice.Options(max_evaluations=25)
    if action == "hold":
        def hold(record):
            print("holding", flush=True)
            time.sleep(60)
        suffice.tune(suffice.exact(residuals), [-1.2, 1.0], options=options, journal=folder, callback=hold)
    elif os.path.exists(os.path.join(folder, "journal.jsonl")):
        suffice.resume(folder, problem=suffice.exact(residuals))
    else:
        suffice.tune(suffice.exact(residuals), [-1.2, 1.0], options=options, journal=folder)
"""


def child(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", textwrap.dedent(CHILD), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, **options)


def test_another_process_is_refused_while_the_first_lives_and_no_longer(tmp_path):
    folder = tmp_path / "run"
    process = child(folder, "hold", stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "holding\n"
        with pytest.raises(JournalError, match=f"written by process {process.pid} on .*one writer"):
            resume(folder, problem=exact(rosenbrock))
        assert len(journals.read(folder).history) == 1  # reading needs no lock
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert resume(folder, problem=exact(rosenbrock)).success


@pytest.mark.slow
def test_a_process_killed_in_the_middle_of_writes_loses_and_repeats_nothing_that_was_finished(tmp_path):
    folder = tmp_path / "run"
    whole = tune(exact(rosenbrock), [-1.2, 1.0], options=Options(max_evaluations=25))
    rng = np.random.default_rng(0)
    known, kills = 0, 0
    for _ in range(5):
        before = len(journals.read(folder).history) if file_of(folder).exists() else 0
        process = child(folder, "go", int(rng.integers(1, 9_000)))
        process.wait()
        if process.returncode == -signal.SIGKILL:
            kills += 1
        known = len(journals.read(folder).history) if file_of(folder).exists() else 0
        assert known >= before
    assert kills >= 3
    assert same(resume(folder, problem=exact(rosenbrock)), whole)
    calls = [bytes.fromhex(line) for line in Path(f"{folder}.calls").read_text().split()]
    expected = [np.array(record.theta).tobytes() for record in whole.history]
    # Only the evaluation that was under way may be made again, once per kill.
    assert [call for i, call in enumerate(calls) if i == 0 or call != calls[i - 1]] == expected[: len(set(calls))]
    assert len(calls) - len(set(calls)) <= kills


# --- ended early


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, Status.INTERRUPTED), (signal.SIGTERM, Status.TERMINATED)]
)
@pytest.mark.parametrize("when", ["first", "oracle", "write", "callback"])
def test_signals_end_with_the_best_point_and_a_journal_that_continues(
    number, status, when, tmp_path, monkeypatch, heeds_ctrl_c
):
    whole = tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT)
    calls, write = [], files.write

    def residuals(theta):
        calls.append(theta)
        if len(calls) == {"oracle": 6, "first": 1}.get(when):
            signal.raise_signal(number)
        return rosenbrock(theta)

    def interrupted_write(file, data):
        if when == "write" and len(calls) == 6 and b'"kind":"answers"' in data:
            signal.raise_signal(number)
        write(file, data)

    def callback(record):
        if when == "callback" and record.number == 6:
            signal.raise_signal(number)

    monkeypatch.setattr(files, "write", interrupted_write)
    before = signal.getsignal(signal.SIGTERM)
    result = tune(exact(residuals), [-1.2, 1.0], options=SHORT, journal=tmp_path, callback=callback)
    assert signal.getsignal(signal.SIGTERM) == before
    assert result.status is status and not result.success and result.message == status.message
    finished = {"first": 0, "oracle": 5, "write": 6, "callback": 6}[when]
    assert result.evaluations == finished
    if finished:
        best = min(whole.history[:finished], key=lambda record: record.cost)
        assert (tuple(result.theta.tolist()), result.cost) == (best.theta, best.cost)
        assert result.interval[0] <= result.cost <= result.interval[1]
    contents = journals.read(tmp_path)
    assert len(contents.history) == finished and contents.end["status"] == status.name
    monkeypatch.undo()
    assert same(resume(tmp_path, problem=exact(rosenbrock)), whole)


def test_a_user_s_own_handler_of_sigterm_is_left_alone(tmp_path):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:

        def residuals(theta):
            if len(seen) == 0:
                signal.raise_signal(signal.SIGTERM)
            return rosenbrock(theta)

        assert tune(exact(residuals), [-1.2, 1.0], options=SHORT).evaluations == 14 and seen == [1]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("partly", [0, 1, 500])
@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_full_disk_ends_the_run_with_everything_known_so_far(trouble, partly, tmp_path, monkeypatch):
    whole = tune(bilevel(), START, options=SHORT)
    write, count = files.write, []

    def full(file, data):
        count.append(1)
        if len(count) >= 8:  # the header, six evaluations, and then no more
            os.write(file, data[:partly])
            raise OSError(trouble, os.strerror(trouble))
        write(file, data)

    monkeypatch.setattr(files, "write", full)
    result = tune(bilevel(), START, options=SHORT, journal=tmp_path)
    assert result.status is Status.JOURNAL and not result.success
    assert os.strerror(trouble) in result.message and str(tmp_path) in result.message
    assert "it holds 6 of 7 evaluations" in result.message
    assert result.evaluations == 7 and repr(result.history) == repr(whole.history[:7])  # the seventh is in the result
    monkeypatch.undo()
    contents = journals.read(tmp_path)
    assert len(contents.history) == 6 and contents.torn == 0
    assert same(resume(tmp_path, problem=bilevel()), whole)


def test_a_folder_that_cannot_be_written_is_told_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")

    def never(theta):
        raise AssertionError

    with pytest.raises(JournalError, match="cannot be made"):
        tune(exact(never), [-1.2, 1.0], journal=tmp_path / "file" / "run")


def test_a_run_may_be_read_where_nobody_may_write(tmp_path, monkeypatch):
    whole = tune(exact(rosenbrock), [-1.2, 1.0], options=replace(SHORT, max_evaluations=5), journal=tmp_path)
    opened = os.open

    def read_only(path, flags, *rest, **options):
        if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(tmp_path)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    assert journals.read(tmp_path).history == whole.history
    with pytest.raises(JournalError, match="Read-only file system"):
        resume(tmp_path, problem=exact(rosenbrock), options=SHORT)


def test_solutions_that_cannot_be_written_down_are_the_oracle_s_fault(tmp_path):
    class Opaque:
        def evaluate(self, theta, *, within, warm=None):
            return Evaluation(theta, rosenbrock(theta), np.zeros(2), solutions=(object(),))

    with pytest.raises(OracleError, match="cannot be turned into plain data"):
        tune(Opaque(), [-1.2, 1.0], journal=tmp_path)
    assert journals.read(tmp_path).end["status"] == "FAILED"


# --- size


def test_a_journal_does_not_keep_what_the_search_has_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(journals.answers, "SLACK", 0)

    class Bulky(Wavering):
        def evaluate(self, theta, *, within, warm=None):
            known = super().evaluate(theta, within=within)
            return replace(known, solutions=(np.full(3_000, theta[0]),))

    options = Options(max_evaluations=90, final_radius=1e-30)
    sizes = []

    def callback(record):
        sizes.append(file_of(tmp_path / "run").stat().st_size)

    whole = tune(Bulky(), [-1.2, 1.0], options=options, journal=tmp_path / "run", callback=callback)
    one = 3_000 * 8 * 4 / 3
    assert whole.evaluations == 90
    assert max(sizes) < 2.5 * (3 + 20 + 2) * one + 100 * 5_000  # 3 points, 20 warm starts, a step and the new one
    again = tmp_path / "again"
    again.mkdir()
    data = file_of(tmp_path / "run").read_bytes()
    ends = [end for end in offsets(tmp_path / "run") if end < len(data)]
    file_of(again).write_bytes(data[: ends[-5]])
    assert len(journals.read(again).history) < whole.evaluations
    assert same(resume(again, problem=Bulky()), whole)


@pytest.mark.parametrize("name", ["adaptive", "user's oracle"])
def test_rewriting_the_file_at_every_turn_changes_nothing(name, tmp_path, monkeypatch):
    objective, start, options = RUNS[name]()
    whole = tune(objective, start, options=options)
    monkeypatch.setattr(journals.answers, "SLACK", -(1 << 40))
    count = 2
    part = tune(objective, start, options=replace(options, max_evaluations=count), journal=tmp_path)
    while part.evaluations < whole.evaluations:
        count += 3
        budget = replace(options, max_evaluations=min(count, options.max_evaluations))
        part = resume(tmp_path, problem=RUNS[name]()[0], options=budget)
    assert same(part, whole)


@pytest.mark.parametrize("trouble", ["before", "replace"])
def test_a_rewrite_that_fails_leaves_the_old_file_in_use(trouble, tmp_path, monkeypatch):
    objective, start, options = RUNS["exact"]()
    whole = tune(objective, start, options=options)
    replacing = os.replace
    monkeypatch.setattr(journals.answers, "SLACK", -(1 << 40))

    def fail(*_):
        raise OSError(errno.ENOSPC, "full")

    def create_only(one, other):
        if Path(other).exists():
            fail()
        replacing(one, other)

    if trouble == "before":
        monkeypatch.setattr(journals.lines.Lines, "records", fail)
    else:
        monkeypatch.setattr(os, "replace", create_only)
    assert same(tune(objective, start, options=options, journal=tmp_path), whole)
    assert not list(tmp_path.glob("*.tmp"))
    assert len(journals.read(tmp_path).history) == whole.evaluations


def test_a_kill_during_a_rewrite_leaves_the_old_file(tmp_path):
    """The draft is another file: what it holds does not count."""
    objective, start, options = RUNS["exact"]()
    whole = tune(objective, start, options=replace(options, max_evaluations=9), journal=tmp_path)
    file_of(tmp_path).with_suffix(".tmp").write_bytes(b"half a record")
    assert same(resume(tmp_path, problem=objective), whole)


def test_journals_are_text_that_other_tools_read(tmp_path):
    tune(bilevel(), START, options=SHORT, journal=tmp_path)
    kinds = [line["kind"] for line in lines_of(tmp_path)]
    assert kinds == ["header", *["answers"] * 14, "end"]
    assert b"pickle" not in file_of(tmp_path).read_bytes()


def test_a_file_that_was_cut_inside_what_belongs_together_is_refused(tmp_path, monkeypatch):
    """Answers whose solutions are gone lead to where the search was when they went, and to no place before."""
    monkeypatch.setattr(journals.answers, "SLACK", -(1 << 40))
    objective, start, options = RUNS["user's oracle"]()
    whole = tune(objective, start, options=options, journal=tmp_path)
    lines = file_of(tmp_path).read_bytes().splitlines(keepends=True)
    assert [json.loads(line[PREFIX:])["kind"] for line in lines[:3]] == ["header", "whole", "answers"]
    file_of(tmp_path).write_bytes(b"".join(lines[:9]))
    with pytest.raises(JournalError, match=f"was cut short: it holds 7 evaluations of {whole.evaluations} that belong"):
        resume(tmp_path, problem=objective)
    file_of(tmp_path).write_bytes(lines[0])  # as it was when the run began
    assert same(resume(tmp_path, problem=objective), whole)


def test_a_search_that_goes_another_way_makes_its_own_evaluations(tmp_path):
    """Other versions may differ in the last bit of theta: what was answered is not taken for the answer."""
    tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT, journal=tmp_path)
    lines = lines_of(tmp_path)[:-1]
    for line in lines[6:]:
        line["answers"][0]["key"] = "of another request"
    file_of(tmp_path).write_bytes(signed(*lines))
    calls = []
    result = resume(tmp_path, problem=exact(lambda theta: (calls.append(1), rosenbrock(theta))[1]))
    assert same(result, tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT)) and len(calls) == 14 - 5
    assert journals.read(tmp_path).history == result.history and journals.read(tmp_path).answers == 14 + 9


def test_evaluations_that_were_seen_before_go_with_the_journal(tmp_path):
    seen = [exact(rosenbrock).evaluate(np.array(theta), within=0.0) for theta in ([0.0, 0.5], [-1.0, 0.9])]
    whole = tune(exact(rosenbrock), [-1.2, 1.0], options=SHORT, seen=seen)
    tune(exact(rosenbrock), [-1.2, 1.0], options=replace(SHORT, max_evaluations=5), seen=seen, journal=tmp_path)
    assert same(resume(tmp_path, problem=exact(rosenbrock), options=SHORT), whole)


# --- other formats, other searches

OLD = Path(__file__).parents[1] / "data" / "journals" / "format-1"


def test_a_journal_of_an_earlier_format_is_refused_with_the_version_that_reads_it(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    message = r"journal.jsonl is of format 'suffice journal 1', not .*: suffice 0.1.0, which wrote it, goes on with it"
    for read in (journals.read, lambda folder: resume(folder, problem=exact(rosenbrock))):
        with pytest.raises(JournalError, match=message):
            read(tmp_path / "run")


MADE_FROM = {"X": "digest"}


def test_a_journal_of_another_search_is_not_taken_for_that_of_a_run_nor_the_other_way_round(tmp_path):
    with Journal(tmp_path / "search").continued(MADE_FROM):
        pass
    with pytest.raises(JournalError, match=r"no run of suffice\.tune"):
        resume(tmp_path / "search", problem=exact(rosenbrock))
    tune(exact(rosenbrock), [-1.2, 1.0], options=replace(SHORT, max_evaluations=3), journal=tmp_path / "run")
    content = file_of(tmp_path / "run").read_bytes()
    with pytest.raises(JournalError, match="X is new"), Journal(tmp_path / "run").continued(MADE_FROM):
        pass
    assert file_of(tmp_path / "run").read_bytes() == content


def test_answers_to_one_request_are_given_in_turn_and_once(tmp_path):
    key = request_key("residual", np.array([0.5]), 1e-3, None)
    with Journal(tmp_path).continued(MADE_FROM) as journal:
        for value in (1.0, 2.0):
            journal.keep(key, "search", Evaluation([0.5], [value], [0.0]))
    with Journal(tmp_path).continued(MADE_FROM) as journal:
        assert [journal.take(key).r.tolist() for _ in range(2)] == [[1.0], [2.0]]
        assert journal.take(key) is None


def test_a_request_is_told_from_any_other():
    theta, near, warm = np.array([0.5]), np.array([np.nextafter(0.5, 1.0)]), Evaluation([0.0], [1.0], [0.0])
    asked = [("residual", theta, 1e-3, None), ("weights", theta, 1e-3, None), ("residual", near, 1e-3, None)]
    asked += [("residual", theta, 1e-4, None), ("residual", theta, 1e-3, warm)]
    assert len({request_key(*one) for one in asked}) == len(asked)


def test_a_journal_may_be_looked_at_again_and_again(tmp_path):
    book = Journal(tmp_path)
    whole = tune(exact(rosenbrock), [-1.2, 1.0], options=replace(SHORT, max_evaluations=4), journal=book)
    for _ in range(2):
        with book:
            assert book.look().history == whole.history
    assert resume(book, problem=exact(rosenbrock), options=SHORT).evaluations == 14
