"""Is a certificate ever wrong? A campaign against all of them, with the truth in ball arithmetic.

Every target is a lower-level problem whose minimiser is enclosed to forty digits (`tests/reference_exact.py`, needs
python-flint). It is solved in every way there is: all solvers, all rules, from zero, from the rounded minimiser and its
neighbours, from afar, continued; the claimed radius of every iterate is held against its true distance.
A violation is a radius below the distance, or one that is not a number. An error message is no claim and is counted as
a refusal; an infinite radius claims nothing and is not counted. What is attacked is in `tests/attack_targets.py`.

`--case KIND:NUMBER` repeats a single target, as named in the list of violations, and shows all that is false about it.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from common import parser, provenance, table, target, write_json, write_text  # noqa: E402

from tests.attack_targets import CRAFTED, KINDS, SHARES, target_of  # noqa: E402
from tests.attacks import REFUSALS, Claim, certificates  # noqa: E402
from tests.reference_exact import NotEnclosedError  # noqa: E402

WAVE = 16  # targets between two looks at how many certificates there are
LISTED = 400  # violations that are written down one by one, the worst of each group first
AXES = ("problem", "solver", "rule", "dtype", "layout")


@dataclass
class Tally:
    """What was counted, by (problem, solver, rule, dtype, layout)."""

    claims: Counter[tuple[str, ...]] = field(default_factory=Counter)
    false: Counter[tuple[str, ...]] = field(default_factory=Counter)
    nan: int = 0
    worst: dict[tuple[str, ...], float] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)
    targets: int = 0
    seconds: float = 0.0

    def add(self, place: dict[str, Any], key: tuple[str, ...], claim: Claim) -> None:
        if claim.radius == math.inf:
            return
        self.claims[key] += 1
        ratio = math.inf if math.isnan(claim.ratio) else claim.ratio
        self.worst[key] = max(self.worst.get(key, 0.0), ratio)
        if not claim.false:
            return
        self.false[key] += 1
        self.nan += math.isnan(claim.radius)
        distance = float(claim.distance)
        named = dict(zip(AXES, key, strict=True))
        found = {**place, **named, "how": claim.how, "radius": repr(claim.radius), "distance": distance, "ratio": ratio}
        self.violations.append(found)

    def join(self, other: Tally) -> None:
        self.claims += other.claims
        self.false += other.false
        self.nan += other.nan
        for key, ratio in other.worst.items():
            self.worst[key] = max(self.worst.get(key, 0.0), ratio)
        self.refusals += other.refusals
        self.violations = _the_worst([*self.violations, *other.violations])
        self.targets += other.targets
        self.seconds += other.seconds


def _the_worst(violations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The worst of every kind, problem, solver and rule, then the worst of all others."""
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    for found in sorted(violations, key=lambda found: -found["ratio"]):
        first.setdefault((found["kind"], found["problem"], found["solver"], found["rule"]), found)
    leading = sorted(first.values(), key=lambda found: -found["ratio"])
    named = {id(found) for found in leading}
    others = sorted((found for found in violations if id(found) not in named), key=lambda found: -found["ratio"])
    return [*leading, *others][: max(LISTED, len(leading))]


def attack(kind: str, seed: int, number: int) -> Tally:
    """All that is claimed about one target."""
    tally, began = Tally(targets=1), time.process_time()
    try:
        aim, rng = target_of(kind, seed, number)
        _ = aim.minimiser
    except (NotEnclosedError, *REFUSALS) as error:
        tally.refusals[f"no target: {type(error).__name__}: {str(error)[:80]}"] += 1
        return tally
    place = {"kind": kind, "seed": seed, "number": number}
    for claim in certificates(aim, rng):
        if isinstance(claim, str):
            tally.refusals[claim[:100]] += 1
        else:
            tally.add(place, (aim.name, claim.solver, claim.rule, aim.dtype, aim.layout), claim)
    tally.seconds = time.process_time() - began
    return tally


def waves(kind: str, seed: int, wanted: int, pool: ProcessPoolExecutor | None) -> Tally:
    """Targets of one kind, until there are so many certificates: as many for any number of processes."""
    tally, number = Tally(), 0
    last = len(CRAFTED) if kind == "crafted" else sys.maxsize
    while tally.claims.total() < wanted and number < last:
        numbers = range(number, min(number + WAVE, last))
        for one in (map if pool is None else pool.map)(attack, [kind] * len(numbers), [seed] * len(numbers), numbers):
            tally.join(one)
        number = numbers.stop
        if tally.targets >= 20 * WAVE and tally.claims.total() == 0:
            break
    return tally


