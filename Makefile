# These commands do everything on a fresh machine with Python 3.11+ and make:
#   make demo   build the environment, fit real data, print a summary, write report/report.html
#   make reproduce   rerun the paper's experiments, write reproduction/report.html
#   make test   build the environment, run the linters, the type checker and the usual tests (five minutes)
#   make docs   run the case studies, build the site, docs/_build/html/index.html, follow its links; a warning is an error
#   make peers  install other packages under build/peers, fit the same data with each, write docs/peers.md and the
#               table of README.md (twenty minutes of two cores of one's own, an hour beside other work);
#               PEERS="sklearn statsmodels", TASKS="smooths" for a part, DATA=FOLDER for tables that are not in the package
#   make test-fast   the tests that take next to nothing; make test-all   every test
#   make test-devices   fits on torch's CPU device, once torch is in .venv
#   make package   build the wheel and the sdist in dist/, check what they hold; make try-package   install that wheel alone,
#               run the demo and the fast tests of a copy of tests/; make lowest   the fast tests with the lowest versions allowed
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# one BLAS thread a test process: the tests run side by side
ONE := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

DOCS := $(VENV)/.docs
.PHONY: docs package try-package lowest demo reproduce peers test test-fast test-all test-devices durations lint bench clean

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"fenchel needs Python 3.11 or newer; this is {v[0]}.{v[1]}. Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fenchel demo --out report

reproduce: $(STAMP)
	$(BIN)/fenchel reproduce all --out reproduction

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(ONE) $(BIN)/python -m fenchel.compile
	$(ONE) $(BIN)/python -m pytest -n 2 --tier usual

test-devices: $(STAMP)
	$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(None if u.find_spec("torch") else "install torch into $(VENV) first")'
	$(ONE) $(BIN)/python -m pytest -n 2 tests/test_devices.py tests/test_devices_estimators.py tests/test_linalg.py

test-fast: $(STAMP)
	$(ONE) $(BIN)/python -m pytest -n 2 --tier fast

test-all: lint
	$(ONE) $(BIN)/python -m pytest -n 2

durations: $(STAMP)
	$(ONE) CI=true $(BIN)/python -m pytest -n 2 --record-durations

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $(DOCS)

docs: $(DOCS)
	$(BIN)/python -m sphinx -q -n -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html
	@echo "open docs/_build/html/index.html"

peers: $(STAMP)
	$(BIN)/python benchmarks/peers/run.py --make $(if $(PEERS),--peers $(PEERS))
	$(BIN)/python benchmarks/peers/run.py $(if $(PEERS),--peers $(PEERS)) $(if $(TASKS),--tasks $(TASKS)) $(if $(DATA),--data $(DATA))

TOOLS := build/tools/bin
$(TOOLS)/uv:
	$(PYTHON) -m venv build/tools
	$(TOOLS)/python -m pip install --quiet --disable-pip-version-check build twine uv

package: $(TOOLS)/uv $(STAMP)
	rm -rf dist
	$(TOOLS)/pyproject-build --outdir dist .
	$(TOOLS)/twine check --strict dist/*
	$(BIN)/python benchmarks/package.py dist

try-package:
	rm -rf build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[tests]"
	cp -r tests build/wheel/tests
	cd build/wheel && venv/bin/fenchel demo --out demo
	cd build/wheel && $(ONE) venv/bin/python -m pytest tests --rootdir . -n 2 --tier fast

# old libraries warn of newer ones that they use; scikit-learn's checks of estimators ask for SCIPY_ARRAY_API
lowest: $(TOOLS)/uv
	rm -rf build/lowest
	$(TOOLS)/uv venv --quiet --python $(PYTHON) build/lowest/venv
	$(TOOLS)/uv pip compile --quiet --resolution lowest-direct --python build/lowest/venv/bin/python --extra tests \
		--output-file build/lowest/versions.txt pyproject.toml
	$(TOOLS)/uv pip install --quiet --python build/lowest/venv/bin/python --no-deps -r build/lowest/versions.txt .
	cp -r tests build/lowest/tests
	cd build/lowest && SCIPY_ARRAY_API=1 $(ONE) venv/bin/python -m pytest tests --rootdir . -n 2 --tier fast \
		-W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning

bench: $(STAMP)
	$(BIN)/python benchmarks/iterations.py
	$(BIN)/python benchmarks/dense.py
	$(BIN)/python benchmarks/sparse.py
	$(BIN)/python benchmarks/sparse_cholesky.py
	$(BIN)/python benchmarks/estimators.py

clean:
	rm -rf $(VENV) build dist report reproduction docs/_build docs/api docs/families docs/terms docs/examples docs/case_studies .pytest_cache .mypy_cache .ruff_cache
