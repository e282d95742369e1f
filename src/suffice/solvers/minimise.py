r"""The minimiser of a Newton step's model,  q(v) = <g, v - w> + 1/2 (v - w)^T H (v - w) + penalty(v).

With an l1 penalty an H that has a factor minimises q by ADMM, one solve with H + R, R = 0.3 diag(H), per iteration:

    s = (H + R)^-1 (b + R v - y),   s' = 1.6 s - 0.6 v,   v = soft(s' + y/R, l1/R),   y = R (s' + y/R - v),

b = H w - g. One that has products only, and other penalties, take FISTA, restarted where it turns back, in the metric
of M diag(H) (for groups: of M); M is the largest curvature that it has met. Either finds within a few iterations the
signs of the minimiser, or which variables are at a kink or at a bound.

With the signs known the minimiser is one linear system, for the step v - w, so that nothing cancels: by a factor of H,
or by conjugate gradients. Where signs do not settle, as those of nearly collinear columns, q is minimised along the way
to the minimiser with the signs at hand, and so on from face to face: fewer zeros leave at a time after a way that was
cut short, so that what remains is an active-set method, which ends. For other penalties, which may bend where they are
smooth, it is Newton's method on the variables that are free; those that reach a kink or a bound stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from suffice.arrays import EPS, Array, norm
from suffice.penalties.prox import Lasso, Mask, Separable, Structured, l1_least_subgradient, soft
from suffice.solvers.fista import momentum
from suffice.solvers.quadratic import Matrix, Quadratic

MODEL_TOLERANCE = 0.2  # by which a minimiser of q shortens its least subgradient;
GOOD, EXACT = 0.1, 1e-3  # with other penalties, before it is found where they are smooth, and after
ADMM_ITERATIONS, ITERATIONS = 100, 500  # the latter of FISTA,
SMOOTH, STILL = 30, 1e-8  # and of Newton's method on the variables that are free: its next step would be the square
FACES = 20
WHOLE = 1.0 - 1e-6  # of the way to the least q with given signs
CHECK_EVERY = 5


def minimise_model(H: Quadratic, gradient: Array, w: Array, g: Structured) -> Array:
    """v with q(v) less than q(w), near the minimiser of q; g is the penalty on these variables."""
    if not isinstance(g, Lasso):
        return _structured(H, gradient, w, g)
    l1 = g.l1
    if not np.any(l1):
        return w - H.solver()(gradient)
    noise = 8.0 * EPS * norm(np.abs(gradient) + l1)  # what rounding leaves of any subgradient
    goal = max(MODEL_TOLERANCE * norm(l1_least_subgradient(l1, w, gradient)), noise)
    settled = np.count_nonzero(w) > 0.8 * len(w)
    v = _with_signs_of(w, gradient, H, gradient, w, l1, goal) if settled else None
    v = _sought(H, gradient, w, g, goal) if v is None else v
    if v is None:
        M = float(H.diagonal.sum())
        v = soft(w - gradient / M, l1 / M)
    return v


def _sought(H: Quadratic, gradient: Array, w: Array, g: Lasso, goal: float) -> Array | None:
    v, signs, l1 = w, np.sign(w), g.l1
    for iteration, v in enumerate((_admm(H, gradient, w, l1) if H.direct else fista_on(H, gradient, w, g)), 1):
        if iteration % CHECK_EVERY == 0:
            before, signs, at_v = signs, np.sign(v), gradient + H.product(v - w)
            near = norm(l1_least_subgradient(l1, v, at_v)) <= goal
            if near or np.array_equal(signs, before):
                exact = _with_signs_of(v, at_v, H, gradient, w, l1, goal)
                if exact is not None:
                    return exact
                if near:
                    return v
    v = from_face_to_face(v, H, gradient, w, l1, goal)
    step = v - w
    change = float(gradient @ step) + 0.5 * float(step @ H.product(step)) + g.change(w, v)
    return v if change < 0.0 else None


def _structured(H: Quadratic, gradient: Array, w: Array, g: Structured) -> Array:
    """`minimise_model` for a penalty that may bend, and has bounds."""
    start = norm(g.least_subgradient(w, gradient))
    goal = EXACT * start

    def left(v: Array) -> float:
        return norm(g.least_subgradient(v, gradient + H.product(v - w)))

    exact = _where_smooth(H, gradient, w, w, g)
    if left(exact) <= goal:
        return exact
    v = w
    for iteration, v in enumerate(fista_on(H, gradient, w, g), 1):
        if iteration % CHECK_EVERY == 0:
            near = left(v)
            if near <= goal:
                break
            if near <= GOOD * start or iteration % (10 * CHECK_EVERY) == 0:
                exact = _where_smooth(H, gradient, w, v, g)
                if left(exact) <= goal:
                    return exact
    return v


def _where_smooth(H: Quadratic, gradient: Array, w: Array, v: Array, g: Structured) -> Array:
    """Newton's method on q from v, on the variables that are not at a kink or a bound; those that reach one stay."""
    for _ in range(SMOOTH):
        free = np.flatnonzero(~g.fixed(v))
        if len(free) == 0:
            return v
        slope, bend = g.smooth_part(v, free)
        part = H.on(free)
        if bend is not None:
            assert isinstance(part, Matrix)
            part = Matrix(part.H + bend)
        wanted = v.copy()
        wanted[free] -= part.solver()((gradient + H.product(v - w))[free] + slope)
        moved = g.prox(wanted, 0.0)  # back within bounds
        moved = np.where(moved * v < 0.0, 0.0, moved)
        ended = (bend is None and np.array_equal(moved, wanted)) or norm(moved - v) <= STILL * norm(v)
        v = moved
        if ended:
            break
    return v


