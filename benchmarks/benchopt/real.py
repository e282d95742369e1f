"""The suite of benchmark_bilevel itself (github.com/benchopt/benchmark_bilevel, Dagreou, Ablin and Moreau): its
objective, its simulated quadratics and its solvers with their published parameters, beside `suffice_solver.py`.

    python benchmarks/benchopt/real.py --theirs FOLDER     (needs benchopt, jax, jaxopt and optuna)

Times are processor time of the process, metrics and compilation not counted, until the squared gradient of the value
function is down to a share of what it was, the median over seeds; `-`: not within --seconds, and the share that it had
come to by then. XLA has one thread. Published parameters are those of config/quadratics_021424_best_params.yml; solvers
that are not in it have their defaults. Samples are fewer than there (32,768), as memory is shared; dimensions are the
same (100 and 10). Theirs is float32; ours computes in float64 on the same data.
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
HERE = Path(__file__).resolve().parent
SHARES = (1e-2, 1e-4, 1e-6, 1e-8)
SHARED = {"batch_size": 64}
PUBLISHED = {
    "amigo": {"n_inner_steps": 10, "outer_ratio": 0.1, "step_size": 0.01, "eval_freq": 16},
    "mrbo": {"eta": 0.5, "n_shia_steps": 10, "outer_ratio": 0.1, "step_size": 0.1, "eval_freq": 16},
    "saba": {"mode_init_memory": "zero", "outer_ratio": 1.0, "step_size": 0.1, "eval_freq": 64},
    "srba": {"outer_ratio": 1.0, "period_frac": 0.5, "step_size": 0.1, "eval_freq": 64},
    "stocbio": {"n_inner_steps": 10, "n_shia_steps": 10, "outer_ratio": 1.0, "step_size": 0.1, "eval_freq": 16},
    "vrbo": {"n_inner_steps": 10, "n_shia_steps": 10, "outer_ratio": 1.0, "period_frac": 0.01, "step_size": 0.1,
             "eval_freq": 2},
    "f2sa": {"delta_lmbda": 0.01, "lmbda0": 1.0, "n_inner_steps": 10, "outer_ratio": 1.0, "step_size": 0.1,
             "eval_freq": 16},
}  # fmt: skip
OTHERS = ("soba", "sustain", "ttsa", "jaxopt_gd", "optuna")


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepared(module, chosen, seed):
    solver = module.Solver()
    for key, values in module.Solver.parameters.items():
        setattr(solver, key, values[0])
    for key, value in {**SHARED, **chosen, "random_state": seed}.items():
        setattr(solver, key, value)
    return solver


def play(solver, objective, seconds):
    """[(seconds, squared gradient)] of all that the solver would have returned."""
    solver.run_once = lambda *_: None
    solver.set_objective(**objective.get_objective())
    left = iter(range(2))
    solver.run(lambda: next(left, None) is not None)  # compiles
    seen, spent, since = [], 0.0, 0.0

    def callback():
        nonlocal spent, since
        spent += time.process_time() - since
        found = objective.evaluate_result(**solver.get_result()) if hasattr(solver, "inner_var") else start
        seen.append((spent, float(found["value"])))
        since = time.process_time()
        return spent < seconds and seen[-1][1] > 0.1 * SHARES[-1] * seen[0][1]

    start = objective.evaluate_result(**objective.get_one_result())
    solver.inner_var, solver.outer_var = objective.inner_var0, objective.outer_var0
    since = time.process_time()
    solver.run(callback)
    return seen


def reached(seen):
    first = seen[0][1]
    return [next((at for at, value in seen if value <= share * first), None) for share in SHARES]


def table(rows, samples):
    lines = ["| solver | " + " | ".join(f"to {share:g}, s" for share in SHARES) + " | least share |",
             "| --- |" + " ---: |" * (len(SHARES) + 1)]  # fmt: skip
    for name in dict.fromkeys(row["solver"] for row in rows if row["samples"] == samples):
        mine = [row for row in rows if (row["solver"], row["samples"]) == (name, samples)]
        cells = []
        for k in range(len(SHARES)):
            times = sorted(row["reached"][k] if row["reached"][k] is not None else float("inf") for row in mine)
            middle = statistics.median_high(times)
            cells.append("-" if middle == float("inf") else f"{middle:.2g}")
        least = statistics.median(row["least"] for row in mine)
        lines.append(f"| {name} | {' | '.join(cells)} | {least:.1e} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--theirs", type=Path, required=True, help="a copy of benchmark_bilevel")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results")
    parser.add_argument("--samples", type=int, nargs="*", default=[1024, 4096])
    parser.add_argument("--seconds", type=float, default=20.0, help="processor time of a run (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    sys.path[:0] = [str(args.theirs), str(HERE.parent)]
    from common import provenance

    objective_class = load(args.theirs / "objective.py").Objective
    dataset_class = load(args.theirs / "datasets" / "simulated.py").Dataset
    rows, known = [], provenance("benchopt", "jax")
    solvers = {"suffice": (HERE / "solvers" / "suffice_solver.py", {})}
    solvers |= {name: (args.theirs / "solvers" / f"{name}.py", chosen) for name, chosen in PUBLISHED.items()}
    solvers |= {name: (args.theirs / "solvers" / f"{name}.py", {}) for name in OTHERS}
    for samples in args.samples:
        dataset, objective = dataset_class(), objective_class()
        for key, values in dataset_class.parameters.items():
            setattr(dataset, key, values[0])
        dataset.n_samples_inner, dataset.n_samples_outer, dataset.dim_outer = samples, min(samples, 1024), 10
        objective.set_data(**dataset.get_data())
        for name, (path, chosen) in solvers.items():
            if args.only and name not in args.only:
                continue
            for seed in range(1, 1 + (1 if name == "suffice" or "jaxopt" in name else args.seeds)):
                try:
                    solver = prepared(load(path), chosen, seed)
                    seen = play(solver, objective, args.seconds)
                except (ValueError, TypeError, AttributeError) as error:  # ValueError: it has diverged
                    print(name, seed, repr(error)[:300], flush=True)
                    continue
                least = min(value for _, value in seen) / seen[0][1]
                rows.append({"solver": name, "samples": samples, "seed": seed, "reached": reached(seen),
                             "least": least, "calls": len(seen),
                             "products": getattr(getattr(solver, "inner", None), "products", None),
                             "gradients": getattr(getattr(solver, "inner", None), "gradients", None)})  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
                save(rows, known, args.samples, args.out)


def save(rows, known, sizes, out):
    from common import write_json, write_text

    parts = ["# benchmark_bilevel's simulated quadratics", __doc__]
    parts += [f"## {samples} samples\n\n{table(rows, samples)}" for samples in sizes]
    parts += [", ".join(f"{key} {value}" for key, value in known.items())]
    write_json(out / "benchmark_bilevel.json", {"rows": rows, "provenance": known})
    write_text(out / "benchmark_bilevel.md", "\n\n".join(part.strip() for part in parts) + "\n")


if __name__ == "__main__":
    main()
