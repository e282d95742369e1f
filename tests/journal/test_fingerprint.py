"""Fingerprints: every byte of the data counts, where they lie does not, and what differs is named."""

from functools import cached_property

import numpy as np
import pytest
import scipy.sparse as sp

from suffice.journal import fingerprint
from suffice.journal.fingerprint import Fingerprint, differences

X = np.arange(12.0).reshape(4, 3)


def describe(name, value):
    found = Fingerprint()
    found.add(name, value)
    return found.parts


class Model:
    def __init__(self, X, l2=0.5):
        self.X, self.l2 = X, l2

    @cached_property
    def gram(self):
        return self.X.T @ self.X


@pytest.mark.parametrize(
    "value", [X, X[:, ::2], X[0], np.float64(2.0), X.astype("f4"), sp.csr_array(X), np.zeros((0, 3))]
)
def test_a_copy_is_the_same(value):
    assert describe("X", value) == describe("X", value.copy())


@pytest.mark.parametrize("size", [1, 8, 24, 1 << 24])
def test_how_many_bytes_are_looked_at_in_one_go_does_not_matter(size, monkeypatch):
    whole = describe("X", X)
    monkeypatch.setattr(fingerprint, "BLOCK", size)
    assert describe("X", X) == whole


@pytest.mark.parametrize(
    "other",
    [np.nextafter(X, 100.0), X.T, X.ravel(), X.astype("f4"), -0.0 + X * [[1.0], [1.0], [1.0], [-1.0]], sp.csr_array(X)],
)
def test_other_data_are_told_by_the_name_of_their_part(other):
    (told,) = differences(describe("p", Model(X)), describe("p", Model(other)))
    assert told.startswith("p.X was <f8 4x3 ")


def test_what_was_computed_on_demand_does_not_count():
    model = Model(X)
    before = describe("p", model)
    assert model.gram.shape == (3, 3) and describe("p", model) == before


def test_parts_that_are_new_missing_or_changed_are_named():
    told = differences({"a": "1", "b": "2", "c": "3"}, {"b": "2", "c": "4", "d": "5"})
    assert told == ["a is missing", "c was 3, now it is 4", "d is new"]


def test_an_object_that_contains_itself_has_an_end_and_one_without_an_end_is_refused():
    loop = {"X": X}
    loop["again"] = loop
    assert describe("p", loop)["p['again']"] == "as p"
    deep = []
    for _ in range(fingerprint.DEPTH + 2):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        describe("p", deep)


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "lil", "dok"])
def test_entries_in_other_places_make_another_sparse_matrix(kind):
    def parts(place):
        X = np.zeros((3, 4))
        X[place] = 1.0
        found = Fingerprint()
        found.add("X", sp.csr_array(X).asformat(kind))
        return found.parts

    assert parts((0, 1)) == parts((0, 1)) != parts((2, 3))
