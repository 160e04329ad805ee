"""A cloud node configures itself: cloud-init runs the user data of its launch template; AWS is simulated.

The bundle is that of the working tree. The node has no EFS, no buckets and no EC2 type. Its roles, packages, sshd and
packet filter are real.
"""

from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from subprocess import CompletedProcess
from time import monotonic, sleep

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.links import ssh_pools
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import pool_node
from bedplate.rehearsal.simulation import running
from stacks.compute.template import encode_user_data, first_boot
from stacks.program import administrators
from tests.testlab.fakes.first_boot import Place, boot_place
from tests.testlab.machines.bundle import working_tree
from tests.testlab.machines.cloud import seen_by_nodes
from tests.testlab.machines.container import CommandError, Machine
from tests.testlab.machines.lab import FleetFolder, folder_of_ada
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.network.netlab import until
from tests.testlab.rehearsal.programs import plan_of

pytestmark = pytest.mark.nightly

NAME, ADDRESS = "workbench-cpu-1.us-west-2", "10.64.33.7"
_SECONDS = 1500.0
_EXPORTER = "prometheus-node-exporter"


@dataclass
class SelfConfigured:
    """A node that configures itself; `sequence` is the last one of its ring."""

    folder: FleetFolder
    node: Node
    place: Place
    bucket: str
    document: tuple[str, str]
    sequence: int = 0

    def promote(self, code: str = "", sequence: int | None = None) -> str:
        """Point the ring to a bundle of the working tree with one more file of code; return its hash."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        bundle = working_tree(dict([self.document]), {"bedplate/extra.py": code.encode()} if code else {})
        self.place.publish(bundle, self.sequence, self.bucket)
        return bundle.sha256

    def run(self, result: str = "success") -> None:
        """Run the service, without its timer and its restarts."""
        self.node.run("systemctl stop bedplate-node.timer bedplate-node.service; systemctl reset-failed bedplate-node")
        # Not with --no-block: until the job begins, systemd shows the result of the run before.
        self.node.run("systemctl start bedplate-node.service || true", seconds=_SECONDS)
        self.wait(result)

    def wait(self, result: str = "success") -> None:
        """Wait until the run has ended with a result of systemd."""
        deadline = monotonic() + _SECONDS
        properties, shown = "Result,ActiveState,SubState,ExecMainExitTimestampMonotonic", ""
        while monotonic() < deadline:
            shown = self.node.run(f"systemctl show --property={properties} bedplate-node.service")
            is_over = "ActiveState=inactive" in shown or "SubState=auto-restart" in shown or "=failed" in shown
            if is_over and "Monotonic=0" not in shown:
                assert f"Result={result}" in shown, self.log
                return
            sleep(2)
        pytest.fail(f"{shown}\n{self.log}")

    def upgrade(self) -> CompletedProcess[str]:
        """Upgrade the node at once; start its container again after the reboot."""
        login = ("--user", "ada", "--ssh-config", str(self.node.ssh_config))
        with ThreadPoolExecutor(1) as pool:
            command = pool.submit(self.folder.bedplate, "node", "upgrade", NAME, "--now", *login)
            while not command.done():
                if not self.node.machine.runs:
                    self.node.restart()
                sleep(1)
        return command.result()

    @property
    def log(self) -> str:
        """The journal of the service."""
        return self.node.run("journalctl --no-pager --output=cat --unit=bedplate-node | tail -60")

    def logs_in(self) -> str:
        """Return the user id of ada under sudo, over SSH."""
        return self.node.ssh("sudo -n id -u", user="ada").stdout.strip()


@pytest.fixture(scope="module")
def booted(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SelfConfigured]:
    """Yield a node after its user data and the first configuration run."""
    with ExitStack() as stack:
        aws = stack.enter_context(running("111122223333")).region("us-west-2")
        folder = folder_of_ada(node_lab, tmp_path_factory.mktemp("lab"))
        plan = plan_of(folder.fleet)
        pool = next(pool for pool in ssh_pools(plan) if pool.group == "workbench-cpu")
        place = stack.enter_context(boot_place(aws, tmp_path_factory.mktemp("place")))
        place.tell("admins", administrators(plan.accounts))
        node = node_lab.boot(NAME, ADDRESS)
        planned = pool_node(plan, pool, f"{pool.group}.{pool.region}", load_catalog())
        document = node_document(replace(planned, mounts=(), buckets=(), types=()))
        configured = SelfConfigured(folder, node, place, plan.nodes_bucket(pool.region).name, (pool.name, document))
        stack.enter_context(place.bucket(configured.bucket))
        configured.promote()
        machine = place.machine_of_group(f"{plan.name}-{pool.name}", ADDRESS)
        _lead_to_simulation(node, place, machine.imds)
        restart_with_user_data(node, b64decode(encode_user_data("a pool", first_boot(plan, pool))))
        configured.wait()
        yield configured


def _lead_to_simulation(node: Node, place: Place, imds: str) -> None:
    """Lead all services to the simulated AWS; remove the key of the node lab, as in a cloud image."""
    environment = {
        "AWS_ENDPOINT_URL": seen_by_nodes(place.door.url),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": seen_by_nodes(imds),
        "PAUSE": "0",
    }
    words = " ".join(f'"{name}={value}"' for name, value in environment.items())
    # Not in a unit: the audit reports drop-ins.
    settings = node.root / "etc/systemd/system.conf.d/10-lab.conf"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"[Manager]\nDefaultEnvironment={words}\n")
    node.run("rm ~ubuntu/.ssh/authorized_keys")


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
    assert [verdict for verdict in node["verdicts"] if verdict["outcome"] == "violated"] == []


def test_second_run_changes_nothing(booted: SelfConfigured) -> None:
    """It answers no hook and makes no audit again, and can be repeated by hand more often than a run that fails."""
    audited = booted.place.status(booted.bucket, "audit")["time"]
    booted.run()
    for _ in range(5):
        booted.node.run("systemctl start bedplate-node")

    assert booted.place.status(booted.bucket, "run")["changed"] == []
    assert booted.place.status(booted.bucket, "audit")["time"] == audited
    assert len(booted.place.reports) == 1


def test_an_upgrade_reboots_an_unused_machine(booted: SelfConfigured) -> None:
    """It waits for nobody but people: it ends their sessions with `--now`, reboots, and passes the gate again."""
    booted.node.run("touch /run/reboot-required")
    booted.node.run("systemd-run --quiet --unit=job --uid=grace sleep infinity")

    done = booted.upgrade()

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
