"""A rule for machines on which people run jobs: programs, units, folders and lingering are as planned."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.fleet import Access
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.jobs.role import Jobs

pytestmark = applies_if(lambda node: node.jobs and NodeRole.WORKBENCH in node.roles)


def test_programs_of_jobs_are_unchanged(host: Host, node: NodePlan) -> None:
    """Programs, units, and what lets units of people run without a login are those of the role."""
    jobs = Jobs(node.accounts.having(Access.LOGIN), bool(node.gpus))
    changed = differing_files(host, jobs.files())

    assert not changed, f"changed: {', '.join(changed)}"
