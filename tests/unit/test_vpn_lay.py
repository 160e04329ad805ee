"""Files of tunnels on a site's gateway: put in place whole, told to whom they concern, and nothing the second time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gateway_tools import calls_of
from tests.support.laid import FIRST, SITE, TOGETHER, gateway_place, lying_in, shipment, without
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


def test_every_file_lies_as_it_was_rendered(place: Place) -> None:
    """Text and mode, keys for root alone; charon is started, now and at each boot."""
    done = lay(place, shipment(SITE))

    lying = lying_in(place)
    assert {str(file.path): (file.text, file.mode) for file in files_of(SITE)}.items() <= lying.items()
    secret = [path for path, (text, mode) in lying.items() if b"key.of".hex() in text and mode != 0o600]
    assert not secret
    assert f"{TOGETHER}.service" in done["started"]
    assert calls_of(place.root)[-1].startswith("systemctl enable --now bedplate-guard.service")


def test_the_second_time_changes_nothing(place: Place) -> None:
    """No file is written, nothing is told to anybody, and it says so."""
    lay(place, shipment(SITE))
    calls_of(place.root)
    before = lying_in(place)

    done = lay(place, shipment(SITE))

    assert not any(done.values())
    assert all(call.startswith("systemctl enable") for call in calls_of(place.root))
    assert lying_in(place) == before


def test_the_guard_is_told_before_charon(place: Place) -> None:
    """Nothing is to pass before it stands."""
    lay(place, shipment(SITE))

    calls = calls_of(place.root)
    assert calls.index("systemctl reload-or-restart bedplate-guard.service") < min(
        number for number, call in enumerate(calls) if TOGETHER in call
    )


def test_a_block_that_leaves_the_plan_is_told_to_the_guard(place: Place) -> None:
    """Its unit takes rules and routes of last resort as they are written now, and charon is told nothing."""
    lay(place, shipment(SITE))
    calls_of(place.root)

    done = lay(place, shipment(replace(SITE, elsewhere=SITE.elsewhere[1:])))

    assert done["written"] == (str(GUARD), str(LAST_ROUTES))
    told = [call for call in calls_of(place.root) if call.startswith("systemctl") and "enable" not in call]
    assert told == ["systemctl reload-or-restart bedplate-guard.service"]


def test_a_new_key_is_read_as_charon_runs(place: Place) -> None:
    """It is reloaded, not restarted."""
    lay(place, shipment(SITE))
    calls_of(place.root)

    done = lay(place, shipment(_with_key(SITE, FIRST, b"another key")))

    assert done["written"] == ("/etc/bedplate/ipsec/tunnels/swanctl.conf",)
    told = [call for call in calls_of(place.root) if "enable" not in call]
    assert told == [f"systemctl try-reload-or-restart {TOGETHER}.service"]


def test_a_tunnel_more_disturbs_no_other(place: Place) -> None:
    """Charon is reloaded, not restarted; the service that dials reads the new table."""
    lay(place, shipment(without(SITE, FIRST)))
    calls_of(place.root)

    lay(place, shipment(SITE))

    told = [call for call in calls_of(place.root) if TOGETHER in call and "enable" not in call]
    watch = f"systemctl try-restart {TOGETHER}-dial.service"
    assert told == [f"systemctl try-reload-or-restart {TOGETHER}.service", watch]


def test_what_was_written_and_not_told_is_told_by_the_next(place: Place) -> None:
    """A power cut between the two: files that are in place already are told to their charon, which starts anew."""
    lay(place, shipment(SITE))
    path = "/etc/bedplate/ipsec/tunnels/swanctl.conf"
    place.unfinished.write_text(json.dumps([path]))
    calls_of(place.root)

    done = lay(place, shipment(SITE))

    assert done["written"] == ()
    assert f"systemctl try-restart {TOGETHER}.service" in calls_of(place.root)
    assert not place.unfinished.exists()


def test_what_does_not_start_is_told(place: Place) -> None:
    """Status 6, and the next run starts it."""
    (place.root / "broken").touch()

    with pytest.raises(Unfinished, match="systemctl enable --now"):
        lay(place, shipment(SITE))
    (place.root / "broken").unlink()

    assert f"{TOGETHER}.service" in lay(place, shipment(SITE))["started"]


def test_a_unit_that_was_stopped_by_hand_is_started(place: Place) -> None:
    """And is what the operator is told."""
    lay(place, shipment(SITE))
    active = place.root / "active"
    active.write_text(active.read_text().replace(f"{TOGETHER}.service\n", ""))

    assert lay(place, shipment(SITE)) == {"written": (), "removed": (), "started": (f"{TOGETHER}.service",)}


def _with_key(gateway: Gateway, name: str, key: bytes) -> Gateway:
    tunnels = tuple(replace(one, proof=SharedKey(key)) if one.name == name else one for one in gateway.tunnels)
    return replace(gateway, tunnels=tunnels)
