"""`import suffice` is cheap: names are imported from their modules when they are asked for first."""

import subprocess
import sys

import suffice

COUNT = "import sys, suffice; {}; print(sum(name.startswith('suffice') for name in sys.modules))"


def modules(code):
    """How many of our modules a process has loaded after this."""
    made = subprocess.run([sys.executable, "-c", COUNT.format(code)], capture_output=True, text=True, check=True)
    return int(made.stdout)


def test_importing_the_package_loads_next_to_none_of_its_modules():
    assert modules("pass") <= 5
    assert modules("suffice.tune, suffice.exact, suffice.Options, suffice.Space") <= 90


def test_every_public_name_is_found_and_listed():
    assert set(suffice.__all__) <= set(dir(suffice))
    assert all(getattr(suffice, name) is not None for name in suffice.__all__)
    assert not hasattr(suffice, "tuna")


def test_a_run_with_its_report_imports_nothing_that_draws_or_learns_elsewhere(tmp_path):
    table = tmp_path / "table.csv"
    rows = (f"{i % 7},{i % 5},{(3 * i) % 7 + i % 5}" for i in range(60))
    table.write_text("\n".join(["a,b,y", *rows]))
    code = f"""
import sys
from suffice.cli import app
try:
    app(["tune", {str(table)!r}, "--target", "y", "--out", {str(tmp_path / "run")!r}, "--json"])
except SystemExit as end:
    assert not end.code, end.code
print(*[name for name in ("torch", "jax", "cupy", "dask", "matplotlib", "plotly") if name in sys.modules])
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (tmp_path / "run" / "report.html").exists() and (tmp_path / "run" / "model.skops").exists()
    assert made.stdout.splitlines()[-1] == ""


def test_help_and_version_wait_for_no_tables():
    code = (
        "import sys, suffice.cli; print(sum(name in sys.modules for name in ('pandas', 'scipy', 'sklearn', 'joblib')))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(made.stdout) == 0
