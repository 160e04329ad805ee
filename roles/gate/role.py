"""The role `gate`: the health gate `bedplate-gate`, and what the plan expects of this machine."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from pyinfra.operations import systemd

from bedplate.catalog.tables import ChipFacts
from bedplate.plan.nodes import Hardware, NodePlan
from bedplate.programs.gate.machine import Expected, Gpus
from roles.base import Changes, Disruption, ManagedFile, Role, changed, program_files, put_files, unit_files
from roles.system import install_packages, start_units

PROGRAM = "/usr/local/sbin/bedplate-gate"
EXPECTED = "/etc/bedplate/gate.json"
TIMER, SERVICE = "bedplate-gate.timer", "bedplate-gate.service"


def expectations(node: NodePlan, chips: Mapping[str, ChipFacts]) -> Mapping[str, Expected]:
    """Return what each type of the machine's group must have; a machine of a site has one entry, under ""."""
    mounts = tuple(mount.path for mount in node.mounts)
    if not node.types:
        return {"": Expected(node.driver, _gpus(node.gpus, chips, mig=node.mig), mounts=mounts)}
    table: dict[str, Expected] = {}
    for name, facts in node.facts.items():
        gpus = Hardware(facts.gpu.name, facts.gpu.count) if facts.gpu else None
        memory = facts.gpu.memory_mib if facts.gpu else 0
        efa = facts.efa if node.fabric else 0
        planned = _gpus(gpus, chips, memory, mig=node.mig)
        table[name] = Expected(node.driver if gpus else None, planned, efa, mounts, cloud=True)
    return table


def _gpus(gpus: Hardware | None, chips: Mapping[str, ChipFacts], memory: int = 0, *, mig: bool) -> Gpus | None:
    if gpus is None:
        return None
    chip = chips.get(gpus.model)
    if chip is None or not chip.needs_switch(gpus.count):
        return Gpus(gpus.model, gpus.count, memory, mig=mig)
    # The pass mark is that of GPUs that NVSwitch connects.
    return Gpus(gpus.model, gpus.count, memory, switched=True, bandwidth=chip.bandwidth, mig=mig)


@dataclass(frozen=True, slots=True)
class Gate(Role):
    """A machine with users or workloads; `expected` is by EC2 type."""

    expected: Mapping[str, Expected]
    name: ClassVar[str] = "gate"
    disruption: ClassVar[Disruption] = Disruption.NONE

    def install(self) -> None:
        """Install the interpreter and the programs that the checks run."""
        install_packages("Install packages of the health gate", ("chrony", "python3"))

    def configure(self) -> Changes:
        """Write the program, its units, and what this machine must have."""
        types = {name: asdict(expected) for name, expected in self.expected.items()}
        text = json.dumps({"version": 1, "types": types}, indent=1, sort_keys=True) + "\n"
        return put_files(*gate_files(), ManagedFile("Write what this machine must have", EXPECTED, text))

    def activate(self, changes: Changes) -> None:
        """Start the timer, and check the machine after a change."""
        start_units({"Start the timer of the health gate": TIMER})
        systemd.service(name="Check the machine", service=SERVICE, restarted=True, _if=changed(changes))


def gate_files() -> tuple[ManagedFile, ...]:
    """Return the program and its units."""
    return (*program_files("gate", PROGRAM), *unit_files("gate", TIMER, SERVICE))
