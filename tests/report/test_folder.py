"""The files of a run's folder are read back as they were written, or not at all."""

import json

import pytest

from suffice.report import folder


def test_a_dictionary_comes_back_and_one_without_a_checksum_is_taken_as_it_is(tmp_path):
    data = {"a": [1, 2.5, None], "b": {"c": "d"}}
    for content in (data, {}):
        folder.write(tmp_path / "new" / "x.json", content)
        assert folder.read(tmp_path / "new" / "x.json") == content
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert folder.read(tmp_path / "old.json", "a", "b") == data
    assert folder.read(tmp_path / "none.json") is None


def test_a_digit_that_has_changed_is_noticed(tmp_path):
    path = tmp_path / "x.json"
    folder.write(path, {"seed": 12345})
    path.write_text(path.read_text().replace("12345", "12346"))
    with pytest.raises(ValueError, match="damaged"):
        folder.read(path)


@pytest.mark.parametrize("text", ["[1]", "{", '{"b": 1}', "[" * 100_000])
def test_what_is_no_such_dictionary_is_refused_by_name(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=r"x\.json is not a file of a run"):
        folder.read(tmp_path / "x.json", "a")
