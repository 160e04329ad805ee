"""Keys that are taken back while they are in use, lists that come to their end, and clocks that are wrong."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import sleep, time

import pytest

from bedplate.errors import BedplateError, MachineError
from bedplate.plan.laptops import LaptopGateway, Transport
from tests.testlab.keys.authority import LabKeys, moment
from tests.testlab.network.laptops import MACHINE, NODE, PLACES, GatewayHost, LaptopLab
from tests.testlab.network.netlab import LabTrouble, pinging, until
from tests.testlab.run import clock_pace, skewed
from vpn.certificates import Use
from vpn.push import AccessList, access_list_text, carry

ADA, DESK, BOB = "ada.laptop", "ada.desk", "bob.laptop"
HOME, SITE = PLACES
pytestmark = pytest.mark.xdist_group("laptops-revoke")


@dataclass(frozen=True)
class Near:
    """A way to a gateway that stands in for SSH: the keeper is asked on the spot."""

    gateway: GatewayHost

    def run(self, command: str, told: str) -> str:
        """Ask the keeper what the command asks."""
        try:
            return self.gateway.keeper(*command.split()[3:], told=told)
        except LabTrouble as trouble:
            raise MachineError(str(trouble)) from None


@pytest.fixture(scope="module")
def lab() -> Iterator[LaptopLab]:
    """Give a fleet whose gateways both serve."""
    with LaptopLab("revoke", ADA, DESK, BOB) as lab:
        for gateway in lab.gateways.values():
            gateway.start()
        yield lab


def _connect(lab: LaptopLab, name: str, *without: str) -> None:
    profile = lab.profile(name).splitlines()
    lab.laptops[name].connect("\n".join(line for line in profile if not line.endswith(without or ("nothing",))) + "\n")
    lab.laptops[name].wait()


def _carry(lab: LaptopLab, book: AccessList, *cut: str) -> dict[str, BedplateError]:
    def way(gateway: LaptopGateway) -> Near:
        return Near(lab.gateways[gateway.place])

    gateways = [each.gateway for each in lab.gateways.values()]
    return dict(carry(gateways, book, way, cut=cut).failures)


def _refusal(lab: LaptopLab, book: AccessList) -> str:
    with pytest.raises(LabTrouble) as told:
        lab.send(HOME, book)
    return str(told.value)


def test_who_is_revoked_is_out_everywhere_within_two_seconds(lab: LaptopLab) -> None:
    """Over UDP at one gateway and over TCP at the other; they stay out, and nobody else loses a packet."""
    _connect(lab, ADA)
    _connect(lab, DESK, "52.1.2.3 1194 udp4", "52.1.2.3 443 tcp4", "8.20.30.40 1194 udp4")
    _connect(lab, BOB)
    ours = [pinging(lab.laptops[name].host, MACHINE) for name in (ADA, DESK)]
    bob = pinging(lab.laptops[BOB].host, NODE)
    for each in (*ours, bob):
        each.wait_for_answer(5)
    lab.keys.revoke(ADA)
    lab.keys.revoke(DESK)
    stay = tuple(laptop for laptop in lab.devices if laptop.name == BOB)

    start = time()
    failures = _carry(lab, AccessList(lab.keys.revocations(), stay), ADA, DESK)
    done = time()
    # A closed TCP is dialled again at once; a gateway's silence is noticed after 20 s, so that one is dialled anew.
    until(lambda: "certificate revoked: CN=ada.desk" in lab.gateways[SITE].log(Transport.TCP), 20, "nobody refuses it")
    lab.laptops[ADA].end()
    lab.laptops[ADA].connect(lab.laptops[ADA].profile)
    until(lambda: "certificate revoked: CN=ada.laptop" in lab.gateways[HOME].log(), 20, "nobody refuses it")

    assert failures == {}
    assert done - start <= 2 * clock_pace()
    assert all(each.stop().first_after(done) is None for each in ours)
    answers = bob.stop()
    assert (answers.lost, len(answers.numbers) > 20) == (0, True)


def test_an_ended_list_locks_everybody_out_until_the_next_one_comes(lab: LaptopLab) -> None:
    """The drill: a list that nobody renews shuts every gateway, and a new one opens it again without a restart."""
    stay = tuple(laptop for laptop in lab.devices if laptop.name == BOB)
    gateway, bob = lab.gateways[HOME], lab.laptops[BOB]
    short = AccessList(lab.keys.revocations(timedelta(seconds=3)), stay)
    lab.send(HOME, short)
    sleep(4)
    bob.connect(lab.profile(BOB))

    until(lambda: "error=CRL has expired: CN=bob.laptop" in gateway.log(), 20, "no log says that the list has ended")
    assert not bob.host.pings(NODE, times=1, seconds=0.3)
    assert json.loads(gateway.keeper("status"))["crl"] < time()
    assert "the list of revoked certificates ended on" in _refusal(lab, AccessList(short.crl, stay))

    lab.send(HOME, AccessList(lab.keys.revocations(), stay))
    _connect(lab, BOB)
    assert bob.host.pings(NODE)


def test_a_gateway_takes_no_list_that_would_let_somebody_in_again(lab: LaptopLab) -> None:
    """An older list, one of another authority, or no list: refused before anything is changed."""
    stay, settings = lab.devices, Path(lab.gateways[HOME].folders.settings)
    older = lab.keys.revocations()
    lab.send(HOME, AccessList(lab.keys.revocations(), stay))
    before = settings.joinpath("crl.pem").read_text()

    assert "is older than the one in force" in _refusal(lab, AccessList(older, ()))
    assert "signed by somebody else" in _refusal(lab, AccessList(LabKeys().revocations(), ()))
    assert "openssl reads no crl" in _refusal(lab, AccessList("nothing", ()))
    book = access_list_text(lab.gateways[HOME].gateway, AccessList(older, stay)).replace(ADA, "../ada")
    with pytest.raises(LabTrouble, match="a name or an address that bedplate never writes"):
        lab.gateways[HOME].keeper("take", told=book)

    assert settings.joinpath("crl.pem").read_text() == before
    assert settings.joinpath("udp.laptops", ADA).exists()


def test_a_stolen_profile_is_out_though_its_laptop_has_another(lab: LaptopLab) -> None:
    """A gateway that was away while it was revoked and added again: the thief's session ends, the owner gets in."""
    gateway, thief, owner = lab.gateways[HOME], lab.laptops[ADA], lab.laptops[BOB]
    lab.send(HOME)
    _connect(lab, ADA)
    serial = lab.keys.revoke(ADA)
    profile = lab.profile(ADA)
    book = AccessList(lab.keys.revocations(), lab.devices, revoked={serial: ADA})
    refused = f"certificate revoked: CN={ADA}"
    before = gateway.log().count(refused)

    told = lab.send(HOME, book)
    thief.end()
    thief.connect(thief.profile)
    until(lambda: gateway.log().count(refused) > before, 20, "nobody refuses it")
    owner.connect(profile)
    owner.wait()

    assert told["cut"] == {ADA: 1}
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
    """Minutes are nothing, for certificates count from five minutes before; more shuts people out, and it says why."""
    gateway, bob = lab.gateways[HOME], lab.laptops[BOB]
    life = timedelta(days=400) if by.startswith("+") else timedelta(days=90)
    at = moment() - timedelta(days=2) if by == "-1d" else None
    lab.send(HOME, AccessList(lab.keys.revocations(life, at), lab.devices))
    profile = lab.profile(BOB)

    gateway.start(Transport.UDP, env=skewed(by))
    client = bob.connect(profile)

    if reason:
        until(lambda: reason in gateway.log(), 20, f"no log says {reason}")
        assert "Initialization Sequence Completed" not in client.told
    else:
        bob.wait()
        assert bob.host.pings(NODE)
    bob.end()
    gateway.start(Transport.UDP)


def test_a_laptop_whose_clock_is_a_year_behind_trusts_no_gateway(lab: LaptopLab) -> None:
    """Its own log tells its owner why."""
    bob = lab.laptops[BOB]

    client = bob.connect(lab.profile(BOB), env=skewed("-365d"))

    until(lambda: "certificate is not yet valid" in client.told, 20, "the laptop does not say why")
    assert "Initialization Sequence Completed" not in client.told


def test_a_gateway_takes_up_a_new_certificate_by_itself(lab: LaptopLab) -> None:
    """Its daemons start anew with it; the same one again starts nothing, and one that does not fit is refused."""
    gateway, bob = lab.gateways[HOME], lab.laptops[BOB]
    name = gateway.gateway.name
    before = gateway.log().count("Initialization Sequence Completed")

    told = lab.identify(HOME, Use.SERVER, name)

    assert told["renewed"] is True
    until(lambda: gateway.log().count("Initialization Sequence Completed") == before + 1, 20, "it does not start anew")
    _connect(lab, BOB)
    assert bob.host.pings(NODE)
    with pytest.raises(LabTrouble, match="is not one to trust"):
        lab.identify(HOME, Use.CLIENT, name)
    assert lab.send(HOME)["renewed"] is False
