"""Tables in parquet files: columns have types already, and dates are dates; text stays text."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import numpy as np

from suffice.tabular.entries import Array, Column, columns_of, number_column, quoted
from suffice.tabular.notation import DAY, Form, Kind
from suffice.tabular.table import BLOCK, Limits, Table, TableError, names_of, reason_of

OLDEST_PYARROW = [14, 0, 1]  # earlier ones may execute code that stands in a file (CVE-2023-47248)


def parquet_reader() -> Any:
    """pyarrow, with its module for parquet files; `TableError` where there is none, or one that is too old."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise TableError("parquet files need pyarrow: pip install 'suffice[parquet]'") from error
    if [int(part) for part in re.findall(r"\d+", pyarrow.__version__)[:3]] < OLDEST_PYARROW:
        raise TableError(f"parquet files need pyarrow 14.0.1 or later, there is {pyarrow.__version__}")
    return pyarrow


def refused(path: str | os.PathLike[str], error: Exception) -> TableError:
    """pyarrow has no single class for files that are not what they should be."""
    reason = (reason_of(error).splitlines() or [type(error).__name__])[0]
    return error if isinstance(error, TableError) else TableError(f"{quoted(path)} cannot be read as parquet: {reason}")


def read_parquet(path: str | os.PathLike[str], file: IO[bytes], limits: Limits, forms: Mapping[str, Form]) -> Table:
    """The table in a parquet file; `TableError` for anything that goes wrong. Text is read in these forms."""
    pyarrow = parquet_reader()
    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            (names, notes), rows = names_of(opened.schema_arrow.names, limits), opened.metadata.num_rows
            most = min(limits.rows, limits.cells // max(len(names), 1))
            if rows > most:
                raise TableError(f"the table has {rows:,} rows of {len(names)} columns, more than {most:,}")
            batches = list(_batches(opened, rows, max(1, BLOCK // max(len(names), 1))))
            if not names or not batches:
                raise TableError("the table has no rows")
            lines = np.arange(1, rows + 1)
            whole = pyarrow.Table.from_batches(batches)
            columns = [column_of(name, whole.column(i), lines, forms.get(name)) for i, name in enumerate(names)]
    except Exception as error:
        raise refused(path, error) from error
    return Table.of(columns, lines, notes, ",")


def _batches(opened: Any, rows: int, size: int) -> Iterator[Any]:
    """As many rows as the file says that it has."""
    total = 0
    for batch in opened.iter_batches(batch_size=size, use_threads=False):
        total += batch.num_rows
        if total > rows:
            break
        if batch.num_rows:
            yield batch
    if total != rows:
        raise TableError(f"the file says that it has {rows:,} rows, and has {'more' if total > rows else total}")


def kind_of(kind: Any) -> Kind:
    """What a column of this type of Arrow's holds."""
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_timestamp(inner) or types.is_date(inner):
        return "date"
    if types.is_boolean(inner):
        return "boolean"
    if types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner):
        return "numeric"
    return "text" if types.is_string(inner) or types.is_large_string(inner) else "other"


def column_of(name: str, entries: Any, lines: Array, form: Form | None = None) -> Column:
    """A column of Arrow's; in a form that is known, if it is text or dates."""
    import pyarrow
    from pyarrow import types

    kind = kind_of(entries.type)
    if kind == "other":
        return Column(name, kind, np.full(len(lines), math.nan), form=Form(kind), what=str(entries.type)[:40])
    if types.is_dictionary(entries.type):
        entries = entries.cast(entries.type.value_type)
    if kind == "text":
        return text_column(name, entries.to_pylist(), lines, form)
    if kind == "date":
        whole = pyarrow.timestamp("us", tz=getattr(entries.type, "tz", None))
        values = _floats(entries.cast(whole, safe=False).cast(pyarrow.int64())) * 1e-6
        clock = bool((values[~np.isnan(values)] % DAY != 0.0).any()) if form is None else form.clock
        return Column(name, kind, values, form=Form(kind, clock=clock))
    if form is not None and form.kind not in ("numeric", "boolean"):
        raise TableError(f"column {quoted(name)} holds numbers, and was {form.kind} before")
    return number_column(name, _floats(entries), lines, Form(kind))


def text_column(name: str, entries: Iterable[Any], lines: Array, form: Form | None = None) -> Column:
    """A column of texts, None where they are missing, in this form, or as they are."""
    texts = ["" if entry is None else str(entry).replace("\0", "") for entry in entries]
    return columns_of([name], [["\0".join(texts)]], lines, ",", {name: form or Form("text")})[0]


def _floats(entries: Any) -> Array:
    return np.array(entries.cast("float64", safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
