"""Every node: its name, its greeting, its language, its clock, its journal."""

import re
from ipaddress import ip_address

import pytest
from testinfra.host import Host

from bedplate.plan.node import Ground, NodePlan
from tests.compliance.machine import is_contained
from tests.compliance.subject import concerns


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
