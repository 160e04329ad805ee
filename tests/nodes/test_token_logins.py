"""Logins to a member of the control plane, by the real sshd with the settings of the role `hardened`.

Accounts and files are in mounts of their own: no node is booted.
"""

import shutil
import subprocess
from collections.abc import Mapping

import pytest

from bedplate.plan.nodes import NodeRole
from roles.hardened.logins import TOKEN_PROGRAM, settings
from tests.testlab.fleets.variants import lab_node
from tests.testlab.run import need_program, need_root

pytestmark = pytest.mark.nightly

MEMBER = "control-1.us-west-2"
# A shell that shows its user; the program of the role `tokens` is tested with a real cluster.
_START = f"""set -eu
ip link set lo up; mkdir -p /run/sshd
for folder in /etc/ssh /usr/local/bin /root; do mount -t tmpfs -o mode=755 tmpfs $folder; done
grep -v ^sshd: /etc/passwd > $WORK/passwd
echo sshd:x:64999:65534::/run/sshd:/usr/sbin/nologin >> $WORK/passwd
printf '%s\\n' ada:x:20000:20000::/:/bin/sh grace:x:20001:20001::/:/bin/sh >> $WORK/passwd
printf '%s\\n' 'ada:*:1::::::' 'grace:*:1::::::' | cat /etc/shadow - > $WORK/shadow
for file in passwd shadow; do mount --bind $WORK/$file /etc/$file; done
printf '#!/bin/sh\\necho "a token for $(id -un)"\\n' > {TOKEN_PROGRAM}; chmod 755 {TOKEN_PROGRAM}
for kind in ed25519 rsa; do ssh-keygen -q -t $kind -N '' -f /etc/ssh/ssh_host_${{kind}}_key; done
cp $WORK/sshd.conf /etc/ssh/sshd_config; mkdir /etc/ssh/authorized_keys.d
echo 'Subsystem sftp internal-sftp' > /etc/ssh/sftp; cat /etc/ssh/sshd_config >> /etc/ssh/sftp
ssh-keygen -q -t ed25519 -N '' -f /root/key
for name in ada grace; do cp /root/key.pub /etc/ssh/authorized_keys.d/$name; done
$SSHD -f /etc/ssh/sftp -o UsePAM=no -o PidFile=/run/test-sshd.pid
for i in $(seq 100); do ss -ltn | grep -q :22 && break; sleep 0.05; done
trap 'kill $(cat /run/test-sshd.pid)' EXIT
opts="-F none -i /root/key -o BatchMode=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR"
set +e
taken() {{ ls /root; rm -f /root/stolen; }}
hold() {{ /usr/bin/python3 -c "import socket, time
held = [socket.create_connection(('127.0.0.1', 22)) for _ in range(60)]
time.sleep(60)" & held=$!; sleep 1; }}
at() {{ person=$1; shift; timeout 10 ssh -n $opts "$@" "$person@127.0.0.1" $COMMAND 2>&1 || echo "status $?"; }}
"""
# Each prints what the person gets. In the last one, another host holds connections without a login.
_TRIES: Mapping[str, str] = {
    "command": "COMMAND='id -un' at {0}",
    "terminal": "COMMAND=tty at {0} -tt",
    "sftp": "timeout 10 sftp $opts -b /dev/stdin {0}@127.0.0.1 <<< 'get /etc/hostname /root/stolen' 2>&1; taken",
    "scp": "timeout 10 scp $opts {0}@127.0.0.1:/etc/hostname /root/stolen 2>&1; taken",
    "old scp": "timeout 10 scp -O $opts {0}@127.0.0.1:/etc/hostname /root/stolen 2>&1; taken",
    "connection": "COMMAND= at {0} -W 127.0.0.1:22 | head -c 60",
    "port": "COMMAND=true at {0} -o ExitOnForwardFailure=yes -R 127.0.0.1:3000:127.0.0.1:22",
    "socket": "COMMAND=true at {0} -o ExitOnForwardFailure=yes -R $WORK/socket:127.0.0.1:22",
    "network": "COMMAND=true at {0} -o ExitOnForwardFailure=yes -w 0:0",
    "subsystem": "COMMAND=bash at {0} -s",
    "environment": "COMMAND=x at {0} -A -o 'SetEnv=LC_ALL=C BASH_ENV=$WORK/x LD_PRELOAD=$WORK/x'",
    "held": "hold; for i in 1 2 3 4; do COMMAND='id -un' at {0} -b 127.0.0.2; done; kill $held; wait $held || true",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, str]]:
    """Return what grace and ada, an administrator, get from a member by each kind of access."""
    need_root()
    need_program("sshd")
    folder = tmp_path_factory.mktemp("sshd")
    (folder / "sshd.conf").write_text(settings(frozenset({NodeRole.CONTROL}), lab_node(MEMBER).accounts.administrators))
    tries = "\n".join(
        f"echo '== {person} {name}'; {command.format(person)}"
        for person in ("ada", "grace")
        for name, command in _TRIES.items()
    )
    done = subprocess.run(
        ("unshare", "--mount", "--net", "bash", "-c", _START + tries),
        env={"WORK": str(folder), "SSHD": str(shutil.which("sshd")), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs: dict[str, dict[str, str]] = {}
    for title, _, text in (section.partition("\n") for section in done.stdout.split("== ")[1:]):
        person, _, name = title.partition(" ")
        outputs.setdefault(person, {})[name] = text.strip()
    return outputs


def test_others_than_administrators_get_a_token_and_nothing_else(results: Mapping[str, Mapping[str, str]]) -> None:
    """A person without administration gets a token for any command: no shell, file, terminal or connection."""
    grace = results["grace"]

    assert grace["command"] == "a token for grace"
    assert "PTY allocation request failed" in grace["terminal"]
    assert not [name for name, text in grace.items() if "stolen" in text.split()]
    assert "SSH-2.0" not in grace["connection"]
    assert "forwarding failed" in grace["port"]
    assert "forwarding failed" in grace["socket"]
    assert "Tunnel forwarding failed" in grace["network"]
    assert "subsystem request failed" in grace["subsystem"]
    assert grace["environment"] == "a token for grace"


def test_administrators_keep_their_shell(results: Mapping[str, Mapping[str, str]]) -> None:
    """An administrator has a shell, a terminal and file transfer on a member."""
    ada = results["ada"]

    assert ada["command"] == "ada"
    assert ada["terminal"].startswith("/dev/pts/")
    assert all("stolen" in ada[name].split() for name in ("sftp", "scp"))


def test_one_host_cannot_refuse_the_logins_of_others(results: Mapping[str, Mapping[str, str]]) -> None:
    """A host that opens 60 connections without a login keeps nobody at another address from logging in."""
    assert results["ada"]["held"].split() == ["ada"] * 4
