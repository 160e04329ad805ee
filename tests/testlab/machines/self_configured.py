"""A test node that configures itself as an EC2 instance does: from user data, a bundle, and the simulated AWS."""

import gzip
import os
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.links import ssh_pools
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import pool_node
from bedplate.plan.pools import PoolPlan
from bedplate.rehearsal.simulation import running
from bedplate.spec.groups import Ring
from stacks.compute.template import bake_boot, encode_user_data, first_boot
from stacks.program import administrators
from tests.testlab.fakes.first_boot import Node as Instance
from tests.testlab.fakes.first_boot import Place, boot_place
from tests.testlab.fleets.sketch import with_group
from tests.testlab.machines.bundle import working_tree
from tests.testlab.machines.cloud import seen_by_nodes
from tests.testlab.machines.lab import FleetFolder, folder_of_ada
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.rehearsal.programs import plan_of

_SECONDS = 1500.0
_SETTINGS = "etc/systemd/system.conf.d/10-lab.conf"


@dataclass
class SelfConfigured:
    """A node that configures itself; `sequence` is the last one of its ring, `documents` are by name."""

    node: Node
    place: Place
    bucket: str
    documents: Mapping[str, str]
    instance: Instance
    booted: str = ""
    sequence: int = 0

    def promote(self, code: str = "", sequence: int | None = None) -> str:
        """Point the ring to a bundle of the working tree with one more file of code; return its hash."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        bundle = working_tree(self.documents, {"bedplate/extra.py": code.encode()} if code else {})
        self.place.publish(bundle, self.sequence, self.bucket)
        return bundle.sha256

    def boot(self) -> None:
        """Run the user data, as cloud-init does."""
        self.booted = self.node.run("set -a; . /root/environment; bash /root/user-data 2>&1")

    def run(self, result: str = "success") -> None:
        """Run the service, without its timer and its restarts."""
        self.node.run("systemctl stop bedplate-node.timer bedplate-node.service; systemctl reset-failed bedplate-node")
        # Not with --no-block: until the job begins, systemd shows the result of the run before.
        self.node.run("systemctl start bedplate-node.service || true", seconds=_SECONDS)
        self.wait(result)

    def wait(self, result: str = "success") -> None:
        """Wait until the run has ended with a result of systemd."""
        deadline = monotonic() + _SECONDS
        properties, shown = "Result,ActiveState,SubState,ExecMainExitTimestampMonotonic", ""
        while monotonic() < deadline:
            shown = self.node.run(f"systemctl show --property={properties} bedplate-node.service")
            is_over = "ActiveState=inactive" in shown or "SubState=auto-restart" in shown or "=failed" in shown
            if is_over and "Monotonic=0" not in shown:
                assert f"Result={result}" in shown, self.log
                return
            sleep(2)
        pytest.fail(f"{shown}\n{self.log}")

    @property
    def log(self) -> str:
        """The journal of the service."""
        return self.node.run("journalctl --no-pager --output=cat --unit=bedplate-node | tail -60")

    def logs_in(self) -> str:
        """Return the user id of ada under sudo, over SSH."""
        return self.node.ssh("sudo -n id -u", user="ada").stdout.strip()


def lead_to_simulation(node: Node, place: Place, imds: str) -> None:
    """Lead the script and its service to the simulated AWS; remove the key of the node lab, as in a cloud image."""
    environment = {
        "AWS_ENDPOINT_URL": seen_by_nodes(place.endpoint.url),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": seen_by_nodes(imds),
        "PAUSE": "0",
    }
    (node.root / "root/environment").write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
    # The environment of all services, now and after a boot: the audit reports drop-ins.
    node.run("xargs -a /root/environment systemctl set-environment")
    words = " ".join(f'"{name}={value}"' for name, value in environment.items())
    settings = node.root / _SETTINGS
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"[Manager]\nDefaultEnvironment={words}\n")
    node.run("mkdir -p /etc/cloud/cloud.cfg.d; rm ~ubuntu/.ssh/authorized_keys")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a first boot, from user data to the report after the gate, and CPU seconds of the node."""

    elapsed: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.elapsed:.1f} s elapsed at load {os.getloadavg()[0]:.0f}, {self.cpu:.1f} s CPU"


