"""Two machines of one SSH group, and a laptop, for runs of several nodes.

They have what the roles write: programs, units, folders, /etc/hosts without a fixed address, and the packet filter; the
homes are on a file server. nvidia-smi is a fake with two GPUs, and the hub a stand-in on the workstation.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bedplate.catalog import load_catalog
from bedplate.plan.fleet import Account
from bedplate.plan.nodes import NodePlan, pool_node
from roles.baseline.role import hosts_file
from roles.catalog import roles_of
from roles.hardened.firewall import ruleset
from roles.jobs.role import TMPFILES, UNIT, Jobs
from tests.testlab.fakes.laptop import TOKEN, FakeHub, Laptop, oldest_python
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.machines.file_server import FileServer, serving_files
from tests.testlab.machines.node_lab import Node, NodeLab, bind_socket

GROUP, REGION = "workbench-gpu", "us-west-2"
MACHINES: Mapping[str, str] = {f"{GROUP}-{number}.{REGION}": f"10.64.33.{8 + number}" for number in (1, 2)}
_MOUNT = Path(__file__).parent / "kernel/mount.nfs4"
_SMI = """#!/bin/sh
case "$1" in --query-gpu=uuid,*) printf 'GPU-0, 0, [N/A], Disabled\\nGPU-1, 1, [N/A], Disabled\\n';; esac
"""
_PREPARE = f"""
useradd --no-create-home --home-dir /home/PERSON --shell /bin/bash --uid UID PERSON
/usr/local/lib/mount.nfs4 SERVER:/home /home -o noresvport
systemd-tmpfiles --create {TMPFILES}
hostnamectl set-hostname HOST
nft --file /srv/filter
systemctl daemon-reload; systemctl start {UNIT}
loginctl enable-linger PERSON; until systemctl is-active user@UID; do sleep 0.2; done
"""


def planned(name: str) -> NodePlan:
    """Return the plan of a machine of the group."""
    plan = lab_plan()
    pool = next(pool for pool in plan.pools if (pool.group, pool.region) == (GROUP, REGION))
    return pool_node(plan, pool, name, load_catalog())


class Gangs:
    """The machines, in the order of their names, and the laptop of a person."""

    def __init__(self, nodes: list[Node], laptop: Laptop, person: Account) -> None:
        self.nodes, self.laptop, self.person = nodes, laptop, person

    def leases(self) -> list[list[str]]:
        """Return the run that has each GPU, by machine; empty for a free one."""
        documents = [json.loads(node.run("bedplate-gpus show --json")) for node in self.nodes]
        return [[gpu["run"] for gpu in document["gpus"]] for document in documents]

    def systemctl(self, node: int, words: str) -> str:
        """Return what systemctl of the person prints on a machine."""
        person, uid = self.person.name, self.person.uid
        return self.nodes[node].run(
            f"runuser -u {person} -- env XDG_RUNTIME_DIR=/run/user/{uid} systemctl --user {words}"
        )

    def units(self) -> list[str]:
        """Return the units of runs, by machine."""
        return [self.systemctl(node, "list-units --all --plain --no-legend 'bp-*'") for node in range(len(self.nodes))]


@contextmanager
def gang_lab(lab: NodeLab) -> Iterator[list[Node]]:
    """Yield the machines of the group with PyTorch."""
    exports = lab.folder / "homes"
    account = person()
    (exports / account.name / ".ssh").mkdir(parents=True)
    keys = exports / account.name / ".ssh/authorized_keys"
    keys.write_text(lab.public)
    for path in (exports / account.name, keys.parent, keys):
        shutil.chown(path, account.uid, account.uid)
        path.chmod(0o600 if path == keys else 0o700)
    with serving_files(lab.workstation.host, lab.workstation.address, FileServer({"/home": exports})):
        nodes = [lab.boot(name, address) for name, address in MACHINES.items()]
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(_prepare, nodes))
        yield nodes


def person() -> Account:
    """Return the person of the runs."""
    return planned(next(iter(MACHINES))).accounts.people[0]


def _prepare(node: Node) -> None:
    plan, account = planned(node.name), person()
    (jobs,) = (role for role in roles_of(plan) if isinstance(role, Jobs))
    for file in (*jobs.files(), hosts_file(plan)):
        _write(node, file.path, file.text, file.mode)
    _write(node, "/usr/local/bin/nvidia-smi", _SMI, "755")
    _write(node, "/usr/local/lib/mount.nfs4", _MOUNT.read_text(), "755")
    _write(node, "/srv/filter", ruleset(plan.firewall_rules, plan.roles, plan.pod_rules), "600")
    values = {"PERSON": account.name, "UID": account.uid, "SERVER": node.workstation.address, "HOST": plan.full_name}
    script = _PREPARE
    for name, value in values.items():
        script = script.replace(name, str(value))
    node.run(script)


def _write(node: Node, name: str, text: str, mode: str) -> None:
    path = node.root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(int(mode, 8))


@contextmanager
def laptop_of(lab: NodeLab, hub: FakeHub, run_token: str) -> Iterator[Laptop]:
    """Yield a laptop at the place of the workstation, whose path is short enough for shared connections."""
    folder = Path(mkdtemp(dir="/tmp"))
    laptop = Laptop(folder, hub, "")
    inside = ("/sbin/ip", "netns", "exec", lab.workstation.host.namespace, oldest_python())
    laptop._start = inside  # type: ignore[assignment]  # noqa: SLF001  a network, instead of a root
    laptop.set(person=person().name, address=str(lab.workstation.address))
    (laptop.programs / "git").symlink_to(shutil.which("git") or "")
    # A laptop is in a network of the fleet, which packet filters of machines admit.
    ssh = f'exec /usr/bin/ssh -i {lab.key} -o BatchMode=yes "$@"'
    tokens = f'*"bp-token -") read -r _; echo {run_token};; *bp-token) echo {TOKEN};;'
    laptop.ssh_answers(f'case "$*" in {tokens} *) {ssh};; esac')
    (folder / "work").mkdir()
    try:
        yield laptop
    finally:
        for socket in (laptop.cache / "bedplate/lab").glob("?" * 40):
            subprocess.run(("ssh", "-O", "exit", "-o", f"ControlPath={socket}", "x"), capture_output=True, check=False)
        # ssh answers before it removes its socket.
        shutil.rmtree(folder, ignore_errors=True)


def listener_of(lab: NodeLab) -> Any:  # noqa: ANN401  a socket
    """Return a socket for a stand-in for the hub, which laptop and machines reach."""
    return bind_socket(lab.workstation.host, lab.workstation.address, 0)
