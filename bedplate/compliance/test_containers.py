"""Rules for machines that run pods: containerd has the planned configuration."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from roles.containers.role import CONFIG, MIRRORS, container_files

pytestmark = applies_if(lambda node: node.cluster is not None)


def test_containerd_has_the_planned_configuration(host: Host) -> None:
    """Containers are in systemd's control groups, and GPUs come from the specifications of CDI."""
    assert not differing_files(host, container_files({})), f"changed: {CONFIG}"


def test_images_come_from_planned_mirrors_only(host: Host) -> None:
    """No registry has a mirror that the plan does not name: a mirror decides what a name of an image means."""
    mirrors = host.run("ls %s", MIRRORS).stdout.split()

    assert not mirrors, f"unplanned mirrors of {', '.join(mirrors)}"
