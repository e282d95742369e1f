"""The study of the paper, at the smallest size: it runs, it can be killed and continued, its claims are numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from suffice_paper import study
from suffice_paper.claims import check, work_to
from suffice_paper.study import ADAPTIVE, DYNAMIC, PRESETS, figure1, make

from suffice.report.folder import read

TINY = replace(
    PRESETS["quick"],
    name="tiny",
    train=60,
    test=40,
    starts=(1.0, 2.0),
    steps=(2, 8),
    digits=(0, 1),
    validation_digits=(0, 1, 7),
    max_evaluations=7,
    final_radius=1e-3,
    exact_within=1e-6,
)
ALL = {"fig1", "fig2", "fig3", "fig4", "fig5"}


def silent(line):
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def data(folder):
    return make(TINY, ALL, folder, "test", silent)


def test_every_variant_runs_from_every_start(data):
    assert [(one["variant"], one["start"]) for one in data["runs"]] == [
        *((DYNAMIC, start) for start in TINY.starts),
        (ADAPTIVE, 1.0),
        *((variant, start) for variant in ("K = 2", "K = 8") for start in TINY.starts),
    ]
    for one in data["runs"]:
        assert one["evaluations"] == len(one["records"]) <= 7
        assert one["records"][0]["theta"] == [1.0, one["start"]]
        if one["variant"] == "K = 8":
            assert one["work"] == one["evaluations"] * 8 * 2


def test_exact_values_lie_in_the_intervals_of_the_dynamic_run(data):
    for one in data["runs"]:
        for record in one["records"]:
            if one["variant"] == DYNAMIC and record["exact"] is not None:
                low, high = record["interval"]
                assert low - 0.05 <= record["exact"] <= high + 0.05  # exact to 1e-3 in the residuals


def test_the_study_is_plain_data_in_a_file(data, folder):
    assert read(folder / "study.json") == data
    assert json.loads((folder / "study.json").read_text()).items() > data.items()  # and a checksum


def test_validation_covers_all_digits_and_runs(data):
    assert len(data["validation"]) == 7 * 3
    assert all(0.0 <= row["accuracy"] <= 1.0 for row in data["validation"])


class KilledError(Exception):
    pass


@pytest.mark.slow
def test_a_killed_study_goes_on_where_it_was_and_ends_the_same(data, tmp_path, monkeypatch):
    writes = kills = 0
    write = study.write

    def killing(path, content):
        nonlocal writes, kills
        writes += 1
        if writes % 9 == 0:
            kills += 1
            raise KilledError
        write(path, content)

    monkeypatch.setattr(study, "write", killing)
    for _ in range(100):
        try:
            again = make(TINY, ALL, tmp_path, "test", silent)
            break
        except KilledError:
            continue
    assert kills > 3
    for one, other in zip(data["runs"], again["runs"], strict=True):
        assert one["records"] == other["records"]


def test_a_folder_of_another_study_is_refused(data, folder):
    with pytest.raises(ValueError, match="other settings"):
        make(replace(TINY, train=61), ALL, folder, "test", silent)


@pytest.mark.slow
def test_the_study_is_the_same_with_torch(data, tmp_path):
    pytest.importorskip("torch")
    again = make(TINY, ALL, tmp_path, "test", silent, device="cpu")
    for one, other in zip(data["runs"], again["runs"], strict=True):
        np.testing.assert_allclose(one["theta"], other["theta"], atol=1e-6)
        assert one["evaluations"] == other["evaluations"]
        assert one["exact"] == pytest.approx(other["exact"], rel=1e-3)  # not by the same solver


def test_claims_carry_their_numbers(data):
    claims = check(data)
    assert len(claims) >= 7
    for claim in claims:
        assert claim["measured"] and claim["target"] and isinstance(claim["passed"], bool)


def test_work_is_counted_to_the_first_incumbent_that_is_good_enough():
    records = [{"incumbent_exact": F, "work": work} for F, work in ((2.0, 10), (1.05, 20), (1.0, 30))]
    assert [work_to({"records": records}, 1.0, level) for level in (1.0, 0.1, 0.01)] == [10.0, 20.0, 30.0]
    assert work_to({"records": records}, 0.5, 0.01) == np.inf


def test_figure_one_shows_valid_bounds_and_ours_is_the_tightest():
    curves = figure1(iterations=120)
    assert 1.9e4 < curves["L"] < 2.1e4
    truth = np.array(curves["truth"])
    for name in ("rate", "subgradient", "gap"):
        assert (truth <= np.array(curves[name]) * (1 + 1e-6) + 1e-20).all()
    assert curves["gap"][-1] <= curves["subgradient"][-1] <= curves["rate"][-1]
