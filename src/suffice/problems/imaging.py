r"""Images from noisy or incomplete measurements, by smoothed total variation (`suffice.imaging.variation`):

    x_hat = argmin  1/2 ||A x - y||_w^2 + alpha sum_i sqrt(|(D x)_i|^2 + eps_tv^2) + (eps_l2/2) ||x||^2.

`Denoising` has A = 1, `SampledFourier` the unitary Fourier transform with w_i = c_i / (1 - c_i), 0 <= c_i < 1: the
samples' weights as functions of how much each is wanted (Ehrhardt and Roberts, J. Math. Imaging Vis. 63, 2021), and
`Reconstruction` any linear operator: a matrix, sparse or not, SciPy's or pylops' operators.

Images have one or two dimensions, real or complex pixels. Solvers work on flat real vectors, so that `solution.x` is
one; `problem.image(solution)` is the image, `problem.flat(image)` the way back (for a start, or for `suffice.certify`),
and `losses.SquaredDistance` takes the clean image as it is. Parameters that are not tuned are given once, to the
constructor, and tuned ones to `at`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from suffice.arrays import Array, frozen, positive
from suffice.imaging.measurement import Fourier, General, Measurement, Pixels
from suffice.imaging.variation import BOUNDARIES, Boundary, Variation, flat
from suffice.penalties.prox import Zero
from suffice.solvers.problem import Composite
from suffice.solvers.sensitivity import matrix_of
from suffice.solvers.solution import Solution

LARGEST = 1e100  # beyond, squares leave the range of floats
SMALLEST = 1e-100

PARAMETERS = ("alpha", "eps_tv", "eps_l2")

Given = float | None


class _Image:
    """What the problems share: an image's format, its data, and parameters that are fixed or given to `at`."""

    y: Pixels
    operator: Measurement | None = None
    weights: Array | None = None

    def __init__(self, shape: tuple[int, ...], dtype: Any, *, boundary: Boundary = "free", **fixed: Given) -> None:
        unknown = set(fixed) - set(PARAMETERS)
        if unknown:
            raise TypeError(f"unknown parameters: {', '.join(sorted(unknown))}")
        if len(shape) not in (1, 2) or 0 in shape:
            raise ValueError(f"images must have one or two dimensions and at least one pixel, got shape {shape}")
        if boundary not in BOUNDARIES:
            raise ValueError(f"boundary must be one of {', '.join(BOUNDARIES)}, got {boundary!r}")
        self.shape, self.dtype, self.boundary = shape, np.dtype(dtype), boundary
        self._fixed = {name: self._checked(name, value) for name, value in fixed.items() if value is not None}

    @property
    def size(self) -> int:
        """The number of real unknowns."""
        return math.prod(self.shape) * (2 if self.dtype.kind == "c" else 1)

    def image(self, x: Any) -> Pixels:
        """The image that a solution, or its vector x, stands for."""
        x = x.x if isinstance(x, Solution) else np.asarray(x, dtype=np.float64)
        if x.shape != (self.size,):
            raise ValueError(f"x must have shape ({self.size},), got {x.shape}")
        return x.view(self.dtype).reshape(self.shape).copy()

    def flat(self, image: Any) -> Array:
        """The vector that stands for an image."""
        pixels = _pixels(image, "image", self.dtype)
        if pixels.shape != self.shape:
            raise ValueError(f"image must have shape {self.shape}, got {pixels.shape}")
        return flat(pixels).copy()

    def _checked(self, name: str, value: Any) -> float:
        number = positive(value, name, zero=name != "eps_tv")
        if number > LARGEST or (name == "eps_tv" and number < SMALLEST):
            raise ValueError(f"{name} must lie within {SMALLEST:g} and {LARGEST:g}, got {value!r}")
        return number

    def _parameter(self, name: str, value: Any) -> float:
        if value is not None:
            if name in self._fixed:
                raise ValueError(f"{name} is fixed at {self._fixed[name]!r} by this problem, got {value!r}")
            return self._checked(name, value)
        if name not in self._fixed:
            raise ValueError(f"{name} must be given, here or to the problem's constructor")
        return self._fixed[name]

    def cross(self, x: Array, **params: Any) -> Any:
        """d/dp grad f(x), a column for every parameter p (`suffice.solvers.sensitivity`)."""
        f = self.at(**params).smooth
        assert isinstance(f, Variation)
        return np.column_stack([f.cross(x, name) for name in params])

    def at(self, *, alpha: Given = None, eps_l2: Given = None, eps_tv: Given = None) -> Composite:
        """The problem at fixed parameters: alpha >= 0, eps_tv > 0, and eps_l2 >= 0, positive where A alone does not
        determine the image."""
        return self._composite(self.weights, alpha=alpha, eps_tv=eps_tv, eps_l2=eps_l2)

    def _composite(self, weights: Array | None, **given: Given) -> Composite:
        numbers = {name: self._parameter(name, value) for name, value in given.items()}
        data = {"operator": self.operator, "weights": weights, "boundary": self.boundary}
        smooth = Variation(self.y, self.shape, self.dtype, **numbers, **data)  # type: ignore[arg-type]
        if not smooth.mu > 0.0:
            raise ValueError("eps_l2 must be positive, since A alone does not determine the image, got 0")
        return Composite(smooth, Zero(), mu=smooth.mu, L=smooth.L, size=self.size)


