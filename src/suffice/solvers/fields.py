"""Fields of states and solutions that can be had again, which is said where the field is declared.

A solver's state holds, besides its point x, linear images A x and the evidence for a certificate: functions of the rest
of the state and of the problem, at the price of a matrix product. They stay out of files and of what is sent to
workers, where their fields are None until the next step computes them again. The problem itself is the user's, and is
given again. A field of which nothing is said is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

# Metadata of a field, which must have a default: why it is left out.
RECOMPUTED: Mapping[str, str] = {"left out": "the next step computes it again"}
GIVEN_AGAIN: Mapping[str, str] = {"left out": "it belongs to the user, who gives it again"}


def left_out(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass that are declared so."""
    return tuple(item.name for item in fields(cls) if "left out" in item.metadata)
