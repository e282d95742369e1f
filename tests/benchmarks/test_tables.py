"""The benchmark of real tables takes a run's predictions as `suffice predict` gives them."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

pytest.importorskip("pandas")
pytest.importorskip("skops.io")
ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks" / "tables.py").is_file():
    pytest.skip("the benchmark is not at hand", allow_module_level=True)

import suffice  # noqa: E402


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        tables = importlib.import_module("tables")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return tables


@pytest.mark.parametrize("target", ["petal width (cm)", "target"])
def test_losses_are_those_of_the_model_on_every_held_out_row(tables, tmp_path, target, monkeypatch):
    frame = load_iris(as_frame=True).frame
    train, test = frame.iloc[::2], frame.iloc[1::2]
    test.to_csv(tmp_path / "test.csv", index=False)
    monkeypatch.setitem(tables.SOURCES, "iris", replace(tables.SOURCES["iris"], target=target))
    model = "logistic-l2" if target == "target" else "ridge"
    said = suffice.tune_table(train, target, model=model, no_report=True, out=tmp_path / "run").predict(test)
    y, rows = test[target].to_numpy(), np.arange(len(test))
    if target == "target":
        expected = -np.log(said.to_numpy()[rows, 1 + y])
        np.testing.assert_allclose(tables.ours("iris", tmp_path, tables.LOG_LOSS), expected)
    else:
        np.testing.assert_allclose(tables.ours("iris", tmp_path, tables.SQUARES), (y - said.to_numpy()[:, 0]) ** 2)
