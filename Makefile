# Every target makes the virtual environment it needs; `make help` explains them.

PYTHON  ?= python3
VENV    ?= .venv
SIZE    ?= full
WORKERS ?= 2
MINUTES ?= 10
SEED    ?=

# Tests start many processes, which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

BIN       := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RUNNABLE  := $(VENV)/.runnable
ENGINE_TESTS := tests/conformance tests/cost tests/engine tests/faults tests/joins tests/kernels tests/master tests/memory tests/overload \
  tests/property tests/reference tests/reliability tests/tuning

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-faults test-long test-rivals test-kafka test-spark-versions test-oldest-spark check format bench bench-rivals bench-sweep bench-spark bench-shapes bench-drain bench-changes bench-tables soak fuzz clean wheel docs browser

help:  ## List the targets
	@echo "semistream: join a fast stream with a table that is too big for memory"
	@echo
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Settings: PYTHON=$(PYTHON) VENV=$(VENV) SIZE=$(SIZE) (small or full) WORKERS=$(WORKERS)"

$(INSTALLED): pyproject.toml
	@echo "==> installing semistream and its tools into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# What the demo needs, without the tools of a developer, which take three times as long to install.
$(RUNNABLE): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -e $(INSTALLED) || { echo "==> installing semistream with Spark and Delta into $(VENV)" && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[delta,pipeline,spark]'; }
	@touch $@

install: $(INSTALLED)  ## Create the virtual environment, with all tools

docs: $(INSTALLED)  ## Build the documentation into .data/site; a broken link is an error
	@echo "==> documentation"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

browser:  ## Install Chromium for the tests of the live page, where apt-get can
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null || \
	  { test "$$(id -u)" = 0 && timeout 120 apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends chromium; } \
	    > /dev/null 2>&1 || echo "==> no Chromium: the tests of the live page will be skipped"

demo: $(RUNNABLE)  ## Stream sales through a pipeline, and through Spark's own join; about a minute
	@$(BIN)/semistream demo

test: $(INSTALLED)  ## Run the quick tests, about five minutes on two cores
	@echo "==> quick tests"
	@$(BIN)/python -m pytest -m "not slow and not kafka" -n $(WORKERS) --dist loadgroup

test-slow: $(INSTALLED)  ## Run the slow tests: ten million tuples through every join in 50 MB
	@echo "==> slow tests"
	@$(BIN)/python -m pytest -m "slow and not kafka and not long" -n $(WORKERS) --dist loadgroup $(ENGINE_TESTS)

test-faults: $(INSTALLED)  ## Run the slow fault tests: kill Spark drivers, databases and writers, fill disks, truncate files
	@echo "==> fault tests with Spark and the sinks"
	@$(BIN)/python -m pytest -m "slow and not kafka and not rivals and not long" tests/spark tests/sinks tests/pipeline tests/cli tests/lab tests/examples tests/packaging tests/warmup tests/test_readme.py

test-long: $(INSTALLED)  ## Run the further cases, seeds and warehouses of the slow tests: 100,000 schedules
	@echo "==> long tests"
	@$(BIN)/python -m pytest -m long -n $(WORKERS) --dist loadgroup tests/conformance tests/memory tests/reliability tests/tuning
	@$(BIN)/python -m pytest -m "long and not kafka" tests/sinks tests/spark tests/cli tests/lab

test-rivals: $(INSTALLED)  ## Run every Spark join of the benchmarks, each in a separate JVM
	@echo "==> the rivals' Spark joins"
	@$(BIN)/python -m pytest -m rivals tests/lab

test-kafka: $(INSTALLED)  ## Run the tests with a real Kafka broker, downloaded by Maven
	@echo "==> tests with Kafka"
	@SEMISTREAM_KAFKA_JARS=.data/kafka $(BIN)/python -m pytest -m kafka tests/kafka

test-spark-versions: $(INSTALLED)  ## Run the Spark tests with Spark 3.5, 4.0, 4.1, 4.2 and 4.3, each in its own environment
	@$(BIN)/python tests/spark_versions.py

test-oldest-spark: $(INSTALLED)  ## Run a few Spark tests with the oldest supported version
	@$(BIN)/python tests/spark_versions.py --short

wheel: $(INSTALLED)  ## Build the wheel into dist/, and test it in an empty environment
	@$(BIN)/python -m build --wheel --outdir dist .
	@$(BIN)/python -m pytest tests/packaging

check: $(INSTALLED)  ## Check lint, format, types and import contracts
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy"
	@$(BIN)/mypy
	@echo "==> import contracts"
	@$(BIN)/lint-imports

format: $(INSTALLED)  ## Format the code and apply lint fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(INSTALLED)  ## Measure every join and its alternative; SIZE=small for a quick run
	@echo "==> benchmark, size $(SIZE)"
	@$(BIN)/python -m lab.bench_engine --size $(SIZE)

bench-rivals: $(INSTALLED)  ## Measure the alternatives; SIZE=small takes a few minutes
	@echo "==> rivals, size $(SIZE)"
	@$(BIN)/python -m lab.bench_rivals --size $(SIZE)

bench-sweep: $(INSTALLED)  ## Measure SweepJoin against the published joins, other tools and the hardware limit; takes an hour
	@echo "==> SweepJoin benchmark"
	@$(BIN)/python -m lab.bench_cache
	@$(BIN)/python -m lab.bench_sweep

bench-spark: $(INSTALLED)  ## Measure enrich against Spark's own join; SIZE=small for a quick run
	@echo "==> Spark benchmark, size $(SIZE)"
	@$(BIN)/python -m lab.bench_spark --size $(SIZE)

bench-shapes: $(INSTALLED)  ## Measure tables of many shapes against int64 keys and LMDB; SIZE=small for a quick run
	@echo "==> shapes of master tables, size $(SIZE)"
	@$(BIN)/python -m lab.bench_shapes --size $(SIZE)

bench-drain: $(INSTALLED)  ## Measure batches that are drained one by one against LMDB; SIZE=small for a quick run
	@echo "==> drained batches, size $(SIZE)"
	@$(BIN)/python -m lab.bench_drain --size $(SIZE) --joins sweepjoin,inlj,cinlj

bench-changes: $(INSTALLED)  ## Measure a join while its table changes, and syncs; SIZE=small for a quick run
	@echo "==> tables that change, size $(SIZE)"
	@$(BIN)/python -m lab.bench_changes --size $(SIZE)

bench-tables: $(INSTALLED)  ## Write the tables of the docs from lab/results/
	@$(BIN)/python -m lab.bench_tables
	@$(BIN)/python -m lab.docs_tables
	@$(BIN)/python -m lab.shedding.page

soak: $(INSTALLED)  ## Run a bursty stream for five minutes while the master table changes
	@echo "==> soak test, five minutes"
	@SEMISTREAM_SOAK_SECONDS=300 $(BIN)/python -m pytest tests/spark/test_soak.py -s

fuzz: $(INSTALLED)  ## Fuzz joins, shapes, budgets, versions and faults for MINUTES=n; SEED= repeats one case
	@PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES) --workers $(WORKERS) --seed "$(SEED)"

clean:  ## Remove the virtual environment, caches and generated data
	@echo "==> removing $(VENV), caches and .data"
	@rm -rf $(VENV) .data build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests lab -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
