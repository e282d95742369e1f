"""The figures and the page of the reproduction study, from a small made-up study."""

import copy
import json
import math
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib")

from suffice_paper import charts, figures

HOSTILE = "<script>alert('x')</script> & \"quotes\" | `tick`"


def _record(number, variant, start):
    theta = [1.0 - 0.5 * number, start + 0.1 * number]
    F = 131.0 + 100 / number
    dynamic = variant == "dynamic"
    return {
        "number": number,
        "purpose": "step",
        "theta": theta,
        "within": 0.1 if dynamic else None,
        "error": 0.05,
        "believed": F - 0.2,
        "interval": [F - 1, F + 1] if dynamic else None,
        "exact": None if number == 2 else F,
        "work": 60 * number,
        "incumbent": theta,
        "incumbent_believed": F - 0.2,
        "incumbent_exact": None if number == 2 else F,
    }


def _run(variant, start):
    records = [_record(number, variant, start) for number in range(1, 5)]
    end = {"theta": records[-1]["theta"], "believed": 155.8, "exact": 156.0, "evaluations": 4, "work": 240}
    return {"variant": variant, "start": start, "status": "CONVERGED", "records": records, **end}


def study():
    names, begins = ("dynamic", "K = 20", "K = 200", "K = 2000"), (-1.0, 0.0, 1.0)
    return {
        "preset": {"name": "tiny", "digits": [0, 1], "validation_digits": [0, 1, 2], "starts": list(begins)},
        "provenance": {"suffice": "0.1.0", "date": "today", "command": "suffice reproduce all", "seconds": 100.5},
        "best": {"theta": [-1.04, 1.62], "F": 131.0},
        "figure1": {
            "L": 1.96e4,
            "mu": 10.0,
            "iterations": [0, 1, 2],
            "truth": [1.0, 0.1, 0.0],
            "rate": [2.0, 1.5, 1.2],
            "subgradient": [None, 1.0, 0.1],
            "gap": [None, 0.5, 0.05],
        },
        "runs": [_run(variant, start) for variant in names for start in begins],
        "validation": [
            {"variant": variant, "start": start, "digit": digit, "accuracy": 0.97}
            for variant in names
            for start in begins
            for digit in range(3)
        ],
        "claims": [
            {"claim": "K = 20 ends elsewhere", "target": "> 0.2", "measured": "0.46", "passed": True, "note": ""},
            {"claim": "the sky is green", "target": "green", "measured": "blue", "passed": False, "note": "daylight"},
            {"claim": "dynamic validates", "target": "1 %", "measured": "", "passed": None, "note": "not run"},
        ],
    }


def _strict(data):
    """As the study is kept: through JSON, without NaN."""
    return json.loads(json.dumps(data, allow_nan=False))


class _Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.scripts, self.ids, self.words = [], [], set(), []
        self.inside = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.links += [attributes[key] for key in ("src", "href", "action", "data") if attributes.get(key)]
        self.ids.add(attributes.get("id"))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, text):
        if self.inside == "script":
            self.scripts[-1] += text
        elif self.inside != "style":
            self.words.append(text)


@pytest.fixture(scope="module")
def report():
    from suffice_paper import report

    return report


@pytest.fixture(scope="module")
def text(report):
    return report.html(_strict(study()))


# --- figures ---


@pytest.mark.parametrize(
    ("make", "panels"),
    [(figures.chart1, 1), (figures.chart2, 4), (figures.chart3, 2), (figures.chart4, 3), (figures.chart5, 3)],
)
def test_every_figure_is_made(make, panels):
    figure = figures.draw(make(_strict(study())))
    assert sum(bool(axes.lines) for axes in figure.axes) == panels
    figure.canvas.draw()


def test_figure_2_takes_start_one_and_shows_truth_and_belief():
    chart = figures.chart2(study())
    assert "= 1" in chart.title
    dynamic = [line for line in chart.panels[0].marks if line.name == "dynamic"]
    belief, truth = dynamic
    assert belief.dash == "dashed" and truth.dash == "solid" and belief.colour == truth.colour == "#D55E00"
    assert truth.y[0] == 231.0 and belief.y[0] == 230.8
    assert math.isnan(truth.y[1])  # absent, hence a gap
    assert chart.panels[3].marks[-1].y[0] == pytest.approx(10**1.1)


def test_figure_3_has_one_line_per_variant_in_order_of_start():
    data = study()
    data["runs"].reverse()
    for panel in figures.chart3(data).panels:
        assert [line.name for line in panel.marks] == ["K = 20", "K = 200", "K = 2000", "dynamic"]
        assert all(line.x == [-1.0, 0.0, 1.0] for line in panel.marks)


