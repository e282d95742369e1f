"""Plain data: whatever a search knows goes through JSON and comes back bit for bit; nothing else goes in or out."""

import json
import math
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from suffice import Certificate, Evaluation, Options, Outcome, Solution, problems, solve
from suffice.journal.codec import SolverState, decode, encode, light
from suffice.solvers.certificate import Evidence, left_out
from suffice.solvers.fista import FistaState
from suffice.solvers.solver import SOLVERS, SPECIAL
from tests.conftest import examples


def through_json(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def same(one, other):
    """Equality that tells arrays, signs of zero and types apart, and holds for NaN."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, float):
        return isinstance(other, float) and np.float64(one).tobytes() == np.float64(other).tobytes()
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


dtypes = st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "U3", ">f8"])
shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=True)
)
values = st.recursive(
    st.one_of(scalars, dtypes.flatmap(lambda dtype: arrays.arrays(dtype, shapes))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=8,
)


@examples(150)
@given(values)
def test_plain_values_come_back_bit_for_bit(value):
    assert same(through_json(value), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1, 1.7976931348623157e308])
def test_numbers_keep_every_bit(value):
    assert same(through_json(value), value)


@pytest.mark.parametrize("word", ["float", "array", "enum", "tuple", "dict", "class", "dtype"])
def test_a_user_s_dictionary_may_use_the_format_s_own_words(word):
    value = {word: [1.0, {word: "text"}]}
    assert through_json(value) == value


def test_arrays_come_back_read_only_and_on_their_own():
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    back = through_json(array)
    assert same(back, np.ascontiguousarray(array))
    with pytest.raises(ValueError, match="read-only"):
        back[0, 0] = 7.0


@pytest.mark.parametrize("member", [*Outcome], ids=str)
def test_enumerations_come_back_as_themselves(member):
    assert through_json(member) is member


@pytest.mark.parametrize(
    "chosen", [{}, {"max_work": 5.0, "seed": 3, "policy": "weights"}, {"max_evaluations": np.int64(7)}]
)
def test_options_come_back_equal(chosen):
    assert through_json(Options(**chosen)) == Options(**chosen)


def test_evaluations_come_back_with_everything_they_held():
    evaluation = Evaluation(
        [1.0, 2.0], [3.0, -0.0], [math.inf, 0.0], work=4, solutions=({"w": np.ones(2)},), distance=0.1
    )
    back = through_json(evaluation)
    for name in ("theta", "residuals", "errors", "work", "solutions", "distance"):
        assert same(getattr(back, name), getattr(evaluation, name))
    assert back.interval == evaluation.interval


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solution_continues_to_the_same_bits_after_its_journey(solver):
    rng = np.random.default_rng(0)
    problem = problems.ElasticNet(rng.standard_normal((30, 8)), rng.standard_normal(30)).at(l1=0.05, l2=0.01)
    half = solve(problem, steps=11, solver=solver)
    back = through_json(half)
    assert isinstance(back, Solution) and back.problem is None
    back = Solution(**{**{name: getattr(back, name) for name in back.__dataclass_fields__}, "problem": problem})
    straight, continued = (solve(problem, within=1e-9, solver=solver, warm=warm) for warm in (half, back))
    assert continued.steps == straight.steps
    assert continued.certificate == straight.certificate
    assert same(continued.x, straight.x)


def states_of(solver):
    """The classes of a solver's states, as it declares them."""
    found = get_type_hints(type(solver).start)["return"]
    return get_args(found) if isinstance(found, UnionType) else (found,)


def filled(hint):
    """Some value of a declared type; never the default of any field."""
    hint = next((one for one in get_args(hint) if one is not type(None)), hint) if isinstance(hint, UnionType) else hint
    if is_dataclass(hint):
        return hint(**{name: filled(one) for name, one in get_type_hints(hint).items()})
    if get_origin(hint) in (np.ndarray, npt.NDArray):  # the latter from NumPy 2.5 on
        scalar = get_args(hint)[0] if get_origin(hint) is npt.NDArray else get_args(get_args(hint)[1])[0]
        return np.array([1, 2], dtype=scalar)
    return {float: 0.25, int: 7, bool: True, str: "seven", Any: np.array([0.5, 1.5])}[hint]


@pytest.mark.parametrize("solver", [*SOLVERS, *SPECIAL])
def test_a_file_can_hold_the_states_of_every_solver(solver):
    """One that the codec does not know is written as None, and the solve begins again."""
    assert set(states_of((SOLVERS | SPECIAL)[solver])) <= set(get_args(SolverState))


@pytest.mark.parametrize("cls", get_args(SolverState))
def test_every_field_of_a_state_is_written_or_declared_as_recomputed(cls):
    state = filled(cls)
    back = through_json(state)
    for item in fields(cls):
        if item.name in left_out(cls):
            assert getattr(back, item.name) is item.default is None
        elif not is_dataclass(getattr(state, item.name)):
            assert same(getattr(back, item.name), getattr(state, item.name)), item.name
        else:  # which is written itself, as above
            assert type(getattr(back, item.name)) is type(getattr(state, item.name))


@pytest.mark.parametrize("cls", get_args(SolverState))
def test_images_and_evidence_are_declared_as_recomputed(cls):
    hints = get_type_hints(cls)
    wide = [name for name in hints if "image" in name or Evidence in (hints[name], *get_args(hints[name]))]
    assert wide and set(wide) <= set(left_out(cls))


@pytest.mark.parametrize("cls", get_args(SolverState))
def test_a_light_solution_is_what_a_file_gives_back(cls):
    solution = Solution(np.ones(2), Certificate(1.0, "tightest"), 3, Outcome.STEPS, "fista", filled(cls))
    there, back = light(solution), through_json(solution)
    assert encode(there) == encode(back)
    for name in left_out(cls):
        assert getattr(there.state, name) is None


def test_a_solution_of_total_variation_continues_to_the_same_bits_after_its_journey():
    problem = problems.Denoising(np.random.default_rng(0).standard_normal(60)).at(alpha=0.5, eps_l2=1e-3, eps_tv=1e-3)
    half = solve(problem, steps=3, solver="newton_tv")
    back = replace(through_json(half), problem=problem)
    straight, continued = (solve(problem, within=1e-9, solver="newton_tv", warm=warm) for warm in (half, back))
    assert straight.steps == continued.steps > 4
    assert continued.certificate == straight.certificate and same(continued.x, straight.x)


@dataclass(frozen=True)
class OwnState(FistaState):
    """A user's state, made from one of the package's."""

    memory: object = None


def test_a_state_of_the_user_s_own_is_left_behind_whatever_it_was_made_from():
    state = OwnState(np.ones(2), np.zeros(2), 1.0, 1, memory=object())
    back = through_json(Solution(np.ones(2), Certificate(1.0, "tightest"), 3, Outcome.STEPS, "own", state))
    assert back.state is None and same(back.x, np.ones(2))


class Colour(Enum):
    RED = 1


class Opaque:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Opaque(),
        Colour.RED,
        {1: "a key that is no string"},
        {1, 2},
        b"bytes",
        1j,
        np.array([Opaque()]),
        lambda: None,
        [1.0, (2.0, Opaque())],
        {"nested": {"deeply": Opaque()}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_plain_is_refused_when_it_goes_in(value):
    with pytest.raises(TypeError, match="cannot be turned into plain data"):
        encode(value)


@pytest.mark.parametrize(
    "data",
    [{"class": "Opaque", "fields": {}}, {"class": "os.system", "fields": {"command": "true"}}, {"enum": "Colour"}],
)
def test_only_the_package_s_own_classes_are_built_on_the_way_back(data):
    with pytest.raises((KeyError, ValueError)):
        decode({"name": "RED", **data})


def test_a_dictionary_without_a_meaning_is_refused():
    with pytest.raises(ValueError, match="not plain data"):
        decode({"something": 1})
