"""Push configuration to gateways over SSH, all gateways at once.

Gateways of laptops get an access list, gateways with tunnels get a config bundle. Each push holds everything, so that a
gateway that missed one is complete after the next. `bedplate.programs.gateway`, the agent, defines both formats.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter

from bedplate.errors import BedplateError, PartialError
from bedplate.foreign import parse_json
from bedplate.nodes.apply import Target
from bedplate.nodes.remote import MAX_OUTPUT, run
from bedplate.plan.laptops import LaptopGatewayPlan, Transport
from bedplate.programs.gateway import access_list as agent
from bedplate.programs.gateway.paths import ConfigBundle, File
from bedplate.rounds import ask_each
from vpn.laptops.server import Laptop, address_files, without_address
from vpn.signing import POOL_FIX
from vpn.sites.files import files_of
from vpn.sites.gateway import Gateway

Answer = TypeVar("Answer")
_ENDED, _NAMES = TypeAdapter(dict[str, int]), TypeAdapter(tuple[str, ...])


def _push(
    command: tuple[str, ...],
    texts: Mapping[str, str],
    targets: Mapping[str, Target],
    parse: Callable[[str, dict[str, Any]], Answer],
) -> tuple[Mapping[str, Answer], Mapping[str, BedplateError]]:
    """Run a command of the agent on all gateways at once; return the parsed answers and the errors by gateway."""

    def push(name: str) -> Answer:
        output = run(targets[name], *command, stdin=texts[name].encode(), fix="fix the cause that the gateway names")
        try:
            return parse(name, parse_json(output, MAX_OUTPUT))
        except (ValueError, KeyError, TypeError):
            fix = "apply the role vpnagent to the gateway"
            raise PartialError("invalid answer from the gateway agent", fix=fix) from None

    return ask_each(texts, push, len(texts))


def _described(failures: Mapping[str, BedplateError]) -> str:
    return "; ".join(
        f"{name}: {error.what}{f' ({error.fix})' if error.fix else ''}" for name, error in failures.items()
    )


ACTIVATE_COMMAND = ("sudo", "-n", "bedplate-vpn", "activate")


@dataclass(frozen=True, slots=True)
class GatewayKeys:
    """A gateway's certificate and keys in PEM.

    `trusted` is the authority that signs laptops, `tls_crypt` the key that all gateways share.
    """

    trusted: str
    certificate: str
    key: str = field(repr=False)
    tls_crypt: str = field(repr=False)

    @property
    def files(self) -> dict[str, str]:
        """The texts by the file names on the gateway."""
        return {
            "ca.crt": self.trusted,
            "server.crt": self.certificate,
            "server.key": self.key,
            "tls-crypt-v2.key": self.tls_crypt,
        }


@dataclass(frozen=True, slots=True)
class AccessList:
    """Which laptops gateways serve: the revocation list in PEM, and all laptops with a valid certificate.

    `version` is the number of lines of the audit log: a gateway rejects a list with a lower version than it has. `keys`
    holds certificates and keys of gateways by place; a gateway without new keys keeps its own. `revoked` has the
    laptop of each revoked certificate by serial: the gateway ends sessions that still use it.
    """

    crl: str
    laptops: tuple[Laptop, ...]
    keys: Mapping[str, GatewayKeys] = field(default_factory=dict)
    revoked: Mapping[int, str] = field(default_factory=dict)
    version: int = 0

    def with_keys(
        self, results: Mapping[str, GatewayKeys | BedplateError]
    ) -> tuple["AccessList", Mapping[str, BedplateError]]:
        """Return the list with the usable keys, and the errors of the others by place."""
        keys = {place: result for place, result in results.items() if isinstance(result, GatewayKeys)}
        errors = {place: result for place, result in results.items() if isinstance(result, BedplateError)}
        return replace(self, keys=keys), errors


@dataclass(frozen=True, slots=True)
class PushedAccessList:
    """The result of a push of access lists, by the place of the gateway: ended sessions by laptop, or the error.

    `no_address` names the laptops for which a gateway's pool is too small; all others may connect.
    """

    cut: Mapping[str, Mapping[str, int]]
    failures: Mapping[str, BedplateError]
    no_address: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise PartialError with all gateways that were not updated, or else with all laptops without an address."""
        if self.failures:
            what = f"not every gateway was updated: {_described(self.failures)}"
            raise PartialError(what, fix="fix the cause, then run `bedplate vpn sync` again")
        if self.no_address:
            full = "; ".join(
                f"{place} has no free address for {', '.join(names)}" for place, names in self.no_address.items()
            )
            raise PartialError(f"not every laptop can connect: {full}", where="vpn.laptops.pool", fix=POOL_FIX)


