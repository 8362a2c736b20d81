# The two commands of the README, and what they need. `make help` lists all targets.
#
# Set-up happens by itself, once: .venv/.ready is older than pyproject.toml or constraints.txt only when they changed.

IN_RANGE := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
            $$p -c '$(IN_RANGE)' 2>/dev/null && command -v $$p && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TORCH  := 2.13.0
OUT    := lockstep-out

.DEFAULT_GOAL := help
.PHONY: help setup verify test lint bench matrix clean

help:            ## what there is
	@grep -hE '^[a-z]+: .*##|^[a-z]+: *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

setup: $(READY)  ## create .venv and install everything, pinned; nothing if it is up to date

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(IN_RANGE)' || { \
	   echo "Lockstep needs Python 3.11 to 3.13, and found $$(python3 --version 2>&1). Try: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH) -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

verify: $(READY) ## verify every built-in strategy on 4 ranks: a table here, pages in lockstep-out/
	$(BIN)/lockstep verify all --world-size 4 --out $(OUT)
	@echo "report: $(OUT)/index.html"

test: $(READY)   ## the whole test suite, on all cores
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(READY)   ## ruff, mypy, import contracts
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

bench: $(READY)  ## a quick verification against torchrun's hello, alternating
	$(BIN)/python benchmarks/cold_start.py

matrix: $(READY) ## all faults, specimens and controls against all checks: docs/kill-matrix.md
	$(BIN)/python -m tests.kill_matrix --write docs/kill-matrix.md

clean:           ## remove what was made here, .venv included
	rm -rf $(VENV) $(OUT) lockstep-data build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
