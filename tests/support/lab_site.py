"""A site of the plan in a laboratory: its gateway with both tunnels to a region, and AWS's stand-in at the other end.

desk -- cellar == internet == aws -- rack
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.support.aws_stand_in import AwsStandIn
from tests.support.lab_gateway import LabGateway
from tests.support.lab_router import LabRouter
from tests.support.netlab import Lab, LabHost
from tests.support.netlab_program import until
from tests.support.site_side import LAB, cellar

DESK, RACK = "192.168.40.21", "10.64.32.9"
REGION = "us-west-2"
# What AWS tells is more than the plan holds: neither is to be believed.
STRAY = ("192.168.40.0/24", "203.0.112.0/24")


@dataclass(frozen=True)
class SiteLab:
    """The laboratory."""

    site: LabGateway
    router: LabRouter
    aws: AwsStandIn
    internet: LabHost
    desk: LabHost
    rack: LabHost

    def start(self) -> None:
        """Start AWS's end, then the site's as its units do."""
        self.aws.start()
        self.site.lay()
        self.site.guard()
        self.site.start()
        self.router.start((self.site.host.folder / "root/etc/frr/frr.conf").read_text())

    def wait(self, seconds: float = 60) -> float:
        """Wait until the rack answers the desk."""
        return until(lambda: self.desk.pings(RACK, 1), seconds, f"nothing passes; {self.site.log[-1500:]}")

    @property
    def routes(self) -> str:
        """The site's routes that BGP told."""
        return self.site.host.run("ip", "route", "show", "proto", "bgp")


@contextmanager
def site_lab() -> Iterator[SiteLab]:
    """Give the laboratory, wired, with nothing started yet."""
    with Lab("site") as lab:
        near, internet, desk = (lab.host(name) for name in ("cellar", "internet", "desk"))
        reach_internet(lab, internet, near)
        lab.wire((near, "lan0", "192.168.40.1/22"), (desk, "eth0", f"{DESK}/22"))
        desk.route("default", "192.168.40.1")
        yield opposite_aws(lab, near, internet, desk)


def reach_internet(lab: Lab, internet: LabHost, host: LabHost) -> None:
    """Wire what has the site's public address to the internet."""
    public = LAB.sites[0].public
    lab.wire((internet, "c0", f"{public - 1}/24"), (host, "wan0", f"{public}/24"))
    host.route("default", public - 1)


def opposite_aws(lab: Lab, near: LabHost, internet: LabHost, desk: LabHost) -> SiteLab:
    """Return the laboratory of a site that is wired: AWS's stand-in and a machine behind it stand at the other end."""
    gateway = cellar()
    gateway = replace(gateway, tunnels=tuple(one for one in gateway.tunnels if one.name.startswith(REGION)))
    far, rack = lab.host("aws"), lab.host("rack")
    lab.wire((internet, "a0", "203.0.113.1/24"), (far, "wan0", f"{gateway.tunnels[0].far.outside}/24"))
    far.run("ip", "address", "add", f"{gateway.tunnels[1].far.outside}/24", "dev", "wan0")
    far.route("default", "203.0.113.1")
    lab.wire((far, "vpc0", "10.64.32.1/19"), (rack, "eth0", f"{RACK}/19"))
    rack.route("default", "10.64.32.1")
    internet.forward()
    far.forward()
    blocks = (str(LAB.region(REGION).block), *STRAY)
    return SiteLab(LabGateway(near, gateway), LabRouter(near), AwsStandIn(far, gateway, blocks), internet, desk, rack)
