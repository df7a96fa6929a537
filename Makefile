# make demo | test: what a user runs. Each needs Python >= 3.10, a C++17 compiler and pip, and installs the rest in .venv.
# make dev | lint | sanitize | bench: what a contributor runs; see CONTRIBUTING.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT_FROM := pyproject.toml setup.py constraints.txt CMakeLists.txt $(shell find csrc -name '*.h' -o -name '*.cc')

.PHONY: demo test dev lint sanitize bench clean

demo: $(VENV)/installed-demo
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 2 examples/digits_ddp.py

test: $(VENV)/installed-test
	$(BIN)/pytest

dev: $(VENV)/installed-dev

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(shell find csrc -name '*.h' -o -name '*.cc')
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest fastshard._core --allowlist .ci/stubtest-allowlist

bench: $(VENV)/installed-dev
	$(BIN)/python -m bench all

# The installation is editable, so Python files need no new one; the compiled core does.
$(VENV)/installed-%: $(VENV)/bin/python $(BUILT_FROM)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "fastshard needs Python 3.10 or newer, and " + sys.executable + " is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "fastshard needs Python's venv module, which $(PYTHON) lacks (Debian/Ubuntu: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf build dist .venv fastshard/*.so *.egg-info
