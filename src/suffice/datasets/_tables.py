"""Two small tables of real data for the tutorials. Source and licence are in data/README.md."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray


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
