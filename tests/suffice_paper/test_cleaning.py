"""Hypercleaning: weights of samples as hyperparameters; what is proven is so, and gradients are those of F."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from suffice_paper.cleaning import SampleCleaning

import suffice


def problem(N=90, d=6, K=3, seed=0, wrong=20):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((d, K))
    X, Z = rng.standard_normal((N, d)), rng.standard_normal((60, d))
    y, t = np.argmax(X @ truth, axis=1), np.argmax(Z @ truth, axis=1)
    y[:wrong] = (y[:wrong] + 1) % K
    return X, y, Z, t


def exact(X, y, Z, t, s, l2, K=3):
    """F by another road: BFGS on the lower level, to rounding."""
    N, d = X.shape

    def f(w):
        logp = log_softmax(X @ w.reshape(d, K), axis=1)
        gap = np.exp(logp) - np.eye(K)[y]
        value = -(s / N) @ logp[np.arange(N), y] + 0.5 * l2 * w @ w
        return value, (X.T @ ((s / N)[:, None] * gap)).ravel() + l2 * w

    w = minimize(f, np.zeros(d * K), jac=True, method="BFGS", options={"gtol": 1e-11}).x
    return -float(np.mean(log_softmax(Z @ w.reshape(d, K), axis=1)[np.arange(len(t)), t]))


@pytest.mark.parametrize("within", [1e-1, 1e-2, 1e-4, 1e-8])
def test_the_interval_holds_f_however_loosely_it_was_asked_for(within):
    data = problem()
    s = np.random.default_rng(1).uniform(0.0, 1.0, 90)
    made = SampleCleaning(*data, l2=0.05, classes=3).evaluate(s, within=within)
    assert made.e[0] <= within
    F = exact(*data, s, 0.05)
    assert made.interval[0] - 1e-9 <= F <= made.interval[1] + 1e-9


def test_less_accuracy_takes_fewer_products():
    data = problem()
    work = [SampleCleaning(*data, l2=0.01, classes=3).evaluate(np.full(90, 0.5), within=e).work for e in (1e-1, 1e-8)]
    assert work[0] < 0.7 * work[1]


def test_the_gradient_is_that_of_differences():
    data = problem()
    objective, s = SampleCleaning(*data, l2=0.05, classes=3), np.random.default_rng(1).uniform(0.1, 0.9, 90)
    gradient = objective.differentiate(objective.evaluate(s, within=1e-11)).gradient
    for i in (0, 17, 89):
        step = np.zeros(90)
        step[i] = 1e-4
        ends = [objective.evaluate(s + sign * step, within=1e-12).cost for sign in (1.0, -1.0)]
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5, abs=1e-10)


def test_wrong_labels_lose_their_weight_and_the_run_is_resumed_to_the_same_bits(tmp_path):
    data = problem()
    options = suffice.Options(max_evaluations=12)
    arguments = {"bounds": (1e-4, 1.0), "options": options}

    def cleaning():
        return SampleCleaning(*data, l2=0.02, classes=3)

    def stop(record):
        if record.number == 5:
            raise StopIteration

    journal = tmp_path / "whole"
    whole = suffice.tune(cleaning(), np.full(90, 0.5), journal=journal, **arguments)
    assert whole.history[0].cost - whole.cost > 0.1 * whole.history[0].cost
    assert whole.theta[:20].mean() < 0.5 * whole.theta[20:].mean()
    part = tmp_path / "part"
    suffice.tune(cleaning(), np.full(90, 0.5), journal=part, callback=stop, **arguments)
    resumed = suffice.resume(part, problem=cleaning())
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    assert resumed.interval == whole.interval


def test_a_weight_below_zero_or_a_label_out_of_range_is_refused():
    X, y, Z, t = problem()
    with pytest.raises(ValueError, match="labels from 0 to 1"):
        SampleCleaning(X, y, Z, t, l2=0.1, classes=2)
    with pytest.raises(ValueError, match="non-negative weights"):
        SampleCleaning(X, y, Z, t, l2=0.1, classes=3).evaluate(np.full(90, -1.0), within=0.1)
