"""How people log in and what their sessions begin with: umask, su, sudo, passwords at a console, banners."""

from functools import partial

from bedplate.plan.accounts import PEOPLE_IDS
from roles.shipped import Shipped
from roles.template import text_of
from roles.texts import Edit, with_line, with_words

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