@dataclass(frozen=True)
class Cloud:
    """The simulated AWS of lab.yaml, with the document of a pool of workbenches."""

    lab: NodeLab
    folder: FleetFolder
    place: Place
    plan: FleetPlan
    pool: PoolPlan
    document: str
    nodes: list[Node] = field(default_factory=list)
    """The nodes that configure themselves."""

    @property
    def group(self) -> str:
        """The name of the pool's Auto Scaling group."""
        return f"{self.plan.name}-{self.pool.name}"

    @property
    def bucket(self) -> str:
        """The bucket of bundles."""
        return self.plan.nodes_bucket(self.pool.region).name

    def prepared(self, node: Node, instance: Instance, user_data: bytes, *names: str) -> SelfConfigured:
        """Return a booted node with its user data; documents with these names are published with the bundle."""
        configured = SelfConfigured(node, self.place, self.bucket, dict.fromkeys(names, self.document), instance)
        configured.promote()
        self.nodes.append(node)
        (node.root / "root/user-data").write_bytes(gzip.decompress(user_data))
        lead_to_simulation(node, self.place, instance.imds)
        return configured

    def bake(self, node: Node) -> tuple[dict[str, Any], Path]:
        """Run the user data of a bake until it reports, after its reboot; return its status, and the image: a layer."""
        for name in ("vmlinuz-6.8.0-1-aws", "initrd.img-6.8.0-1-aws"):
            (node.root / "boot" / name).write_text("a kernel")
        document = "image-workbench"
        bake = self.prepared(node, self.place.machine(), bake_boot(self.plan, document), document)
        bake.boot()
        end, boots = monotonic() + _SECONDS, 1
        while not self.place.has_status(self.bucket, "run"):
            assert monotonic() < end, bake.log
            if not node.machine.runs:
                node.restart()
                boots += 1
                # The run is a part of the boot. The timer would start it minutes later.
                assert self.place.has_status(self.bucket, "run"), bake.log
            sleep(2)
        status = self.place.status(self.bucket, "run")
        assert (status["ok"], status["stage"], boots) == (True, "install", 2), f"{status['sentence']}\n{bake.log}"
        # The settings of the test.
        node.run(
            f"rm /{_SETTINGS} /root/user-data /root/environment /etc/cloud/cloud.cfg.d/99-*.cfg 2>/dev/null || true"
        )
        node.stop()
        image = self.lab.folder / "image"
        # Hard links: no layer is written to.
        subprocess.run(["cp", "-al", self.lab.hosts[node.name].folder / "disk/upper", image], check=True)
        return status, image

    def machine(self, node: Node, ring: Ring = Ring.STABLE) -> SelfConfigured:
        """Return a machine of the pool with its user data, which has not run."""
        user_data = b64decode(encode_user_data("a pool", first_boot(self.plan, with_group(self.pool, ring=ring))))
        instance = self.place.machine_of_group(self.group, str(node.address))
        return self.prepared(node, instance, user_data, self.pool.name)

    def start(self, node: Node, ring: Ring = Ring.STABLE) -> SelfConfigured:
        """Run the user data of the pool on a node; its service then runs."""
        machine = self.machine(node, ring)
        machine.boot()
        return machine

    def first_boot(self, node: Node) -> tuple[SelfConfigured, Cost]:
        """Start a machine of the pool on a node; return it after its audit, with the cost until its report."""
        machine = self.machine(node)
        start, used, before = monotonic(), node.cpu_seconds(), len(self.place.reports)
        machine.boot()
        while len(self.place.reports) == before:
            assert monotonic() < start + _SECONDS, machine.log
            sleep(0.2)
        cost = Cost(monotonic() - start, node.cpu_seconds() - used)
        machine.wait()
        return machine, cost


@contextmanager
def cloud(lab: NodeLab, folder: Path, group: str = "workbench-cpu") -> Iterator[Cloud]:
    """Yield the simulated AWS for a group. Its nodes have no EFS, no buckets, no PyTorch and no EC2 type."""
    with ExitStack() as stack:
        aws = stack.enter_context(running("111122223333")).region("us-west-2")
        (folder / "lab").mkdir()
        fleet_folder = folder_of_ada(lab, folder / "lab")
        plan = plan_of(fleet_folder.fleet)
        pool = next(pool for pool in ssh_pools(plan) if pool.group == group)
        place = stack.enter_context(boot_place(aws, folder))
        place.put_parameter("admins", administrators(plan.accounts))
        planned = pool_node(plan, pool, f"{pool.group}.{pool.region}", load_catalog())
        document = node_document(replace(planned, mounts=(), buckets=(), types=(), frameworks=False))
        opened = Cloud(lab, fleet_folder, place, plan, pool, document)
        stack.enter_context(place.bucket(opened.bucket))
        # A node that runs would write its status while the bucket is deleted.
        stack.callback(lambda: [node.machine.crash() for node in opened.nodes])
        yield opened
