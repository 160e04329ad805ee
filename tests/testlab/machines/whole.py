"""Whole machines: one of each kind of the examples, configured with all its roles, as users make it.

Machines of the cloud start from user data, machines of sites from the folder of `bedplate node bootstrap --folder`,
both with a bundle of the working tree. Their services
are in tests/testlab/machines/services.py, what is around them in surroundings.py.
"""

import gzip
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from bedplate.catalog import load_catalog
from bedplate.kubernetes.approval import KnownMachine
from bedplate.load import load_fleet
from bedplate.nodes.bootstrap import site_script
from bedplate.operate import plan_loaded
from bedplate.operate.site_folder import script_name, write_folder
from bedplate.permissions import HUB
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import NodePlan, NodeRole
from bedplate.plan.pools import PoolPlan
from bedplate.rehearsal.simulation import Aws, running
from bedplate.spec.sites import Use
from stacks.compute.template import (
    ETCD,
    VPN_KEYS,
    KeptData,
    encode_user_data,
    first_boot,
    hub_data,
    permanent_boot,
    token_hops,
)
from stacks.program import administrators
from tests.testlab.fakes.buckets import ObjectStore
from tests.testlab.fakes.first_boot import Node as Instance
from tests.testlab.fakes.first_boot import Place, boot_place
from tests.testlab.fleets.variants import cellar_gateway
from tests.testlab.machines.bundle import working_tree
from tests.testlab.machines.cloud import S3, seen_by_nodes, serve_objects, trust_store
from tests.testlab.machines.container import call
from tests.testlab.machines.file_server import FileServer
from tests.testlab.machines.gateways import record_cloud
from tests.testlab.machines.lab import FleetFolder, substitute_ipsec
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.self_configured import SelfConfigured
from tests.testlab.machines.surroundings import (
    Authority,
    address_of,
    answering_names,
    equip,
    file_systems,
    metadata_at_its_address,
)
from tests.testlab.machines.whole_kinds import HOME_REGION, Kind, planned_node, pool_of
from tests.testlab.machines.whole_laptop import LaptopBehind, laptop_behind
from tests.testlab.machines.whole_worker import WholeCluster, install_packages, record_new_authority, whole_cluster
from tests.testlab.machines.workstation import make_key
from tests.testlab.network.netlab import until
from tests.testlab.rehearsal.programs import EXAMPLES
from vpn.push import APPLY_COMMAND, config_bundle_text

STRANGER = "stranger"
"""Somebody with a key who is not in the fleet file."""
_SECONDS = 1500
# The number of loop devices. Source: devices.txt of Linux.
_MAJOR = 7


@dataclass
class Whole:
    """A configured machine with its surroundings; `again` repeats its configuration and returns what changed."""

    kind: Kind
    lab: NodeLab
    fleet: FleetFolder
    plan: FleetPlan
    planned: NodePlan
    keys: Mapping[str, Path]
    files: FileServer
    node: Node
    stack: ExitStack
    folder: Path
    again: Callable[[], list[str]] = field(default=list)
    audited: Callable[[], dict[str, Any]] = field(default=dict)
    has_role: bool = False
    """Whether it has a role in AWS."""
    place: Place | None = None
    """Its AWS, for a machine that starts from user data."""
    store: ObjectStore | None = None
    laptop: LaptopBehind | None = None
    cluster: WholeCluster | None = None
    run: SelfConfigured | None = None
    """What a machine of the cloud configures itself from."""
    devices: list[str] = field(default_factory=list)
    """The loop devices of its volumes; the last one is attached."""

    def ssh(self, person: str, command: str, source: str = "", seconds: float = 60) -> CompletedProcess[str]:
        """Run a command by the ssh of a person, from the workstation or another of its addresses."""
        options = (
            "-F",
            "/dev/null",
            "-i",
            str(self.keys.get(person, self.keys["ada"])),
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "BatchMode=yes",
        )
        known = ("-o", f"UserKnownHostsFile={self.lab.known_hosts}", "-o", "ConnectTimeout=10")
        bind = ("-b", source) if source else ()
        to = f"{person}@{self.node.address}"
        return self.lab.workstation.run("ssh", *options, *known, *bind, to, command, seconds=seconds)

    def as_person(self, person: str, command: str) -> str:
        """Return what a command prints in a login shell over SSH; it must succeed."""
        done = self.ssh(person, command)
        assert done.returncode == 0, f"{person}: {command}: {done.stdout}{done.stderr}"
        return done.stdout

    def restart(self) -> None:
        """Restart the machine."""
        self.node.run(self.kind.before_restart)
        self.node.restart()

    def bedplate(self, *words: str) -> CompletedProcess[str]:
        """Run a command of an administrator who logs in with the own account."""
        return self.fleet.bedplate(*words, "--user", "ada", "--identity", str(self.keys["ada"]))


