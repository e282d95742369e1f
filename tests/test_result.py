"""What a run leaves behind: statuses that carry their messages, records, and errors that keep all results."""

import math
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from suffice import Evaluation, Options, OracleError, Record, Result, Status, exact, tune


@pytest.fixture(scope="module")
def result():
    return tune(exact(lambda theta: theta - [0.2, 0.7]), [0.5, 0.5], bounds=(0, 1))


def test_only_convergence_a_proof_and_the_target_are_successes():
    assert {status for status in Status if status.success} == {
        Status.CONVERGED,
        Status.SUFFICES,
        Status.TARGET,
    }


def test_every_status_has_a_message_of_its_own():
    messages = [status.message for status in Status]
    assert all(messages)
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("status", list(Status))
def test_a_result_speaks_for_its_status(status):
    result = Result(np.zeros(2), 1.0, (0.5, 2.0), status, 0, 0.0, ())
    assert result.success is status.success
    where = ": theta = [0, 0], F lies in [0.5, 2]" if status is Status.ACCURACY else ""
    assert result.message == status.message + where
    with_detail = replace(result, detail="theta = [0, 0]").message
    known = {Status.SUFFICES: "converged: ", Status.TARGET: "converged: ", Status.ACCURACY: ""}
    assert with_detail == known.get(status, f"{status.message}: ") + "theta = [0, 0]"
    assert result.solutions == ()


def test_a_result_holds_the_incumbent_and_adds_up_its_history(result):
    assert result.success
    assert result.evaluations == len(result.history) > 0
    assert result.work == sum(record.work for record in result.history) == result.history[-1].total_work
    assert [record.number for record in result.history] == list(range(1, result.evaluations + 1))
    assert tuple(result.theta.tolist()) == result.history[-1].incumbent
    assert result.cost == result.history[-1].incumbent_cost
    assert result.interval[0] <= result.cost <= result.interval[1]
    assert result.params is None
    assert result.evaluation.point.tolist() == result.theta.tolist()


def test_results_and_records_cannot_be_changed(result):
    with pytest.raises(FrozenInstanceError):
        result.cost = 0.0
    with pytest.raises(FrozenInstanceError):
        result.history[0].cost = 0.0


def test_the_history_stays_out_of_the_way_when_a_result_is_shown(result):
    assert "history" not in repr(result) and "\n" not in repr(result)
    assert repr(result).startswith(f"<Result: {result.message}; F = ") and len(repr(result)) < 200


def test_records_say_what_was_asked_achieved_and_decided(result):
    verdicts = {record.verdict for record in result.history}
    assert "accepted" in verdicts
    for record in result.history:
        assert (record.verdict is None) == (record.step is None)
        assert record.step is None or len(record.step.origin) == len(record.step.target) == len(record.theta)
        assert record.error == max(record.errors)
        assert record.within > 0.0
        assert record.interval[0] <= record.cost <= record.interval[1]


def test_a_record_without_residuals_has_no_error():
    record = Record(1, "step", (0.0,), 1.0, (), None, 0.0, (0.0, 0.0), 0.0, 0.0, 0.1)
    assert record.error == 0.0
    assert math.isnan(record.incumbent_cost)


def test_an_oracle_error_is_a_runtime_error_with_theta_and_result(result):
    error = OracleError("the objective failed", np.array([1.0, 2.0]), result)
    assert isinstance(error, RuntimeError)
    assert error.theta.tolist() == [1.0, 2.0]
    assert error.result is result
    assert OracleError("early", np.zeros(1)).result is None


def test_results_of_exact_objectives_travel_between_processes(result):
    copy = pickle.loads(pickle.dumps(result))
    assert copy.history == result.history
    assert copy.theta.tolist() == result.theta.tolist()
    assert copy.status is result.status


def test_oracle_errors_travel_between_processes(result):
    copy = pickle.loads(pickle.dumps(OracleError("the objective failed", np.array([1.0, 2.0]), result)))
    assert str(copy) == "the objective failed"
    assert copy.theta.tolist() == [1.0, 2.0]
    assert copy.result.history == result.history


def test_solutions_are_those_of_the_incumbent():
    class Objective:
        def evaluate(self, theta, *, within, warm=None):
            return Evaluation(theta, theta - 0.25, np.zeros(1), solutions=(("solved", *theta.tolist()),))

    result = tune(Objective(), [0.75], bounds=(0, 1), options=Options(final_radius=1e-3))
    assert result.solutions == (("solved", *result.theta.tolist()),)
