"""The gateway agent's access list: certificates, revocation lists, sessions and pending actions."""

import json
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from getpass import getuser
from pathlib import Path

import pytest

from bedplate.programs.gateway.access_list import (
    GatewayAccessList,
    PendingActions,
    activate_access_list,
    parse_access_list,
    read_pending,
)
from bedplate.programs.gateway.paths import TRANSPORTS, GatewayPaths, IncompleteError, RejectedError
from bedplate.programs.gateway.sessions import Session, end_sessions, update_last_seen, write_last_seen
from tests.testlab.fakes.daemons import daemon
from tests.testlab.fleets.variants import lab_gateways
from tests.testlab.keys.authority import LabKeys, moment
from tests.testlab.run import need_program
from vpn.certificates import Use
from vpn.laptops.server import Laptop
from vpn.push import AccessList, GatewayKeys, access_list_text

ADDRESS_FILE = "ifconfig-push 10.121.0.2 255.255.254.0\n"


@pytest.fixture
def keys() -> LabKeys:
    """Return an authority."""
    return LabKeys()


@pytest.fixture
def paths(tmp_path: Path, keys: LabKeys) -> GatewayPaths:
    """Return a gateway that trusts the authority, without running daemons."""
    need_program("openssl")
    (tmp_path / "ca.crt").write_text(keys.trusted)
    return GatewayPaths(tmp_path, tmp_path / "nowhere", pwd.getpwuid(os.getuid()).pw_name, tmp_path / "state")


def _access_list(crl: str, version: int = 1, names: tuple[str, ...] = ("ada.laptop",)) -> GatewayAccessList:
    return GatewayAccessList(
        crl, {transport: dict.fromkeys(names, ADDRESS_FILE) for transport in TRANSPORTS}, (), None, {}, version
    )


def _settings(paths: GatewayPaths) -> dict[str, str]:
    return {str(file): file.read_text() for file in sorted(paths.settings.rglob("*")) if file.is_file()}


def test_a_list_of_the_same_or_a_higher_version_is_activated(paths: GatewayPaths, keys: LabKeys) -> None:
    """The gateway stores the version."""
    crl = keys.revocations()

    for version in (1, 1, 4):
        activate_access_list(paths, _access_list(crl, version))

    assert paths.version.read_text() == "4\n"


def test_a_list_of_a_lower_version_changes_nothing(paths: GatewayPaths, keys: LabKeys) -> None:
    """Laptops of the active list stay, even if the older list has a newer revocation list."""
    activate_access_list(paths, _access_list(keys.revocations(), 2))
    before = _settings(paths)

    with pytest.raises(RejectedError, match=r"version 1\) is older than the active one \(version 2\)"):
        activate_access_list(paths, _access_list(keys.revocations(), 1, names=()))

    assert _settings(paths) == before


def test_two_different_revocation_lists_of_one_number_are_rejected(paths: GatewayPaths, keys: LabKeys) -> None:
    """The second may lack a laptop that the first revokes. The same list is accepted again."""
    other = LabKeys(keys.issuer)
    first, second = keys.revocations(), other.revocations()
    activate_access_list(paths, _access_list(first))

    with pytest.raises(RejectedError, match="have the number 1"):
        activate_access_list(paths, _access_list(second))

    activate_access_list(paths, _access_list(first))
    assert paths.crl.read_text() == first


def test_an_older_revocation_list_is_rejected_whatever_the_version(paths: GatewayPaths, keys: LabKeys) -> None:
    """An older list would let a revoked laptop connect."""
    older = keys.revocations()
    activate_access_list(paths, _access_list(keys.revocations(), 1))

    with pytest.raises(RejectedError, match="revocation list 1 is older than the active list 2"):
        activate_access_list(paths, _access_list(older, 2))


def test_a_new_authority_starts_with_new_versions(paths: GatewayPaths, keys: LabKeys) -> None:
    """The authority comes with new keys for the gateway, and its revocation lists start at number 1 too."""
    for _ in range(3):
        last = keys.revocations()
    activate_access_list(paths, _access_list(last, 2))
    successor = LabKeys()
    certificate, key = successor.pair("gateway.cellar.lab.internal", Use.SERVER)
    names = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
    identity = dict(zip(names, (successor.trusted, certificate, key, successor.hidden), strict=True))

    activate_access_list(paths, replace(_access_list(successor.revocations(), 1), identity=identity))

    assert paths.version.read_text() == "1\n"


