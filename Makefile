# What can be done here: type `make`. Works with GNU make 3.81 (macOS) and newer.

PROFILE ?= demo
JOBS    ?= 2
NB      ?=
FRESH   ?=
DATA    ?=
DASK    ?=
PYTHON  ?= python3
ALL     ?=
UPGRADE ?=
DISTURB ?=
SAVE    ?=

# Every notebook has a process of its own: where the shell forbids Python to keep
# compiled modules, compiling libraries again costs each of them 6 seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help reproduce report site counts test cells compiled beside coverage lab lint bench flower status clean \
  lock format refresh FORCE

# ---- options -------------------------------------------------------------------

# NB is a number or a name: 01, 01_scenario1
FILES := $(sort $(wildcard notebooks/[0-9]*.ipynb))
ASKED := $(basename $(notdir $(NB)))
FOUND := $(foreach nb,$(ASKED),$(filter notebooks/$(nb).ipynb notebooks/$(nb)_%,$(FILES)))
NAMES := $(basename $(notdir $(if $(NB),$(FOUND),$(FILES))))

ifneq ($(words $(ASKED)),$(words $(FOUND)))
  $(error Unknown notebook in NB='$(NB)': choose from $(basename $(notdir $(FILES))))
endif
ifeq ($(filter demo paper,$(PROFILE)),)
  $(error Unknown PROFILE '$(PROFILE)': choose demo or paper)
endif
ifneq ($(DATA),)
  ifeq ($(wildcard $(DATA)/.),)
    $(error There is no folder DATA='$(DATA)': give the folder with prepared data sets)
  endif
  export FLTNB_DATA := $(abspath $(DATA))
endif
ifneq ($(DASK),)
  export FLTNB_DASK := $(DASK)
endif
ifneq ($(filter-out 0,$(FRESH)),)
  export FLTNB_FRESH := 1
  AGAIN := FORCE
endif

# ---- help ----------------------------------------------------------------------------------------------------------

help:
	@echo "fltnb: four papers on clustered federated learning, as notebooks that run"
	@echo
	@echo "  make reproduce   run the notebooks; executed copies go to results/ (demo: a few minutes)"
	@echo "  make report      write docs/report/ and README's tables anew from the committed results"
	@echo "  make site        README, docs, all notebooks and the reference as a site with search: build/site"
	@echo "  make counts      how printed numbers were tested, paper by paper"
	@echo "  make status      which notebooks are done, stale or failed, and how long they took"
	@echo "  make lab         open the notebooks in JupyterLab"
	@echo "  make test        style, tests, and every output of the notebooks (some minutes)"
	@echo "  make coverage    tests and notebooks, then which lines of the package none of them ran"
	@echo "  make lint        style, types and the order of the rooms only"
	@echo "  make bench       speed, as ratios to a plain PyTorch loop in the same run"
	@echo "  make flower      a federation of 9 processes on this machine, with Flower; with DISTURB=1 some of them are killed"
	@echo "  make clean       remove stamps, executed notebooks, demo outputs and caches;"
	@echo "                   with ALL=1 also the store of computed runs and the set-up in .venv"
	@echo "  make format      tidy the code and the notebooks' metadata"
	@echo "  make refresh     run the notebooks in place, so that they and the report show the newest evidence"
	@echo "  make lock        write requirements.lock again after pyproject.toml changed (UPGRADE=1: newest versions)"
	@echo
	@echo "Options, after the command:"
	@echo "  PROFILE=demo     embedded digits, two CPU cores, minutes (this is the default)"
	@echo "  PROFILE=paper    the notebooks' own parameters (11 to 14: the printed ones), on the real data sets: says first what is missing"
	@echo "  NB=01            this notebook only, by number or name (default: all)"
	@echo "  JOBS=2           so many notebooks at a time"
	@echo "  FRESH=1          compute everything again instead of taking it from the store"
	@echo "  DATA=folder      where prepared data sets are (default: data/, filled by download when first needed)"
	@echo "  SAVE=1           make bench: keep the measurement, with a line for this date and machine"
	@echo "  DASK=tcp://h:p   compute on the workers of this Dask scheduler (docs/cluster.md)"
	@echo
	@echo "Notebooks: $(NAMES)"
	@echo "The first command sets up .venv by itself (about a minute once the packages, up to 3 GB, are downloaded)."

# ---- set-up --------------------------------------------------------------------
# .venv/.ready is written last and holds this folder's name: a set-up that was cut
# short, or a clone that was moved, is made again.

PY    := .venv/bin/python
UV    := $(PY) -m uv
READY := .venv/.ready
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
  $(READY): FORCE
endif

FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))

$(READY): requirements.lock pyproject.toml
	@"$(PYTHON)" -c '$(FITS)' || { echo "PYTHON='$(PYTHON)' is not Python 3.11 to 3.14: name one with PYTHON=/path/to/python3." >&2; exit 1; }
	@echo "Set-up: .venv, about a minute, longer the first time, when up to 3 GB are downloaded ..."
	@test "$$(cat $@ 2>/dev/null)" = "$(CURDIR)" || "$(PYTHON)" -m venv --clear .venv
	@$(PY) -m pip install -qq --disable-pip-version-check "uv>=0.8,<1"
	@# compiled here on all cores, not by each process that imports first
	@$(UV) pip install --compile-bytecode --python $(PY) --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation -e .
	@echo "$(CURDIR)" > $@

# ---- reproduce -----------------------------------------------------------------
# papermill runs every notebook with what notebooks/profiles/<profile>/ changes. One
# stamp per notebook, written after a success: a failed one leaves a copy, too.

# Notebooks that run side by side share the cores: processes, and threads of libraries,
# which otherwise wait for each other at the cost of the other notebook.
CORES := $(shell getconf _NPROCESSORS_ONLN)
SHARE := $(shell expr \( $(CORES) + $(JOBS) - 1 \) / $(JOBS))
reproduce: export LOKY_MAX_CPU_COUNT ?= $(SHARE)
reproduce: export OMP_NUM_THREADS ?= $(SHARE)
# The first to use UMAP compiles it for 20 s: beside 00 run those that do without.
SOONER  := 00_% 10_% 12_%
ORDER   := $(filter $(SOONER),$(NAMES)) $(filter-out $(SOONER),$(NAMES))
STAMPS  := $(ORDER:%=results/$(PROFILE)/stamps/%.done)
SOURCES := $(wildcard fltnb/*.py fltnb/*/*.py fltnb/*/*/*.py fltnb/*/*.csv) \
  $(wildcard notebooks/profiles/$(PROFILE)/*.yaml) requirements.lock

$(STAMPS): results/$(PROFILE)/stamps/%.done: notebooks/%.ipynb $(SOURCES) $(AGAIN) | $(READY)
	@$(PY) -m fltnb notebook $* --profile $(PROFILE) || test $$? = 1

# The report reads the committed results, and so does notebook 99. With the notebooks'
# own parameters the others add to these.
OTHERS := $(if $(filter paper,$(PROFILE)),$(filter-out %/99_report.done,$(STAMPS)))
results/$(PROFILE)/stamps/99_report.done: $(OTHERS)

.PHONY: told
told: $(OTHERS) | $(READY)
	@$(PY) -m fltnb report

reproduce: $(READY)
	@$(if $(DASK),$(PY) -m fltnb workers "$(DASK)")
	@echo "Running $(words $(NAMES)) notebook(s), profile $(PROFILE), $(JOBS) at a time; what is up to date is not run again."
	@$(if $(filter demo,$(PROFILE)),true,$(PY) -m fltnb compute all --plan $(if $(AGAIN),--fresh))
	@# make compares times, `status` contents: what it calls stale has to run again
	@$(PY) -m fltnb status $(NAMES) --profile $(PROFILE) | awk '$$2 == "stale" {print "results/$(PROFILE)/stamps/" $$1 ".done"}' | xargs rm -f
	@$(MAKE) --no-print-directory -k -j$(JOBS) $(STAMPS) told; run=$$?; \
	$(PY) -m fltnb status $(NAMES) --profile $(PROFILE) --check || run=1; \
	echo "Executed notebooks and logs: results/$(PROFILE)/notebooks/"; \
	exit $$run

report: $(READY)
	@$(PY) -m fltnb report

site: $(READY)
	@$(PY) -m sphinx -E -a -W --keep-going -q -j $(JOBS) -c docs -d build/doctrees . build/site
	@echo "Open build/site/index.html: it needs no network."

counts: $(READY)
	@$(PY) -m fltnb counts

status: $(READY)
	@$(PY) -m fltnb status $(NAMES) --profile $(PROFILE)

lab: $(READY)
	$(PY) -m jupyter lab --LabApp.default_url=/lab/tree/notebooks/$(firstword $(NAMES:%=%.ipynb))

# ---- checks --------------------------------------------------------------------------------------------------------

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache

# What runs on one core runs beside the tests and says at its end what it found. The
# notebook that is computed here trains, but does without UMAP: see SOONER.
COMPUTED := 10_mthfl_training
test: $(READY)
	@$(MAKE) --no-print-directory -j2 beside cells

# A file of tests, or a notebook, stays with one worker: what its tests share is made once.
SPREAD := -n $(JOBS) --dist loadscope --no-loadscope-reorder

# Every output of every notebook is compared with what the committed evidence gives;
# 00 computes as well. On another processor UMAP's last digits move dots of committed
# pictures: those drawn on the way go elsewhere. Notebooks take longest: they come first.
cells: compiled
	@$(PY) -m coverage erase
	TQDM_DISABLE=1 FLTNB_FIGURES=build/figures $(PY) -m coverage run -m pytest --nbval --nbval-current-env $(SPREAD) $(ORDER:%=notebooks/%.ipynb) tests
	@$(PY) -m coverage combine --quiet && printf 'Per cent of the package that ran: ' && $(PY) -m coverage report --format=total --fail-under=95

# UMAP and the kernels of all networks, once, while the types are checked: else each of
# the processes that come first compiles them.
COMPILE := import numpy, fltnb.training.kernels.dense; from fltnb.clustering.fcr import umap_layout;
COMPILE += umap_layout(numpy.random.default_rng(0).normal(size=(20, 3)), 5, 2, 0)
compiled: $(READY)
	@$(PY) -c '$(COMPILE)'

beside: $(READY)
	@said=$$($(MAKE) --no-print-directory lint 2>&1 && \
	$(PY) -m fltnb notebook $(COMPUTED) --profile demo --fresh 2>&1); failed=$$?; \
	printf '\n%s\n' "$$said"; exit $$failed

coverage: cells
	@$(PY) -m coverage report --skip-covered

bench: $(READY)
	$(PY) -m benchmarks.run $(if $(filter-out 0,$(SAVE)),--save)

# ---- a real federation (docs/flower.md) ----------------------------------------------------------------------------
# Flower needs older versions of two packages than .venv has: its own folder inside .venv, in which the rest is seen too.

FLOWER := .venv/flower

$(FLOWER)/.ready: examples/flower/requirements.lock $(READY)
	@set -e; \
	echo "Set-up: Flower, in $(FLOWER) (some 60 MB are downloaded the first time) ..."; \
	$(PY) -m venv --clear --without-pip $(FLOWER); \
	$(PY) -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	  > "$$($(FLOWER)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/over.pth"; \
	$(UV) pip install --quiet --python $(FLOWER)/bin/python --no-deps --require-hashes -r $<; \
	touch $@

flower: $(FLOWER)/.ready
	@$(FLOWER)/bin/python examples/flower/local.py $(if $(filter-out 0,$(DISTURB)),--disturb)

# ---- housekeeping --------------------------------------------------------------------------------------------------

STRIP := $(PY) -m nbstripout --keep-output --keep-count --keep-id \
  --extra-keys "metadata.papermill cell.metadata.papermill cell.metadata.execution"

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(STRIP) $(NAMES:%=notebooks/%.ipynb)

refresh: $(READY)
	@$(PY) -m fltnb report
	TQDM_DISABLE=1 $(PY) -m jupyter execute --inplace --kernel_name=python3 $(NAMES:%=notebooks/%.ipynb)
	$(STRIP) $(NAMES:%=notebooks/%.ipynb)
	@$(PY) -m fltnb report

lock: $(READY)
	$(UV) pip compile pyproject.toml --extra notebooks --extra cluster --extra parquet --extra site --extra dev --universal --fork-strategy fewest --generate-hashes --no-header \
	  $(if $(filter-out 0,$(UPGRADE)),--upgrade) --quiet -o requirements.lock
	sed -n '/^packaging==/d;/^rich==/d;s/^\([a-z0-9._-]*==[^\\]*\).*/\1/p' requirements.lock > .venv/flower.txt
	$(UV) pip compile pyproject.toml --extra notebooks --extra flower --universal --fork-strategy fewest --generate-hashes --no-header \
	  -c .venv/flower.txt $$(sed 's/==.*//;s/^/--no-emit-package /' .venv/flower.txt) \
	  $(if $(filter-out 0,$(UPGRADE)),--upgrade) --quiet -o examples/flower/requirements.lock
	@echo "Now write the same versions into environment.yml ('make test' tells which differ), then commit all three files."

clean:
	rm -rf results/*/stamps results/*/notebooks results/demo figures/demo .coverage* .pytest_cache .ruff_cache .mypy_cache .hypothesis
	rm -rf notebooks/.ipynb_checkpoints *.egg-info build
	find $(wildcard fltnb tests benchmarks docs examples) -name __pycache__ -type d -prune -exec rm -rf {} +
	$(if $(filter-out 0,$(ALL)),rm -rf results/store .venv)

FORCE:
