# Each target builds .venv itself when it is missing or older than what it is built from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: reproduce test lint types bench nightly clean

reproduce: $(STAMP)  ## the paper's table and figure at the quick budget
	$(BIN)/asterism reproduce --budget quick --out runs/quick --resume

test: lint types  ## lint, types, tests
	$(BIN)/pytest -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)  ## speed and memory, as ratios of things measured alternately
	$(BIN)/python -m benchmarks

nightly: $(STAMP)  ## everything, the slow tests too
	$(BIN)/pytest

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
