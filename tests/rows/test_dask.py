"""Rows on a cluster: the bits of one machine, whatever the workers and chunks, and whoever is lost on the way."""

import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from suffice import (
    BilevelProblem,
    Composite,
    Options,
    OracleError,
    Space,
    certify,
    losses,
    problems,
    resume,
    solve,
    terms,
    tune,
)
from suffice.models.margin_losses import Quantile
from suffice.rows import blocks
from suffice.rows import dask as cluster
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import Design
from suffice.rows.gram import Pull
from suffice.rows.sums import Chosen, tree, tree_roundings

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

ROWS, COLUMNS, BLOCK = 1_000, 6, 128
rng = np.random.default_rng(0)
X = rng.standard_normal((ROWS, COLUMNS))
y = X @ rng.standard_normal(COLUMNS) + rng.standard_normal(ROWS) > 0.0
counts = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)
space = Space(l1=(1e-5, 1.0), l2=(1e-5, 1.0))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK * 8 * COLUMNS)


def on_dask(array, chunks):
    return da.from_array(array, chunks=(chunks, *array.shape[1:]))


def solved(X, y, solver, problem=problems.ElasticNetLogistic):
    solution = solve(problem(X, y).at(l1=1e-3, l2=1.0), within=1e-5, solver=solver)
    return solution.x.tobytes(), solution.certificate.radius, solution.steps


def folds(X, y, **how):
    parts = terms.row_folds(X, 2, **how)
    lower = [problems.ElasticNetLogistic(train, y) for train, _ in parts]
    return BilevelProblem(lower, [losses.LogLoss(held, y) for _, held in parts], space=space)


def tuned(problem, evaluations=2, **how):
    return tune(problem, {"l1": 1e-2, "l2": 1e-2}, options=Options(max_evaluations=evaluations), **how)


@pytest.mark.parametrize("chunks", [77, ROWS])
@pytest.mark.parametrize("solver", ["newton", "fista", "fista_adaptive"])
def test_a_solution_has_the_bits_of_one_machine_for_any_chunks(client, solver, chunks):
    assert solved(on_dask(X, chunks), on_dask(y, 100), solver) == solved(RowBlocks.of(X), y, solver)


def test_it_is_the_solution_of_the_matrix_in_memory(client):
    one, other = (problems.ElasticNetLogistic(A, y).at(l1=1e-3, l2=1e-1) for A in (on_dask(X, 300), X))
    solution = solve(one, within=1e-9)
    assert np.linalg.norm(solution.x - solve(other, within=1e-10).x) <= 1.1e-9
    assert solution.certificate.radius <= 1e-9
    moved = solution.x + 1e-4
    assert certify(one, moved).radius >= np.linalg.norm(moved - solution.x) - 1e-9


@pytest.mark.parametrize(
    "problem",
    [
        lambda X, y: problems.ElasticNetPoisson(X, y),
        lambda X, y: problems.ElasticNetPoisson(X, y, exposure=1.0 + np.arange(ROWS) % 3),
        lambda X, y: problems.ElasticNetHuber(X, y, sample_weight=1.0 + np.arange(ROWS) % 2),
        lambda X, y: problems.ElasticNet(X, y),
    ],
)
def test_other_losses_offsets_and_weights(client, problem):
    one = solved(on_dask(X, 300), on_dask(counts, 100), "auto", problem)
    assert one == solved(RowBlocks.of(X), counts, "auto", problem)
    solution = solve(problem(X, counts).at(l1=1e-3, l2=1.0), within=1e-9)
    assert np.linalg.norm(np.frombuffer(one[0]) - solution.x) <= 1e-5 + 1e-9


def test_a_search_over_folds_has_the_bits_of_one_machine(client):
    here = tuned(folds(RowBlocks.of(X), y, interleaved=True))
    there = tuned(folds(on_dask(X, 250), on_dask(y, 250), interleaved=True))
    assert repr(here.history) == repr(there.history)