ADA, BOB = Laptop("ada.laptop", 0), Laptop("bob.laptop", 1)
GATEWAY = lab_gateways()[0]


@dataclass(frozen=True)
class AgentGateway:
    """A gateway, its authority, and the access lists that it is sent."""

    paths: GatewayPaths
    keys: LabKeys

    def send(self, *laptops: Laptop, keys: GatewayKeys | None = None, revoked: Mapping[int, str] | None = None) -> None:
        """Send an access list with the next revocation list."""
        gateway_keys = {GATEWAY.place: keys} if keys else {}
        self.send_list(AccessList(self.keys.revocations(), laptops, gateway_keys, revoked or {}))

    def send_list(self, access_list: AccessList) -> None:
        """Send an access list."""
        activate_access_list(self.paths, parse_access_list(access_list_text(GATEWAY, access_list)))

    def identity(self, keys: LabKeys | None = None, use: Use = Use.SERVER) -> GatewayKeys:
        """Return a new certificate and key for the gateway."""
        signer = keys or self.keys
        return GatewayKeys(signer.trusted, *signer.pair(GATEWAY.name, use), signer.hidden)

    @contextmanager
    def daemons(self, *connected: str, mute: tuple[str, ...] = ()) -> Iterator[dict[str, list[str]]]:
        """Run both daemons, and yield the commands that each gets."""
        with ExitStack() as running:
            yield {
                transport: running.enter_context(
                    daemon(self.paths.socket(transport), *connected, mute=transport in mute)
                )
                for transport in TRANSPORTS
            }

    @property
    def files(self) -> dict[str, bytes]:
        """Every file of the gateway's settings."""
        return {str(file): file.read_bytes() for file in self.paths.settings.rglob("*") if file.is_file()}


@pytest.fixture
def gateway(tmp_path: Path) -> AgentGateway:
    """Return a gateway with an access list and a certificate, without running daemons."""
    need_program("openssl")
    agent_gateway = AgentGateway(
        GatewayPaths(tmp_path / "e", tmp_path / "s", getuser(), tmp_path / "m", tmp_path), LabKeys()
    )
    for folder in (
        agent_gateway.paths.settings,
        *(agent_gateway.paths.socket(transport).parent for transport in TRANSPORTS),
    ):
        folder.mkdir(parents=True)
    agent_gateway.send(ADA, BOB, keys=agent_gateway.identity())
    return agent_gateway


@pytest.mark.parametrize("mask", ["027", "077"])
def test_daemons_can_read_all_files_under_any_umask(gateway: AgentGateway, mask: str) -> None:
    """Daemons do not run as root; sudo passes on the user's umask. Keys are readable for their user only."""
    access_list = AccessList(gateway.keys.revocations(), (ADA,), {GATEWAY.place: gateway.identity()}, {})
    paths = gateway.paths
    folders = {"settings": paths.settings, "sockets": paths.sockets, "owner": paths.owner, "state": paths.state}
    options = [f"--{key}={value}" for key, value in folders.items()]
    agent = shlex.join(
        [sys.executable, "-m", "bedplate.programs.gateway", *options, f"--root={paths.root}", "activate"]
    )
    text = access_list_text(GATEWAY, access_list)

    subprocess.run(["sh", "-c", f"umask {mask}; {agent}"], input=text, text=True, check=True)

    modes = {path.name: path.stat().st_mode & 0o777 for path in paths.settings.rglob("*")}
    assert modes["ca.crt"] == modes["server.crt"] == 0o444
    assert modes["server.key"] == modes["tls-crypt-v2.key"] == 0o400
    assert modes["crl.pem"] & modes["ada.laptop"] & 0o444 == 0o444
    assert modes["udp.laptops"] & modes["tcp.laptops"] & 0o555 == 0o555


def test_one_daemon_restarts_while_the_other_does_not_answer(gateway: AgentGateway) -> None:
    """The other restarts with the next push, and neither restarts twice."""
    identity = gateway.identity()
    with gateway.daemons(mute=("tcp",)) as first, pytest.raises(IncompleteError, match="tcp"):
        gateway.send(ADA, BOB, keys=identity)

    with gateway.daemons() as second:
        gateway.send(ADA, BOB, keys=identity)
    with gateway.daemons() as third:
        gateway.send(ADA, BOB, keys=identity)

    assert first["udp"] == ["signal SIGHUP"]
    assert second == {"udp": [], "tcp": ["signal SIGHUP"]}
    assert third == {"udp": [], "tcp": []}


def test_a_rejected_revocation_list_changes_no_certificate(gateway: AgentGateway) -> None:
    """Both are checked before either is activated."""
    expired = AccessList(gateway.keys.revocations(timedelta(0)), (ADA, BOB), {GATEWAY.place: gateway.identity()})
    before = gateway.files

    with pytest.raises(RejectedError, match="expired on"):
        gateway.send_list(expired)

    assert gateway.files == before
    assert not gateway.paths.pending_actions.exists()


def test_a_revocation_list_that_is_not_yet_valid_is_rejected(gateway: AgentGateway) -> None:
    """OpenVPN would reject all laptops until then. Five minutes ahead are tolerated."""
    before = gateway.files

    with pytest.raises(RejectedError, match=r"not valid before .*; this gateway's clock says"):
        gateway.send_list(AccessList(gateway.keys.revocations(at=moment() + timedelta(days=365)), (ADA, BOB)))

    assert gateway.files == before
    gateway.send_list(AccessList(gateway.keys.revocations(at=moment() + timedelta(minutes=4)), (ADA, BOB)))


def test_a_rejected_certificate_changes_no_list(gateway: AgentGateway) -> None:
    """The revocation list and the address files stay as they were."""
    before = gateway.files

    with pytest.raises(RejectedError, match="certificate is not valid"):
        gateway.send(ADA, keys=gateway.identity(use=Use.CLIENT))

    assert gateway.files == before


def test_ca_crt_holds_only_the_authority(gateway: AgentGateway) -> None:
    """Daemons would trust a second certificate too, without a revocation list."""
    before, identity = gateway.files, gateway.identity()

    with pytest.raises(RejectedError, match=r"ca\.crt must hold exactly one certificate"):
        gateway.send(ADA, keys=replace(identity, trusted=identity.trusted + LabKeys().trusted))

    assert gateway.files == before


def test_a_revoked_certificate_is_rejected(gateway: AgentGateway) -> None:
    """The agent checks it with the revocation list of the same push."""
    before, identity = gateway.files, gateway.identity()
    gateway.keys.revoke(GATEWAY.name)

    with pytest.raises(RejectedError, match="certificate revoked"):
        gateway.send(ADA, keys=identity)

    assert gateway.files == before


def test_a_revocation_list_is_verified_with_the_authority_of_its_push(gateway: AgentGateway) -> None:
    """A new authority numbers its lists from 1, and lists of the former authority are rejected after it."""
    for _ in range(3):
        gateway.send(ADA, BOB)
    successor = LabKeys()

    gateway.send_list(AccessList(successor.revocations(), (ADA, BOB), {GATEWAY.place: gateway.identity(successor)}))

    assert gateway.paths.authority.read_text() == successor.trusted
    with pytest.raises(RejectedError, match="not signed by this gateway's authority"):
        gateway.send(ADA, BOB)


def test_a_session_ends_with_its_certificate_if_the_laptop_has_another(gateway: AgentGateway) -> None:
    """The gateway was down while a certificate was revoked and a new one issued for the same name and address."""
    gateway.keys.laptop(ADA.name)
    serial = gateway.keys.revoke(ADA.name)
    gateway.keys.laptop(ADA.name)

    with gateway.daemons(ADA.name, BOB.name) as commands:
        gateway.send(ADA, BOB, revoked={serial: ADA.name})
        gateway.send(ADA, BOB, revoked={serial: ADA.name})

    assert commands == {transport: [f"kill {ADA.name}"] for transport in TRANSPORTS}


