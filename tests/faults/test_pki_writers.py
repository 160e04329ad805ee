"""Tests of the certificate folder with several processes that issue certificates at the same time."""

import subprocess
import sys
from pathlib import Path

from tests.testlab.keys.authority import begun_in, pki_in, unasked
from vpn.pki import bundle_of

ROOT = Path(__file__).parents[2]
PROCESSES, ROUNDS = 4, 12


def test_no_certificate_is_lost_between_writers(tmp_path: Path) -> None:
    """Four processes add their own users: each has a certificate and a key, and each refusal has exit status 5."""
    folder = begun_in(tmp_path)
    command = [sys.executable, "-m", "tests.faults.pki_writer_child", str(folder.path)]

    children = [
        subprocess.Popen([*command, str(number), str(ROUNDS)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    statuses = {status for child in children for status in child.communicate(timeout=300)[0].split()}

    issued = pki_in(folder).certificates.issued
    assert {certificate.name for certificate in issued.values()} == {
        f"u{number}x{step}.laptop" for number in range(PROCESSES) for step in range(ROUNDS)
    }
    assert sorted(certificate.slot or 0 for certificate in issued.values()) == list(range(PROCESSES * ROUNDS))
    assert all(bundle_of(pki_in(folder), certificate.name, unasked).key for certificate in issued.values())
    assert statuses <= {"5"}
