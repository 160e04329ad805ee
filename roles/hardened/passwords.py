"""What PAM does with passwords at a console and of sudo: counts failures, refuses weak and old ones.

Goes through pam-auth-update, as the distribution's own profiles do, so that other packages' profiles stay. Whether the
profiles are active, and nothing precedes them, is for the audit to judge.
"""

from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from roles.hardened.logins import SU_GROUP
from roles.shipped import Shipped, ship
from roles.template import text_of

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
