"""Tables of data, from the command line: read a file, prepare its columns, tune a model, keep all of it in a folder."""

from suffice.tabular.table import Limits, Reading, Table, TableError, read

__all__ = ["Limits", "Reading", "Table", "TableError", "read"]
