"""Options are frozen, checked when they are made, and every complaint names the option and its value."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from suffice import Options
from suffice.search.accuracy import DECISION_ERROR, ETA1
from suffice.search.judge import ETA2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_evaluations", 0),
        ("max_evaluations", -3),
        ("max_evaluations", 1.5),
        ("max_evaluations", True),
        ("max_evaluations", None),
        ("max_evaluations", "80"),
        ("max_work", 0.0),
        ("max_work", -1.0),
        ("max_work", math.nan),
        ("max_seconds", 0.0),
        ("max_seconds", -1.0),
        ("target_cost", -1e-9),
        ("target_cost", math.nan),
        ("initial_radius", 0.0),
        ("initial_radius", -0.1),
        ("initial_radius", math.inf),
        ("initial_radius", None),
        ("final_radius", 0.0),
        ("final_radius", -1e-5),
        ("final_radius", math.nan),
        ("accuracy_factor", 0.0),
        ("accuracy_factor", math.inf),
        ("policy", "radius"),
        ("policy", None),
        ("model", "cubic"),
        ("model", 2),
        ("seed", -1),
        ("seed", 1.5),
        ("seed", "a"),
        *(
            (name, "5")  # a numeral is no number
            for name in ("max_work", "max_seconds", "target_cost", "accuracy_factor", "initial_radius")
        ),
    ],
)
def test_bad_values_are_refused_by_name(name, value):
    with pytest.raises((ValueError, TypeError)) as caught:
        Options(**{name: value})
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"initial_radius": 0.1, "final_radius": 0.2}, ["final_radius", "initial_radius", "0.2 > 0.1"]),
        ({"derivatives": "always", "model": "linear"}, ["derivatives='always'", "model='linear'"]),
    ],
)
def test_options_that_contradict_each_other_are_both_named(options, named):
    with pytest.raises(ValueError) as caught:
        Options(**options)
    assert all(text in str(caught.value) for text in named)


def test_unknown_options_and_positions_are_refused():
    with pytest.raises(TypeError, match="max_iterations"):
        Options(max_iterations=5)
    with pytest.raises(TypeError, match="positional"):
        Options(80)


def test_options_cannot_be_changed_but_replaced_with_the_same_checks():
    options = Options()
    with pytest.raises(FrozenInstanceError):
        options.final_radius = 1.0
    assert replace(options, final_radius=1e-3).final_radius == 1e-3
    with pytest.raises(ValueError, match="final_radius"):
        replace(options, final_radius=1.0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_evaluations": np.int64(7), "seed": np.int32(3)},
        {"max_work": math.inf, "max_seconds": 1, "target_cost": 0},
        {"initial_radius": 0.1, "final_radius": 0.1},
        {"policy": "weights", "model": "linear", "accuracy_factor": 100},
    ],
)
def test_good_options_are_taken_and_told_as_plain_values(options):
    plain = vars(Options(**options))
    assert {name: plain[name] for name in options} == options
    assert Options(**plain) == Options(**options)


def test_the_defaults_prove_a_decrease():
    assert min(ETA1, 1 - ETA2) > 2 * DECISION_ERROR
