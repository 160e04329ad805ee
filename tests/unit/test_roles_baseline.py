"""The role `baseline`: what every node is before it serves anything."""

import pytest

from bedplate.plan.node import NodePlan
from roles.baseline.kernel import AT_WORK, EVERYWHERE
from roles.baseline.role import Baseline
from tests.support.disk import Disk, Entry
from tests.support.nodes import lab_node
from tests.support.recorded import Recorded, recorded
from tests.support.recorder import Recorder

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
METAL = lab_node("titan-01.cellar")
CLOUD = lab_node("workbench-cpu-1.us-west-2")
GATE = lab_node("gate.cellar")
PACKAGES = "Packages of every node"


def settled(table: Recorded, node: NodePlan) -> Recorded:
    """Return the table of a node on which the role is in force, but for its files."""
    packages = [f"ii  {name}  0  all  -" for name in ("ca-certificates", "chrony", "locales", "needrestart")]
    values = [f"{each.key}={each.value}" for each in Baseline(node).settings]
    return table.but(
        {
            "server.Hostname": (node.host,),
            "deb.DebPackages": (*packages, "ii  unattended-upgrades  0  all  -"),
            "roles.sysctl.Settable": tuple(values),
            "roles.baseline.sources.SourceFiles": None,
            "systemd.SystemdStatus": ("Id=chrony.service", "SubState=running"),
            "systemd.SystemdEnabled": ("Id=chrony.service", "UnitFileState=enabled"),
        }
    )


@pytest.mark.parametrize("table", [DEBIAN, UBUNTU], ids=["debian", "ubuntu"])
def test_a_second_run_changes_nothing(table: Recorded) -> None:
    """What is in force is left alone: no file is written, no daemon restarted."""
    disk = Disk.of({"/etc/cloud/cloud.cfg.d": Entry("directory")})
    Recorder(table, disk).play(Baseline(METAL))

    again = Recorder(settled(table, METAL), disk).play(Baseline(METAL))

    assert again.changes == []


def test_nothing_is_started_by_install() -> None:
    """The bake of an image has no systemd: install writes and installs alone."""
    played = Recorder(DEBIAN).play(Baseline(METAL), stages=["install"])

    assert {step.kind for step in played.steps} == {"shipped._place", "apt.packages"}


def test_sources_and_restarts_are_settled_before_anything_is_installed() -> None:
    """No package comes from a source without a key, and installing one restarts no job's daemon."""
    played = Recorder(DEBIAN).play(Baseline(METAL))

    before = played.names[: played.names.index(PACKAGES)]
    assert before == ["Signed sources in /etc/apt/sources.list", "Security upgrades", "Pins", "Restarts after upgrades"]


def test_packages_come_in_one_call() -> None:
    """Every round of apt costs seconds; a role has one."""
    played = Recorder(DEBIAN).play(Baseline(METAL))

    assert [step.name for step in played.steps if step.kind == "apt.packages"] == [PACKAGES]
    assert played.step(PACKAGES).commands[-1].endswith("chrony needrestart unattended-upgrades")


@pytest.mark.parametrize(
    ("table", "node", "source"),
    [
        (DEBIAN, METAL, "pool 2.debian.pool.ntp.org iburst maxsources 4"),
        (UBUNTU, METAL, "pool ntp.ubuntu.com iburst maxsources 4"),
        (UBUNTU, CLOUD, "server 169.254.169.123 prefer iburst minpoll 4 maxpoll 4"),
    ],
    ids=["debian site", "ubuntu site", "cloud"],
)
def test_time_comes_from_the_nearest_clock(table: Recorded, node: NodePlan, source: str) -> None:
    """In the cloud from AWS's own clock, on sites from the distribution's pool, and from nowhere else."""
    text = Recorder(table).play(Baseline(node)).written("/etc/chrony/chrony.conf")

    assert [line for line in text.splitlines() if line.startswith(("server", "pool", "peer"))] == [source]


def test_a_new_clock_is_read_at_once() -> None:
    """Chrony knows no reload: it starts anew when its settings change, and only then."""
    disk = Disk.of({"/etc/chrony/chrony.conf": "pool example.org\n"})
    table = settled(UBUNTU, METAL)

    first = Recorder(table, disk).play(Baseline(METAL))
    second = Recorder(table, disk).play(Baseline(METAL))

    assert first.step("Clock reads its settings").commands == ("systemctl restart chrony.service",)
    assert not second.step("Clock reads its settings").changed


