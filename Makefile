# Everything runs in a virtual environment of exact versions, made from requirements.lock the first time it is needed.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JUDGES := .venv-judges
JUDGES_READY := $(JUDGES)/.ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
# Two at a time: the tests that run a whole rehearsal take most of a core each.
TEST_WORKERS ?= 2

.PHONY: help demo test test-quick test-faults cover test-nodes test-nfs test-esp test-vpn labs fuzz judge check format docs \
  bench lock clean

help:  ## Show what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(READY): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: bedplate needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 4; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "error: $(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv"; exit 4; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@# The project is used in place: its root joins the import path, and one small script starts it.
	@echo "$(CURDIR)" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/bedplate.pth"
	@printf '#!%s/python\nfrom bedplate.cli import main\n\nmain()\n' "$(CURDIR)/$(BIN)" > $(BIN)/bedplate
	@chmod +x $(BIN)/bedplate
	@touch $@

demo: $(READY)  ## Rehearse examples/lab.yaml and a change to it: every stack created, run again, changed, destroyed
	$(BIN)/bedplate rehearse examples/lab.yaml --changed examples/lab-grown.yaml

test: test-quick test-faults test-vpn  ## Run the tests, the quick ones first, at last the VPN's laboratories

test-quick: $(READY)
	$(BIN)/pytest tests/unit tests/rehearsal -n $(TEST_WORKERS) --dist loadfile

test-faults: $(READY)
	$(BIN)/pytest tests/faults -n $(TEST_WORKERS)

# Apart, for counting lines makes the tests take twice as long.
cover: $(READY)  ## Run the quick tests and tell which lines none of them runs
	$(BIN)/pytest tests/unit tests/rehearsal -n $(TEST_WORKERS) --dist loadfile --cov --cov-report=term

labs: $(READY)  ## Run the long tests: whole fleets of every shape, and an edit of every key
	$(BIN)/pytest tests/labs -n $(TEST_WORKERS) --dist loadgroup

# Three at a time, for machines that boot wait as much as they work; in the order in which the tests put themselves.
test-nodes: $(READY) $(JUDGES_READY)  ## Run the tests on booted machines: systemd, sshd, roles, audits; needs root and Debian 12's archives
	$(BIN)/pytest tests/nodes --ignore tests/nodes/test_nfs.py --ignore tests/nodes/test_esp.py -n 3 --dist loadgroup --no-loadscope-reorder --durations=5

test-nfs: $(READY)  ## Share files between two machines whose kernels are programs: minutes; needs root and Debian 12's archives
	$(BIN)/pytest tests/nodes/test_nfs.py --durations=5

test-esp: $(READY)  ## Tunnels that the kernel encrypts, on an emulated machine with Debian's kernel: minutes; needs root and QEMU
	$(BIN)/pytest tests/nodes/test_esp.py --durations=5

# Three at a time: what a laboratory does is mostly waiting. What counts lost packets has the machine to itself.
test-vpn: $(READY)  ## Run the VPN's daemons in networks of their own: who gets in, faults, leaks, rekeys; needs root
	$(BIN)/pytest tests/vpn --ignore tests/vpn/test_site_rekeys.py -n 3 --dist loadgroup --durations=5
	$(BIN)/pytest tests/vpn/test_site_rekeys.py

# 300 MB that a newcomer does not need: the judges stand apart, and are told nothing but files.
$(JUDGES_READY): requirements-judges.lock
	@$(PYTHON) -m venv $(JUDGES)
	$(JUDGES)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-judges.lock
	@touch $@

judge: $(READY) $(JUDGES_READY)  ## Let other people's judges, checkov and parliament, look at the stacks of examples/lab.yaml
	$(BIN)/pytest tests/judges

fuzz: $(READY)  ## Check 20,000 random fleets, half of them with one planted flaw; the tests draw a few hundred
	$(BIN)/pytest tests/unit/test_checks_property.py -n $(TEST_WORKERS) --hypothesis-profile long

check: $(READY)  ## Lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(READY)  ## Bring every file into the house's form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## Write docs/checks.md and docs/updates.md anew from the catalogues of rules and of policies
	$(BIN)/python -c 'from bedplate.report.page import checks_page; print(checks_page(), end="")' > docs/checks.md
	$(BIN)/python -c 'from bedplate.report.updates import updates_page; print(updates_page(), end="")' > docs/updates.md

$(PEERS_READY): requirements-peers.lock
	@$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-peers.lock
	@touch $@

bench: $(READY) $(PEERS_READY)  ## Measure speed and memory, each beside a peer or a floor
	for one in $(filter-out playbook,$(basename $(notdir $(wildcard benchmarks/[a-z]*.py)))); do $(BIN)/python -m benchmarks.$$one || exit 1; done

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-annotate --no-header

lock: $(READY)  ## Resolve pyproject.toml anew into requirements.lock and those of judges and peers
	$(COMPILE) pyproject.toml --group dev --output-file requirements.lock
	$(COMPILE) --group pyproject.toml:judges --output-file requirements-judges.lock
	$(COMPILE) --group pyproject.toml:peers --output-file requirements-peers.lock

clean:  ## Remove the virtual environment and every cache
	rm -rf $(VENV) $(JUDGES) $(PEERS) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
