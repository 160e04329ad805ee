"""The first boot's script, run by bash against metadata and endpoints that demand what the real ones do."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.errors import InputError
from bedplate.plan.fleet import NO_ACCOUNTS, Account, Accounts
from bedplate.rehearsal.simulation import Simulation
from roles.people.accounts import KEYS
from roles.people.role import SUDOERS
from stacks.compute.template import first_boot, member_boot
from stacks.dns.zone import registration_permissions
from stacks.program import administrators
from tests.testlab.fakes.first_boot import LAB, POOL, Node, Place, boot_place

SCRIPT = first_boot(LAB, POOL)
WORKER = next(pool for pool in LAB.pools if pool.use.value == "kubernetes")
HOST = "workbench-gpu-{}.us-west-2.lab.internal."


@pytest.fixture
def place(simulation: Simulation, tmp_path: Path) -> Iterator[Place]:
    """Give a fleet of no machines."""
    with boot_place(simulation.region("us-west-2"), tmp_path) as opened:
        yield opened


def who(machine: Node) -> tuple[str, ...]:
    """Return a machine's address, its id and its host key."""
    return machine.facts["local-ipv4"], machine.facts["instance-id"], machine.sshfp


def test_machines_take_the_lowest_names_that_are_free(place: Place) -> None:
    """The first is number 1, the second number 2; both report ready."""
    first, second = place.machine(), place.machine()

    booted = [machine.boot(SCRIPT) for machine in (first, second)]

    assert [status for status, _ in booted] == [0, 0], booted
    assert place.names == {HOST.format(1): who(first), HOST.format(2): who(second)}
    assert place.reports == [("lab-workbench-gpu-us-west-2", "ready", "CONTINUE")] * 2


def test_machines_that_start_together_share_no_name(place: Place) -> None:
    """Whoever comes second to a number takes the next."""
    machines = [place.machine() for _ in range(3)]

    started = [machine.start(SCRIPT) for machine in machines]
    for each in started:
        each.communicate(timeout=60)

    assert [each.returncode for each in started] == [0, 0, 0]
    assert set(place.names) == {HOST.format(number) for number in (1, 2, 3)}
    assert {owner for _, owner, _ in place.names.values()} == {machine.facts["instance-id"] for machine in machines}


def test_a_machine_calls_itself_by_its_name(place: Place) -> None:
    """At the prompt, in its own table of hosts, and after the next start too."""
    machine = place.machine()

    machine.boot(SCRIPT)

    assert machine.noted[0] == "hostnamectl set-hostname workbench-gpu-1"
    assert (
        "127.0.1.1 workbench-gpu-1.us-west-2.lab.internal workbench-gpu-1" in (machine.root / "etc/hosts").read_text()
    )
    assert (machine.root / "etc/cloud/cloud.cfg.d/99-bedplate.cfg").read_text() == "preserve_hostname: true\n"


def test_the_name_of_a_machine_that_is_gone_is_taken_over(place: Place) -> None:
    """It ended without giving its name back; its records change hands in one batch."""
    gone, stays, new = place.machine(), place.machine(), place.machine()
    for machine in (gone, stays):
        machine.boot(SCRIPT)
    place.end(gone)

    status, log = new.boot(SCRIPT)

    assert status == 0, log
    assert place.names == {HOST.format(1): who(new), HOST.format(2): who(stays)}


def test_a_second_run_keeps_the_name(place: Place) -> None:
    """A boot that is run again, as after a lost answer, finds what it has."""
    machine = place.machine()

    booted = [machine.boot(SCRIPT)[0] for _ in range(2)]

    assert booted == [0, 0]
    assert place.names == {HOST.format(1): who(machine)}


def test_an_address_that_no_machine_wrote_is_left_alone(place: Place) -> None:
    """Somebody set it by hand, and nothing says that it is free."""
    record = {"Name": HOST.format(1), "Type": "A", "TTL": 300, "ResourceRecords": [{"Value": "192.0.2.1"}]}
    batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
    place.aws.call("route53", "change_resource_record_sets", HostedZoneId=place.zone, ChangeBatch=batch)
    machine = place.machine()

    machine.boot(SCRIPT)

    assert place.names == {HOST.format(1): ("192.0.2.1", "", ""), HOST.format(2): who(machine)}


