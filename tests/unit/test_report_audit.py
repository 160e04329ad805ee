"""How faults of what stacks hold are told, with where the fleet file asks for what is wrong."""

from bedplate.plan.origin import origin
from bedplate.report.audit import judgement_lines, stack_fault_lines, traced_fault_document
from tests.support.audited import faults, resource
from tests.support.declared import EXAMPLES, plan_of

PLAN = plan_of(EXAMPLES / "lab.yaml")
FILES = resource("aws:efs/fileSystem:FileSystem", "lab-home", encrypted=False, tags={"owner": "lab"})
URN = "urn:pulumi:lab.us-west-2::bedplate::bedplate:stacks:Files$aws:efs/fileSystem:FileSystem::lab-home"
FAULTS = [fault for fault in faults([FILES | {"urn": URN}]) if fault.code == "S201"]


def _key(stack: str, name: str) -> str:
    return f"lab.yaml:70:3 {origin(PLAN, stack, name)}"


def test_a_fault_ends_with_its_place_in_the_fleet_file() -> None:
    """Below what is wrong and what to do, as a refusal does."""
    head, *_, last = stack_fault_lines(FAULTS, _key)

    assert head.startswith("lab.us-west-2   aws:efs:FileSystem lab-home encrypted")
    assert last == "    from lab.yaml:70:3 storage.home"


def test_a_fault_of_what_no_file_asks_for_names_none() -> None:
    """A graph may come from a program without a fleet file."""
    assert not [line for line in judgement_lines(FAULTS) if line.startswith("    from ")]


def test_a_program_reads_the_place_too() -> None:
    """Beside what `audit-graph --json` tells of a fault."""
    (told,) = traced_fault_document(FAULTS, _key)

    assert told["from"] == "lab.yaml:70:3 storage.home"
    assert {"code", "level", "urn", "key", "message", "fix"} <= told.keys()
