"""Control-plane members over SSH: what they report, and their program `bedplate-member`."""

import base64
import io
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from bedplate.errors import BedplateError, HeldError, InputError, PartialError
from bedplate.foreign import LARGE, WORD, parse_json
from bedplate.kubernetes.authorities import Authorities
from bedplate.nodes.apply import NodeError, NodeErrorKind, Target
from bedplate.nodes.remote import run
from bedplate.rounds import ask_each

Result = TypeVar("Result")
# kubeadm takes seconds; an upgrade downloads packages, and etcd's image is pulled for a restore.
_SECONDS, LONG = 180, 1800


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """A member in etcd's own list. One that has never started has no name; a learner has no vote yet."""

    name: str
    url: str
    is_learner: bool


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The report of a member: the SHA-256 of its authority ("" without one), its state, and that of its etcd.

    `cluster` is the id of the etcd cluster of its data, "" if unknown. `etcd` is etcd's list of members, and `size` and
    `used` are bytes of its database, if etcd answers. `snapshot` is the file name of its newest snapshot.
    """

    authority: str
    has_data: bool
    is_restoring: bool
    is_ready: bool
    version: str
    cluster: str = ""
    etcd: tuple[EtcdMember, ...] = ()
    size: int = 0
    used: int = 0
    alarms: tuple[str, ...] = ()
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class Connection:
    """A member, or another machine of the cluster, over SSH. Its methods return the output of a command.

    They raise PartialError if it fails, and HeldError while another operator changes the member.
    """

    target: Target

    @property
    def name(self) -> str:
        """The name of the machine."""
        return self.target.node.name

    def run(self, *command: str, data: bytes | IO[bytes] = b"", seconds: float = _SECONDS) -> str:
        """Run a command of the member's program; `data` is its standard input."""
        return self._run(("bedplate-member", *command), data, seconds)

    def send(self, command: str, file: Path) -> str:
        """Run a command of the member's program with a file as its standard input."""
        with file.open("rb") as stream:
            return self.run(command, data=stream, seconds=LONG)

    def shell(self, script: str, seconds: float = LONG, data: bytes = b"") -> str:
        """Run a script of the shell as root; `data` is its standard input."""
        return self._run(("sh", "-c", script), data, seconds)

    def _run(self, command: tuple[str, ...], data: bytes | IO[bytes], seconds: float) -> str:
        try:
            # The objects of a cluster are more than other commands print.
            return run(self.target, "sudo", "-n", *command, stdin=data, limit=LARGE, timeout=seconds)
        except NodeError as error:
            error_class = HeldError if error.kind is NodeErrorKind.HELD else PartialError
            raise error_class(f"{self.name}: {error.what}", fix=error.fix) from None


def read_status(connection: Connection) -> MemberStatus:
    """Return what a member reports. Raises PartialError for an invalid answer."""
    try:
        answer = parse_json(connection.run("status", seconds=60), largest_int=WORD)
        return parse_status(answer)
    except (ValueError, KeyError, TypeError, AttributeError):
        fix = f"run `bedplate node apply {connection.name}`"
        raise PartialError(f"invalid answer from {connection.name}", fix=fix) from None


def parse_status(answer: Mapping[str, Any]) -> MemberStatus:
    """Return the status in an answer of `bedplate-member status`."""
    # Programs of an older role report neither id nor endpoint.
    endpoint = (answer.get("endpoints") or [{"Status": {}}])[0]["Status"]
    live = endpoint.get("header", {}).get("cluster_id")
    return MemberStatus(
        authority=str(answer["authority"]),
        has_data=answer["has_data"] is True,
        is_restoring=answer["is_restoring"] is True,
        is_ready=answer["is_ready"] is True,
        version=str(answer["version"]),
        cluster=f"{int(live):016x}" if live else str(answer.get("cluster", "")),
        etcd=tuple(
            EtcdMember(str(entry.get("name", "")), str(entry["peerURLs"][0]), entry.get("isLearner") is True)
            for entry in (answer["etcd"] or {}).get("members", ())
        ),
        size=int(endpoint.get("dbSize", 0)),
        used=int(endpoint.get("dbSizeInUse", 0)),
        alarms=tuple(str(alarm.get("alarm")) for alarm in (answer.get("alarms") or {}).get("alarms", ())),
        snapshot=str(answer.get("snapshot", "")),
    )


def archive(authorities: Authorities) -> bytes:
    """Return the files of the authorities as `bedplate-member take` reads them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, text in authorities.files().items():
            entry, data = tarfile.TarInfo(path), text.encode()
            entry.size, entry.mode = len(data), 0o600
            tar.addfile(entry, io.BytesIO(data))
    return base64.b64encode(buffer.getvalue())


def check_authority(statuses: Mapping[str, MemberStatus], digest: str) -> None:
    """Raise InputError if a member has another authority than the operator."""
    for name, status in statuses.items():
        if status.authority not in ("", digest):
            fix = "use the key store of the operator who made the cluster; `fleet.lock` has its certificate"
            raise InputError(f"{name} has another cluster authority", fix=fix)


def ask_all(
    connections: Iterable[Connection], act: Callable[[Connection], Result]
) -> tuple[dict[str, Result], dict[str, BedplateError]]:
    """Call a function for every member at once; return the results and the errors by name."""
    members = {member.name: member for member in connections}
    return ask_each(members, lambda name: act(members[name]), len(members))


def on_all(connections: Iterable[Connection], act: Callable[[Connection], Result]) -> dict[str, Result]:
    """Call a function for every member at once; return the results by name.

    Raises HeldError if a member is changed by another operator, else PartialError with the messages of all failures.
    """
    results, errors = ask_all(connections, act)
    for error in errors.values():
        if isinstance(error, HeldError) or len(errors) == 1:
            raise error
    if errors:
        raise PartialError("; ".join(error.what for error in errors.values()), fix=next(iter(errors.values())).fix)
    return results
