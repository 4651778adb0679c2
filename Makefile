# SPDX-License-Identifier: GPL-2.0-or-later
# `make demo` and `make test` do everything on a fresh Debian 12 with git and make.

SERIES := 6.12
TARGET := x86_64-unknown-linux-gnu
ENGINE := target/release/windtunnel
PYTHON := /usr/bin/python3
PYTEST := PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -p no:cacheprovider
# One folder for all build products, whatever the user's settings: the paths above depend on it.
CARGO := CARGO_TARGET_DIR=$(CURDIR)/target cargo
# Property tests draw the same cases on every machine; PROPTEST_RNG_SEED=N draws others, and fuzzing is for the rest.
export PROPTEST_RNG_SEED ?= 20260101
SHELL_SCRIPTS := .ci/run examples/build examples/live/27-attach examples/live/30-vm examples/live/32-udp scripts/bare-install scripts/bare-root scripts/fuzz scripts/python-tools scripts/setup-system
PYTHON_SCRIPTS := kernel/build kernel/profile/record examples/live/31-three-clocks $(wildcard kernel/profile/*.py python/*.py python/windtunnel/*.py python/windtunnel/plot/*.py bench/*.py examples/*.py figures/*.py scripts/*.py tests/e2e/*.py tests/frames/*.py tests/storms/*.py)
C_SOURCES := $(shell git ls-files 'kernel/arch/*.c' 'tests/programs/*.[ch]' 'tests/storms/*.c' 'figures/*.c')

.PHONY: help demo build examples kernel test test-from-nothing test-e2e test-full fuzz bench dist release-check docs reference lint format setup-%
.NOTPARALLEL:

help:
	@echo 'make demo       set up, build, and run two examples'
	@echo 'make build      the program: $(ENGINE)'
	@echo "make examples   the examples' own programs, where their toolchains are: target/examples"
	@echo 'make kernel     the library kernel, into the cache (KEEP=1 keeps objects for short rebuilds)'
	@echo 'make test       unit and end-to-end tests'
	@echo 'make test-full  also those that build kernels (most of an hour)'
	@echo 'make fuzz       every fuzz target for FUZZ_SECONDS (60); needs a nightly compiler'
	@echo 'make bench      the performance table, beside ns-3 where it is installed'
	@echo 'make dist       a wheel, a Debian package and their debug symbols: dist/'
	@echo 'make release-check  also that both and this checkout give the same digests'
	@echo 'make docs       the documentation as a site: target/site'
	@echo 'make reference  docs/reference, of schemas, help and docstrings'
	@echo 'make figures    figures of papers, measured anew: docs/figures (make figure-goodput-loss: one of them)'
	@echo 'make lint       formatting, linters, licences, rules of this tree'
	@echo 'make format     what can be mended by a tool'

setup-%:
	@scripts/setup-system $*

demo: setup-run kernel build
	$(PYTHON) scripts/demo.py $(ENGINE) examples/01-ping.yaml examples/03-tcp.yaml

build: setup-build
	$(CARGO) build --locked --release --target $(TARGET) --package windtunnel
	install -D -m 755 target/$(TARGET)/release/windtunnel $(ENGINE)

examples: setup-examples
	examples/build

kernel: setup-build
	kernel/build $(if $(KEEP),--keep-work) $(SERIES)

test: setup-run setup-test kernel build examples
	$(CARGO) test --locked --workspace
	@echo 'Not run here: the tests marked "full" (several kernel builds); make test-full runs them.'
	$(MAKE) --no-print-directory test-from-nothing

# `make test` without the unit tests, which take little of the host: what scripts/bare-root is for.
test-from-nothing: setup-run setup-test kernel build examples
	$(CARGO) build --locked --target $(TARGET) --package windtunnel
	$(MAKE) --no-print-directory test-e2e

# Of what `make test` has built.
test-e2e:
	$(PYTEST) -m 'not full'

test-full: setup-run setup-test setup-full kernel build examples
	$(CARGO) test --locked --workspace
	$(CARGO) build --locked --target $(TARGET) --package windtunnel
	$(PYTEST)

FUZZ_SECONDS ?= 60
fuzz: setup-run setup-test kernel build
	scripts/fuzz $(FUZZ_SECONDS)

bench: setup-run kernel build
	$(PYTHON) bench/run.py --engine $(ENGINE) $(BENCH_ARGS)

# Where things lie on this machine is kept out of the program: in its stead stand the paths on the right.
CARGO_SOURCES := $(or $(CARGO_HOME),$(HOME)/.cargo)
MAPPED_PATHS := "--remap-path-prefix=$(CARGO_SOURCES)=/usr/src/cargo","--remap-path-prefix=$(CURDIR)=/usr/src/windtunnel"
dist: setup-build setup-dist kernel
	$(CARGO) build --locked --profile dist --target $(TARGET) --package windtunnel \
		--config 'target.$(TARGET).rustflags=[$(MAPPED_PATHS)]'
	$(PYTHON) scripts/dist.py target/$(TARGET)/dist/windtunnel

# Figures of papers, each a page in docs/figures: all of them, or one by its name (make figure-goodput-loss). Half an hour in all.
FIGURES := digests goodput-loss mptcp-buffers datacenter chain core-chain core-realtime nsc-validation
.PHONY: figures $(FIGURES:%=figure-%)
figures: $(FIGURES:%=figure-%)
$(FIGURES:%=figure-%): figure-%: setup-run kernel build
	tools=$$(scripts/python-tools study) && "$$tools/python" figures/$(subst -,_,$*).py $(FIGURE_ARGS)

release-check: setup-run build dist
	$(PYTHON) scripts/release_check.py $(ENGINE) dist

# The pages are checked, too: links, anchors, pages that nothing leads to. What a browser gets is all in target/site.
docs: setup-docs
	tools=$$(scripts/python-tools docs) && NO_MKDOCS_2_WARNING=1 "$$tools/mkdocs" build --strict --clean
	$(PYTHON) scripts/check_site.py target/site

reference: setup-run build
	$(PYTHON) scripts/make_reference.py --engine $(ENGINE)

lint: setup-build setup-lint docs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml -- -D warnings
	$(if $(C_SOURCES),clang-format --dry-run --Werror $(C_SOURCES))
	shellcheck $(SHELL_SCRIPTS)
	tools=$$(scripts/python-tools) && \
		"$$tools/ruff" format --no-cache --check . && "$$tools/ruff" check --no-cache . && \
		"$$tools/mypy" --cache-dir=/dev/null $(PYTHON_SCRIPTS)
	$(PYTHON) scripts/check_licences.py
	$(PYTHON) scripts/check_style.py

format: setup-build setup-lint
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml
	$(if $(C_SOURCES),clang-format -i $(C_SOURCES))
	tools=$$(scripts/python-tools) && "$$tools/ruff" check --no-cache --fix . && "$$tools/ruff" format --no-cache .
