"""Files of tunnels on a site's gateway: put in place whole, told to whom they concern, and nothing the second time."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gateway_tools import calls_of, site_gateway_at, tools_before
from tests.support.site_side import LAB, cellar
from vpn.keeper.lay import lay
from vpn.keeper.place import Place
from vpn.keeper.shipment import Shipment, parse_shipment
from vpn.keeper.trouble import Refusal, Unfinished
from vpn.sites.carry import shipment_text
from vpn.sites.engine import Engine
from vpn.sites.files import GUARD, LAST_ROUTES, files_of
from vpn.sites.gateway import Gateway
from vpn.sites.kept import keeping_gateway
from vpn.sites.proof import SharedKey

KERNEL, DAEMON = cellar(Engine.KERNEL), cellar(Engine.DAEMON)
TOGETHER = "bedplate-ipsec-tunnels"
FIRST = "us-west-2-1"
NAMES = frozenset(tunnel.name for tunnel in KERNEL.tunnels)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a gateway that has the role, and programs that write down what they are asked."""
    tools_before(tmp_path / "tools", monkeypatch)
    root = site_gateway_at(tmp_path / "gateway")
    monkeypatch.setenv("GATEWAY", str(root))
    return Place(memory=root / "var/lib/bedplate-vpn", root=root)


def _shipment(gateway: Gateway, *, may_change_engine: bool = False) -> Shipment:
    found = parse_shipment(shipment_text(gateway, may_change_engine=may_change_engine))
    assert found
    return found


def _with_key(gateway: Gateway, name: str, key: bytes) -> Gateway:
    tunnels = tuple(replace(one, proof=SharedKey(key)) if one.name == name else one for one in gateway.tunnels)
    return replace(gateway, tunnels=tunnels)


def _without(gateway: Gateway, name: str) -> Gateway:
    return replace(gateway, tunnels=tuple(one for one in gateway.tunnels if one.name != name))


def _lying(place: Place) -> dict[str, tuple[str, int]]:
    found = [each for each in place.root.rglob("*") if each.is_file()]
    return {f"/{each.relative_to(place.root)}": (each.read_text(), each.stat().st_mode & 0o777) for each in found}


@pytest.mark.parametrize("gateway", [KERNEL, DAEMON], ids=["kernel", "daemon"])
def test_every_file_lies_as_it_was_rendered(gateway: Gateway, place: Place) -> None:
    """Text and mode, keys for root alone; every charon and its timer is started, now and at each boot."""
    done = lay(place, _shipment(gateway))

    lying = _lying(place)
    assert {str(file.path): (file.text, file.mode) for file in files_of(gateway)}.items() <= lying.items()
    secret = [path for path, (text, mode) in lying.items() if b"key.of".hex() in text and mode != 0o600]
    assert not secret
    assert {f"bedplate-ipsec-{each.name}.service" for each in gateway.charons} <= set(done["started"])
    assert calls_of(place.root)[-1].startswith("systemctl enable --now bedplate-guard.service")


@pytest.mark.parametrize("gateway", [KERNEL, DAEMON], ids=["kernel", "daemon"])
def test_the_second_time_changes_nothing(gateway: Gateway, place: Place) -> None:
    """No file is written, nothing is told to anybody, and it says so."""
    lay(place, _shipment(gateway))
    calls_of(place.root)
    before = _lying(place)

    done = lay(place, _shipment(gateway))

    assert not any(done.values())
    assert all(call.startswith("systemctl enable") for call in calls_of(place.root))
    assert _lying(place) == before


def test_the_guard_is_told_before_any_charon(place: Place) -> None:
    """Nothing is to pass before it stands."""
    lay(place, _shipment(KERNEL))

    calls = calls_of(place.root)
    assert calls.index("systemctl reload-or-restart bedplate-guard.service") < min(
        number for number, call in enumerate(calls) if TOGETHER in call
    )


def test_a_block_that_leaves_the_plan_is_told_to_the_guard(place: Place) -> None:
    """Its unit takes rules and routes of last resort as they are written now, and no charon is told."""
    lay(place, _shipment(KERNEL))
    calls_of(place.root)

    done = lay(place, _shipment(replace(KERNEL, elsewhere=KERNEL.elsewhere[1:])))

    assert done["written"] == (str(GUARD), str(LAST_ROUTES))
    told = [call for call in calls_of(place.root) if call.startswith("systemctl") and "enable" not in call]
    assert told == ["systemctl reload-or-restart bedplate-guard.service"]


