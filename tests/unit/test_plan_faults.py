"""Faults of a plan: the code, the key to change, the message and the fix of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from types import MappingProxyType
from typing import Any

import pytest

from bedplate.plan import PlanFaults, Record, allocate_blocks
from bedplate.plan.cluster import check_departed
from bedplate.plan.fleet import GROUP_IDS, PEOPLE_IDS, number_accounts
from bedplate.rules import Fault
from bedplate.spec import Fleet
from tests.testlab.fleets.random import ADA as KEY
from tests.testlab.fleets.sketch import cluster, laptops, sketch

WEST = "region/us-west-2"
FIVE_REMOVED_ZONES = {f"{WEST}/zone/us-west-2{letter}/edge": f"10.64.{n}.0/24" for n, letter in enumerate("vwxyz")}
FIVE_REGIONS = {f"aa-{place}-1": [f"aa-{place}-1a"] for place in ("north", "south", "east", "west", "central")}


def lans(count: int) -> dict[str, str]:
    """Return a number of sites with a LAN each."""
    return {f"s{number}": f"192.{168 + number // 256}.{number % 256}.0/24" for number in range(count)}


def people(*names: str, **groups: str) -> dict[str, Any]:
    """Return people by name, some with groups."""
    return {name: {"keys": (KEY,), "groups": tuple(groups.get(name, "").split())} for name in (*names, *groups)}


def find_faults(
    fleet: Fleet, record: Mapping[str, str], ids: Mapping[str, int] = MappingProxyType({})
) -> tuple[Fault, ...]:
    """Return the faults of a fleet against a record."""
    blocks = {path: IPv4Network(block) for path, block in record.items()}
    uids = {name: number for name, number in ids.items() if number in PEOPLE_IDS}
    gids = {name: number for name, number in ids.items() if number in GROUP_IDS}
    recorded = Record(blocks, people=uids, groups=gids)
    try:
        allocate_blocks(fleet, recorded)
        check_departed(fleet, number_accounts(fleet, recorded))
    except PlanFaults as error:
        return error.faults
    return ()


@dataclass(frozen=True)
class Case:
    """A fleet with a fault against a record, and its closest valid counterpart."""

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
        message="has no space for region/aa-central-1 (/16): new blocks need 327,680 addresses, 262,144 are free",
        bad=sketch(FIVE_REGIONS, network={"supernet": "10.64.0.0/14"}),
        good=sketch(FIVE_REGIONS, network={"supernet": "10.64.0.0/13"}),
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
        message="10.64.4.0/24 overlaps 10.64.0.0/16, which the lock records for region/us-west-2",
        bad=sketch(sites={"cellar": "10.64.4.0/24"}),
        good=sketch(sites={"cellar": "10.65.4.0/24"}),
        record={WEST: "10.64.0.0/16"},
    ),
    Case(
        code="E232",
        key="regions.us-west-2.block",
        message="10.112.0.0/16 overlaps 10.112.0.0/13, which the lock records for pods",
        bad=sketch(blocks={"us-west-2": "10.112.0.0/16"}),
        good=sketch(blocks={"us-west-2": "10.111.0.0/16"}),
        record={"pods": "10.112.0.0/13"},
    ),
    Case(
        code="E233",
        key="network.supernet",
        message="recorded as 10.80.0.0/16, which is outside 10.64.0.0/12",
        bad=sketch(network={"supernet": "10.64.0.0/12"}),
        good=sketch(network={"supernet": "10.64.0.0/11"}),
        record={WEST: "10.80.0.0/16"},
    ),
    Case(
        code="E234",
        key="network.region_size",
        message="cannot be /21: an edge subnet would be /29, and the smallest of AWS is /28",
        bad=sketch(network={"region_size": "/21"}),
        good=sketch(network={"region_size": "/20"}),
    ),
    Case(
        code="E234",
        key="network.region_size",
        message="cannot be /15: the largest VPC of AWS is /16",
        bad=sketch(network={"region_size": "/15"}),
        good=sketch(network={"region_size": "/16"}),
    ),
    Case(
        code="E234",
        key="regions.us-east-1.block",
        message="cannot be /22: an edge subnet would be /30, and the smallest of AWS is /28",
        bad=sketch(blocks={"us-east-1": "10.80.0.0/22"}),
        good=sketch(blocks={"us-east-1": "10.80.0.0/20"}),
    ),
    Case(
        code="E235",
        key="regions.us-west-2.zones",
        message="10.64.0.0/16 has space for 7 zones",
        bad=sketch({"us-west-2": ["us-west-2a", "us-west-2b", "us-west-2c"]}),
        good=sketch({"us-west-2": ["us-west-2a", "us-west-2b"]}),
        record={WEST: "10.64.0.0/16", **FIVE_REMOVED_ZONES},
    ),
    Case(
        code="E236",
        key="sites.s409",
        message="169.254.64.0/18 has no inside addresses left for 4 tunnels: its capacity is 4,096",
        bad=sketch(FIVE_REGIONS, sites=lans(410)),
        good=sketch(FIVE_REGIONS, sites=lans(409)),
    ),
    Case(
        code="E517",
        key="people.eve",
        message="no id left for eve: all of 20000 to 49999 are assigned",
        bad=sketch(people=people("ada", "bob", "eve")),
        good=sketch(people=people("ada", "bob", "carl")),
        ids={"ada": 20000, "carl": 49998},
    ),
    Case(
        code="E517",
        key="people.ada.groups.1",
        message="no id left for speech: all of 50000 to 59999 are assigned",
        bad=sketch(people=people(ada="vision speech")),
        good=sketch(people=people(ada="vision robots")),
        ids={"robots": 59998},
    ),
    Case(
        code="E518",
        key="people.vision",
        message="the lock records vision as a group; files with its id may still exist",
        bad=sketch(people=people("vision")),
        good=sketch(people=people(ada="vision")),
        ids={"vision": 50000},
    ),
    Case(
        code="E518",
        key="people.ada.groups.0",
        message="the lock records bob as a person; files with its id may still exist",
        bad=sketch(people=people(ada="bob")),
        good=sketch(people=people("ada", "bob")),
        ids={"bob": 20007},
    ),
    Case(
        code="E519",
        key="people._ada",
        message="ada was removed; the cluster's namespace ada may still hold their work",
        bad=sketch(people=people("_ada"), kubernetes=cluster()),
        good=sketch(people=people("ada", "_ada2"), kubernetes=cluster()),
        ids={"ada": 20000},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.key}")
def test_a_fault_has_code_key_and_message(case: Case) -> None:
    """Each case has exactly one fault, at the key to change."""
    (fault,) = find_faults(case.bad, case.record, case.ids)

    assert (fault.code, fault.key) == (case.code, case.key)
    assert case.message in fault.message
    assert fault.fix


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.key}")
def test_the_valid_counterpart_has_no_fault(case: Case) -> None:
    """Each rule accepts the closest valid fleet."""
    assert find_faults(case.good, case.record, case.ids) == ()


def test_every_rule_has_a_case() -> None:
    """Every code of the plan is in the table above."""
    codes = {"E230", "E231", "E232", "E233", "E234", "E235", "E236", "E517", "E518", "E519"}

    assert {case.code for case in CASES} == codes


def test_an_overlap_with_a_retired_block_can_be_released() -> None:
    """If the file no longer uses the recorded block, the fix shows the command that releases it."""
    (fault,) = find_faults(sketch(sites={"cellar": "10.99.0.0/24"}), {"region/sa-east-1": "10.99.0.0/16"})

    assert fault.fix.endswith("`bedplate plan --write --release region/sa-east-1`")


def test_all_faults_are_reported_at_once() -> None:
    """The error carries all faults; its message says how many more there are."""
    fleet = sketch(network={"region_size": "/21"}, kubernetes=cluster(pods="/14"))

    with pytest.raises(PlanFaults, match=r"E231 pods .* \(and 1 more\)") as caught:
        allocate_blocks(fleet, Record({"pods": IPv4Network("10.112.0.0/13")}))

    assert [fault.code for fault in caught.value.faults] == ["E231", "E234"]
