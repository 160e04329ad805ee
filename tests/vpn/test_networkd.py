"""Routes and rules of roles and daemons together with a real systemd-networkd in a namespace."""

import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from roles.baseline.role import NETWORKD
from vpn.sites.files import last_routes_text

# With a read-only /sys, networkd does not wait for udev. A link that appears later is configured, as at boot.
LAB = """
mount --make-rprivate /; mount -t sysfs -o ro sysfs /sys
mount -t tmpfs tmpfs /run/systemd; mkdir -p /run/systemd/netif/{links,leases,lldp}
chown -R systemd-network:systemd-network /run/systemd/netif
mount -t tmpfs tmpfs /etc/systemd; mkdir -p /etc/systemd/network /etc/systemd/networkd.conf.d
printf '[Match]\\nName=d0\\n[Network]\\nAddress=10.1.1.1/24\\nGateway=10.1.1.254\\nLinkLocalAddressing=no\\n' \\
  >/etc/systemd/network/10-d0.network
[ -z "$1" ] || cp "$1" /etc/systemd/networkd.conf.d/
ip link set lo up
ip -batch "$2"
ip rule add fwmark 0x62656470 table 220
/lib/systemd/systemd-networkd >"$3" 2>&1 &
trap "kill $!" EXIT
until grep -q 'Enumeration completed' "$3"; do sleep 0.1; done
ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
until [ -n "$(ip route show default)" ]; do sleep 0.1; done
ip route show proto 98; ip rule show table 220
"""


def remaining(folder: Path, settings: str) -> list[str]:
    """Return the foreign routes and rules that remain after networkd has configured a link."""
    conf, routes = folder / "60-bedplate.conf", folder / "last-routes"
    conf.write_text(settings)
    routes.write_text(last_routes_text([IPv4Network("10.64.0.0/16"), IPv4Network("10.66.0.0/16")]))
    arguments = (str(conf) if settings else "", str(routes), str(folder / "log"))
    command = ["unshare", "--net", "--mount", "bash", "-euc", LAB, "lab", *arguments]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [" ".join(line.partition(" metric ")[0].split()) for line in output.splitlines()]


KEPT = ["unreachable 10.64.0.0/16", "unreachable 10.66.0.0/16", "32765: from all fwmark 0x62656470 lookup 220"]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [(NETWORKD.text, KEPT), ("", [])],
    ids=["settings of the role", "defaults"],
)
def test_networkd_keeps_foreign_routes(settings: str, kept: list[str], tmp_path: Path) -> None:
    """With the role's settings the last routes and strongSwan's rule stay; by default networkd deletes them."""
    assert remaining(tmp_path, settings) == kept