def test_a_container_leaves_the_clock_and_swap_to_its_host() -> None:
    """What a container may not do is not asked of it, so a second run finds nothing to do there either."""
    table = DEBIAN.but({"roles.container.Container": ("systemd-nspawn",), "roles.baseline.swap.Swaps": ("/swap file",)})

    played = Recorder(table).play(Baseline(METAL))

    assert "systemctl start chrony.service" not in played.commands
    assert "swapoff --all" not in played.commands


def test_swap_is_off_now_and_at_every_boot() -> None:
    """A node that runs out of memory fails the job that took it, and no boot turns swap on again."""
    fstab = "UUID=1 / ext4 defaults 0 1\n/swap.img\tnone\tswap\tsw\t0\t0\n# /old none swap sw 0 0\n"
    table = UBUNTU.but({"roles.baseline.swap.Swaps": ("/swap.img file 2097148 0 -2",)})

    played = Recorder(table, Disk.of({"/etc/fstab": fstab})).play(Baseline(METAL))

    assert played.step("No swap").commands == ("swapoff --all",)
    assert played.step("No swap in fstab").changed
    assert played.disk.entries["/etc/systemd/system/swap.target"] == Entry("link", "/dev/null", mode=777)


def test_a_node_without_swap_is_left_alone() -> None:
    """Fstab of a machine without swap is nobody's to edit."""
    played = Recorder(UBUNTU, Disk.of({"/etc/fstab": "UUID=1 / ext4 defaults 0 1\n"})).play(Baseline(METAL))

    assert "No swap" not in played.names
    assert "No swap in fstab" not in played.names


def test_kernel_settings_are_for_work_where_work_is() -> None:
    """A gateway gets what every machine gets; a machine of people gets more."""
    gate = Recorder(UBUNTU).play(Baseline(GATE)).written("/etc/sysctl.d/60-bedplate.conf")
    bench = Recorder(UBUNTU).play(Baseline(CLOUD)).written("/etc/sysctl.d/60-bedplate.conf")

    assert all(f"{each.key} = {each.value}\n" in gate for each in EVERYWHERE)
    assert not any(each.key in gate for each in AT_WORK)
    assert all(f"{each.key} = {each.value}\n" in bench for each in (*EVERYWHERE, *AT_WORK))


@pytest.mark.parametrize(("value", "runs"), [("60", True), ("1", False)], ids=["drifted", "held"])
def test_a_setting_that_was_changed_by_hand_is_set_back(value: str, *, runs: bool) -> None:
    """The file being right is not enough: the running kernel is asked."""
    table = settled(UBUNTU, METAL)
    disk = Disk.of({})
    Recorder(table, disk).play(Baseline(METAL))
    values = (*(table.answers["roles.sysctl.Settable"] or ()), f"vm.swappiness={value}")

    played = Recorder(table.but({"roles.sysctl.Settable": values}), disk).play(Baseline(METAL))

    assert played.step("Kernel settings hold").changed is runs


@pytest.mark.parametrize(
    "entry", [Entry("link", "../locale.conf", mode=777), Entry(content="LANG=de_DE.UTF-8\n")], ids=["ubuntu", "debian"]
)
def test_sessions_and_services_have_one_language(entry: Entry) -> None:
    """Systemd reads /etc/locale.conf, PAM /etc/default/locale: on Ubuntu 24.04 a symlink to it, on every node then."""
    played = Recorder(UBUNTU, Disk.of({"/etc/default/locale": entry})).play(Baseline(METAL))

    assert played.written("/etc/locale.conf") == "LANG=C.UTF-8\n"
    assert played.disk.entries["/etc/default/locale"] == Entry("link", "../locale.conf", mode=777)


def test_a_running_networkd_reads_its_settings() -> None:
    """It is restarted when they change, only then, and only where it runs."""
    disk = Disk.of({})

    first = Recorder(UBUNTU, disk).play(Baseline(METAL))
    second = Recorder(UBUNTU, disk).play(Baseline(METAL))

    step = "Restart systemd-networkd"
    assert first.step(step).commands == ("systemctl try-restart systemd-networkd.service",)
    assert not second.step(step).changed
