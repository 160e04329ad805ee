"""A changed role reaches ten booted machines by their timers: first two on `canary`, then the others."""

import sys
from collections.abc import Callable, Iterator
from time import monotonic, sleep, time

import pytest

from bedplate.files import read_json
from bedplate.spec.groups import Ring
from tests.testlab.machines.bundle import working_tree
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.self_configured import Cloud, SelfConfigured, cloud

pytestmark = pytest.mark.nightly

CANARIES, MACHINES, SECONDS = 2, 10, 900
# The timer's minute, and what a busy machine adds.
PERIOD_SECONDS = 75
# As shipped, but once a minute without a random delay; the unit's limit of starts is for an hourly timer.
DROP_INS = """
cd /etc/systemd/system; mkdir bedplate-node.timer.d bedplate-node.service.d; cd bedplate-node.timer.d
printf '[Timer]\\nOnUnitInactiveSec=\\nOnUnitInactiveSec=1min\\nRandomizedDelaySec=0\\nAccuracySec=1s\\n' >minute.conf
printf '[Unit]\\nStartLimitIntervalSec=0\\n' >../bedplate-node.service.d/minute.conf
"""
MOTD = "roles/baseline/motd.j2"


@pytest.fixture(scope="module")
def aws(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Yield the simulated AWS, in which both rings name one bundle."""
    with cloud(node_lab, tmp_path_factory.mktemp("place")) as opened:
        publish(opened, 1, "", *Ring)
        yield opened


@pytest.fixture(scope="module")
def machines(aws: Cloud) -> list[SelfConfigured]:
    """Return machines that have configured themselves; the first are on `canary`."""
    started = []
    for number in range(1, MACHINES + 1):
        node = aws.lab.boot(f"workbench-cpu-{number}.us-west-2", f"10.64.33.{10 + number}")
        node.run(DROP_INS)
        started.append(aws.start(node, Ring.CANARY if number <= CANARIES else Ring.STABLE))
    wait_until(lambda: all(is_ready(machine.node) for machine in started), started)
    return started


def publish(aws: Cloud, sequence: int, line: str, *rings: Ring) -> None:
    """Publish the working tree, with one more line in the message of the day, and point rings to it."""
    documents = {aws.pool.name: aws.document}
    changed = {MOTD: (working_tree({}, {}).files[MOTD].decode() + line).encode()} if line else {}
    for ring in rings:
        aws.place.publish(working_tree(documents, changed), sequence, aws.bucket, ring)


def reached(node: Node) -> bool:
    """Return whether a machine has the changed role."""
    return "a new line" in (node.root / "etc/motd").read_text()


def is_ready(node: Node) -> bool:
    """Return whether a machine has passed its gate."""
    return bool(read_json(node.root / "var/lib/bedplate/status/run.json").get("ready"))


def wait_until(is_done: Callable[[], bool], machines: list[SelfConfigured]) -> float:
    """Wait until something is true; return the seconds."""
    start = monotonic()
    while not is_done():
        assert monotonic() < start + SECONDS, machines[0].log
        sleep(1)
    return monotonic() - start


def seconds_until_reached(machines: list[SelfConfigured]) -> float:
    """Return after how long all machines have the changed role."""
    return wait_until(lambda: all(reached(machine.node) for machine in machines), machines)


def pauses_until_reached(node: Node, since: float) -> list[float]:
    """Return the pause before each run that began after `since` and before the role changed, in seconds.

    A pause begins at the end of the run before, or at `since` if that is later.
    """
    changed = (node.root / "etc/motd").stat().st_mtime
    journal = node.run("journalctl --no-pager --output=short-unix --unit=bedplate-node").splitlines()
    pauses, end = [], since
    for line in journal:
        if " systemd[1]: Starting " in line and since < (start := float(line.split()[0])) < changed:
            pauses.append(start - end)
        elif " systemd[1]: Finished " in line:
            end = max(since, float(line.split()[0]))
    assert any(" systemd[1]: Starting " in line for line in journal), journal
    return pauses


def test_a_changed_role_reaches_canaries_then_all(aws: Cloud, machines: list[SelfConfigured]) -> None:
    """The two on `canary` in their next period, the others only after the promotion, in one period and one run."""
    canaries, others = machines[:CANARIES], machines[CANARIES:]
    publish(aws, 2, "a new line\n", Ring.CANARY)
    first = seconds_until_reached(canaries)
    sleep(PERIOD_SECONDS)
    assert not any(reached(machine.node) for machine in others)

    publish(aws, 2, "a new line\n", Ring.STABLE)
    promoted = time()
    second = seconds_until_reached(others)
    sys.stdout.write(f"canary after {first:.0f} s, all others after {second:.0f} s\n")
    for machine in others:
        pauses = pauses_until_reached(machine.node, promoted)
        assert len(pauses) <= 1
        assert sum(pauses) < PERIOD_SECONDS
