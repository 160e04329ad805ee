"""The role `baseline`: what every node is before it serves anything."""

import os
import re
import subprocess
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bedplate.plan.nodes import Duty, NodePlan
from roles.baseline.apt import CONTAINERS, DRIVERS, FABRICS, HELD, KERNELS, Archive, SourceFiles, signed, upgrades
from roles.baseline.role import AT_WORK, EVERYWHERE, Baseline, greeting, hosts
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder, recorded
from tests.testlab.fleets.variants import lab_node
from tests.testlab.run import need_program

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
METAL = lab_node("titan-01.cellar")
CLOUD = lab_node("workbench-cpu-1.us-west-2")
GATE = lab_node("gate.cellar")
PACKAGES = "Install base packages"


def settled(table: Recorded, node: NodePlan) -> Recorded:
    """Return the table of a node on which the role is in force, but for its files."""
    packages = [f"ii  {name}  0  all  -" for name in ("ca-certificates", "chrony", "locales", "needrestart")]
    values = [f"{each.key}={each.value}" for each in Baseline(node).settings]
    return table.but(
        {
            "server.Hostname": (node.host,),
            "deb.DebPackages": (*packages, "ii  unattended-upgrades  0  all  -"),
            "roles.system.Settable": tuple(values),
            "roles.baseline.apt.SourceFiles": None,
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

    assert {step.kind for step in played.steps} == {"files._place", "apt.packages"}


def test_sources_and_restarts_are_settled_before_anything_is_installed() -> None:
    """No package comes from a source without a key, and installing one restarts no job's daemon."""
    played = Recorder(DEBIAN).play(Baseline(METAL))

    before = played.names[: played.names.index(PACKAGES)]
    assert before == ["Signed sources in /etc/apt/sources.list", "Configure unattended security upgrades", "Write apt pins", "Configure restarts after upgrades"]


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

    assert first.step("Restart chrony").commands == ("systemctl restart chrony.service",)
    assert not second.step("Restart chrony").changed


def test_a_container_leaves_the_clock_and_swap_to_its_host() -> None:
    """What a container may not do is not asked of it, so a second run finds nothing to do there either."""
    table = DEBIAN.but({"roles.system.Container": ("systemd-nspawn",), "roles.baseline.role.Swaps": ("/swap file",)})

    played = Recorder(table).play(Baseline(METAL))

    assert "systemctl start chrony.service" not in played.commands
    assert "swapoff --all" not in played.commands


def test_swap_is_off_now_and_at_every_boot() -> None:
    """A node that runs out of memory fails the job that took it, and no boot turns swap on again."""
    fstab = "UUID=1 / ext4 defaults 0 1\n/swap.img\tnone\tswap\tsw\t0\t0\n# /old none swap sw 0 0\n"
    table = UBUNTU.but({"roles.baseline.role.Swaps": ("/swap.img file 2097148 0 -2",)})

    played = Recorder(table, Disk.of({"/etc/fstab": fstab})).play(Baseline(METAL))

    assert played.step("Turn off swap").commands == ("swapoff --all",)
    assert played.step("Comment out swap in /etc/fstab").changed
    assert played.disk.entries["/etc/systemd/system/swap.target"] == Entry("link", "/dev/null", mode=777)


def test_a_node_without_swap_is_left_alone() -> None:
    """Fstab of a machine without swap is nobody's to edit."""
    played = Recorder(UBUNTU, Disk.of({"/etc/fstab": "UUID=1 / ext4 defaults 0 1\n"})).play(Baseline(METAL))

    assert "Turn off swap" not in played.names
    assert "Comment out swap in /etc/fstab" not in played.names


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
    values = (*(table.answers["roles.system.Settable"] or ()), f"vm.swappiness={value}")

    played = Recorder(table.but({"roles.system.Settable": values}), disk).play(Baseline(METAL))

    assert played.step("Reload sysctl settings").changed is runs


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


FORCED = ("--force-confdef", "--force-confold")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Give the folders of a node whose one mirror answers nobody, with our settings in force."""
    need_program("apt-get")
    for folder in ("etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    # Port 9 takes nobody.
    (tmp_path / "etc/apt/sources.list").write_text("deb http://127.0.0.1:9/debian stable main\n")
    (tmp_path / "etc/apt/apt.conf.d/zz-bedplate").write_text(upgrades()[0].text)
    return tmp_path


def _apt(node: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    start = node / "start.conf"
    start.write_text(
        f'Dir "{node}"; Dir::Bin::methods "/usr/lib/apt/methods"; Dir::Log "{node}"; APT::Sandbox::User "root";'
    )
    env = {**os.environ, "APT_CONFIG": str(start)}
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, check=False)


def test_a_mirror_that_does_not_answer_is_a_failure(node: Path) -> None:
    """Otherwise apt would be content with no lists at all, and nobody would ask again for an hour."""
    ended = _apt(node, "apt-get", "update")

    assert ended.returncode == 100
    assert "Failed to fetch" in ended.stderr

    (node / "etc/apt/apt.conf.d/zz-bedplate").unlink()
    assert _apt(node, "apt-get", "update").returncode == 0


def test_what_was_set_before_is_not_in_force(node: Path) -> None:
    """Other files switch no upgrade off, hold nothing back, and let no list of names in."""
    before = (
        'APT::Periodic::Enable "0"; Unattended-Upgrade::Package-Blacklist { ".*"; };'
        ' Unattended-Upgrade::Package-Whitelist { "none"; };'
    )
    (node / "etc/apt/apt.conf.d/99other").write_text(before)

    told = _apt(node, "apt-config", "dump", "--no-empty", "--format", "%F %v%n").stdout.splitlines()

    assert "APT::Periodic::Enable 1" in told
    held = [line.split()[1] for line in told if line.startswith("Unattended-Upgrade::Package-Blacklist::")]
    assert held == list(HELD)
    assert not [line for line in told if line.startswith("Unattended-Upgrade::Package-Whitelist")]


def test_an_upgrade_keeps_the_settings_that_roles_wrote(node: Path) -> None:
    """Nobody is asked, and no security upgrade is left out, for a file that a role has rewritten."""
    told = _apt(node, "apt-config", "dump", "Dpkg::Options").stdout

    assert [line.split('"')[1] for line in told.splitlines()[1:]] == list(FORCED)


WORKER = replace(CLOUD, name="ip-10-64-33-9.us-west-2", duties=frozenset({Duty.WORKER}))


def test_the_host_name_is_the_plans() -> None:
    """A machine calls itself as operators call it."""
    played = Recorder(DEBIAN).play(Baseline(lab_node("titan-02.cellar")))

    assert played.step("Set the host name").commands == ("hostnamectl set-hostname titan-02",)
    assert played.written("/etc/hostname") == "titan-02\n"


def test_a_worker_of_the_cloud_keeps_the_name_that_ec2_gave_it() -> None:
    """By it the cloud controller knows the node; it finds itself by it while nobody answers names."""
    table = DEBIAN.but({"server.Hostname": ("ip-10-64-33-9.us-west-2.compute.internal",)})
    played = Recorder(table).play(Baseline(WORKER))

    assert not [name for name in played.names if name.startswith("Set the host name")]
    own = "127.0.1.1 ip-10-64-33-9.us-west-2.lab.internal ip-10-64-33-9.us-west-2 ip-10-64-33-9"
    assert f"{own} ip-10-64-33-9.us-west-2.compute.internal\n" in played.written("/etc/hosts")


def test_the_name_of_whoever_bakes_an_image_stays_out_of_it() -> None:
    """Only a name that EC2 gave this very machine is its own."""
    table = DEBIAN.but({"server.Hostname": ("builder-7.example.com",)})

    assert "builder-7" not in Recorder(table).play(Baseline(WORKER)).written("/etc/hosts")


def test_hosts_know_every_machine_that_never_moves() -> None:
    """Machines find one another while names are not answered; a node's own name is its own address."""
    text = hosts(METAL, METAL.host).text

    assert "192.168.40.21 titan-01.cellar.lab.internal titan-01.cellar titan-01\n" in text
    assert "192.168.40.5 nas.cellar.lab.internal nas.cellar\n" in text
    assert text.count("titan-01.cellar.lab.internal") == 1


def test_a_node_without_an_address_of_its_own_still_knows_its_name() -> None:
    """A machine of a pool resolves itself, or sudo waits for a name server."""
    assert f"127.0.1.1 {CLOUD.full_name} {CLOUD.name} {CLOUD.host}\n" in hosts(CLOUD, CLOUD.host).text


def test_hosts_are_told_in_one_order() -> None:
    """The same machines make the same file, whatever order the plan had."""
    turned = replace(METAL, hosts=dict(reversed([*METAL.hosts.items(), ("a.b", IPv4Address("10.0.0.1"))])))
    straight = replace(METAL, hosts={**METAL.hosts, "a.b": IPv4Address("10.0.0.1")})

    assert hosts(turned, METAL.host) == hosts(straight, METAL.host)


def test_the_greeting_says_what_whose_and_until_when() -> None:
    """Who logs in reads what the machine is, who owns it and when it ends."""
    message, news = greeting(replace(CLOUD, owner="ml-infra@lab.example", expires="2026-12-31"))

    assert "  workbench-cpu-1.us-west-2.lab.internal\n  workbench of the fleet lab, us-west-2\n" in message.text
    assert "owner: ml-infra@lab.example, until 2026-12-31\n" in message.text
    assert news.text == "ENABLED=0\n"


def test_the_greeting_tells_gpus_and_several_duties() -> None:
    """A gateway that also serves files says both."""
    message, _ = greeting(replace(METAL, duties=frozenset({Duty.FILES, Duty.TUNNELS})))

    assert "file server and gateway of the site of the fleet lab, cellar, 4 x titan-x\n" in message.text
    assert "until" not in message.text


def test_cloud_init_is_told_to_leave_names_alone() -> None:
    """A name would be gone with the next boot; where there is no cloud-init, nothing is written for it."""
    disk = Disk.of({"/etc/cloud/cloud.cfg.d": Entry("directory")})

    with_it = Recorder(UBUNTU, disk).play(Baseline(CLOUD))
    without = Recorder(UBUNTU).play(Baseline(METAL))

    assert "preserve_hostname: true\n" in with_it.written("/etc/cloud/cloud.cfg.d/60_bedplate.cfg")
    assert "/etc/cloud/cloud.cfg.d/60_bedplate.cfg" not in without.disk.entries


ARCHIVE = Archive("noble", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
KEY = "signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("deb http://m/ubuntu noble main", f"deb [{KEY}] http://m/ubuntu noble main"),
        ("deb-src http://m/ubuntu noble-security main", f"deb-src [{KEY}] http://m/ubuntu noble-security main"),
        ("deb [arch=amd64] http://m/ubuntu noble main", f"deb [arch=amd64 {KEY}] http://m/ubuntu noble main"),
        ("deb [trusted=yes] http://m/ubuntu noble main", f"deb [{KEY}] http://m/ubuntu noble main"),
        ("  deb [trusted=yes] http://other/ stable main", "deb http://other/ stable main"),
        ("deb [trusted=yes] http://other/ stable main", "deb http://other/ stable main"),
        ("deb [ allow-insecure=yes arch=arm64 ] http://other/ ./", "deb [arch=arm64] http://other/ ./"),
        (
            "deb [signed-by=/etc/k.gpg] http://m/ubuntu noble main",
            "deb [signed-by=/etc/k.gpg] http://m/ubuntu noble main",
        ),
        ("deb http://other/ noblesse main", "deb http://other/ noblesse main"),
        ("# deb http://m/ubuntu noble main", "# deb http://m/ubuntu noble main"),
        ("", ""),
    ],
)
def test_a_line_is_given_the_archives_key_and_loses_blind_trust(before: str, after: str) -> None:
    """Only the distribution's own releases get its key; what is others' keeps its options but trust."""
    assert signed(f"{before}\n", "/etc/apt/sources.list", ARCHIVE) == f"{after}\n"


def test_a_stanza_is_given_the_archives_key_and_loses_blind_trust() -> None:
    """The newer form of sources has the same promises, stanza by stanza."""
    ours, others = (
        "Types: deb\nURIs: http://m\nSuites: noble noble-updates\n",
        "Types: deb\nURIs: http://o\nSuites: stable\n",
    )

    after = signed(f"{ours}\n{others}Trusted: yes\n", "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    assert after == f"{ours}Signed-By: {ARCHIVE.keyring}\n\n{others}"


def test_a_stanza_is_read_whatever_its_spaces() -> None:
    """Spaces before a colon are nothing to apt; a line of blanks, over which apt reads on, becomes an empty one."""
    before = "Types : deb\nURIs : http://m\nSuites : noble\nTrusted : yes\n \nTypes: deb\nSuites: ./\nTRUSTED\t: yes\n"

    after = signed(before, "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    ours = f"Types : deb\nURIs : http://m\nSuites : noble\nSigned-By: {ARCHIVE.keyring}\n"
    assert after == f"{ours}\nTypes: deb\nSuites: ./\n"


def test_a_field_goes_on_over_lines() -> None:
    """Its suites are read wherever they stand, remarks between them too, and blind trust leaves nothing behind."""
    before = "Types: deb\nSuites:\n noble\n# noble-proposed\n noble-updates\nTrusted:\n yes\n"

    after = signed(before, "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    ours = "Types: deb\nSuites:\n noble\n# noble-proposed\n noble-updates\n"
    assert after == f"{ours}Signed-By: {ARCHIVE.keyring}\n"


def test_what_is_signed_stays_as_it_is() -> None:
    """Ubuntu's own file is right from the start, and is not written."""
    played = Recorder(recorded("ubuntu-24.04")).play(Baseline(lab_node("titan-01.cellar")), stages=["install"])

    assert not [name for name in played.names if name.startswith("Signed sources")]


def test_debians_own_file_is_signed() -> None:
    """Debian's file names no key, and takes any key of the machine for good."""
    played = Recorder(recorded("debian-12")).play(Baseline(lab_node("titan-01.cellar")), stages=["install"])

    text = played.written("/etc/apt/sources.list")
    assert text.count("[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]") == 3


def test_files_are_told_apart_line_by_line() -> None:
    """Several files are read in one question, empty lines and all."""
    lines = ["/etc/apt/a.list:deb x y", "/etc/apt/a.list:", "/etc/apt/b.sources:Types: deb"]

    assert SourceFiles().process(lines) == {"/etc/apt/a.list": "deb x y\n\n", "/etc/apt/b.sources": "Types: deb\n"}


@pytest.mark.parametrize(
    ("names", "package"),
    [
        (DRIVERS, "nvidia-headless-595-server-open"),
        (DRIVERS, "libnvidia-compute-595-server"),
        (DRIVERS, "nvidia-fabricmanager-595"),
        (DRIVERS, "linux-modules-nvidia-595-server-open-aws"),
        (DRIVERS, "datacenter-gpu-manager-4-core"),
        (KERNELS, "linux-image-6.8.0-1030-aws"),
        (KERNELS, "linux-aws"),
        (KERNELS, "linux-headers-generic"),
        (CONTAINERS, "containerd.io"),
        (CONTAINERS, "docker-ce"),
        (CONTAINERS, "kubelet"),
        (CONTAINERS, "podman"),
        (CONTAINERS, "crun"),
        (CONTAINERS, "conmon"),
        (CONTAINERS, "cri-o-1.33"),
        (FABRICS, "libibumad3"),
        (FABRICS, "munge"),
        (FABRICS, "libmunge2"),
        (FABRICS, "efa"),
        (FABRICS, "rdma-core"),
        (FABRICS, "libibverbs1"),
        (FABRICS, "slurm-smd-slurmd"),
    ],
)
def test_what_jobs_stand_on_is_never_upgraded_in_the_night(names: tuple[str, ...], package: str) -> None:
    """Drivers, kernels, containers and fabrics change with the image or an apply alone."""
    assert any(re.match(name, package) for name in names)


@pytest.mark.parametrize(
    "package", ["openssh-server", "libssl3", "Configure sudo", "curl", "runcible", "kubectl-extra", "linux-base"]
)
def test_everything_else_is_upgraded(package: str) -> None:
    """The list holds back nothing that it does not mean."""
    assert not any(re.match(name, package) for name in HELD)


def test_only_security_is_upgraded_by_itself_and_nothing_boots_by_itself() -> None:
    """The distribution's own list of origins is cleared before ours is given."""
    text = (
        Recorder(recorded("ubuntu-24.04"))
        .play(Baseline(lab_node("titan-01.cellar")))
        .written("/etc/apt/apt.conf.d/zz-bedplate")
    )

    assert text.index("#clear Unattended-Upgrade::Origins-Pattern;") < text.index("archive=${distro_codename}-security")
    assert re.findall(r'"origin=(\w+),\w+=\$\{distro_codename\}([-\w]+)', text) == [
        ("Debian", "-security"),
        ("Ubuntu", "-security"),
        ("UbuntuESM", "-infra-security"),
        ("UbuntuESMApps", "-apps-security"),
    ]
    assert 'Automatic-Reboot "false"' in text