@pytest.mark.parametrize("loss", [losses.Brier, losses.LogLoss, losses.SquaredError])
def test_a_fold_is_a_view_whose_loss_is_that_of_its_rows(client, loss):
    train, held = terms.row_folds(on_dask(X, 300), 4)[1]
    assert train.X is held.X
    w, inside = rng.standard_normal(COLUMNS), slice(250, 500)
    here, there = loss(X[inside], y[inside]).at(w), loss(held, y).at(w)
    assert there.residual == pytest.approx(here.residual, rel=1e-12)
    for radius in (0.0, 1e-6, 1e-2, 1.0):
        moved = loss(X[inside], y[inside]).at(w + radius * np.eye(COLUMNS)[0]).residual
        assert abs(moved - there.residual) <= there.error(radius)
    V = rng.standard_normal((COLUMNS, 2))
    assert 2 * there.residuals @ there.linear.forward(V) == pytest.approx(2 * here.residuals @ here.linear.forward(V))
    assert there.linear.adjoint(there.residuals) == pytest.approx(here.linear.adjoint(here.residuals))


@pytest.mark.parametrize("family", [terms.POISSON, terms.Tweedie(1.5)])
def test_deviances(client, family):
    loss, w = losses.Deviance(on_dask(X, 300), on_dask(counts, 300), family), 0.1 * np.ones(COLUMNS)
    here, there = losses.Deviance(X, counts, family).at(w), loss.at(w)
    assert there.residual == pytest.approx(here.residual, rel=1e-12)
    for radius in (0.0, 1e-6, 1e-2):
        moved = losses.Deviance(X, counts, family).at(w + radius * np.eye(COLUMNS)[1]).residual
        assert abs(moved - there.residual) <= there.error(radius)


def test_a_run_is_continued_to_the_same_bits_and_other_data_are_refused(client, tmp_path):
    def stopped(record):
        raise StopIteration

    whole = tuned(folds(on_dask(X, 250), y))
    tuned(folds(on_dask(X, 250), y), callback=stopped, journal=tmp_path)
    again = resume(tmp_path, problem=folds(on_dask(X, 90), y))
    assert (again.params, again.cost, again.interval) == (whole.params, whole.cost, whole.interval)
    changed = X.copy()
    changed[17, 3] += 1e-12
    with pytest.raises(RuntimeError, match=r"design\.X\.values was"):
        resume(tmp_path, problem=folds(on_dask(changed, 250), y))


def test_what_does_not_fit_into_the_workers_is_read_at_every_pass(client, monkeypatch, tmp_path):
    def load(block_info=None):
        (start, stop), _ = block_info[None]["array-location"]
        (tmp_path / f"{start}").touch()
        return X[start:stop]

    monkeypatch.setattr(cluster, "FITTING", 0.0)
    lazy = da.map_blocks(load, chunks=((250,) * 4, (COLUMNS,)), dtype=float, meta=np.zeros((0, 0)))
    rows = Design.of(lazy).X
    for mark in tmp_path.iterdir():
        mark.unlink()
    rows.run(Pull(), r=Chosen(ROWS, ROWS))
    assert sorted(mark.name for mark in tmp_path.iterdir()) == ["0", "250", "500", "750"]
    assert solved(lazy, y, "newton") == solved(RowBlocks.of(X), y, "newton")


def test_a_worker_that_is_lost_on_the_way_leaves_the_bits():
    alive = []

    def lost(record):
        if not alive:
            workers.sync(workers.workers[0].close)
        alive.append(len(made.scheduler_info()["workers"]))

    here = tuned(folds(RowBlocks.of(X), y))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers) as made,
    ):
        there = tuned(folds(on_dask(X, 250), on_dask(y, 250)), callback=lost)
    assert min(alive) == 1
    assert repr(here.history) == repr(there.history)


