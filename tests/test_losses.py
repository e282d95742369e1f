"""Losses know how errors of the weights reach them: the bound holds in every direction, and it is tight."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from flint import arb, ctx, fmpq

from suffice.losses import (
    Brier,
    Deviance,
    Lipschitz,
    LogLoss,
    MultinomialBrier,
    MultinomialLogLoss,
    SquaredDistance,
    SquaredError,
    SquaredErrors,
)
from suffice.problems import ElasticNetMultinomial
from suffice.prove.held_out import HeldOut, least_error, ranges
from suffice.prove.loss_at import LossAt
from suffice.prove.scores import BRIER_CURVATURE, BrierScore, LogScore, SquaredScore
from suffice.rows.design import Design
from suffice.rows.sums import Chosen
from suffice.terms import POISSON, RowBlocks
from tests.reference import LONG, norm

N, D = 40, 6
rng = np.random.default_rng(5)
X = rng.standard_normal((N, D)) * np.geomspace(0.2, 2.0, D)
X[:, 2] = 0.0
y = X @ np.array([1.0, -1.0, 3.0, 0.5, 0.0, 0.2]) + 0.3 * rng.standard_normal(N)
labels = np.where(y > 0, 1, -1)
target = rng.standard_normal(D)


def sigmoid(m):
    return 1 / (1 + np.exp(-m))


LONG_X, LONG_Y = X.astype(LONG), y.astype(LONG)
# name -> the loss, and its root r(w) in extended precision
LOSSES = {
    "squared distance": (SquaredDistance(target), lambda w: norm(w - target.astype(LONG))),
    "brier": (Brier(X, labels), lambda w: norm(sigmoid(LONG_X @ w) - (labels > 0))),
    "brier, sparse": (Brier(sp.csr_array(X), labels), lambda w: norm(sigmoid(LONG_X @ w) - (labels > 0))),
    "log loss": (LogLoss(X, labels), lambda w: np.sqrt(np.logaddexp(LONG(0), -labels * (LONG_X @ w)).sum())),
    "squared error": (SquaredError(X, y), lambda w: norm(LONG_X @ w - LONG_Y)),
    "squared error, sparse": (SquaredError(sp.csc_array(X), y), lambda w: norm(LONG_X @ w - LONG_Y)),
    "lipschitz": (Lipschitz(lambda w: float(np.abs(w).sum()), math.sqrt(D)), lambda w: np.sqrt(np.abs(w).sum())),
}
MARGIN_LOSSES = [name for name in LOSSES if name not in ("squared distance", "lipschitz")]
WEIGHTS = {
    "origin": np.zeros(D),
    "small": 0.1 * rng.standard_normal(D),
    "fitted": np.linalg.lstsq(X, y, rcond=None)[0],
    "confident": 20.0 * rng.standard_normal(D),
}
RADII = np.geomspace(1e-8, 1e2, 16)
by_loss = pytest.mark.parametrize("name", LOSSES)
by_weights = pytest.mark.parametrize("w", WEIGHTS.values(), ids=WEIGHTS.keys())


def directions(r, w):
    """Unit vectors: along the gradient of the loss, the singular vectors and rows of X, towards the target, random."""
    h = 1e-6
    gradient = np.array([float(r(w.astype(LONG) + h * e) - r(w.astype(LONG) - h * e)) for e in np.eye(D)])
    some = np.random.default_rng(0).standard_normal((8, D))
    for v in (gradient, w - target, w, *np.linalg.svd(X)[2], *X[:5], *some):
        if v.any():
            yield v / np.linalg.norm(v)
            yield -v / np.linalg.norm(v)


@by_loss
def test_the_residual_is_the_root_of_the_loss(name):
    loss, r = LOSSES[name]
    for w in WEIGHTS.values():
        at = loss.at(w)
        assert at.residual == pytest.approx(float(r(w.astype(LONG))), rel=1e-12)
        assert at.residual == pytest.approx(np.linalg.norm(at.residuals))


@by_loss
@by_weights
def test_the_error_holds_in_every_direction(name, w):
    loss, r = LOSSES[name]
    at = loss.at(w)
    for v in directions(r, w):
        for radius in RADII:
            for share in (1.0 - 1e-12, 0.3):  # on the sphere, up to the rounding of its points, and within
                moved = w.astype(LONG) + LONG(share * radius) * v
                assert abs(LONG(at.residual) - r(moved)) <= at.error(radius)


@by_loss
@by_weights
def test_the_error_grows_with_the_radius_from_nearly_nothing(name, w):
    at = LOSSES[name][0].at(w)
    errors = [at.error(radius) for radius in [0.0, *RADII, 1e6]]
    assert errors == sorted(errors)
    assert errors[0] <= 1e-13 * (1.0 + at.residual)
    assert at.error(math.inf) >= errors[-1]


@by_loss
@by_weights
@pytest.mark.parametrize("within", [1e-8, 1e-4, 1e-1, 1.0, 10.0])
def test_the_radius_inverts_the_error(name, w, within):
    at = LOSSES[name][0].at(w)
    radius = at.radius(within)
    assert radius > 0.0
    if radius < math.inf:
        assert at.error(radius) <= within < at.error(1.02 * radius)
    else:
        assert at.error(1e100) <= within


@by_loss
def test_nothing_is_within_less_than_rounding(name):
    assert LOSSES[name][0].at(WEIGHTS["small"]).radius(0.0) == 0.0


def test_a_bounded_loss_needs_no_radius_for_a_large_error():
    at = Brier(X, labels).at(WEIGHTS["small"])
    assert at.radius(2.0 * math.sqrt(N)) == math.inf


@by_loss
@pytest.mark.parametrize("radius", [1e120, 1e160, 1e300])
def test_the_error_for_an_enormous_radius_is_large_and_no_failure(name, radius):
    at = LOSSES[name][0].at(WEIGHTS["small"])
    assert at.error(radius) >= at.error(1e100)


@pytest.mark.parametrize("name", ["brier", "brier, sparse"])
def test_first_order_is_far_tighter_than_lipschitz_for_a_small_radius(name):
    loss = LOSSES[name][0]
    for w in WEIGHTS.values():
        assert loss.at(w).error(1e-4) <= 0.25 * math.sqrt(N * loss.design.squared_norm) * 1e-4
    assert loss.at(WEIGHTS["confident"]).error(1e-4) <= 0.25 * math.sqrt(N * loss.design.squared_norm) * 1e-4 / 5


@pytest.mark.parametrize("name", MARGIN_LOSSES)
@by_weights
def test_a_small_radius_costs_what_the_gradient_says(name, w):
    loss, r = LOSSES[name]
    slope = max(abs(float(r(w.astype(LONG) + LONG(1e-7) * v) - r(w.astype(LONG)))) for v in directions(r, w))
    assert loss.at(w).error(1e-7) <= 1.2 * slope + 1e-12


@pytest.mark.parametrize("name", ["brier", "brier, sparse"])
def test_per_sample_ranges_bound_a_large_radius(name):
    loss = LOSSES[name][0]
    for w in WEIGHTS.values():
        assert loss.at(w).error(1e3) <= math.sqrt(N)
        assert 0.25 * math.sqrt(N * loss.design.squared_norm) * 1e3 > 100 * math.sqrt(N)


def test_the_brier_curvature_is_the_largest_second_derivative():
    q = np.linspace(0.0, 1.0, 2_000_001)  # q = 1 - sigm(m), phi = q^2
    second = 2.0 * q**2 * (1.0 - q) * (2.0 - 3.0 * q)
    assert np.abs(second).max() <= BRIER_CURVATURE <= np.abs(second).max() + 1e-5
    assert q[np.argmax(np.abs(second))] == pytest.approx((15.0 - math.sqrt(33.0)) / 24.0, abs=1e-6)
    h, m = 1e-4, np.linspace(-10.0, 10.0, 2001)
    differences = (sigmoid(-m - h) ** 2 - 2.0 * sigmoid(-m) ** 2 + sigmoid(-m + h) ** 2) / h**2
    p = sigmoid(-m)
    assert differences == pytest.approx(2.0 * p**2 * (1.0 - p) * (2.0 - 3.0 * p), abs=1e-6)


ENCODINGS = {
    "bits": (labels > 0).astype(int),
    "booleans": labels > 0,
    "floats": labels * 0.5,
    "strings": np.where(labels > 0, "yes", "no"),
    "a list": ["b" if label > 0 else "a" for label in labels],
}


@pytest.mark.parametrize("loss", [Brier, LogLoss])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_labels_may_be_any_two_values(loss, encoding):
    w = WEIGHTS["small"]
    assert np.array_equal(loss(X, ENCODINGS[encoding]).at(w).residuals, loss(X, labels).at(w).residuals)


@pytest.mark.parametrize("loss", [Brier, LogLoss])
def test_held_out_data_may_hold_one_class_only_if_it_is_named(loss):
    w = WEIGHTS["small"]
    some = labels > 0
    all_of_them = loss(X, labels).at(w).residuals
    assert np.array_equal(loss(X[some], labels[some], positive=1).at(w).residuals, all_of_them[some])
    assert np.array_equal(loss(X[~some], labels[~some], positive=1).at(w).residuals, all_of_them[~some])
    turned = loss(X, labels, positive=-1).at(-w).residuals
    assert np.abs(turned) == pytest.approx(np.abs(all_of_them))


def test_targets_belong_to_the_loss():
    mine = target.copy()
    loss = SquaredDistance(mine)
    mine[:] = 0.0
    assert loss.at(target).residual == 0.0


@pytest.mark.parametrize(
    "build, error, message",
    [
        (lambda: SquaredDistance([1.0, math.nan]), ValueError, "target must be finite, got [1.0, nan]"),
        (lambda: SquaredDistance(np.ones((2, 2))).at(X[0]), ValueError, "w must have shape (4,), got (6,)"),
        (lambda: SquaredDistance("a"), TypeError, "target must be a vector of real numbers, got 'a'"),
        (lambda: Lipschitz(3.0, 1.0), TypeError, "loss must be callable, got 3.0"),  # type: ignore[arg-type]
        (lambda: Lipschitz(np.sum, -1.0), ValueError, "constant must be non-negative and finite, got -1.0"),
        (lambda: Lipschitz(np.sum, math.inf), ValueError, "constant must be non-negative and finite, got inf"),
        (lambda: Lipschitz(np.sum, 1.0).at(-np.ones(2)), ValueError, "loss must be non-negative, got -2.0"),
        (lambda: Lipschitz(lambda w: math.nan, 1.0).at(np.ones(1)), ValueError, "loss must be non-negative, got nan"),
        (lambda: Lipschitz(np.sum, 1.0).at(np.array([math.nan])), ValueError, "w must be finite"),
        (lambda: SquaredDistance([1.0]).at(np.array([math.inf])), ValueError, "w must be finite"),
        (lambda: SquaredDistance([1.0]).at(np.ones(2)), ValueError, "w must have shape (1,), got (2,)"),
        (lambda: Brier(X, y > 0).at(np.full(X.shape[1], math.nan)), ValueError, "w must be finite"),
        (lambda: Brier(X, y > 0, positive="yes"), ValueError, "positive must be one of y's labels, False, True"),
        (lambda: Brier(X, y > 0, positive=3), ValueError, "positive must be one of y's labels, False, True, got 3"),
        (lambda: Brier(X, labels[1:]), ValueError, "y must have shape (40,) to match X, got (39,)"),
        (lambda: Brier(X, np.ones(N)), ValueError, "y must hold exactly two distinct labels, got 1: 1.0"),
        (lambda: LogLoss(X, np.arange(N) % 3), ValueError, "y must hold exactly two distinct labels, got 3: 0, 1, 2"),
        (lambda: Brier(np.full((2, 2), math.nan), [0, 1]), ValueError, "X must be finite, got NaN or infinite entries"),
        (lambda: SquaredError(X, y[1:]), ValueError, "y must have shape (40,) to match X, got (39,)"),
        (lambda: SquaredError(X, np.full(N, math.inf)), ValueError, "y must be finite"),
    ],
)
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build()


def test_losses_may_share_a_design_but_not_its_sample_weights():
    rng = np.random.default_rng(0)
    X, w, y = rng.standard_normal((20, 4)), rng.standard_normal(4), rng.integers(0, 2, 20)
    alone = Brier(X, y)
    shared = Brier(alone.design, 1 - y)
    assert shared.design is alone.design
    own = Brier(X, 1 - y)
    np.testing.assert_array_equal(shared.at(w).residuals, own.at(w).residuals)
    assert shared.at(w).error(0.1) == own.at(w).error(0.1)
    with pytest.raises(ValueError, match="without sample weights"):
        Brier(Design.of(X, np.arange(1.0, 21.0)), y)


@pytest.mark.parametrize("seed", range(10))
def test_where_a_model_nearly_interpolates_the_error_is_the_rounding_of_its_margins(seed):
    """Residuals that are rounding and nothing else: against the root of the loss in exact rationals."""
    rng = np.random.default_rng(seed)
    X = 10.0 ** rng.uniform(-2, 2, (8, 30)) * rng.choice([-1.0, 1.0], (8, 30))
    w = 10.0 ** rng.uniform(-1, 3, 30) * rng.choice([-1.0, 1.0], 30)
    y = np.nextafter(X @ w, np.inf)
    at = SquaredError(X, y).at(w)
    exact = [sum(Fraction(a) * Fraction(b) for a, b in zip(row, w, strict=True)) for row in X.tolist()]
    loss = sum((m - Fraction(t)) ** 2 for m, t in zip(exact, y.tolist(), strict=True))
    low, high = (max(Fraction(at.residual) + sign * Fraction(at.error(0.0)), Fraction(0)) for sign in (-1, 1))
    assert low**2 <= loss <= high**2
    assert abs(math.sqrt(loss) - at.residual) > 1e3 * 2.0**-53 * at.residual  # more than the rounding of a norm


def test_one_proof_serves_rows_that_count_one_each_and_rows_with_weights():
    """A mean over N rows is a sum divided by N: residuals and errors differ by the root of N and by rounding."""
    for loss, target in ((Brier(X, labels), labels.astype(float)), (SquaredError(X, y), y)):
        mean = HeldOut(Design.of(X), target, loss.score)
        for w in WEIGHTS.values():
            one, other = loss.at(w), mean.at(w)
            assert one.residual == pytest.approx(math.sqrt(N) * other.residual, rel=1e-13)
            for radius in RADII:
                assert one.error(radius) == pytest.approx(math.sqrt(N) * other.error(radius), rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("score", [BrierScore(), LogScore(), SquaredScore()], ids=lambda score: type(score).__name__)
def test_ranges_that_cannot_be_tighter_than_the_first_order_are_not_looked_at(score):
    """What is proven is the same."""
    looked = []

    class Watched(type(score)):
        def range(self, m, h, y):
            looked.append(h)
            return super().range(m, h, y)

    target = y if isinstance(score, SquaredScore) else labels
    m, v = X @ WEIGHTS["small"], np.full(N, 0.5)
    residuals, pulls = np.sqrt(v) * score.residuals(m, target), v * score.derivative(m, target)
    loss, steep, times = float(residuals @ residuals), np.abs(pulls), []
    for radius in np.geomspace(1e-8, 1e3, 23):
        h = radius * np.linalg.norm(X, axis=1)
        first, far = radius * norm(X.T @ pulls), radius * math.sqrt(0.5) * np.linalg.norm(X, 2)
        before = len(looked)
        *found, second = ranges(Watched(), m, target, v, h, steep, first)
        times.append(len(looked) - before)
        assert second == 0.5 * float(v @ (score.bend(m, h, target) * h * h))
        ends = tuple(float(v @ end) for end in score.range(m, h, target))
        proven = [least_error(score, 1.0, loss, first, second, each, far) for each in (found, ends)]
        assert proven[0] == proven[1]
    assert times[0] == 0 and times[-1] == 1


# Of some of the rows


FOLD_LOSSES = {
    "brier": lambda X, rows: Brier(X, labels[rows]),
    "log loss": lambda X, rows: LogLoss(X, labels[rows]),
    "squared error": lambda X, rows: SquaredError(X, y[rows]),
    "deviance": lambda X, rows: Deviance(X, np.abs(np.round(y))[rows], POISSON),
}


@pytest.mark.parametrize("name", FOLD_LOSSES)
@pytest.mark.parametrize("complement", [False, True])
def test_losses_of_a_fold_by_numbers_are_sums_over_its_rows_and_no_others(name, complement):
    numbers = np.arange(N) % 3
    rows, w = (numbers == 1) != complement, WEIGHTS["small"]
    blocks = Design.of(RowBlocks.of(X, block=7))
    fold = Design.of(blocks.X, Chosen(N, int(rows.sum()), blocks.X.rows_of(numbers), 1, complement))
    of_fold, of_rows = FOLD_LOSSES[name](fold, slice(None)).at(w), FOLD_LOSSES[name](X[rows], rows).at(w)
    assert of_fold.residual == pytest.approx(of_rows.residual, rel=1e-12)
    assert of_fold.error(1e-3) == pytest.approx(of_rows.error(1e-3), rel=0.2)


@pytest.mark.parametrize("blocks", [False, True], ids=["", "blocks of rows"])
@pytest.mark.parametrize("far", [10.0, 20.0, 40.0])
@pytest.mark.parametrize("loss", [MultinomialLogLoss, MultinomialBrier])
def test_probabilities_that_round_to_one_are_losses_all_the_same(loss, far, blocks):
    """Slopes are next to nothing there: they do not tell what rounding does to the loss."""
    X, y = np.vstack([np.eye(3)] * 2), np.arange(6) % 3
    train, held = (RowBlocks.of(rows, block=2) if blocks else rows for rows in (X, np.eye(3)))
    at = loss(held, np.arange(3), ElasticNetMultinomial(train, y)).at((far * np.eye(3)).ravel())
    with ctx.workprec(300):
        e = (-arb(far)).exp()
        p = e / (1 + 2 * e)
        phi = (1 + 2 * e).log() if loss is MultinomialLogLoss else 6 * p * p
        assert abs((3 * phi).sqrt() - arb(at.residual)) <= arb(at.error(0.0))
    assert at.error(0.0) < 1e-6


TINY_SCALES = [2.0**-k for k in (400, 500, 520, 530, 536, 540, 600, 1000, 1040)]


def exact_root(total):
    """The root of a fraction, as a ball."""
    with ctx.workprec(300):
        return arb(fmpq(total.numerator, total.denominator)).sqrt()


@pytest.mark.parametrize("scale", TINY_SCALES)
@pytest.mark.parametrize("kind", ["one target", "several targets", "blocks of rows", "several targets, blocks of rows"])
def test_errors_of_squares_hold_where_squares_underflow(scale, kind):
    X, w = rng.standard_normal((30, 3)), scale * np.array([1.0, -2.0, 0.5])
    y = X @ w + scale * rng.standard_normal(30)
    rows = RowBlocks.of(X, block=7) if "blocks" in kind else X
    if "several" in kind:
        at, Y, W = SquaredErrors(rows, np.column_stack([y, -y])).at(np.r_[w, w]), np.column_stack([y, -y]), [w, w]
    else:
        at, Y, W = SquaredError(rows, y).at(w), y[:, None], [w]
    moves = [np.zeros(3), *(scale * 10.0**-k * np.eye(3)[k % 3] for k in range(4))]
    for move in moves:
        there = [[Fraction(float(a)) + Fraction(float(b)) for a, b in zip(one, move, strict=True)] for one in W]
        loss = sum(
            (sum(Fraction(float(x)) * v for x, v in zip(row, there[k], strict=True)) - Fraction(float(Y[i, k]))) ** 2
            for i, row in enumerate(X)
            for k in range(len(W))
        )
        radius = float(np.linalg.norm(move)) * math.sqrt(len(W)) * (1 + 1e-15)
        assert abs(exact_root(loss) - arb(at.residual)) <= arb(at.error(radius))
    if scale > 1e-140:
        assert at.error(0.0) < 1e-12 * at.residual


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-165, 1e-160, 1e-155, 1e-100, 1.0, 1e100, 1e200, 1e306])
def test_the_radius_for_an_accuracy_is_found_at_any_scale(scale):
    at = LossAt(np.zeros(1), lambda radius: radius + 1e-3 * scale)
    radius = at.radius(scale)
    assert radius == 0.0 if scale < 1e-300 else 0.98 < radius / scale < 1.0
    kinked = LossAt(np.zeros(1), lambda radius: 0.0 if radius < scale else math.inf)
    assert kinked.radius(1.0) == 0.0 if scale < 1e-300 else 0.98 < kinked.radius(1.0) / scale <= 1.0
