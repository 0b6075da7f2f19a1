# Each target installs what it needs; the machine needs only Python and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEMO := $(VENV)/.ready-demo
# A command prefix for each test suite: .ci/run sets a time limit here.
BOUND ?=

.PHONY: demo test test-fast test-slow storms server-storms machines providers test-lowest test-frontends test-traces ai-sdk-clients ag-ui-clients langgraph-clients langgraph-server lint format notebooks bench peers build docs clean

# If the caller names an interpreter, use it, and replace an environment that another interpreter created.
WHICH := import sys; print(sys.base_prefix, sys.version_info[:2])
ifneq ($(origin PYTHON),file)
ifneq ($(shell $(PYTHON) -c '$(WHICH)' 2>/dev/null),$(shell $(BIN)/python -c '$(WHICH)' 2>/dev/null))
.PHONY: $(BIN)/python
endif
endif

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
		echo 'Python 3.10 or later is required, and $(PYTHON) is older or missing. Choose one: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(READY): pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable '.[cli]' --group lint --group look --group build
	@touch $(READY_DEMO) $(READY)

$(READY_DEMO): pyproject.toml $(BIN)/python  # only what the demonstration needs, without the development tools
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable '.[cli]'
	@touch $(READY_DEMO)

demo: $(READY_DEMO)  ## cut an agent off three times, with a journal and without one, and show what is left
	@$(BIN)/python -m langchain_runjournal demo

test: $(READY)  ## all tests, real kills included
	$(BOUND) $(BIN)/python -m pytest -q

test-fast: $(READY)  ## the tests without the slow ones
	$(BOUND) $(BIN)/python -m pytest -q -m "not slow and not look"

test-slow: $(READY)  ## only the slow ones, and those of the pages; ONLY=tests/server for those of one directory
	$(BOUND) $(BIN)/python -m pytest -q -m "slow or look" $(ONLY)

storms: $(READY)  ## every cut at every event, hundreds of random fan-outs; then thousands of kills, forks, mutations and failing calls
	$(BIN)/python -m pytest -q -m storm
	$(BIN)/python -m tests.storms $(STORMS)

server-storms: $(READY)  ## the same kills, forks and failing calls, with the journal on Postgres, and on Redis
	$(BIN)/python -m tests.storms --store postgres $(STORMS)
	$(BIN)/python -m tests.storms --store redis $(STORMS)

machines: $(READY)  ## workers on three machines (network namespaces, as root): the journeys, and a storm of faults; ten minutes
	CI=true $(BIN)/python -m pytest -q tests/journeys/test_machines.py tests/journeys/test_machines_faults.py
	CI=true $(BIN)/python -m pytest -q -m storm tests/journeys/test_machines_storm.py

providers: $(READY)  ## the real client packages of eight providers over a socket that is cut, all cells; twenty minutes
	$(BIN)/python -m tests.providers -v $(PROVIDERS)

test-lowest:  ## the tests with the lowest versions that pyproject.toml allows; PART=1/2 leaves out half of the large matrices
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --upgrade "pip>=25.1" "uv>=0.5"
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct --editable . --group test
	$(BOUND) $(VENV)-lowest/bin/python -m pytest -q -m "not slow and not look" $(if $(PART),--part $(PART))

test-frontends:  ## click through the chat example with Streamlit's own test runner
	$(PYTHON) -m venv $(VENV)-frontends
	$(VENV)-frontends/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-frontends/bin/python -m pip install --quiet --editable . --group frontends
	$(BOUND) $(VENV)-frontends/bin/python -m pytest -q tests/journeys/test_streamlit.py

test-traces:  ## the tracers of LangSmith, Langfuse, OpenInference and OpenLLMetry, and the OpenTelemetry SDK, on cut-off calls
	$(PYTHON) -m venv $(VENV)-traces
	$(VENV)-traces/bin/python -m pip install --quiet --upgrade "pip>=25.1" "uv>=0.5"
	$(VENV)-traces/bin/uv pip install --quiet --python $(VENV)-traces/bin/python --editable '.[cli,otel]' --group traces
	CI=true RUNJOURNAL_TEST_TRACES=1 $(BOUND) $(VENV)-traces/bin/python -m pytest -q tests/traces tests/otel

ai-sdk-clients: $(READY)  ## the AI SDK's clients, versions 5 to 7, against a server; node and npm are needed
	CI=true $(BOUND) $(BIN)/python -m pytest -q tests/server/test_ai_sdk_clients.py tests/server/test_ai_sdk_streams.py

langgraph-clients: $(READY)  ## the clients of LangGraph Server against a server, with uvloop and without; node and npm are needed
	CI=true $(BOUND) $(BIN)/python -m pytest -q tests/server/test_langgraph_clients.py

ag-ui-clients: $(READY)  ## AG-UI's client, before and after version 1.0, against a server; node and npm are needed
	CI=true $(BOUND) $(BIN)/python -m pytest -q tests/server/test_ag_ui_clients.py

langgraph-server:  ## `langgraph dev`, in an environment of its own, with an attached graph: cancelled, shut down, killed
	$(PYTHON) -m venv $(VENV)-langgraph-server
	$(VENV)-langgraph-server/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-langgraph-server/bin/python -m pip install --quiet --editable . --group test "langgraph-cli[inmem]>=0.4.40,<0.5"
	$(BOUND) $(VENV)-langgraph-server/bin/python -m pytest -q tests/journeys/test_langgraph_server.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: $(READY)  ## run the notebooks of examples/ again, and save their output
	$(BIN)/python examples/_execute.py

bench: $(READY)  ## figures, side by side in one run, against the targets
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench

peers: $(READY)  ## the test suites of LangGraph and LangChain, bare and with the journal under them; several minutes
	$(BIN)/python -m tests.peers $(PEERS)

build: $(READY)
	$(BIN)/python -m build --outdir dist .

docs:  ## the site, in site/, with the reference of every public name; a link that leads nowhere is an error
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-docs/bin/python -m pip install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/python -m mkdocs build --strict --clean

clean:
	rm -rf $(VENV) $(VENV)-docs site $(VENV)-lowest $(VENV)-frontends $(VENV)-traces $(VENV)-langgraph-server .clients .peers dist build .mypy_cache .pytest_cache .ruff_cache
	rm -rf $(VENV) $(VENV)-docs site $(VENV)-lowest $(VENV)-frontends $(VENV)-langgraph-server .clients .peers dist build .mypy_cache .pytest_cache .ruff_cache
