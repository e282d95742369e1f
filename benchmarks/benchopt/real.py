"""The suite of benchmark_bilevel itself (github.com/benchopt/benchmark_bilevel, Dagreou, Ablin and Moreau): its
objective, its simulated quadratics and its solvers with their published parameters, beside `suffice_solver.py`.

    python benchmarks/benchopt/real.py --theirs FOLDER     (needs benchopt, jax, jaxopt and optuna)

Every run is a process of its own, with one thread, that ends after --limit seconds of processor time, compilation
among them. Times are its processor time, metrics and compilation not counted, until the squared gradient of the value
function is down to a share of what it was, the median over seeds; `-`: not within --seconds; `least share` is the least
that was seen. What is made of data before the first step, such as our Hessians, is counted. Gradients (of the inner and
the outer function) and products (of Hessians and cross derivatives with a vector) are those of all samples until the
share was down to COUNTED: ours are counted, theirs follow from what a step of each method calls, minibatches as parts.

Published parameters are those of config/quadratics_021424_best_params.yml; solvers that are not in it have their
defaults. Samples are fewer than there (32,768), as memory is shared; dimensions are the same (100 and 10). Theirs is
float32; ours computes in float64 on the same data, its Hessians in float32. XLA's constant folding is off for all: it
folds the samples, which loops of theirs hold as constants, and compilation of AmIGO had not ended after 100 s.
"""

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 --xla_disable_hlo_passes=constant_folding"
os.environ.setdefault("XLA_FLAGS", FLAGS)
HERE = Path(__file__).resolve().parent
SHARES, COUNTED = (1e-2, 1e-4, 1e-6, 1e-8), 1
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
# (gradients, products) of minibatches in a step, with ten inner steps or products where a method has them; what SRBA
# and VRBO make of all samples now and then is left out, and so are the products of SUSTAIN and TTSA, a random number
STEPS = {"amigo": (11, 11), "mrbo": (4, 22), "saba": (2, 2), "srba": (4, 4), "stocbio": (11, 11), "vrbo": (40, 220),
         "f2sa": (33, 0), "soba": (2, 2)}  # fmt: skip


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
    import jax

    solver.run_once = lambda *_: None
    solver.set_objective(**objective.get_objective())
    left = iter(range(2))
    solver.run(lambda: next(left, None) is not None)  # compiles
    seen, spent, since, solver.compiled, solver.counts = [], 0.0, 0.0, time.process_time(), []

    def callback():
        nonlocal spent, since
        jax.block_until_ready(list(solver.get_result().values()))
        spent += time.process_time() - since
        found = objective.evaluate_result(**solver.get_result())
        seen.append((spent, float(found["value"])))
        work = getattr(solver, "inner", None)
        solver.counts.append([work.gradients, work.products] if work else None)
        since = time.process_time()
        return spent < seconds and seen[-1][1] > 0.1 * SHARES[-1] * seen[0][1]

    solver.inner_var, solver.outer_var = objective.inner_var0, objective.outer_var0
    since = time.process_time()
    solver.run(callback)
    return seen


def reached(seen):
    first = seen[0][1]
    return [next((at for at, value in seen if value <= share * first), None) for share in SHARES]


