# Everything runs in a virtual environment with the exact versions of requirements.lock, made on first use.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JUDGES := .venv-judges
JUDGES_READY := $(JUDGES)/.ready
# Three at a time on two cores: many tests wait for programs that they start.
TEST_WORKERS ?= 3

.PHONY: help setup demo test test-unit test-faults cover labs test-nodes test-nfs test-esp test-kubernetes test-vpn test-rekeys nightly \
  fuzz judge check lint types format docs bench lock clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

# A lock file names every package, so pip must not resolve dependencies: for one with an extra, such as coverage[toml], pip 23
# of Debian 12 takes the newest release instead of the locked one, and fails because it has no hash. A source archive would run
# its own code while it is installed: every locked package has a wheel.
LOCKED := --require-hashes --no-deps --only-binary :all:

$(READY): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: bedplate needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 4; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "error: $(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv"; exit 4; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(LOCKED) -r requirements.lock
	@# The project is used in place: its root joins the import path, and one small script starts it.
	@echo "$(CURDIR)" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/bedplate.pth"
	@printf '#!%s/python\nfrom bedplate.cli import main\n\nmain()\n' "$(CURDIR)/$(BIN)" > $(BIN)/bedplate
	@chmod +x $(BIN)/bedplate
	@touch $@

setup: $(READY)  ## Set up the environment and link `bedplate` into ~/.local/bin
	@mkdir -p "$(HOME)/.local/bin"
	@ln -sfn "$(CURDIR)/$(BIN)/bedplate" "$(HOME)/.local/bin/bedplate"
	@command -v bedplate >/dev/null || echo "add $(HOME)/.local/bin to PATH to call bedplate by its name"

demo: $(READY)  ## Rehearse examples/lab.yaml and a change to it: create, run again, change and destroy every stack
	$(BIN)/bedplate rehearse examples/lab.yaml --changed examples/lab-grown.yaml

test: MARK = not nightly
test: test-unit  ## Run the core of the unit tests and of the rehearsal tests: under 8 minutes, no root needed

# MARK selects by pytest marker: `make test-vpn MARK="not nightly"` is what CI runs on each push (docs/testing.md).
SELECT = $(if $(MARK),-m "$(MARK)")

test-unit: $(READY)
	$(BIN)/pytest tests/unit tests/rehearsal $(SELECT) -n $(TEST_WORKERS) --dist loadfile --durations=5

test-faults: $(READY)
	$(BIN)/pytest tests/faults $(SELECT) -n $(TEST_WORKERS)

# Not part of `test`: counting lines makes the tests take twice as long.
cover: $(READY)  ## Run the unit and rehearsal tests and print the lines that none of them runs
	$(BIN)/pytest tests/unit tests/rehearsal -n $(TEST_WORKERS) --dist loadfile --cov --cov-report=term

labs: $(READY)  ## Rehearse whole fleets of every shape, and an edit of every key of the fleet file
	$(BIN)/pytest tests/labs $(SELECT) -n $(TEST_WORKERS) --dist loadgroup --durations=5

# Three at a time, because machines that boot wait as much as they work; in the order that tests/nodes/conftest.py sets.
# RELEASE=trixie boots Debian 13 instead of 12.
export RELEASE ?= bookworm
test-nodes: $(READY) $(if $(MARK),,$(JUDGES_READY))  ## Run the tests on booted machines: roles, audits, packet filter; needs root
	$(BIN)/pytest tests/nodes $(SELECT) --ignore tests/nodes/test_nfs.py --ignore tests/nodes/test_esp.py -n 3 --dist loadgroup --no-loadscope-reorder --durations=5

test-nfs: $(READY)  ## Share files between two machines with kernels of their own (User Mode Linux); needs root
	$(BIN)/pytest tests/nodes/test_nfs.py --durations=5

test-esp: $(READY)  ## Run tunnels that the kernel encrypts, on an emulated machine; needs root and QEMU
	$(BIN)/pytest tests/nodes/test_esp.py --durations=5

