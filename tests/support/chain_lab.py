r"""The fleet of examples/lab.yaml with all of its tunnels: laptops dial gateways, and strongSwan joins region and site.

    node -- west -- aws == net == cellar -- machine
              \\== laptops ==//

Single lines are private, double ones the internet. AWS's end, its router among it, is a stand-in; the site's gateway
runs the product's own text for laptops and for tunnels on one machine. Never says how AWS itself behaves.
"""

from dataclasses import replace
from ipaddress import IPv4Address

from tests.support.aws_stand_in import AwsStandIn
from tests.support.lab_gateway import LabGateway
from tests.support.lab_router import LabRouter
from tests.support.laptop_lab import HERE, MACHINE, THERE, LaptopLab
from tests.support.netlab import LabHost
from tests.support.netlab_program import until
from tests.support.site_side import LAB, cellar
from vpn.sites.gateway import Gateway

REGION = "us-west-2"
_ROUTER, _NEXT = IPv4Address("169.254.9.2"), IPv4Address("198.51.100.2")


class ChainLab(LaptopLab):
    """The laboratory; `tunnels` are the site's own, `aws` stands at their other end."""

    tunnels: LabGateway
    aws: AwsStandIn

    def start(self) -> None:
        """Start AWS's end, then the site's as its units do, and each gateway's daemons for laptops."""
        self.aws.start()
        self.tunnels.lay()
        self.tunnels.guard()
        self.tunnels.start()
        LabRouter(self.tunnels.host).start((self.tunnels.host.folder / "root/etc/frr/frr.conf").read_text())
        for gateway in self.gateways.values():
            gateway.start()
        until(lambda: self.node.pings(MACHINE, 1), 60, f"region and site are not joined; {self.tunnels.log[-1500:]}")

    def _join(self, west: LabHost, gate: LabHost) -> None:
        gateway, far = _gateway(), self._lab.host("aws")
        self._lab.wire((west, "links0", f"{_ROUTER - 1}/30"), (far, "vpc0", f"{_ROUTER}/30"))
        self._lab.wire((self.net, "aws", f"{_NEXT - 1}/30"), (far, "wan0", f"{_NEXT}/30"))
        far.forward()
        for tunnel in gateway.tunnels:
            far.run("ip", "address", "add", f"{tunnel.far.outside}/32", "dev", "wan0")
            # And no default: what no tunnel takes, AWS's router drops.
            far.route(f"{tunnel.near.outside}/32", _NEXT - 1)
            self.net.route(f"{tunnel.far.outside}/32", _NEXT)
        for block in HERE:
            far.route(block, _ROUTER - 1)
        for block in THERE:
            west.route(block, _ROUTER)
        region = LAB.region(REGION)
        self.tunnels = LabGateway(gate, gateway)
        self.aws = AwsStandIn(far, gateway, (str(region.block), HERE[1]))


def _gateway() -> Gateway:
    """Return the site's gateway, with its tunnels to one region alone."""
    whole = cellar()
    return replace(whole, tunnels=tuple(one for one in whole.tunnels if one.name.startswith(REGION)))
