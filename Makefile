PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# each file goes to one process, which then needs one server, one browser or one Ray
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test slow install gpu check docs format clean

demo: $(VENV)/installed  ## explain a sentence
	$(BIN)/python examples/demo.py

test: $(VENV)/installed  ## run the tests, in about three minutes
	$(PYTEST) -m "not slow"

slow: $(VENV)/installed  ## run the tests that `make test` leaves out
	$(PYTEST) -m slow

install: $(VENV)/installed  ## install the wheel and the source archive in empty environments
	ALTI_TEST_INSTALL=1 $(BIN)/python -m pytest tests/test_wheel.py

gpu:  ## what needs a GPU, in less than ten minutes, with the Python of the machine, into build/gpu
	$(PYTHON) benchmarks/every_gpu.py build/gpu

check: $(VENV)/installed  ## format, lint, types, all tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST)

docs: $(VENV)/docs  ## build the documentation site into site/; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/python -m pytest -n 2 tests/test_site.py tests/test_notebooks.py

format: $(VENV)/installed  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/docs: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) site
