"""A booted test node that stands for a gateway, on a kernel without IPsec: what the kernel lacks is substituted.

The product's files stay as they are. `modprobe` and `ip` come first in the search path: the modules seem to be there,
and an XFRM interface is a bridge. A drop-in of charon's unit loads kernel-libipsec.
"""

from tests.support.stand.node import Node
from tests.support.userspace import settings_over
from vpn.sites.charon import settings_of
from vpn.sites.rendered import STANDARD
from vpn.sites.units import SERVICE

_PROGRAMS = "/usr/local/sbin/ip /usr/local/sbin/modprobe"
_IP = """#!/bin/bash
case "$*" in
"link add "*" type xfrm if_id "*) exec /usr/sbin/ip link add "$3" type bridge ;;
"-brief link show type xfrm") exec /usr/sbin/ip -brief link show type bridge ;;
esac
exec /usr/sbin/ip "$@"
"""
_MODPROBE = """#!/bin/bash
case "$*" in
"--dry-run --quiet esp4" | "--dry-run --quiet xfrm_interface") exit 0 ;;
esac
exec /usr/sbin/modprobe "$@"
"""
_SETTINGS = "/etc/userspace.conf"


def substitute_ipsec(node: Node) -> None:
    """Let the node's kernel seem to have IPsec, and charon encrypt by itself."""
    for name, text in (("ip", _IP), ("modprobe", _MODPROBE)):
        program = node.root / "usr/local/sbin" / name
        program.write_text(text)
        program.chmod(0o755)
    product = settings_of(STANDARD)
    (node.root / _SETTINGS.lstrip("/")).write_text(settings_over(product.path, product.text))
    drop_in = node.root / f"etc/systemd/system/{SERVICE}.service.d/userspace.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(f"[Service]\nEnvironment=STRONGSWAN_CONF={_SETTINGS}\n")
    node.run("apt-get install --yes --quiet --no-install-recommends libcharon-extra-plugins >/dev/null")


def stop_substituting(node: Node) -> None:
    """Give the node its own programs back, before it gets a kernel that has IPsec."""
    node.run(f"rm -r {_PROGRAMS} {_SETTINGS} /etc/systemd/system/{SERVICE}.service.d; systemctl daemon-reload")
