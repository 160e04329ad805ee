"""Rules for machines that run pods: containerd has the planned configuration."""

from collections.abc import Mapping

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files
from bedplate.plan.nodes import NodePlan
from roles.containers.role import MIRRORS, container_files

pytestmark = applies_if(lambda node: node.cluster is not None)


def test_containerd_has_the_planned_configuration(host: Host, node: NodePlan) -> None:
    """Containers are in systemd's control groups, GPUs come from CDI's specifications, images from planned mirrors."""
    wrong = differing_files(host, container_files(_mirrors(node)))

    assert not wrong, f"changed: {', '.join(wrong)}"


def test_images_come_from_planned_mirrors_only(host: Host, node: NodePlan) -> None:
    """No registry has a mirror that the plan does not name: a mirror decides what a name of an image means."""
    mirrors = {*host.run("ls %s", MIRRORS).stdout.split()} - _mirrors(node).keys()

    assert not mirrors, f"unplanned mirrors of {', '.join(sorted(mirrors))}"


def _mirrors(node: NodePlan) -> Mapping[str, str]:
    return node.cluster.cluster.mirrors if node.cluster else {}
