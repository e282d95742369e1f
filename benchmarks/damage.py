"""Can damage to a run's folder change its answer without a word? 974 damages, each resumed.

Runs are finished or interrupted: `tune` from one start and from many, `SufficeSearchCV`, and `suffice tune`. Each file
is cut, emptied, deleted, changed in a bit, appended to, has lines doubled, dropped or exchanged, is replaced by that of
another run or of another moment, exchanged with its neighbour, or becomes a folder, a link (symbolic, hard, dangling,
to a device), a pipe, or a file of a terabyte. Names of drafts become links as well.

`resume` must come to the same answer, to the bit, or refuse with an error that names a file of the run. It must not
come to another answer, fail in another way, wait for ever, or change a file outside of the folder.
"""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from common import parser, provenance, table, target, write_json, write_text

import suffice
from suffice import losses, problems

PATIENCE = 60.0  # seconds until a resume counts as one that hangs
VICTIM = b"what must not be changed"
DRAFTS = ("lock", "journal.tmp")
GOOD = ("same", "refused")
STARTS = [[-1.0, -1.0], [0.0, 0.5], [0.4, -2.0]]


# --- runs


def bilevel() -> suffice.BilevelProblem:
    rng = np.random.default_rng(0)
    X, X_val = rng.standard_normal((2, 40, 5))
    w = np.array([2.0, -1.0, 1.0, 0.0, 0.0])
    lower = problems.ElasticNet(X, X @ w + rng.standard_normal(40))
    upper = losses.SquaredError(X_val, X_val @ w + rng.standard_normal(40))
    return suffice.BilevelProblem([lower], [upper], space=suffice.Space(l1=(1e-4, 1e2), l2=(1e-4, 1e2)), solver="fista")


OPTIONS = suffice.Options(max_evaluations=21)


def search(folder: Path, seed: int = 0) -> Any:
    from sklearn.linear_model import ElasticNet

    from suffice.sklearn import SufficeSearchCV

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 3))
    y = X @ [1.0, -1.0, 0.0] + rng.standard_normal(40)
    space, options = {"l1": (1e-3, 1.0), "l2": (1e-3, 1.0)}, suffice.Options(max_evaluations=6, final_radius=1e-2)
    return SufficeSearchCV(ElasticNet(), space, cv=3, options=options, refit=False, journal=folder).fit(X, y)


def write_table(path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 60)).round(4)
    y, z = (a - b + rng.standard_normal(60)).round(4), (b + rng.standard_normal(60)).round(4)
    rows = zip(a.tolist(), b.tolist(), y.tolist(), z.tolist(), strict=True)
    path.write_text("a,b,y,z\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows))


def command(*arguments: str) -> str:
    """What a command prints; what it refuses is a ValueError, and so is anything that is no refusal in one line."""
    from typer.testing import CliRunner

    from suffice.cli import app

    result = CliRunner().invoke(app, list(arguments))
    if result.exit_code == 2 and isinstance(result.exception, SystemExit) and "Traceback" not in result.output:
        raise ValueError(result.output)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def finish(kind: str, folder: Path) -> str:
    """Resume a run; its answer as text."""
    if kind == "single":
        return answer(suffice.resume(folder, problem=bilevel()))
    if kind == "starts":
        return answer(suffice.resume(folder, problem=bilevel()))
    if kind == "search":
        found = search(folder)
        kept = {name: values for name, values in found.cv_results_.items() if "time" not in name}
        return repr((found.best_params_, found.score_interval_, found.result_.history, kept))
    told = json.loads(command("resume", str(folder), "--jobs", "1", "--json"))
    return repr({name: told[name] for name in ("status", "best_params", "score", "interval", "evaluations", "work")})


def answer(result: suffice.Result) -> str:
    of = [result, *result.starts]
    return repr([(r.theta.tolist(), r.cost, r.interval, r.status, r.message, r.history) for r in of])


def begin(kind: str, folder: Path, other: bool) -> None:
    """A finished run; the other one has another start, other data or another target."""
    if kind == "single":
        suffice.tune(bilevel(), [0.5, -0.5] if other else [-1.0, -1.0], options=OPTIONS, journal=folder)
    elif kind == "starts":
        starts = [[x + 0.25 * other, y] for x, y in STARTS]
        suffice.tune(bilevel(), starts=starts, options=OPTIONS, journal=folder)
    elif kind == "search":
        search(folder, seed=int(other))
    else:
        data, wanted = folder.parent / "data.csv", ("z", "y") if other else ("y", "z")
        folder.parent.mkdir(exist_ok=True)
        write_table(data)
        arguments = ["--target", wanted[0], "--drop", wanted[1], "--cv", "3", "--max-evaluations", "40"]
        command("tune", str(data), *arguments, "--out", str(folder), "--json")


def interrupt(folder: Path, whole: Path) -> None:
    """The same run as a kill leaves it: cut behind a record."""
    shutil.copytree(whole, folder)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))


# --- damages


@dataclass(frozen=True)
class Damage:
    """What is done to which file of a copy of the run; `outside` is a folder next to it."""

    what: str
    file: str
    do: Callable[[Path, Path], object]