def test_a_machine_writes_records_of_the_types_that_it_is_granted(place: Place) -> None:
    """A type too many in the grant would be a right that nobody uses, one too few would keep every machine down."""
    place.machine().boot(SCRIPT)

    (write,) = (one for one in registration_permissions(LAB, place.zone) if one.sid == "WriteOwnNames")
    granted = write.conditions["ForAllValues:StringEquals"]["route53:ChangeResourceRecordSetsRecordTypes"]
    listed = place.aws.call("route53", "list_resource_record_sets", HostedZoneId=place.zone)["ResourceRecordSets"]
    assert sorted(one["Type"] for one in listed if one["Name"] == HOST.format(1)) == sorted(granted)


def test_a_host_key_that_nobody_owns_is_left_alone(place: Place) -> None:
    """Somebody wrote it by hand: it is not deleted, and no machine comes under its name."""
    record = {"Name": HOST.format(1), "Type": "SSHFP", "TTL": 300, "ResourceRecords": [{"Value": f"4 2 {'0' * 64}"}]}
    batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
    place.aws.call("route53", "change_resource_record_sets", HostedZoneId=place.zone, ChangeBatch=batch)
    machine = place.machine()

    machine.boot(SCRIPT)

    assert place.names == {HOST.format(1): ("", "", f"4 2 {'0' * 64}"), HOST.format(2): who(machine)}


@pytest.mark.parametrize("key", ["", "ssh-rsa AAAAB3NzaC1yc2E= node\n"], ids=["none", "rsa"])
def test_without_an_ed25519_host_key_a_machine_is_given_up(place: Place, key: str) -> None:
    """Nobody could tell it from another: it takes no name, and the log says why."""
    machine = place.machine()
    machine.host_key.write_text(key)

    status, log = machine.boot(SCRIPT)

    assert status == 1
    assert "there is no Ed25519 host key" in log
    assert place.names == {}
    assert place.reports == [("lab-workbench-gpu-us-west-2", "ready", "ABANDON")]


def test_without_a_free_name_a_machine_is_given_up(place: Place) -> None:
    """The group's maximum is reached: the log says so, and the group is told to end it."""
    only = replace(POOL, max=1)
    alone = first_boot(replace(LAB, pools=(only,)), only)
    place.machine().boot(alone)

    status, log = place.machine().boot(alone)

    assert status == 1
    assert "all 1 names of workbench-gpu in us-west-2.lab.internal belong to existing machines" in log
    assert "claim_name failed (1): terminating this machine" in log
    assert place.reports[-1] == ("lab-workbench-gpu-us-west-2", "ready", "ABANDON")


def test_a_refusal_is_told_in_the_log_and_secrets_are_not(place: Place) -> None:
    """Whoever reads the console sees what AWS said, and no key."""
    place.door.deaf.add("DescribeInstances")
    place.machine().boot(SCRIPT)

    status, log = place.machine().boot(SCRIPT)

    assert status != 0
    assert "DescribeInstances is not allowed" in log
    assert place.reports[-1][2] == "ABANDON"
    assert not [key for key in (place.door.keys.secret_key, place.door.keys.token) if key in log]


def test_a_leaving_machine_gives_its_name_back(place: Place) -> None:
    """Once its group ends it, its records go, no others, and the group need not wait any longer."""
    leaves, stays = place.machine(), place.machine()
    for machine in (leaves, stays):
        machine.boot(SCRIPT)
    leaves.facts["autoscaling/target-lifecycle-state"] = "Terminated"

    status, log = leaves.boot(SCRIPT, "give_back_name")

    assert status == 0, log
    assert place.names == {HOST.format(2): who(stays)}
    assert place.reports[-1] == ("lab-workbench-gpu-us-west-2", "drained", "CONTINUE")


