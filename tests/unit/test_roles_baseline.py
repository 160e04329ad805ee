"""The role `baseline`: clock, names, locale, swap, sysctls and apt."""

import os
import re
import subprocess
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan.nodes import NodePlan, NodeRole, find_node
from roles.baseline.apt import (
    CONTAINERS,
    DRIVERS,
    FABRICS,
    HELD,
    KERNELS,
    Archive,
    SourceFiles,
    add_keyrings,
    upgrade_files,
)
from roles.baseline.role import AT_WORK, EVERYWHERE, RESOLVED, Baseline, Swaps, hosts_file, motd_files
from roles.system import Container, Settable
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder, recorded
from tests.testlab.fleets.variants import lab_node, lab_plan
from tests.testlab.run import need_program

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
METAL = lab_node("titan-01.cellar")
CLOUD = lab_node("workbench-cpu-1.us-west-2")
GATE = lab_node("gate.cellar")
PACKAGES = "Install base packages"


def configured(table: Recorded, node: NodePlan) -> Recorded:
    """Return the facts of a node after an apply of the role."""
    packages = [f"ii  {name}  0  all  -" for name in ("ca-certificates", "chrony", "locales", "needrestart")]
    values = [f"{setting.key}={setting.value}" for setting in Baseline(node).settings]
    return table.but(
        {
            "server.Hostname": (node.host,),
            "deb.DebPackages": (*packages, "ii  unattended-upgrades  0  all  -"),
            Settable.name: tuple(values),
            SourceFiles.name: None,
            "systemd.SystemdStatus": ("Id=chrony.service", "SubState=running"),
            "systemd.SystemdEnabled": ("Id=chrony.service", "UnitFileState=enabled"),
        }
    )


@pytest.mark.parametrize("table", [DEBIAN, UBUNTU], ids=["debian", "ubuntu"])
def test_a_second_run_changes_nothing(table: Recorded) -> None:
    """A second run writes no file and restarts no daemon."""
    disk = Disk.of({"/etc/cloud/cloud.cfg.d": Entry("directory")})
    Recorder(table, disk).play(Baseline(METAL))

    again = Recorder(configured(table, METAL), disk).play(Baseline(METAL))

    assert again.changes == []


def test_install_starts_no_service() -> None:
    """An image build has no systemd: `install` only writes files, installs packages and generates the locale."""
    played = Recorder(DEBIAN).play(Baseline(METAL), stages=["install"])

    others = [step.name for step in played.steps if step.kind not in {"base._put_file", "apt.packages"}]
    assert others == ["Generate locales"]


def test_apt_is_secured_before_packages_are_installed() -> None:
    """Sources require signatures and restarts are configured before the first package is installed."""
    played = Recorder(DEBIAN).play(Baseline(METAL))

    before = played.names[: played.names.index(PACKAGES)]
    assert before == [
        "Require signatures in /etc/apt/sources.list",
        "Configure unattended security upgrades",
        "Write apt pins",
        "Configure restarts after upgrades",
    ]


@pytest.mark.parametrize("unit", ["bedplate-node", "bedplate-upgrade", "cloud-final", "kubelet"])
def test_a_configuration_run_is_not_restarted(unit: str) -> None:
    """Its packages may replace libraries of the run itself, which a restart would kill."""
    need_program("perl")
    played = Recorder(UBUNTU).play(Baseline(METAL))
    text = played.written("/etc/needrestart/conf.d/bedplate.conf")
    ask = "our %nrconf; eval join '', <STDIN>; exit !grep { $ARGV[0] =~ /$_/ } keys %{$nrconf{override_rc}}"

    for name, status in ((unit, 0), ("ssh", 1)):
        done = subprocess.run(["perl", "-e", ask, f"{name}.service"], input=text, text=True, check=False)
        assert done.returncode == status


def test_packages_are_installed_in_one_call() -> None:
    """The role calls apt once, because each call takes seconds."""
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
    """Cloud machines use Amazon Time Sync, machines of sites the distribution's pool, and no other source."""
    text = Recorder(table).play(Baseline(node)).written("/etc/chrony/chrony.conf")

    assert [line for line in text.splitlines() if line.startswith(("server", "pool", "peer"))] == [source]


def test_an_unsupported_distribution_is_refused() -> None:
    """The first question names the distribution, and what is supported."""
    table = DEBIAN.but({"server.OsRelease": ('PRETTY_NAME="Rocky Linux 9.4"', 'ID="rocky"', 'VERSION_ID="9.4"')})

    with pytest.raises(InputError, match=r"Rocky Linux 9\.4 is not supported"):
        Recorder(table).play(Baseline(METAL))


def test_chrony_is_restarted_after_a_change() -> None:
    """Chrony has no reload: it is restarted after a change of its configuration, and only then."""
    disk = Disk.of({"/etc/chrony/chrony.conf": "pool example.org\n"})
    table = configured(UBUNTU, METAL)

    first = Recorder(table, disk).play(Baseline(METAL))
    second = Recorder(table, disk).play(Baseline(METAL))

    assert first.step("Restart chrony").commands == ("systemctl restart chrony.service",)
    assert not second.step("Restart chrony").changed


def test_a_container_changes_neither_clock_nor_swap() -> None:
    """A container cannot change the clock or swap of its host, so a second run finds nothing to do."""
    table = DEBIAN.but({Container.name: ("systemd-nspawn",), Swaps.name: ("/swap file",)})

    played = Recorder(table).play(Baseline(METAL))

    assert "systemctl start chrony.service" not in played.commands
    assert "swapoff --all" not in played.commands


def test_swap_is_off_now_and_at_every_boot() -> None:
    """Swap is turned off now, removed from fstab and masked."""
    fstab = "UUID=1 / ext4 defaults 0 1\n/swap.img\tnone\tswap\tsw\t0\t0\n# /old none swap sw 0 0\n"
    table = UBUNTU.but({Swaps.name: ("/swap.img file 2097148 0 -2",)})

    played = Recorder(table, Disk.of({"/etc/fstab": fstab})).play(Baseline(METAL))

    assert played.step("Turn off swap").commands == ("swapoff --all",)
    assert played.step("Comment out swap in /etc/fstab").changed
    assert played.disk.entries["/etc/systemd/system/swap.target"] == Entry("link", "/dev/null", mode=777)


def test_a_node_without_swap_keeps_its_fstab() -> None:
    """The fstab of a node without swap is not edited."""
    played = Recorder(UBUNTU, Disk.of({"/etc/fstab": "UUID=1 / ext4 defaults 0 1\n"})).play(Baseline(METAL))

    assert "Turn off swap" not in played.names
    assert "Comment out swap in /etc/fstab" not in played.names


def test_sysctls_depend_on_the_node_role() -> None:
    """A gateway gets the common sysctls; a workbench gets more."""
    gate = Recorder(UBUNTU).play(Baseline(GATE)).written("/etc/sysctl.d/60-bedplate.conf")
    bench = Recorder(UBUNTU).play(Baseline(CLOUD)).written("/etc/sysctl.d/60-bedplate.conf")

    assert all(f"{setting.key} = {setting.value}\n" in gate for setting in EVERYWHERE)
    assert not any(setting.key in gate for setting in AT_WORK)
    assert all(f"{setting.key} = {setting.value}\n" in bench for setting in (*EVERYWHERE, *AT_WORK))


@pytest.mark.parametrize(("value", "runs"), [("60", True), ("1", False)], ids=["drifted", "held"])
def test_a_changed_sysctl_is_restored(value: str, *, runs: bool) -> None:
    """A sysctl changed in the running kernel is restored, even if the file is correct."""
    table = configured(UBUNTU, METAL)
    disk = Disk.of({})
    Recorder(table, disk).play(Baseline(METAL))
    values = (*(table.answers[Settable.name] or ()), f"vm.swappiness={value}")

    played = Recorder(table.but({Settable.name: values}), disk).play(Baseline(METAL))

    assert played.step("Reload sysctl settings").changed is runs


@pytest.mark.parametrize(
    "entry", [Entry("link", "../locale.conf", mode=777), Entry(content="LANG=de_DE.UTF-8\n")], ids=["ubuntu", "debian"]
)
def test_sessions_and_services_have_one_locale(entry: Entry) -> None:
    """PAM reads /etc/default/locale, which becomes a symlink to systemd's /etc/locale.conf."""
    played = Recorder(UBUNTU, Disk.of({"/etc/default/locale": entry})).play(Baseline(METAL))

    assert played.written("/etc/locale.conf") == "LANG=C.UTF-8\n"
    assert played.disk.entries["/etc/default/locale"] == Entry("link", "../locale.conf", mode=777)


def test_an_image_has_the_locale() -> None:
    """The install stage generates it, so a first boot from an image does not."""
    disk = Disk.of({})
    image = Recorder(UBUNTU, disk).play(Baseline(CLOUD), stages=["install"])
    first_boot = Recorder(UBUNTU, disk).play(Baseline(CLOUD), stages=["configure", "activate"])

    assert image.step("Generate locales").changed
    assert "Generate locales" not in {step.name for step in first_boot.steps}


@pytest.mark.parametrize("unit", ["systemd-networkd", "systemd-resolved"])
def test_a_network_daemon_is_restarted_after_a_change(unit: str) -> None:
    """A running network daemon is restarted after a change of its configuration, and only then."""
    disk = Disk.of({})

    first = Recorder(UBUNTU, disk).play(Baseline(METAL))
    second = Recorder(UBUNTU, disk).play(Baseline(METAL))

    step = f"Restart {unit}"
    restart = f"if systemctl --quiet is-active {unit}; then systemctl restart {unit}; fi"
    assert first.step(step).commands == (restart,)
    assert not second.step(step).changed


FORCED = ("--force-confdef", "--force-confold")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the folders of a node with our apt configuration and a mirror that does not answer."""
    need_program("apt-get")
    for folder in ("etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    # Port 9 refuses connections.
    (tmp_path / "etc/apt/sources.list").write_text("deb http://127.0.0.1:9/debian stable main\n")
    (tmp_path / "etc/apt/apt.conf.d/zz-bedplate").write_text(upgrade_files()[0].text)
    return tmp_path


def _apt(node: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    start = node / "start.conf"
    start.write_text(
        f'Dir "{node}"; Dir::Bin::methods "/usr/lib/apt/methods"; Dir::Log "{node}"; APT::Sandbox::User "root";'
        ' Acquire::Retries::Delay "false";'  # the retries stay, without their pauses
    )
    env = {**os.environ, "APT_CONFIG": str(start)}
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, check=False)


def test_apt_update_fails_if_a_mirror_does_not_answer(node: Path) -> None:
    """By default, apt reports success and keeps its old lists."""
    update = _apt(node, "apt-get", "update")

    assert update.returncode == 100
    assert "Failed to fetch" in update.stderr

    (node / "etc/apt/apt.conf.d/zz-bedplate").unlink()
    assert _apt(node, "apt-get", "update").returncode == 0


def test_other_apt_files_are_overridden(node: Path) -> None:
    """Other files cannot disable upgrades, block packages or add a list of allowed packages."""
    before = (
        'APT::Periodic::Enable "0"; Unattended-Upgrade::Package-Blacklist { ".*"; };'
        ' Unattended-Upgrade::Package-Whitelist { "none"; };'
    )
    (node / "etc/apt/apt.conf.d/99other").write_text(before)

    options = _apt(node, "apt-config", "dump", "--no-empty", "--format", "%F %v%n").stdout.splitlines()

    assert "APT::Periodic::Enable 1" in options
    held = [line.split()[1] for line in options if line.startswith("Unattended-Upgrade::Package-Blacklist::")]
    assert held == list(HELD)
    assert not [line for line in options if line.startswith("Unattended-Upgrade::Package-Whitelist")]


def test_an_upgrade_keeps_changed_configuration_files(node: Path) -> None:
    """Dpkg never prompts, so upgrades of packages with changed configuration files are not skipped."""
    options = _apt(node, "apt-config", "dump", "Dpkg::Options").stdout

    assert [line.split('"')[1] for line in options.splitlines()[1:]] == list(FORCED)


WORKER = replace(CLOUD, name="train-9f3c21aa.us-west-2", roles=frozenset({NodeRole.WORKER}))


def test_the_host_name_comes_from_the_plan() -> None:
    """The host name is the machine's name in the plan."""
    played = Recorder(DEBIAN).play(Baseline(lab_node("titan-02.cellar")))

    assert played.step("Set the host name").commands == ("hostnamectl set-hostname titan-02",)
    assert played.written("/etc/hostname") == "titan-02\n"


def test_a_cloud_worker_has_the_name_of_its_node() -> None:
    """Its bootstrap sets the same name; /etc/hosts resolves it without a name server."""
    played = Recorder(DEBIAN).play(Baseline(WORKER))

    assert played.step("Set the host name").commands == ("hostnamectl set-hostname train-9f3c21aa",)
    assert played.written("/etc/hostname") == "train-9f3c21aa\n"
    assert f"127.0.1.1 {WORKER.full_name} {WORKER.name} {WORKER.host}\n" in played.written("/etc/hosts")


def test_hosts_lists_all_machines_with_fixed_addresses() -> None:
    """Machines find each other without a name server; the node's own name has its own address."""
    text = hosts_file(METAL).text

    assert "192.168.40.21 titan-01.cellar.lab.internal titan-01.cellar titan-01\n" in text
    assert "192.168.40.5 nas.cellar.lab.internal nas.cellar\n" in text
    assert text.count("titan-01.cellar.lab.internal") == 1


def test_a_node_without_a_fixed_address_resolves_its_own_name() -> None:
    """Without this line, sudo on a machine of a pool would wait for a name server."""
    assert f"127.0.1.1 {CLOUD.full_name} {CLOUD.name} {CLOUD.host}\n" in hosts_file(CLOUD).text


def test_a_site_resolves_the_fleet() -> None:
    """A site's machine knows all addresses of the Kubernetes API, and asks the fleet's resolvers for other names."""
    node = find_node(lab_plan(), METAL.name, load_catalog())

    played = Recorder(UBUNTU).play(Baseline(node))

    members = [str(address) for address in node.hosts["kubernetes.lab.internal"]]
    hosts = played.written("/etc/hosts").splitlines()
    assert [line.split()[0] for line in hosts if " kubernetes.lab.internal kubernetes" in line] == members
    assert len(members) == 3
    resolved = played.written(RESOLVED)
    assert resolved.endswith("[Resolve]\nDNS=10.64.32.5 10.64.64.7\nDomains=~lab.internal\n")
    assert RESOLVED not in Recorder(UBUNTU).play(Baseline(CLOUD)).disk.entries


def test_hosts_has_a_stable_order() -> None:
    """The file does not depend on the order of machines in the plan."""
    other = ("a.b", (IPv4Address("10.0.0.1"),))
    reordered = replace(METAL, hosts=dict(reversed([*METAL.hosts.items(), other])))
    ordered = replace(METAL, hosts=dict([*METAL.hosts.items(), other]))

    assert hosts_file(reordered) == hosts_file(ordered)


def test_motd_has_node_role_owner_and_expiry() -> None:
    """The message of the day shows the node role, the owner and the expiry date."""
    message, motd_news = motd_files(replace(CLOUD, owner="ml-infra@lab.example", expires="2026-12-31"))

    assert "  workbench-cpu-1.us-west-2.lab.internal\n  workbench of the fleet lab, us-west-2\n" in message.text
    assert "owner: ml-infra@lab.example, until 2026-12-31\n" in message.text
    assert motd_news.text == "ENABLED=0\n"


def test_motd_lists_gpus_and_all_node_roles() -> None:
    """A gateway that is also a file server shows both roles."""
    message, _ = motd_files(replace(METAL, roles=frozenset({NodeRole.FILES, NodeRole.TUNNELS})))

    assert "file server and gateway of the site of the fleet lab, cellar, 4 x titan-x\n" in message.text
    assert "until" not in message.text


def test_cloud_init_keeps_the_host_name() -> None:
    """cloud-init would reset the host name at boot; without cloud-init, no file is written."""
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
        ("deb http://m/ubuntu noblesse main", "deb http://m/ubuntu noblesse main"),
        ("deb http://ppa/user/name/ubuntu noble main", "deb http://ppa/user/name/ubuntu noble main"),
        ("# deb http://m/ubuntu noble main", "# deb http://m/ubuntu noble main"),
        ("", ""),
    ],
)
def test_a_line_gets_the_keyring_and_loses_insecure_options(before: str, after: str) -> None:
    """Only archives of the distribution get its keyring; other vendors have suites of the same names."""
    assert add_keyrings(f"{before}\n", "/etc/apt/sources.list", ARCHIVE) == f"{after}\n"


