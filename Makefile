# Everything from a machine with Python 3.11-3.13 and make, and nothing else installed.
#
#   make demo          the main job, about two minutes; results in demo/
#   make test          every test; downloads 260 MB of weights and data, once
#   make reproduction  every experiment, and the page of results in docs/
#
# All make a virtual environment in .venv first, if it is missing or out of date.

# A Python of 3.11-3.13: make test PYTHON=python3.12
PYTHON ?= python3
# Where the environment lies.
VENV ?= .venv
# 1: tests compute in float64; 0: in float32.
X64 ?= 1
# More arguments for pytest: make test PYTEST_ARGS="-k sphere"
PYTEST_ARGS ?=

BIN := $(VENV)/bin
# "3.12 /path/to/python3.12", the interpreter below any activated environment; empty
# where PYTHON does not run or is not supported. The version is part of the stamps'
# names, so another Python makes the environment anew.
FOUND := $(shell $(PYTHON) -c 'import sys; v = sys.version_info[:2]; print("%d.%d" % v, sys._base_executable) if (3, 11) <= v <= (3, 13) else None' 2>/dev/null)
VERSION := $(firstword $(FOUND))
BASE := $(lastword $(FOUND))

.NOTPARALLEL:
.PHONY: help demo test reproduction lint types clean

help:
	@echo "make demo          set up, run the main job (about two minutes), results in demo/"
	@echo "make test          set up, run every test in float64"
	@echo "make reproduction  set up, rerun every experiment, write docs/reproduction.md"
	@echo "make lint          style: ruff and codespell"
	@echo "make types         static types: pyright"
	@echo "make clean         remove the environment, the demo's results and caches"
	@echo
	@echo "PYTHON=$(PYTHON)  VENV=$(VENV)  X64=$(X64)  PYTEST_ARGS=$(PYTEST_ARGS)"

demo: $(VENV)/.ready-$(VERSION)-test
	@$(BIN)/tfjax fetch-weights || echo "No pretrained weights: going on without them."
	$(BIN)/tfjax demo --out demo --force

test: $(VENV)/.ready-$(VERSION)-test
	@$(BIN)/tfjax fetch-weights --all || echo "Weights are missing: their tests are skipped."
	@$(BIN)/tfjax fetch-data --all || echo "Data are missing: their tests are skipped."
	JAX_ENABLE_X64=$(X64) $(BIN)/python -m pytest -n auto --dist loadfile $(PYTEST_ARGS)

reproduction: $(VENV)/.ready-$(VERSION)-test
	$(BIN)/tfjax fetch-weights --all
	$(BIN)/tfjax fetch-data --all
	$(BIN)/tfjax reproduce --all --out docs/reproduction --force
	$(BIN)/python docs/make_reproduction.py

lint: $(VENV)/.ready-$(VERSION)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(VENV)/.ready-$(VERSION)-dev
	$(BIN)/pyright --pythonpath $(BIN)/python

# A stamp is written when its installation is complete; `dev` contains `test`. While an
# installation is under way there is a file .unfinished, so that after an interruption
# the next run starts afresh. pyvenv.cfg goes last: it marks the folder as ours.
$(VENV)/.ready-$(VERSION)-%: pyproject.toml constraints.txt
	@if [ -z "$(VERSION)" ]; then \
	    echo "tfjax needs Python 3.11, 3.12 or 3.13. '$(PYTHON) --version' says:" \
	        "$$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
	    echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; \
	fi
	@set -e; \
	if [ -e $(VENV)/.unfinished ] || ! ls $(VENV)/.ready-$(VERSION)-* >/dev/null 2>&1; then \
	    if [ ! -e $(VENV)/pyvenv.cfg ] && \
	        find $(VENV) -type f ! -name .gitignore 2>/dev/null | grep -q .; then \
	        echo "$(VENV) is no virtual environment; it stays as it is." >&2; exit 1; \
	    fi; \
	    echo "Making $(VENV) with Python $(VERSION)"; \
	    mkdir -p $(VENV); \
	    find $(VENV) -mindepth 1 -maxdepth 1 ! -name pyvenv.cfg -exec rm -rf {} +; \
	    $(BASE) -m venv $(VENV); \
	fi
	@touch $(VENV)/.unfinished
	@rm -f $(VENV)/.ready-*
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    -c constraints.txt -e '.[$*]'
	@touch $(VENV)/.ready-$(VERSION)-test $@
	@rm -f $(VENV)/.unfinished

clean:
	@if [ -e $(VENV)/pyvenv.cfg ]; then rm -rf $(VENV); fi
	rm -rf demo dist .pytest_cache .ruff_cache .hypothesis
	find tfjax tests -name __pycache__ -type d -exec rm -rf {} +
