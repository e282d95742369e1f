r"""A lower-level problem from one function f(w, **params), differentiated by torch or JAX.

    smooth(fun)              f as a function of w and named parameters p
    smooth(fun).at(**p)      f at fixed parameters: value, gradient, hess f(w) v, and the cross derivatives
    smooth(fun).problem(...) with mu and L a certified lower-level problem for `suffice.BilevelProblem`, which can be
                             differentiated: K = d grad f / d p of `suffice.solvers.sensitivity`

Derivatives are the library's: grad f by one pass backwards; hess f(w) v as the derivative of <grad f(w), v>; K^T q as
that of <grad f(w; p), q> in p, and K v as that of <df/dp, v> in w. Nothing is known about the rounding of a function
that anybody may write: certificates assume that its gradient is backward stable, as for any smooth term of a user's own
(`suffice.models.smooth`). mu and L are the user's word.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal, get_args

import numpy as np

from suffice.arrays import Array, host, whole_number
from suffice.penalties.prox import Prox, Zero
from suffice.solvers.problem import Composite
from suffice.solvers.sensitivity import matrix_of

Backend = Literal["torch", "jax"]
Constant = float | Callable[[Mapping[str, float]], float]

__all__ = ["Function", "Problem", "Term", "smooth"]


def smooth(
    fun: Callable[..., Any], backend: Backend = "torch", *, arrays: Mapping[str, tuple[int, ...]] | None = None
) -> Function:
    """f(w, **params) as a smooth term: `fun` takes a vector w and named parameters, all in float64 and arrays of the
    backend, and returns a number of the backend's, made by operations that it can differentiate twice.

    `arrays` gives the shapes of parameters that are arrays: `arrays={"filters": (4, 3, 3)}` makes 36 parameters
    filters0, filters1, ... (`names("filters")`), which reach `fun` as one array. JAX compiles `fun`, which must not
    decide anything by values of w or of parameters.
    """
    return Function(fun, backend, dict(arrays or {}))


class Function:
    """f(w, **params); made by `smooth`."""

    def __init__(self, fun: Callable[..., Any], backend: str, arrays: Mapping[str, tuple[int, ...]]) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        if backend not in get_args(Backend):
            raise ValueError(f"backend must be one of {', '.join(get_args(Backend))}, got {backend!r}")
        self.fun, self.backend = fun, backend
        self.arrays = {name: tuple(whole_number(n, name, least=1) for n in shape) for name, shape in arrays.items()}
        self._owner = {own: name for name in self.arrays for own in self.names(name)}
        self._kernels: dict[tuple[str, ...], Kernel] = {}

    def names(self, array: str) -> tuple[str, ...]:
        """The parameters that make up an array, for `suffice.Space`."""
        return tuple(f"{array}{i}" for i in range(math.prod(self.arrays[array])))

    def at(self, **params: float) -> Term:
        """f at fixed parameters."""
        for name in self.arrays:
            missing = [own for own in self.names(name) if own not in params]
            if missing:
                raise ValueError(f"{name} has {len(self.names(name))} entries, {missing[0]} is missing")
        return Term(self, {name: float(value) for name, value in params.items()})

    def problem(self, size: int, *, mu: Constant, L: Constant, prox: Prox | None = None) -> Problem:
        """f (+ `prox`) as a lower-level problem in `size` weights. f is mu-strongly convex, and its gradient has the
        Lipschitz constant L: numbers, or functions of the parameters by name. Certificates rest on them."""
        return Problem(self, whole_number(size, "size", least=1), mu, L, Zero() if prox is None else prox)

    def kernel(self, names: tuple[str, ...]) -> Kernel:
        """f of w and of these parameters as one vector, made once."""
        if names not in self._kernels:
            own = {name: np.array([names.index(one) for one in self.names(name)]) for name in self.arrays}
            single = [(k, name) for k, name in enumerate(names) if name not in self._owner]

            def fun(w: Any, p: Any) -> Any:
                taken = {name: p[k] for k, name in single}
                taken |= {name: p[places].reshape(self.arrays[name]) for name, places in own.items()}
                return self.fun(w, **taken)

            self._kernels[names] = _torch_kernel(fun) if self.backend == "torch" else _jax_kernel(fun)
        return self._kernels[names]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kernels": {}}


@dataclass(frozen=True)
class Term:
    """f at fixed parameters: a smooth term (`suffice.terms.Smooth`) with products."""

    function: Function
    params: Mapping[str, float]
    _latest: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def value(self, x: Array) -> float:
        return self._made(x).value()

    def gradient(self, x: Array) -> Array:
        return self._made(x).gradient()

    def hessian_product(self, x: Array, v: Array) -> Array:
        """hess f(x) v, for a vector v or for the columns of a matrix."""
        return self._made(x).hessian_product(v)

    def hessian_at(self, x: Array) -> Callable[[Array], Array]:
        """V -> hess f(x) V."""
        return self._made(x).hessian_product

    def cross_product(self, x: Array, q: Array) -> Array:
        """q^T d grad f(x) / d p, an entry for every parameter in the order in which they were given; for a vector q or
        for the columns of a matrix."""
        return self._made(x).cross_product(q)

    def cross_forward(self, x: Array, v: Array) -> Array:
        """How grad f(x) moves with parameters that move by v, a vector or the columns of a matrix."""
        return self._made(x).cross_forward(v)

    def _made(self, x: Array) -> Derivatives:
        """f at x, kept: a solver asks for the value and the gradient of one point, and for many products."""
        if not self._latest or not np.array_equal(self._latest[0], x):
            kernel, p = self.function.kernel(tuple(self.params)), np.array(list(self.params.values()))
            self._latest[:] = [x.copy(), kernel(x, p)]
        made: Derivatives = self._latest[1]
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "params": self.params, "_latest": []}


class Problem:
    """f (+ g) as a lower-level problem; made by `Function.problem`."""

    def __init__(self, function: Function, size: int, mu: Constant, L: Constant, prox: Prox) -> None:
        self.function, self.size, self.mu, self.L, self.prox = function, size, mu, L, prox

    def at(self, **params: float) -> Composite:
        """The problem at fixed parameters."""
        mu, L = (float(one(params)) if callable(one) else float(one) for one in (self.mu, self.L))
        return Composite(self.function.at(**params), self.prox, mu=mu, L=L, size=self.size)

    def cross(self, x: Array, **params: float) -> Any:
        """d grad f(x) / d p, a column for every parameter p (`suffice.solvers.sensitivity`)."""
        term = self.function.at(**params)
        return matrix_of(lambda V: term.cross_forward(x, V), lambda Q: term.cross_product(x, Q), (len(x), len(params)))

    def fingerprint(self) -> dict[str, Any]:
        """What a journal compares. `fun` may hold data, which nobody sees from outside: it is known by its name and by
        its value at one point, all parameters being 1/2."""
        fun, arrays = self.function.fun, self.function.arrays
        return {"fun": fun, "arrays": arrays, "size": self.size, "prox": self.prox, "value": self._probe()}

    def _probe(self) -> float | str:
        known = inspect.signature(self.function.fun).parameters.values()
        single = [one.name for one in known if one.kind is not one.VAR_KEYWORD][1:]
        owned = [own for name in self.function.arrays for own in self.function.names(name)]
        names = [name for name in single if name not in self.function.arrays] + owned
        try:
            return self.function.at(**dict.fromkeys(names, 0.5)).value(np.cos(np.arange(self.size)))
        except Exception as error:  # not every function is defined everywhere
            return type(error).__name__


@dataclass(frozen=True, eq=False)
class Derivatives:
    """f at one w and p; products are with a vector, or with the columns of a matrix."""

    value: Callable[[], float]
    gradient: Callable[[], Array]
    hessian_product: Callable[[Array], Array]
    cross_product: Callable[[Array], Array]
    cross_forward: Callable[[Array], Array]


Kernel = Callable[[Array, Array], Derivatives]  # f of w and p in a library's hands


def _torch_kernel(fun: Callable[[Any, Any], Any]) -> Kernel:
    torch = _imported("torch")

    def at(x: Array, p: Array) -> Derivatives:
        w, q = (torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in (x, p))
        with torch.enable_grad():
            f = fun(w, q)
        if not isinstance(f, torch.Tensor) or f.ndim != 0 or f.dtype != torch.float64:
            shown = f"one of shape {tuple(f.shape)}, {f.dtype}" if isinstance(f, torch.Tensor) else repr(f)
            raise TypeError(f"fun must return a number as a torch tensor of float64, got {shown}")
        if not f.requires_grad:
            raise ValueError("fun must depend on w by operations that torch can differentiate, and does not")

        @cache
        def slopes() -> tuple[Any, Any]:
            """df/dw and df/dp with their graphs, which every product goes through once more."""
            with torch.enable_grad():
                found = torch.autograd.grad(f, (w, q), create_graph=True, materialize_grads=True)
            return found[0], found[1]

        def gradient() -> Array:
            if slopes.cache_info().currsize:
                return host(slopes()[0]).copy()
            return host(torch.autograd.grad(f, w, retain_graph=True, materialize_grads=True)[0]).copy()  # costs half

        def product(which: int, variable: Any) -> Callable[[Array], Array]:
            """v -> d <slope, v> / d variable."""

            def of(v: Array) -> Array:
                slope = slopes()[which]
                if not slope.requires_grad:
                    return np.zeros((*variable.shape, *v.shape[1:]))
                look = {"retain_graph": True, "materialize_grads": True, "is_grads_batched": v.ndim == 2}
                along = torch.tensor(v.T, dtype=torch.float64)
                return host(torch.autograd.grad(slope, variable, grad_outputs=along, **look)[0]).T.copy()

            return of

        return Derivatives(lambda: float(f.detach()), gradient, product(0, w), product(0, q), product(1, w))

    return at


def _jax_kernel(fun: Callable[[Any, Any], Any]) -> Kernel:
    """Everything compiled, once for all w and p."""
    jax = _imported("jax")
    if jax.numpy.zeros(1, dtype=float).dtype != np.float64:
        raise TypeError("JAX must be in float64: jax.config.update('jax_enable_x64', True) before it is used")

    def checked(w: Any, p: Any) -> Any:
        f = fun(w, p)
        if getattr(f, "shape", None) != () or f.dtype != np.float64:
            shown = f"one of shape {f.shape}, {f.dtype}" if hasattr(f, "dtype") else repr(f)
            raise TypeError(f"fun must return a number as a JAX array of float64, got {shown}")
        return f

    def product(one: Callable[..., Any]) -> Callable[[Array, Array, Array], Array]:
        single, several = jax.jit(one), jax.jit(jax.vmap(one, (None, None, 1), 1))
        return lambda w, p, v: np.array((several if v.ndim == 2 else single)(w, p, v))

    slope = jax.grad(checked)
    value, gradient = jax.jit(checked), jax.jit(slope)
    bend = product(lambda w, p, v: jax.jvp(lambda one: slope(one, p), (w,), (v,))[1])
    pull = product(lambda w, p, q: jax.vjp(lambda one: slope(w, one), p)[1](q)[0])
    push = product(lambda w, p, v: jax.jvp(lambda one: slope(w, one), (p,), (v,))[1])

    def at(w: Array, p: Array) -> Derivatives:
        products = (partial(each, w, p) for each in (bend, pull, push))
        return Derivatives(lambda: float(value(w, p)), lambda: np.array(gradient(w, p)), *products)

    return at


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = "pip install 'suffice[gpu]'" if name == "torch" else "pip install 'suffice[jax]'"
        raise ImportError(f"suffice.autodiff with backend={name!r} needs {name}: {extra}") from error