@contextmanager
def whole_machine(kind: Kind, folder: Path) -> Iterator[Whole]:
    """Yield a machine of a kind after its first configuration."""
    with ExitStack() as stack:
        lab = stack.enter_context(NodeLab())
        # The key with which the first account of a machine is made.
        keys = {"ada": lab.key, **{name: folder / name for name in ("grace", STRANGER)}}
        for name in ("grace", STRANGER):
            make_key(keys[name], name)
        fleet = write_fleet(folder / "fleet", keys, lab, kind.example)
        if kind.example == "lab":
            record_cloud(fleet.fleet)
        cluster = None
        if kind.is_member:
            record_new_authority(fleet, find_plan(fleet), folder / "cluster")
        if kind.is_worker:
            cluster = stack.enter_context(whole_cluster(lab, fleet, find_plan(fleet)))
        plan = find_plan(fleet)
        planned = planned_node(kind, plan)
        authority = Authority.create(folder / "authority")
        files = stack.enter_context(file_systems(lab, authority, planned, folder / "stores"))
        names = {mount.server: address_of(mount, planned) for mount in planned.mounts}
        buckets = dict.fromkeys(s3_names(planned), S3)
        resolvers = tuple(map(str, planned.resolvers))
        stack.enter_context(answering_names(lab, {**names, **buckets}, resolvers))
        node = _boot(kind, lab, fleet, planned, authority)
        stack.callback(node.machine.crash)
        machine = Whole(kind, lab, fleet, plan, planned, keys, files, node, stack, folder, cluster=cluster)
        _start(machine)
        if planned.laptops:
            machine.laptop = laptop_behind(lab, node, planned, fleet, str(config_of_ada(machine)))
        if NodeRole.TUNNELS in planned.roles:
            done = machine.lab.workstation.run(
                "ssh",
                "-F",
                str(config_of_ada(machine)),
                node.name,
                *APPLY_COMMAND,
                stdin=config_bundle_text(cellar_gateway(plan)),
            )
            assert done.returncode == 0, done.stderr
        yield machine


def _boot(kind: Kind, lab: NodeLab, fleet: FleetFolder, planned: NodePlan, authority: Authority) -> Node:
    """Boot a machine with its hardware and what its kind needs before the first configuration."""
    node = lab.boot(kind.machine, kind.address, planned.full_name)
    fleet.trust(node)
    equip(node, authority, kind.hardware, planned.types[0] if planned.types else "")
    if NodeRole.TUNNELS in planned.roles:
        substitute_ipsec(node)
    node.run(kind.prepared, seconds=300)
    if planned.cluster:
        install_packages(node, planned)
    return node


def machine_beside(machine: Whole, kind: Kind) -> Whole:
    """Return a machine of a site in the network and the fleet of another one, after its first configuration."""
    lab, fleet, folder, stack = machine.lab, machine.fleet, machine.folder / kind.name, machine.stack
    planned, authority = planned_node(kind, machine.plan), Authority(machine.folder / "authority")
    files = stack.enter_context(file_systems(lab, authority, planned, folder / "stores"))
    node = _boot(kind, lab, fleet, planned, authority)
    stack.callback(node.machine.crash)
    beside = Whole(kind, lab, fleet, find_plan(fleet), planned, machine.keys, files, node, stack, folder)
    _start_from_folder(beside)
    return beside


