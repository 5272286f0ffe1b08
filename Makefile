# Everything runs in a virtual environment of its own; python3 with venv and make is all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread pool per process is enough: tests run in several processes.
PYTEST_WORKERS ?= 2
# Tests start hundreds of processes; each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test slow fuzz graphs mutants docs lint format bench clean install install-dev

demo: $(VENV)/.installed
	$(BIN)/tilewright demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal

# Long proofs, the cases that the everyday suite leaves out, and what needs more than Python: emulated
# CPUs (qemu-user and a C compiler for AArch64).
slow: $(VENV)/.installed-dev
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -m slow -n $(PYTEST_WORKERS) --dist worksteal

# Random programs under random schedules, and through rules: as long as one likes, from a seed.
SECONDS ?= 60
SEED ?= 0
FUZZ ?=
fuzz: $(VENV)/.installed
	$(BIN)/python -m tilewright.testing.fuzz --seconds $(SECONDS) --seed $(SEED) $(FUZZ)
	$(BIN)/python -m tilewright.testing.fuzz --rules --seconds $(SECONDS) --seed $(SEED) $(FUZZ)

# Random graphs of operators by rule, on one thread and on two, against NumPy.
COUNT ?= 200
graphs: $(VENV)/.installed
	$(BIN)/python -m tilewright.testing.graphs --count $(COUNT) --seed $(SEED)

# Kernels that are broken on purpose: does the check before measuring reject all of them?
mutants: $(VENV)/.installed
	$(BIN)/python -m tilewright.testing.mutants --count $(COUNT) --seed $(SEED)

# Pages and stubs that are made from the code, then the site, in build/site. Warnings are errors.
docs: $(VENV)/.installed-dev
	$(BIN)/python tools/reference_pages.py
	$(BIN)/python tools/schedule_stub.py
	$(BIN)/python tools/package_stubs.py
	$(BIN)/python tools/math_page.py
	$(BIN)/python tools/results_chart.py
	$(BIN)/python tools/tvm_names.py
	$(BIN)/python -m sphinx -W --keep-going -q -E -c docs -b html . build/site
	@echo "the site is in build/site/index.html"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check src tests benchmarks docs examples tools
	$(BIN)/ruff check src tests benchmarks docs examples tools
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format src tests benchmarks docs examples tools
	$(BIN)/ruff check --fix src tests benchmarks docs examples tools

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e .
	touch $@

# PyTorch serves as an oracle; where it can't be had, the tests that need it skip.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[dev,docs]'
	$(BIN)/python -c "import torch" 2>/dev/null \
	    || $(BIN)/python -m pip install --quiet torch==2.13.0 \
	    || echo "PyTorch can't be installed here; tests that compare with it will skip"
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
