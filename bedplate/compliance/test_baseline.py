"""Rules for every node: package sources, upgrades, names, locale, clock, journal, cloud-init, sysctls, limits, swap."""

import re
from fnmatch import fnmatchcase
from ipaddress import ip_address

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, applies_to, installed, is_container, sysctl_deviations
from bedplate.plan.nodes import NodePlan, NodeRole, Platform
from roles.baseline.apt import HELD, stale_services

# Fields of a line in limits.conf(5): domain, type, item, value.
_FIELDS = 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.panic", "10"),
        ("net.core.rmem_max", "67108864"),
        ("net.core.wmem_max", "67108864"),
        ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
        ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
        ("net.ipv4.tcp_mtu_probing", "1"),
    ],
)
def test_network_sysctls_are_set(host: Host, key: str, value: str) -> None:
    """Sysctls suit fast networks: the files set them at boot, and the running kernel has them where it can."""
    wrong = sysctl_deviations(host, {key: value})
    assert not wrong, "; ".join(wrong)


@applies_to(NodeRole.WORKBENCH, NodeRole.WORKER)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fs.inotify.max_user_instances", "8192"),
        ("fs.inotify.max_user_watches", "1048576"),
        ("kernel.numa_balancing", "0"),
        ("vm.max_map_count", "1048576"),
        ("vm.swappiness", "1"),
        ("vm.zone_reclaim_mode", "0"),
    ],
)
def test_compute_sysctls_are_set(host: Host, key: str, value: str) -> None:
    """Memory and file watch sysctls suit the work of people and pods."""
    wrong = sysctl_deviations(host, {key: value})
    assert not wrong, "; ".join(wrong)


def test_sessions_can_lock_all_memory(host: Host) -> None:
    """Sessions of root and of people have no memlock limit, because RDMA locks the memory that it registers."""
    limits = host.check_output("cat /etc/security/limits.conf /etc/security/limits.d/*.conf").splitlines()
    memlock = [line.split() for line in limits if re.match(r"\s*[^#\s]+\s+(-|hard|soft)\s+memlock\s", line)]

    assert {domain: value for domain, _, _, value, *_ in memlock} == {"*": "unlimited", "root": "unlimited"}


def test_sessions_can_open_many_files(host: Host) -> None:
    """Data loaders can open 65,536 files, at most 1,048,576; the last value in all files counts."""
    lines = host.check_output("cat /etc/security/limits.conf; LC_ALL=C; cat /etc/security/limits.d/*.conf").splitlines()
    rows = [line.partition("#")[0].split() for line in lines]
    limits: dict[tuple[str, str], str] = {}
    for domain, kind, _, value in (row for row in rows if len(row) == _FIELDS and row[2] == "nofile"):
        limits |= {(domain, level): value for level in (("soft", "hard") if kind == "-" else (kind,))}

    expected = {"soft": "65536", "hard": "1048576"}
    assert limits == {(domain, kind): value for domain in ("*", "root") for kind, value in expected.items()}


def test_services_can_lock_all_memory(host: Host) -> None:
    """systemd services have no memlock limit either."""
    assert host.check_output("systemctl show --property DefaultLimitMEMLOCK --value") == "infinity"


def test_swap_is_off(host: Host) -> None:
    """No swap is in use, so a job that exhausts memory ends; a container uses its host's memory."""
    assert host.check_output("tail -n +2 /proc/swaps") == "" or is_container(host)


def test_swap_stays_off_after_a_reboot(host: Host) -> None:
    """swap.target is masked, and /etc/fstab has no swap."""
    assert host.file("/etc/systemd/system/swap.target").linked_to == "/dev/null"
    assert host.run("grep -Eq '^[^#]\\S*\\s+\\S+\\s+swap\\s' /etc/fstab").rc != 0


