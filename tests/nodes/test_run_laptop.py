"""`bp run` from a laptop's archive with ssh, sshd, the agent and systemd of a booted node: Ctrl-C, and ssh killed."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from bedplate.programs.agent.member import GPUS
from bedplate.programs.agent.run import AGENT
from roles.base import program_files
from tests.testlab.fakes.laptop import TOKEN, FakeHub, Laptop, oldest_python
from tests.testlab.machines.node_lab import Node, NodeLab, bind_socket
from tests.testlab.network.netlab import until
from tests.unit.test_bp_run import FLEET, MACHINES, RUN_TOKEN, Record

pytestmark = pytest.mark.nightly

NAME = "titan-03.cellar"
_GPUS = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node with the agent, and a person who may log in and whose units need no login."""
    booted = node_lab.boot(NAME, "10.64.33.8")
    for file in program_files("agent", AGENT):
        path = Path(f"{booted.root}{file.path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        path.chmod(int(file.mode, 8))
    Path(f"{booted.root}{GPUS}").write_text(_GPUS)
    Path(f"{booted.root}{GPUS}").chmod(0o755)
    folders = "install -d -o runner -g runner -m 700 ~runner/.ssh /var/cache/bedplate/runs/20077"
    booted.run(f"useradd --create-home --shell /bin/bash --uid 20077 runner; {folders}")
    (booted.root / "srv/key").write_text(node_lab.public)
    booted.run("install -o runner -m 600 /srv/key ~runner/.ssh/authorized_keys; echo 'echo Hello' >>~runner/.bashrc")
    booted.run("loginctl enable-linger runner; until systemctl is-active user@20077; do sleep 0.2; done")
    return booted


@pytest.fixture
def record(node_lab: NodeLab, node: Node, tmp_path: Path) -> Iterator[Record]:
    """Yield the record of a hub that laptop and node reach."""
    listener = bind_socket(node_lab.workstation.host, node_lab.workstation.address, 0)
    with FakeHub(tmp_path, listener=listener) as hub:
        record = Record(hub)
        facts = {**MACHINES[NAME], "address": str(node.address), "host_key": " ".join(node.host_key.split()[:2])}
        hub.answer("/fleet.json", {**FLEET, "machines": {NAME: facts}})
        hub.answer("/bedplate/end", {})
        hub.tokens.add(RUN_TOKEN)
        yield record


@pytest.fixture
def laptop(node_lab: NodeLab, record: Record, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    """Yield a laptop at the place of the workstation, whose path is short enough for a shared connection."""
    folder = Path(mkdtemp(dir="/tmp"))
    laptop = Laptop(folder, record.hub, "")
    inside = ("/sbin/ip", "netns", "exec", node_lab.workstation.host.namespace, oldest_python())
    laptop._start = inside  # type: ignore[assignment]  # noqa: SLF001  a network, instead of a root
    laptop.set(person="runner", address=str(node_lab.workstation.address))
    (laptop.programs / "git").symlink_to(shutil.which("git") or "")
    ssh = f'exec /usr/bin/ssh -i {node_lab.key} -o BatchMode=yes "$@"'
    tokens = f'*"bp-token -") read -r _; echo {RUN_TOKEN};; *bp-token) echo {TOKEN};;'
    laptop.ssh_answers(f'case "$*" in {tokens} *) {ssh};; esac')
    (folder / "work").mkdir()
    (folder / "work/train.sh").write_text(
        'echo "ready $1"; while [ ! -e ~/go ]; do sleep 0.1; done; echo "end"; exit 9\n'
    )
    monkeypatch.chdir(folder / "work")
    yield laptop
    for socket in (laptop.cache / "bedplate/lab").glob("?" * 40):
        subprocess.run(("ssh", "-O", "exit", "-o", f"ControlPath={socket}", NAME), capture_output=True, check=False)
    # ssh answers before it removes its socket.
    shutil.rmtree(folder, ignore_errors=True)


def _start(laptop: Laptop, *words: str) -> "subprocess.Popen[str]":
    process = laptop.start("run", "--on", "titan-03", *words, "--", "sh", "train.sh", "it's $HOME")
    assert process.stdout
    assert process.stdout.readline() == "ready it's $HOME\n", process.communicate()
    return process


def _ended(record: Record) -> Any:  # noqa: ANN401  a document
    until(lambda: record.tags.get("state") == "ended" or '"ended"' in json.dumps(record.runs), 30, "no end")
    return record.runs[-1]["info"]["status"]


def test_a_run_through_ssh_has_output_and_exit_code(node: Node, laptop: Laptop, record: Record) -> None:
    """A second run uses the open connection."""
    node.run("touch ~runner/go")
    for _ in range(2):
        done = laptop.bp("run", "--on", "titan-03", "--param", "lr=1", "--", "sh", "train.sh", "a  b")
        assert (done.returncode, done.stdout) == (9, "ready a  b\nend\n"), done.stderr
        assert "the program ended with exit code 9" in done.stderr
        assert _ended(record) == "FAILED"
    assert len(list((laptop.cache / "bedplate/lab").glob("?" * 40))) == 1


def test_ctrl_c_and_a_killed_ssh_leave_the_run_alone(node: Node, laptop: Laptop, record: Record) -> None:
    """After Ctrl-C the run goes on. A killed ssh is started again, and each line is printed once."""
    node.run("rm -f ~runner/go")
    left, followed = _start(laptop), _start(laptop)
    os.killpg(left.pid, signal.SIGINT)
    assert left.wait(20) == 130
    children = subprocess.run(
        ("ps", "--ppid", str(followed.pid), "-o", "pid="), capture_output=True, text=True, check=True
    )
    for child in children.stdout.split():
        os.kill(int(child), signal.SIGKILL)
    until(lambda: (laptop.programs / "ssh.log").read_text().count("start --follow") == 3, 20, "no new connection")

    node.run("touch ~runner/go")

    output, errors = followed.communicate(timeout=60)
    assert (followed.returncode, output) == (9, "end\n"), errors
    assert f"{record.runs[0]['info']['run_name']} goes on" in left.communicate()[1]
    until(
        lambda: "bp-" not in node.run("ls /run/user/20077/systemd/transient 2>/dev/null || true"), 30, "a unit is left"
    )


def test_a_secret_is_for_its_program_only(node: Node, laptop: Laptop, record: Record) -> None:
    """Files of mode 0600 have it, in the home and until the end of the run; no list of processes or journal does."""
    said = laptop.bp("secret", "set", "HF_TOKEN", text="s3cret-value\n").stdout
    node.run("rm -f ~runner/go")
    script = 'echo "ready ${#KEY}"; while [ ! -e ~/go ]; do sleep 0.1; done'
    process = laptop.start("run", "--on", "titan-03", "--secret", "HF_TOKEN=KEY", "--", "sh", "-c", script)
    assert process.stdout
    assert process.stdout.readline() == "ready 12\n", process.communicate()

    search = "grep -rls s3cre[t] /var/cache/bedplate /run/user /var/log || true"
    seen, (file,) = node.run("ps axww; journalctl --no-pager --quiet"), node.run(search).split()
    modes = node.run(f"stat -c %a ~runner/.config/bedplate/secrets ~runner/.config/bedplate/secrets/HF_TOKEN {file}")
    node.run("touch ~runner/go")
    output, errors = process.communicate(timeout=60)

    assert f"{NAME}\n  HF_TOKEN is set\n" in said
    assert modes.split() == ["700", "600", "600"]
    assert Path(file).match("/var/cache/bedplate/runs/20077/*/secrets")
    assert node.run(search) == ""
    assert "s3cret" not in seen + output + errors + json.dumps(record.runs)
    assert process.returncode == 0, errors


def test_a_session_has_ssh_and_runs_that_start_at_once(node: Node, laptop: Laptop, record: Record) -> None:
    """As the person, by sockets that nobody else reaches; no port is open, and all ends with the session."""
    (laptop.programs / "ssh-keygen").symlink_to(shutil.which("ssh-keygen") or "")
    ports = node.run("ss -lntH | sort")
    done = laptop.bp("session", "start", "-d", "--on", "titan-03", "--env", "SHADE=blue")
    assert done.returncode == 0, done.stderr
    until(lambda: record.tags["state"] == "running", 30, "the session does not start")
    name = record.tags["id"]
    words = (*laptop._start[:-1], "/usr/bin/ssh", "-F", str(laptop.archive / "sessions" / name), name)  # noqa: SLF001
    variables = {"PATH": str(laptop.programs), "XDG_CACHE_HOME": str(laptop.cache), "HOME": str(laptop.archive)}

    shell = subprocess.run(
        (*words, "id -un; echo $SHADE; ls; cat /proc/self/cgroup"),
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    first = laptop.bp("run", "--in", name, "--", "sh", "-c", "echo $SHADE; cat /proc/self/cgroup; exit 7")
    Path("edited").touch()
    second = laptop.bp("run", "--in", name, "--", "ls")

    unit = f"/bp-{name}.service"
    assert shell.stdout.split()[:3] == ["runner", "blue", "train.sh"]
    assert unit in shell.stdout
    assert (first.returncode, first.stdout.split()[0], unit in first.stdout) == (7, "blue", True), first.stderr
    assert second.stdout.split() == ["edited", "train.sh"]
    assert node.run("ss -lntH | sort") == ports
    folder = node.run("readlink -f /var/cache/bedplate/runs/20077/*/session").strip()
    assert node.run(f"stat -c '%U %a' {folder}").split() == ["runner", "700"]
    assert laptop.bp("stop", name).returncode == 0
    until(lambda: record.runs[0]["info"]["status"] == "KILLED", 60, "the session does not end")
    assert "No such file" in node.run(f"ls {folder} 2>&1 || true")
