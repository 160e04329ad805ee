"""What a gateway says of BGP: each neighbour of its own file, as FRR tells of it, or as one that is down."""

from pathlib import Path

import pytest

from tests.support.site_side import cellar
from vpn.keeper.bgp import Neighbour, neighbours, spoken
from vpn.sites.bgp import bgp_of

NAMED = [("169.254.64.1", "us-west-2-1"), ("169.254.64.5", "us-west-2-2")]
# As FRR 8.4.4 prints both, with the word that it leaves at the end of the second.
TOLD = """{
  "routerId":"192.168.40.1",
  "peers":{
    "169.254.64.1":{"remoteAs":64600, "peerUptimeMsec":5900, "pfxRcd":1, "state":"Established"},
    "169.254.64.5":{"remoteAs":64600, "peerUptimeMsec":0, "pfxRcd":0, "state":"Active"}
  },
  "totalPeers":2
}
{
 "vrfName": "default",
 "routes": { "10.64.0.0/16": [{"valid":true,"peerId":"169.254.64.1"},{"valid":true,"peerId":"169.254.64.9"}]
,"192.168.40.0/22": [{"valid":true,"peerId":"(unspec)"}]}
 }  }
"""
DOWN = tuple(Neighbour(tunnel, None, ()) for _, tunnel in NAMED)


def test_a_neighbour_is_told_by_its_tunnel_with_what_it_tells() -> None:
    """One that is dialled and does not answer is down; the gateway's own blocks are nobody's."""
    assert spoken(NAMED, TOLD) == (Neighbour("us-west-2-1", 5, ("10.64.0.0/16",)), DOWN[1])


@pytest.mark.parametrize(
    "told", ["", "Exiting: failed to connect to any daemons.\n", "{}\n{}\n", TOLD[:200], '{"peers": []}', "{"]
)
def test_neighbours_of_daemons_that_say_nothing_are_down(told: str) -> None:
    """Silence is no health."""
    assert spoken(NAMED, told) == DOWN


def test_neighbours_are_those_of_the_gateways_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the product writes it, each by its tunnel; a gateway without such a file has none."""
    site = cellar()
    file, written = tmp_path / "frr.conf", bgp_of(site)
    assert written
    file.write_text(written.text)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert neighbours(file) == tuple(Neighbour(each.name, None, ()) for each in site.tunnels)
    assert neighbours(tmp_path / "nothing") == ()
