"""Is a rebuilt house as fast as the old one? Two commits side by side: solves and whole searches, by the same script.

A commit is checked out into a folder of its own, and its `src` put before all else: both run in this environment, in
processes of their own that take turns, so that a machine that is busy for a while is busy for both. Times are CPU
seconds of one thread, the least of all rounds, data and designs made anew every time; `evaluations` are those of a
search, or steps of a solve. Of rows on two workers of Dask, which work in processes of their own, time is the clock's.
Imports are counted in an interpreter of their own: modules of ours, and seconds beyond those of numpy, scipy and
scikit-learn, of `import suffice` and of everything that it shows.

    python benchmarks/house.py --before 0a75d28
    python benchmarks/house.py --before FOLDER --device cuda     (a folder with the other commit; rows of torch alone)
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import HERE, parser, provenance, table, write_json, write_text

SHAPES = ((100, 10), (1000, 30), (20_000, 50))
SHORT = 1.0  # seconds, up to which a case is repeated
IMPORTED = """
import time, sys
import numpy, scipy, scipy.sparse, scipy.linalg, scipy.special, sklearn
began = time.perf_counter()
import suffice
seconds = time.perf_counter() - began
print(sum(name.partition('.')[0] == 'suffice' for name in sys.modules), f"{seconds:.3f}", end=" ")
for name in suffice.__all__:
    getattr(suffice, name)
