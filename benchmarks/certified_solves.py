"""How fast is one certified solve? Elastic-net models on MNIST, suffice against skglm, celer and scikit-learn.

The paper's training data: 5000 images of 784 raw pixels as a sparse matrix, one problem per digit 0 to 5, or the first
of them. Penalties are the paper's optimum and others, with condition numbers from 1e2 to 1e6; one has l1 = 0, for the
solvers that only know l2; one is least squares on labels -1 and 1. Every solver starts from 0 and has to reach a
distance of 1e-3 or 1e-8 to the exact weights.

suffice stops by its own certificate. A rival has no such test: it gets the loosest tolerance, a power of ten, with
which `suffice.certify` proves as much of its result. Neither the search for that tolerance nor the certificate counts
for the rival, nor does compilation. Times are CPU time of one thread, which is wall time on a core of one's own: the
least of three runs where a run is short, of all digits together. A solver that needs more than --limit seconds for
a digit is not run on the others.

The price of certificates is measured for FISTA: as many steps with a certificate after each as without any.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import celer
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import sklearn.linear_model
from common import mnist_problem, parser, provenance, table, target, write_json, write_text
from skglm.datafits import Logistic, Quadratic
from skglm.penalties import L1_plus_L2
from skglm.solvers import AndersonCD, ProxNewton
from skglm.utils.jit_compilation import compiled_clone
from suffice_bench.grids import counted
from threadpoolctl import threadpool_limits

import suffice
from suffice.problems import ElasticNet, ElasticNetLogistic

Vector = npt.NDArray[np.float64]
Family = ElasticNetLogistic | ElasticNet
GOALS = (1e-3, 1e-8)
TOLERANCES = [10.0**-k for k in range(13)]
OURS = ("fista", "fista_adaptive", "newton", "auto")
STEPS = 30_000  # the most that FISTA gets
SHORT = 1.0  # seconds, up to which a run is repeated


@dataclass(frozen=True)
class Setting:
    """Penalties, and which loss; log10, or None for l1 = 0."""

    name: str
    l1: float | None
    l2: float
    loss: str = "logistic"

    def at(self, family: Family) -> suffice.Composite:
        return family.at(l1=0.0 if self.l1 is None else 10.0**self.l1, l2=10.0**self.l2)


SETTINGS = (
    Setting("kappa 1e2", -1.0462, 3.787),
    Setting("kappa 1e3", -0.5, 2.787),
    Setting("kappa 1e4, sparse", 0.0, 1.787),
    Setting("the paper's optimum", -1.0462, 1.6253),
    Setting("kappa 1e5, dense", -2.0, 0.787),
    Setting("kappa 1e6", -1.0, -0.213),
    Setting("l1 = 0", None, 1.6253),
    Setting("least squares", -1.0, 2.389, "squared"),
)

Fit = Callable[[Family, float, float, float], Vector]


def with_skglm(method: Callable[[float], Any]) -> Fit:
    def fit(family: Family, l1: float, l2: float, tol: float) -> Vector:
        datafit = compiled_clone(Logistic() if isinstance(family, ElasticNetLogistic) else Quadratic())
        penalty = compiled_clone(L1_plus_L2(l1 + l2, l1 / (l1 + l2)))
        w: Vector = method(tol).solve(columns(family), family.y, datafit, penalty)[0]
        return w

    return fit


def with_logistic_regression(solver: str) -> Fit:
    def fit(family: Family, l1: float, l2: float, tol: float) -> Vector:
        rows = family.design.shape[0]
        model = sklearn.linear_model.LogisticRegression(
            C=1.0 / (rows * (l1 + l2)),
            l1_ratio=l1 / (l1 + l2),
            solver=solver,
            tol=tol,
            fit_intercept=False,
            max_iter=1000,
            random_state=0,
        )
        w: Vector = model.fit(family.design.X, family.y).coef_[0]
        return w

    return fit


def with_elastic_net(model: Any) -> Fit:
    def fit(family: Family, l1: float, l2: float, tol: float) -> Vector:
        chosen = model(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), fit_intercept=False, tol=tol, max_iter=10_000)
        w: Vector = chosen.fit(columns(family), family.y).coef_
        return w

    return fit


def columns(family: Family) -> Any:
    """X by columns, which coordinate descent wants: converted once, not at the rival's expense."""
    if family.design not in _COLUMNS:
        _COLUMNS[family.design] = sp.csc_matrix(family.design.X)
    return _COLUMNS[family.design]


