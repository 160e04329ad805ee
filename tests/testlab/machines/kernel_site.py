"""A site's gateway whose kernel encrypts, led through changes: `python -m tests.testlab.machines.kernel_site`, as JSON.

Runs on the gateway itself, which has its roles and systemd; AWS's stand-in, the internet and two machines are in
namespaces beside it. Needs the standard library and Jinja2 alone there.
"""

import json
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import time

from tests.testlab.machines import kernel_gateways
from tests.testlab.machines.kernel_gateways import AwsKernelEnd
from tests.testlab.network.netlab import Lab, LabHost, capture, checked, packets, pinging, until
from vpn.push import shipment_text
from vpn.sites.gateway import Gateway

DESK, RACK = "192.168.40.21", "10.64.32.9"
LAN, VPC = "192.168.40.0/22", "10.64.0.0/16"
# The gateway of the site with both tunnels to one region.
GATEWAY = Path("/srv/bedplate/gateway.pickle")
UNIT = "bedplate-ipsec-tunnels.service"
RESTARTS = ("restart", "kill --signal=KILL")
_CLEAR = f"net {LAN} or net {VPC}"


@dataclass(frozen=True)
class KernelSite:
    """The machine itself as the gateway `near`, and what is beside it."""

    near: LabHost
    gateway: Gateway
    aws: AwsKernelEnd
    internet: LabHost
    desk: LabHost

    def lay(self, gateway: Gateway) -> dict[str, object]:
        """Bring the gateway its tunnels, wait until packets pass, and tell what was done and what there is then."""
        told = json.loads(checked(["bedplate-vpn", "lay"], shipment_text(gateway), seconds=300))
        until(lambda: self.desk.pings(RACK, 1), 60, "nothing passes")
        return {"done": told, **self.state()}

    @property
    def way(self) -> str:
        """How packets for the region leave."""
        return checked(["ip", "route", "get", RACK])

    def state(self) -> dict[str, object]:
        """Tell the devices of tunnels, by kind, and where packets for the region go."""
        kinds = {kind: checked(["ip", "-brief", "link", "show", "type", kind]) for kind in ("xfrm", "tun")}
        devices = {kind: [line.split("@")[0].split()[0] for line in told.splitlines()] for kind, told in kinds.items()}
        return {"devices": devices, "route": self.way}

    @property
    def tellers(self) -> int:
        """How many neighbours have told of the region's block."""
        table = checked(["vtysh", "-c", f"show bgp ipv4 unicast {VPC}"])
        return sum(f"from {one.far.inside.ip} " in table for one in self.gateway.tunnels if one.far.inside)


def main() -> None:
    """Tell all of it, in its order."""
    gateway: Gateway = pickle.loads(GATEWAY.read_bytes())  # noqa: S301  our own, of a moment ago
    told: dict[str, object] = {}
    with _site(gateway) as site:
        site.aws.start()
        told["laid"] = site.lay(gateway)
        told["again"] = site.lay(gateway)
        until(lambda: site.tellers == len(gateway.tunnels), 40, "one tunnel alone tells of the region")
        told["lost"] = _lost(site)
        told["restarts"] = {how: _restarted(site, how) for how in RESTARTS}
        told["fewer"] = site.lay(replace(gateway, tunnels=gateway.tunnels[1:]))
        told["bounds"] = _bounded(site)
    sys.stdout.write(json.dumps(told))


def _lost(site: KernelSite) -> dict[str, object]:
    """Lose the tunnel that packets go by; tell the longest silence, and what was in the clear meanwhile."""
    (lost,) = (one for one in site.gateway.tunnels if f"dev {one.device} " in site.way)
    with capture(site.internet, "c0") as wire:
        pings = pinging(site.desk, RACK)
        pings.wait_for_answer(10)
        moment = time()
        site.aws.lose(lost)
        until(lambda: any(one > moment + 1 for one in pings.answers.times), 60, "never came back")
        answers = pings.stop()
    told = {"tunnel": lost.device, "longest": answers.longest, "clear": len(packets(wire, _CLEAR)), **site.state()}
    site.aws.find()
    until(lambda: site.tellers == len(site.gateway.tunnels), 60, "the tunnel never came back")
    return told


def _restarted(site: KernelSite, how: str) -> dict[str, object]:
    with capture(site.internet, "c0") as wire:
        pings = pinging(site.desk, RACK)
        pings.wait_for_answer(10)
        checked(["systemctl", *how.split(), UNIT], seconds=120)
        moment = time()
        until(lambda: pings.answers.first_after(moment + 3) is not None, 60, "never came back")
        answers = pings.stop()
    return {"longest": answers.longest, "clear": len(packets(wire, _CLEAR)), "esp": len(packets(wire, "esp"))}


def _bounded(site: KernelSite) -> dict[str, object]:
    """Have the tunnels' programs kept to their bounds; tell what came up, and what without the role's additions did."""
    kernel_gateways.enforce()
    within = kernel_gateways.here()
    told: dict[str, object] = {"started": kernel_gateways.restarted()}
    until(lambda: site.desk.pings(RACK, 1), 60, "nothing passes within the bounds")
    told |= {"standing": kernel_gateways.standing(), "denied": kernel_gateways.denied(within)}
    taken, without = kernel_gateways.drop_additions(), kernel_gateways.here()
    told["bare"] = {"started": kernel_gateways.restarted(), "denied": kernel_gateways.denied(without)}
    kernel_gateways.put_back(taken)
    told["back"] = kernel_gateways.restarted()
    return told


@contextmanager
def _site(gateway: Gateway) -> Iterator[KernelSite]:
    with Lab("kernel") as lab:
        far, internet, desk, rack = (lab.host(name) for name in ("aws", "internet", "desk", "rack"))
        near = _itself(lab)
        first, second = (tunnel.far.outside for tunnel in gateway.tunnels)
        public = gateway.tunnels[0].near.outside
        lab.wire((internet, "c0", f"{public - 1}/24"), (near, "wan0", f"{public}/24"))
        lab.wire((internet, "a0", "203.0.113.1/24"), (far, "wan0", f"{first}/24"))
        far.run("ip", "address", "add", f"{second}/24", "dev", "wan0")
        near.route("203.0.113.0/24", public - 1)
        far.route("default", "203.0.113.1")
        lab.wire((near, "lan0", f"{gateway.address}/22"), (desk, "eth0", f"{DESK}/22"))
        assert gateway.address
        desk.route("default", gateway.address)
        lab.wire((far, "vpc0", "10.64.32.1/19"), (rack, "eth0", f"{RACK}/19"))
        rack.route("default", "10.64.32.1")
        internet.forward()
        far.forward()
        yield KernelSite(near, gateway, AwsKernelEnd(far, gateway, (VPC,)), internet, desk)


def _itself(lab: Lab) -> LabHost:
    """Return the machine's own network as a host of the laboratory."""
    name = f"{lab.folder.name}-itself"
    folder = lab.folder / "itself"
    folder.mkdir()
    checked(["ip", "netns", "attach", name, "1"])
    return LabHost("itself", name, folder)


if __name__ == "__main__":
    main()
