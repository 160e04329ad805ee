"""A machine that runs the script of its first boot in a folder; commands that change the system are recorded."""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from bedplate.bundle import BundleTarget
from bedplate.plan.links import ssh_pools
from bedplate.rehearsal.simulation import Aws
from stacks.program import administrators
from tests.testlab.fakes.aws import AwsEndpoint, aws_endpoint, metadata_service
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

# Commands that would change this machine: their fakes record the arguments.
_RECORDED = ("hostnamectl", "systemctl", "mkfs.ext4", "chattr", "mount", "groupadd", "useradd")
# The configuration run itself is not part of these tests.
_PYTHON = """case $* in
*bedplate.machine*) echo "python3 $* PYTHONPATH=$PYTHONPATH" >>"$ROOT/noted" ;;
*) exec /usr/bin/env --ignore-environment "PATH=/usr/local/bin:/usr/bin:/bin" python3 "$@" ;;
esac"""
DATE = 'case $1 in --set=*) echo "date $*" >>"$ROOT/noted" ;; *) exec /bin/date "$@" ;; esac'
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
    """A machine: its root folder, its metadata, and its AWS endpoint."""

    root: Path
    facts: dict[str, str]
    endpoint: AwsEndpoint
    imds: str
    waits: int = 2
    """How often it waits for the first bundle of its region."""

    @property
    def noted(self) -> list[str]:
        """The recorded commands, in order."""
        log = self.root / "noted"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def host_key(self) -> Path:
        """The path of its public host key."""
        return self.root / "etc/ssh/ssh_host_ed25519_key.pub"

    @property
    def sshfp(self) -> str:
        """The SSHFP record (SHA-256) of its host key, from ssh-keygen."""
        command = ["ssh-keygen", "-r", "node", "-f", str(self.host_key)]
        records = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (record,) = (line for line in records.splitlines() if " SSHFP 4 2 " in line)
        return record.partition(" SSHFP ")[2]

    def command(self, name: str, script: str) -> None:
        """Replace a command by a script."""
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)

    def start(self, script: str, *steps: str) -> subprocess.Popen[str]:
        """Start a script, or some of its steps."""
        (self.root / "script").write_text(script)
        env = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "ROOT": str(self.root),
            "PAUSE": "0",
            "TRIES": "8",
            "WAITS": str(self.waits),
            "AWS_ENDPOINT_URL": self.endpoint.url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.imds,
        }
        command = ["bash", str(self.root / "script"), *steps]
        return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def boot(self, script: str, *steps: str) -> tuple[int, str]:
        """Run a script; return its exit code and its output."""
        running = self.start(script, *steps)
        output, log = running.communicate(timeout=60)
        return running.returncode, output + log


@contextmanager
def node(root: Path, endpoint: AwsEndpoint, instance: str, address: str) -> Iterator[Node]:
    """Create a machine of the simulated AWS, with keys that the endpoint accepts."""
    keys = {
        "AccessKeyId": endpoint.keys.access_key,
        "SecretAccessKey": endpoint.keys.secret_key,
        "Token": endpoint.keys.token,
    }
    facts = {
        "instance-id": instance,
        "placement/region": endpoint.aws.region,
        "local-ipv4": address,
        "local-hostname": f"ip-{address.replace('.', '-')}.{endpoint.aws.region}.compute.internal",
        "iam/security-credentials/": "node",
        "iam/security-credentials/node": json.dumps({"Code": "Success", **keys}, indent=2),
    }
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    subprocess.run([*_KEYGEN, str(root / "etc/ssh/ssh_host_ed25519_key")], check=True)
    with ExitStack() as stack:
        machine = Node(root, facts, endpoint, stack.enter_context(metadata_service(facts)))
        for name in _RECORDED:
            machine.command(name, f'echo "{name} $*" >>"$ROOT/noted"')
        machine.command("python3", _PYTHON)
        machine.command("date", DATE)
        yield machine


