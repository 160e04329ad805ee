"""The access list of a gateway: which laptops may connect, their addresses, and which certificates are revoked.

An operator always sends the whole list, so that a gateway that missed one is complete after the next.
"""

import json
import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from ..program import write_text
from .certificate import (
    IDENTITY_FILES,
    activate_crl,
    activate_identity,
    check_identity,
    read_active_crl,
    staged_crl,
    staged_crl_file,
    staged_identity,
)
from .paths import TRANSPORTS, GatewayPaths, IncompleteError, RejectedError, lock_folder
from .sessions import SUCCESS, end_sessions, run_command


@dataclass(frozen=True)
class PendingActions:
    """Actions that OpenVPN daemons have not done yet: end sessions of laptops, and restart to load new keys.

    `cut` holds names of laptops, `restart` holds transports.
    """

    cut: frozenset[str] = frozenset()
    restart: frozenset[str] = frozenset()

    def __or__(self, other: "PendingActions") -> "PendingActions":
        """Return the actions of both."""
        return PendingActions(self.cut | other.cut, self.restart | other.restart)

    def document(self) -> dict[str, list[str]]:
        """Return the actions as JSON types."""
        return {"cut": sorted(self.cut), "anew": sorted(self.restart)}


NOTHING_PENDING = PendingActions()


def read_pending(file: Path) -> PendingActions:
    """Return the recorded actions; a damaged file counts as empty."""
    try:
        document = json.loads(file.read_text())
        return PendingActions(frozenset(map(str, document["cut"])), frozenset(map(str, document["anew"])))
    except (OSError, ValueError, TypeError, KeyError):
        return NOTHING_PENDING


def write_pending(file: Path, pending: PendingActions) -> None:
    """Record actions in a file, or delete the file if there are none."""
    if pending == NOTHING_PENDING:
        file.unlink(missing_ok=True)
        return
    write_text(file, json.dumps(pending.document()))


