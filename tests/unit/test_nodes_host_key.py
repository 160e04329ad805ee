"""Host keys: fingerprints as ssh-keygen has them, and what ssh is told to believe."""

import subprocess
from pathlib import Path

import pytest

from bedplate.errors import InputError
from bedplate.nodes.host_key import fingerprint, fingerprint_of, fingerprint_of_sshfp, keys_of_scan, known_hosts
from bedplate.plan.nodes import standing_nodes
from tests.support.declared import EXAMPLES, plan_of

NODES = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))
SCAN = """# 192.168.40.21:22 SSH-2.0-OpenSSH_9.2p1
192.168.40.21 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
192.168.40.21 ssh-rsa not-base-64!
192.168.40.21: connection closed
"""


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_fingerprint_is_the_one_that_ssh_keygen_prints(kind: str, tmp_path: Path) -> None:
    """The operator compares it with the machine's console."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = tmp_path / "key.pub"
    told = subprocess.run(["ssh-keygen", "-lf", str(public)], check=True, capture_output=True, text=True).stdout

    assert fingerprint(public.read_text()) == told.split()[1]


def test_an_sshfp_record_has_the_fingerprint_of_its_key(tmp_path: Path) -> None:
    """As OpenSSH itself writes both; the record by SHA-1 that it writes beside it is not believed."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    command = ["ssh-keygen", "-r", "x", "-f", str(tmp_path / "key.pub")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    records = {line.split()[4]: line.partition(" SSHFP ")[2] for line in told.splitlines()}

    assert fingerprint_of_sshfp(records["2"]) == fingerprint((tmp_path / "key.pub").read_text())
    assert fingerprint_of_sshfp(records["2"].upper()) == fingerprint_of_sshfp(records["2"])
    assert fingerprint_of_sshfp(records["1"]) is None


@pytest.mark.parametrize(
    "text", ["", "4 2", f"1 2 {'0' * 64}", f"4 2 {'0' * 62}", f"4 2 {'0' * 66}", f"4 2 {'g' * 64}"]
)
def test_any_other_sshfp_record_has_none(text: str) -> None:
    """RSA's are not written by machines; what is cut short was not written by them either."""
    assert fingerprint_of_sshfp(text) is None


@pytest.mark.parametrize("text", ["A" * 43, "SHA256:" + "A" * 43, "SHA256:" + "A" * 43 + "="])
def test_a_fingerprint_is_taken_as_people_copy_it(text: str) -> None:
    """With its prefix or without."""
    assert fingerprint_of(text) == "SHA256:" + "A" * 43


@pytest.mark.parametrize("text", ["", "SHA256:short", "MD5:16:27:ac:a5:76", "SHA256:" + "A" * 42 + "!"])
def test_anything_else_is_refused_with_how_to_read_one(text: str) -> None:
    """MD5 included: it proves nothing any more."""
    with pytest.raises(InputError, match="no fingerprint") as refused:
        fingerprint_of(text)

    assert "ssh-keygen -lf" in refused.value.fix


def test_a_scan_gives_whole_keys_alone() -> None:
    """What the far end says is never taken at its word."""
    assert list(keys_of_scan(SCAN)) == [" ".join(SCAN.splitlines()[1].split()[1:])]


def test_only_recorded_keys_are_believed_under_name_and_fixed_address() -> None:
    """A machine of the cloud has no fixed address."""
    key = "ssh-ed25519 AAAA"

    text = known_hosts(NODES, {"titan-01.cellar": (key,), "laptops.us-west-2": (key,)})

    assert text.splitlines() == [
        f"titan-01.cellar.lab.internal,192.168.40.21 {key}",
        f"laptops.us-west-2.lab.internal {key}",
    ]
