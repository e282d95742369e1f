"""Data of the problems: what scikit-learn and suffice ship, the tables of ISLP's wheel, and synthetic ones.

ISLP's wheel is downloaded, never installed: its data files are read, its code is not. They are kept in
benchmarks/.cache/islp, or lie where the environment variable SUFFICE_ISLP says.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array = npt.NDArray[Any]
Split = tuple[Any, Any, Any, Any]  # X, y, X held out, y held out

ISLP = Path(__file__).resolve().parents[1] / ".cache" / "islp"
ISLP_FILES = ("Caravan.csv", "Khan_xtrain.csv", "Khan_ytrain.csv", "Khan_xtest.csv", "Khan_ytest.csv", "NCI60data.npy",
              "NCI60labs.csv")  # fmt: skip


def islp(name: str) -> Path:
    """A file of ISLP's, downloaded if need be."""
    folder = Path(os.environ.get("SUFFICE_ISLP", ISLP))
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", place, "ISLP==0.6.0"]
            subprocess.run(pip, check=True)
            with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
                for one in ISLP_FILES:
                    (folder / one).write_bytes(wheel.read(f"ISLP/data/{one}"))
    return folder / name


def columns(path: Path) -> tuple[list[str], list[list[str]]]:
    """A CSV: its header and its rows."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return header, rows


def standardised(X: Array, train: Any) -> Array:
    """Columns with mean 0 and variance 1 on the training rows; constant ones are left out."""
    spread = X[train].std(axis=0)
    kept = spread > 1e-9
    return np.asarray((X[:, kept] - X[train][:, kept].mean(axis=0)) / spread[kept])


def halves(X: Array, y: Array, seed: int, share: float = 0.5) -> Split:
    """Rows for training and held-out ones."""
    order = np.random.default_rng(seed).permutation(len(X))
    count = round(share * len(X))
    train, test = order[:count], order[count:]
    X = standardised(X, train)
    return X[train], y[train], X[test], y[test]


@cache
def digits() -> Split:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return halves(X[:600], y[:600], 0)


@cache
def cancer() -> Split:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return halves(X, y, 0)


@cache
def wine() -> Split:
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    return halves(X, y, 0)


@cache
def diabetes() -> Split:
    """With all products of two columns."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    pairs = [X[:, i] * X[:, j] for i in range(X.shape[1]) for j in range(i, X.shape[1])]
    X, y, Z, t = halves(np.column_stack([X, *pairs]), (y - y.mean()) / y.std(), 0)
    return X, y - y.mean(), Z, t - y.mean()


@cache
def caravan() -> Split:
    header, rows = columns(islp("Caravan.csv"))
    place = header.index("Purchase")
    y = np.array([row[place] == "Yes" for row in rows])
    first = 1 if header[0] in ("", "rownames") else 0
    X = np.array([[float(v) for k, v in enumerate(row) if first <= k != place] for row in rows])
    return halves(X[:3000], y[:3000], 0)


@cache
def khan() -> Split:
    parts = []
    for part in ("train", "test"):
        _, rows = columns(islp(f"Khan_x{part}.csv"))
        X = np.array([[float(v) for v in row] for row in rows])
        header, labels = columns(islp(f"Khan_y{part}.csv"))
        parts.append((X, np.array([int(float(row[header.index("x")])) for row in labels])))
    X, y = (np.concatenate([one[k] for one in parts]) for k in (0, 1))
    X = X[:, 1:] if np.array_equal(X[: len(parts[0][0]), 0], np.arange(1, len(parts[0][0]) + 1)) else X
    return halves(X, y, 0, 0.6)


@cache
def nci60() -> Split:
    """The 2,000 columns with the largest variance."""
    X = np.load(islp("NCI60data.npy"))
    X = X[:, np.argsort(-X.var(axis=0))[:2000]]
    _, rows = columns(islp("NCI60labs.csv"))
    return halves(X, np.array([row[-1] for row in rows]), 0, 0.6)


