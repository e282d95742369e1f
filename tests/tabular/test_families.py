"""Tables of counts, costs and times: which model suits the target, exposures, events, and what is refused."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from suffice.cli import app
from suffice.sklearn.survival import survival_function
from suffice.tabular.model_file import load_file, model_file
from suffice.tabular.settings import Settings


def claims(rows=160, seed=0):
    rng = np.random.default_rng(seed)
    age, years = rng.uniform(18, 80, rows), rng.uniform(0.2, 1.0, rows)
    zone = rng.choice(["north", "south"], rows)
    rate = np.exp(0.5 - 0.02 * (age - 40) + 0.6 * (zone == "south"))
    counts = rng.poisson(rate * years)
    return pd.DataFrame(
        {
            "age": np.round(age, 1),
            "zone": zone,
            "years": np.round(years, 3),
            "claims": counts,
            "cost": np.round(rng.gamma(2.0, 300.0 * rate), 2),
            "paid": np.round([rng.gamma(0.3, 2000.0, n).sum() if n else 0.0 for n in counts], 2),
            "days": np.ceil(rng.exponential(100.0 / rate)),
            "died": (rng.random(rows) < 0.7).astype(int),
        }
    )


def run(tmp_path, *arguments):
    path = tmp_path / "claims.csv"
    claims().to_csv(path, index=False)
    out = tmp_path / "run"
    given = ["tune", str(path), "--out", str(out), "--cv", "3", "--max-evaluations", "4", "--no-report", "--json"]
    return CliRunner().invoke(app, [*given, *arguments]), out


@pytest.mark.parametrize(
    ("arguments", "scoring"),
    [
        (["--target", "cost", "--model", "gamma"], "neg_mean_gamma_deviance"),
        (["--target", "paid", "--model", "tweedie", "--exposure", "years"], "neg_mean_deviance"),
        (["--target", "claims", "--model", "poisson", "--exposure", "years"], "neg_mean_poisson_deviance"),
        (["--target", "claims", "--model", "negative-binomial"], "neg_mean_deviance"),
        (["--time", "days", "--event", "died"], "neg_partial_likelihood"),
    ],
    ids=["gamma", "tweedie", "poisson", "negative-binomial", "cox"],
)
def test_a_model_of_the_target_is_tuned_and_predicts(tmp_path, arguments, scoring):
    columns = {"cost", "paid", "claims", "days", "died"} - set(arguments)
    result, out = run(tmp_path, *arguments, *(part for name in columns for part in ("--drop", name)))
    assert result.exit_code in (0, 1), result.output  # 1: stopped early
    found = json.loads(result.stdout)
    assert found["optimised_scoring"] == scoring and found["interval"][0] <= found["interval"][1]
    if "--time" in arguments:
        assert found["model"] == "cox" and found["measures"]["tuned"]["concordance"] > 0.5
    told = CliRunner().invoke(app, ["predict", str(out), str(tmp_path / "claims.csv")])
    assert told.exit_code == 0, told.output
    predicted = np.array([float(line) for line in told.stdout.splitlines() if re.fullmatch(r"-?[0-9.e+-]+", line)])
    assert len(predicted) == 160
    if "--exposure" in arguments:  # predictions are proportional to the exposure
        table = claims()
        doubled = table.assign(years=2.0 * table["years"])
        doubled.to_csv(tmp_path / "doubled.csv", index=False)
        again = CliRunner().invoke(app, ["predict", str(out), str(tmp_path / "doubled.csv")])
        twice = np.array([float(line) for line in again.stdout.splitlines() if re.fullmatch(r"-?[0-9.e+-]+", line)])
        assert np.allclose(twice, 2.0 * predicted, rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "cox"}, "model cox needs --time and --event"),
        ({"event": "died"}, "no other model takes them"),
        ({"model": "ridge", "exposure": "years"}, "--exposure goes with --model poisson, gamma"),
        ({"model": "cox", "event": "died", "exposure": "years"}, "--exposure goes with --model poisson"),
        ({"model": "gamma", "offset": "years", "groups": "g.json"}, "--offset does not go with --groups"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Settings(data="a.csv", target="y", **given)


def test_a_target_that_a_family_cannot_take_is_named_with_its_line(tmp_path):
    result, _ = run(tmp_path, "--target", "paid", "--model", "gamma")
    assert result.exit_code == 2 and "Gamma regression needs positive numbers (tweedie takes zeros)" in result.output
    result, _ = run(tmp_path, "--time", "days", "--event", "claims")
    assert result.exit_code == 2 and "must be 1 where it has happened" in result.output
    result, _ = run(tmp_path)
    assert result.exit_code == 2 and "--time with --event" in result.output


def test_costs_with_zeros_are_told_of_tweedie(tmp_path):
    result, _ = run(tmp_path, "--target", "paid", "--model", "elastic-net")
    assert any("--model tweedie" in note for note in json.loads(result.stdout)["notes"])


@pytest.mark.parametrize("model", ["ridge", "poisson", "gamma"])
def test_no_coefficient_is_negative_where_none_may_be(tmp_path, model):
    target = "cost" if model == "gamma" else "claims"
    others = {"cost", "paid", "claims", "days", "died", "years"} - {target}
    arguments = ["--target", target, "--model", model, "--task", "regression", "--non-negative"]
    result, out = run(tmp_path, *arguments, *(part for name in others for part in ("--drop", name)))
    assert result.exit_code in (0, 1), result.output
    coef = np.ravel(load_file(model_file(out), trust=True).named_steps["model"].coef_)
    assert np.all(coef >= 0.0) and np.any(coef == 0.0) and np.any(coef > 0.0)  # claims fall with age
    refused, _ = run(tmp_path, "--target", "zone", "--non-negative", "--out", str(tmp_path / "other"))
    assert refused.exit_code == 2 and "--non-negative goes with --model elastic-net" in refused.output


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    """A run of `--time days --event died`, its table, and what it said."""
    folder = tmp_path_factory.mktemp("survival")
    claims().drop(columns=["cost", "paid", "claims"]).to_csv(folder / "claims.csv", index=False)
    given = ["tune", str(folder / "claims.csv"), "--time", "days", "--event", "died", "--out", str(folder / "run")]
    result = CliRunner().invoke(app, [*given, "--cv", "3", "--max-evaluations", "4", "--no-report"])
    assert result.exit_code in (0, 1), result.output
    return folder, result.output


def test_a_run_of_survival_tells_events_and_a_concordance_with_its_spread(survived):
    _, told = survived
    events = int(claims()["died"].sum())
    assert f"'days' until 'died': survival, {events} events and {160 - events} censored times" in told
    assert re.search(r"concordance 0\.\d+ ± 0\.\d+ \(standard error over folds, from 0\.\d+ to 0\.\d+\)", told)
    assert "knows the times only: concordance 0.500" in told
    assert "hazard ratios of the largest, for a change of one standard deviation:" in told
    assert re.search(r"\n {9,}1\.\d+  zone_south\n", told)  # it raises the hazard
    assert "regression" not in told and "the mean:" not in told


def test_survival_is_predicted_at_times_by_the_model_that_was_saved(survived):
    folder, _ = survived
    told = CliRunner().invoke(
        app, ["predict", str(folder / "run"), str(folder / "claims.csv"), "--times", "10,50.5", "--trust"]
    )
    lines = [line for line in told.stdout.splitlines() if not line.startswith("Note")]
    assert lines[0] == "log hazard,survival at 10,survival at 50.5"
    found = np.array([[float(part) for part in line.split(",")] for line in lines[1:]])
    model = load_file(model_file(folder / "run"), trust=True)
    assert found[:, 0] == pytest.approx(model.predict(claims()), rel=1e-12)
    assert found[:, 1:] == pytest.approx(survival_function(model, claims(), [10.0, 50.5]), rel=1e-12)
    assert ((found[:, 1:] > 0.0) & (found[:, 1:] < 1.0)).all() and (found[:, 2] < found[:, 1]).all()


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ("1,soon", "--times takes numbers such as 1,2,5, none of them negative, got '1,soon'"),
        ("-1", "--times takes numbers such as 1,2,5, none of them negative, got '-1'"),
        ("1,1e9", "--times 1e+09 is beyond 'days'"),
    ],
)
def test_times_that_no_model_can_tell_of_are_refused(survived, times, message):
    folder, _ = survived
    result = CliRunner().invoke(app, ["predict", str(folder / "run"), str(folder / "claims.csv"), f"--times={times}"])
    assert result.exit_code == 2 and message in result.output


def test_times_are_for_models_of_survival(tmp_path):
    _, out = run(tmp_path, "--target", "cost", "--model", "gamma")
    result = CliRunner().invoke(app, ["predict", str(out), str(tmp_path / "claims.csv"), "--times", "1"])
    assert result.exit_code == 2 and "--times is for a model of times until an event" in result.output


def test_a_time_that_is_not_positive_is_named_with_its_line(tmp_path):
    table = claims()
    table.loc[3, "days"] = 0
    table.to_csv(tmp_path / "claims.csv", index=False)
    given = ["tune", str(tmp_path / "claims.csv"), "--time", "days", "--event", "died", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2 and "must be positive numbers, 1 row holds another, in line 5: 0" in result.output
