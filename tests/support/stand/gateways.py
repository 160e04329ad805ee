"""Both gateways of laptops of examples/lab.yaml, made by roles and keyed by a sync, with ada's laptops at the desk.

Booting and applying take a minute, so tests share one; each leaves the daemons, and who is let in, as it found them.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.support.netlab_program import LabProgram, until
from tests.support.page import told_commands
from tests.support.stand.lab import recorded_lab
from tests.support.stand.node import Node
from tests.support.stand.operator import Operator
from tests.support.stand.stand import Stand

GATE, HOME = "gate.cellar", "laptops.us-west-2"
PUBLIC = "8.20.30.40"
_GIVEN = ("--address", "us-west-2=52.1.2.3", "--resolver", "us-west-2=10.64.32.5,10.64.64.7")
_ROLES = ("--role", "keeper", "--role", "openvpn")


@dataclass(frozen=True)
class LaptopGateways:
    """The two machines, the operator, the fleet file, and what the first apply said."""

    stand: Stand
    operator: Operator
    fleet: Path
    nodes: Mapping[str, Node]
    first: Mapping[str, Any]

    def apply(self) -> dict[str, Any]:
        """Run the page's own command, by these two roles; return what it told of each machine."""
        (command,) = (line for line in told_commands("vpn.md") if line.startswith("bedplate node apply"))
        way = ("--ssh-config", str(self.stand.ssh_config), "--user", "ubuntu", "--fleet", str(self.fleet))
        done = self.operator.bedplate(*shlex.split(command)[1:], *_ROLES, *way, "--json")
        assert done.stdout, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)["nodes"]
        return told

    def vpn(self, *words: str) -> CompletedProcess[str]:
        """Run a command of `bedplate vpn` that reaches gateways."""
        return self.operator.bedplate("vpn", *words, str(self.fleet), "--ssh-config", str(self.stand.ssh_config))

    def signed(self, *words: str) -> str:
        """Run a command of `bedplate vpn` that goes well, and return what it prints."""
        done = self.operator.bedplate("vpn", *words, str(self.fleet))
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def sessions(self) -> list[str]:
        """The laptops that are connected at the site's gateway."""
        told = json.loads(self.vpn("status", "--json").stdout)
        served = told["gateways"][GATE]["laptops"]
        return [each["name"] for sessions in served.values() for each in sessions]

    def dial(self, device: str) -> LabProgram:
        """Start the stock client on a machine of ada's at the desk, which keeps its own routes; wait until it is in."""
        profile = self.fleet.with_name(f"{device}.ovpn")
        profile.write_text(self.signed("show", "ada", "--device", device))
        log = f"{device}.log"
        words = ("--config", str(profile), "--route-noexec", "--connect-timeout", "2")
        program = self.stand.desk.host.start("openvpn", *words, log=log)
        until(lambda: "Initialization Sequence Completed" in program.told, 60, f"{device} gets in")
        return program


@contextmanager
def laptop_gateways(folder: Path) -> Iterator[LaptopGateways]:
    """Give both gateways, applied once, with an authority, a certificate for ada's laptop, and a sync."""
    fleet = recorded_lab(folder)
    with Stand() as stand:
        nodes = {GATE: stand.boot(GATE, "192.168.40.1"), HOME: stand.boot(HOME, "10.64.0.4")}
        for node in nodes.values():
            open_device(node)
        nodes[GATE].run(f"ip address add {PUBLIC}/32 dev lo")
        stand.desk.host.run("ip", "route", "add", f"{PUBLIC}/32", "dev", "n1")
        made = LaptopGateways(stand, Operator(stand, fleet), fleet, nodes, {})
        for words in (("record", *_GIVEN), ("init",), ("add", "ada")):
            made.signed(*words)
        made = replace(made, first=made.apply())
        done = made.vpn("sync")
        assert done.returncode == 0, done.stderr
        yield made


def open_device(node: Node) -> None:
    """Open to all the device by which tunnels are made, as udev does, which a container has not."""
    node.run("chmod 666 /dev/net/tun")
