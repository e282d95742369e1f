# Everything runs in .venv, which is made on first use from the pins in requirements/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.installed-bench
DOCS_INSTALLED := $(VENV)/.installed-docs
EXTRAS := .venv-extras
EXTRAS_INSTALLED := $(EXTRAS)/.installed
RELEASE := .venv-release
RELEASE_INSTALLED := $(RELEASE)/.installed
OLDEST := .venv-oldest
OLDEST_INSTALLED := $(OLDEST)/.installed
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-slow coverage test-extras install-extras test-oldest smoke dist check-dist audit sbom lint format results try-results docs install-docs clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

run: $(INSTALLED)  ## a small version of the paper's study on MNIST, a worked example, and a table with its report
	$(BIN)/suffice reproduce all --preset quick --out results/paper
	$(BIN)/python examples/worked_example.py --out results/example
	$(BIN)/python examples/table.py --out results/diabetes.csv
	$(BIN)/suffice tune results/diabetes.csv --target progression --out results/tune-diabetes

test: $(INSTALLED)  ## run the tests on two processes
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2

test-slow: $(INSTALLED)  ## run the tests that `make test` leaves out, and many examples of properties
	$(ONE_THREAD) HYPOTHESIS_PROFILE=night $(BIN)/python -m pytest -n 2 -m "slow or hypothesis"

coverage: $(INSTALLED)  ## run the tests and report which lines they reach; build/coverage/index.html
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m 'slow or not slow' --cov --cov-report=term --cov-report=html:build/coverage

test-extras: $(EXTRAS_INSTALLED)  ## run the tests of torch and JAX arrays, in an environment of their own
	$(ONE_THREAD) $(EXTRAS)/bin/python -m pytest -k "torch or jax or batches or newton_columns" \
		tests/test_backends.py tests/suffice_paper/test_study.py tests/rows/test_contract.py tests/test_attack.py tests/cuda

install-extras: $(EXTRAS_INSTALLED)

test-oldest: $(OLDEST_INSTALLED)  ## run the tests with the oldest packages that pyproject.toml allows, in an environment of their own
	$(ONE_THREAD) $(OLDEST)/bin/python -m pytest -n 2

smoke: $(INSTALLED)  ## build the wheel, install it without extras into a clean environment, and try it there
	rm -rf build/wheel build/clean
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(BIN)/python -m venv build/clean
	build/clean/bin/python -m pip --disable-pip-version-check --quiet install -c requirements/test.txt build/wheel/*.whl
	cd build/clean && $(ONE_THREAD) bin/python -I ../../tools/smoke.py

dist: $(RELEASE_INSTALLED)  ## the wheel and the archive of the source of a release, in dist/
	rm -rf dist
	$(RELEASE)/bin/python -m build --outdir dist

check-dist: dist  ## look at what is in dist/, and try both in an environment of their own, away from src/
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/check-wheel-contents dist/*.whl
	$(PYTHON) tools/check_dist.py dist --build build/dist

audit: $(RELEASE_INSTALLED)  ## ask PyPI for known vulnerabilities of all pins; what cannot be asked about is a failure
	mkdir -p build
	for each in requirements/*.txt; do grep -E '^[A-Za-z0-9_.-]+==' $$each > build/pins.txt; \
		$(RELEASE)/bin/pip-audit --strict --disable-pip --no-deps -r build/pins.txt || exit 1; done

sbom: $(RELEASE_INSTALLED)  ## what a run of the command line is made of, as CycloneDX: dist/sbom.json
	$(PYTHON) -m venv --clear build/sbom
	build/sbom/bin/python -m pip --disable-pip-version-check --quiet install -c requirements/test.txt ".[cli,plot,parquet,skops]"
	build/sbom/bin/python -m pip --quiet uninstall --yes suffice  # it is the root: here its address would be a folder
	mkdir -p dist
	$(RELEASE)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible -o dist/sbom.json build/sbom

lint: $(INSTALLED)  ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED)  ## apply the style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

results: $(BENCH_INSTALLED)  ## measure again what README or the documentation show and is older than the code, beside rivals; two hours at most
	$(ONE_THREAD) $(BIN)/python benchmarks/all_results.py run

try-results: $(BENCH_INSTALLED)  ## run every benchmark as small as can be, and write nothing but build/tried
	$(ONE_THREAD) $(BIN)/python benchmarks/all_results.py try

docs: $(DOCS_INSTALLED)  ## build the documentation site, build/docs/index.html; warnings are errors
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet -d build/doctrees docs build/docs
	@echo build/docs/index.html

install-docs: $(DOCS_INSTALLED)

clean:  ## remove the environments, caches and the worked example's output
	rm -rf $(VENV) $(EXTRAS) $(RELEASE) $(OLDEST) build dist results .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("suffice needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): requirements/test.txt pyproject.toml | $(BIN)/python
	$(PIP) install -r requirements/test.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(BENCH_INSTALLED): requirements/bench.txt requirements/rivals.txt $(INSTALLED)
	$(PIP) install -r requirements/bench.txt
	$(PIP) install --no-deps -r requirements/rivals.txt
	@touch $@

$(DOCS_INSTALLED): requirements/docs.txt $(INSTALLED)
	$(PIP) install -r requirements/docs.txt
	@touch $@

$(EXTRAS_INSTALLED): requirements/extras.txt requirements/test.txt pyproject.toml
	$(PYTHON) -m venv $(EXTRAS)
	$(EXTRAS)/bin/python -m pip --disable-pip-version-check --quiet install -r requirements/extras.txt
	$(EXTRAS)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation -e .
	$(EXTRAS)/bin/python -c 'import jax, torch'
	@touch $@

$(RELEASE_INSTALLED): requirements/release.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip --disable-pip-version-check --quiet install -r requirements/release.txt
	@touch $@

$(OLDEST_INSTALLED): pyproject.toml $(RELEASE_INSTALLED)
	$(RELEASE)/bin/uv venv --quiet --clear --python $(PYTHON) $(OLDEST)
	$(RELEASE)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct -e ".[dev]"
	@touch $@
