"""Data to try suffice on: images of digits, small tables. Nothing is read before a loader is called.

MNIST are 28 x 28 grey images of handwritten digits, one row of 784 pixels per image. The package ships 12,000 of them
in one archive: rows 0..9999 of the training file, then rows 0..1999 of the test file. They make two disjoint parts of
5000 + 1000 images,

    part          X_train              X_test
    tuning        train 0..4999        test 0..999
    validation    train 5000..9999     test 1000..1999

Sources, licences and checksums are in data/README.md; tools/make_mnist_subset.py builds the archive.
"""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mnist", "Numbers", "load_mnist", "load_rand_hie", "load_rossi"]

Part = Literal["tuning", "validation"]
Pixels = Literal["raw", "unit"]

_ARCHIVE = files("suffice.datasets").joinpath("data/mnist_12000.npz")
_SHA256 = "10d858d539febab96e75a3e1077fa7fce5432acf4c0a77dbbd852683fe7d78b1"


@dataclass(frozen=True, eq=False)
class Mnist:
    """Training and test images (float64, one row per image) with their digits 0..9 (int64)."""

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def load_mnist(part: Part = "tuning", pixels: Pixels = "raw") -> Mnist:
    """5000 training and 1000 test images from the archive inside the package.

    `part` is "tuning" or "validation", which have no image in common; `pixels` are "raw", 0..255 as in the files, or
    "unit", divided by 255. OSError if the archive does not match its checksum.
    """
    if part not in ("tuning", "validation"):
        raise ValueError(f"part must be 'tuning' or 'validation', got {part!r}")
    if pixels not in ("raw", "unit"):
        raise ValueError(f"pixels must be 'raw' or 'unit', got {pixels!r}")
    content = _ARCHIVE.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != _SHA256:
        raise OSError(f"{_ARCHIVE} is damaged (SHA-256 {digest}, expected {_SHA256}); reinstall suffice")
    with np.load(io.BytesIO(content)) as archive:
        X, y = archive["X"], archive["y"].astype(np.int64)
    scale = 255.0 if pixels == "unit" else 1.0
    first = 0 if part == "tuning" else 1
    train = slice(5000 * first, 5000 * (first + 1))
    test = slice(10_000 + 1000 * first, 10_000 + 1000 * (first + 1))
    return Mnist(X[train] / scale, y[train], X[test] / scale, y[test])


@dataclass(frozen=True, eq=False)
class Numbers:
    """A table of numbers: features by name, and the target."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    names: tuple[str, ...]


def _read(name: str) -> tuple[list[str], NDArray[np.float64]]:
    text = files("suffice.datasets").joinpath(f"data/{name}").read_text("utf-8")
    header, *rows = csv.reader(io.StringIO(text))
    return header, np.array(rows, dtype=np.float64)


def load_rossi() -> Numbers:
    """Rossi's data on recidivism: 432 convicts in the first year after their release. y is the week of the first
    arrest, negative for those who were not arrested within 52 weeks."""
    header, values = _read("rossi.csv")
    week, arrest = values[:, header.index("week")], values[:, header.index("arrest")]
    names = tuple(name for name in header if name not in ("week", "arrest"))
    X = values[:, [header.index(name) for name in names]]
    return Numbers(X, np.where(arrest > 0.0, week, -week), names)


def load_rand_hie() -> Numbers:
    """1010 of 20,190 person-years of the RAND health insurance experiment: y is the number of visits to a doctor."""
    header, values = _read("randhie.csv")
    return Numbers(values[:, 1:], values[:, 0], tuple(header[1:]))
