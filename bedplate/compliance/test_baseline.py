"""Every node: where its packages come from, and which of them change by themselves."""

import re
from fnmatch import fnmatchcase
from ipaddress import ip_address

import pytest
from testinfra.host import Host

from bedplate.compliance.subject import concerns, is_contained
from bedplate.plan.nodes import Ground, NodePlan
from roles.baseline.apt import HELD

# needrestart's settings are Perl: whoever reads them runs them. Prints the units that it may restart.
_NEEDRESTART = """perl -e 'our %nrconf; do "/etc/needrestart/needrestart.conf"; die $@ if $@;
my $left = $nrconf{override_rc};
for my $unit (@ARGV) { print "$unit\n" unless grep { $unit =~ /$_/ and !$left->{$_} } keys %$left }'"""
_DAEMONS = (
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
)
_STOOD_ON = (
    "nvidia-headless-595-server-open",
    "linux-image-6.8.0-31-generic",
    "containerd.io",
    "kubelet",
    "libibverbs1",
)
_DRIVER = ("nvidia-driver-595", "nvidia-headless-595-server-open", "libnvidia-compute-595", "cuda-drivers")
_RELEASED = "origin=Ubuntu,archive=${distro_codename}"


def test_every_source_names_the_key_that_signs_it(host: Host) -> None:
    """No key of the machine is good for every source."""
    assert [source for source in _sources(host) if "signed-by" not in source.lower()] == []


def test_no_source_is_trusted_without_a_signature(host: Host) -> None:
    """A source that is not signed gives no package, whatever its file says."""
    blind = re.compile(r"\b(trusted|allow-insecure|allow-weak|allow-downgrade-to-insecure)\b", re.IGNORECASE)

    assert [source for source in _sources(host) if blind.search(source)] == []


@pytest.mark.parametrize(
    "setting",
    [
        "Acquire::AllowInsecureRepositories",
        "Acquire::AllowWeakRepositories",
        "Acquire::AllowDowngradeToInsecureRepositories",
        "APT::Get::AllowUnauthenticated",
    ],
)
def test_apt_takes_nothing_unsigned(host: Host, setting: str) -> None:
    """No setting of apt opens what sources close."""
    assert _apt(host, setting) == ["false"]


def test_the_driver_comes_from_one_archive(host: Host) -> None:
    """NVIDIA's own repository never gives a driver: two sources of one driver end as two versions."""
    # Of two records that name a package apt takes the first; it reads the file, then the folder by name.
    files = "/etc/apt/preferences $(LC_ALL=C ls -d /etc/apt/preferences.d/*)"
    text = re.sub(r"(?m)^#.*\n?", "", host.run(f"for f in {files}; do [ ! -f $f ] || {{ cat $f; echo; }}; done").stdout)
    records = [dict(_field(line) for line in each.splitlines()) for each in re.split(r"\n\s*\n", text) if each.strip()]

    for package in _DRIVER:
        first = next((each for each in records if _names(each.get("package", ""), package)), {})
        assert (first.get("pin"), first.get("pin-priority")) == ("origin developer.download.nvidia.com", "-1")


def test_security_upgrades_come_by_themselves(host: Host) -> None:
    """Each day lists are fetched and security's packages installed."""
    assert host.package("unattended-upgrades").is_installed
    assert host.file("/usr/bin/unattended-upgrade").is_executable
    assert _apt(host, "APT::Periodic::Enable") in ([], ["1"])
    assert _apt(host, "APT::Periodic::Update-Package-Lists") == ["1"]
    assert _apt(host, "APT::Periodic::Unattended-Upgrade") == ["1"]
    assert all(host.service(f"{timer}.timer").is_enabled for timer in ("apt-daily", "apt-daily-upgrade"))


