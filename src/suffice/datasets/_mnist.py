"""MNIST: 28 x 28 grey images of handwritten digits, one row of 784 pixels per image.

The package ships 12,000 images in one archive: rows 0..9999 of the training file, then rows 0..1999 of the
test file. They make two disjoint parts of 5000 + 1000 images,

    part          X_train              X_test
    tuning        train 0..4999        test 0..999
    validation    train 5000..9999     test 1000..1999

Source, licence and checksum are in data/README.md; tools/make_mnist_subset.py builds the archive.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import struct
import zlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Part = Literal["tuning", "validation"]
Pixels = Literal["raw", "unit"]

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

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
    scale = _scale(pixels)
    content = _ARCHIVE.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != _SHA256:
        raise OSError(f"{_ARCHIVE} is damaged (SHA-256 {digest}, expected {_SHA256}); reinstall suffice")
    with np.load(io.BytesIO(content)) as archive:
        X, y = archive["X"], archive["y"]
    first = 0 if part == "tuning" else 1
    train = slice(5000 * first, 5000 * (first + 1))
    test = slice(10_000 + 1000 * first, 10_000 + 1000 * (first + 1))
    return _assemble(X[train], y[train], X[test], y[test], scale)


def load_mnist_full(folder: str | os.PathLike[str], pixels: Pixels = "raw") -> Mnist:
    """All 60,000 + 10,000 images from a folder of yours; images are never downloaded.

    The folder holds the four idx files under their original names (`train-images-idx3-ubyte` and so on), plain or
    `.gz`. `pixels` are as in `load_mnist`. FileNotFoundError with the names of those that are missing; ValueError if a
    file is damaged, or images and labels differ in number.
    """
    scale = _scale(pixels)
    folder = Path(folder)
    paths = {name: path for name in IDX_FILES for path in (folder / f"{name}.gz", folder / name) if path.is_file()}
    missing = [name for name in IDX_FILES if name not in paths]
    if missing:
        raise FileNotFoundError(f"no MNIST in {folder}: {', '.join(missing)} (plain or .gz) not found")
    X_train, y_train, X_test, y_test = (read_idx(paths[name]) for name in IDX_FILES)
    for kind, X, y in (("training", X_train, y_train), ("test", X_test, y_test)):
        if len(X) != len(y):
            raise ValueError(f"{folder} has {len(X)} {kind} images but {len(y)} {kind} labels")
    return _assemble(X_train, y_train, X_test, y_test, scale)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, decompressing it if its name ends in ``.gz``.

    The format: two zero bytes, the element type (8 for unsigned bytes), the number of dimensions, each
    dimension as a big-endian 32-bit integer, the elements in C order.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an idx file of unsigned bytes")
    ndim = content[3]
    start = 4 + 4 * ndim
    shape = struct.unpack(f">{ndim}I", content[4:start]) if len(content) >= start else (0,)
    if len(content) != start + math.prod(shape):
        raise ValueError(f"{path} is truncated or has trailing bytes")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _scale(pixels: str) -> float:
    if pixels not in ("raw", "unit"):
        raise ValueError(f"pixels must be 'raw' or 'unit', got {pixels!r}")
    return 255.0 if pixels == "unit" else 1.0


def _assemble(
    X_train: NDArray[Any], y_train: NDArray[Any], X_test: NDArray[Any], y_test: NDArray[Any], scale: float
) -> Mnist:
    return Mnist(
        X_train=X_train.reshape(len(X_train), -1) / scale,
        y_train=y_train.astype(np.int64),
        X_test=X_test.reshape(len(X_test), -1) / scale,
        y_test=y_test.astype(np.int64),
    )
