"""Least-squares problems of any number m of parameters: residual functions and their customary starts.

Sources: More, Garbow and Hillstrom, "Testing unconstrained optimization software", ACM TOMS 7 (1981) (MGH); Luksan and
Vlcek, "Sparse and partially separable test problems", report 767, Prague (1999) (LV), where F is a sum of squares its
terms are the residuals; Li, "Successive column correction algorithms for solving sparse nonlinear systems of
equations", Math. Prog. 43 (1989); Toint, "Numerical solution of large sets of algebraic nonlinear equations", Math.
Comp. 46 (1986).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Residuals = Callable[[Vector], Vector]


@dataclass(frozen=True)
class Problem:
    name: str
    residuals: Residuals
    start: Vector
    sparse: bool  # whether a residual depends on a few parameters only


def _chain(x: Vector, width: int, stride: int) -> tuple[Vector, ...]:
    """The windows x_i, ..., x_{i+width-1} for i = 1, 1 + stride, ..., as `width` vectors."""
    last = len(x) - width + 1
    return tuple(x[j : last + j : stride] for j in range(width))


def _cycle(values: list[float], m: int) -> Vector:
    return np.resize(np.array(values), m)


def separable_cubes(x: Vector) -> Vector:
    """x_i^3 - a_i with a_i from 0.5 to 3."""
    return x**3 - np.linspace(0.5, 3.0, len(x))


def shifted_cubes(x: Vector) -> Vector:
    """(x_i - a_i)^3 with a_i from -1 to 1: the Jacobian vanishes at the solution."""
    return (x - np.linspace(-1.0, 1.0, len(x))) ** 3


def rosenbrock(x: Vector, stride: int) -> Vector:
    a, b = _chain(x, 2, stride)
    return np.concatenate([10.0 * (b - a**2), 1.0 - a])


def powell_singular(x: Vector, stride: int) -> Vector:
    a, b, c, d = _chain(x, 4, stride)
    return np.concatenate([a + 10 * b, np.sqrt(5.0) * (c - d), (b - 2 * c) ** 2, np.sqrt(10.0) * (a - d) ** 2])


def wood(x: Vector, stride: int) -> Vector:
    a, b, c, d = _chain(x, 4, stride)
    third, fourth = np.sqrt(90.0) * (d - c**2), 1.0 - c
    fifth, sixth = np.sqrt(10.0) * (b + d - 2.0), (b - d) / np.sqrt(10.0)
    return np.concatenate([10.0 * (b - a**2), 1.0 - a, third, fourth, fifth, sixth])


def cragg_levy(x: Vector) -> Vector:
    a, b, c, d = _chain(x, 4, 2)
    return np.concatenate([(np.exp(a) - b) ** 2, 10.0 * (b - c) ** 3, np.tan(c - d) ** 2, a**4, d - 1.0])


def freudenstein_roth(x: Vector, stride: int) -> Vector:
    a, b = _chain(x, 2, stride)
    return np.concatenate([a + b * ((5.0 - b) * b - 2.0) - 13.0, a + b * ((1.0 + b) * b - 14.0) - 29.0])


def beale(x: Vector) -> Vector:
    a, b = _chain(x, 2, 2)
    return np.concatenate([1.5 - a * (1 - b), 2.25 - a * (1 - b**2), 2.625 - a * (1 - b**3)])


def _neighbours(x: Vector) -> tuple[Vector, Vector]:
    """x_{i-1} and x_{i+1} with x_0 = x_{m+1} = 0."""
    padded = np.concatenate([[0.0], x, [0.0]])
    return padded[:-2], padded[2:]


def broyden_tridiagonal(x: Vector) -> Vector:
    before, after = _neighbours(x)
    return (3.0 - 2.0 * x) * x - before - 2.0 * after + 1.0


def broyden_banded(x: Vector) -> Vector:
    m = len(x)
    own = x * (2.0 + 5.0 * x**2) + 1.0
    term = x * (1.0 + x)
    return np.array([own[i] - term[max(0, i - 5) : min(m, i + 2)].sum() + term[i] for i in range(m)])


def discrete_boundary_value(x: Vector) -> Vector:
    before, after = _neighbours(x)
    h = 1.0 / (len(x) + 1)
    t = h * np.arange(1, len(x) + 1)
    return 2.0 * x - before - after + 0.5 * h**2 * (x + t + 1.0) ** 3


def tridiagonal_system(x: Vector) -> Vector:
    r = np.empty_like(x)
    r[0] = 4.0 * (x[0] - x[1] ** 2)
    r[1:] = 8.0 * x[1:] * (x[1:] ** 2 - x[:-1]) - 2.0 * (1.0 - x[1:])
    r[1:-1] += 4.0 * (x[1:-1] - x[2:] ** 2)
    return r


def trigexp(x: Vector) -> Vector:
    r = np.zeros_like(x)
    a, b = x[:-1], x[1:]
    r[:-1] += 3.0 * a**3 + 2.0 * b - 5.0 + np.sin(a - b) * np.sin(a + b)
    r[1:] += 4.0 * b - a * np.exp(a - b) - 3.0
    return r


def countercurrent_reactors(x: Vector) -> Vector:
    alpha = 0.5
    before = np.concatenate([[1.0, 0.0], x[:-2]])
    after = np.concatenate([x[2:], [0.0, 1.0]])
    partner = x.reshape(-1, 2)[:, ::-1].ravel()
    weight = np.where(np.arange(len(x)) % 2, 2.0 - alpha, 1.0 - alpha)
    return alpha * before - weight * after - x * (1.0 + 4.0 * partner)


def poisson(x: Vector) -> Vector:
    """-Laplace(v) + v^3 + 1 = sin-shaped load on a square, five-point differences."""
    side = round(len(x) ** 0.5)
    v = np.zeros((side + 2, side + 2))
    v[1:-1, 1:-1] = x.reshape(side, side)
    t = np.arange(1, side + 1) / (side + 1)
    load = 1.0 + 4.0 * np.outer(np.sin(np.pi * t), np.sin(2.0 * np.pi * t))
    own = v[1:-1, 1:-1]
    r = 4.0 * own - v[:-2, 1:-1] - v[2:, 1:-1] - v[1:-1, :-2] - v[1:-1, 2:] + 0.2 * own**3 - load
    return np.asarray(r.ravel())


def variably_dimensioned(x: Vector) -> Vector:
    s = np.arange(1, len(x) + 1) @ (x - 1.0)
    return np.concatenate([x - 1.0, [s, s**2]])


def penalty_1(x: Vector) -> Vector:
    return np.concatenate([np.sqrt(1e-5) * (x - 1.0), [x @ x - 0.25]])


def penalty_2(x: Vector) -> Vector:
    m, root = len(x), np.sqrt(1e-5)
    i = np.arange(1, m + 1)
    y = np.exp(i[1:] / 10.0) + np.exp(i[:-1] / 10.0)
    second = root * (np.exp(x[1:] / 10.0) + np.exp(x[:-1] / 10.0) - y)
    third = root * (np.exp(x[1:] / 10.0) - np.exp(-0.1))
    return np.concatenate([[x[0] - 0.2], second, third, [np.arange(m, 0, -1) @ x**2 - 1.0]])


def trigonometric(x: Vector) -> Vector:
    i = np.arange(1, len(x) + 1)
    return len(x) - np.cos(x).sum() + i * (1.0 - np.cos(x)) - np.sin(x)


def discrete_integral_equation(x: Vector) -> Vector:
    h = 1.0 / (len(x) + 1)
    t = h * np.arange(1, len(x) + 1)
    cube = (x + t + 1.0) ** 3
    low = np.cumsum(t * cube)
    high = np.cumsum(((1.0 - t) * cube)[::-1])[::-1] - (1.0 - t) * cube
    return x + 0.5 * h * ((1.0 - t) * low + t * high)


def brown_almost_linear(x: Vector) -> Vector:
    r = x + x.sum() - (len(x) + 1.0)
    r[-1] = np.prod(x) - 1.0
    return r


def linear_full_rank(x: Vector) -> Vector:
    m = len(x)
    return np.concatenate([x, np.zeros(m)]) - x.sum() / m - 1.0


def saturated_regression(x: Vector) -> Vector:
    """tanh of a random dense 2m x m system, with targets that no x meets."""
    rng = np.random.default_rng(len(x))
    A = rng.standard_normal((2 * len(x), len(x))) / np.sqrt(len(x))
    true, noise = rng.standard_normal(len(x)), 0.1 * rng.standard_normal(2 * len(x))
    return np.tanh(A @ x) - np.tanh(A @ true) + noise


def _pulse(m: int) -> Vector:
    t = np.arange(1, m + 1) / (m + 1)
    return t * (t - 1.0)


def _wood_start(m: int) -> Vector:
    start = _cycle([-2.0, 0.0], m)
    start[:4] = -3.0, -1.0, -3.0, -1.0
    return start


def _powell_start(m: int) -> Vector:
    return _cycle([3.0, -1.0, 0.0, 1.0], m)


def problems(sizes: tuple[int, ...] = (52, 100, 196)) -> list[Problem]:
    """All problems; the sizes go round. Divisible by 4, and the square of an even number where a grid is needed."""
    small, middle, large = sizes
    found: list[tuple[str, Residuals, Callable[[int], Vector], tuple[int, ...], bool]] = [
        ("separable cubes", separable_cubes, np.ones, (middle, 200), True),
        ("shifted cubes", shifted_cubes, lambda m: np.full(m, 2.0), (middle, 200), True),
        ("extended Rosenbrock", lambda x: rosenbrock(x, 2), lambda m: _cycle([-1.2, 1.0], m), (small, large), True),
        ("chained Rosenbrock", lambda x: rosenbrock(x, 1), lambda m: _cycle([-1.2, 1.0], m), (middle,), True),
        ("extended Powell singular", lambda x: powell_singular(x, 4), _powell_start, (middle,), True),
        ("chained Powell singular", lambda x: powell_singular(x, 2), _powell_start, (small,), True),
        ("extended Wood", lambda x: wood(x, 4), lambda m: _cycle([-3, -1, -3, -1], m), (small,), True),
        ("chained Wood", lambda x: wood(x, 2), _wood_start, (middle,), True),
        ("chained Cragg-Levy", cragg_levy, lambda m: np.concatenate([[1.0], np.full(m - 1, 2.0)]), (small,), True),
        ("extended Freudenstein-Roth", lambda x: freudenstein_roth(x, 2),
         lambda m: _cycle([0.5, -2.0], m), (middle,), True),
        ("chained Freudenstein-Roth", lambda x: freudenstein_roth(x, 1), lambda m: np.full(m, -0.5), (small,), True),
        ("extended Beale", beale, np.ones, (middle,), True),
        ("Broyden tridiagonal", broyden_tridiagonal, lambda m: -np.ones(m), (small, large), True),
        ("Broyden banded", broyden_banded, lambda m: -np.ones(m), (middle,), True),
        ("discrete boundary value", discrete_boundary_value, _pulse, (middle,), True),
        ("tridiagonal system", tridiagonal_system, lambda m: np.full(m, 12.0), (small,), True),
        ("trigexp", trigexp, np.zeros, (middle,), True),
        ("countercurrent reactors", countercurrent_reactors,
         lambda m: _cycle([0.1, 0.2, 0.3, 0.4, 0.5, 0.4, 0.3, 0.2], m), (small,), True),
        ("Poisson", poisson, np.zeros, (middle,), True),
        ("variably dimensioned", variably_dimensioned, lambda m: 1.0 - np.arange(1, m + 1) / m, (small,), False),
        ("penalty I", penalty_1, lambda m: np.arange(1.0, m + 1), (small,), False),
        ("penalty II", penalty_2, lambda m: np.full(m, 0.5), (small,), False),
        ("trigonometric", trigonometric, lambda m: np.full(m, 1.0 / m), (small, middle), False),
        ("discrete integral equation", discrete_integral_equation, _pulse, (middle,), False),
        ("Brown almost linear", brown_almost_linear, lambda m: np.full(m, 0.5), (small,), False),
        ("linear, full rank", linear_full_rank, np.ones, (middle,), False),
        ("saturated regression", saturated_regression, np.zeros, (small, middle), False),
    ]  # fmt: skip
    return [
        Problem(f"{name}, m = {m}", residuals, np.asarray(start(m), dtype=np.float64), sparse)
        for name, residuals, start, chosen, sparse in found
        for m in chosen
    ]
