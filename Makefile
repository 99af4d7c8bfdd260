# Start with `make demo` or `make test`. Both set up .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Targets that `make test` runs at the same time. Each keeps about half a core busy: tests often wait.
JOBS ?= 4
# Tests that kill processes.
FAILURES := tests/lifecycle tests/faults tests/groups tests/explain
SPARK := tests/spark
# Tests of whole programs.
PROGRAMS := tests/packaging tests/pipelines
# Tests that kill Spark.
SPARK_FAILURES := tests/spark_faults
# Unit tests of the modules that pyproject.toml lists as compiled. They also run with interpreted code.
COMPILED := $(sort $(dir $(shell grep -o '"src/barnabas/[^"]*\.py"' pyproject.toml | tr -d '"')))
BOTH     := $(wildcard $(COMPILED:src/barnabas/%/=tests/unit/%))

.PHONY: demo test faults interop check compile wheel prepared lint unit interpreted failures features integration spark programs spark_failures bench bench-kafka docs release format clean

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Barnabas needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (choose another with PYTHON=…)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	BARNABAS_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[spark,formats,pipelines,security,docs,dev]'
	@touch $(READY)

compile: $(READY)           ## compile modules with mypyc, if their sources have changed; without a C compiler they run interpreted
	@MYPY_CACHE_DIR=build/mypy $(BIN)/python setup.py --quiet compile

demo: compile               ## create, use and delete a topic on three brokers, kill the controller, and check that no record is lost
	@$(BIN)/python -m demo

test: $(READY)              ## all tests: unit tests, real clients, killed processes, malformed frames
	@$(MAKE) --no-print-directory -j2 prepared lint
	@$(MAKE) --no-print-directory -o compile -j$(JOBS) spark features integration failures spark_failures programs unit interpreted

faults: compile             ## fault tests for over an hour: kill brokers and cut connections under load; 20 kills of each kind for Spark streams, topic jobs and examples
	BARNABAS_FAULT_SECONDS=180 $(BIN)/pytest -s tests/faults/test_chaos.py tests/faults/test_rolling_restart.py tests/faults/test_exactly_once.py tests/groups/test_churn.py
	BARNABAS_FAULT_SECONDS=180 $(BIN)/pytest -s interop/test_java_exactly_once.py
	BARNABAS_FAULT_ROUNDS=20 $(BIN)/pytest -s tests/spark_faults

interop: compile            ## comparison with Apache Kafka, which Maven downloads once; skipped if that is not possible
	@$(BIN)/python -m interop

check: compile              ## check format, lint and types, run unit and architecture tests; about a minute
	@$(MAKE) --no-print-directory -o compile -j2 lint unit

# What the tests need. Compiling and lint keep a core each busy.
prepared: compile
	@$(BIN)/python -m compileall -q src tests
	$(BIN)/python -m tests.tools

# `make test` starts these targets in its own order: long ones first, so that no core is idle at the end.
lint: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/codespell *.md docs release src
	$(BIN)/mypy

unit: compile
	$(BIN)/pytest -q tests/unit tests/architecture

interpreted: $(READY)
	BARNABAS_PURE=1 $(BIN)/pytest -q $(BOTH)

failures: compile
	$(BIN)/pytest $(FAILURES)

features: compile
	$(BIN)/pytest tests $(addprefix --ignore=,tests/unit tests/architecture tests/integration $(FAILURES) $(SPARK) $(PROGRAMS) $(SPARK_FAILURES))

integration: compile
	$(BIN)/pytest tests/integration

spark: compile
	@$(BIN)/python -m barnabas.spark.training || true  # writes the class-data archive; Spark then starts faster
	$(BIN)/pytest $(SPARK)

programs: compile
	$(BIN)/pytest $(PROGRAMS)

spark_failures: compile
	$(BIN)/pytest $(SPARK_FAILURES)

bench: compile              ## benchmarks of one broker: targets, tables, JSON and plots in benchmarks/results
	$(BIN)/python -m benchmarks

bench-kafka: compile        ## benchmarks of Barnabas and Apache Kafka 3.9 under the same loads; 30 minutes
	$(BIN)/python -m benchmarks kafka

wheel: $(READY)             ## build a compiled wheel in dist/
	rm -rf build
	BARNABAS_COMPILE=required $(BIN)/pip wheel --disable-pip-version-check --no-deps --wheel-dir dist .

# The versions of Python that `make release` builds for and tries. Without it: all from 3.11 on, in PATH and in pyenv.
PYTHONS ?=
release: $(READY)           ## build and try a release: a source distribution and wheels in dist/; some minutes, needs network
	$(BIN)/python -m release $(PYTHONS)

docs: $(READY)              ## build the documentation site in site/; a broken link is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --nitpicky -d site/.doctrees docs site

format: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	find src -name '*.so' -delete
	rm -rf $(VENV) build dist site src/*.egg-info src/barnabas/compiled.*.txt .mypy_cache .pytest_cache .ruff_cache .hypothesis
