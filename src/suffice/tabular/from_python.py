"""`suffice tune` for a DataFrame: the same rules, the same search, the same report, from Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from suffice.result import Record
from suffice.tabular.frames import table_of
from suffice.tabular.parts import AnyTable, check_settings, of_frame
from suffice.tabular.run import TunedTable, claim, execute, load
from suffice.tabular.settings import Settings


def tune_table(
    frame: Any,
    target: str | None = None,
    *,
    time: str | None = None,
    out: str | os.PathLike[str] | None = None,
    client: Any = None,
    callback: Callable[[Record], object] | None = None,
    **options: Any,
) -> TunedTable:
    """What `suffice tune` does, on a DataFrame of pandas or polars, or on a `dask.dataframe` whose rows stay where they
    are, on the cluster of `client` or of the current `distributed.Client`.

    `target` names the column to predict (or `time`, with `event`, times until an event). `options` are those of the
    command line, as `suffice tune --help` lists them: `model="ridge"`, `drop=["id"]`, `group_column="patient"`,
    `max_seconds=60`. Journal, model and report are in the folder `out`, which `suffice predict` takes, and the same
    call goes on where it was; None: in a temporary one, which ends with the result. `print` shows the result as a
    terminal does, `report` is for a notebook.
    """
    began = monotonic()
    settings = Settings.asked("DataFrame", target, time, options)
    if settings.cluster is not None:
        raise ValueError(f"cluster is for files: a dask.dataframe has a client, got {settings.cluster!r}")
    table: AnyTable
    if hasattr(frame, "map_partitions"):  # of Dask
        client = import_module("distributed").get_client() if client is None else client
        settings = replace(settings, data="dask.dataframe", jobs=1)
        check_settings(settings)
        table = of_frame(frame, client)
    else:
        table = table_of(frame)
    problem, settings = load(settings, table)
    temporary = TemporaryDirectory(prefix="suffice-") if out is None else None
    folder = Path(temporary.name if temporary is not None else out or "")
    claim(folder, settings)
    found = execute(settings, problem, folder, callback=callback, began=began, temporary=temporary)
    for failure in found.failures:
        warnings.warn(failure, stacklevel=2)
    return found
