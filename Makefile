# make help explains the targets. Everything lives in .venv and results/.
.DEFAULT_GOAL := help
SHELL := bash
PYTHON ?= python3
CORES ?= 2
# A CPU machine gets a small build where pip has one; on a GPU machine ask for the build that fits its driver,
# e.g. make run TORCH='torch==2.13.0 --index-url <the index of your CUDA version>'.
TORCH ?= torch==2.13.0
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint envs/pins.txt

.PHONY: help run test test-fast lint format generate clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

.venv/installed: pyproject.toml envs/pins.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(INSTALL) $(TORCH)
	$(INSTALL) --editable .
	@touch $@

.venv/installed-test: .venv/installed
	$(INSTALL) --editable '.[test]'
	@touch $@

.venv/installed-lint: .venv/installed
	$(INSTALL) --editable '.[lint]'
	@touch $@

run: .venv/installed ## set up and run the embedded default: planted data, tiny model, two cores
	$(BIN)/snakemake all --cores $(CORES)
	@$(BIN)/rm-memorization overview results/planted

test: .venv/installed-test ## set up and run all tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-fast: .venv/installed-test ## the unit tests alone
	$(BIN)/python -m pytest tests/unit --numprocesses 2 --dist loadfile

lint: .venv/installed-lint ## ruff, mypy, snakefmt, snakemake --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: .venv/installed-lint ## format the code
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

generate: .venv/installed ## write the files that are generated from the code
	$(BIN)/python docs/generate.py

clean: ## remove results and Snakemake's metadata
	rm -rf results/*/ .snakemake
