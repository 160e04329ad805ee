"""The kinds of machines of the examples, one machine of an example each; kinds differ in platform and roles."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bedplate.catalog import load_catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import NodePlan, find_node, permanent_nodes, pool_node
from bedplate.plan.pools import PoolPlan
from roles.catalog import names_of
from tests.testlab.machines.fake_driver import FAKE_EFA, FAKE_PYTORCH, LOADED, fake_driver, fake_gpus

HOME_REGION = "us-west-2"
# What udev does.
_TUN = "chmod 666 /dev/net/tun\n"
# nfs-ganesha exports no overlay file system.
_DISK = "mount -t tmpfs tmpfs /srv; [ ! -d /var/srv ] || cp -a /var/srv/. /srv/\n"
_EFA_DEVICES = """for number in $(seq 32); do
  device=/run/lab/class/infiniband/efa_$number/device
  mkdir -p $device; echo DRIVER=efa >$device/uevent
done
"""


@dataclass(frozen=True)
class Kind:
    """A kind of machine: the name of one in an example, its address, and the devices of its hardware at each boot.

    `prepared` are commands before the first configuration, in place of downloads that do not exist here.
    """

    name: str
    machine: str
    address: str
    hardware: str = ""
    prepared: str = ""
    before_restart: str = ""
    is_worker: bool = False
    """Whether it joins a cluster."""
    is_member: bool = False
    """Whether it is a member of the control plane."""
    idle: float | None = None
    """The seconds without use after which it ends itself."""
    example: str = "lab"

    @property
    def label(self) -> str:
        """The name of the group, or of the machine."""
        return self.machine.partition(".")[0].rstrip("0123456789").rstrip("-")


def _with_gpus(kind: Kind, model: str, count: int, memory: int = 0, more: str = "") -> Kind:
    """Return a kind with GPUs of a fake driver."""
    hardware = fake_gpus(model, count, memory) + LOADED
    return replace(kind, hardware=hardware, prepared=fake_driver(model, count, memory) + more)


def _with_fabric(kind: Kind) -> Kind:
    """Return a kind with EFA devices, and a fake of their software."""
    return replace(
        kind,
        hardware=_EFA_DEVICES + kind.hardware,
        prepared=kind.prepared + FAKE_EFA.replace("VERSION", load_catalog().software_set(None).value("efa")),
    )


KINDS = (
    Kind("workbench", "workbench-cpu-1.us-west-2", "10.64.33.7"),
    _with_gpus(Kind("workbench-gpu", "workbench-gpu-1.us-west-2", "10.64.33.9"), "L4", 1, 23034, FAKE_PYTORCH),
    _with_gpus(Kind("site-workbench", "titan-03.cellar", "192.168.40.23"), "TITAN X (Pascal)", 4),
    Kind("file-server", "nas.cellar", "192.168.40.5", _DISK, before_restart="rm -rf /var/srv; cp -a /srv /var/srv"),
    Kind("worker", "sim-1.us-west-2", "10.64.33.11", is_worker=True),
    _with_gpus(Kind("worker-gpu", "burst-1.us-west-2", "10.64.33.12", is_worker=True), "L40S", 4, 46068),
    _with_fabric(
        _with_gpus(Kind("worker-efa", "train-1.us-west-2", "10.64.33.13", is_worker=True), "H100 80GB HBM3", 8, 81559)
    ),
    _with_gpus(Kind("site-worker", "titan-01.cellar", "192.168.40.21", is_worker=True), "TITAN X (Pascal)", 4),
    Kind("member-router", "control-1.us-west-2", "10.64.32.16", is_member=True),
    Kind("member", "control-2.us-west-2", "10.64.64.16", is_member=True),
    Kind("hub", "hub.us-west-2", "10.64.32.17"),
    Kind("site-hub", "vault.attic", "192.168.40.6", example="office"),
    Kind("laptop-gateway", "laptops.us-west-2", "10.64.0.4", _TUN),
    Kind("site-gateway", "gate.cellar", "192.168.40.1", _TUN),
)

Signature = tuple[str, frozenset[str], tuple[str, ...]]
"""What makes a kind: platform, roles in the fleet, and the roles that configure it."""


def signature(node: NodePlan) -> Signature:
    """Return the kind of a machine."""
    return node.platform.value, frozenset(role.value for role in node.roles), names_of(node)


def planned_machines(plan: FleetPlan) -> Iterator[NodePlan]:
    """Yield each permanent machine of a plan, and a machine of each pool."""
    yield from permanent_nodes(plan)
    for pool in plan.pools:
        yield pool_node(plan, pool, f"{pool.group}-1.{pool.region}", load_catalog())


def pool_of(kind: Kind, plan: FleetPlan) -> PoolPlan | None:
    """Return the first pool of the group of a machine in the home region."""
    return next((pool for pool in plan.pools if (pool.group, pool.region) == (kind.label, HOME_REGION)), None)


def planned_node(kind: Kind, plan: FleetPlan) -> NodePlan:
    """Return the plan of a kind's machine."""
    pool = pool_of(kind, plan)
    node = (
        pool_node(plan, pool, kind.machine, load_catalog()) if pool else find_node(plan, kind.machine, load_catalog())
    )
    return replace(node, idle=kind.idle)
