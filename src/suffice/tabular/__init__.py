"""Tables of data, of files or DataFrames: read one, prepare its columns, tune a model, keep all of it in a folder.

settings             models by name, and what may be asked for
entries, reading     how people write numbers and dates, what the entries of a column are; CSV and parquet files
table, frames, parts a table in memory, of a DataFrame, and in parts on a cluster, with the same methods
columns, targets     rules: what a column is for, what is predicted
splitting            which rows are held out
preparation, problem columns prepared for a model, and the problem for a search
from_python          `suffice.tune_table`, of a DataFrame
run, live            the run in its folder, what it has found and how that is told
states, update       from one day's rows to another's
check, history       a new file beside a run's rows, and the line of its models
predict, certify     predictions for new files, how exactly a model was fitted
model_file           files of fitted models
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suffice.tabular.entries import TableError
    from suffice.tabular.reading import read
    from suffice.tabular.run import TunedTable
    from suffice.tabular.table import Limits, Reading, Table

__all__ = ["Limits", "Reading", "Table", "TableError", "TunedTable", "read"]

# Imported when they are asked for: the command line reads `settings`, and answers `--help` without pandas.
_HOMES = {"TableError": "entries", "read": "reading", "TunedTable": "run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"suffice.tabular.{_HOMES.get(name, 'table')}"), name)