def test_nothing_but_security_comes_by_itself(host: Host) -> None:
    """No other archive is named, and no machine boots by itself."""
    origins = [*_apt(host, "Unattended-Upgrade::Origins-Pattern"), *_apt(host, "Unattended-Upgrade::Allowed-Origins")]

    assert origins
    # The archive of a release never changes: it gives what an upgrade needs anew.
    assert all("-security" in origin or origin == _RELEASED for origin in origins)
    assert _apt(host, "Unattended-Upgrade::Automatic-Reboot") == ["false"]


def test_nothing_else_is_left_out_of_upgrades(host: Host) -> None:
    """Only what jobs stand on waits for somebody: no other name is held back, and no list of names lets in few."""
    beyond = {*_apt(host, "Unattended-Upgrade::Package-Blacklist")} - {*HELD}

    assert not beyond, f"{', '.join(sorted(beyond))} is left out, and the plan does not say so"
    assert _apt(host, "Unattended-Upgrade::Package-Whitelist") == []


@pytest.mark.parametrize("package", _STOOD_ON)
def test_what_jobs_stand_on_is_not_upgraded_in_the_night(host: Host, package: str) -> None:
    """Driver, kernel, containers and fabric change with the image or by an apply."""
    is_held = any(re.match(name, package) for name in _apt(host, "Unattended-Upgrade::Package-Blacklist"))
    assert is_held, f"{package} would be upgraded by itself"


@pytest.mark.parametrize("daemon", _DAEMONS)
def test_no_upgrade_restarts_what_runs_jobs(host: Host, daemon: str) -> None:
    """Needrestart leaves alone what jobs run in, and the tunnels that carry packets."""
    assert host.check_output(f"{_NEEDRESTART} {daemon}.service") == ""


def _sources(host: Host) -> list[str]:
    """Return each source: a line of the older form, a stanza of the newer one."""
    lines = host.run("cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list").stdout.splitlines()
    told = host.run("for f in /etc/apt/sources.list.d/*.sources; do awk 1 $f; echo; done").stdout
    stanzas = re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", told))
    plain = [line.partition("#")[0].strip() for line in lines if line.strip().startswith("deb")]
    return [*plain, *(each for each in stanzas if re.search(r"(?im)^types\s*:", each))]


def _field(line: str) -> tuple[str, str]:
    """Return the name and the value of a line; apt takes spaces before the colon."""
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _names(patterns: str, package: str) -> bool:
    """Say whether a record names a package; one for `*` gives way to any that does."""
    each = [pattern for pattern in patterns.split() if pattern != "*"]
    return any(
        re.search(pattern[1:-1], package) if pattern.startswith("/") else fnmatchcase(package, pattern)
        for pattern in each
    )


def _apt(host: Host, setting: str) -> list[str]:
    """Return the values of a setting, of a list each, as apt reads all its files."""
    dumped = host.check_output("apt-config dump --no-empty --format '%%v%%n' %s", setting)
    return [str(each) for each in dumped.splitlines()]


def test_the_node_knows_its_name(host: Host, node: NodePlan) -> None:
    """Logs and prompts name the machine as the plan does; a cloud's worker keeps EC2's name, by which it is known."""
    told = host.check_output("hostname")

    assert (told.partition(".")[0] if node.is_named_by_ec2 else told) == node.host


@concerns(lambda node: not node.is_named_by_ec2)
def test_the_node_keeps_its_name_at_a_boot(host: Host, node: NodePlan) -> None:
    """What the next boot calls the machine is what the plan calls it."""
    assert host.file("/etc/hostname").content_string.split() == [node.host]


def test_the_node_finds_itself(host: Host, node: NodePlan) -> None:
    """The machine's full name is an address of its own, whoever answers names or does not."""
    found = host.check_output("getent -s files hosts %s", node.full_name).split()[0]

    assert ip_address(found).is_loopback if node.address is None else found == str(node.address)


def test_the_node_finds_machines_that_never_move(host: Host, node: NodePlan) -> None:
    """Every machine of a fixed address is found while no name server answers."""
    known: dict[str, str] = {}
    for line in host.file("/etc/hosts").content_string.splitlines():
        address, *names = line.partition("#")[0].lower().split() or [""]
        for name in names:
            # The first line that has a name counts.
            known.setdefault(name, address)

    others = {name: str(at) for name, at in node.hosts.items() if name != node.full_name}
    wanted = others | {name.removesuffix(f".{node.domain}"): at for name, at in others.items()}
    assert {name: known.get(name) for name in wanted} == wanted


