"""`bedplate rehearse examples/lab.yaml`, compared with plain boto3 that makes as many objects in moto.

The peer makes security groups with a rule and tags, and reads and deletes each: five calls an object, as few as a
provider makes. The targets are 30 s and 600 MB on two cores, and five times the peer.
"""

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MAX_SECONDS, MAX_MB, MAX_TIMES = 30.0, 600, 5.0
REHEARSAL = ("-m", "bedplate", "rehearse", "examples/lab.yaml")
PEER = """
import boto3, moto, pulumi, pulumi_aws
with moto.mock_aws():
    ec2 = boto3.client("ec2", "us-west-2", aws_access_key_id="peer", aws_secret_access_key="peer")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    port = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "10.0.0.0/16"}]}
    groups = []
    for number in range(655):
        name = f"group-{number}"
        groups.append(ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"])
        ec2.authorize_security_group_ingress(GroupId=groups[-1], IpPermissions=[port])
        ec2.create_tags(Resources=groups[-1:], Tags=[{"Key": "Name", "Value": name}])
        ec2.describe_security_groups(GroupIds=groups[-1:])
    for group in groups:
        ec2.delete_security_group(GroupId=group)
"""


class Figures(NamedTuple):
    """Elapsed seconds, CPU seconds, and peak memory in MB."""

    seconds: float
    processor: float
    megabytes: float


def measured(*arguments: str) -> Figures:
    """Run Python to its end and return the figures."""
    started = perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} exited with {os.waitstatus_to_exitcode(status)}")
    return Figures(perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    peer, rehearsal = measured("-c", PEER), measured(*REHEARSAL)
    for name, figures in (("peer: 655 security groups", peer), ("rehearse examples/lab.yaml", rehearsal)):
        print(f"{name:<28} {figures.seconds:6.1f} s elapsed {figures.processor:6.1f} s CPU {figures.megabytes:6.0f} MB")
    times, memory = rehearsal.processor / peer.processor, rehearsal.megabytes / peer.megabytes
    print(f"{times:.1f} x the CPU time of the peer, {memory:.1f} x its memory")
    missed = rehearsal.processor > MAX_SECONDS or rehearsal.megabytes > MAX_MB or times > MAX_TIMES
    return int(missed)


sys.exit(main())
