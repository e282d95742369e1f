"""Do the wheel and the archive of the source work where there is no clone? `make check-dist` runs this.

    python tools/check_dist.py dist [--build build/dist] [--quick]

The archive of the source is unpacked, and builds a wheel that has the same files as the one in `dist`. That one is
installed, with the extras of the command line and the pins, into an environment of its own. There, away from `src/`,
run: the first commands of README, `suffice tune`, `predict`, `certify` and `reproduce --preset quick`, the code blocks
of README and of the documentation (`--quick`: README's alone), and some tests out of the archive.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEAR = ["test_release.py", "test_import.py", "test_space.py", "test_options.py", "datasets", "journal/test_answers.py"]


def run(*command: object, cwd: Path) -> None:
    """One command, shown, without the clone's packages, whose failure is ours."""
    print("$", *command, flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    assert len(found) == 1, f"{folder} holds {len(found)} of {pattern}"
    return found[0].resolve()


def contents(wheel: Path) -> dict[str, int]:
    """Names of a wheel's files with their checksums; the record of them has its own."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if not each.filename.endswith("/RECORD")}


def the_command_line_works(suffice: Path, folder: Path) -> None:
    """A table through all commands that README names."""
    rows = [f"{i},{i % 7},{'ab'[i % 2]},{i % 7 + 2 * (i % 2) + (i * 37 % 11) / 20}" for i in range(140)]
    for name, some in {"patients.csv": rows[:120], "tomorrow.csv": rows[120:]}.items():
        (folder / name).write_text("\n".join(["row,dose,arm,outcome", *some, ""]), encoding="utf-8")
    run(suffice, "--version", cwd=folder)
    run(suffice, "tune", "patients.csv", "--target", "outcome", "--out", "run", cwd=folder)
    run(suffice, "predict", "run", "patients.csv", "--out", "predicted.csv", cwd=folder)
    run(suffice, "certify", "run", "patients.csv", cwd=folder)
    run(suffice, "report", "run", cwd=folder)
    run(suffice, "update", "run", "tomorrow.csv", cwd=folder)
    run(suffice, "history", "run", cwd=folder)
    run(suffice, "reproduce", "all", "--preset", "quick", "--out", "paper", cwd=folder)
    lines = (folder / "predicted.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 121 and (folder / "run" / "report.html").is_file()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="folder with one wheel and one .tar.gz")
    parser.add_argument("--build", type=Path, default=Path("build/dist"), help="folder to work in (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="of the documents' code blocks run README's alone")
    given = parser.parse_args()
    wheel, source = only(given.dist, "*.whl"), only(given.dist, "*.tar.gz")
    shutil.rmtree(given.build, ignore_errors=True)
    given.build.mkdir(parents=True)
    build = given.build.resolve()
    venv.create(build / "venv", with_pip=True)
    scripts = build / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "-r", ROOT / "requirements" / "test.txt", cwd=build)
    with tarfile.open(source) as archive:
        archive.extractall(build, filter="data")
    unpacked = build / source.name.removesuffix(".tar.gz")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", build / "again", unpacked, cwd=build)
    assert contents(only(build / "again", "*.whl")) == contents(wheel), "the source does not make the wheel"
    run(*pip, "install", f"{wheel}[cli,plot,parquet,skops]", cwd=build)
    folder = build / "a user's folder"
    folder.mkdir()
    the_command_line_works(scripts / "suffice", folder)
    near = [f"tests/{name}" for name in NEAR]
    pytest = (python, "-m", "pytest", "-q", "-x", "-o", "pythonpath=", "-p", "no:cacheprovider")
    run(*pytest, *near, cwd=unpacked)
    documents = "README" if given.quick else "code_blocks_run"
    run(*pytest, "tests/test_docs.py", "-k", f"test_code_blocks_run and {documents}", cwd=unpacked)
    print(f"{wheel.name} and {source.name} work")


if __name__ == "__main__":
    main()
