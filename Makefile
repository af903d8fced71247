PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
CODE   := src tests scripts examples $(wildcard benchmarks)
READY  := $(VENV)/.ready
AXE    := $(VENV)/axe
AXE_VERSION := 4.14.0
# As root on Debian or Ubuntu; anywhere else the reader is told what to install.
APT    := test "$$(id -u)" = 0 && apt-get -qq update && apt-get -qq install -y --no-install-recommends

# Nothing of the caller's Python may leak in, and nothing outside the checkout is written.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
export PYTHONNOUSERSITE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test test-slow check format bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

setup: $(READY)  ## make .venv with everything in it (once)

$(READY): pyproject.toml constraints.txt scripts/prove_install.py
	@$(PYTHON) -c 'import sys; v = sys.version_info; ok = v >= (3, 10); sys.exit(0 if ok else \
	  "attmask wants Python 3.10 or newer, $(PYTHON) is %d.%d: run make PYTHON=python3.11" % v[:2])'
	@$(RUN) -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || { echo \
	  "$(PYTHON) cannot make a virtual environment; install its venv module (Debian: python3-venv)" \
	  >&2; exit 1; }
	@echo "setup: installing attmask and its libraries into $(VENV); some GB, a few minutes"
	@$(RUN) -m pip install -q --no-cache-dir -e '.[dev]' -c constraints.txt || { echo \
	  "setup: pip failed (see above); free some disk space or mend the network, then run make setup" \
	  >&2; exit 1; }
	@# Without its dependencies: its opencv-python would overwrite our opencv-python-headless.
	@$(RUN) -m pip install -q --no-cache-dir --no-deps vos-benchmark -c constraints.txt || echo \
	  "setup: vos-benchmark is missing, so the tests that compare with it are skipped" >&2
	@$(RUN) scripts/prove_install.py
	@touch $@

browser: setup  ## install Chromium and axe-core for the tests of the report
	@for name in "$$ATTMASK_BROWSER" chromium chromium-browser google-chrome; do \
	  command -v "$$name" >/dev/null && exit; done; { $(APT) chromium; } || { echo \
	  "browser: install Chromium, or set ATTMASK_BROWSER to the path of a browser" >&2; exit 1; }
	@grep -qs '"version": "$(AXE_VERSION)"' $(AXE)/node_modules/axe-core/package.json || { \
	  { command -v npm >/dev/null || { $(APT) npm; }; } && \
	  npm install --silent --no-save --prefix $(AXE) axe-core@$(AXE_VERSION); } || { echo \
	  "browser: axe-core was not installed; install npm and mend the network" >&2; exit 1; }

demo: setup  ## pre-train, evaluate and draw on generated images (minutes on a CPU)
	@$(VENV)/bin/attmask demo

test: setup  ## the tests, on two processes
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: setup  ## the tests that take minutes, on two processes
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile -m slow

check: setup  ## ruff, strict mypy and the import table
	@$(RUN) -m ruff check $(CODE)
	@$(RUN) -m ruff format --check $(CODE)
	@$(RUN) -m mypy $(CODE)
	@$(RUN) -m pytest tests/test_imports.py

format: setup  ## let ruff mend what it can
	@$(RUN) -m ruff check --fix $(CODE)
	@$(RUN) -m ruff format $(CODE)

bench: setup  ## every benchmark, each against a peer measured in the same run
	@test -n "$(wildcard benchmarks/*.py)" || echo "bench: no benchmarks yet"
	@set -e; for bench in $(wildcard benchmarks/*.py); do echo "== $$bench"; $(RUN) $$bench; done

clean:  ## remove .venv and caches; runs stay
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
