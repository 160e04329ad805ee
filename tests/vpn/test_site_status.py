"""What a gateway's keeper says of its tunnels, asked of the real daemon."""

from pathlib import Path

import pytest

from tests.support.lab_pair import one_key, pair
from tests.support.netlab_program import until
from vpn.keeper.tunnels import SOCKETS, tunnels
from vpn.sites.rendered import STANDARD

pytestmark = pytest.mark.xdist_group("site-status")


def test_a_tunnel_is_told_by_what_it_carries() -> None:
    """Since when it stands, how much crossed and when last; down once the other end went, unknown with no daemon."""
    with pair(one_key()) as sites:
        sites.start()
        sites.wait()
        folder = Path(sites.cellar.places.run)

        (tunnel,) = tunnels(folder) or ()
        assert tunnel.name == "attic"
        assert tunnel.age is not None
        assert tunnel.idle is not None
        assert min(tunnel.received, tunnel.sent) >= 84

        sites.cellar.swanctl("--terminate", "--ike", "attic", "--force")
        sites.attic.kill()
        until(lambda: [each.age for each in tunnels(folder) or ()] == [None], 20, "the tunnel is not told to be down")
        sites.cellar.kill()
        assert tunnels(folder) is None


def test_the_keeper_asks_where_the_daemons_listen() -> None:
    """The roles of tunnels and of the keeper mean one folder."""
    assert Path(STANDARD.run) == SOCKETS
