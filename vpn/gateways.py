"""What the keys and the plan together make of a fleet's gateways: what each is to be told, and how it is reached."""

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from bedplate.errors import BedplateError, MachineError, PartError
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import LaptopGateway, laptop_gateways
from bedplate.plan.nodes import Duty, NodePlan, standing_nodes
from vpn.certificates import Passphrase, Subject, Use
from vpn.journal import Roll
from vpn.laptops.push import Book, GatewayKeys
from vpn.laptops.server import Laptop
from vpn.pki import Pki, bundle_of, deployable_lists
from vpn.signing import check_serves


def book_of(pki: Pki, now: datetime) -> Book:
    """Return whom gateways let in from now on; InputError where the list there is may not be deployed."""
    laptops = tuple(laptops_of(pki.roll, now))
    names = {each.name for each in laptops}
    revoked = {serial: name for serial, name in _revoked(pki.roll) if name in names}
    return Book(deployable_lists(pki, now), laptops, revoked=revoked, version=len(pki.journal.lines))


def laptops_of(roll: Roll, now: datetime) -> Iterator[Laptop]:
    """Yield every laptop that has a valid certificate, once."""
    valid = {each.name for each in roll.valid(now)}
    for name, held in roll.holders().items():
        if name in valid and held.use is Use.CLIENT and held.slot is not None:
            yield Laptop(name, held.slot)


def _revoked(roll: Roll) -> Iterator[tuple[int, str]]:
    return ((each.serial, roll.issued[each.serial].name) for each in roll.revocations())


def gateways_of(plan: FleetPlan) -> tuple[Subject, ...]:
    """Return whom the certificates of the fleet's gateways name."""
    found = laptop_gateways(plan)
    return tuple(Subject(each.name, Use.SERVER, (each.public,) if each.public else ()) for each in found)


def keys_of_gateways(
    plan: FleetPlan, pki: Pki, passphrase: Passphrase, now: datetime
) -> Mapping[str, GatewayKeys | BedplateError]:
    """Return what each gateway proves itself by, by place; or why it has nothing that laptops would take."""
    return {each.place: _keys_of(each, pki, passphrase, now) for each in laptop_gateways(plan)}


def _keys_of(gateway: LaptopGateway, pki: Pki, passphrase: Passphrase, now: datetime) -> GatewayKeys | BedplateError:
    try:
        bundle = bundle_of(pki, gateway.name, passphrase)
        check_serves(f"the gateway in {gateway.place}", bundle, Subject(gateway.name, Use.SERVER), pki, now)
    except BedplateError as error:
        return PartError(f"what is kept as {gateway.name} cannot be sent: {error.what}", fix=error.fix)
    return GatewayKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)


def node_of_gateway(plan: FleetPlan, gateway: LaptopGateway) -> NodePlan:
    """Return the machine that is a gateway."""
    return next(
        node
        for node in standing_nodes(plan)
        if Duty.LAPTOPS in node.duties and node.name.partition(".")[2] == gateway.place
    )


# A gateway that does not answer within this is told as not reached; the others are asked meanwhile.
CONNECT_S, PATIENCE_S = 5, 30
# What ssh itself returns when it could not run the command (ssh(1), "EXIT STATUS").
_OWN_FAILURE = 255
# What the keeper returns of what it does not take: it says what is to be done, and the same again is refused again.
_REFUSAL = 2
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class SshWay:
    """A host: `argv` is the ssh, with its options and the host's name, that runs a command there."""

    argv: tuple[str, ...]

    def run(self, command: str, told: str) -> str:
        """Run a command there with `told` on its standard input; PartError where it fails, MachineError without ssh."""
        try:
            done = subprocess.run(  # noqa: S603  # the host is a name of the plan
                [*self.argv, command],
                input=told,
                capture_output=True,
                errors="replace",
                timeout=PATIENCE_S,
                check=False,
            )
        except FileNotFoundError:
            raise MachineError("there is no ssh on this machine", fix="install OpenSSH's client") from None
        except subprocess.TimeoutExpired:
            raise PartError(f"no answer within {PATIENCE_S} s") from None
        if done.returncode:
            fix = "do what it says" if done.returncode == _REFUSAL else ""
            raise PartError(_failure(done.returncode, done.stderr), fix=fix)
        return done.stdout


def own_way(host: str) -> SshWay:
    """Return the way by the operator's own settings, keys and known hosts, to the name that they know."""
    return SshWay(("ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "--", host))


def _failure(status: int, errors: str) -> str:
    last = (errors.strip().splitlines() or ["it says nothing"])[-1][:_LONGEST]
    return f"not reached: {last}" if status == _OWN_FAILURE else f"it refused, with status {status}: {last}"
