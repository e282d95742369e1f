"""From a laptop to a cluster: the same run in this process, in other processes, and on a Dask cluster.

Sixteen clinics each have their own patients and train their own model; all share two penalties, tuned together. Every
way gives the same result to the bit. The run keeps a journal: kill it, call it again, and it goes on where it was, with
any number of workers.

    python examples/parallel.py                        two processes on this machine
    python examples/parallel.py --workers 0            this process alone
    python examples/parallel.py --dask                 a Dask cluster on this machine
    python examples/parallel.py --dask tcp://host:8786 any Dask cluster

On a cluster, workers need suffice installed; nothing else is sent to them but the problem, once, and warm starts. Other
systems come in as `concurrent.futures` executors: `suffice.executors.Futures(lambda: MPIPoolExecutor(64))`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import suffice
from suffice import losses, problems
from suffice.executors import Dask, Processes


def build(executor: Any, clinics: int = 16, patients: int = 400, features: int = 60) -> suffice.BilevelProblem:
    rng = np.random.default_rng(0)
    common = rng.standard_normal(features) * (rng.random(features) < 0.3)
    lower, upper = [], []
    for _ in range(clinics):
        w = common + 0.2 * rng.standard_normal(features)
        X, X_val = rng.standard_normal((2, patients, features))
        lower.append(problems.ElasticNetLogistic(X, X @ w + rng.standard_normal(patients) > 0))
        upper.append(losses.Brier(X_val, X_val @ w + rng.standard_normal(patients) > 0))
    space = suffice.Space(l1=(1e-5, 1.0), l2=(1e-5, 1.0))
    return suffice.BilevelProblem(lower, upper, space=space, executor=executor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes on this machine (%(default)s; 0: none)")
    parser.add_argument("--dask", nargs="?", const="", metavar="ADDRESS", help="a Dask cluster; without ADDRESS, here")
    parser.add_argument("--journal", type=Path, default=Path("results/parallel"), help="folder of the run")
    chosen = parser.parse_args()
    executor: Any = Processes(chosen.workers, deadline=600.0) if chosen.workers else "serial"
    if chosen.dask is not None:
        executor = Dask(chosen.dask or None, deadline=600.0)
    began = time.monotonic()
    with build(executor) as problem:
        if (chosen.journal / suffice.journal.FILE).exists():
            result = suffice.resume(chosen.journal, problem=problem)
        else:
            options = suffice.Options(max_evaluations=30)
            result = suffice.tune(problem, {"l1": 0.1, "l2": 0.1}, options=options, journal=chosen.journal)
    events = suffice.journal.read(chosen.journal).events
    low, high = result.interval
    print(f"l1 = {result.params['l1']:.6g}, l2 = {result.params['l2']:.6g}" if result.params else result.theta)
    print(f"F = {result.cost!r}, proven to lie in [{low:.6f}, {high:.6f}]; {result.message}")
    print(f"{result.evaluations} evaluations in all, {time.monotonic() - began:.1f} s this time, {len(events)} events")


if __name__ == "__main__":
    main()
