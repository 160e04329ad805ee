"""A booted test node that stands for a gateway, on a kernel without IPsec: what the kernel lacks is substituted.

The product's files stay as they are. `modprobe` and `ip` come first in the search path: the modules seem to be there,
and an XFRM interface is a bridge. A drop-in of charon's unit loads kernel-libipsec.
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
from tests.testlab.fleets.variants import cellar
from tests.testlab.machines.defects import Defect, Rule
from tests.testlab.machines.operator import ROOT, Operator, laid
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.network.gateways import settings_over
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from vpn.sites.files import SERVICE, STANDARD, settings_of

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
_SETTINGS = "/etc/userspace.conf"


def substitute_ipsec(node: Node) -> None:
    """Let the node's kernel seem to have IPsec, and charon encrypt by itself."""
    for name, text in (("ip", _IP), ("modprobe", _MODPROBE)):
        program = node.root / "usr/local/sbin" / name
        program.write_text(text)
        program.chmod(0o755)
    product = settings_of(STANDARD)
    (node.root / _SETTINGS.lstrip("/")).write_text(settings_over(product.path, product.text))
    drop_in = node.root / f"etc/systemd/system/{SERVICE}.service.d/userspace.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(f"[Service]\nEnvironment=STRONGSWAN_CONF={_SETTINGS}\n")
    node.run("apt-get install --yes --quiet --no-install-recommends libcharon-extra-plugins >/dev/null")


def stop_substituting(node: Node) -> None:
    """Give the node its own programs back, before it gets a kernel that has IPsec."""
    node.run(f"rm -r {_PROGRAMS} {_SETTINGS} /etc/systemd/system/{SERVICE}.service.d; systemctl daemon-reload")


BEDPLATE = str(Path(sys.executable).with_name("bedplate"))
BENCH = "titan-03.cellar"  # a workbench of the cellar
# A role of few operations, for tests of what is around them.
QUICK = ("--role", "monitoring")
LAB = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8")


@dataclass(frozen=True)
class LabFolder:
    """The folder in which an operator keeps examples/lab.yaml; `stand` has the machines that answer."""

    stand: Stand
    folder: Path

    @property
    def fleet(self) -> Path:
        """The fleet file."""
        return self.folder / "fleet.yaml"

    def know(self, node: Node, key: str | None = None) -> None:
        """Record a node's host key, as somebody who has read its fingerprint does."""
        kept = " ".join((key or node.host_key).split()[:2])
        record_host_keys(lock_path(self.fleet), "lab", node.name, (kept,), replace_known=True)

    def edit(self, pattern: str, text: str) -> None:
        """Change the fleet file."""
        after, count = re.subn(pattern, text, self.fleet.read_text(encoding="utf-8"))
        assert count == 1, pattern
        self.fleet.write_text(after, encoding="utf-8")

    def record(self, *released: str) -> None:
        """Record the plan, as an apply wants it; these blocks are given back first."""
        _record(self.fleet, released)

    def bedplate(self, *arguments: str, seconds: float = 900) -> CompletedProcess[str]:
        """Run a command of bedplate at the desk."""
        environment = {**os.environ, "TERM": "dumb"}
        return self.stand.desk.run(BEDPLATE, *arguments, "--fleet", str(self.fleet), env=environment, seconds=seconds)

    def apply(self, *arguments: str, user: str = "ubuntu", seconds: float = 900) -> CompletedProcess[str]:
        """Apply as the first account of a machine, with the operator's key."""
        return self.bedplate(
            "node", "apply", *arguments, "--user", user, "--identity", str(self.stand.key), seconds=seconds
        )

    def applying(self, *arguments: str) -> "Popen[str]":
        """Start an apply as a shell of the operator would: in a process group of its own."""
        # Whoever runs the tests may ignore Ctrl-C, as a shell's background does; an operator's shell does not.
        inside = ("ip", "netns", "exec", self.stand.desk.host.namespace, "env", "--default-signal=INT")
        command = (BEDPLATE, "node", "apply", *arguments, "--fleet", str(self.fleet), "--user", "ubuntu")
        return Popen(
            (*inside, *command, "--identity", str(self.stand.key)),
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            start_new_session=True,
        )

    def outcome(self, *arguments: str, user: str = "ubuntu", seconds: float = 900) -> Mapping[str, Any]:
        """Apply, and return what became of each machine as programs read it, with the exit status as `status`."""
        done = self.apply(*arguments, "--json", user=user, seconds=seconds)
        assert "Traceback" not in done.stderr, done.stderr
        return {**json.loads(done.stdout)["nodes"], "status": done.returncode}


def wait_for(running: "Popen[str]", words: str) -> None:
    """Wait until a command says these words; fail where it ends without."""
    assert running.stderr
    if not any(words in line for line in running.stderr):
        pytest.fail(f"it never said {words!r}")


def lab_folder(stand: Stand, folder: Path) -> LabFolder:
    """Make the folder of a fleet whose plan is recorded."""
    recorded_lab(folder, stand.public)
    return LabFolder(stand, folder)


