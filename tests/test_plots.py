"""Figures of a result: they show its evaluations, for any number of parameters, on given axes or their own."""

import inspect
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

import suffice
from suffice import Evaluation, Options, Result, Status, exact, plots, tune


class Rough:
    """theta - 0.3 and a constant, each known to an accuracy that costs work; with a space, in named parameters."""

    def __init__(self, space=None):
        if space is not None:
            self.space = space

    def evaluate(self, theta, *, within, warm=None):
        error = np.full(len(theta) + 1, min(within, 0.1))
        return Evaluation(theta, np.append(theta - 0.3, 0.5) + 0.7 * error, error, work=1 + round(-np.log10(error[0])))


def run(count, **more):
    return tune(Rough(), [0.9] * count, bounds=(0, 1), options=Options(max_evaluations=30, **more))


@pytest.fixture(scope="module")
def results():
    return {count: run(count) for count in (1, 2, 3)}


@pytest.fixture(scope="module")
def named():
    space = suffice.Space(l1=(1e-3, 1e1), shift=(-1, 1), c=(0.0, 4.0, "sqrt"))
    return tune(Rough(space), {"l1": 1.0, "shift": 0.5, "c": 1.0}, options=Options(max_evaluations=30))


PLOTS = ("plot_path", "plot_progress", "plot_accuracy", "plot_work")


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("plot", PLOTS)
def test_every_figure_is_drawn_on_axes_of_its_own_or_on_those_given(results, plot, count):
    own = getattr(results[count], plot)()
    own.figure.canvas.draw()
    assert own.get_ylabel()
    given = Figure().subplots()
    assert getattr(results[count], plot)(given) is given
    given.figure.canvas.draw()


def test_a_trace_has_the_history(results):
    result = results[2]
    shown = plots.trace(result)
    assert shown.names == ("theta[0]", "theta[1]")
    for name, values in (("theta", shown.points), ("cost", shown.cost), ("within", shown.asked), ("work", shown.work)):
        assert np.array_equal(values, np.array([getattr(record, name) for record in result.history]))
    assert np.array_equal(np.array([shown.low, shown.high]).T, [record.interval for record in result.history])
    assert np.array_equal(shown.achieved, [record.error for record in result.history])
    assert np.array_equal(shown.paths[0][-1], result.theta) and np.array_equal(shown.best, result.theta)
    assert all((a != b).any() for a, b in zip(shown.paths[0], shown.paths[0][1:], strict=False))


def test_parameters_are_in_the_units_of_the_space(named):
    shown = plots.trace(named)
    assert shown.names == ("l1", "shift", "c") and shown.logarithmic == (True, False, False)
    assert np.allclose(shown.best, list(named.params.values()), rtol=1e-12)
    theta = np.array([record.theta for record in named.history])
    assert np.allclose(shown.points, np.stack([10.0 ** theta[:, 0], theta[:, 1], theta[:, 2] ** 2], axis=1))
    axes = named.plot_path(parameters=("shift", "l1"))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("shift", "l1")
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


@pytest.mark.parametrize("wrong", [("l1", "nonsense"), (), ("l1", "l1"), "nonsense"])
def test_unknown_parameters_are_refused(named, wrong):
    with pytest.raises(ValueError, match="l1, shift, c"):
        named.plot_path(parameters=wrong)


def test_error_bars_are_the_proven_intervals(results):
    result = results[1]
    (bars,) = (c for c in result.plot_path().containers if c.has_yerr)
    segments = bars[2][0].get_segments()
    drawn = sorted((float(a[0]), float(a[1]), float(b[1])) for a, b in segments)
    assert np.allclose(drawn, sorted((record.theta[0], *record.interval) for record in result.history))


def test_a_run_from_many_starts_shows_all_of_them():
    result = tune(Rough(), starts=[[0.9, 0.9], [0.1, 0.8]], bounds=(0, 1), options=Options(max_evaluations=40))
    shown = plots.trace(result)
    assert len(shown.cost) == sum(start.evaluations for start in result.starts) > result.evaluations
    assert len(shown.paths) == 2
    result.plot_path().figure.canvas.draw()


def test_accuracy_is_that_of_the_weights_where_requests_are_made_on_them():
    class Weights(Rough):
        def evaluate_weights(self, theta, *, within, warm=None):
            made = self.evaluate(theta, within=within)
            return Evaluation(made.theta, made.residuals, made.errors, made.work, distance=0.5 * within)

    result = tune(Weights(), [0.9], bounds=(0, 1), options=Options(policy="weights", max_evaluations=10))
    assert result.policy == "weights"
    shown = plots.trace(result)
    assert np.array_equal(shown.achieved, [record.distance for record in result.history])
    assert result.plot_accuracy().get_ylabel() == "distance of the weights"


def test_an_exact_objective_has_no_error_to_draw():
    result = tune(exact(lambda theta: theta - [0.2, 0.7]), [0.5, 0.5], bounds=(0, 1))
    axes = result.plot_accuracy()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["asked for", "proven: no error"]


def test_a_run_without_evaluations_cannot_be_drawn():
    empty = Result(np.zeros(2), float("nan"), (0.0, 1.0), Status.INTERRUPTED, 0, 0.0, ())
    with pytest.raises(ValueError, match="no evaluation was made: interrupted"):
        empty.plot_path()


def test_without_matplotlib_the_extra_is_named(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"suffice\[plot\]"):
        results[1].plot_path()


@pytest.mark.parametrize("name", [name for name in plots.__all__ if name.startswith("draw_")])
def test_signatures_are_those_that_sphinx_reads(name):
    """Sphinx takes defaults from a function's source, where there are any, and fails where those are others."""
    draw = getattr(plots, name)
    assert inspect.unwrap(draw) is draw and draw.__defaults__ is None
    assert inspect.signature(draw).parameters["ax"].default is None
