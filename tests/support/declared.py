"""What the stacks of a fleet declare: each program run as a preview, so that nothing is made in the simulated AWS."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.load import load_fleet
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.stack import World, run
from stacks.permissions import KINDS

EXAMPLES = Path(__file__).parents[2] / "examples"
# What the stacks that are read would export, had they been made.
EXPORTS = {
    "alarm_topic_arn": "arn:aws:sns:us-west-2:111122223333:lab-alarms",
    "data_key_arn": "arn:aws:kms:us-west-2:111122223333:key/d",
    "edge_table_id": "rtb-2",
    "files": {"home": {"addresses": ["10.64.32.9"]}},
    "laptop_gateway": {"private_ip": "10.64.0.9"},
    "node_table_ids": {zone: "rtb-1" for facts in load_catalog().regions.values() for zone in facts.zones},
    "parameter_key_arn": "arn:aws:kms:us-west-2:111122223333:key/k",
    "profile_arns": dict.fromkeys(KINDS, "arn:aws:iam::111122223333:instance-profile/p"),
    "transit_gateway_id": "tgw-1",
    "transit_table_id": "tgw-rtb-1",
    "vpc_id": "vpc-1",
    "zone_id": "Z1",
}
NOTHING = Record({})

Declared = Mapping[str, tuple[Entry, ...]]


def plan_of(fleet_file: Path, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of a fleet file, given what its lock holds."""
    return plan_fleet(load_fleet(fleet_file, load_catalog()).fleet, record, load_catalog())


def plan_of_text(text: str, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of a fleet file's text, given what its lock holds."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.yaml"
        file.write_text(text, encoding="utf-8")
        return plan_of(file, record)


@cache
def declared_of(fleet_file: Path) -> Declared:
    """Return what each stack of a fleet file declares; worked out once in a process, and only to be looked at."""
    return declared(plan_of(fleet_file))


def declared(plan: FleetPlan) -> Declared:
    """Return what each stack of a fleet declares, by the stack's name."""
    stacks = [stack for wave in waves(plan) for stack in wave]
    with running(plan.account) as simulation:
        world = World(simulation, exports={stack.full_name: EXPORTS for stack in stacks})
        runs = {stack.name: run(stack, world, preview=True) for stack in stacks}
    assert not [failure for done in runs.values() for failure in done.failures]
    return {name: tuple(done.snapshot.entries.values()) for name, done in runs.items()}
