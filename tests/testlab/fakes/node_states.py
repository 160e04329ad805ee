"""A fleet's people for tests of the role `people`, and a node in memory that has these accounts."""

from collections.abc import Iterable, Mapping

from bedplate.plan.fleet import Account, Accounts
from bedplate.plan.nodes import Mount, MountKind, Share
from roles.people.role import People
from roles.storage.role import Storage
from tests.testlab.fakes.node import Disk, Lines, Played, Recorded, Recorder, recorded
from tests.testlab.fleets.random import ADA, BOB

ACCOUNTED, MARKS, MAKES_HOMES = "roles.people.accounts.Accounted", "roles.files.Marks", "roles.people.role.MakesHomes"
ACCOUNTS = Accounts(
    (
        Account("ada", 20000, admin=True, keys=(ADA,), groups=("vision",)),
        Account("bob", 20001, admin=False, keys=(BOB,), groups=("vision", "speech")),
    ),
    {"vision": 50000, "speech": 50001},
    {"eve": 20002},
)
FRESH = (
    "login:root:x:0:0:root:/root:/bin/bash",
    "login:ubuntu:x:1000:1000::/home/ubuntu:/bin/bash",
    "group:root:x:0:",
    "group:sudo:x:27:ubuntu",
    "lock:root:*:",
    "lock:ubuntu:!:",
    "busy:0",
)


def answering(system: Recorded, lines: Iterable[str], **more: tuple[str, ...]) -> Recorded:
    """Return a node that has these accounts."""
    table = {ACCOUNTED: tuple(lines), MARKS: None, MAKES_HOMES: ("0",)}
    return system.but({**table, **more})


def played(
    system: Recorded,
    lines: Iterable[str] = FRESH,
    accounts: Accounts = ACCOUNTS,
    homes: str | None = None,
    first: str | None = "ubuntu",
) -> Played:
    """Run the role on a node that has these accounts."""
    node = Recorder(answering(system, lines), Disk.of({}))
    return node.play(People(accounts, homes, first), stages=("configure", "activate"))


LOGIN_DEFS = "#\n# Who is who.\nUMASK\t\t022\n#HOME_MODE\t0700\nPASS_MAX_DAYS\t99999\nENCRYPT_METHOD SHA512\n"
SU = """auth       sufficient pam_rootok.so
# auth       required   pam_wheel.so
# auth       required   pam_wheel.so deny group=nosu
@include common-auth
"""
HARDENED_FRESH: Mapping[str, str] = {
    "/etc/login.defs": LOGIN_DEFS,
    "/etc/default/useradd": "SHELL=/bin/sh\n# INACTIVE=-1\n",
    "/etc/profile": "unset i\n",
    "/etc/bash.bashrc": "# System-wide .bashrc file\n",
    "/etc/pam.d/su": SU,
    "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\n",
    "/etc/crontab": "# m h dom mon dow user command\n",
    "/etc/fstab": "/dev/vda1 / ext4 defaults 0 1\n",
}
_FACT = "roles.hardened."
_OPEN: Mapping[str, Lines] = {
    f"{_FACT}logins.InForce": None,
    f"{_FACT}role.Remountable": ("rw,nosuid,nodev",),
    f"{_FACT}role.Strength": ("rsa 3072", "short 12"),
    f"{_FACT}role.Modes": ("644 root /etc/ssh/sshd_config", "640 shadow /etc/shadow"),
    "roles.system.Settable": ("kernel.sysrq=176", "net.ipv4.tcp_syncookies=1"),
}
_CLOSED: Mapping[str, Lines] = {
    f"{_FACT}logins.InForce": ("yes",),
    "server.Groups": ("sugroup:x:998:",),
    f"{_FACT}role.Remountable": None,
    f"{_FACT}role.Strength": ("rsa 4096", "short 0"),
    f"{_FACT}role.Modes": ("600 root /etc/ssh/sshd_config", "640 shadow /etc/shadow"),
    "roles.system.Settable": ("kernel.sysrq=0", "net.ipv4.tcp_syncookies=1"),
}


def fresh(table: Recorded) -> Recorder:
    """Return a machine that nobody has hardened."""
    disk = Disk.of(HARDENED_FRESH)
    return Recorder(table.but({**_OPEN, **_texts(disk)}), disk)


def again(table: Recorded, disk: Disk, answers: Mapping[str, Lines] | None = None) -> Recorder:
    """Return the machine after an apply that was confirmed, but for other answers."""
    return Recorder(table.but({**_CLOSED, **_texts(disk), **(answers or {})}), disk)


def _texts(disk: Disk) -> Mapping[str, Lines]:
    """Return what a node shows of the files that the role edits."""
    told = [
        line
        for path in HARDENED_FRESH
        if path in disk.entries
        for line in (f"==bedplate== {path}", *disk.read(path).splitlines())
    ]
    return {"roles.files.Texts": tuple(told)}


HOME = Mount("cellar-home", MountKind.NFS, "nas.cellar.lab.internal", "/srv/home", "/home")
CLOUD = Mount("home", MountKind.EFS, "home.files.us-west-2.lab.internal", "/", "/home", "us-west-2")
SHARE = Share("cellar-home", "/srv/home", "/home", ("192.168.40.0/22",))
FOUND = "roles.storage.role.Finding"
NOTHING: dict[str, tuple[str, ...] | None] = {
    "roles.system.States": None,
    "roles.storage.exports.KernelServes": ("yes",),
    "roles.storage.role.OwnHomes": ("root:0:/root", "ubuntu:1000:/home/ubuntu", "ada:20000:/home/ada"),
    "roles.files.Marks": None,
}


def stored_played(role: Storage, distribution: str = "debian-12", found: tuple[str, ...] = ("portmapper:",)) -> Played:
    """Run the role's last two stages on a node that has nothing of it but what was found."""
    table: Recorded = recorded(distribution).but({**NOTHING, FOUND: found})
    return Recorder(table, Disk.of({})).play(role, stages=("configure", "activate"))
