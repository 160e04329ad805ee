"""The preparation of a machine that becomes an image: its cleaning script on a folder, and its order of steps."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.machine import freeze
from bedplate.machine.freeze import is_installed, write_mark
from bedplate.machine.state import State
from bedplate.nodes.apply import Event, NodeErrorKind, NodeResult, Step
from bedplate.plan.node_document import pool_document
from bedplate.plan.nodes import NodePlan, pool_node
from bedplate.plan.planner import image_kinds
from roles.catalog import install_digest
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

FILTER = "etc/systemd/system/sysinit.target.wants/bedplate-shut.service"
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n"
TRACES = {
    "etc/ssh/ssh_host_ed25519_key": "host key: /etc/ssh/ssh_host_ed25519_key",
    "etc/ssh/authorized_keys.d/ada": "authorised key: /etc/ssh/authorized_keys.d/ada",
    "home/ubuntu/.ssh/authorized_keys": "authorised key: /home/ubuntu/.ssh/authorized_keys",
    "var/lib/ubuntu/.ssh/authorized_keys": "authorised key: /var/lib/ubuntu/.ssh/authorized_keys",
    "root/.bash_history": "history: /root/.bash_history",
    "home/ubuntu/.ssh/authorized_keys2": "authorised key: /home/ubuntu/.ssh/authorized_keys2",
    "etc/sudoers.d/90-bedplate-first": "rights of the first login: /etc/sudoers.d/90-bedplate-first",
    "root/.aws/credentials": "credentials: /root/.aws",
    "root/.kube/config": "credentials: /root/.kube",
    "home/ubuntu/.docker/config.json": "credentials: /home/ubuntu/.docker",
    "home/ubuntu/.netrc": "credentials: /home/ubuntu/.netrc",
    "home/ubuntu/.git-credentials": "credentials: /home/ubuntu/.git-credentials",
    "etc/ssl/private/box.key": "key or id of this machine: /etc/ssl/private/box.key",
    "etc/kubernetes/kubelet.conf": "key or id of this machine: /etc/kubernetes/kubelet.conf",
    "var/lib/kubelet/pki/a.pem": "key or id of this machine: /var/lib/kubelet/pki/a.pem",
    "etc/nvme/hostnqn": "key or id of this machine: /etc/nvme/hostnqn",
    "var/lib/cloud/instances/i-1/sem/config": "state of cloud-init: /var/lib/cloud/instances",
    "var/lib/bedplate/node.json": "state of this machine: /var/lib/bedplate/node.json",
    "usr/local/lib/bedplate/bootstrap": "bootstrap of the bake: /usr/local/lib/bedplate/bootstrap",
    "var/log/syslog": "log: /var/log/syslog",
}
OTHERS = ("var/log/syslog.2.gz", "tmp/work", "var/cache/apt/archives/a.deb", "var/log/journal/0a/system.journal")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root folder of a machine after its install stage."""
    files = {
        **dict.fromkeys((*TRACES, *OTHERS), "trace\n"),
        "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
        "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 box box\n",
        "boot/vmlinuz-6.8.0-1-aws": "kernel",
        "boot/initrd.img-6.8.0-1-aws": "disk",
        "usr/bin/cloud-init": "#!/bin/sh",
        "var/lib/bedplate/micromamba.unreached": "https://example.org",
        "etc/bedplate/emergency.nft": "table inet bedplate",
        "opt/bedplate/abc/code/x.py": "",
        "etc/ssh/sshd_config": "Port 22\n",
        "var/lib/dpkg/status": "",
        "var/lib/dpkg/updates/.keep": "",
        "var/lib/dpkg/info/format": "1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "usr/bin/cloud-init").chmod(0o755)
    (tmp_path / "opt/bedplate/current").symlink_to("abc")
    (tmp_path / FILTER).parent.mkdir(parents=True)
    (tmp_path / FILTER).symlink_to("unit")
    return tmp_path


def _run(root: Path, step: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        ["bash", freeze.SCRIPT, step], env={"ROOT": str(root)}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_a_cleaned_machine_passes_the_check(root: Path) -> None:
    """Its traces are gone; log files are empty, and what the next machine needs is there."""
    assert _run(root, "all") == (0, [])

    assert not [name for name in (*TRACES, *OTHERS) if (root / name).exists() and name != "var/log/syslog"]
    assert (root / "var/lib/bedplate/micromamba.unreached").exists()
    assert (root / "etc/machine-id").read_text() == ""
    assert (root / "etc/hosts").read_text() == "127.0.0.1 localhost\n"
    assert (root / "opt/bedplate/current/code/x.py").exists()
    assert (root / "usr/share/bedplate/packages.txt").exists()
    assert _run(root, "all") == (0, [])


@pytest.mark.parametrize(("name", "line"), TRACES.items())
def test_the_check_finds_each_trace(root: Path, name: str, line: str) -> None:
    """A trace that the cleaning has missed stops the bake."""
    assert _run(root, "clean") == (0, [])
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("trace\n")

    assert _run(root, "check") == (1, [line])


def test_the_check_finds_what_the_boot_lacks_and_private_keys(root: Path) -> None:
    """An image without these cannot boot as a new machine, or is not safe to copy."""
    assert _run(root, "clean") == (0, [])
    for name in ("boot/initrd.img-6.8.0-1-aws", "usr/bin/cloud-init", "opt/bedplate/current", FILTER):
        (root / name).unlink()
    (root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (root / "root/backup").write_text(KEY)

    assert _run(root, "check") == (
        1,
        [
            "machine id: /etc/machine-id must be an empty file",
            "private key: /root/backup",
            "open packet filter: bedplate-shut.service is not enabled",
            "no initial ram disk for /boot/vmlinuz-6.8.0-1-aws",
            "cloud-init is not installed",
            "no bundle at /opt/bedplate/current",
        ],
    )


def test_shellcheck_finds_nothing() -> None:
    """Hints of shellcheck count as well."""
    shellcheck = Path(sys.executable).parent / "shellcheck"
    assert subprocess.run([shellcheck, freeze.SCRIPT], capture_output=True, text=True, check=False).stdout == ""


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Return the files of a machine after its bootstrap."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    folder = tmp_path / "var/lib/bedplate"
    folder.mkdir(parents=True)
    (folder / "document.json").write_text(pool_document(plan, plan.pools[0], load_catalog()))
    (folder / "node.json").write_text('{"bundle": "abc", "sequence": 7}')
    return State(folder, tmp_path / "run")


FAILED = {"rule": "openssh-is-recent", "words": "found 9.1", "outcome": "failed"}


@pytest.mark.parametrize(
    ("error", "verdicts", "sentence"),
    [("", [], "0 changed"), ("apt failed", [], "apt failed"), ("", [FAILED], "openssh-is-recent: found 9.1")],
)
def test_the_status_is_written_last(  # noqa: PLR0913, PLR0917  two failures
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    verdicts: list[dict[str, str]],
    sentence: str,
) -> None:
    """Only the install stage runs, before and after a reboot.

    A failure is reported after three runs, and the machine is not cleaned then. A failed rule is a failure.

    The bootstrap that writes the status is a copy: the cleaning removes the original.
    """

    def apply(node: NodePlan, only: object, *, stages: object, **_: object) -> NodeResult:
        calls.append((only, stages))
        event = Event(node.name, Step.ERROR, words=error, kind=NodeErrorKind.FAILED) if error else None
        return NodeResult(node.name, [], error=event, is_done=not error)

    calls: list[tuple[object, object]] = []
    is_failed = bool(error or verdicts)
    program, cleaner = tmp_path / "bootstrap", tmp_path / "cleaner"
    report = f'cat "$ROOT{state.folder}/status/run.json" >{tmp_path}/sent; ls {tmp_path} >{tmp_path}/left\n'
    program.write_text(f'[ "$1" = put_status ] && {report}')
    cleaner.write_text(f"rm -r {program} {state.folder}\n")
    monkeypatch.setattr(freeze, "apply_roles", apply)
    monkeypatch.setattr(freeze, "SCRIPT", cleaner)
    monkeypatch.setattr(freeze, "audit", lambda *_, **__: {"nodes": [{"unreached": "", "verdicts": verdicts}]})
    (tmp_path / "var/lib/dpkg").mkdir()
    (tmp_path / "var/lib/dpkg/status").write_text("Package: jq\n")

    monkeypatch.setattr(freeze, "reboot_and_run", lambda: shutil.rmtree(state.volatile))

    codes = [freeze.main(state, program, tmp_path) for _ in range(3 if is_failed else 2)]

    assert codes == ([1, 1, 0] if is_failed else [0, 0])
    assert len(calls) == len(codes)
    assert {*calls} == {(None, frozenset({"install"}))}
    sent = json.loads((tmp_path / "sent").read_text())
    assert (sent["stage"], sent["ok"], sent["bundle"]) == ("install", not is_failed, "abc")
    assert sent["sentence"] == sentence
    assert ("bootstrap" in (tmp_path / "left").read_text().split()) == is_failed


def test_an_image_has_the_packages_of_its_bundle_and_kind_only(state: State, tmp_path: Path) -> None:
    """Not those of a newer bundle or of a machine with another driver, and perhaps not those of a failed run."""
    node, mark = state.node(), tmp_path / "mark"
    assert not is_installed(state, node, mark)

    write_mark(state, node, mark)

    assert is_installed(state, replace(node, name="other.us-west-2", expires="2027-01-01"), mark)
    assert not is_installed(state, replace(node, driver="595"), mark)
    (state.folder / "node.json").write_text('{"bundle": "newer", "sequence": 8}')
    assert not is_installed(state, node, mark)
    write_mark(state, node, mark)
    state.write_status("run", {"ok": False})
    assert not is_installed(state, node, mark)


def test_pools_of_a_kind_have_the_same_install_stage() -> None:
    """So that a machine of each pool skips it on an image of the kind."""
    catalog = load_catalog()
    for name in ("lab", "arm64", "simulators", "training-block"):
        plan = plan_of(EXAMPLES / f"{name}.yaml")
        for kind, pools in image_kinds(plan, catalog).items():
            nodes = [pool_node(plan, pool, f"{pool.group}.{pool.region}", catalog) for pool in pools]
            assert len({install_digest(node) for node in nodes}) == 1, kind.name
