"""What a live run refuses before it declares anything."""

import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.load import FleetFaults, load_fleet
from bedplate.lock import lock_path, record_images, record_plan
from bedplate.plan import Record, plan_fleet
from bedplate.plan.firewall import WORKER_PORTS, control_rules, node_rules, storage_rules
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.network import Egress, Interconnect
from bedplate.spec.sites import Use
from stacks.network.vpc import gateway_zones
from stacks.options import part_of, parts, stack_name
from stacks.program import declare, order
from tests.testlab.fleets.sketch import sketch
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

ROOT = EXAMPLES.parent


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """Give the smaller example in a folder of its own, without a lock."""
    file = tmp_path / "fleet.yaml"
    file.write_bytes((EXAMPLES / "minimal.yaml").read_bytes())
    return file


@pytest.fixture
def recorded(fleet_file: Path) -> Path:
    """Give that file with its lock beside it."""
    fleet = load_fleet(fleet_file, load_catalog()).fleet
    record_plan(lock_path(fleet_file), fleet, load_catalog())
    return fleet_file


def test_a_recorded_plan_is_carried_out(recorded: Path) -> None:
    """The stack's name says which part."""
    asked = order(recorded, "solo.us-west-2")

    assert (asked.plan.name, asked.part) == ("solo", "us-west-2")


def test_blocks_that_the_lock_lacks_are_never_deployed(fleet_file: Path) -> None:
    """The next run might allot others: they are recorded first."""
    with pytest.raises(InputError, match="region/us-west-2") as caught:
        order(fleet_file, "solo.us-west-2")

    assert "bedplate plan --write" in caught.value.fix


@pytest.mark.parametrize("admin", [True, False], ids=["administrator", "other"])
def test_an_administrator_whose_id_the_lock_lacks_is_recorded_first(recorded: Path, *, admin: bool) -> None:
    """Machines of the cloud make the account by that id, and the next plan might give another; nobody else matters."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHXlSbWlqCd0d+1cFb0YhXzGvHWQHkdPzXyKDVCgZx4w"
    zoe = f'  zoe: {{admin: {str(admin).lower()}, keys: ["{key}"]}}'
    recorded.write_text(
        recorded.read_text(encoding="utf-8").replace("people:\n", f"people:\n{zoe}\n"), encoding="utf-8"
    )

    with pytest.raises(InputError, match=r"not recorded in fleet\.lock: zoe") if admin else nullcontext():
        order(recorded, "solo.shared")


def test_similar_types_wait_for_their_image(fleet_file: Path) -> None:
    """AWS would refuse their group half way through the stack; once the image is recorded they go ahead."""
    told = fleet_file.read_text(encoding="utf-8")
    types = re.compile(r"( +)types: .*")
    fleet_file.write_text(types.sub(r"\1types: [c7i.xlarge]\n\1similar: true", told, count=1), encoding="utf-8")
    record_plan(lock_path(fleet_file), load_fleet(fleet_file, load_catalog()).fleet, load_catalog())

    with pytest.raises(InputError, match="us-west-2/x86_64") as caught:
        order(fleet_file, "solo.us-west-2")

    assert "bedplate image record" in caught.value.fix
    images = {"us-west-2/x86_64": "ami-0123456789abcdef0"}
    record_images(lock_path(fleet_file), "solo", images)
    assert order(fleet_file, "solo.us-west-2").plan.record.images == images


def test_a_stack_of_another_fleet_is_refused(recorded: Path) -> None:
    """A wrong selection must not declare this fleet in that stack: it would delete what the stack holds."""
    with pytest.raises(InputError, match=r"lab\.us-west-2"):
        order(recorded, "lab.us-west-2")


def test_a_faulty_file_is_refused(recorded: Path) -> None:
    """The faults are those of `bedplate check`."""
    recorded.write_text(recorded.read_text(encoding="utf-8").replace("owner:", "owned:"), encoding="utf-8")

    with pytest.raises(FleetFaults):
        order(recorded, "solo.us-west-2")


@pytest.mark.parametrize(("part", "is_refused"), [("us-west-2", True), ("us-east-1", False), ("shared", False)])
def test_an_expired_group_blocks_the_stacks_that_hold_it(fleet_file: Path, part: str, *, is_refused: bool) -> None:
    """Stacks of other regions, `shared` and `links` can be deployed."""
    text = fleet_file.read_text(encoding="utf-8")
    text = text.replace("regions:\n", "regions:\n  us-east-1: {zones: [us-east-1a]}\n")
    fleet_file.write_text(text, encoding="utf-8")
    record_plan(lock_path(fleet_file), load_fleet(fleet_file, load_catalog()).fleet, load_catalog())
    fleet_file.write_text(re.sub(r"( +)types: ", r"\1expires: '2026-11-20'\n\1types: ", text), encoding="utf-8")

    with pytest.raises(FleetFaults) if is_refused else nullcontext() as caught:
        order(fleet_file, f"solo.{part}")

    if caught:
        (told,) = [told for told in caught.value.faults if told.code == "E329"]
        assert told.fix.endswith("write a later day and run `pulumi up --refresh -s solo.us-west-2`")


def test_an_operator_gets_a_sentence_not_a_traceback() -> None:
    """The program ends in the one error whose message Pulumi prints by itself."""
    ran = subprocess.run([sys.executable, "-"], input=_PROGRAM, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ran.stdout.startswith("not recorded in fleet.lock: ")
    assert "  fix  run `bedplate plan --write" in ran.stdout


# What Pulumi's own runner does with a program: run the file as __main__, print a RunError's message alone.
_PROGRAM = """
import runpy, sys, pulumi
pulumi.runtime.set_all_config({"bedplate:fleet": "examples/minimal.yaml"}, [])
from pulumi.runtime.settings import Settings, configure
configure(Settings(project="bedplate", stack="solo.nowhere"))
sys.path.insert(0, ".")
try:
    runpy.run_path("__main__.py", run_name="__main__")