def test_the_end_is_watched_by_a_service_that_runs_the_same_script(place: Place) -> None:
    """It starts with every boot, and runs the one step."""
    machine = place.machine()

    machine.boot(SCRIPT)

    unit = (machine.root / "etc/systemd/system/bedplate-end.service").read_text()
    assert "ExecStart=/usr/local/lib/bedplate/first-boot give_back_name\n" in unit
    assert (machine.root / "usr/local/lib/bedplate/first-boot").read_text() == SCRIPT
    assert machine.noted[-1] == "systemctl enable --now --no-block bedplate-end.service"


def test_a_worker_keeps_the_name_that_ec2_gave_it(place: Place) -> None:
    """The cloud controller knows it by no other; it asks for no name, and reports ready."""
    machine = place.machine()

    status, log = machine.boot(first_boot(LAB, WORKER))

    assert status == 0, log
    assert machine.noted[0] == f"hostnamectl set-hostname {machine.facts['local-hostname']}"
    assert place.names == {}
    assert place.reports == [(f"lab-{WORKER.name}", "ready", "CONTINUE")]


@pytest.mark.parametrize(
    ("found", "formatted", "ready"), [(0, False, True), (2, True, True), (8, False, False)], ids=["data", "blank", "?"]
)
def test_a_member_mounts_its_volume(place: Place, found: int, *, formatted: bool, ready: bool) -> None:
    """A blank one is formatted, one with data never is, and one that cannot be read stops everything."""
    assert LAB.control_plane
    machine = place.machine()
    machine.command("blkid", f"exit {found}")
    zone = f"{place.aws.region}a"
    volume = place.aws.call("ec2", "create_volume", AvailabilityZone=zone, Size=32, VolumeType="gp3")["VolumeId"]
    device = machine.root / f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    place.door.done = lambda action: device.touch() if action == "AttachVolume" else None

    status, log = machine.boot(member_boot(LAB, LAB.control_plane.members[0], volume))

    assert (status == 0) is ready, log
    assert [call.split()[-1] for call in machine.noted if call.startswith("mkfs")] == [str(device)] * formatted
    assert (f"mount {machine.root}/var/lib/etcd" in machine.noted) is ready
    assert place.reports == [("lab-control-1", "ready", "CONTINUE" if ready else "ABANDON")]
    (state,) = place.aws.call("ec2", "describe_volumes", VolumeIds=[volume])["Volumes"]
    assert [one["InstanceId"] for one in state["Attachments"]] == [machine.facts["instance-id"]]


def test_etcd_never_starts_on_the_root_disk(place: Place) -> None:
    """Boot waits for the volume, kubelet and containerd start after its mount, and the directory below is immutable."""
    assert LAB.control_plane
    machine = place.machine()
    machine.command("blkid", "exit 0")
    volume = "vol-0123456789abcdef0"
    device = machine.root / f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    device.touch()

    status, log = machine.boot(member_boot(LAB, LAB.control_plane.members[0], volume), "mount_volume")

    assert status == 0, log
    assert (machine.root / "etc/fstab").read_text() == (
        f"{device} /var/lib/etcd ext4 noatime,x-systemd.device-timeout=300 0 2\n"
    )
    for unit in ("containerd", "kubelet"):
        drop_in = machine.root / f"etc/systemd/system/{unit}.service.d/60-bedplate-etcd.conf"
        assert drop_in.read_text() == "[Unit]\nRequiresMountsFor=/var/lib/etcd\n"
    folder = f"{machine.root}/var/lib/etcd"
    assert machine.noted == [f"chattr +i {folder}", "systemctl daemon-reload", f"mount {folder}"]


def test_only_what_is_signed_is_answered(place: Place) -> None:
    """The stand-in refuses a signature that is a digit off, so that what passes it is signed well."""
    machine = place.machine()
    key = machine.facts["iam/security-credentials/node"]
    machine.facts["iam/security-credentials/node"] = key.replace(place.door.keys.secret_key, "0" * 40)

    status, log = machine.boot(first_boot(LAB, WORKER))

    assert status != 0
    assert "SignatureDoesNotMatch" in log
    assert place.door.asked == []


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw"
PEOPLE = Accounts(
    (
        Account("ada", 20000, admin=True, keys=(f"{KEY} ada@laptop, the one at home", OTHER)),
        Account("grace", 20001, admin=False, keys=(OTHER,)),
        Account("edsger", 20002, admin=True, keys=(KEY,)),
    )
)


