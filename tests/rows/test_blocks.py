"""Matrices read in blocks: the same numbers as in memory, proven bounds, and never the whole at once."""

import gc
import pickle
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

from suffice import BilevelProblem, Options, Space, losses, problems, resume, solve, terms, tune
from suffice.executors import Processes
from suffice.rows.blocks import RowBlocks
from suffice.rows.design import Design
from suffice.rows.norms import squared_norm_bound
from tests.rows.test_design import attained

rng = np.random.default_rng(0)
X = rng.standard_normal((53, 7))
ANY: Any = lambda value: value  # noqa: E731
SHAPES = [(53, 7), (7, 53), (1, 9), (9, 1)]


def mapped(folder, array, name="X.npy", **how):
    np.save(folder / name, array)
    return np.load(folder / name, mmap_mode="r", **how)


@pytest.mark.parametrize("factor", [1.0, 1e-140, 1e140, 0.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_gram_matrix_the_norm_is_bounded_from_above_and_nearly_as_tightly(shape, factor, monkeypatch):
    monkeypatch.setattr("suffice.rows.norms.DENSE_GRAM_SIZE", 1)
    A, weights = factor * rng.standard_normal(shape), rng.random(shape[0]) + 0.1
    design = Design.of(RowBlocks.of(A, block=4), weights)
    exact = attained(A, design.weights)
    assert exact <= design.squared_norm <= 1.06 * exact


def test_the_bound_is_that_of_the_whole():
    assert Design.of(RowBlocks.of(X, block=10)).squared_norm == pytest.approx(squared_norm_bound(X / np.sqrt(53)))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "?", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_maps_of_any_type_give_the_solution_of_the_whole(dtype, order, tmp_path):
    data = np.asarray((10 * X).astype(dtype), order=order)
    y = rng.standard_normal(53)
    one = solve(problems.ElasticNet(mapped(tmp_path, data), y).at(l1=0.1, l2=0.1), within=1e-9)
    other = solve(problems.ElasticNet(data.astype("f8"), y).at(l1=0.1, l2=0.1), within=1e-9)
    assert one.certificate.radius <= 1e-9
    assert np.linalg.norm(one.x - other.x) <= 2e-9


def test_a_memory_map_is_never_copied_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice.rows.blocks.BLOCK_BYTES", 1 << 20)
    array = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype="f4", shape=(40_000, 120))
    array[:] = rng.standard_normal((40_000, 120)).astype("f4")
    array.flush()
    y = rng.random(40_000) < 0.5
    del array
    tracemalloc.start()
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    problem = BilevelProblem(
        [problems.ElasticNetLogistic(X, y)] * 2, [losses.Brier(X, y)] * 2, space=Space(l1=(1e-5, 1), l2=(1e-5, 1))
    )
    tune(problem, {"l1": 1e-3, "l2": 1e-2}, options=Options(max_evaluations=4), journal=tmp_path / "run")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = 40_000 * 120 * 8
    assert peak < whole  # a few dozen vectors of 40,000 margins, Jacobians of as many residuals, and a block


def test_folds_hold_targets_and_norms_of_rows_once():
    parts = terms.row_folds(RowBlocks.of(X), 4)
    models = [problems.ElasticNetLogistic(train, X[:, 0] > 0.0) for train, _ in parts]
    scores = [losses.LogLoss(held, X[:, 0] > 0.0) for _, held in parts]
    assert len({id(model.y) for model in models} | {id(score.held_out.y) for score in scores}) == 1
    assert len({id(part.row_norms) for pair in parts for part in pair}) == 1
    np.testing.assert_allclose(parts[0][0].row_norms, np.linalg.norm(X, axis=1))


def test_folds_take_no_array_of_weights():
    rows = RowBlocks.of(X, block=10)
    parts = terms.row_folds(rows, 4)
    assert "_even" not in vars(rows)
    whole = Design.of(rows)
    assert parts[0][0].row_norms is whole.row_norms
    fresh = Design.of(RowBlocks.of(X, block=10)).survey
    np.testing.assert_array_equal(whole.survey.gram, fresh.gram)
    np.testing.assert_array_equal(whole.row_norms, fresh.row_norms)


def test_margins_of_points_that_are_past_are_let_go_at_once(monkeypatch):
    # Each is as long as X has rows: one for the point, and one for where the step leads to.
    known, most, answers = [], [0], RowBlocks.answers

    def counted(rows, requests):
        known.extend(map(weakref.ref, [one for request in requests for one in request.products]))
        found = answers(rows, requests)
        most[0] = max(most[0], len({id(one()) for one in known if one() is not None and one().rows is not None}))
        return found

    monkeypatch.setattr(RowBlocks, "answers", counted)
    problem = problems.ElasticNetLogistic(RowBlocks.of(X, block=10), X[:, 0] > 0.0).at(l1=1e-3, l2=1e-3)
    gc.disable()
    try:
        solution = solve(problem, within=1e-8, solver="newton")
    finally:
        gc.enable()
    assert solution.steps > 3
    assert most[0] == 2


def test_rows_from_files_one_below_the_other(tmp_path):
    mapped(tmp_path, X[:20], "a.npy"), mapped(tmp_path, X[20:21], "b.npy"), mapped(tmp_path, X[21:], "c.npy")
    blocks = RowBlocks.of([tmp_path / name for name in ("a.npy", "b.npy", "c.npy")], block=8)
    assert blocks.shape == X.shape
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks.blocks()]), X)


