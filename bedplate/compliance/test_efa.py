"""Rules for machines with EFA: AWS's software of the set, every interface, and huge pages."""

import re

import pytest
from testinfra.host import Host

from bedplate.catalog.software import EFA_SUM
from bedplate.compliance.settings import applies_if, installed, is_container
from bedplate.plan.nodes import NodePlan
from roles.efa.role import FI_INFO, HUGE_PAGES, SYSCTL, EfaVersion

pytestmark = applies_if(lambda node: node.fabric)


@installed
def test_efa_software_is_that_of_the_set(host: Host, node: NodePlan) -> None:
    """libfabric and the NCCL plugin come from the installer of the software set, whose checksum is verified."""
    software = node.software
    installed = host.run(EfaVersion().command()).stdout.strip()
    if not installed and not software.checksum(EFA_SUM):
        pytest.skip(f"the checksum of the installer is not verified in software set {software.name}")

    assert installed == software.value("efa")


def test_every_efa_interface_is_usable(host: Host, node: NodePlan) -> None:
    """libfabric finds as many EFA interfaces as the instance type has: a job would use only the others."""
    # All types of a group with a fabric have the same interfaces.
    planned = node.facts[node.types[0]].efa
    domains = set(re.findall(r"^\s*domain: (\S+)", host.run(f"{FI_INFO} -p efa -t FI_EP_RDM").stdout, re.MULTILINE))

    assert len(domains) == planned, f"{len(domains)} EFA interfaces, planned {planned}"


def test_huge_pages_are_reserved(host: Host) -> None:
    """The kernel reserves huge pages at boot, and has them: libfabric registers its buffers in them."""
    key, pages = HUGE_PAGES

    assert f"{key} = {pages}" in host.file(SYSCTL).content_string.splitlines()
    assert is_container(host) or int(host.check_output("sysctl -n %s", key)) >= int(pages)
