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
TESTING := $(VENV)/.testing-installed
DRIVERS := $(VENV)/.redis-driver-installed $(VENV)/.postgres-driver-installed
SERVER := $(VENV)/.server-installed
GENERATOR := $(VENV)/.generator-installed

USABLE := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint types layers pytest programs prometheus typescript axe screenshots docs packages proofs bench bench-peers bench-quick bench-scale format clean

help:
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Start

install: $(TESTING) ## Set up the private environment for all other targets

# With WINDLASS_URL=redis://... or postgresql://... it runs on that server, and needs the driver. With
# SERVE=1 it runs a shop under load with its dashboard, until Ctrl-C.
DRIVER := $(if $(filter redis% unix%,$(WINDLASS_URL)),redis)$(if $(filter postgres%,$(WINDLASS_URL)),postgres)
demo: $(SERVER) $(DRIVER:%=$(VENV)/.%-driver-installed) ## Watch jobs run, fail, retry and survive a kill -9 (SERVE=1: in the dashboard)
	@$(BIN)/windlass demo $(if $(SERVE),--serve)

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

# Three at a time, also on two cores: most of them wait for real processes. More would disturb those
# that take times.
SELECTED := -m "not slow"
pytest: $(TESTING) programs prometheus typescript axe ## Run the tests alone
	$(BIN)/python -m pytest $(SELECTED) --numprocesses 3 --dist worksteal

# Programs that the tests use, and their packages on Debian: servers of their own for each run, and the
# clients of the HTTP API in guides and examples. Without one, the tests that need it are left out, and
# fail in continuous integration.
# Installing starts and enables no service, and makes no database cluster. A package that cannot be
# installed does not stop the others.
PROGRAMS := redis-server:redis-server initdb:postgresql pgbouncer:pgbouncer nginx:nginx \
  curl:curl jq:jq node:nodejs chromium:chromium
