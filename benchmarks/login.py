"""The time that `bedplate ssh` adds to plain ssh, for a machine that answers at its address.

Target, on a core at full speed: 0.5 s. Both log in to a sshd at the address of a site's machine, in a network namespace
of their own; the machine needs no AWS. The figure is processor time, which other processes do not change.
"""

import getpass
import os
import shutil
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from bedplate.lock import record_host_keys
from tests.testlab.run import pace, pace_line

ROOT = Path(__file__).parents[1]
MAX_ADDED_S, RUNS = 0.5, 7
NAME, ADDRESS = "titan-01.cellar", "192.168.40.21"
SSHD = "ListenAddress {address}:22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\n"


def start_sshd(folder: Path) -> "subprocess.Popen[bytes]":
    """Start sshd at the machine's address, with new keys in the folder."""
    for command in (["ip", "link", "set", "lo", "up"], ["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"]):
        subprocess.run(command, check=True)
    for name in ("host", "user"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(keygen, check=True)
    (folder / "config").write_text(SSHD.format(address=ADDRESS, folder=folder) + "PidFile none\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    program = str(shutil.which("sshd"))
    return subprocess.Popen([program, "-D", "-e", "-f", folder / "config"], stderr=subprocess.DEVNULL)


def cpu_seconds(command: list[str], folder: Path) -> float:
    """Run a login and return its processor seconds without sshd."""
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "code")}
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=variables, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(folder: Path) -> tuple[float, float]:
    """Return the processor seconds of plain ssh, and the additional ones of `bedplate ssh`, the minimum of each."""
    fleet = shutil.copy(ROOT / "examples/lab.yaml", folder / "fleet.yaml")
    key = " ".join((folder / "host.pub").read_text().split()[:2])
    record_host_keys(folder / "fleet.lock", "lab", NAME, (key,), replace_known=False)
    (folder / "known_hosts").write_text(f"{ADDRESS} {key}\n")
    user, identity = getpass.getuser(), str(folder / "user")
    plain = ["ssh", "-F", "none", "-i", identity, "-o", f"UserKnownHostsFile={folder}/known_hosts"]
    ours = [sys.executable, "-m", "bedplate", "ssh", NAME, "--user", user, "--identity", identity, "--fleet", fleet]
    commands = ([*plain, f"{user}@{ADDRESS}", "true"], [*map(str, ours), "--", "true"])
    rounds = [[cpu_seconds(command, folder) for command in commands] for _ in range(RUNS)]
    base, total = (min(seconds) / pace() for seconds in zip(*rounds, strict=True))
    return base, total - base


def main() -> int:
    """Print the figures; return 1 if the target is missed."""
    print(pace_line())
    if "inside" not in sys.argv:
        command = ["unshare", "--net", sys.executable, "-m", "benchmarks.login", "inside"]
        return subprocess.run(command, check=False).returncode
    with TemporaryDirectory() as name:
        sshd = start_sshd(Path(name))
        try:
            base, added = measure(Path(name))
        finally:
            sshd.kill()
            sshd.wait()
    print(f"ssh {base:.2f} s of processor; bedplate ssh adds {added:.2f} s (target: {MAX_ADDED_S} s)")
    return int(added > MAX_ADDED_S)


if __name__ == "__main__":
    sys.exit(main())