def test_a_new_key_reloads_its_own_charon_alone(place: Place) -> None:
    """No other tunnel loses a packet."""
    lay(place, _shipment(DAEMON))
    calls_of(place.root)

    done = lay(place, _shipment(_with_key(DAEMON, FIRST, b"another key")))

    assert done["written"] == (f"/etc/bedplate/ipsec/{FIRST}/swanctl.conf",)
    told = [call for call in calls_of(place.root) if "enable" not in call]
    assert told == [f"systemctl try-reload-or-restart bedplate-ipsec-{FIRST}.service"]


@pytest.mark.parametrize("engine", [Engine.KERNEL, Engine.DAEMON])
def test_far_ends_that_nobody_was_asked_for_stay_as_they_are(engine: Engine, place: Place) -> None:
    """Their addresses and keys are those that lie here, in every file; nothing else of what was sent is another."""
    lay(place, _shipment(cellar(engine)))
    calls_of(place.root)
    before = _lying(place)

    done = lay(place, _shipment(keeping_gateway(LAB, LAB.sites[0], (), engine, NAMES)))

    assert not any(done.values())
    calls_of(place.root)
    assert _lying(place) == before


def test_they_stay_where_somebody_else_encrypts_from_now_on(place: Place) -> None:
    """Each is found, whichever charon had it."""
    lay(place, _shipment(KERNEL))

    lay(place, _shipment(keeping_gateway(LAB, LAB.sites[0], (), Engine.DAEMON, NAMES), may_change_engine=True))

    lying = _lying(place)
    assert {str(file.path): (file.text, file.mode) for file in files_of(DAEMON)}.items() <= lying.items()


def test_a_far_end_that_is_not_here_is_refused(place: Place) -> None:
    """Nothing is written: words in its place would be dialled."""
    lay(place, _shipment(_without(KERNEL, FIRST)))
    before = _lying(place)

    with pytest.raises(Refusal, match=f"no tunnel {FIRST} with a key here"):
        lay(place, _shipment(keeping_gateway(LAB, LAB.sites[0], (), Engine.KERNEL, NAMES)))

    assert _lying(place) == before


def test_a_tunnel_that_goes_takes_its_charon_along(place: Place) -> None:
    """Its units are stopped for good, its files and its folder go; the others are not touched."""
    lay(place, _shipment(DAEMON))
    calls_of(place.root)

    done = lay(place, _shipment(_without(DAEMON, FIRST)))

    assert not (place.root / "etc/bedplate/ipsec" / FIRST).exists()
    assert f"/etc/systemd/system/bedplate-ipsec-{FIRST}.service" in done["removed"]
    calls = calls_of(place.root)
    assert any(call.startswith("systemctl disable --now") and f"{FIRST}-dial.service" in call for call in calls)
    assert not [call for call in calls if "try-" in call]


def test_a_tunnel_that_goes_from_a_charon_of_many_is_taken_down(place: Place) -> None:
    """New settings alone would leave it standing: its charon starts anew, and its device is deleted."""
    lay(place, _shipment(KERNEL))
    gone = next(one for one in KERNEL.tunnels if one.name == FIRST)
    (place.root / "devices").write_text("".join(f"{one.device}@NONE UNKNOWN <NOARP,UP>\n" for one in KERNEL.tunnels))
    (place.root / "kernel").touch()
    calls_of(place.root)

    lay(place, _shipment(_without(KERNEL, FIRST)))

    calls = calls_of(place.root)
    assert [call for call in calls if call.startswith("ip ")] == [f"ip link delete {gone.device}"]
    assert f"systemctl try-restart {TOGETHER}.service" in calls


def test_devices_go_when_the_kernel_encrypts_no_more(place: Place) -> None:
    """A table names its tunnels whoever encrypts; no charon that encrypts by itself sends by the kernel's devices."""
    lay(place, _shipment(KERNEL))
    devices = [one.device for one in KERNEL.tunnels]
    (place.root / "devices").write_text("".join(f"{one}@NONE UNKNOWN <NOARP,UP>\n" for one in devices))
    (place.root / "kernel").touch()
    calls_of(place.root)

    lay(place, _shipment(DAEMON, may_change_engine=True))

    calls = calls_of(place.root)
    assert [call for call in calls if call.startswith("ip ")] == [f"ip link delete {one}" for one in devices]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(KERNEL, DAEMON, "can no more"), (DAEMON, KERNEL, "now the kernel would")],
    ids=["kernel-to-daemon", "daemon-to-kernel"],
)
def test_another_engine_is_refused_until_it_is_meant(before: Gateway, after: Gateway, told: str, place: Place) -> None:
    """All tunnels would go down at once: nothing is written or told before somebody says that it may be so."""
    lay(place, _shipment(before))
    calls_of(place.root)
    lying = _lying(place)

    with pytest.raises(Refusal, match=f"{told}.*--change-engine"):
        lay(place, _shipment(after))
    assert _lying(place) == lying
    lay(place, _shipment(after, may_change_engine=True))
    assert any("disable --now" in call for call in calls_of(place.root))