test-kubernetes: $(READY)  ## Build Kubernetes and etcd, and run the tests on a real API server; needs Go
	programs=$$($(BIN)/python -m tests.testlab.kubernetes) && PATH="$$programs:$$PATH" $(BIN)/pytest tests/kubernetes -n0 --durations=5

# Three at a time, because the daemons mostly wait. Tests that count lost packets run alone (test-rekeys).
test-vpn: $(READY)  ## Run the VPN daemons in networks of their own: access, refusal, revocation, faults, leaks; needs root
	$(BIN)/pytest tests/vpn $(SELECT) --ignore tests/vpn/test_site_rekeys.py -n 3 --dist loadgroup --durations=5

test-rekeys: $(READY)
	$(BIN)/pytest tests/vpn/test_site_rekeys.py

nightly:  ## Run everything; PART=vpn runs one part, PART=list prints their names; needs root
	.ci/run nightly $(PART)

# 300 MB that a newcomer does not need: the judges have an environment of their own and read files only.
$(JUDGES_READY): requirements-judges.lock
	@$(PYTHON) -m venv $(JUDGES)
	$(JUDGES)/bin/python -m pip install --quiet --disable-pip-version-check $(LOCKED) -r requirements-judges.lock
	@touch $@

judge: $(READY) $(JUDGES_READY)  ## Check the stacks of examples/lab.yaml with checkov and parliament
	$(BIN)/pytest tests/judges

fuzz: $(READY)  ## Check 20,000 random fleets, half of them with one seeded fault; the tests check a few hundred
	$(BIN)/pytest tests/unit/test_checks_random.py -n $(TEST_WORKERS) --hypothesis-profile long

check: lint types  ## Lint, import layers and types

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

format: $(READY)  ## Format every file and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## Generate docs/aws-account.md, checks.md, fleet-reference.md and updates.md, and the dashboards of Grafana
	$(BIN)/python -c 'from bedplate.catalog import load_catalog; from docs.generator.aws_account import account_page; print(account_page(load_catalog()), end="")' > docs/aws-account.md
	$(BIN)/python -c 'from docs.generator.checks import checks_page; print(checks_page(), end="")' > docs/checks.md
	$(BIN)/python -c 'from docs.generator.fleet_file import reference_page; print(reference_page(), end="")' > docs/fleet-reference.md
	$(BIN)/python -c 'from docs.generator.fleet_file import updates_page; print(updates_page(), end="")' > docs/updates.md
	$(BIN)/python -c 'from docs.generator.dashboards import write; write()'

bench: $(READY)  ## Measure speed and memory (docs/benchmarks.md); needs root
	@missed=; git log -1 --format='commit %h, %cs'; uptime; \
	  for name in $(basename $(notdir $(wildcard benchmarks/[a-z]*.py))); do \
	    echo "== $$name"; $(BIN)/python -m benchmarks.$$name || missed="$$missed $$name"; done; \
	  test -z "$$missed" || { echo "failed or missed a target:$$missed"; exit 1; }

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-annotate --no-header

lock: $(READY)  ## Resolve pyproject.toml into requirements.lock, its parts for machines, and requirements-judges.lock
	$(COMPILE) pyproject.toml --group dev --output-file requirements.lock
	$(COMPILE) --group pyproject.toml:nodes --constraint requirements.lock --output-file requirements-nodes.lock
	$(COMPILE) --group pyproject.toml:judges --output-file requirements-judges.lock
	$(COMPILE) roles/frameworks/torch.in --output-file roles/frameworks/torch.txt
	$(COMPILE) --only-binary :all: --group pyproject.toml:records --excludes roles/mlflow/excludes.txt --output-file roles/mlflow/mlflow.txt
	$(COMPILE) --only-binary :all: --group pyproject.toml:search --constraint requirements.lock --output-file bedplate/programs/search/requirements.txt
	$(COMPILE) --only-binary :all: --group pyproject.toml:notebooks --output-file bedplate/programs/bp/jupyter.txt
	$(COMPILE) --only-binary :all: --group pyproject.toml:board --constraint requirements.lock --output-file bedplate/programs/board/requirements.txt

clean:  ## Remove the virtual environments and all caches
	rm -rf $(VENV) $(JUDGES) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
