"""Gateways that laptops dial: their daemons, their packet filter, their keys, and who is let in."""

import json

from testinfra.host import Host

from bedplate.compliance.subject import concerns
from bedplate.plan.laptops import Transport
from bedplate.plan.nodes import NodePlan
from vpn.laptops.server import SERVICE, STANDARD, USER, daemon_unit, guard_rules, instance, server_conf

# Without recorded resolvers nobody knows what the settings ought to be, and no apply has written them.
pytestmark = concerns(lambda node: node.laptops is not None and bool(node.laptops.resolvers))
_DAY_S = 86400
_KEYS = ("server.key", "tls-crypt-v2.key")


def test_laptops_are_served_over_both_transports(host: Host, node: NodePlan) -> None:
    """Networks that let nothing but web pages out still let laptops in."""
    for transport in Transport:
        assert host.service(instance(transport)).is_running
        assert host.service(instance(transport)).is_enabled


def test_the_settings_are_the_plans(host: Host, node: NodePlan) -> None:
    """Pools, routes, ciphers and who answers for names are decided in one place."""
    assert node.laptops
    for transport in Transport:
        written = host.file(f"{STANDARD.settings}/{transport}.conf")
        assert written.content_string == server_conf(node.laptops, transport)


def test_the_daemons_are_not_root(host: Host, node: NodePlan) -> None:
    """Whoever breaks one may change routes, and no file and no program."""
    assert host.file(f"/etc/systemd/system/{SERVICE}").content_string == daemon_unit()
    assert {process.user for process in host.process.filter(comm="openvpn")} == {USER}


def test_keys_are_read_by_the_daemons_alone(host: Host, node: NodePlan) -> None:
    """A key that others read lets them stand where the gateway stands."""
    for name in _KEYS:
        key = host.file(f"{STANDARD.settings}/{name}")
        assert (oct(key.mode), key.user) == ("0o400", USER)


def test_the_packet_filter_of_laptops_is_the_plans(host: Host, node: NodePlan) -> None:
    """No laptop reaches another, and nobody opens a connection to one: what is written is what the kernel holds."""
    assert node.laptops
    assert host.file(f"{STANDARD.settings}/guard.nft").content_string == guard_rules(node.laptops)
    listed = "nft --stateless list table inet bedplate_laptops"
    loaded = f"nft -f {STANDARD.settings}/guard.nft && {listed}"
    # A network that nobody is in shows what the text comes to, in the kernel's own words.
    assert host.check_output(listed) == host.check_output(f"unshare --net sh -c '{loaded}'")


def test_packets_of_laptops_are_led_on(host: Host, node: NodePlan) -> None:
    """A gateway that keeps packets to itself lets laptops in and leads them nowhere."""
    assert host.sysctl("net.ipv4.ip_forward") == 1


def test_the_list_of_revoked_certificates_lasts(host: Host, node: NodePlan) -> None:
    """Once it has ended nobody gets in; there are two weeks left at least, and a certificate as long."""
    told = json.loads(host.check_output("bedplate-vpn status"))
    assert all(told[name] and told[name] - told["time"] > 14 * _DAY_S for name in ("crl", "certificate"))


def test_nobody_is_let_in_by_default(host: Host, node: NodePlan) -> None:
    """A file called DEFAULT would give every certificate an address, those of people who left too."""
    for transport in Transport:
        assert not host.file(f"{STANDARD.addresses(transport)}/DEFAULT").exists
