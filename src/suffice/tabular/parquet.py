"""Tables in parquet files: columns have types already, and dates are dates; text stays text."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

from suffice.tabular import dates
from suffice.tabular.entries import Array, Column, columns_of, finite
from suffice.tabular.notation import Form, Kind
from suffice.tabular.table import BLOCK, Limits, Table, TableError, names_of, quoted, reason_of

OLDEST_PYARROW = [14, 0, 1]  # earlier ones may execute code that stands in a file (CVE-2023-47248)


def read_parquet(path: str | os.PathLike[str], file: IO[bytes], limits: Limits, forms: Mapping[str, Form]) -> Table:
    """The table in a parquet file; `TableError` for anything that goes wrong. Text is read in these forms."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TableError("parquet files need pyarrow: pip install 'suffice[parquet]'") from error
    if [int(part) for part in re.findall(r"\d+", pyarrow.__version__)[:3]] < OLDEST_PYARROW:
        raise TableError(f"parquet files need pyarrow 14.0.1 or later, there is {pyarrow.__version__}")
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
            columns = [
                _from_arrow(name, kind, [batch.column(i) for batch in batches], lines, forms.get(name))
                for i, (name, kind) in enumerate(zip(names, opened.schema_arrow.types, strict=True))
            ]
    except TableError:
        raise
    except Exception as error:  # pyarrow has no single class for files that are not what they should be
        reason = (reason_of(error).splitlines() or [type(error).__name__])[0]
        raise TableError(f"{quoted(path)} cannot be read as parquet: {reason}") from error
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


def _from_arrow(name: str, kind: Any, parts: list[Any], lines: Array, form: Form | None) -> Column:
    import pyarrow
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_timestamp(inner) or types.is_date(inner):
        whole = pyarrow.timestamp("us", tz=getattr(inner, "tz", None))
        ticks = (entry for part in parts for entry in part.cast(whole, safe=False).cast(pyarrow.int64()).to_pylist())
        values = np.fromiter((math.nan if entry is None else entry * 1e-6 for entry in ticks), float, len(lines))
        known = values[~np.isnan(values)]
        clock = bool((known % dates.DAY != 0.0).any()) if form is None else form.clock
        return Column(name, "date", values, form=Form("date", clock=clock))
    entries = (entry for part in parts for entry in part.to_pylist())
    if types.is_boolean(inner) or types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner):
        if form is not None and form.kind not in ("numeric", "boolean"):
            raise TableError(f"column {quoted(name)} holds numbers, and was {form.kind} before")
        values = np.fromiter((math.nan if entry is None else float(entry) for entry in entries), float, len(lines))
        found: Kind = "boolean" if types.is_boolean(inner) else "numeric"
        return Column(name, found, values, None, finite(values, lines), form=Form(found))
    if types.is_string(inner) or types.is_large_string(inner):
        texts = ["" if entry is None else entry.replace("\0", "") for entry in entries]
        return columns_of([name], [["\0".join(texts)]], lines, ",", {name: form or Form("text")})[0]
    return Column(name, "other", np.full(len(lines), math.nan), form=Form("other"), what=str(kind)[:40])