def test_a_gateway_that_had_no_tunnel_takes_either_engine(place: Place) -> None:
    """Nothing stands that could go down: not on a fresh one, nor where the last tunnel went."""
    lay(place, _shipment(KERNEL))
    lay(place, _shipment(replace(KERNEL, tunnels=())))

    assert lay(place, _shipment(DAEMON))["started"]


@pytest.mark.parametrize("gateway", [KERNEL, DAEMON], ids=["kernel", "daemon"])
def test_the_last_tunnel_that_goes_takes_all_along(gateway: Gateway, place: Place) -> None:
    """No charon, no neighbour in BGP and no device is left; the guard stays."""
    lay(place, _shipment(gateway))
    (place.root / "devices").write_text(f"{gateway.tunnels[0].device}@NONE UNKNOWN <NOARP,UP>\n")
    (place.root / "kernel").touch()
    calls_of(place.root)

    lay(place, _shipment(replace(gateway, tunnels=())))

    calls = calls_of(place.root)
    assert not list((place.root / "etc/bedplate/ipsec").iterdir())
    assert not list((place.root / "etc/systemd/system").glob("bedplate-ipsec-*"))
    assert "neighbor" not in (place.root / "etc/frr/frr.conf").read_text()
    assert f"ip link delete {gateway.tunnels[0].device}" in calls
    assert (place.root / str(GUARD).lstrip("/")).exists()


def test_a_tunnel_more_disturbs_no_other(place: Place) -> None:
    """The charon that serves them all is told of it, and is not started anew; what looks after them reads of it."""
    lay(place, _shipment(_without(KERNEL, FIRST)))
    calls_of(place.root)

    lay(place, _shipment(KERNEL))

    told = [call for call in calls_of(place.root) if TOGETHER in call and "enable" not in call]
    watch = f"systemctl try-restart {TOGETHER}-dial.service"
    assert told == [f"systemctl try-reload-or-restart {TOGETHER}.service", watch]


def test_rules_that_would_not_load_change_nothing(place: Place) -> None:
    """The filter is asked first; what lay there before lies there still, and no key came to lie anywhere."""
    (place.root / "refused").touch()
    before = _lying(place)

    with pytest.raises(Refusal, match="no packet filter"):
        lay(place, _shipment(KERNEL))

    after = _lying(place)
    after.pop("/calls")
    assert after == before


def test_what_was_written_and_not_told_is_told_by_the_next(place: Place) -> None:
    """A power cut between the two: files that are in place already are told to their charon, which starts anew."""
    lay(place, _shipment(DAEMON))
    path = f"/etc/bedplate/ipsec/{FIRST}/swanctl.conf"
    place.unfinished.write_text(json.dumps([path]))
    calls_of(place.root)

    done = lay(place, _shipment(DAEMON))

    assert done["written"] == ()
    assert f"systemctl try-restart bedplate-ipsec-{FIRST}.service" in calls_of(place.root)
    assert not place.unfinished.exists()


def test_what_does_not_start_is_told(place: Place) -> None:
    """Status 6, and the next run starts it."""
    (place.root / "broken").touch()

    with pytest.raises(Unfinished, match="systemctl enable --now"):
        lay(place, _shipment(KERNEL))
    (place.root / "broken").unlink()

    assert f"{TOGETHER}.service" in lay(place, _shipment(KERNEL))["started"]


def test_a_unit_that_was_stopped_by_hand_is_started(place: Place) -> None:
    """And is what the operator is told."""
    lay(place, _shipment(KERNEL))
    active = place.root / "active"
    active.write_text(active.read_text().replace(f"{TOGETHER}.service\n", ""))

    assert lay(place, _shipment(KERNEL)) == {"written": (), "removed": (), "started": (f"{TOGETHER}.service",)}


def test_a_gateway_without_the_role_is_refused(place: Place) -> None:
    """Before anything is written; the role is named."""
    (place.root / "etc/systemd/system/bedplate-guard.service").unlink()

    with pytest.raises(Refusal, match="apply the role guard first"):
        lay(place, _shipment(KERNEL))

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
        lay(place, parse_shipment(spoil(shipment_text(KERNEL))))

    assert "key" not in str(caught.value)
    assert not (place.root / "etc/bedplate").exists()
