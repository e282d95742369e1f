"""Every other way to tune, beside suffice: one protocol, one command.

    python -m benchmarks.tuners                          all cells of what is installed, then the report
    python -m benchmarks.tuners --quick                  three problems, one seed, a minute or two
    python -m benchmarks.tuners run [--jobs N] [--seeds 0-9] [--solvers fista] [--problems A B] [--tuners C D]
                                    [--minutes M] [--cells FOLDER]
    python -m benchmarks.tuners report [--cells FOLDER ...] [--out FOLDER]

Cells are kept in benchmarks/.cache/tuners as JSON lines; a run that was cut is continued. The report writes
results/tuners.json, .md and .png. `benchmarks/tuners/protocol.py` says what is measured, and how.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.tuners import cells
from benchmarks.tuners.problems import GLOBAL, PROBLEMS
from benchmarks.tuners.tuners import TUNERS

HERE = Path(__file__).resolve().parents[1]
CACHE = HERE / ".cache" / "tuners"
QUICK = ("cancer", "diabetes", "groups5")


def seeds(text: str) -> list[int]:
    """ "0-9" or "3" or "0,2,5"."""
    first, _, last = text.partition("-")
    return [int(one) for one in text.split(",")] if not last else list(range(int(first), int(last) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.tuners", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("all", "run", "report"), default="all")
    parser.add_argument("--quick", action="store_true", help="three problems, one seed, auto only")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each (%(default)s)")
    parser.add_argument("--seeds", type=seeds, default=list(range(10)), help="such as 0-9 (%(default)s)")
    parser.add_argument("--solvers", nargs="+", default=["fista", "auto"], help="lower-level solvers")
    parser.add_argument("--problems", nargs="+", default=[*PROBLEMS, *GLOBAL], metavar="NAME")
    parser.add_argument("--tuners", nargs="+", default=list(TUNERS), metavar="NAME")
    parser.add_argument("--slow-seeds", type=int, default=3, help="seeds of SMAC, GP and BoTorch (%(default)s)")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no cell after so many")
    parser.add_argument("--cells", type=Path, nargs="+", default=[CACHE], help="folders of cells (%(default)s)")
    parser.add_argument("--fista-seeds", type=seeds, help="in the report, where they are others")
    parser.add_argument("--ablations", type=Path, nargs="+", help="folders of cells for the ablations (as --cells)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the report (%(default)s)")
    parser.add_argument("--measured", default="", help="where and when the cells were made, for the report")
    args = parser.parse_args()
    if args.quick:
        args.problems, args.seeds, args.solvers, args.cells = list(QUICK), [0], ["auto"], [CACHE / "quick"]
        args.slow_seeds = 0
    if args.command in ("all", "run"):
        chosen = [name for name in args.tuners if TUNERS[name].installed]
        missing = sorted(set(args.tuners) - set(chosen))
        if missing:
            print(f"not installed: {', '.join(missing)}")
        planned = cells.plan(args.problems, args.solvers, chosen, args.seeds, args.slow_seeds)
        cells.run(planned, args.cells[0], args.jobs, args.minutes)
    if args.command in ("all", "report"):
        from benchmarks.tuners import report

        out = args.out if not args.quick else CACHE / "quick"
        by_solver = {"auto": args.seeds, "fista": args.fista_seeds or args.seeds}
        report.write(args.cells, out, by_solver, args.measured, args.ablations)


if __name__ == "__main__":
    main()
