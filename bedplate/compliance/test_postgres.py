"""Rules for the hub: PostgreSQL."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.nodes import NodePlan
from roles.postgres.role import Postgres

pytestmark = applies_if(lambda node: node.hub is not None)


def test_postgres_has_the_planned_files(host: Host, node: NodePlan) -> None:
    """Settings, rights and limits of PostgreSQL are those of the plan."""
    assert node.hub
    changed = differing_files(host, Postgres(has_volume=node.hub.region is not None).files())

    assert not changed, f"changed: {', '.join(changed)}"


def test_database_has_checksums_and_no_network(host: Host) -> None:
    """The running server checks its pages, has its data in the hub's folder, and listens on a unix socket only."""
    names = ("data_checksums", "fsync", "full_page_writes", "listen_addresses", "data_directory")
    show = " ".join(f"-c 'show {name}'" for name in names)
    *values, folder = host.check_output(f"runuser -u postgres -- psql -Atq {show}").split("\n")

    assert values == ["on", "on", "on", ""]
    assert folder.startswith("/srv/hub/postgresql/")
