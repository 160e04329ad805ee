"""Tunnels that go, and engines that change: what is stopped, deleted and refused on a site's gateway."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gateway_tools import calls_of
from tests.support.laid import DAEMON, FIRST, KERNEL, TOGETHER, gateway_place, lying_in, shipment, without
from vpn.keeper.lay import lay
from vpn.keeper.place import Place
from vpn.keeper.trouble import Refusal
from vpn.sites.files import GUARD
from vpn.sites.gateway import Gateway


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a gateway that has the role, and programs that write down what they are asked."""
    return gateway_place(tmp_path, monkeypatch)


def test_a_tunnel_that_goes_takes_its_charon_along(place: Place) -> None:
    """Its units are stopped for good, its files and its folder go; the others are not touched."""
    lay(place, shipment(DAEMON))
    calls_of(place.root)

    done = lay(place, shipment(without(DAEMON, FIRST)))

    assert not (place.root / "etc/bedplate/ipsec" / FIRST).exists()
    assert f"/etc/systemd/system/bedplate-ipsec-{FIRST}.service" in done["removed"]
    calls = calls_of(place.root)
    assert any(call.startswith("systemctl disable --now") and f"{FIRST}-dial.service" in call for call in calls)
    assert not [call for call in calls if "try-" in call]


def test_a_tunnel_that_goes_from_a_charon_of_many_is_taken_down(place: Place) -> None:
    """New settings alone would leave it standing: its charon starts anew, and its device is deleted."""
    lay(place, shipment(KERNEL))
    gone = next(one for one in KERNEL.tunnels if one.name == FIRST)
    (place.root / "devices").write_text("".join(f"{one.device}@NONE UNKNOWN <NOARP,UP>\n" for one in KERNEL.tunnels))
    (place.root / "kernel").touch()
    calls_of(place.root)

    lay(place, shipment(without(KERNEL, FIRST)))

    calls = calls_of(place.root)
    assert [call for call in calls if call.startswith("ip ")] == [f"ip link delete {gone.device}"]
    assert f"systemctl try-restart {TOGETHER}.service" in calls


def test_devices_go_when_the_kernel_encrypts_no_more(place: Place) -> None:
    """A table names its tunnels whoever encrypts; no charon that encrypts by itself sends by the kernel's devices."""
    lay(place, shipment(KERNEL))
    devices = [one.device for one in KERNEL.tunnels]
    (place.root / "devices").write_text("".join(f"{one}@NONE UNKNOWN <NOARP,UP>\n" for one in devices))
    (place.root / "kernel").touch()
    calls_of(place.root)

    lay(place, shipment(DAEMON, may_change_engine=True))

    calls = calls_of(place.root)
    assert [call for call in calls if call.startswith("ip ")] == [f"ip link delete {one}" for one in devices]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(KERNEL, DAEMON, "can no more"), (DAEMON, KERNEL, "now the kernel would")],
    ids=["kernel-to-daemon", "daemon-to-kernel"],
)
def test_another_engine_is_refused_until_it_is_meant(before: Gateway, after: Gateway, told: str, place: Place) -> None:
    """All tunnels would go down at once: nothing is written or told before somebody says that it may be so."""
    lay(place, shipment(before))
    calls_of(place.root)
    lying = lying_in(place)

    with pytest.raises(Refusal, match=f"{told}.*--change-engine"):
        lay(place, shipment(after))
    assert lying_in(place) == lying
    lay(place, shipment(after, may_change_engine=True))
    assert any("disable --now" in call for call in calls_of(place.root))


def test_a_gateway_that_had_no_tunnel_takes_either_engine(place: Place) -> None:
    """Nothing stands that could go down: not on a fresh one, nor where the last tunnel went."""
    lay(place, shipment(KERNEL))
    lay(place, shipment(replace(KERNEL, tunnels=())))

    assert lay(place, shipment(DAEMON))["started"]


@pytest.mark.parametrize("gateway", [KERNEL, DAEMON], ids=["kernel", "daemon"])
def test_the_last_tunnel_that_goes_takes_all_along(gateway: Gateway, place: Place) -> None:
    """No charon, no neighbour in BGP and no device is left; the guard stays."""
    lay(place, shipment(gateway))
    (place.root / "devices").write_text(f"{gateway.tunnels[0].device}@NONE UNKNOWN <NOARP,UP>\n")
    (place.root / "kernel").touch()
    calls_of(place.root)

    lay(place, shipment(replace(gateway, tunnels=())))

    calls = calls_of(place.root)
    assert not list((place.root / "etc/bedplate/ipsec").iterdir())
    assert not list((place.root / "etc/systemd/system").glob("bedplate-ipsec-*"))
    assert "neighbor" not in (place.root / "etc/frr/frr.conf").read_text()
    assert f"ip link delete {gateway.tunnels[0].device}" in calls
    assert (place.root / str(GUARD).lstrip("/")).exists()
