"""Groups of columns with penalties of their own, from a file.

JSON, either `{"blood": ["s1", "s2"], "body": ["bmi"]}` or `{"s1": "blood", "s2": "blood", "bmi": "body"}`; or a CSV
with two columns, the name of a column and that of its group, with or without a header `column,group`. Columns that the
file does not name form the group `rest`. A column of categories or dates has one group for all that becomes of it.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import Any

from suffice.tabular.entries import quoted
from suffice.tabular.table import TableError, open_table

REST = "rest"
LARGEST = 1 << 22  # bytes of such a file


def read_groups(path: str) -> dict[str, str]:
    """The group of every column that the file names."""
    with open_table(path) as file:
        content = file.read(LARGEST + 1)
        text = content.decode("utf-8-sig")
    if len(content) > LARGEST:
        raise TableError(f"{quoted(path)} has more than {LARGEST:,} bytes")
    groups: dict[str, str] = {}
    for name, group in (_from_json if text.lstrip().startswith(("{", "[")) else _from_csv)(path, text):
        if not isinstance(name, str) or not isinstance(group, str) or not group.isidentifier() or group == "others":
            got = f"got {quoted(name)}: {quoted(group)}"
            raise TableError(f"{quoted(path)}: a column is named by text and its group by one word, {got}")
        if groups.setdefault(name, group) != group:
            raise TableError(f"{quoted(path)} has {quoted(name)} in two groups, {groups[name]} and {group}")
    if not groups:
        raise TableError(f"{quoted(path)} names no column")
    return groups


def _from_json(path: str, text: str) -> list[tuple[Any, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{quoted(path)} is not JSON: {error}") from error
    if not isinstance(found, dict) or not found:
        raise TableError(f"{quoted(path)} must hold a dictionary of groups to columns or of columns to groups")
    pairs: list[tuple[Any, Any]] = []
    for key, value in found.items():
        pairs += [(name, key) for name in value] if isinstance(value, list) else [(key, value)]
    return pairs


def _from_csv(path: str, text: str) -> list[tuple[Any, Any]]:
    lines = text.splitlines() or [""]
    delimiter = next((mark for mark in ",;\t" if mark in lines[0]), ",")
    rows = [[entry.strip() for entry in row] for row in csv.reader(lines, delimiter=delimiter) if row]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise TableError(f"{quoted(path)}: row {number} has {len(row)} fields, column and group make two")
    header = bool(rows) and rows[0][0].lower() in ("column", "name", "feature") and rows[0][1].lower() == "group"
    return [(name, group) for name, group in rows[header:]]


@dataclass(frozen=True)
class ColumnsOf:
    """Selects, of the columns that a prepared table has, those that come from some of its columns: `age`,
    `missingindicator_age` and `city_Paris` come from age, age and city. Of several that fit, the longest does."""

    columns: tuple[str, ...]
    everything: tuple[str, ...]

    def __call__(self, names: list[str]) -> list[bool]:
        by_length = sorted(self.everything, key=len, reverse=True)
        return [self._origin(name, by_length) in self.columns for name in names]

    def _origin(self, name: str, by_length: list[str]) -> str:
        marker = "missingindicator_"
        if name in self.everything:
            return name
        if name.startswith(marker) and name[len(marker) :] in self.everything:
            return name[len(marker) :]
        return next(column for column in by_length if name.startswith(f"{column}_"))
