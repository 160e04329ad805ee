"""Files of tunnels on a site's gateway: put in place whole, told to whom they concern, and nothing the second time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gateway_tools import calls_of
from tests.support.laid import DAEMON, FIRST, KERNEL, TOGETHER, gateway_place, lying_in, shipment, without
from vpn.keeper.lay import lay
from vpn.keeper.place import Place
from vpn.keeper.trouble import Unfinished
from vpn.sites.files import GUARD, LAST_ROUTES, files_of
from vpn.sites.gateway import Gateway
from vpn.sites.proof import SharedKey


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a gateway that has the role, and programs that write down what they are asked."""
    return gateway_place(tmp_path, monkeypatch)


@pytest.mark.parametrize("gateway", [KERNEL, DAEMON], ids=["kernel", "daemon"])
def test_every_file_lies_as_it_was_rendered(gateway: Gateway, place: Place) -> None:
    """Text and mode, keys for root alone; every charon and its timer is started, now and at each boot."""
    done = lay(place, shipment(gateway))

    lying = lying_in(place)
    assert {str(file.path): (file.text, file.mode) for file in files_of(gateway)}.items() <= lying.items()
    secret = [path for path, (text, mode) in lying.items() if b"key.of".hex() in text and mode != 0o600]
    assert not secret
    assert {f"bedplate-ipsec-{each.name}.service" for each in gateway.charons} <= set(done["started"])
    assert calls_of(place.root)[-1].startswith("systemctl enable --now bedplate-guard.service")


@pytest.mark.parametrize("gateway", [KERNEL, DAEMON], ids=["kernel", "daemon"])
def test_the_second_time_changes_nothing(gateway: Gateway, place: Place) -> None:
    """No file is written, nothing is told to anybody, and it says so."""
    lay(place, shipment(gateway))
    calls_of(place.root)
    before = lying_in(place)

    done = lay(place, shipment(gateway))

    assert not any(done.values())
    assert all(call.startswith("systemctl enable") for call in calls_of(place.root))
    assert lying_in(place) == before


def test_the_guard_is_told_before_any_charon(place: Place) -> None:
    """Nothing is to pass before it stands."""
    lay(place, shipment(KERNEL))

    calls = calls_of(place.root)
    assert calls.index("systemctl reload-or-restart bedplate-guard.service") < min(
        number for number, call in enumerate(calls) if TOGETHER in call
    )


def test_a_block_that_leaves_the_plan_is_told_to_the_guard(place: Place) -> None:
    """Its unit takes rules and routes of last resort as they are written now, and no charon is told."""
    lay(place, shipment(KERNEL))
    calls_of(place.root)

    done = lay(place, shipment(replace(KERNEL, elsewhere=KERNEL.elsewhere[1:])))

    assert done["written"] == (str(GUARD), str(LAST_ROUTES))
    told = [call for call in calls_of(place.root) if call.startswith("systemctl") and "enable" not in call]
    assert told == ["systemctl reload-or-restart bedplate-guard.service"]


def test_a_new_key_reloads_its_own_charon_alone(place: Place) -> None:
    """No other tunnel loses a packet."""
    lay(place, shipment(DAEMON))
    calls_of(place.root)

    done = lay(place, shipment(_with_key(DAEMON, FIRST, b"another key")))

    assert done["written"] == (f"/etc/bedplate/ipsec/{FIRST}/swanctl.conf",)
    told = [call for call in calls_of(place.root) if "enable" not in call]
    assert told == [f"systemctl try-reload-or-restart bedplate-ipsec-{FIRST}.service"]


def test_a_tunnel_more_disturbs_no_other(place: Place) -> None:
    """The charon that serves them all is told of it, and is not started anew; what looks after them reads of it."""
    lay(place, shipment(without(KERNEL, FIRST)))
    calls_of(place.root)

    lay(place, shipment(KERNEL))

    told = [call for call in calls_of(place.root) if TOGETHER in call and "enable" not in call]
    watch = f"systemctl try-restart {TOGETHER}-dial.service"
    assert told == [f"systemctl try-reload-or-restart {TOGETHER}.service", watch]


def test_what_was_written_and_not_told_is_told_by_the_next(place: Place) -> None:
    """A power cut between the two: files that are in place already are told to their charon, which starts anew."""
    lay(place, shipment(DAEMON))
    path = f"/etc/bedplate/ipsec/{FIRST}/swanctl.conf"
    place.unfinished.write_text(json.dumps([path]))
    calls_of(place.root)

    done = lay(place, shipment(DAEMON))

    assert done["written"] == ()
    assert f"systemctl try-restart bedplate-ipsec-{FIRST}.service" in calls_of(place.root)
    assert not place.unfinished.exists()


def test_what_does_not_start_is_told(place: Place) -> None:
    """Status 6, and the next run starts it."""
    (place.root / "broken").touch()

    with pytest.raises(Unfinished, match="systemctl enable --now"):
        lay(place, shipment(KERNEL))
    (place.root / "broken").unlink()

    assert f"{TOGETHER}.service" in lay(place, shipment(KERNEL))["started"]


def test_a_unit_that_was_stopped_by_hand_is_started(place: Place) -> None:
    """And is what the operator is told."""
    lay(place, shipment(KERNEL))
    active = place.root / "active"
    active.write_text(active.read_text().replace(f"{TOGETHER}.service\n", ""))

    assert lay(place, shipment(KERNEL)) == {"written": (), "removed": (), "started": (f"{TOGETHER}.service",)}


def _with_key(gateway: Gateway, name: str, key: bytes) -> Gateway:
    tunnels = tuple(replace(one, proof=SharedKey(key)) if one.name == name else one for one in gateway.tunnels)
    return replace(gateway, tunnels=tunnels)
