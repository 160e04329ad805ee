"""A fresh machine of a group, from its first boot to its first apply: nobody has seen its key, nobody has logged in."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bedplate.lock import lock_path, read_lock
from bedplate.plan.links import ssh_pools
from bedplate.rehearsal.simulation import running
from stacks.compute.template import first_boot
from stacks.program import administrators
from tests.testlab.fakes.first_boot import Place, boot_place
from tests.testlab.machines.lab import BEDPLATE, LabFolder, lab_folder
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.rehearsal.programs import plan_of

pytestmark = pytest.mark.nightly

NAME, FULL_NAME = "workbench-cpu-1.us-west-2", "workbench-cpu-1.us-west-2.lab.internal"
ADDRESS = "10.64.33.7"
# This machine's own loopback, as it is seen through slirp4netns.
_HERE = "10.0.2.2"
_AS_ADA = ("--user", "ada")


@dataclass(frozen=True)
class Cloud:
    """A machine of the group as it stands after its first boot, and the operator's folder."""

    node: Node
    lab: LabFolder
    place: Place
    booted: str

    def bedplate(self, *arguments: str) -> CompletedProcess[str]:
        """Run a command at the desk, with credentials of the fleet's account."""
        keys = self.place.door.keys
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token,
            "AWS_ENDPOINT_URL": _seen(self.place.door.url),
            "NO_PROXY": _HERE,
            "no_proxy": _HERE,
            "TERM": "dumb",
        }
        desk = self.lab.stand.desk
        return desk.run(BEDPLATE, *arguments, "--fleet", str(self.lab.fleet), env=environment, seconds=600)

    @property
    def recorded(self) -> tuple[str, ...]:
        """The host keys of the machine that the lock holds."""
        return read_lock(lock_path(self.lab.fleet), "lab").host_keys.get(NAME, ())


@pytest.fixture(scope="module")
def cloud(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Give a machine that has booted as one of the cloud does: no account on it has a key but by that boot."""
    with ExitStack() as stack:
        aws = stack.enter_context(running("111122223333")).region("us-west-2")
        lab = _folder(stand, tmp_path_factory.mktemp("lab"))
        place = stack.enter_context(boot_place(aws, tmp_path_factory.mktemp("place")))
        node = stand.boot(NAME, ADDRESS, FULL_NAME)
        yield Cloud(node, lab, place, _booted(node, lab, place))


def _folder(stand: Stand, folder: Path) -> LabFolder:
    """Make the fleet's folder, whose one administrator has the operator's key."""
    lab = lab_folder(stand, folder)
    key = " ".join(stand.key.with_name("operator.pub").read_text().split()[:2])
    lab.edit(r"ada: \{admin: true, keys: \[[^]]*\]", f'ada: {{admin: true, keys: ["{key}"]')
    lab.record()
    return lab


def _booted(node: Node, lab: LabFolder, place: Place) -> str:
    """Run the first boot of the fleet on a machine, and return what it said."""
    plan = plan_of(lab.fleet)
    pool = next(pool for pool in ssh_pools(plan) if pool.group == "workbench-cpu")
    place.tell("admins", administrators(plan.accounts))
    machine = place.machine()
    machine.facts["local-ipv4"] = ADDRESS
    (node.root / "root/first-boot").write_text(first_boot(plan, pool))
    # What an image of the cloud has, and a key of the stand's that it has not.
    node.run("mkdir -p /etc/cloud/cloud.cfg.d; rm ~ubuntu/.ssh/authorized_keys")
    way = f"AWS_ENDPOINT_URL={_seen(place.door.url)} AWS_EC2_METADATA_SERVICE_ENDPOINT={_seen(machine.imds)}"
    return node.run(f"env {way} bash /root/first-boot 2>&1")


def _seen(url: str) -> str:
    return url.replace("127.0.0.1", _HERE)


def test_a_machine_that_nobody_knows_is_refused_with_what_to_run(cloud: Cloud) -> None:
    """Before anything is sent to it."""
    done = cloud.bedplate("node", "apply", NAME, "--check", *_AS_ADA)

    assert done.returncode == 6
    assert f"run `bedplate node trust {NAME}`: it compares" in done.stdout


def test_its_key_is_taken_from_aws_and_the_machine(cloud: Cloud) -> None:
    """Nobody reads a fingerprint, and it is the machine's own."""
    done = cloud.bedplate("node", "trust", NAME)

    assert done.returncode == 0, done.stderr
    assert cloud.recorded == (" ".join(cloud.node.host_key.split()[:2]),)


def test_an_administrator_logs_in_by_name_and_becomes_root(cloud: Cloud, tmp_path: Path) -> None:
    """By the written configuration alone, as themselves; the image's own account stays shut."""
    stand = cloud.lab.stand
    cloud.bedplate("node", "trust", NAME)
    wrote = cloud.bedplate("node", "ssh-config", "--write", str(tmp_path / "lab"), "--identity", str(stand.key))

    ssh = ("ssh", "-F", str(tmp_path / "lab"), "-o", "BatchMode=yes")
    ada = stand.desk.run(*ssh, "-l", "ada", NAME, "hostname; sudo -n id -u")
    ubuntu = stand.desk.run(*ssh, "-l", "ubuntu", NAME, "true")

    assert wrote.returncode == 0, wrote.stderr
    assert ada.stdout.split() == ["workbench-cpu-1", "0"], ada.stderr
    assert "Permission denied" in ubuntu.stderr


def test_the_roles_go_on_from_what_the_boot_left(cloud: Cloud) -> None:
    """Accounts, keys, rights and sshd's settings become the roles' own; who came in by them still comes in."""
    roles = ("--role", "people", "--role", "hardened", "--identity", str(cloud.lab.stand.key), *_AS_ADA)
    cloud.bedplate("node", "trust", NAME)

    done = cloud.bedplate("node", "apply", NAME, *roles)
    again = cloud.bedplate("node", "apply", NAME, "--check", *roles)

    assert done.returncode == 0, done.stdout + done.stderr
    assert again.returncode == 0, again.stdout
    assert "AuthorizedKeysFile /etc/ssh" in cloud.node.run("cat /etc/ssh/sshd_config.d/00-bedplate.conf")


def test_the_images_own_account_is_shut(cloud: Cloud) -> None:
    """It came with a shell and the right to become root; the audit finds nobody but the fleet's people any more."""
    ada = ("--user", "ada", "--identity", str(cloud.lab.stand.key))

    found = json.loads(cloud.bedplate("node", "audit", NAME, "--role", "people", "--json", *ada).stdout)

    assert cloud.node.run("getent passwd ubuntu | cut -d: -f7").strip() == "/usr/sbin/nologin"
    assert "not allowed" in cloud.node.run("sudo --list --other-user=ubuntu || true")
    assert [each for each in found["nodes"][0]["verdicts"] if each["outcome"] == "violated"] == []


def test_another_machine_in_its_place_is_refused(cloud: Cloud) -> None:
    """It answers at the address that AWS tells, with a key that AWS does not tell; what was recorded stays."""
    cloud.bedplate("node", "trust", NAME)
    before = cloud.recorded
    new = "rm /etc/ssh/ssh_host_ed25519_key*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key"
    cloud.node.run(f"{new}; systemctl restart ssh")

    done = cloud.bedplate("node", "trust", NAME)

    assert done.returncode == 3
    assert "offers the host key" in done.stderr
    assert cloud.recorded == before
