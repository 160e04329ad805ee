"""How people log in and what their sessions begin with: umask, su, sudo, passwords at a console, banners."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server
from pyinfra.operations.util import any_changed

from bedplate.plan.fleet import PEOPLE_IDS
from bedplate.plan.nodes import Duty
from roles.files import Edit, Shipped, removed, rendered, ship, text_of, with_line, with_words
from roles.hardened import firewall
from roles.hardened.firewall import HELD, TRIED

_UMASK = "027"
# A group without members: su is root's alone, everybody else's way is sudo, which tells who it was.
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
    # What somebody adds by hand has no number of the fleet's.
    "UID_MAX": str(PEOPLE_IDS[0] - 1),
    "GID_MAX": str(PEOPLE_IDS[0] - 1),
}
SU_AUTH = f"auth       required   pam_wheel.so use_uid group={SU_GROUP}"

EDITS = (
    Edit("/etc/login.defs", partial(with_words, words=_LOGIN_DEFS)),
    # Nobody's password expires here; whoever lets one expire means the account to go with it.
    Edit("/etc/default/useradd", partial(with_line, instead_of=r"#?\s*INACTIVE=", line="INACTIVE=30")),
    Edit("/etc/profile", partial(with_line, instead_of=r"\s*umask\s", line=f"umask {_UMASK}")),
    Edit("/etc/bash.bashrc", partial(with_line, instead_of=r"\s*umask\s", line=f"umask {_UMASK}")),
    # The distribution has this line as a comment, below pam_rootok.
    Edit("/etc/pam.d/su", partial(with_line, instead_of=r"#?\s*auth\s+required\s+pam_wheel\.so", line=SU_AUTH)),
)


def shipped() -> tuple[Shipped, ...]:
    """Return the files that are wholly ours."""
    banner = text_of("hardened/issue")
    return (
        Shipped("Banner of the console", "/etc/issue", banner),
        Shipped("Banner of the network", "/etc/issue.net", banner),
        _ours("ssh to elsewhere", "/etc/ssh/ssh_config.d/00-bedplate.conf", "ssh_config"),
        Shipped("sudo", "/etc/sudoers.d/zz-bedplate-hardened", text_of("hardened/sudoers"), "440"),
        _ours("Log of sudo goes round", "/etc/logrotate.d/bedplate-sudo", "logrotate-sudo"),
        _ours("Modes of new files", "/etc/profile.d/bedplate-umask.sh", "umask.sh"),
        _ours("No cores of sessions", "/etc/security/limits.d/90-bedplate-core.conf", "limits.conf"),
        _ours("Failed passwords", "/etc/security/faillock.conf", "faillock.conf"),
        _ours("Good passwords", "/etc/security/pwquality.conf", "pwquality.conf"),
        Shipped("Who may use cron", "/etc/cron.allow", "root\n", "600"),
        Shipped("Who may use at", "/etc/at.allow", "root\n", "600"),
    )


def _ours(name: str, path: str, file: str) -> Shipped:
    return Shipped(name, path, text_of(f"hardened/{file}"))


_PROFILES = ("faillock", "faillock-notify", "pwhistory")


def guard() -> None:
    """Declare PAM's profiles, and the group that su asks for."""
    server.group(name=f"Group {SU_GROUP}", group=SU_GROUP, system=True)
    profiles = ship(
        *(
            Shipped(f"PAM: {each}", f"/usr/share/pam-configs/bedplate-{each}", text_of(f"hardened/pam-{each}"))
            for each in _PROFILES
        )
    )
    server.shell(
        name="PAM guards passwords",
        commands=["DEBIAN_FRONTEND=noninteractive pam-auth-update --package"],
        _if=any_changed(*profiles),
    )


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


SCRIPT = "/usr/local/sbin/bedplate-trial"
# What whoever applied runs as root over a new connection; exit status 3 says that it is too late.
CONFIRM = f"{SCRIPT} confirm"
# Longer than what else activates on a node may take, and than a person waits in vain.
SECONDS = 120
_FILTER = "/etc/bedplate/filter.nft"
UNIT = "bedplate-filter.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
# What `systemctl enable` makes of its WantedBy, without asking a running systemd.
_ENABLED = f"/etc/systemd/system/sysinit.target.wants/{UNIT}"


class InForce(FactBase[bool]):
    """Whether these two files are in force, confirmed, sshd has read them and no others, and the table is theirs."""

    default = bool

    def command(self, packets: str, sshd: str) -> StringCommand:
        """Compare the files by their SHA-256, and the kernel's table with what it makes of the file."""
        sums = f'printf "%s  %s\\n" {packets} {_FILTER} {sshd} {DROP_IN} | sha256sum --check --status'
        table = f'wanted=$({TRIED} < {_FILTER}) && [ "$wanted" = "$({HELD})" ]'
        # Read first, and alone.
        first = f'[ "$(head -n 1 {MAIN})" = "Include {DROP_IN}" ]'
        alone = f"""[ "$(grep -ciE '^[[:space:]]*"?include' {MAIN})" = 1 ]"""
        read = f'unread=$({UNREAD}) && [ -z "$unread" ]'
        both = f"{sums} 2>/dev/null && {first} && {alone} && {read} && {{ {table}; }} 2>/dev/null"
        return StringCommand(f"[ ! -e /var/lib/bedplate/trial ] && {both} && echo yes || :")

    def process(self, output: Iterable[str]) -> bool:
        """Read the answer."""
        return "yes" in list(output)


@dataclass(frozen=True, slots=True)
class Trial:
    """What is wanted of a node's packet filter and of its sshd, and what stands in for a filter that does not load."""

    packets: str
    sshd: str
    shut: str

    def write(self) -> None:
        """Put both where a trial finds them, with the program that tries them."""
        ship(
            Shipped("Program of trials", SCRIPT, text_of("hardened/bedplate-trial"), "755"),
            *firewall.shipped(self.shut),
            Shipped("Unit of the packet filter", UNIT_PATH, text_of(f"hardened/{UNIT}")),
            Shipped("Packet filter", "/etc/bedplate/wanted/filter.nft", self.packets, "600"),
            Shipped("Settings of sshd", "/etc/bedplate/wanted/sshd.conf", self.sshd, "600"),
        )
        removed("Units of the packet filter are as they are written", (UNIT, firewall.UNIT))
        # What it was compared with, where somebody could write.
        files.file(name="No copy of the loaded filter", path="/var/lib/bedplate/filter.loaded", present=False)
        files.link(name="Shut at boot", path=firewall.ENABLED, target=firewall.UNIT_PATH)
        files.link(name="Packet filter at boot", path=_ENABLED, target=UNIT_PATH)

    def begin(self) -> None:
        """Take them on trial, unless they are in force already."""
        packets, sshd = (sha256(text.encode()).hexdigest() for text in (self.packets, self.sshd))
        if not host.get_fact(InForce, packets=packets, sshd=sshd):
            server.shell(name="Packet filter and sshd, on trial", commands=[f"{SCRIPT} begin {SECONDS}"])