# needrestart's configuration is Perl code. Prints the units that needrestart may restart.
_NEEDRESTART = """perl -e 'our %nrconf; do "/etc/needrestart/needrestart.conf"; die $@ if $@;
my $left = $nrconf{override_rc};
for my $unit (@ARGV) { print "$unit\n" unless grep { $unit =~ /$_/ and !$left->{$_} } keys %$left }'"""
_JOB_SERVICES = (
    "kubelet",
    "containerd",
    "slurmd",
    "docker",
    "bedplate-ipsec-tunnels",
    "bedplate-laptops@udp",
    "bedplate-efs-home",
    "systemd-networkd",
    "systemd-resolved",
    "cloud-final",
    "bedplate-node",
)
_JOB_PACKAGES = (
    "nvidia-headless-595-server-open",
    "linux-image-6.8.0-31-generic",
    "containerd.io",
    "kubelet",
    "libibverbs1",
)
_DRIVER_PACKAGES = ("nvidia-driver-595", "nvidia-headless-595-server-open", "libnvidia-compute-595", "cuda-drivers")
_RELEASE_ARCHIVE = "origin=Ubuntu,archive=${distro_codename}"


@installed
def test_apt_sources_name_their_signing_key(host: Host) -> None:
    """Each apt source names its signing key, so no key is valid for all sources."""
    assert [source for source in _sources(host) if "signed-by" not in source.lower()] == []


@installed
def test_apt_sources_require_signatures(host: Host) -> None:
    """No apt source turns signature checks off (`trusted`, `allow-insecure`)."""
    unsafe = re.compile(r"\b(trusted|allow-insecure|allow-weak|allow-downgrade-to-insecure)\b", re.IGNORECASE)

    assert [source for source in _sources(host) if unsafe.search(source)] == []


@installed
@pytest.mark.parametrize(
    "setting",
    [
        "Acquire::AllowInsecureRepositories",
        "Acquire::AllowWeakRepositories",
        "Acquire::AllowDowngradeToInsecureRepositories",
        "APT::Get::AllowUnauthenticated",
    ],
)
def test_apt_refuses_unsigned_packages(host: Host, setting: str) -> None:
    """No apt setting allows packages with missing or weak signatures."""
    assert _apt(host, setting) == ["false"]


def test_nvidia_repository_provides_no_driver(host: Host) -> None:
    """apt takes no driver from NVIDIA's repository; drivers of two sources end up in two versions."""
    # apt uses the first record that names a package: first from the file, then from the folder in sorted order.
    files = "/etc/apt/preferences $(LC_ALL=C ls -d /etc/apt/preferences.d/*)"
    text = re.sub(r"(?m)^#.*\n?", "", host.run(f"for f in {files}; do [ ! -f $f ] || {{ cat $f; echo; }}; done").stdout)
    stanzas = (stanza for stanza in re.split(r"\n\s*\n", text) if stanza.strip())
    records = [dict(_field(line) for line in stanza.splitlines()) for stanza in stanzas]

    for package in _DRIVER_PACKAGES:
        first = next((record for record in records if _names(record.get("package", ""), package)), {})
        assert (first.get("pin"), first.get("pin-priority")) == ("origin developer.download.nvidia.com", "-1")


@installed
def test_security_upgrades_are_automatic(host: Host) -> None:
    """Package lists are updated and security upgrades are installed every day."""
    assert host.package("unattended-upgrades").is_installed
    assert host.file("/usr/bin/unattended-upgrade").is_executable
    assert _apt(host, "APT::Periodic::Enable") in ([], ["1"])
    assert _apt(host, "APT::Periodic::Update-Package-Lists") == ["1"]
    assert _apt(host, "APT::Periodic::Unattended-Upgrade") == ["1"]
    assert all(host.service(f"{timer}.timer").is_enabled for timer in ("apt-daily", "apt-daily-upgrade"))


@installed
def test_only_security_upgrades_are_automatic(host: Host) -> None:
    """Automatic upgrades use no other archive, and never reboot the node."""
    origins = [*_apt(host, "Unattended-Upgrade::Origins-Pattern"), *_apt(host, "Unattended-Upgrade::Allowed-Origins")]

    assert origins
    # The archive of a release never changes; upgrades may need new dependencies from it.
    assert all("-security" in origin or origin == _RELEASE_ARCHIVE for origin in origins)
    assert _apt(host, "Unattended-Upgrade::Automatic-Reboot") == ["false"]


