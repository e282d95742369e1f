r"""Smoothed total variation around linear measurements of an image:

    f(x) = 1/2 ||A x - y||_w^2 + alpha sum_i sqrt(|(D x)_i|^2 + eps_tv^2) + (eps_l2/2) ||x||^2.

x is an image of one or two dimensions, real or complex; solvers see it as a flat real vector, in which a complex pixel
is two neighbouring entries, and all norms are those of that vector. (D x)_i holds the differences of pixel i to the
pixel before it along every axis (isotropic); at the edge there is no difference ("free"), or one to a pixel that is 0
("zero"). With phi(d) = sqrt(|d|^2 + eps_tv^2), eta_i = phi((D x)_i):

- Each row of D has two entries of size 1 per axis, and each pixel is in two differences per axis, so that ||D||^2 <= 4
  per axis, and 0 <= phi'' <= 1/eps_tv. Hence

      L = ||A||_w^2 + 4 alpha (number of axes) / eps_tv + eps_l2,    mu = lambda_min(A^H w A) + eps_l2.

- phi is concave as a function of |d|^2, so that phi(d') <= phi(d) + phi'(d).(d' - d) + |d' - d|^2 / (2 phi(d)) for all
  d' and d. That is what `majoriser` uses: where the image is not flat the curvature is far below 1/eps_tv.

Rounding, with u = eps/2. Pixels are exact, so differences have a relative error u, eta_i at most 4.5 u, and the
components of alpha D x / eta at most 8 u (two axes, complex). They are at most alpha in size and D^T adds up to four of
them, that makes 11 u alpha ||D|| sqrt(number of pixels); D^T (D x / eta) is also at most ||D||^2 ||x|| / eps_tv. The
other terms are sums of three and contribute their sizes times u each. A product with A errs by at most `rounding` ||A||
times the size of what it is applied to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.imaging.measurement import Measurement, Pixels
from suffice.lazy import cached_property
from suffice.models.smooth import Made

Boundary = Literal["free", "zero"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
NO_IMAGE: Array = np.empty(0)


def flat(image: Pixels) -> Array:
    """The image as a real vector: a view where that is possible."""
    return np.ascontiguousarray(image).view(np.float64).reshape(-1)


def as_rows(images: Pixels) -> Array:
    """Several images, each as a real vector."""
    return np.ascontiguousarray(images).view(np.float64).reshape(len(images), -1)


def inner(d: Pixels, e: Pixels) -> Array:
    """d . e at every pixel."""
    return np.sum((np.conj(d) * e).real, axis=0)


def squares(d: Pixels) -> Array:
    """|d|^2, entry by entry."""
    return d.real**2 + d.imag**2 if d.dtype.kind == "c" else d * d


def differences(x: Pixels, axes: int, boundary: str) -> Pixels:
    """D x for the last `axes` axes of x, stacked along a new first axis."""
    d = np.empty((axes, *x.shape), x.dtype)
    for k in range(axes):
        here, pixels = np.moveaxis(d[k], k - axes, 0), np.moveaxis(x, k - axes, 0)
        np.subtract(pixels[1:], pixels[:-1], out=here[1:])
        here[0] = pixels[0] if boundary == "zero" else 0.0
    return d


def adjoint_differences(p: Pixels, boundary: str) -> Pixels:
    """D^T p."""
    axes = len(p)
    x: Pixels = p[0].copy() if axes == 1 else p[0] + p[1]
    for k in range(axes):
        here, pixels = np.moveaxis(p[k], k - axes, 0), np.moveaxis(x, k - axes, 0)
        pixels[:-1] -= here[1:]
        if boundary == "free":
            pixels[0] -= here[0]  # the first difference does not exist, whatever p says there
    return x


@dataclass(frozen=True, eq=False)
class Variation(Made):
    """f(x) = 1/2 ||A x - y||_w^2 + alpha sum_i sqrt(|(D x)_i|^2 + eps_tv^2) + (eps_l2/2) ||x||^2, D x the
    differences of neighbouring pixels.

    y has the format of A's images; A = 1 without `operator`, and w = 1 without `weights`.
    """

    y: Pixels
    shape: tuple[int, ...]
    dtype: Any
    alpha: float
    eps_tv: float
    eps_l2: float
    operator: Measurement | None = None
    weights: Array | None = None
    boundary: Boundary = "free"

    @property
    def axes(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of real unknowns."""
        return math.prod(self.shape) * (2 if np.dtype(self.dtype).kind == "c" else 1)

    @property
    def spread(self) -> float:
        """||D||, at most."""
        return 2.0 * math.sqrt(self.axes)

    @property
    def mu(self) -> float:
        """A lower bound of the strong convexity."""
        least = 1.0 if self.operator is None else self.operator.least
        lightest = 1.0 if self.weights is None else float(self.weights.min())
        return (least * lightest + self.eps_l2) * (1.0 - 4.0 * EPS)

    @property
    def L(self) -> float:  # noqa: N802 (the symbol)
        """An upper bound of the Lipschitz constant of the gradient."""
        return (self._data_curvature + 4.0 * self.axes * self.alpha / self.eps_tv + self.eps_l2) * (1.0 + 8.0 * EPS)

    @cached_property
    def _data_curvature(self) -> float:
        heaviest = 1.0 if self.weights is None else float(self.weights.max())
        return heaviest if self.operator is None else heaviest * self.operator.squared_norm

    @cached_property
    def _size_of_data(self) -> float:
        return norm(flat(self.y))

    def pixels(self, x: Array) -> Pixels:
        """The flat vector(s) x as image(s)."""
        return x.view(self.dtype).reshape(*x.shape[:-1], *self.shape)

    def value(self, x: Array) -> float:
        X = self.pixels(x)
        misfit = squares(X - self.y if self.operator is None else self.operator.apply(X) - self.y)
        fidelity = 0.5 * float(np.sum(misfit if self.weights is None else self.weights * misfit))
        variation = float(np.sum(self.slopes(X)[1]))
        return fidelity + self.alpha * variation + 0.5 * self.eps_l2 * float(x @ x)

    def gradient(self, x: Array) -> Array:
        return self.gradient_at(x, NO_IMAGE)

    def image(self, x: Array) -> Array:
        # One product with A per step is needed in any case: for the gradient, at the very point it belongs to.
        return NO_IMAGE

    def value_at(self, x: Array, image: Array) -> float:
        return self.value(x)

    def slopes(self, X: Pixels) -> tuple[Pixels, Array]:
        """D x and eta."""
        d = differences(X, self.axes, self.boundary)
        eta = squares(d[0])
        for k in range(1, self.axes):
            eta += squares(d[k])
        eta += self.eps_tv * self.eps_tv
        return d, np.sqrt(eta, out=eta)

    def gradient_at(self, x: Array, image: Array) -> Array:
        X = self.pixels(x)
        d, eta = self.slopes(X)
        d *= np.divide(self.alpha, eta, out=eta)
        gradient = adjoint_differences(d, self.boundary)
        gradient += self._pulled(X if self.operator is None else self.operator.apply(X), self.y)
        gradient += self.eps_l2 * X
        return flat(gradient)

    def _pulled(self, measured: Pixels, y: Pixels | float = 0.0) -> Pixels:
        """A^H w (A x - y) from A x."""
        misfit = measured - y
        if self.weights is not None:
            misfit *= self.weights
        pulled = misfit if self.operator is None else self.operator.adjoint(misfit)
        return pulled if np.dtype(self.dtype).kind == "c" or pulled.dtype.kind != "c" else pulled.real

    def cross(self, x: Array, name: str) -> Array:
        """d grad f(x) / d alpha, eps_tv or eps_l2."""
        if name == "eps_l2":
            return x
        d, eta = self.slopes(self.pixels(x))
        d = d / eta if name == "alpha" else d * (-self.alpha * self.eps_tv / eta**3)
        return flat(adjoint_differences(d, self.boundary))

    def variation_product(self, d: Pixels, eta: Array, w: Pixels) -> Callable[[Pixels], Pixels]:
        """Images e -> alpha D^T diag((1 - (w d^T + d w^T) / (2 eta)) / eta) D e."""

        def product(images: Pixels) -> Pixels:
            e = differences(images, self.axes, self.boundary)
            turned = inner(w[:, None], e) * d[:, None] + inner(d[:, None], e) * w[:, None]
            return adjoint_differences((e - turned / (2.0 * eta)) * (self.alpha / eta), self.boundary)

        return product

    def hessian_at(self, x: Array) -> Callable[[Array], Array]:
        """V -> the Hessian at x times the columns of V, by products with A and D."""
        d, eta = self.slopes(self.pixels(x))
        bend = self.variation_product(d, eta, d / eta)

        def product(V: Array) -> Array:
            images = self.pixels(np.ascontiguousarray(V.T))
            return as_rows(bend(images) + self._of_data(images) + self.eps_l2 * images).T

        return product

    def _of_data(self, images: Pixels) -> Pixels:
        return self._pulled(images if self.operator is None else self.operator.apply(images))

    def hessian_diagonal(self, x: Array) -> Array:
        """Roughly that of the Hessian at x: A^H w A counts as if all its diagonal were the same."""
        d, eta = self.slopes(self.pixels(x))
        here = np.zeros(self.shape)
        for k in range(self.axes):
            bends = np.moveaxis((1.0 - squares(d[k]) / (eta * eta)) * (self.alpha / eta), k, 0)
            pixels = np.moveaxis(here, k, 0)
            pixels[:-1] += bends[1:]
            pixels[(1 if self.boundary == "free" else 0) :] += bends[(1 if self.boundary == "free" else 0) :]
        mean = 1.0 if self.weights is None else float(self.weights.mean())
        mean *= 1.0 if self.operator is None else self.operator.squared_norm
        return np.repeat((here + mean + self.eps_l2).ravel(), self.size // math.prod(self.shape))

    @cached_property
    def gram(self) -> Array:
        """A^H w A as a matrix on the flat real vector, for small images."""
        return as_rows(self._of_data(self.pixels(np.eye(self.size))))

    @property
    def rounding_is_known(self) -> bool:
        return self.operator is None or self.operator.rounding_is_known

    def gradient_rounding(self, x: Array, image: Array) -> float:
        size = norm(x)
        slopes = self.spread * min(math.sqrt(math.prod(self.shape)), self.spread * size / self.eps_tv)
        product = 0.0 if self.operator is None else 2.0 * self.operator.rounding
        data = 1.0 if self.operator is None else math.sqrt(self.operator.squared_norm)
        heaviest = 1.0 if self.weights is None else float(self.weights.max())
        fidelity = (product + 4.0 * EPS) * heaviest * data * (data * size + self._size_of_data)
        return 8.0 * EPS * self.alpha * slopes + fidelity + 4.0 * EPS * self.eps_l2 * size

    def majoriser(self, z: Array, z_image: Array, x: Array, x_image: Array) -> float:
        moved = norm(x - z)
        if moved < 1e-150:  # its square is no longer a number to divide by
            return self.L
        eta = self.slopes(self.pixels(z))[1]
        change = differences(self.pixels(x - z), self.axes, self.boundary)
        steep = sum(float(np.vdot(squares(change[k]), 1.0 / eta)) for k in range(self.axes))
        return self._data_curvature + self.alpha * steep / moved**2 + self.eps_l2
