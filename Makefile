# Two commands are enough on a fresh machine with Python 3.10 or newer: `make demo`, `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHELL  := /bin/bash
UV     := VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv

.PHONY: help demo test check docs bench eval lock clean
.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(BIN)/uv:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed, this is " + sys.version) if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

# What the demo needs: the package as a newcomer installs it, with the command line.
$(VENV)/.demo: $(BIN)/uv pyproject.toml
	$(UV) pip install --quiet --editable '.[cli]'
	touch $@

# What the tests need: every extra, the tools, and the agent frameworks.
$(VENV)/.dev: $(BIN)/uv pyproject.toml requirements-dev.lock
	$(UV) pip install --quiet --requirement requirements-dev.lock
	$(UV) pip install --quiet --editable '.[all]' --constraint requirements-dev.lock
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## a stuck agent is hinted at and stopped, then a recorded run is replayed
	$(BIN)/otel-loopguard demo

test: $(VENV)/.dev ## all tests
	$(BIN)/python -m pytest

check: $(VENV)/.dev ## style, types, rooms, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/docs

docs: $(VENV)/.dev ## writes the generated pages anew
	LOOPGUARD_WRITE_DOCS=1 $(BIN)/python -m pytest -q tests/docs tests/dialects/test_captures.py

bench: $(VENV)/.dev ## speed and memory, as ratios in one run
	$(BIN)/python bench/run.py

eval: $(VENV)/.dev ## detection on ../shared/traces, beside the baselines
	$(BIN)/otel-loopguard eval ../shared/traces/{trail,magentic,captainagent,sentinel,miniswe,taubench,intercode,sweagent}.jsonl.gz \
	  ../shared/eval/scenarios.jsonl --baselines ../shared/eval/baselines.py --leave-one-out --cost --errors \
	  --curve docs/evaluation.svg

lock: $(BIN)/uv ## pins the versions that the tests run with
	$(UV) pip compile --quiet --universal --all-extras --group dev --group frameworks pyproject.toml \
	  --no-header --no-annotate --output-file requirements-dev.lock

clean: ## removes what was made here
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
