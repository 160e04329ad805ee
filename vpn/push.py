"""Push configuration to gateways over SSH, all gateways at once.

Gateways of laptops get an access list, gateways with tunnels get a config bundle. Each push holds everything, so that a
gateway that missed one is complete after the next. `bedplate.programs.gateway`, the agent, defines both formats.
"""

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Thread
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import TypeAdapter

from bedplate.errors import BedplateError, MachineError, PartialError
from bedplate.foreign import parse_json
from bedplate.plan.laptops import LaptopGatewayPlan, Transport
from bedplate.programs.gateway import access_list as agent
from bedplate.programs.gateway.paths import ConfigBundle, File
from vpn.laptops.server import Laptop, address_files, without_address
from vpn.signing import POOL_FIX
from vpn.sites.files import files_of
from vpn.sites.gateway import Gateway

if TYPE_CHECKING:
    from io import BufferedReader

Answer = TypeVar("Answer")
# A gateway that does not answer in time is reported; the others are contacted at the same time.
CONNECT_S, TIMEOUT_S = 5, 30
# What ssh returns if it could not run the command (ssh(1), "EXIT STATUS").
_SSH_FAILED = 255
# Exit status of the agent for rejected input; its message contains the fix.
_REJECTED = 2
_MAX_ERROR_LENGTH = 300
_UNRESOLVED = (
    "record its host key with `bedplate node trust`, pass --ssh-config, "
    "or include what `bedplate node ssh-config --write FILE` writes in ~/.ssh/config"
)
# Seconds for the last output after ssh has ended; bytes of an answer.
_FLUSH_S, MAX_ANSWER = 2, 1 << 20
_ENDED, _NAMES = TypeAdapter(dict[str, int]), TypeAdapter(tuple[str, ...])


class Connection(Protocol):
    """A connection to one gateway."""

    def run(self, command: str, stdin: str) -> str:
        """Run a command with this standard input and return its output; raise BedplateError if it fails."""


@dataclass(frozen=True, slots=True)
class SshConnection:
    """A host reached with ssh: `argv` is ssh with its options and the name of the host."""

    argv: tuple[str, ...]

    def run(self, command: str, stdin: str) -> str:
        """Run a command on the host; raise PartialError if it fails, MachineError if ssh is not installed."""
        try:
            status, output, errors = _exchange((*self.argv, command), stdin)
        except FileNotFoundError:
            raise MachineError("ssh is not installed on this machine", fix="install OpenSSH's client") from None
        except subprocess.TimeoutExpired:
            raise PartialError(f"no answer within {TIMEOUT_S} s") from None
        if status:
            fix = "fix the cause that the gateway names" if status == _REJECTED else ""
            if "Could not resolve hostname" in errors:
                fix = _UNRESOLVED
            raise PartialError(_failure(status, errors), fix=fix)
        return output