def grouped(tally: Tally, axis: int) -> Iterator[list[object]]:
    for name in sorted({key[axis] for key in tally.claims}):
        keys = [key for key in tally.claims if key[axis] == name]
        false = sum(tally.false[key] for key in keys)
        worst = max(tally.worst[key] for key in keys)
        yield [name, sum(tally.claims[key] for key in keys), false, f"{worst:.4g}"]


def report(tallies: dict[str, Tally], tally: Tally, made: dict[str, str]) -> str:
    parts = ["# Attack on the certificates", f"commit {made['commit']}, {made['processor']}, {made['date']}"]
    parts.append(
        f"{tally.claims.total()} certificates of {tally.targets} problems, {tally.false.total()} of them false, "
        f"{tally.nan} not a number. The ratio is that of the true distance to the radius claimed: above 1 is false."
    )
    rows = [
        [
            kind,
            one.targets,
            one.claims.total(),
            one.false.total(),
            f"{max(one.worst.values(), default=0.0):.4g}",
            f"{one.seconds:.0f}",
        ]
        for kind, one in tallies.items()
    ]
    parts.append(table(["kind", "problems", "certificates", "false", "worst ratio", "CPU s"], rows))
    for axis, name in enumerate(AXES):
        parts.append(table([name, "certificates", "false", "worst ratio"], grouped(tally, axis)))
    if tally.refusals:
        rows = [[message.replace("|", "/"), count] for message, count in tally.refusals.most_common(20)]
        parts.append(table(["refusal", "count"], rows))
    if tally.violations:
        names = ("kind", "number", "problem", "solver", "rule", "dtype", "layout", "how", "radius", "distance", "ratio")
        rows = [[_shown(found[name]) for name in names] for found in tally.violations[:60]]
        parts.append("The worst (all that were kept are in attack.json):\n\n" + table(names, rows))
    targets = [target("false certificates", tally.false.total(), 0.0, digits=0)]
    parts.append(table(["target", "measured", "wanted", ""], targets))
    return "\n\n".join(parts) + "\n"


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--certificates", type=int, default=100_000, help="at least so many (%(default)s)")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", choices=[*KINDS, "crafted"], help="one kind of problem")
    arguments.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    arguments.add_argument("--case", metavar="KIND:NUMBER", help="one problem; nothing is written")
    options = arguments.parse_args()
    if options.case:
        kind, number = options.case.rsplit(":", 1)
        one = attack(kind, options.seed, int(number))
        for found in one.violations:
            print(found)
        print(f"{one.claims.total()} certificates, {one.false.total()} false")
        return
    kinds = [options.only] if options.only else [*KINDS, "crafted"]
    shares = {kind: SHARES.get(kind, 1.0) for kind in kinds if kind != "crafted" or options.only}
    tallies, tally = {}, Tally()
    pool = ProcessPoolExecutor(options.jobs) if options.jobs > 1 else None
    for kind in kinds:
        wanted = options.certificates * shares.get(kind, 1.0) / sum(shares.values())
        tallies[kind] = waves(kind, options.seed, math.ceil(wanted), pool)
        tally.join(tallies[kind])
        print(f"{kind}: {tallies[kind].claims.total()} certificates, {tallies[kind].false.total()} false", flush=True)
    made = provenance("python-flint")
    text = report(tallies, tally, made)
    print(text)
    name = f"attack_{options.only}" if options.only else "attack"
    write_text(options.out / f"{name}.md", text)
    counts = [
        {
            **dict(zip(AXES, key, strict=True)),
            "certificates": count,
            "false": tally.false[key],
            "worst": tally.worst[key],
        }
        for key, count in sorted(tally.claims.items())
    ]
    data = {
        "provenance": made,
        "seed": options.seed,
        "certificates": tally.claims.total(),
        "false": tally.false.total(),
        "nan": tally.nan,
        "problems": tally.targets,
        "counts": counts,
        "violations": tally.violations,
        "refusals": dict(tally.refusals),
    }
    write_json(options.out / f"{name}.json", data)
    sys.exit(1 if tally.false.total() else 0)


if __name__ == "__main__":
    main()