def test_figure_4_shows_the_relative_excess_not_below_its_floor():
    data = study()
    for run in data["runs"]:
        run["records"][-1]["incumbent_exact"] = 130.9  # better than the best known
    line = figures.chart4(data).panels[0].marks[0]
    assert line.y[0] == pytest.approx(100 / 131)
    assert line.y[-1] == figures.FLOOR


def test_figure_5_shades_the_digits_that_were_not_tuned_on():
    for panel in figures.chart5(study()).panels:
        assert panel.shaded == ((1.5, 2.5),)


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        ((), ["fig1", "fig2", "fig3", "fig4", "fig5"]),
        (("figure1",), ["fig2", "fig3", "fig4", "fig5"]),
        (("runs",), ["fig1", "fig5"]),
        (("validation", "claims"), ["fig1", "fig2", "fig3", "fig4"]),
        (("best", "preset", "provenance"), ["fig1", "fig2", "fig3", "fig4", "fig5"]),
        (tuple(study()), []),
    ],
)
@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.slow
def test_what_can_be_made_is_made(missing, left, emptied, report):
    data = study()
    for key in missing:
        data[key] = type(data[key])()
        if not emptied:
            del data[key]
    assert [chart.name for chart in figures.charts(data)] == left
    page = _Page(report.html(data))
    assert [name for name in ("fig1", "fig2", "fig3", "fig4", "fig5") if name in page.ids] == left


def test_a_missing_part_is_named():
    with pytest.raises(ValueError, match="figure1"):
        figures.chart1({})
    with pytest.raises(ValueError, match="validation"):
        figures.chart5({"runs": []})


def test_one_run_is_enough():
    data = study()
    data["runs"] = data["runs"][:1]
    assert [chart.name for chart in figures.charts(data)] == ["fig1", "fig2", "fig3", "fig4", "fig5"]
    for chart in figures.charts(data):
        figures.draw(chart).canvas.draw()


def test_the_study_is_left_as_it_was(report):
    data = study()
    before = copy.deepcopy(data)
    report.html(data)
    assert data == before


# --- the page ---


def test_the_page_needs_nothing_else(text):
    page = _Page(text)
    assert all(link.startswith(("#", "data:")) for link in page.links), page.links
    assert "@import" not in text.split("</style>")[0]
    assert not page.scripts and len(text) < 1_000_000
    assert "default-src 'none'" in text


def test_the_same_figure_is_the_same_bytes():
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(1, 1))
    figure.subplots().plot([1, 2])
    assert charts.picture(figure, 40) == charts.picture(figure, 40)
    assert charts.picture(figure, 40, "pdf").startswith(b"%PDF")
    assert 'alt="<b>"' not in charts.image(figure, "<b>", 40)


def test_every_link_within_the_page_leads_somewhere(text):
    page = _Page(text)
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids


def test_the_page_contains_every_claim_setting_and_evaluation(text):
    words = "".join(_Page(text).words)
    for claim in study()["claims"]:
        for key in ("claim", "target", "measured", "note"):
            assert claim[key] in words
    for word in ("pass", "FAIL", "not tested", "1 of 2", "tiny", "suffice reproduce all", "100.5"):
        assert word in words
    assert text.count("<details>") == 12


def test_hostile_text_is_escaped(report):
    data = study()
    data["claims"] = [dict.fromkeys(("claim", "target", "measured", "note"), HOSTILE) | {"passed": True}]
    data["preset"]["name"] = data["provenance"]["command"] = data["provenance"][HOSTILE] = HOSTILE
    for run in data["runs"]:
        run["status"] = HOSTILE
        run["records"][0]["purpose"] = HOSTILE
        if run["variant"] == "K = 20":
            run["variant"] = HOSTILE
    page = report.html(data)
    assert "<script>alert" not in page
    assert not any("alert('x')</" in script for script in _Page(page).scripts)
    assert HOSTILE in "".join(_Page(page).words)
    table = report.markdown(data).splitlines()
    assert len(table) == 3 and table[2].count(" | ") == 4 and "\\<script>" in table[2] and "\\|" in table[2]


def test_everything_is_written(report, tmp_path):
    page = report.write(_strict(study()), tmp_path / "new" / "folder")
    out = page.parent
    assert page.name == "report.html" and page.read_text(encoding="utf-8").startswith("<!doctype html>")
    for number in range(1, 6):
        assert (out / f"fig{number}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"fig{number}.pdf").read_bytes().startswith(b"%PDF")
    table = (out / "claims.md").read_text(encoding="utf-8")
    assert "| FAIL | the sky is green | green | blue | daylight |" in table