def _exchange(argv: Sequence[str], text: str) -> tuple[int, str, str]:
    """Run a command with this input; return its exit status and the beginnings of its outputs."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)  # noqa: S603  # the host is of the plan
    outputs = bytearray(), bytearray()
    # After ssh ends, the threads get two seconds: a process that ssh has left may keep the pipes open.
    threads = [
        Thread(target=_feed, args=(process.stdin, text.encode()), daemon=True),
        *(
            Thread(target=_drain, args=pair, daemon=True)
            for pair in zip((process.stdout, process.stderr), outputs, strict=True)
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        status = process.wait(TIMEOUT_S)
    except BaseException:
        process.kill()
        process.wait()
        raise
    for thread in threads:
        thread.join(_FLUSH_S)
    output, errors = (bytes(data).decode(errors="replace") for data in outputs)
    return status, output, errors


def _feed(stream: IO[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError), stream:
        stream.write(data)


def _drain(stream: "BufferedReader", data: bytearray) -> None:
    """Read a stream to its end, and keep its beginning: a gateway can send any amount."""
    with stream:
        while part := stream.read1():
            data += part[: MAX_ANSWER - len(data)]


def ssh_connection(host: str) -> SshConnection:
    """Return the connection to a host with the operator's own ssh configuration."""
    return SshConnection(("ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "--", host))


def _failure(status: int, errors: str) -> str:
    error = (errors.strip().splitlines() or ["no error output"])[-1][:_MAX_ERROR_LENGTH]
    return f"not reached: {error}" if status == _SSH_FAILED else f"exit status {status}: {error}"


def _push(
    command: str,
    texts: Mapping[str, str],
    connect: Callable[[str], Connection],
    parse: Callable[[str, dict[str, Any]], Answer],
) -> tuple[Mapping[str, Answer], Mapping[str, BedplateError]]:
    """Run a command of the agent on all gateways at once; return the parsed answers and the errors by gateway."""

    def push(name: str) -> Answer | BedplateError:
        try:
            output = connect(name).run(command, texts[name])
        except BedplateError as error:
            return error
        try:
            return parse(name, parse_json(output, MAX_ANSWER))
        except (ValueError, KeyError, TypeError):
            return PartialError("invalid answer from the gateway agent", fix="apply the role vpnagent to the gateway")

    with ThreadPoolExecutor(max(1, len(texts))) as pool:
        results = dict(zip(texts, pool.map(push, texts), strict=True))
    answers = {name: result for name, result in results.items() if not isinstance(result, BedplateError)}
    return answers, {name: result for name, result in results.items() if isinstance(result, BedplateError)}


def _describe(error: BedplateError) -> str:
    return f"{error.what} ({error.fix})" if error.fix else error.what


ACTIVATE_COMMAND = "sudo -n bedplate-vpn activate"


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


NO_KEYS: Mapping[str, GatewayKeys] = MappingProxyType({})
NONE_REVOKED: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AccessList:
    """Which laptops gateways serve: the revocation list in PEM, and all laptops with a valid certificate.

    `version` is the number of lines of the audit log: a gateway rejects a list with a lower version than it has. `keys`
    holds certificates and keys of gateways by place; a gateway without new keys keeps its own. `revoked` has the
    laptop of each revoked certificate by serial: the gateway ends sessions that still use it.
    """

    crl: str
    laptops: tuple[Laptop, ...]
    keys: Mapping[str, GatewayKeys] = field(default_factory=lambda: NO_KEYS)
    revoked: Mapping[int, str] = field(default_factory=lambda: NONE_REVOKED)
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
            errors = "; ".join(f"{place}: {_describe(error)}" for place, error in self.failures.items())
            raise PartialError(
                f"not every gateway was updated: {errors}", fix="fix the cause, then run `bedplate vpn sync` again"
            )
        if self.no_address:
            full = "; ".join(
                f"{place} has no free address for {', '.join(names)}" for place, names in self.no_address.items()
            )
            raise PartialError(f"not every laptop can connect: {full}", where="vpn.laptops.pool", fix=POOL_FIX)


def push_access_list(
    gateways: Sequence[LaptopGatewayPlan],
    access_list: AccessList,
    connect: Callable[[LaptopGatewayPlan], Connection],
    *,
    cut: Iterable[str] = (),
) -> PushedAccessList:
    """Push the access list to all gateways; sessions of laptops that are in `cut` or not in the list end."""
    by_place = {gateway.place: gateway for gateway in gateways}
    names_to_cut = tuple(cut)
    texts = {place: access_list_text(gateway, access_list, names_to_cut) for place, gateway in by_place.items()}

    def ended_sessions(_place: str, answer: dict[str, Any]) -> Mapping[str, int]:
        return _ENDED.validate_python(answer["cut"])

    ended, failures = _push(ACTIVATE_COMMAND, texts, lambda place: connect(by_place[place]), ended_sessions)
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


APPLY_COMMAND = "sudo -n bedplate-vpn apply"


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
        """Raise PartialError with all gateways that were not updated, and the fix of the first."""
        if self.failures:
            errors = "; ".join(f"{name}: {error.what}" for name, error in self.failures.items())
            first = next(iter(self.failures.values()))
            fix = first.fix or "run `bedplate vpn tunnels` again"
            raise PartialError(f"not every gateway has its tunnels: {errors}", where=first.where, fix=fix)


def push_tunnels(gateways: Mapping[str, Gateway], connect: Callable[[str], Connection]) -> PushedTunnels:
    """Push each gateway, given by the name of its machine, its config bundle."""

    def changes(name: str, answer: dict[str, Any]) -> AppliedBundle:
        written, removed, started = (_NAMES.validate_python(answer[key]) for key in ("written", "removed", "started"))
        return AppliedBundle(len(gateways[name].tunnels), written, removed, started)

    texts = {name: config_bundle_text(gateway) for name, gateway in gateways.items()}
    return PushedTunnels(*_push(APPLY_COMMAND, texts, connect, changes))


def config_bundle_text(gateway: Gateway) -> str:
    """Return the config bundle of a gateway in the format for the agent; it holds keys."""
    return ConfigBundle(tuple(File(str(file.path), file.text, file.mode) for file in files_of(gateway))).json_text
