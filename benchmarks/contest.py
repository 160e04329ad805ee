"""Machines of a stand that are made alike, the two ways to apply to them, and what either takes.

Neither way waits for apt's downloads: lists are fresh and packages lie in the cache.
"""

import json
import os
import re
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.stand.layer import baked, inside
from tests.support.stand.overlay import mounted
from tests.support.stand.stand import Stand

ROOT = Path(__file__).parents[1]
ANSIBLE = ROOT / ".venv-peers/bin/ansible-playbook"
_SECONDS = 3000
_STOPPED = 124  # timeout(1)
_READY = (
    "apt-get update --quiet=2 && mkdir -p /var/lib/apt/periodic && touch /var/lib/apt/periodic/update-success-stamp"
)
# The times of each process and of those that it has waited for: proc(5), stat.
_TICKS = "cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | awk '{ sum += $12 + $13 + $14 + $15 } END { print sum }'"


@dataclass(frozen=True, slots=True)
class Cost:
    """What an apply took, in seconds by the clock and of the processor, and the names of what it changed anywhere.

    One that was stopped before its end, in the task of a number, would have taken more.
    """

    clock: float
    processor: float
    changed: frozenset[str]
    stopped_in: int | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """A stand whose machines are up, and the folder with the fleet file."""

    stand: Stand
    folder: Path

    def ours(self, names: Sequence[str]) -> Cost:
        """Apply by the product's own command line."""
        way = ("--fleet", str(self.folder / "fleet.yaml"), "--ssh-config", str(self.stand.ssh_config), "--json")
        began, used = time.monotonic(), self._processor(names)
        said, _ = self._run(sys.executable, "-m", "bedplate", "node", "apply", *names, *way)
        clock = time.monotonic() - began
        changed = {each for told in json.loads(said)["nodes"].values() for each in told["changed"]}
        return Cost(clock, self._processor(names) - used, frozenset(changed))

    def theirs(self, names: Sequence[str], patience: float = _SECONDS) -> Cost:
        """Apply by the playbook, all machines side by side; stop it where `patience` seconds are not enough."""
        hosts = {name: {"address": str(self.stand.nodes[name].address)} for name in names}
        (self.folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
        those = ("--inventory", str(self.folder / "hosts.json"), "--forks", str(len(names)))
        play = ("timeout", "--signal=INT", "--kill-after=30", str(patience), str(ANSIBLE), *those)
        began, used = time.monotonic(), self._processor(names)
        said, is_whole = self._run(*play, str(self.folder / "play.yaml"), env=_own(self.stand))
        clock = time.monotonic() - began
        return Cost(clock, self._processor(names) - used, _changed(said), None if is_whole else _begun(said))

    def write_playbook(self, name: str) -> int:
        """Write the playbook, as such a machine needs it that is fresh; return how many tasks it has."""
        config = str(self.stand.ssh_config)
        wanted = ("-m", "benchmarks.playbook", str(self.folder / "fleet.yaml"), name, config)
        text, _ = self._run(sys.executable, *wanted)
        (self.folder / "play.yaml").write_text(text)
        (only,) = json.loads(text)
        return len(only["tasks"])

    def _processor(self, names: Sequence[str]) -> float:
        here = resource.getrusage(resource.RUSAGE_CHILDREN)
        there = sum(int(self.stand.nodes[name].run(_TICKS)) for name in names) / os.sysconf("SC_CLK_TCK")
        return here.ru_utime + here.ru_stime + there

    def _run(self, *argv: str, env: Mapping[str, str] | None = None) -> tuple[str, bool]:
        """Run a program to its end, or to that of its time; return what it said, and whether it was its own end."""
        done = self.stand.desk.run("env", "--chdir", str(ROOT), *argv, env=env, seconds=_SECONDS + 60)
        if done.returncode not in {0, _STOPPED}:
            sys.exit(f"{argv}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout, done.returncode == 0


def _begun(said: str) -> int:
    """Return how many tasks a playbook came to, the gathering of facts left out."""
    return len(re.findall(r"^TASK \[(?!Gathering Facts)", said, re.MULTILINE))


def _changed(said: str) -> frozenset[str]:
    """Return the tasks of a playbook that changed something on any machine."""
    task, found = "", set()
    for line in said.splitlines():
        if line.startswith("TASK ["):
            task = line.partition("[")[2].rpartition("]")[0]
        elif line.startswith("changed:"):
            found.add(task)
    return frozenset(found)


def fresh_layers(folder: Path) -> tuple[Path, ...]:
    """Return the layers of a machine that knows what packages there are, and has what they are made of."""
    below = baked()
    with mounted(below, folder / "fresh") as whole:
        inside(whole, "sh", "-ec", _READY)
    return (folder / "fresh/upper", *below)


def _own(stand: Stand) -> dict[str, str]:
    """Return Ansible's settings: its own speed-up (pipelining) is on, and its connections are kept as it does."""
    return {
        **os.environ,
        "ANSIBLE_SSH_ARGS": f"-F {stand.ssh_config} -C -o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_PIPELINING": "True",
        # Homes are on a file server, which is not there.
        "ANSIBLE_REMOTE_TMP": "/tmp/.ansible",  # noqa: S108  the place on the node that Ansible's own error names
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "LC_ALL": "C.UTF-8",
    }