seconds = time.perf_counter() - began
print(sum(name.partition('.')[0] == 'suffice' for name in sys.modules), f"{seconds:.3f}")
"""


def cases() -> dict[str, Callable[[], Any]]:
    """What both commits are asked for, by names that both have. Each gives steps or evaluations."""
    import scipy.sparse as sp
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
    from sklearn.linear_model import ElasticNet, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import suffice
    from suffice import problems, terms
    from suffice.models.intercept import Intercepted
    from suffice.models.linear import LinearModel
    from suffice.rows.design import Design
    from suffice.sklearn import SufficeSearchCV
    from suffice.solvers.problem import Composite

    made: dict[str, Callable[[], Any]] = {}

    def solved(kind: Any, X: Any, y: Any, l1: float, l2: float, within: float) -> int:
        model = kind(Design.of(X), y, terms.LOGISTIC, l2)
        problem = Composite(model, terms.L1(l1), mu=l2, L=model.L, size=X.shape[1])
        return int(suffice.solve(problem, within=within).steps)

    def labelled(X: Any) -> Any:
        rng = np.random.default_rng(1)
        signs = X @ rng.standard_normal(X.shape[1]) + 0.5 * rng.standard_normal(X.shape[0])
        return np.where(signs > np.median(signs), 1.0, -1.0)

    rng = np.random.default_rng(0)
    data: dict[str, Any] = {f"{N} x {d}": rng.standard_normal((N, d)) for N, d in SHAPES}
    data["5000 x 784, sparse"] = sp.random(5000, 784, 0.1, random_state=0, format="csr")
    data["64 x 6829"] = rng.standard_normal((64, 6829))
    for name, X in data.items():
        y, l1 = labelled(X), 1e-3 if X.shape[1] < 784 else 1e-2
        for kind, words in ((LinearModel, ""), (Intercepted, ", intercept")):
            made[f"solve {name}{words}"] = lambda kind=kind, X=X, y=y, l1=l1: solved(kind, X, y, l1, 1e-3, 1e-6)
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X[:, X.std(axis=0) > 0.0])
    classes = problems.ElasticNetMultinomial(X, y, intercept=True)
    made["softmax 1797 x 61 x 10"] = lambda: suffice.solve(classes.at(l1=1e-3, l2=1e-3), within=1e-4).steps

    def searched(model: Any, X: Any, y: Any) -> int:
        return len(SufficeSearchCV(model, cv=5).fit(X, y).cv_results_["params"])

    logistic = make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=0.5, solver="saga"))
    squares = make_pipeline(StandardScaler(), ElasticNet())
    few = load_digits(n_class=2, return_X_y=True)
    made["search breast cancer"] = lambda: searched(logistic, *load_breast_cancer(return_X_y=True))
    made["search diabetes"] = lambda: searched(squares, *load_diabetes(return_X_y=True))
    made["search digits, 0 or 1"] = lambda: searched(logistic, *few)
    made["search Caravan"] = lambda: searched(logistic, *caravan())
    return made


def caravan() -> tuple[Any, Any]:
    """5,822 x 85, of the wheel ISLP."""
    import pandas as pd
    from table_sources import content, download

    download()
    table = pd.read_csv(io.BytesIO(content("islp", "ISLP/data/Caravan.csv"))).dropna()
    return table.drop(columns="Purchase").to_numpy(float), (table["Purchase"] == "Yes").to_numpy()


def on_workers() -> dict[str, tuple[float, int]]:
    """200,000 rows on two workers: seconds of the clock."""
    import dask.array as da
    from distributed import Client, LocalCluster

    import suffice
    from suffice import problems

    rng = np.random.default_rng(0)
    X = rng.standard_normal((200_000, 20))
    y = X @ rng.standard_normal(20) + rng.standard_normal(200_000) > 0
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=40) as cluster,
        Client(cluster),
    ):
        there = da.from_array(X, chunks=(50_000, -1)).persist()
        three = problems.ElasticNetMultinomial(there, np.digitize(X[:, 0] + X[:, 1], [-1.0, 1.0]), intercept=True)
        kinds = {"": problems.ElasticNetLogistic(there, y), ", three classes, intercepts": three}
        return {
            f"solve 200000 x 20, two workers{name}": timed(
                lambda problem=problem: suffice.solve(problem.at(l1=1e-3, l2=1e-3), within=1e-5).steps,
                time.perf_counter,
            )
            for name, problem in kinds.items()
        }


def on_a_device(device: str) -> dict[str, tuple[float, int]]:
    """A model of 60,000 rows of torch, and six at a time: seconds of the clock."""
    import torch

    import suffice
    from suffice import problems
    from suffice.solvers.many import solve_each
    from suffice.solvers.solution import Ask

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 500))
    Y = X @ rng.standard_normal((500, 6)) + 5.0 * rng.standard_normal((60_000, 6)) > 0
    there = torch.as_tensor(X, device=device)
    first = problems.ElasticNetLogistic(there, Y[:, 0])
    rest = [problems.ElasticNetLogistic(first.design, y) for y in Y.T[1:]]
    models = [one.at(l1=1e-3, l2=1e-3) for one in (first, *rest)]

    def clock() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    return {
        f"solve 60000 x 500, {device}": timed(lambda: suffice.solve(models[0], within=1e-6).steps, clock),
        f"solve six of 60000 x 500, {device}": timed(
            lambda: sum(one.steps for one in solve_each([Ask(model, within=1e-6) for model in models], "auto")), clock
        ),
    }


def timed(task: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> tuple[float, int]:
    """The least seconds of some repeats, and the steps or evaluations of one."""
    steps, seconds = int(task()), []
    while sum(seconds) < SHORT and len(seconds) < 15:
        began = clock()
        task()
        seconds.append(clock() - began)
    return min(seconds), steps


def measure(device: str) -> dict[str, tuple[float, int]]:
    """Seconds of every case, and its steps or evaluations."""
    if device:
        return on_a_device(device)
    return {name: timed(task) for name, task in cases().items()} | on_workers()


def child(source: Path, *arguments: str) -> Any:
    """What another process says with this source."""
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    environment = {**os.environ, **one, "PYTHONPATH": f"{source / 'src'}:{source / 'examples'}:{Path(__file__).parent}"}
    answer = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()[-1]


@contextlib.contextmanager
def checked_out(before: str, here: Path) -> Iterator[Path]:
    """The folder of the other commit: as it is given, or checked out for as long as this takes."""
    if Path(before).is_dir():
        yield Path(before)
        return
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "before"
        subprocess.run(["git", "-C", here, "worktree", "add", "--detach", "--quiet", there, before], check=True)
        try:
            yield there
        finally:
            subprocess.run(["git", "-C", here, "worktree", "remove", "--force", there], check=True)


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(out=HERE.parent / "build" / "house")  # a tool for those who change the code, no result
    options.add_argument("--before", default="0a75d28", help="the commit that is compared with")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--device", default="", help="rows of torch alone, on this device: cuda or cpu")
    options.add_argument("--measure", action="store_true", help="the cases with the suffice that is there")
    args = options.parse_args()
    if args.measure:
        print(json.dumps(measure(args.device)))
        return
    here = Path(__file__).resolve().parent.parent
    task = [__file__, "--measure", "--device", args.device]
    runs: dict[str, list[Any]] = {"before": [], "now": []}
    with checked_out(args.before, here) as there:
        both = (("before", there), ("now", here))
        for _ in range(args.rounds):
            for name, source in both:
                runs[name].append(json.loads(child(source, *task)))
        imports = {name: child(source, "-c", IMPORTED).split() for name, source in both}
    rows, ratios = [], []
    for case in runs["now"][0]:
        before, now = (min(run[case][0] for run in runs[name]) for name in ("before", "now"))
        steps = [runs[name][0][case][1] for name in ("before", "now")]
        ratios.append(now / before)
        rows.append([case, f"{1e3 * before:.1f}", f"{1e3 * now:.1f}", f"{now / before:.2f}", *map(str, steps)])
    text = [
        f"# The house before ({args.before}) and now\n",
        f"{__doc__.split(chr(10) * 2)[1]}\n",
        table(["case", "before, ms", "now, ms", "ratio", "steps before", "now"], rows),
        f"\nMedian ratio {median(ratios):.2f}, largest {max(ratios):.2f}.\n",
        table(
            ["import suffice", "modules", "seconds", "all it shows: modules", "seconds"],
            [[name, *found] for name, found in imports.items()],
        ),
    ]
    made = provenance("scikit-learn")
    text.append("\n" + ", ".join(f"{name} {value}" for name, value in made.items()))
    name = f"house_{args.device}" if args.device else "house"
    write_text(args.out / f"{name}.md", "\n".join(text) + "\n")
    write_json(args.out / f"{name}.json", {"provenance": made, "runs": runs, "imports": imports})
    print("\n".join(text))


if __name__ == "__main__":
    main()
