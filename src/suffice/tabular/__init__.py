"""Tables of data, from the command line: read a file, prepare its columns, tune a model, keep all of it in a folder."""

from typing import Any

from suffice.tabular.table import Limits, Reading, Table, TableError, read

__all__ = ["Limits", "Reading", "Table", "TableError", "read", "tune_frame"]


def __getattr__(name: str) -> Any:
    if name == "tune_frame":  # which nobody else has to wait for
        from suffice.tabular.run import tune_frame

        return tune_frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
