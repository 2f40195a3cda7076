# `make demo` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-unit test-slow check format proto docs bench install clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml client/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing PyTorch and the rest into $(VENV): minutes, and about 2 GB of downloads"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e client -e '.[dev,train]'
	@touch $(INSTALLED)

demo: $(INSTALLED)  ## three prompts, with and without speculation, on a local cluster
	$(BIN)/python scripts/demo.py

test: $(INSTALLED)  ## everything but the slow tests
	$(BIN)/python -m pytest -m "not slow" -n 2 tests/unit
	$(BIN)/python -m pytest -m "not slow" -n 2 tests/engine
	$(BIN)/python -m pytest -m "not slow" -n 2 tests/k8s
	$(BIN)/python -m pytest -m "not slow" tests/integration

test-unit: $(INSTALLED)  ## without Ray
	$(BIN)/python -m pytest -m "not slow" -n 2 tests/unit

test-slow: $(INSTALLED)  ## the others, minutes each
	$(BIN)/python -m pytest -m slow

check: $(INSTALLED)  ## style, types, import rules, generated stubs, repository rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHON=$(BIN)/python PATH=$(CURDIR)/$(BIN):$$PATH scripts/check_stubs.sh
	$(BIN)/python -m pytest -q tests/repository

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(INSTALLED)  ## regenerate client/outrider/v1 from proto/
	PYTHON=$(BIN)/python PATH=$(CURDIR)/$(BIN):$$PATH scripts/generate_stubs.sh

docs: $(INSTALLED)  ## rewrite what follows from settings, metrics and rules: docs/configuration.md, deploy/k8s/monitoring
	$(BIN)/python -m cluster.config.reference
	$(BIN)/python -m cluster.observability.generate

bench: $(INSTALLED)  ## speed and memory on the demo's model; writes benchmarks/results
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
