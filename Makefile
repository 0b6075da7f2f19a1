# On a machine that has only Python and make, each of these sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What a suite runs under: .ci/run bounds it.
BOUND ?=

.PHONY: demo test test-fast test-lowest lint format notebooks bench build clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable '.[cli]' --group lint --group look --group build
	@touch $(READY)

demo: $(READY)  ## an agent is cut off three times, with a journal and without one: see what is left
	@$(BIN)/python -m langchain_runjournal demo

test: $(READY)  ## all tests, real kills included
	$(BOUND) $(BIN)/python -m pytest -q

test-fast: $(READY)  ## without the slow ones
	$(BOUND) $(BIN)/python -m pytest -q -m "not slow and not look"

test-lowest:  ## the tests with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --upgrade "pip>=25.1" "uv>=0.5"
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct --editable . --group test
	$(BOUND) $(VENV)-lowest/bin/python -m pytest -q -m "not slow and not look"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(READY)  ## run the notebooks of examples/ anew, and keep what they print
	$(BIN)/python examples/_execute.py

bench: $(READY)  ## figures, side by side in one run, against the targets
	$(BIN)/python -m bench

build: $(READY)
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) $(VENV)-lowest dist build .mypy_cache .pytest_cache .ruff_cache