def push_access_list(
    gateways: Sequence[LaptopGatewayPlan],
    access_list: AccessList,
    targets: Mapping[str, Target],
    *,
    cut: Iterable[str] = (),
) -> PushedAccessList:
    """Push the access list to all gateways, with the targets by their places.

    Sessions of laptops that are in `cut` or not in the list end.
    """
    by_place = {gateway.place: gateway for gateway in gateways}
    names_to_cut = tuple(cut)
    texts = {place: access_list_text(gateway, access_list, names_to_cut) for place, gateway in by_place.items()}

    def ended_sessions(_place: str, answer: dict[str, Any]) -> Mapping[str, int]:
        return _ENDED.validate_python(answer["cut"])

    ended, failures = _push(ACTIVATE_COMMAND, texts, targets, ended_sessions)
    full = {place: without_address(gateway, access_list.laptops) for place, gateway in by_place.items()}
    return PushedAccessList(ended, failures, {place: names for place, names in full.items() if names})


def access_list_text(gateway: LaptopGatewayPlan, access_list: AccessList, cut: Iterable[str] = ()) -> str:
    """Return what one gateway is sent."""
    keys = access_list.keys.get(gateway.place)
    return agent.GatewayAccessList(
        crl=access_list.crl,
        laptops={str(transport): address_files(gateway, transport, access_list.laptops) for transport in Transport},
        cut=tuple(sorted(cut)),
        identity=keys.files if keys else None,
        revoked={f"{serial:x}": name for serial, name in access_list.revoked.items()},
        version=access_list.version,
    ).json_text


APPLY_COMMAND = ("sudo", "-n", "bedplate-vpn", "apply")


@dataclass(frozen=True, slots=True)
class AppliedBundle:
    """Files and units that a config bundle changed at one gateway; `tunnels` counts the gateway's tunnels."""

    tunnels: int
    written: tuple[str, ...]
    removed: tuple[str, ...]
    started: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        """Whether anything was changed."""
        return bool(self.written or self.removed or self.started)


@dataclass(frozen=True, slots=True)
class PushedTunnels:
    """The result of a push of config bundles, by the name of the gateway: what changed, or the error."""

    applied: Mapping[str, AppliedBundle]
    failures: Mapping[str, BedplateError]

    def check(self) -> None:
        """Raise PartialError with all gateways that were not updated."""
        if self.failures:
            what = f"not every gateway has its tunnels: {_described(self.failures)}"
            where = next(iter(self.failures.values())).where
            raise PartialError(what, where=where, fix="fix the cause, then run `bedplate vpn tunnels` again")


def push_tunnels(gateways: Mapping[str, Gateway], targets: Mapping[str, Target]) -> PushedTunnels:
    """Push each gateway, given by the name of its machine, its config bundle."""

    def changes(name: str, answer: dict[str, Any]) -> AppliedBundle:
        written, removed, started = (_NAMES.validate_python(answer[key]) for key in ("written", "removed", "started"))
        return AppliedBundle(len(gateways[name].tunnels), written, removed, started)

    texts = {name: config_bundle_text(gateway) for name, gateway in gateways.items()}
    return PushedTunnels(*_push(APPLY_COMMAND, texts, targets, changes))


def config_bundle_text(gateway: Gateway) -> str:
    """Return the config bundle of a gateway in the format for the agent; it holds keys."""
    return ConfigBundle(tuple(File(str(file.path), file.text, file.mode) for file in files_of(gateway))).json_text
