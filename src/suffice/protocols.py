"""What objects of several kinds offer.

`conforms` knows whether one offers a protocol by its class: `isinstance` asks for every member of a protocol again and
again, which costs as much as a step of a small problem. Classes of others may give members to some of their objects
only, and are asked each time."""

from __future__ import annotations

from typing import Any, Self

_OWN = __name__.partition(".")[0] + "."
_known: dict[tuple[type, Any], bool] = {}


def conforms(value: object, protocol: Any) -> bool:
    """`isinstance(value, protocol)`, asked once for every class of this package."""
    key = type(value), protocol
    known = _known.get(key)
    if known is None:
        known = isinstance(value, protocol)
        if key[0].__module__.startswith(_OWN):
            _known[key] = known
    return known


class Closing:
    """What is closed at the end of a `with`."""

    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
