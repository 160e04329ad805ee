"""Logins of a node: sshd, PAM, su, sudo, umask, banners, and the confirmation of changes that could lock users out."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server

from bedplate.plan.fleet import PEOPLE_IDS, Access
from bedplate.plan.nodes import NodeRole, access_on
from roles.base import UNITS, Edit, ManagedFile, changed, file_text, put_files, render, set_line, set_values, unit_files
from roles.hardened import firewall
from roles.hardened.firewall import HELD, TRIED
from roles.system import remove_drop_ins

_UMASK = "027"
# A group without members: only root may use su; others use sudo, which logs the user.
SU_GROUP = "sugroup"
_LOGIN_DEFS = {
    "UMASK": _UMASK,
    "HOME_MODE": "0750",
    "ENCRYPT_METHOD": "YESCRYPT",
    "YESCRYPT_COST_FACTOR": "8",
    "LOGIN_RETRIES": "3",
    "LOGIN_TIMEOUT": "60",
    "FAILLOG_ENAB": "yes",
    "LOG_OK_LOGINS": "yes",
    "PASS_MIN_DAYS": "1",
    "PASS_WARN_AGE": "7",
    "SHA_CRYPT_MIN_ROUNDS": "65536",
    # Accounts added by hand get ids outside the fleet's range.
    "UID_MAX": str(PEOPLE_IDS[0] - 1),
    "GID_MAX": str(PEOPLE_IDS[0] - 1),
}
SU_AUTH = f"auth       required   pam_wheel.so use_uid group={SU_GROUP}"

EDITS = (
    Edit("/etc/login.defs", partial(set_values, values=_LOGIN_DEFS)),
    # Passwords do not expire here; if one is set to expire, so must the account.
    Edit("/etc/default/useradd", partial(set_line, pattern=r"#?\s*INACTIVE=", line="INACTIVE=30")),
    Edit("/etc/profile", partial(set_line, pattern=r"\s*umask\s", line=f"umask {_UMASK}")),
    Edit("/etc/bash.bashrc", partial(set_line, pattern=r"\s*umask\s", line=f"umask {_UMASK}")),
    # The distribution has this line commented out, after pam_rootok.
    Edit("/etc/pam.d/su", partial(set_line, pattern=r"#?\s*auth\s+required\s+pam_wheel\.so", line=SU_AUTH)),
)


def login_files() -> tuple[ManagedFile, ...]:
    """Return the files of logins and sessions."""
    banner = file_text("hardened/issue")
    return (
        ManagedFile("Write the console banner", "/etc/issue", banner),
        ManagedFile("Write the SSH banner", "/etc/issue.net", banner),
        _hardened_file("Configure the SSH client", "/etc/ssh/ssh_config.d/00-bedplate.conf", "ssh_config"),
        ManagedFile("Configure sudo", "/etc/sudoers.d/zz-bedplate-hardened", file_text("hardened/sudoers"), "440"),
        _hardened_file("Rotate the sudo log", "/etc/logrotate.d/bedplate-sudo", "logrotate-sudo"),
        _hardened_file("Set the umask of sessions", "/etc/profile.d/bedplate-umask.sh", "umask.sh"),
        _hardened_file("Disable core dumps of sessions", "/etc/security/limits.d/90-bedplate-core.conf", "limits.conf"),
        _hardened_file("Configure lockout after failed passwords", "/etc/security/faillock.conf", "faillock.conf"),
        _hardened_file("Configure password quality", "/etc/security/pwquality.conf", "pwquality.conf"),
        ManagedFile("Restrict cron to root", "/etc/cron.allow", "root\n", "600"),
        ManagedFile("Restrict at to root", "/etc/at.allow", "root\n", "600"),
    )


def _hardened_file(name: str, path: str, file: str) -> ManagedFile:
    return ManagedFile(name, path, file_text(f"hardened/{file}"))


_PROFILES = ("faillock", "faillock-notify", "pwhistory")


def configure_pam() -> None:
    """Declare the PAM profiles, and the group that may use su."""
    server.group(name=f"Create group {SU_GROUP}", group=SU_GROUP, system=True)
    profiles = put_files(
        *(
            ManagedFile(
                f"Write PAM profile {profile}",
                f"/usr/share/pam-configs/bedplate-{profile}",
                file_text(f"hardened/pam-{profile}"),
            )
            for profile in _PROFILES
        )
    )
    server.shell(
        name="Enable PAM profiles",
        commands=["DEBIAN_FRONTEND=noninteractive pam-auth-update --package"],
        _if=changed(profiles),
    )


MAIN, DROP_IN = "/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/00-bedplate.conf"
# Owned by root: only the fleet file adds keys to an account.
KEYS = "/etc/ssh/authorized_keys.d/%u"
# The default accounts of Ubuntu's and Debian's images. Source: cloud-init's default_user of each.
IMAGE_ACCOUNTS = ("ubuntu", "debian", "admin")
# Users forward local ports to notebooks on a workbench, and to machines behind a gateway.
_FORWARDING = frozenset({NodeRole.WORKBENCH, NodeRole.TUNNELS, NodeRole.LAPTOPS})

_AT_START = (MAIN, DROP_IN, "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key")
# systemd updates it at each start and reload; no program can set a ctime back.
_LAST_READ = "systemctl show --timestamp=us+utc --property=StateChangeTimestamp --value ssh.service"
# Prints each file that changed after sshd last read it; nothing if sshd does not run, as with Ubuntu's socket.
UNREAD = f'! systemctl --quiet is-active ssh.service || find {" ".join(_AT_START)} -newerct "$({_LAST_READ})"'
# A reload ends a sshd that ssh.socket started; a restart ends no session. Without the reset, systemd refuses the sixth
# start within 10 s and fails ssh.socket too.
RELOAD = (
    "if systemctl --quiet is-active ssh.socket; then systemctl reset-failed ssh.service 2>/dev/null; "
    "systemctl try-restart ssh.service; "
    "elif systemctl --quiet is-active ssh.service; then systemctl reload ssh.service; fi"
)

# The roles `tokens` and `hub` write them.
TOKEN_PROGRAM, HUB_TOKEN_PROGRAM = "/usr/local/bin/kube-token", "/usr/local/bin/bp-token"
README = ManagedFile("Explain ignored sshd files", "/etc/ssh/sshd_config.d/README", file_text("hardened/sshd-readme"))


def settings(node_roles: frozenset[NodeRole], administrators: Iterable[str] = ()) -> str:
    """Return the configuration of sshd; where people get tokens only, `administrators` are those who may log in."""
    program = HUB_TOKEN_PROGRAM if NodeRole.HUB in node_roles else TOKEN_PROGRAM
    return render(
        "hardened/sshd.conf.j2",
        keys=KEYS,
        forwarding="local" if node_roles & _FORWARDING else "no",
        own_keys=IMAGE_ACCOUNTS,
        token_program=program if access_on(node_roles) is Access.TOKENS else None,
        administrators=sorted(administrators),
    )


SCRIPT = "/usr/local/sbin/bedplate-trial"
# Run as root over a new connection. Exit code 3: too late, the change was reverted.
CONFIRM = f"{SCRIPT} confirm"
# Longer than the operations after it, and not too long for an operator who is locked out.
SECONDS = 120
_FILTER = "/etc/bedplate/filter.nft"
UNIT = "bedplate-filter.service"
UNIT_PATH = f"{UNITS}/{UNIT}"
# The link that `systemctl enable` creates; image builds have no running systemd.
_ENABLED = f"{UNITS}/sysinit.target.wants/{UNIT}"


class InForce(FactBase[bool]):
    """Whether both files are confirmed, sshd has read them and no other file, and the loaded rules match."""

    default = bool

    def command(self, packets: str, sshd: str) -> StringCommand:
        """Compare the files' SHA-256, and the loaded table with the table of the file."""
        sums = f'printf "%s  %s\\n" {packets} {_FILTER} {sshd} {DROP_IN} | sha256sum --check --status'
        table = f'wanted=$({TRIED} < {_FILTER}) && [ "$wanted" = "$({HELD})" ]'
        # The drop-in is the first and the only include.
        first = f'[ "$(head -n 1 {MAIN})" = "Include {DROP_IN}" ]'
        alone = f"""[ "$(grep -ciE '^[[:space:]]*"?include' {MAIN})" = 1 ]"""
        read = f'unread=$({UNREAD}) && [ -z "$unread" ]'
        both = f"{sums} 2>/dev/null && {first} && {alone} && {read} && {{ {table}; }} 2>/dev/null"
        return StringCommand(f"[ ! -e /var/lib/bedplate/trial ] && {both} && echo yes || :")

    def process(self, output: Iterable[str]) -> bool:
        """Return whether the checks passed."""
        return "yes" in list(output)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A change of packet filter and sshd, which is reverted unless a new login confirms it within SECONDS.

    `packets`, `sshd` and `emergency` are the texts of the packet filter, sshd's configuration and the emergency rules.
    """

    packets: str
    sshd: str
    emergency: str

    def write(self) -> None:
        """Write the files, and the program that activates them."""
        put_files(
            ManagedFile(f"Write {SCRIPT}", SCRIPT, file_text("hardened/bedplate-trial"), "755"),
            *firewall.emergency_files(self.emergency),
            *unit_files("hardened", UNIT),
            ManagedFile("Write the packet filter", "/etc/bedplate/wanted/filter.nft", self.packets, "600"),
            ManagedFile("Write the sshd configuration", "/etc/bedplate/wanted/sshd.conf", self.sshd, "600"),
        )
        remove_drop_ins("Remove drop-ins of the packet filter units", (UNIT, firewall.UNIT))
        # A copy of earlier versions, in a folder that others could write to.
        files.file(name="Remove the copy of the packet filter", path="/var/lib/bedplate/filter.loaded", present=False)
        files.link(name="Enable the emergency rules at boot", path=firewall.ENABLED, target=firewall.UNIT_PATH)
        files.link(name="Enable the packet filter at boot", path=_ENABLED, target=UNIT_PATH)

    def begin(self) -> None:
        """Activate the files for confirmation, unless they are active already."""
        packets, sshd = (sha256(text.encode()).hexdigest() for text in (self.packets, self.sshd))
        if not host.get_fact(InForce, packets=packets, sshd=sshd):
            server.shell(
                name="Activate packet filter and sshd for confirmation", commands=[f"{SCRIPT} begin {SECONDS}"]
            )