def table(rows, samples):
    lines = ["| solver | runs | " + " | ".join(f"to {share:g}, s" for share in SHARES)
             + f" | least share | gradients, products to {SHARES[COUNTED]:g} | compilation, s |",
             "| --- |" + " ---: |" * (len(SHARES) + 4)]  # fmt: skip
    here = [row for row in rows if row["samples"] == samples]
    for name in dict.fromkeys(row["solver"] for row in here):
        mine = [row for row in here if row["solver"] == name]
        cells = []
        for k in range(len(SHARES)):
            middle = typical([row["reached"][k] if "reached" in row else None for row in mine])
            cells.append("-" if middle == float("inf") else f"{middle:.2g}")
        ended = [row for row in mine if "reached" in row]
        cells.append(f"{statistics.median(row['least'] for row in ended):.1e}" if ended else mine[0]["failed"])
        counts = [typical([row["counts"][k] if row.get("counts") else None for row in mine]) for k in range(2)]
        cells.append("-" if float("inf") in counts else ", ".join(f"{count:.0f}" for count in counts))
        cells.append(f"{statistics.median(row['compilation'] for row in ended):.0f}" if ended else "-")
        lines.append(f"| {name} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def typical(values):
    """The median, what was not reached being infinite."""
    return statistics.median_high(sorted(float("inf") if value is None else value for value in values))


def counted(name, solver, seen, samples):
    """Gradients and products of all samples until the share was down to COUNTED."""
    calls = next((k for k, (_, value) in enumerate(seen) if value <= SHARES[COUNTED] * seen[0][1]), None)
    if calls is None:
        return None
    if name == "suffice":
        return solver.counts[calls]
    steps = calls * getattr(solver, "eval_freq", 0) * SHARED["batch_size"] / samples
    return [count * steps for count in STEPS[name]] if name in STEPS else None


def one_run(name, samples, seed, args):
    """What a process of its own prints."""
    resource.setrlimit(resource.RLIMIT_CPU, (args.limit, args.limit))
    sys.path.insert(0, str(args.theirs))
    objective = load(args.theirs / "objective.py").Objective()
    dataset_class = load(args.theirs / "datasets" / "simulated.py").Dataset
    dataset = dataset_class()
    for key, values in dataset_class.parameters.items():
        setattr(dataset, key, values[0])
    dataset.n_samples_inner, dataset.n_samples_outer, dataset.dim_outer = samples, min(samples, 1024), 10
    objective.set_data(**dataset.get_data())
    path = HERE / "solvers" / "suffice_solver.py" if name == "suffice" else args.theirs / "solvers" / f"{name}.py"
    solver = prepared(load(path), PUBLISHED.get(name, {}), seed)
    began = time.process_time()
    try:
        seen = play(solver, objective, args.seconds)
    except ValueError:  # their objective's word for a gradient that is not a number
        return {"failed": "diverged"}
    least = min(value for _, value in seen) / seen[0][1]
    counts = counted(name, solver, seen, samples)
    return {"reached": reached(seen), "least": least, "calls": len(seen), "counts": counts,
            "compilation": solver.compiled - began}  # fmt: skip


def apart(name, samples, seed, args):
    """`one_run` in a process of its own."""
    asked = [sys.executable, __file__, "--theirs", str(args.theirs), "--samples", str(samples), "--only", name]
    asked += ["--seconds", str(args.seconds), "--limit", str(args.limit), "--run", str(seed)]
    made = subprocess.run(asked, capture_output=True, text=True, check=False)
    if made.returncode == 0:
        return json.loads(made.stdout.splitlines()[-1])
    print(made.stderr[-1000:], flush=True)
    return {"failed": f"over {args.limit} s" if made.returncode < 0 else "an error"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--theirs", type=Path, required=True, help="a copy of benchmark_bilevel")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results")
    parser.add_argument("--samples", type=int, nargs="*", default=[1024, 8192])
    parser.add_argument("--seconds", type=float, default=20.0, help="processor time of a run (%(default)s)")
    parser.add_argument("--limit", type=int, default=300, help="all of a process's processor time (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)  # the seed of one run, printed
    args = parser.parse_args()
    if args.run is not None:
        print(json.dumps(one_run(args.only[0], args.samples[0], args.run, args)))
        return
    sys.path.insert(0, str(HERE.parent))
    from common import provenance

    rows, known = [], provenance("benchopt", "jax")
    for samples in args.samples:
        for name in ("suffice", *PUBLISHED, *OTHERS):
            if args.only and name not in args.only:
                continue
            for seed in range(1, 1 + (1 if name in ("suffice", "jaxopt_gd") else args.seeds)):
                row = {"solver": name, "samples": samples, "seed": seed, **apart(name, samples, seed, args)}
                rows.append(row)
                print(json.dumps(row), flush=True)
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
