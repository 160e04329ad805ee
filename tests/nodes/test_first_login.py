"""A fresh cloud node, from its first boot to its first apply, with an unknown host key."""

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
from tests.testlab.machines.cloud import HOST_LOOPBACK, seen_by_nodes
from tests.testlab.machines.lab import BEDPLATE, FleetFolder, folder_of_ada
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.rehearsal.programs import plan_of

pytestmark = pytest.mark.nightly

NAME, FULL_NAME = "workbench-cpu-1.us-west-2", "workbench-cpu-1.us-west-2.lab.internal"
ADDRESS = "10.64.33.7"
_AS_ADA = ("--user", "ada")


@dataclass(frozen=True)
class Cloud:
    """A cloud node after its first boot, and the operator's folder."""

    node: Node
    lab: FleetFolder
    place: Place
    booted: str

    def bedplate(self, *arguments: str) -> CompletedProcess[str]:
        """Run a bedplate command on the workstation, with credentials of the AWS account."""
        keys = self.place.endpoint.keys
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token,
            "AWS_ENDPOINT_URL": seen_by_nodes(self.place.endpoint.url),
            "NO_PROXY": HOST_LOOPBACK,
            "no_proxy": HOST_LOOPBACK,
            "TERM": "dumb",
        }
        workstation = self.lab.node_lab.workstation
        return workstation.run(BEDPLATE, *arguments, "--fleet", str(self.lab.fleet), env=environment, seconds=600)

    @property
    def recorded(self) -> tuple[str, ...]:
        """The recorded host keys of the node."""
        return read_lock(lock_path(self.lab.fleet), "lab").host_keys.get(NAME, ())


@pytest.fixture(scope="module")
def cloud(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Yield a node that has run the first boot of the fleet; no account has a key from elsewhere."""
    with ExitStack() as stack:
        aws = stack.enter_context(running("111122223333")).region("us-west-2")
        lab = folder_of_ada(node_lab, tmp_path_factory.mktemp("lab"))
        place = stack.enter_context(boot_place(aws, tmp_path_factory.mktemp("place")))
        node = node_lab.boot(NAME, ADDRESS, FULL_NAME)
        yield Cloud(node, lab, place, _booted(node, lab, place))


def _booted(node: Node, lab: FleetFolder, place: Place) -> str:
    """Run the fleet's first boot script on a node; return its output."""
    plan = plan_of(lab.fleet)
    pool = next(pool for pool in ssh_pools(plan) if pool.group == "workbench-cpu")
    place.put_parameter("admins", administrators(plan.accounts))
    machine = place.machine_of_group(f"{plan.name}-{pool.name}", ADDRESS)
    (node.root / "root/first-boot").write_text(first_boot(plan, pool))
    # Cloud images have this folder, and no key of the node lab.
    node.run("mkdir -p /etc/cloud/cloud.cfg.d; rm ~ubuntu/.ssh/authorized_keys")
    aws, metadata = seen_by_nodes(place.endpoint.url), seen_by_nodes(machine.imds)
    environment = f"AWS_ENDPOINT_URL={aws} AWS_EC2_METADATA_SERVICE_ENDPOINT={metadata}"
    # What cloud-init writes to the console of an EC2 instance.
    place.endpoint.console = f"-----BEGIN SSH HOST KEY KEYS-----\n{node.host_key}\n-----END SSH HOST KEY KEYS-----\n"
    return node.run(f"env {environment} bash /root/first-boot 2>&1")


def test_unknown_node_is_refused_with_the_next_command(cloud: Cloud) -> None:
    """An apply to a node with an unknown host key is refused, with the command that records the key."""
    done = cloud.bedplate("node", "apply", NAME, "--check", *_AS_ADA)

    assert done.returncode == 6
    assert f"run `bedplate node trust {NAME}`: AWS reads" in done.stdout


def test_host_key_comes_from_aws(cloud: Cloud) -> None:
    """`bedplate node trust` reads the node's host key from AWS, without a fingerprint."""
    done = cloud.bedplate("node", "trust", NAME)

    assert done.returncode == 0, done.stderr
    assert cloud.recorded == (" ".join(cloud.node.host_key.split()[:2]),)


def test_administrator_logs_in_with_sudo(cloud: Cloud, tmp_path: Path) -> None:
    """An administrator logs in with the written SSH configuration, and has sudo; the image's account has no access."""
    node_lab = cloud.lab.node_lab
    cloud.bedplate("node", "trust", NAME)
    written = cloud.bedplate("node", "ssh-config", "--write", str(tmp_path / "lab"), "--identity", str(node_lab.key))

    ssh = ("ssh", "-F", str(tmp_path / "lab"), "-o", "BatchMode=yes")
    ada = node_lab.workstation.run(*ssh, "-l", "ada", NAME, "hostname; sudo -n id -u")
    ubuntu = node_lab.workstation.run(*ssh, "-l", "ubuntu", NAME, "true")

    assert written.returncode == 0, written.stderr
    assert ada.stdout.split() == ["workbench-cpu-1", "0"], ada.stderr
    assert "Permission denied" in ubuntu.stderr


def test_roles_continue_after_the_first_boot(cloud: Cloud) -> None:
    """The roles take over the accounts, keys and sshd settings of the first boot without a loss of access."""
    roles = ("--role", "people", "--role", "hardened", "--identity", str(cloud.lab.node_lab.key), *_AS_ADA)
    cloud.bedplate("node", "trust", NAME)

    done = cloud.bedplate("node", "apply", NAME, *roles)
    again = cloud.bedplate("node", "apply", NAME, "--check", *roles)

    assert done.returncode == 0, done.stdout + done.stderr
    assert again.returncode == 0, again.stdout
    assert "AuthorizedKeysFile /etc/ssh" in cloud.node.run("cat /etc/ssh/sshd_config.d/00-bedplate.conf")


def test_image_account_is_disabled(cloud: Cloud) -> None:
    """The image's account is disabled, and the audit finds no failure."""
    ada = ("--user", "ada", "--identity", str(cloud.lab.node_lab.key))

    document = json.loads(cloud.bedplate("node", "audit", NAME, "--role", "people", "--json", *ada).stdout)

    assert cloud.node.run("getent passwd ubuntu | cut -d: -f7").strip() == "/usr/sbin/nologin"
    assert "not allowed" in cloud.node.run("sudo --list --other-user=ubuntu || true")
    assert [verdict for verdict in document["nodes"][0]["verdicts"] if verdict["outcome"] == "failed"] == []


def test_node_with_another_key_is_refused(cloud: Cloud) -> None:
    """A node whose host key differs from the one that AWS read is refused, and the recorded key stays."""
    cloud.bedplate("node", "trust", NAME)
    before = cloud.recorded
    replace_key = "rm /etc/ssh/ssh_host_ed25519_key*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key"
    cloud.node.run(f"{replace_key}; systemctl restart ssh")

    done = cloud.bedplate("node", "apply", NAME, "--check", *_AS_ADA)

    assert done.returncode == 6
    assert "host key differs from the recorded key" in " ".join(done.stdout.split())
    assert cloud.recorded == before
