"""Certificates revoked while they are in use, expiring revocation lists, and wrong clocks."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from time import sleep, time

import pytest

from bedplate.errors import BedplateError
from bedplate.nodes.apply import Target
from bedplate.plan.laptops import Transport
from tests.testlab.fleets.variants import lab_node
from tests.testlab.keys.authority import LabKeys, moment
from tests.testlab.network.laptops import MACHINE, NODE, PLACES, LaptopLab
from tests.testlab.network.netlab import LabError, pinging, until
from tests.testlab.run import clock_offset, clock_pace
from vpn.certificates import Use
from vpn.push import AccessList, access_list_text, push_access_list

ADA, DESK, BOB = "ada.laptop", "ada.desk", "bob.laptop"
HOME, SITE = PLACES
pytestmark = pytest.mark.xdist_group("laptops-revoke")


@pytest.fixture(scope="module")
def lab() -> Iterator[LaptopLab]:
    """Return a fleet with two running gateways."""
    with LaptopLab("revoke", ADA, DESK, BOB) as lab:
        for gateway in lab.gateways.values():
            gateway.start()
        yield lab


def _connect(lab: LaptopLab, name: str, *without: str) -> None:
    profile = lab.profile(name).splitlines()
    lab.laptops[name].connect("\n".join(line for line in profile if not line.endswith(without or ("nothing",))) + "\n")
    lab.laptops[name].wait()


def _push(lab: LaptopLab, access_list: AccessList, *cut: str) -> dict[str, BedplateError]:
    # Without SSH and sudo: the agent is called with the last word of the command.
    scripts = {place: f'exec {gateway.shell} "${{1##* }}"' for place, gateway in lab.gateways.items()}
    targets = {place: Target(lab_node("gate.cellar"), ("sh", "-c", script, "sh")) for place, script in scripts.items()}
    gateways = [gateway.gateway for gateway in lab.gateways.values()]
    return dict(push_access_list(gateways, access_list, targets, cut=cut).failures)


def _refusal(lab: LaptopLab, access_list: AccessList) -> str:
    with pytest.raises(LabError) as raised:
        lab.send(HOME, access_list)
    return str(raised.value)


def test_a_revoked_laptop_is_disconnected_everywhere_within_two_seconds(lab: LaptopLab) -> None:
    """Over UDP at one gateway and TCP at the other; it stays out, and other laptops lose no packet."""
    _connect(lab, ADA)
    _connect(lab, DESK, "52.1.2.3 1194 udp4", "52.1.2.3 443 tcp4", "8.20.30.40 1194 udp4")
    _connect(lab, BOB)
    ours = [pinging(lab.laptops[name].host, MACHINE) for name in (ADA, DESK)]
    bob = pinging(lab.laptops[BOB].host, NODE)
    for ping in (*ours, bob):
        ping.wait_for_answer(5)
    lab.keys.revoke(ADA)
    lab.keys.revoke(DESK)
    stay = tuple(laptop for laptop in lab.devices if laptop.name == BOB)

    start = time()
    failures = _push(lab, AccessList(lab.keys.revocations(), stay), ADA, DESK)
    done = time()
    # A closed TCP connection is dialled again immediately; over UDP the client notices silence after 20 s.
    until(lambda: "certificate revoked: CN=ada.desk" in lab.gateways[SITE].log(Transport.TCP), 20, "no refusal")
    lab.laptops[ADA].end()
    lab.laptops[ADA].connect(lab.laptops[ADA].profile)
    until(lambda: "certificate revoked: CN=ada.laptop" in lab.gateways[HOME].log(), 20, "no refusal")

    assert failures == {}
    assert done - start <= 2 * clock_pace()
    assert all(ping.stop().first_after(done) is None for ping in ours)
    answers = bob.stop()
    assert (answers.lost, len(answers.numbers) > 20) == (0, True)


def test_an_expired_revocation_list_rejects_all_until_the_next_one(lab: LaptopLab) -> None:
    """The drill: a new list opens the gateways again without a restart."""
    stay = tuple(laptop for laptop in lab.devices if laptop.name == BOB)
    gateway, bob = lab.gateways[HOME], lab.laptops[BOB]
    short = AccessList(lab.keys.revocations(timedelta(seconds=3)), stay)
    lab.send(HOME, short)
    sleep(4)
    bob.connect(lab.profile(BOB))

    until(lambda: "error=CRL has expired: CN=bob.laptop" in gateway.log(), 20, "no expiry in the log")
    assert not bob.host.pings(NODE, times=1, seconds=0.3)
    assert json.loads(gateway.call_agent("status"))["crl"] < time()
    assert "the revocation list expired on" in _refusal(lab, AccessList(short.crl, stay))

    lab.send(HOME, AccessList(lab.keys.revocations(), stay))
    _connect(lab, BOB)
    assert bob.host.pings(NODE)


def test_a_gateway_rejects_a_list_without_its_revocations(lab: LaptopLab) -> None:
    """An older list, one of another authority, or none: nothing is changed."""
    stay, settings = lab.devices, Path(lab.gateways[HOME].folders.settings)
    older = lab.keys.revocations()
    lab.send(HOME, AccessList(lab.keys.revocations(), stay))
    before = settings.joinpath("crl.pem").read_text()

    assert "is older than the active list" in _refusal(lab, AccessList(older, ()))
    assert "not signed by this gateway's authority" in _refusal(lab, AccessList(LabKeys().revocations(), ()))
    assert "openssl crl failed" in _refusal(lab, AccessList("nothing", ()))
    text = access_list_text(lab.gateways[HOME].gateway, AccessList(older, stay)).replace(ADA, "../ada")
    with pytest.raises(LabError, match=r"unexpected value .*\.\./ada"):
        lab.gateways[HOME].call_agent("activate", stdin=text)

    assert settings.joinpath("crl.pem").read_text() == before
    assert settings.joinpath("udp.laptops", ADA).exists()


def test_a_stolen_profile_is_disconnected_and_the_new_one_connects(lab: LaptopLab) -> None:
    """Also if the gateway was down while the laptop was revoked and added again."""
    gateway, thief, owner = lab.gateways[HOME], lab.laptops[ADA], lab.laptops[BOB]
    lab.send(HOME)
    _connect(lab, ADA)
    serial = lab.keys.revoke(ADA)
    profile = lab.profile(ADA)
    access_list = AccessList(lab.keys.revocations(), lab.devices, revoked={serial: ADA})
    refused = f"certificate revoked: CN={ADA}"
    before = gateway.log().count(refused)

    answer = lab.send(HOME, access_list)
    thief.end()
    thief.connect(thief.profile)
    until(lambda: gateway.log().count(refused) > before, 20, "no refusal")
    owner.connect(profile)
    owner.wait()

    assert answer["cut"] == {ADA: 1}
    assert owner.host.pings(NODE)
    assert lab.send(HOME, AccessList(lab.keys.revocations(), lab.devices, revoked={serial: ADA}))["cut"] == {}


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        ("-4m", ""),
        ("-1d", "error=certificate is not yet valid: CN=bob.laptop"),
        ("+100d", "error=certificate has expired: CN=bob.laptop"),
    ],
    ids=["four-minutes-behind", "a-day-behind", "a-hundred-days-ahead"],
)
def test_a_gateway_whose_clock_is_wrong(by: str, reason: str, lab: LaptopLab) -> None:
    """Minutes are tolerated, because certificates start five minutes earlier; with more, laptops are rejected."""
    gateway, bob = lab.gateways[HOME], lab.laptops[BOB]
    life = timedelta(days=400) if by.startswith("+") else timedelta(days=90)
    at = moment() - timedelta(days=2) if by == "-1d" else None
    lab.send(HOME, AccessList(lab.keys.revocations(life, at), lab.devices))
    profile = lab.profile(BOB)

    gateway.start(Transport.UDP, env=clock_offset(by))
    client = bob.connect(profile)

    if reason:
        until(lambda: reason in gateway.log(), 20, f"no log says {reason}")
        assert "Initialization Sequence Completed" not in client.output
    else:
        bob.wait()
        assert bob.host.pings(NODE)
    bob.end()
    gateway.start(Transport.UDP)


def test_a_laptop_whose_clock_is_a_year_behind_rejects_gateways(lab: LaptopLab) -> None:
    """Its log has the reason."""
    bob = lab.laptops[BOB]

    client = bob.connect(lab.profile(BOB), env=clock_offset("-365d"))

    until(lambda: "certificate is not yet valid" in client.output, 20, "the laptop does not say why")
    assert "Initialization Sequence Completed" not in client.output


def test_a_gateway_loads_a_new_certificate(lab: LaptopLab) -> None:
    """Its daemons restart; the same certificate restarts nothing, and an invalid one is rejected."""
    gateway, bob = lab.gateways[HOME], lab.laptops[BOB]
    name = gateway.gateway.name
    before = gateway.log().count("Initialization Sequence Completed")

    answer = lab.identify(HOME, Use.SERVER, name)

    assert answer["renewed"] is True
    until(lambda: gateway.log().count("Initialization Sequence Completed") == before + 1, 20, "it does not start anew")
    _connect(lab, BOB)
    assert bob.host.pings(NODE)
    with pytest.raises(LabError, match="certificate is not valid"):
        lab.identify(HOME, Use.CLIENT, name)
    assert lab.send(HOME)["renewed"] is False
