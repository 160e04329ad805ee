"""A lab that has been applied: the machines of a room of examples/lab.yaml, with a person who then leaves.

Booting and applying take most of a minute, so tests share one; each leaves it as it was.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.declared import EXAMPLES, plan_of
from tests.support.site_side import cellar
from tests.support.stand.carried import laid
from tests.support.stand.node import Node
from tests.support.stand.operator import Operator
from tests.support.stand.stand import Stand
from tests.support.stand.userspace import substitute_ipsec

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
