"""Rules for laptop gateways: OpenVPN, its keys and certificates, and the packet filter for laptops."""

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if
from bedplate.compliance.shell import NoAnswerError
from bedplate.foreign import parse_json
from bedplate.plan.laptops import Transport
from bedplate.plan.nodes import NodePlan, Platform
from vpn.authority import WARNING
from vpn.certificates import EXPIRY_WARNING, Use
from vpn.laptops.server import DNS_UNIT, SERVICE, STANDARD, USER, daemon_unit, guard_rules, instance, server_conf
from vpn.pki import Pki

pytestmark = applies_if(lambda node: node.laptops is not None)
_KEYS = ("server.key", "tls-crypt-v2.key")


@pytest.fixture(autouse=True)
def _resolvers(node: NodePlan) -> None:
    """Judge nothing without recorded resolvers: the plan has no OpenVPN settings then."""
    if not (node.laptops and node.laptops.name_servers(Transport.UDP)):
        raise NoAnswerError("fleet.lock has no DNS resolver for laptops: run `bedplate vpn record`")


def test_openvpn_runs_on_udp_and_tcp(host: Host, node: NodePlan) -> None:
    """OpenVPN runs over UDP and TCP; TCP passes networks that allow only web traffic."""
    for transport in Transport:
        assert host.service(instance(transport)).is_running
        assert host.service(instance(transport)).is_enabled


def test_openvpn_settings_match_the_plan(host: Host, node: NodePlan) -> None:
    """Pools, routes, ciphers and name servers in OpenVPN's settings match the plan."""
    assert node.laptops
    for transport in Transport:
        file = host.file(f"{STANDARD.settings}/{transport}.conf")
        assert file.content_string == server_conf(node.laptops, transport)


def test_openvpn_does_not_run_as_root(host: Host, node: NodePlan) -> None:
    """OpenVPN runs without root: it can change routes, but no files or programs."""
    assert host.file(f"/etc/systemd/system/{SERVICE}").content_string == daemon_unit()
    assert {process.user for process in host.process.filter(comm="openvpn")} == {USER}


def test_openvpn_keys_are_private(host: Host, node: NodePlan) -> None:
    """Only OpenVPN's user can read its keys; a copy of a key can impersonate the gateway."""
    for name in _KEYS:
        key = host.file(f"{STANDARD.settings}/{name}")
        assert (oct(key.mode), key.user) == ("0o400", USER)


def test_laptop_filter_matches_the_plan(host: Host, node: NodePlan) -> None:
    """The firewall rules for laptops match the plan, in the file and in the kernel."""
    assert node.laptops
    assert host.file(f"{STANDARD.settings}/guard.nft").content_string == guard_rules(node.laptops)
    listed = "nft --stateless list table inet bedplate_laptops"
    loaded = f"nft -f {STANDARD.settings}/guard.nft && {listed}"
    # An empty network namespace shows the same rules as the kernel prints them.
    assert host.check_output(listed) == host.check_output(f"unshare --net sh -c '{loaded}'")


@applies_if(lambda node: node.platform is Platform.CLOUD)
def test_dns_listens_on_vpn_addresses_only(host: Host, node: NodePlan) -> None:
    """A region's gateway answers DNS on its VPN addresses only, and only if its fleet has no resolver endpoints."""
    assert node.laptops
    forwards = node.laptops.upstream is not None
    assert host.service(DNS_UNIT).is_running == forwards
    servers = {str(server) for transport in Transport for server in node.laptops.name_servers(transport) if forwards}
    sockets = host.check_output("ss --no-header --listening --numeric --tcp --udp 'sport = :53'").splitlines()
    addresses = {socket.split()[4].rpartition(":")[0].partition("%")[0] for socket in sockets}
    wrong = sorted(address for address in addresses - servers if not address.startswith(("127.", "[::1]")))
    assert not wrong, f"DNS listens on {', '.join(wrong)}"


def test_ip_forwarding_is_on(host: Host, node: NodePlan) -> None:
    """The gateway forwards IPv4 packets of laptops."""
    assert host.sysctl("net.ipv4.ip_forward") == 1


def test_revocation_list_is_valid(host: Host, node: NodePlan) -> None:
    """The revocation list is valid for 14 more days, the gateway's certificate for 5; no laptop can connect later."""
    status = parse_json(host.check_output("bedplate-vpn status"))
    for name, warning in (("crl", WARNING), ("certificate", EXPIRY_WARNING[Use.SERVER])):
        assert status[name]
        assert status[name] - status["time"] > warning.total_seconds()


def test_laptop_access_matches_the_audit_log(host: Host, node: NodePlan, pki: Pki) -> None:
    """The gateway trusts the fleet's authority only, and admits only laptops of the audit log that are not revoked."""
    version = int(host.check_output(f"cat {STANDARD.settings}/book.version"))
    if version > len(pki.journal.lines):
        pytest.skip("fleet.pki is older than the gateway's access list: get the newest folder (git pull)")
    listed = pki.certificates.listed

    assert host.file(f"{STANDARD.settings}/ca.crt").content_string == pki.authority.trusted
    assert listed is None or parse_json(host.check_output("bedplate-vpn status"))["number"] >= listed.number
    for transport in Transport:
        names = host.check_output(f"ls -A {STANDARD.addresses(transport)}").splitlines()
        unknown = [name for name in names if name not in pki.certificates.holders()]
        # A file named DEFAULT would admit every certificate.
        assert not unknown, f"not in the audit log, or revoked: {', '.join(unknown)}"