def test_a_cluster_that_is_gone_ends_the_run_with_a_usable_journal(tmp_path):
    def gone(record):
        made.close()

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers) as made,
        pytest.raises(OracleError, match="cannot be reached any more"),
    ):
        tuned(folds(on_dask(X, 250), y), 3, callback=gone, journal=tmp_path)
    whole = tuned(folds(RowBlocks.of(X), y), 3)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers),
    ):
        assert resume(tmp_path, problem=folds(on_dask(X, 400), y)).theta.tobytes() == whole.theta.tobytes()


def test_without_a_client_dask_brings_the_rows_here(monkeypatch):
    def none():
        raise ValueError("no client")

    monkeypatch.setattr(distributed, "get_client", none)
    assert isinstance(Design.of(on_dask(X, 300)).X, RowBlocks)
    assert solved(on_dask(X, 300), y, "newton") == solved(RowBlocks.of(X), y, "newton")


@pytest.mark.parametrize("count", range(1, 40))
def test_sums_of_pieces_are_subtrees(count):
    parts = [10.0 ** rng.integers(-8, 8) * rng.standard_normal() for _ in range(count)]
    for size in (1, 2, 4, 8):
        assert tree([tree(parts[k : k + size]) for k in range(0, count, size)]) == tree(parts)


def test_a_term_of_a_sum_passes_no_more_roundings_than_are_counted():
    assert tree_roundings(64, 64) == 64
    assert tree_roundings(1 << 20, 1 << 10) < 1 << 8


def test_weights_of_folds_are_those_of_their_rows(client):
    for interleaved in (False, True):
        parts = terms.row_folds(RowBlocks.of(X), 3, interleaved=interleaved)
        there = terms.row_folds(on_dask(X, 300), 3, interleaved=interleaved)
        for k, pair in enumerate(parts):
            held = (
                np.arange(ROWS) % 3 == k if interleaved else np.isin(np.arange(ROWS), np.array_split(range(ROWS), 3)[k])
            )
            for design, twin, inside in zip(pair, there[k], (~held, held), strict=True):
                expected = np.where(inside, 1.0 / inside.sum(), 0.0)
                np.testing.assert_array_equal(design.here(design.weights), expected)
                np.testing.assert_array_equal(twin.here(twin.weights), expected)


few = slice(0, 300)
weight = rng.random(ROWS)[few] + 0.1


def penalised(g):
    def build(X, there):
        smooth = problems.ElasticNetLogistic(X, there(y[few]))._model(0.1)
        return Composite(smooth, g, mu=0.1, L=smooth.L, size=COLUMNS)

    return build


def of(problem, target, at=None, **how):
    def build(X, there):
        given = {name: there(value) if isinstance(value, np.ndarray) else value for name, value in how.items()}
        return problem(X, there(target[few]), **given).at(**(at or {"l1": 1e-2, "l2": 0.1}))

    return build


def made_of_logistic(make, **at):
    return lambda X, there: make(problems.ElasticNetLogistic(X, there(y[few]))).at(**at)


