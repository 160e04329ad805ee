"""Fixtures and options of the compliance rules: the node as testinfra's `host`, and its plan as `node`.

Each test is a rule: the function name is the rule's name, its docstring the description. The file belongs to a role.
Rules that do not apply to a node (settings.py) are counted, not run. A node that is not reached has no verdicts.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from testinfra.backend import BACKENDS
from testinfra.host import Host

from bedplate.compliance.ledger import ProgressReporter, ResultCollector, comparison_lines
from bedplate.compliance.settings import MARKER
from bedplate.compliance.shell import LocalBackend, ShellBackend
from bedplate.errors import BedplateError, InputError
from bedplate.load import load_fleet
from bedplate.lock import lock_path, read_lock
from bedplate.plan import FleetPlan
from bedplate.plan.node_document import read_node_document
from bedplate.plan.nodes import NodePlan, find_node, pool_node
from vpn.pki import FolderKeys, NoAuthority, Pki, folder_of, open_pki

_PLAN = pytest.StashKey[FleetPlan]()
_NODES = pytest.StashKey[dict[str, NodePlan]]()
_COLLECTOR = pytest.StashKey[ResultCollector]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that connect nodes with a fleet file."""
    parser.addoption("--fleet", default="fleet.yaml", help="fleet file of the nodes")
    parser.addoption(
        "--document", default=None, metavar="FILE", help="node document of this machine, without a fleet file"
    )
    parser.addoption("--node", default=None, help="name of the node in the plan, if it differs from the host name")
    parser.addoption("--pool", default=None, help="pool of the node, if the fleet file has no name for the node")
    parser.addoption("--findings", default=None, metavar="FILE", help="write the findings to this file, as JSON")
    parser.addoption("--events", default=None, type=int, metavar="FD", help="write an event for each rule, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the backends and the plugins."""
    BACKENDS.update(
        {backend.NAME: f"{backend.__module__}.{backend.__name__}" for backend in (ShellBackend, LocalBackend)}
    )
    config.addinivalue_line("markers", f"{MARKER}(condition): the rule applies to nodes whose plan meets the condition")
    config.addinivalue_line("markers", "installed: the install stage alone keeps the rule, so a bake checks it")
    config.stash[_COLLECTOR] = ResultCollector(config.getoption("--findings"))
    config.pluginmanager.register(config.stash[_COLLECTOR])
    events = config.getoption("--events")
    if events is not None:
        config.pluginmanager.register(ProgressReporter(os.fdopen(events, "w", buffering=1)))


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str]:
    """Return the found and the expected value of a comparison, in place of the text of pytest."""
    return comparison_lines(op, left, right)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the rules that apply to each reachable node."""
    selected = [item for item in items if isinstance(item, pytest.Function) and _is_selected(config, item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(selected)])
    items[:] = selected


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest) -> FleetPlan:
    """Return the plan of the fleet; skip the rule without a fleet file."""
    _require_fleet(request.config)
    return _fleet_plan(request.config)


@pytest.fixture
def pki(request: pytest.FixtureRequest) -> Pki:
    """Return the VPN's certificates beside the fleet file; skip the rule without them."""
    _require_fleet(request.config)
    folder = folder_of(Path(request.config.getoption("--fleet")))
    try:
        return open_pki(folder, _fleet_plan(request.config).name, lambda _begun: FolderKeys(folder.keys))
    except NoAuthority:
        pytest.skip("no fleet.pki beside the fleet file")


@pytest.fixture
def node(request: pytest.FixtureRequest, host: Host) -> NodePlan:
    """Return the plan of the node under test."""
    return _node_plan(request.config, host)


def _require_fleet(config: pytest.Config) -> None:
    if config.getoption("--document"):
        pytest.skip("needs the fleet file, which is not on the machine")


def _is_selected(config: pytest.Config, rule: pytest.Function) -> bool:
    host = rule.callspec.params["_testinfra_host"]
    return config.stash[_COLLECTOR].selects(rule, host, _node_plan(config, host))


def _node_plan(config: pytest.Config, host: Host) -> NodePlan:
    """Return the plan of a node, cached by name."""
    name = config.getoption("--node") or host.backend.hostname
    plans = config.stash.setdefault(_NODES, {})
    if name not in plans:
        document = config.getoption("--document")
        with _usage_errors():
            if document:
                plans[name] = replace(read_node_document(Path(document).read_text(encoding="utf-8")), name=name)
            else:
                plans[name] = _plan_node(_fleet_plan(config), name, config.getoption("--pool"))
    return plans[name]


def _plan_node(plan: FleetPlan, name: str, pool_name: str | None) -> NodePlan:
    """Return the plan of a named machine, or of a node of a pool in the region at the end of its name."""
    if pool_name is None:
        return find_node(plan, name, plan.catalog)
    region = name.partition(".")[2]
    for pool in plan.pools:
        if (pool.name, pool.region) == (pool_name, region):
            return pool_node(plan, pool, name, plan.catalog)
    pools = ", ".join(pool.name for pool in plan.pools if pool.region == region) or "none"
    raise InputError(f"fleet {plan.name} has no pool {pool_name} in {region}", fix=f"pools in {region}: {pools}")


def _fleet_plan(config: pytest.Config) -> FleetPlan:
    """Return the plan of the fleet, cached."""
    if _PLAN not in config.stash:
        fleet_file = Path(config.getoption("--fleet"))
        with _usage_errors():
            loaded = load_fleet(fleet_file)
            config.stash[_PLAN] = loaded.plan(read_lock(lock_path(fleet_file), loaded.fleet.name))
    return config.stash[_PLAN]


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Turn errors about the fleet file or a name into pytest's usage errors."""
    try:
        yield
    except BedplateError as error:
        raise pytest.UsageError(f"{error.what}; {error.fix}") from None