POLICY := /usr/sbin/policy-rc.d
CLUSTERS := /etc/postgresql-common/createcluster.conf
programs:
	@absent() ( \
	  PATH="$$PATH:/usr/sbin:$$(echo /usr/lib/postgresql/*/bin | tr ' ' :)"; \
	  for pair in $(PROGRAMS); do \
	    command -v $${pair%%:*} >/dev/null || printf ' %s' $${pair##*:}; \
	  done \
	); \
	missing="$$(absent)"; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing$$missing for the tests"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  if [ ! -e $(POLICY) ]; then \
	    trap 'rm -f $(POLICY)' EXIT; trap 'exit 1' HUP INT TERM; \
	    printf '#!/bin/sh\nexit 101\n' >$(POLICY) && chmod 755 $(POLICY); \
	  fi; \
	  case "$$missing" in *postgresql*) \
	    grep -qs '^ *create_main_cluster' $(CLUSTERS) || { \
	      mkdir -p $(dir $(CLUSTERS)) && echo 'create_main_cluster = false' >>$(CLUSTERS); \
	    };; \
	  esac; \
	  apt-get install --yes $$missing >/dev/null 2>&1 || { \
	    apt-get update >/dev/null 2>&1; \
	    for package in $$missing; do apt-get install --yes $$package >/dev/null 2>&1; done; \
	  }; \
	  for package in $$missing; do \
	    ! command -v systemctl >/dev/null || systemctl --quiet disable $$package 2>/dev/null; \
	  done; \
	  missing="$$(absent)"; \
	  [ -n "$$missing" ] || exit 0; \
	fi; \
	echo "These programs are missing, and tests that need them are left out:$$missing" >&2; \
	echo "To run them, install the programs (on Debian and Ubuntu: make programs as root)." >&2

# A real Prometheus reads the metrics in a test. It is unpacked and not installed, because its package
# would start a service.
PROMETHEUS := build/prometheus
prometheus:
	@command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0; \
	[ -x $(PROMETHEUS)/usr/bin/promtool ] && exit 0; \
	if command -v apt-get >/dev/null && command -v dpkg >/dev/null; then \
	  echo "Unpacking prometheus for the tests"; \
	  mkdir -p $(PROMETHEUS) && cd $(PROMETHEUS) && { \
	    apt-get download prometheus || { apt-get update && apt-get download prometheus; }; \
	  } >/dev/null 2>&1 && dpkg --extract prometheus_*.deb . && rm prometheus_*.deb && exit 0; \
	fi; \
	echo "There is no prometheus, and tests that need it are left out." >&2; \
	echo "To run them, install prometheus and promtool." >&2

# The compiler checks the types of the dashboard's front end, and compiles nothing.
TYPESCRIPT := build/typescript
typescript:
	@[ -x $(TYPESCRIPT)/node_modules/.bin/tsc ] && exit 0; \
	if command -v npm >/dev/null; then \
	  echo "Installing TypeScript for the tests"; \
	  npm install --prefix $(TYPESCRIPT) --no-save --no-package-lock --no-audit --no-fund \
	    --loglevel error typescript@5.9.3 >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "There is no TypeScript, and the test that needs it is left out." >&2; \
	echo "To run it, install npm and run make typescript." >&2

# Finds what keeps readers from using the dashboard: axe-core runs in its pages.
AXE := build/axe
axe:
	@[ -f $(AXE)/node_modules/axe-core/axe.min.js ] && exit 0; \
	if command -v npm >/dev/null; then \
	  echo "Installing axe-core for the tests"; \
	  npm install --prefix $(AXE) --no-save --no-package-lock --no-audit --no-fund \
	    --loglevel error axe-core@4.14.0 >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "There is no axe-core, and the tests that need it are left out." >&2; \
	echo "To run them, install npm and run make axe." >&2

##@ Build

docs: $(GENERATOR) ## Build the documentation as a site in build/site; a warning is an error
	$(BIN)/sphinx-build -W --keep-going --quiet -d build/doctrees docs build/site
	@echo "build/site/index.html"

# Every page goes to build/screenshots; those of the documentation also to docs/_static.
screenshots: $(TESTING) programs ## Take the pictures of the dashboard with a real browser
	$(BIN)/python -m tools.screenshots

# The wheel with every Python, and the sdist with the newest; `packages` is both with every Python.
TRIED := wheel
packages: $(TESTING) ## Build wheel and sdist, and try them with every Python here
	$(BIN)/python -m proofs $(TRIED)

##@ Prove and measure

proofs: $(TESTING) ## Kill, freeze and overload real workers, and count what was lost
	$(BIN)/python -m proofs

bench: $(TESTING) programs ## Measure throughput, latency and idle cost on this machine
	$(BIN)/python -m benchmarks --runs 3 --json bench.json

# Installs the other systems below build/peers. The page is written from the stored values. STORE="postgres
# postgres-snapshot postgres-finished" measures systems on PostgreSQL alone, also under a burden.
bench-peers: $(TESTING) programs ## Measure windlass next to other task queues (about 90 minutes)
	$(BIN)/python -m benchmarks.peers --json build/peers.json $(if $(STORE),--store $(STORE))
	@echo "To write the page: $(BIN)/python -m benchmarks.peers --page build/peers.json"

bench-quick: $(TESTING) programs ## Compare with the baseline of this machine (four minutes)
	$(BIN)/python -m benchmarks.quick $(if $(REV),--baseline $(REV)) $(if $(LEAST),--fail-under $(LEAST))

# QUICK=1 measures up to 100,000 jobs in some minutes.
bench-scale: $(TESTING) programs ## Measure up to ten million jobs and 10,000 queues (hours)
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

$(DRIVERS): $(VENV)/.%-driver-installed: $(MADE)
	@echo "Installing the driver for $* into $(VENV)"
	@$(PIP) install --editable '.[$*]'
	@touch $@

$(SERVER): $(MADE)
	@echo "Installing windlass with its server into $(VENV)"
	@$(PIP) install --editable '.[server]'
	@touch $@

$(GENERATOR): $(MADE)
	@echo "Installing what makes a site of the documentation into $(VENV)"
	@$(PIP) install --editable '.[docs]'
	@touch $@

# Drivers and server are among it.
$(TESTING): $(MADE)
	@echo "Installing what the tests need into $(VENV)"
	@$(PIP) install --editable '.[test]'
	@touch $(DRIVERS) $(SERVER) $@
