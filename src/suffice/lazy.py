"""`cached_property` without a lock.

That of functools holds one lock for all instances of a class while a value is made, up to Python 3.11: computations
that take turns (`suffice.rows.margins`) would wait for each other for ever. A value may be made twice where threads
race for it, and the last one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 (as functools has it)
    """Computed when it is asked for first, and then an attribute of the instance."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        values = instance.__dict__
        if self.name not in values:
            values[self.name] = self.function(instance)
        found: T = values[self.name]
        return found
