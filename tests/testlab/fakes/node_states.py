"""States of the node in memory for tests of the roles `people`, `hardened` and `storage`."""

from collections.abc import Iterable, Mapping

from bedplate.plan.fleet import Account, Accounts
from bedplate.plan.mounts import Mount, MountKind, Share
from roles.base import FileSignatures, FileTexts
from roles.hardened.logins import InForce
from roles.hardened.role import ExecutableShm, FileModes, KeyStrength
from roles.people.accounts import ReadAccounts
from roles.people.role import MakesHomes, People
from roles.storage.mounts import KernelServes
from roles.storage.role import LocalHomes, ReadStorage, Storage
from roles.system import Settable, UnitStates
from tests.testlab.fakes.node import Disk, Lines, Played, Recorded, Recorder, recorded
from tests.testlab.fleets.random import ADA, BOB

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


def with_accounts(system: Recorded, lines: Iterable[str], answers: Mapping[str, Lines] | None = None) -> Recorded:
    """Return the facts of a node with these accounts."""
    accounts = {ReadAccounts.name: tuple(lines), FileSignatures.name: None, MakesHomes.name: None}
    return system.but({**accounts, **(answers or {})})


def play_people(
    system: Recorded,
    lines: Iterable[str] = FRESH,
    accounts: Accounts = ACCOUNTS,
    homes: str | None = None,
    first: str | None = "ubuntu",
) -> Played:
    """Run the role `people` on a node with these accounts."""
    node = Recorder(with_accounts(system, lines), Disk.of({}))
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
_NOT_HARDENED: Mapping[str, Lines] = {
    InForce.name: None,
    ExecutableShm.name: ("rw,nosuid,nodev",),
    KeyStrength.name: ("rsa 3072", "short 12"),
    FileModes.name: ("644 root /etc/ssh/sshd_config", "640 shadow /etc/shadow"),
    Settable.name: ("kernel.sysrq=176", "net.ipv4.tcp_syncookies=1"),
}
_HARDENED: Mapping[str, Lines] = {
    InForce.name: ("yes",),
    "server.Groups": ("sugroup:x:998:",),
    ExecutableShm.name: None,
    KeyStrength.name: ("rsa 4096", "short 0"),
    FileModes.name: ("600 root /etc/ssh/sshd_config", "640 shadow /etc/shadow"),
    Settable.name: ("kernel.sysrq=0", "net.ipv4.tcp_syncookies=1"),
}


def unhardened(table: Recorded) -> Recorder:
    """Return a node before its first apply."""
    disk = Disk.of(HARDENED_FRESH)
    return Recorder(table.but({**_NOT_HARDENED, **_file_texts(disk)}), disk)


def hardened(table: Recorded, disk: Disk, answers: Mapping[str, Lines] | None = None) -> Recorder:
    """Return the node after a confirmed apply, with changed answers."""
    return Recorder(table.but({**_HARDENED, **_file_texts(disk), **(answers or {})}), disk)


def _file_texts(disk: Disk) -> Mapping[str, Lines]:
    """Return the answer of `FileTexts` for the files that the role edits."""
    lines = [
        line
        for path in HARDENED_FRESH
        if path in disk.entries
        for line in (f"==bedplate== {path}", *disk.read(path).splitlines())
    ]
    return {FileTexts.name: tuple(lines)}


HOME = Mount("cellar-home", MountKind.NFS, "nas.cellar.lab.internal", "/srv/home", "/home")
CLOUD = Mount("home", MountKind.EFS, "home.files.us-west-2.lab.internal", "/", "/home", "us-west-2")
SHARE = Share("cellar-home", "/srv/home", "/home", ("192.168.40.0/22",))
NO_STORAGE: dict[str, tuple[str, ...] | None] = {
    UnitStates.name: None,
    KernelServes.name: ("yes",),
    LocalHomes.name: ("root:0:/root", "ubuntu:1000:/home/ubuntu", "ada:20000:/home/ada"),
    FileSignatures.name: None,
}


def play_storage(role: Storage, distribution: str = "debian-12", state: tuple[str, ...] = ("portmapper:",)) -> Played:
    """Run `configure` and `activate` on a node with this storage state."""
    table: Recorded = recorded(distribution).but({**NO_STORAGE, ReadStorage.name: state})
    return Recorder(table, Disk.of({})).play(role, stages=("configure", "activate"))
