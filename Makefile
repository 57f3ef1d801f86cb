# `make demo` judges quantized variants of the shipped model, `make test` runs the tests, `make verify` the long proofs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Three processes share two cores, for one mostly waits for a server of its own; more threads only spin. Whole files go to
# each, the long ones first.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo test types tests verify slices-of-engines slices-of-verdicts install chromium bubblewrap postgresql clean

demo: $(VENV)/.demo
	@$(BIN)/qualgate demo || test $$? -eq 10  # 10: a variant is blocked, which is what the demo is there to show

test: $(VENV)/.installed chromium bubblewrap postgresql
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs 2 types tests  # side by side: the one is over long before the other

types:
	$(BIN)/pyright --pythonpath $(BIN)/python

tests:
	$(PYTEST)

# What is too long for every change: the proofs in full, and a slice of each benchmark of the verdicts, the references and
# the sandbox, with its goals. Each test and row is named.
verify: $(VENV)/.installed bubblewrap postgresql
	QUALGATE_TEST_DEPTH=1 $(PYTEST) -vv -m proof
	@$(MAKE) --no-print-directory --jobs 2 slices-of-engines slices-of-verdicts

# A slice runs on one core, so two lists of them go side by side.
slices-of-engines:
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.verification architectures determinism-report static service \
	  served-arithmetic exact combinations lossless quantize

slices-of-verdicts:
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.verification decisions scoring served

install: $(VENV)/.installed

SOURCES := pyproject.toml setup.py constraints.txt $(wildcard kernels/qualgate_kernels/cpu/*.c kernels/qualgate_kernels/cpu/c/*)
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

# What the demo and its dashboard run on: no linters, no browser, no lm-eval.
$(VENV)/.demo: $(SOURCES)
	@echo "installing qualgate and its dashboard into $(VENV): torch is most of it"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[dashboard]"
	touch $@

$(VENV)/.installed: $(SOURCES)
	@echo "installing qualgate and its dependencies into $(VENV): a few minutes"
	$(PYTHON) -m venv $(VENV)
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

clean:
	rm -rf $(VENV) build dist *.egg-info qualgate-demo
