"""`bedplate node apply` beside ansible-core, on the same booted machines, with the same tasks, in the same run.

Needs root and Ansible's own environment (.venv-peers, `make bench` makes it). First apply: packages are on the machine
already, so that neither waits for a download; the second changes nothing; then several machines at once. Each works on
machines of its own, made alike. BENCH_NODES says how many there are at once, 10 where it is left out.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.declared import EXAMPLES
from tests.support.stand.stand import Stand

ROOT = Path(__file__).parents[1]
ANSIBLE = ROOT / ".venv-peers/bin/ansible-playbook"
LAB = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8")
CROWD = int(os.environ.get("BENCH_NODES", "10"))


def main() -> None:
    """Measure, and print a row a figure."""
    with Stand() as stand, tempfile.TemporaryDirectory(prefix="bedplate-bench-") as folder:
        fleet = _fleet(Path(folder))
        ours, theirs = _names(1, CROWD), _names(CROWD + 1, CROWD)
        for name in (*ours, *theirs):
            stand.boot(name, _address(name))
        play = Path(folder) / "play.yaml"
        play.write_text(_playbook(stand, fleet, theirs[0]))
        (only,) = json.loads(play.read_text())
        cheap = sum("ansible.builtin.command" in task for task in only["tasks"])
        print(f"{len(only['tasks'])} tasks, {cheap} of them the cheapest that Ansible knows", flush=True)

        def apply(names: Sequence[str]) -> None:
            way = ("--fleet", str(fleet), "--ssh-config", str(stand.ssh_config))
            _run(stand, sys.executable, "-m", "bedplate", "node", "apply", *names, *way)

        def ansible(names: Sequence[str]) -> None:
            _run(
                stand,
                str(ANSIBLE),
                "--inventory",
                f"{','.join(names)},",
                "--forks",
                str(CROWD),
                str(play),
                env=_own(stand),
            )

        _row("first apply, one machine", lambda: apply(ours[:1]), lambda: ansible(theirs[:1]))
        _row("second apply, no change", lambda: apply(ours[:1]), lambda: ansible(theirs[:1]))
        _row(f"first apply, {CROWD - 1} machines at once", lambda: apply(ours[1:]), lambda: ansible(theirs[1:]))
        _row(f"second apply, {CROWD} machines at once", lambda: apply(ours), lambda: ansible(theirs))


def _row(what: str, ours: Callable[[], None], theirs: Callable[[], None]) -> None:
    mine, other = _seconds(ours), _seconds(theirs)
    print(f"{what}: bedplate {mine:.1f} s, ansible {other:.1f} s, ratio {mine / other:.2f} (bar: 0.50)", flush=True)


def _seconds(act: Callable[[], None]) -> float:
    start = time.monotonic()
    act()
    return time.monotonic() - start


def _names(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"bench-{number}.cellar" for number in range(first, first + count))


def _address(name: str) -> str:
    return f"192.168.41.{re.findall(r'[0-9]+', name)[0]}"


def _fleet(folder: Path) -> Path:
    """Write the lab's file with as many workbenches as there are machines."""
    names = _names(1, 2 * CROWD)
    more = "".join(f"\n      {name.partition('.')[0]}: {{address: {_address(name)}, use: ssh}}" for name in names)
    file = folder / "fleet.yaml"
    file.write_text(LAB.replace("    machines:", f"    machines:{more}", 1))
    return file


def _playbook(stand: Stand, fleet: Path, name: str) -> str:
    return _run(stand, sys.executable, "-m", "benchmarks.playbook", str(fleet), name, str(stand.ssh_config))


def _own(stand: Stand) -> dict[str, str]:
    """Return Ansible's settings: its own speed-up (pipelining) is on, and its connections are kept as it does."""
    return {
        **os.environ,
        "ANSIBLE_SSH_ARGS": f"-F {stand.ssh_config} -C -o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "LC_ALL": "C.UTF-8",
    }


def _run(stand: Stand, *argv: str, env: dict[str, str] | None = None) -> str:
    done = stand.desk.run("env", "--chdir", str(ROOT), *argv, env=env, seconds=1800)
    if done.returncode:
        sys.exit(f"{argv}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
