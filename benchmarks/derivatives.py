"""How many exact evaluations do derivatives save? The same searches with `derivatives="auto"` and with "never".

paper       The paper's MNIST problem from the seven starts of its study, theta = (1, log10 l2), and from (0, 0), in the
            box [-8, 8]^2; residuals are proven to err by at most 1e-6 times (J/131)^2 where J alone exceeds the optimal
            F. Evaluations until F is within 1 %, 0.1 % and 0.01 % of 131.0417.
penalties   Problems on which nothing was tuned: two penalties (elastic nets on the digits, one against nine in ten
            blocks, and on the breast cancer data), and one l1 for all with one l2 for each of 5, 10 and 20 groups of
            features of a synthetic design whose groups differ in relevance; held-out loss, residuals to 1e-7.
            Evaluations until F is within 1 %, 0.1 % and 0.01 % of the best that either search finds.
images      denoise3 of `suffice reproduce`: three parameters of smoothed total variation, 20 signals, from its own
            start, residuals to 1e-9, for both weights w of its penalty. Evaluations until F is within 1 %, 0.1 % and
            0.01 % of the best that either search finds in at most 100; one parameter, eps_l2, fades towards its bound.
more_wild   The 54 problems of More and Wild as in derivative_free.py, at most 400 evaluations; central differences
            stand for the Jacobian, and are not counted. Solved to tau: F <= F_L + tau (F_0 - F_L).

An evaluation counts as one, with its Jacobian or without: after a Newton solve that is a few triangular solves.
`python benchmarks/derivatives.py [section ...]` writes results/derivatives.md and .json; sections that are not named
keep their earlier results. MNIST evaluations are kept in benchmarks/.cache.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import HERE, mnist_problem, parser, provenance, table, target, write_json, write_text
from sklearn.datasets import load_breast_cancer, load_digits
from suffice_paper import imaging
from threadpoolctl import threadpool_limits

import suffice
from suffice import losses, problems

Vector = npt.NDArray[np.float64]
Section = dict[str, Any]
LEVELS = (1e-2, 1e-3, 1e-4)
MODES = ("auto", "never")
OPTIMUM = 131.0417
STARTS = [(1.0, float(b)) for b in (-3, -2, -1, 0, 1, 2, 3)]
GOALS = {1e-2: 5, 1e-3: 7, 1e-4: 9}  # from (1, 1)
BUDGET = 60


class Enough(BaseException):
    """The goal or the budget is reached."""


class Exact:
    """A bilevel problem whose evaluations count as exact; each is made once, on disk if there is a folder."""

    def __init__(
        self,
        problem: suffice.BilevelProblem,
        within: Callable[[Vector], float],
        folder: Path | None,
        budget: int = BUDGET,
    ) -> None:
        self.problem, self.within, self.folder, self.budget = problem, within, folder, budget
        self.known: dict[bytes, suffice.Evaluation] = {}
        self.costs: list[float] = []
        self.goal, self.last = -math.inf, None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def evaluate(self, theta: Vector, *, within: float, warm: Any = None) -> suffice.Evaluation:
        made = self._made(theta, False)
        self.costs.append(made.cost)
        if made.cost <= self.goal or len(self.costs) >= self.budget:
            raise Enough
        return suffice.Evaluation(made.point, made.r, np.zeros(len(made.e)), work=1, blocks=made.blocks)

    def differentiate(self, evaluation: suffice.Evaluation) -> suffice.Evaluation:
        return replace(evaluation, jacobian=self._made(evaluation.point, True).jacobian)

    def _made(self, theta: Vector, sloped: bool) -> suffice.Evaluation:
        theta = theta + 0.0  # no negative zeros in keys
        key = theta.tobytes()
        made = self.known.get(key)
        path = None if self.folder is None else self.folder / f"{hashlib.sha256(key).hexdigest()[:24]}.npz"
        if made is None and path is not None and path.exists():
            with np.load(path) as file:
                made = suffice.Evaluation(
                    theta, file["r"], file["e"], blocks=file["blocks"].tolist(), jacobian=file.get("J")
                )
        if made is None or (sloped and made.J is None and not made.solutions):
            made = self.problem.evaluate(theta, within=self.within(theta), warm=self.last)
            self.last = made
        if sloped and made.J is None:
            made = self.problem.differentiate(made)
        if path is not None:
            content = {} if made.J is None else {"J": made.J}
            np.savez(path, theta=theta, r=made.r, e=made.e, blocks=np.array(made.blocks), **content)
        self.known[key] = made
        return made

    def run(self, start: Any, mode: Any, goal: float = -math.inf) -> list[float]:
        """F of every evaluation, until the goal is reached or the search ends."""
        self.costs, self.goal = [], goal
        options = suffice.Options(max_evaluations=self.budget, derivatives=mode)
        with suppress(Enough):
            suffice.tune(self, start, bounds=self.problem.space.bounds, options=options)
        return self.costs


def reached(costs: list[float], F: float) -> float:
    return next((k for k, cost in enumerate(costs, 1) if cost <= F), math.inf)


def count(evaluations: float) -> str:
    return "never" if math.isinf(evaluations) else f"{evaluations:g}"


def counts(found: list[float]) -> str:
    return " / ".join(map(count, found))


def paper() -> Section:
    problem = mnist_problem("newton")
    assert problem.penalty is not None

    def within(theta: Vector) -> float:
        J = float(np.sum(np.square(problem.penalty(problem.space.params(theta)))))  # type: ignore[misc]
        return 1e-6 * max(1.0, J / OPTIMUM) ** 2

    oracle = Exact(problem, within, HERE / ".cache" / "mnist-derivatives")
    found: dict[str, dict[str, list[float]]] = {mode: {} for mode in MODES}
    for start in [*STARTS, (0.0, 0.0)]:
        for mode in MODES:
            costs = oracle.run(start, mode, (1.0 + LEVELS[-1]) * OPTIMUM)
            found[mode][str(start)] = [reached(costs, (1.0 + level) * OPTIMUM) for level in LEVELS]
            print("paper", start, mode, counts(found[mode][str(start)]), flush=True)
    seven = {mode: [found[mode][str(start)] for start in STARTS] for mode in MODES}
    medians = {mode: np.median(np.array(seven[mode]), axis=0).tolist() for mode in MODES}
    rows = [[start, *(counts(found[mode][start]) for mode in MODES)] for start in found["auto"]]
    rows.append(["median of the seven with l1 = 10", *(counts(medians[mode]) for mode in MODES)])
    home = found["auto"][str((1.0, 1.0))]
    targets = [
        target(f"from (1, 1) to {level:.2%}", got, GOALS[level], digits=0)
        for level, got in zip(LEVELS, home, strict=True)
    ]
    targets += [
        target(f"median of seven starts to {level:.2%}", got, other - 1, digits=0)
        for level, got, other in zip(LEVELS, medians["auto"], medians["never"], strict=True)
    ]
    title = "## The paper's problem: exact evaluations to 1 / 0.1 / 0.01 %"
    return {"title": title, "head": ["start", *MODES], "rows": rows, "targets": targets, "runs": found}


def elastic_net(X: Vector, labels: list[Any]) -> suffice.BilevelProblem:
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[: len(X) // 2], order[len(X) // 2 :]
    return suffice.BilevelProblem(
        lower=[problems.ElasticNetLogistic(X[train], y[train]) for y in labels],
        losses=[losses.Brier(X[test], y[test], positive=True) for y in labels],
        space=suffice.Space(l1=(1e-6, 1e2), l2=(1e-6, 1e2)),
        solver="newton",
    )


def grouped(m: int, seed: int) -> suffice.BilevelProblem:
    rng = np.random.default_rng([m, seed])
    d, rows = 8 * m, 12 * m
    scale = np.repeat(2.0 ** -np.linspace(0.0, 7.0, m), 8)
    w = scale * rng.standard_normal(d)
    X, Z = rng.standard_normal((rows, d)), rng.standard_normal((10 * m, d))
    y, z = (A @ w + rng.standard_normal(len(A)) for A in (X, Z))
    model = problems.Grouped(problems.ElasticNet(X, y), np.repeat(np.arange(m), 8))
    names = {name: (1e-4, 1e3) for name in ("l1", *model.names("l2"))}
    return suffice.BilevelProblem(
        lower=[model], losses=[losses.SquaredError(Z, z)], space=suffice.Space(**names), solver="newton"
    )


def penalties() -> Section:
    digits, cancer = load_digits(), load_breast_cancer()
    made = {
        "digits, elastic net, m = 2": (elastic_net(digits.data, [digits.target == k for k in range(10)]), [-2.0, -2.0]),
        "breast cancer, elastic net, m = 2": (elastic_net(cancer.data, [cancer.target == 1]), [-2.0, -2.0]),
        **{
            f"{m} groups, m = {m + 1}, seed {seed}": (grouped(m, seed), [-1.0] + [0.0] * m)
            for m in (5, 10, 20)
            for seed in range(3)
        },
    }
    rows, runs, targets = [], {}, []
    for name, (problem, start) in made.items():
        oracle = Exact(problem, lambda theta: 1e-7, None)
        costs = {mode: oracle.run(start, mode) for mode in MODES}
        best = min(map(min, costs.values()))
        found = {mode: [reached(costs[mode], (1.0 + level) * best) for level in LEVELS] for mode in MODES}
        ends = [f"{len(costs[mode])}, {min(costs[mode]):.8g}" for mode in MODES]
        rows.append([name, *(counts(found[mode]) for mode in MODES), *ends])
        runs[name] = {"found": found, "costs": costs}
        if name.startswith("20 groups"):
            targets.append(target(f"{name}: evaluations to 0.01%", found["auto"][-1], 25, digits=0))
        print("penalties", rows[-1], flush=True)
    head = ["problem", *MODES, *(f"{mode}: evaluations in all, F" for mode in MODES)]
    title = f"## Other penalties: exact evaluations to 1 / 0.1 / 0.01 % of the best found, at most {BUDGET}"
    return {"title": title, "head": head, "rows": rows, "targets": targets, "runs": runs}


def images() -> Section:
    setting = imaging.SETTINGS["denoise3", "full"]
    rows, runs, targets = [], {}, []
    for w in setting.starts:
        problem = imaging.problem(setting, w, "newton_tv")
        oracle = Exact(problem, lambda theta: 1e-9, None, budget=100)
        costs = {mode: oracle.run(imaging.first_theta(setting, w), mode) for mode in MODES}
        best = min(map(min, costs.values()))
        found = {mode: [reached(costs[mode], (1.0 + level) * best) for level in LEVELS] for mode in MODES}
        ends = [f"{len(costs[mode])}, {min(costs[mode]):.8g}" for mode in MODES]
        rows.append([f"denoise3, w = {w:g}", *(counts(found[mode]) for mode in MODES), *ends])
        runs[f"{w:g}"] = {"found": found, "costs": costs}
        targets.append(target(f"denoise3, w = {w:g}: evaluations to 0.01%", found["auto"][-1], 15, digits=0))
        print("images", rows[-1], flush=True)
    head = ["problem", *MODES, *(f"{mode}: evaluations in all, F" for mode in MODES)]
    title = "## Images: exact evaluations to 1 / 0.1 / 0.01 % of the best found, at most 100"
    return {"title": title, "head": head, "rows": rows, "targets": targets, "runs": runs}


def more_wild() -> Section:
    from derivative_free import load

    taus, budget = (1e-1, 1e-3, 1e-5, 1e-7), 400
    needed: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
    for problem in load():
        costs: dict[str, list[float]] = {}
        for mode in MODES:
            costs[mode] = []

            def fun(x: Vector, seen: list[float] = costs[mode], problem: Any = problem) -> Vector:
                r = np.asarray(problem.residuals(x), dtype=np.float64)
                F = float(r @ r)
                seen.append(F if np.isfinite(F) else np.inf)
                return r

            options = suffice.Options(max_evaluations=budget, final_radius=1e-8, derivatives=mode)
            slopes = None if mode == "never" else lambda x, f=problem.residuals: central_differences(f, x)
            with suppress(suffice.OracleError):
                suffice.tune(suffice.exact(fun, slopes), problem.start, options=options)
        low = min(problem.known, *map(min, costs.values()))
        for mode in MODES:
            seen = costs[mode]
            needed[mode].append([reached(seen, low + tau * (seen[0] - low)) for tau in taus])
    rows = []
    for k, tau in enumerate(taus):
        auto, never = (np.array(needed[mode])[:, k] for mode in MODES)
        both = np.isfinite(auto) & np.isfinite(never)
        ratio = auto[both] / never[both]
        solved = [int(np.isfinite(one).sum()) for one in (auto, never)]
        means = f"{np.median(ratio):.2f}", f"{np.exp(np.mean(np.log(ratio))):.2f}"
        rows.append([f"{tau:.0e}", *solved, f"{np.median(auto[both]):g} / {np.median(never[both]):g}", *means])
        print("more_wild", rows[-1], flush=True)
    head = ["tau", "solved, auto", "solved, never", "median evaluations", "median ratio", "mean ratio"]
    title = "## Moré-Wild, 54 problems: evaluations with derivatives over those without"
    return {"title": title, "head": head, "rows": rows, "targets": [], "runs": needed}


def central_differences(fun: Callable[[Vector], Vector], x: Vector) -> Vector:
    h = 6e-6 * np.maximum(1.0, np.abs(x))
    columns = []
    for step in np.diag(h):
        ahead, behind = (np.asarray(fun(x + sign * step), dtype=np.float64) for sign in (1.0, -1.0))
        columns.append((ahead - behind) / (2.0 * step.sum()))
    return np.array(columns).T


SECTIONS: dict[str, Callable[[], Section]] = {
    "paper": paper,
    "penalties": penalties,
    "images": images,
    "more_wild": more_wild,
}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)} (all)")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")  # overflows of the test functions
    path = args.out / "derivatives.json"
    found: dict[str, Section] = json.loads(path.read_text())["sections"] if path.exists() else {}
    for name in args.sections or SECTIONS:
        with threadpool_limits(1):
            found[name] = SECTIONS[name]() | {"provenance": provenance("optimagic")}
        write_json(path, {"what": "exact evaluations with derivatives and without", "sections": found})
    parts = ["# Derivatives: exact evaluations with them and without"]
    for section in (found[name] for name in SECTIONS if name in found):
        parts += [section["title"], table(section["head"], section["rows"])]
        if section["targets"]:
            parts.append(table(["target", "measured", "target", "verdict"], section["targets"]))
    write_text(args.out / "derivatives.md", "\n\n".join(parts) + "\n")
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
