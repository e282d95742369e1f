"""Executors: the same bits from any number of workers, data that travel once, and no worker that could spoil a run."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent import futures
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from suffice import BilevelProblem, Options, OracleError, Space, Status, losses, problems, resume, tune
from suffice import journal as journals
from suffice.executors import Dask, Futures, Processes, Serial, WorkerError, find, pools
from suffice.executors.pools import Worthwhile
from suffice.rows.design import Design

SPACE = Space(l1=(1e-3, 1e1), l2=(1e-2, 1e1))
START = {"l1": 0.1, "l2": 0.3}
OPTIONS = Options(max_evaluations=8)


class Troubled:
    """A lower-level problem that gets into trouble on a worker, as often as there are files in a folder."""

    def __init__(self, problem, folder=None, trouble=None):
        self.problem, self.folder, self.trouble = problem, folder, trouble
        self.parent = os.getpid()

    def at(self, *, l1, l2):
        if self.folder is not None and os.getpid() != self.parent:
            for file in sorted(Path(self.folder).glob("trouble*")):
                try:
                    file.unlink()
                except FileNotFoundError:
                    continue
                self.trouble()
                break
        return self.problem.at(l1=l1, l2=l2)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(600)


def refuse():
    raise ValueError("l1 is not to my taste")


def out_of_memory():
    raise MemoryError


def bilevel(executor="serial", *, folder=None, trouble=None, count=0, shared=True, **changes):
    rng = np.random.default_rng(0)
    X, X_val = rng.standard_normal((2, 60, 6))
    design = Design.of(X)
    lower, upper = [], []
    for j in range(5):
        w = rng.standard_normal(6)
        model = problems.ElasticNetLogistic(design if shared else X.copy(), X @ w + rng.standard_normal(60) > 0)
        lower.append(Troubled(model, folder if j == 2 else None, trouble))
        upper.append(losses.Brier(X_val, X_val @ w > 0))
    for i in range(count):
        (Path(folder) / f"trouble{i}").touch()
    return BilevelProblem(lower, upper, space=SPACE, executor=executor, **changes)


def run(problem, **arguments):
    with problem:
        return tune(problem, START, **{"options": OPTIONS, **arguments})


@pytest.fixture(scope="module")
def serial():
    return run(bilevel())


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def same(one, other):
    return one.theta.tobytes() == other.theta.tobytes() and repr(one.history) == repr(other.history)


# --- the same bits


def test_processes_give_the_serial_result_and_serial_runs_continue_theirs(tmp_path, serial):
    assert same(run(bilevel(Processes(3)), journal=tmp_path / "three"), serial)
    run(bilevel(), options=Options(max_evaluations=3), journal=tmp_path / "serial")
    with bilevel(Processes(1)) as problem:
        assert same(resume(tmp_path / "serial", problem=problem, options=OPTIONS), serial)


def test_processes_that_begin_in_the_middle_of_a_run_give_the_serial_result(tmp_path, serial, monkeypatch):
    monkeypatch.setattr(pools, "START", 0.0)
    executor, begun = Worthwhile(2), []

    def wait(record):  # for processes, which a run does not wait for
        begun.append(len(futures.wait(executor._starting).done))

    assert same(run(bilevel(executor), journal=tmp_path / "two", callback=wait), serial)
    assert begun[0] == 0 < begun[1] == begun[-1]
    assert re.fullmatch(
        r"2 processes: evaluations took \S+ s each; 2 processes would save \S+ s over \d+ more, and take 0 s to start",
        executor.estimate,
    )


def test_a_small_problem_is_solved_by_one_process_whatever_was_asked_for(serial, monkeypatch):
    monkeypatch.setattr(Worthwhile, "_ready", lambda self: pytest.fail("a process was started"))
    executor = Worthwhile(2)
    assert same(run(bilevel(executor)), serial)
    assert executor.estimate.startswith("one process: evaluations took ")


def test_the_data_of_a_problem_stay_with_workers_whatever_its_limit_of_steps():
    executor, theta = Processes(2), np.array([-1.0, -1.0])
    with bilevel(executor) as problem:
        problem.evaluate(theta, within=1e-3)
        folder = executor._folder
        limited = problem.limited(3).evaluate(theta, within=1e-9)
        assert executor._folder == folder
    assert max(solution.steps for solution in limited.solutions) <= 3
    assert limited.r.tolist() == bilevel("serial").limited(3).evaluate(theta, within=1e-9).r.tolist()


def test_problems_with_data_of_their_own_give_the_serial_result_without_an_executor_too():
    assert same(run(bilevel(None, shared=False)), run(bilevel(shared=False)))


def test_problems_solved_together_differ_by_rounding_only(serial):
    result = run(bilevel(None))
    np.testing.assert_allclose(result.theta, serial.theta, atol=1e-9)
    np.testing.assert_allclose(result.cost, serial.cost, rtol=1e-9)


def test_threads_give_the_serial_result(serial):
    with ThreadPoolExecutor(3) as pool:
        assert same(run(bilevel(pool)), serial)


def test_any_executor_that_can_be_made_anew_gives_the_serial_result(serial):
    assert same(run(bilevel(Futures(lambda: ProcessPoolExecutor(2)))), serial)


def test_dask_gives_the_serial_result(client, serial):
    for _ in range(2):
        assert same(run(bilevel(client)), serial)


def test_other_solvers_policies_and_fixed_steps_give_the_serial_result():
    with Processes(2) as executor:
        for policy in ("residual", "weights"):
            options = Options(max_evaluations=6, policy=policy)
            one, other = (bilevel(where, solver="gradient_descent") for where in ("serial", executor))
            assert same(tune(one, START, options=options), tune(other, START, options=options))
        for solver, shared in (("fista", True), ("fista", False), ("gradient_descent", True)):
            one, other = (bilevel(where, solver=solver, shared=shared).fixed(20) for where in ("serial", executor))
            assert same(tune(one, START, options=OPTIONS), tune(other, START, options=OPTIONS))


def test_arrays_in_any_layout_give_the_serial_result():
    rng = np.random.default_rng(1)
    wide, y = rng.standard_normal((80, 12)), rng.standard_normal(80)
    layouts = [np.asfortranarray(wide), wide[:, ::2], wide[::-1, :6]]
    lower = [problems.ElasticNet(X, y) for X in layouts]
    upper = [losses.SquaredError(X[:20], y[:20]) for X in layouts]
    with Processes(1) as executor:
        one, other = (BilevelProblem(lower, upper, space=SPACE, executor=where) for where in ("serial", executor))
        assert same(tune(one, START, options=OPTIONS), tune(other, START, options=OPTIONS))


# --- what travels


class Recording(Futures):
    """Counts what is sent."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sent = []

    def submit(self, task, missing):
        self.sent.append((len(task), missing))
        return super().submit(task, missing)


