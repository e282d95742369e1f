"""Whatever happens to the files of a run: the same answer to the bit, or an error that names a file. A few of the
damages of benchmarks/damage.py, drawn at random, each resumed in a process that is not waited for without end."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

pytestmark = pytest.mark.skipif(
    os.name != "posix" or not BENCHMARKS.is_dir(), reason="makes links and pipes, with the benchmark at hand"
)


@pytest.fixture(scope="module")
def damage():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        found = importlib.util.spec_from_file_location("damage", BENCHMARKS / "damage.py")
        module = importlib.util.module_from_spec(found)
        sys.modules["damage"] = module
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


@pytest.mark.slow
def test_damage_is_refused_by_name_or_changes_nothing(damage, tmp_path):
    rows = damage.campaign(("single", "starts", "search"), 4, tmp_path, most=12)
    assert len(rows) == 6 * 12
    assert [row for row in rows if row["outcome"] not in damage.GOOD] == []
    assert {row["outcome"] for row in rows} == set(damage.GOOD)