except pulumi.RunError as error:
    print(error)
"""


PLAN = plan_fleet(sketch(), Record({}), load_catalog())


def test_parts_come_in_the_order_in_which_they_are_made() -> None:
    """Regions read the shared stack, the links read the regions."""
    assert parts(PLAN) == ("shared", "us-west-2", "us-east-1", "eu-north-1", "links")


def test_a_stacks_name_says_its_part() -> None:
    """`pulumi up -s lab.us-west-2` is all of one region."""
    assert all(part_of(PLAN, stack_name(PLAN, part)) == part for part in parts(PLAN))


@pytest.mark.parametrize("stack", ["other.shared", "lab.us-west-9", "lab", "us-west-2"])
def test_a_stack_of_no_part_is_refused(stack: str) -> None:
    """A stack made under a mistyped name must stay empty; the fault lists the right names."""
    with pytest.raises(InputError) as caught:
        part_of(PLAN, stack)

    assert stack in caught.value.what
    assert "lab.us-west-2" in caught.value.fix


def test_an_unknown_part_is_refused() -> None:
    """The fault names the parts there are."""
    with pytest.raises(InputError, match="us-west-9") as caught:
        declare(PLAN, "us-west-9")

    assert "shared, us-west-2, us-east-1, eu-north-1, links" in caught.value.fix


STACKS_TYPES_ROOT = Path(__file__).parents[2]
PROGRAM = """
from pulumi_aws.ec2._inputs import LaunchTemplateMetadataOptionsArgs
from pulumi_aws.ec2.vpc import VpcArgs

VpcArgs({vpc}="10.0.0.0/16")
LaunchTemplateMetadataOptionsArgs({metadata}="required")
"""


@pytest.mark.parametrize(
    ("vpc", "metadata", "told"),
    [
        ("cidr_block", "http_tokens", "Success"),
        ("cidr_blok", "http_tokens", 'did you mean "cidr_block"?'),
        ("cidr_block", "http_token", 'did you mean "http_tokens"?'),
    ],
)
def test_a_misspelt_key_is_found(vpc: str, metadata: str, told: str, tmp_path: Path) -> None:
    """At the top of a resource and in what is nested in it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(vpc=vpc, metadata=metadata), encoding="utf-8")

    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(program)]
    ran = subprocess.run(command, cwd=STACKS_TYPES_ROOT, capture_output=True, text=True, check=False)

    assert told in ran.stdout


