# Every target sets up .venv by itself; it needs python3 (3.11 or newer) and make. A torch that python3 has is used.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c .venv/constraints.txt

# Whatever the shell says: tests start many processes, which would each compile the sources anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-full coverage check lint types format bench docs gallery dist clean

demo: .venv/demo
	$(BIN)/elbowroom demo

# Whole stretches of files go to one worker, so that what a module sets up is set up once; who is done takes half of
# what another has left. The slowest are listed at the end, so that growth is seen: CONTRIBUTING.md says what to do.
test: .venv/dev
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=15 --durations-min=2

# The full number of generated cases, and the slow tests; CI runs fewer.
test-full: .venv/dev
	ELBOWROOM_CASES=full $(BIN)/python -m pytest -n auto -m ""

# The tests again, with the lines that they run counted: apart from `make test`, which has to stay short. The floor is what
# a tenth of the tests reaches alone (52 %); raise it to what all of them reach.
coverage: .venv/dev
	$(BIN)/python -m pytest -n auto --cov --cov-report=term --cov-fail-under=50

check: lint types

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/dev
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/dev
	$(BIN)/python benchmarks/bounds.py
	$(BIN)/python benchmarks/solvers.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/threads.py

# The documentation as a site, in site/: every link and name must lead somewhere.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open site/index.html"

# The notebooks of docs/gallery run, and written as pages with what they print and draw; and the other pictures.
gallery: .venv/docs
	$(BIN)/python tools/gallery.py
	$(BIN)/python docs/pictures.py

# A source distribution and a wheel, looked at as the index would and as a user would.
dist: .venv/dist
	rm -rf dist build
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/check_wheel.py dist/*.whl

# torch first, so that nothing later asks for another build of it; says so before it downloads one.
.venv/torch: constraints.txt tools/environment.py
	$(PYTHON) tools/environment.py
	touch $@

.venv/demo: .venv/torch pyproject.toml
	$(INSTALL) -e '.[demo]'
	touch $@

.venv/dev: .venv/torch pyproject.toml
	$(INSTALL) -e '.[dev]'
	touch $@

.venv/docs: .venv/torch pyproject.toml
	$(INSTALL) -e '.[docs]'
	touch $@

.venv/dist: .venv/torch pyproject.toml
	$(INSTALL) -e '.[dist]'
	touch $@

clean:
	rm -rf .venv build dist site *.egg-info src/*.egg-info
