"""The bounds that the distribution gives strongSwan's programs, enforced on a site's gateway with its tunnels.

Runs on the gateway itself, whose kernel has AppArmor. Knows the profiles of Debian's packages, and changes of them only
that what they forbid is refused and not merely told; what the role adds to them is as the role wrote it.
"""

import re
from pathlib import Path

from tests.support.netlab import LabTrouble, checked

UNIT = "bedplate-ipsec-tunnels.service"
_PROFILES = Path("/etc/apparmor.d")
_NAMES = ("usr.sbin.charon-systemd", "usr.sbin.swanctl")
_DENIED = re.compile(r'apparmor="DENIED".*?profile="([^"]+)" name="([^"]+)"')


def enforce() -> None:
    """Have both programs refused from now on, as they start, what their profiles do not hold."""
    for name in _NAMES:
        profile = _PROFILES / name
        profile.write_text(profile.read_text().replace("flags=(complain,", "flags=("))
    _read()


def drop_additions() -> dict[str, str]:
    """Take away what the role added, and return it by the file's name."""
    taken = {}
    for name in _NAMES:
        file = _PROFILES / "local" / name
        taken[name] = file.read_text()
        file.write_text("")
    _read()
    return taken


def put_back(additions: dict[str, str]) -> None:
    """Add again what was taken."""
    for name, text in additions.items():
        (_PROFILES / "local" / name).write_text(text)
    _read()


def restarted() -> bool:
    """Start the tunnels' charon anew, and tell whether its unit says that it started."""
    try:
        checked(["systemctl", "restart", UNIT], seconds=300)
    except LabTrouble:
        return False
    return True


def standing() -> str:
    """Return the bounds in which the tunnels' charon runs, as the kernel names them."""
    pid = checked(["systemctl", "show", "--property", "MainPID", "--value", UNIT]).strip()
    return Path(f"/proc/{pid}/attr/current").read_text().strip()


def denied(cursor: str) -> list[tuple[str, str]]:
    """Return what was refused to whom since a place in the journal, each once."""
    told = checked(["journalctl", "--dmesg", "--output", "cat", "--after-cursor", cursor])
    return sorted(set(_DENIED.findall(told)))


def here() -> str:
    """Return the place in the journal that is its end now."""
    return checked(["journalctl", "--lines", "1", "--show-cursor", "--quiet"]).rpartition("-- cursor: ")[2].strip()


def _read() -> None:
    checked(["apparmor_parser", "--replace", *(str(_PROFILES / name) for name in _NAMES)], seconds=300)
