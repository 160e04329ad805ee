"""What the role `baseline` calls a node: its host name, hosts that never move, and the greeting."""

from dataclasses import replace
from ipaddress import IPv4Address

from bedplate.plan.node import Duty
from roles.baseline.greeting import greeting
from roles.baseline.hosts import hosts
from roles.baseline.role import Baseline
from tests.support.disk import Disk, Entry
from tests.support.nodes import lab_node
from tests.support.recorded import recorded
from tests.support.recorder import Recorder

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
METAL = lab_node("titan-01.cellar")
CLOUD = lab_node("workbench-cpu-1.us-west-2")
WORKER = replace(CLOUD, name="ip-10-64-33-9.us-west-2", duties=frozenset({Duty.WORKER}))


def test_the_host_name_is_the_plans() -> None:
    """A machine calls itself as operators call it."""
    played = Recorder(DEBIAN).play(Baseline(lab_node("titan-02.cellar")))

    assert played.step("Host name").commands == ("hostnamectl set-hostname titan-02",)
    assert played.written("/etc/hostname") == "titan-02\n"


def test_a_worker_of_the_cloud_keeps_the_name_that_ec2_gave_it() -> None:
    """By it the cloud controller knows the node; it finds itself by it while nobody answers names."""
    table = DEBIAN.but({"server.Hostname": ("ip-10-64-33-9.us-west-2.compute.internal",)})
    played = Recorder(table).play(Baseline(WORKER))

    assert not [name for name in played.names if name.startswith("Host name")]
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
