"""Test nodes of examples/lab.yaml with an operator: fleet folders, applied nodes, seeded defects, substituted IPsec.

A gateway on a kernel without IPsec gets substitutes, and the product's files stay unchanged: `modprobe` and `ip`, first
in PATH, pretend that the modules exist and create bridges as XFRM interfaces, and charon loads kernel-libipsec.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any, Protocol

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, record_host_keys, record_plan
from bedplate.nodes.audit import CHECKS, role_of
from tests.testlab.fleets.variants import cellar_gateway
from tests.testlab.machines.defects import Defect, Rule
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import ROOT, Operator, push_tunnels
from tests.testlab.network.gateways import settings_over
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from vpn.sites.files import STANDARD, strongswan_conf_of

_PROGRAMS = "/usr/local/sbin/ip /usr/local/sbin/modprobe"
_IP = """#!/bin/bash
case "$*" in
"link add "*" type xfrm if_id "*) exec /usr/sbin/ip link add "$3" type bridge ;;
"-brief link show type xfrm") exec /usr/sbin/ip -brief link show type bridge ;;
esac
exec /usr/sbin/ip "$@"
"""
_MODPROBE = """#!/bin/bash
case "$*" in
"--dry-run --quiet esp4" | "--dry-run --quiet xfrm_interface") exit 0 ;;
esac
exec /usr/sbin/modprobe "$@"
"""
_SETTINGS, _CHARON = "/etc/userspace.conf", "/usr/sbin/charon-systemd"


def substitute_ipsec(node: Node) -> None:
    """Pretend that the node's kernel has IPsec; charon encrypts in user space."""
    for name, text in (("ip", _IP), ("modprobe", _MODPROBE)):
        program = node.root / "usr/local/sbin" / name
        program.write_text(text)
        program.chmod(0o755)
    product = strongswan_conf_of(STANDARD)
    (node.root / _SETTINGS.lstrip("/")).write_text(settings_over(product.path, product.text))
    # Not a drop-in, which the audit reports. The package, installed later, puts its program at the other path.
    node.run(f"dpkg-divert --quiet --rename --divert {_CHARON}.packaged {_CHARON}")
    wrapper = node.root / _CHARON.lstrip("/")
    wrapper.write_text(f'#!/bin/sh\nSTRONGSWAN_CONF={_SETTINGS} exec {_CHARON}.packaged "$@"\n')
    wrapper.chmod(0o755)
    node.run("apt-get install --yes --quiet --no-install-recommends libcharon-extra-plugins >/dev/null")


def stop_substituting(node: Node) -> None:
    """Remove the substitutes, before the node gets a kernel with IPsec."""
    node.run(f"rm -r {_PROGRAMS} {_SETTINGS} {_CHARON}; dpkg-divert --quiet --rename --remove {_CHARON}")


