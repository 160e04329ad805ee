"""What a gateway's keeper says of its tunnels, asked of the real daemon."""

from pathlib import Path

import pytest

from tests.testlab.network.gateways import one_key, pair
from tests.testlab.network.netlab import until
from vpn.keeper.status import SOCKETS, Answers, Tunnel, answers
from vpn.sites.files import STANDARD

pytestmark = pytest.mark.xdist_group("site-status")


def test_a_tunnel_is_told_by_what_it_carries() -> None:
    """Since when it stands, how much crossed and when last; down once the other end went, or its daemon did."""
    with pair(one_key()) as sites:
        sites.start()
        sites.wait()
        files, sockets = Path(sites.cellar.places.etc), Path(sites.cellar.places.run)

        (tunnel,) = answers(files, sockets).tunnels or ()
        assert tunnel.name == "attic"
        assert tunnel.age is not None
        assert tunnel.idle is not None
        assert min(tunnel.received, tunnel.sent) >= 84

        sites.cellar.swanctl("--terminate", "--ike", "attic", "--force")
        sites.attic.kill()
        until(lambda: _ages(answers(files, sockets)) == [None], 20, "the tunnel is not told to be down")
        assert answers(files, sockets).charons == {"tunnels": True}
        sites.cellar.kill()
        assert answers(files, sockets) == Answers({"tunnels": False}, (Tunnel("attic", None, 0, 0, None, "tunnels"),))


def _ages(told: Answers) -> list[int | None]:
    return [each.age for each in told.tunnels or ()]


def test_the_keeper_asks_where_the_daemons_listen() -> None:
    """The roles of tunnels and of the keeper mean one folder."""
    assert Path(STANDARD.run) == SOCKETS
