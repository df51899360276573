# make demo   see it work         make test   prove it works
# Each installs what it needs into .venv on a machine with Python 3.11 or newer.
VENV   ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-slow lint benchmarks clean help

help:
	@sed -n '1,2s/^# //p' Makefile

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "voiceseq wants Python 3.11 or newer; install it, or: make $@ PYTHON=/path/to/python" >&2; exit 1; }
	@sh .ci/system-packages
	@$(PYTHON) -m venv $(VENV) || { echo "no virtual environment could be made; Debian/Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }
	@echo "installing voiceseq and what it needs into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[mic,onnx,serve,dev]'
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
