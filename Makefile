# make demo   see it work         make test   prove it works
# Each installs what it needs into .venv on a machine with Python 3.11 or newer.
VENV   ?= .venv
PYTHON ?= $(shell command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python3)
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-slow lint benchmarks clean help

help:
	@sed -n '1,2s/^# //p' Makefile

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "voiceseq wants Python 3.11 or newer, found: $$($(PYTHON) --version). Install it, or: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@sh .ci/system-packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[mic,dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/python -m voiceseq.apps.demo

test: $(READY)
	@$(BIN)/python .ci/checks.py

test-slow: $(READY)
	@$(BIN)/python -m pytest -m slow

lint: $(READY)
	@$(BIN)/python .ci/checks.py --lint

benchmarks: $(READY)
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[benchmarks]'
	@$(BIN)/python -m pip install --quiet --no-deps pyctcdecode==0.5.0  # it asks for an older numpy than it needs
	@$(BIN)/python benchmarks/all.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
