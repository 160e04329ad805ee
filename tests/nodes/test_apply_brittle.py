"""An apply of all roles of a workbench over a connection that breaks once in each operation.

First role by role, so that each attempt is short; then all roles at once, after manual changes to several of them.
"""

import io
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.options import Terminal
from bedplate.nodes.apply import ApplyRequest, Event, NodeErrorKind, Step, Target, parse_event
from bedplate.operate import open_fleet, plan_loaded
from bedplate.plan.nodes import NodePlan, find_node
from roles.catalog import names_of
from roles.engine.node_run import run_request
from tests.testlab.fakes.brittle_connection import CONFIRMING, ENDING, victims
from tests.testlab.machines.lab import WORKBENCH, FleetFolder
from tests.testlab.machines.node_lab import Node, NodeLab

pytestmark = pytest.mark.nightly

ALL = "all at once"
TRIAL = "Activate packet filter and sshd for confirmation"
# The package of node_exporter makes these changes itself.
FROM_PACKAGE = {"Create the folder for metrics", "Start the exporter"}
# Manual changes of settings, sshd, packet filter and host name.
DRIFT = """
hostname drifted; echo '#' >> /etc/systemd/journald.conf.d/60-bedplate.conf
echo '#' >> /etc/default/prometheus-node-exporter; echo '#' >> /etc/bedplate/wanted/filter.nft
echo '#' >> /etc/ssh/sshd_config.d/00-bedplate.conf
"""
# Services that read a file only when they start.
READERS = {
    "systemd-journald": "/etc/systemd/journald.conf.d/60-bedplate.conf",
    "prometheus-node-exporter": "/etc/default/prometheus-node-exporter",
}


@dataclass(frozen=True)
class Cuts:
    """The changes that `--check` showed on the fresh node, and by role the interrupted operations."""

    checked: frozenset[str]
    broken: Mapping[str, list[str]]


@pytest.fixture(scope="module")
def cuts(fleet_folder: FleetFolder, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Cuts:
    """Apply role by role, then all roles after a drift, each until no operation is interrupted."""
    checked = frozenset(fleet_folder.outcome(WORKBENCH, "--check")[WORKBENCH]["changed"])
    plan = find_node(plan_loaded(open_fleet(Terminal(fleet_folder.fleet))), WORKBENCH, load_catalog())
    logs = {name: tmp_path_factory.mktemp("log") / "log" for name in (*names_of(plan), ALL)}
    for name, log in logs.items():
        if name == ALL:
            node.run(DRIFT)
        end = apply_until_complete(plan, fleet_folder.node_lab, log, None if name == ALL else frozenset({name}))
        assert end.step is Step.DONE, f"{name}: {end}"
    return Cuts(checked, {name: victims(log) for name, log in logs.items()})


def test_connection_broke_in_every_operation(cuts: Cuts) -> None:
    """The connection broke in each operation that `--check` showed, including the confirmation window."""
    interrupted = {name for names in cuts.broken.values() for name in names}

    assert cuts.checked - interrupted <= FROM_PACKAGE
    assert {TRIAL, CONFIRMING, ENDING} <= set(cuts.broken["hardened"])
    assert {TRIAL, CONFIRMING, ENDING} <= set(cuts.broken[ALL])


def test_audit_finds_no_violation_at_the_end(cuts: Cuts, fleet_folder: FleetFolder) -> None:
    """After the last apply, the audit finds no violation."""
    done = fleet_folder.bedplate(
        "node", "audit", WORKBENCH, "--user", "ubuntu", "--identity", str(fleet_folder.node_lab.key)
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", sorted(READERS))
def test_services_restarted_after_their_files_changed(service: str, cuts: Cuts, node: Node) -> None:
    """A service that reads a file at its start restarted after the last change of the file, despite interruptions."""
    started = node.run(f'date +%s -d "$(systemctl show --property ActiveEnterTimestamp --value {service})"')
    written = node.run(f"stat --format %Z {READERS[service]}")

    assert int(started) >= int(written)


def test_the_next_apply_changes_nothing(cuts: Cuts, fleet_folder: FleetFolder) -> None:
    """The next apply changes nothing."""
    after = fleet_folder.outcome(WORKBENCH)

    assert (after["status"], after[WORKBENCH]["changed"]) == (0, [])


def apply_until_complete(plan: NodePlan, node_lab: NodeLab, log: Path, only: frozenset[str] | None) -> Event:
    """Apply over the brittle connection until an apply completes or makes no progress; return its last event."""
    in_namespace = ("ip", "netns", "exec", node_lab.workstation.host.namespace)
    connect = (*in_namespace, sys.executable, "-m", "tests.testlab.fakes.brittle_connection", str(log))
    order = ApplyRequest(
        (Target(plan, (*connect, "ssh", "-T", "-F", str(node_lab.ssh_config), WORKBENCH)),), "ada", only=only
    )
    while True:
        before = len(victims(log))
        end = last_event(order)
        if end.kind is NodeErrorKind.HELD:
            time.sleep(1)  # the interrupted command still runs
        elif len(victims(log)) == before:
            return end


def last_event(order: ApplyRequest) -> Event:
    """Run an order; return its last event."""
    out = io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stays_open, os.fdopen(writing, "wb"):
        run_request(order, stays_open, out)
    return parse_event(out.getvalue().splitlines()[-1])
