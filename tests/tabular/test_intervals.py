"""`suffice predict --intervals`: intervals of new rows by the folds' models that a run keeps."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import suffice
from suffice.cli import app
from suffice.tabular.entries import TableError
from suffice.tabular.predict import predict


def table(rows=160):
    rng = np.random.default_rng(0)
    size, town = rng.uniform(1.0, 5.0, rows), rng.choice(["here", "there", "beyond"], rows)
    price = 3.0 * size + 2.0 * (town == "here") + 0.5 * rng.standard_normal(rows)
    return pd.DataFrame({"size": size.round(3), "town": town, "price": price.round(4)})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of runs, and the rows that they have not seen."""
    place, data = tmp_path_factory.mktemp("intervals"), table()
    data["dear"] = np.where(data["price"] > data["price"].median(), "yes", "no")
    data["scale"] = np.exp(data["price"]).round(3)
    data["kind"] = data["town"].where(np.random.default_rng(1).random(len(data)) < 0.8, "beyond")
    data["time"], data["event"] = data["price"], 1
    drop = {"price": {}, "dear": {}, "scale": {"log_target": True}, "kind": {"drop": ("town",)}}
    for target, options in drop.items():
        others = [name for name in ("price", "dear", "scale", "kind", "time", "event") if name != target]
        made = suffice.tune_table(
            data[:120].drop(columns=others), target=target, out=place / target, no_report=True, **options
        )
        assert made.failures == []
    suffice.tune_table(
        data[:120][["size", "town", "time", "event"]], time="time", event="event", out=place / "time", no_report=True
    )
    data[120:].to_csv(place / "new.csv", index=False)
    return place, data[120:]


def read(output):
    return pd.read_csv(pd.io.common.StringIO(output))


def test_new_rows_lie_in_their_intervals_as_often_as_promised(runs):
    place, rows = runs
    result = CliRunner().invoke(app, ["predict", str(place / "price"), str(place / "new.csv"), "--intervals", "0.9"])
    assert result.exit_code == 0 and "CV+ with 5 folds" in result.stderr and "at least 7" in result.stderr
    found = read(result.stdout)
    assert list(found.columns) == ["predicted price", "low", "high"]
    hit = (found["low"] <= rows["price"].to_numpy()) & (rows["price"].to_numpy() <= found["high"])
    assert 0.8 <= hit.mean() <= 1.0 and ((found["high"] - found["low"]) < 3.0).all()


def test_intervals_of_logarithms_are_in_the_targets_units(runs):
    place, rows = runs
    names, columns, _ = predict(place / "scale", str(place / "new.csv"), intervals=0.9)
    middle, low, high = columns
    assert names[1:] == ["low", "high"] and (low > 0.0).all() and (low < middle).all() and (middle < high).all()
    assert np.mean((low <= rows["scale"]) & (rows["scale"] <= high)) > 0.8


@pytest.mark.parametrize("target", ["dear", "kind"])
def test_classes_have_sets_that_hold_what_is_predicted(runs, target):
    place, rows = runs
    names, columns, notes = predict(place / target, str(place / "new.csv"), intervals=0.95)
    assert names[-1] == "set" and "class lies in its set" in notes[-1]
    sets = [one.split(" | ") for one in columns[-1]]
    assert all(label in one for label, one in zip(columns[0], sets, strict=True))
    assert np.mean([label in one for label, one in zip(rows[target], sets, strict=True)]) > 0.85


def test_what_has_no_intervals_says_so(runs):
    place, _ = runs
    with pytest.raises(TableError, match="models of times until an event"):
        predict(place / "time", str(place / "new.csv"), intervals=0.9)
    result = CliRunner().invoke(app, ["predict", str(place / "price"), str(place / "new.csv"), "--intervals", "90"])
    assert result.exit_code == 2 and "coverage must lie between 0 and 1, got 90.0" in result.stderr


def test_the_file_is_a_safe_one_and_small(runs):
    place, _ = runs
    pytest.importorskip("skops")
    from skops.io import get_untrusted_types

    file = place / "price" / "intervals.skops"
    assert set(get_untrusted_types(file=file)) <= {"numpy.dtype"} and file.stat().st_size < 200_000
    assert json.loads((place / "price" / "command.json").read_text())["command"] == "tune"
