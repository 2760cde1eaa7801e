# The commands of developers and CI. Each target creates .venv if needed; only Python 3.11+, pip, make and git are required.
#
#   make test TEST_PROCESSES=1      tests in one process, for a debugger
#   make test PYTEST_ARGS="-k wire" some tests only
#   make run OUT=runs/mine          a run directory of your choice

PYTHON ?= python3
OUT ?=
PYTEST_ARGS ?=
# Three on two cores, because some tests wait. Tests of one file run in the same process.
TEST_PROCESSES ?= 3

BIN := .venv/bin
STAMP := .venv/.installed
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
PARALLEL = $(if $(filter-out 0 1,$(TEST_PROCESSES)),--numprocesses $(TEST_PROCESSES) --dist loadfile --max-worker-restart 0)

DEPLOY_TESTS = $(BIN)/python -m pytest -m "deploy and not soak" -o faulthandler_timeout=2000 $(PYTEST_ARGS)
# Only these are read: to collect all tests takes half a minute of processor time in every process.
DEPLOY_FILES = $(sort $(shell grep --recursive --files-with-matches --word-regexp --include='test_*.py' 'mark\.deploy' tests))

# Tests start hundreds of interpreters, and each would compile Atoll again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run test deploy-test deploy-federation deploy-others check bench soak dist docs screenshots clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## create .venv with the pinned versions and the command .venv/bin/atoll

# torch is installed first with its exact version, so that no other package selects the build. Atoll is built with the
# pinned setuptools (no build isolation), so that every version in use is pinned.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Atoll needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "[1/4] creating .venv"
	@$(PYTHON) -m venv .venv
	@echo "[2/4] installing torch (the largest part)"
	@$(PIP_INSTALL) torch==2.13.0
	@echo "[3/4] installing the build tool"
	@$(PIP_INSTALL) setuptools
	@echo "[4/4] installing atoll and the developer tools"
	@$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@
	@echo "done: $(BIN)/atoll"

# A run directory is never overwritten, so each `make run` uses the next free name.
run: $(STAMP)  ## a real-time search over ten clients on scikit-learn's digits, and its report
	@out='$(OUT)'; number=1; \
	if [ -z "$$out" ]; then \
	  out=runs/first; \
	  while [ -e "$$out" ]; do number=$$((number + 1)); out=runs/first-$$number; done; \
	fi; \
	set -x; $(BIN)/atoll run realtime --data digits --rounds 100 --out "$$out" && \
	$(BIN)/atoll report "$$out" -o "$$out/report.html" && { set +x; } 2>/dev/null && \
	echo "open it in a browser: $$out/report.html"

test: $(STAMP)  ## all tests but the long ones
	$(BIN)/python -m pytest -m "not soak and not deploy" $(PARALLEL) $(PYTEST_ARGS)

deploy-test: $(STAMP)  ## real federations on this machine (server, proxy, nodes, kills), pages in a real browser; needs nginx, chromium
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target deploy-federation deploy-others

# One test at a time: they share one federation, and wait more than they compute.
deploy-federation: $(STAMP)
	$(DEPLOY_TESTS) $(filter tests/deploy/test_%,$(DEPLOY_FILES))

deploy-others: $(STAMP)
	$(DEPLOY_TESTS) $(PARALLEL) $(filter-out tests/deploy/test_%,$(DEPLOY_FILES))

check: $(STAMP)  ## lint, format, types, and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_imports.py

bench: $(STAMP)  ## all benchmarks, one after the other; each prints ratios
	@for script in benchmarks/*.py; do \
	  [ -e "$$script" ] || { echo "no benchmarks yet"; break; }; \
	  echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

soak: $(STAMP)  ## the long tests, one at a time
	$(BIN)/python -m pytest -m soak -o faulthandler_timeout=7200 $(PYTEST_ARGS)

# From a clean build folder, because setuptools packs what an earlier build has left there.
dist: $(STAMP)  ## wheel and source distribution in dist/
	@rm -rf build/lib build/bdist.* dist
	@$(BIN)/python -c 'from setuptools import build_meta as build; build.build_sdist("dist"); build.build_wheel("dist")' >/dev/null
	@ls -1 dist/*

docs: $(STAMP)  ## the documentation site in build/site; a link that leads nowhere is an error
	$(BIN)/python tools/build_docs.py

screenshots: $(STAMP)  ## the screenshots in docs/images, again, from real runs (needs chromium; minutes)
	ATOLL_SCREENSHOTS=docs/images $(BIN)/python -m pytest -o faulthandler_timeout=3000 tests/test_screenshots.py

clean:  ## remove .venv and caches, but no runs
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
