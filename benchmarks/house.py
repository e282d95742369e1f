"""Is a rebuilt house as fast as the old one? Two commits side by side: solves and whole searches, by the same script.

A commit is checked out into a folder of its own, and its `src` put before all else: both run in this environment, in
processes of their own that take turns, so that a machine that is busy for a while is busy for both. Times are CPU
seconds of one thread, the least of all rounds, data and designs made anew every time; `evaluations` are those of a
search, or steps of a solve. Imports are counted in an interpreter of their own: modules of ours, and seconds beyond
those of numpy, scipy and scikit-learn.

    python benchmarks/house.py --before 0a75d28
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import parser, provenance, table, write_json, write_text

SHAPES = ((100, 10), (1000, 30), (20_000, 50))
SHORT = 1.0  # seconds, up to which a case is repeated
IMPORTED = """
import time, sys
import numpy, scipy, scipy.sparse, scipy.linalg, scipy.special, sklearn
began = time.perf_counter()
import suffice
seconds = time.perf_counter() - began
print(sum(name.partition('.')[0] == 'suffice' for name in sys.modules), seconds)
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
    return made


def measure() -> dict[str, tuple[float, int]]:
    """CPU seconds of every case, the least, and its steps or evaluations."""
    found = {}
    for name, task in cases().items():
        steps, seconds = int(task()), []
        while sum(seconds) < SHORT and len(seconds) < 15:
            began = time.process_time()
            task()
            seconds.append(time.process_time() - began)
        found[name] = min(seconds), steps
    return found


def child(source: Path, code: str | None = None) -> Any:
    """What another process says with this source."""
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    arguments = ["-c", code] if code else [__file__, "--measure"]
    environment = {**os.environ, **one, "PYTHONPATH": f"{source / 'src'}:{source / 'examples'}:{Path(__file__).parent}"}
    answer = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()[-1]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--before", default="0a75d28", help="the commit that is compared with")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--measure", action="store_true", help="the cases with the suffice that is there")
    args = options.parse_args()
    if args.measure:
        print(json.dumps(measure()))
        return
    here = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "before"
        subprocess.run(["git", "-C", here, "worktree", "add", "--detach", "--quiet", there, args.before], check=True)
        try:
            runs: dict[str, list[Any]] = {"before": [], "now": []}
            for _ in range(args.rounds):
                for name, source in (("before", there), ("now", here)):
                    runs[name].append(json.loads(child(source)))
            imports = {name: child(source, IMPORTED).split() for name, source in (("before", there), ("now", here))}
        finally:
            subprocess.run(["git", "-C", here, "worktree", "remove", "--force", there], check=True)
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
        table(["import suffice", "modules", "seconds"], [[name, *found] for name, found in imports.items()]),
    ]
    made = provenance("scikit-learn")
    text.append("\n" + ", ".join(f"{name} {value}" for name, value in made.items()))
    write_text(args.out / "house.md", "\n".join(text) + "\n")
    write_json(args.out / "house.json", {"provenance": made, "runs": runs, "imports": imports})
    print("\n".join(text))


if __name__ == "__main__":
    main()
