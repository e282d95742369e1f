"""Tables of data, from the command line: read a file, prepare its columns, tune a model, keep all of it in a folder.

settings             models by name, and what may be asked for
entries, reading     how people write numbers and dates, what the entries of a column are; CSV and parquet files
table, parts         a table in memory, and one in parts on a cluster, with the same methods
columns, targets     rules: what a column is for, what is predicted
splitting            which rows are held out
preparation, problem columns prepared for a model, and the problem for a search
run, live            the run in its folder, what it has found and how that is told
predict, certify     predictions for new files, how exactly a model was fitted
model_file           files of fitted models
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suffice.tabular.entries import TableError
    from suffice.tabular.reading import read
    from suffice.tabular.run import tune_frame
    from suffice.tabular.table import Limits, Reading, Table

__all__ = ["Limits", "Reading", "Table", "TableError", "read", "tune_frame"]

# Imported when they are asked for: the command line reads `settings`, and answers `--help` without pandas.
_HOMES = {"TableError": "entries", "read": "reading", "tune_frame": "run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"suffice.tabular.{_HOMES.get(name, 'table')}"), name)