_COLUMNS: dict[Any, Any] = {}

SKGLM: dict[str, Fit] = {
    "skglm ProxNewton": with_skglm(lambda tol: ProxNewton(tol=tol, max_iter=200, fit_intercept=False)),
    "skglm AndersonCD": with_skglm(lambda tol: AndersonCD(tol=tol, max_iter=500, fit_intercept=False)),
}
LOGISTIC: dict[str, Fit] = {"scikit-learn saga": with_logistic_regression("saga")} | SKGLM
SMOOTH: dict[str, Fit] = {
    f"scikit-learn {name}": with_logistic_regression(name) for name in ("newton-cg", "newton-cholesky", "lbfgs")
}
SQUARED: dict[str, Fit] = {
    "scikit-learn ElasticNet": with_elastic_net(sklearn.linear_model.ElasticNet),
    "celer ElasticNet": with_elastic_net(celer.ElasticNet),
    "skglm AndersonCD": SKGLM["skglm AndersonCD"],
}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU time of three runs, of one if it takes long."""
    best, result = math.inf, None
    for _ in range(3):
        started = time.process_time()
        result = run()
        best = min(best, time.process_time() - started)
        if best > SHORT:
            break
    return best, result


def measure_ours(solver: str, problems: list[suffice.Composite], goal: float, limit: float) -> dict[str, Any]:
    seconds, steps, reached = 0.0, [], True
    for problem in problems:
        spent, solution = timed(partial(suffice.solve, problem, within=goal, solver=solver, max_steps=STEPS))
        seconds += spent
        steps.append(solution.steps)
        reached = reached and solution.reached
        if spent > limit:
            break
    reached = reached and len(steps) == len(problems)
    return {"solver": solver, "seconds": seconds, "steps": steps, "reached": reached}


def passes_of_auto(problems: list[suffice.Composite], goal: float) -> float:
    """Passes over X, N d multiplications each, Hessians included; FISTA makes two in a step."""
    with counted() as work:
        for problem in problems:
            suffice.solve(problem, within=goal)
    rows, columns = problems[0].smooth.design.shape  # type: ignore[attr-defined]
    return sum(work) / (rows * columns * len(problems))


def measure_rival(name: str, fit: Fit, families: list[Family], setting: Setting, goal: float, limit: float) -> Any:
    seconds, tolerances, k = 0.0, [], 0
    for family in families:
        problem = setting.at(family)
        l1, l2 = problem.canonical.g.l1, problem.mu  # type: ignore[attr-defined]
        while True:
            spent, w = timed(partial(fit, family, l1, l2, TOLERANCES[k]))
            if suffice.certify(problem, w).radius <= goal:
                break
            k += 1
            if k == len(TOLERANCES) or spent > limit:
                return {"solver": name, "seconds": None, "tolerances": tolerances, "reached": False}
        seconds += spent
        tolerances.append(TOLERANCES[k])
        k = max(k - 1, 0)
    return {"solver": name, "seconds": seconds, "tolerances": tolerances, "reached": True}


def price_of_certificates(problem: suffice.Composite, steps: int = 300) -> dict[str, float]:
    """CPU time of FISTA's steps, certified each and not at all."""
    ratios = {}
    for solver in ("fista", "fista_adaptive"):
        best = {"with": math.inf, "without": math.inf}
        for _ in range(7):
            for kind, run in {
                "with": lambda s=solver: deque(islice(suffice.iterate(problem, solver=s), steps + 1), maxlen=1),
                "without": lambda s=solver: suffice.solve(problem, steps=steps, solver=s),
            }.items():
                started = time.process_time()
                run()
                best[kind] = min(best[kind], time.process_time() - started)
        ratios[solver] = best["with"] / best["without"] - 1.0
    return ratios


