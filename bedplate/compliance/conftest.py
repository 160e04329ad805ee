"""What every compliance check is told: the machine, as testinfra's `host`, and what it ought to be, as `node`.

A rule is a test: its docstring is the promise, its name the rule's, its file's the role's. Rules that do not concern a
machine (subject.py) are not run for it, and are counted. A machine that is not reached is named, and judged by none.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from testinfra.backend import BACKENDS
from testinfra.host import Host

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import planned
from bedplate.compliance.ledger import Ledger, Teller
from bedplate.compliance.shell import HereBackend, ShellBackend
from bedplate.compliance.subject import MARK
from bedplate.errors import BedplateError, InputError
from bedplate.load import load_fleet
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import NodePlan, node_of, pool_node

_PLAN = pytest.StashKey[FleetPlan]()
_NODES = pytest.StashKey[dict[str, NodePlan]]()
_LEDGER = pytest.StashKey[Ledger]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the fleet file that says what each machine ought to be."""
    parser.addoption("--fleet", default="fleet.yaml", help="the fleet file that the machines belong to")
    parser.addoption("--node", default=None, help="the machine's name in the plan, where its host name is another")
    parser.addoption("--pool", default=None, help="the pool it serves in, where the fleet has no name for the machine")
    parser.addoption("--findings", default=None, metavar="FILE", help="write there what was found, as JSON")
    parser.addoption("--events", default=None, type=int, metavar="FD", help="tell there which rule is begun, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Open the ledger, and teach testinfra the ways that are quick."""
    BACKENDS.update({each.NAME: f"{each.__module__}.{each.__name__}" for each in (ShellBackend, HereBackend)})
    config.addinivalue_line("markers", f"{MARK}(has): which machines the rule is about, by their plan")
    config.stash[_LEDGER] = Ledger(config.getoption("--findings"))
    config.pluginmanager.register(config.stash[_LEDGER])
    events = config.getoption("--events")
    if events is not None:
        config.pluginmanager.register(Teller(os.fdopen(events, "w", buffering=1)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the rules that concern each machine that is reached."""
    kept = [item for item in items if isinstance(item, pytest.Function) and _is_wanted(config, item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest) -> FleetPlan:
    """Give the plan of the fleet."""
    return _plan(request.config)


@pytest.fixture
def node(request: pytest.FixtureRequest, host: Host) -> NodePlan:
    """Give what the machine under test ought to be."""
    return _node(request.config, host)


def _is_wanted(config: pytest.Config, rule: pytest.Function) -> bool:
    host = rule.callspec.params["_testinfra_host"]
    return config.stash[_LEDGER].admits(rule, host, _node(config, host))


def _node(config: pytest.Config, host: Host) -> NodePlan:
    """Return what a machine ought to be, planned once."""
    name = config.getoption("--node") or host.backend.hostname
    known = config.stash.setdefault(_NODES, {})
    if name not in known:
        with _told_plainly():
            known[name] = _planned(_plan(config), name, config.getoption("--pool"))
    return known[name]


def _planned(plan: FleetPlan, name: str, pool: str | None) -> NodePlan:
    """Return the machine of that name, or one of a pool in the region that the name ends with."""
    if pool is None:
        return node_of(plan, name, load_catalog())
    region = name.partition(".")[2]
    for each in plan.pools:
        if (each.name, each.region) == (pool, region):
            return pool_node(plan, each, name, load_catalog())
    raise InputError(f"the fleet {plan.name} has no pool {pool} in {region}", fix="`bedplate plan` lists them")


def _plan(config: pytest.Config) -> FleetPlan:
    """Return the plan of the fleet, made once."""
    if _PLAN not in config.stash:
        with _told_plainly():
            config.stash[_PLAN] = planned(load_fleet(Path(config.getoption("--fleet")), load_catalog()))
    return config.stash[_PLAN]


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Turn what is wrong with the file or a name into an error of usage."""
    try:
        yield
    except BedplateError as error:
        raise pytest.UsageError(f"{error.what}; {error.fix}") from None
