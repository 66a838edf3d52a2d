# Each target builds .venv itself when it is missing or older than what it is built from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests in two processes where there are two cores.
WORKERS := -n logical --maxprocesses 2 --dist worksteal
# Python files are compiled once, and not by each of the many processes that the tests start.
tests nightly: export PYTHONDONTWRITEBYTECODE :=

.PHONY: reproduce test lint types tests bench docs nightly sanitize neon emulated fuzz clean

reproduce: $(STAMP)  ## the paper's table and figure at the quick budget
	$(BIN)/asterism reproduce --budget quick --out runs/quick --resume

test: lint  ## lint, then types and tests side by side
	$(MAKE) --no-print-directory --jobs=2 types tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

tests: $(STAMP)
	$(BIN)/pytest -m "not slow" -rs $(WORKERS)

bench: $(STAMP)  ## speed and memory, as ratios of things measured alternately
	$(BIN)/python -m benchmarks

docs: $(STAMP)  ## the site, into build/site; a warning is an error
	$(BIN)/python -m asterism.graph.operations > docs/operations.md
	$(BIN)/mkdocs build --strict

nightly: $(STAMP) sanitize neon emulated  ## everything, the slow tests too
	$(BIN)/python tests/fuzz/networks.py 50000
	$(BIN)/python tests/fuzz/library.py 20000
	$(BIN)/pytest -rs $(WORKERS) --hypothesis-profile=nightly

sanitize: $(STAMP)  ## the tests of the compiled code under the address and undefined-behaviour sanitizers
	cmake -S . -B build/sanitize -DASTERISM_SANITIZE=ON
	cmake --build build/sanitize
	ASTERISM_LIBRARY=$(CURDIR)/build/sanitize/libasterism.kernels.so ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD=$$($(CC) -print-file-name=libasan.so):$$($(CC) -print-file-name=libubsan.so) \
	  UBSAN_OPTIONS=halt_on_error=1 $(BIN)/pytest -m "not slow" tests/graph/test_live_forward.py \
	  tests/graph/test_operations.py tests/graph/operations/sequences/test_recurrent.py tests/runtime/test_images.py \
	  tests/runtime/test_residual.py tests/runtime/test_vision.py tests/runtime/test_sixteen_bits.py \
	  tests/runtime/test_expressions.py tests/runtime/test_layers.py tests/runtime/test_net.py \
	  tests/file/small/test_compiled.py tests/scaling/stepping/test_bundles.py \
	  tests/scaling/stepping/test_shrinking.py tests/scaling/stepping/test_compiled.py \
	  tests/scaling/stepping/test_zeroing.py tests/pruning/test_selection.py \
	  tests/file/test_damage.py tests/file/test_roundtrip.py

fuzz: $(STAMP)  ## a million hostile networks, each loaded and run; about 80 minutes; then those of libasterism
	$(BIN)/python tests/fuzz/networks.py
	$(BIN)/python tests/fuzz/library.py

neon: $(STAMP)  ## the kernels on ARM, emulated: apt-get install gcc-aarch64-linux-gnu qemu-user
	$(BIN)/python tests/kernels/neon/check.py

emulated: $(STAMP)  ## exported C on microcontrollers, ARM64 and RISC-V, emulated: its docstring says what to install
	$(BIN)/python tests/export/c/emulated/check.py

$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(shell find src/asterism/kernels -name "*.[ch]")
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
