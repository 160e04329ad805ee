"""Gateways over SSH: send certificates and access lists to those of laptops, and ask any for its status."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bedplate.cli.output import show
from bedplate.cli.vpn_session import now
from bedplate.errors import BedplateError, InputError
from bedplate.hold import login_name
from bedplate.nodes.ssh import Login, Reached, deployer, own_ways, ways
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import laptop_gateways
from bedplate.plan.nodes import NodePlan
from bedplate.report.vpn import updated_gateway_lines
from vpn.gateways import SshWay, book_of, node_of_gateway, own_way
from vpn.keeper.status import Status
from vpn.laptops.push import GatewayKeys, carry
from vpn.pki import Pki, reopened
from vpn.status import ASK, parse_status


def update_gateways(
    plan: FleetPlan,
    pki: Pki,
    config: Path | None,
    cut: Iterable[str] = (),
    keys: Callable[[Pki], Mapping[str, GatewayKeys | BedplateError]] | None = None,
) -> None:
    """Send the access list, the revocation lists and, with `keys`, the certificates to every gateway of laptops.

    Gateways end the sessions of the laptops in `cut`. A gateway whose own certificate is unusable gets the rest. Raises
    PartError, with the names, if a gateway was not updated.
    """
    gateways = laptop_gateways(plan)
    if not gateways:
        return
    nodes = {gateway.place: node_of_gateway(plan, gateway) for gateway in gateways}
    with ssh_ways(plan, nodes.values(), config) as way:
        while True:
            book, unusable = book_of(pki, now()).with_keys(keys(pki) if keys else {})
            carried = carry(gateways, book, lambda gateway: way(nodes[gateway.place].name), cut=cut)
            # A gateway refuses lists older than its own. If another operator has signed meanwhile, send theirs.
            fresh = reopened(pki) if carried.failures else pki
            if fresh is pki:
                break
            pki = fresh
    show(updated_gateway_lines(carried))
    replace(carried, failures={**unusable, **carried.failures}).check()


def ask_gateways(
    plan: FleetPlan, nodes: Sequence[NodePlan], config: Path | None
) -> tuple[dict[str, Status], dict[str, BedplateError]]:
    """Ask these gateways in parallel. Return the status of each, and the error of those that did not answer."""

    def ask(node: NodePlan) -> Status | BedplateError:
        try:
            return parse_status(way(node.name).run(ASK, ""))
        except BedplateError as error:
            return error

    with ssh_ways(plan, nodes, config) as way, ThreadPoolExecutor(max(1, len(nodes))) as pool:
        answers = dict(zip((node.name for node in nodes), pool.map(ask, nodes), strict=True))
    statuses = {name: answer for name, answer in answers.items() if isinstance(answer, Status)}
    return statuses, {name: answer for name, answer in answers.items() if isinstance(answer, BedplateError)}


@contextmanager
def ssh_ways(plan: FleetPlan, nodes: Iterable[NodePlan], config: Path | None) -> Iterator[Callable[[str], SshWay]]:
    """Yield the function that returns the ssh command for the name of a machine.

    It uses `config`, else the host key in the lock, else the operator's own ssh settings. Raises InputError if `config`
    does not exist.
    """
    if config and not config.is_file():
        raise InputError("no such file", where=str(config), fix="name an existing OpenSSH configuration")
    machines = [Reached(node) for node in nodes]
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        if config:
            found = own_ways(config, machines, Login())
        else:
            login = Login(deployer(plan.accounts, login_name()))
            found = ways(Path(folder), machines, plan.record.host_keys, login)
        commands = {target.node.name: target.argv for target in found.targets}
        yield lambda name: SshWay(commands[name]) if name in commands else own_way(name)
