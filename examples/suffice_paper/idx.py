"""All images of MNIST, for studies larger than those of the package's own 12,000: from a folder of yours."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suffice.datasets import Mnist

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def load_mnist_full(folder: str | os.PathLike[str], scale: float = 1.0) -> Mnist:
    """All 60,000 + 10,000 images, their pixels divided by `scale`; images are never downloaded.

    The folder holds the four idx files under their original names (`train-images-idx3-ubyte` and so on), plain or
    `.gz`. FileNotFoundError with the names of those that are missing; ValueError if a file is damaged, or images and
    labels differ in number.
    """
    folder = Path(folder)
    paths = {name: path for name in FILES for path in (folder / f"{name}.gz", folder / name) if path.is_file()}
    missing = [name for name in FILES if name not in paths]
    if missing:
        raise FileNotFoundError(f"no MNIST in {folder}: {', '.join(missing)} (plain or .gz) not found")
    X_train, y_train, X_test, y_test = (read_idx(paths[name]) for name in FILES)
    for kind, X, y in (("training", X_train, y_train), ("test", X_test, y_test)):
        if len(X) != len(y):
            raise ValueError(f"{folder} has {len(X)} {kind} images but {len(y)} {kind} labels")
    images = (X.reshape(len(X), -1) / scale for X in (X_train, X_test))
    labels = (y.astype(np.int64) for y in (y_train, y_test))
    return Mnist(next(images), next(labels), next(images), next(labels))


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
