"""`bedplate` of an administrator in the laboratory of a whole cluster: `python -m tests.testlab.kubernetes.operator`.

The account is moto with the instances of the members; Pulumi is the `pulumi` on PATH. Roles are not applied, because
machines of the laboratory have their files. All else is the product's, also ssh and the client of the API.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import boto3

from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.operate import cluster_objects, deploy, machines, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import cluster_plan
from tests.testlab.engine.command import simulated_account
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.kubernetes.upstream import runnable_objects

_READY_MACHINES = machines.ready_machines
_IMAGE = "ami-12c6146b"


def _launch(plan: FleetPlan) -> None:
    """Start the instances that Auto Scaling starts for the stacks: the members, and the gateway of laptops."""
    cluster = cluster_plan(plan)
    assert cluster
    client = boto3.client("ec2", plan.home.name)
    tags = [("bedplate:member", member.name) for member in cluster.members]
    for key, value in (*tags, ("Name", f"{plan.name}-laptops")):
        own = [{"Key": "bedplate:fleet", "Value": plan.name}, {"Key": key, "Value": value}]
        specifications = [{"ResourceType": "instance", "Tags": own}]
        client.run_instances(ImageId=_IMAGE, MinCount=1, MaxCount=1, TagSpecifications=specifications)


def main(words: list[str]) -> int:
    """Run a command of `bedplate`; $LAB_HOST_KEY is the host key of all machines."""
    key = Path(os.environ["LAB_HOST_KEY"]).read_text()
    console = f"-----BEGIN SSH HOST KEY KEYS-----\n{key}\n-----END SSH HOST KEY KEYS-----\n"
    replaced = {
        # The catalog of the project was never refreshed, so types with GPUs are refused.
        (deploy, "_deployable"): lambda operator, _names: deploy.folder_plan(operator),
        (machines, "ready_machines"): _READY_MACHINES,
        # pip downloads the packages of a bundle.
        (machines, "deliver_bundle"): lambda *_: [],
        # The laboratory has no machines of SSH groups.
        (machines, "_ssh_pools"): lambda _plan: (),
        (cluster_objects, "desired_objects"): lambda plan, cluster, _pins, _read: runnable_objects(plan, cluster),
    }
    with simulated_account(), ExitStack() as stack:
        for (module, name), value in replaced.items():
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(patch("moto.ec2.responses.general.SAMPLE_CONSOLE_OUTPUT", console))
        stack.enter_context(patch("bedplate.operate.apply.run_apply", FakeApply().run))
        _launch(plan_of(Terminal(Path("fleet.yaml"))))
        return run(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
