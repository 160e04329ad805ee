"""Rules for machines on which people run jobs: programs, lingering, folders of runs, and leases of GPUs."""

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.foreign import parse_json
from bedplate.plan.fleet import Access
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.jobs.role import RUNS, Jobs

pytestmark = applies_if(lambda node: node.jobs and NodeRole.WORKBENCH in node.roles)


def test_programs_of_jobs_are_unchanged(host: Host, node: NodePlan) -> None:
    """Programs, units, and what lets units of people run without a login are those of the role."""
    jobs = Jobs(node.accounts.having(Access.LOGIN), bool(node.gpus))
    changed = differing_files(host, jobs.files())

    assert not changed, f"changed: {', '.join(changed)}"


def test_people_have_private_folders_of_runs(host: Host, node: NodePlan) -> None:
    """Each person has a folder of runs that nobody else can read."""
    planned = {f"{RUNS}/{person.uid} {person.name} 700" for person in node.accounts.having(Access.LOGIN)}
    missing = planned.difference(host.run(f"stat --format '%n %U %a' {RUNS}/*").stdout.splitlines())

    assert not missing, f"expected: {', '.join(sorted(missing))}"


@applies_if(lambda node: node.gpus is not None)
def test_gpus_have_leases(host: Host) -> None:
    """Each GPU that nvidia-smi lists is leased, free, or in a state that is known."""
    if not host.exists("nvidia-smi"):
        pytest.skip("the machine has no driver of GPUs")
    gpus = parse_json(host.check_output("bedplate-gpus show --json"))["gpus"]

    assert gpus, "no GPU has a lease: `journalctl -u bedplate-gpus` says why"
    assert not [gpu["problem"] for gpu in gpus if gpu["state"] == "unknown"]
