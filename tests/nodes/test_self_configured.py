"""A cloud node configures itself: the user data of its launch template, a bundle of the working tree, simulated AWS.

The node has no EFS, no buckets and no EC2 type. Its roles, packages, sshd and packet filter are real.
"""

from base64 import b64decode
from collections.abc import Iterator

import pytest

from stacks.compute.template import encode_user_data, first_boot
from tests.testlab.machines.node_lab import NodeLab
from tests.testlab.machines.self_configured import SelfConfigured, cloud

pytestmark = pytest.mark.nightly

NAME, ADDRESS = "workbench-cpu-1.us-west-2", "10.64.33.7"
_EXPORTER = "prometheus-node-exporter"


@pytest.fixture(scope="module")
def booted(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SelfConfigured]:
    """Yield a node after its user data and the first configuration run."""
    with cloud(node_lab, tmp_path_factory.mktemp("place")) as aws:
        machine = aws.place.machine_of_group(aws.group, ADDRESS)
        user_data = b64decode(encode_user_data("a pool", first_boot(aws.plan, aws.pool)))
        configured = aws.prepared(node_lab.boot(NAME, ADDRESS), machine, user_data, aws.pool.name)
        configured.boot()
        configured.wait()
        yield configured


def test_node_is_configured_without_an_operator(booted: SelfConfigured) -> None:
    """It ends with its accounts and a passed gate; its hook is answered after both."""
    run, gate = (booted.place.status(booted.bucket, name) for name in ("run", "gate"))

    assert (run["ok"], run["ready"], run["sequence"]) == (True, True, 1), f"{run['sentence']}\n{booted.log}"
    assert gate["ok"], gate
    assert booted.place.reports == [("lab-workbench-cpu-us-west-2", "ready", "CONTINUE")]
    assert booted.logs_in() == "0"
    assert booted.node.run("getent passwd grace | cut -d: -f6").strip() == "/home/grace"


def test_audit_finds_no_violation(booted: SelfConfigured) -> None:
    """The machine checks itself against its document."""
    audit = booted.place.status(booted.bucket, "audit")

    (node,) = audit["nodes"]
    assert not node.get("unreached"), node
    assert [verdict for verdict in node["verdicts"] if verdict["outcome"] == "violated"] == []


def test_second_run_changes_nothing(booted: SelfConfigured) -> None:
    """It answers no hook again."""
    booted.run()

    assert booted.place.status(booted.bucket, "run")["changed"] == []
    assert len(booted.place.reports) == 1


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
