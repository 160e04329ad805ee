"""From Enter to the first line of `bp run` after one edit, with an open connection, next to rsync and ssh.

Needs root. The laptop is a node with an archive; hub and workbench have all their roles, and are 30 ms away by a proxy
in user space. Both ways run the same command on the same folder in turns. Targets: 1.5 s for 20 MB, 3 s for 205 MB, and
1 s for 20 MB by `bp run --in` a session. The snapshot of 205 MB has a benchmark of its own (`snapshot.py`). `bp --help`
has 0.1 s, with Python's start.

All three machines share this one's processors: what is no wait for the network is divided by the pace of this one.
The waits are what the runs take longer than those without the proxy.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.snapshot import make_folder
from tests.testlab.machines.whole_hub import Laptop
from tests.testlab.machines.whole_runs import MACHINE, WholeRuns, whole_runs
from tests.testlab.network import delay
from tests.testlab.network.netlab import until
from tests.testlab.run import clock_pace, remove_credentials

AWAY, ROUNDS, PORT = 0.03, 7, 9030
# The files and the bytes of a folder, and the most seconds.
FOLDERS = {"20 MB": (630, 20_000_000, 1.5), "205 MB": (6_431, 205_000_000, 3.0)}
HELP, IN_SESSION = 0.1, 1.0
# Prints the seconds until a command prints its first line, then waits for its end.
_TIMER = """import subprocess, sys, time
start = time.monotonic()
streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
with subprocess.Popen(sys.argv[1:], **streams) as done:
    line = done.stdout.readline()
    seconds = time.monotonic() - start
    done.stdout.read()
sys.exit(0 if not print(seconds) and (line == b"ready\\n" or sys.argv[-1] == "--help") else "no first line")
"""
_SHARED = "ssh -F $HOME/.ssh/lab/config -o ControlMaster=auto -o ControlPersist=600 -o ControlPath=$HOME/.ssh/peer-%C"
# To the disk that runs of bp use. Homes are on the file server of the lab, where each file takes 45 ms and more: 205 MB
# in 6,431 files do not arrive there within the limit of a command.
_COPY = "/scratch/grace/copy-{folder}"
_PEER = f"""set -e
rsync --archive --delete --rsh "{_SHARED}" ./ {MACHINE}:{_COPY}/
exec {_SHARED} {MACHINE} 'cd {_COPY} && echo ready'
"""


@dataclass
class Bench:
    """A laptop with a folder of code."""

    laptop: Laptop
    folder: str
    edits: int = 0

    @property
    def path(self) -> Path:
        """The folder on this machine."""
        return self.laptop.node.root / self.laptop.home[1:] / self.folder

    def seconds(self, *words: str) -> float:
        """Return the seconds from an edited file to the first line of a command."""
        self.edits += 1
        with (self.path / "0/0.py").open("a") as file:
            file.write(f"edit = {self.edits}\n")
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        done = self.laptop.run(f"cd ~/{self.folder}; exec python3 /srv/timer.py {quoted}", 300)
        if done.returncode:
            sys.exit(f"{quoted}: {done.stdout}{done.stderr}")
        return float(done.stdout)

    def times(self) -> tuple[float, float]:
        """Return the seconds of `bp run` and of its peer."""
        run = (f"{self.laptop.home}/.ssh/lab/bp", "run", "--on", MACHINE, "--", "echo", "ready")
        return self.seconds(*run), self.seconds("sh", "-c", _PEER.format(folder=self.folder))


@contextmanager
def far_away(laptop: Laptop, seconds: float) -> Iterator[None]:
    """Let all connections of a person's laptop begin at a proxy with a delay."""
    (laptop.node.root / "srv/delay.py").write_text(Path(delay.__file__).read_text())
    unit = "systemd-run --quiet --collect --unit=delay"
    of_laptop = f"meta skuid {laptop.account} tcp dport {{ 22, 443 }} redirect to :{PORT};"
    rule = f"chain to {{ type nat hook output priority -100; {of_laptop} }};"
    laptop.node.run(f"{unit} python3 /srv/delay.py {PORT} {seconds}; nft 'table ip delay {{ {rule} }}'")
    until(lambda: f":{PORT}" in laptop.node.run("ss -ltn"), 30, "the proxy does not listen")
    try:
        yield
    finally:
        laptop.node.run("nft delete table ip delay; systemctl stop delay")


