"""Which snapshots a restore accepts: those that the program of a member has signed."""

import hmac
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from bedplate.errors import InputError
from bedplate.kubernetes.authorities import Authorities, new_authorities
from bedplate.kubernetes.snapshots import check_snapshot, newest_key
from roles.base import file_text

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
MEMBERS = ("control-1.us-west-2", "control-2.us-west-2")
CLUSTER = "1196a0f3c2d4e5b6"


@dataclass(frozen=True)
class Signer:
    """A key, and what it signs."""

    key: bytes

    def name(self, time: str = "20261127T110000Z", member: str = MEMBERS[0], content: bytes = b"data") -> str:
        """Return the name of a signed snapshot."""
        facts = f"{member} {time} {CLUSTER} 42 {sha256(content).hexdigest()}"
        return f"{member}_{time}_{CLUSTER}_42_{hmac.new(self.key, facts.encode(), 'sha256').hexdigest()}.db"


@pytest.fixture(scope="module")
def authorities() -> Authorities:
    """Return the authorities of a cluster."""
    return new_authorities("lab", NOW)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the content of a snapshot."""
    (path := tmp_path / "snapshot").write_bytes(b"data")
    return path


def test_the_signature_of_the_members_program_is_verified(authorities: Authorities, file: Path, tmp_path: Path) -> None:
    """The program derives the key from the file on the volume, the operator from the key store: they agree."""
    program = file_text("control/etcd-snapshot")
    function = program[program.index("signature() {") : program.index("member=$(")]
    (tmp_path / "encryption.yaml").write_text(authorities.files()["encryption.yaml"])
    facts = f"{MEMBERS[0]} 20261127T110000Z {CLUSTER} 42 {sha256(b'data').hexdigest()}"

    script = f"PKI={tmp_path}\n{function}\nsignature '{facts}'"
    mac = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout.strip()

    name = f"{MEMBERS[0]}_20261127T110000Z_{CLUSTER}_42_{mac}.db"
    snapshot = check_snapshot(file, name, authorities.snapshot_key, MEMBERS, NOW)
    assert list(snapshot.lines(4, NOW)) == [
        "snapshot of control-1.us-west-2, 2026-11-27 11:00 UTC (1.0 h ago), 4 bytes",
        f"etcd cluster {CLUSTER}, revision 42",
    ]


def _forged(name: str) -> str:
    return name[:-67] + ("1" if name[-67] == "0" else "0") + name[-66:]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("20261127T110000Z.db", "is not signed by a control plane member"),
        ("99991231T000000Z.db", "is not signed by a control plane member"),
        (Signer(b"another key").name(), "of this cluster has signed this content"),
        (Signer(b"key").name(content=b"other"), "of this cluster has signed this content"),
        (_forged(Signer(b"key").name()), "of this cluster has signed this content"),
        (Signer(b"key").name().replace("T11", "T12"), "of this cluster has signed this content"),
        (Signer(b"key").name().replace("_42_", "_43_"), "of this cluster has signed this content"),
        (Signer(b"key").name(member="x"), "no control plane member named x in the fleet file"),
        (Signer(b"key").name(time="99991231T000000Z"), "its time is in the future"),
        (Signer(b"key").name(time="20261399T000000Z"), "is not signed by a control plane member"),
    ],
)
def test_a_snapshot_that_no_member_has_signed_is_refused(file: Path, name: str, reason: str) -> None:
    """Who may write to the bucket would otherwise be administrator of the next cluster; the fix names the option."""
    assert check_snapshot(file, Signer(b"key").name(), b"key", MEMBERS, NOW).revision == "42"

    with pytest.raises(InputError, match=reason) as error:
        check_snapshot(file, name, b"key", MEMBERS, NOW)

    assert "`--unsigned` accepts it" in str(error.value.fix)


def test_the_newest_snapshot_is_that_of_a_member_in_its_own_folder() -> None:
    """Names of other machines, of the future, of another folder, and those without a signature do not count."""
    signer = Signer(b"key")
    old, newest = signer.name("20261127T090000Z"), signer.name("20261127T100000Z", MEMBERS[1])
    good = [f"etcd/{MEMBERS[0]}/{old}", f"etcd/{MEMBERS[1]}/{newest}"]
    bad = [
        "etcd/x/99991231T000000Z.db",
        f"etcd/{MEMBERS[0]}/20261127T113000Z.db",
        f"etcd/{MEMBERS[1]}/{signer.name()}",
        f"etcd/x/{signer.name(member='x')}",
        f"etcd/{MEMBERS[0]}/{signer.name(f'{NOW + timedelta(hours=1):%Y%m%dT%H%M%SZ}')}",
        f"etcd/{signer.name()}",
    ]

    assert newest_key([*bad, *good], MEMBERS, NOW) == good[1]
    assert newest_key(bad, MEMBERS, NOW) == ""
