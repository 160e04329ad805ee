"""The Pulumi program: selection of the stack, refused plans, typed arguments, NAT gateways, and firewall rules."""

import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.software import NVIDIA_KEY_SUM
from bedplate.errors import InputError
from bedplate.load import FleetFaults, load_fleet
from bedplate.lock import lock_path, record_images, record_plan
from bedplate.plan import Record, plan_fleet
from bedplate.plan.firewall import KUBELET, METRICS_PORTS, WORKER_PORTS, control_rules, node_rules, storage_rules
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.stacks import parts, stack_name
from bedplate.rules import Level
from bedplate.spec.network import Egress, Interconnect
from bedplate.spec.sites import Use
from stacks.network.vpc import nat_gateway_zones
from stacks.options import part_of
from stacks.program import declare, load_stack
from tests.testlab.fleets.sketch import sketch
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

ROOT = EXAMPLES.parent


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """Return a copy of the minimal example with values of its own, without GPUs and without a lock."""
    text = (EXAMPLES / "minimal.yaml").read_text(encoding="utf-8")
    for old, new in {
        "111122223333": "210987654321",
        "lab.example": "lab.internal",
        "IOMqqn": "IOMqqm",
        "g6.xlarge": "m7i.xlarge",
    }.items():
        text = text.replace(old, new)
    text += "  E418: the zones are the same in this account\n"  # under `allow`
    file = tmp_path / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def locked_file(fleet_file: Path) -> Path:
    """Return the file with its lock."""
    fleet = load_fleet(fleet_file, load_catalog()).fleet
    record_plan(lock_path(fleet_file), fleet, load_catalog())
    return fleet_file


def test_the_stack_name_selects_the_part(locked_file: Path) -> None:
    """A recorded plan is loaded with the part of the stack."""
    stack_run = load_stack(locked_file, "solo.us-west-2")

    assert (stack_run.plan.name, stack_run.part) == ("solo", "us-west-2")


