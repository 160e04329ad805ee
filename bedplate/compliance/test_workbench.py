"""Rules for workbenches: tools, scratch folders, caches and CUDA."""

import re

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, applies_to, differing_files, installed
from bedplate.plan.nodes import NodePlan, NodeRole, Platform
from roles.workbench.role import (
    BUILDS,
    CUDA,
    ENVIRONMENT,
    IDLE_TIMER,
    IDLE_UNITS,
    LABEL,
    MICROMAMBA,
    MICROMAMBA_NOTE,
    MICROMAMBA_VERSION,
    LocalDisks,
    path_of,
    uv_version,
)

pytestmark = applies_to(NodeRole.WORKBENCH)


@installed
@pytest.mark.parametrize("program", ["tmux", "screen", "git", "gcc", "make", "cmake", "htop", "rsync", "python3"])
def test_common_tools_are_installed(host: Host, program: str) -> None:
    """Common tools are installed, so people need no administrator for them."""
    assert host.exists(program)


@installed
def test_uv_is_the_pinned_version(host: Host) -> None:
    """uv is the pinned version and belongs to root."""
    assert host.check_output("uv --version").split()[1] == uv_version()
    assert host.file("/usr/local/bin/uv").linked_to == "/opt/uv/bin/uv"
    assert host.check_output("find /opt/uv -not -user root -print -quit") == ""


@installed
def test_micromamba_is_the_pinned_version(host: Host) -> None:
    """micromamba is the pinned version, unchanged, so people can create conda environments."""
    build = BUILDS[host.system_info.arch]
    if not host.file(MICROMAMBA).exists and host.file(MICROMAMBA_NOTE).exists:
        pytest.skip(f"micromamba {MICROMAMBA_VERSION} is not installed: the node could not reach {build.url}")

    assert host.file(MICROMAMBA).sha256sum == build.digest
    assert host.file(MICROMAMBA).mode == 0o755


def test_people_have_private_scratch(host: Host, node: NodePlan) -> None:
    """Each person has a private folder on scratch."""
    planned = {person.name: f"{person.name} {person.name} 700" for person in node.accounts.people}

    lines = host.run("stat --format '%n %U %G %a' /scratch/*").stdout.splitlines()
    folders = {line.split()[0].rpartition("/")[2]: line.partition(" ")[2] for line in lines}

    assert {name: folders.get(name) for name in planned} == planned


def test_scratch_is_on_its_disks(host: Host, node: NodePlan) -> None:
    """/scratch is on the scratch disks, not on the root disk, if the machine has such disks."""
    if not host.run(LocalDisks().command()).stdout and not node.scratch:
        pytest.skip("the machine has no scratch disk: /scratch is on the root disk")

    assert host.run("findmnt --mountpoint /scratch").rc == 0
    assert host.service("bedplate-scratch").is_enabled


def test_scratch_has_quotas(host: Host, node: NodePlan) -> None:
    """Each person can use at most half of the scratch disk."""
    command = "findmnt --noheadings --output %s /scratch"
    has_quotas = "quota" in host.run(command, "OPTIONS").stdout.replace("noquota", "")
    if not has_quotas and host.run(command, "LABEL").stdout.strip() != LABEL:
        pytest.skip("bedplate did not create the file system of /scratch, which has no user quotas")
    assert has_quotas, "the kernel has no quota_v2: install it, `umount /scratch`, restart bedplate-scratch"
    half = int(host.check_output("df --output=size -k /scratch | tail -n 1")) // 2

    report = host.check_output("repquota --user --output=csv --no-names /scratch").splitlines()
    limits = {line.split(",")[0]: line.split(",")[5] for line in report if line.startswith("#")}

    assert [person for person in node.accounts.people if limits.get(f"#{person.uid}") != str(half)] == []


# Runs a command with a person's IDs but without a login, which would create the home and run the person's own files.
_AS_PERSON = "setpriv --reuid %s --regid %s --clear-groups env --ignore-environment USER=%s PATH=/usr/bin:/bin sh -c %s"


def test_caches_are_on_scratch(host: Host, node: NodePlan) -> None:
    """Login shells keep caches on scratch, because homes may be on a file server."""
    command = ". /etc/profile; echo $UV_CACHE_DIR $PIP_CACHE_DIR"
    for person in node.accounts.people:
        caches = host.check_output(_AS_PERSON, str(person.uid), str(person.uid), person.name, command)
        assert caches == f"/scratch/{person.name}/.cache/uv /scratch/{person.name}/.cache/pip"


def test_linker_finds_cuda(host: Host) -> None:
    """The linker finds CUDA's libraries without LD_LIBRARY_PATH, which breaks other programs."""
    assert "/usr/local/cuda/lib64" in host.file("/etc/ld.so.conf.d/60-bedplate-cuda.conf").content_string.splitlines()


def test_path_finds_cuda(host: Host, node: NodePlan) -> None:
    """CUDA's programs are on PATH in login shells and in SSH commands."""
    for person in node.accounts.people:
        path = host.check_output(
            _AS_PERSON, str(person.uid), str(person.uid), person.name, ". /etc/profile; echo $PATH"
        )
        assert CUDA in path.split(":"), person.name
    assert CUDA in path_of(host.file(ENVIRONMENT).content_string).split(":")
    assert re.search(
        r"^session\s+\w+\s+pam_env\.so\b(?!.*\breadenv=0)", host.file("/etc/pam.d/sshd").content_string, re.MULTILINE
    )


@applies_if(lambda node: node.platform is Platform.CLOUD)
def test_machine_reports_its_use(host: Host) -> None:
    """The timer that reports whether somebody uses the machine is active: without reports it is never ended."""
    timer = host.service(IDLE_TIMER)

    assert timer.is_enabled
    assert timer.is_running
    assert not differing_files(host, IDLE_UNITS)
