"""How long does the paper's whole run take? Newton's method against the FISTA of the paper, both ours.

80 evaluations at most from theta0 = [1, 1] on the paper's MNIST problem: 5000 images, six digits, two penalties. One
run is the paper's: FISTA, accuracy asked for on the weights, c = 100. The other is what a user gets without saying
anything: solver "auto", accuracy asked for on the residuals, models from derivatives; a third is the same without
derivatives. All run in one process with one thread, one after the other, --rounds times; a ratio is of CPU times of the
same round, which is wall time on a core of one's own. --only leaves the paper's run out, which takes minutes.

All runs solve the same problem, so they have to end at the same theta. Intervals are proven by each run itself.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from common import mnist_problem, parser, provenance, table, target, write_json, write_text
from threadpoolctl import threadpool_limits

import suffice

START = [1.0, 1.0]
PAPER, OURS, WITHOUT = "FISTA, the paper's policy", "auto, default policy", "the same without derivatives"
RUNS = {
    OURS: ("auto", suffice.Options(max_evaluations=80)),
    WITHOUT: ("auto", suffice.Options(max_evaluations=80, derivatives="never")),
    PAPER: (
        "fista",
        suffice.Options(max_evaluations=80, policy="weights", accuracy_factor=100.0, derivatives="never"),
    ),
}


def timed(solver: str, options: suffice.Options) -> dict[str, Any]:
    """One run; the problem is made anew, so that nothing is left over from the run before."""
    problem = mnist_problem(solver)
    wall, cpu = time.perf_counter(), time.process_time()
    result = suffice.tune(problem, START, options=options)
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "theta": result.theta.tolist(),
        "cost": result.cost,
        "interval": list(result.interval),
        "evaluations": result.evaluations,
        "steps": result.work,
        "status": result.status.name,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=3, help="how often both are run (%(default)s)")
    arguments.add_argument("--only", action="store_true", help="leave the paper's run out")
    options = arguments.parse_args()
    runs = {name: run for name, run in RUNS.items() if not (options.only and name == PAPER)}
    rounds: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for number in range(options.rounds):
            rounds.append({name: timed(*run) for name, run in runs.items()})
            seconds = ", ".join(f"{name}: {run['cpu']:.1f} s" for name, run in rounds[-1].items())
            print(f"round {number + 1}: {seconds}", flush=True)
    last, other = rounds[-1], WITHOUT if options.only else PAPER
    ratios = sorted(one[other]["cpu"] / one[OURS]["cpu"] for one in rounds)
    apart = float(np.max(np.abs(np.subtract(last[OURS]["theta"], last[other]["theta"]))))
    widths = {name: last[name]["interval"][1] - last[name]["interval"][0] for name in runs}
    rows = [
        [
            name,
            " / ".join(f"{one[name]['cpu']:.1f}" for one in rounds),
            " / ".join(f"{one[name]['wall']:.1f}" for one in rounds),
            last[name]["evaluations"],
            f"{last[name]['steps']:.0f}",
            ", ".join(f"{value:.5f}" for value in last[name]["theta"]),
            f"{last[name]['cost']:.6f}",
            f"{widths[name]:.1e}",
            last[name]["status"],
        ]
        for name in runs
    ]
    head = ["run", "CPU seconds", "wall seconds", "evaluations", "steps", "theta", "F", "width of its interval", "end"]
    shares = sorted(one[OURS]["cpu"] / one[WITHOUT]["cpu"] for one in rounds)
    targets = [
        target("CPU time with derivatives over that without, largest of all rounds", shares[-1], 0.5),
        target("steps with derivatives over those without", last[OURS]["steps"] / last[WITHOUT]["steps"], 0.5),
        target("largest difference of the final theta", apart, 1e-3, digits=5),
    ]
    if not options.only:
        targets += [
            target("CPU time, the paper's over ours, least of all rounds", ratios[0], 10.0, at_least=True, digits=1),
            target("width of F's interval, ours over the paper's", widths[OURS] / widths[PAPER], 1.0, digits=4),
        ]
    text = f"{table(head, rows)}\n\n{table(['target', 'measured', 'wanted', ''], targets)}\n"
    made = provenance()
    print(text)
    write_text(options.out / "paper_run.md", f"# The paper's whole run\n\ncommit {made['commit']}\n\n{text}")
    write_json(options.out / "paper_run.json", {"provenance": made, "ratios": ratios, "rounds": rounds})


if __name__ == "__main__":
    main()
