"""Reaching a fleet's gateways: telling them what its keys have come to is one step of several commands."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.output import show
from bedplate.cli.vpn_opening import now
from bedplate.errors import BedplateError, InputError

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan
    from bedplate.plan.node import NodePlan
    from vpn.keeper.status import Status
    from vpn.laptops.carry import GatewayKeys
    from vpn.pki import Pki
    from vpn.ssh_way import SshWay

SshConfig = Annotated[
    Path | None, typer.Option("--ssh-config", metavar="FILE", help="Your own OpenSSH configuration and host keys.")
]


def tell_gateways(
    plan: "FleetPlan",
    pki: "Pki",
    config: Path | None,
    cut: Iterable[str] = (),
    keys: "Callable[[Pki], Mapping[str, GatewayKeys | BedplateError]] | None" = None,
) -> None:
    """Send every gateway whom it lets in and what was revoked, and say what was cut; PartError names the unreached.

    One whose own keys are not fit to be sent has the rest all the same, and is named too.
    A gateway refuses what is older than it has: where somebody else has signed meanwhile, theirs is sent with ours.
    """
    from dataclasses import replace

    from bedplate.plan.laptops import laptop_gateways
    from bedplate.report.vpn import carried_lines
    from vpn.laptops.carry import carry
    from vpn.pki import reopened
    from vpn.told import book_of, node_of_gateway

    gateways = laptop_gateways(plan)
    if not gateways:
        return
    nodes = {gateway.place: node_of_gateway(plan, gateway) for gateway in gateways}
    with ways_to(plan, nodes.values(), config) as way:
        while True:
            book, unfit = book_of(pki, now()).with_keys(keys(pki) if keys else {})
            carried = carry(gateways, book, lambda gateway: way(nodes[gateway.place].name), cut=cut)
            fresh = reopened(pki) if carried.failures else pki
            if fresh is pki:
                break
            pki = fresh
    show(carried_lines(carried))
    replace(carried, failures={**unfit, **carried.failures}).check()


def ask_gateways(
    plan: "FleetPlan", nodes: "Sequence[NodePlan]", config: Path | None
) -> "dict[str, Status | BedplateError]":
    """Ask all of these gateways at once, and return what each answered, or why it did not, by the machine's name."""
    from concurrent.futures import ThreadPoolExecutor

    from vpn.answer import ASK, parse_status

    def ask(node: "NodePlan") -> "Status | BedplateError":
        try:
            return parse_status(way(node.name).run(ASK, ""))
        except BedplateError as error:
            return error

    with ways_to(plan, nodes, config) as way, ThreadPoolExecutor(max(1, len(nodes))) as pool:
        return dict(zip((node.name for node in nodes), pool.map(ask, nodes), strict=True))


@contextmanager
def ways_to(plan: "FleetPlan", nodes: "Iterable[NodePlan]", config: Path | None) -> "Iterator[Callable[[str], SshWay]]":
    """Give the way to each of these machines: by the host key that the lock holds, or else as the operator's ssh knows.

    Raises InputError where there is no such configuration.
    """
    from bedplate.nodes.ssh_config import Login, Reached
    from bedplate.nodes.way import own_ways, ways
    from vpn.ssh_way import SshWay, own_way

    if config and not config.is_file():
        raise InputError("there is no such file", where=str(config), fix="name the file that there is")
    machines = [Reached(node) for node in nodes]
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        login = Login(None if config else _me(plan))
        found = (
            own_ways(config, machines, Login())
            if config
            else ways(Path(folder), machines, plan.record.host_keys, login)
        )
        argv = {target.node.name: target.argv for target in found.targets}
        yield lambda name: SshWay(argv[name]) if name in argv else own_way(name)


def _me(plan: "FleetPlan") -> str:
    from bedplate.hold import login_name
    from bedplate.nodes.deployer import deployer

    return deployer(plan.accounts, login_name())