@cache
def text() -> Split:
    """Counts of 3,000 words, Zipf's law, in 400 short texts of two kinds; logarithms, rows of length 1, sparse."""
    rng = np.random.default_rng(11)
    N, d = 400, 3000
    base = 1.0 / np.arange(1.0, d + 1.0) ** 0.9
    tilt = np.where(rng.random(d) < 0.03, rng.normal(0.0, 0.7, d), 0.0)
    y = rng.random(N) < 0.5
    rows = []
    for kind in y:
        p = base * np.exp(tilt if kind else -tilt)
        rows.append(rng.multinomial(rng.integers(40, 160), p / p.sum()))
    X = np.log1p(np.array(rows, dtype=np.float64))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X = sp.csr_array(X[:, X.any(axis=0)])
    return X[:240], y[:240], X[240:], y[240:]


@cache
def correlated(seed: int = 5, rows: int = 100, d: int = 300) -> Split:
    """y = X w + noise, columns correlated by 0.9^|i - j|, 15 weights of 300."""
    rng = np.random.default_rng(seed)
    E = rng.standard_normal((2 * rows, d))
    X = E.copy()
    for j in range(1, d):
        X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(1.0 - 0.81) * E[:, j]
    w = np.zeros(d)
    w[rng.choice(d, 15, replace=False)] = rng.normal(0.0, 1.0, 15)
    signal = X @ w
    y = signal + rng.standard_normal(len(X)) * signal.std() / 2.0
    return X[:rows], y[:rows], X[rows:], y[rows:]


@cache
def survival(rows: int = 240, d: int = 60) -> Split:
    """Exponential times with 6 of 60 columns that matter, 30 % censored (negative times)."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2 * rows, d))
    w = np.zeros(d)
    w[:6] = rng.normal(0.0, 0.6, 6)
    times, censored = rng.exponential(np.exp(-X @ w)), rng.exponential(2.5, len(X))
    y = np.where(times <= censored, times, -censored)
    return X[:rows], y[:rows], X[rows:], y[rows:]


@cache
def grouped(m: int, seed: int) -> Split:
    """m groups of 8 columns whose weights shrink from group to group by up to 2^-7."""
    rng = np.random.default_rng([m, seed])
    d, rows = 8 * m, 12 * m
    scale = np.repeat(2.0 ** -np.linspace(0.0, 7.0, m), 8)
    w = scale * rng.standard_normal(d)
    X, Z = rng.standard_normal((rows, d)), rng.standard_normal((10 * m, d))
    y, z = (A @ w + rng.standard_normal(len(A)) for A in (X, Z))
    return X, y, Z, z


@cache
def lasso_bench(d: int) -> Split:
    """As LassoBench's synthetic problems: d/2 rows, d/20 weights, columns correlated by 0.6^|i - j|, signal to noise
    10; as many rows judge."""
    rng = np.random.default_rng([d, 42])
    rows = d // 2
    E = rng.standard_normal((2 * rows, d))
    X = E.copy()
    for j in range(1, d):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * E[:, j]
    w = np.zeros(d)
    w[rng.choice(d, d // 20, replace=False)] = 1.0
    signal, noise = X @ w, rng.standard_normal(len(X))
    y = signal + noise * np.linalg.norm(signal) / (10.0 * np.linalg.norm(noise))
    return X[:rows], y[:rows], X[rows:], y[rows:]


@cache
def few_rows(seed: int, sparse: bool, N: int = 24, M: int = 12, d: int = 40) -> Split:
    """y = X w + noise with fewer rows than columns, and fewer still to judge by."""
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((N, d)), rng.standard_normal((M, d))
    w = np.concatenate([rng.normal(0, 1, 5), rng.normal(0, 0.15, d - 5)]) if sparse else rng.normal(0, 0.4, d)
    y, t = (A @ w + 0.7 * rng.standard_normal(len(A)) for A in (X, Z))
    return X, y, Z, t
