"""Workbenches: what people find on a machine that they log in to."""

import re

import pytest
from testinfra.host import Host

from bedplate.compliance.subject import on_duty
from bedplate.plan.nodes import Duty, NodePlan
from roles.workbench.role import BUILDS, CUDA, ENVIRONMENT, NOTE, PATH, VERSION, path_of, version
from roles.workbench.scratch import LABEL, LocalDisks

pytestmark = on_duty(Duty.WORKBENCH)


@pytest.mark.parametrize("program", ["tmux", "screen", "git", "gcc", "make", "cmake", "htop", "rsync", "python3"])
def test_the_usual_tools_are_there(host: Host, program: str) -> None:
    """Sessions, sources, builds and processes: nobody asks an administrator for these."""
    assert host.exists(program)


def test_uv_is_the_pinned_one(host: Host) -> None:
    """Everybody's uv is of the version that this project pins by its sum, and root's."""
    assert host.check_output("uv --version").split()[1] == version()
    assert host.file("/usr/local/bin/uv").linked_to == "/opt/uv/bin/uv"
    assert host.check_output("find /opt/uv -not -user root -print -quit") == ""


def test_environments_of_conda_can_be_made(host: Host) -> None:
    """Micromamba is the pinned program, whole and unchanged."""
    build = BUILDS[host.system_info.arch]
    if not host.file(PATH).exists and host.file(NOTE).exists:
        pytest.skip(f"micromamba {VERSION} is not there, for the node did not reach {build.url}")

    assert host.file(PATH).sha256sum == build.digest
    assert host.file(PATH).mode == 0o755


def test_everybody_has_scratch_of_their_own(host: Host, node: NodePlan) -> None:
    """Each person has a private folder on local disk."""
    wanted = {person.name: f"{person.name} {person.name} 700" for person in node.accounts.people}

    told = host.run("stat --format '%n %U %G %a' /scratch/*").stdout.splitlines()
    found = {line.split()[0].rpartition("/")[2]: line.partition(" ")[2] for line in told}

    assert {name: found.get(name) for name in wanted} == wanted


def test_scratch_lies_on_the_disks_that_are_for_it(host: Host, node: NodePlan) -> None:
    """What is written there takes no room of the root disk, where the machine has a disk for it."""
    if not host.run(LocalDisks().command()).stdout and not node.scratch:
        pytest.skip("the machine has no disk for scratch: it is a folder of the root disk")

    assert host.run("findmnt --mountpoint /scratch").rc == 0
    assert host.service("bedplate-scratch").is_enabled


def test_nobody_may_fill_scratch(host: Host, node: NodePlan) -> None:
    """Each person's limit is half of the disk."""
    asked = "findmnt --noheadings --output %s /scratch"
    is_counted = "quota" in host.run(asked, "OPTIONS").stdout.replace("noquota", "")
    if not is_counted and host.run(asked, "LABEL").stdout.strip() != LABEL:
        pytest.skip("the file system of /scratch is none of bedplate's, and keeps no quotas of users")
    assert is_counted, "this kernel has no quota_v2: install it, `umount /scratch`, start bedplate-scratch anew"
    half = int(host.check_output("df --output=size -k /scratch | tail -n 1")) // 2

    told = host.check_output("repquota --user --output=csv --no-names /scratch").splitlines()
    limits = {line.split(",")[0]: line.split(",")[5] for line in told if line.startswith("#")}

    assert [person for person in node.accounts.people if limits.get(f"#{person.uid}") != str(half)] == []


# A login's settings without the login: no home is made, and nothing of a person's own runs.
_AS = "setpriv --reuid %s --regid %s --clear-groups env --ignore-environment USER=%s PATH=/usr/bin:/bin sh -c %s"


def test_caches_lie_on_scratch(host: Host, node: NodePlan) -> None:
    """A login shell keeps caches off homes, which may lie on a file server."""
    asked = ". /etc/profile; echo $UV_CACHE_DIR $PIP_CACHE_DIR"
    for person in node.accounts.people:
        told = host.check_output(_AS, str(person.uid), str(person.uid), person.name, asked)
        assert told == f"/scratch/{person.name}/.cache/uv /scratch/{person.name}/.cache/pip"


def test_cudas_libraries_are_found(host: Host) -> None:
    """The linker knows CUDA's folder by itself, and no variable that breaks other programs does."""
    assert "/usr/local/cuda/lib64" in host.file("/etc/ld.so.conf.d/60-bedplate-cuda.conf").content_string.splitlines()


def test_cudas_programs_are_found(host: Host, node: NodePlan) -> None:
    """By whoever logs in, and by a command that is sent over SSH and logs nobody in."""
    for person in node.accounts.people:
        told = host.check_output(_AS, str(person.uid), str(person.uid), person.name, ". /etc/profile; echo $PATH")
        assert CUDA in told.split(":"), person.name
    assert CUDA in path_of(host.file(ENVIRONMENT).content_string).split(":")
    assert re.search(
        r"^session\s+\w+\s+pam_env\.so\b(?!.*\breadenv=0)", host.file("/etc/pam.d/sshd").content_string, re.MULTILINE
    )
