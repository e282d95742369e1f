"""The line of a run's models, told and drawn."""

import pytest

from suffice.report import folder as places
from suffice.tabular.history import draw, panels, told
from suffice.tabular.states import HISTORY, lines_of

LINES = [
    {
        "date": f"2026-01-0{k + 1} 06:00 UTC", "file": f"day{k}.csv", "digest": "", "added": 10, "removed": k,
        "rows": 100 + 10 * k, "penalties": {"l1": 0.5, "l2": 0.25}, "scoring": "neg_mean_squared_error",
        "score": -2.0 + 0.1 * k, "standard_error": 0.2, "interval": [None, None], "radius": 0.0, "folds": 5,
        "message": "penalties kept: at most 0.1 % could be gained (estimated)",
        "coefficients": {"age": [1.0, 2.0 + k], **({"new <b>": [0.1, 0.2]} if k else {})},
    }
    for k in range(3)
]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    places.write(tmp_path / HISTORY, {"lines": LINES})
    return tmp_path


def test_every_model_has_a_line_and_the_largest_coefficients_their_course(run):
    said = told(lines_of(run))
    assert "2026-01-02 06:00  day1.csv" in said[3] and "-1.9 ± 0.2" in said[3] and "+10 -1" in said[3]
    assert said[-2].split() == ["+2", "+4", "age"]
    assert said[-1].split() == ["+0.2", "new", "<b>"]


def test_scores_and_coefficients_are_drawn(run, tmp_path):
    score, coefficients = panels(LINES)
    assert list(score.marks[0].y) == [-2.0, -1.9, -1.8]
    assert [mark.name for mark in coefficients.marks] == ["age", "new <b>"]
    draw(run, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    draw(run, tmp_path / "page.html")
    assert (
        "new &lt;b&gt;" in (tmp_path / "page.html").read_text()
        and "new <b>" not in (tmp_path / "page.html").read_text()
    )


def test_a_folder_without_a_history_says_so(tmp_path):
    with pytest.raises(ValueError, match="has no history"):
        lines_of(tmp_path)
