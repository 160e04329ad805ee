"""An image is baked on a test node, and a machine boots from it: the same bundle, user data and simulated AWS.

The node has no kernel: files in /boot stand for it. EC2 would copy its disk; here its root folder becomes a layer.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testlab.machines.layers import bare
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.self_configured import Cost, SelfConfigured, cloud

pytestmark = pytest.mark.nightly

# The install stage and the rules of a bake, on a machine that has all packages: no part of it is apt's or AWS's.
_AGAIN = """
import json, resource
from bedplate.machine.calls import apply_roles, audit
from bedplate.machine.state import State
state = State()
result = apply_roles(state.node(), None, stages={"install"})
document = audit(state, state.node(), marker="installed")
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
seconds = sum(usage.ru_utime + usage.ru_stime for usage in used)
print(json.dumps({"done": result.is_done, "changed": result.changed, "seconds": seconds, "audit": document}))
"""


@dataclass(frozen=True)
class Baked:
    """The bake's node and status, and a machine that has booted from its image; costs of first boots."""

    bake: Node
    status: dict[str, object]
    packages: str
    image: Path
    identity: set[str]
    machine: SelfConfigured
    costs: dict[str, Cost]


@pytest.fixture(scope="module")
def node_lab() -> Iterator[NodeLab]:
    """Yield a lab whose nodes have no packages of roles yet, as Ubuntu's image."""
    with NodeLab(bare()) as opened:
        yield opened


@pytest.fixture(scope="module")
def baked(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Baked]:
    """Bake on a node; boot a machine from a plain root, then one from the image."""
    with cloud(node_lab, tmp_path_factory.mktemp("place")) as aws:
        bake = node_lab.boot("bake", "10.64.33.6")
        identity = _identity(bake)
        status, image = aws.bake(bake)
        plain, first = aws.first_boot(node_lab.boot("plain.us-west-2", "10.64.33.7"))
        aws.place.end(plain.instance)
        plain.node.stop()
        new = node_lab.boot("workbench-cpu-1.us-west-2", "10.64.33.8", image=(image, *bare()))
        machine, faster = aws.first_boot(new)
        packages = str(aws.place.status(aws.bucket, "packages")["dpkg"])
        yield Baked(bake, status, packages, image, identity, machine, {"plain": first, "image": faster})


def _identity(node: Node) -> set[str]:
    return {(node.root / path).read_text() for path in ("etc/machine-id", "etc/ssh/ssh_host_ed25519_key.pub")}


def test_first_boot_from_an_image_configures_only(baked: Baked) -> None:
    """It is ready after a passed gate and an audit without failures, without an install stage."""
    machine = baked.machine
    run, gate, audit = (machine.place.status(machine.bucket, name) for name in ("run", "gate", "audit"))

    assert (run["ok"], run["ready"]) == (True, True), f"{run['sentence']}\n{machine.log}"
    # The log, because the status may be that of a later run, which the timer started.
    assert "installed by its image" in machine.log
    assert gate["ok"], gate
    (node,) = audit["nodes"]
    assert [verdict for verdict in node["verdicts"] if verdict["outcome"] == "failed"] == []
    assert machine.logs_in() == "0"


def test_machine_has_an_identity_of_its_own(baked: Baked) -> None:
    """Machine id and host key are neither in the image nor those of the bake."""
    assert not list((baked.image / "etc/ssh").glob("ssh_host_*_key*"))
    assert (baked.image / "etc/machine-id").read_text() == ""
    assert not baked.identity & _identity(baked.machine.node)


def test_install_stage_changes_nothing_on_it(baked: Baked) -> None:
    """A bake of packages that are there, with its rules, needs at most 15 s of processor time."""
    path = "PYTHONPATH=/opt/bedplate/current/code:/opt/bedplate/current/wheels"
    output = baked.machine.node.run(f"{path} nice python3 -c '{_AGAIN}'", seconds=600)
    again = json.loads(output.splitlines()[-1])

    assert (again["done"], again["changed"]) == (True, [])
    (node,) = again["audit"]["nodes"]
    assert {verdict["outcome"] for verdict in node["verdicts"]} <= {"passed", "skipped"}
    assert len(node["verdicts"]) > 10
    sys.stdout.write(f"bake {baked.status['seconds']} s, own overhead {again['seconds']:.1f} s of processor\n")
    assert again["seconds"] <= 15


def test_packet_filter_is_closed_before_the_configuration(baked: Baked) -> None:
    """The image loads the emergency rules at boot, which allow SSH only."""
    rules = (baked.image / "etc/bedplate/emergency.nft").read_text()
    link = baked.image / "etc/systemd/system/sysinit.target.wants/bedplate-shut.service"

    assert link.is_symlink()
    assert "policy drop" in rules
    assert {line.split()[-2] for line in rules.splitlines() if "dport" in line and line.endswith("accept")} <= {
        "22",
        "68",
    }


def test_first_boot_from_an_image_is_faster(baked: Baked) -> None:
    """From user data to the report after the gate: at most 0.4 of the CPU time of a plain root, at best a quarter."""
    plain, image = baked.costs["plain"], baked.costs["image"]
    ratios = f"{image.elapsed / plain.elapsed:.2f} and {image.cpu / plain.cpu:.2f}"
    sys.stdout.write(f"first boot: plain {plain}; image {image}; ratios {ratios}\n")
    assert image.cpu <= plain.cpu * 0.4


def test_packages_are_reported_with_the_status(baked: Baked) -> None:
    """The database of dpkg, from which the bake makes the bill of materials."""
    assert "Package: prometheus-node-exporter\n" in baked.packages
