"""A path past kinks, and margins that move far: F stays where it is proven to lie, in boxes of any size."""

import numpy as np
import pytest

import suffice
from suffice import losses, problems
from suffice.globally.models import folds_of, minimised
from suffice.globally.paths import PenaltyBox, clips_of, path_of, sizes_of
from suffice.globally.reach import ball_of
from suffice.globally.surfaces import part_of, together
from suffice.terms import POISSON

KINDS = {
    "squares": (problems.ElasticNet, losses.SquaredError),
    "logistic": (problems.ElasticNetLogistic, losses.LogLoss),
    "brier": (problems.ElasticNetLogistic, losses.Brier),
    "poisson": (problems.ElasticNetPoisson, lambda X, y: losses.Deviance(X, y, POISSON)),
}


def correlated(kind, seed):
    """Columns that have much in common, so that weights come and go, and a row that lies far from the others."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(4, 12))
    X = rng.standard_normal((60, d)) + 1.5 * rng.standard_normal((60, 1)) * rng.random(d)
    X[0] *= 4.0
    m = X @ rng.standard_normal(d) / d
    if kind == "poisson":
        y = rng.poisson(np.exp(np.clip(0.5 * m, -3.0, 3.0))).astype(float)
    else:
        m = m + 0.3 * rng.standard_normal(60)
        y = m if kind == "squares" else np.where(m > 0.0, 1.0, -1.0)
    lower, held = KINDS[kind]
    space = suffice.Space(l1=(1e-6, 1e3), l2=(1e-6, 1e3))
    return suffice.BilevelProblem([lower(X[:40], y[:40])], [held(X[40:], y[40:])], space=space), rng


def outside(kind, seed):
    """Random parameters in a random box at which F lies outside of what is proven; whether signs change."""
    problem, rng = correlated(kind, seed)
    centre = 10.0 ** rng.uniform([-2.5, -4.0], [-0.5, 0.0])
    widths = 10.0 ** rng.uniform(-1.5, 0.0, 2)
    box = PenaltyBox(centre / (1.0 + widths), centre * (1.0 + widths))
    theta = problem.space.theta(dict(zip(("l1", "l2"), box.centre.tolist(), strict=True)))
    w = problem.evaluate(theta, within=1e-6).solutions[0].x
    (fold,) = folds_of(problem)
    surface = together([part_of(fold, w, box)], box)
    found, kinked = [], False
    corners = [box.low, box.high, np.array([box.low[0], box.high[1]]), np.array([box.high[0], box.low[1]])]
    for t in [*corners, *(box.low + rng.random((8, 2)) * (box.high - box.low))]:
        at = problem.space.theta(dict(zip(("l1", "l2"), t.tolist(), strict=True)))
        made = problem.evaluate(at, within=1e-9)
        low, high = made.interval
        kinked |= not np.array_equal(np.sign(made.solutions[0].x), np.sign(w))
        a, b = surface.interval(t)
        if high * (1.0 + 1e-12) < a or low > b * (1.0 + 1e-12) or high * (1.0 + 1e-12) < surface.least(box):
            found.append((t, (low, high), (a, b)))
    return found, kinked, surface.slack


@pytest.mark.parametrize("kind", KINDS)
def test_f_lies_where_it_is_proven_to_in_random_boxes(kind):
    made = [outside(kind, seed) for seed in range(8)]
    assert [found for found, _, _ in made if found] == []
    assert any(kinked and np.isfinite(slack) for _, kinked, slack in made)  # or nothing of it was tried


def along(fold, path, box, t):
    """The path at t, clipped."""
    s = t - box.centre
    moved = path.A @ np.array([*s, s[0] ** 2, s[0] * s[1], s[1] ** 2])
    moved[: len(path.S)] += path.w[path.S]
    clips = clips_of(fold, path, box, sizes_of(box.r))
    clipped = (clips > 0.0) & (np.append(path.sigma, [0.0] * fold.intercept) * moved < 0.0)
    moved[clipped] = 0.0
    w = np.zeros(len(path.w))
    w[path.S] = moved[: len(path.S)]
    return w


@pytest.mark.parametrize("kind", ["squares", "logistic"])
def test_minimisers_are_as_near_to_the_path_as_the_ball_says(kind):
    seen = 0
    for seed in range(40):
        problem, rng = correlated(kind, seed)
        centre = 10.0 ** rng.uniform([-2.5, -4.0], [-0.5, -1.0])
        box = PenaltyBox(centre / 1.5, centre * 1.5)
        (fold,) = folds_of(problem)
        w, _ = minimised(fold, *box.centre, np.zeros(fold.design.shape[1]))
        path = path_of(fold, w, box)
        ball, _ = ball_of(fold, path, box)
        if ball is None or ball.factor is None or not ball.clips.any():
            continue
        seen += 1
        for t in box.low + rng.random((6, 2)) * (box.high - box.low):
            true, _ = minimised(fold, *t, w)
            h = true - along(fold, path, box, t)
            P = ball.factor.support
            assert np.all(np.delete(h, P) == 0.0)
            assert np.linalg.norm(ball.factor.R @ (h[P] / ball.factor.scale)) <= ball.rho * (1.0 + 1e-9) + 1e-9
    assert seen >= 5