def test_rows_from_a_function():
    calls = []

    def rows(start, stop):
        calls.append((start, stop))
        return X[start:stop]

    blocks = terms.RowBlocks(rows, X.shape, block=20)
    assert np.allclose(blocks @ np.ones(7), X.sum(axis=1))
    assert calls == [(0, 20), (20, 40), (40, 53)]


@pytest.mark.parametrize("part", [np.s_[:], np.s_[10:40], np.s_[:, ::2], np.s_[::3]])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_lies_in_a_file_travels_by_name(order, part, tmp_path):
    large = np.asarray(rng.standard_normal((53, 400)), order=order)
    view = mapped(tmp_path, large)[part]
    text = pickle.dumps(RowBlocks.of(view, block=10))
    back = pickle.loads(text)
    np.testing.assert_array_equal(np.concatenate([block for _, block in back.blocks()]), large[part])
    whole = view.flags.c_contiguous or view.flags.f_contiguous
    assert (len(text) < 5_000) == whole


def test_workers_read_the_file_themselves_and_give_the_same_bits(tmp_path):
    data, y = mapped(tmp_path, X), X[:, 0] > 0
    space = Space(l1=(1e-4, 1), l2=(1e-4, 1))

    def run(executor):
        lower = [problems.ElasticNetLogistic(data, y), problems.ElasticNetLogistic(data[:30], y[:30])]
        upper = [losses.Brier(data, y)] * 2
        with BilevelProblem(lower, upper, space=space, executor=executor) as problem:
            return tune(problem, {"l1": 0.1, "l2": 0.1}, options=Options(max_evaluations=5))

    assert repr(run("serial").history) == repr(run(Processes(1)).history)


def test_a_changed_file_is_noticed(tmp_path):
    def problem():
        data = np.load(tmp_path / "X.npy", mmap_mode="r")
        space = Space(l1=(1e-4, 1), l2=(1e-4, 1))
        return BilevelProblem(
            [problems.ElasticNet(data, X[:, 0])], [losses.SquaredError(X, X[:, 1])], space=space, solver="fista"
        )

    mapped(tmp_path, X)
    tune(problem(), {"l1": 0.1, "l2": 0.1}, options=Options(max_evaluations=3), journal=tmp_path / "run")
    assert resume(tmp_path / "run", problem=problem()).evaluations == 3
    changed = X.copy()
    changed[17, 3] += 1e-12
    mapped(tmp_path, changed)
    with pytest.raises(RuntimeError, match=r"lower\[0\]\.design\.X\.values was"):
        resume(tmp_path / "run", problem=problem())


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: RowBlocks(ANY("X"), (2, 2)), TypeError, "rows must be callable"),
        (lambda: RowBlocks(lambda a, b: X, (0, 2)), ValueError, "rows must be a positive integer, got 0"),
        (lambda: RowBlocks(lambda a, b: X, ANY((2, 2, 2))), ValueError, "shape must be a pair"),
        (lambda: RowBlocks(lambda a, b: X, X.shape, block=0), ValueError, "block must be a positive integer"),
        (lambda: RowBlocks.of([]), ValueError, "at least one"),
        (lambda: RowBlocks.of([X, X[:, :3]]), ValueError, "same number of columns, got"),
        (lambda: RowBlocks.of(X[0]), ValueError, "X must be a matrix"),
        (lambda: RowBlocks.of(X + 1j), TypeError, "real numbers"),
        (lambda: RowBlocks.of(np.array([["a"]])), TypeError, "real numbers"),
        (lambda: RowBlocks(lambda a, b: X, (53, 7), block=9) @ np.ones(7), ValueError, r"rows\(0, 9\) must have shape"),
        (lambda: RowBlocks(lambda a, b: [["a"] * 7], (1, 7)) @ np.ones(7), TypeError, "rows 0 to 0 are not"),
        (lambda: RowBlocks.of(X) @ np.ones(6), ValueError, "X has 7 columns"),
        (lambda: RowBlocks.of(X).T @ np.ones(6), ValueError, "X has 53 rows"),
        (lambda: Design.of(RowBlocks.of(np.full((3, 2), np.nan))), ValueError, "X must be finite"),
        (lambda: Design.of(RowBlocks.of(np.full((3, 2), 1e300))).squared_norm, OverflowError, "X is too large"),
    ],
)
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=message):
        build()
