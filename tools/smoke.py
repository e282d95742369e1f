"""Does suffice work without any extra? `make smoke` runs this in a clean environment, outside the clone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import ElasticNet

import suffice
from suffice import datasets, losses, problems
from suffice.sklearn import SufficeSearchCV

OPTIONAL = ("typer", "pandas", "matplotlib", "torch", "jax", "dask", "optuna", "skops", "pyarrow")


def the_environment_is_clean() -> None:
    assert Path(suffice.__file__).is_relative_to(sys.prefix), suffice.__file__
    assert suffice.__version__ == importlib.metadata.version("suffice")
    there = [name for name in OPTIONAL if importlib.util.find_spec(name) is not None]
    assert not there, f"not a clean environment: {there}"


def the_library_works() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    y = X[:, 0] + 0.3 * rng.standard_normal(60)
    lower = problems.ElasticNetLogistic(X[:40], y[:40] > 0)
    solution = suffice.solve(lower.at(l1=0.01, l2=0.01), within=1e-6)
    assert solution.certificate.radius <= 1e-6
    space = suffice.Space(l1=(1e-4, 1.0), l2=(1e-4, 1.0))
    bilevel = suffice.BilevelProblem([lower], [losses.Brier(X[40:], y[40:] > 0)], space=space)
    result = suffice.tune(bilevel, {"l1": 0.1, "l2": 0.1})
    low, high = result.interval
    assert result.success and low <= result.cost <= high
    search = SufficeSearchCV(ElasticNet(), {"l1": (1e-4, 1.0), "l2": (1e-4, 1.0)}, cv=3).fit(X, y)
    low, high = search.score_interval_
    assert low <= search.best_score_ <= high and search.predict(X).shape == y.shape
    assert len(datasets.load_mnist().X_train) == 5000  # the data are in the wheel
    for package in ("suffice_paper", "suffice_bench"):  # and so is what `suffice reproduce` and `suffice bench` run
        assert importlib.util.find_spec(f"{package}.command") is not None


def the_command_line_says_what_it_needs() -> None:
    script = Path(sys.executable).with_name("suffice")
    for command in ([sys.executable, "-I", "-m", "suffice"], [str(script), "tune", "table.csv"]):
        made = subprocess.run(command, capture_output=True, text=True)
        lines = made.stderr.splitlines()
        assert made.returncode == 2 and len(lines) == 1 and "pip install 'suffice[cli]'" in lines[0], made


if __name__ == "__main__":
    the_environment_is_clean()
    the_library_works()
    the_command_line_says_what_it_needs()
    print(f"suffice {suffice.__version__} works without extras")
