"""Examples run, and show what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_an_operator_of_ones_own_in_under_forty_lines(capsys):
    pytest.importorskip("pylops")
    path = EXAMPLES / "own_operator.py"
    assert len(path.read_text().splitlines()) < 40
    result = runpy.run_path(str(path))["main"]()
    assert 1e-3 < result.params["alpha"] < 2e-2
    low, high = result.interval
    assert low <= result.cost <= high < 1.01 * low
    before, after = (float(word) for word in capsys.readouterr().out.split() if word.startswith("0.0"))
    assert after < 0.1 * before


def test_the_example_table_is_one_that_suffice_tune_reads_as_meant(tmp_path, capsys, monkeypatch):
    from suffice.tabular import read

    monkeypatch.setattr("sys.argv", ["table.py", "--out", str(tmp_path / "made" / "diabetes.csv")])
    runpy.run_path(str(EXAMPLES / "table.py"), run_name="__main__")
    table = read(tmp_path / "made" / "diabetes.csv")
    assert "442 rows" in capsys.readouterr().out and table["progression"].kind == "numeric"
    assert set(table.frame()["sex"]) == {"female", "male"}
