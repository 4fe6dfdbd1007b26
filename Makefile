# The commands of the README. Each does its own set-up and is quick the second time.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test test-fast check docs bench format native web release soak clean

demo: $(VENV)/.ready
	$(BIN)/apportion demo --out out/demo

test: check
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

# Programs, data, layers and the command line's frame: neither devices nor browsers, clusters or training.
FAST := $(addprefix tests/,program report data cli/test_main.py cli/test_show.py cli/test_graph.py \
	$(addsuffix .py,test_architecture test_registry test_settings test_errors test_facade))

test-fast: $(VENV)/.ready
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(FAST)

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

# The page of the studio, from its sources in web/ into the package.
web:
	cd web && npm ci --no-audit --no-fund && npm run check && npm run build

# What a release holds, from the last commit, into out/dist: see docs/howto/release.md.
release: $(VENV)/.ready
	$(BIN)/python tools/release.py --out out/dist

# Fuzzing, kills, failing disks, hostile kernels, load and abuse for so many seconds, each night by itself.
SECONDS ?= 3600
soak: $(VENV)/.ready
	$(BIN)/python tools/soak.py --seconds $(SECONDS) --out out/soak

native: $(VENV)/.packages
	$(PIP) install --no-build-isolation --no-deps --editable .

# torch first and pinned: an unpinned one pulls gigabytes of CUDA packages.
$(VENV)/.packages: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install torch==2.13.0
	$(PIP) install $$($(BIN)/python tools/requirements.py all dev docs)
	touch $@

$(VENV)/.ready: $(VENV)/.packages CMakeLists.txt $(wildcard native/*)
	$(PIP) install --no-build-isolation --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) build out .mypy_cache .ruff_cache .pytest_cache .hypothesis
