"""A cloud node configures itself: cloud-init runs the user data of its launch template; AWS is simulated.

The bundle is that of the working tree. The node has no EFS, no buckets and no EC2 type. Its roles, packages, sshd and
packet filter are real.
"""

from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from subprocess import CompletedProcess
from time import sleep

import pytest

from stacks.compute.template import encode_user_data, first_boot
from tests.testlab.machines.container import CommandError, Machine
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.self_configured import Cloud, SelfConfigured, cloud
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

NAME, ADDRESS = "workbench-cpu-1.us-west-2", "10.64.33.7"
_EXPORTER = "prometheus-node-exporter"


@pytest.fixture(scope="module")
def aws(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Yield the simulated AWS."""
    with cloud(node_lab, tmp_path_factory.mktemp("place")) as aws:
        yield aws


@pytest.fixture(scope="module")
def booted(aws: Cloud) -> SelfConfigured:
    """Return a node after its user data and the first configuration run."""
    machine = aws.machine(aws.lab.boot(NAME, ADDRESS))
    restart_with_user_data(machine.node, b64decode(encode_user_data("a pool", first_boot(aws.plan, aws.pool))))
    machine.wait()
    return machine


def upgrade(aws: Cloud, node: Node) -> CompletedProcess[str]:
    """Upgrade a node at once; start its container again after the reboot."""
    login = ("--user", "ada", "--ssh-config", str(node.ssh_config))
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(aws.folder.bedplate, "node", "upgrade", NAME, "--now", *login)
        while not command.done():
            if not node.machine.runs:
                node.restart()
            sleep(1)
    return command.result()


def restart_with_user_data(node: Node, user_data: bytes) -> None:
    """Let cloud-init run user data in the next boot, as that of a new instance."""
    node.stop()
    seed = node.root / "var/lib/cloud/seed/nocloud"
    (seed / "meta-data").write_text("instance-id: i-new\n")
    (seed / "user-data").write_bytes(user_data)
    # The configuration run is a part of the boot.
    assert isinstance(node.machine, Machine)
    node.machine.boot(waits=False)
    until(lambda: "bedplate-node" in console_output(node, "systemctl list-jobs"), 300, "the user data did not run")


def console_output(node: Node, command: str) -> str:
    """Return what a command prints on the console; empty if it fails, as during the boot."""
    with suppress(CommandError):
        return node.run(command)
    return ""


def test_node_is_configured_without_an_operator(booted: SelfConfigured) -> None:
    """It ends with its accounts and a passed gate; its hook is answered after both."""
    run, gate = (booted.place.status(booted.bucket, name) for name in ("run", "gate"))

    assert (run["ok"], run["ready"], run["sequence"]) == (True, True, 1), f"{run['sentence']}\n{booted.log}"
    assert gate["ok"], gate
    assert booted.place.reports == [("lab-workbench-cpu-us-west-2", "ready", "CONTINUE")]
    assert booted.logs_in() == "0"
    assert booted.node.ssh("echo $HOME", user="ada").stdout.strip() == "/home/ada"


def test_audit_finds_no_violation(booted: SelfConfigured) -> None:
    """The machine checks itself against its document."""
    audit = booted.place.status(booted.bucket, "audit")

    (node,) = audit["nodes"]
    assert not node.get("unreached"), node
    assert [verdict for verdict in node["verdicts"] if verdict["outcome"] == "failed"] == []


def test_second_run_changes_nothing(booted: SelfConfigured) -> None:
    """It answers no hook and makes no audit again, and can be repeated by hand more often than a run that fails."""
    audited = booted.place.status(booted.bucket, "audit")["time"]
    booted.run()
    for _ in range(5):
        booted.node.run("systemctl start bedplate-node")

    assert booted.place.status(booted.bucket, "run")["changed"] == []
    assert booted.place.status(booted.bucket, "audit")["time"] == audited
    assert len(booted.place.reports) == 1


def test_an_upgrade_reboots_an_unused_machine(aws: Cloud, booted: SelfConfigured) -> None:
    """It waits for nobody but people: it ends their sessions with `--now`, reboots, and passes the gate again."""
    booted.node.run("touch /run/reboot-required")
    booted.node.run("systemd-run --quiet --unit=job --uid=grace sleep infinity")

    done = upgrade(aws, booted.node)

    assert (done.returncode, "reboots" in done.stderr) == (0, True), done.stderr
    assert booted.node.run("test -e /run/reboot-required || echo rebooted") == "rebooted\n"
    assert "ends the sessions of grace" in done.stderr
    assert booted.place.status(booted.bucket, "run")["sentence"] == "up to date"


def test_killed_run_is_completed(booted: SelfConfigured) -> None:
    """Systemd starts a killed run again, and it continues."""
    booted.node.run(f"apt-get purge --yes --quiet {_EXPORTER} >/dev/null 2>&1")
    booted.node.run("systemctl stop bedplate-node.timer; systemctl reset-failed bedplate-node || true")
    booted.node.run("systemctl start --no-block bedplate-node")
    booted.node.run(f"until pgrep -f 'install.*{_EXPORTER}'; do sleep 0.1; done", seconds=600)
    booted.node.run("systemctl kill --signal=KILL --kill-whom=all bedplate-node")
    booted.node.run(f"until dpkg --status {_EXPORTER} 2>&1 | grep -q 'ok installed'; do sleep 1; done", seconds=600)
    booted.wait()

    assert booted.place.status(booted.bucket, "run")["ok"]


def test_bundle_with_a_wrong_hash_is_refused(booted: SelfConfigured) -> None:
    """The former bundle stays, the status has the reason, and administrators can log in."""
    before = booted.node.run("readlink /opt/bedplate/current").strip()
    sha256 = booted.promote("changed = 1")
    booted.place.aws.call("s3", "put_object", Bucket=booted.bucket, Key=f"bundles/{sha256}.json", Body=b"{}")

    booted.run("exit-code")

    assert booted.node.run("readlink /opt/bedplate/current").strip() == before
    assert "cannot fetch the bundle" in booted.place.status(booted.bucket, "run")["sentence"]
    assert booted.logs_in() == "0"


def test_lower_sequence_is_refused(booted: SelfConfigured) -> None:
    """A rollback is a new sequence."""
    booted.promote(sequence=9)
    booted.run()
    booted.promote("older = 1", sequence=8)

    booted.run("exit-code")

    assert "sequence 8; this machine has accepted 9" in booted.place.status(booted.bucket, "run")["sentence"]
    assert booted.logs_in() == "0"
    assert len(booted.place.reports) == 1