def config_of_ada(machine: Whole) -> Path:
    """Write the ssh configuration of the administrator."""
    lines = (
        f"Host {machine.node.name} {machine.planned.full_name} {machine.node.address}",
        f"HostName {machine.node.address}",
        "User ada",
        f"IdentityFile {machine.keys['ada']}",
        f"UserKnownHostsFile {machine.lab.known_hosts}",
        *("IdentitiesOnly yes", "StrictHostKeyChecking yes", "BatchMode yes", "ConnectTimeout 10"),
    )
    file = machine.folder / "ssh_config"
    file.write_text("\n  ".join(lines) + "\n")
    return file


def find_plan(fleet: FleetFolder) -> FleetPlan:
    """Return the plan of a fleet file with all that its lock records."""
    return plan_loaded(load_fleet(fleet.fleet, load_catalog()))


def write_fleet(folder: Path, keys: Mapping[str, Path], lab: NodeLab, example: str = "lab") -> FleetFolder:
    """Copy an example with the keys of the test, and record its plan."""
    text = (EXAMPLES / f"{example}.yaml").read_text(encoding="utf-8")
    for person in ("ada", "grace"):
        key = " ".join(Path(f"{keys[person]}.pub").read_text().split()[:2])
        text, count = re.subn(rf"(  {person}: .*keys: \[)[^]]*", rf'\1"{key}"', text)
        assert count == 1
    folder.mkdir()
    (folder / "fleet.yaml").write_text(text, encoding="utf-8")
    fleet = FleetFolder(lab, folder)
    fleet.record()
    return fleet


def s3_names(planned: NodePlan) -> Iterator[str]:
    """Yield the host names of S3 that a machine uses."""
    backups = (planned.hub.bucket,) if planned.hub and planned.hub.bucket else ()
    for bucket in (*planned.buckets, *backups):
        yield f"{bucket.name}.s3.{bucket.region}.amazonaws.com"
        yield f"s3.{bucket.region}.amazonaws.com"


def _start(machine: Whole) -> None:
    """Configure a machine by the path of its kind."""
    if machine.planned.place in machine.plan.sites_by_name:
        _start_from_folder(machine)
    else:
        _start_from_user_data(machine, pool_of(machine.kind, machine.plan))


def _start_from_user_data(machine: Whole, pool: PoolPlan | None) -> None:
    stack, plan, node = machine.stack, machine.plan, machine.node
    aws = stack.enter_context(running(plan.account)).region(HOME_REGION)
    machine.place = place = stack.enter_context(boot_place(aws, machine.folder))
    place.put_parameter("admins", administrators(plan.accounts))
    bucket = plan.nodes_bucket(HOME_REGION).name
    stack.enter_context(place.bucket(bucket))
    # A machine that runs would write its status while the bucket is deleted.
    stack.callback(node.machine.crash)
    instance = _instance(machine, place, pool)
    hops = token_hops(pool.use) if pool else 1
    stack.enter_context(metadata_at_its_address(machine.lab.workstation.host, instance.facts, hops))
    machine.has_role = True
    document = replace(machine.planned, name=f"{pool.group}.{pool.region}") if pool else machine.planned
    name = pool.name if pool else machine.planned.name
    run = machine.run = SelfConfigured(node, place, bucket, {name: node_document(document)}, instance)
    run.promote()
    script = first_boot(plan, pool) if pool else _permanent_script(machine)
    (node.root / "root/user-data").write_bytes(gzip.decompress(b64decode(encode_user_data(name, script))))
    lead_to_aws(node, place)
    if machine.cluster:
        _expect(machine, machine.cluster, instance, (place, bucket))
    if machine.planned.hub or (machine.planned.buckets and NodeRole.WORKBENCH in machine.planned.roles):
        machine.store = _store(machine, aws, place)
    if machine.planned.hub:
        _trust_authority_of_s3(machine)
    run.boot()
    until(lambda: bool(place.reports) or _has_given_up(node), _SECONDS, "the machine does not report", every=0.5)
    run.wait()
    if machine.store and not machine.planned.hub:
        trust_store(node, machine.folder)
    machine.again, machine.audited = lambda: _ran(machine, run), lambda: status(node, "audit")