real = X @ np.arange(COLUMNS) + rng.standard_normal(ROWS)
EVERY_MODEL = {
    "squares": of(problems.ElasticNet, real, sample_weight=weight),
    "lasso": of(problems.ElasticNet, real, {"l1": 1e-2, "l2": 0.0}),
    "logistic": of(problems.ElasticNetLogistic, y, sample_weight=weight, offset=weight),
    "huber": of(problems.ElasticNetHuber, real),
    "poisson": of(problems.ElasticNetPoisson, counts, exposure=weight),
    "gamma": of(problems.ElasticNetGamma, counts + 0.5, sample_weight=weight),
    "tweedie": of(problems.ElasticNetTweedie, counts),
    "negative binomial": of(problems.ElasticNetNegativeBinomial, counts),
    "binomial": of(problems.ElasticNetBinomial, np.minimum(counts, 2.0), trials=np.full(300, 2.0)),
    "squared hinge": of(problems.ElasticNetModel, 2.0 * y - 1.0, loss=terms.SQUARED_HINGE),
    "quantile": of(problems.ElasticNetModel, real, loss=Quantile(0.3, 0.1)),
    "classes": of(problems.ElasticNetMultinomial, np.minimum(counts, 2), intercept=True, sample_weight=weight),
    "targets": of(problems.MultiTaskElasticNet, np.column_stack([real, counts]), sample_weight=weight),
    "targets one by one": of(problems.MultiTaskElasticNet, np.column_stack([real, counts]), by_rows=False),
    "targets without an l2": of(problems.MultiTaskElasticNet, np.column_stack([real, counts]), {"l1": 0.1, "l2": 0.0}),
    "groups": made_of_logistic(lambda one: problems.Grouped(one, [0, 0, 0, 1, 1, 1]), l1_0=1e-2, l1_1=0.1, l2=0.1),
    "sparse groups": penalised(terms.SparseGroup([[0, 1], [2, 3, 4, 5]], 1e-2)),
    "group lasso": penalised(terms.Group([[0, 1], [2, 3, 4, 5]], 1e-2)),
    "bounds": penalised(terms.BoxL1(1e-2, 0.0)),
}


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_every_model_is_that_of_main_memory_with_the_bits_of_one_machine(client, name):
    build = EVERY_MODEL[name]
    whole = solve(build(X[few], np.asarray), within=1e-6)
    here = solve(build(RowBlocks.of(X[few]), np.asarray), within=1e-6)
    there = solve(build(on_dask(X[few], 77), lambda rows: on_dask(rows, 100)), within=1e-6)
    assert np.linalg.norm(here.x - whole.x) <= here.certificate.radius + whole.certificate.radius <= 2e-6
    assert (there.x.tobytes(), there.certificate.radius) == (here.x.tobytes(), here.certificate.radius)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Design.of(on_dask(np.full((9, 2), np.nan), 4)), ValueError, "X must be finite"),
        (lambda: Design.of(on_dask(X + 1j, 400)), TypeError, "real numbers"),
        (lambda: problems.ElasticNetLogistic(on_dask(X, 400), on_dask(y[1:], 400)), ValueError, r"shape \(1000,\)"),
        (
            lambda: problems.ElasticNetLogistic(on_dask(X, 400), on_dask(counts, 400)),
            ValueError,
            "exactly two distinct",
        ),
        (lambda: problems.ElasticNetPoisson(on_dask(X, 400), on_dask(-counts, 400)), ValueError, "not be negative"),
        (lambda: problems.ElasticNetCox(on_dask(X, 400), counts + 1.0), TypeError, "needs it in main memory"),
        (lambda: problems.ElasticNetCox(RowBlocks.of(X), counts + 1.0), TypeError, "needs it in main memory"),
        (lambda: losses.PartialLikelihood(RowBlocks.of(X), counts + 1.0), TypeError, "needs it in main memory"),
        (lambda: terms.row_folds(X, 3), TypeError, "blocks of rows"),
        (lambda: terms.row_folds(RowBlocks.of(X), 1), ValueError, "folds must be at least 2"),
    ],
)
def test_bad_input_is_named(client, build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_a_model_of_ones_own_is_solved_wherever_its_rows_are(client):
    def problem(X):
        smooth = terms.LinearModel(Design.of(X), np.where(y == y.max(), 1.0, -1.0), terms.LOGISTIC, 0.1)
        return Composite(smooth, terms.L1(1e-2), mu=0.1, L=smooth.L, size=X.shape[1])

    here, blocks, there = (solve(problem(one), within=1e-7) for one in (X, RowBlocks.of(X), on_dask(X, 400)))
    assert np.linalg.norm(here.x - blocks.x) <= here.certificate.radius + blocks.certificate.radius <= 2e-7
    assert np.array_equal(blocks.x, there.x)


def test_a_dataframe_of_numbers_is_a_matrix(client):
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcdef")).assign(y=y), npartitions=4)
    assert solved(frame[list("abcdef")], frame.y, "newton") == solved(RowBlocks.of(X), y, "newton")
    with pytest.raises(TypeError, match="real numbers"):
        Design.of(frame.assign(text="a"))


def test_scikit_learn_search_says_that_it_needs_a_dataframe_here(client):
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    from sklearn.linear_model import Ridge

    from suffice.sklearn import SufficeSearchCV

    frame = dd.from_pandas(pd.DataFrame(X), npartitions=4)
    with pytest.raises(TypeError, match=r"X is a dask\.dataframe.*tune_table"):
        SufficeSearchCV(Ridge(), {"l2": (1e-4, 1.0)}).fit(frame, y)


@pytest.mark.filterwarnings("ignore:the best")
def test_a_search_of_scikit_learns_estimators_tunes_rows_where_they_are(client, tmp_path):
    """The same bits as blocks in one process, for any chunks; a journal goes on with others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from suffice.sklearn import SufficeSearchCV

    few = Options(max_evaluations=4)
    estimator, classes = make_pipeline(StandardScaler(), LogisticRegression()), np.where(y > 0, "yes", "no")
    here = SufficeSearchCV(estimator, cv=3, options=few).fit(RowBlocks.of(X), classes)
    for chunks in (37, 100):
        there = SufficeSearchCV(estimator, cv=3, options=few, journal=tmp_path / "journal")
        there.fit(on_dask(X, chunks), on_dask(classes, 51))
        assert there.best_params_ == here.best_params_ and there.score_interval_ == here.score_interval_
        np.testing.assert_array_equal(there.best_estimator_[-1].coef_, here.best_estimator_[-1].coef_)
        np.testing.assert_array_equal(there.held_out_.decided, here.held_out_.decided)


def test_scikit_learn_search_says_how_much_it_brings_here(client, monkeypatch):
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    from suffice.rows import given
    from suffice.sklearn import SufficeSearchCV

    search = SufficeSearchCV(make_pipeline(MinMaxScaler(), Ridge()), {"l2": (1e-4, 1.0)}, cv=3)
    with pytest.warns(UserWarning, match=r"X is a dask\.array of 4\.8e-05 GB, and SufficeSearchCV brings it.*steps"):
        there = search.fit(on_dask(X, 100), on_dask(counts, 100)).best_params_
    assert there == search.fit(X, counts).best_params_
    monkeypatch.setattr(given, "_memory", lambda: 40_000.0)
    with pytest.raises(ValueError, match=r"4\.8e-05 GB, and this machine.*has 4e-05.*tune_table"):
        search.fit(on_dask(X, 100), counts)


# Temporaries of a job: memory that is given back is used again.

TASK = """
import json, pickle, resource
import numpy as np
from types import SimpleNamespace
from suffice.rows.dask import on_piece
from suffice.rows.margins import PassRequest

class Temporaries:
    reads, keeps = False, False
    def __call__(self, block):
        return sum(int(np.full(1 << 17, 1.0)[0]) for _ in range(100))  # 1 MB each

def faults(function):
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    function()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

def job():
    X = SimpleNamespace(makes=(), shape=(10, 1))
    work = PassRequest(X, Temporaries(), (), {})
    assert on_piece(pickle.dumps((10, [work])), 0, 10, None, [[]]) == (100,)

job()
within = faults(job)
print(json.dumps([within, resource.getpagesize()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have other rules")
def test_a_temporary_is_mapped_once_for_a_job_and_not_each_time():
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}  # as Dask sets it for its workers
    made = subprocess.run([sys.executable, "-c", TASK], env=environment, capture_output=True, text=True, check=True)
    within, page = json.loads(made.stdout)
    one = (1 << 20) // page
    assert within < 10 * one
