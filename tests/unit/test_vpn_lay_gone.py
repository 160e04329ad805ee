"""Tunnels that leave the plan: what is stopped and deleted on a site's gateway."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gateway_tools import calls_of
from tests.support.laid import FIRST, SITE, TOGETHER, gateway_place, shipment, without
from vpn.keeper.lay import lay
from vpn.keeper.place import Place
from vpn.sites.files import GUARD


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a gateway that has the role, and programs that write down what they are asked."""
    return gateway_place(tmp_path, monkeypatch)


def test_a_tunnel_that_goes_is_taken_down(place: Place) -> None:
    """New settings alone would leave it standing: charon is restarted, and its device is deleted."""
    lay(place, shipment(SITE))
    gone = next(one for one in SITE.tunnels if one.name == FIRST)
    (place.root / "devices").write_text("".join(f"{one.device}@NONE UNKNOWN <NOARP,UP>\n" for one in SITE.tunnels))
    calls_of(place.root)

    lay(place, shipment(without(SITE, FIRST)))

    calls = calls_of(place.root)
    assert [call for call in calls if call.startswith("ip ")] == [f"ip link delete {gone.device}"]
    assert f"systemctl try-restart {TOGETHER}.service" in calls


def test_the_last_tunnel_that_goes_takes_all_along(place: Place) -> None:
    """No daemon, no neighbour in BGP and no device is left; the guard stays."""
    lay(place, shipment(SITE))
    (place.root / "devices").write_text(f"{SITE.tunnels[0].device}@NONE UNKNOWN <NOARP,UP>\n")
    calls_of(place.root)

    lay(place, shipment(replace(SITE, tunnels=())))

    calls = calls_of(place.root)
    assert not list((place.root / "etc/bedplate/ipsec").iterdir())
    assert not list((place.root / "etc/systemd/system").glob("bedplate-ipsec-*"))
    assert "neighbor" not in (place.root / "etc/frr/frr.conf").read_text()
    assert f"ip link delete {SITE.tunnels[0].device}" in calls
    assert (place.root / str(GUARD).lstrip("/")).exists()