def _instance(machine: Whole, place: Place, pool: PoolPlan | None) -> Instance:
    """Start the instance of a machine in the simulated EC2."""
    group, address = f"{machine.plan.name}-{pool.name}" if pool else "", machine.kind.address
    instance = place.machine_of_group(group, address) if pool else place.machine()
    instance.facts["local-ipv4"] = address
    _complete_credentials(instance)
    return instance


VOLUME = "vol-0123456789abcdef0"


def _permanent_script(machine: Whole) -> str:
    """Return the user data of a member, gateway or hub, whose volume is a loop device."""
    _make_volume(machine)
    _attach_volume(machine)
    return permanent_boot(machine.plan, machine.planned.name, _kept_data(machine), VOLUME)


def _kept_data(machine: Whole) -> KeptData:
    hub = machine.planned.hub
    return ETCD if machine.kind.is_member else hub_data(hub) if hub else VPN_KEYS


def _make_volume(machine: Whole) -> None:
    """Make an empty volume, which takes the place of the one before."""
    image = machine.folder / f"volume-{len(machine.devices)}.img"
    with image.open("wb") as stream:
        stream.truncate(1 << 30)
    machine.devices.append(call("losetup", "--find", "--show", str(image)).strip())
    machine.stack.callback(call, "losetup", "--detach", machine.devices[-1])


def _attach_volume(machine: Whole) -> None:
    kept, device = _kept_data(machine), machine.devices[-1]
    node, disk = machine.node, machine.node.root.with_name("upper")
    # The bootstrap makes the mount points immutable.
    folders = " ".join(f"{disk}{folder}" for folder in (*kept.folders, kept.mount))
    machine.stack.callback(call, "sh", "-c", f"chattr -i {folders} || true")
    machine.stack.callback(node.machine.crash)
    link = f"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{VOLUME.replace('-', '')}"
    # systemd in a container mounts no devices of fstab.
    number = device.removeprefix("/dev/loop")
    binds = "".join(f"; mount --bind {kept.mount}/{Path(folder).name} {folder}" for folder in kept.folders)
    more = f"""mkdir -p /dev/disk/by-id; mknod {device} b {_MAJOR} {number}; ln -s {device} {link}
! grep -qs {kept.mount} /etc/fstab || {{ mount {link} {kept.mount}{binds}; }}
"""
    with (node.root / "usr/local/lib/lab/more").open("a") as hardware:
        hardware.write(more)
    node.run(more)


def replace_machine(machine: Whole, *, is_volume_lost: bool = False) -> None:
    """End a gateway or the hub without a shutdown, and start another, as its group does; no operator helps.

    It has the volume of the former one, or a new one if that is lost.
    """
    run = machine.run
    assert run
    machine.node.machine.crash()
    machine.node = node = machine.lab.replace(machine.node.name)
    equip(node, Authority(machine.folder / "authority"), machine.kind.hardware)
    if is_volume_lost:
        _make_volume(machine)
    _attach_volume(machine)
    if machine.planned.hub:
        _trust_authority_of_s3(machine)
    instance = run.place.machine()
    run.instance.facts["instance-id"] = instance.facts["instance-id"]
    run.node = node
    script = permanent_boot(machine.plan, machine.planned.name, _kept_data(machine), VOLUME)
    (node.root / "root/user-data").write_text(script)
    lead_to_aws(node, run.place)
    before = len(run.place.reports)
    run.boot()
    until(
        lambda: len(run.place.reports) > before or _has_given_up(node),
        _SECONDS,
        "it does not report",
        every=0.5,
    )
    run.wait()


def _trust_authority_of_s3(machine: Whole) -> None:
    """Let rclone, which trusts the authorities of its machine, trust the certificate of the buckets."""
    text = (machine.folder / "ca.pem").read_text()
    (machine.node.root / "usr/local/share/ca-certificates/s3.crt").write_text(text)
    machine.node.run("update-ca-certificates >/dev/null 2>&1")


