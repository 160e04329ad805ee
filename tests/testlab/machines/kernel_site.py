"""Tests of a site gateway with kernel encryption; `python -m tests.testlab.machines.kernel_site` prints JSON.

Runs on the gateway itself, which has its roles and systemd. The AWS endpoint, the internet and two hosts are network
namespaces. Needs only the standard library and Jinja2.
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
from vpn.push import config_bundle_text
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
    """The gateway under test (`near`), and the simulated hosts around it."""

    near: LabHost
    gateway: Gateway
    aws: AwsKernelEnd
    internet: LabHost
    desk: LabHost

    def push(self, gateway: Gateway) -> dict[str, object]:
        """Push the tunnels to the gateway, wait until packets pass, and return the changes and the new state."""
        changes = json.loads(checked(["bedplate-vpn", "apply"], config_bundle_text(gateway), seconds=300))
        until(lambda: self.desk.pings(RACK, 1), 60, "no packets pass")
        return {"done": changes, **self.state()}

    @property
    def route(self) -> str:
        """The route to the region."""
        return checked(["ip", "route", "get", RACK])

    def state(self) -> dict[str, object]:
        """Return the tunnel interfaces by type, and the route to the region."""
        listings = {kind: checked(["ip", "-brief", "link", "show", "type", kind]) for kind in ("xfrm", "tun")}
        devices = {
            kind: [line.split("@")[0].split()[0] for line in text.splitlines()] for kind, text in listings.items()
        }
        return {"devices": devices, "route": self.route}

    @property
    def announcements(self) -> int:
        """The number of BGP peers that announce the region's block."""
        table = checked(["vtysh", "-c", f"show bgp ipv4 unicast {VPC}"])
        return sum(f"from {tunnel.far.inside.ip} " in table for tunnel in self.gateway.tunnels if tunnel.far.inside)


def main() -> None:
    """Run all tests in order, and print the results."""
    gateway: Gateway = pickle.loads(GATEWAY.read_bytes())  # noqa: S301  our own, of a moment ago
    results: dict[str, object] = {}
    with _site(gateway) as site:
        site.aws.start()
        results["pushed"] = site.push(gateway)
        results["again"] = site.push(gateway)
        until(lambda: site.announcements == len(gateway.tunnels), 40, "only one tunnel announces the region")
        results["lost"] = _lose_tunnel(site)
        results["restarts"] = {command: _restart_charon(site, command) for command in RESTARTS}
        results["fewer"] = site.push(replace(gateway, tunnels=gateway.tunnels[1:]))
        results["apparmor"] = _enforce_apparmor(site)
    sys.stdout.write(json.dumps(results))


def _lose_tunnel(site: KernelSite) -> dict[str, object]:
    """Lose the tunnel in use; return the longest outage, and the number of unencrypted packets."""
    (lost,) = (tunnel for tunnel in site.gateway.tunnels if f"dev {tunnel.device} " in site.route)
    with capture(site.internet, "c0") as wire:
        pings = pinging(site.desk, RACK)
        pings.wait_for_answer(10)
        moment = time()
        site.aws.lose(lost)
        until(
            lambda: any(answered > moment + 1 for answered in pings.answers.times),
            60,
            "no packets pass by the other tunnel",
        )
        answers = pings.stop()
    result = {"tunnel": lost.device, "longest": answers.longest, "clear": len(packets(wire, _CLEAR)), **site.state()}
    site.aws.find()
    until(lambda: site.announcements == len(site.gateway.tunnels), 60, "the lost tunnel did not come back")
    return result


def _restart_charon(site: KernelSite, command: str) -> dict[str, object]:
    with capture(site.internet, "c0") as wire:
        pings = pinging(site.desk, RACK)
        pings.wait_for_answer(10)
        checked(["systemctl", *command.split(), UNIT], seconds=120)
        moment = time()
        until(lambda: pings.answers.first_after(moment + 3) is not None, 60, "no packets pass after the restart")
        answers = pings.stop()
    return {"longest": answers.longest, "clear": len(packets(wire, _CLEAR)), "esp": len(packets(wire, "esp"))}


def _enforce_apparmor(site: KernelSite) -> dict[str, object]:
    """Enforce AppArmor; return whether tunnels start and what is denied, with and without the role's additions."""
    kernel_gateways.enforce()
    cursor = kernel_gateways.journal_cursor()
    result: dict[str, object] = {"started": kernel_gateways.restart_charon()}
    until(lambda: site.desk.pings(RACK, 1), 60, "no packets pass with AppArmor")
    result |= {"confinement": kernel_gateways.confinement(), "denied": kernel_gateways.denied(cursor)}
    additions, cursor = kernel_gateways.drop_additions(), kernel_gateways.journal_cursor()
    result["bare"] = {"started": kernel_gateways.restart_charon(), "denied": kernel_gateways.denied(cursor)}
    kernel_gateways.restore_additions(additions)
    result["restored"] = kernel_gateways.restart_charon()
    return result


@contextmanager
def _site(gateway: Gateway) -> Iterator[KernelSite]:
    with Lab("kernel") as lab:
        far, internet, desk, rack = (lab.host(name) for name in ("aws", "internet", "desk", "rack"))
        near = _own_network(lab)
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


def _own_network(lab: Lab) -> LabHost:
    """Return the network of this machine as a host of the network lab."""
    name = f"{lab.folder.name}-itself"
    folder = lab.folder / "itself"
    folder.mkdir()
    checked(["ip", "netns", "attach", name, "1"])
    return LabHost("itself", name, folder)


if __name__ == "__main__":
    main()