@installed
def test_only_planned_packages_are_held_back(host: Host) -> None:
    """Automatic upgrades skip only the packages on which jobs depend, and have no allow list."""
    unplanned = {*_apt(host, "Unattended-Upgrade::Package-Blacklist")} - {*HELD}

    assert not unplanned, f"not upgraded automatically, against the plan: {', '.join(sorted(unplanned))}"
    assert _apt(host, "Unattended-Upgrade::Package-Whitelist") == []


@installed
@pytest.mark.parametrize("package", _JOB_PACKAGES)
def test_job_packages_are_not_upgraded_automatically(host: Host, package: str) -> None:
    """Drivers, kernels, container runtimes and fabrics change only with the image or by an apply."""
    is_held = any(re.match(name, package) for name in _apt(host, "Unattended-Upgrade::Package-Blacklist"))
    assert is_held, f"{package} would be upgraded automatically"


@installed
@pytest.mark.parametrize("service", _JOB_SERVICES)
def test_upgrades_do_not_restart_job_services(host: Host, service: str) -> None:
    """needrestart never restarts services that run jobs, the tunnels, or a configuration run."""
    assert host.check_output(f"{_NEEDRESTART} {service}.service") == ""


def _sources(host: Host) -> list[str]:
    """Return each apt source: lines of .list files, and stanzas of .sources files."""
    lines = host.run("cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list").stdout.splitlines()
    deb822 = host.run("for f in /etc/apt/sources.list.d/*.sources; do awk 1 $f; echo; done").stdout
    stanzas = re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", deb822))
    one_line = [line.partition("#")[0].strip() for line in lines if line.strip().startswith("deb")]
    return [*one_line, *(stanza for stanza in stanzas if re.search(r"(?im)^types\s*:", stanza))]


def _field(line: str) -> tuple[str, str]:
    """Return the name and value of a line; apt allows spaces before the colon."""
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _names(patterns: str, package: str) -> bool:
    """Return whether a record names a package; records for `*` have a lower priority."""
    specific = (pattern for pattern in patterns.split() if pattern != "*")
    return any(
        re.search(pattern[1:-1], package) if pattern.startswith("/") else fnmatchcase(package, pattern)
        for pattern in specific
    )


def _apt(host: Host, setting: str) -> list[str]:
    """Return the values of a setting, or of each entry of a list, from all files of apt."""
    dumped = host.check_output("apt-config dump --no-empty --format '%%v%%n' %s", setting)
    return [str(line) for line in dumped.splitlines()]


def test_hostname_matches_the_plan(host: Host, node: NodePlan) -> None:
    """The host name is the one in the plan; a cloud worker has that of its group and its instance."""
    assert host.check_output("hostname") == node.host


def test_hostname_survives_a_reboot(host: Host, node: NodePlan) -> None:
    """/etc/hostname contains the name in the plan."""
    assert host.file("/etc/hostname").content_string.split() == [node.host]


def test_full_name_resolves_without_dns(host: Host, node: NodePlan) -> None:
    """The full name resolves to the node's own address, even if no name server answers."""
    address = host.check_output("getent -s files hosts %s", node.full_name).split()[0]

    assert ip_address(address).is_loopback if node.address is None else address == str(node.address)


def test_fixed_addresses_resolve_without_dns(host: Host, node: NodePlan) -> None:
    """All machines with fixed addresses and the Kubernetes API are in /etc/hosts, for times without a name server."""
    addresses: dict[str, list[str]] = {}
    for line in host.file("/etc/hosts").content_string.splitlines():
        address, *names = line.partition("#")[0].lower().split() or [""]
        for name in names:
            # The host name of a hub in a region is also its name in the domain.
            addresses.setdefault(name, []).extend({address}.difference(addresses.get(name, ())))

    others = {name: [*map(str, at)] for name, at in node.hosts.items() if name != node.full_name}
    expected = others | {name.removesuffix(f".{node.domain}"): at for name, at in others.items()}
    assert {name: addresses.get(name) for name in expected} == expected