def damages(run: Path, other: Path, early: Path, rng: np.random.Generator, each: int) -> Iterator[Damage]:
    """All damages of one run; `each` of those that depend on a place in a file."""
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.suffix != ".html")
    for name in names:
        size = (run / name).stat().st_size
        yield from _of_bytes(name, (run / name).read_bytes(), rng, each if size > 200 else min(each, 4))
        yield from _of_files(name, other, early)
    for one, two in zip(names, names[1:] + names[:1], strict=True):
        yield Damage(
            "exchanged with its neighbour", one, lambda run, _, one=one, two=two: _exchange(run / one, run / two)
        )
    for name in DRAFTS:
        if (run / name).parent.is_dir() and name not in names:
            yield from (one for one in _links(name) if one.what != "link to the file")  # there is none
    for place in sorted(path.name for path in run.iterdir() if path.is_dir()):
        yield Damage("folder moved and linked", place, lambda run, out, place=place: _move(run / place, out / place))


def _of_bytes(name: str, content: bytes, rng: np.random.Generator, each: int) -> Iterator[Damage]:
    def becomes(what: str, new: bytes) -> Damage:
        return Damage(what, name, lambda run, _: (run / name).write_bytes(new))

    ends = [i + 1 for i, byte in enumerate(content[:-1]) if byte == 10]
    lines = content.splitlines(keepends=True)
    for place in rng.integers(0, max(len(content), 1), size=each).tolist():
        yield becomes("cut anywhere", content[:place])
    for place in rng.permutation(ends)[:each].tolist():
        yield becomes("cut behind a line", content[:place])
    for place in rng.integers(0, max(len(content), 1), size=each).tolist() if content else []:
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        yield becomes("a bit changed", bytes(changed))
    for place in rng.permutation(len(lines) - 1)[: max(each // 3, 1)].tolist() if len(lines) > 1 else []:
        before, line, after = lines[:place], lines[place], lines[place + 1 :]
        yield becomes("a line doubled", b"".join([*before, line, line, *after]))
        yield becomes("a line dropped", b"".join([*before, *after]))
        yield becomes("two lines exchanged", b"".join([*before, after[0], line, *after[1:]]))
    yield becomes("emptied", b"")
    yield becomes("garbage appended", content + b"garbage")
    yield becomes("a line of garbage appended", content + b"0123456789abcdef 000000000002 {}\n")
    yield becomes("zeros appended", content + bytes(5000))


def _of_files(name: str, other: Path, early: Path) -> Iterator[Damage]:
    yield Damage("deleted", name, lambda run, _: (run / name).unlink())
    for what, source in (("another run's", other / name), ("of another moment", early / name)):
        if source.is_file():
            yield Damage(what, name, lambda run, _, source=source: shutil.copyfile(source, run / name))
    yield from _links(name)
    yield Damage("a terabyte of zeros", name, lambda run, _: os.truncate(run / name, 1 << 40))
    if os.geteuid() != 0:
        yield Damage("no permission", name, lambda run, _: (run / name).chmod(0))


def _links(name: str) -> Iterator[Damage]:
    """Something else than a file of its own under this name."""

    def away(run: Path, make: Callable[[Path], object]) -> None:
        (run / name).unlink(missing_ok=True)
        make(run / name)

    def hard(run: Path, outside: Path) -> None:
        if (run / name).exists():
            os.link(run / name, outside / "linked")
        else:
            os.link(outside / "victim", run / name)

    def moved(run: Path, outside: Path) -> None:
        if (run / name).exists():
            shutil.move(run / name, outside / "moved")
            (run / name).symlink_to(outside / "moved")

    yield Damage("link to another file", name, lambda run, out: away(run, lambda p: p.symlink_to(out / "victim")))
    yield Damage("link to the file", name, moved)
    yield Damage("hard link", name, hard)
    yield Damage("dangling link", name, lambda run, out: away(run, lambda p: p.symlink_to(out / "nothing")))
    yield Damage("folder", name, lambda run, _: away(run, lambda p: p.mkdir()))
    yield Damage("pipe", name, lambda run, _: away(run, os.mkfifo))
    yield Damage("link to a device", name, lambda run, _: away(run, lambda p: p.symlink_to("/dev/zero")))


def _exchange(one: Path, two: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)


def _move(place: Path, to: Path) -> None:
    shutil.move(place, to)
    place.symlink_to(to)


# --- trials


class Worker:
    """A process that resumes runs, one after the other, and is replaced when it hangs or dies."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, kind: str, folder: Path) -> dict[str, str]:
        if self.process is None:
            arguments = [sys.executable, __file__, "--worker"]
            self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([kind, str(folder)]) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.close()
            return {"outcome": "hung", "told": f"nothing within {PATIENCE:g} s"}
        line = self.process.stdout.readline()
        if not line:
            self.close()
            return {"outcome": "died", "told": "the process is gone"}
        return dict(json.loads(line))

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def work() -> None:
    """What a worker does."""
    import resource

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    out, sys.stdout = sys.stdout, io.StringIO()
    if "suffice.tabular.run" not in sys.modules:  # pages take longer than all the rest, and are no part of the answer
        with suppress(ImportError):
            from suffice.tabular import run

            run._report = lambda *_: None
    for line in sys.stdin:
        kind, folder = json.loads(line)
        try:
            reply = {"outcome": "answer", "told": blake2b(finish(kind, Path(folder)).encode()).hexdigest()}
        except (suffice.JournalError, ValueError) as error:
            reply = {"outcome": "refused", "told": f"{error}"}
        except BaseException as error:
            reply = {"outcome": "failed", "told": f"{type(error).__name__}: {error}"[:500]}
        out.write(json.dumps(reply) + "\n")
        out.flush()


def trial(kind: str, run: Path, damage: Damage, expected: str, worker: Worker, place: Path) -> dict[str, str]:
    """The outcome of one damage to a copy of the run."""
    folder, outside = place / "run", place / "outside"
    outside.mkdir(parents=True)
    shutil.copytree(run, folder)
    (outside / "victim").write_bytes(VICTIM)
    damage.do(folder, outside)
    before = _contents(outside)
    reply = worker.ask(kind, folder)
    outcome = reply["outcome"]
    if outcome == "answer":
        outcome = "same" if reply["told"] == expected else "different"
    elif outcome == "refused":
        files = {path.name for path in (*run.rglob("*"), *folder.rglob("*"))}
        told = "".join(reply["told"].replace("│", "").split())
        outcome = "refused" if any(name in told for name in files) else "refused, no file named"
    if _contents(outside) != before:
        outcome = "changed a file outside"
    shutil.rmtree(place)
    return {"what": damage.what, "file": damage.file, "outcome": outcome, "told": reply["told"][:300]}


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def campaign(kinds: tuple[str, ...], each: int, place: Path, most: int | None = None) -> list[dict[str, str]]:
    """Damages of finished and interrupted runs of these kinds; `most` chooses so many of each run at random."""
    rng, worker, rows = np.random.default_rng(0), Worker(), []
    for kind in kinds:
        runs = {name: place / kind / name for name in ("finished", "other", "interrupted")}
        begin(kind, runs["finished"], False)
        begin(kind, runs["other"], True)
        with suppress(KeyboardInterrupt):
            interrupt(runs["interrupted"], runs["finished"])
        shutil.copytree(runs["finished"], place / kind / "again")
        expected = worker.ask(kind, place / kind / "again")
        assert expected["outcome"] == "answer", expected
        for state, early in (("finished", "interrupted"), ("interrupted", "finished")):
            chosen = list(damages(runs[state], runs["other"], runs[early], rng, each))
            if most is not None:
                chosen = [chosen[i] for i in sorted(rng.permutation(len(chosen))[:most].tolist())]
            for damage in chosen:
                row = trial(kind, runs[state], damage, expected["told"], worker, place / "trial")
                rows.append({"kind": kind, "state": state, **row})
                if row["outcome"] not in GOOD:
                    print(rows[-1], flush=True)
            print(f"{kind}, {state}: {len(chosen)} damages", flush=True)
    worker.close()
    return rows


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--each", type=int, default=9, help="places in a file for each kind of damage (%(default)s)")
    arguments.add_argument("--kinds", default="single,starts,search,command line", help="of runs (%(default)s)")
    arguments.add_argument("--worker", action="store_true", help="used by the benchmark itself")
    options = arguments.parse_args()
    if options.worker:
        return work()
    with tempfile.TemporaryDirectory() as name:
        rows = campaign(tuple(options.kinds.split(",")), options.each, Path(name))
    summarise(rows, provenance(), options.out)


def summarise(rows: list[dict[str, str]], made: dict[str, str], out: Path) -> None:
    """The tables and the data."""
    counts = Counter((row["what"], row["outcome"]) for row in rows)
    whats, bad = list(dict.fromkeys(row["what"] for row in rows)), [row for row in rows if row["outcome"] not in GOOD]
    summary = [[what, *(counts[what, one] for one in GOOD), sum(row["what"] == what for row in bad)] for what in whats]
    by_run = Counter((row["kind"], row["state"]) for row in rows)
    outcomes = Counter(row["outcome"] for row in rows)
    targets = [
        *(
            target(what, outcomes[outcome], 0, digits=0)
            for what, outcome in (
                ("another answer without a word", "different"),
                ("files outside changed", "changed a file outside"),
                ("resumes that hang", "hung"),
                ("errors that are no refusal", "failed"),
                ("processes that died", "died"),
                ("refusals that name no file", "refused, no file named"),
            )
        ),
    ]
    text = "\n\n".join(
        [
            table(["damage", "same answer", "refused by name", "anything else"], summary),
            table(["run", "damages"], [[f"{kind}, {state}", count] for (kind, state), count in by_run.items()]),
            table(["target", "measured", "wanted", ""], targets),
        ]
    )
    print(text)
    about = f"{len(rows)} damages, commit {made['commit']}, {made['date']}\n"
    write_text(out / "damage.md", f"# Runs damaged and resumed\n\n{about}\n{text}\n")
    write_json(out / "damage.json", {"provenance": made, "outcomes": outcomes, "damages": rows})


if __name__ == "__main__":
    main()
