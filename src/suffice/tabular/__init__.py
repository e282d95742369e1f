"""Tables of data, from the command line: read a file, prepare its columns, tune a model, keep all of it in a folder.

notation, entries               how people write numbers and dates; what the entries of a column are
table, csv_file, parquet, parts a table in memory, and one in parts on a cluster, with the same methods
summaries, targets, columns     rules: what a column is for, what is predicted, the problem for a search
cautions, comparing             what looks like a mistake; choices looked at on held-out rows
groups, models, preparation     groups of columns, estimators by name, columns prepared for them
settings, run, outcome, live    what is asked for, the run in its folder, what it has found and how that is told
measure, predict, certify       scores, predictions for new files, how exactly a model was fitted
model_file                      files of fitted models
"""

from typing import Any

from suffice.tabular.table import Limits, Reading, Table, TableError, read

__all__ = ["Limits", "Reading", "Table", "TableError", "read", "tune_frame"]


def __getattr__(name: str) -> Any:
    if name == "tune_frame":  # which nobody else has to wait for
        from suffice.tabular.run import tune_frame

        return tune_frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
