"""The status that the gateway agent reads from a real charon."""

from pathlib import Path

import pytest

from bedplate.programs.gateway.paths import TUNNEL_TABLE
from bedplate.programs.gateway.status import CHARON_SOCKET, Charon, Tunnel, read_charon
from tests.testlab.network.gateways import one_key, pair
from tests.testlab.network.netlab import until
from vpn.sites.files import STANDARD

pytestmark = pytest.mark.xdist_group("site-status")


def test_tunnel_status_follows_the_real_daemon() -> None:
    """Age, bytes and idle time are reported; the tunnel is down after the other end or the daemon has stopped."""
    with pair(one_key()) as sites:
        sites.start()
        sites.wait()
        table, socket = Path(sites.cellar.places.table), Path(sites.cellar.places.run) / "tunnels.vici"

        (tunnel,) = read_charon(table, socket).tunnels or ()
        assert tunnel.name == "attic"
        assert tunnel.age is not None
        assert tunnel.idle is not None
        assert min(tunnel.received, tunnel.sent) >= 84

        sites.cellar.swanctl("--terminate", "--ike", "attic", "--force")
        sites.attic.kill()
        until(lambda: _ages(read_charon(table, socket)) == [None], 20, "the tunnel is still reported as up")
        assert read_charon(table, socket).answers is True
        sites.cellar.kill()
        assert read_charon(table, socket) == Charon(answers=False, tunnels=(Tunnel("attic", None, 0, 0, None),))


def _ages(charon: Charon) -> list[int | None]:
    return [tunnel.age for tunnel in charon.tunnels or ()]


def test_the_agent_uses_the_paths_of_the_daemons() -> None:
    """The roles of tunnels and of the agent use the same table and socket."""
    assert STANDARD.socket == f"unix://{CHARON_SOCKET}"
    assert str(STANDARD.table) == TUNNEL_TABLE