REGION = plan_fleet(sketch(), Record({}), load_catalog()).home


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Give the plan of the larger example."""
    return plan_of(EXAMPLES / "lab.yaml")


@pytest.mark.parametrize(
    ("egress", "gateways"),
    [
        (Egress.SHARED, {"us-west-2a"}),
        (Egress.PER_ZONE, {"us-west-2a", "us-west-2b", "us-west-2c"}),
        (Egress.NONE, set()),
    ],
)
def test_egress_says_how_many_gateways_a_region_pays(egress: Egress, gateways: set[str]) -> None:
    """One, one a zone, or none."""
    assert set(gateway_zones(egress, REGION).values()) == gateways


def test_the_shared_gateway_stays_when_zones_are_listed_otherwise() -> None:
    """It stands in the zone that was allotted first, wherever the file lists it."""
    turned = replace(REGION, zones=REGION.zones[::-1])

    assert set(gateway_zones(Egress.SHARED, turned).values()) == {"us-west-2a"}


def test_people_log_in_from_laptops_and_sites_alone(plan: FleetPlan) -> None:
    """Every rule of the nodes' group that names a port opens SSH, to a pool or a LAN."""
    blocks = {pool.block for pool in plan.laptops} | {site.lan for site in plan.sites}

    rules = {(rule.port, rule.block) for rule in node_rules(plan, plan.home) if rule.port is not None}

    assert rules == {(22, block) for block in blocks}


def test_nodes_of_other_regions_are_let_in_whole_and_edges_are_not(plan: FleetPlan) -> None:
    """All blocks from which nodes get addresses, and none where gateways stand."""
    others = [region for region in plan.regions if not region.home]
    let_in = tuple(rule.block for rule in node_rules(plan, plan.home) if rule.port is None)

    for zone in (zone for region in others for zone in region.zones):
        assert any(zone.nodes.subnet_of(block) for block in let_in)
        assert not any(zone.edge.overlaps(block) for block in let_in)
    assert not any(plan.home.block.overlaps(block) for block in let_in)


def test_regions_that_nothing_connects_let_no_foreign_nodes_in(plan: FleetPlan) -> None:
    """With `interconnect: none` an address of another region's block is a stranger's."""
    alone = replace(plan, interconnect=Interconnect.NONE)

    assert all(rule.port is not None for rule in node_rules(alone, alone.home))


def test_storage_admits_nodes_of_other_regions_and_no_edge(plan: FleetPlan) -> None:
    """NFS is open to all blocks of nodes; an edge subnet of any region is in none of them."""
    for region in plan.regions:
        rules = storage_rules(plan, region)

        assert {(rule.protocol, rule.port) for rule in rules} == {("tcp", 2049)}
        for other in plan.regions:
            for zone in other.zones:
                assert any(zone.nodes.subnet_of(rule.block) for rule in rules) is (other is not region)
                assert not any(zone.edge.overlaps(rule.block) for rule in rules)


def test_workers_of_every_place_reach_the_control_plane(plan: FleetPlan) -> None:
    """VXLAN and the kubelet's port are open to other regions and to sites, where these have workers; to no edge."""
    rules = control_rules(plan)

    for _, protocol, port in WORKER_PORTS:
        blocks = [rule.block for rule in rules if (rule.protocol, rule.port) == (protocol, port)]
        for zone in (zone for region in plan.regions if not region.home for zone in region.zones):
            assert any(zone.nodes.subnet_of(block) for block in blocks)
            assert not any(zone.edge.overlaps(block) for block in blocks)
        assert [site.lan for site in plan.sites if site.lan in blocks] == [site.lan for site in plan.sites]


def test_places_without_workers_reach_no_worker_port(plan: FleetPlan) -> None:
    """A region of workbenches, or a site without a worker, needs neither port."""
    benches = tuple(pool for pool in plan.pools if pool.use is Use.SSH)
    sites = tuple(replace(site, spec=site.spec.model_copy(update={"machines": {}})) for site in plan.sites)

    rules = control_rules(replace(plan, pools=benches, sites=sites))

    assert not {rule.port for rule in rules} & {port for _, _, port in WORKER_PORTS}


def test_rules_have_names_of_their_own(plan: FleetPlan) -> None:
    """A laptop pool at a site and the site's LAN are two rules."""
    for rules in (node_rules(plan, plan.home), storage_rules(plan, plan.home), control_rules(plan)):
        names = [rule.name for rule in rules]

        assert len(set(names)) == len(names)
