# Everything a contributor runs. Each target first brings up a private environment in .venv, once,
# and again whenever pyproject.toml changes.
#
#   PYTHON  the interpreter for a new environment; default: the first of PYTHONS that is 3.11 or newer
#   VENV    where the environment lives, so that several can stand side by side:
#           make test PYTHON=python3.13 VENV=.venv-3.13

VENV ?= .venv
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Stamps: their age says when each set of packages was last brought in line with pyproject.toml.
MADE := $(VENV)/.made
RUNTIME := $(VENV)/.runtime-installed
TESTING := $(VENV)/.testing-installed
DRIVER := $(VENV)/.driver-installed
GENERATOR := $(VENV)/.generator-installed

USABLE := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint types layers pytest redis-server docs packages proofs bench bench-peers bench-quick bench-scale format clean

help:
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Start

install: $(TESTING) ## Set up the private environment for all other targets

# With WINDLASS_URL=redis://... it runs on that server, and needs the driver.
demo: $(if $(filter redis% unix%,$(WINDLASS_URL)),$(DRIVER),$(RUNTIME)) ## Watch jobs run, fail, retry and survive a kill -9 (under a minute)
	@$(BIN)/windlass demo

##@ Check

test: lint types layers pytest packages ## Check style, types, layers, behaviour and packages (under ten minutes)

test-all: SELECTED := --hypothesis-profile thorough
test-all: TRIED := packages
test-all: $(GENERATOR) test ## The same with the slow tests, and more examples

lint: $(TESTING) ## Check style, formatting and words
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python tools/check_words.py

types: $(TESTING) ## Check types
	$(BIN)/mypy

layers: $(TESTING) ## Check who may import whom
	$(BIN)/lint-imports --no-logo

# Two at a time: most of them wait for real processes. More would only disturb those that take times.
SELECTED := -m "not slow"
pytest: $(TESTING) redis-server ## Run the tests alone
	$(BIN)/python -m pytest $(SELECTED) --numprocesses 2 --dist worksteal

# The tests start a server of their own. Without one those that need it are left out, and fail in
# continuous integration.
redis-server:
	@if command -v redis-server >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing redis-server for the tests"; \
	  apt-get install --yes redis-server >/dev/null 2>&1 && exit 0; \
	  apt-get update >/dev/null 2>&1 && apt-get install --yes redis-server >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "There is no redis-server here, and tests that need it are left out. To run them, install it" >&2; \
	echo "(on Debian and Ubuntu: apt install redis-server; on macOS: brew install redis)." >&2

##@ Build

docs: $(GENERATOR) ## Build the documentation as a site in build/site; a warning is an error
	$(BIN)/sphinx-build -W --keep-going --quiet -d build/doctrees docs build/site
	@echo "build/site/index.html"

# The wheel with every Python, and the sdist with the newest; `packages` is both with every Python.
TRIED := wheel
packages: $(TESTING) ## Build wheel and sdist, and try them with every Python here
	$(BIN)/python -m proofs $(TRIED)

##@ Prove and measure

proofs: $(TESTING) ## Kill, freeze and overload real workers, and count what was lost
	$(BIN)/python -m proofs

bench: $(TESTING) redis-server ## Measure throughput, latency and idle cost on this machine
	$(BIN)/python -m benchmarks --runs 3 --json bench.json

# Installs the other systems below build/peers. The page is written from the stored values.
bench-peers: $(TESTING) redis-server ## Measure windlass next to other task queues (about 90 minutes)
	$(BIN)/python -m benchmarks.peers --json build/peers.json
	@echo "To write the page: $(BIN)/python -m benchmarks.peers --page build/peers.json"

bench-quick: $(TESTING) redis-server ## Compare with the baseline of this machine (two minutes)
	$(BIN)/python -m benchmarks.quick $(if $(REV),--baseline $(REV)) $(if $(LEAST),--fail-under $(LEAST))

# QUICK=1 measures up to 100,000 jobs in some minutes.
bench-scale: $(TESTING) redis-server ## Measure up to ten million jobs and 10,000 queues (hours)
	$(BIN)/python -m benchmarks.scale --page $(if $(QUICK),--quick)

##@ Clean up

format: $(TESTING) ## Format the code, and fix what the linter can fix
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

clean: ## Remove the environment and all generated files
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name '.?*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment left by another tool is used when it works and made anew when it does not (its
# interpreter was removed or is too old, or it has no pip).
$(MADE): pyproject.toml
	@if $(BIN)/python -c 'import pip; $(USABLE)' 2>/dev/null; then touch $@; exit 0; fi; \
	for python in $(or $(PYTHON),$(PYTHONS)); do \
	  if $$python -c '$(USABLE)' 2>/dev/null; then \
	    echo "Making $(VENV) with $$($$python --version)"; \
	    $$python -m venv --clear $(VENV) && touch $@; \
	    exit; \
	  fi; \
	done; \
	echo "windlass needs Python 3.11 or newer with its venv module; tried:" >&2; \
	for python in $(or $(PYTHON),$(PYTHONS)); do \
	  echo "  $$python: $$($$python --version 2>&1 | head -n 1)" >&2; \
	done; \
	echo "Install one (on Debian and Ubuntu: apt install python3 python3-venv)" >&2; \
	echo "or name one: make PYTHON=/path/to/python3" >&2; \
	exit 1

$(RUNTIME): $(MADE)
	@echo "Installing windlass into $(VENV)"
	@$(PIP) install --editable .
	@touch $@

$(DRIVER): $(MADE)
	@echo "Installing the driver for Redis into $(VENV)"
	@$(PIP) install --editable '.[redis]'
	@touch $(RUNTIME) $@

$(GENERATOR): $(MADE)
	@echo "Installing what makes a site of the documentation into $(VENV)"
	@$(PIP) install --editable '.[docs]'
	@touch $(RUNTIME) $@

# The driver is among it.
$(TESTING): $(MADE)
	@echo "Installing what the tests need into $(VENV)"
	@$(PIP) install --editable '.[test]'
	@touch $(RUNTIME) $(DRIVER) $@
