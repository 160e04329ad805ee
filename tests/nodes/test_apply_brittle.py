"""An apply of every role of a workbench over a line that breaks in each operation once, on a booted machine.

Role by role, so that each new attempt asks about one role alone; at last all roles at once, after something of several
was changed by hand.
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
from bedplate.cli.fleet import opened, planned
from bedplate.nodes.apply import Event, Kind, Order, Step, Target, event_of
from bedplate.plan.nodes import NodePlan, node_of
from roles.catalog import names_of
from roles.engine.work import work_through
from tests.testlab.fakes.brittle_connection import CONFIRMING, ENDING, victims
from tests.testlab.machines.lab import BENCH, LabFolder
from tests.testlab.machines.stand import Node, Stand

pytestmark = pytest.mark.nightly

ALL = "all at once"
TRIAL = "Activate packet filter and sshd for confirmation"
# What the exporter's package brings by itself: found in its place when its turn comes.
BROUGHT = {"Create the folder for metrics", "Start the exporter"}
# Somebody's hand: a setting that a service reads, one of sshd's, one of the filter, a name.
DRIFT = """
hostname drifted; echo '#' >> /etc/systemd/journald.conf.d/60-bedplate.conf
echo '#' >> /etc/default/prometheus-node-exporter; echo '#' >> /etc/bedplate/wanted/filter.nft
echo '#' >> /etc/ssh/sshd_config.d/00-bedplate.conf
"""
# What reads a file at its start alone.
READERS = {
    "systemd-journald": "/etc/systemd/journald.conf.d/60-bedplate.conf",
    "prometheus-node-exporter": "/etc/default/prometheus-node-exporter",
}


@dataclass(frozen=True)
class Cuts:
    """What a look foretold of the fresh machine, and by role the operations in which the line broke."""

    foretold: frozenset[str]
    broken: Mapping[str, list[str]]


@pytest.fixture(scope="module")
def cuts(lab_of_one: LabFolder, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Cuts:
    """Apply role by role, then all after a drift, each again and again until nothing breaks any more."""
    foretold = frozenset(lab_of_one.outcome(BENCH, "--check")[BENCH]["changed"])
    plan = node_of(planned(opened(lab_of_one.fleet)), BENCH, load_catalog())
    books = {name: tmp_path_factory.mktemp("book") / "book" for name in (*names_of(plan), ALL)}
    for name, book in books.items():
        if name == ALL:
            node.run(DRIFT)
        end = until_whole(plan, lab_of_one.stand, book, None if name == ALL else frozenset({name}))
        assert end.step is Step.DONE, f"{name}: {end}"
    return Cuts(foretold, {name: victims(book) for name, book in books.items()})


def test_the_line_broke_in_every_operation(cuts: Cuts) -> None:
    """Whatever a look at the fresh machine foretold was cut, the trial and its confirmation included."""
    every = {name for names in cuts.broken.values() for name in names}

    assert cuts.foretold - every <= BROUGHT
    assert {TRIAL, CONFIRMING, ENDING} <= set(cuts.broken["hardened"])
    assert {TRIAL, CONFIRMING, ENDING} <= set(cuts.broken[ALL])


def test_nothing_is_wrong_in_the_end(cuts: Cuts, lab_of_one: LabFolder) -> None:
    """No rule of the audit is violated."""
    done = lab_of_one.bedplate("node", "audit", BENCH, "--user", "ubuntu", "--identity", str(lab_of_one.stand.key))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", sorted(READERS))
def test_what_was_to_be_restarted_was(service: str, cuts: Cuts, node: Node) -> None:
    """Whoever reads a file at its start alone has started since it came, whatever was cut between the two."""
    started = node.run(f'date +%s -d "$(systemctl show --property ActiveEnterTimestamp --value {service})"')
    written = node.run(f"stat --format %Z {READERS[service]}")

    assert int(started) >= int(written)


def test_the_next_apply_changes_nothing(cuts: Cuts, lab_of_one: LabFolder) -> None:
    """All is as it should be, and nothing is remembered as begun."""
    after = lab_of_one.outcome(BENCH)

    assert (after["status"], after[BENCH]["changed"]) == (0, [])


def until_whole(plan: NodePlan, stand: Stand, book: Path, only: frozenset[str] | None) -> Event:
    """Apply over the brittle line until an apply is whole; return its end, or that of one that got no further."""
    inside = ("ip", "netns", "exec", stand.desk.host.namespace)
    way = (*inside, sys.executable, "-m", "tests.testlab.fakes.brittle_connection", str(book))
    order = Order((Target(plan, (*way, "ssh", "-T", "-F", str(stand.ssh_config), BENCH)),), "ada", only=only)
    while True:
        known = len(victims(book))
        end = last_event(order)
        if end.kind is Kind.HELD:
            time.sleep(1)  # what was cut ends its command first
        elif len(victims(book)) == known:
            return end


def last_event(order: Order) -> Event:
    """Carry out an order; return the last that was told."""
    out = io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stays_open, os.fdopen(writing, "wb"):
        work_through(order, stays_open, out)
    return event_of(out.getvalue().splitlines()[-1])
