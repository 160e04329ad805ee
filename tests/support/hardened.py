"""What a node in memory answers to the questions of the role `hardened`, beside those about files."""

from collections.abc import Mapping

from tests.support.disk import Disk
from tests.support.recorded import Lines, Recorded
from tests.support.recorder import Recorder

LOGIN_DEFS = "#\n# Who is who.\nUMASK\t\t022\n#HOME_MODE\t0700\nPASS_MAX_DAYS\t99999\nENCRYPT_METHOD SHA512\n"
SU = """auth       sufficient pam_rootok.so
# auth       required   pam_wheel.so
# auth       required   pam_wheel.so deny group=nosu
@include common-auth
"""
FRESH: Mapping[str, str] = {
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
    f"{_FACT}trial.InForce": None,
    f"{_FACT}memory.Remountable": ("rw,nosuid,nodev",),
    f"{_FACT}identity.Strength": ("rsa 3072", "short 12"),
    f"{_FACT}modes.Modes": ("644 root /etc/ssh/sshd_config", "640 shadow /etc/shadow"),
    "roles.sysctl.Settable": ("kernel.sysrq=176", "net.ipv4.tcp_syncookies=1"),
}
_CLOSED: Mapping[str, Lines] = {
    f"{_FACT}trial.InForce": ("yes",),
    "server.Groups": ("sugroup:x:998:",),
    f"{_FACT}memory.Remountable": None,
    f"{_FACT}identity.Strength": ("rsa 4096", "short 0"),
    f"{_FACT}modes.Modes": ("600 root /etc/ssh/sshd_config", "640 shadow /etc/shadow"),
    "roles.sysctl.Settable": ("kernel.sysrq=0", "net.ipv4.tcp_syncookies=1"),
}


def fresh(table: Recorded) -> Recorder:
    """Return a machine that nobody has hardened."""
    disk = Disk.of(FRESH)
    return Recorder(table.but({**_OPEN, **_texts(disk)}), disk)


def again(table: Recorded, disk: Disk, answers: Mapping[str, Lines] | None = None) -> Recorder:
    """Return the machine after an apply that was confirmed, but for other answers."""
    return Recorder(table.but({**_CLOSED, **_texts(disk), **(answers or {})}), disk)


def _texts(disk: Disk) -> Mapping[str, Lines]:
    """Return what a node shows of the files that the role edits."""
    told = [
        line
        for path in FRESH
        if path in disk.entries
        for line in (f"==bedplate== {path}", *disk.read(path).splitlines())
    ]
    return {"roles.texts.Texts": tuple(told)}