@dataclass(frozen=True)
class Bundle:
    """A bundle as objects of the bucket; `files` are its code by path, `documents` the node documents by name."""

    files: Mapping[str, bytes]
    documents: Mapping[str, str]
    wheels: bytes = b""
    """The archive of the wheels; empty for none."""
    python: str = f"{sys.version_info[0]}.{sys.version_info[1]}"
    """The Python of the wheels."""

    @property
    def objects(self) -> dict[str, bytes]:
        """The objects by key."""
        blobs = {sha256(blob).hexdigest(): blob for blob in (self._code, self._wheels)}
        documents = {f"nodes/{name}.json": text.encode() for name, text in self.documents.items()}
        return {
            **{f"blobs/{name}": blob for name, blob in blobs.items()},
            f"bundles/{self.sha256}.json": self._manifest,
            **documents,
        }

    @property
    def sha256(self) -> str:
        """The hash of its manifest, which is its name."""
        return sha256(self._manifest).hexdigest()

    @property
    def _manifest(self) -> bytes:
        tag = BundleTarget(self.python, os.uname().machine).name
        code, wheels = (sha256(blob).hexdigest() for blob in (self._code, self._wheels))
        return json.dumps({"version": 1, "code": code, "wheels": {tag: wheels}}).encode()

    @cached_property
    def _code(self) -> bytes:
        return archive(self.files)

    @cached_property
    def _wheels(self) -> bytes:
        return self.wheels or archive({})


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive, gzipped."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), 1, mtime=0)


PLAN = plan_of(EXAMPLES / "lab.yaml")
POOL = replace(ssh_pools(PLAN)[0], max=3)
LAB = replace(PLAN, pools=(POOL, *(pool for pool in PLAN.pools if pool.group != POOL.group)))
_TYPES = ("A", "TXT", "SSHFP")


