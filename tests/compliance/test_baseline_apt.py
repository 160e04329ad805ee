"""Every node: where its packages come from, and which of them change by themselves."""

import re
from fnmatch import fnmatchcase

import pytest
from testinfra.host import Host

from roles.baseline.upgrades import HELD

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
