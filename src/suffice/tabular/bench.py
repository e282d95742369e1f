"""A table as tools that know nothing but numbers take it: its columns prepared as for `suffice tune`, by all rows at
once, so that every tool gets the same."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from suffice.sklearn.cv_comparison import Tabled
from suffice.sklearn.penalties import split_pipeline
from suffice.tabular.run import load
from suffice.tabular.settings import Settings
from suffice.tabular.table import TableError


def tabled(path: str, target: str) -> tuple[Tabled, list[str]]:
    """The table's rows and targets, and what was done to them."""
    problem, _ = load(Settings(data=path, target=target))
    if problem.model not in ("logistic", "elastic-net"):
        raise TableError(f"only linear and logistic models are compared, and the table asks for {problem.model}")
    _, before = split_pipeline(problem.estimator)
    X = problem.X if before is None else before.fit_transform(problem.X, problem.y)
    X = StandardScaler().fit_transform(X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64))
    labels = problem.task == "classification"
    y = np.unique(problem.y, return_inverse=True)[1] if labels else np.asarray(problem.y, dtype=np.float64)
    return Tabled(X, y, labels, l2_alone=labels and len(np.unique(y)) > 2), list(problem.notes)