def test_a_stanza_gets_the_keyring_and_loses_insecure_options() -> None:
    """The deb822 format is treated like the one-line format."""
    ours, others = (
        "Types: deb\nURIs: http://m/ubuntu/\nSuites: noble noble-updates\n",
        "Types: deb\nURIs: http://o/linux/ubuntu\nSuites: noble\n",
    )

    after = add_keyrings(f"{ours}\n{others}Trusted: yes\n", "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    assert after == f"{ours}Signed-By: {ARCHIVE.keyring}\n\n{others}"


def test_blanks_in_a_stanza_are_accepted() -> None:
    """Apt accepts spaces before a colon; a line of blanks becomes an empty line."""
    before = (
        "Types : deb\nURIs : mirror+file:/m\nSuites : noble\nTrusted : yes\n \nTypes: deb\nSuites: ./\nTRUSTED\t: yes\n"
    )

    after = add_keyrings(before, "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    ours = f"Types : deb\nURIs : mirror+file:/m\nSuites : noble\nSigned-By: {ARCHIVE.keyring}\n"
    assert after == f"{ours}\nTypes: deb\nSuites: ./\n"


def test_a_field_can_span_lines() -> None:
    """Suites are read from continuation lines with comments; an insecure field is removed with its lines."""
    before = "Types: deb\nSuites:\n noble\n# noble-proposed\n noble-updates\nTrusted:\n yes\n"

    after = add_keyrings(before, "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    ours = "Types: deb\nSuites:\n noble\n# noble-proposed\n noble-updates\n"
    assert after == f"{ours}Signed-By: {ARCHIVE.keyring}\n"


def test_a_signed_source_file_is_not_written() -> None:
    """Ubuntu's own source file names its keyring and is not changed."""
    played = Recorder(recorded("ubuntu-24.04")).play(Baseline(lab_node("titan-01.cellar")), stages=["install"])

    assert not [name for name in played.names if name.startswith("Require signatures")]


def test_debian_s_source_file_gets_the_keyring() -> None:
    """Debian's file names no keyring and would accept any key of the machine."""
    played = Recorder(recorded("debian-12")).play(Baseline(lab_node("titan-01.cellar")), stages=["install"])

    text = played.written("/etc/apt/sources.list")
    assert text.count("[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]") == 3


def test_source_files_are_read_in_one_query() -> None:
    """Several files, with empty lines, are read from the output of one command."""
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
        (DRIVERS, "linux-signatures-nvidia-6.8.0-1030-aws"),
        (DRIVERS, "nvlsm"),
        (DRIVERS, "gdrdrv-dkms"),
        (KERNELS, "linux-image-6.8.0-1030-aws"),
        (KERNELS, "linux-aws"),
        (KERNELS, "linux-headers-generic"),
        (KERNELS, "linux-nvidia-hwe-24.04"),
        (CONTAINERS, "containerd.io"),
        (CONTAINERS, "docker-ce"),
        (CONTAINERS, "etcd-server"),
        (CONTAINERS, "kubelet"),
        (CONTAINERS, "podman"),
        (CONTAINERS, "crun"),
        (CONTAINERS, "conmon"),
        (CONTAINERS, "cri-o-1.33"),
        (FABRICS, "aws-ofi-nccl"),
        (FABRICS, "libibmad5"),
        (FABRICS, "libibumad3"),
        (FABRICS, "munge"),
        (FABRICS, "libmunge2"),
        (FABRICS, "efa"),
        (FABRICS, "rdma-core"),
        (FABRICS, "libibverbs1"),
        (FABRICS, "slurm-smd-slurmd"),
    ],
)
def test_packages_of_jobs_are_not_upgraded_automatically(names: tuple[str, ...], package: str) -> None:
    """Drivers, kernels, container runtimes and fabric libraries change only with an image or an apply."""
    assert any(re.match(name, package) for name in names)


@pytest.mark.parametrize(
    "package", ["openssh-server", "libssl3", "sudo", "curl", "runcible", "kubectl-extra", "linux-base"]
)
def test_other_packages_are_upgraded(package: str) -> None:
    """The list of held packages matches no other package."""
    assert not any(re.match(name, package) for name in HELD)


def test_only_security_updates_are_automatic() -> None:
    """The distribution's own list of origins is cleared first, and automatic reboots are disabled."""
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
