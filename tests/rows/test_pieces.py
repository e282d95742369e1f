"""Temporaries of a job on a worker of Dask: memory that is given back is used again."""

import json
import os
import platform
import subprocess
import sys

import pytest

TASK = """
import json, pickle, resource
import numpy as np
from suffice.rows.dask import Spec, on_piece

class Temporaries:
    reads, keeps = False, False
    def __call__(self, block):
        return sum(int(np.full(1 << 17, 1.0)[0]) for _ in range(100))  # 1 MB each

def faults(function):
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    function()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

def job():
    spec = Spec(Temporaries(), 10, 1, (), (), (), (), None)
    assert on_piece(pickle.dumps([spec]), 0, 10, None, [[]], [[]]) == (100,)

job()
within = faults(job)
print(json.dumps([within, resource.getpagesize()]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have other rules")
def test_a_temporary_is_mapped_once_for_a_job_and_not_each_time():
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}  # as Dask sets it for its workers
    made = subprocess.run([sys.executable, "-c", TASK], env=environment, capture_output=True, text=True, check=True)
    within, page = json.loads(made.stdout)
    one = (1 << 20) // page
    assert within < 10 * one