def test_a_session_that_could_not_be_ended_ends_with_the_next_push(gateway: AgentGateway) -> None:
    """Also if the laptop is allowed again by then."""
    gateway.keys.laptop(ADA.name)
    serial = gateway.keys.revoke(ADA.name)
    with gateway.daemons(ADA.name, mute=("udp",)), pytest.raises(IncompleteError, match="udp"):
        gateway.send(ADA, BOB, revoked={serial: ADA.name})
    assert read_pending(gateway.paths.pending_actions) == PendingActions(cut=frozenset({ADA.name}))

    with gateway.daemons(ADA.name) as commands:
        gateway.send(ADA, BOB, revoked={serial: ADA.name})

    assert commands["udp"] == [f"kill {ADA.name}"]
    assert not gateway.paths.pending_actions.exists()


def test_recorded_actions_run_with_the_next_push(gateway: AgentGateway) -> None:
    """A power failure leaves them recorded; a damaged record does not stop a push."""
    gateway.paths.pending_actions.write_text(json.dumps({"cut": [BOB.name], "anew": ["tcp"]}))
    with gateway.daemons(BOB.name) as commands:
        gateway.send(ADA, BOB)
    gateway.paths.pending_actions.write_text("{")
    gateway.send(ADA, BOB)

    assert commands == {"udp": [f"kill {BOB.name}"], "tcp": [f"kill {BOB.name}", "signal SIGHUP"]}


@pytest.mark.parametrize("revoked", [{"2B": "ada.laptop"}, {"": "ada.laptop"}, {"2b": "../ada"}, ["2b"], {"2b": 1}])
def test_an_invalid_access_list_is_rejected(revoked: object, gateway: AgentGateway) -> None:
    """A serial is lower-case hexadecimal, and a name is that of a laptop."""
    document = json.loads(access_list_text(GATEWAY, AccessList(gateway.keys.revocations(), (ADA,))))

    with pytest.raises(RejectedError, match="invalid access list"):
        parse_access_list(json.dumps(document | {"revoked": revoked}))


ADA_SESSION = Session("ada.laptop", "10.121.4.2", 1, 1, 90, None)


def test_the_last_connection_of_a_laptop_is_stored(tmp_path: Path) -> None:
    """A laptop keeps its time while it is not connected."""
    file = tmp_path / "memory" / "seen.json"
    write_last_seen(file, update_last_seen(file, [ADA_SESSION], 100))
    write_last_seen(file, update_last_seen(file, [], 160))
    write_last_seen(file, update_last_seen(file, [replace(ADA_SESSION, name="grace.laptop")], 220))

    assert update_last_seen(file, [], 300) == {"ada.laptop": 100, "grace.laptop": 220}
    assert [path.name for path in file.parent.iterdir()] == ["seen.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ada.laptop": "yesterday"}', "\xff"])
def test_a_damaged_file_of_last_connections_counts_as_empty(text: str, tmp_path: Path) -> None:
    """The agent then records new connections."""
    file = tmp_path / "seen.json"
    file.write_bytes(text.encode("latin-1"))

    assert update_last_seen(file, [ADA_SESSION], 100) == {"ada.laptop": 100}


def test_laptops_that_are_no_longer_allowed_are_disconnected(tmp_path: Path) -> None:
    """Nobody has to name them. Allowed laptops and unfinished handshakes stay."""
    udp = tmp_path / "udp"

    with daemon(udp, "ada.laptop", "bob.laptop", "UNDEF") as commands:
        ended = end_sessions({udp: {"bob.laptop"}}, ())

    assert (commands, ended) == (["kill ada.laptop"], {"ada.laptop": 1})


def test_all_daemons_are_called_before_the_error_of_one_is_raised(tmp_path: Path) -> None:
    """A daemon that does not run has no sessions."""
    mute, tcp, stopped = tmp_path / "udp", tmp_path / "tcp", tmp_path / "stopped"

    with daemon(mute, mute=True), daemon(tcp, "ada.laptop") as commands, pytest.raises(IncompleteError, match="udp"):
        end_sessions({mute: (), stopped: (), tcp: ()}, ("ada.laptop",))

    assert commands == ["kill ada.laptop"]