def test_data_travel_once_per_worker_and_tasks_are_small():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 10))
    problem = problems.ElasticNet(X, rng.standard_normal(5000))
    upper = losses.SquaredError(X[:10], np.ones(10))
    from multiprocessing import get_context

    executor = Recording(lambda: ProcessPoolExecutor(1, mp_context=get_context("spawn")))
    run(
        BilevelProblem([problem] * 3, [upper] * 3, space=SPACE, executor=executor),
        options=replace(OPTIONS, derivatives="never"),
    )
    assert sum(with_data for _, with_data in executor.sent) == 1
    assert len(executor.sent) == 3 * 8 + 1  # solves, and the first of them, asked for again with data
    assert max(size for size, _ in executor.sent) < 2_000  # 10 weights, their predecessors, and a frame


def test_processes_share_one_copy_of_the_data_and_leave_nothing_behind():
    executor = Processes(1)
    problem = bilevel(executor)
    problem.evaluate(np.zeros(2), within=1e-3)
    folder = Path(executor._folder)
    assert (folder / "arrays").stat().st_size < 2 * 60 * 6 * 8 + 20 * 60 * 8 + 4_000  # one X, not five
    assert folder.stat().st_mode & 0o077 == 0
    problem.close()
    assert not folder.exists()


class Threads:
    """A lower-level problem that notes the number of BLAS threads."""

    def __init__(self, problem, folder):
        self.problem, self.folder = problem, folder

    def at(self, **params):
        threads = max((pool["num_threads"] for pool in threadpool_info()), default=1)
        (Path(self.folder) / f"{os.getpid()}-{threads}").touch()
        return self.problem.at(**params)