def from_face_to_face(v: Array, H: Quadratic, gradient: Array, w: Array, l1: float | Array, goal: float) -> Array:
    """On from v to where q is least on the way to its minimiser among points with the signs of v; where that is
    reached, zeros that want to leave do, and so on, as long as q's least subgradient is longer than `goal`.

    Where columns are nearly collinear, zeros that leave together push each other across zero: fewer leave after a way
    that was cut short, one at a time in the end, which q's decrease makes a finite search."""
    at_v, leaving, free_zeros, least_on_face = gradient + H.product(v - w), len(v), True, False
    for _ in range(FACES + 4 * len(v) if H.direct else FACES):
        least = l1_least_subgradient(l1, v, at_v)
        if norm(least) <= goal:
            break
        signs = np.sign(v)
        free_zeros = free_zeros or not signs.any()
        if free_zeros:
            pull = np.where(v == 0.0, np.abs(least), 0.0)
            first = np.argsort(-pull, kind="stable")[: min(leaving, np.count_nonzero(pull))]
            signs[first] = -np.sign(least[first])
        free = np.flatnonzero(signs)
        step = np.zeros_like(v)
        step[free] = -H.on(free).solver()((at_v + l1 * signs)[free])
        bent = H.product(step)
        t, crossed = _least_along(v, step, float(at_v @ step), float(step @ bent), l1)
        if t == 0.0:  # too many have left, or from a point that is not the least of its face
            if free_zeros and leaving == 1 and least_on_face:
                break
            least_on_face = free_zeros = least_on_face or not free_zeros
            leaving = 1
            continue
        least_on_face = free_zeros = t >= WHOLE and not crossed.any()
        leaving = 2 * leaving if least_on_face else max(leaving // 4, 1)
        v, at_v = np.where(crossed, 0.0, v + t * step), at_v + t * bent
    return v


def _least_along(v: Array, step: Array, slope: float, bend: float, l1: float | Array) -> tuple[float, Mask]:
    """t >= 0 that minimises  t slope + t^2/2 bend + sum_i l1_i |v_i + t step_i|, and which entries reach 0 there."""
    sizes = l1 * np.abs(step)
    slope += float(np.sum(np.where(v * step < 0.0, -sizes, sizes)))
    changing = np.flatnonzero(v * step < 0.0)
    at = -v[changing] / step[changing]
    none = np.zeros(len(v), dtype=np.bool_)
    for k in np.argsort(at):
        if slope + bend * at[k] >= 0.0:
            break
        slope += 2.0 * sizes[changing[k]]  # the derivative jumps where an entry changes its sign
        if slope + bend * at[k] >= 0.0:
            none[changing[at == at[k]]] = True
            return float(at[k]), none
    return max(-slope / bend, 0.0) if bend > 0.0 else 0.0, none


def _admm(H: Quadratic, gradient: Array, w: Array, l1: float | Array) -> Iterator[Array]:
    b, R = H.product(w) - gradient, 0.3 * H.diagonal
    solve, threshold = H.solver(R), l1 / R
    v, y = w, np.clip(-gradient, -l1, l1)
    for _ in range(ADMM_ITERATIONS):
        v, y = admm_step(v, y, b, R, threshold, solve)
        yield v


def admm_step(v: Any, y: Any, b: Any, R: Any, threshold: Any, solve: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The next v and y of the module's text, of arrays of any kind."""
    s = 1.6 * solve(b + R * v - y) - 0.6 * v + y / R
    v = soft(s, threshold)
    return v, R * (s - v)


def fista_on(H: Quadratic, gradient: Array, w: Array, g: Structured) -> Iterator[Array]:
    """FISTA of the module's text."""
    D: Array | float = H.diagonal
    D, M, t = D if isinstance(g, Separable) else float(np.mean(D)), 1.0, 1.0
    v, before, at_v, at_before = w, w, gradient, gradient  # at_v is the gradient of q's smooth part at v
    for _ in range(ITERATIONS):
        t_next, beta = momentum(t)
        z, at_z = v + beta * (v - before), at_v + beta * (at_v - at_before)
        while True:
            new = g.prox(z - at_z / (M * D), 1.0 / (M * D))  # type: ignore[arg-type]
            step = new - z
            bent, size = H.product(step), float(step @ (D * step))
            if not float(step @ bent) > 1.000001 * M * size:
                break
            M = 1.1 * float(step @ bent) / size
        turned = float((z - new) @ (D * (new - v))) > 0.0
        v, before, at_v, at_before = new, v, at_z + bent, at_v
        t = 1.0 if turned else t_next
        yield v


def _with_signs_of(
    v: Array, at_v: Array, H: Quadratic, gradient: Array, w: Array, l1: float | Array, goal: float
) -> Array | None:
    """The minimiser of q among points with the signs of v, if it has them and is as good as wanted."""
    signs = np.where(v != 0.0, np.sign(v), -np.sign(l1_least_subgradient(l1, v, at_v)))
    free = np.flatnonzero(signs)
    if free.size == 0:
        return None
    start = np.where(signs != 0.0, w, 0.0)
    left = gradient + (H.product(start - w) if not np.array_equal(start, w) else 0.0) + l1 * signs
    exact = start
    exact[free] -= H.on(free).solver()(left[free])
    if (exact * signs < 0.0).any():
        return None
    return exact if norm(l1_least_subgradient(l1, exact, gradient + H.product(exact - w))) <= goal else None