def report(rows: list[dict[str, Any]], price: dict[str, float], digits: int) -> tuple[str, list[list[str]]]:
    lines, targets = [], []
    for row in rows:
        each = {entry["solver"]: entry["seconds"] / len(entry["steps"]) for entry in row["ours"]}
        reached = {entry["solver"]: entry["reached"] for entry in row["ours"]}
        rivals = [(r["seconds"] / len(r["tolerances"]), r["solver"]) for r in row["rivals"] if r["reached"]]
        best, name = min(rivals, default=(math.inf, "none in time"))
        steps, fista_steps = (
            next(np.mean(entry["steps"]) for entry in row["ours"] if entry["solver"] == solver)
            for solver in ("auto", "fista")
        )
        lines.append([
            row["setting"],
            f"{row['kappa']:.1e}",
            f"{row['goal']:g}",
            *(f"{'' if reached[solver] else '> '}{1e3 * each[solver]:.0f}" for solver in OURS),
            f"{steps:.1f}",
            f"{row['passes of auto']:.0f}",
            f"{2 * fista_steps:.0f}",
            f"{each['fista'] / each['auto']:.1f}",
            name if math.isinf(best) else f"{1e3 * best:.0f} ({name})",
            "" if math.isinf(best) else f"{best / each['auto']:.1f}",
        ])  # fmt: skip
        what = f"{row['setting']}, {row['goal']:g}: times faster than"
        if row["kappa"] >= 0.99e4:  # those called 1e4, too
            targets.append(target(f"{what} fista", each["fista"] / each["auto"], 10.0, at_least=True))
        if not math.isinf(best):
            targets.append(target(f"{what} the best rival", best / each["auto"], 1.0, at_least=True))
    for solver, ratio in price.items():
        targets.append(target(f"price of certificates, {solver}, %", 100 * ratio, 5.0))
    head = [
        "problem",
        "kappa",
        "distance",
        *(f"{name}, ms" for name in OURS),
        "auto's steps",
        "auto's passes",
        "fista's passes",
    ]
    head += ["fista / auto", "best rival, ms", "rival / auto"]
    parts = [
        f"# Certified solves of elastic-net models: MNIST, {digits} digits",
        table(head, lines),
        f"CPU milliseconds of one thread for a problem, the mean of {digits}; `>`: stopped by a limit, on the first "
        "digit or before the distance was proven. A rival's time is that of its loosest sufficient tolerance. A pass "
        "is N d multiplications: a product with X or with X^T, or as much work on a Hessian.",
        "## Targets",
        table(["what", "measured", "target", "verdict"], targets),
    ]
    return "\n\n".join(parts) + "\n", targets


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--limit", type=float, default=30.0, help="seconds for a single solve (%(default)s)")
    arguments.add_argument("--digits", type=int, default=6, help="of the six, the first so many (%(default)s)")
    arguments.add_argument("--settings", nargs="*", default=None, help="those whose name begins so")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")  # rivals complain about tolerances they do not reach
    with threadpool_limits(1):
        logistic = list(mnist_problem().lower)[: args.digits]
        squared = [ElasticNet(family.design, family.y) for family in logistic]
        rows = []
        for setting in SETTINGS:
            if args.settings and not setting.name.startswith(tuple(args.settings)):
                continue
            families = squared if setting.loss == "squared" else logistic
            rivals = SQUARED if setting.loss == "squared" else SMOOTH if setting.l1 is None else LOGISTIC
            problems = [setting.at(family) for family in families]
            for fit in rivals.values():  # compile
                fit(families[0], 1.0, problems[0].mu, 1.0) if setting.l1 is not None else None
            for goal in GOALS:
                row = {"setting": setting.name, "l1": setting.l1, "l2": setting.l2, "loss": setting.loss, "goal": goal}
                row |= {"kappa": problems[0].kappa}
                row |= {"passes of auto": passes_of_auto(problems, goal)}
                row["ours"] = [measure_ours(solver, problems, goal, args.limit) for solver in OURS]
                row["rivals"] = [
                    measure_rival(name, fit, families, setting, goal, args.limit) for name, fit in rivals.items()
                ]
                rows.append(row)
                shown = {e["solver"]: e["seconds"] and round(e["seconds"], 3) for e in row["ours"] + row["rivals"]}
                print(f"{setting.name}, {goal:g}: {shown}", flush=True)
        price = price_of_certificates(SETTINGS[3].at(logistic[-1]))
    text, targets = report(rows, price, args.digits)
    data = {
        "what": "MNIST, time until a distance to the exact weights is proven, suffice against other solvers",
        "provenance": provenance("scikit-learn", "skglm", "celer", "numba"),
        "targets": targets,
        "price_of_certificates": price,
        "rows": rows,
    }
    write_json(args.out / "certified_solves.json", data)
    write_text(args.out / "certified_solves.md", text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