def run_pending(paths: GatewayPaths, pending: PendingActions, allowed: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Run pending actions, and return the number of ended sessions by name.

    `allowed` holds the names of the laptops that each transport serves. Raise IncompleteError, after all daemons were
    called, if one did not answer; its actions stay recorded.
    """
    ended: dict[str, int] = {}
    cut, restart, errors = pending.cut, set(pending.restart), []
    try:
        ended = end_sessions({paths.socket(transport): names for transport, names in allowed.items()}, pending.cut)
        cut = frozenset()
    except IncompleteError as error:
        errors.append(error)
    for transport in sorted(pending.restart):
        try:
            _restart_daemon(paths.socket(transport))
            restart.remove(transport)
        except IncompleteError as error:
            errors.append(error)
    write_pending(paths.pending_actions, PendingActions(cut, frozenset(restart)))
    if errors:
        raise errors[0]
    return ended


def _restart_daemon(socket: Path) -> None:
    """Restart a daemon in its process; a stopped daemon reads its configuration when it starts."""
    lines = run_command(socket, "signal SIGHUP")
    if lines is not None and not lines[-1].startswith(SUCCESS):
        raise IncompleteError(f"{socket} does not restart: {lines[-1][:160]}")


# OpenVPN applies a file named DEFAULT to all clients, so names are lower case.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}", re.ASCII)
_SERIAL = re.compile(r"[0-9a-f]{1,40}", re.ASCII)
_ADDRESS_FILE = re.compile(r"ifconfig-push [0-9.]+ [0-9.]+\n", re.ASCII)


@dataclass(frozen=True)
class GatewayAccessList:
    """The access list of a gateway: `laptops` holds the address file of each laptop by transport and name.

    `cut` names laptops whose sessions must end. `revoked` maps revoked serials, in hexadecimal, to the laptop that had
    the certificate. `identity` holds the gateway's certificate and keys if they are sent too. `version` grows with each
    change.
    """

    crl: str
    laptops: Mapping[str, Mapping[str, str]]
    cut: tuple[str, ...]
    identity: Mapping[str, str] | None = None
    revoked: Mapping[str, str] = field(default_factory=dict)
    version: int = 0

    @property
    def json_text(self) -> str:
        """The list in the format for gateways; it may hold keys."""
        document = {
            "crl": self.crl,
            "laptops": self.laptops,
            "cut": self.cut,
            "revoked": self.revoked,
            "version": self.version,
        }
        return json.dumps(document | ({"identity": self.identity} if self.identity else {}))

    def check(self) -> None:
        """Raise ValueError for a name, serial or address that bedplate never writes."""
        names = {*self.cut, *self.revoked.values(), *(name for files in self.laptops.values() for name in files)}
        files = [text for files in self.laptops.values() for text in files.values()]
        for pattern, texts in ((_NAME, names), (_ADDRESS_FILE, files), (_SERIAL, self.revoked)):
            for text in texts:
                if not pattern.fullmatch(text):
                    raise ValueError(f"unexpected value {text!r}")


def parse_access_list(text: str) -> GatewayAccessList:
    """Return the access list of a JSON text; raise RejectedError if it is invalid."""
    try:
        document = json.loads(text)
        identity = document.get("identity")
        access_list = GatewayAccessList(
            crl=document["crl"],
            laptops={transport: document["laptops"][transport] for transport in TRANSPORTS},
            cut=tuple(document["cut"]),
            identity=identity and {name: str(identity[name]) for name in IDENTITY_FILES},
            revoked=document.get("revoked", {}),
            version=int(document["version"]),
        )
        access_list.check()
    except (RecursionError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RejectedError(f"invalid access list: {error!r}") from None
    return access_list


def activate_access_list(paths: GatewayPaths, access_list: GatewayAccessList) -> dict[str, object]:
    """Activate an access list, end sessions that it no longer allows, and return a summary.

    The files change first and sessions end last: a laptop that is disconnected cannot connect again. Raise
    RejectedError, before anything is changed, if the access list is older than the active one, if its keys do not
    match, or if its revocation list has expired, is not yet valid, is older than the active one, or has another issuer.
    With a new certificate the daemons restart, which interrupts laptops for seconds.
    """
    with lock_folder(paths.settings):
        _check_version(paths, access_list)
        return _activate(paths, access_list)


def _activate(paths: GatewayPaths, access_list: GatewayAccessList) -> dict[str, object]:
    with staged_identity(paths, access_list.identity) as identity:
        authority = (identity or paths.settings) / paths.authority.name
        active_crl = read_active_crl(paths, authority)
        with staged_crl(paths, access_list.crl, authority, active_crl) as crl:
            if identity:
                check_identity(staged_crl_file(paths), *(identity / name for name in IDENTITY_FILES[:3]))
            ending = _names_to_cut(paths, access_list, crl.serials - active_crl.serials)
            restart = frozenset(TRANSPORTS if identity else ())
            pending = read_pending(paths.pending_actions) | PendingActions(ending, restart)
            write_pending(paths.pending_actions, pending)
            if identity:
                activate_identity(paths, identity)
            activate_crl(paths)
        write_text(paths.version, f"{access_list.version}\n")
        for transport in TRANSPORTS:
            _replace_files(paths.addresses(transport), access_list.laptops[transport])
        allowed = {transport: access_list.laptops[transport].keys() for transport in TRANSPORTS}
        ended = run_pending(paths, pending, allowed)
    return {"number": crl.number, "cut": ended, "renewed": identity is not None}


def _check_version(paths: GatewayPaths, access_list: GatewayAccessList) -> None:
    """Reject a list with a lower version than the active one; a new authority starts with new versions."""
    active = int(paths.version.read_text()) if paths.version.exists() else 0
    if access_list.version < active and not _has_new_authority(paths, access_list):
        raise RejectedError(
            f"the access list (version {access_list.version}) is older than the active one (version {active})."
            " Get the newest fleet.pki (git pull), then run `bedplate vpn sync`"
        )


def _has_new_authority(paths: GatewayPaths, access_list: GatewayAccessList) -> bool:
    identity = access_list.identity
    return identity is not None and identity[paths.authority.name] != paths.authority.read_text()


def _names_to_cut(
    paths: GatewayPaths, access_list: GatewayAccessList, newly_revoked: AbstractSet[int]
) -> frozenset[str]:
    """Return the laptops that are named, removed, moved to another address, or whose certificate was revoked.

    OpenVPN does not report which certificate a session uses. A serial that is new in the revocation list therefore ends
    all sessions of its laptop once, also if the laptop has another certificate by now.
    """
    revoked = {name for serial, name in access_list.revoked.items() if int(serial, 16) in newly_revoked}
    moved = {
        name
        for transport in TRANSPORTS
        for name, text in _read_files(paths.addresses(transport)).items()
        if access_list.laptops[transport].get(name) != text
    }
    return frozenset({*access_list.cut, *revoked, *filter(_NAME.fullmatch, moved)})


def _replace_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write these files to a folder and delete all others."""
    folder.mkdir(exist_ok=True, mode=0o755)
    old = _read_files(folder)
    for name, text in files.items():
        if old.get(name) != text:
            write_text(folder / name, text)
    for name in old.keys() - files.keys():
        (folder / name).unlink()


def _read_files(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()} if folder.is_dir() else {}
