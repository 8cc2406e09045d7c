# `make help` lists the targets. Everything they need is set up by tools/setup.sh.

VENV_PYTHON := .venv/bin/python
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
SYSTEM_PATH := $(PATH)
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup setup-web build test test-core test-web conformance nightly ecosystem fuzz fuzz-web samples-web long-web soak demo web bench bench-web lint \
	format docs setup-wheel wheel check-wheel check-platforms clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 13

setup: ## prepare .venv, the WebGPU runtime and a driver
	@# .venv must not be made from its own interpreter.
	@PATH="$(SYSTEM_PATH)" tools/setup.sh

setup-web: setup # prepare Node, its packages and Chromium
	@tools/ensure_web.sh

build: setup ## build the C++ core in place
	@[ -e build/build.ninja ] || cmake -S . -B build -G Ninja -DPython_EXECUTABLE=$(CURDIR)/$(VENV_PYTHON)
	@cmake --build build -j $(JOBS)

test: build setup-web ## run the C++, the Python and the web tests
	@tools/ensure_swiftshader.sh
	@# In the order of their names: sorted by the number of tests, the long files of tests/export come last, in large processes.
	@ctest --test-dir build -V --no-tests=error; cpp=$$?; \
	$(VENV_PYTHON) -m pytest -n 2 --dist=loadfile --no-loadscope-reorder; python=$$?; \
	$(MAKE) --no-print-directory test-web && exit $$((cpp + python))

test-web: build setup-web ## run the tests of web/ in Node and in Chromium; ARGS="-t names"
	@cd web && npm run -s build tests
	@$(VENV_PYTHON) web/site/make_pages.py --quick && $(VENV_PYTHON) web/tests/make_files.py
	@cd web && npm run -s test -- $(ARGS)

test-core: build ## the tests of what every version of torch must do: the device, its operators, the compiler, graphs
	$(VENV_PYTHON) -m pytest -n 2 tests/device tests/python tests/ops tests/inductor tests/graphs $(ARGS)

conformance: build ## compare every operator and dtype with the CPU; ARGS="--only add --samples 2"
	$(VENV_PYTHON) -m tests.conformance $(ARGS)

nightly: ARGS += --strict
nightly: conformance ## what CI runs by night: all of the conformance run, where a failing cell is an error, and those of web/
	@$(VENV_PYTHON) -m pytest -n 2 -m long
	@$(MAKE) --no-print-directory samples-web ARGS=
	@$(MAKE) --no-print-directory long-web
	@$(MAKE) --no-print-directory fuzz-web SEED=$$(date +%Y%j)
	@$(MAKE) --no-print-directory fuzz ARGS="--compiled --minutes 20 --seed $$(date +%Y%j)"

ecosystem: build ## install the libraries of tests/ecosystem and test them
	@$(VENV_PYTHON) tools/dev_install.py --requirements test-ecosystem >build/ecosystem.txt
	@$(VENV_PYTHON) -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' >build/torch.txt
	@$(VENV_PYTHON) -m pip install -qq --disable-pip-version-check -r build/ecosystem.txt -c build/torch.txt
	@# A torchvision that was made for another build of torch fails where it is imported, also by other libraries.
	@$(VENV_PYTHON) tools/dev_install.py --requirements test-ecosystem-vision >build/ecosystem-vision.txt
	@$(VENV_PYTHON) -m pip install -qq --disable-pip-version-check -r build/ecosystem-vision.txt -c build/torch.txt && \
	$(VENV_PYTHON) -c "import torchvision" 2>/dev/null || \
	{ echo "without torchvision, which has no wheel for this torch"; $(VENV_PYTHON) -m pip uninstall -qqy torchvision timm ultralytics; }
	TORCH_WEBGPU_ECOSYSTEM=all $(VENV_PYTHON) -m pytest tests/ecosystem $(ARGS)