def test_the_greeting_says_what_the_node_is_and_whose(host: Host, node: NodePlan) -> None:
    """Whoever logs in reads the machine's name, its owner, and until when it stands."""
    text = host.file("/etc/motd").content_string

    missing = [each for each in (node.full_name, node.owner, node.expires or "") if each not in text]
    assert not missing, f"/etc/motd does not tell of {', '.join(missing)}"


def test_messages_are_in_plain_english(host: Host) -> None:
    """Logs of all machines sort and read alike."""
    assert "LANG=C.UTF-8" in host.file("/etc/default/locale").content_string.splitlines()


def test_the_locale_of_most_laptops_is_known(host: Host) -> None:
    """A session that brings en_US.UTF-8 along meets no warning."""
    assert "en_US.utf8" in host.check_output("locale -a").splitlines()


def test_times_are_in_utc(host: Host) -> None:
    """Times of machines in different places compare."""
    assert host.check_output("date +%Z") == "UTC"


def test_the_clock_is_kept_from_every_boot_on(host: Host) -> None:
    """Chrony starts with the machine, and runs unless the machine is a container, whose host keeps the clock."""
    chrony = host.service("chrony")

    assert chrony.is_enabled
    assert chrony.is_running or is_contained(host)


def test_time_comes_from_the_nearest_clock(host: Host, node: NodePlan) -> None:
    """In the cloud AWS's own clock is asked and no other; on sites the distribution's pool."""
    sources = re.findall(
        r"^(?:server|pool|peer) (\S+)", host.check_output("chronyd -p -f /etc/chrony/chrony.conf"), re.MULTILINE
    )

    if node.ground is Ground.CLOUD:
        assert sources == ["169.254.169.123"]
    else:
        assert sources
        assert all(re.fullmatch(r"2\.debian\.pool\.ntp\.org|ntp\.ubuntu\.com", source) for source in sources)


@pytest.mark.parametrize(
    ("setting", "value"), [("Storage", "persistent"), ("SystemMaxUse", "2G"), ("MaxRetentionSec", "90day")]
)
def test_the_journal_outlives_a_boot_and_stays_small(host: Host, setting: str, value: str) -> None:
    """The last word of all files counts, as journald reads them."""
    said = host.check_output("systemd-analyze cat-config systemd/journald.conf").splitlines()

    # Spaces beside the sign of equality say nothing.
    words = [(key.strip(), told.strip()) for key, _, told in (line.partition("=") for line in said)]
    assert [told for key, told in words if key == setting][-1:] == [value]


@pytest.mark.parametrize("setting", ["ManageForeignRoutes", "ManageForeignRoutingPolicyRules"])
def test_networkd_leaves_routes_alone(host: Host, setting: str) -> None:
    """systemd-networkd deletes no route or rule that another program made."""
    lines = host.check_output("systemd-analyze cat-config systemd/networkd.conf").splitlines()

    words = [(key.strip(), value.strip()) for key, _, value in (line.partition("=") for line in lines)]
    assert [value for key, value in words if key == setting][-1:] == ["no"]


@concerns(lambda node: node.ground is Ground.CLOUD)
def test_the_next_boot_leaves_names_alone(host: Host) -> None:
    """cloud-init, where there is one, gives the machine no other name."""
    folder = host.file("/etc/cloud/cloud.cfg.d")

    assert not folder.exists or _cloud_init_says(host, "preserve_hostname: true")


def _cloud_init_says(host: Host, line: str) -> bool:
    """Tell whether cloud-init's settings have a line, the last of its key."""
    key = line.partition(":")[0]
    said = host.run("cat /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg").stdout.splitlines()
    return [each.strip() for each in said if each.startswith(f"{key}:")][-1:] == [line]
