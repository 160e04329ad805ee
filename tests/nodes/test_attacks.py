"""What a person gets from a workbench with all its roles: nothing of others, and no way to stay."""

import textwrap
from collections.abc import Iterator, Mapping

import pytest

from bedplate.plan.firewall import NFS, OVERLAY
from bedplate.plan.mounts import MountKind
from roles.people.accounts import AccountState, end_processes
from roles.storage.mounts import loopback
from tests.testlab.machines.whole import Whole, whole_machine
from tests.testlab.machines.whole_kinds import KINDS
from tests.testlab.run import need_program, need_root

pytestmark = pytest.mark.nightly

_BUS = "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
# Each command succeeds if the attempt does. tests/testlab/machines/services.py tries homes and file servers.
_TRIES: Mapping[str, str] = {
    "raw packets": "python3 -Ic 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    "packets of others": "python3 -Ic 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)'",
    "overlay": f"python3 -Ic 'import socket; socket.socket(type=2).sendto(bytes(50), (\"10.64.32.16\", {OVERLAY}))'",
    "file server by MPTCP": "python3 -Ic 'import socket; socket.socket(2, 1, 262).connect((\"{tunnel}\", {nfs}))'",
    "clock": "timedatectl set-time 2020-01-01",
    "host name": "hostnamectl set-hostname other",
    "service": "systemctl restart ssh",
    "power": "systemctl poweroff",
    "sessions of others": "loginctl kill-user ada",
    "environment of services": f"busctl call {_BUS} SetEnvironment as 1 LD_PRELOAD=/tmp/x",
    "unit of root": "systemd-run --no-block true",
    "environment of root's programs": "cat /proc/1/environ",
    "kernel log": "dmesg",
    "journal of root": "journalctl --quiet --lines 1 _UID=0 | grep .",
    "log of sudo": "cat /var/log/sudo.log",
    "packet filter": "cat /etc/bedplate/filter.nft",
    "private keys": "grep -rlsE -e '^-----BEGIN.*PRIVATE KEY' /etc /var/lib /opt/bedplate/current/code | grep .",
    "mount": "mount -t tmpfs tmpfs /mnt",
    "mount of a user's file server": "mount.nfs 127.0.0.1:/ /mnt",
    "unmount": "umount /home",
    "another account": "sudo -n -u ada true",
    "user of the tunnels": "sudo -n -u '#550' true",
    "folders of root": "find / -xdev -writable ! -type l ! -path '/tmp*' ! -path '/var/tmp*' ! -path '/scratch/grace*'"
    " ! -path '/home*' 2>/dev/null | grep .",
    "own home": "touch ~/own",
}
# Each of its processes ends as soon as it has started the next one.
_RESTLESS = """
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(void) {
  time_t end = time(0) + 120;
  if (fork()) return 0;
  setsid();
  while (time(0) < end) if (fork()) _exit(0);
}
"""


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """Yield a configured workbench."""
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", "dnsmasq", "openssl"):
        need_program(program)
    (kind,) = (kind for kind in KINDS if kind.name == "workbench")
    with whole_machine(kind, tmp_path_factory.mktemp("attacks")) as machine:
        yield machine


def test_a_person_gets_nothing_of_others(workbench: Whole) -> None:
    """A person of a workbench changes only own files, and reads no secret of the machine or of other people."""
    tunnel = next(loopback(mount.store) for mount in workbench.planned.mounts if mount.kind is MountKind.EFS)
    tries = {name: command.replace("{tunnel}", tunnel).replace("{nfs}", str(NFS)) for name, command in _TRIES.items()}
    script = "; ".join(f"({command}) </dev/null >/dev/null 2>&1 && echo '{name}'" for name, command in tries.items())

    done = workbench.ssh("grace", script, seconds=120)

    assert done.stdout.splitlines() == ["own home"], done.stderr


def test_no_process_of_a_removed_person_stays(workbench: Whole) -> None:
    """Processes of a removed person end, also those that always start others, and services of the own systemd."""
    uid = workbench.plan.accounts.uids["grace"]
    build = f"cat > r.c <<'END'\n{textwrap.dedent(_RESTLESS)}END\ncc -O2 -o restless r.c"
    start = "systemd-run --user --quiet sleep 300; for i in $(seq 5); do ./restless </dev/null >/dev/null 2>&1; done"
    workbench.as_person("grace", f"{build} && {start}")
    events = f"/sys/fs/cgroup/user.slice/user-{uid}.slice/cgroup.events"
    assert "populated 1" in workbench.node.run(f"cat {events}")

    for change in end_processes("grace", uid, AccountState(busy=frozenset({uid}))):
        workbench.node.run("\n".join(change.commands))

    left = workbench.node.run(f"sleep 1; cat {events} 2>/dev/null || true")
    assert "populated 1" not in left