@applies_if(lambda node: node.platform is Platform.METAL)
def test_fleet_names_resolve_at_sites(host: Host, node: NodePlan) -> None:
    """A site's machine asks the fleet's resolvers for names in the fleet's domain."""
    planned = {"DNS": [" ".join(map(str, node.resolvers))], "Domains": [f"~{node.domain}"]} if node.resolvers else {}

    wrong = [
        key for key in ("DNS", "Domains") if _last_value(host, "systemd/resolved.conf", key) != planned.get(key, [])
    ]
    assert not wrong, f"another value than planned in resolved.conf: {', '.join(wrong)}"


def test_services_run_what_is_installed(host: Host) -> None:
    """No service runs a program or library that an upgrade has replaced: upgrades do not restart services of jobs."""
    stale = stale_services(host.check_output("needrestart -b -l"))

    assert not stale, f"replaced on disk, not in memory; run `bedplate node upgrade`: {', '.join(stale)}"


def test_motd_shows_name_owner_and_expiry(host: Host, node: NodePlan) -> None:
    """/etc/motd shows the node's name, its owner and its expiry date."""
    text = host.file("/etc/motd").content_string

    missing = [value for value in (node.full_name, node.owner, node.expires or "") if value not in text]
    assert not missing, f"/etc/motd does not contain {', '.join(missing)}"


def test_default_locale_is_c_utf8(host: Host) -> None:
    """The default locale is C.UTF-8, so that the logs of all nodes sort and read alike."""
    assert "LANG=C.UTF-8" in host.file("/etc/default/locale").content_string.splitlines()


@installed
def test_en_us_locale_is_installed(host: Host) -> None:
    """The locale en_US.UTF-8 is installed, so sessions from most laptops show no locale warning."""
    assert "en_US.utf8" in host.check_output("locale -a").splitlines()


def test_timezone_is_utc(host: Host) -> None:
    """The time zone is UTC, so that times of different sites can be compared."""
    assert host.check_output("date +%Z") == "UTC"


def test_chrony_is_enabled(host: Host) -> None:
    """chrony runs and starts at boot; in a container, the host sets the clock."""
    chrony = host.service("chrony")

    assert chrony.is_enabled
    assert chrony.is_running or is_container(host)


def test_time_servers_match_the_platform(host: Host, node: NodePlan) -> None:
    """A cloud node uses only the Amazon Time Sync Service, a node of a site only its distribution's pool."""
    sources = re.findall(
        r"^(?:server|pool|peer) (\S+)", host.check_output("chronyd -p -f /etc/chrony/chrony.conf"), re.MULTILINE
    )

    if node.platform is Platform.CLOUD:
        assert sources == ["169.254.169.123"]
    else:
        assert sources
        assert all(re.fullmatch(r"2\.debian\.pool\.ntp\.org|ntp\.ubuntu\.com", source) for source in sources)


@pytest.mark.parametrize(
    ("setting", "value"), [("Storage", "persistent"), ("SystemMaxUse", "2G"), ("MaxRetentionSec", "90day")]
)
def test_journal_is_persistent_and_limited(host: Host, setting: str, value: str) -> None:
    """The journal survives reboots and is limited to 2 GB and 90 days; the last value in all files counts."""
    assert _last_value(host, "systemd/journald.conf", setting) == [value]


@pytest.mark.parametrize("setting", ["ManageForeignRoutes", "ManageForeignRoutingPolicyRules"])
def test_networkd_keeps_foreign_routes(host: Host, setting: str) -> None:
    """systemd-networkd deletes no routes or rules that other programs added."""
    assert _last_value(host, "systemd/networkd.conf", setting) == ["no"]


def _last_value(host: Host, file: str, setting: str) -> list[str]:
    """Return the value of a systemd setting that counts, the last of all files; an empty list if there is none."""
    lines = host.check_output("systemd-analyze cat-config %s", file).splitlines()
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition("=") for line in lines)]
    return [value for key, value in pairs if key == setting][-1:]


@applies_if(lambda node: node.platform is Platform.CLOUD)
def test_cloud_init_keeps_the_hostname(host: Host) -> None:
    """cloud-init, if it is installed, does not change the host name."""
    folder = host.file("/etc/cloud/cloud.cfg.d")

    lines = host.run("cat /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg").stdout.splitlines()
    values = [line.strip() for line in lines if line.startswith("preserve_hostname:")]
    assert not folder.exists or values[-1:] == ["preserve_hostname: true"]
