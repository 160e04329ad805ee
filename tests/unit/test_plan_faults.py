"""What the plan refuses, with the key to change and the fix."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any

import pytest

from bedplate.plan import PlanFault, PlanFaults, Record, allot
from bedplate.plan.fleet import GROUP_IDS, PEOPLE_IDS, number_accounts
from bedplate.plan.record import NO_NUMBERS, PLAN_RULES
from bedplate.spec import Fleet
from tests.testlab.fleets.random import ADA as KEY
from tests.testlab.fleets.sketch import cluster, laptops, sketch

WEST = "region/us-west-2"
FIVE_GONE = {f"{WEST}/zone/us-west-2{letter}/edge": f"10.64.{n}.0/24" for n, letter in enumerate("vwxyz")}
MANY = {f"aa-{place}-1": [f"aa-{place}-1a"] for place in ("north", "south", "east", "west", "central")}


def rooms(count: int) -> dict[str, str]:
    """Return that many sites with a LAN each."""
    return {f"s{number}": f"192.{168 + number // 256}.{number % 256}.0/24" for number in range(count)}


def people(*names: str, **groups: str) -> dict[str, Any]:
    """Return people of these names, and those who are in a group each."""
    return {name: {"keys": (KEY,), "groups": tuple(groups.get(name, "").split())} for name in (*names, *groups)}


def refusals(fleet: Fleet, record: Mapping[str, str], ids: Mapping[str, int] = NO_NUMBERS) -> tuple[PlanFault, ...]:
    """Return the faults of a fleet under a record; none when it is planned."""
    blocks = {path: IPv4Network(block) for path, block in record.items()}
    uids = {name: number for name, number in ids.items() if number in PEOPLE_IDS}
    gids = {name: number for name, number in ids.items() if number in GROUP_IDS}
    known = Record(blocks, people=uids, groups=gids)
    try:
        allot(fleet, known)
        number_accounts(fleet, known)
    except PlanFaults as refusal:
        return refusal.faults
    return ()


@dataclass(frozen=True)
class Case:
    """A fleet that a record forbids, what is said of it, and its nearest twin that is allowed."""

    code: str
    key: str
    message: str
    bad: Fleet
    good: Fleet
    record: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)


CASES = (
    Case(
        code="E230",
        key="network.supernet",
        message="no room for region/aa-central-1 (/16): new blocks need 327,680 addresses, 262,144 are free",
        bad=sketch(MANY, network={"supernet": "10.64.0.0/14"}),
        good=sketch(MANY, network={"supernet": "10.64.0.0/13"}),
    ),
    Case(
        code="E231",
        key="regions.us-west-2.block",
        message="recorded as 10.64.0.0/16; 10.80.0.0/16 would renumber it",
        bad=sketch(blocks={"us-west-2": "10.80.0.0/16"}),
        good=sketch(blocks={"us-west-2": "10.64.0.0/16"}),
        record={WEST: "10.64.0.0/16"},
    ),
    Case(
        code="E231",
        key="sites.cellar.lan",
        message="recorded as 192.168.0.0/24; 192.168.40.0/22 would renumber it",
        bad=sketch(sites={"cellar": "192.168.40.0/22"}),
        good=sketch(sites={"cellar": "192.168.0.0/24"}),
        record={"site/cellar": "192.168.0.0/24"},
    ),
    Case(
        code="E231",
        key="kubernetes.pods",
        message="recorded as 10.112.0.0/13; a /14 would renumber it",
        bad=sketch(kubernetes=cluster(pods="/14")),
        good=sketch(kubernetes=cluster(pods="/13")),
        record={"pods": "10.112.0.0/13"},
    ),
    Case(
        code="E231",
        key="kubernetes.services",
        message="recorded as 10.120.0.0/20; a /22 would renumber it",
        bad=sketch(kubernetes=cluster(services="/22")),
        good=sketch(kubernetes=cluster()),
        record={"services": "10.120.0.0/20"},
    ),
    Case(
        code="E231",
        key="vpn.laptops.pool",
        message="recorded as 10.121.0.0/22; a /24 would renumber it",
        bad=sketch(vpn=laptops({"region": "us-west-2"}, pool="/24")),
        good=sketch(vpn=laptops({"region": "us-west-2"}, pool="/22")),
        record={"pool/us-west-2": "10.121.0.0/22"},
    ),
    Case(
        code="E232",
        key="sites.cellar.lan",
        message="10.64.4.0/24 touches 10.64.0.0/16, which the lock holds for region/us-west-2",
        bad=sketch(sites={"cellar": "10.64.4.0/24"}),
        good=sketch(sites={"cellar": "10.65.4.0/24"}),
        record={WEST: "10.64.0.0/16"},
    ),
    Case(
        code="E232",
        key="regions.us-west-2.block",
        message="10.112.0.0/16 touches 10.112.0.0/13, which the lock holds for pods",
        bad=sketch(blocks={"us-west-2": "10.112.0.0/16"}),
        good=sketch(blocks={"us-west-2": "10.111.0.0/16"}),
        record={"pods": "10.112.0.0/13"},
    ),
    Case(
        code="E233",
        key="network.supernet",
        message="recorded as 10.80.0.0/16, which does not lie in 10.64.0.0/12",
        bad=sketch(network={"supernet": "10.64.0.0/12"}),
        good=sketch(network={"supernet": "10.64.0.0/11"}),
        record={WEST: "10.80.0.0/16"},
    ),
    Case(
        code="E234",
        key="network.region_size",
        message="cannot be /21: two subnets a zone do not fit: an edge would be /29",
        bad=sketch(network={"region_size": "/21"}),
        good=sketch(network={"region_size": "/20"}),
    ),
    Case(
        code="E234",
        key="network.region_size",
        message="cannot be /15: AWS takes no VPC wider than /16",
        bad=sketch(network={"region_size": "/15"}),
        good=sketch(network={"region_size": "/16"}),
    ),
    Case(
        code="E234",
        key="regions.us-east-1.block",
        message="cannot be /22: two subnets a zone do not fit: an edge would be /30",
        bad=sketch(blocks={"us-east-1": "10.80.0.0/22"}),
        good=sketch(blocks={"us-east-1": "10.80.0.0/20"}),
    ),
    Case(
        code="E235",
        key="regions.us-west-2.zones",
        message="10.64.0.0/16 has places for 7 zones",
        bad=sketch({"us-west-2": ["us-west-2a", "us-west-2b", "us-west-2c"]}),
        good=sketch({"us-west-2": ["us-west-2a", "us-west-2b"]}),
        record={WEST: "10.64.0.0/16", **FIVE_GONE},
    ),
    Case(
        code="E236",
        key="sites.s409",
        message="169.254.64.0/18 has no inside addresses left for 4 tunnels: it holds 4,096 in all",
        bad=sketch(MANY, sites=rooms(410)),
        good=sketch(MANY, sites=rooms(409)),
    ),
    Case(
        code="E517",
        key="people.eve",
        message="no id is left for eve: 20000 to 49999 were all given before",
        bad=sketch(people=people("ada", "bob", "eve")),
        good=sketch(people=people("ada", "bob", "carl")),
        ids={"ada": 20000, "carl": 49998},
    ),
    Case(
        code="E517",
        key="people.ada.groups.1",
        message="no id is left for speech: 50000 to 59999 were all given before",
        bad=sketch(people=people(ada="vision speech")),
        good=sketch(people=people(ada="vision robots")),
        ids={"robots": 59998},
    ),
    Case(
        code="E518",
        key="people.vision",
        message="the lock knows vision as a group, whose files may still be about",
        bad=sketch(people=people("vision")),
        good=sketch(people=people(ada="vision")),
        ids={"vision": 50000},
    ),
    Case(
        code="E518",
        key="people.ada.groups.0",
        message="the lock knows bob as a person, whose files may still be about",
        bad=sketch(people=people(ada="bob")),
        good=sketch(people=people("ada", "bob")),
        ids={"bob": 20007},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.key}")
def test_a_refusal_names_the_key_and_the_reason(case: Case) -> None:
    """Each fault is told once, where the file says what cannot be."""
    (fault,) = refusals(case.bad, case.record, case.ids)

    assert (fault.code, fault.key) == (case.code, case.key)
    assert case.message in fault.message
    assert fault.fix


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.key}")
def test_the_nearest_good_fleet_is_planned(case: Case) -> None:
    """No rule refuses more than it must."""
    assert refusals(case.good, case.record, case.ids) == ()


def test_every_rule_has_a_case() -> None:
    """The table above is complete."""
    assert {case.code for case in CASES} == PLAN_RULES.keys()


def test_a_retired_neighbour_may_be_released() -> None:
    """Where the block in the way is gone from the file, the fix says how to give it back."""
    (fault,) = refusals(sketch(sites={"cellar": "10.99.0.0/24"}), {"region/sa-east-1": "10.99.0.0/16"})

    assert fault.fix.endswith("`bedplate plan --write --release region/sa-east-1`")


def test_all_faults_are_told_at_once() -> None:
    """An operator mends a file once, not fault by fault; the error alone says how many there are."""
    fleet = sketch(network={"region_size": "/21"}, kubernetes=cluster(pods="/14"))

    with pytest.raises(PlanFaults, match=r"E231 pods .* \(and 1 more\)") as refusal:
        allot(fleet, Record({"pods": IPv4Network("10.112.0.0/13")}))

    assert [fault.code for fault in refusal.value.faults] == ["E231", "E234"]