BEDPLATE = str(Path(sys.executable).with_name("bedplate"))
WORKBENCH = "titan-03.cellar"
# A role with few operations, for tests about the apply itself.
QUICK = ("--role", "monitoring")
# Test nodes have no GPUs; test_nvidia.py adds some, with a fake driver.
LAB = re.sub(r"gpus: \{[^}]*\}, ", "", (EXAMPLES / "lab.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class FleetFolder:
    """An operator's folder with a copy of examples/lab.yaml and its lock; the nodes run in `node_lab`."""

    node_lab: NodeLab
    folder: Path

    @property
    def fleet(self) -> Path:
        """The path of the fleet file."""
        return self.folder / "fleet.yaml"

    def trust(self, node: Node, key: str | None = None) -> None:
        """Record a node's host key in the lock, as `bedplate node trust` does."""
        recorded = " ".join((key or node.host_key).split()[:2])
        name = load_fleet(self.fleet, load_catalog()).fleet.name
        record_host_keys(lock_path(self.fleet), name, node.name, (recorded,), replace_known=True)

    def edit(self, pattern: str, text: str) -> None:
        """Replace a pattern in the fleet file, which must match once."""
        edited, count = re.subn(pattern, text, self.fleet.read_text(encoding="utf-8"))
        assert count == 1, pattern
        self.fleet.write_text(edited, encoding="utf-8")

    def record(self, *released: str) -> None:
        """Record the plan in the lock, which an apply requires; release these blocks first."""
        _record(self.fleet, released)

    def bedplate(self, *arguments: str, seconds: float = 900) -> CompletedProcess[str]:
        """Run a bedplate command on the workstation."""
        environment = {**os.environ, "TERM": "dumb"}
        return self.node_lab.workstation.run(
            BEDPLATE, *arguments, "--fleet", str(self.fleet), env=environment, seconds=seconds
        )

    def apply(self, *arguments: str, user: str = "ubuntu", seconds: float = 900) -> CompletedProcess[str]:
        """Apply as the first account of the nodes, with the operator's key."""
        return self.bedplate(
            "node", "apply", *arguments, "--user", user, "--identity", str(self.node_lab.key), seconds=seconds
        )

    def start_apply(self, *arguments: str) -> "Popen[str]":
        """Start an apply in its own process group, as a shell would."""
        # The tests may run with Ctrl-C ignored, as background jobs of a shell do; an operator's shell does not.
        in_namespace = ("ip", "netns", "exec", self.node_lab.workstation.host.namespace, "env", "--default-signal=INT")
        command = (BEDPLATE, "node", "apply", *arguments, "--fleet", str(self.fleet), "--user", "ubuntu")
        return Popen(
            (*in_namespace, *command, "--identity", str(self.node_lab.key)),
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            start_new_session=True,
        )

    def outcome(self, *arguments: str, user: str = "ubuntu", seconds: float = 900) -> Mapping[str, Any]:
        """Apply; return the JSON result of each node, and the exit code as `status`."""
        done = self.apply(*arguments, "--json", user=user, seconds=seconds)
        assert "Traceback" not in done.stderr, done.stderr
        return {**json.loads(done.stdout)["nodes"], "status": done.returncode}


def wait_for(process: "Popen[str]", text: str) -> None:
    """Wait until a command prints a text to stderr; fail if it ends without it."""
    assert process.stderr
    if not any(text in line for line in process.stderr):
        pytest.fail(f"stderr never contained {text!r}")


def make_fleet_folder(node_lab: NodeLab, folder: Path) -> FleetFolder:
    """Create an operator's folder whose lock has the recorded plan."""
    write_recorded_fleet(folder, node_lab.public)
    return FleetFolder(node_lab, folder)


def folder_of_ada(node_lab: NodeLab, folder: Path) -> FleetFolder:
    """Create an operator's folder whose administrator ada has the operator's key only."""
    lab = make_fleet_folder(node_lab, folder)
    key = " ".join(node_lab.key.with_name("operator.pub").read_text().split()[:2])
    lab.edit(r"ada: \{admin: true, keys: \[[^]]*\]", f'ada: {{admin: true, keys: ["{key}"]')
    lab.record()
    return lab


def write_recorded_fleet(folder: Path, key: str = "") -> Path:
    """Copy examples/lab.yaml into a folder, add a key to its administrator, and record its plan; return its path."""
    fleet = folder / "fleet.yaml"
    extra_key = f', "{key}"' if key else ""
    fleet.write_text(LAB.replace('ada@laptop"]}', f'ada@laptop"{extra_key}]}}', 1), encoding="utf-8")
    _record(fleet)
    return fleet


def _record(fleet: Path, released: tuple[str, ...] = ()) -> None:
    declared = load_fleet(fleet, load_catalog()).fleet
    record_plan(lock_path(fleet), declared, load_catalog(), release_of=released)


LAB_NODES = {
    "titan-03.cellar": "192.168.40.23",  # workbench
    "titan-01.cellar": "192.168.40.21",  # Kubernetes worker
    "gate.cellar": "192.168.40.1",  # gateway of the site
    "nas.cellar": "192.168.40.5",  # file server with homes
}
Changes = Mapping[str, list[str]]
_OVERRIDES = """
vpn:
  laptops:
    gateways: [{{region: us-west-2}}]
    pool: /22
people:
  ada: {{admin: true, groups: [vision], keys: ["{key} ada@laptop"]}}
  grace: {{keys: ["{key} grace@laptop"]}}
  cora: {{keys: ["{key} cora@laptop"]}}
"""


@dataclass(frozen=True)
class Lab:
    """The applied nodes, the operator, the fleet file, and the changes of the first apply."""

    node_lab: NodeLab
    operator: Operator
    fleet: Path
    nodes: Mapping[str, Node]
    first: Changes

    def write(self, text: str) -> None:
        """Replace the fleet file, and record its plan."""
        self.fleet.write_text(text)
        done = self.operator.bedplate("plan", str(self.fleet), "--write")
        assert done.returncode == 0, done.stderr

    @contextmanager
    def edited(self, old: str, new: str, *names: str) -> Iterator[None]:
        """Replace a text of the fleet file; at the end, restore the file and apply these nodes."""
        text = self.fleet.read_text()
        assert old in text
        self.write(text.replace(old, new))
        try:
            yield
        finally:
            self.write(text)
            self.operator.changes(*names)

    def remove_person(self, person: str) -> None:
        """Remove a person from the fleet file."""
        lines = self.fleet.read_text().splitlines(keepends=True)
        self.write("".join(line for line in lines if not line.startswith(f"  {person}: ")))


@dataclass(frozen=True)
class Departure:
    """The removal of a person: changes of `--check` and of the apply, and the findings of the audit afterwards."""

    checked: Changes
    applied: Changes
    findings: Mapping[str, Any]


@contextmanager
def applied_lab(folder: Path) -> Iterator[Lab]:
    """Yield the applied nodes of the lab, with a person named cora."""
    with NodeLab() as node_lab:
        fleet = folder / "fleet.yaml"
        operator = Operator(node_lab, fleet)
        lab = Lab(node_lab, operator, fleet, {name: node_lab.boot(name, at) for name, at in LAB_NODES.items()}, {})
        substitute_ipsec(lab.nodes["gate.cellar"])
        lab.write(_text(node_lab.key.with_name("operator.pub").read_text()))
        first = operator.changes(*LAB_NODES)
        push_tunnels(lab.nodes["gate.cellar"], cellar_gateway(plan_of(fleet)))
        yield replace(lab, first=first)


def _text(key: str) -> str:
    """Return examples/lab.yaml with people who have the operator's key, and a laptop gateway in the cloud only."""
    before, _, after = LAB.partition("\nvpn:\n")
    kind, text, *_ = key.split()
    return before + _OVERRIDES.format(key=f"{kind} {text}") + after[after.index("\nkubernetes:") :]


FAILED = "passed, then failed"
"""The expected outcome of a rule: passed on the applied node, failed with its defect."""


class NodesOfFleet(Protocol):
    """Nodes in a lab, and their fleet file."""

    @property
    def node_lab(self) -> NodeLab:
        """The node lab."""

    @property
    def fleet(self) -> Path:
        """The path of the fleet file."""


def check_defects(nodes: NodesOfFleet, node: Node, seeded: Mapping[Rule, Defect], folder: Path) -> dict[Rule, str]:
    """Return the outcome of each rule without and with its defect on a node: FAILED, or what happened instead."""
    order, result = folder / f"{node.name}.json", folder / f"{node.name}.outcomes"
    defects = {"/".join(rule): asdict(defect) for rule, defect in seeded.items()}
    order.write_text(json.dumps({"console": node.machine.console(), "defects": defects, "outcomes": str(result)}))
    ssh_config = nodes.node_lab.ssh_config
    host = (f"--fleet={nodes.fleet}", f"--hosts=shell://{node.name}", f"--ssh-config={ssh_config}")
    setting = ("-c", str(CHECKS / "pytest.ini"), "--rootdir", str(CHECKS), "-p", "tests.testlab.machines.defects")
    run = ("env", "--chdir", str(ROOT), sys.executable, "-m", "pytest", *setting, f"--defects={order}", *host)
    done = nodes.node_lab.workstation.run(*run, *_files(role for role, _ in seeded), seconds=1800)
    assert result.exists(), done.stdout + done.stderr
    outcomes: dict[str, str] = json.loads(result.read_text())
    return {rule: outcomes.get("/".join(rule), f"does not apply to {node.name}") for rule in seeded}


def _files(roles: Iterable[str]) -> list[str]:
    names = set(roles)
    return [str(file) for file in sorted(CHECKS.glob("test_*.py")) if role_of(file.stem) in names]
