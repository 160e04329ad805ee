"""Files of tunnels on a site's gateway: put in place whole, told to whom they concern, and nothing the second time."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testlab.fakes.gateway import FIRST, SITE, TOGETHER, calls_of, gateway_place, lying_in, shipment, without
from vpn.keeper.lay import lay
from vpn.keeper.place import Place, Refusal, Unfinished, parse_shipment
from vpn.sites.files import GUARD, LAST_ROUTES, files_of
from vpn.sites.gateway import Gateway, SharedKey
from vpn.sites.push import shipment_text


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


def test_rules_that_would_not_load_change_nothing(place: Place) -> None:
    """The filter is asked first; what lay there before lies there still, and no key came to lie anywhere."""
    (place.root / "refused").touch()
    before = lying_in(place)

    with pytest.raises(Refusal, match="no packet filter"):
        lay(place, shipment(SITE))

    after = lying_in(place)
    after.pop("/calls")
    assert after == before


def test_a_gateway_without_the_role_is_refused(place: Place) -> None:
    """Before anything is written; the role is named."""
    (place.root / "etc/systemd/system/bedplate-guard.service").unlink()

    with pytest.raises(Refusal, match="apply the role guard first"):
        lay(place, shipment(SITE))

    assert not (place.root / "etc/bedplate").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: text[:-20], id="cut-short"),
        pytest.param(lambda _: "", id="nothing"),
        pytest.param(lambda _: '{"files": []}', id="no-files"),
        pytest.param(lambda text: text.replace(str(GUARD), "/etc/shadow"), id="elsewhere"),
        pytest.param(lambda text: text.replace("/etc/frr/frr.conf", "/etc/bedplate/ipsec/../../shadow"), id="upwards"),
        pytest.param(lambda text: text.replace('"mode": 384', '"mode": 2541'), id="setuid"),
    ],
)
def test_what_bedplate_never_sends_is_refused(spoil: Callable[[str], str], place: Place) -> None:
    """A line that was cut is one; nothing is written, and no word of it is told."""
    with pytest.raises(Refusal) as caught:
        lay(place, parse_shipment(spoil(shipment_text(SITE))))

    assert "key" not in str(caught.value)
    assert not (place.root / "etc/bedplate").exists()
