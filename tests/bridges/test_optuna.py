"""A run as an Optuna study: a trial per evaluation, which Optuna's own figures and files take."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import suffice
from suffice import Evaluation, Options, Space
from suffice.bridges.optuna import StudyCallback

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)

SPACE = Space(l1=(1e-3, 1e1), shift=(-1, 1), c=(0.0, 4.0, "sqrt"))


class Rough:
    """theta - 0.3, and a constant, known to an accuracy that has its price; F is computed too low or too high."""

    space = SPACE
    sign = 1.0

    def evaluate(self, theta, *, within, warm=None):
        error = np.full(len(theta) + 1, min(within, 0.2))
        residuals = np.append(theta - 0.3, 0.5)
        return Evaluation(theta, residuals + self.sign * 0.9 * np.sign(residuals) * error, error, work=2)


class TooLow(Rough):
    sign = -1.0


def recorded(objective, study=None, value="cost", **more):
    study = optuna.create_study() if study is None else study
    callback = StudyCallback(study, SPACE, value=value)
    where = {"theta0": {"l1": 1.0, "shift": 0.5, "c": 1.0}} if "starts" not in more else {}
    result = suffice.tune(objective, callback=callback, options=Options(max_evaluations=40), **where, **more)
    return study, callback, result


def test_every_evaluation_is_a_trial():
    study, _, result = recorded(Rough())
    assert len(study.trials) == result.evaluations
    for trial, record in zip(study.trials, result.history, strict=True):
        assert trial.state is optuna.trial.TrialState.COMPLETE
        assert trial.value == record.cost == trial.user_attrs["cost"]
        assert trial.params == SPACE.params(np.array(record.theta))
        assert trial.user_attrs["interval"] == list(record.interval)
        assert (trial.user_attrs["asked"], trial.user_attrs["achieved"]) == (record.within, record.error)
        assert (trial.user_attrs["work"], trial.user_attrs["purpose"]) == (record.work, record.purpose)
        assert trial.user_attrs.get("verdict") == record.verdict


def test_distributions_are_the_ranges():
    study, *_ = recorded(Rough())
    assert study.trials[0].distributions == {
        "l1": optuna.distributions.FloatDistribution(1e-3, 1e1, log=True),
        "shift": optuna.distributions.FloatDistribution(-1.0, 1.0),
        "c": optuna.distributions.FloatDistribution(0.0, 4.0),
    }


def test_infinite_ranges_end_at_large_numbers():
    callback = StudyCallback(optuna.create_study(), Space(l2=(1e-3, np.inf), shift=(-np.inf, np.inf)))
    record = suffice.tune(suffice.exact(lambda theta: theta), [0.5, 0.5]).history[0]
    callback(record)
    assert callback.study.trials[0].params == {"l2": 10**0.5, "shift": 0.5}


def test_a_refinement_names_the_trial_that_it_refines():
    study, _, result = recorded(Rough())
    seen, refined = {}, 0
    for trial, record in zip(study.trials, result.history, strict=True):
        assert trial.user_attrs.get("refines") == seen.get(record.theta)
        refined += record.theta in seen
        seen[record.theta] = trial.number
    assert refined > 0


def test_rough_evaluations_that_look_too_good_do_not_win_by_their_bounds():
    study, callback, result = recorded(TooLow())
    assert study.best_trial.user_attrs["interval"][1] > result.interval[1]  # a rough one has won by its F
    assert callback.best_trial.params == result.params
    assert callback.best_trial.user_attrs["interval"] == list(result.interval)
    study, callback, result = recorded(TooLow(), value="upper")
    assert study.best_value == result.interval[1]
    assert study.best_trial.number == callback.best_trial.number


def test_many_starts_and_other_trials_share_a_study():
    study = optuna.create_study()
    study.enqueue_trial({"x": 1.0})
    study.optimize(lambda trial: trial.suggest_float("x", 0, 10), n_trials=2)
    starts = [{"l1": 1.0, "shift": 0.5, "c": 1.0}, {"l1": 0.01, "shift": -0.5, "c": 2.0}]
    study, callback, result = recorded(Rough(), study=study, starts=starts)
    assert len(study.trials) == 2 + sum(start.evaluations for start in result.starts)
    assert callback.best_trial.params == result.params


def test_what_has_no_bound_has_no_value():
    callback = StudyCallback(optuna.create_study(), SPACE, value="upper")
    record = recorded(Rough())[2].history[0]
    callback(replace(record, interval=(0.0, np.inf), within=np.inf))
    (trial,) = callback.study.trials
    assert trial.state is optuna.trial.TrialState.PRUNED and trial.value is None
    assert trial.user_attrs["asked"] == "inf" and trial.user_attrs["interval"] == [0.0, "inf"]
    assert json.loads(json.dumps(trial.user_attrs, allow_nan=False)) == trial.user_attrs


def test_a_study_on_disk_has_it_all(tmp_path):
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    study = optuna.create_study(storage=optuna.storages.JournalStorage(backend), study_name="run")
    _, _, result = recorded(Rough(), study=study)
    again = optuna.load_study(storage=optuna.storages.JournalStorage(backend), study_name="run")
    assert [trial.value for trial in again.trials] == [record.cost for record in result.history]


@pytest.mark.parametrize(
    "name", ["plot_optimization_history", "plot_contour", "plot_slice", "plot_parallel_coordinate", "plot_edf"]
)
def test_figures_of_optuna_take_the_study(name):
    pytest.importorskip("plotly")
    study, *_ = recorded(Rough())
    assert getattr(optuna.visualization, name)(study).data


@pytest.mark.parametrize(
    ("study", "space", "value", "error", "match"),
    [
        ("study", SPACE, "cost", TypeError, "study must be"),
        (None, {"l1": (1, 2)}, "cost", TypeError, "space must be"),
        (None, SPACE, "lower", ValueError, "cost, upper"),
        (["maximize"], SPACE, "cost", ValueError, "MAXIMIZE"),
        (["minimize", "minimize"], SPACE, "cost", ValueError, "minimise one value"),
    ],
)
def test_what_cannot_be_recorded_is_refused(study, space, value, error, match):
    made = study if isinstance(study, str) else optuna.create_study(directions=study or ["minimize"])
    with pytest.raises(error, match=match):
        StudyCallback(made, space, value=value)


def test_before_the_first_evaluation_there_is_no_best():
    with pytest.raises(ValueError, match="no evaluation"):
        _ = StudyCallback(optuna.create_study(), SPACE).best_trial


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"suffice\[optuna\]"):
        StudyCallback(None, SPACE)