class Place:
    """A fleet's DNS zone, parameters and machines, with their AWS endpoint."""

    def __init__(self, endpoint: AwsEndpoint, root: Path, stack: ExitStack) -> None:
        self.endpoint, self.aws, self._root, self._stack = endpoint, endpoint.aws, root, stack
        self.vpc = self.aws.call("ec2", "create_vpc", CidrBlock="10.64.0.0/16")["Vpc"]["VpcId"]
        about = {"Name": "lab.internal", "VPC": {"VPCRegion": self.aws.region, "VPCId": self.vpc}}
        private = {"HostedZoneConfig": {"PrivateZone": True}}
        response = self.aws.call("route53", "create_hosted_zone", CallerReference=str(root), **about, **private)
        self.zone = response["HostedZone"]["Id"].rpartition("/")[2]
        self.put_parameter("zone", self.zone)
        self.put_parameter("admins", administrators(LAB.accounts))

    def put_parameter(self, name: str, value: str) -> None:
        """Write an SSM parameter of the fleet."""
        call = {"Name": f"/lab/{name}", "Value": value, "Type": "SecureString", "Overwrite": True}
        self.aws.call("ssm", "put_parameter", **call)

    def machine(self, **options: str) -> Node:
        """Start a machine, with more options of RunInstances."""
        image = self.aws.call("ec2", "describe_images", Owners=["099720109477"])["Images"][0]["ImageId"]
        reservation = self.aws.call(
            "ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, InstanceType="m7i.large", **options
        )
        (instance,) = reservation["Instances"]
        folder, address = self._root / instance["InstanceId"], instance["PrivateIpAddress"]
        return self._stack.enter_context(node(folder, self.endpoint, instance["InstanceId"], address))

    def machine_of_group(self, group: str, address: str) -> Node:
        """Start a machine with an address of 10.64.33.0/24, in an Auto Scaling group, which the first one creates."""
        name, about = {"AutoScalingGroupName": group}, {"VpcId": self.vpc, "CidrBlock": "10.64.33.0/24"}
        groups = self.aws.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[group])
        existing = groups["AutoScalingGroups"]
        subnet = existing[0]["VPCZoneIdentifier"] if existing else self._subnet(about)
        machine = self.machine(SubnetId=subnet, PrivateIpAddress=address)
        instance = machine.facts["instance-id"]
        if not existing:
            settings = {"InstanceId": instance, "MinSize": 0, "MaxSize": 20, "VPCZoneIdentifier": subnet}
            self.aws.call("autoscaling", "create_auto_scaling_group", **name, **settings)
        self.aws.call("autoscaling", "attach_instances", **name, InstanceIds=[instance])
        return machine

    def _subnet(self, about: Mapping[str, str]) -> str:
        return str(self.aws.call("ec2", "create_subnet", **about)["Subnet"]["SubnetId"])

    def has_status(self, bucket: str, name: str) -> bool:
        """Return whether a machine has written a status of this name."""
        listed = self.aws.call("s3", "list_objects_v2", Bucket=bucket, Prefix="status/").get("Contents", ())
        return any(entry["Key"].endswith(f"/{name}.json") for entry in listed)

    def status(self, bucket: str, name: str) -> dict[str, Any]:
        """Return the status that the only machine has written last, by name."""
        listed = self.aws.call("s3", "list_objects_v2", Bucket=bucket, Prefix="status/").get("Contents", ())
        entries = [entry for entry in listed if entry["Key"].endswith(f"/{name}.json")]
        # The simulation gives the role another id in each call.
        key = max(entries, key=lambda entry: entry["LastModified"])["Key"]
        document = json.loads(self.aws.call("s3", "get_object", Bucket=bucket, Key=key)["Body"].read())
        return {"key": key, **document}

    @contextmanager
    def bucket(self, name: str) -> Iterator[None]:
        """Create a bucket; at the end, delete it and the parameter of the ring."""
        self.aws.call(
            "s3", "create_bucket", Bucket=name, CreateBucketConfiguration={"LocationConstraint": self.aws.region}
        )
        yield
        for entry in self.aws.call("s3", "list_objects_v2", Bucket=name).get("Contents", ()):
            self.aws.call("s3", "delete_object", Bucket=name, Key=entry["Key"])
        self.aws.call("s3", "delete_bucket", Bucket=name)
        self.aws.call("ssm", "delete_parameters", Names=["/lab/nodes/stable", "/lab/nodes/canary"])

    def publish(self, bundle: Bundle, sequence: int, bucket: str, ring: str = "stable") -> None:
        """Put a bundle and the document of the pool into the bucket, and point a ring to it."""
        for key, content in bundle.objects.items():
            self.aws.call("s3", "put_object", Bucket=bucket, Key=key, Body=content)
        self.put_parameter(f"nodes/{ring}", json.dumps({"bundle": bundle.sha256, "sequence": sequence}))

    def end(self, machine: Node) -> None:
        """Terminate a machine without its shutdown script."""
        self.aws.call("ec2", "terminate_instances", InstanceIds=[machine.facts["instance-id"]])

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The address, the owning instance and the SSHFP record of each name."""
        listed = self.aws.call("route53", "list_resource_record_sets", HostedZoneId=self.zone)["ResourceRecordSets"]
        names: dict[str, dict[str, str]] = {}
        for record in (record for record in listed if record["Type"] in _TYPES):
            names.setdefault(record["Name"], {})[record["Type"]] = record["ResourceRecords"][0]["Value"].strip('"')
        return {name: tuple(values.get(kind, "") for kind in _TYPES) for name, values in names.items()}

    @property
    def heartbeats(self) -> list[str]:
        """The groups whose lifecycle hooks wait longer."""
        calls = (call for call in self.endpoint.requests if call["action"] == "RecordLifecycleActionHeartbeat")
        return [call["AutoScalingGroupName"] for call in calls]

    @property
    def reports(self) -> list[tuple[str, str, str]]:
        """The results of lifecycle hooks: group, hook, result."""
        keys = ("AutoScalingGroupName", "LifecycleHookName", "LifecycleActionResult")
        calls = (call for call in self.endpoint.requests if call["action"] == "CompleteLifecycleAction")
        return [(call[keys[0]], call[keys[1]], call[keys[2]]) for call in calls]


@contextmanager
def boot_place(account: Aws, root: Path) -> Iterator[Place]:
    """Create a fleet without machines; their folders will be in `root`."""
    with ExitStack() as stack:
        yield Place(stack.enter_context(aws_endpoint(account)), root, stack)
