"""The comparison with grids: losses are of exactly trained models, and every product is counted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet, ElasticNetCV
from sklearn.model_selection import KFold, cross_val_score
from sklearn.preprocessing import StandardScaler
from suffice_bench import grids

from suffice.rows.design import Design


def test_the_grid_is_that_of_elastic_net_cv():
    found = grids.compare("diabetes", 4)
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    cv = KFold(5, shuffle=True, random_state=0)
    rival = ElasticNetCV(l1_ratio=np.linspace(0.05, 1.0, 4), alphas=4, cv=cv).fit(X, y)
    assert found["grid loss reported"] == pytest.approx(rival.mse_path_.mean(axis=-1).min(), rel=1e-3)
    at_best = ElasticNet(alpha=rival.alpha_, l1_ratio=rival.l1_ratio_, tol=1e-12, max_iter=100_000)
    exact = -cross_val_score(at_best, X, y, cv=cv, scoring="neg_mean_squared_error").mean()
    assert found["grid loss"] == pytest.approx(exact, rel=1e-5)
    low, high = found["interval"]
    assert low <= found["loss"] <= high < 1.001 * found["grid loss"]
    assert found["work ratio"] == pytest.approx(found["grid passes"] / found["passes"], rel=0.01)


def test_products_are_counted_and_nothing_stays_behind():
    before = Design.margins, Design.adjoint
    design = Design.of(np.ones((7, 3)), np.ones(7))
    with grids.counted() as work:
        design.margins(np.ones(3))
        design.adjoint(np.ones(7))
    assert work == [21, 21]
    assert (Design.margins, Design.adjoint) == before
    with pytest.raises(ZeroDivisionError), grids.counted():
        raise ZeroDivisionError
    assert (Design.margins, Design.adjoint) == before


def test_the_command_prints_a_table_or_json(monkeypatch):
    typer_testing = pytest.importorskip("typer.testing")
    from suffice.cli import app

    monkeypatch.setattr(grids, "DATA", {"diabetes": grids.DATA["diabetes"]})
    runner = typer_testing.CliRunner()
    result = runner.invoke(app, ["bench", "--grid", "3", "--json"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert row["data"] == "diabetes" and row["grid"] == "3 x 3"
    result = runner.invoke(app, ["bench", "--grid", "3"])
    assert result.exit_code == 0 and "diabetes" in result.stdout and "times" in result.stdout