def test_blocks_missing_in_the_lock_are_refused(fleet_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run could assign other blocks. A preview, which assigns none, plans them."""
    with pytest.raises(InputError, match="region/us-west-2") as caught:
        load_stack(fleet_file, "solo.us-west-2")

    assert "bedplate plan --write" in caught.value.fix
    monkeypatch.setattr("pulumi.runtime.is_dry_run", lambda: True)
    assert "region/us-west-2" in load_stack(fleet_file, "solo.us-west-2").plan.new_blocks


@pytest.mark.parametrize("admin", [True, False], ids=["administrator", "other"])
def test_an_administrator_without_a_recorded_id_is_refused(locked_file: Path, *, admin: bool) -> None:
    """EC2 instances create the account with that id, which the next plan could change. Other people do not matter."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHXlSbWlqCd0d+1cFb0YhXzGvHWQHkdPzXyKDVCgZx4w"
    zoe = f'  zoe: {{admin: {str(admin).lower()}, keys: ["{key}"]}}'
    locked_file.write_text(
        locked_file.read_text(encoding="utf-8").replace("people:\n", f"people:\n{zoe}\n"), encoding="utf-8"
    )

    with pytest.raises(InputError, match=r"not recorded in fleet\.lock: zoe") if admin else nullcontext():
        load_stack(locked_file, "solo.shared")


def test_similar_types_need_a_recorded_image(fleet_file: Path) -> None:
    """Auto Scaling would refuse the group in the middle of a deployment."""
    text = fleet_file.read_text(encoding="utf-8")
    types = re.compile(r"( +)types: .*")
    fleet_file.write_text(types.sub(r"\1types: [c7i.xlarge]\n\1similar: true", text, count=1), encoding="utf-8")
    record_plan(lock_path(fleet_file), load_fleet(fleet_file, load_catalog()).fleet, load_catalog())

    with pytest.raises(InputError, match="us-west-2/x86_64") as caught:
        load_stack(fleet_file, "solo.us-west-2")

    assert "bedplate image record" in caught.value.fix
    images = {"us-west-2/x86_64": "ami-0123456789abcdef0"}
    record_images(lock_path(fleet_file), "solo", images)
    assert load_stack(fleet_file, "solo.us-west-2").plan.record.images == images


def test_a_stack_of_another_fleet_is_refused(locked_file: Path) -> None:
    """Declaring this fleet in another stack would delete the resources of that stack."""
    with pytest.raises(InputError, match=r"lab\.us-west-2"):
        load_stack(locked_file, "lab.us-west-2")


@pytest.mark.parametrize("part", ["shared", "us-west-2"])
def test_example_values_are_refused(part: str, tmp_path: Path) -> None:
    """A deployment would use an account, an address and keys of others; a rehearsal accepts them."""
    file = tmp_path / "fleet.yaml"
    file.write_bytes((EXAMPLES / "minimal.yaml").read_bytes())
    assert not load_fleet(file, load_catalog()).faults

    with pytest.raises(FleetFaults) as caught:
        load_stack(file, f"solo.{part}")

    assert [(fault.code, fault.key, fault.level) for fault in caught.value.faults] == [
        ("E417", "account", Level.ERROR),
        ("E417", "owner", Level.ERROR),
        ("E419", "groups.workbench.types", Level.ERROR),
        ("E417", "people.ada.keys.0", Level.ERROR),
    ]


def test_unverified_checksums_are_refused(locked_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines with GPUs would get no DCGM: the shipped catalog has no key of its repository."""
    locked_file.write_text(locked_file.read_text(encoding="utf-8").replace("m7i.xlarge", "g6.xlarge"), encoding="utf-8")
    with pytest.raises(FleetFaults, match="E419 nvidia-key-sha256 of software set"):
        load_stack(locked_file, "solo.us-west-2")

    catalog = load_catalog()
    sets = {name: software.with_checksum(NVIDIA_KEY_SUM, "0" * 64) for name, software in catalog.software.items()}
    monkeypatch.setattr("bedplate.load.catalog.load_catalog", lambda: replace(catalog, software=sets))

    assert load_stack(locked_file, "solo.us-west-2").plan.software == max(sets)


def test_offers_of_another_account_are_refused(locked_file: Path) -> None:
    """A zone that was chosen by its letter may not offer the type; without a deployment it is no error."""
    locked_file.write_text(re.sub(" +E418.*", "", locked_file.read_text(encoding="utf-8")), encoding="utf-8")
    (warning,) = load_fleet(locked_file, load_catalog()).faults

    with pytest.raises(FleetFaults, match="zones in us-west-2 are chosen") as caught:
        load_stack(locked_file, "solo.us-west-2")

    assert caught.value.faults == (replace(warning, level=Level.ERROR),)


def test_an_invalid_file_is_refused(locked_file: Path) -> None:
    """The errors are those of `bedplate check`."""
    locked_file.write_text(locked_file.read_text(encoding="utf-8").replace("owner:", "owned:"), encoding="utf-8")

    with pytest.raises(FleetFaults):
        load_stack(locked_file, "solo.us-west-2")


@pytest.mark.parametrize(("part", "is_refused"), [("us-west-2", True), ("us-east-1", False), ("shared", False)])
def test_an_expired_group_blocks_only_its_own_stacks(fleet_file: Path, part: str, *, is_refused: bool) -> None:
    """Stacks of other regions, `shared` and `links` can be deployed."""
    text = fleet_file.read_text(encoding="utf-8")
    text = text.replace("regions:\n", "regions:\n  us-east-1: {zones: [us-east-1a]}\n")
    fleet_file.write_text(text, encoding="utf-8")
    record_plan(lock_path(fleet_file), load_fleet(fleet_file, load_catalog()).fleet, load_catalog())
    fleet_file.write_text(text.replace("expires: permanent", "expires: '2026-11-20'"), encoding="utf-8")

    with pytest.raises(FleetFaults) if is_refused else nullcontext() as caught:
        load_stack(fleet_file, f"solo.{part}")

    if caught:
        (fault,) = [fault for fault in caught.value.faults if fault.code == "E329"]
        assert fault.fix.endswith("run `bedplate refresh --stack us-west-2`, then `bedplate up`")


def test_input_errors_have_no_traceback(fleet_file: Path) -> None:
    """The program ends with a RunError, whose message Pulumi prints."""
    output = _run_main({"bedplate:fleet": str(fleet_file)})

    assert output.startswith("not recorded in fleet.lock: ")
    assert "  fix  run `bedplate plan --write" in output


def test_lost_settings_of_a_stack_are_an_error() -> None:
    """Plain `pulumi up` makes a new file, so its program sees an empty configuration."""
    output = _run_main({})

    assert output.startswith("`bedplate:fleet` is missing")
    assert "delete it and run `bedplate backend init`" in output


def _run_main(config: Mapping[str, str]) -> str:
    program = _RUN_MAIN.replace("CONFIG", repr(config))
    command = [sys.executable, "-"]
    return subprocess.run(command, input=program, cwd=ROOT, capture_output=True, text=True, check=False).stdout


# As the runner of Pulumi does: run the file as __main__, and print only the message of a RunError.
_RUN_MAIN = """
import runpy, sys, pulumi
pulumi.runtime.set_all_config(CONFIG, [])
from pulumi.runtime.settings import Settings, configure
configure(Settings(project="bedplate", stack="solo.nowhere"))
sys.path.insert(0, ".")
try:
    runpy.run_path("__main__.py", run_name="__main__")
except pulumi.RunError as error:
    print(error)
"""


PLAN = plan_fleet(sketch(), Record({}), load_catalog())


def test_every_part_has_a_stack_name() -> None:
    """`pulumi up -s lab.us-west-2` deploys one region."""
    assert all(part_of(PLAN, stack_name(PLAN, part)) == part for part in parts(PLAN))


@pytest.mark.parametrize("stack", ["other.shared", "lab.us-west-9", "lab", "us-west-2"])
def test_an_unknown_stack_is_refused(stack: str) -> None:
    """The error lists the stacks of the fleet."""
    with pytest.raises(InputError) as caught:
        part_of(PLAN, stack)

    assert stack in caught.value.what
    assert "lab.us-west-2" in caught.value.fix


def test_an_unknown_part_is_refused() -> None:
    """The error lists the parts."""
    with pytest.raises(InputError, match="us-west-9") as caught:
        declare(PLAN, "us-west-9")

    assert "shared, us-west-2, us-east-1, eu-north-1, links" in caught.value.fix


PROGRAM = """
from pulumi_aws.ec2._inputs import LaunchTemplateMetadataOptionsArgs
from pulumi_aws.ec2.vpc import VpcArgs

VpcArgs({vpc}="10.0.0.0/16")
LaunchTemplateMetadataOptionsArgs({metadata}="required")
"""


def test_mypy_finds_misspelt_keys(tmp_path: Path) -> None:
    """In arguments of a resource and of its blocks; right keys have no error."""
    spellings = {
        "right": ("cidr_block", "http_tokens"),
        "vpc": ("cidr_blok", "http_tokens"),
        "metadata": ("cidr_block", "http_token"),
    }
    for name, (vpc, metadata) in spellings.items():
        (tmp_path / f"{name}.py").write_text(PROGRAM.format(vpc=vpc, metadata=metadata), encoding="utf-8")

    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache")]
    files = [str(tmp_path / f"{name}.py") for name in spellings]
    result = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)

    errors = {Path(line.partition(":")[0]).stem: line for line in result.stdout.splitlines() if ": error: " in line}
    assert errors.keys() == {"vpc", "metadata"}
    assert 'did you mean "cidr_block"?' in errors["vpc"]
    assert 'did you mean "http_tokens"?' in errors["metadata"]


REGION = plan_fleet(sketch(), Record({}), load_catalog()).home


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Return the plan of the lab example."""
    return plan_of(EXAMPLES / "lab.yaml")


@pytest.mark.parametrize(
    ("egress", "gateways"),
    [
        (Egress.SHARED, {"us-west-2a"}),
        (Egress.PER_ZONE, {"us-west-2a", "us-west-2b", "us-west-2c"}),
        (Egress.NONE, set()),
    ],
)
def test_egress_sets_the_number_of_nat_gateways(egress: Egress, gateways: set[str]) -> None:
    """One, one for each zone, or none."""
    assert set(nat_gateway_zones(egress, REGION).values()) == gateways


def test_the_shared_nat_gateway_does_not_depend_on_the_order_of_zones() -> None:
    """The gateway is in the zone that was assigned first."""
    reordered = replace(REGION, zones=REGION.zones[::-1])

    assert set(nat_gateway_zones(Egress.SHARED, reordered).values()) == {"us-west-2a"}


def test_nodes_accept_ssh_from_laptops_and_sites_and_the_hub(plan: FleetPlan) -> None:
    """Every rule of nodes with a port allows SSH from a laptop pool or a LAN, or metrics from the hub."""
    blocks = {pool.block for pool in plan.laptops} | {site.networks[site.name] for site in plan.sites}
    assert plan.hub

    rules = {(rule.port, rule.block) for rule in node_rules(plan, plan.home) if rule.port is not None}

    metrics = {(port, IPv4Network(plan.hub.address)) for port in (*METRICS_PORTS, KUBELET)}
    assert rules == {(22, block) for block in blocks} | metrics


def test_nodes_accept_node_subnets_of_other_regions_and_no_edge_subnets(plan: FleetPlan) -> None:
    """The rules contain all node blocks and no edge block of other regions."""
    others = [region for region in plan.regions if not region.home]
    blocks = tuple(rule.block for rule in node_rules(plan, plan.home) if rule.port is None)

    for zone in (zone for region in others for zone in region.zones):
        assert any(zone.nodes.subnet_of(block) for block in blocks)
        assert not any(zone.edge.overlaps(block) for block in blocks)
    assert not any(plan.home.block.overlaps(block) for block in blocks)


def test_regions_without_interconnect_accept_no_other_nodes(plan: FleetPlan) -> None:
    """With `interconnect: none` a packet from the block of another region is not from a node."""
    isolated = replace(plan, interconnect=Interconnect.NONE)

    assert all(rule.port is not None for rule in node_rules(isolated, isolated.home))


def test_storage_accepts_nodes_of_other_regions_and_no_edge_subnets(plan: FleetPlan) -> None:
    """NFS rules contain all node blocks of other regions and no edge block."""
    for region in plan.regions:
        rules = storage_rules(plan, region)

        assert {(rule.protocol, rule.port) for rule in rules} == {("tcp", 2049)}
        for other in plan.regions:
            for zone in other.zones:
                assert any(zone.nodes.subnet_of(rule.block) for rule in rules) is (other is not region)
                assert not any(zone.edge.overlaps(rule.block) for rule in rules)


def test_the_control_plane_accepts_workers_of_all_places(plan: FleetPlan) -> None:
    """VXLAN and kubelet rules contain regions and sites with workers, and no edge subnets."""
    rules = control_rules(plan)

    for _, protocol, port in WORKER_PORTS:
        blocks = [rule.block for rule in rules if (rule.protocol, rule.port) == (protocol, port)]
        for zone in (zone for region in plan.regions if not region.home for zone in region.zones):
            assert any(zone.nodes.subnet_of(block) for block in blocks)
            assert not any(zone.edge.overlaps(block) for block in blocks)
        assert [site.networks[site.name] for site in plan.sites if site.networks[site.name] in blocks] == [
            site.networks[site.name] for site in plan.sites
        ]


def test_places_without_workers_have_no_worker_rules(plan: FleetPlan) -> None:
    """SSH pools and sites without workers need neither port; the hub asks the kubelets of the members."""
    ssh_pools = tuple(pool for pool in plan.pools if pool.use is Use.SSH)
    sites = tuple(replace(site, spec=site.spec.model_copy(update={"machines": {}})) for site in plan.sites)

    rules = control_rules(replace(plan, pools=ssh_pools, sites=sites))

    ports = {rule.port for rule in rules if not rule.name.endswith("-from-hub")}
    assert not ports & {port for _, _, port in WORKER_PORTS}


def test_rule_names_are_unique(plan: FleetPlan) -> None:
    """A laptop pool at a site and the LAN of the site have two rules."""
    for rules in (node_rules(plan, plan.home), storage_rules(plan, plan.home), control_rules(plan)):
        names = [rule.name for rule in rules]

        assert len(set(names)) == len(names)
