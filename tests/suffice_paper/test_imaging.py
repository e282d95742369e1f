"""The imaging studies: the authors' data and optimum, small versions end to end, killed and continued."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from suffice_paper import imaging
from suffice_paper.command import STUDIES
from suffice_paper.imaging import SETTINGS, data, first_theta, make, problem

from suffice.search.tuner import Tuner

FULL = {study: SETTINGS[study, "full"] for study in STUDIES}


def silent(line):
    return None


def test_the_signals_are_the_authors():
    clean, noisy = data(FULL["denoise1"])
    assert len(clean) == 10 and clean[0].shape == (256,)
    rng = np.random.RandomState(0)
    centre, radius = rng.uniform(-1, 1), rng.uniform(-0.5, -1)
    t = np.linspace(-2, 2, 256)
    assert np.array_equal(clean[0], (t - centre) ** 2 < radius**2)
    assert np.std(np.array(noisy) - np.array(clean)) == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("theta, F", [(-0.3149209, 1.3714888), (0.0, 1.7525511), (1.0, 61.7218908)])
def test_denoise1_has_the_published_values(theta, F):
    exact = problem(FULL["denoise1"], 0.0, "newton_tv").evaluate(np.array([theta]), within=1e-9)
    assert exact.cost == pytest.approx(F, abs=6e-8)
    low, high = exact.interval
    assert high - low < 1e-7


def test_denoise1_has_its_published_optimum():
    found = imaging.best_theta(FULL["denoise1"])
    assert found is not None
    assert found == pytest.approx((-0.3149209, 1.3714888), abs=2e-7)


def test_denoise1_is_solved_from_the_paper_s_start():
    bilevel = problem(FULL["denoise1"], -2.0, "fista")
    tuner = Tuner([-2.0], bounds=bilevel.space.bounds, options=imaging.Options(max_evaluations=20, final_radius=1e-6))
    while not tuner.done:
        request = tuner.ask()
        tuner.tell(bilevel.evaluate(request.theta, within=request.within, warm=request.warm))
    result = tuner.result()
    assert abs(result.theta[0] + 0.3149209) < 0.005
    assert result.work < 50_286  # the authors' run
    exact = problem(FULL["denoise1"], 0.0, "newton_tv").evaluate(result.theta, within=1e-9)
    assert result.interval[0] <= exact.interval[1] and exact.interval[0] <= result.interval[1]


def test_the_penalty_of_the_samples_is_their_sum():
    bilevel = problem(FULL["mri"], 0.5, "newton_tv")
    theta = first_theta(FULL["mri"], 0.5)
    assert bilevel.space.params(theta)["c7"] == pytest.approx(0.5)
    evaluation = bilevel.evaluate(theta, within=1e-8)
    assert np.sum(evaluation.r[-64:] ** 2) == pytest.approx(0.1 * 64 * 0.5)
    assert evaluation.cost == pytest.approx(4.1610939, abs=1e-7)  # an independent dense Newton solve


def test_the_penalty_of_denoise3_is_the_squared_condition_number():
    setting = SETTINGS["denoise3", "quick"]
    bilevel = problem(setting, 1e-4, "newton_tv")
    theta = np.array([0.3, -1.0, -0.5])
    evaluation = bilevel.evaluate(theta, within=1e-3)
    assert evaluation.r[-1] ** 2 == pytest.approx(1e-4 * bilevel.at(theta)[0].kappa ** 2, rel=1e-9)


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.slow
def test_a_small_study_runs_and_reports(study, tmp_path):
    pytest.importorskip("matplotlib")
    if study == "denoise2d":
        pytest.importorskip("skimage")
    from suffice_paper import imaging_report

    setting = replace(SETTINGS[study, "quick"], max_evaluations=6)
    if study == "mri":
        setting = replace(setting, pixels=4, max_evaluations=12)
    result = make(setting, tmp_path, "a test", silent)
    assert all(claim["passed"] for claim in result["claims"]) and result["claims"]
    for one in result["runs"]:
        assert one["evaluations"] == len(one["records"]) <= setting.max_evaluations
        assert all(math.isfinite(record["incumbent_exact"]) for record in one["records"])
    fixed = next(one for one in result["runs"] if one["variant"] == "FISTA K = 200")
    assert fixed["work"] == 200 * setting.signals * fixed["evaluations"]
    page = imaging_report.write(setting, result, tmp_path)
    assert imaging_report.TITLES[study] in page.read_text()
    pictures = {path.name for path in tmp_path.glob("*.png")}
    expected = {"denoise2d": "images.png", "mri": "pattern.png", "denoise1": "ends.png", "denoise3": "signals.png"}
    assert {"work.png", "evaluations.png", expected[study]} <= pictures
    assert "| FISTA dynamic |" in (tmp_path / "results.md").read_text()
    assert json.loads((tmp_path / "study.json").read_text())["setting"]["study"] == study


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_answer(tmp_path, monkeypatch):
    setting = SETTINGS["denoise1", "quick"]
    variant, start = setting.variants[0], setting.starts[0]
    whole = imaging.run(setting, variant, start, tmp_path / "whole", silent)
    told = 0
    tell = Tuner.tell

    def killed(self, evaluation):
        nonlocal told
        told += 1
        if told == 9:
            raise KeyboardInterrupt
        return tell(self, evaluation)

    monkeypatch.setattr(Tuner, "tell", killed)
    with pytest.raises(KeyboardInterrupt):
        imaging.run(setting, variant, start, tmp_path / "parts", silent)
    monkeypatch.undo()
    parts = imaging.run(setting, variant, start, tmp_path / "parts", silent)
    assert parts["theta"] == whole["theta"] and parts["work"] == whole["work"]
    again = imaging.run(setting, variant, start, tmp_path / "parts", silent)
    assert again == parts


def test_a_folder_of_another_study_is_refused(tmp_path):
    setting = replace(SETTINGS["denoise1", "quick"], max_evaluations=2)
    imaging.run(setting, setting.variants[2], 0.0, tmp_path, silent)
    with pytest.raises(ValueError, match="other settings"):
        imaging.run(replace(setting, signals=2), setting.variants[2], 0.0, tmp_path, silent)
