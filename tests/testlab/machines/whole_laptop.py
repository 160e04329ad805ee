"""A laptop on the internet whose OpenVPN connects to a whole gateway, and hosts behind that gateway."""

import sys
from dataclasses import dataclass
from signal import SIGKILL

from bedplate.plan.nodes import NodePlan
from tests.testlab.machines.gateways import CLOUD_PUBLIC as CLOUD
from tests.testlab.machines.gateways import LaptopGateways
from tests.testlab.machines.lab import FleetFolder
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator
from tests.testlab.machines.surroundings import add_address
from tests.testlab.network.netlab import LabHost, LabProgram, until

SITE = "8.20.30.40"
_LAPTOP, _NEXT = "203.0.113.66", "203.0.113.65"
# A host behind the gateway of each place, and one outside of the plan, each with a page.
_HOSTS = {"us-west-2": "10.64.33.201", "cellar": "192.168.40.21"}
_OUTSIDE, _PAGE = "198.51.100.77", 8000


@dataclass
class LaptopBehind:
    """The laptop of ada, and what is behind the gateway."""

    lab: NodeLab
    node: Node
    planned: NodePlan
    operator: LaptopGateways
    host: LabHost
    client: LabProgram | None = None

    @property
    def target(self) -> str:
        """The address of the host behind the gateway."""
        return _HOSTS[self.planned.place]

    def connect(self) -> None:
        """Start the client with the profile of the laptop, and wait until it is connected."""
        if self.client:
            self.client.end(SIGKILL)
        profile = self.host.folder / "ada.ovpn"
        profile.write_text(self.operator.local_vpn("show", "ada", "--device", "laptop"))
        words = ("--config", str(profile), "--connect-timeout", "3", "--connect-retry", "1", "2")
        client = self.client = self.host.start("openvpn", *words, log=f"client-{len(self.host.programs)}.log")
        try:
            until(lambda: "Initialization Sequence Completed" in client.output, 90, "the laptop does not connect")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{client.output[-1500:]}") from None

    def fetch_outside(self) -> str:
        """Return the page of a host outside of the plan, asked through the tunnel; empty if it cannot be reached."""
        self.host.run("ip", "route", "replace", f"{_OUTSIDE}/32", "dev", "tun0")
        return self.fetch(_OUTSIDE)

    def fetch(self, address: str = "") -> str:
        """Return the page of a host, by default of that behind the gateway; empty if it cannot be reached."""
        url = f"http://{address or self.target}:{_PAGE}/"
        done = self.host.tries(
            "curl", "-sSf", "--noproxy", "*", "--max-time", "30" if not address else "5", "-o", "/dev/null", url
        )
        return "page" if done else ""


def laptop_behind(lab: NodeLab, node: Node, planned: NodePlan, fleet: FleetFolder, config: str) -> LaptopBehind:
    """Connect a laptop, and send the gateway its keys, as the operator does; `config` is the operator's ssh_config."""
    workstation, gateway = lab.workstation.host, planned.laptops
    assert gateway
    # Elastic addresses and the router of a site translate.
    public = CLOUD if planned.place != "cellar" else SITE
    workstation.load_rules(
        f"table ip public {{ chain to {{ type nat hook prerouting priority -100; "
        f"ip daddr {public} dnat to {node.address}; }}; }}"
    )
    for other in {CLOUD, SITE} - {public}:
        workstation.run("ip", "route", "replace", "unreachable", f"{other}/32")
    host = lab.network.host("laptop")
    lab.network.wire((host, "eth0", f"{_LAPTOP}/30"), (workstation, "lap0", f"{_NEXT}/30"))
    host.run("ip", "route", "add", "default", "via", _NEXT)
    words = workstation.run("ip", "route", "get", str(node.address)).split()
    device = words[words.index("dev") + 1]
    workstation.run("ip", "route", "replace", str(gateway.pool), "via", str(node.address), "dev", device, "onlink")
    behind = _HOSTS[planned.place]
    for address in (behind, _OUTSIDE):
        add_address(lab, address)
        serve = ("-m", "http.server", "--directory", "/srv", "--bind", address, str(_PAGE))
        workstation.start(sys.executable, *serve, log=f"page-{address}.log")
    operator = LaptopGateways(lab, Operator(lab, fleet.fleet), fleet.fleet, {planned.name: node}, {})
    operator.local_vpn("init")
    operator.local_vpn("add", "ada", "--device", "laptop")
    done = operator.operator.bedplate("vpn", "sync", str(fleet.fleet), "--ssh-config", config)
    # The other gateway of the fleet does not run.
    assert done.returncode in {0, 6}, done.stdout + done.stderr
    return LaptopBehind(lab, node, planned, operator, host)