fuzz-web: build setup-web ## random programs of web/torch, compared with PyTorch; PROGRAMS=2500 SEED=7
	@cd web && TORCH_PROGRAMS=$(or $(PROGRAMS),2500) TORCH_PROGRAMS_SEED=$(or $(SEED),1) npm run -s test -- torch.programs
	@cd web && TORCH_EDGES=40 TORCH_EDGES_SEED=$(or $(SEED),1) npm run -s test -- torch.unusual

samples-web: build setup-web ## each operator of web/torch on all samples of op_db, compared with PyTorch; ARGS="-t conv"
	@cd web && TORCH_SAMPLES=all npm run -s test -- torch.operators $(ARGS)

long-web: ## the tests of web/ that test-web leaves out, with others of their files
	@TORCH_LONG=1 $(MAKE) --no-print-directory test-web ARGS="$$(cd web && grep -rl '/long";' tests | xargs)"

fuzz: build ## random programs, compared with the CPU; ARGS="--steps 100000 --seed 7", "--replay 7:12"
	$(VENV_PYTHON) -m tests.fuzz $(ARGS)

soak: build ## train for long: flat memory, losses equal to the CPU's; ARGS="--minutes 20"
	$(VENV_PYTHON) -m tests.fuzz.soak $(ARGS)

demo: build ## train a network on handwritten digits, then load it in a new process
	$(VENV_PYTHON) -m examples.digits train
	$(VENV_PYTHON) -m examples.digits run

web: build setup-web ## build the demo site, serve it and print its address; PORT=8080
	@cd web && npm run -s build
	@$(VENV_PYTHON) web/site/make_pages.py
	@TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(VENV_PYTHON) web/tests/torch/record.py web/dist/site/operators
	@cd web && npm run -s serve

bench: build ## print the benchmark tables
	$(VENV_PYTHON) -m benchmarks
	$(VENV_PYTHON) -m benchmarks.compiled

bench-web: build setup-web ## compare the player with its peers in Chromium and in Node; ARGS="gpt --in Node"
	@$(VENV_PYTHON) tools/dev_install.py --requirements bench-web >build/bench-web.txt
	@$(VENV_PYTHON) -m pip install -qq --disable-pip-version-check -r build/bench-web.txt
	@# Without the scripts that fetch other platforms' libraries.
	@cd web/bench && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --ignore-scripts --loglevel=error; }
	@cd web && npm run -s build
	@$(VENV_PYTHON) web/bench/make_files.py
	@cd web && node bench/build.mjs && node dist/bench/run.mjs $(ARGS)

lint: setup setup-web ## run every check of .pre-commit-config.yaml
	$(VENV_PYTHON) -m pre_commit run --all-files

format: setup setup-web ## format C++, Python and TypeScript in place
	git ls-files '*.cpp' '*.h' | xargs $(VENV_PYTHON) -c 'from clang_format import clang_format; clang_format()' -i
	$(VENV_PYTHON) -m ruff check --fix-only -q
	$(VENV_PYTHON) -m ruff format
	cd web && npm run -s format

docs: setup ## build the documentation as a site, docs/site/index.html; a broken link is an error
	@# Without the notice of MkDocs' and its theme's successors.
	NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build --strict

setup-wheel: # prepare .venv for building a wheel, if it is not prepared for more
	@PATH="$(SYSTEM_PATH)" tools/setup.sh wheel

wheel: setup-wheel ## build a wheel into dist/
	@tools/build_wheel.sh

check-platforms: setup ## compile what differs between operating systems for macOS and Windows
	@mkdir -p build
	@$(VENV_PYTHON) tools/dev_install.py --requirements platforms >build/platforms.txt
	@$(VENV_PYTHON) -m pip install -qq --disable-pip-version-check -r build/platforms.txt
	@tools/check_platforms.sh

check-wheel: setup wheel ## use the wheel in a fresh environment, from Python and from C++
	tools/check_wheel.sh

clean: ## remove what a build made (.venv stays)
	rm -rf build build-wheel dist docs/site web/dist web/.cache web/node_modules web/bench/node_modules torch_webgpu/lib torch_webgpu/include torch_webgpu/share torch_webgpu/_C.*.so
