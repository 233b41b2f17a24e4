# The everyday commands. Each creates .venv when it is missing or older than its list of packages.
#   make repro PYTHON=python3.12   uses another interpreter (3.11 or later) for the environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
READY := $(VENV)/.ready
REPORT := experiments/X1-pretraining/report.html

export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := true

# dvc starts the stages as `python stages/<name>.py`, so the environment comes first on PATH.
ACTIVATED := PATH="$(BIN):$$PATH"

.DEFAULT_GOAL := help
.PHONY: help setup repro report test check sky-check clean

help:
	@echo "make setup   the environment, in $(VENV)"
	@echo "make repro   the whole study (dvc repro), then the report"
	@echo "make report  the report alone"
	@echo "make test    the tests"
	@echo "make check   format, lint, schemas, profiles, and every committed deliverable against dvc.lock"
	@echo "make sky-check  cloud/sky.yaml against SkyPilot's own schema, in an environment of its own (460 MB)"
	@echo "make clean   removes the environment, scratch and caches; keeps results, DVC's cache and the sum spent"

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("error: Python 3.11 or later is needed, $(PYTHON) is "+sys.version.split()[0]+"; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "error: $(PYTHON) cannot make environments; install its venv package (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

repro: $(READY)
	$(ACTIVATED) dvc repro
	$(ACTIVATED) python -m x1_pretrain.report.html
	@echo "The study is done. Look at:"
	@echo "  $(REPORT)    everything on one page"
	@echo "  experiments/X1-pretraining/run-cloud/manifest.json    what ran, with which result"
	@echo "  experiments/X1-pretraining/scaling-law/prediction.md    the scaling law and how far to trust it"
	@echo "  experiments/X1-pretraining/spike-postmortem.md    the loss spike and its tested cause"

report: $(READY)
	$(ACTIVATED) python -m x1_pretrain.report.html

test: $(READY)
	$(ACTIVATED) python -m pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(ACTIVATED) dvc stage list --name-only > /dev/null
	$(ACTIVATED) python -m pytest tests/deliverables/test_examples.py tests/test_profiles.py
	$(ACTIVATED) python -m x1_pretrain.deliverables.verify

# SkyPilot wants another click than the project can have, so it is never installed beside it.
SKY := .cache/sky

sky-check: $(SKY)/.ready
	$(SKY)/bin/python cloud/check_sky.py cloud/sky.yaml

$(SKY)/.ready:
	$(PYTHON) -m venv $(SKY)
	$(SKY)/bin/python -m pip install --quiet --disable-pip-version-check skypilot==0.14.1
	@touch $@

# The ledger stays: money spent is not scratch, and the cap counts it.
clean:
	[ ! -d .scratch ] || find .scratch -mindepth 1 -maxdepth 1 ! -name ledger.jsonl -exec rm -rf {} +
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis build src/*.egg-info
	find src stages tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