class Denoising(_Image):
    """Denoising of an image y: the x that minimises ||x - y||^2 / 2 plus a smoothed total variation and a ridge.

    `alpha` weighs the smoothed total variation sum_i sqrt(|(D x)_i|^2 + eps_tv^2), `eps_l2` the ridge ||x||^2 / 2. Give
    those that are not tuned here, and the tuned ones to `at`. `boundary` says what the differences D x are at the edge:
    none ("free"), or those to a pixel that is 0 ("zero").
    """

    def __init__(
        self, y: Any, *, alpha: Given = None, eps_l2: Given = None, eps_tv: Given = None, boundary: Boundary = "free"
    ) -> None:
        self.y = frozen(_pixels(y, "y"))
        fixed = {"alpha": alpha, "eps_l2": eps_l2, "eps_tv": eps_tv}
        super().__init__(self.y.shape, self.y.dtype, boundary=boundary, **fixed)


class SampledFourier(_Image):
    """Fourier coefficients y (unitary transform, zero frequency first) of an image, each with a weight c / (1 - c):
    the image is reconstructed by smoothed total variation.

    Parameters are as for `Denoising`.

    `dtype` is that of the image's pixels: complex, or float for an image that is known to be real.
    """

    def __init__(self, y: Any, *, c: Any = None, dtype: Any = complex, **fixed: Any) -> None:
        self.y = frozen(_pixels(y, "y", np.dtype(complex)))
        super().__init__(self.y.shape, _pixel_type(dtype), **fixed)
        self.operator: Fourier = Fourier(self.shape)
        self.weights = None if c is None else self._weights(c)
        count = math.prod(self.shape)
        self.names = tuple(f"c{i}" for i in range(count))  # the samples in C order, as parameters of their own

    def at(self, *, c: Any = None, **params: Any) -> Composite:
        """The problem at fixed parameters; `c` as an array (or one number for all), or each by name: c0, c1, ..."""
        weights, each = self.weights, {name: params[name] for name in self.names if name in params}
        given = {name: params.get(name) for name in PARAMETERS}
        unknown = set(params) - set(each) - set(given)
        if unknown:
            raise TypeError(f"unknown parameters: {', '.join(sorted(unknown))}")
        if c is not None or each:
            if weights is not None or (c is not None and each):
                raise ValueError("c must be given once: to the constructor, as c=..., or as c0=..., c1=..., ...")
            missing = len(self.names) - len(each)
            if each and missing:
                raise ValueError(f"c must be given for every sample, {missing} of {len(self.names)} are missing")
            weights = self._weights(np.array(list(each.values())).reshape(self.shape) if each else c)
        if weights is None:
            raise ValueError("c must be given, here or to the problem's constructor")
        return self._composite(weights, **given)

    def cross(self, x: Array, **params: Any) -> Any:
        f = self.at(**params).smooth
        assert isinstance(f, Variation) and f.weights is not None
        names = list(params)
        others = [k for k, name in enumerate(names) if name not in ("c", *self.names)]
        samples = [k for k, name in enumerate(names) if name in self.names]
        fixed = np.zeros((self.size, len(names)))
        for k in others:
            fixed[:, k] = f.cross(x, names[k])
        # dw/dc = (1 + w)^2, and sample i contributes A^H e_i w_i (A x - y)_i to the gradient.
        pull = (self.operator.apply(f.pixels(x)) - self.y) * (1.0 + f.weights) ** 2
        if "c" in params:
            fixed[:, names.index("c")] = flat(self._real(self.operator.adjoint(pull)))
        order = [self.names.index(names[k]) for k in samples]
        pulls = pull.reshape(-1)[order]

        def product(V: Array) -> Array:
            data = np.zeros((V.shape[1], pull.size), dtype=complex)
            data[:, order] = V[samples].T * pulls
            images = self._real(self.operator.adjoint(data.reshape(-1, *self.shape)))
            return fixed @ V + np.ascontiguousarray(images).view(np.float64).reshape(len(images), -1).T

        def adjoint(Q: Array) -> Array:
            result = fixed.T @ Q
            data = self.operator.apply(f.pixels(np.ascontiguousarray(Q.T))).reshape(Q.shape[1], -1)
            result[samples] = (np.conj(pulls) * data[:, order]).real.T
            return result

        return matrix_of(product, adjoint, fixed.shape) if samples else fixed

    def _real(self, image: Pixels) -> Pixels:
        """The image, or its real part where pixels are real."""
        return image if self.dtype.kind == "c" else np.ascontiguousarray(image.real)

    def _weights(self, c: Any) -> Array:
        samples = np.asarray(c, dtype=np.float64)
        if samples.shape not in ((), self.shape):
            raise ValueError(f"c must have shape {self.shape}, got {samples.shape}")
        if not ((samples >= 0.0) & (samples < 1.0)).all():
            raise ValueError(f"c must satisfy 0 <= c < 1, got {float(samples.min())!r} to {float(samples.max())!r}")
        samples = np.broadcast_to(samples, self.shape)
        return frozen(samples / (1.0 - samples))


class Reconstruction(_Image):
    """An image x from measurements y = A x + noise by any linear operator A, by smoothed total variation.

    Parameters are as for `Denoising`.

    A is a matrix, dense or sparse, or an operator with shape, dtype, matvec and rmatvec, such as SciPy's and pylops'.
    The image has the shape `shape`, by default A's `dims` if it has some, and complex pixels if A or y is complex,
    unless `dtype` says otherwise. `norm` is an upper bound of ||A||, `least` a lower bound of the least eigenvalue of
    A^H A; without `norm` it is bounded by products with A, about 90 of each kind. `weights` are those of the data, w.
    """

    def __init__(
        self,
        A: Any,
        y: Any,
        *,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        weights: Any = None,
        norm: float | None = None,
        least: float = 0.0,
        **fixed: Any,
    ) -> None:
        data = _pixels(y, "y")
        if not hasattr(A, "shape") or len(A.shape) != 2:
            raise TypeError(f"A must be a matrix or a linear operator, got {type(A).__name__}")
        if shape is None:
            shape = tuple(int(n) for n in getattr(A, "dims", (A.shape[1],)))
        if dtype is None:
            dtype = complex if np.dtype(A.dtype).kind == "c" or data.dtype.kind == "c" else float
        super().__init__(tuple(shape), _pixel_type(dtype), **fixed)
        if data.size != A.shape[0]:
            raise ValueError(f"y must have {A.shape[0]} entries, one per row of A, got {data.size}")
        self.operator = A if isinstance(A, General) else General(A, self.shape, self.dtype, norm=norm, least=least)
        self.y = frozen(data.reshape(-1))
        self.weights = None if weights is None else _weights(weights, data)


def _weights(weights: Any, data: Pixels) -> Array:
    w = np.asarray(weights, dtype=np.float64)
    if w.shape not in ((), data.shape):
        raise ValueError(f"weights must have the shape of y, {data.shape}, got {w.shape}")
    if not (np.isfinite(w).all() and (w >= 0.0).all()):
        raise ValueError("weights must be finite and non-negative")
    return frozen(np.broadcast_to(w, data.shape).reshape(-1).copy())


def _pixel_type(dtype: Any) -> Any:
    kind = np.dtype(dtype).kind
    if kind not in "fc":
        raise TypeError(f"dtype must be float or complex, got {dtype!r}")
    return np.dtype(np.complex128 if kind == "c" else np.float64)


def _pixels(value: Any, name: str, dtype: Any = None) -> Pixels:
    """`value` as a fresh contiguous array of finite float64 or complex128, or an error that names it."""
    array = np.asarray(value)
    if array.dtype.kind not in "buifc":
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}")
    wanted = np.dtype(np.complex128 if array.dtype.kind == "c" else np.float64) if dtype is None else np.dtype(dtype)
    if array.dtype.kind == "c" and wanted.kind != "c":
        raise TypeError(f"{name} must be real, got complex numbers")
    pixels: Pixels = np.array(array, dtype=wanted, order="C")
    if not np.isfinite(pixels).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    return pixels
