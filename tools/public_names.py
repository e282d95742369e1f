"""The public names and their signatures: tests/public_names.txt, made anew by

    python tools/public_names.py

Public is what `docs/api` describes, by its `autofunction`, `autoclass` and the like, and the commands of `suffice`. A
line is a name with its parameters, without types: `*` begins those that go by name only. A change of a line is a
decision: docs/stability.md says what it costs.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import typer

from suffice.cli import app
from suffice.lazy import cached_property as lazy_property

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "public_names.txt"
AUTO = re.compile(r"^\.\. auto\w+:: (\S+)$", re.M)


def described() -> list[str]:
    """Names that the reference describes, in alphabetical order."""
    pages = (page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    return sorted({name for page in pages for name in AUTO.findall(page)})


def _default(value: Any) -> str:
    if isinstance(value, type) or inspect.isroutine(value):
        return str(value.__name__)
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    shown = repr(value)
    return "..." if " at 0x" in shown or "\n" in shown or len(shown) > 60 or "object>" in shown else shown


def signature(value: Any) -> str:
    """The parameters of a function or class: names, kinds and defaults."""
    try:
        given = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = []
    for one in given.parameters.values():
        if one.name in ("self", "cls"):
            continue
        default = one.default
        if default is not inspect.Parameter.empty and type(default).__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
            default = ...
        elif default is not inspect.Parameter.empty:
            default = _Shown(_default(default))
        parameters.append(one.replace(annotation=inspect.Parameter.empty, default=default))
    return str(inspect.Signature(parameters))


class _Shown:
    """A default that is shown as this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def members(kind: type) -> Iterator[str]:
    """Methods, properties and fields that a class, or one of ours above it, defines."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if not one.__module__.startswith("suffice"):
            continue
        for name in inspect.get_annotations(one):
            found[name] = f".{name}"
        for name, member in vars(one).items():
            if re.fullmatch(r"set_\w+_request", name):  # scikit-learn's, as its version has them
                continue
            if isinstance(member, property | cached_property | lazy_property | Enum):
                found[name] = f".{name}"
            elif isinstance(member, classmethod | staticmethod) or inspect.isroutine(member):
                found[name] = f".{name}{signature(getattr(kind, name))}"
    _, _, fitted = (inspect.getdoc(kind) or "").partition("\nAttributes\n----------\n")
    for name in re.findall(r"\b[a-z]\w+_\b", fitted):  # made by `fit`
        found.setdefault(name, f".{name}")
    yield from (line for name, line in sorted(found.items()) if not name.startswith("_"))


def names() -> Iterator[str]:
    """Every line of the list."""
    for full in described():
        module, _, attribute = full.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        if inspect.isclass(value):
            plain = issubclass(value, Enum | BaseException | np.ndarray)  # made as others make them
            yield full + ("" if plain else signature(value))
            yield from (f"{full}{line}" for line in members(value))
        else:
            yield full + (signature(value) if callable(value) else "")
    for name, command in sorted(vars(typer.main.get_command(app))["commands"].items()):
        words = []
        for one in command.params:
            options = "/".join(one.opts + one.secondary_opts)
            words.append(options if one.param_type_name == "option" else one.name.upper())
        yield " ".join(["suffice", name, *words])


if __name__ == "__main__":
    LIST.write_text("\n".join(names()) + "\n", encoding="utf-8")
    print(f"{LIST.relative_to(ROOT)}: {len(LIST.read_text(encoding='utf-8').splitlines())} names")
