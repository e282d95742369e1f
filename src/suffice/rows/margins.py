"""Margins of blocks of rows: products X w that are made when a job needs them, in the same pass, and combinations of
these. They stay with the rows; what was found out about them stays with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.arrays import Array
from suffice.rows.sums import Job


class Known(dict[Any, Any]):
    """What was found out about margins, by models that have certain parts: these are held, so that their ids stay their
    own."""

    def knows(self, what: str, owners: Sequence[Any]) -> bool:
        """Whether this was found out, by a model that has these parts."""
        return (what, *map(id, owners)) in self

    def keep(self, what: str, owners: Sequence[Any], found: Any) -> Any:
        """Remember it."""
        self[what, *map(id, owners)] = tuple(owners), found
        return found

    def once(self, what: str, owners: Sequence[Any], find: Callable[[], Any]) -> Any:
        """What is known, found out if it has not been."""
        known = self.get((what, *map(id, owners)))
        return self.keep(what, owners, find()) if known is None else known[1]


@dataclass(eq=False)
class _Made:
    """X w, plus an offset: made when it is needed first; `rows` is then where it is kept. `known` holds what else was
    found out about w."""

    w: Array
    offset: Any
    rows: Any = None
    known: Known = field(default_factory=Known)


@dataclass(frozen=True, eq=False)
class Margins:
    """A linear combination of products X_k w_k with blocks of rows."""

    X: Any
    node: Any  # a product, or an operation on two nodes
    _known: Known = field(default_factory=Known)

    __array_ufunc__ = None  # numpy would take it apart

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.X.shape[0], *products_of([self])[0].w.shape[1:])

    @property
    def is_product(self) -> bool:
        return isinstance(self.node, _Made)

    @property
    def w(self) -> Array:
        """The weights whose product this is, but for rounding and offsets."""
        products = products_of([self])
        places = {id(one): k for k, one in enumerate(products)}
        return combined(written(self.node, places), [one.w for one in products])

    @property
    def known(self) -> Known:
        """What was found out about them; the same for all that are one product."""
        return self.node.known if isinstance(self.node, _Made) else self._known

    def __add__(self, other: Margins) -> Margins:
        return Margins(self.X, ("+", self.node, other.node))

    def __sub__(self, other: Margins) -> Margins:
        return Margins(self.X, ("-", self.node, other.node))

    def __mul__(self, factor: float) -> Margins:
        return Margins(self.X, ("*", float(factor), self.node))

    __rmul__ = __mul__


@dataclass(frozen=True, eq=False)
class PassRequest:
    """A job on all rows of X, with the margins it needs and what else goes with the rows."""

    X: Any
    job: Job
    margins: Sequence[Margins]
    given: Mapping[str, Any]


def products_of(margins: Sequence[Margins]) -> list[_Made]:
    """The products that these are made of, each once."""
    found: dict[int, _Made] = {}
    # No function that calls itself: that would hold itself, and what it has found, until Python looks for cycles.
    nodes = [one.node for one in reversed(margins)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, _Made):
            found.setdefault(id(node), node)
        else:
            nodes += [part for part in reversed(node[1:]) if not isinstance(part, float)]
    return list(found.values())


def written(node: Any, places: Mapping[int, int]) -> Any:
    """A combination in terms of numbers of products, fit for travelling."""
    if isinstance(node, _Made):
        return places[id(node)]
    return (node[0], *(part if isinstance(part, float) else written(part, places) for part in node[1:]))


def combined(text: Any, products: Sequence[Array]) -> Array:
    """The combination of these products, on some rows."""
    if isinstance(text, int):
        return products[text]
    sign, one, other = text
    if sign == "*":
        scaled: Array = one * combined(other, products)
        return scaled
    a, b = combined(one, products), combined(other, products)
    return a + b if sign == "+" else a - b


def product(X: Array, w: Array, offset: Array | None) -> Array:
    """X w, plus an offset, for the rows of a block."""
    margins: Array = X @ w
    return margins if offset is None else margins + offset
