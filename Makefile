# The whole developer interface. Every target sets up what it needs in .venv; nothing else has to be installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export WINDROW_SAMPLES ?= $(abspath ../shared/data)
WORKERS ?= 2
# More for pytest: make test ONLY=tests/order, make test ONLY="--last-failed -x"
ONLY ?=
# Bytecode is kept: the tests start many processes, each of which would compile every module it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test test-slow check bench bench-quick nightly fire docs format clean tutorial

help:
	@echo "make demo    generate events and run the dimuon analysis on them"
	@echo "make tutorial  install into a fresh environment and go from a file to a plot"
	@echo "make test    run the tests; a few minutes, the same verdict every time"
	@echo "make test-slow  run the long tests, and search for counterexamples at random"
	@echo "make nightly  search for counterexamples much longer"
	@echo "make fire    kill workers and drivers in many more ways"
	@echo "make check   lint, formatting and types"
	@echo "make bench   run every benchmark and write benchmarks/RESULTS.md"
	@echo "make docs    build the documentation into site/"

# The stamp is newer than pyproject.toml when the environment has everything.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit('Windrow needs Python 3.11 or newer, this is ' + sys.version.split()[0]) if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q src tests
	@touch $@

setup: $(VENV)/.ready

demo: setup
	$(BIN)/python examples/dimuon/run.py

tutorial: setup
	$(BIN)/python examples/tutorial/tutorial.py

# The report is looked at in a real browser: Debian's, where we may install it. Elsewhere its test says why it is skipped.
$(VENV)/.browser-ready: $(VENV)/.ready
	@if command -v chromium >/dev/null 2>&1; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 \
	  && touch $@ || echo "chromium could not be installed: the report is not looked at in a browser"; \
	fi

# Command lines are tested with tools of bioinformatics too: Debian's, where we may install them. Elsewhere their tests say
# why they are skipped.
$(VENV)/.tools-ready: $(VENV)/.ready
	@if command -v samtools >/dev/null 2>&1 && command -v bwa >/dev/null 2>&1; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends samtools bwa; } >/dev/null 2>&1 \
	  && touch $@ || echo "samtools and bwa could not be installed: commands are not tested with them"; \
	fi

# Executors are tested with CPython's own tests, which some Pythons come without: Debian's, where they are those of the same
# version. Elsewhere they are skipped.
$(VENV)/.cpython-tests-ready: $(VENV)/.ready
	@version=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); to=$(abspath $(VENV))/cpython-tests/test; \
	place=$$(mktemp -d); mkdir -p $$to; \
	if (cd $$place && { apt-get download libpython$$version-testsuite || { apt-get update && apt-get download libpython$$version-testsuite; }; } \
	  && dpkg-deb -x ./*.deb . && cp -r usr/lib/python$$version/test/test_concurrent_futures* $$to/) >/dev/null 2>&1; then \
	  echo '__path__ = __import__("pkgutil").extend_path(__path__, __name__)' > $$to/__init__.py; touch $@; \
	else rm -r $$to; echo "CPython's tests of executors could not be had: they are skipped"; fi; rm -r $$place

.PHONY: test-tools
test-tools: setup $(VENV)/.browser-ready $(VENV)/.tools-ready $(VENV)/.cpython-tests-ready

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: test-tools
	$(PYTEST) $(ONLY)

# What takes too long for every change, and the property tests with random examples, in a random order. With SEARCH=no
# the former alone, with the same examples in the same order every time.
test-slow: test-tools
ifeq ($(SEARCH),no)
	$(PYTEST) -m slow $(ONLY)
else
	WINDROW_PROFILE=slow $(PYTEST) --randomly-seed=default -m "slow or hypothesis" $(ONLY)
endif

# The property tests with many more random examples; hours.
nightly: setup
	WINDROW_PROFILE=nightly $(PYTEST) --randomly-seed=default -m hypothesis $(ONLY)

# Processes that are killed in many more ways, and 20,000 more runs of the commit protocol; some twenty minutes.
fire: setup
	$(PYTEST) -s -m fire tests/fire

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python benchmarks/run_all.py

bench-quick: setup
	$(BIN)/python benchmarks/run_all.py --quick

$(VENV)/.docs-ready: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs-ready
	$(BIN)/mkdocs build --strict --site-dir site

clean:
	rm -rf $(VENV) .bench build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
