"""The solvers of this folder on its simulated problems, without benchopt's loop: seconds, metrics not counted, until
the squared gradient of the value function is down to a share of what it was.

    python benchmarks/benchopt/table.py
"""

import importlib.util
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARES, SECONDS, CALLS = (1e-2, 1e-6, 1e-10), 5.0, 3000


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def play(solver, objective):
    """[(seconds, squared gradient)] of everything that the solver would have returned."""
    solver.run_once = lambda *_: None
    solver.set_objective(**objective.get_objective())
    solver.run(_times(2))  # compiles
    seen, thinking = [], [time.perf_counter(), 0.0]

    def callback():
        thinking[1] += time.perf_counter() - thinking[0]
        seen.append((thinking[1], objective.evaluate_result(**solver.get_result())["value"]))
        thinking[0] = time.perf_counter()
        return thinking[1] < SECONDS and len(seen) < CALLS

    thinking[0] = time.perf_counter()
    solver.run(callback)
    return seen


def _times(n):
    left = iter(range(n))
    return lambda: next(left, None) is not None


def main():
    objective_class = load(HERE / "objective.py").Objective
    dataset_class = load(HERE / "datasets" / "simulated.py").Dataset
    suffice, implicit = (
        load(HERE / "solvers" / f"{name}.py").Solver for name in ("suffice_solver", "implicit_gradient")
    )
    print("| dimensions | solver |", " | ".join(f"to {share:g}" for share in SHARES), "|")
    print("| --- | --- |" + " ---: |" * len(SHARES))
    for size in (5, 20, 100):
        dataset, objective = dataset_class(), objective_class()
        dataset.dim_inner = dataset.dim_outer = size
        dataset.mu, dataset.random_state = 0.1, 2442
        objective.set_data(**dataset.get_data())
        for name, solver_class, chosen in (
            ("suffice", suffice, {"final_radius": 1e-6}),
            ("implicit gradient, 10 inner steps", implicit, {"step_size": 0.05, "inner_steps": 10}),
            ("implicit gradient, 100 inner steps", implicit, {"step_size": 0.05, "inner_steps": 100}),
        ):
            solver = solver_class()
            for key, value in chosen.items():
                setattr(solver, key, value)
            seen = play(solver, objective)
            found = [next((f"{at:.2g}" for at, value in seen if value <= share * seen[0][1]), "-") for share in SHARES]
            print(f"| {size} | {name} |", " | ".join(found), "|", flush=True)


if __name__ == "__main__":
    main()
