r"""Linear operators A that measure an image, with what proofs need to know about them: `squared_norm` is no less than
||A||^2, `least` no more than the least eigenvalue of A^H A, and products err by no more than `rounding` ||A|| times the
size of what they are made of. The last axes of their arguments are an image or data, any before them a batch.

`Fourier` is the unitary discrete Fourier transform: A^H A = 1. Its computed value errs by at most about 6.7 u log2(n)
times the norm of its argument for n a power of two (Higham, Accuracy and Stability of Numerical Algorithms, section
24.1); twice that is assumed for other lengths with small prime factors, eight times for any other.

`General` takes anything with products with A and A^H. Its norm is bounded by the user, or else as in
`suffice.rows.design` from its entries: those of a matrix, or for an operator of moderate size the images of all unit
vectors. No number of products with a larger operator proves a bound. Whether the adjoint is one is tested on random
vectors. Its rounding is assumed to be that of sums over rows and columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.fft import next_fast_len
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from suffice.arrays import EPS, positive
from suffice.rows.gram import real_form
from suffice.rows.norms import DENSE_GRAM_SIZE, squared_norm_bound

Pixels: TypeAlias = npt.NDArray[Any]  # float64 or complex128, in the shape of the image

ADJOINT_SLACK = 1e-8


@dataclass(frozen=True)
class Fourier:
    """The unitary transform over the last axes, as many as `shape` has."""

    shape: tuple[int, ...]
    squared_norm: float = 1.0
    least: float = 1.0
    rounding_is_known: bool = True

    @property
    def rounding(self) -> float:
        n = math.prod(self.shape)
        factor = max(_difficulty(length) for length in self.shape)
        return 3.5 * factor * EPS * (math.log2(n) + 1.0)

    def apply(self, x: Pixels) -> Pixels:
        return np.fft.fftn(x, axes=range(-len(self.shape), 0), norm="ortho")

    def adjoint(self, y: Pixels) -> Pixels:
        return np.fft.ifftn(y, axes=range(-len(self.shape), 0), norm="ortho")


def _difficulty(n: int) -> float:
    return 1.0 if n & (n - 1) == 0 else 2.0 if next_fast_len(n) == n else 8.0


class General:
    """A matrix, a sparse matrix, or an operator with shape, dtype, matvec and rmatvec (SciPy's, pylops')."""

    def __init__(self, A: Any, shape: tuple[int, ...], dtype: Any, *, norm: float | None, least: float) -> None:
        try:
            operator: LinearOperator = aslinearoperator(A)
        except TypeError as error:
            raise TypeError(f"A must be a matrix or a linear operator, got {type(A).__name__}") from error
        self.operator, self.shape, self.dtype = operator, shape, np.dtype(dtype)
        self.rows, self.columns = (int(count) for count in operator.shape)
        if math.prod(shape) != self.columns:
            raise ValueError(f"shape must have {self.columns} pixels, one per column of A, got {shape}")
        self._check_adjoint()
        bound = self._bound(A) if norm is None else positive(norm, "norm", zero=True) ** 2
        self.squared_norm = bound
        self.least = positive(least, "least", zero=True)
        if self.least > bound:
            raise ValueError(f"least must not exceed the squared norm of A, got {least!r} > {bound!r}")
        self.rounding_is_known = False

    @property
    def rounding(self) -> float:
        return max(self.rows, self.columns) * EPS

    def apply(self, x: Pixels) -> Pixels:
        if x.ndim == len(self.shape):
            return np.asarray(self.operator.matvec(x.reshape(-1)))
        return np.asarray(self.operator.matmat(x.reshape(len(x), -1).T)).T

    def adjoint(self, y: Pixels) -> Pixels:
        if y.ndim == 1:
            return np.asarray(self.operator.rmatvec(y)).reshape(self.shape)
        return np.asarray(self.operator.rmatmat(y.T)).T.reshape(len(y), *self.shape)

    def _random(self, rng: np.random.Generator, n: int, kind: str) -> Pixels:
        v = rng.standard_normal(n)
        return v + 1j * rng.standard_normal(n) if kind == "c" else v

    def _check_adjoint(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(3):
            x = self._random(rng, self.columns, self.dtype.kind)
            image = np.asarray(self.operator.matvec(x))
            if image.shape != (self.rows,) or not np.isfinite(image).all():
                raise ValueError(f"A must map to {self.rows} finite numbers, got shape {image.shape}")
            y = self._random(rng, self.rows, image.dtype.kind)
            pulled = np.asarray(self.operator.rmatvec(y))
            sizes = np.linalg.norm(image) * np.linalg.norm(y) + np.linalg.norm(x) * np.linalg.norm(pulled)
            gap = abs(np.vdot(y, image) - np.vdot(pulled, x))
            if not gap <= ADJOINT_SLACK * sizes:
                raise ValueError(
                    f"A's rmatvec is not the adjoint of its matvec: <y, A x> and <A^H y, x> differ by {gap:g}"
                )

    def _bound(self, A: Any) -> float:
        known = real_form(A, pairs=self.dtype.kind == "c")
        if known is None:
            if self.columns > DENSE_GRAM_SIZE:
                raise ValueError(
                    f"norm must be given for an operator with more than {DENSE_GRAM_SIZE} columns, got {self.columns}: "
                    "an upper bound on its largest singular value, which its products alone cannot prove"
                )
            return self._bound(np.asarray(self.operator.matmat(np.eye(self.columns, dtype=self.dtype))))
        return squared_norm_bound(known)


Measurement: TypeAlias = Fourier | General
