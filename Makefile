# make demo | test: what a user runs. Each needs Python >= 3.10, a C++17 compiler and pip, and installs the rest in .venv.
# make dev | lint | core-test | core-bench | sanitize | simd-test | wheel | bench: what a contributor runs; see CONTRIBUTING.md.
PYTHON ?= python3
VENV := .venv
PARALLEL := --numprocesses auto --dist worksteal
BIN := $(VENV)/bin
BUILT_FROM := pyproject.toml setup.py constraints.txt CMakeLists.txt $(shell find csrc -name '*.h' -o -name '*.cc')

.PHONY: demo test dev lint core-test core-bench sanitize simd-test wheel bench clean

demo: $(VENV)/installed-demo
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 2 examples/digits_ddp.py

# Real process groups have the machine to themselves: their time-outs are for machines that others use, not for each other.
test: $(VENV)/installed-test
	$(BIN)/pytest $(PARALLEL) -m "not multiprocess"
	$(BIN)/pytest -m multiprocess

dev: $(VENV)/installed-dev

lint: $(VENV)/installed-dev
	$(BIN)/pre-commit run --all-files --show-diff-on-failure

# The core's own tests, without Python, under the sanitizers and on every instruction set that the machine has. Needs
# GoogleTest (Debian/Ubuntu: apt-get install libgtest-dev).
core-test: $(VENV)/installed-dev
	mkdir -p build
	@set -e; for sanitizers in address,undefined thread; do \
	  build=build/core-$${sanitizers%%,*}; \
	  $(BIN)/cmake -S . -B $$build -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFASTSHARD_TESTS=ON -DFASTSHARD_WERROR=ON \
	    -DFASTSHARD_SANITIZE=$$sanitizers > $$build.log; \
	  $(BIN)/cmake --build $$build >> $$build.log || { cat $$build.log; exit 1; }; \
	  for set in $$($$build/core_tests --gtest_list_tests | sed -n 's|^ *Words16.*/\([a-z0-9]*\) .*|\1|p'); do \
	    echo "$$sanitizers, FASTSHARD_SIMD=$$set"; FASTSHARD_SIMD=$$set $$build/core_tests --gtest_brief=1; \
	  done; \
	done

# Ids per second of the kernels alone. Needs google-benchmark (Debian/Ubuntu: apt-get install libbenchmark-dev).
core-bench: $(VENV)/installed-dev
	$(BIN)/cmake -S . -B build/core-bench -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DFASTSHARD_BENCH=ON
	$(BIN)/cmake --build build/core-bench
	build/core-bench/core_bench --benchmark_min_time=0.05

# The core under AddressSanitizer and UndefinedBehaviorSanitizer, driven by the Python tests of orders and slices.
# Leaks are not looked for: the interpreter itself keeps much until it exits.
sanitize: $(VENV)/installed-test
	rm -rf build/sanitized
	FASTSHARD_SANITIZE=address,undefined FASTSHARD_WERROR=1 \
	  $(BIN)/python -m pip install --quiet --no-deps --target build/sanitized .
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/sanitized \
	  $(BIN)/pytest $(PARALLEL) tests/order tests/slice tests/ledger \
	  tests/webdataset/test_tar_equal.py tests/webdataset/test_tar_broken.py -m "not slow" --timeout 900

# The suite once more on every instruction set that this machine has and does not choose by itself.
simd-test: $(VENV)/installed-test
	@set -e; for set in $$($(BIN)/python -c 'from fastshard import _core; print(*_core.instruction_sets[1:])'); do \
	  echo "FASTSHARD_SIMD=$$set"; \
	  FASTSHARD_SIMD=$$set $(BIN)/pytest $(PARALLEL) tests/order tests/slice tests/samplers tests/cases -q -m "not slow"; \
	done

# A wheel, installed by itself and used from outside the tree: nothing may lean on the source folder.
wheel: $(VENV)/installed-test
	rm -rf build/wheel && mkdir -p build/wheel/site
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel/site build/wheel/*.whl
	cd build/wheel && PYTHONPATH=site ../../$(BIN)/python -c 'import fastshard; \
	  assert fastshard.__file__.startswith("$(abspath build/wheel)"), fastshard.__file__; \
	  assert sorted(fastshard.orders.Shuffled(100000, 1).indices(0).tolist()) == list(range(100000))'

bench: $(VENV)/installed-bench
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
