"""A DataFrame as a table: of pandas, or any that has `to_pandas()`, as polars' have.

Columns have the types that they come with: numbers, true and false, dates, and text, which stays text, categories
included, unless it is what a file's dates are, as `read_csv` leaves them. Columns of Python's own objects have the type
of what is in them. The index does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from suffice.tabular.entries import Array, Column, Form, Kind, TableError, date_column, listed, number_column, quoted
from suffice.tabular.reading import text_column
from suffice.tabular.table import Reading, Recipe, Table


def table_of(frame: Any, like: Reading | None = None) -> Table:
    """The table in a DataFrame, in the manner of another one if that is given; its lines are counted from 1."""
    import pandas

    if not isinstance(frame, pandas.DataFrame) and hasattr(frame, "to_pandas"):
        frame = frame.to_pandas()
    if not isinstance(frame, pandas.DataFrame):
        raise TypeError(f"frame must be a DataFrame of pandas, polars or dask, got {type(frame).__name__}")
    names, lines = named_by_texts(frame.columns), np.arange(1, len(frame) + 1)
    if not len(frame):
        raise TableError("the table has no rows")
    forms = {} if like is None else like.forms
    columns = [_column(name, frame[name], lines, forms.get(name)) for name in names]
    digest = blake2b(digest_size=16)
    for column in columns:
        digest.update(repr((column.name, column.form)).encode())
        values = column.values
        digest.update(values.tobytes() if values.dtype != object else repr(values.tolist()).encode())
    made = Table.of(columns, lines, (), ",")
    return Table(made.columns, lines, made.notes, made.reading, digest.hexdigest())


def table_for(recipe: Recipe, frame: Any) -> Table:
    """A DataFrame with all columns that a model needs; `TableError` if some are missing."""
    table = table_of(frame, recipe.reading)
    if missing := [name for name in recipe.needs if name not in table.origins]:
        lacks = f"lacks columns that the model needs, {listed(missing)}"
        raise TableError(f"the frame {lacks}: it has {listed(table.origins)}")
    return table


def named_by_texts(names: Iterable[Any]) -> list[str]:
    """Names of columns, if they are texts that differ from each other."""
    found = list(names)
    if any(not isinstance(name, str) for name in found) or len(set(found)) < len(found):
        raise TableError("names of columns must be texts that differ from each other")
    return found


def kind_of_dtype(dtype: Any) -> Kind:
    """What a column of pandas' with this type holds."""
    from pandas.api import types

    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "numeric"
    texts = types.is_string_dtype(dtype) or types.is_object_dtype(dtype) or str(dtype) == "category"
    return "text" if texts else "other"


def _column(name: str, series: Any, lines: Array, form: Form | None) -> Column:
    """A column; text is read in a form that is known."""
    import pandas
    from pandas.api.types import infer_dtype

    if series.dtype == object:
        held = infer_dtype(series, skipna=True)
        series = pandas.to_datetime(series, utc=True) if held in ("date", "datetime") else series.infer_objects()
        if held in ("boolean", "decimal", "mixed-integer-float"):
            series = series.astype("boolean" if held == "boolean" else float)
    kind, absent = kind_of_dtype(series.dtype), series.isna()
    if kind == "other":
        return Column(name, Form(kind), np.full(len(lines), math.nan), what=str(series.dtype)[:40])
    if kind == "text":
        return text_column(name, [None if no else one for one, no in zip(series, absent, strict=True)], lines, form)
    if form is not None and (form.kind == "text" or (form.kind == "date") != (kind == "date")):
        raise TableError(f"column {quoted(name)} is {kind}, and was {form.kind} before")
    if kind == "date":
        since = pandas.to_datetime(series, utc=True) - pandas.Timestamp(0, tz="UTC")
        return date_column(name, (since / pandas.Timedelta(seconds=1)).to_numpy(dtype=np.float64), form)
    return number_column(name, np.array(series.to_numpy(dtype=np.float64, na_value=math.nan)), lines, Form(kind))
