"""The launch template of every instance type that there is, and what each market, use and fabric makes of one."""

import gzip
import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import moto.ec2
import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan import Record
from bedplate.rehearsal import schema_check
from bedplate.rehearsal.kinds.launch_cards import card_complaints, misfit
from stacks.user_data import LIMIT_BYTES
from tests.support.pace import pace
from tests.support.pooled import BOUGHT, pooled, template_of

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
        if reasons := [*card_complaints(nics), *filter(None, [misfit(facts[name], as_ec2)])]:
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
    with pytest.raises(InputError, match="the pool box-us-west-2a takes 16,386 bytes of user data"):
        template_of(plan, plan.pools[0], "ä" * (LIMIT_BYTES // 2 + 1))