def measured(bench: Bench, seconds: float) -> tuple[float, float]:
    """Return the medians of both ways, so many seconds away, with connections that are open before."""
    bench.laptop.close()
    with far_away(bench.laptop, seconds):
        bench.times()
        rounds = [bench.times() for _ in range(ROUNDS)]
    return median(ours for ours, _ in rounds), median(peer for _, peer in rounds)


def report(bench: Bench, title: str, limit: float) -> bool:
    """Print the figures of a folder; return whether they miss the target."""
    before = clock_pace()
    near, far = measured(bench, 0), measured(bench, AWAY)
    pace = (before + clock_pace()) / 2
    waits = [max(one - other, 0) for one, other in zip(far, near, strict=True)]
    full = [wait + (one - wait) / pace for wait, one in zip(waits, far, strict=True)]
    print(
        f"{title:7} bp run {full[0]:.2f} s at full speed (target {limit}), of which waits {waits[0]:.2f} s; elapsed "
        f"{far[0]:.2f} s. rsync and ssh {full[1]:.2f} s, {waits[1]:.2f} s, {far[1]:.2f} s: ratio {far[0] / far[1]:.2f}"
    )
    return full[0] > limit


def report_session(bench: Bench, runs: WholeRuns) -> bool:
    """Print the time to the first line of `bp run --in` a session; return whether it misses the target."""
    bench.laptop.run(
        f"cd ~/{bench.folder}; exec {bench.laptop.home}/.ssh/lab/bp session start -d --on {MACHINE} --name fast"
    )
    until(lambda: runs.record("fast").get("state") == "running", 60, "the session does not start")
    words = (f"{bench.laptop.home}/.ssh/lab/bp", "run", "--in", runs.name_of("fast"), "--", "echo", "ready")
    before = clock_pace()
    near = median(bench.seconds(*words) for _ in range(ROUNDS))
    with far_away(bench.laptop, AWAY):
        bench.seconds(*words)
        far = median(bench.seconds(*words) for _ in range(ROUNDS))
    wait = max(far - near, 0)
    seconds = wait + (far - wait) / ((before + clock_pace()) / 2)
    waits = f"of which waits {wait:.2f} s; elapsed {far:.2f} s"
    print(f"bp run --in {seconds:.2f} s at full speed (target {IN_SESSION}), {waits}")
    return bool(seconds > IN_SESSION)


def report_help(bench: Bench) -> bool:
    """Print the time of `bp --help`; return whether it misses the target."""
    before = clock_pace()
    program = f"{bench.laptop.home}/.ssh/lab/bp"
    rounds = [
        (bench.seconds(program, "--help"), bench.seconds("python3", "-c", "print('ready')")) for _ in range(ROUNDS)
    ]
    ours, peer = (median(figures) for figures in zip(*rounds, strict=True))
    seconds = ours / ((before + clock_pace()) / 2)
    print(f"bp --help {seconds:.3f} s at full speed (target {HELP}); elapsed {ours:.3f} s, Python alone {peer:.3f} s")
    return bool(seconds > HELP)


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    remove_credentials(os.environ)
    with TemporaryDirectory() as folder, whole_runs(Path(folder)) as runs:
        return int(any(reports(runs)))


def reports(runs: WholeRuns) -> list[bool]:
    """Print all figures; return which of them miss their targets."""
    laptop, missed = runs.laptops["grace"], []
    (laptop.node.root / "srv/timer.py").write_text(_TIMER)
    for title, (files, size, limit) in FOLDERS.items():
        bench = Bench(laptop, title.replace(" ", ""))
        make_folder(bench.path, files, size)
        laptop.node.run(f"chown -R {laptop.account}: {laptop.home}/{bench.folder}")
        missed.append(report(bench, title, limit))
        if title == "20 MB":
            missed.append(report_session(bench, runs))
    return [*missed, report_help(bench)]


if __name__ == "__main__":
    sys.exit(main())