def test_workers_have_one_blas_thread_each(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    X, y = np.eye(4), np.arange(4.0)
    problem = Threads(problems.ElasticNet(X, y), tmp_path)
    upper = losses.SquaredError(X, y)
    with BilevelProblem([problem] * 2, [upper] * 2, space=SPACE, executor=Processes(1)) as bilevel:
        bilevel.evaluate(np.zeros(2), within=1e-3)
    counts = {file.name.split("-")[1] for file in tmp_path.iterdir() if not file.name.startswith(f"{os.getpid()}-")}
    assert counts == {"1"}


# --- trouble


@pytest.mark.parametrize("trouble", [die, out_of_memory])
def test_a_worker_that_dies_loses_its_task_to_another_and_the_journal_knows(trouble, tmp_path, serial):
    (tmp_path / "trouble").mkdir()
    problem = bilevel(Processes(1), folder=tmp_path / "trouble", trouble=trouble, count=2)
    result = run(problem, journal=tmp_path / "run")
    assert same(result, serial)
    events = [event for event in journals.read(tmp_path / "run").events if event["what"] == "a solve was lost"]
    assert len(events) >= 2 and {event["problem"] for event in events} >= {2}
    assert not list((tmp_path / "trouble").iterdir())


@pytest.mark.slow
def test_a_worker_that_hangs_is_not_waited_for(tmp_path, serial):
    problem = bilevel(Processes(1, deadline=5.0), folder=tmp_path, trouble=hang, count=1)
    with problem:
        result = tune(problem, START, options=OPTIONS)
        assert same(result, serial)
        assert any("longer than 5.0 s" in event["reason"] for event in problem.take_events())


def test_an_executor_of_the_user_s_own_is_made_anew_when_it_breaks(tmp_path, serial):
    problem = bilevel(Futures(lambda: ProcessPoolExecutor(2)), folder=tmp_path, trouble=die, count=1)
    assert same(run(problem), serial)


def test_a_broken_executor_that_cannot_be_made_anew_is_told(tmp_path):
    with (
        ProcessPoolExecutor(1) as pool,
        pytest.raises(OracleError, match="broken for good") as caught,
    ):
        run(bilevel(pool, folder=tmp_path, trouble=die, count=1))
    assert isinstance(caught.value.__cause__, WorkerError)


@pytest.mark.slow
def test_a_task_that_always_kills_its_worker_ends_the_run_with_all_that_was_known(tmp_path):
    problem = bilevel(Processes(1, attempts=2), folder=tmp_path, trouble=die, count=10)
    # Solves that waited for the same worker are lost with it, so that another may be the first to be lost twice.
    with pytest.raises(OracleError, match=r"problem \d was lost 2 times") as caught:
        run(problem)
    assert caught.value.result.status is Status.FAILED


def test_what_a_problem_raises_is_raised_as_it_is_and_not_tried_again(tmp_path):
    problem = bilevel(Processes(1), folder=tmp_path, trouble=refuse, count=3)
    with pytest.raises(OracleError, match="not to my taste") as caught:
        run(problem)
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(list(tmp_path.iterdir())) == 2


class Rubbish(ThreadPoolExecutor):
    """Answers nonsense every now and then."""

    answers = (None, b"", b"\x80\x05garbage", 17, [1.0], "solution")

    def __init__(self):
        super().__init__(1)
        self.count = 0

    def submit(self, *arguments):
        self.count += 1
        if self.count % 3:
            return super().submit(*arguments)
        future = Future()
        future.set_result(self.answers[(self.count // 3) % len(self.answers)])
        return future


def test_nonsense_is_asked_for_again(serial):
    with Rubbish() as pool:
        problem = bilevel(pool)
        assert same(run(problem), serial)
        assert all("no solution" in event["reason"] for event in problem.take_events())


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda s: s.x.__setitem__(0, np.nan), "finite"),
        (lambda s: object.__setattr__(s, "x", s.x[:3]), "shape"),
        (lambda s: object.__setattr__(s, "x", s.x.astype("f4")), "vector"),
        (lambda s: object.__setattr__(s.certificate, "radius", -1.0), "radius"),
        (lambda s: object.__setattr__(s.certificate, "radius", np.nan), "radius"),
    ],
)
def test_solutions_that_cannot_be_are_complained_about(spoil, complaint):
    problem = bilevel()
    from dataclasses import replace as changed

    from suffice.search.bilevel import Task

    task = Task(0, {"l1": 0.1, "l2": 0.1}, "residual", 1e-3)
    solution = problem._share.solve(task)
    assert problem._share.complaint(task, solution) is None
    solution = changed(solution, x=solution.x.copy(), certificate=changed(solution.certificate))
    spoil(solution)
    assert complaint in problem._share.complaint(task, solution)


@pytest.mark.slow
def test_dask_survives_the_death_of_its_workers(client, tmp_path, serial):
    problem = bilevel(client, folder=tmp_path, trouble=die, count=2)
    with problem:
        result = tune(problem, START, options=OPTIONS, journal=tmp_path / "run")
    assert same(result, serial)
    assert any(event["what"] == "a worker has gone" for event in journals.read(tmp_path / "run").events)


@pytest.mark.slow
def test_a_dask_worker_that_hangs_is_not_waited_for(client, tmp_path, serial):
    problem = bilevel(Dask(client, deadline=5.0), folder=tmp_path, trouble=hang, count=1)
    with problem:
        assert same(tune(problem, START, options=OPTIONS), serial)
        assert any("longer than 5.0 s" in event.get("reason", "") for event in problem.take_events())


def test_an_interrupt_while_workers_are_at_work_ends_cleanly(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    problem = bilevel(Processes(1), folder=tmp_path, trouble=hang, count=1)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 2.5)
        result = run(problem)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert result.status is Status.INTERRUPTED


# --- arguments


@pytest.mark.parametrize("bad", ["threads", 4, object()])
def test_a_bad_executor_is_named(bad):
    with pytest.raises(TypeError, match="executor must be None"):
        bilevel(bad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Processes(0), "workers must be a positive integer"),
        (lambda: Processes(2, deadline=0.0), "deadline must be positive"),
        (lambda: Dask(attempts=0), "attempts must be a positive integer"),
        (lambda: Futures(ThreadPoolExecutor, workers=0), "workers must be a positive integer"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_executors_are_found():
    assert find(None) is None
    assert isinstance(find("serial"), Serial)
    assert isinstance(find("processes"), Processes)
    assert isinstance(find("dask"), Dask)
    assert isinstance(find(ThreadPoolExecutor(1)), Futures)


def test_a_problem_that_cannot_travel_is_told():
    with pytest.raises(OracleError, match="cannot be sent to another process"):
        run(bilevel(Processes(1), trouble=(i for i in range(3))))


PARENT = """
import os, sys, time
from suffice.executors import Processes

class Sleeps:
    def solve(self, task):
        print(os.getpid(), flush=True)
        time.sleep(300.0)

    def complaint(self, task, answer):
        return None

Processes(2).map(Sleeps(), [0, 1])
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are asked after in /proc")
def test_workers_end_when_their_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
        limit = time.monotonic() + 60.0
        while any(map(alive, workers)):
            assert time.monotonic() < limit, "a worker has outlived its parent by a minute"
            time.sleep(0.1)


def alive(process):
    """Whether there is such a process that has not ended; one that nobody has waited for is as good as gone."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