@pytest.fixture
def first_boot_admins_place(simulation: Simulation, tmp_path: Path) -> Iterator[Place]:
    """Give a fleet of no machines, whose administrators are ada and edsger."""
    with boot_place(simulation.region("us-west-2"), tmp_path) as opened:
        opened.tell("admins", administrators(PEOPLE))
        yield opened


def _text(machine: Node, path: str) -> str:
    return (machine.root / path.removeprefix("/")).read_text()


def test_administrators_log_in_and_become_root(first_boot_admins_place: Place) -> None:
    """Accounts, keys and rights lie where the roles keep them, which go on from there and let go whoever leaves."""
    machine = first_boot_admins_place.machine()

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    # In this folder no account ever comes about, so that the second key asks for ada's again.
    made = list(dict.fromkeys(call for call in machine.noted if call.startswith(("groupadd", "useradd"))))
    assert [call.split()[-1] for call in made] == ["ada", "ada", "edsger", "edsger"]
    assert "useradd --uid 20000 --gid 20000 --home-dir /home/ada --no-create-home" in made[1]
    assert _text(machine, f"{KEYS}/ada").splitlines() == [KEY, OTHER]
    assert _text(machine, f"{KEYS}/edsger").splitlines() == [KEY]
    rights = [line for line in _text(machine, SUDOERS).splitlines() if line]
    assert rights == [f"{name} ALL=(ALL:ALL) NOPASSWD: ALL" for name in ("ada", "edsger")]
    assert "systemctl try-reload-or-restart ssh.service" in machine.noted


def test_nobody_else_is_let_in(first_boot_admins_place: Place) -> None:
    """Grace has an account once a role has made it, and no rights by then either."""
    machine = first_boot_admins_place.machine()

    machine.boot(SCRIPT)

    assert sorted(file.name for file in (machine.root / KEYS.removeprefix("/")).iterdir()) == ["ada", "edsger"]
    assert "grace" not in _text(machine, SUDOERS)


def test_a_second_run_changes_nothing(first_boot_admins_place: Place) -> None:
    """Keys are not written twice, and settings that are there stay."""
    machine = first_boot_admins_place.machine()
    machine.boot(SCRIPT)
    drop_in = machine.root / "etc/ssh/sshd_config.d/00-bedplate.conf"
    first = drop_in.read_text()
    drop_in.write_text("# as the roles have it\n")

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    assert first == f"AuthorizedKeysFile .ssh/authorized_keys {KEYS}/%u\n"
    assert drop_in.read_text() == "# as the roles have it\n"
    assert _text(machine, f"{KEYS}/ada").splitlines() == [KEY, OTHER]


def test_a_fleet_without_administrators_lets_nobody_in(first_boot_admins_place: Place) -> None:
    """The machine starts all the same: sessions of Systems Manager are another way."""
    first_boot_admins_place.tell("admins", administrators(NO_ACCOUNTS))
    machine = first_boot_admins_place.machine()

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    assert not (machine.root / SUDOERS.removeprefix("/")).exists()
    assert not [call for call in machine.noted if call.startswith("useradd")]


def test_a_machine_that_nobody_could_configure_is_given_up(first_boot_admins_place: Place) -> None:
    """Not to be told who administers it is a fault, which its group mends by another machine."""
    first_boot_admins_place.door.deaf.add("AmazonSSM.GetParameter")
    machine = first_boot_admins_place.machine()

    status, log = machine.boot(first_boot(LAB, next(pool for pool in LAB.pools if pool.use.value == "kubernetes")))

    assert status == 1
    assert "cannot read the parameter admins" in log
    assert first_boot_admins_place.reports[-1][2] == "ABANDON"


def test_more_keys_than_a_parameter_takes_are_refused() -> None:
    """Before AWS does, and with what to change."""
    crowd = Accounts(tuple(replace(PEOPLE.people[0], name=f"ada{number}") for number in range(30)))

    with pytest.raises(InputError, match="at most 4,096 are allowed") as refused:
        administrators(crowd)

    assert "Ed25519" in refused.value.fix
