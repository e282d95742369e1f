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
