"""The first boot script, run by bash with fake metadata and AWS endpoints that check requests as AWS does."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.nodes.bootstrap import site_script
from bedplate.permissions import registration_permissions
from bedplate.plan.cluster import pool_node_name
from bedplate.plan.cost import NAME_CALLS, PARAMETER_CALLS
from bedplate.plan.fleet import NO_ACCOUNTS, Account, Accounts
from bedplate.plan.links import ssh_pools
from bedplate.plan.nodes import find_node
from bedplate.rehearsal.simulation import Simulation
from bedplate.spec.groups import Ring
from roles.base import file_text
from roles.people.accounts import KEYS
from roles.people.role import SUDOERS
from stacks.compute.template import ETCD, VPN_KEYS, KeptData, first_boot, hub_data, permanent_boot
from stacks.program import administrators
from tests.testlab.fakes.first_boot import DATE, LAB, PLAN, POOL, Bundle, Node, Place, boot_place
from tests.testlab.fleets.sketch import with_group
from tests.testlab.network.netlab import until
from vpn.laptops.server import daemon_unit

SCRIPT = first_boot(LAB, POOL)
WORKER = next(pool for pool in LAB.pools if pool.use.value == "kubernetes")
MEMBER, GATEWAY = "control-1.us-west-2", "laptops.us-west-2"
HOST = "workbench-gpu-{}.us-west-2.lab.internal."


@pytest.fixture
def place(simulation: Simulation, tmp_path: Path) -> Iterator[Place]:
    """Return a fleet without machines."""
    with boot_place(simulation.region("us-west-2"), tmp_path) as new_place:
        yield new_place


def record_of(machine: Node) -> tuple[str, ...]:
    """Return the address, id and host key of a machine."""
    return machine.facts["local-ipv4"], machine.facts["instance-id"], machine.sshfp


def test_machines_register_the_lowest_unused_names(place: Place) -> None:
    """The first machine has number 1, the second number 2; only the configuration run reports them ready."""
    first, second = place.machine(), place.machine()

    booted = [machine.boot(SCRIPT) for machine in (first, second)]

    assert [status for status, _ in booted] == [0, 0], booted
    assert place.names == {HOST.format(1): record_of(first), HOST.format(2): record_of(second)}
    assert place.reports == []


def test_machines_that_start_together_have_different_names(place: Place) -> None:
    """A machine that loses the race for a number takes any free one: the next would be taken by another loser."""
    machines = [place.machine() for _ in range(3)]

    started = [machine.start(SCRIPT) for machine in machines]
    for process in started:
        process.communicate(timeout=60)

    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(place.names) == 3
    assert HOST.format(1) in place.names
    assert {owner for _, owner, _ in place.names.values()} == {machine.facts["instance-id"] for machine in machines}


def test_a_throttled_call_is_made_again(place: Place) -> None:
    """Route 53 answers 400 to more than five calls a second of the account: that is no refusal, and costs no try."""
    place.endpoint.throttled = 3

    status, log = place.machine().boot(SCRIPT)

    assert status == 0, log
    assert place.endpoint.throttled == 0
    assert "route53" not in log


def test_a_machine_sets_its_host_name(place: Place) -> None:
    """The name is set with hostnamectl and in /etc/hosts, and stays after a restart."""
    machine = place.machine()

    machine.boot(SCRIPT)

    assert machine.noted[0] == "hostnamectl set-hostname workbench-gpu-1"
    assert (
        "127.0.1.1 workbench-gpu-1.us-west-2.lab.internal workbench-gpu-1" in (machine.root / "etc/hosts").read_text()
    )
    assert (machine.root / "etc/cloud/cloud.cfg.d/99-bedplate.cfg").read_text() == "preserve_hostname: true\n"


def test_the_name_of_a_terminated_machine_is_reused(place: Place) -> None:
    """One batch replaces the records that the terminated machine left."""
    ended, running, new = place.machine(), place.machine(), place.machine()
    for machine in (ended, running):
        machine.boot(SCRIPT)
    place.end(ended)

    status, log = new.boot(SCRIPT)

    assert status == 0, log
    assert place.names == {HOST.format(1): record_of(new), HOST.format(2): record_of(running)}


def test_a_second_run_keeps_the_registered_name(place: Place) -> None:
    """After a lost response the script finds the name of this machine."""
    machine = place.machine()

    booted = [machine.boot(SCRIPT)[0] for _ in range(2)]

    assert booted == [0, 0]
    assert place.names == {HOST.format(1): record_of(machine)}


def test_an_a_record_without_owner_is_not_changed(place: Place) -> None:
    """A person may have created it."""
    record = {"Name": HOST.format(1), "Type": "A", "TTL": 300, "ResourceRecords": [{"Value": "192.0.2.1"}]}
    batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
    place.aws.call("route53", "change_resource_record_sets", HostedZoneId=place.zone, ChangeBatch=batch)
    machine = place.machine()

    machine.boot(SCRIPT)

    assert place.names == {HOST.format(1): ("192.0.2.1", "", ""), HOST.format(2): record_of(machine)}


def test_a_machine_writes_exactly_the_permitted_record_types(place: Place) -> None:
    """A missing type in the policy would stop every first boot; an extra one would be unused."""
    place.machine().boot(SCRIPT)

    (write,) = (item for item in registration_permissions(LAB, place.zone) if item.sid == "WriteOwnNames")
    granted = write.conditions["ForAllValues:StringEquals"]["route53:ChangeResourceRecordSetsRecordTypes"]
    records = place.aws.call("route53", "list_resource_record_sets", HostedZoneId=place.zone)["ResourceRecordSets"]
    assert sorted(item["Type"] for item in records if item["Name"] == HOST.format(1)) == sorted(granted)


def test_an_sshfp_record_without_owner_is_not_changed(place: Place) -> None:
    """The record is not deleted, and no machine takes its name."""
    record = {"Name": HOST.format(1), "Type": "SSHFP", "TTL": 300, "ResourceRecords": [{"Value": f"4 2 {'0' * 64}"}]}
    batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
    place.aws.call("route53", "change_resource_record_sets", HostedZoneId=place.zone, ChangeBatch=batch)
    machine = place.machine()

    machine.boot(SCRIPT)

    assert place.names == {HOST.format(1): ("", "", f"4 2 {'0' * 64}"), HOST.format(2): record_of(machine)}


@pytest.mark.parametrize("key", ["", "ssh-rsa AAAAB3NzaC1yc2E= node\n"], ids=["none", "rsa"])
def test_a_machine_without_an_ed25519_host_key_is_abandoned(place: Place, key: str) -> None:
    """Its identity cannot be verified: it takes no name, and the log has the reason."""
    machine = place.machine()
    machine.host_key.write_text(key)

    status, log = machine.boot(SCRIPT)

    assert status == 1
    assert "there is no Ed25519 host key" in log
    assert place.names == {}
    assert place.reports == [("lab-workbench-gpu-us-west-2", "ready", "ABANDON")]


def test_a_machine_without_an_unused_name_is_abandoned(place: Place) -> None:
    """With all names in use the log has the reason, and the hook is completed with ABANDON."""
    pool = replace(POOL, max=1)
    script = first_boot(replace(LAB, pools=(pool,)), pool)
    place.machine().boot(script)

    status, log = place.machine().boot(script)

    assert status == 1
    assert "all 1 names of workbench-gpu in us-west-2.lab.internal belong to existing machines" in log
    assert "claim_name failed (1): terminating this machine" in log
    assert place.reports[-1] == ("lab-workbench-gpu-us-west-2", "ready", "ABANDON")


def test_the_log_contains_api_errors_and_no_secrets(place: Place) -> None:
    """The console log has the error of AWS, and no key."""
    place.endpoint.deaf.add("DescribeInstances")
    place.machine().boot(SCRIPT)

    status, log = place.machine().boot(SCRIPT)

    assert status != 0
    assert "DescribeInstances is not allowed" in log
    assert place.reports[-1][2] == "ABANDON"
    assert not [key for key in (place.endpoint.keys.secret_key, place.endpoint.keys.token) if key in log]


def test_a_terminating_machine_releases_its_name(place: Place) -> None:
    """Its records are deleted, no others, and the drained hook is completed."""
    leaving, running = place.machine(), place.machine()
    for machine in (leaving, running):
        machine.boot(SCRIPT)
    leaving.facts["autoscaling/target-lifecycle-state"] = "Terminated"

    status, log = leaving.boot(SCRIPT, "give_back_name")

    assert status == 0, log
    assert place.names == {HOST.format(2): record_of(running)}
    assert place.reports[-1] == ("lab-workbench-gpu-us-west-2", "drained", "CONTINUE")


def test_a_service_runs_the_script_at_termination(place: Place) -> None:
    """The service is enabled, and runs only the step give_back_name."""
    machine = place.machine()

    machine.boot(SCRIPT)

    unit = (machine.root / "etc/systemd/system/bedplate-end.service").read_text()
    assert "ExecStart=/usr/local/lib/bedplate/bootstrap give_back_name\n" in unit
    assert (machine.root / "usr/local/lib/bedplate/bootstrap").read_text() == SCRIPT
    assert "systemctl enable --now --no-block bedplate-end.service" in machine.noted


def test_a_worker_has_the_name_of_its_node(place: Place) -> None:
    """A worker registers no name: its host name is its group and its instance, as kubelet names its node."""
    machine = place.machine()

    status, log = machine.boot(first_boot(LAB, WORKER))

    assert status == 0, log
    name = pool_node_name(WORKER.group, machine.facts["instance-id"], WORKER.region)
    assert machine.noted[0] == f"hostnamectl set-hostname {name.partition('.')[0]}"
    assert f"127.0.1.1 {name}.{LAB.domain} " in (machine.root / "etc/hosts").read_text()
    assert place.names == {}
    assert machine.noted[-1] == "systemctl start --no-block bedplate-node.service bedplate-node.timer"


def test_a_worker_reads_its_token_and_answers_its_hook(place: Place) -> None:
    """The agent of workers calls these steps: the token is outside the folder that all nodes may read."""
    token = {"Name": "/lab.workers/join", "Value": "abcdef.0123456789abcdef", "Type": "SecureString"}
    place.aws.call("ssm", "put_parameter", **token)
    machine = place.machine()

    status, output = machine.boot(first_boot(LAB, WORKER), "print_join_token")
    assert (status, token["Value"] in output.splitlines()) == (0, True), output
    status, output = machine.boot(first_boot(LAB, WORKER), "report_drained")

    assert status == 0, output
    assert place.reports[-1] == (f"lab-{WORKER.name}", "drained", "CONTINUE")


@pytest.mark.parametrize(
    ("blkid_status", "formatted", "ready"),
    [(0, False, True), (2, True, True), (8, False, False)],
    ids=["data", "blank", "?"],
)
def test_a_member_mounts_its_volume(place: Place, blkid_status: int, *, formatted: bool, ready: bool) -> None:
    """A blank volume is formatted, one with data is not, an unreadable one stops the boot."""
    machine = place.machine()
    machine.command("blkid", f"exit {blkid_status}")
    zone = f"{place.aws.region}a"
    volume = place.aws.call("ec2", "create_volume", AvailabilityZone=zone, Size=32, VolumeType="gp3")["VolumeId"]
    device = machine.root / f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    place.endpoint.done = lambda action: device.touch() if action == "AttachVolume" else None

    status, log = machine.boot(permanent_boot(LAB, MEMBER, ETCD, volume))

    assert (status == 0) is ready, log
    assert [call.split()[-1] for call in machine.noted if call.startswith("mkfs")] == [str(device)] * formatted
    assert (f"mount {machine.root}/var/lib/etcd" in machine.noted) is ready
    assert place.reports == [("lab-control-1", "ready", "ABANDON")] * (not ready)
    (state,) = place.aws.call("ec2", "describe_volumes", VolumeIds=[volume])["Volumes"]
    assert [attachment["InstanceId"] for attachment in state["Attachments"]] == [machine.facts["instance-id"]]


def _mount(machine: Node, name: str, kept: KeptData) -> Path:
    """Mount the attached volume of a machine with data that is kept; return its device."""
    machine.command("blkid", "exit 0")
    volume = "vol-0123456789abcdef0"
    device = machine.root / f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    device.touch()
    status, log = machine.boot(permanent_boot(LAB, name, kept, volume), "mount_volume")
    assert status == 0, log
    return device


def test_etcd_never_starts_on_the_root_disk(place: Place) -> None:
    """Boot waits for the volume, kubelet and containerd start after its mount, and the mount point is immutable."""
    machine = place.machine()

    device = _mount(machine, MEMBER, ETCD)

    assert (machine.root / "etc/fstab").read_text() == (
        f"{device} /var/lib/etcd ext4 noatime,x-systemd.device-timeout=300,x-systemd.growfs 0 2\n"
    )
    for unit in ("containerd", "kubelet"):
        drop_in = machine.root / f"etc/systemd/system/{unit}.service.d/60-bedplate-etcd.conf"
        assert drop_in.read_text() == "[Unit]\nRequiresMountsFor=/var/lib/etcd\n"
    folder = f"{machine.root}/var/lib/etcd"
    assert machine.noted == [f"chattr +i {folder}", "systemctl daemon-reload", f"mount {folder}"]


def test_a_gateway_never_writes_its_keys_to_the_root_disk(place: Place) -> None:
    """The folder of its keys is bound to the volume, both mount points are immutable, and OpenVPN waits for both."""
    machine = place.machine()

    device = _mount(machine, GATEWAY, VPN_KEYS)

    assert (machine.root / "etc/fstab").read_text().splitlines() == [
        f"{device} /var/lib/bedplate-vpn ext4 noatime,x-systemd.device-timeout=300,x-systemd.growfs 0 2",
        f"{machine.root}/var/lib/bedplate-vpn/laptops /etc/bedplate/laptops none bind 0 0",
    ]
    assert "RequiresMountsFor=/etc/bedplate/laptops\n" in daemon_unit()
    # The audit refuses drop-ins of units of bedplate.
    assert not list((machine.root / "etc/systemd/system").glob("*.d"))
    folders = (f"{machine.root}/var/lib/bedplate-vpn", f"{machine.root}/etc/bedplate/laptops")
    for command in ("chattr +i", "mount"):
        assert [line for line in machine.noted if line.startswith(command)] == [f"{command} {path}" for path in folders]


def test_the_hub_never_writes_records_to_the_root_disk(place: Place) -> None:
    """Its services wait for the mount of the volume, which grows with the volume at a boot."""
    assert LAB.hub
    machine = place.machine()

    device = _mount(machine, LAB.hub.node, hub_data(LAB.hub))

    assert (machine.root / "etc/fstab").read_text() == (
        f"{device} /srv/hub ext4 noatime,x-systemd.device-timeout=300,x-systemd.growfs 0 2\n"
    )
    units = ("hub/bedplate-hub.service", "hub/nginx.conf", "mlflow/mlflow.service", "postgres/postgresql.service.j2")
    for unit in units:
        assert "RequiresMountsFor=/srv/hub\n" in file_text(unit)
    # The audit refuses drop-ins of units of bedplate.
    assert not list((machine.root / "etc/systemd/system").glob("*.d"))


@pytest.mark.parametrize("name", [GATEWAY, "hub.us-west-2"])
def test_a_replaced_machine_has_the_host_keys_of_the_first(place: Place, name: str) -> None:
    """The volume gets the keys once; the next machine replaces its own by these, and sshd reads them."""
    assert LAB.hub
    first, second = place.machine(), place.machine()
    kept = VPN_KEYS if name == GATEWAY else hub_data(LAB.hub)
    script = permanent_boot(LAB, name, kept, "vol-1")
    volume = first.root / kept.mount.removeprefix("/")
    assert first.boot(script, "keep_host_key")[0] == 0
    shutil.copytree(volume, second.root / kept.mount.removeprefix("/"))
    assert first.host_key.read_text() != second.host_key.read_text()

    assert [second.boot(script, "keep_host_key")[0] for _ in range(2)] == [0, 0]

    assert first.host_key.read_text() == second.host_key.read_text()
    private = second.host_key.with_suffix("")
    assert private.read_text() == first.host_key.with_suffix("").read_text()
    assert (private.stat().st_mode & 0o777, (volume / "ssh").stat().st_mode & 0o777) == (0o600, 0o700)
    assert second.noted[-1] == "systemctl try-reload-or-restart ssh.service"


@pytest.mark.parametrize(("metrics", "values"), [("bedplate_laptops_serving 1\n", [1.0]), ("", [])])
def test_a_gateway_reports_to_its_alarm_what_its_agent_says(place: Place, metrics: str, values: list[float]) -> None:
    """The metric has the dimension that the alarm watches; without a value of the agent nothing is reported."""
    machine = place.machine()
    file = machine.root / "var/lib/prometheus/node-exporter/bedplate-vpn.prom"
    file.parent.mkdir(parents=True)
    file.write_text(f"bedplate_laptops_up 0\n{metrics}")

    status, log = machine.boot(permanent_boot(LAB, GATEWAY, VPN_KEYS, "vol-1"), "count_serving")

    assert status == 0, log
    sent = [call for call in place.endpoint.requests if call["action"] == "PutMetricData"]
    assert [float(call["MetricData.member.1.Value"]) for call in sent] == values
    assert {call["MetricData.member.1.Dimensions.member.1.Value"] for call in sent} <= {"lab-laptops"}


def test_the_fake_endpoint_verifies_signatures(place: Place) -> None:
    """The fake refuses a wrong signature, so accepted requests are signed correctly."""
    machine = place.machine()
    key = machine.facts["iam/security-credentials/node"]
    machine.facts["iam/security-credentials/node"] = key.replace(place.endpoint.keys.secret_key, "0" * 40)

    status, log = machine.boot(first_boot(LAB, WORKER))

    assert status != 0
    assert "SignatureDoesNotMatch" in log
    assert place.endpoint.requests == []


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw"
PEOPLE = Accounts(
    (
        Account("ada", 20000, admin=True, keys=(f"{KEY} ada@laptop, the one at home", OTHER_KEY)),
        Account("grace", 20001, admin=False, keys=(OTHER_KEY,)),
        Account("edsger", 20002, admin=True, keys=(KEY,)),
    )
)


@pytest.fixture
def admin_place(simulation: Simulation, tmp_path: Path) -> Iterator[Place]:
    """Return a fleet without machines; its administrators are ada and edsger."""
    with boot_place(simulation.region("us-west-2"), tmp_path) as new_place:
        new_place.put_parameter("admins", administrators(PEOPLE))
        yield new_place


def _text(machine: Node, path: str) -> str:
    return (machine.root / path.removeprefix("/")).read_text()


def test_administrators_have_accounts_keys_and_sudo(admin_place: Place) -> None:
    """Accounts, keys and sudo rules are in the files of the roles, which manage them later."""
    machine = admin_place.machine()

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    # The fake useradd creates no account, so the second key of ada calls it again.
    calls = list(dict.fromkeys(call for call in machine.noted if call.startswith(("groupadd", "useradd"))))
    assert [call.split()[-1] for call in calls] == ["ada", "ada", "edsger", "edsger"]
    assert "useradd --uid 20000 --gid 20000 --home-dir /home/ada --no-create-home" in calls[1]
    assert _text(machine, f"{KEYS}/ada").splitlines() == [KEY, OTHER_KEY]
    assert _text(machine, f"{KEYS}/edsger").splitlines() == [KEY]
    rights = [line for line in _text(machine, SUDOERS).splitlines() if line]
    assert rights == [f"{name} ALL=(ALL:ALL) NOPASSWD: ALL" for name in ("ada", "edsger")]
    assert "systemctl try-reload-or-restart ssh.service" in machine.noted


def test_other_people_have_no_access(admin_place: Place) -> None:
    """Only the role `people` creates the account of grace."""
    machine = admin_place.machine()

    machine.boot(SCRIPT)

    assert sorted(file.name for file in (machine.root / KEYS.removeprefix("/")).iterdir()) == ["ada", "edsger"]
    assert "grace" not in _text(machine, SUDOERS)


def test_a_second_run_keeps_keys_and_settings(admin_place: Place) -> None:
    """Keys are not duplicated, and existing settings stay."""
    machine = admin_place.machine()
    machine.boot(SCRIPT)
    drop_in = machine.root / "etc/ssh/sshd_config.d/00-bedplate.conf"
    original = drop_in.read_text()
    drop_in.write_text("# as the roles have it\n")

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    assert original == f"AuthorizedKeysFile .ssh/authorized_keys {KEYS}/%u\n"
    assert drop_in.read_text() == "# as the roles have it\n"
    assert _text(machine, f"{KEYS}/ada").splitlines() == [KEY, OTHER_KEY]


def test_a_fleet_without_administrators_has_no_logins(admin_place: Place) -> None:
    """The machine starts; Session Manager is another way to log in."""
    admin_place.put_parameter("admins", administrators(NO_ACCOUNTS))
    machine = admin_place.machine()

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    assert not (machine.root / SUDOERS.removeprefix("/")).exists()
    assert not [call for call in machine.noted if call.startswith("useradd")]


def test_a_machine_that_cannot_read_its_administrators_is_abandoned(admin_place: Place) -> None:
    """The group replaces the machine."""
    admin_place.endpoint.deaf.add("AmazonSSM.GetParameter")
    machine = admin_place.machine()

    status, log = machine.boot(first_boot(LAB, next(pool for pool in LAB.pools if pool.use.value == "kubernetes")))

    assert status == 1
    assert "cannot read the parameter admins" in log
    assert admin_place.reports[-1][2] == "ABANDON"


EAST = next(pool for pool in ssh_pools(PLAN) if pool.region == "us-east-1")


def test_a_boot_needs_no_parameter_of_another_region(simulation: Simulation, tmp_path: Path) -> None:
    """While the home region does not answer, machines of other regions have their administrators and names."""
    with boot_place(simulation.region("us-east-1"), tmp_path) as east:
        machine = east.machine()

        status, log = machine.boot(first_boot(LAB, EAST))

        assert status == 0, log
        assert set(east.names) == {"workbench-gpu-1.us-east-1.lab.internal."}
        assert {call["region"] for call in east.endpoint.requests if call["service"] == "ssm"} == {"us-east-1"}


def test_a_boot_before_links_reads_the_zone_at_home(simulation: Simulation, tmp_path: Path) -> None:
    """The stack `links` copies the zone into other regions, after their first machines have started."""
    with boot_place(simulation.region("us-east-1"), tmp_path) as east:
        home = simulation.region("us-west-2")
        home.call("ssm", "put_parameter", Name="/lab/zone", Value=east.zone, Type="SecureString", Overwrite=True)
        east.aws.call("ssm", "delete_parameter", Name="/lab/zone")
        machine = east.machine()

        status, log = machine.boot(first_boot(LAB, EAST))

        assert status == 0, log
        assert set(east.names) == {"workbench-gpu-1.us-east-1.lab.internal."}


def test_keys_larger_than_a_parameter_are_refused() -> None:
    """The error says which keys are shorter."""
    accounts = Accounts(tuple(replace(PEOPLE.people[0], name=f"ada{number}") for number in range(30)))

    with pytest.raises(InputError, match="at most 4,096 are allowed") as refused:
        administrators(accounts)

    assert "Ed25519" in refused.value.fix


BUCKET = LAB.nodes_bucket("us-west-2").name
_FILE = "bedplate/machine/__main__.py"
STATE = "var/lib/bedplate"
_SERVICE = "bedplate-node.service"


def bundle(version: str) -> Bundle:
    """Return a bundle with one file of code, and the document of the pool."""
    return Bundle({_FILE: version.encode()}, {POOL.name: f"document {version}"})


@pytest.fixture
def ring_place(place: Place) -> Iterator[Place]:
    """Return the fleet with a bundle that its ring names, sequence 7."""
    with place.bucket(BUCKET):
        place.publish(bundle("one"), 7, BUCKET)
        yield place


def test_a_first_boot_makes_the_calls_that_quotas_count(ring_place: Place) -> None:
    """`bedplate quotas` compares them with the rates that AWS allows."""
    machine = ring_place.machine()

    booted = [machine.boot(SCRIPT)[0], machine.boot(SCRIPT, "fetch")[0]]

    assert booted == [0, 0]
    calls = Counter(request["service"] for request in ring_place.endpoint.requests)
    assert (calls["route53"], calls["ssm"]) == (NAME_CALLS, PARAMETER_CALLS)


def code(machine: Node) -> str:
    """Return the code that the machine would run."""
    return (machine.root / "opt/bedplate/current/code" / _FILE).read_text()


def test_a_machine_runs_the_bundle_of_its_ring(ring_place: Place) -> None:
    """The service fetches code, wheels and document, and starts the run as a new machine; the hook is left to it."""
    machine = ring_place.machine()

    exit_code, log = machine.boot(SCRIPT, "service")

    assert exit_code == 0, log
    assert code(machine) == "one"
    assert _text(machine, f"{STATE}/document.json") == "document one"
    assert json.loads(_text(machine, f"{STATE}/node.json")) == {"bundle": bundle("one").sha256, "sequence": 7}
    folder = machine.root.resolve() / "opt/bedplate" / bundle("one").sha256
    assert machine.noted == [f"python3 -m bedplate.machine new PYTHONPATH={folder}/code:{folder}/wheels"]
    assert ring_place.reports == []


def test_a_machine_keeps_the_former_bundle_only(ring_place: Place) -> None:
    """Older ones are removed; a rollback is a higher sequence, and fetches nothing."""
    machine = ring_place.machine()
    for sequence, version in enumerate(("one", "two", "three", "two"), start=8):
        ring_place.publish(bundle(version), sequence, BUCKET)
        exit_code, log = machine.boot(SCRIPT, "service")
        assert exit_code == 0, log

    kept = sorted(path.name for path in (machine.root / "opt/bedplate").iterdir())
    assert code(machine) == "two"
    assert kept == sorted([bundle("two").sha256, bundle("three").sha256, "current"])
    assert len([call for call in ring_place.endpoint.requests if "/blobs/" in call["action"]]) == 2 * 3


def test_machines_follow_their_rings(ring_place: Place) -> None:
    """A new bundle reaches the two canary machines in their next run, and the others after its promotion to stable."""
    canary = first_boot(LAB, with_group(POOL, ring=Ring.CANARY))
    fleet = [(ring_place.machine(), canary if number < 2 else SCRIPT) for number in range(4)]

    def next_run() -> list[str]:
        for machine, script in fleet:
            machine.boot(script, "service")
        return [code(machine) for machine, _ in fleet]

    ring_place.publish(bundle("one"), 7, BUCKET, "canary")
    assert next_run() == ["one"] * 4
    ring_place.publish(bundle("two"), 8, BUCKET, "canary")
    assert next_run() == ["two"] * 2 + ["one"] * 2
    ring_place.publish(bundle("two"), 8, BUCKET)
    assert next_run() == ["two"] * 4
    ring_place.aws.call("ssm", "delete_parameter", Name="/lab/nodes/canary")


def test_a_lower_sequence_is_refused(ring_place: Place) -> None:
    """A ready machine keeps its bundle and its document, answers no hook, and its status has the reason."""
    machine = ring_place.machine()
    machine.boot(SCRIPT, "service")
    machine.boot(SCRIPT, "report_ready")
    ring_place.publish(bundle("old"), 6, BUCKET)

    exit_code, _ = machine.boot(SCRIPT, "service")

    assert exit_code == 1
    assert (code(machine), _text(machine, f"{STATE}/document.json")) == ("one", "document one")
    assert "the ring stable has sequence 6; this machine has accepted 7" in ring_place.status(BUCKET, "run")["sentence"]
    assert [result for _, _, result in ring_place.reports] == ["CONTINUE"]


@pytest.mark.parametrize("kind", ["blobs", "bundles"])
def test_a_wrong_hash_is_refused(ring_place: Place, kind: str) -> None:
    """Nothing of it is unpacked, administrators keep their access, and the group starts another machine."""
    machine, changed = ring_place.machine(), bundle("two")
    machine.boot(SCRIPT)
    ring_place.publish(changed, 8, BUCKET)
    key = next(key for key in changed.objects if key.startswith(kind))
    ring_place.aws.call("s3", "put_object", Bucket=BUCKET, Key=key, Body=b"changed")

    exit_code, log = machine.boot(SCRIPT, "service")

    assert exit_code == 1
    assert "does not have the SHA-256" in log
    assert not (machine.root / "opt/bedplate/current").exists()
    assert (machine.root / KEYS.removeprefix("/")).is_dir()
    assert not ring_place.status(BUCKET, "run")["ok"]
    assert ring_place.reports[-1][2] == "ABANDON"


def counted_failures(place: Place) -> list[list[dict[str, str]]]:
    """Return the dimensions of the metric of failures."""
    query = {"Namespace": "lab/nodes", "MetricName": "GateFailures"}
    return [metric["Dimensions"] for metric in place.aws.call("cloudwatch", "list_metrics", **query)["Metrics"]]


def test_a_failed_machine_is_counted_for_the_alarm(place: Place) -> None:
    """The metric has the group, which its alarm watches, and once more with the reason."""
    place.machine().boot(SCRIPT, "report_failed")

    group = {"Name": "AutoScalingGroupName", "Value": "lab-workbench-gpu-us-west-2"}
    assert [group] in counted_failures(place)
    assert [group, {"Name": "Check", "Value": "roles"}] in counted_failures(place)
    assert place.reports[-1][2] == "ABANDON"


def test_a_machine_that_tries_again_is_counted_only(place: Place) -> None:
    """The alarm sees it, and its hook waits."""
    place.machine().boot(SCRIPT, "count_failed")

    assert place.aws.call("cloudwatch", "list_metrics", Namespace="lab/nodes")["Metrics"]
    assert place.reports == []


def test_a_ring_without_a_bundle_is_waited_for(place: Place) -> None:
    """After a bounded time the machine is abandoned and counted, and the console has the reason."""
    machine = place.machine()

    booted, (exit_code, log) = machine.boot(SCRIPT), machine.boot(SCRIPT, "service")

    assert (booted[0], exit_code) == (0, 1)
    assert "the ring stable names no bundle yet: waiting for bedplate up" in log
    assert "cannot read the ring stable" in log
    assert place.reports == [("lab-workbench-gpu-us-west-2", "ready", "ABANDON")]
    group = {"Name": "AutoScalingGroupName", "Value": "lab-workbench-gpu-us-west-2"}
    assert [group, {"Name": "Check", "Value": "bootstrap"}] in counted_failures(place)


def test_a_machine_that_starts_before_its_bundle_is_not_abandoned(place: Place) -> None:
    """It sends heartbeats until `up` has delivered a bundle to its region, and then configures itself."""
    machine = place.machine()
    machine.waits = 600
    machine.command("sleep", "exec /bin/sleep 0.1")
    assert machine.boot(SCRIPT)[0] == 0

    running = machine.start(SCRIPT, "service")
    until(lambda: len(place.heartbeats) > 2, 60, "no heartbeat")
    with place.bucket(BUCKET):
        place.publish(bundle("one"), 7, BUCKET)
        log = "".join(running.communicate(timeout=60))

        assert running.returncode == 0, log
        assert code(machine) == "one"
    assert place.reports == []


def test_a_status_belongs_to_its_machine(ring_place: Place) -> None:
    """Its key has the user id of the instance, which its permissions require."""
    machine = ring_place.machine()
    machine.boot(SCRIPT, "service")
    (machine.root / STATE / "status").mkdir()
    (machine.root / STATE / "status/run.json").write_text('{"ok": true}')

    exit_code, log = machine.boot(SCRIPT, "put_status")

    assert exit_code == 0, log
    document = ring_place.status(BUCKET, "run")
    assert document.pop("ok")
    # The session's name in a cloud is the id of the instance.
    assert re.fullmatch(r"status/AROA\w+:node/run.json", document["key"])


def test_the_report_of_use_is_written_alone(ring_place: Place) -> None:
    """Every five minutes, so the other statuses are left out."""
    machine = ring_place.machine()
    machine.boot(SCRIPT, "service")
    (machine.root / STATE / "status").mkdir()
    for name in ("gate", "idle"):
        (machine.root / STATE / f"status/{name}.json").write_text('{"idle_since": 1}')

    exit_code, log = machine.boot(f"STATUS=idle\n{SCRIPT}", "put_status")

    assert exit_code == 0, log
    assert ring_place.status(BUCKET, "idle")["idle_since"] == 1
    assert not ring_place.has_status(BUCKET, "gate")


def test_a_member_uploads_its_newest_snapshot(ring_place: Place) -> None:
    """Its key has the name of the member and the time, so that no snapshot replaces another."""
    machine = ring_place.machine()
    folder = machine.root / "var/lib/etcd/snapshots"
    folder.mkdir(parents=True)
    for hour in ("04", "05"):
        (folder / f"20261123T{hour}0000Z.db").write_text(f"snapshot {hour}")

    exit_code, log = machine.boot(permanent_boot(LAB, MEMBER, ETCD, "vol-1"), "put_snapshot")

    assert exit_code == 0, log
    (item,) = ring_place.aws.call("s3", "list_objects_v2", Bucket=BUCKET, Prefix="etcd/")["Contents"]
    assert item["Key"] == "etcd/control-1.us-west-2/20261123T050000Z.db"
    assert ring_place.aws.call("s3", "get_object", Bucket=BUCKET, Key=item["Key"])["Body"].read() == b"snapshot 05"


@pytest.mark.parametrize(("years", "is_set"), [(-1, True), (0, False), (1, True)])
def test_a_wrong_clock_is_set_before_any_signature(place: Place, years: int, *, is_set: bool) -> None:
    """The script takes the date from the metadata service, which needs no certificate."""
    machine = place.machine()
    machine.command("date", f"case $1 in +%s) echo $(($(/bin/date +%s) + {years} * 31536000)) ;; *) {DATE} ;; esac")

    machine.boot(SCRIPT, "set_clock")

    assert [call.startswith("date --set=") for call in machine.noted] == [True] * is_set
    assert SCRIPT.splitlines()[2].startswith("readonly STEPS='set_clock ")


SITE = site_script(find_node(LAB, "titan-01.cellar", load_catalog()))


def test_a_machine_of_a_site_takes_the_bundle_beside_the_script(place: Place) -> None:
    """The configuration runs once, without a timer; the script asks no metadata service and no API."""
    machine, site = place.machine(), Bundle({_FILE: b"one"}, {"titan-01.cellar": "document"})
    machine.facts.clear()
    ring = json.dumps({"bundle": site.sha256, "sequence": 3}).encode()
    for key, content in {**site.objects, "rings/stable.json": ring}.items():
        (machine.root / key).parent.mkdir(exist_ok=True)
        (machine.root / key).write_bytes(content)

    exit_code, log = machine.boot(SITE, "fetch")
    started, _ = machine.boot(SITE, "start_configuration")

    assert (exit_code, started) == (0, 0), log
    assert code(machine) == "one"
    assert "ConditionPathExists=!/var/lib/bedplate/ready\n" in _text(machine, f"etc/systemd/system/{_SERVICE}")
    assert machine.noted[-1] == f"systemctl start --no-block {_SERVICE} {_SERVICE}"
    assert place.endpoint.requests == []


def test_a_machine_of_a_site_without_a_bundle_waits_for_its_apply(place: Place) -> None:
    """The script starts no service."""
    machine = place.machine()

    booted = [machine.boot(SITE, step)[0] for step in ("fetch", "start_configuration")]

    assert booted == [0, 0]
    assert machine.noted == []


_KILLER = "set -o functrace; trap '[[ $LINENO != \"${KILL_AT-}\" ]] || kill -KILL $$' DEBUG\n"
_LINES = [
    number
    for number, line in enumerate(SCRIPT.splitlines(), start=2)
    if line.startswith("  ") and number > SCRIPT.count("\n", 0, SCRIPT.index("object() {"))
]


@pytest.mark.parametrize("lines", [_LINES[::30], pytest.param(_LINES, marks=pytest.mark.nightly)], ids=["some", "all"])
def test_a_killed_bootstrap_can_be_repeated(ring_place: Place, lines: list[int]) -> None:
    """After a kill at a line of the fetch or of the units, the next run completes with the same files."""
    head, body = SCRIPT.split("\n", 1)
    script = f"{head}\n{_KILLER}{body}"
    whole = _files(ring_place.machine(), script)
    for line in lines:
        assert _files(ring_place.machine(), script, line) == whole, line


def _files(machine: Node, script: str, killed_at: int = 0) -> dict[str, str]:
    """Run the last step and the service, each again after a kill; return the files that they wrote."""
    for step in ("start_configuration", "service"):
        if killed_at:
            machine.boot(script.replace("${KILL_AT-}", str(killed_at), 1), step)
        exit_code, log = machine.boot(script, step)
        assert exit_code == 0, log
    files = (path for folder in ("etc", STATE, "opt", "usr") for path in (machine.root / folder).rglob("*"))
    return {
        str(path.relative_to(machine.root)): path.read_text()
        for path in files
        if path.is_file() and "ssh_host" not in path.name and path.name != "bootstrap"
    }
