# Two commands are enough on a fresh machine with Python 3.10 or newer: `make demo`, `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHELL  := /bin/bash
# The tests start hundreds of processes: what one has compiled, the others read, whatever a shell asks.
export PYTHONDONTWRITEBYTECODE :=
UV     := VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv

.PHONY: help demo demo-serve demo-hook test test-all environments frameworks check docs site golden bench house eval eval-stable eval-peers effect smollm dist lock clean
.PHONY: collector balancer jaeger jaeger-ui stack demo-stack e2e phoenix mlflow pictures
.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

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

demo-serve: $(VENV)/.dev ## the same with an agent in Node (20 or newer) and `otel-loopguard serve`
	$(BIN)/python -m tests.server.demo

demo-hook: $(VENV)/.dev ## a recorded session of a stuck coding agent plays through its installed hooks
	$(BIN)/python -m tests.hooks.demo

# Three at a time on two cores, as tests wait for servers half of their time; two in CI, whose
# machine may be slow. Each file by one of them, as what its tests share is made once. CI runs a red
# test once more and names it: brokers, databases and browsers share its cores.
TESTS := $(BIN)/python -m pytest -q -n $(if $(CI),2 --reruns 1 -rfER,3) --dist loadfile

test: $(VENV)/.dev ## the tests, without those that guard against rare events
	$(TESTS)

test-all: $(VENV)/.dev ## all tests; run before a release
	$(TESTS) --rare

environments: $(VENV)/.dev # of the frameworks that `make test-all` runs apart
	$(BIN)/python -m tests.frameworks.environments

frameworks: $(VENV)/.dev ## the adapters in every framework, each in its own environment
	$(BIN)/python -m tests.frameworks.environments
	LOOPGUARD_WRITE_DOCS=1 $(BIN)/python -m pytest --rare tests/frameworks
	LOOPGUARD_WRITE_DOCS=1 $(BIN)/python -m pytest -q tests/docs -k 'adapters or versions'

# Built once and kept in ~/.cache/otel-loopguard; the first time takes minutes and needs Go 1.26.
STACK := PYTHONPATH=collector-config $(BIN)/python -m stack

collector: $(VENV)/.dev ## builds the Collector with what collector-config/ needs
	$(STACK) build collector

balancer: $(VENV)/.dev ## builds the Collector for the first of two layers
	$(STACK) build balancer

jaeger: $(VENV)/.dev ## builds Jaeger
	$(STACK) build jaeger

jaeger-ui: $(VENV)/.dev ## keeps Jaeger's page for the stack, from a folder that has it: UI=DIR
	$(STACK) page $(if $(UI),"$(UI)")

phoenix: $(VENV)/.dev ## installs Arize Phoenix, in an environment of its own
	$(STACK) build phoenix

mlflow: $(VENV)/.dev ## installs the server of MLflow, in an environment of its own
	$(STACK) build mlflow

stack: collector jaeger ## runs Collector, Jaeger, Prometheus, Alertmanager and Redis on loopback
	$(STACK) up

demo-stack: collector jaeger ## the same, with a looping agent sent through; says where to look
	$(STACK) demo

e2e: collector balancer jaeger phoenix mlflow ## the tests that run the real programs
	$(BIN)/python -m pytest --rare tests/e2e tests/clients tests/server/test_agents.py

check: $(VENV)/.dev site ## style, types, imports, links of the site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: $(VENV)/.dev ## writes the generated pages anew
	LOOPGUARD_WRITE_DOCS=1 $(BIN)/python -m pytest -q --rare tests/docs tests/dialects/test_captures.py

site: $(VENV)/.dev ## builds the pages as a site, build/site; fails for a link that leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

golden: $(VENV)/.dev ## writes the decisions about the recorded runs anew; look at the diff
	$(BIN)/python -m tests.golden.decisions

bench: $(VENV)/.dev ## speed and memory, as ratios in one run, and their bounds
	$(BIN)/python -m bench.run
	$(BIN)/python -m pytest -q bench

house: $(VENV)/.dev ## size and structure of the package, beside 0.3 and the aims
	@$(BIN)/python -m bench.house

RECORDINGS := ../shared/traces/{trail,magentic,captainagent,sentinel,miniswe,taubench,intercode,sweagent,codetracer-claude,codetracer-kimi}.jsonl.gz

eval: $(VENV)/.dev ## detection on ../shared/traces
	mkdir -p build
	$(BIN)/python -m lab.recorded scenarios/everyday-work.txt build/everyday.jsonl.gz
	$(BIN)/python -m lab.evaluate $(RECORDINGS) ../shared/eval/scenarios.jsonl build/everyday.jsonl.gz \
	  --leave-one-out --cost --errors --curve build/curve.jsonl
	$(BIN)/python bench/curve.py build/curve.jsonl docs/project/evaluation.svg

eval-stable: $(VENV)/.dev ## which runs in scenarios/ are judged otherwise after a change that changes nothing
	$(BIN)/python -m lab.stable scenarios/*.jsonl.gz

eval-peers: $(VENV)/.dev ## the loop rules of other agents on scenarios/ and ../shared/traces, beside ours
	$(BIN)/python -m lab.compare scenarios/{everyday,field}.jsonl.gz --recordings $(RECORDINGS)

effect: $(VENV)/.dev smollm ## tasks solved, calls, tokens with and without the guard, by a small real model
	$(BIN)/python -m lab.effect --out lab/effect/results.json

smollm: $(VENV)/.dev # builds llama.cpp and installs that model, in an environment of its own
	$(BIN)/python -m lab.effect.installed

pictures: collector jaeger phoenix ## makes the pictures of README.md and docs/
	PYTHONPATH=collector-config $(BIN)/python -m tests.operations.pictures

dist: $(BIN)/uv ## builds sdist and wheel, and checks them in an empty environment
	.ci/check-dist

lock: $(BIN)/uv ## pins the versions that the tests run with
	$(UV) pip compile --quiet --universal --python-version 3.10 --extra all --group dev --group docs --group frameworks pyproject.toml \
	  --no-header --no-annotate --output-file requirements-dev.lock

clean: ## removes what was made here
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