def recorded_lab(folder: Path, key: str = "") -> Path:
    """Copy examples/lab.yaml into a folder, its lock beside it, and return the path; the administrator has that key."""
    fleet = folder / "fleet.yaml"
    more = f', "{key}"' if key else ""
    fleet.write_text(LAB.replace('ada@laptop"]}', f'ada@laptop"{more}]}}', 1), encoding="utf-8")
    _record(fleet)
    return fleet


def _record(fleet: Path, released: tuple[str, ...] = ()) -> None:
    declared = load_fleet(fleet, load_catalog()).fleet
    record_plan(lock_path(fleet), declared, load_catalog(), release_of=released)


MACHINES = {
    "titan-03.cellar": "192.168.40.23",  # people log in here
    "titan-01.cellar": "192.168.40.21",  # Kubernetes works here
    "gate.cellar": "192.168.40.1",  # the gateway of the site
    "nas.cellar": "192.168.40.5",  # exports homes
}
Changes = Mapping[str, list[str]]
_OWN = """
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
    """The machines, the operator, the fleet file, and what the first apply changed."""

    stand: Stand
    operator: Operator
    fleet: Path
    nodes: Mapping[str, Node]
    first: Changes

    def write(self, text: str) -> None:
        """Change the fleet file, and record what is new."""
        self.fleet.write_text(text)
        done = self.operator.bedplate("plan", str(self.fleet), "--write")
        assert done.returncode == 0, done.stderr

    @contextmanager
    def edited(self, old: str, new: str, *names: str) -> Iterator[None]:
        """Change a text of the fleet file; at the end it is as before, and these machines are applied again."""
        text = self.fleet.read_text()
        assert old in text
        self.write(text.replace(old, new))
        try:
            yield
        finally:
            self.write(text)
            self.operator.changes(*names)

    def let_go(self, person: str) -> None:
        """Take somebody out of the fleet file."""
        lines = self.fleet.read_text().splitlines(keepends=True)
        self.write("".join(line for line in lines if not line.startswith(f"  {person}: ")))


@dataclass(frozen=True)
class Parting:
    """What `--check` told of somebody's leave, what the apply did, and what the audit found then."""

    told: Changes
    done: Changes
    found: Mapping[str, Any]


@contextmanager
def applied_lab(folder: Path) -> Iterator[Lab]:
    """Give the lab, applied once, with cora among its people."""
    with Stand() as stand:
        fleet = folder / "fleet.yaml"
        operator = Operator(stand, fleet)
        lab = Lab(stand, operator, fleet, {name: stand.boot(name, at) for name, at in MACHINES.items()}, {})
        substitute_ipsec(lab.nodes["gate.cellar"])
        lab.write(_text(stand.key.with_name("operator.pub").read_text()))
        first = operator.changes(*MACHINES)
        laid(lab.nodes["gate.cellar"], cellar(plan_of(fleet)))
        yield replace(lab, first=first)


def _text(key: str) -> str:
    """Return the fleet file of the example with other people, who have the operator's key; laptops dial the cloud."""
    before, _, after = (EXAMPLES / "lab.yaml").read_text().partition("\nvpn:\n")
    kind, text, *_ = key.split()
    return before + _OWN.format(key=f"{kind} {text}") + after[after.index("\nkubernetes:") :]


FOUND = "kept, then violated"
"""What is to become of a rule: its promise was kept on the machine, and it saw its own defect."""


class Place(Protocol):
    """Machines of a stand, and the fleet file that they belong to."""

    @property
    def stand(self) -> Stand:
        """The stand."""

    @property
    def fleet(self) -> Path:
        """The fleet file."""


def looked(there: Place, node: Node, planted: Mapping[Rule, Defect], folder: Path) -> dict[Rule, str]:
    """Return what became of each rule on a machine: FOUND, or what was otherwise, with the rule's own words."""
    order, result = folder / f"{node.name}.json", folder / f"{node.name}.found"
    wanted = {"/".join(rule): asdict(each) for rule, each in planted.items()}
    order.write_text(json.dumps({"console": node.machine.console(), "defects": wanted, "found": str(result)}))
    way = (f"--fleet={there.fleet}", f"--hosts=shell://{node.name}", f"--ssh-config={there.stand.ssh_config}", "--sudo")
    setting = ("-c", str(CHECKS / "pytest.ini"), "--rootdir", str(CHECKS), "-p", "tests.testlab.machines.defects")
    run = ("env", "--chdir", str(ROOT), sys.executable, "-m", "pytest", *setting, f"--planted={order}", *way)
    done = there.stand.desk.run(*run, *_files(role for role, _ in planted), seconds=1800)
    assert result.exists(), done.stdout + done.stderr
    told: dict[str, str] = json.loads(result.read_text())
    return {rule: told.get("/".join(rule), f"it does not concern {node.name}") for rule in planted}


def _files(roles: Iterable[str]) -> list[str]:
    wanted = set(roles)
    return [str(file) for file in sorted(CHECKS.glob("test_*.py")) if role_of(file.stem) in wanted]
