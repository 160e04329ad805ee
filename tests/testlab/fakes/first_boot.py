"""A machine that runs its first boot's script for real, in a folder of its own; what would change this one is noted."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bedplate.plan.links import ssh_pools
from bedplate.rehearsal.simulation import Aws
from stacks.program import administrators
from tests.testlab.fakes.aws import FrontDoor, front_door, metadata_service
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

# Commands that would change this machine: stand-ins that note how they were called.
_NOTED = ("hostnamectl", "systemctl", "mkfs.ext4", "chattr", "mount", "groupadd", "useradd")
_FOLDERS = (
    "etc/cloud/cloud.cfg.d",
    "etc/ssh/sshd_config.d",
    "etc/sudoers.d",
    "etc/systemd/system",
    "dev/disk/by-id",
    "bin",
)
_KEYGEN = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f")


@dataclass
class Node:
    """A machine: the folder that is its root, what its metadata service tells, and where its requests go."""

    root: Path
    facts: dict[str, str]
    door: FrontDoor
    imds: str

    @property
    def noted(self) -> list[str]:
        """The commands that would have changed the machine, in order."""
        log = self.root / "noted"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def host_key(self) -> Path:
        """The file of its public host key."""
        return self.root / "etc/ssh/ssh_host_ed25519_key.pub"

    @property
    def sshfp(self) -> str:
        """Its host key as OpenSSH itself would have a name server tell it, by SHA-256."""
        command = ["ssh-keygen", "-r", "node", "-f", str(self.host_key)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (record,) = (line for line in told.splitlines() if " SSHFP 4 2 " in line)
        return record.partition(" SSHFP ")[2]

    def command(self, name: str, script: str) -> None:
        """Put a stand-in for a command in front of the machine's own."""
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)

    def start(self, script: str, *steps: str) -> subprocess.Popen[str]:
        """Start a script, or some of its steps, without waiting for it."""
        (self.root / "script").write_text(script)
        env = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "ROOT": str(self.root),
            "PAUSE": "0",
            "TRIES": "8",
            "AWS_ENDPOINT_URL": self.door.url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.imds,
        }
        command = ["bash", str(self.root / "script"), *steps]
        return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def boot(self, script: str, *steps: str) -> tuple[int, str]:
        """Run a script to its end; return its exit status and what it logged."""
        running = self.start(script, *steps)
        told, log = running.communicate(timeout=60)
        return running.returncode, told + log


@contextmanager
def node(root: Path, door: FrontDoor, instance: str, address: str) -> Iterator[Node]:
    """Give a machine of the simulated AWS, whose role's keys the door takes."""
    keys = {"AccessKeyId": door.keys.access_key, "SecretAccessKey": door.keys.secret_key, "Token": door.keys.token}
    facts = {
        "instance-id": instance,
        "placement/region": door.aws.region,
        "local-ipv4": address,
        "local-hostname": f"ip-{address.replace('.', '-')}.{door.aws.region}.compute.internal",
        "iam/security-credentials/": "node",
        "iam/security-credentials/node": json.dumps({"Code": "Success", **keys}, indent=2),
    }
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    subprocess.run([*_KEYGEN, str(root / "etc/ssh/ssh_host_ed25519_key")], check=True)
    with ExitStack() as stack:
        made = Node(root, facts, door, stack.enter_context(metadata_service(facts)))
        for name in _NOTED:
            made.command(name, f'echo "{name} $*" >>"$ROOT/noted"')
        yield made


PLAN = plan_of(EXAMPLES / "lab.yaml")
POOL = replace(ssh_pools(PLAN)[0], max=3)
LAB = replace(PLAN, pools=(POOL, *(pool for pool in PLAN.pools if pool.group != POOL.group)))
_TYPES = ("A", "TXT", "SSHFP")


class Place:
    """A fleet's zone and machines, and the door through which they ask for them."""

    def __init__(self, door: FrontDoor, root: Path, stack: ExitStack) -> None:
        self.door, self.aws, self._root, self._stack = door, door.aws, root, stack
        vpc = self.aws.call("ec2", "create_vpc", CidrBlock="10.64.0.0/16")["Vpc"]["VpcId"]
        about = {"Name": "lab.internal", "VPC": {"VPCRegion": self.aws.region, "VPCId": vpc}}
        private = {"HostedZoneConfig": {"PrivateZone": True}}
        made = self.aws.call("route53", "create_hosted_zone", CallerReference=str(root), **about, **private)
        self.zone = made["HostedZone"]["Id"].rpartition("/")[2]
        self.tell("zone", self.zone)
        self.tell("admins", administrators(LAB.accounts))

    def tell(self, name: str, value: str) -> None:
        """Write a parameter of the fleet."""
        call = {"Name": f"/lab/{name}", "Value": value, "Type": "SecureString", "Overwrite": True}
        self.aws.call("ssm", "put_parameter", **call)

    def machine(self) -> Node:
        """Start a machine."""
        image = self.aws.call("ec2", "describe_images", Owners=["099720109477"])["Images"][0]["ImageId"]
        made = self.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, InstanceType="m7i.large")
        (one,) = made["Instances"]
        folder = self._root / one["InstanceId"]
        return self._stack.enter_context(node(folder, self.door, one["InstanceId"], one["PrivateIpAddress"]))

    def end(self, machine: Node) -> None:
        """End a machine without a word to anybody."""
        self.aws.call("ec2", "terminate_instances", InstanceIds=[machine.facts["instance-id"]])

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Who has which name: the address, the instance that owns it, and the host key that it is known by."""
        listed = self.aws.call("route53", "list_resource_record_sets", HostedZoneId=self.zone)["ResourceRecordSets"]
        found: dict[str, dict[str, str]] = {}
        for one in (one for one in listed if one["Type"] in _TYPES):
            found.setdefault(one["Name"], {})[one["Type"]] = one["ResourceRecords"][0]["Value"].strip('"')
        return {name: tuple(told.get(kind, "") for kind in _TYPES) for name, told in found.items()}

    @property
    def reports(self) -> list[tuple[str, str, str]]:
        """What hooks were told: group, hook, result."""
        keys = ("AutoScalingGroupName", "LifecycleHookName", "LifecycleActionResult")
        told = (one for one in self.door.asked if one["action"] == "CompleteLifecycleAction")
        return [(one[keys[0]], one[keys[1]], one[keys[2]]) for one in told]


@contextmanager
def boot_place(account: Aws, root: Path) -> Iterator[Place]:
    """Give a fleet of no machines, whose folders will lie in `root`."""
    with ExitStack() as stack:
        yield Place(stack.enter_context(front_door(account)), root, stack)
