"""sshd's settings on a node: keys only, nobody as root, algorithms that are modern on both distributions."""

from bedplate.plan.node import Duty
from roles.shipped import Shipped
from roles.template import rendered, text_of

MAIN, DROP_IN = "/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/00-bedplate.conf"
# Root's own, so that nobody adds a key to an account but the fleet file.
KEYS = "/etc/ssh/authorized_keys.d/%u"
# The accounts that images of Ubuntu and Debian come with. Source: cloud-init's default_user of each.
IMAGE_ACCOUNTS = ("ubuntu", "debian", "admin")
# People reach notebooks through a workbench, and what lies behind a gateway through the gateway; a tunnel to one's own
# machine is enough for both.
_PASSED_THROUGH = frozenset({Duty.WORKBENCH, Duty.TUNNELS, Duty.LAPTOPS})

_AT_START = (MAIN, DROP_IN, "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key")
# systemd moves it at each start and reload; no program sets a file's time of change (ctime) back.
_READ = "systemctl show --timestamp=us+utc --property=StateChangeTimestamp --value ssh.service"
# Prints each file that changed since sshd last read it; nothing where none runs, as behind Ubuntu's socket.
UNREAD = f'! systemctl --quiet is-active ssh.service || find {" ".join(_AT_START)} -newerct "$({_READ})"'
RELOAD = "if systemctl --quiet is-active ssh.service; then systemctl reload ssh.service; fi"

# Whoever looks why a file of theirs says nothing finds the reason beside it.
README = Shipped("Word on unread settings", "/etc/ssh/sshd_config.d/README", text_of("hardened/sshd-readme"))


def settings(duties: frozenset[Duty]) -> str:
    """Return the drop-in of sshd_config."""
    forwarding = "local" if duties & _PASSED_THROUGH else "no"
    return rendered("hardened/sshd.conf.j2", keys=KEYS, forwarding=forwarding, own_keys=(",".join(IMAGE_ACCOUNTS),))