def _expect(machine: Whole, cluster: WholeCluster, instance: Instance, source: tuple[Place, str]) -> None:
    """Let the cluster expect an instance under the name that it takes."""
    facts = {"placement/availability-zone": f"{HOME_REGION}a", "instance-type": machine.planned.types[0]}
    instance.facts.update(facts)
    own = instance.facts["instance-id"]
    machine.planned = replace(machine.planned, name=f"{machine.kind.label}-{own[-8:]}.{HOME_REGION}")
    known = KnownMachine(frozenset({machine.kind.address}), own)
    cluster.expect(known, machine.planned.name, *source, machine.stack)


def _start_from_folder(machine: Whole) -> None:
    node, planned = machine.node, machine.planned
    bundle = working_tree({planned.name: node_document(planned)}, {})
    texts = {
        script_name(planned): site_script(planned),
        "rings/stable.json": json.dumps({"bundle": bundle.sha256, "sequence": 1}),
    }
    write_folder(node.root / "root/stick", {**bundle.objects, **{name: text.encode() for name, text in texts.items()}})
    node.run(f"bash /root/stick/{script_name(planned)}", seconds=300)
    until(lambda: bool(status(node, "audit")) or _has_given_up(node), _SECONDS, "it is not configured", every=1)
    if machine.cluster:
        known = KnownMachine(frozenset({machine.kind.address}), None)
        machine.cluster.expect(known, planned.name, None, "", machine.stack)
        token = machine.cluster.token_of(planned.name)
        machine.as_person("ada", f"echo {token} | sudo -n bedplate-worker join")
    machine.again, machine.audited = lambda: _applied(machine), lambda: _audited(machine)


def status(node: Node, name: str) -> dict[str, Any]:
    """Return what a machine has last written about itself; empty before."""
    text = node.run(f"cat /var/lib/bedplate/status/{name}.json 2>/dev/null || true")
    document: dict[str, Any] = json.loads(text or "{}")
    return document


def _has_given_up(node: Node) -> bool:
    """Return whether the last run has failed."""
    return status(node, "run").get("ok") is False


def _ran(machine: Whole, run: SelfConfigured) -> list[str]:
    """Return the changes of one more configuration run."""
    run.run()
    changes: list[str] = status(machine.node, "run")["changed"]
    return changes


def _applied(machine: Whole) -> list[str]:
    """Return the changes of an apply by an administrator."""
    done = machine.bedplate("node", "apply", machine.planned.name, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    changes: list[str] = json.loads(done.stdout)["nodes"][machine.planned.name]["changed"]
    return changes


def _audited(machine: Whole) -> dict[str, Any]:
    """Return the findings of an audit by an administrator."""
    done = machine.bedplate("node", "audit", machine.planned.name, "--json")
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _complete_credentials(instance: Instance) -> None:
    """Add what the AWS CLI requires of the credentials of a role."""
    name = instance.facts["iam/security-credentials/"]
    keys = json.loads(instance.facts[f"iam/security-credentials/{name}"])
    term = {"Type": "AWS-HMAC", "Expiration": "2099-01-01T00:00:00Z"}
    instance.facts[f"iam/security-credentials/{name}"] = json.dumps({**keys, **term}, indent=2)


def _store(machine: Whole, aws: Aws, place: Place) -> ObjectStore:
    hub = machine.planned.hub
    others = (hub.bucket.name,) if hub and hub.bucket else ()
    store = ObjectStore(machine.plan, aws, HUB if hub else Use.SSH.value, others)
    store.keys = place.endpoint.keys
    machine.stack.enter_context(serve_objects(machine.lab.workstation.host, store, machine.folder))
    return store


def lead_to_aws(node: Node, place: Place) -> None:
    """Lead the script and its service to the simulated AWS; remove the key of the node lab, as in a cloud image."""
    environment = {"AWS_ENDPOINT_URL": seen_by_nodes(place.endpoint.url), "PAUSE": "0"}
    (node.root / "root/environment").write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
    # The environment of all services, now and after a boot: the audit reports drop-ins.
    node.run("xargs -a /root/environment systemctl set-environment")
    words = " ".join(f'"{name}={value}"' for name, value in environment.items())
    settings = node.root / "etc/systemd/system.conf.d/10-lab.conf"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"[Manager]\nDefaultEnvironment={words}\n")
    node.run("mkdir -p /etc/cloud/cloud.cfg.d; rm ~ubuntu/.ssh/authorized_keys")
