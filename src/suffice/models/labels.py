"""Two-valued labels: y in {-1, 1}, as margins m want them, where y m > 0 says that a sample is on the right side."""

from __future__ import annotations

from typing import Any

import numpy as np

from suffice.arrays import Array


def signs(y: Any) -> tuple[Array, Any]:
    """Two-valued labels of any kind as -1 and 1, and the two labels in sorted order."""
    y = np.asarray(y)
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("y must hold two distinct labels, got NaN")
    classes = np.unique(y)
    if len(classes) != 2:
        shown = ", ".join(repr(label) for label in classes[:5].tolist())
        raise ValueError(f"y must hold exactly two distinct labels, got {len(classes)}: {shown}")
    return np.where(y == classes[1], 1.0, -1.0), classes
