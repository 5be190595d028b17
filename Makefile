# Each target makes its environment and installs what it needs; nothing is reinstalled until pyproject.toml or
# the constraints change, and the compiled core is built again when its sources change.
# Another interpreter: make PYTHON=python3.12 setup

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What each group of targets needs; the stamps live in .venv and go with it.
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs

# The compiled core, in src/skmix/_core; what is compiled for it is kept in build/core. The tools that build it are
# in the environment, where their paths stay the same: another path would mean that everything is compiled again.
CORE := $(VENV)/.built-core
CORE_FILES := CMakeLists.txt $(wildcard src/skmix/_core/*.cpp src/skmix/_core/*.h)
BUILD := scikit-build-core nanobind cmake ninja
export SKMIX_REQUIRE_CORE := ON

# Examples run again when the library or an example has changed.
GALLERY := docs/gallery/.begun
RUN_BY_GALLERY := $(shell find src examples -name '*.py')

# The oldest versions have an environment of their own.
OLDEST_VENV := build/oldest
OLDEST := $(OLDEST_VENV)/.installed
OLDEST_TESTS := engine model data cli test_import.py

# Without byte code, every process of the tests would parse all it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installs into one environment must not run at the same time.
.NOTPARALLEL:
.PHONY: help setup reproduce test test-oldest sanitize lint bench docs dist clean

help: ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: $(DEV) $(CORE) ## make .venv with everything for development

reproduce: $(RUN) $(CORE) ## reproduce the paper's results, into results/
	$(BIN)/skmix reproduce --out results

test: $(DEV) $(CORE) ## run the tests
	@tests/report/install-browser
	$(BIN)/python -m pytest -n auto --dist worksteal

test-oldest: $(OLDEST) ## run the tests of the library and the command line at the oldest versions it supports
	@# Older scikit-learn leaves it to the user to let SciPy take arrays of other libraries.
	SCIPY_ARRAY_API=1 $(OLDEST_VENV)/bin/python -m pytest -n auto --dist worksteal -m "not slow" $(addprefix tests/,$(OLDEST_TESTS))

sanitize: $(DEV) ## run the tests of the core under sanitizers, with each instruction set of this machine
	tests/sanitize $(BIN)

lint: $(DEV) ## check style, types and the rules on imports
	$(BIN)/clang-format --dry-run --Werror $(filter %.cpp %.h,$(CORE_FILES))
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV) $(CORE) ## measure speed beside other libraries, into benchmarks/results/
	@mkdir -p benchmarks/results
	$(BIN)/python benchmarks/speed.py --out benchmarks/results/passes.csv
	$(BIN)/python benchmarks/answer.py --out benchmarks/results/answer.csv
	$(BIN)/python benchmarks/optimum.py --out benchmarks/results/optimum.csv
	$(BIN)/python benchmarks/drop_in.py --out benchmarks/results/drop_in.csv
	$(BIN)/python benchmarks/out_of_core.py speed --out benchmarks/results/files.csv
	$(BIN)/python benchmarks/out_of_core.py memory --out benchmarks/results/memory.csv
	$(BIN)/python benchmarks/cluster.py --out benchmarks/results/cluster.csv

docs: $(DOCS) $(CORE) $(GALLERY) ## build the documentation, into docs/_build/html
	@rm -rf docs/api/generated  # pages of what is no longer there would be errors
	$(BIN)/python -m sphinx -W --keep-going -j auto -b html -d docs/_build/doctrees docs docs/_build/html

dist: $(DEV) ## build the package into dist/, install it into an empty environment and try it there
	@rm -rf dist build/empty
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist dist/*.tar.gz
	@size=$$(cat dist/*.whl | wc -c) && echo "the wheel has $$size bytes" && test $$size -le 3000000
	$(BIN)/python -m venv build/empty
	tests/smoke-package build/empty/bin dist/*.whl

clean: ## remove caches and built files (keeps .venv and results/)
	rm -rf build dist docs/_build docs/api/generated docs/gallery htmlcov .coverage .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	rm -f $(CORE) src/skmix/_core/*.so
	find src tests benchmarks examples docs -type d -name __pycache__ -prune -exec rm -rf {} +

# pip is the last thing a new environment gets, so its presence says that the environment is whole.
$(BIN)/pip $(OLDEST_VENV)/bin/pip:
	@command -v "$(PYTHON)" >/dev/null || { \
	    echo "$(PYTHON) not found. Name an interpreter: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "skmix needs Python 3.11 or newer; $(PYTHON) is `"$(PYTHON)" -V 2>&1`." >&2; \
	    echo "Name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making $(@D:/bin=)"
	@"$(PYTHON)" -m venv $(@D:/bin=) || { \
	    echo "Making $(@D:/bin=) failed. Some systems ship venv separately (Debian: python3-venv)." >&2; exit 1; }

# $(call pip-install,environment,what to install): quiet unless it fails.
define pip-install
	@$(1)/bin/python -m pip install -q --no-compile --disable-pip-version-check $(2) >$(1)/install.log 2>&1 \
	    || { cat $(1)/install.log >&2; exit 1; }
endef

# $(call install,environment,extra,constraints): all but the core, because dependencies that are only there as
# source need other tools than the core does.
WITHOUT_CORE := -C wheel.cmake=false -C wheel.platlib=true
define install
	@echo "installing skmix[$(2)] into $(1)"
	$(call pip-install,$(1),$(WITHOUT_CORE) -e ".[$(2)]" $(BUILD) -c $(3))
	@touch $@
endef

# $(call build-core,environment)
define build-core
	@echo "building the compiled core"
	$(call pip-install,$(1),--no-build-isolation --no-deps -e .)
	@touch $@
endef

$(RUN): pyproject.toml constraints.txt | $(BIN)/pip
	$(call install,$(VENV),all,constraints.txt)

$(DEV): pyproject.toml constraints.txt | $(BIN)/pip
	$(call install,$(VENV),dev,constraints.txt)
	@touch $(RUN)

$(DOCS): pyproject.toml constraints.txt | $(BIN)/pip
	$(call install,$(VENV),docs,constraints.txt)
	@touch $(RUN)

$(CORE): pyproject.toml constraints.txt $(CORE_FILES) $(if $(wildcard src/skmix/_core/compiled*),,FORCE)
	$(call build-core,$(VENV))

$(OLDEST): pyproject.toml constraints-oldest.txt $(CORE_FILES) | $(OLDEST_VENV)/bin/pip
	$(call install,$(OLDEST_VENV),test,constraints-oldest.txt)
	$(call build-core,$(OLDEST_VENV))

FORCE:

$(GALLERY): $(RUN_BY_GALLERY)
	@rm -rf $(@D) && mkdir $(@D) && touch $@
