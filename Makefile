# Needs Python >= 3.11 and make. `make demo` shows what flopmap does, `make test` runs every check.
# With uv the same targets work as `uv run make test`, or `make test UV=uv`.

PYTHON ?= python3
VENV   := .venv
DEMO   := flopmap why Qwen/Qwen3-8B --on a100-sxm-80gb --engine vllm --enforce-eager --batch-size 8 --context-len 1024 --throughput 227.8

# What a command of the environment is called with. `uv run` names itself in $UV; then uv keeps the environment, and the
# installs below have nothing to do. (The empty comments keep a space at the end.)
ifneq ($(UV),)
RUN       := $(UV) run --quiet #
RUN_BENCH := $(UV) run --quiet --extra bench #
RUN_TORCH := $(UV) run --quiet --extra oracle #
else
RUN       := $(VENV)/bin/
RUN_BENCH := $(RUN)
RUN_TORCH := $(RUN)
READY     := $(VENV)/.installed
TEST      := $(VENV)/.installed-test
BENCH     := $(VENV)/.installed-bench
ORACLE    := $(VENV)/.installed-oracle
endif

.PHONY: demo test lint types layers check unit size smoke bench oracle clean help
.NOTPARALLEL:

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

demo: $(READY) ## install into .venv and answer a real case
	@echo '$$ $(DEMO)'
	@$(RUN)$(DEMO)

test: lint types layers check unit size smoke ## every check: what continuous integration runs

lint: $(TEST) ## ruff: rules and format
	@$(RUN)ruff check
	@$(RUN)ruff format --check

types: $(TEST) ## mypy, strict
	@$(RUN)mypy

layers: $(TEST) ## import-linter: lower rooms never import higher ones
	@$(RUN)lint-imports --no-logo

check: $(TEST) ## the book: schema, units, sources, links, claims
	@$(RUN)flopmap check

unit: $(TEST) ## pytest, with coverage
	@$(RUN)python -m pytest -n auto --cov --cov-report=term

size: $(TEST) ## the size budgets
	@$(RUN)python tools/size.py

smoke: $(TEST) ## the wheel in an empty environment
	@$(RUN)python tools/wheel_smoke.py

bench: $(BENCH) ## every script of benchmarks/
	@for script in benchmarks/[!_]*.py; do echo "== $$script"; $(RUN_BENCH)python $$script || exit 1; done

oracle: $(ORACLE) ## the tests that need torch and transformers (a large download)
	@$(RUN_TORCH)python -m pytest -m oracle

# One stamp an install, renewed when the dependencies may have changed.
$(VENV)/.installed: EXTRAS :=
$(VENV)/.installed-test: EXTRAS := [test]
$(VENV)/.installed-bench: EXTRAS := [bench]
$(VENV)/.installed-oracle: EXTRAS := [test,oracle]

$(VENV)/.installed $(addprefix $(VENV)/.installed-,test bench oracle): pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'flopmap needs Python 3.11 or newer: make PYTHON=python3.12' >&2; exit 1; }
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv --clear $(VENV) \
		|| { echo 'this Python has no venv: apt-get install python3-venv, or use uv: make $(MAKECMDGOALS) UV=uv' >&2; exit 1; }
	@echo 'installing flopmap$(EXTRAS) into $(VENV)'
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.$(EXTRAS)'
	@touch $@ $(VENV)/.installed

clean: ## remove what was built
	rm -rf $(VENV) build dist htmlcov .coverage src/flopmap/book/book.json .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +
